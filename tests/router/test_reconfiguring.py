"""A topology file that changes while routers run (protocol 12)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from router.config import AddressConfig
from router.core.reports import of_all
from tests.router.harness import SHORT, Mesh


def reconfigure(mesh: Mesh, *names: str, **changes: Any) -> None:
    for name in names or mesh.names:
        core = mesh.cores[name]
        core.reconfigure(replace(core.config, **changes), mesh.now)
    mesh.run()


def test_a_smaller_window_takes_credit_back_and_a_larger_one_gives_it() -> None:
    mesh = Mesh("a")
    mesh.subscriber("a", "s0", accepts=False)
    publisher = mesh.publisher("a")
    assert publisher.window[0] == 1000
    reconfigure(mesh, window_messages=10)
    assert publisher.window[0] == 10
    reconfigure(mesh, window_messages=2000)
    assert publisher.window[0] == 2000


def test_accept_instead_of_hold_gives_credit_and_hold_takes_it_back() -> None:
    mesh = Mesh("a")
    publisher = mesh.publisher("a")
    assert publisher.window[0] == 0
    reconfigure(mesh, defaults=AddressConfig(no_subscribers="accept"))
    publisher.send("m0")
    mesh.run()
    assert publisher.told == [0]
    reconfigure(mesh, defaults=AddressConfig())
    assert publisher.window[0] == 0


def test_what_is_held_for_a_subscription_is_accepted_when_nobody_is_waited_for_any_more() -> None:
    mesh = Mesh("a", address=AddressConfig(no_subscribers="hold"))
    subscriber = mesh.subscriber("a", "s0", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    mesh.run()
    subscriber.leave(closed=True)
    mesh.run()
    assert publisher.told == []
    reconfigure(mesh, defaults=AddressConfig(no_subscribers="accept"))
    assert publisher.told == [0]


def test_a_removed_router_counts_for_together_no_more_and_an_added_one_does() -> None:
    """Protocol 12.8."""
    mesh = Mesh("abc")
    since = mesh.cores["a"].members.together_since
    mesh.pass_time(5.0)
    mesh.crash("c")
    mesh.run()
    assert mesh.cores["a"].members.together_since > mesh.now
    reconfigure(mesh, "a", "b", routers=("a", "b"))
    assert mesh.cores["a"].members.together_since == mesh.now > since
    reconfigure(mesh, "a", "b", routers=("a", "b", "d"))
    assert mesh.cores["a"].members.together_since > mesh.now


def test_a_router_that_waits_for_all_from_before_waits_for_the_longer_timeout() -> None:
    """Protocol 12.9."""
    mesh = Mesh("a", fresh=False, address=SHORT)
    mesh.pass_time(2.0)
    left = of_all(mesh.cores["a"])["recovering_s"]
    assert isinstance(left, float)
    reconfigure(mesh, defaults=AddressConfig(subscription_timeout_s=18.0))
    assert of_all(mesh.cores["a"])["recovering_s"] == left + 10.0 + 2 * (4.5 - 2.0)
    reconfigure(mesh, defaults=SHORT)
    assert of_all(mesh.cores["a"])["recovering_s"] == left + 10.0 + 2 * (4.5 - 2.0)


def test_an_address_that_gets_an_entry_of_its_own_is_recovered_only_if_it_was_before() -> None:
    """Protocol 12.9."""
    waits_long = AddressConfig(match="a.b*", subscription_timeout_s=18.0)
    mesh = Mesh("a", fresh=False, address=SHORT, addresses=(waits_long,))
    mesh.pass_time(SHORT.recovery_s + 2.0)
    core = mesh.cores["a"]
    assert core.recovery.is_recovered("a.x")
    assert not core.recovery.is_recovered("a.b.c")
    reconfigure(mesh, addresses=(replace(SHORT, match="a*"), replace(SHORT, match="b")))
    assert core.recovery.is_recovered("b")
    assert not core.recovery.is_recovered("a.b.c"), "its subscriptions may still come back"


def test_a_router_that_has_accepted_at_a_forgotten_address_knows_it_after_a_changed_file() -> None:
    """Protocol 12.9."""
    mesh = Mesh("a", address=AddressConfig(no_subscribers="accept"))
    publisher = mesh.publisher("a")
    publisher.send("m0")
    mesh.run()
    assert publisher.told == [0]
    publisher.settle(0)
    publisher.leave(closed=True)
    core = mesh.cores["a"]
    mesh.pass_time(200.0)
    assert not core.addresses
    reconfigure(mesh, addresses=(AddressConfig(match="topic"),))
    assert core.address("topic").accepted.at is not None
