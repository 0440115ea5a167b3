"""A client of a metadata edge, for asyncio."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from uuid import UUID

import msgpack

from amqp10.types import Raw
from edges.metadata.wire import DIFF, ERROR, PUBLISH, QUERY, Changes, Values, fields_of
from onceway.base import waits
from onceway.client.bodies import why_raw
from onceway.client.driver import why_failed
from onceway.errors import OncewayError
from router.links.predicate import Value

PORT: Final = 4444
MOST_DEPTH: Final = 64
NONSENSE: Final = ")"  # no predicate
_READ_BYTES: Final = 64 << 10


class MetadataError(OncewayError):
    """What the edge answers to something that it cannot take, or the end of the connection.

    Attributes:
        line, column: Where in the predicate, if it is about that, counted from 1.
    """

    def __init__(self, text: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(text)
        self.line = line
        self.column = column


class Change(NamedTuple):
    """Publishers that match the predicate from now on, and publishers that do not any more."""

    new: list[str]
    gone: list[str]


class Message(NamedTuple):
    """What a publisher has published.

    Attributes:
        metadata: What of its metadata has changed with this message; None: the key was deleted.
        value: Its bytes, as a `Raw`, where Python has no form for it.
    """

    uuid: str
    metadata: Changes
    value: Any

    @property
    def raw(self) -> str | None:
        """Why the value is its bytes as they came; None where it was decoded."""
        return why_raw(self.value)


def read_value(raw: bytes) -> Any:
    """One value of MessagePack, which some publisher has made; a `Raw` where Python has no form for it: a map whose
    keys are lists, text that is no UTF-8, a time out of range, or one that is nested deeper than MOST_DEPTH."""
    try:
        value = msgpack.unpackb(raw, strict_map_key=False)
    except (ValueError, TypeError, OverflowError) as error:
        return Raw(raw, f"not a value that Python has: {error}")
    return Raw(raw, f"nested more than {MOST_DEPTH} deep") if _is_deep(value) else value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MOST_DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        if not inner:
            return False
        level = inner
    return True


KEEPALIVE_S: Final = 30


def keep_alive(connected: socket.socket) -> None:
    """Has TCP notice that the other host has vanished: after two minutes, as nothing else says so."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S // 3)


class Client:
    """One connection to an edge: `async with Client("127.0.0.1:4444") as client`. tls: of `onceway.tls_context`.

    Publishers are there as long as the connection is. A client that comes again, to this edge or another one, tells all
    metadata of its publishers again.

    Example:
        ```python
        async with Client("127.0.0.1:4444") as client:
            await client.publish(uuid4(), 21.5, {"Room": "410"})
            async for event in client.watch('Room = "410"'):
                print(event)
        ```
    """

    def __init__(self, server: str = f"127.0.0.1:{PORT}", tls: ssl.SSLContext | None = None) -> None:
        host, _, port = server.rpartition(":")
        if not port.isdigit():
            host, port = server, str(PORT)
        self._host = host.strip("[]")
        self._port = int(port)
        self._tls = tls
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(waits.METADATA_CONNECT.s):
                self._streams = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
        except TimeoutError:
            text = f"no metadata edge at {self._host}:{self._port}: no answer within {waits.METADATA_CONNECT.s:g} s"
            raise MetadataError(text) from None
        except OSError as error:
            raise MetadataError(f"no metadata edge at {self._host}:{self._port}: {why_failed(error)}") from error
        keep_alive(self._streams[1].get_extra_info("socket"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._streams is not None
        self._streams[1].close()

    async def publish(self, uuid: UUID | str, value: Any = None, metadata: Mapping[str, Value | None] = {}) -> None:
        """Publishes a value, and what of the publisher's metadata has changed; None deletes a key.

        It waits while the edge does not read. Nobody answers: what an edge had not passed on when it died is lost.

        Raises:
            MetadataError: The connection has ended.
        """
        await self._write(PUBLISH, {"UUID": str(uuid), "Metadata": dict(metadata), "Value": value})

    async def flush(self) -> None:
        """Returns when the edge has taken all that was published. Not while it is watched.

        Raises:
            MetadataError: The edge has refused it, or the connection has ended.
        """
        try:
            async for _ in self.watch(NONSENSE):
                raise AssertionError
        except MetadataError as error:
            if error.line is None:  # else it is what the edge says of this predicate, behind all else
                raise

    async def watch(self, predicate: str) -> AsyncIterator[Change | Message]:
        """First a `Change` with the publishers that match now, then messages and changes. One at a time for a client.

        Raises:
            MetadataError: The predicate cannot be read, or the connection has ended.
        """
        await self._write(QUERY, {"Query": predicate})
        assert self._streams is not None
        reader, _ = self._streams
        values = Values()
        kind: int | None = None
        heard = self._tls is not None
        while data := await self._read(reader):
            heard = True
            for raw in values.feed(data):
                if kind is None:
                    kind = raw[0]
                    continue
                fields = fields_of(raw)
                item = {name: read_value(value) for name, value in fields.items()}
                if kind == DIFF:
                    yield Change(item["New"], item["Del"])
                elif kind == PUBLISH:
                    yield Message(item["UUID"], item["Metadata"], item["Value"])
                elif kind == ERROR:
                    raise MetadataError(item["Error"], item.get("Line"), item.get("Column"))
                kind = None
        hint = "" if heard else " without a word: for a port with TLS give --ca or --with-tls (`tls`)"
        raise MetadataError(f"the edge at {self._host}:{self._port} has closed the connection{hint}")

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await waits.METADATA(reader.read(_READ_BYTES))
        except OSError as error:
            raise MetadataError(
                f"the connection to {self._host}:{self._port} has ended: {why_failed(error)}"
            ) from error

    async def _write(self, kind: int, fields: dict[str, Any]) -> None:
        assert self._streams is not None, "use it with `async with`"
        _, writer = self._streams
        writer.write(bytes([kind]) + msgpack.packb(fields))
        try:
            await waits.METADATA(writer.drain())
        except OSError as error:
            raise MetadataError(
                f"the connection to {self._host}:{self._port} has ended: {why_failed(error)}"
            ) from error
