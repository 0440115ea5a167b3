"""What timeouts of an address must keep from one another, and what they should.

PROTOCOL 12 has the bounds and why they are there; docs/operating.md tells them to people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceway.topology.document import Entry, Item
from onceway.topology.values import format_duration
from router.config import AddressConfig, RouterConfig
from router.limits import Limits, UserLimits


def check_timeouts(address: AddressConfig, fields: Mapping[str, Entry], entry: Item) -> None:
    """PROTOCOL 12: deliveries must not be forgotten while a subscription may still hold them in doubt."""
    least = address.subscription_timeout_s + 2 * address.margin_s
    if address.publisher_expires_s > least:
        return
    item = fields.get("publisher_timeout") or fields.get("subscription_timeout") or entry
    item.problem(
        f"publisher_timeout {format_duration(address.publisher_expires_s)} must exceed subscription_timeout + 2 margin"
        f" = {format_duration(least)}",
        f"make publisher_timeout more than {format_duration(least)}, "
        f"or leave it out for {format_duration(address.subscription_timeout_s + 60)}",
    )


def longest_sign_of_life_s(settings: RouterConfig, limits: Sequence[Limits | UserLimits]) -> float:
    """How long it may take (PROTOCOL 5.2) until a publisher that has come back, sends nothing and answers no echo has
    shown that it lives, asked twice: its next heartbeat, later than `proof_after`.
    """
    idle_s = max([settings.idle_timeout_s, *(one.idle_timeout_s or 0.0 for one in limits)])
    return 2 * (idle_s / 2 + settings.proof_after_s)


def check_sign_of_life(address: AddressConfig, item: Item, sign_of_life_s: float) -> None:
    """A warning: nobody is concerned whose publishers all have epochs, as ours do."""
    if address.publisher_expires_s > sign_of_life_s:
        return
    item.warn(
        f"publisher_timeout {format_duration(address.publisher_expires_s)} is not more than publishers without epochs"
        f" may need to show that they live (idle_timeout + 2 proof_after = {format_duration(sign_of_life_s)}): such"
        " ones that come back may be told that they have expired",
        f"make publisher_timeout several times {format_duration(sign_of_life_s)}, or idle_timeout shorter",
    )
