"""Messages under way: what `Publisher.put` and `put_many` return, to be awaited for the outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from amqp10.outcomes import Rejected
from onceway.client.protocol.publishing import tag_of
from onceway.errors import DeliveryNotAccepted, DeliveryRejected
from router.names import REJECTED

if TYPE_CHECKING:
    from onceway.client.publisher import Publisher


class Publication:
    """One message under way.  `await publication` returns when every subscriber has accepted it and it is settled.

    It may be awaited any number of times, or never: `Publisher.drain` waits for all. Cancelling an await changes
    nothing for the message. Awaiting raises what `Publisher.send` raises.

    Attributes:
        sequence: 0, 1, 2 ... under this publisher's name; with a journal, over restarts.
        done: It has its outcome, or will never have one.
    """

    __slots__ = ("_error", "_publisher", "_waiters", "done", "sequence")

    def __init__(self, publisher: Publisher, sequence: int) -> None:
        self.sequence = sequence
        self.done = False
        self._publisher = publisher
        self._error: Exception | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def tag(self) -> bytes:
        """Its delivery-tag on the way to the router."""
        return tag_of(self.sequence)

    def __repr__(self) -> str:
        state = "under way" if not self.done else "accepted" if self._error is None else repr(self._error)
        return f"<Publication {self.sequence} of publisher {self._publisher.name!r}, {state}>"

    def __await__(self) -> Generator[Any, None, None]:
        if not self.done:
            waiter = self._publisher._future()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error

    def _finish(self, error: Exception | None) -> None:
        self.done = True
        self._error = error
        if self._waiters is not None:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters = None


class Publications:
    """Messages under way, as one awaitable. It raises the error of the first message that fails.

    Attributes:
        first: The sequence of the first message.
        last: The sequence of the last one.
    """

    __slots__ = ("_error", "_left", "_publisher", "_waiters", "first", "last")

    def __init__(self, publisher: Publisher, first: int) -> None:
        self.first = first
        self.last = first - 1
        self._publisher = publisher
        self._left = 0
        self._error: Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def done(self) -> bool:
        return not self._left

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        return (
            f"<Publications {self.first} to {self.last} of publisher {self._publisher.name!r}, {self._left} under way>"
        )

    def __await__(self) -> Generator[Any, None, None]:
        if self._left:
            waiter = self._publisher._future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error

    def _finish(self, first: int, last: int, error: Exception | None) -> None:
        """Numbers first .. last are decided; some of them may be ours."""
        low, high = max(first, self.first), min(last, self.last)
        if low > high:
            return
        self._left -= high - low + 1
        if error is not None and self._error is None:
            self._error = error
        if not self._left:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()


def not_accepted(state: object) -> Exception:
    if isinstance(state, Rejected):
        info = {} if state.error is None or state.error.info is None else state.error.info
        count = info.get(REJECTED)
        said = "" if state.error is None else f": {state.error.description or state.error.condition}"
        return DeliveryRejected(f"rejected{said}", state, count)
    return DeliveryNotAccepted(f"not accepted: {state!r}", state)
