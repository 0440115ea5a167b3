"""One session's two streams: numbered, acknowledged cumulatively, repeated on loss (go-back-N; protocol 3.1).

`OutgoingStream` holds what has not been acknowledged, and a backlog that the window does not admit yet.
`IncomingStream` accepts the next item and drops all others; it joins the fragments of a large message.

Nothing is repeated on suspicion. Packets of one session take one path at a time, in order, so a receiver that sees a
number beyond the expected one knows of a loss and reports it (GAP). If nothing follows that would reveal a loss, the
sender asks (PROBE) after a while without progress, or when the path has changed, and the receiver answers at once.
Going back starts a new *round*; a GAP found in an older round is ignored, so each loss is repaired once. A loss halves
the window, progress widens it again.

Knows no packets, paths or clocks. Read session.py next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

FRAGMENT: Final = 128 * 1024
"""Bytes of a fragment. Larger messages are split, so that nothing else waits long for a trunk."""
MIN_WINDOW: Final = 2 * FRAGMENT
MAX_MESSAGE: Final = 1 << 30
ITEM_OVERHEAD: Final = 64  # bytes that an item counts in addition to its own: empty messages need memory too

Item = tuple[bytes | memoryview, bool]
"""A message or a fragment; whether more fragments follow. The streams of all destinations share its bytes."""


Parts = bytes | Sequence[bytes]
"""A message, whole or in parts, of which none is empty. How it is cut means nothing to streams."""


def fragments(message: Parts) -> list[Item]:
    """A message as items. Its bytes are not copied."""
    found: list[Item] = []
    for part in (message,) if isinstance(message, bytes) else message:
        if len(part) <= FRAGMENT:
            found.append((part, True))
        else:
            view = memoryview(part)
            found += [(view[at : at + FRAGMENT], True) for at in range(0, len(part), FRAGMENT)]
    found[-1] = (found[-1][0], False)
    return found


KEPT_WHOLE: Final = FRAGMENT // 2
"""Bytes from which on a fragment that waits for the others is not copied out of its transfer's payload: it is about all
of that."""

Received = bytes | list[bytes | memoryview]
"""A message as it has arrived: whole, or in its fragments."""


def whole(message: Received) -> bytes:
    """The message in one piece."""
    return message if isinstance(message, bytes) else b"".join(message)


class StreamError(Exception):
    """The far end broke the rules of the stream: the session ends."""


class OutgoingStream:
    __slots__ = ("_max_window", "acked", "backlog", "backlog_bytes", "flight", "resent", "round", "sent", "sent_bytes",
                 "window")  # fmt: skip

    def __init__(self, window: int) -> None:
        self.acked = 0
        """The number of flight[0]."""
        self.flight: list[Item] = []
        """Sent at least once and not acknowledged; flight[:sent] were sent in this round."""
        self.sent = 0
        self.sent_bytes = 0
        """Of flight[:sent], with overhead. Exceeds the window by less than one item."""
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
        """The next item if the window admits it."""
        if self.sent_bytes >= self.window:
            return None
        if self.sent < len(self.flight):
            return self.flight[self.sent]
        return self.backlog[0] if self.backlog else None

    def next_is(self, item: Item) -> bool:
        """Whether `peek` returns this message or fragment, the very same bytes, and not only equal ones."""
        following = self.peek()
        return following is not None and following[0] is item[0] and following[1] == item[1]

    def take(self) -> Item | None:
        """The item that `peek` returned is being sent. Returns the next, as `peek` does."""
        if self.sent < len(self.flight):
            item = self.flight[self.sent]
            self.resent += 1
        else:
            item = self.backlog.popleft()
            self.backlog_bytes -= len(item[0])
            self.flight.append(item)
        self.sent += 1
        self.sent_bytes += len(item[0]) + ITEM_OVERHEAD
        return self.peek()

    @property
    def position(self) -> int:
        """The number of the next item."""
        return self.acked + self.sent

    @property
    def idle(self) -> bool:
        return not self.flight and not self.backlog

    @property
    def unacknowledged_bytes(self) -> int:
        return sum([len(item[0]) for item in self.flight])

    def acknowledged(self, upto: int) -> bool:
        """The far end has everything below this number. True: the acknowledgement is new."""
        count = upto - self.acked
        if count <= 0:
            return False
        if count > len(self.flight):
            raise StreamError(f"acknowledged up to {upto}, only {self.acked + len(self.flight)} were sent")
        counted = min(count, self.sent)
        size = 0
        for item in self.flight[:counted]:
            size += len(item[0])
        del self.flight[:count]
        self.acked = upto
        self.sent -= counted
        self.sent_bytes -= size + counted * ITEM_OVERHEAD
        if self.window < self._max_window:
            self.window = min(self._max_window, self.window + size)
        return True

    def gap(self, gap_round: int) -> bool:
        """The far end misses the first item in flight. True: go back to it."""
        if gap_round != self.round or not self.sent:
            return False
        self.round = (self.round + 1) & 0xFFFF
        self.window = max(min(MIN_WINDOW, self._max_window), self.window // 2)
        self.sent = 0
        self.sent_bytes = 0
        return True

    def check_invariants(self) -> None:
        assert 0 <= self.sent <= len(self.flight), "more is sent than is in flight"
        sent = self.flight[: self.sent]
        assert self.sent_bytes == sum([len(body) + ITEM_OVERHEAD for body, _ in sent]), "sent_bytes is wrong"
        assert self.backlog_bytes == sum([len(body) for body, _ in self.backlog]), "backlog_bytes is wrong"
        assert min(MIN_WINDOW, self._max_window) <= self.window <= self._max_window, "the window is out of range"
        last = len(sent[-1][0]) + ITEM_OVERHEAD if sent else 0
        assert self.sent_bytes - last < self._max_window, "more than the window is under way"


class IncomingStream:
    __slots__ = ("_parts", "_parts_size", "_reported", "expected", "gap")

    def __init__(self) -> None:
        self.expected = 0
        """Everything below this number has been received: the acknowledgement."""
        self.gap: int | None = None
        """The round in which `expected` was found missing, until it has been reported."""
        self._reported: int | None = None
        self._parts: list[bytes | memoryview] = []
        self._parts_size = 0

    def missing(self, first: int, round_: int, probe: bool) -> bool:
        """Whether an item before this number is missing; sets `gap` if that is to be reported."""
        if first <= self.expected:
            return False
        if probe or round_ != self._reported:
            self.gap = self._reported = round_
        return True

    def receive(self, payload: bytes, start: int, stop: int, more: bool) -> Received | None:
        """The next item has arrived, as these bytes of a payload. Returns the message that it completes, if it does."""
        self.expected += 1
        if not more and not self._parts:
            return payload[start:stop]
        self._parts.append(memoryview(payload)[start:stop] if stop - start >= KEPT_WHOLE else payload[start:stop])
        self._parts_size += stop - start
        if self._parts_size > MAX_MESSAGE:
            raise StreamError(f"a message of more than {MAX_MESSAGE} bytes")
        if more:
            return None
        message, self._parts = self._parts, []
        self._parts_size = 0
        return message

    def check_invariants(self) -> None:
        assert self._parts_size == sum(map(len, self._parts)), "the size of the fragments is wrong"
        assert self.expected >= len(self._parts), "more fragments than items"
