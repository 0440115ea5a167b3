"""Serial numbers on the wire, plain integers inside (AMQP 2.8.10 sequence-no, RFC 1982).

Inside the engine delivery-ids, delivery-counts and transfer-ids grow without bound; `& WRAP` makes their wire form.
`unwrap` needs a number that is less than 2**31 away.
"""

from __future__ import annotations

from typing import Final

WRAP: Final = 0xFFFFFFFF
HALF: Final = 0x80000000


def unwrap(wire: int, near: int) -> int:
    """The integer with this wire form that is nearest to `near` (which may make it negative, if near is small)."""
    return near + ((wire - near + HALF) & WRAP) - HALF


def difference(later: int, earlier: int) -> int:
    """later - earlier as serial numbers: from -2**31 to 2**31 - 1."""
    return ((later - earlier + HALF) & WRAP) - HALF
