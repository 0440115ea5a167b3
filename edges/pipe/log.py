"""One pipe in one store: its records, what is known about it, and chunks of it for readers.

Positions are the pipe's and the same at every store. A store that has joined later begins at a later one, so a position
is that of the store's stream plus `base`. `visible` is the position before which readers may read. A reset moves
`start`; the records before it are removed when the last link that reads them has gone, so a reader that has begun with
the old content sees it to its end. What retention drops is removed whether or not somebody reads it.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

from edges.pipe.messages import (
    CONTROL_BYTE,
    Entry,
    Epochs,
    decode_remembered,
    encode_remembered,
    epoch_of,
    read_control,
)
from edges.store import Batch, Retention, Store, StoreFull
from onceway.base.logs import Log
from onceway.client.signals import Changes
from router.json_text import write_json

CHUNK: Final = 512  # records: what several readers share
CHUNK_OCTETS: Final = 16 << 20
CACHED: Final = 64  # chunks
REMEMBERED: Final = 100_000  # deliveries that are recognised when they come again: ten publishers' windows
REPLICATED_BEHIND: Final = 1000  # records that a primary that starts again may publish once more
FULL_RETRY_S: Final = 1.0
TRIM_STEP: Final = 8000  # records removed in a commit, so that no other one waits long for it: 8 MiB are about 10 ms
SLACK: Final = 1 / 50  # of what retention keeps
NO_DELIVERY: Final = (b"", 0)
UNKNOWN: Final = 1 << 62
"""What a store wants that has never heard of the pipe."""


@dataclass(slots=True)
class State:
    """What is durable beside the records.

    Attributes:
        epoch: The latest that this store has heard of from its primary. Each promotion raises it.
        epochs: The promotions in its records.
        primary: The store that was promoted last, or empty: another one.
        fence: Entries of a lower epoch are refused.
        start: The position at which the content begins.
        dropped: Retention has dropped what is before this position.
        controls: The positions of the records since `start` that are no messages.
        replicated: All stores have the records before this position. The durable one may be up to REPLICATED_BEHIND
            less.
        wanted: It must not speak for the pipe before it has the records before this position.
        base: What is added to the stream's positions.
        life: Part of the stream's name: a store that has to begin anew begins with an empty one.
    """

    epoch: int = 0
    epochs: Epochs = field(default_factory=list)
    primary: str = ""
    fence: int = 0
    start: int = 0
    dropped: int = 0
    controls: list[int] = field(default_factory=list)
    replicated: int = 0
    wanted: int = 0
    base: int = 0
    life: int = 0


class Chunk:
    """Records of consecutive positions, as they go out to readers."""

    __slots__ = ("blocks", "first", "payloads", "plain", "tags")

    def __init__(self, first: int, payloads: list[bytes]) -> None:
        self.first = first
        self.payloads = payloads
        self.tags = [position.to_bytes(8, "big") for position in range(first, first + len(payloads))]
        self.plain = all(payload[:1] == b"\x00" for payload in payloads)  # no control records, no other formats
        self.blocks: dict[Any, Any] = {}  # encoded frames, shared by links

    @property
    def end(self) -> int:
        return self.first + len(self.payloads)


class PipeLog:
    """Made by `open_log`."""

    def __init__(self, store: Store, name: str, state: State, log: Log) -> None:
        self.name = name
        self.state = state
        self._durable = replace(state)
        self.next = 0
        self.visible = 0
        self.changes = Changes()
        self.cursors: dict[object, int] = {}  # of the links that read
        self.deliveries: dict[int, tuple[bytes, int]] = {}  # position -> (tag, check), of the last REMEMBERED
        self._oldest = 0  # no delivery before this position is remembered
        self.unaccepted: dict[bytes, int] = {}  # tag -> position
        self._remembered_keys: deque[tuple[int, str]] = deque()
        self.store = store
        self._log = log
        self._chunks: OrderedDict[tuple[int, int], asyncio.Task[Chunk]] = OrderedDict()
        self._full = False  # the last commit was refused
        self._trimming: asyncio.Task[None] | None = None
        self._removable = True  # there may be records that can be removed, now or when more is visible

    @property
    def stream(self) -> str:
        return f"pipe/{self.name}/{self.state.life}"

    async def load(self) -> None:
        bounds = await self.store.bounds(self.stream)
        self.next = bounds.next + self.state.base
        self.visible = self.next
        for key, value in await self.store.scan(f"pipe-tags/{self.name}/"):
            position = int(key.rsplit("/", 1)[1], 16)
            found = decode_remembered(value)
            self._remembered_keys.append((position + len(found), key))
            self._remember(found, position)

    @property
    def lacks(self) -> bool:
        """It is new, or has begun anew, and has not yet read what the other stores have."""
        return self.next < self.state.wanted

    # --- writing

    def knows(self, tag: bytes, check: int) -> bool:
        """Whether this delivery is written already: it came to an earlier process, or to another store."""
        position = self.unaccepted.get(tag)
        return position is not None and self.deliveries[position] == (tag, check)

    def accepted(self, tags: list[bytes]) -> None:
        """These deliveries do not come again to this store: its journal has them. A foreign client may use the tags
        again."""
        for tag in tags:
            self.unaccepted.pop(tag, None)

    def _remember(self, found: list[tuple[bytes, int]], position: int) -> None:
        deliveries, unaccepted = self.deliveries, self.unaccepted
        if not deliveries:
            self._oldest = position
        for at, delivery in enumerate(found, position):
            if delivery[0]:
                deliveries[at] = delivery
                unaccepted[delivery[0]] = at
        oldest = self._oldest
        while len(deliveries) > REMEMBERED:
            # Not the dict's first key: to find that, it passes over all that were removed before.
            tag, _ = deliveries.pop(oldest, NO_DELIVERY)
            if tag in unaccepted and unaccepted[tag] == oldest:
                del unaccepted[tag]
            oldest += 1
        self._oldest = oldest

    async def append(self, entries: list[Entry], *, waits: bool = True, **changed: Any) -> None:
        """Writes records at the next positions, with what they change, as one commit. A full disk is waited for, or
        raises StoreFull."""
        position = self.next
        state = replace(self.state, **changed)
        batch = Batch()
        controls = 0
        for at, entry in enumerate(entries, position):
            if entry.record[0] == CONTROL_BYTE:
                apply(state, entry.record, at)
                controls += 1
        removed = state.start > self.state.start
        batch.frees = removed and controls == len(entries)
        if entries:
            batch.append(self.stream, [entry.record for entry in entries])
            key = f"pipe-tags/{self.name}/{position:016x}"
            batch.put(key, encode_remembered(entries))
        forgotten = 0
        while forgotten < len(self._remembered_keys) and self._remembered_keys[forgotten][0] < position - REMEMBERED:
            batch.delete(self._remembered_keys[forgotten][1])
            forgotten += 1
        changes = self._differs(state)
        if changes:
            batch.put(f"pipe/{self.name}", write_json(asdict(state)).encode())
        await self._commit(batch, waits=waits)
        for _ in range(forgotten):
            self._remembered_keys.popleft()
        if changes:
            self._durable = replace(state)
        self.state = state
        self.next = position + len(entries)
        if entries:
            self._remembered_keys.append((self.next, key))
            self._remember([(entry.tag, entry.check) for entry in entries], position)
        if removed:
            self.trim_soon()
            self.changes.notify()  # links that read what was dropped end

    async def _commit(self, batch: Batch, *, waits: bool) -> None:
        """A full disk is waited for, or raises StoreFull."""
        while True:
            try:
                await self.store.commit(batch)
            except StoreFull as error:
                if not self._full:
                    self._log.warning("pipe_full", "{pipe}: {reason}: pushes wait", pipe=self.name, reason=str(error))
                self._full = True
                if not waits:
                    raise
                await asyncio.sleep(FULL_RETRY_S)
            else:
                if self._full:
                    self._log.info("pipe_room", "{pipe}: there is room again", pipe=self.name)
                self._full = False
                return

    def _differs(self, state: State) -> bool:
        """From the durable one, in more than is worth a write."""
        behind = state.replicated - self._durable.replicated
        return behind >= REPLICATED_BEHIND or replace(state, replicated=self._durable.replicated) != self._durable

    async def change(self, **changed: Any) -> None:
        """Writes values of the state."""
        await self.append([], **changed)

    def show(self, before: int) -> None:
        """Readers may read what is before this position."""
        if before > self.visible:
            self.visible = before
            self.changes.notify()
            if self._removable:
                self.trim_soon()

    async def begin_anew(self, first: int, epochs: Epochs, wanted: int) -> None:
        """Drops all records: the next one that is written has this position. `epochs`: the promotions before it."""
        batch = Batch()
        batch.trim(self.stream)
        for _, key in self._remembered_keys:
            batch.delete(key)
        now = self.state
        state = State(now.epoch, epochs, now.primary, now.fence, first, wanted=wanted, base=first, life=now.life + 1)
        batch.put(f"pipe/{self.name}", write_json(asdict(state)).encode())
        await self._commit(batch, waits=True)
        self.state, self._durable = state, replace(state)
        self.next = self.visible = first
        self._remembered_keys.clear()
        self.deliveries.clear()
        self.unaccepted.clear()
        self._chunks.clear()
        self.changes.notify()

    # --- reading

    async def first(self) -> int:
        """The oldest position that is still there, also of old content."""
        return (await self.store.bounds(self.stream)).first + self.state.base

    def entries(self, first: int, records: list[bytes]) -> list[Entry]:
        """These records of the log, from position `first` on, as another store needs them."""
        return [Entry(record, *self.deliveries.get(at, NO_DELIVERY)) for at, record in enumerate(records, first)]

    async def position_at(self, time_us: int) -> int:
        found = await self.store.position_at(self.stream, time_us) + self.state.base
        return max(self.state.start, min(found, self.visible))

    async def chunk(self, position: int) -> Chunk:
        """Records around this position, which must be visible; later ones if it is gone."""
        begin = position - position % CHUNK
        key = (begin, begin + CHUNK) if begin + CHUNK <= self.visible else (position, self.visible)
        task = self._chunks.get(key)
        if task is None:
            task = self._chunks[key] = asyncio.create_task(self._read(*key))
            if len(self._chunks) > CACHED:
                self._chunks.popitem(last=False)
        else:
            self._chunks.move_to_end(key)
        chunk = await asyncio.shield(task)
        if chunk.first <= position < chunk.end or (chunk.first > position and begin <= position):
            return chunk
        return await self._read(position, position + CHUNK)  # large messages: the chunk ends before

    async def _read(self, begin: int, end: int) -> Chunk:
        base, life = self.state.base, self.state.life
        wanted = min(end - begin, CHUNK)
        records = await self.store.read(self.stream, begin - base, records=wanted, octets=CHUNK_OCTETS)
        if life != self.state.life or not records:
            return Chunk(begin, [])
        return Chunk(records[0].position + base, [record.payload for record in records])

    # --- removing

    async def surplus(self, keep: Retention) -> int:
        """The position before which retention drops; `start` if there is nothing to drop.

        To leave few records of what was dropped, it drops a fiftieth at least: what is older waits until more is, and
        of what is more than the size a bit more is dropped.
        """
        age_s, octets = keep
        due = Retention(None if age_s is None else age_s * (1 + SLACK), octets)
        drop = Retention(age_s, None if octets is None else int(octets * (1 - SLACK)))
        for each in (due, drop):
            found = min(await self.store.surplus(self.stream, each) + self.state.base, self.visible)
            if found <= self.state.start:
                break
        return max(found, self.state.start)

    def trim_soon(self) -> None:
        self._removable = True
        if self._trimming is None or self._trimming.done():
            self._trimming = asyncio.create_task(self._trim())

    async def close(self) -> None:
        """Before its store is closed: nothing is removed any more."""
        if self._trimming is not None:
            self._trimming.cancel()
            await asyncio.wait([self._trimming])

    async def trim(self) -> None:
        self.trim_soon()
        if self._trimming is not None:
            await self._trimming

    async def _trim(self) -> None:
        """Removes what retention has dropped, and what a reset has taken away and nobody reads any more."""
        while self._removable:
            wanted = max(self.state.dropped, self.state.start - 1)  # the reset's own record stays
            before = min(self.visible, max(self.state.dropped, min([wanted, *self.cursors.values()])))
            self._removable = False
            life = self.state.life
            first = (await self.store.bounds(self.stream)).first
            while first < before - self.state.base and life == self.state.life:
                first = min(first + TRIM_STEP, before - self.state.base)
                batch = Batch()
                batch.trim(self.stream, first)
                try:
                    await self._commit(batch, waits=False)
                except StoreFull:  # a database's; the next trim is another attempt
                    self._removable = True
                    return
            if before < wanted and not self._removable:
                self._removable = True
                return


def parted(mine: Epochs, theirs: Epochs, next_position: int) -> bool:
    """Whether my log, which ends before `next_position`, has records that the other log, whose epoch is as high or
    higher, has not. Within an epoch one store gives the positions: so two logs are the same up to where the first
    epoch begins that not both know."""
    for one, other in zip_longest(mine, theirs):
        if one != other:
            return one is not None or next_position > other[1]
    return False


def apply(state: State, record: bytes, position: int) -> None:
    """What a control record changes."""
    what = read_control(record)
    if what is None:
        return
    if "reset" in what:
        state.start, state.controls = position + 1, []
        return
    if "dropped" in what:
        state.dropped = max(state.dropped, what["dropped"])
        state.start = max(state.start, state.dropped)
    state.controls = [each for each in (*state.controls, position) if each >= state.start]
    if "promoted" in what:
        state.epochs = [*state.epochs, [what["epoch"], position]]


async def found(store: Store) -> dict[str, tuple[int, int]]:
    """The pipes that a store holds: how many messages of each, and the position that comes next."""
    pipes = {}
    for stream in await store.streams("pipe/"):
        name, _, life = stream.removeprefix("pipe/").rpartition("/")
        state = _read(await store.get(f"pipe/{name}")) or State()
        if int(life) == state.life:
            end = (await store.bounds(stream)).next + state.base
            pipes[name] = (end - state.start - len(state.controls), end)
    return pipes


def _read(kept: bytes | None) -> State | None:
    return None if kept is None else State(**json.loads(kept))


async def open_log(store: Store, name: str, store_name: str, primary: str, log: Log) -> PipeLog:
    """Opens a pipe in a store; `primary` is the store that the file names first, for a pipe that is new here."""
    state = _read(await store.get(f"pipe/{name}"))
    if state is None and primary == store_name:
        state = State(epoch=epoch_of(1, primary), fence=epoch_of(1, primary), primary=primary)
    elif state is None:
        state = State(wanted=UNKNOWN)
    pipe = PipeLog(store, name, state, log)
    await pipe.load()
    return pipe
