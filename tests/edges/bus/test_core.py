"""What is sent to whom, and when, in virtual time."""

from __future__ import annotations

import random

import pytest

from edges.bus.core import MARKS, Bus, Plan, Subscriber, Topic
from edges.bus.rules import Wish


def bus(*topics: str, slots: int = 1000) -> Bus:
    made = Bus(random.Random(1), slots=slots)
    for topic in topics:
        made.make_topic(topic, Topic("owner", "owner", 0))
    return made


def subscribe(made: Bus, name: str, *topics: str, timeout_ms: int = 500, most: int = 100) -> Subscriber:
    return made.change(name, name, Wish(topics, "https://x/", "u", timeout_ms, most))


def take(made: Bus, now: float) -> list[tuple[str, dict[str, tuple[int, int]]]]:
    return [(plan.subscriber.name, plan.parts) for plan in made.take(now)]


def succeed(made: Bus, plan: Plan) -> None:
    made.acknowledge(plan, sum(end - first for first, end in plan.parts.values()))
    made.succeeded(plan)
    made.check_invariants()


def test_a_batch_waits_for_its_timeout() -> None:
    made = bus("t")
    subscribe(made, "s", "t")
    made.arrived("t", 1, now=10.0)
    made.arrived("t", 3, now=10.2)
    assert made.take(10.49) == []
    assert made.deadline(10.49) == 10.5
    assert take(made, 10.5) == [("s", {"t": (0, 3)})]


def test_a_full_batch_does_not_wait() -> None:
    made = bus("t")
    subscribe(made, "s", "t", most=2)
    made.arrived("t", 5, now=10.0)
    assert take(made, 10.0) == [("s", {"t": (0, 2)})]


def test_full_batches_go_first() -> None:
    made = bus("t", "u", slots=1)
    subscribe(made, "late", "t", timeout_ms=0)
    subscribe(made, "full", "u", most=3)
    made.arrived("t", 1, now=10.0)
    made.arrived("u", 3, now=11.0)
    (plan,) = made.take(12.0)
    assert plan.subscriber.name == "full"
    succeed(made, plan)
    assert take(made, 12.0) == [("late", {"t": (0, 1)})]


def test_a_batch_holds_the_oldest_topics_first_and_at_most_max_events() -> None:
    made = bus("t", "u")
    subscribe(made, "s", "t", "u", most=4)
    made.arrived("u", 3, now=1.0)
    made.arrived("t", 3, now=1.1)
    assert take(made, 1.2) == [("s", {"u": (0, 3), "t": (0, 1)})]


def test_one_batch_at_a_time_keeps_the_order() -> None:
    made = bus("t")
    subscribe(made, "s", "t", most=1)
    made.arrived("t", 3, now=1.0)
    for position in range(3):
        (plan,) = made.take(1.0)
        assert plan.parts == {"t": (position, position + 1)}
        assert made.take(1.0) == []
        succeed(made, plan)
    assert made.deadline(1.0) is None


def test_pauses_double_from_100_ms_to_6_4_s_with_jitter() -> None:
    made = bus("t")
    subscribe(made, "s", "t", timeout_ms=0)
    made.arrived("t", 1, now=0.0)
    now = 0.0
    pauses = []
    for _ in range(10):
        (plan,) = made.take(now)
        made.failed(plan, now)
        deadline = made.deadline(now)
        assert made.take(deadline - 0.001) == []
        pauses.append(deadline - now)
        now = deadline
    least = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 6.4, 6.4, 6.4]
    assert all(low <= pause <= 1.5 * low for low, pause in zip(least, pauses, strict=True))
    assert len({pause / low for low, pause in zip(least, pauses, strict=True)}) > 5


def test_a_failed_batch_is_sent_again_as_it_was() -> None:
    made = bus("t")
    subscribe(made, "s", "t", timeout_ms=0, most=10)
    made.arrived("t", 2, now=0.0)
    (plan,) = made.take(0.0)
    made.failed(plan, 0.0)
    made.arrived("t", 20, now=0.01)
    assert made.take(0.05) == []
    (again,) = made.take(1.0)
    assert (again.parts, again.attempts) == ({"t": (0, 2)}, 2)
    succeed(made, again)
    assert take(made, 1.0) == [("s", {"t": (2, 12)})]


def test_a_slow_subscriber_delays_no_other() -> None:
    made = bus("t")
    subscribe(made, "slow", "t", timeout_ms=0)
    subscribe(made, "quick", "t", timeout_ms=0)
    made.arrived("t", 1, now=0.0)
    plans = {plan.subscriber.name: plan for plan in made.take(0.0)}
    for end in range(2, 50):
        succeed(made, plans["quick"])
        made.arrived("t", end, now=end)
        (plans["quick"],) = made.take(end)


def test_no_generation_is_of_two_subscriptions() -> None:
    """Who remembers what it has taken would take the new one's events for repeats."""
    made = bus("t")
    generations = set()
    for _ in range(2):
        subscriber = subscribe(made, "s", "t")
        for _ in range(2):
            generations.add(subscriber.generation)
            made.subscribe(subscriber, "t", 0)
        made.remove("s")
    assert len(generations) == 4


def test_unsubscribing_leaves_what_is_queued() -> None:
    made = bus("t")
    subscriber = subscribe(made, "s", "t", timeout_ms=0)
    made.arrived("t", 2, now=0.0)
    subscribe(made, "s", timeout_ms=0)
    made.arrived("t", 5, now=0.0)
    assert subscriber.topics == []
    assert made.pending(subscriber) == 2
    subscribe(made, "s", "t", timeout_ms=0)
    made.arrived("t", 6, now=0.0)
    (plan,) = made.take(0.0)
    assert plan.parts == {"t": (0, 2)}
    succeed(made, plan)
    (plan,) = made.take(0.0)
    assert plan.parts == {"t": (5, 6)}
    succeed(made, plan)


def test_nothing_is_needed_that_everybody_has() -> None:
    made = bus("t")
    subscribe(made, "one", "t", timeout_ms=0)
    subscribe(made, "other", "t", timeout_ms=0)
    made.arrived("t", 4, now=0.0)
    one, other = made.take(0.0)
    succeed(made, one)
    assert made.needed("t") == 0
    succeed(made, other)
    assert made.needed("t") == 4


def test_dropping_takes_the_oldest() -> None:
    made = bus("t")
    subscriber = subscribe(made, "s", "t", timeout_ms=0)
    made.arrived("t", 10, now=0.0)
    assert made.drop(subscriber, 4, "t") == 4
    assert take(made, 0.0) == [("s", {"t": (4, 10)})]


def test_a_subscription_comes_back_as_it_was_stored() -> None:
    made = bus("t")
    subscriber = subscribe(made, "s", "t", timeout_ms=7, most=3)
    made.arrived("t", 2, now=0.0)
    again = bus("t")
    again.ends["t"] = 2
    again.add(Subscriber.of_row("s", subscriber.row()))
    assert again.subscribers["s"].row() == subscriber.row()
    assert take(again, 0.0) == [("s", {"t": (0, 2)})]


def test_a_batch_of_a_removed_subscription_changes_nothing() -> None:
    made = bus("t")
    subscribe(made, "s", "t", timeout_ms=0)
    made.arrived("t", 1, now=0.0)
    (old,) = made.take(0.0)
    made.remove("s")
    fresh = subscribe(made, "s", "t", timeout_ms=0)
    made.arrived("t", 2, now=0.0)
    (plan,) = made.take(0.0)
    made.failed(old, 0.0)
    assert made.acknowledge(old, 1) is None
    assert fresh.sending
    succeed(made, plan)


@pytest.mark.parametrize("seed", range(30))
def test_every_subscriber_gets_every_event_once_in_order(seed: int) -> None:
    rng = random.Random(seed)
    topics = ["a", "b", "c"]
    made = Bus(rng, slots=rng.choice((1, 2, 100)))
    ends = dict.fromkeys(topics, 0)
    for topic in topics:
        made.make_topic(topic, Topic("owner", "owner", 0))
    names = [f"s{number}" for number in range(5)]
    for name in names:
        subscribe(made, name, *topics, timeout_ms=rng.randrange(1000), most=rng.randrange(1, 6))
    got: dict[str, dict[str, list[int]]] = {name: {topic: [] for topic in topics} for name in names}
    now = 0.0
    under_way: list[Plan] = []
    for step in range(800):
        now += rng.random() / 5
        if step < 400:
            topic = rng.choice(topics)
            ends[topic] += rng.randrange(1, 5)
            made.arrived(topic, ends[topic], now)
        elif step == 400:
            now += 100
        under_way += made.take(now)
        made.check_invariants()
        while under_way and rng.random() < 0.9:
            plan = under_way.pop(rng.randrange(len(under_way)))
            if rng.random() < 0.2:
                made.failed(plan, now)
                continue
            for topic, (first, end) in plan.parts.items():
                got[plan.subscriber.name][topic] += range(first, end)
            succeed(made, plan)
    while plans := [*under_way, *made.take(now := now + 10)]:
        for plan in plans:
            for topic, (first, end) in plan.parts.items():
                got[plan.subscriber.name][topic] += range(first, end)
            succeed(made, plan)
        under_way = []
    assert got == {name: {topic: list(range(ends[topic])) for topic in topics} for name in names}


def test_a_million_queued_events_are_only_positions() -> None:
    """Memory does not grow with a queue: the core keeps ranges, and marks of the last arrivals."""
    made = bus("t")
    subscriber = subscribe(made, "s", "t")
    for end in range(100, 1_000_001, 100):
        made.arrived("t", end, now=end / 1000)
    assert made.pending(subscriber) == 1_000_000
    positions, times = made._marks["t"]
    assert len(positions) == len(times) < 2 * MARKS
    assert len(subscriber.row()) < 200


def test_a_deleted_topic_leaves_nothing_once_nobody_is_sent_anything_of_it() -> None:
    made = bus("kept")
    subscriber = subscribe(made, "s", "kept")
    of = (made.topics, made.ends, made._readers, made._marks)
    before = [len(each) for each in of]
    for number in range(100):
        topic = f"t{number}"
        made.make_topic(topic, Topic("owner", "owner", 7))
        made.subscribe(subscriber, topic)
        made.arrived(topic, 9, now=number)
        made.drop_topic(topic)
        made.unsubscribe(subscriber, topic)
        assert made.pending(subscriber) == 2, "what is queued stays"
        (plan,) = made.take(number + 0.5)
        succeed(made, plan)
        made.arrived(topic, 12, now=number)  # what was under way when it was deleted
    assert [len(each) for each in of] == before


def test_what_another_edge_has_written_tells_how_far_its_topics_are() -> None:
    writer, reader = bus("t"), bus()
    subscriber = subscribe(writer, "s", "t")
    writer.arrived("t", 5, now=0)
    (plan,) = writer.take(1)
    succeed(writer, plan)
    reader.put("s", subscriber.row(), now=1)  # before it has heard of the topic
    assert (reader.ends, reader.pending(reader.subscribers["s"])) == ({"t": 5}, 0)
    reader.make_topic("t", Topic("owner", "owner", 0))
    reader.arrived("t", 6, now=2)
    assert take(reader, 3) == [("s", {"t": (5, 6)})]
