"""The messages of every delivery; `router.core.messages` has the others. In compiled code they are native classes."""

from __future__ import annotations

from amqp10.record import Record
from router.core.intervals import Range
from router.core.ports import Term

Rejection = tuple[int, int, int]
"""A range, and how many subscriptions rejected what is in it."""


class Data(Record):
    """New deliveries (protocol 6.1). settled: without token (protocol 6.9)."""

    __slots__ = ("address", "message_format", "open", "payloads", "position", "publisher", "settled", "tags", "term")

    def __init__(
        self,
        address: str,
        publisher: bytes,
        term: Term,
        position: int,
        message_format: int,
        settled: bool,
        tags: list[bytes],
        payloads: list[bytes],
        open: bool = False,  # noqa: A002
    ) -> None:
        self.address = address
        self.publisher = publisher
        self.term = term
        self.position = position
        self.message_format = message_format
        self.settled = settled
        self.tags = tags
        self.payloads = payloads
        self.open = open  # one large delivery, and the first part of its payload (protocol 6.12)


class Accept(Record):
    """Tokens of shared copies are answered (protocol 6.3)."""

    __slots__ = ("address", "ranges")

    def __init__(self, address: str, ranges: list[Rejection]) -> None:
        self.address = address
        self.ranges = ranges


class Settle(Record):
    """Positions are settled (protocol 6.6)."""

    __slots__ = ("address", "ranges")

    def __init__(self, address: str, ranges: list[Range]) -> None:
        self.address = address
        self.ranges = ranges
