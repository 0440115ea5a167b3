"""A publisher without credit is told why after a few seconds, again when the reason changes, and when it is over."""

from __future__ import annotations

from router.core.ports import Waiting
from router.core.reports import of_publisher
from router.core.waiting import TOLD_AFTER_S
from tests.router.ends import PublisherEnd
from tests.router.harness import TOPIC, Mesh

WINDOW = 5


def reasons(publisher: PublisherEnd) -> list[str | None]:
    return [waiting and waiting.reason for waiting in publisher.waits]


def test_without_a_subscription_it_is_told_so_once_and_when_there_is_one() -> None:
    mesh = Mesh()
    publisher = mesh.publisher("a")
    mesh.pass_time(TOLD_AFTER_S - 1)
    assert publisher.waits == []
    mesh.pass_time(2)
    assert publisher.waits == [Waiting("no-subscribers")]
    mesh.pass_time(30)
    assert len(publisher.waits) == 1
    mesh.subscriber("a")
    assert reasons(publisher) == ["no-subscribers", None]


def test_with_credit_it_is_told_nothing() -> None:
    mesh = Mesh()
    mesh.subscriber("a", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    mesh.pass_time(60)
    assert publisher.waits == []


def test_a_full_window_names_the_subscriptions_that_hold_it_up() -> None:
    mesh = Mesh("ab", window_messages=WINDOW)
    mesh.subscriber("a", "quick")
    slow = mesh.subscriber("a", "slow", accepts=False)
    far = mesh.subscriber("b", "far", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send(*"12345")
    mesh.pass_time(TOLD_AFTER_S + 1)
    (waiting,) = publisher.waits
    assert (waiting.reason, waiting.count) == ("window", 2)
    assert waiting.subscriptions == (("slow", "in", "a"), ("far", "in", "b"))
    slow.accept(slow.got[0].id, slow.got[-1].id)
    mesh.pass_time(TOLD_AFTER_S + 1)
    assert publisher.waits[1].subscriptions == (("far", "in", "b"),)
    far.accept(far.got[0].id, far.got[-1].id)
    assert publisher.waits[2] is None


def test_a_subscription_that_is_away_is_named_with_the_seconds_that_are_left() -> None:
    mesh = Mesh(window_messages=WINDOW)
    away = mesh.subscriber("a", "away", accepts=False, timeout_s=40.0, expiry_policy="never")
    publisher = mesh.publisher("a")
    away.leave()
    publisher.send(*"12345")
    mesh.pass_time(TOLD_AFTER_S + 1)
    (waiting,) = publisher.waits
    assert waiting.subscriptions == (("away", "in", ""),)
    assert waiting.setting == "subscription_timeout"
    assert waiting.seconds is not None
    assert 50 < waiting.seconds < 55.5  # never: as long as the address allows


def test_many_subscriptions_are_counted_and_a_few_are_named() -> None:
    mesh = Mesh(window_messages=WINDOW)
    for number in range(20):
        mesh.subscriber("a", f"s{number}", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send(*"12345")
    mesh.pass_time(TOLD_AFTER_S + 1)
    (waiting,) = publisher.waits
    assert (waiting.count, len(waiting.subscriptions)) == (20, 8)


def test_too_many_unsettled_and_too_much_memory_have_reasons_of_their_own() -> None:
    mesh = Mesh(unsettled_window=WINDOW)
    mesh.subscriber("a")
    publisher = mesh.publisher("a")
    publisher.send(*"12345")
    mesh.pass_time(TOLD_AFTER_S + 1)
    assert reasons(publisher) == ["unsettled-window"]
    mesh = Mesh(memory_limit=1000)
    mesh.subscriber("a", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("x" * 1000)
    mesh.pass_time(TOLD_AFTER_S + 1)
    assert reasons(publisher) == ["memory-limit"]


def test_while_the_network_recovers_it_is_told_so_even_with_credit_and_when_that_is_over() -> None:
    """Protocol 6.8.7."""
    mesh = Mesh("a", fresh=False)
    mesh.pass_time(3)
    publisher = mesh.publisher("a")
    mesh.pass_time(TOLD_AFTER_S + 1)
    (waiting,) = publisher.waits
    assert (waiting.reason, waiting.setting) == ("recovering", "subscription_timeout")
    assert waiting.seconds is not None
    assert 50 < waiting.seconds < 70
    address = mesh.cores["a"].addresses[TOPIC]
    (known,) = address.ingress.publishers.values()
    assert of_publisher(address, known)["waiting"] == waiting.status()
    mesh.pass_time(80)
    assert reasons(publisher) == ["recovering", "no-subscribers"]
