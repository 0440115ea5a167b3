"""How much a publisher may still send, in AMQP's credit: PROTOCOL 6.8.

The core says how many messages and how many bytes may come; AMQP credit counts messages, so the sizes of the last 100
decide how many of them the bytes are good for.  Knows limits (delivery-count + link-credit) as plain growing integers,
and which of them have been on the wire; knows no link.  Read `router.proof` next: a question needs a limit that the
publisher cannot have seen before.
"""

from __future__ import annotations

from collections import deque

FIRST_CREDIT = 64  # 6.8: while no size is known
FIRST_SIZE = 64 << 10  # and for so many bytes each, where there is little memory
SIZES_KEPT = 100


class Sizes:
    """The largest of the last 100 message sizes, kept by runs."""

    __slots__ = ("_descending", "_seen", "largest")

    def __init__(self) -> None:
        self.largest = 0  # 0: nothing has come yet
        self._seen = 0
        self._descending: deque[tuple[int, int]] = deque()  # (its place among all, size), sizes falling

    def observe(self, payloads: list[bytes]) -> None:
        if not payloads:
            return
        if len(payloads) > SIZES_KEPT:
            payloads = payloads[-SIZES_KEPT:]
        size = len(payloads[0]) if len(payloads) == 1 else max(map(len, payloads))
        descending = self._descending
        self._seen = seen = self._seen + len(payloads)
        while descending and descending[-1][1] <= size:
            descending.pop()
        descending.append((seen, size))
        while descending[0][0] <= seen - SIZES_KEPT:
            descending.popleft()
        self.largest = descending[0][1] or 1


class Credit:
    """The limits of one publisher's link.

    `limit` is the one in force, which may go back when messages grow; `granted` are all those above the delivery-count
    that a publisher may have in its hands, so that a new one can be told from them.
    """

    __slots__ = ("before", "floor", "granted", "limit", "messages", "peak", "size", "sizes")

    def __init__(self, delivery_count: int) -> None:
        self.limit = delivery_count
        self.peak = delivery_count
        self.floor: int | None = None  # the limit of an open question: not taken back before its answer
        self.before: list[int] = []  # what was granted before it
        self.granted: list[int] = []
        self.messages = 0
        self.size = 0
        self.sizes = Sizes()

    def window(self, messages: int, size: int) -> None:
        """What may still come after everything that has been counted so far."""
        self.messages = messages
        self.size = size

    def wanted(self) -> int:
        """6.8: min(messages left, bytes left / the largest of the last 100, at least 1 while bytes are left)."""
        if self.messages <= 0 or self.size <= 0:
            return 0
        largest = self.sizes.largest
        if not largest:
            return min(self.messages, FIRST_CREDIT, max(1, self.size // FIRST_SIZE))
        return min(self.messages, max(1, self.size // largest))

    def change(self, delivery_count: int) -> int | None:
        """The credit to grant now, or None where the one in force will do.

        More is told only when it is a quarter more: a flow for every settled message would cost more than it gives.
        Less is told at once.
        """
        wanted = self.wanted()
        if self.floor is not None:
            wanted = max(wanted, self.floor - delivery_count)
            # A flow that shows the limit after the question is its answer (5.7), so no limit from before may be told
            # now, or the answer to the echo could not be told from a flow that is older than the question.
            while delivery_count + wanted in self.before:
                wanted += 1
        left = max(self.limit - delivery_count, 0)  # negative where credit taken back crossed transfers
        if wanted == left or (left > 0 and 0 < wanted - left < max(1, wanted >> 2)):
            return None
        self._put(delivery_count + wanted, delivery_count)
        return wanted

    def ask(self, delivery_count: int) -> int:
        """One more credit, at a limit that the publisher has never been told (5.7).  Returns the credit to grant."""
        limit = max(self.limit, delivery_count) + 1
        while limit in self.granted:  # only after credit was taken back
            limit += 1
        self.floor = limit
        self.before = self.granted
        self._put(limit, delivery_count)
        return limit - delivery_count

    def ask_again(self, delivery_count: int) -> int | None:
        """The credit of another limit for the open question, or None where its last one will do.

        Transfers that were sent with credit taken back before the question may reach its limit.  Their sender has no
        credit left when it reads it, so that its flow shows no limit and answers nothing.
        """
        if self.floor is None or delivery_count < self.floor:
            return None
        limit = max(self.limit, delivery_count) + 1
        while limit in self.granted or limit in self.before:
            limit += 1
        self.floor = limit
        self._put(limit, delivery_count)
        return limit - delivery_count

    def answered(self) -> None:
        """The question's limit may be taken back from now on."""
        self.floor = None
        self.before = []

    def _put(self, limit: int, delivery_count: int) -> None:
        self.granted = [old for old in self.granted if old > delivery_count and old != limit]
        self.granted.append(limit)
        self.limit = limit
        self.peak = max(self.peak, limit)
