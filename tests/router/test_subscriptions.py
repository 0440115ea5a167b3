"""Subscriptions that attach, resume, move, expire, and what they are told of it: protocol 7."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from router.core.address import Address
from router.core.ports import MapState, SubscriberAttach
from router.core.reports import of_all
from router.names import STOLEN, SUBSCRIPTION_BROKEN
from tests.builds import puts_stand_ins
from tests.router.ends import PublisherEnd, SubscriberEnd, answered
from tests.router.harness import SHORT, TOPIC, Mesh, undecided


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
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
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
    assert not mesh.cores["b"].addresses[TOPIC].publishers.entries


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
    assert not plain.said.resumed
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    plain.leave()
    again = mesh.subscriber("a")
    assert again.said.listing is None
    assert again.said.resumed
    assert again.bodies() == ["m0", "m1"]
    assert [got.tag for got in again.got] == [got.tag for got in plain.got]
    publisher.settle(0, 1)
    mesh.assert_settled()


def test_placeholders_are_resumed_with_their_payload_in_order() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False, credit=2)
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
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


def test_a_placeholder_that_is_settled_before_the_answer_is_neither_listed_nor_resumed() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
    publisher.send("m0")
    subscriber.leave()
    mesh.held.add(("b", "a"))
    again = mesh.subscriber("a", unsettled={subscriber.got[0].tag: MapState.UNDECIDED})
    publisher.settle(0)  # the SYNC has brought its payload by now
    assert not again.answered
    mesh.held.clear()
    mesh.run()
    assert again.said.listing == {}
    assert again.got == []
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


def _away_for(seconds: float) -> tuple[Mesh, PublisherEnd]:
    """A subscription of b that is away for so long, of the 8 s for which it is waited; m0 has come meanwhile."""
    mesh = Mesh("abc", address=SHORT)
    subscriber = mesh.subscriber("b", epoch=1, born=1, timeout_s=100.0)
    assert subscriber.said.timeout_s == 8.0
    publisher = mesh.publisher("a")
    mesh.subscriber("a", "s1")
    subscriber.leave()
    publisher.send("m0")
    mesh.pass_time(seconds)
    return mesh, publisher


def test_a_subscription_that_is_back_before_it_is_forgotten_has_missed_nothing() -> None:
    mesh, publisher = _away_for(8.5)
    assert publisher.told == []
    late = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert [got.payload for got in late.got] == [b"m0"]
    assert publisher.told == [0]


def test_a_subscription_whose_wait_was_over_is_broken_when_a_router_has_gone_since() -> None:
    mesh, publisher = _away_for(8.5)
    mesh.part("b", "c")
    late = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert late.condition == SUBSCRIPTION_BROKEN
    assert publisher.told == [0], "it left when it was told"


def test_a_subscription_whose_wait_was_over_is_broken_when_a_router_goes_before_it_has_said_what_it_knows() -> None:
    mesh, publisher = _away_for(8.5)
    mesh.held.add(("b", "c"))
    late = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert not late.answered
    mesh.part("b", "c")
    mesh.run()
    assert late.condition == SUBSCRIPTION_BROKEN
    assert publisher.told == [0]


def test_a_subscription_that_was_forgotten_is_resumed_if_nothing_was_accepted_without_it() -> None:
    mesh = Mesh("ab", address=SHORT)
    subscriber = mesh.subscriber("b", epoch=1, born=1, timeout_s=100.0)
    plain = mesh.subscriber("b", "s1", timeout_s=100.0)
    subscriber.leave()
    plain.leave()
    mesh.pass_time(20.0)
    assert of_all(mesh.cores["a"])["addresses"] == {}
    assert mesh.subscriber("a", epoch=2, born=1, unsettled={}).answered
    again = mesh.subscriber("a", "s1")
    assert again.said.resumed
    mesh.publisher("b").send("m0")
    assert [got.payload for got in again.got] == [b"m0"]


def test_a_subscription_that_was_forgotten_is_broken_by_what_was_accepted_since() -> None:
    mesh, publisher = _away_for(20.0)
    assert publisher.told == [0]
    assert mesh.subscriber("b", epoch=2, born=1, unsettled={}).condition == SUBSCRIPTION_BROKEN


def test_a_plain_subscription_is_told_that_it_is_not_resumed_where_any_router_accepted_without_it() -> None:
    """A knows it still: only B, which has forgotten it, has accepted (protocol 7.6)."""
    mesh = Mesh("ab", address=SHORT)
    plain = mesh.subscriber("a", "s1", timeout_s=100.0)
    publisher = mesh.publisher("b")
    mesh.subscriber("b", "s2")
    mesh.part("a", "b")
    mesh.pass_time(20.0)
    publisher.send("m0")
    assert publisher.told == [0]
    plain.leave()
    mesh.held.add(("b", "a"))  # B's word on A's HELLO
    mesh.join("a", "b")
    again = mesh.subscriber("a", "s1")
    mesh.held.clear()
    mesh.run()
    assert not again.said.resumed


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
    assert first.said.marks == []
    publisher.send("m0")
    late = mesh.subscriber("b", "s2")
    assert late.said.marks == [late.said.term], "something was accepted before it"
    late.leave()
    late = mesh.subscriber("b", "s2")
    assert late.said.marks == [late.said.term], "it may not have read that"
    late.core.subscriber_heard(late, mesh.now)
    mesh.run()
    late.leave()
    again = mesh.subscriber("a", "s2")
    assert again.said.marks == late.said.marks, "no gap since"
    again.leave()
    mesh.pass_time(8.5)
    third = mesh.subscriber("a", "s2")
    assert third.said.marks == late.said.marks, "nothing was accepted without it, though its wait was over"


def test_a_second_attach_steals_the_subscription() -> None:
    mesh = Mesh("ab")
    first = mesh.subscriber("a", epoch=1, born=1)
    second = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert first.condition == STOLEN
    assert not first.ended[2]
    late = mesh.subscriber("b", epoch=1, born=1)
    assert late.ended == (STOLEN, {"onceway:epoch": 2}, True)
    third = mesh.subscriber("b", epoch=3, born=1, unsettled={})
    assert second.condition == STOLEN
    assert third.answered


def test_a_subscription_that_its_router_drops_is_broken_and_waited_for_no_more() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("a", epoch=1, born=1, accepts=False)
    publisher = mesh.publisher("b")
    publisher.send("m0")
    assert publisher.told == []
    subscriptions = mesh.cores["a"].addresses[TOPIC].subscriptions
    subscriptions.drop(next(iter(subscriptions.entries.values())))
    mesh.run()
    assert subscriber.condition == SUBSCRIPTION_BROKEN
    mesh.subscriber("b", "other")
    assert publisher.told == [0]
    assert mesh.subscriber("b", epoch=2, born=1, unsettled={}).condition == SUBSCRIPTION_BROKEN


@puts_stand_ins
def test_the_expiry_of_one_subscription_is_no_work_at_other_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = Mesh("a", address=SHORT)
    elsewhere = SubscriberEnd(mesh, "a", "elsewhere", 10)
    attach = SubscriberAttach("elsewhere", "in", "elsewhere", timeout_s=1.0)
    elsewhere.core.attach_subscriber(elsewhere, attach, mesh.now)
    mesh.subscriber("a", timeout_s=1.0).leave()
    looked_at: list[str] = []
    tick = Address.tick

    def noted(address: Address) -> None:
        looked_at.append(address.name)
        tick(address)

    monkeypatch.setattr(Address, "tick", noted)
    mesh.pass_time(60.0)
    assert list(mesh.cores["a"].addresses) == ["elsewhere"]
    assert looked_at == [TOPIC]
