"""What a router is told, computed from what it is told (protocol 12)."""

from __future__ import annotations

from router.config import AddressConfig, RouterConfig


def test_recovery_waits_for_the_longest_subscription_timeout_that_an_address_can_have() -> None:
    short = AddressConfig("orders", subscription_timeout_s=8.0)
    assert RouterConfig("a", addresses=(short,)).recovery_s == 70.0  # another address may have the default


def test_recovery_ignores_the_default_where_a_rule_matches_every_address() -> None:
    short = AddressConfig("*", subscription_timeout_s=8.0)
    assert RouterConfig("a", addresses=(short,)).recovery_s == 12.0
