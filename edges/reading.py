"""How edges read what comes to their addresses, to which others may send, too, and what they may send there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from onceway.client.bodies import why_raw
from onceway.client.delivery import Delivery
from onceway.errors import UsageError

T = TypeVar("T")


def room_in(largest: int | None, beside: int) -> int | None:
    """How many octets of its own an edge may put into one message; None: as many as it likes.

    Args:
        largest: Octets of a message that the routers take (`Publisher.max_message_bytes`).
        beside: Octets that its messages have beside what it puts into them.

    Raises:
        UsageError: There is no room at all.
    """
    if largest is None:
        return None
    if largest <= beside:
        raise UsageError(f"the routers take messages of {largest} bytes only, {beside} are too few")
    return largest - beside


def read_or_reject(
    delivery: Delivery, read: Callable[[Any], T], refused: Callable[[str], None] = lambda _: None
) -> T | None:
    """What `read` makes of the body; None where the delivery was rejected.

    Args:
        delivery: It is rejected where its message cannot be decoded, and where `read` raises ValueError.
        read: Changes nothing before it knows that it can read the body.
        refused: Told why.
    """
    body = delivery.body
    why = why_raw(body)
    if why is None:
        try:
            return read(body)
        except ValueError as error:
            why = str(error)
    refused(why)
    delivery.reject(description=why)
    return None
