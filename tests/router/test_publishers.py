"""Publishers that attach, prove themselves, resume, are stolen, move, and are gone for long: protocol 5, 8.4."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from router.core.naming import derive_publisher_id, tag_prefix
from router.core.ports import UNIQUE_TAGS, MapState, Outcome
from router.names import EPOCH, PUBLISHER_EXPIRED, PUBLISHER_UNKNOWN, STOLEN
from tests.router.ends import PublisherEnd, SubscriberEnd
from tests.router.harness import SHORT, TOPIC, Mesh, undecided

# -------------------------------------------------------------------------------------- publishers (protocol 5.1 to 5.4)


def test_what_is_settled_while_it_is_held_is_forgotten() -> None:
    """Protocol 5.1.5."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("a")
    mesh.held.add(("b", "a"))
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2", "m3")
    publisher.settle(1, 2)
    mesh.held.clear()
    mesh.run()
    assert subscriber.bodies() == ["m0", "m3"]
    publisher.settle(0, 3)
    mesh.assert_settled()


def test_an_epoch_that_is_not_above_the_known_one_is_refused() -> None:
    """Protocol 5.3.2."""
    mesh = Mesh("ab")
    mesh.publisher("a", epoch=5, incarnation=5)
    late = mesh.publisher("b", epoch=5, incarnation=5)
    assert late.refused
    assert late.ended == (STOLEN, {"onceway:epoch": 5}, True)


def test_a_publisher_away_for_too_long_is_refused_and_then_forgotten() -> None:
    """Protocol 5.3.3, 5.3.4."""
    mesh = Mesh("ab", address=SHORT)
    mesh.publisher("a").leave()
    mesh.pass_time(21.0)
    late = mesh.publisher("b", unsettled=undecided("m0"))
    assert late.condition == PUBLISHER_EXPIRED
    mesh.pass_time(3.0)
    assert mesh.publisher("b", unsettled=undecided("m0")).condition == PUBLISHER_UNKNOWN


# -------------------------------------------------------------------------------- publishers: moving (protocol 5.5, 8.4)


def test_an_expected_tag_that_will_not_come_again_is_settled_by_the_publisher() -> None:
    """Protocol 6.6.4."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b")
    mesh.publisher("a", epoch=1, incarnation=1).send("m0", "m1")
    again = mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0", "m1"))
    assert len(subscriber.unsettled()) == 2
    again.core.publisher_settled_tag(again, b"m0", mesh.now)
    mesh.run()
    assert [got.body for got in subscriber.unsettled()] == ["m1"]
    again.send("m1")
    again.settle(0)
    mesh.assert_settled()


def test_a_rejection_survives_the_move_of_its_publisher() -> None:
    """Protocol 6.3.1."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    other = mesh.subscriber("b", "s1", accepts=False)
    mesh.publisher("a", epoch=1, incarnation=1).send("m0", "m1")
    subscriber.dispose(Outcome.REJECTED, subscriber.got[0].id)
    again = mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0", "m1"))
    again.send("m0", "m1")
    subscriber.accept(subscriber.got[1].id)
    other.accept(other.got[0].id, other.got[1].id)
    assert [again.outcomes[i][:2] for i in (0, 1)] == [(Outcome.REJECTED, 1), (Outcome.ACCEPTED, 0)]


def test_who_is_refused_for_its_incarnation_is_told_of_that() -> None:
    """The router's clock is behind the incarnation that the publisher brought without an epoch (protocol 5.3.2)."""
    mesh = Mesh("ab")
    later = mesh.clock_us() + 1_000_000_000
    mesh.publisher("a", incarnation=later).send("m0")
    again = mesh.publisher("b", epoch=later - 1, incarnation=later - 1)
    assert again.ended == (STOLEN, {EPOCH: later}, False)


# ------------------------------------------------------------------- what maps say of others' publishers (protocol 7.2)


def made_up(incarnation: int, unique: bool = False) -> dict[bytes, MapState]:
    tag = tag_prefix(derive_publisher_id("p", "out", TOPIC, unique), incarnation) + b"made up"
    return {tag: MapState.ACCEPTED}


@pytest.mark.parametrize("router", ["a", "b"])
@pytest.mark.parametrize("brought", [{}, {"epoch": 4, "incarnation": 4}, {"unsettled": UNIQUE_TAGS}])
def test_a_life_that_a_map_has_made_up_refuses_no_publisher(router: str, brought: dict[str, Any]) -> None:
    """Before it is known, while it proves itself, and afterwards: with an epoch, without, and with unique tags
    (protocol 7.2.4)."""
    mesh = Mesh("ab")
    unsettled = made_up(2**62, "unsettled" in brought)
    mesh.subscriber("a", "s0", accepts=False, unsettled=unsettled)
    publisher = mesh.publisher(router, proves=False, **brought)
    mesh.subscriber("b", "s1", accepts=False, unsettled=unsettled)
    publisher.core.proved(publisher, mesh.now)
    mesh.run()
    mesh.subscriber("a", "s2", accepts=False, unsettled=unsettled)
    publisher.send("m0")
    assert publisher.ended is None
    assert publisher.is_ready


def test_a_life_that_a_map_has_made_up_settles_nothing_of_another_map() -> None:
    mesh = Mesh("a")
    mesh.subscriber("a", "s0", unsettled=made_up(9))
    held = made_up(4)
    subscriber = mesh.subscriber("a", "s1", unsettled=held)
    assert subscriber.said.listing == held


def test_a_life_that_a_map_has_made_up_hides_no_publisher_that_a_hello_tells_of() -> None:
    """It resumes without an incarnation of its own where a map came before the HELLO (protocol 4.3.1, 5.3)."""
    mesh = Mesh("ab")
    mesh.crash("b")
    mesh.publisher("a").leave()
    mesh.start("b", fresh=True)
    mesh.pass_time(10.0)  # until it is booted
    assert mesh.subscriber("b", unsettled=made_up(2**62)).answered
    mesh.join("a", "b")
    mesh.run()
    again = mesh.publisher("b", unsettled=undecided("m0"))
    assert again.is_ready


def test_an_operator_forgets_a_publisher_up_to_its_own_life_and_not_to_one_that_a_map_has_made_up() -> None:
    """Protocol 8.4.9."""
    mesh = Mesh("a")
    publisher = mesh.publisher("a", epoch=4, incarnation=4)
    publisher.leave()
    mesh.subscriber("a", unsettled=made_up(2**62))
    publishers = mesh.cores["a"].addresses[TOPIC].publishers
    publishers.forget(publishers.named("p", "out")[0])
    assert mesh.publisher("a", epoch=5, incarnation=4, unsettled=undecided("m0")).condition == PUBLISHER_EXPIRED
    assert mesh.publisher("a", epoch=6, incarnation=6).is_ready


def test_a_life_that_nobody_can_have_is_not_entered() -> None:
    """Protocol 7.2.3."""
    mesh = Mesh("a")
    subscriber = mesh.subscriber("a", unsettled=made_up(2**63))
    assert subscriber.said.listing == {}
    assert not mesh.cores["a"].addresses[TOPIC].publishers.entries


# -------------------------------------------------------------------- publishers that have gone for long (protocol 8.4)


def held_of_a_publisher_that_has_gone() -> tuple[Mesh, SubscriberEnd]:
    """s has accepted m0 at b, s1 at a has not; the publisher leaves a."""
    mesh = Mesh("ab", address=SHORT)
    subscriber = mesh.subscriber("b")
    mesh.subscriber("a", "s1", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    publisher.leave()
    return mesh, subscriber


def test_a_publisher_of_whom_nothing_is_held_is_forgotten_also_while_a_router_is_missing() -> None:
    mesh, subscriber = held_of_a_publisher_that_has_gone()
    mesh.crash("a")
    subscriber.leave(closed=True)
    mesh.pass_time(23.0)
    assert not mesh.cores["b"].addresses
    assert mesh.cores["b"].agenda.deadline == inf


@pytest.mark.parametrize("moves_on", [False, True])
def test_what_a_full_window_keeps_a_publisher_from_sending_again_is_not_given_up(moves_on: bool) -> None:
    """Nobody accepts m0, so there is no credit for m1. A publisher that sends something new first will not send it
    (protocol 8.5)."""
    mesh = Mesh("ab", address=SHORT, window_messages=1)
    subscriber = mesh.subscriber("a", accepts=False)
    publisher = mesh.publisher("b")
    publisher.send("m0", "m1")
    publisher.leave()
    again = mesh.publisher("b", unsettled=undecided("m0", "m1"))
    again.send("m0", *["m2"] * moves_on)
    assert again.window[2] == "window"
    mesh.pass_time(SHORT.publisher_expires_s + 1.0)
    again.send("m1")
    assert subscriber.bodies() == (["m0", "m1", "m2", "m1"] if moves_on else ["m0", "m1"])


def forget(mesh: Mesh, router: str, end: PublisherEnd, *, unique: bool = False) -> None:
    publishers = mesh.cores[router].addresses[TOPIC].publishers
    publishers.forget(publishers.entries[derive_publisher_id(end.container, "out", TOPIC, unique)])
    mesh.run()


def settled_only_for_s0(mesh: Mesh, **attach: Any) -> tuple[PublisherEnd, SubscriberEnd]:
    """m0 is accepted by s0 at a, not by s1 at b; its publisher has been at a."""
    s0 = mesh.subscriber("a", "s0", timeout_s=1000.0)
    mesh.subscriber("b", "s1", accepts=False)
    publisher = mesh.publisher("a", **attach)
    publisher.send("m0")
    publisher.leave()
    assert s0.unsettled()
    return publisher, s0


@pytest.mark.parametrize(
    ("attach", "later"),
    [
        ({"epoch": 1, "incarnation": 1}, {"epoch": 2, "incarnation": 1, "unsettled": {b"m0": None}}),
        ({"epoch": 1, "incarnation": 1}, {"epoch": 2, "incarnation": 1, "unsettled": {}}),
        ({"unsettled": {}}, {"unsettled": {b"m0": None}}),
        ({"unsettled": UNIQUE_TAGS}, {"unsettled": UNIQUE_TAGS}),
    ],
)
def test_a_forgotten_publisher_is_told_that_it_has_expired(attach: dict[str, Any], later: dict[str, Any]) -> None:
    mesh = Mesh("ab", address=SHORT)
    publisher, s0 = settled_only_for_s0(mesh, **attach)
    forget(mesh, "b", publisher, unique=later["unsettled"] is UNIQUE_TAGS)
    assert not s0.unsettled()
    back = mesh.publisher("b", **later)
    assert (back.refused, back.condition) == (True, PUBLISHER_EXPIRED)


def test_a_forgotten_publisher_that_begins_anew_is_welcome() -> None:
    mesh = Mesh("ab", address=SHORT)
    publisher, s0 = settled_only_for_s0(mesh, epoch=1, incarnation=1)
    forget(mesh, "a", publisher)
    new = mesh.publisher("b", epoch=2, incarnation=2)
    new.send("m0")
    assert s0.bodies() == ["m0", "m0"]
    plain = mesh.publisher("a", "plain")
    plain.leave()
    forget(mesh, "a", plain)
    assert mesh.publisher("b", "plain").condition is None


def test_nothing_is_kept_of_a_forgotten_publisher_after_its_timeout() -> None:
    mesh = Mesh("ab", address=SHORT)
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
    publisher.leave()
    forget(mesh, "b", publisher)
    mesh.pass_time(15.0)
    assert mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0")).condition == PUBLISHER_EXPIRED
    mesh.pass_time(8.0)  # publisher_timeout and margin
    mesh.assert_empty()


def test_an_attached_publisher_is_not_taken_for_away_before_its_claim() -> None:
    mesh = Mesh("ab", address=SHORT)
    settled_only_for_s0(mesh, unsettled=UNIQUE_TAGS)
    (entry,) = mesh.cores["b"].addresses[TOPIC].publishers.named("p", "out")
    assert mesh.cores["b"].addresses[TOPIC].publishers.attached_at(entry) is None
    mesh.publisher("b", proves=False, unsettled=UNIQUE_TAGS)
    assert mesh.cores["b"].addresses[TOPIC].publishers.attached_at(entry) == "b"
