"""What a router counts by address, for its metrics."""

from __future__ import annotations

import pytest

from router.config import AddressConfig
from router.core.counters import (
    BROKEN,
    EXPIRED,
    LOST_KEPT,
    OTHER,
    OWN_COUNTERS,
    CountersByAddress,
    Histogram,
    Timeline,
)
from router.core.ports import Outcome
from router.core.reports import at_once, of_address
from router.names import SUBSCRIPTION_BROKEN
from tests.router.harness import TOPIC, Mesh


def test_messages_outcomes_and_settlements_are_counted_where_they_happen() -> None:
    mesh = Mesh("ab")
    mesh.subscriber("a", "s0")
    subscriber = mesh.subscriber("b", "s1", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    first = subscriber.got[0].id
    subscriber.dispose(Outcome.REJECTED, first)
    subscriber.dispose(Outcome.RELEASED, first + 1)
    subscriber.accept(first + 2)
    subscriber.accept(subscriber.got[-1].id)
    publisher.settle(0, 2)
    publisher.send("m3", settled=True)
    publisher.send("m4")
    publisher.leave()
    a, b = (mesh.cores[name].counters.of(TOPIC) for name in "ab")
    assert (a.received, a.received_settled) == (4, 1)
    assert a.received_bytes > 0
    assert (a.accepted, a.rejected, a.released) == (2, 1, 0)
    assert (a.settled, a.abandoned) == (3, 1)
    assert a.subscriptions.accepted == 4
    assert (b.subscriptions.accepted, b.subscriptions.rejected, b.subscriptions.released) == (2, 1, 1)
    assert (a.subscriptions.settled, b.subscriptions.settled) == (3, 3)
    assert sum(a.acceptance.counts) == sum(a.settlement.counts) == 3
    assert b.received == 0


def test_lag_and_age_of_a_subscription_that_accepts_nothing() -> None:
    mesh = Mesh("a")
    mesh.subscriber("a", "s", accepts=False)
    mesh.publisher("a").send("m0", "m1")
    mesh.pass_time(7.0)
    mesh.cores["a"].tick(mesh.now)
    (one,) = at_once(of_address(mesh.cores["a"].addresses[TOPIC]))["egress"]["subscribers"]
    assert one["not_accepted"] == 2
    assert one["oldest_s"] == pytest.approx(7.0, abs=0.1)


def test_a_subscription_that_expired_is_counted_where_it_is_forgotten_and_a_broken_one_where_it_is_told() -> None:
    mesh = Mesh("ab", address=AddressConfig(TOPIC, subscription_timeout_s=8.0))
    mesh.subscriber("a", "s0")
    mesh.subscriber("b", "s1", epoch=1, born=1, timeout_s=8.0).leave()
    mesh.pass_time(20.0)
    mesh.publisher("a").send("m0")
    assert mesh.subscriber("b", "s1", epoch=2, born=1, unsettled={}).condition == SUBSCRIPTION_BROKEN
    a, b = (mesh.cores[name].counters for name in "ab")
    assert [each.of(TOPIC).subscriptions.timed_out for each in (a, b)] == [1, 1]
    assert [each.of(TOPIC).subscriptions.broken for each in (a, b)] == [0, 1]
    (expired, broken) = b.lost
    assert [expired, broken] == [(TOPIC, "s1", "in", EXPIRED), (TOPIC, "s1", "in", BROKEN)]
    assert mesh.now - 20.0 <= b.lost[expired] < b.lost[broken] == mesh.now


def test_the_last_subscriptions_that_were_lost_are_remembered() -> None:
    counters = CountersByAddress()
    for i in range(LOST_KEPT + 2):
        counters.note_lost(counters.of("orders"), "c", f"s{i}", EXPIRED, float(i))
    counters.note_lost(counters.of("orders"), "c", "s2", EXPIRED, 1000.0)
    assert [key[2] for key in counters.lost] == [*(f"s{i}" for i in range(3, LOST_KEPT + 2)), "s2"]
    assert counters.of("orders").subscriptions.timed_out == LOST_KEPT + 3


def test_addresses_that_clients_invent_share_their_counters() -> None:
    counters = CountersByAddress()
    for i in range(OWN_COUNTERS):
        assert counters.of(f"topic-{i}").label == f"topic-{i}"
    assert counters.of("one more").label == OTHER
    assert counters.of("topic-3").label == "topic-3"
    assert len(counters.by_label) == OWN_COUNTERS + 1


def test_a_timeline_knows_when_each_position_came_to_a_quarter_of_its_age() -> None:
    timeline, histogram = Timeline(), Histogram()
    for i in range(10_000):
        timeline.note(10 * i, i * 0.01)
    now = 100.0
    assert now - timeline.appended_at(99_995) == pytest.approx(0.01)
    for position in (0, 50_000, 90_000, 99_000):
        age = now - position / 1_000
        assert age <= now - timeline.appended_at(position) <= age * 1.25 + 0.1
    timeline.observe(histogram, 99_000, 100_000, now)
    assert sum(histogram.counts) == 1_000
    assert histogram.sum_s == pytest.approx(sum((i + 1) * 0.01 * 10 for i in range(100)), rel=0.05)
