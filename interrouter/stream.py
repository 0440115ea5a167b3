"""One session's two streams: numbered, acknowledged cumulatively, repeated on loss (go-back-N; PROTOCOL 3.1).

`OutgoingStream` holds what has not been acknowledged, and behind it what the window does not admit yet.
`IncomingStream` takes what comes next and drops everything else; fragments of a large message are joined here.

Nothing is repeated on suspicion. Packets of one session take one path at a time, in order; so a receiver that meets a
number beyond the one it expects knows of a loss, and says so (GAP). Where nothing follows to reveal it, the sender asks
(PROBE: "so far I have sent"), after a while without progress or when the path has changed, and the receiver answers at
once. Going back begins a new *round*; a GAP found in an older round is no news, so that one loss is repaired once. A
loss halves the window, progress widens it again.

Knows no packets, paths or clocks; times are the owner's. Read session.py next.
"""

from __future__ import annotations

from collections import deque
from typing import Final

FRAGMENT: Final = 64 * 1024
"""Larger messages travel in parts of this size, so that nothing else waits long for a trunk."""
MIN_WINDOW: Final = 4 * FRAGMENT
MAX_MESSAGE: Final = 1 << 30
ITEM_OVERHEAD: Final = 64  # what an item counts beyond its octets: empty messages need memory too

Item = tuple[bytes, bool]
"""A message or a part of one; whether more parts follow. Shared by the streams of all its destinations: `is` tells."""


def fragments(message: bytes) -> list[Item]:
    if len(message) <= FRAGMENT:
        return [(message, False)]
    last = len(message) - 1
    return [(message[at : at + FRAGMENT], at + FRAGMENT <= last) for at in range(0, len(message), FRAGMENT)]


class StreamError(Exception):
    """The far end broke the rules of the stream: the session is over."""


class OutgoingStream:
    __slots__ = ("_max_window", "acked", "backlog", "backlog_bytes", "flight", "resent", "round", "sent", "sent_bytes",
                 "window")  # fmt: skip

    def __init__(self, window: int) -> None:
        self.acked = 0
        """The number of flight[0]."""
        self.flight: list[Item] = []
        """What has been sent at least once and is not acknowledged; flight[:sent] in this round."""
        self.sent = 0
        self.sent_bytes = 0
        """Of flight[:sent]: what may be under way. Bounded by the window, but for one item."""
        self.backlog: deque[Item] = deque()
        self.backlog_bytes = 0
        self.window = window
        self._max_window = window
        self.round = 0
        self.resent = 0
        """Items that were sent more than once."""

    def put(self, items: list[Item], size: int) -> None:
        self.backlog += items
        self.backlog_bytes += size

    def peek(self) -> Item | None:
        """What may be sent next."""
        if self.sent_bytes >= self.window:
            return None
        if self.sent < len(self.flight):
            return self.flight[self.sent]
        return self.backlog[0] if self.backlog else None

    def take(self) -> None:
        """What `peek` returned goes out now."""
        if self.sent < len(self.flight):
            item = self.flight[self.sent]
            self.resent += 1
        else:
            item = self.backlog.popleft()
            self.backlog_bytes -= len(item[0])
            self.flight.append(item)
        self.sent += 1
        self.sent_bytes += len(item[0]) + ITEM_OVERHEAD

    @property
    def position(self) -> int:
        """The number of what goes out next."""
        return self.acked + self.sent

    @property
    def idle(self) -> bool:
        return not self.flight and not self.backlog

    @property
    def unacknowledged_bytes(self) -> int:
        return sum([len(item[0]) for item in self.flight])

    def acknowledged(self, upto: int) -> bool:
        """The far end has everything below this number. True: that is progress."""
        count = upto - self.acked
        if count <= 0:
            return False
        if count > len(self.flight):
            raise StreamError(f"acknowledged up to {upto}, only {self.acked + len(self.flight)} were sent")
        counted = min(count, self.sent)
        size = sum([len(item[0]) for item in self.flight[:counted]])
        del self.flight[:count]
        self.acked = upto
        self.sent -= counted
        self.sent_bytes -= size + counted * ITEM_OVERHEAD
        if self.window < self._max_window:
            self.window = min(self._max_window, self.window + size)
        return True

    def gap(self, gap_round: int) -> bool:
        """The far end misses the first of what is in flight. True: go back to it."""
        if gap_round != self.round or not self.sent:
            return False
        self.round = (self.round + 1) & 0xFFFF
        self.window = max(min(MIN_WINDOW, self._max_window), self.window // 2)
        self.sent = 0
        self.sent_bytes = 0
        return True


class IncomingStream:
    __slots__ = ("_parts", "_parts_size", "_reported", "expected", "gap")

    def __init__(self) -> None:
        self.expected = 0
        """Everything below this number has been taken: what we acknowledge."""
        self.gap: int | None = None
        """The round in which `expected` was found missing, until it has been said."""
        self._reported: int | None = None
        self._parts: list[bytes] = []
        self._parts_size = 0

    def missing(self, first: int, round_: int, probe: bool) -> bool:
        """Whether something before this number is missing; notes what is to be said about it."""
        if first <= self.expected:
            return False
        if probe or round_ != self._reported:
            self.gap = self._reported = round_
        return True

    def part(self, body: bytes, more: bool) -> bytes | None:
        """The next item; returns the message that it completes."""
        self.expected += 1
        if not more and not self._parts:
            return body
        self._parts.append(body)
        self._parts_size += len(body)
        if self._parts_size > MAX_MESSAGE:
            raise StreamError(f"a message of more than {MAX_MESSAGE} octets")
        if more:
            return None
        message = b"".join(self._parts)
        self._parts = []
        self._parts_size = 0
        return message
