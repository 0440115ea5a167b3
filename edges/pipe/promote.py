"""Makes a replica the primary: fences the others that can be reached, has the replica read what they have, promotes it.

Readers of docs/pipe.md find there what is promised when some cannot be reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from amqp10.connection import Connection
from amqp10.events import ConnectionClosed, Dispositions, LinkDetached, LinkFlow
from amqp10.outcomes import Accepted, Rejected
from amqp10.sasl import Anonymous
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from edges.pipe.messages import COMMANDS
from edges.pipe.reader import Reader
from onceway.client.bodies import encode_body
from onceway.client.clock import now_s
from onceway.client.signals import Changes
from onceway.client.transport import Wire
from onceway.client.urls import RouterUrl, parse_urls
from onceway.errors import ConnectionFailed, OncewayError

ANSWER_S = 10.0
PROMOTE_S = 120.0  # it may have to read the whole pipe from another store


async def promote(topic: str, store: str, places: Mapping[str, str], say: Callable[[str], None]) -> int:
    """Promotes `store`; returns the new epoch.

    Args:
        topic: The pipe.
        store: The name of the store that becomes the primary.
        places: URLs of all stores, by name.
        say: Told what happens, in lines.

    Raises:
        ConnectionFailed: The store cannot be reached.
        OncewayError: It refuses.
    """
    epoch, _ = await _state(topic, places[store])
    others: list[str] = []
    for name in sorted(set(places) - {store}):
        try:
            known, _ = await _state(topic, places[name])
        except ConnectionFailed as error:
            say(f"[{name}] not reached: {error}")
            continue
        epoch = max(epoch, known)
        others.append(name)
    epoch += 1
    end = 0
    for name in others:
        await _command(places[name], f"fence {epoch} {topic}", ANSWER_S)
        end = max(end, (await _state(topic, places[name]))[1])
        say(f"[{name}] takes nothing of an epoch before {epoch}")
    await _command(places[store], f"promote {epoch} {end} {topic}", PROMOTE_S)
    say(f"[{store}] primary of {topic}, epoch {epoch}")
    return epoch


async def _state(topic: str, url: str) -> tuple[int, int]:
    """(fence, end of the pipe) of a store."""
    async with Reader(topic, stores=url, start="end", timeout_s=ANSWER_S) as reader:
        return reader.fence, reader.end


async def _command(url: str, text: str, timeout_s: float) -> None:
    (place,) = parse_urls(url)
    sending = _Sending(place, text)
    try:
        async with asyncio.timeout(timeout_s):
            await sending.run()
    except TimeoutError:
        raise ConnectionFailed(f"{url} did not answer within {timeout_s:g} s", {url: "no answer"}) from None
    except OSError as error:
        raise ConnectionFailed(f"{url}: {error.strerror or error}", {url: str(error)}) from error
    finally:
        sending.close()


class _Sending:
    """One message to one store, on a connection of its own."""

    def __init__(self, place: RouterUrl, text: str) -> None:
        self._place = place
        self._payload = encode_body(text)
        self._answer: str | None = None  # "" once it is accepted
        self._changes = Changes()
        self._wire = Wire(self)
        settings = ConnectionSettings(container_id="onceway-pipe-promote", hostname=place.host, sasl=Anonymous())
        self._connection = Connection(settings, server=False, now=now_s())

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self._wire, self._place.host, self._place.port)
        self._connection.open()
        link = self._connection.begin().sender("promote")
        link.attach(source=Source(), target=Target(address=COMMANDS))
        self._write()
        await self._changes.until(lambda: self._answer is not None)
        if self._answer:
            raise OncewayError(f"{self._place}: {self._answer}")

    def close(self) -> None:
        self._connection.close()
        self._write()
        self._wire.close()

    def _write(self) -> None:
        self._wire.write(self._connection.data_to_send())

    def wire_received(self, wire: Wire, data: bytes) -> None:
        for event in self._connection.receive_data(data, now_s()):
            if isinstance(event, LinkFlow) and isinstance(event.link, SenderLink) and self._payload:
                if event.link.capacity():
                    event.link.send([b"1"], [self._payload])
                    self._payload = b""
            elif isinstance(event, Dispositions):
                if isinstance(event.state, Accepted):
                    self._answer = ""
                elif isinstance(event.state, Rejected):
                    error = event.state.error
                    self._answer = "refused" if error is None else error.description or error.condition
            elif isinstance(event, LinkDetached | ConnectionClosed) and self._answer is None:
                self._answer = "the connection was closed" if event.error is None else str(event.error.description)
        self._write()
        self._changes.notify()

    def wire_ended(self, wire: Wire) -> None:
        self.wire_lost(wire, None)

    def wire_lost(self, wire: Wire, error: Exception | None) -> None:
        if self._answer is None:
            self._answer = "the connection was lost"
        self._changes.notify()
