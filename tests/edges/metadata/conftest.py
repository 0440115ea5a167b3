"""Edges in this process, routers in theirs, and clients that know the contract only."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

import msgpack

from edges.metadata.serve import Edge
from tests.edges.conftest import BOUND_S
from tests.edges.metadata import messagepack
from tests.live import LiveNetwork


@asynccontextmanager
async def edge(
    network: LiveNetwork, name: str, router: str | None = None, *, url: str | None = None, **options: Any
) -> AsyncIterator[Edge]:
    """An edge at one router, or at all."""
    urls = network.urls() if router is None else network.routers[router].url
    served = Edge(url or urls, options.pop("address", "metadata"), name, port=0, **options)
    try:
        await served.start()
        yield served
    finally:
        await served.stop()


class Raw:
    """A client of one dialect, on one of two MessagePack libraries."""

    def __init__(self, port: int, dialect: str, library: str) -> None:
        self.dialect = dialect
        self._port = port
        self._pack: Callable[[Any], bytes] = msgpack.packb if library == "msgpack" else messagepack.pack
        self._library = library
        self._data = b""
        self._unpacker = msgpack.Unpacker()

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    def publish(self, uuid: str, metadata: dict[str, Any], value: Any) -> None:
        if self.dialect == "a":
            self.writer.write(self._pack([uuid, metadata, value]))
        else:
            self.writer.write(b"\x00" + self._pack({"UUID": uuid, "Metadata": metadata, "Value": value}))

    def subscribe(self, predicate: str) -> None:
        if self.dialect == "a":
            self.writer.write(self._pack(predicate))
        else:
            self.writer.write(b"\x01" + self._pack({"UUID": "me", "Query": predicate}))

    async def receive(self) -> tuple[Any, ...]:
        """("diff", new, gone), ("message", uuid, metadata, value), or ("error", text, line, column)."""
        found = await self._value()
        if self.dialect == "b":
            kind, found = found, await self._value()
            assert kind == (3 if "Error" in found else 2 if "New" in found else 0)
            if kind == 0:
                found = [found["UUID"], found["Metadata"], found["Value"]]
        if isinstance(found, list):
            return ("message", *found)
        if "Error" in found:
            return ("error", found["Error"], found.get("Line"), found.get("Column"))
        return ("diff", set(found["New"]), set(found["Del"]))

    async def closed(self) -> bool:
        """Whether the edge has closed the connection, when it has said all."""
        return await asyncio.wait_for(self.reader.read(), BOUND_S) == b""

    async def _value(self) -> Any:
        while True:
            try:
                if self._library == "msgpack":
                    return self._unpacker.unpack()
                value, at = messagepack.unpack(self._data)
                self._data = self._data[at:]
                return value
            except (msgpack.OutOfData, IndexError, struct.error):
                data = await asyncio.wait_for(self.reader.read(65536), BOUND_S)
                assert data, "the edge has closed the connection"
                if self._library == "msgpack":
                    self._unpacker.feed(data)
                else:
                    self._data += data
