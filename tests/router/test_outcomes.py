"""Outcomes, who settles when, and transfers that are settled at once: protocol 6.4, 6.6, 6.9."""

from __future__ import annotations

from typing import Literal

import pytest

from router.config import AddressConfig
from router.core.ports import UNIQUE_TAGS, Outcome
from tests.router.harness import TOPIC, Mesh, undecided

# -------------------------------------------------------------------------------------------- outcomes (protocol 6.4)


def test_a_rejection_is_final_and_the_publisher_sees_how_many_rejected() -> None:
    """Protocol 6.4.3, 6.4.6, 6.5.1, 6.5.3."""
    mesh = Mesh("ab")
    mesh.subscriber("a", "s0")
    refusing = [mesh.subscriber("a", "s1", accepts=False), mesh.subscriber("b", "s2", accepts=False)]
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    for subscriber in refusing:
        subscriber.accept(subscriber.got[0].id)
        subscriber.dispose(Outcome.REJECTED, subscriber.got[1].id)
        subscriber.accept(subscriber.got[2].id)
    assert publisher.outcomes[0] == (Outcome.ACCEPTED, 0, False)
    assert publisher.outcomes[1] == (Outcome.REJECTED, 2, False)
    assert publisher.outcomes[2] == (Outcome.ACCEPTED, 0, False)
    publisher.settle(0, 2)
    mesh.assert_settled()


def test_a_release_is_no_failure_and_comes_again_without_limit() -> None:
    """Protocol 6.4.2."""
    mesh = Mesh("ab", address=AddressConfig(max_redeliveries=2))
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    for _ in range(9):
        subscriber.dispose(Outcome.RELEASED, subscriber.got[-1].id)
    assert [got.count for got in subscriber.got] == [0] * 10
    subscriber.dispose(Outcome.FAILED, subscriber.got[-1].id)
    assert subscriber.got[-1].count == 1
    assert publisher.told == []
    subscriber.accept(subscriber.got[-1].id)
    publisher.settle(0)
    mesh.assert_settled()


def test_a_delivery_that_failed_too_often_counts_as_rejected() -> None:
    """Protocol 6.4.2."""
    mesh = Mesh("ab", address=AddressConfig(max_redeliveries=2))
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    for _ in range(3):
        subscriber.dispose(Outcome.FAILED, subscriber.got[-1].id)
    assert [got.count for got in subscriber.got] == [0, 1, 2]
    assert publisher.outcomes == {0: (Outcome.REJECTED, 1, False)}
    publisher.settle(0)
    mesh.assert_settled()


def test_what_waits_to_be_delivered_again_goes_when_its_publisher_settles_early() -> None:
    """Protocol 6.6.3."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", credit=1, accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    subscriber.dispose(Outcome.RELEASED, subscriber.got[0].id)
    publisher.settle(0, 1)
    subscriber.give_credit(5)
    assert len(subscriber.got) == 1
    mesh.assert_settled()


# -------------------------------------------------------------------------------------------- settling (protocol 6.6)


def test_a_publisher_in_mode_first_is_settled_with_its_outcome() -> None:
    """Protocol 6.5.4, 6.5.5."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b")
    publisher = mesh.publisher("a", mode_first=True)
    publisher.send("m0", "m1")
    assert publisher.outcomes == {0: (Outcome.ACCEPTED, 0, True), 1: (Outcome.ACCEPTED, 0, True)}
    assert not subscriber.unsettled()
    mesh.assert_settled()


def test_a_repeated_tag_of_a_publisher_with_unique_tags_gets_its_records_outcome() -> None:
    """Protocol 6.1.1."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a", unsettled=UNIQUE_TAGS)
    publisher.send("m0", "m1", "m0")
    publisher.send("m1", "m2")
    assert subscriber.bodies() == ["m0", "m1", "m2"]
    subscriber.accept(subscriber.got[0].id, subscriber.got[1].id)
    assert sorted(publisher.told) == [0, 1, 2, 3]
    publisher.send("m0")
    assert publisher.outcomes[5] == (Outcome.ACCEPTED, 0, False)
    subscriber.accept(subscriber.got[2].id)
    publisher.settle(0, 5)
    mesh.assert_settled()


# -------------------------------------------------------------------------- receivers that settle (protocol 6.9)


def test_a_subscription_with_settled_transfers_accepts_when_they_are_written() -> None:
    """Protocol 6.9.4."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", settled_mode=True, credit=1)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    assert publisher.told == [0]
    assert subscriber.got[0].settled
    subscriber.give_credit(1)
    assert publisher.told == [0, 1]
    publisher.settle(0, 1)
    assert subscriber.settled == []
    mesh.assert_settled()


# ----------------------------------------------------------------------------------------- pre-settled (protocol 6.9)


def test_presettled_transfers_that_find_no_credit_are_dropped_oldest_first_and_counted() -> None:
    """Protocol 6.9.2."""
    mesh = Mesh("ab", presettled_queue=3)
    subscriber = mesh.subscriber("b", credit=0)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", settled=True)
    publisher.send("m2", "m3", "m4", settled=True)
    subscriber.give_credit(9)
    assert subscriber.bodies() == ["m2", "m3", "m4"]
    (subscriber,) = mesh.cores["b"].addresses[TOPIC].deliveries.subscribers.values()
    assert subscriber.presettled.dropped == 2


# --------------------------------------------------------------------------------------------- reasons (protocol 6.4.9)


@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_why_it_was_not_taken_is_told_across_routers_and_after_a_failover(kind: Literal["topic", "queue"]) -> None:
    """Protocol 6.4.9, 16.5.1."""
    mesh = Mesh("abc", address=AddressConfig(type=kind))
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1, unsettled={})
    publisher.send("m0", "m1", "m2")
    subscriber.dispose(Outcome.REJECTED, subscriber.got[0].id, why=b"first")
    assert publisher.reasons == {0: b"first"}
    mesh.crash("a")
    subscriber.dispose(Outcome.REJECTED, subscriber.got[1].id, why=b"to nobody")
    publisher = mesh.publisher("c", epoch=2, incarnation=1, unsettled=undecided("m0", "m1", "m2"))
    publisher.send("m0", "m1", "m2")
    subscriber.dispose(Outcome.REJECTED, subscriber.got[2].id, why=b"known by tag")
    assert publisher.reasons == {0: b"", 1: b"", 2: b"known by tag"}
    publisher.settle(0, 2)
    assert not mesh.cores["c"].addresses[TOPIC].records.refused.reasons
    mesh.assert_settled()
