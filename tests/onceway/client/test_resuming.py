"""A recovering subscriber that comes back: verdicts, maps in parts, resumptions, gaps (protocol 15)."""

from __future__ import annotations

import pytest

from amqp10.events import LinkAttaching, LinkDetached
from amqp10.outcomes import ACCEPTED, RELEASED, DeliveryState, Error, Rejected
from amqp10.sender import SenderLink
from amqp10.types import ULong
from onceway.client.protocol.events import Failed, Gap, Settled
from onceway.client.protocol.subscribing import SubscriberLink
from onceway.errors import LinkStolen
from tests.onceway.client.harness import (
    Rig,
    arrived,
    attached_subscriber,
    credit,
    deliver,
    epoch_of,
    kinds,
    map_of,
    number_of,
    payload,
    tag,
    told,
)


def test_a_verdict_is_told_after_a_failover_when_its_delivery_is_resumed() -> None:
    """Protocol 15.4."""
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1, 2, 3)
    arrived(subscriber)
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.run()
    rig.reconnect()
    attach = rig.attaching()
    assert map_of(attach) == {tag(0): ACCEPTED, tag(1): ACCEPTED, tag(2): None, tag(3): None}
    assert number_of(attach, "onceway:born") == 1_000_000
    assert epoch_of(attach) == 1_000_001
    rig.heard.append(LinkAttaching(attach))
    listed = {tag(1): ACCEPTED, tag(2): None, tag(3): None}
    link = rig.answer_subscriber(listed)
    assert subscriber.held == 3  # 0 is not listed: settled, forgotten
    ids = [link.resume(name, state) for name, state in listed.items()]
    rig.run()
    assert told(rig) == [(ids[0], ids[0], ACCEPTED, False)]
    subscriber.decide(2, 3, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(ids[1], ids[2], ACCEPTED, False)]
    assert arrived(subscriber) == []


def test_a_verdict_given_while_away_is_in_the_map() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    rig.drop()
    subscriber.decide(1, 1, ACCEPTED, rig.now)
    rig.connect()
    assert map_of(rig.attaching()) == {tag(0): None, tag(1): ACCEPTED}


@pytest.mark.parametrize("attached", [True, False])
def test_a_subscriber_closes_when_the_router_has_heard_what_it_accepted(attached: bool) -> None:
    """Protocol 16.6: what a consumer has not said when it closes its link goes to others (seed 7010354)."""
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0)
    rig.reconnect()
    if not attached:
        subscriber.decide(0, 0, ACCEPTED, rig.now)
        subscriber.leave(True, rig.now)
    link = rig.answer_subscriber({tag(0): None})
    if attached:
        subscriber.decide(0, 0, ACCEPTED, rig.now)
        subscriber.leave(True, rig.now)
        rig.run()
    assert not [event for event in rig.heard if isinstance(event, LinkDetached)]
    delivery_id = link.resume(tag(0), None)
    rig.run()
    assert told(rig) == [(delivery_id, delivery_id, ACCEPTED, False)]
    assert [event.closed for event in rig.heard if isinstance(event, LinkDetached)] == [True]


def test_credit_used_by_resumptions_is_given_beside_the_window() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=10)
    deliver(rig, link, *range(6))
    subscriber.decide(0, 3, ACCEPTED, rig.now)
    rig.run()
    rig.reconnect()
    credit(rig)
    listed = {tag(number): None for number in range(6)}
    link = rig.answer_subscriber(listed)
    assert credit(rig) == [8 + 6]  # ten less two undecided, and one for each resumption
    for name in listed:
        link.resume(name)
    rig.run()
    assert link.credit == 8


def test_a_resumption_that_is_settled_ends_the_delivery() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.run()
    rig.reconnect()
    link = rig.answer_subscriber({tag(0): ACCEPTED, tag(1): None})
    link.resume(tag(0), settled=True)
    link.resume(tag(1), settled=True)
    rig.run()
    assert subscriber.held == 0
    told(rig)
    subscriber.decide(1, 1, ACCEPTED, rig.now)  # the application could not know
    rig.run()
    assert told(rig) == []
    assert subscriber.holdings.settled_early == {}


def test_whoever_wants_to_know_is_told_of_each_settlement() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    subscriber.tells_settled = True
    deliver(rig, link, 0, 1)
    rig.reconnect()
    link = rig.answer_subscriber({tag(1): None})
    link.resume(tag(1), settled=True)
    rig.run()
    subscriber.decide(1, 1, ACCEPTED, rig.now)  # void: it is settled
    rig.run()
    told_of = [(event.first, event.last) for event in subscriber.take_events() if isinstance(event, Settled)]
    assert told_of == [(0, 0), (1, 1), (1, 1)]


def test_a_delivery_whose_tag_is_held_is_not_handed_on_again() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    arrived(subscriber)
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.run()
    rig.reconnect()
    link = rig.answer_subscriber({tag(0): None, tag(1): None})
    told(rig)
    first = deliver(rig, link, 0, 1, 2)  # a router that does not resume but sends again
    assert arrived(subscriber) == [payload(2)]
    assert told(rig) == [(first, first, ACCEPTED, False)]
    subscriber.decide(1, 2, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(first + 1, first + 2, ACCEPTED, False)]


def test_a_tag_twice_in_one_run_is_handed_on_once() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 0, 1)
    assert arrived(subscriber) == [payload(0), payload(1)]
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.run()
    accepted = {number for first, last, _, _ in told(rig) for number in range(first, last + 1)}
    assert accepted == {0, 1, 2}


def test_a_released_delivery_is_settled_and_comes_again_as_new() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    first = deliver(rig, link, 0)
    arrived(subscriber)
    subscriber.decide(0, 0, RELEASED, rig.now)
    rig.run()
    assert told(rig) == [(first, first, RELEASED, False)]
    link.settle(first, first)
    deliver(rig, link, 0)
    assert arrived(subscriber) == [payload(0)]
    subscriber.decide(1, 1, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(first + 1, first + 1, ACCEPTED, False)]


def test_a_rejection_is_repeated_after_a_failover() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0)
    state = Rejected(Error("app:bad"))
    subscriber.decide(0, 0, state, rig.now)
    rig.run()
    rig.reconnect()
    attach = rig.attaching()
    assert map_of(attach) == {tag(0): state}
    rig.heard.append(LinkAttaching(attach))
    link = rig.answer_subscriber({tag(0): None})
    told(rig)
    number = link.resume(tag(0))
    rig.run()
    assert told(rig) == [(number, number, state, False)]


def test_broken_it_joins_again_with_another_born_keeps_its_map_and_tells_of_the_gap() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    arrived(subscriber)
    rig.reconnect()
    rig.refuse("onceway:subscription-broken")
    attach = rig.attaching()
    assert number_of(attach, "onceway:born") == epoch_of(attach) == 1_000_002
    assert map_of(attach) == {tag(0): None, tag(1): None}
    rig.heard.append(LinkAttaching(attach))
    rig.answer_subscriber({tag(1): None})
    events = subscriber.take_events()
    (gap,) = [event for event in events if isinstance(event, Gap)]
    assert "subscription-broken" in gap.reason
    assert gap.dropped == 1
    assert not [event for event in events if isinstance(event, Failed)]


def test_away_for_longer_than_it_was_granted_it_does_not_try_to_resume() -> None:
    rig = Rig()
    subscriber, _ = attached_subscriber(rig)
    rig.drop()
    rig.now += 60 - 5 + 0.1
    rig.connect()
    attach = rig.attaching()
    assert number_of(attach, "onceway:born") == epoch_of(attach)
    rig.heard.append(LinkAttaching(attach))
    rig.answer_subscriber({})
    assert "Gap" in kinds(subscriber.take_events())


def test_away_for_less_it_resumes_without_a_word() -> None:
    rig = Rig()
    subscriber, _ = attached_subscriber(rig)
    rig.drop()
    rig.now += 54
    rig.connect()
    rig.answer_subscriber({})
    assert kinds(subscriber.take_events()) == ["Lost", "Attached"]


def test_a_mark_that_was_not_there_before_is_told_as_a_gap() -> None:
    """Protocol 15.5."""
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber()
    rig.answer_subscriber(properties={"onceway:marks": [[ULong(5), "a"]]})
    rig.reconnect()
    rig.answer_subscriber({}, properties={"onceway:marks": [[ULong(5), "a"]]})
    assert "Gap" not in kinds(subscriber.take_events())
    rig.reconnect()
    rig.answer_subscriber({}, properties={"onceway:marks": [[ULong(5), "a"], [ULong(9), "b"]]})
    assert "Gap" in kinds(subscriber.take_events())


def test_a_stolen_subscription_is_not_taken_back() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    rig.detach(link, "amqp:link:stolen", {"onceway:epoch": ULong(7)})
    events = subscriber.take_events()
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, LinkStolen)


def test_a_map_larger_than_a_frame_goes_out_in_parts_of_one_epoch() -> None:
    rig = Rig(router_frame=2048)
    subscriber, link = attached_subscriber(rig, credit=1000)
    for start in range(0, 200, 50):
        deliver(rig, link, *range(start, start + 50))
    rig.reconnect()
    whole: dict[bytes, DeliveryState | None] = {}
    epochs = set()
    while True:
        attach = rig.attaching()
        assert attach.remote_attach is not None
        epochs.add(epoch_of(attach))
        whole.update(map_of(attach) or {})
        if not attach.remote_attach.incomplete_unsettled:
            break
        attach.attach(source=attach.remote_attach.source, target=attach.remote_attach.target, unsettled={})
        attach.detach(closed=False)
        rig.run()
    assert whole == {tag(number): None for number in range(200)}
    assert len(epochs) == 1
    assert subscriber.held == 200


def test_an_answer_that_is_not_whole_forgets_nothing_and_is_asked_for_again_when_resolved() -> None:
    """Protocol 15.4."""
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1, 2)
    rig.reconnect()
    link = rig.answer_subscriber({tag(0): None}, incomplete=True)
    assert subscriber.held == 3
    link.resume(tag(0), settled=True)
    rig.run()
    (detached,) = rig.take(LinkDetached)
    assert not detached.closed
    attach = rig.attaching()
    assert map_of(attach) == {tag(1): None, tag(2): None}
    rig.heard.append(LinkAttaching(attach))
    rig.answer_subscriber({})
    assert subscriber.held == 0


def test_an_answer_that_is_not_whole_is_resolved_by_verdicts_not_by_their_settlement() -> None:
    """Settled is what all subscribers have accepted, and another may be waiting in the same way for the rest of ours."""
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1, 2)
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.reconnect()
    link = rig.answer_subscriber({tag(1): None, tag(0): ACCEPTED}, incomplete=True)
    link.resume(tag(1))
    link.resume(tag(0))
    rig.run()
    assert rig.take(LinkDetached) == []
    subscriber.decide(1, 1, ACCEPTED, rig.now)
    rig.run()
    assert len(rig.take(LinkDetached)) == 1
    attach = rig.attaching()
    assert map_of(attach) == {tag(0): ACCEPTED, tag(1): ACCEPTED, tag(2): None}


def told_a_part_of_what_it_has_accepted(rig: Rig) -> tuple[SubscriberLink, SenderLink]:
    """It has accepted 0 and 1, and is answered with 0 only, which has been resumed."""
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0, 1)
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.reconnect()
    link = rig.answer_subscriber({tag(0): ACCEPTED}, incomplete=True)
    link.resume(tag(0))
    return subscriber, link


def test_an_answer_that_is_not_whole_and_wants_no_verdict_is_resolved_when_it_is_settled() -> None:
    rig = Rig()
    _, link = told_a_part_of_what_it_has_accepted(rig)
    rig.run()
    assert rig.take(LinkDetached) == [], "the same answer would come again"
    link.resume(tag(1), settled=True)
    link.resume(tag(0), settled=True)
    rig.run()
    assert len(rig.take(LinkDetached)) == 1
    assert map_of(rig.attaching()) == {}


def test_what_is_new_comes_also_where_an_answer_is_not_whole() -> None:
    """It may be what another subscriber waits for before ours is settled."""
    rig = Rig()
    subscriber, link = told_a_part_of_what_it_has_accepted(rig)
    deliver(rig, link, 2)
    subscriber.decide(2, 2, ACCEPTED, rig.now)
    rig.run()
    assert rig.take(LinkDetached) == []
    link.resume(tag(0), settled=True)
    rig.run()
    assert len(rig.take(LinkDetached)) == 1
    assert map_of(rig.attaching()) == {tag(1): ACCEPTED, tag(2): ACCEPTED}


def test_a_resumption_of_something_unknown_is_asked_for_whole() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    number = link.resume(b"never seen")
    rig.run()
    assert told(rig) == [(number, number, RELEASED, False)]
    assert subscriber.held == 0


def test_released_before_a_failover_it_is_in_the_map_as_released() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    deliver(rig, link, 0)
    subscriber.decide(0, 0, RELEASED, rig.now)
    rig.run()
    rig.reconnect()
    assert map_of(rig.attaching()) == {tag(0): RELEASED}
