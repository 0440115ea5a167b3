"""A recovering subscriber's half of protocol 15, against a router that the test plays: deliveries, verdicts, credit."""

from __future__ import annotations

import random
from itertools import islice, pairwise

import pytest

from amqp10.outcomes import ACCEPTED
from amqp10.runs import LinkFlow
from onceway.client.protocol.events import Attached, Drained
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
from tests.onceway.client.stored import stored


def test_a_first_attach_has_no_map_is_born_at_its_epoch_and_asks_to_be_waited_for() -> None:
    rig = Rig()
    rig.connect()
    rig.subscriber()
    link = rig.attaching()
    assert map_of(link) is None
    assert epoch_of(link) == number_of(link, "onceway:born") == 1_000_000
    assert link.remote_attach.source.expiry_policy == "never"
    assert link.remote_attach.source.timeout == 0xFFFFFFFF
    assert (link.remote_attach.snd_settle_mode, link.remote_attach.rcv_settle_mode) == (0, 1)


def test_credit_is_given_when_the_attach_is_answered_and_not_before() -> None:
    rig = Rig()
    rig.connect()
    rig.subscriber(credit=10)
    assert credit(rig) == []
    rig.answer_subscriber()
    assert credit(rig) == [10]


def test_deliveries_arrive_as_runs_and_an_accept_is_one_range() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig)
    first = deliver(rig, link, 0, 1, 2)
    assert arrived(subscriber) == [payload(0), payload(1), payload(2)]
    subscriber.decide(0, 2, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(first, first + 2, ACCEPTED, False)]


@pytest.mark.parametrize("seed", range(20))
def test_settled_in_any_pieces_each_tag_is_forgotten_once(seed: int) -> None:
    rng = random.Random(seed)
    journal = stored()
    rig = Rig(journal)
    rig.connect()
    subscriber = rig.subscriber(credit=100)
    journal.catch_up()
    rig.run()
    link = rig.answer_subscriber({})
    journal.catch_up()
    rig.run()
    first, numbers = 0, iter(range(60))
    while run := list(islice(numbers, rng.randint(1, 20))):
        first = deliver(rig, link, *run) - run[0]
    subscriber.decide(0, 59, ACCEPTED, rig.now)
    journal.catch_up()
    rig.run()
    cuts = sorted({0, 60, *rng.sample(range(1, 60), rng.randint(0, 12))})
    pieces = list(pairwise(cuts))
    if seed % 2:
        rng.shuffle(pieces)
    for low, behind in pieces:
        link.settle(first + low, first + behind - 1)
        rig.run()
    assert sorted(journal.part.settles) == sorted(map(tag, range(60)))
    assert subscriber.held == 0
    assert subscriber.holdings.segments == []
    assert not subscriber.holdings.accepted


def test_in_mode_first_an_accept_settles() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber("at-least-once")
    link = rig.answer_subscriber()
    first = deliver(rig, link, 0, 1)
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.run()
    assert told(rig) == [(first, first + 1, ACCEPTED, True)]
    assert subscriber.held == 0


def test_pre_settled_deliveries_are_handed_on_and_not_held() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber("at-most-once")
    link = rig.answer_subscriber()
    deliver(rig, link, 0, 1, settled=True)
    assert arrived(subscriber) == [payload(0), payload(1)]
    assert subscriber.held == 0


def test_credit_for_pre_settled_deliveries_comes_back_when_they_are_taken() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber("at-most-once", credit=4)
    link = rig.answer_subscriber()
    deliver(rig, link, 0, 1, 2, 3, settled=True)
    assert link.credit == 0
    subscriber.taken(3)
    rig.run()
    assert link.credit == 3


def test_credit_comes_back_with_verdicts_not_with_deliveries() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=8)
    credit(rig)
    deliver(rig, link, *range(8))
    assert not link.capacity()
    assert credit(rig) == []
    subscriber.decide(0, 3, ACCEPTED, rig.now)
    rig.run()
    assert link.credit == 4
    subscriber.decide(4, 4, ACCEPTED, rig.now)  # less than a quarter of the window: not worth a flow
    rig.run()
    assert link.credit == 4
    subscriber.decide(5, 7, ACCEPTED, rig.now)
    rig.run()
    assert link.credit == 8


def test_large_messages_get_less_credit() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.client.subscriber(
        "orders", "s", "exactly-once", rig.now, credit=100, credit_bytes=10_000, subscription_timeout_s=None
    )
    rig.run()
    link = rig.answer_subscriber()
    assert link.credit == 100
    link.send([tag(0)], [bytes(5000)])
    rig.run()
    subscriber.decide(0, 0, ACCEPTED, rig.now)
    rig.run()
    while link.capacity():
        link.send([tag(link.delivery_count)], [bytes(5000)])
    rig.run()
    subscriber.decide(1, 99, ACCEPTED, rig.now)
    rig.run()
    assert link.credit == 2


def test_attached_says_what_was_granted() -> None:
    rig = Rig()
    rig.connect()
    subscriber = rig.subscriber()
    rig.answer_subscriber(timeout=45)
    assert subscriber.take_events() == [Attached(False, "exactly-once", 45.0)]
    rig.reconnect()
    rig.answer_subscriber({}, timeout=45)
    assert kinds(subscriber.take_events()) == ["Lost", "Attached"]
    assert subscriber.resumed


def test_a_drain_asks_with_the_credit_there_is_and_is_over_when_the_router_gives_up_the_rest() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=10)
    credit(rig)
    subscriber.drain()
    rig.run()
    (flow,) = rig.take(LinkFlow)
    assert (flow.flow.link_credit, flow.flow.drain) == (10, True)
    deliver(rig, link, 0, 1)
    assert kinds(subscriber.take_events()) == ["Arrived"]
    link.drained()
    rig.run()
    assert subscriber.take_events() == [Drained(True)]
    assert credit(rig) == [8]


def test_a_drain_that_used_up_its_credit_does_not_say_that_the_router_is_empty() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=2)
    subscriber.drain()
    rig.run()
    deliver(rig, link, 0, 1)
    link.drained()
    rig.run()
    assert subscriber.take_events()[-1] == Drained(False)


def test_a_drain_waits_for_credit_where_all_of_it_is_outstanding_and_begins_again_after_a_loss() -> None:
    rig = Rig()
    subscriber, link = attached_subscriber(rig, credit=2)
    deliver(rig, link, 0, 1)
    credit(rig)
    subscriber.drain()
    rig.run()
    assert credit(rig) == []
    subscriber.decide(0, 1, ACCEPTED, rig.now)
    rig.run()
    assert [flow.flow.drain for flow in rig.take(LinkFlow)] == [True]
    rig.drop()
    rig.connect()
    link = rig.answer_subscriber({tag(0): ACCEPTED, tag(1): ACCEPTED})
    assert rig.take(LinkFlow)[-1].flow.drain
    link.drained()
    rig.run()
    assert subscriber.take_events()[-1] == Drained(True)


@pytest.mark.parametrize(
    ("asked_s", "policy", "timeout"),
    [(None, "never", 2**32 - 1), (0, "link-detach", 0), (0.2, "link-detach", 1), (9, "link-detach", 9)],
)
def test_a_subscription_timeout_is_asked_for_in_a_form_that_routers_follow(
    asked_s: float | None, policy: str, timeout: int
) -> None:
    rig = Rig()
    rig.connect()
    rig.client.subscriber(
        "orders", "s", "exactly-once", rig.now, credit=1, credit_bytes=1, subscription_timeout_s=asked_s
    )
    rig.run()
    attach = rig.attaching().remote_attach
    assert attach.source is not None
    source = attach.source
    assert (source.expiry_policy, source.timeout) == (policy, timeout)
