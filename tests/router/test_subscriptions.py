"""Subscriptions that attach, resume, move, expire, and what they are told of it: protocol 7."""

from __future__ import annotations

import pytest

from router.core.address import Address
from router.core.ports import MapState, SubscriberAttach
from router.names import STOLEN
from tests.builds import puts_stand_ins
from tests.router.ends import SubscriberEnd
from tests.router.harness import SHORT, TOPIC, Mesh


def test_a_plain_subscription_resumes_with_nothing_and_gets_again_what_is_not_settled() -> None:
    """Protocol 7.5.7, 7.6.6."""
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


def test_foreign_tags_in_a_map_are_not_listed() -> None:
    """Protocol 7.2.3."""
    mesh = Mesh()
    subscriber = mesh.subscriber("a", unsettled={b"7": MapState.UNDECIDED})
    assert subscriber.said.listing == {}


def test_an_expiry_policy_starts_its_own_timeout_later() -> None:
    """Protocol 8.1.3, 8.3.3."""
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
    """Protocol 7.2.1, 7.2.2, 7.3.2."""
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
