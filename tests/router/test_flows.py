"""Deliveries through one router and through three, with everything healthy."""

from __future__ import annotations

import pytest

from router.config import AddressConfig
from router.core.naming import derive_publisher_id
from router.core.ports import Outcome
from tests.router.harness import TOPIC, Mesh

BODIES = [f"m{i}" for i in range(40)]


def test_a_message_crosses_to_every_router_with_a_subscription_and_to_no_other() -> None:
    """Protocol 6.1.4, 6.6.1, 6.6.2, 6.7.1."""
    mesh = Mesh("abcd")
    near, far, beside = mesh.subscriber("a", "s0"), mesh.subscriber("b", "s1"), mesh.subscriber("b", "s2")
    other = mesh.subscriber("c", "s3")
    publisher = mesh.publisher("a")
    mesh.held.add(("a", "d"))
    publisher.send(*BODIES)
    assert near.bodies() == far.bodies() == beside.bodies() == other.bodies() == BODIES
    assert mesh.pending("a", "d") == []
    assert publisher.accepted() == list(range(40))
    publisher.settle(0, 39)
    assert not any(subscriber.unsettled() for subscriber in (near, far, beside, other))
    mesh.assert_settled()


def test_a_log_goes_over_many_segments() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=10_000)
    publisher = mesh.publisher("a")
    bodies = [f"{i}" for i in range(5_000)]
    for start in range(0, 5_000, 700):
        publisher.send(*bodies[start : start + 700])
    assert subscriber.bodies() == bodies
    publisher.settle(0, 2_499)
    assert len(mesh.cores["a"].addresses[TOPIC].records.log.blocks) == 3
    publisher.settle(2_500, 4_999)
    mesh.assert_settled()


def test_the_outgoing_tag_names_publisher_and_incarnation_and_is_at_most_32_bytes() -> None:
    """Protocol 1.7."""
    mesh = Mesh("ab")
    subscribers = [mesh.subscriber("a", "s0"), mesh.subscriber("b", "s1")]
    publisher = mesh.publisher("a", incarnation=7, epoch=7)
    publisher.send("short", "long", tags=[b"t" * 16, b"t" * 17])
    prefix = derive_publisher_id("p", "out", TOPIC, False) + (7).to_bytes(8, "big")
    for subscriber in subscribers:
        short, long = (got.tag for got in subscriber.got)
        assert short == prefix + b"t" * 16
        assert long.startswith(prefix)
        assert len(long) == 32
        assert long != short


def test_the_message_format_passes_through() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=0)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    publisher.send("m1", "m2", code=7)
    publisher.send("m3")
    subscriber.give_credit(10)
    assert [got.format for got in subscriber.got] == [0, 7, 7, 0]


# ------------------------------------------------------------------------------------- no subscription (protocol 6.10)


def test_without_a_subscription_hold_gives_no_credit_until_one_comes() -> None:
    """Protocol 6.10.2, 8.2.1."""
    mesh = Mesh("ab")
    publisher = mesh.publisher("a")
    assert publisher.window == (0, 0, "no subscribers")
    publisher.send("m0")
    assert publisher.told == []
    subscriber = mesh.subscriber("b")
    assert subscriber.bodies() == ["m0"]
    assert publisher.told == [0]
    assert publisher.window[0] > 0
    publisher.settle(0)
    subscriber.leave(closed=True)
    assert publisher.window == (0, 0, "no subscribers")
    mesh.assert_settled()


@pytest.mark.parametrize(("policy", "outcome"), [("accept", Outcome.ACCEPTED), ("release", Outcome.RELEASED)])
def test_without_a_subscription_the_address_may_accept_or_release_at_once(policy: str, outcome: Outcome) -> None:
    """Protocol 6.10.3, 6.10.4."""
    mesh = Mesh("ab", address=AddressConfig(no_subscribers=policy))  # type: ignore[arg-type]
    publisher = mesh.publisher("a")
    assert publisher.window[0] > 0
    publisher.send("m0")
    assert publisher.outcomes == {0: (outcome, 0, False)}
    publisher.settle(0)
    mesh.assert_settled()


def test_release_gives_back_what_was_taken_when_the_last_subscription_leaves() -> None:
    """Protocol 6.10.4."""
    mesh = Mesh("ab", address=AddressConfig(no_subscribers="release"))
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    subscriber.accept(subscriber.got[0].id)
    subscriber.leave(closed=True)
    assert [publisher.outcomes[i][0] for i in (0, 1)] == [Outcome.ACCEPTED, Outcome.RELEASED]
    publisher.settle(0, 1)
    mesh.assert_settled()


# --------------------------------------------------------------------------------------------- windows (protocol 6.8)


def test_the_window_counts_messages_and_bytes_that_are_not_done() -> None:
    """Protocol 6.8.1."""
    mesh = Mesh("ab", window_messages=10, window_bytes=100)
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    assert publisher.window == (10, 100, "")
    publisher.send("x" * 30, "y")
    assert publisher.window == (8, 69, "")
    publisher.send("z" * 69)
    assert publisher.window == (0, 0, "window of bytes")
    subscriber.accept(subscriber.got[0].id, subscriber.got[2].id)
    assert publisher.window == (10, 100, "")
    publisher.send(*[f"{i}" for i in range(10)])
    assert publisher.window == (0, 0, "window")


def test_done_and_unsettled_records_fill_a_window_of_their_own() -> None:
    """Protocol 6.8.2."""
    mesh = Mesh("ab", unsettled_window=5)
    mesh.subscriber("b")
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    assert publisher.window[0] == 2
    publisher.send("m3", "m4")
    assert publisher.window == (0, 0, "unsettled window")
    publisher.settle(0, 3)
    assert publisher.window[0] == 4


def test_at_the_memory_limit_nobody_gets_credit() -> None:
    """Protocol 6.8.4."""
    mesh = Mesh("ab", memory_limit=100)
    subscriber = mesh.subscriber("b", accepts=False)
    one, two = mesh.publisher("a", "p0"), mesh.publisher("a", "p1")
    one.send("x" * 100)
    assert one.window == two.window == (0, 0, "memory limit")
    subscriber.accept(subscriber.got[0].id)
    one.settle(0)
    assert one.window[0] > 0
    assert two.window[0] > 0
    mesh.assert_settled()


def test_remote_payload_is_counted_until_everybody_here_has_accepted_it() -> None:
    """Protocol 9.5."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("x" * 100)
    assert mesh.cores["b"].memory.payload_bytes == 100
    subscriber.accept(subscriber.got[0].id)
    assert mesh.cores["b"].memory.payload_bytes == 0
    assert mesh.cores["a"].memory.payload_bytes == 100, "a new subscription may still need it"
    publisher.settle(0)
    mesh.assert_settled()


# ------------------------------------------------------------------------------ done payload freed early (protocol 9)


def test_above_done_bytes_the_oldest_payload_is_freed_and_a_new_subscription_never_gets_it() -> None:
    """Protocol 7.5.8, 9.6."""
    mesh = Mesh("ab", done_bytes=150)
    first = mesh.subscriber("a", "s0")
    publisher = mesh.publisher("a")
    for i in range(5):
        publisher.send(f"{i}" * 50)
    assert mesh.cores["a"].memory.payload_bytes <= 150
    second = mesh.subscriber("b", "s1")
    assert [body[0] for body in second.bodies()] == [str(i) for i in range(5)][-len(second.bodies()) :]
    assert 0 < len(second.bodies()) < 5
    publisher.settle(0, 4)
    assert not first.unsettled()
    assert not second.unsettled()
    mesh.assert_settled()


def test_what_a_publisher_settles_as_it_leaves_is_settled_everywhere() -> None:
    """In one read: its farewell makes positions void at every egress, so the settlements must have gone before
    (protocol 3.3.4, 8.4.1)."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b")
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    mesh.cores["a"].publisher_settled(publisher, 0, 1, mesh.now)
    publisher.leave()
    assert not subscriber.unsettled()
