"""Maps that routers keep for clients that present none (protocol 7.9): what is kept when, and what a successor is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from chaos.simulation.defects.taking import Patch, always, defective
from router.core.directory import KeptMap
from router.core.keeping import KeptLink
from router.core.kept_maps import Kept
from router.core.ports import UNIQUE_TAGS, MapState, Outcome, SubscriberAnswer, SubscriberAttach
from tests.builds import puts_stand_ins
from tests.router.harness import TOPIC, Mesh

RECEIVED, ACCEPTED = MapState.RECEIVED, MapState.ACCEPTED


class KeptEnd:
    """A KeptMapPort, and what its client is sent: (packet, identifier, body). Identifiers are given from 1 on."""

    def __init__(self, mesh: Mesh, router: str, qos: int = 2, **attach: object) -> None:
        self.mesh, self.qos = mesh, qos
        self.used: dict[int, bytes] = {}
        self.sent: list[tuple[str, int, str]] = []
        self.condition: str | None = None
        self.link = KeptLink(
            mesh.cores[router],
            self,
            SubscriberAttach("s", "in", TOPIC, timeout_s=60.0, expiry_policy="link-detach", keeps_map=True, **attach),  # type: ignore[arg-type]
        )
        self.link.begin(mesh.now)

    def capacity(self) -> int:
        return 10 - len(self.used)

    def link_credit(self) -> int:
        return 0

    def answer(self, answer: SubscriberAnswer) -> int:
        self.used = {identifier: tag for identifier, (tag, _) in answer.identifiers.items()}
        self.mesh.later(lambda: self.link.credit(self.mesh.now))
        return 0

    def identify(self, tags: list[bytes], payloads: list[bytes], message_format: int) -> list[int]:
        if self.qos < 2:
            return [0] * len(tags)
        found = []
        for tag in tags:
            found.append(next(i for i in range(1, 20) if i not in self.used))
            self.used[found[-1]] = tag
        return found

    def publish(self, tags: list[bytes], payloads: list[bytes], message_format: int, repeated: bool) -> None:
        for tag, payload in zip(tags, payloads, strict=True):
            self.sent.append(("repeat" if repeated else "publish", self.identifier(tag), body(payload)))
            if self.qos < 2:
                self.link.received(tag, Outcome.ACCEPTED, True, self.mesh.now)

    def publish_settled(self, payloads: list[bytes], message_format: int) -> None:
        self.sent += [("settled", 0, body(payload)) for payload in payloads]

    def release(self, tag: bytes) -> None:
        if self.qos == 2:
            self.sent.append(("pubrel", self.identifier(tag), ""))

    def forget(self, tag: bytes) -> None:
        del self.used[self.identifier(tag)]

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.condition = condition

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self.condition = condition

    def identifier(self, tag: bytes) -> int:
        return next((i for i, each in self.used.items() if each == tag), 0)

    def pubrec(self, identifier: int) -> None:
        self.link.received(self.used[identifier], Outcome.ACCEPTED, False, self.mesh.now)
        self.mesh.run()

    def pubcomp(self, identifier: int) -> None:
        self.link.released(self.used.pop(identifier), self.mesh.now)
        self.link.credit(self.mesh.now)
        self.mesh.run()


def body(payload: bytes) -> str:
    return payload.decode()[-2:]


def attached(mesh: Mesh, router: str, qos: int = 2) -> KeptEnd:
    end = KeptEnd(mesh, router, qos)
    mesh.run()
    return end


def kept_at(mesh: Mesh, router: str) -> list[tuple[MapState, int]]:
    kept = mesh.cores[router].addresses[TOPIC].subscriptions.entries["s", "in"].kept
    return list(kept.items.values()) if kept is not None else []


def test_nothing_is_handed_over_before_the_keeper_has_its_identifier() -> None:
    mesh = Mesh("abc")
    end, publisher = attached(mesh, "a"), mesh.publisher("c")
    mesh.held.add(("b", "a"))  # b is the keeper: the next after a
    publisher.send("m0")
    assert (end.sent, kept_at(mesh, "b"), kept_at(mesh, "c")) == ([], [(RECEIVED, 1)], [])
    mesh.held.clear()
    mesh.run()
    assert end.sent == [("publish", 1, "m0")]


def test_an_identifier_is_released_when_the_keeper_has_the_acceptance_and_before_the_publisher_settles() -> None:
    """Protocol 7.9.6, 7.9.7."""
    mesh = Mesh("abc")
    end, publisher = attached(mesh, "a"), mesh.publisher("c")
    publisher.send("m0")
    mesh.held.add(("b", "a"))
    end.pubrec(1)
    assert (end.sent[1:], kept_at(mesh, "b")) == ([], [(ACCEPTED, 1)])
    mesh.held.clear()
    mesh.run()
    assert end.sent[1:] == [("pubrel", 1, "")]
    end.pubcomp(1)
    publisher.settle_all_told()
    assert kept_at(mesh, "a") == kept_at(mesh, "b") == []
    mesh.assert_settled()


def test_a_successor_sends_under_the_same_identifier_and_releases_what_was_accepted() -> None:
    """Protocol 7.9.3."""
    mesh = Mesh("abc")
    end, publisher = attached(mesh, "a"), mesh.publisher("c")
    publisher.send("m0", "m1")
    end.pubrec(1)
    publisher.settle_all_told()
    mesh.crash("a")
    successor = KeptEnd(mesh, "c")
    mesh.run()
    assert successor.used.keys() == {1, 2}
    assert [each for each in successor.sent if each[0] == "repeat"] == [("repeat", 2, "m1")]
    assert ("pubrel", 1, "") in successor.sent
    successor.pubcomp(1)
    publisher.send("m2")
    assert successor.sent[-1] == ("publish", 1, "m2")


def test_a_publisher_that_uses_its_tag_again_waits_until_the_client_has_given_the_identifier_up() -> None:
    """FINISH is answered no earlier (protocol 7.9.8)."""
    mesh = Mesh("abc")
    end = attached(mesh, "a")
    publisher = mesh.publisher("c", unsettled=UNIQUE_TAGS, wants_completion=True)
    publisher.send("m0", tags=[b"\0\1"])
    end.pubrec(1)
    publisher.settle_all_told()
    assert publisher.complete == []
    end.pubcomp(1)
    assert publisher.complete == [0]


def test_messages_that_need_no_identifier_are_in_no_map() -> None:
    mesh = Mesh("ab")
    end, publisher = attached(mesh, "a", qos=1), mesh.publisher("b")
    publisher.send("m0", "m1")
    assert end.sent == [("publish", 0, "m0"), ("publish", 0, "m1")]
    publisher.settle_all_told()
    assert kept_at(mesh, "a") == kept_at(mesh, "b") == []
    mesh.assert_settled()


def test_messages_that_come_settled_are_in_no_map_and_keep_their_place() -> None:
    """Protocol 7.9.6."""
    mesh = Mesh("ab")
    end, publisher = attached(mesh, "a"), mesh.publisher("b")
    mesh.held.add(("b", "a"))
    publisher.send("m0")
    publisher.send("m1", settled=True)
    mesh.held.clear()
    mesh.run()
    assert end.sent == [("publish", 1, "m0"), ("settled", 0, "m1")]
    assert kept_at(mesh, "b") == [(RECEIVED, 1)]


def test_another_keeper_gets_the_whole_map_first() -> None:
    """Protocol 7.9.9."""
    mesh = Mesh("abc")
    end, publisher = attached(mesh, "a"), mesh.publisher("c")
    publisher.send("m0")
    mesh.held.add(("c", "a"))
    mesh.crash("b")
    mesh.run()
    end.pubrec(1)
    assert (end.sent[1:], kept_at(mesh, "c")) == ([], [(ACCEPTED, 1)])
    mesh.held.clear()
    mesh.run()
    assert end.sent[1:] == [("pubrel", 1, "")]


def test_a_router_without_another_keeps_the_maps_itself() -> None:
    mesh = Mesh("a")
    end, publisher = attached(mesh, "a"), mesh.publisher("a")
    publisher.send("m0")
    end.pubrec(1)
    assert end.sent == [("publish", 1, "m0"), ("pubrel", 1, "")]


def test_a_map_that_was_fetched_is_not_changed() -> None:
    """The client is at c and has its map from b; then a KEEP of its former router, a, comes to b (protocol 7.9.2)."""
    mesh = Mesh("abc")
    attached(mesh, "a")
    publisher = mesh.publisher("b")
    mesh.held |= {("a", "b"), ("a", "c")}
    publisher.send("m0")  # its KEEP is on the way to b
    mesh.held.add(("c", "a"))
    mesh.now += 1
    KeptEnd(mesh, "c")
    mesh.run()
    mesh.held.discard(("a", "b"))
    mesh.run()
    assert kept_at(mesh, "b") == []


def test_an_identifier_that_another_delivery_gets_is_the_former_ones_no_more() -> None:
    """KEEP may not have told yet that the client has given it up (protocol 7.9.6)."""
    kept = KeptMap((1, "a"))
    kept.change([(b"former", ACCEPTED, 7)], [])
    kept.change([(b"other", RECEIVED, 7)], [])
    assert kept.items == {b"former": (ACCEPTED, 0), b"other": (RECEIVED, 7)}


def former_keeps_it(self: KeptMap, changed: list[tuple[bytes, int, int]], gone: list[bytes]) -> None:
    self.items.update({tag: (MapState(state), identifier) for tag, state, identifier in changed})


def finished_at_once(self: Kept, answer: Callable[[], None]) -> None:
    answer()


def nothing_whole(self: KeptLink) -> None:
    self.whole = False


@puts_stand_ins
@pytest.mark.parametrize(
    ("holds", "defect"),
    [
        (test_a_map_that_was_fetched_is_not_changed, (Kept, "_is_fetched", always(False))),
        (
            test_nothing_is_handed_over_before_the_keeper_has_its_identifier,
            (KeptLink, "_may_publish", lambda self, waiting: waiting.number >= 0),
        ),
        (
            test_an_identifier_is_released_when_the_keeper_has_the_acceptance_and_before_the_publisher_settles,
            (KeptLink, "_may_release", always(True)),
        ),
        (
            test_an_identifier_that_another_delivery_gets_is_the_former_ones_no_more,
            (KeptMap, "change", former_keeps_it),
        ),
        (
            test_a_publisher_that_uses_its_tag_again_waits_until_the_client_has_given_the_identifier_up,
            (Kept, "when_finished", finished_at_once),
        ),
        (test_another_keeper_gets_the_whole_map_first, (KeptLink, "keeper_changed", nothing_whole)),
    ],
    ids=["7.9.2", "7.9.5", "7.9.6 released", "7.9.6 one delivery", "7.9.8", "7.9.9"],
)
def test_without_its_rule_one_of_these_fails(holds: Callable[[], None], defect: Patch) -> None:
    with defective([defect]), pytest.raises(AssertionError):
        holds()
