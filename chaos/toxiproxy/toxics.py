"""What a stage of a stream may do to the bytes that pass: one class for each toxic type, named and defaulted as in the
API.  A toxic takes chunks from its stage and emits them; where it may be interrupted (toxic removed) nothing
but its awaits matters: the chunk in hand stays the stage's and is passed on.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from chaos.toxiproxy.stream import Stage

SLICE_S: Final = 0.1  # bandwidth lets bytes through in portions of this long


@dataclass(slots=True)
class Attributes:
    """Base of all."""

    capacity: ClassVar[int] = 1  # chunks that may wait before it
    resets: ClassVar[bool] = False  # its connections end with RST

    async def pipe(self, stage: Stage) -> None:
        """Runs until the stream ends, or the stage is interrupted."""
        raise NotImplementedError

    def ends_stream(self, stage: Stage) -> bool:
        """Whether taking the toxic away ends the connections that went through it."""
        return False


@dataclass(slots=True)
class Latency(Attributes):
    """Delays each chunk by `latency` +/- `jitter` milliseconds, counted from when it was read."""

    latency: int = 0
    jitter: int = 0
    capacity = 1024

    async def pipe(self, stage: Stage) -> None:
        while (chunk := await stage.take()) is not None:
            delay = float(self.latency)
            if self.jitter > 0:
                delay += stage.rng.randrange(2 * self.jitter) - self.jitter
            wait = delay / 1000 - (time.monotonic() - chunk.read_at)
            if wait > 0:
                await asyncio.sleep(wait)
                chunk.read_at += wait
            await stage.emit(chunk)
        stage.end()


@dataclass(slots=True)
class Bandwidth(Attributes):
    """Lets `rate` KB through in a second, in portions of 100 ms; nothing at rate 0."""

    rate: int = 0

    async def pipe(self, stage: Stage) -> None:
        owed = 0.0  # seconds
        portion = self.rate * 100
        while (chunk := await stage.take()) is not None:
            if self.rate <= 0:
                await asyncio.Event().wait()  # until the toxic is taken away
            owed += len(chunk.data) / (self.rate * 1000)
            while len(chunk.data) > portion:
                await asyncio.sleep(SLICE_S)
                await stage.emit_part(portion)
                owed -= SLICE_S
            began = time.monotonic()
            await asyncio.sleep(max(0.0, owed))
            owed -= time.monotonic() - began
            await stage.emit(chunk)
        stage.end()


@dataclass(slots=True)
class SlowClose(Attributes):
    """Passes the end of the stream on only after `delay` milliseconds."""

    delay: int = 0

    async def pipe(self, stage: Stage) -> None:
        while (chunk := await stage.take()) is not None:
            await stage.emit(chunk)
        await asyncio.sleep(self.delay / 1000)
        stage.end()


@dataclass(slots=True)
class Timeout(Attributes):
    """Drops everything; ends the stream when nothing has come for `timeout` milliseconds, unless that is 0."""

    timeout: int = 0

    async def pipe(self, stage: Stage) -> None:
        try:
            while True:
                async with asyncio.timeout(self.timeout / 1000 if self.timeout > 0 else None):
                    if await stage.take() is None:
                        break
                stage.drop()
        except TimeoutError:
            pass
        stage.end()

    def ends_stream(self, stage: Stage) -> bool:
        return True  # bytes are missing from it


@dataclass(slots=True)
class ResetPeer(Attributes):
    """Resets the connection `timeout` milliseconds after the next bytes, which are lost."""

    timeout: int = 0
    resets = True

    async def pipe(self, stage: Stage) -> None:
        await stage.take()
        await asyncio.sleep(self.timeout / 1000)
        stage.drop()
        stage.end()

    def ends_stream(self, stage: Stage) -> bool:
        return stage.has_begun  # the clock is running


@dataclass(slots=True)
class Slicer(Attributes):
    """Cuts chunks into slices of about `average_size` +/- `size_variation` bytes, `delay` microseconds apart."""

    average_size: int = 0
    size_variation: int = 0
    delay: int = 0

    async def pipe(self, stage: Stage) -> None:
        while (chunk := await stage.take()) is not None:
            for size in self.sizes(len(chunk.data), stage.rng):
                await stage.emit_part(size)
                await asyncio.sleep(self.delay / 1_000_000)
        stage.end()

    def sizes(self, length: int, rng: random.Random) -> list[int]:
        """Cuts in the middle, more or less, until the pieces are small enough: no piece is favoured by its place."""
        variation = max(0, self.size_variation)
        if length <= 1 or length - self.average_size <= variation:
            return [length]
        cut = length // 2
        if variation:
            cut += rng.randrange(2 * variation) - variation
        cut = min(max(cut, 1), length - 1)
        return self.sizes(cut, rng) + self.sizes(length - cut, rng)


@dataclass(slots=True)
class LimitData(Attributes):
    """Ends the stream after `bytes` bytes, counted for each connection."""

    bytes: int = 0

    async def pipe(self, stage: Stage) -> None:
        while (chunk := await stage.take()) is not None:
            left = max(0, self.bytes - stage.transmitted)
            chunk.data = chunk.data[:left]
            if chunk.data:
                stage.transmitted += len(chunk.data)
                await stage.emit(chunk)
            if stage.transmitted >= self.bytes:
                break
        stage.drop()
        stage.end()


TYPES: Final[dict[str, type[Attributes]]] = {
    "latency": Latency,
    "bandwidth": Bandwidth,
    "slow_close": SlowClose,
    "timeout": Timeout,
    "reset_peer": ResetPeer,
    "slicer": Slicer,
    "limit_data": LimitData,
}


@dataclass(slots=True)
class Toxic:
    """A toxic of a proxy.  `toxicity` is the share of connections that it acts on."""

    name: str
    type: str
    stream: str  # upstream or downstream
    toxicity: float
    attributes: Attributes
