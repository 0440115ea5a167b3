"""How edges read what comes to their addresses, to which others may send, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from onceway.client.bodies import why_raw
from onceway.client.delivery import Delivery

T = TypeVar("T")


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
