"""How much link-credit a publisher gets (protocol 6.8).

The core gives a window in messages and bytes. AMQP credit counts messages, so the window's bytes are divided by the
largest of the last 100 messages. A limit is delivery-count + link-credit, a plain growing integer; `Credit` remembers
which limits the publisher may have seen. It knows no link. Read `router.links.proof` next: a question needs a limit
that the publisher cannot have seen before.
"""

from __future__ import annotations

from typing import Final

FIRST_CREDIT: Final = 64  # protocol 6.8: while no size is known
FIRST_SIZE: Final = 64 << 10  # bytes of a message, assumed while no size is known
SIZES_KEPT: Final = 100


class Sizes:
    """The largest of the last 100 message sizes, counted run by run."""

    __slots__ = ("_descending", "_seen", "largest")

    def __init__(self) -> None:
        self.largest = 0  # 0: no message yet
        self._seen = 0
        self._descending: list[tuple[int, int]] = []  # (number of the message, size), sizes falling

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
            del descending[0]
        self.largest = descending[0][1] or 1


class Credit:
    """The limits of one publisher's link.

    `limit` is the one in force; it is lowered when messages grow larger. `granted` are all limits above the
    delivery-count that the publisher may have seen, so that a new limit can be told from them.
    """

    __slots__ = (
        "_told", "granted", "highest_limit", "limit", "limits_before_question", "messages", "paused", "question_limit",
        "size", "sizes", "withheld",
    )  # fmt: skip

    def __init__(self, delivery_count: int) -> None:
        self.limit = delivery_count
        self.highest_limit = delivery_count
        self.question_limit: int | None = None  # the limit of an open question: not lowered before its answer
        self.limits_before_question: list[int] = []
        self.granted: list[int] = []
        self.messages = 0
        self.size = 0
        self.sizes = Sizes()
        self.withheld = True  # not answered yet, or answered without credit (protocol 5.1)
        self.paused = False  # the router is being drained
        self._told = 0, 0

    def window(self, messages: int, size: int) -> None:
        """What the publisher may still send: messages, and bytes of payload; nothing while it is paused."""
        self._told = messages, size
        if not self.paused:
            self.messages, self.size = messages, size

    def pause(self) -> None:
        """All is withdrawn, except that of an open question."""
        self.paused = True
        self.messages = self.size = 0

    def resume(self) -> None:
        self.paused = False
        self.messages, self.size = self._told

    def change(self, delivery_count: int) -> int | None:
        """The credit to grant now, or None to keep the limit in force.

        A higher limit is granted only when credit grows by a quarter, to save flows; a lower one at once.
        """
        # the window as credit: min(messages, bytes / largest message), at least 1 while bytes are left
        wanted = 0
        if self.messages > 0 and self.size > 0:
            largest = self.sizes.largest
            wanted = self.messages if largest else min(self.messages, FIRST_CREDIT)
            wanted = min(wanted, max(1, self.size // (largest or FIRST_SIZE)))
        if self.question_limit is not None:
            wanted = max(wanted, self.question_limit - delivery_count)
            # protocol 5.7: a flow that shows a limit granted after the question answers it, so no limit from before the
            # question may be granted again: a flow older than the question would pass for the answer.
            while delivery_count + wanted in self.limits_before_question:
                wanted += 1
        left = max(self.limit - delivery_count, 0)  # negative where lowered credit crossed transfers
        if wanted == left or (left > 0 and 0 < wanted - left < max(1, wanted >> 2)):
            return None
        self._set_limit(delivery_count + wanted, delivery_count)
        return wanted

    def ask(self, delivery_count: int) -> int:
        """A question: one more credit, at a limit that the publisher cannot have seen (protocol 5.7). Returns the
        credit to grant."""
        limit = max(self.limit, delivery_count) + 1
        while limit in self.granted:  # only after credit was lowered
            limit += 1
        self.question_limit = limit
        self.limits_before_question = self.granted
        self._set_limit(limit, delivery_count)
        return limit - delivery_count

    def ask_again(self, delivery_count: int) -> int | None:
        """The credit for another limit of the open question, or None where its last limit still serves.

        Transfers sent on credit that was lowered before the question may reach its limit. Then the publisher has no
        credit left when it reads the question, and its flow shows no limit and answers nothing.
        """
        if self.question_limit is None or delivery_count < self.question_limit:
            return None
        limit = max(self.limit, delivery_count) + 1
        while limit in self.granted or limit in self.limits_before_question:
            limit += 1
        self.question_limit = limit
        self._set_limit(limit, delivery_count)
        return limit - delivery_count

    def answered(self) -> None:
        """The question is answered: its limit may be lowered from now on."""
        self.question_limit = None
        self.limits_before_question = []

    def _set_limit(self, limit: int, delivery_count: int) -> None:
        self.granted = [old for old in self.granted if old > delivery_count and old != limit]
        self.granted.append(limit)
        self.limit = limit
        self.highest_limit = max(self.highest_limit, limit)
