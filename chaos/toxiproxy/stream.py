"""One direction of one proxied connection: source -> stage -> stage -> sink, a task each, with bounded room between.

A stage is a toxic at work on this stream.  It can be interrupted anywhere it waits: the chunk in its hand is passed on
at once, unless the toxic had dropped it, so that removing a toxic loses no byte (removing `timeout`, which
has lost some, ends the stream).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from chaos.toxiproxy.toxics import Toxic

READ_SIZE: Final = 32 * 1024


@dataclass(slots=True)
class Chunk:
    data: bytes
    read_at: float


class Channel:
    """Chunks on their way from one to the next; at its end nothing more is put in."""

    __slots__ = ("_waiters", "capacity", "chunks", "ended")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.chunks: deque[Chunk] = deque()
        self.ended = False
        self._waiters: list[asyncio.Future[None]] = []

    def push(self, chunk: Chunk) -> None:
        if not self.ended:
            self.chunks.append(chunk)
            self.changed()

    def pop(self) -> Chunk:
        chunk = self.chunks.popleft()
        self.changed()
        return chunk

    def end(self) -> None:
        self.ended = True
        self.changed()

    def changed(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def change(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter


class Outlet:
    """Something that puts chunks into a channel, which may be exchanged for another while it waits for room."""

    __slots__ = ("output",)

    def __init__(self, output: Channel) -> None:
        self.output = output

    async def room(self) -> None:
        while len((output := self.output).chunks) >= output.capacity and not output.ended:
            await output.change()

    def redirect(self, output: Channel) -> None:
        former, self.output = self.output, output
        former.changed()


class Stage(Outlet):
    """A toxic's place in one stream: its inbox, what it has in hand, and what it remembers of the connection."""

    __slots__ = ("_held", "_task", "acts", "has_begun", "inbox", "rng", "toxic", "transmitted")

    def __init__(self, toxic: Toxic, output: Channel, rng: random.Random) -> None:
        super().__init__(output)
        self.toxic = toxic
        self.inbox = Channel(toxic.attributes.capacity)
        self.rng = rng
        self.acts = False  # whether this connection is of the share that the toxic acts on
        self.transmitted = 0
        self.has_begun = False  # it has taken a chunk, or the end
        self._held: Chunk | None = None
        self._task: asyncio.Task[None] | None = None

    async def take(self) -> Chunk | None:
        """The next chunk, now in hand; None at the end of the stream."""
        while not self.inbox.chunks:
            if self.inbox.ended:
                self.has_begun = True
                return None
            await self.inbox.change()
        self.has_begun = True
        self._held = self.inbox.pop()
        return self._held

    async def emit(self, chunk: Chunk) -> None:
        await self.room()
        self._held = None
        self.output.push(chunk)

    async def emit_part(self, size: int) -> None:
        """The first bytes of the chunk in hand, whose data becomes the rest."""
        await self.room()
        chunk = self._held
        assert chunk is not None
        self.output.push(Chunk(chunk.data[:size], chunk.read_at))
        chunk.data = chunk.data[size:]
        if not chunk.data:
            self._held = None

    def drop(self) -> None:
        self._held = None

    def end(self) -> None:
        self.output.end()

    def run(self) -> None:
        if self.output.ended:
            return
        self.acts = self.rng.random() < self.toxic.toxicity
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        if self.acts:
            await self.toxic.attributes.pipe(self)
            return
        while (chunk := await self.take()) is not None:
            await self.emit(chunk)
        self.end()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def leave(self, before: Outlet) -> None:
        """Leaves the chain: what it has is passed on, and the stage before writes to where this one wrote."""
        ends = self.acts and self.toxic.attributes.ends_stream(self)
        self.cancel()
        if self._held is not None:
            self.output.push(self._held)
            self._held = None
        for chunk in self.inbox.chunks:
            self.output.push(chunk)
        self.inbox.chunks.clear()
        before.redirect(self.output)
        if ends or self.inbox.ended:
            self.output.end()


class Stream:
    """From `reader` to `writer` through a stage for each toxic; calls `ended` once nothing more will be written."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        toxics: Iterable[Toxic],
        rng: random.Random,
        ended: Callable[[], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._rng = rng
        self._ended = ended
        self._exit = Channel(1)
        self._source = Outlet(self._exit)
        self.stages: list[Stage] = []
        for toxic in toxics:
            self.add(toxic)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._write())]

    def add(self, toxic: Toxic) -> None:
        """At the end of the chain, as every new toxic."""
        last = self.stages[-1] if self.stages else self._source
        stage = Stage(toxic, self._exit, self._rng)
        if self._exit.ended:
            stage.inbox.end()
        last.redirect(stage.inbox)
        self.stages.append(stage)
        stage.run()

    def remove(self, toxic: Toxic) -> None:
        for i, stage in enumerate(self.stages):
            if stage.toxic is toxic:
                del self.stages[i]
                stage.leave(self.stages[i - 1] if i else self._source)
                return

    @property
    def resets(self) -> bool:
        return any(stage.acts and stage.toxic.attributes.resets for stage in self.stages)

    def cancel(self) -> None:
        for stage in self.stages:
            stage.cancel()
        for task in self._tasks:
            task.cancel()

    async def _read(self) -> None:
        source = self._source
        try:
            while data := await self._reader.read(READ_SIZE):
                chunk = Chunk(data, time.monotonic())
                await source.room()
                source.output.push(chunk)
        except OSError:  # reset by the peer, or aborted by us: the end, either way
            pass
        source.output.end()

    async def _write(self) -> None:
        channel = self._exit
        try:
            while channel.chunks or not channel.ended:
                if channel.chunks:
                    self._writer.write(channel.pop().data)
                    await self._writer.drain()
                else:
                    await channel.change()
        except OSError:
            pass
        self._ended()
