"""An egress answers for what its subscription does not want (protocol 6.4.5, 6.4.7)."""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from typing import Any

import pytest

from amqp10.events import LinkAttached
from amqp10.outcomes import ACCEPTED, Rejected
from amqp10.runs import Dispositions, Transfers
from amqp10.sections import Message
from amqp10.termini import Source
from amqp10.types import Described, Symbol
from router.config import AddressConfig, RouterConfig
from router.core.intervals import IntervalSet
from router.core.ports import MapState, Needs, Outcome, Places, Refusal, Unwanted
from tests.router.ends import PublisherEnd, SubscriberEnd
from tests.router.harness import Mesh, undecided
from tests.router.links import make, payloads

BIG = Refusal("size", "big")


class Odd:
    """Wants bodies that end with an odd digit, and cannot take those that begin with `big`."""

    needs: Needs | None = None

    def __init__(self) -> None:
        self.judged: list[str] = []

    def places(self, payloads: Sequence[bytes], names: Container[str]) -> Places | None:
        return None

    def unwanted(self, payloads: Sequence[bytes], message_format: int) -> list[Unwanted]:
        self.judged += [payload.decode() for payload in payloads]
        return [
            (i, i + 1, BIG if payload.startswith(b"big") else Outcome.ACCEPTED)
            for i, payload in enumerate(payloads)
            if payload.startswith(b"big") or int(payload[-1:]) % 2 == 0
        ]


def test_what_is_filtered_out_is_accepted_and_everybody_else_gets_it() -> None:
    mesh = Mesh("ab")
    picky = mesh.subscriber("b", "s0", selection=Odd())
    other = mesh.subscriber("b", "s1")
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2", "m3", "m4")
    assert picky.bodies() == ["m1", "m3"]
    assert other.bodies() == ["m0", "m1", "m2", "m3", "m4"]
    assert [publisher.outcomes[i][0] for i in range(5)] == [Outcome.ACCEPTED] * 5
    publisher.settle(0, 4)
    mesh.assert_settled()


def test_it_is_answered_for_without_credit_and_what_is_wanted_waits() -> None:
    mesh = Mesh("ab")
    picky = mesh.subscriber("b", selection=Odd(), credit=0)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    publisher.send("m4", "m5")
    assert sorted(publisher.told) == [0, 2, 3]
    picky.give_credit(9)
    assert picky.bodies() == ["m1", "m5"]
    assert sorted(publisher.told) == [0, 1, 2, 3, 4]
    publisher.settle(0, 4)
    mesh.assert_settled()


def test_what_its_size_forbids_is_rejected_in_its_stead() -> None:
    """Protocol 6.4.7."""
    mesh = Mesh("ab")
    picky = mesh.subscriber("b", "s0", selection=Odd())
    mesh.subscriber("a", "s1")
    publisher = mesh.publisher("a")
    publisher.send("big1", "m1", "m2")
    assert picky.bodies() == ["m1"]
    assert publisher.outcomes[0] == (Outcome.REJECTED, 1, False)
    assert publisher.reasons[0] == b"size: big"
    assert [publisher.outcomes[i][0] for i in (1, 2)] == [Outcome.ACCEPTED] * 2
    publisher.settle(0, 2)
    mesh.assert_settled()


def test_what_waits_for_a_subscription_that_moves_is_judged_at_its_new_router() -> None:
    mesh = Mesh("abc")
    picky = mesh.subscriber("b", selection=Odd(), accepts=False, unsettled={}, epoch=1, born=1)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    mesh.crash("b")
    mesh.run()
    publisher.send("m2", "m3", "big5")
    assert sorted(publisher.told) == [0]
    held = {picky.got[0].tag: MapState.UNDECIDED}
    again = mesh.subscriber("c", selection=Odd(), unsettled=held, epoch=2, born=1)
    assert [got.body for got in again.got] == ["", "m3"], "m1 is resumed without payload"
    assert publisher.outcomes[4] == (Outcome.REJECTED, 1, False)
    assert publisher.reasons[4] == b"size: big"
    assert sorted(publisher.told) == [0, 1, 2, 3, 4]
    publisher.settle(0, 4)
    mesh.assert_settled()


def test_what_the_subscription_holds_is_not_judged_again() -> None:
    """A changed filter holds for what was not sent yet: m0 was sent under the old one."""
    mesh = Mesh("abc")
    first = mesh.subscriber("b", accepts=False, unsettled={}, epoch=1, born=1)
    publisher = mesh.publisher("a", unsettled={}, incarnation=5, epoch=5)
    publisher.send("m0", "m2")
    mesh.crash("b")
    mesh.run()
    held = {got.tag: MapState.UNDECIDED for got in first.got}
    again = mesh.subscriber("c", selection=Odd(), accepts=False, unsettled=held, epoch=2, born=1)
    assert publisher.told == []
    mesh.crash("a")
    mesh.run()
    back = mesh.publisher("c", unsettled=undecided("m0", "m2"), incarnation=5, epoch=6)
    back.send("m0", "m2")
    assert back.told == [], "its subscriber holds them, and has not accepted"
    again.accept(*[got.id for got in again.got])
    assert sorted(back.told) == [0, 1]


def test_settled_messages_are_filtered_too() -> None:
    mesh = Mesh("ab")
    picky = mesh.subscriber("b", selection=Odd())
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2", settled=True)
    assert picky.bodies() == ["m1"]
    mesh.assert_settled()


# --- on the wire


def bodies_of(runs: list[Any]) -> list[bytes]:
    return [b"".join(Message.decode(payload).body.chunks) for payload in payloads(runs)]


def receiver(client: Any, name: str, **attach: Any) -> Any:
    link = client.receiver(name, credit=50, **attach)
    (event,) = client.seen(LinkAttached, link)
    return link, event.link.remote_attach


@pytest.mark.parametrize("filter_name", ["apache.org:selector-filter:string", "onceway:predicate"])
def test_a_receiver_gets_what_its_filter_selects_and_its_answer_has_the_filter(filter_name: str) -> None:
    clients = make(RouterConfig("a", routers=("a",), addresses=(AddressConfig("orders"),)))
    p, s = clients.connect("p"), clients.connect("s")
    selector = Described(Symbol(filter_name), "colour = 'blue'")
    asked = {Symbol("sel"): selector, Symbol("unknown"): Described(Symbol("example:x"), "y")}
    link, answer = receiver(s, "in", source=Source("orders", filter=asked))
    assert answer.source.filter == {"sel": selector}
    out = p.sender()
    colours = ["blue", "red", "blue"]
    bodies = [Message(b"%d" % i, application_properties={"colour": each}).encode() for i, each in enumerate(colours)]
    out.send([b"0", b"1", b"2"], bodies)
    clients.exchange()
    runs = s.seen(Transfers, link)
    assert bodies_of(runs) == [b"0", b"2"]
    assert [(each.first_id, each.last_id, each.state) for each in p.seen(Dispositions)] == [(1, 1, ACCEPTED)]


@pytest.mark.parametrize("filter_name", ["apache.org:selector-filter:string", "onceway:predicate"])
def test_a_selector_or_predicate_that_is_none_is_refused_with_its_place(filter_name: str) -> None:
    clients = make(RouterConfig("a", routers=("a",), addresses=(AddressConfig("orders"),)))
    s = clients.connect("s")
    asked = {Symbol("sel"): Described(Symbol(filter_name), "colour = ")}
    link = s.receiver(source=Source("orders", filter=asked))
    error = s.detached(link).error
    assert error.condition == "amqp:invalid-field"
    assert "attach.source.filter: sel: line 1, column 10" in error.description


def test_a_receiver_gets_nothing_above_its_max_message_size() -> None:
    """Protocol 6.4.7."""
    clients = make(RouterConfig("a", routers=("a",), addresses=(AddressConfig("orders"),)))
    p, s = clients.connect("p"), clients.connect("s")
    link, _ = receiver(s, "in", max_message_size=300)
    out = p.sender()
    out.send([b"0", b"1"], [Message(b"x" * 400).encode(), Message(b"y").encode()])
    clients.exchange()
    assert bodies_of(s.seen(Transfers, link)) == [b"y"]
    (told,) = p.seen(Dispositions)
    assert (told.first_id, told.last_id) == (0, 0)
    assert isinstance(told.state, Rejected)


class Named(Odd):
    """Wants bodies that begin with its name."""

    def __init__(self, name: str, read: list[str]) -> None:
        super().__init__()
        self.read = read
        self.name = name
        self.needs = Needs("name", name)

    def places(self, payloads: Sequence[bytes], names: Container[str]) -> Places:
        self.read += [payload.decode() for payload in payloads]
        found: Places = {}
        for i, payload in enumerate(payloads):
            found.setdefault(Needs("name", payload[:1].decode()), []).append(i)
        return found

    def unwanted(self, payloads: Sequence[bytes], message_format: int) -> list[Unwanted]:
        self.judged += [payload.decode() for payload in payloads]
        return [
            (i, i + 1, Outcome.ACCEPTED)
            for i, payload in enumerate(payloads)
            if not payload.startswith(self.name.encode())
        ]


def test_a_table_finds_who_may_want_a_message_and_nobody_else_is_asked() -> None:
    mesh, read = Mesh("ab"), []  # type: ignore[var-annotated]
    selections = [Named(name, read) for name in "mnop"]
    readers = [mesh.subscriber("b", f"s{i}", selection=each) for i, each in enumerate(selections)]
    publisher = mesh.publisher("a")
    for body in ("m0", "n1", "x2"):
        publisher.send(body)
    publisher.send("m3", "n4")
    assert [each.bodies() for each in readers] == [["m0", "m3"], ["n1", "n4"], [], []]
    assert read == ["m0", "n1", "x2", "m3", "n4"], "once for all of them"
    assert [each.judged for each in selections] == [["m0", "m3"], ["n1", "n4"], [], []]
    assert sorted(publisher.told) == [0, 1, 2, 3, 4]
    publisher.settle(0, 4)
    mesh.assert_settled()


def test_one_round_of_all_subscriptions_is_enough_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    missing = IntervalSet.missing

    def counted(self: IntervalSet, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        nonlocal asked
        asked += 1
        return missing(self, ranges)

    mesh = Mesh("ab")
    readers = [mesh.subscriber("b", f"s{i}", selection=Odd()) for i in range(100)]
    publisher = mesh.publisher("a")
    monkeypatch.setattr(IntervalSet, "missing", counted)
    publisher.send("m2")
    publisher.send("m1")
    assert [each.bodies() for each in readers] == [["m1"]] * 100
    assert sorted(publisher.told) == [0, 1]
    assert asked < 2_000, "not 100 * 100"
    monkeypatch.undo()
    publisher.settle(0, 1)
    mesh.assert_settled()


class Asked(Named):
    """The same, which no table helps."""

    def __init__(self, name: str, read: list[str]) -> None:
        super().__init__(name, read)
        self.needs = None


@pytest.mark.parametrize("seed", range(40))
def test_with_the_table_everybody_gets_and_is_told_what_he_would_without_it(seed: int) -> None:
    """Two meshes in which the same happens, by chance."""

    def happens(kind: type[Named]) -> list[Any]:
        chance, mesh = random.Random(seed), Mesh("abc")
        log: list[SubscriberEnd] = []
        readers: dict[str, SubscriberEnd] = {}
        publishers: list[PublisherEnd] = []

        def attach(name: str) -> None:
            router, credit, accepts = chance.choice("bc"), chance.choice((0, 2, 100)), chance.random() < 0.7
            selection = None if name == "s0" else kind("mnop"[int(name[1]) % 4], [])
            brought: dict[str, Any] = {}
            if name > "s5":  # those that move keep what they hold
                old = readers.get(name)
                held = old.map(MapState.UNDECIDED) if old is not None else {}
                brought = {"unsettled": held, "epoch": len(log) + 1, "born": 1 if old is not None else len(log) + 1}
            readers[name] = mesh.subscriber(
                router, name, credit=credit, accepts=accepts, selection=selection, **brought
            )
            log.append(readers[name])

        def send() -> None:
            publisher = chance.choice(publishers)
            bodies = [f"{chance.choice('mnopqr')}{len(log)}.{i}" for i in range(chance.randint(1, 4))]
            code, settled = int(chance.random() < 0.05), chance.random() < 0.1
            publisher.send(*bodies, settled=settled, code=code)

        def act(readers: list[SubscriberEnd]) -> None:
            reader = chance.choice(readers)
            if reader.ended is not None:
                return
            undecided = [got.id for got in reader.unsettled()]
            what = chance.randrange(4)
            if what == 0:
                reader.give_credit(chance.randint(1, 3))
            elif what == 1 and not reader.accepts and undecided:
                outcome = chance.choice((Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.REJECTED, Outcome.RELEASED))
                reader.dispose(outcome, chance.choice(undecided))
            elif what == 2:
                reader.accepts = not reader.accepts
            elif what == 3 and chance.random() < 0.2:
                reader.leave(closed=chance.random() < 0.5)

        for name in ("s0", "s1", "s2", "s3", "s6", "s7"):
            attach(name)
        for i in range(2):
            publishers.append(mesh.publisher("ab"[i], f"p{i}"))
        for _ in range(60):
            what = chance.randrange(12)
            if what < 5:
                send()
            elif what < 8:
                act(list(readers.values()))
            elif what < 10:
                name = chance.choice(("s0", "s1", "s2", "s3", "s6", "s7", "s7"))
                if name not in readers or readers[name].ended is not None or name > "s5":
                    attach(name)
            else:
                chance.choice(publishers).settle_all_told()
        got = [[(got.kind, got.tag, got.body, got.settled, got.id in each.settled) for got in each.got] for each in log]
        return got + [sorted(each.outcomes.items()) for each in publishers]

    assert happens(Named) == happens(Asked)


def test_a_subscription_that_holds_something_is_settled_though_nothing_new_is_for_it() -> None:
    mesh = Mesh("abc")
    reader = mesh.subscriber("b", selection=Named("m", []), accepts=False, unsettled={}, epoch=1, born=1)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    mesh.crash("b")
    mesh.run()
    held = reader.map(MapState.UNDECIDED)
    again = mesh.subscriber("c", selection=Named("m", []), accepts=False, unsettled=held, epoch=2, born=1)
    (resumed,) = again.got
    publisher.send("n1")
    again.accept(resumed.id)
    publisher.settle(0, 1)
    assert again.settled == [resumed.id]
    mesh.assert_settled()
