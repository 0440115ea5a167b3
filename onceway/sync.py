"""The client without asyncio: for scripts, and for web frameworks whose requests are threads.

`connect` starts a thread with an event loop, which keeps the connection alive between calls.  Every call blocks the
thread that makes it until it is done.  All objects may be used by any number of threads.  They have the names,
arguments and errors of the asyncio client.  In asyncio code use `onceway.connect`: a call from a running event loop
raises `UsageError`.  Processes that fork connect after the fork.

Example:
    ```python
    with onceway.sync.connect("amqp://127.0.0.1:5672", journal="shop.journal") as connection:
        connection.publisher("orders").send(b"one order", timeout_s=30)
        for delivery in connection.subscriber("invoices"):
            delivery.accept()
    ```
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

import onceway
from onceway.base import waits

__all__ = ["Batch", "Connection", "Delivery", "Publication", "Publisher", "Subscriber", "Transaction", "connect"]

T = TypeVar("T")


def connect(urls: str | list[str], **options: Any) -> Connection:
    """Connects to the network; returns when a router has answered.

    Args:
        urls: As in `onceway.connect`.
        options: The other arguments of `onceway.connect`.  Callbacks run in the connection's thread: they must not
            block, nor call anything here.

    It raises what `onceway.connect` raises.
    """
    return Connection(lambda: onceway.connect(urls, **options))


class _Thread:
    """A thread with an event loop, and a way to wait for what runs there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="onceway", daemon=True)
        self._thread.start()
        self._lock = waits.MUTEX(threading.Lock())  # over the next, so that no call comes after the loop's end
        self._stopped = False

    def run(self, start: Callable[[], Awaitable[T]], timeout_s: float | None = None) -> T:
        """Awaits in the event loop what `start` returns there.  TimeoutError: it was cancelled after the timeout."""

        async def bounded() -> T:
            async with waits.CALL(asyncio.timeout(timeout_s)):
                return await start()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise onceway.UsageError("onceway.sync blocks this event loop; use onceway.connect in asyncio code")
        with self._lock:
            if self._stopped:
                raise onceway.ConnectionClosed("the connection is closed")
            future: Future[T] = asyncio.run_coroutine_threadsafe(bounded(), self._loop)
        try:
            return waits.CALL(future.result)()
        except CancelledError:
            raise onceway.ConnectionClosed("the connection was closed meanwhile") from None
        except BaseException:
            future.cancel()  # of no effect unless this thread was interrupted
            raise

    def stop(self) -> None:
        """Ends the thread.  Calls of other threads that are under way get their answers first."""

        async def end_calls() -> None:
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            if calls:
                _, left = await asyncio.wait(calls, timeout=waits.CALLS_END.s)
                for call in left:
                    call.cancel()
                if left:
                    await waits.OWN_WORK(asyncio.wait(left))

        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        waits.CALLS_END(asyncio.run_coroutine_threadsafe(end_calls(), self._loop)).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        waits.OWN_WORK(self._thread).join()
        self._loop.close()


class Connection:
    """One client's connection to the network; `connect` makes it.  Use it as a context manager."""

    def __init__(self, make: Callable[[], onceway.Connection]) -> None:
        self._thread = _Thread()
        self._closing = waits.CLOSING(threading.Lock())
        try:
            self._connection = self._thread.run(make)
        except BaseException:
            self._thread.stop()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(lambda: self._connection.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._connection)

    def publisher(self, address: str, **options: Any) -> Publisher:
        """Opens a publisher.  Arguments and errors are those of `onceway.Connection.publisher`."""
        publisher = self._thread.run(lambda: self._connection.publisher(address, **options))
        return Publisher(self._thread, publisher)

    def subscriber(self, address: str, **options: Any) -> Subscriber:
        """Opens a subscriber.  Arguments and errors are those of `onceway.Connection.subscriber`."""
        subscriber = self._thread.run(lambda: self._connection.subscriber(address, **options))
        return Subscriber(self._thread, subscriber)

    def close(self, *, timeout_s: float | None = None) -> None:
        """As `onceway.Connection.close`."""
        self._close(lambda: self._connection.close(timeout_s=timeout_s))

    def _close(self, close: Callable[[], Awaitable[object]]) -> None:
        with self._closing:
            try:
                self._thread.run(close)
            except onceway.ConnectionClosed:
                pass  # by an earlier call
            finally:
                self._thread.stop()


class _Waiting:
    """What runs in the connection's thread."""

    def __init__(self, thread: _Thread, wrapped: Any) -> None:
        self._thread = thread
        self._wrapped = wrapped

    def __repr__(self) -> str:
        return repr(self._wrapped)


class Publisher(_Waiting):
    """Publishes messages to one address; `Connection.publisher` makes it."""

    _wrapped: onceway.Publisher

    def send(self, body: onceway.Body, *, timeout_s: float | None = None) -> None:
        """Publishes a message; returns when every subscriber has accepted it.

        A `send` that has timed out or was interrupted does not take the message back: see `onceway.Publisher.send`.
        The `SendTimeout` has the asyncio publication; here `put` gives one that can be waited for.
        """
        self._thread.run(lambda: self._wrapped.send(body, timeout_s=timeout_s))

    def put(self, body: onceway.Body, *, timeout_s: float | None = None) -> Publication:
        """Publishes a message; waits only for credit.  TimeoutError: it was not published."""
        return Publication(self._thread, self._thread.run(lambda: self._wrapped.put(body), timeout_s))

    def send_many(self, bodies: Iterable[onceway.Body], *, timeout_s: float | None = None) -> None:
        """Publishes all of them, in order; returns when every subscriber has accepted all.

        TimeoutError: the first of them are published and stay so; `sequence` says how far it got.
        """

        async def put_and_wait() -> None:
            await (await self._wrapped.put_many(bodies))

        self._thread.run(put_and_wait, timeout_s)

    @property
    def sequence(self) -> int:
        """The number of the next message."""
        return self._wrapped.sequence

    @property
    def waiting(self) -> onceway.PublisherWaiting | None:
        """Why it gets no credit, where that has been so for some seconds and the router has said why; else None."""
        return self._wrapped.waiting

    def drain(self, *, timeout_s: float | None = None) -> None:
        """Waits until everything published so far has its outcome.  TimeoutError: call it again."""
        self._thread.run(self._wrapped.drain, timeout_s)

    def close(self, *, timeout_s: float | None = None) -> None:
        """As `onceway.Publisher.close`."""
        self._thread.run(lambda: self._wrapped.close(timeout_s=timeout_s))


class Publication(_Waiting):
    """One message under way."""

    _wrapped: onceway.Publication

    @property
    def done(self) -> bool:
        """It has its outcome, or will never have one."""
        return self._wrapped.done

    def wait(self, timeout_s: float | None = None) -> None:
        """Returns when every subscriber has accepted it; raises as awaiting does.  TimeoutError: call it again."""
        self._thread.run(lambda: self._wrapped, timeout_s)


class _Decidable(_Waiting):
    """An outcome is in the journal when the call returns."""

    def accept(self) -> None:
        """As `onceway.Delivery.accept`."""
        self._thread.run(self._wrapped.accept)

    def reject(self, *arguments: str, **named: str) -> None:
        """As `onceway.Delivery.reject`."""
        self._thread.run(lambda: self._wrapped.reject(*arguments, **named))

    def release(self) -> None:
        """As `onceway.Delivery.release`."""
        self._thread.run(self._wrapped.release)


class Delivery(_Decidable):
    """One message that a subscriber has received."""

    _wrapped: onceway.Delivery

    @property
    def body(self) -> Any:
        """As `onceway.Delivery.body`."""
        return self._wrapped.body

    @property
    def message(self) -> onceway.Message:
        """The message with all its sections."""
        return self._wrapped.message

    @property
    def raw(self) -> str | None:
        """As `onceway.Delivery.raw`."""
        return self._wrapped.raw

    def process(self) -> AbstractContextManager[None]:
        """As `onceway.Delivery.process`, in this thread."""
        return self._wrapped.process()

    @property
    def publisher(self) -> tuple[str, str] | None:
        """(container-id, link name) of its publisher."""
        return self._wrapped.publisher


class Batch(_Decidable):
    """A run of deliveries; `accept` accepts all of it."""

    _wrapped: onceway.Batch

    def __len__(self) -> int:
        return len(self._wrapped)

    def __iter__(self) -> Iterator[Delivery]:
        return (Delivery(self._thread, delivery) for delivery in self._wrapped)

    @property
    def bodies(self) -> list[Any]:
        """The body of each."""
        return self._wrapped.bodies

    def process(self) -> AbstractContextManager[None]:
        """As `onceway.Batch.process`, in this thread."""
        return self._wrapped.process()


class Transaction:
    """One commit of the application; `Subscriber.transaction` makes it."""

    def __init__(self, wrapped: onceway.Transaction) -> None:
        self._wrapped = wrapped

    def accept(self, received: Delivery | Batch) -> None:
        """As `onceway.Transaction.accept`."""
        self._wrapped.accept(received._wrapped)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, *exc: Any) -> None:
        self._wrapped.__exit__(*exc)


class Subscriber(_Waiting):
    """Receives the messages of one address; `Connection.subscriber` makes it."""

    _wrapped: onceway.Subscriber

    def __iter__(self) -> Iterator[Delivery]:
        """Deliveries, each publisher's in order; ends when the subscriber or its connection is closed."""
        while True:
            try:
                yield self.receive()
            except onceway.ConnectionClosed:
                return

    def receive(self, *, timeout_s: float | None = None) -> Delivery:
        """The next delivery; raises as `onceway.Subscriber.receive` does.  TimeoutError: none came, nothing is lost."""
        return Delivery(self._thread, self._thread.run(self._wrapped.receive, timeout_s))

    def batches(self, **options: Any) -> Iterator[Batch]:
        """What has arrived, in batches.  Arguments are those of `onceway.Subscriber.batches`."""
        batches = self._wrapped.batches(**options)
        while True:
            try:
                yield Batch(self._thread, self._thread.run(batches.__anext__))
            except (StopAsyncIteration, onceway.ConnectionClosed):
                return

    def transaction(self, connection: Any) -> Transaction:
        """As `onceway.Subscriber.transaction`."""
        return Transaction(self._wrapped.transaction(connection))

    def detach(self) -> None:
        """As `onceway.Subscriber.detach`."""
        self._thread.run(self._wrapped.detach)

    def close(self) -> None:
        """As `onceway.Subscriber.close`."""
        self._thread.run(self._wrapped.close)
