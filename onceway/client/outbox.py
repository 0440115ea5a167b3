"""An outbox: messages that an application hands over in its own transactions, and that are sent once each, in order.

The application, in any process:

    onceway.put_in_outbox(database, "shop", "orders", body)  # committed with everything else, or not at all

The program that sends them, one at a time:

    async with onceway.connect(url, container="shop", journal=onceway.DatabaseJournal(connect)) as connection:
        async with connection.outbox("orders") as outbox:
            await outbox.run()

They are rows of the journal's table (`onceway.client.database_journal`), so a message is a row until it is settled.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from onceway.base import waits
from onceway.client.bodies import Body, encode_body
from onceway.client.database_journal import Database, PublisherPart, name_of
from onceway.client.signals import Changes
from onceway.client.tracing import Tracing, tracing_of

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from onceway.client.connection import Connection
    from onceway.client.publisher import Publisher

MOST: Final = 1000  # rows that are read at once


def put_in_outbox(
    connection: Any,
    container: str,
    address: str,
    body: Body,
    *,
    name: str | None = None,
    tracing: TracerProvider | bool = True,
) -> None:
    """Hands a message over, in the transaction that the connection is in; it is sent once that is committed.

    Args:
        connection: Of sqlite3, psycopg or SQLAlchemy, to the database that has the table.
        container: Of the program that sends it.
        address: The topic or queue.
        body: bytes, str, or a `Message`.
        name: As of that program's `Connection.outbox`.
        tracing: Who makes the span `create`, as of `connect`.

    Raises:
        UsageError: The body has no AMQP type; or the connection commits each statement by itself.
    """
    _put(connection, name_of("publisher", container, address, name or address), address, body, tracing_of(tracing))


def _put(connection: Any, link: str, address: str, body: Body, tracing: Tracing | None) -> None:
    database = Database(connection)
    database.check()
    # The row has the context of who hands it over: whoever sends it, and however often, sends these octets.
    payload = encode_body(body) if tracing is None else tracing.create(address, body)
    database.run("INSERT INTO onceway (link, body) VALUES (?, ?)", (link, payload))


class Outbox:
    """Sends what is handed over to it: `async with connection.outbox(address) as outbox`.

    Args:
        connection: Open, with a `DatabaseJournal`.
        address: The topic or queue.
        name: The publisher's link name.
        poll_s: How often it looks for what other processes have handed over, in seconds.
    """

    def __init__(self, connection: Connection, address: str, name: str, poll_s: float) -> None:
        self.address = address
        self.name = name
        self.publisher: Publisher
        self._connection = connection
        self._poll_s = poll_s
        self._look = 0  # number of the look that has begun last
        self._empty = 0  # of the last one that has found nothing which is not under way
        self._changes = Changes()
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None]

    def put(self, connection: Any, body: Body) -> None:
        """As `put_in_outbox`; and it is looked for at once when this turn of the loop is over."""
        link = name_of("publisher", self._connection.container, self.address, self.name)
        _put(connection, link, self.address, body, self._connection._driver.tracing)
        self._awake.set()

    async def flush(self) -> None:
        """Returns when everything that was committed before has its outcome.

        Raises:
            LinkStolen, ConnectionClosed, JournalError: It cannot go on.
        """
        begun = self._look
        self._awake.set()
        await waits.OUTCOME(self._changes).until(lambda: self._empty > begun or self._task.done())
        if self._task.done():
            await self._task
        await self.publisher.drain()

    async def run(self) -> None:
        """Never returns.

        Raises:
            LinkStolen, ConnectionClosed, JournalError: It cannot go on.
        """
        await waits.STOP(asyncio.shield(self._task))

    async def __aenter__(self) -> Self:
        self.publisher = await self._connection.publisher(self.address, name=self.name, on_undecided=lambda _: None)
        self._task = asyncio.create_task(self._send(self.publisher), name=f"outbox {self.name}")
        self._task.add_done_callback(lambda _: self._changes.notify())
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _send(self, publisher: Publisher) -> None:
        part = publisher._link._part
        assert isinstance(part, PublisherPart)
        while True:
            self._awake.clear()
            self._look += 1
            rows = await waits.DISK(asyncio.to_thread(part.fetch, MOST))
            largest = publisher.max_message_bytes
            fits = []
            for row, payload in rows:
                part.taken.add(row)
                if largest is not None and len(payload) > largest:
                    part.leave(row, f"{len(payload)} bytes exceed what the router takes, {largest}")
                else:
                    fits.append((row, payload))
            part.handed += [row for row, _ in fits]
            await publisher.put_payloads([payload for _, payload in fits])
            if rows:
                continue
            self._empty = self._look
            self._changes.notify()
            with suppress(TimeoutError):
                async with waits.PAUSE(asyncio.timeout(self._poll_s)):
                    await self._awake.wait()
