"""A queue's cores, without links: who gets a delivery, and what becomes of what is given back (protocol 16)."""

from __future__ import annotations

import pytest

from amqp10.events import LinkFlow, Transfers
from amqp10.termini import Source, Target
from onceway.status import records
from router.config import AddressConfig, RouterConfig
from router.core.ports import Outcome
from tests.router.ends import SubscriberEnd
from tests.router.harness import TOPIC, Mesh, undecided
from tests.router.links import BODY, make, payloads

QUEUE = AddressConfig(type="queue", max_redeliveries=2)


def bodies(*consumers: SubscriberEnd) -> list[list[str]]:
    return [[got.body for got in consumer.got] for consumer in consumers]


def test_the_nearest_with_credit_gets_it_and_equally_near_ones_share() -> None:
    mesh = Mesh("ab", address=QUEUE)
    here = [mesh.subscriber("a", name, credit=2, accepts=False) for name in ("s0", "s1")]
    there = mesh.subscriber("b", "s2", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send(*[f"m{i}" for i in range(6)])
    assert sorted(got.body for consumer in here for got in consumer.got) == ["m0", "m1", "m2", "m3"]
    assert bodies(there) == [["m4", "m5"]]
    for consumer in (*here, there):
        consumer.accept(consumer.got[0].id, consumer.got[-1].id)
    assert sorted(publisher.accepted()) == [0, 1, 2, 3, 4, 5]
    publisher.settle(0, 5)
    mesh.assert_settled()


def test_without_credit_it_waits_and_then_goes_to_whoever_has_some() -> None:
    mesh = Mesh("ab", address=QUEUE)
    consumers = [mesh.subscriber(name, name, credit=0) for name in "ab"]
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    assert bodies(*consumers) == [[], []]
    status = mesh.cores["a"].status()["addresses"][TOPIC]  # type: ignore[index]
    assert (status["type"], status["ingress"]["free"]) == ("queue", 2)
    assert (records(status)["free"], records(status)["undone"]) == (2, 2)
    consumers[1].give_credit(1)
    consumers[0].give_credit(1)
    assert bodies(*consumers) == [["m1"], ["m0"]]
    publisher.settle(0, 1)
    mesh.assert_settled()


@pytest.mark.parametrize(
    ("outcome", "counts"), [(Outcome.RELEASED, [0, 0, 0, 0]), (Outcome.FAILED, [0, 1, 2])], ids=["released", "failed"]
)
def test_failures_are_counted_and_releases_are_not(outcome: Outcome, counts: list[int]) -> None:
    mesh = Mesh("ab", address=QUEUE)
    consumer = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    for _ in counts[1:]:
        consumer.dispose(outcome, consumer.got[-1].id)
    assert [got.count for got in consumer.got] == counts
    consumer.dispose(Outcome.FAILED, consumer.got[-1].id)
    if outcome is Outcome.FAILED:
        assert publisher.outcomes[0] == (Outcome.REJECTED, 1, False)
    else:
        assert consumer.got[-1].count == 1
        consumer.accept(consumer.got[-1].id)
    publisher.settle(0)
    mesh.assert_settled()


def test_what_a_consumer_had_accepted_that_left_is_settled_though_others_were_settled_between() -> None:
    mesh = Mesh("ab", address=QUEUE)
    near = mesh.subscriber("a", "s1", credit=0)
    consumer = mesh.subscriber("b", "s0", accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1, unsettled={})
    publisher.send("m0")
    publisher.leave()
    consumer.accept(consumer.got[0].id)
    consumer.leave(closed=True)
    mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0")).leave()
    other = mesh.publisher("a", "q")
    other.send("x")
    near.give_credit(5)
    other.settle(0)
    publisher = mesh.publisher("a", epoch=3, incarnation=1, unsettled=undecided("m0"))
    publisher.send("m0")
    assert publisher.accepted() == [0]
    publisher.settle(0)
    assert bodies(near) == [["x"]]
    mesh.assert_settled()


def test_a_map_without_an_epoch_gives_nothing_away_before_its_client_has_read_the_answer() -> None:
    mesh = Mesh("ab", address=QUEUE)
    consumer = mesh.subscriber("a", "s0", accepts=False, unsettled={})
    consumer.core.subscriber_heard(consumer, mesh.now)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    late = mesh.subscriber("b", "s0", unsettled={})
    other = mesh.subscriber("a", "s1")
    assert bodies(consumer, late, other) == [["m0"], [], []]
    late.core.subscriber_heard(late, mesh.now)
    mesh.run()
    assert bodies(late, other) == [[], ["m0"]]
    publisher.settle(0)
    mesh.assert_settled()


def test_a_consumer_with_a_map_and_no_epoch_is_asked_for_a_flow() -> None:
    clients = make(RouterConfig("a", routers=("a",), defaults=QUEUE))
    client = clients.connect("c")
    client.receiver("in", source=Source("q"), unsettled={}, credit=5)  # in a flow that it sends with its attach
    assert [event.flow.echo for event in client.seen(LinkFlow)] == [True]
    sender = client.sender("out", target=Target("q"))
    sender.send([b"1"], [BODY])
    clients.exchange()
    (payload,) = payloads(client.seen(Transfers))
    assert payload.endswith(BODY)


@pytest.mark.parametrize("failures", [0, 1])
def test_what_one_cannot_take_does_not_come_to_it_again_on_that_link_after_a_failover(failures: int) -> None:
    mesh = Mesh("abc", address=QUEUE)
    consumer = mesh.subscriber("b", "s0", accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1, unsettled={})
    publisher.send("m0", "m1")
    for _ in range(failures):  # a delivery that has come again is kept by tag
        consumer.dispose(Outcome.FAILED, consumer.got[-1].id)
    consumer.dispose(Outcome.ELSEWHERE, consumer.got[-1].id)
    mesh.crash("a")
    publisher = mesh.publisher("c", epoch=2, incarnation=1, unsettled=undecided("m0", "m1"))
    publisher.send("m0", "m1")
    assert len(consumer.got) == 2 + failures
    consumer.accept(consumer.got[0].id)
    publisher.settle(0)
    consumer.leave()
    again = mesh.subscriber("b", "s0")
    assert bodies(again) == [["m1"]]
    publisher.settle(1)
    mesh.assert_settled()


def test_what_one_cannot_take_goes_elsewhere_and_waits_where_there_is_nobody_else() -> None:
    mesh = Mesh("ab", address=QUEUE)
    first = mesh.subscriber("a", "s0", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    first.dispose(Outcome.ELSEWHERE, first.got[0].id)
    assert bodies(first) == [["m0", "m1"]]
    second = mesh.subscriber("b", "s1", accepts=False)
    assert bodies(second) == [["m0"]]
    second.dispose(Outcome.FAILED_ELSEWHERE, second.got[0].id)
    third = mesh.subscriber("b", "s2")
    assert [(got.body, got.count) for got in third.got] == [("m0", 1)]
    first.accept(first.got[1].id)
    publisher.settle(0, 1)
    mesh.assert_settled()
