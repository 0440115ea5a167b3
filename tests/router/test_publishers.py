"""Publishers that attach, prove themselves, resume, are stolen, move, and are gone for long: protocol 5, 8.4."""

from __future__ import annotations

from typing import Any

import pytest

from router.core.naming import derive_publisher_id, tag_prefix
from router.core.ports import UNIQUE_TAGS, MapState, Outcome
from router.names import EPOCH, PUBLISHER_EXPIRED, PUBLISHER_UNKNOWN, STOLEN
from tests.router.ends import PublisherEnd, SubscriberEnd
from tests.router.harness import SHORT, TOPIC, Mesh, undecided

# -------------------------------------------------------------------------------------- publishers (protocol 5.1 to 5.4)


def test_nothing_is_claimed_before_a_sign_of_life() -> None:
    mesh = Mesh("ab")
    publisher = mesh.publisher("a", proves=False)
    assert publisher.answered
    assert not publisher.credit_withheld
    assert not mesh.cores["b"].addresses
    publisher.send("m0")
    assert mesh.cores["b"].addresses, "a transfer is a sign of life"
    assert publisher.is_ready


def test_a_map_without_incarnation_gets_no_credit_before_the_sign_of_life() -> None:
    mesh = Mesh("ab")
    mesh.publisher("a").leave()
    again = mesh.publisher("b", proves=False, unsettled=undecided("m0"))
    assert again.credit_withheld
    assert again.incarnation is None, "it is the directory's, and may still change"


def test_a_publisher_that_resumes_gets_its_incarnation_back() -> None:
    mesh = Mesh("ab")
    first = mesh.publisher("a")
    first.leave()
    mesh.publisher("b", unsettled=undecided("m0"))
    (link,) = mesh.cores["b"].publishers.values()
    assert link.incarnation == first.incarnation


def test_an_empty_map_of_an_unknown_publisher_is_nothing_to_resume() -> None:
    mesh = Mesh()
    publisher = mesh.publisher("a", unsettled={})
    assert publisher.is_ready
    assert publisher.incarnation is not None


def test_transfers_are_held_at_the_barrier_in_order() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("a")
    mesh.held.add(("b", "a"))
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    publisher.send("m2")
    assert subscriber.bodies() == []
    assert publisher.window[0] == 1_000 - 3
    mesh.held.clear()
    mesh.run()
    assert subscriber.bodies() == ["m0", "m1", "m2"]


def test_what_is_settled_while_it_is_held_is_forgotten() -> None:
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
    mesh = Mesh("ab")
    mesh.publisher("a", epoch=5, incarnation=5)
    late = mesh.publisher("b", epoch=5, incarnation=5)
    assert late.refused
    assert late.ended == (STOLEN, {"onceway:epoch": 5}, True)


@pytest.mark.parametrize("place", ["a", "b"])
def test_an_older_incarnation_with_a_later_epoch_takes_nothing_from_the_newer_one(place: str) -> None:
    """A process with an old journal is refused, and the one that works goes on."""
    mesh = Mesh("ab")
    newer = mesh.publisher("a", epoch=7, incarnation=7)
    old = mesh.publisher(place, epoch=9, incarnation=3, unsettled=undecided("m0"))
    assert old.condition == STOLEN
    assert newer.is_ready
    assert newer.condition is None


def test_a_later_attachment_steals_the_older_one() -> None:
    mesh = Mesh("ab")
    plain, recovering = mesh.publisher("a", "p0"), mesh.publisher("a", "p1", epoch=1, incarnation=1)
    mesh.now += 1
    mesh.publisher("b", "p0")
    mesh.publisher("b", "p1", epoch=2, incarnation=1, unsettled={})
    assert plain.ended[0] == STOLEN
    assert plain.ended[2], "a plain client is detached closed, or proton does not see it"
    assert recovering.ended == (STOLEN, {"onceway:epoch": 2}, False)


def test_a_map_that_nobody_knows_is_refused() -> None:
    mesh = Mesh("ab")
    publisher = mesh.publisher("a", unsettled=undecided("m0"))
    assert publisher.refused
    assert publisher.condition == PUBLISHER_UNKNOWN


def test_a_publisher_away_for_too_long_is_refused_and_then_forgotten() -> None:
    mesh = Mesh("ab", address=SHORT)
    mesh.publisher("a").leave()
    mesh.pass_time(21.0)
    late = mesh.publisher("b", unsettled=undecided("m0"))
    assert late.condition == PUBLISHER_EXPIRED
    mesh.pass_time(3.0)
    assert mesh.publisher("b", unsettled=undecided("m0")).condition == PUBLISHER_UNKNOWN


@pytest.mark.parametrize("after_s", [19.0, 21.0, 24.0])
def test_a_sign_of_life_that_takes_too_long_claims_nothing_that_others_have_given_up(after_s: float) -> None:
    """It attached in time; what it sends again would be new to them."""
    mesh = Mesh("ab", address=SHORT)
    subscriber = mesh.subscriber("a", timeout_s=1000.0)
    publisher = mesh.publisher("b", unsettled=UNIQUE_TAGS)
    publisher.send("m0")
    publisher.leave()
    again = mesh.publisher("b", proves=False, unsettled=UNIQUE_TAGS)
    mesh.pass_time(after_s)
    again.core.proved(again, mesh.now)
    mesh.run()
    assert again.condition == (PUBLISHER_EXPIRED if after_s > SHORT.publisher_expires_s else None)
    if again.condition is None:
        again.send("m0")
    assert subscriber.bodies() == ["m0"]


def test_a_sign_of_life_does_not_count_where_it_may_be_older_than_an_attachment_elsewhere() -> None:
    """It has left a for b, whose clock is behind, and is through with m0 there, when a reads what it sent before."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, unsettled={})
    late = mesh.publisher("a", proves=False, unsettled=UNIQUE_TAGS)
    late.answers = False
    mesh.cores["b"].clock_us = lambda: 1
    publisher = mesh.publisher("b", unsettled=UNIQUE_TAGS)
    publisher.send("m0")
    publisher.settle(0)
    late.send("m0")
    assert late.questions == 1
    assert subscriber.bodies() == ["m0"]
    late.leave()
    mesh.assert_settled()


def test_a_new_publisher_may_take_its_time() -> None:
    mesh = Mesh("ab", address=SHORT)
    mesh.publisher("b").leave()
    fresh = mesh.publisher("b", proves=False)
    mesh.pass_time(30.0)
    fresh.send("m0")
    assert fresh.condition is None
    assert fresh.is_ready


def test_a_detach_on_an_unproved_link_claims_nothing() -> None:
    mesh = Mesh("ab")
    mesh.publisher("a").leave()
    entry = next(iter(mesh.cores["b"].addresses[TOPIC].publishers.entries.values()))
    mesh.publisher("b", proves=False).leave(closed=True)
    assert entry.real


def test_a_publisher_that_closes_settles_what_it_left() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    publisher.leave(closed=True)
    assert not subscriber.unsettled()
    mesh.assert_settled()


# -------------------------------------------------------------------------------- publishers: moving (protocol 5.5, 8.4)


def test_a_publisher_moves_and_nothing_is_lost_or_twice() -> None:
    mesh = Mesh("abc")
    here, there = mesh.subscriber("b", "s0"), mesh.subscriber("c", "s1", accepts=False)
    first = mesh.publisher("a", epoch=1, incarnation=1)
    first.send("m0", "m1", "m2", "m3")
    there.accept(there.got[0].id)
    assert first.told == [0]
    mesh.crash("a")
    assert len(here.unsettled()) == len(there.unsettled()) == 4, "in doubt until the publisher is back"
    second = mesh.publisher("b", epoch=2, incarnation=1, unsettled=undecided("m1", "m2", "m3"))
    assert len(here.unsettled()) == 3, "m0 is not expected: it is settled"
    second.send("m1", "m2", "m3", "m4")
    assert here.bodies() == there.bodies() == ["m0", "m1", "m2", "m3", "m4"]
    assert second.told == []
    there.accept(there.got[1].id, there.got[4].id)
    assert second.accepted() == [0, 1, 2, 3]
    second.settle(0, 3)
    mesh.assert_settled()


def test_an_expected_tag_that_will_not_come_again_is_settled_by_the_publisher() -> None:
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


def test_what_a_publisher_with_unique_tags_does_not_send_again_is_flushed() -> None:
    mesh = Mesh("ab", address=SHORT)
    subscriber = mesh.subscriber("b")
    mesh.publisher("a", unsettled=UNIQUE_TAGS).send("m0", "m1")
    mesh.now += 1
    again = mesh.publisher("b", unsettled=UNIQUE_TAGS)
    again.send("m1")
    assert len(subscriber.unsettled()) == 2, "no map is not an empty map"
    again.answers = False
    mesh.pass_time(21.0)
    assert again.questions == 1
    assert len(subscriber.unsettled()) == 2, "only with a new proof"
    again.answer_question()
    mesh.run()
    assert [got.body for got in subscriber.unsettled()] == ["m1"]
    again.settle(0)
    mesh.assert_settled()


def test_a_rejection_survives_the_move_of_its_publisher() -> None:
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


def test_what_was_released_and_not_sent_again_is_new_again_after_the_publisher_has_moved() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=2, accepts=False)
    mesh.publisher("a", epoch=1, incarnation=1).send("m0", "m1")
    subscriber.dispose(Outcome.RELEASED, subscriber.got[0].id)
    again = mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0", "m1"))
    again.send("m0", "m1")
    subscriber.give_credit(5)
    assert [got.body for got in subscriber.got] == ["m0", "m1", "m0"]
    subscriber.accept(subscriber.got[1].id, subscriber.got[2].id)
    assert sorted(again.accepted()) == [0, 1]
    again.settle(0, 1)
    mesh.assert_settled()


def test_who_is_refused_for_its_incarnation_is_told_of_that() -> None:
    """The router's clock is behind the incarnation that the publisher brought without an epoch (protocol 5.3)."""
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
    """Before it is known, while it proves itself, and afterwards: with an epoch, without, and with unique tags."""
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
    """It resumes without an incarnation of its own where a map came before the HELLO (protocol 4.3, 5.3)."""
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
    mesh = Mesh("a")
    publisher = mesh.publisher("a", epoch=4, incarnation=4)
    publisher.leave()
    mesh.subscriber("a", unsettled=made_up(2**62))
    publishers = mesh.cores["a"].addresses[TOPIC].publishers
    publishers.forget(publishers.named("p", "out")[0])
    assert mesh.publisher("a", epoch=5, incarnation=4, unsettled=undecided("m0")).condition == PUBLISHER_EXPIRED
    assert mesh.publisher("a", epoch=6, incarnation=6).is_ready


def test_a_life_that_nobody_can_have_is_not_entered() -> None:
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


def test_what_is_held_of_a_publisher_is_settled_after_its_timeout_and_a_margin() -> None:
    mesh, subscriber = held_of_a_publisher_that_has_gone()
    mesh.pass_time(21.0)
    assert subscriber.unsettled()
    mesh.pass_time(2.0)
    assert not subscriber.unsettled()


def test_what_is_held_of_a_publisher_waits_until_all_routers_have_been_there_for_so_long() -> None:
    mesh, subscriber = held_of_a_publisher_that_has_gone()
    mesh.part("a", "b")
    mesh.pass_time(60.0)
    assert subscriber.unsettled()
    mesh.join("a", "b")
    mesh.run()
    mesh.pass_time(21.0)
    assert subscriber.unsettled()
    mesh.pass_time(2.0)
    assert not subscriber.unsettled()


def test_what_is_held_of_a_publisher_waits_as_long_again_where_the_router_has_stood_still() -> None:
    mesh, subscriber = held_of_a_publisher_that_has_gone()
    mesh.pass_time(15.0)
    mesh.cores["b"].members.process_resumed(mesh.now)
    mesh.pass_time(21.0)
    assert subscriber.unsettled()
    mesh.pass_time(2.0)
    assert not subscriber.unsettled()


def test_a_publisher_of_whom_nothing_is_held_is_forgotten_also_while_a_router_is_missing() -> None:
    mesh, subscriber = held_of_a_publisher_that_has_gone()
    mesh.crash("a")
    subscriber.leave(closed=True)
    mesh.pass_time(23.0)
    assert not mesh.cores["b"].addresses
    assert mesh.cores["b"].next_deadline() is None


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


def test_what_a_router_out_of_reach_may_still_be_sent_is_kept_until_it_knows() -> None:
    mesh = Mesh("abc", address=SHORT)
    publisher, s0 = settled_only_for_s0(mesh, epoch=1, incarnation=1)
    mesh.part("a", "c")
    mesh.part("b", "c")
    publishers = mesh.cores["a"].addresses[TOPIC].publishers
    told = publishers.status_of(publishers.named("p", "out"))
    assert (told["accepted"], told["undecided"], told["missing"]) == (1, 0, ["c"])
    forget(mesh, "a", publisher)
    back = mesh.publisher("c", epoch=2, incarnation=1, unsettled=undecided("m0"))
    back.send("m0")
    assert back.condition is None
    assert s0.unsettled()
    mesh.join("a", "c")
    mesh.run()
    assert back.condition == PUBLISHER_EXPIRED
    assert not s0.unsettled()


def test_a_claim_that_waits_for_others_ends_when_they_have_forgotten_its_publisher() -> None:
    mesh = Mesh("ab", address=SHORT)
    publisher, _ = settled_only_for_s0(mesh, epoch=1, incarnation=1)
    mesh.held.add(("a", "b"))
    forget(mesh, "a", publisher)
    back = mesh.publisher("b", epoch=2, incarnation=1, unsettled=undecided("m0"))
    assert back.condition is None
    mesh.held.clear()
    mesh.run()
    assert back.condition == PUBLISHER_EXPIRED


def test_a_sign_of_life_of_a_forgotten_publisher_claims_nothing() -> None:
    mesh = Mesh("ab", address=SHORT)
    publisher, s0 = settled_only_for_s0(mesh, unsettled=UNIQUE_TAGS)
    back = mesh.publisher("b", proves=False, unsettled=UNIQUE_TAGS)
    forget(mesh, "a", publisher, unique=True)
    back.core.proved(back, mesh.now)
    mesh.run()
    assert back.condition == PUBLISHER_EXPIRED
    assert s0.bodies() == ["m0"]


def test_a_map_of_what_was_forgotten_is_settled() -> None:
    mesh = Mesh("ab", address=SHORT)
    publisher, s0 = settled_only_for_s0(mesh, epoch=1, incarnation=1)
    (got,) = s0.unsettled()
    forget(mesh, "a", publisher)
    moved = mesh.subscriber("b", "s2", unsettled={got.tag: MapState.ACCEPTED})
    assert not moved.map(MapState.ACCEPTED)


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
