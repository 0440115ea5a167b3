"""Messages under way, as awaitables."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from onceway.client.protocol.publishing import tag_of

if TYPE_CHECKING:
    import asyncio

    from onceway.client.publisher import Publisher


class Publication:
    """One message under way.  `await publication` returns when it is accepted by every subscriber and settled.

    Raises DeliveryRejected or DeliveryNotAccepted (another outcome), DeliveryUndecided (PROTOCOL 15), LinkStolen,
    ConnectionClosed, JournalError.  Not awaiting it is fine: `publisher.drain()` waits for all.
    """

    __slots__ = ("_error", "_publisher", "_waiters", "done", "sequence")

    def __init__(self, publisher: Publisher, sequence: int) -> None:
        self.sequence = sequence  # 0, 1, 2 ... for ever under this publisher's name (with a journal, over restarts)
        self.done = False
        self._publisher = publisher
        self._error: Exception | None = None
        self._waiters: list[asyncio.Future[None]] | None = None

    @property
    def tag(self) -> bytes:
        """Its delivery-tag on the way to the router."""
        return tag_of(self.sequence)

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
    """Messages `first` to `last` under way, as one awaitable; raises what the first that fails raises."""

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
