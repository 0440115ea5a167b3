"""Attaching, resuming, stealing, refusing, expiring, booting: PROTOCOL 4, 5, 7, 8 with ports that only note."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from router import messages as m
from router.config import AddressConfig
from router.ports import (
    NOT_RESUMABLE,
    PUBLISHER_EXPIRED,
    PUBLISHER_UNKNOWN,
    STOLEN,
    SUBSCRIPTION_BROKEN,
    UNIQUE_TAGS,
    MapState,
    Outcome,
    SubscriberAttach,
)
from router.wire import encode
from tests.router.harness import TOPIC, End, Mesh, SubscriberEnd

SHORT = AddressConfig(subscription_timeout_s=8.0, publisher_timeout_s=20.0)


def answered(*ends: End) -> list[bool]:
    return [end.answered for end in ends]


def undecided(*tags: str) -> dict[bytes, Outcome | None]:
    return {tag.encode(): None for tag in tags}


# ------------------------------------------------------------------------------------------------ publishers: 5.1 to 5.4


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
    assert plain.ended is not None
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
    entry = next(iter(mesh.cores["b"].addresses[TOPIC].publishers.values()))
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


# ------------------------------------------------------------------------------------------ publishers: moving: 5.5, 8.4


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


# ------------------------------------------------------------------------------------------------- subscriptions: 7


def test_a_subscription_is_answered_when_every_reachable_router_knows_it() -> None:
    mesh = Mesh("abc")
    mesh.held.add(("c", "a"))
    subscriber = mesh.subscriber("a")
    assert answered(subscriber) == [False]
    mesh.held.clear()
    mesh.run()
    assert answered(subscriber) == [True]
    assert all(TOPIC in core.addresses for core in mesh.cores.values())


def test_a_router_that_goes_down_is_not_waited_for() -> None:
    mesh = Mesh("abc")
    mesh.held |= {("c", "a"), ("c", "b")}
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("b")
    assert answered(subscriber) == [False]
    publisher.send("m0")
    assert publisher.told == []
    mesh.crash("c")
    mesh.run()
    assert answered(subscriber) == [True]
    assert publisher.told == [0]


def test_a_subscription_that_moves_gets_what_it_lacks_and_resumes_what_it_has() -> None:
    mesh = Mesh("abc")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False, credit=3)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2", "m3", "m4")
    subscriber.accept(subscriber.got[0].id)
    publisher.settle(0)
    subscriber.accept(subscriber.got[1].id)
    mesh.crash("b")
    states: Mapping[bytes, MapState] = {
        subscriber.got[0].tag: MapState.ACCEPTED,
        subscriber.got[1].tag: MapState.ACCEPTED,
        subscriber.got[2].tag: MapState.UNDECIDED,
    }
    moved = mesh.subscriber("c", epoch=2, born=1, unsettled=states)
    assert moved.said is not None
    assert moved.said.listing == states, "nobody has said yet that m0 is settled"
    assert moved.said.resumed
    assert [(got.kind, got.payload) for got in moved.got[:3]] == [("resume", None)] * 3
    assert moved.settled == [moved.got[0].id]
    assert moved.bodies() == ["m3", "m4"]
    assert publisher.accepted() == [0, 1, 2, 3, 4]
    publisher.settle(1, 4)
    mesh.assert_settled()


def test_records_owed_to_an_orphan_wait_until_it_is_back() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    publisher = mesh.publisher("a")
    subscriber.leave()
    publisher.send("m0", "m1")
    assert publisher.told == []
    again = mesh.subscriber("a", epoch=2, born=1, unsettled={})
    assert again.bodies() == ["m0", "m1"]
    assert publisher.told == [0, 1]
    publisher.settle(0, 1)
    mesh.assert_settled()


def test_a_subscription_with_history_is_synchronised_only_after_the_publisher_has_proved_itself() -> None:
    mesh = Mesh("ab")
    publisher = mesh.publisher("a")
    publisher.answers = False
    fresh = mesh.subscriber("b", "s0", epoch=1, born=1)
    resuming = mesh.subscriber("b", "s1", epoch=2, born=1, unsettled={})
    publisher.send("m0")
    assert fresh.bodies() == ["m0"]
    assert resuming.bodies() == []
    assert publisher.questions == 1
    assert publisher.told == []
    late = mesh.subscriber("a", "s2", epoch=2, born=1, unsettled={})
    publisher.answer_question()
    mesh.run()
    assert resuming.bodies() == ["m0"]
    assert late.bodies() == [], "a question serves only the JOINs processed before it was asked"
    assert publisher.questions == 2
    publisher.answer_question()
    mesh.run()
    assert late.bodies() == ["m0"]
    assert publisher.told == [0]


def test_a_sign_of_life_serves_only_subscriptions_that_were_here_before_what_it_answers() -> None:
    """The publisher may have said it, gone to where the subscription was then, and be done with m0 there."""
    mesh = Mesh("ab")
    publisher = mesh.publisher("a", proves=False, epoch=1, incarnation=1)
    publisher.answers = False
    subscriber = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    publisher.core.proved(publisher, mesh.now)
    publisher.send("m0")
    assert subscriber.bodies() == []
    assert publisher.questions == 1
    late = mesh.subscriber("a", "s1", epoch=2, born=1, unsettled={})
    publisher.answer_question()
    mesh.run()
    assert publisher.questions == 2, "a question serves only the JOINs processed before it was asked"
    assert not publisher.is_ready
    publisher.answer_question()
    mesh.run()
    assert subscriber.bodies() == late.bodies() == ["m0"]
    assert publisher.told == [0]
    publisher.settle(0)
    mesh.assert_settled()


def test_a_stale_sign_of_life_on_a_link_that_is_lost_claims_nothing() -> None:
    mesh = Mesh("ab")
    publisher = mesh.publisher("a", proves=False, epoch=1, incarnation=1)
    publisher.answers = False
    subscriber = mesh.subscriber("a", epoch=2, born=1, unsettled={})
    publisher.core.proved(publisher, mesh.now)
    publisher.send("m0")
    publisher.leave()
    assert subscriber.bodies() == []
    mesh.assert_settled()
    assert not mesh.cores["b"].addresses[TOPIC].publishers


def test_a_fresh_subscription_needs_no_other_sign_of_life() -> None:
    mesh = Mesh("ab")
    publisher = mesh.publisher("a", proves=False)
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    publisher.send("m0")
    assert subscriber.bodies() == ["m0"]
    assert publisher.questions == 0


def test_an_expected_tag_that_is_settled_before_the_sign_of_life_counts_is_settled_with_it() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    other = mesh.subscriber("b", "s1", epoch=1, born=1)
    mesh.publisher("a", epoch=1, incarnation=1).send("m0", "m1")
    again = mesh.publisher("a", proves=False, epoch=2, incarnation=1, unsettled=undecided("m0", "m1"))
    again.answers = False
    other.leave()
    mesh.subscriber("a", "s1", epoch=2, born=1, unsettled=other.map(MapState.ACCEPTED))
    again.core.publisher_settled_tag(again, b"m0", mesh.now)
    mesh.run()
    assert len(subscriber.unsettled()) == 2
    again.answer_question()
    mesh.run()
    assert [got.body for got in subscriber.unsettled()] == ["m1"]
    again.send("m1")
    again.settle(0)
    mesh.assert_settled()


def test_a_plain_subscription_resumes_with_nothing_and_gets_again_what_is_not_settled() -> None:
    mesh = Mesh("ab")
    plain = mesh.subscriber("b")
    assert plain.said is not None
    assert not plain.said.resumed
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    plain.leave()
    again = mesh.subscriber("a")
    assert again.said is not None
    assert again.said.listing is None
    assert again.said.resumed
    assert again.bodies() == ["m0", "m1"]
    assert [got.tag for got in again.got] == [got.tag for got in plain.got]
    publisher.settle(0, 1)
    mesh.assert_settled()


def test_placeholders_are_resumed_with_their_payload_in_order() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False, credit=2)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    states = {subscriber.got[0].tag: MapState.UNDECIDED, subscriber.got[1].tag: MapState.RECEIVED}
    subscriber.leave()
    publisher.answers = False
    again = mesh.subscriber("a", unsettled=states)  # no epoch: null says nothing of the payload
    assert again.answered
    assert again.got == [], "their payload is not here yet"
    publisher.answer_question()
    mesh.run()
    assert [(got.kind, got.body) for got in again.got] == [("resume", "m0"), ("resume", "m1"), ("new", "m2")]
    assert publisher.told == [0, 1, 2]


def test_a_placeholder_whose_publisher_has_moved_is_filled_in_its_place() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False, epoch=1, born=1)
    first = mesh.publisher("a", epoch=1, incarnation=1)
    first.send("m0", "m1", "m2")
    first.leave()
    states = {subscriber.got[1].tag: MapState.RECEIVED}  # it has lost m0 and m2
    subscriber.leave()
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states)
    assert again.got == []
    second = mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0", "m1", "m2"))
    second.send("m0", "m1", "m2")
    assert [(got.kind, got.body) for got in again.got] == [("new", "m0"), ("resume", "m1"), ("new", "m2")]
    second.settle_all_told()
    mesh.assert_settled()


def test_a_placeholder_that_is_settled_is_resumed_as_settled() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    first = mesh.publisher("a", epoch=1, incarnation=1)
    first.send("m0")
    first.leave()
    subscriber.leave()
    again = mesh.subscriber("b", unsettled={subscriber.got[0].tag: MapState.UNDECIDED})
    mesh.publisher("a", epoch=2, incarnation=1, unsettled={})
    assert [(got.kind, got.settled, got.payload) for got in again.got] == [("resume", True, None)]
    mesh.assert_settled()


def test_resumptions_come_first_in_credit() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    states = subscriber.map(MapState.ACCEPTED)
    subscriber.leave()
    publisher.send("m2")
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, credit=1)
    assert [got.kind for got in again.got] == ["resume"]
    again.give_credit(2)
    assert [got.kind for got in again.got] == ["resume", "resume", "new"]


def test_foreign_tags_in_a_map_are_not_listed() -> None:
    mesh = Mesh()
    subscriber = mesh.subscriber("a", unsettled={b"7": MapState.UNDECIDED})
    assert subscriber.said is not None
    assert subscriber.said.listing == {}


def test_an_unknown_subscription_that_resumes_is_broken_once_something_was_accepted_without_it() -> None:
    mesh = Mesh("ab")
    assert mesh.subscriber("b", "s0", epoch=2, born=1).answered
    publisher = mesh.publisher("a")
    publisher.send("m0")
    broken = mesh.subscriber("b", "s1", epoch=2, born=1, unsettled={})
    assert broken.condition == SUBSCRIPTION_BROKEN
    publisher.send("m1")
    assert publisher.told == [0, 1], "it is not waited for"


def test_a_subscription_is_refused_at_its_timeout_and_forgotten_a_margin_later() -> None:
    mesh = Mesh("ab", address=SHORT)
    subscriber = mesh.subscriber("b", epoch=1, born=1, timeout_s=100.0)
    assert subscriber.said is not None
    assert subscriber.said.timeout_s == 8.0
    publisher = mesh.publisher("a")
    mesh.subscriber("a", "s1")
    subscriber.leave()
    publisher.send("m0")
    mesh.pass_time(8.5)
    assert publisher.told == []
    late = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert late.condition == SUBSCRIPTION_BROKEN
    assert publisher.told == [0], "it left when it was told"


def test_a_subscription_that_stays_away_is_forgotten() -> None:
    mesh = Mesh("ab", address=SHORT)
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    mesh.subscriber("a", "s1")
    publisher = mesh.publisher("a")
    subscriber.leave()
    publisher.send("m0")
    mesh.pass_time(9.9)
    assert publisher.told == []
    mesh.pass_time(0.3)
    assert publisher.told == [0]


def test_a_subscription_with_timeout_0_is_not_waited_for() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", timeout_s=0.0, accepts=False)
    mesh.subscriber("a", "s1")
    publisher = mesh.publisher("a")
    publisher.send("m0")
    assert publisher.told == []
    subscriber.leave()
    assert publisher.told == [0]


def test_an_expiry_policy_starts_its_own_timeout_later() -> None:
    mesh = Mesh("ab", address=SHORT)
    subscriber = mesh.subscriber("b", timeout_s=1.0, expiry_policy="connection-close")
    mesh.subscriber("a", "s1")
    publisher = mesh.publisher("a")
    term = subscriber.leave(expiring=False)
    publisher.send("m0")
    mesh.pass_time(4.0)
    assert publisher.told == []
    assert term is not None
    subscriber.core.subscription_expiring(SubscriberAttach("s", "in", TOPIC, timeout_s=1.0), term, mesh.now)
    mesh.run()
    mesh.pass_time(2.5)
    assert publisher.told == []
    mesh.pass_time(1.0)
    assert publisher.told == [0]


def test_marks_tell_since_when_a_subscription_without_memory_is_known() -> None:
    mesh = Mesh("ab", address=SHORT)
    publisher = mesh.publisher("a")
    mesh.subscriber("a", "s0")
    first = mesh.subscriber("b", "s1")
    assert first.said is not None
    assert first.said.marks == []
    publisher.send("m0")
    late = mesh.subscriber("b", "s2")
    assert late.said is not None
    assert late.said.marks == [late.said.term], "something was accepted before it"
    late.leave()
    again = mesh.subscriber("a", "s2")
    assert again.said is not None
    assert again.said.marks == late.said.marks, "no gap since"
    again.leave()
    mesh.pass_time(8.5)
    third = mesh.subscriber("a", "s2")
    assert third.said is not None
    assert third.said.marks == [third.said.term], "others may have forgotten it already"


def test_a_second_attach_steals_the_subscription() -> None:
    mesh = Mesh("ab")
    first = mesh.subscriber("a", epoch=1, born=1)
    second = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert first.condition == STOLEN
    assert first.ended is not None
    assert not first.ended[2]
    late = mesh.subscriber("b", epoch=1, born=1)
    assert late.ended == (STOLEN, {"onceway:epoch": 2}, True)
    third = mesh.subscriber("b", epoch=3, born=1, unsettled={})
    assert second.condition == STOLEN
    assert third.answered


# ------------------------------------------------------------------------------ publishers that have gone for long: 8.4


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
    mesh.cores["b"].members.went_on(mesh.now)
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


# ----------------------------------------------------------------------------------------------- maps in parts: 7.7


def test_parts_of_a_map_are_one_map_when_the_last_has_come() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    states = list(subscriber.map(MapState.ACCEPTED).items())
    subscriber.leave()
    part = mesh.subscriber("b", epoch=2, born=1, unsettled=dict(states[:2]), incomplete=True)
    assert part.parts == 1
    assert not part.answered
    whole = mesh.subscriber("b", epoch=2, born=1, unsettled=dict(states[2:]))
    assert whole.said is not None
    assert whole.said.listing == dict(states)
    publisher_part = mesh.publisher("b", "p1", epoch=2, incarnation=2, unsettled=undecided("m0"), incomplete=True)
    assert publisher_part.parts == 1
    assert not publisher_part.answered


@pytest.mark.parametrize("incomplete", [True, False])
def test_an_earlier_attach_that_is_read_between_the_parts_does_not_take_their_place(incomplete: bool) -> None:
    """It has lain in the buffer of a connection that the client has left; without the first part the last one would be
    the whole map, and what is not in it settled."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
    publisher.send("m0", "m1")
    publisher.leave()
    first, last = undecided("m0"), undecided("m1")
    mesh.publisher("a", epoch=3, incarnation=1, unsettled=first, incomplete=True)
    late = mesh.publisher("a", epoch=2, incarnation=1, unsettled=first, incomplete=incomplete)
    assert late.condition == STOLEN
    assert mesh.publisher("a", epoch=3, incarnation=1, unsettled=last).answered
    assert not subscriber.settled
    subscriber.leave()
    states = list(subscriber.map(MapState.UNDECIDED).items())
    mesh.subscriber("b", epoch=3, born=1, unsettled=dict(states[:1]), incomplete=True)
    late_subscriber = mesh.subscriber("b", epoch=2, born=1, unsettled=dict(states[:1]), incomplete=incomplete)
    assert late_subscriber.condition == STOLEN
    whole = mesh.subscriber("b", epoch=3, born=1, unsettled=dict(states[1:]))
    assert whole.said is not None
    assert whole.said.listing == dict(states)


def test_a_part_without_epoch_is_refused() -> None:
    mesh = Mesh()
    assert mesh.subscriber("a", unsettled={}, incomplete=True).condition == NOT_RESUMABLE
    assert mesh.publisher("a", unsettled={}, incomplete=True).condition == NOT_RESUMABLE


def test_parts_that_are_not_completed_are_forgotten() -> None:
    mesh = Mesh()
    mesh.subscriber("a", epoch=2, born=1, unsettled={}, incomplete=True)
    assert mesh.cores["a"].parts
    mesh.pass_time(70.0)
    assert not mesh.cores["a"].parts


def test_when_our_map_does_not_fit_only_what_was_told_is_resumed_and_nothing_new_is_sent() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    states = subscriber.map(MapState.ACCEPTED)
    subscriber.leave()
    publisher.send("m3")
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2)
    assert [got.kind for got in again.got] == ["resume", "resume"]
    again.leave()
    rest = {tag: state for tag, state in states.items() if tag not in {got.tag for got in again.got}}
    last = mesh.subscriber("b", epoch=3, born=1, unsettled=rest)
    assert [got.kind for got in last.got] == ["resume", *["new"] * (len(last.got) - 1)]
    assert "m3" in last.bodies()


def test_when_our_map_does_not_fit_what_is_settled_of_the_rest_is_told_all_the_same() -> None:
    """It has no delivery-id there; by the next attach nobody would know it, and it would wait for its publisher again."""
    mesh = Mesh("ab", address=SHORT)
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    states = subscriber.map(MapState.ACCEPTED)
    publisher.leave()
    subscriber.leave()
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2)
    assert [got.tag for got in again.got if got.kind == "resume"] == list(states)[:2]
    mesh.pass_time(SHORT.publisher_expires_s + SHORT.margin_s + 1)
    assert len(again.settled) == 2
    assert [(got.tag, got.settled) for got in again.got[2:]] == [(list(states)[2], True)]


def test_when_our_map_does_not_fit_what_is_undecided_is_told_first() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    mesh.publisher("a", epoch=1, incarnation=1).send("m0", "m1", "m2")
    decided, *undecided_ones = subscriber.map(MapState.UNDECIDED)
    subscriber.leave()
    states = {decided: MapState.ACCEPTED, **dict.fromkeys(undecided_ones, MapState.UNDECIDED)}
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2, accepts=False)
    assert [got.tag for got in again.got] == undecided_ones


@pytest.mark.parametrize("brought", ["by SYNC", "by SYNC after the answer", "by DATA"])
def test_when_our_map_does_not_fit_what_lacks_payload_is_resumed_all_the_same(brought: str) -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
    publisher.send("m0", "m1", "m2")
    states = subscriber.map(MapState.RECEIVED)
    subscriber.leave()
    if brought == "by DATA":
        publisher.leave()
    publisher.answers = brought == "by SYNC"
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2, accepts=False)
    assert again.answered
    assert again.bodies("resume") == (["m0", "m1"] if brought == "by SYNC" else [])
    if brought == "by DATA":
        mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0", "m1", "m2")).send("m0", "m1", "m2")
    else:
        publisher.answer_question()
        mesh.run()
    assert again.bodies("resume") == ["m0", "m1"]
    assert len(again.got) == 2


def test_when_our_map_does_not_fit_what_lacks_payload_again_waits_for_the_next_ingress() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
    publisher.send("m0", "m1", "m2")
    states = subscriber.map(MapState.RECEIVED)
    subscriber.leave()
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2, accepts=False, credit=1)
    assert again.bodies("resume") == ["m0"]
    publisher.leave()
    again.give_credit(1)
    assert again.bodies("resume") == ["m0"]
    mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0", "m1", "m2")).send("m0", "m1", "m2")
    assert again.bodies("resume") == ["m0", "m1"]


# ------------------------------------------------------------------------------------------- booting, recovering: 4


def test_attaches_wait_until_the_router_has_heard_of_all_others() -> None:
    mesh = Mesh("ab", joined=False)
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("a")
    assert answered(subscriber) == [False]
    assert answered(publisher) == [False]
    mesh.join("a", "b")
    mesh.run()
    assert answered(subscriber) == [True]
    assert publisher.answered


def test_discovery_ends_after_its_time() -> None:
    mesh = Mesh("ab", joined=False)
    subscriber = mesh.subscriber("a")
    mesh.pass_time(0.9)
    assert answered(subscriber) == [False]
    mesh.pass_time(0.2)
    assert answered(subscriber) == [True]
    assert mesh.cores["a"].established, "started with --fresh"


def test_a_deferred_attach_that_goes_away_is_forgotten() -> None:
    mesh = Mesh("ab", joined=False)
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("a")
    subscriber.leave()
    publisher.leave()
    mesh.pass_time(2.0)
    assert not subscriber.answered
    assert not publisher.answered


def test_when_all_routers_died_nothing_is_accepted_before_every_subscription_could_be_back() -> None:
    mesh = Mesh("ab", fresh=False, address=SHORT)
    publisher = mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0"))
    mesh.subscriber("b", "s0")
    publisher.send("m0")
    assert publisher.told == []
    assert mesh.cores["a"].status()["recovering_s"] == pytest.approx(12.0)
    back = mesh.subscriber("b", "s1", epoch=2, born=1, unsettled={})
    assert back.answered
    assert back.bodies() == ["m0"]
    mesh.pass_time(11.9)
    assert publisher.told == []
    mesh.pass_time(0.2)
    assert publisher.told == [0]


def test_a_map_of_an_unknown_publisher_waits_until_the_router_is_established() -> None:
    mesh = Mesh("ab", fresh=False, address=SHORT)
    publisher = mesh.publisher("a", unsettled=undecided("m0"))
    assert not publisher.answered
    mesh.pass_time(12.5)
    assert publisher.condition == PUBLISHER_UNKNOWN


def test_a_restarted_router_learns_orphans_and_is_established_at_once() -> None:
    mesh = Mesh("abc")
    mesh.subscriber("c", epoch=1, born=1)
    mesh.crash("c")
    mesh.crash("a")
    mesh.start("a")
    mesh.join("a", "b")
    mesh.run()
    assert mesh.cores["a"].established, "b is, and names nobody else"
    publisher = mesh.publisher("a")
    publisher.send("m0")
    assert publisher.told == []
    back = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert back.bodies() == ["m0"]
    assert publisher.told == [0]


# ------------------------------------------------------------------------------------------------- robustness, memory


@pytest.mark.parametrize(
    "message",
    [
        m.Data(TOPIC, b"unknown!", (1, "b"), 0, 0, False, [b"t"], [b"p"]),
        m.Accept(TOPIC, [(0, 10_000, 0)]),
        m.AcceptSync(TOPIC, ("no", "one"), (1, "b"), [(0, 10, 3)]),
        m.Settle(TOPIC, [(0, 10_000), (5, 7)]),
        m.SettleTags(TOPIC, b"unknown!", (1, "b"), [b"t"]),
        m.Flush(TOPIC, b"unknown!", 1, (1, "b")),
        m.PubDown(TOPIC, b"unknown!", (1, "b")),
        m.PubClose(TOPIC, b"unknown!", 1, (1, "b")),
        m.Leave(TOPIC, ("no", "one"), (1, "b")),
        m.Orphan(TOPIC, ("no", "one"), (1, "b"), 5.0),
        m.Joined(TOPIC, ("no", "one"), (1, "b"), m.JoinResult.BROKEN, False, None, None),
        m.Sync(TOPIC, b"unknown!", 1, (1, "b"), ("no", "one"), (1, "b"), [], []),
        m.PubAck(TOPIC, b"unknown!", (1, "b"), None),
    ],
)
def test_a_message_about_nothing_that_is_known_changes_nothing(message: m.Message) -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("a")
    publisher.send("m0")
    mesh.cores["a"].peer_message("b", encode(message), mesh.now)
    mesh.run()
    publisher.send("m1")
    assert subscriber.bodies() == ["m0", "m1"]
    assert publisher.told == [0, 1]


def test_a_position_that_comes_twice_is_the_peers_error() -> None:
    mesh = Mesh("ab")
    mesh.subscriber("b")
    publisher = mesh.publisher("a")
    mesh.held.add(("a", "b"))
    publisher.send("m0", "m1")
    data = mesh.wires["a", "b"][0]
    mesh.held.clear()
    mesh.run()
    with pytest.raises(m.PeerProtocolError):
        mesh.cores["b"].peer_message("a", data, mesh.now)


def test_when_everybody_has_gone_nothing_is_left() -> None:
    mesh = Mesh("abc", address=SHORT)
    subscribers = [mesh.subscriber(name, f"s{name}", accepts=name != "b") for name in "abc"]
    publishers = [mesh.publisher(name, f"p{name}") for name in "abc"]
    for publisher in publishers:
        publisher.send("m0", "m1", "m2")
        publisher.settle_all_told()
    subscribers[0].leave()
    subscribers[1].leave(closed=True)
    publishers[0].leave()
    publishers[1].leave(closed=True)
    mesh.pass_time(30.0)
    subscribers[2].leave()
    publishers[2].leave()
    mesh.pass_time(30.0)
    mesh.assert_empty()


def test_an_address_that_is_used_again_does_not_use_its_positions_again() -> None:
    mesh = Mesh("ab", address=SHORT)
    for _ in range(2):
        subscriber = mesh.subscriber("b")
        publisher = mesh.publisher("a")
        publisher.send("m0")
        publisher.settle(0)
        publisher.leave(closed=True)
        subscriber.leave(closed=True)
        mesh.pass_time(30.0)
        mesh.assert_empty()
    mesh.publisher("a")
    assert mesh.cores["a"].addresses[TOPIC].ingress.log.end == 2


def test_status_tells_what_is_kept_and_why_there_is_no_credit() -> None:
    mesh = Mesh("ab")
    mesh.publisher("a", "p1")
    status = mesh.cores["a"].status()
    assert status["established"] is True
    addresses = status["addresses"]
    assert isinstance(addresses, dict)
    assert addresses[TOPIC]["ingress"]["publishers"][0]["no_credit"] == "no subscribers"
