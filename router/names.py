"""The names that Onceway adds to AMQP: link properties, conditions, the message annotation, and the guarantees.

The router, the client and Spark share them; docs/wire.md gives their types and defaults. This module imports nothing of
the router, and the client imports nothing else of the router.
"""

from __future__ import annotations

from typing import Final, Literal, get_args
from urllib.parse import quote, unquote

from amqp10 import errors

Guarantee = Literal["exactly-once", "at-least-once", "at-most-once"]
GUARANTEES: Final[tuple[Guarantee, ...]] = get_args(Guarantee)  # the best first

# Link properties. EPOCH is also the key in the info map of STOLEN: what the next epoch has to be above.
EPOCH: Final = "onceway:epoch"
INCARNATION: Final = "onceway:incarnation"
BORN: Final = "onceway:born"
ONLY_NEW: Final = "onceway:only-new"
UNIQUE_TAGS: Final = "onceway:unique-tags"
TERM: Final = "onceway:term"
RESUMED: Final = "onceway:resumed"
WAITING: Final = "onceway:waiting"
"""Property of a flow: why a publisher has no credit."""
WaitingReason = Literal["no-subscribers", "window", "unsettled-window", "memory-limit", "recovering", "draining"]
MARKS: Final = "onceway:marks"
GUARANTEE: Final = "onceway:guarantee"

# Properties of a trunk's open, beside INCARNATION. TRUNK is the oldest version of the wire between routers that the
# router speaks, and the address of a trunk's links. TRUNK_NEWEST is the newest that it speaks.
NETWORK: Final = "onceway:network"
ROUTER: Final = "onceway:router"
TRUNK: Final = "onceway:trunk"
TRUNK_NEWEST: Final = "onceway:trunk-newest"

# Conditions.
REJECTED: Final = "onceway:rejected"
"""Of a rejected publication, and the key in its info map: how many subscriptions rejected it."""
REASON: Final = "onceway:reason"
"""Key in the same map: what the last of them has said, or the router in its stead."""
FAILED_TOO_OFTEN: Final = "onceway:failed-too-often"
"""Of a rejection by a router: the subscription has failed with it more than `max_redeliveries` times."""
PUBLISHER_UNKNOWN: Final = "onceway:publisher-unknown"
PUBLISHER_EXPIRED: Final = "onceway:publisher-expired"
SUBSCRIPTION_BROKEN: Final = "onceway:subscription-broken"
SUBSCRIPTION_REMOVED: Final = "onceway:subscription-removed"
"""The topology file does not declare the subscription any more."""
SUBSCRIPTION_UNDECLARED: Final = "onceway:subscription-undeclared"
"""The address takes declared subscriptions only, and this is none."""
SUBSCRIPTION_EXISTS: Final = "onceway:subscription-exists"
"""ONLY_NEW was asked for, and there is an older subscription of this name."""
# AMQP's own, for the core, which imports nothing else of AMQP.
STOLEN: Final = errors.STOLEN
DETACH_FORCED: Final = errors.DETACH_FORCED
INTERNAL_ERROR: Final = errors.INTERNAL_ERROR
INVALID_FIELD: Final = errors.INVALID_FIELD
MESSAGE_SIZE_EXCEEDED: Final = errors.MESSAGE_SIZE_EXCEEDED
NOT_FOUND: Final = errors.NOT_FOUND
NOT_IMPLEMENTED: Final = errors.NOT_IMPLEMENTED
RESOURCE_DELETED: Final = errors.RESOURCE_DELETED
# Of dynamic nodes.
DYNAMIC_PREFIX: Final = "_dynamic/"
"""Begins the addresses that routers make for dynamic sources and targets. The topology file has no say in them."""
GONE: Final = "there is no such dynamic node: it ends with the link that made it"

PARTITION: Final = "onceway:partition"
"""Filter of a source: list [index, count]. Of count links each message goes to one."""
PREDICATE: Final = "onceway:predicate"
"""Filter of a source: a predicate on application properties (docs/metadata.md)."""

# Of pipes (docs/pipe.md).
STORES: Final = "onceway:stores"
"""In the info map of a redirect: list of the stores of a pipe, each host:port."""

PUBLISHER_ANNOTATION: Final = "x-opt-onceway-publisher"
"""Message annotation: the publisher, as `publisher_text` writes it."""


def publisher_text(container: str, name: str) -> str:
    """Container-id and link name, percent-encoded, with a slash between them. A list would say it better, but shims and
    clients of JMS know annotations of simple types only."""
    return f"{quote(container, safe='')}/{quote(name, safe='')}"


def publisher_named(text: object) -> tuple[str, str] | None:
    """Container-id and link name that `publisher_text` wrote; None if it did not write this."""
    parts = text.split("/") if isinstance(text, str) else ()
    return (unquote(parts[0]), unquote(parts[1])) if len(parts) == 2 else None
