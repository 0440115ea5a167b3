"""The client's journal in the store of an edge: what a subscriber accepts and what is kept of it are one commit.

    journal = await StoreJournal.of(store)
    async with onceway.connect(url, journal=journal) as connection:
        subscriber = await connection.subscriber("orders")
        async for batch in subscriber.batches():
            await journal.accept(batch, "orders")

Each message is in the stream once, however often this process and the routers die: its record is appended in the commit
in which its acceptance becomes durable.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from typing import Any, Final, Self

from edges.store import Batch, Committed, Conflict, Store, StoreError, StoreFull
from onceway.base import waits
from onceway.client.delivery import Batch as Received
from onceway.client.journal_links import (
    FORGOTTEN,
    LIVE,
    SETTLED,
    Gathering,
    LinkRows,
    PublisherRows,
    Run,
    SubscriberRows,
)
from onceway.client.sqlite_format import Damaged
from onceway.errors import JournalCorrupt, JournalError, JournalFull, JournalLocked
from router.json_text import write_json

_ROW: Final = struct.Struct("<IIQ")  # octets of the outcome, octets of the lengths, checksum


def cannot_go_on(error: Exception) -> bool:
    """Whether a store or its journal has failed for good: not where a disk is full, nor where a router is away."""
    return isinstance(error, StoreError | JournalError) and not isinstance(error, StoreFull | JournalFull)


class _StagingRows(SubscriberRows):
    """A subscriber's part, and the records that wait for an acceptance."""

    __slots__ = ("_of", "staged")

    def __init__(self, journal: StoreJournal, address: str, name: str) -> None:
        super().__init__(journal, address, name)
        self._of = journal
        self.staged: dict[bytes, tuple[str, bytes]] = {}

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        super().accept(tags, outcome)
        if self.staged:
            self._of._append(self.staged.pop(tag) for tag in tags if tag in self.staged)

    def close(self) -> None:
        super().close()
        self.staged.clear()


class StoreJournal(Gathering):
    """A journal in the keys of a store below `name`; made with `of`.

    Whoever makes it takes the journal over: an older process that still has it fails with its next write, which changes
    nothing.

    Attributes:
        batch: What is committed next, beside the journal's own: an application may add to it, and calls `sync`.
    """

    def __init__(self, store: Store, name: str, holder: str, rows: dict[str, bytes]) -> None:
        super().__init__()
        self.durable = 0
        self.failure: JournalError | None = None
        self.batch = Batch()
        self._store = store
        self._name = name
        self._holder = holder.encode()
        self._rows = rows  # what is stored, or about to be
        self._links: dict[tuple[str, str, str], int] = {}
        self._subscribers: dict[tuple[str, str], _StagingRows] = {}
        self._loop = asyncio.get_running_loop()
        self._wanted = 0  # the highest group that somebody waits for
        self._last: asyncio.Future[Committed] | None = None
        self._wake: Callable[[], None] = _nobody

    @classmethod
    async def of(cls, store: Store, name: str = "journal") -> Self:
        """The journal of this name.

        Raises:
            StoreError: The store cannot go on.
        """
        holder = secrets.token_hex(8)
        batch = Batch()
        batch.put(f"{name}/holder", holder.encode())
        await store.commit(batch)
        return cls(store, name, holder, dict(await store.scan(f"{name}/")))

    async def accept(
        self, batch: Received, stream: str | Sequence[str | None], records: Sequence[bytes] | None = None
    ) -> None:
        """Appends a record for each delivery of the batch to the stream and accepts the batch, in one commit.

        Args:
            batch: What a subscriber of this journal's connection has received.
            stream: Where the records go, in the order of the batch; one name for all, or one for each. None: this one
                is not kept.
            records: The records; the payloads if they are left out.

        Raises:
            JournalError: The journal cannot go on; the batch comes again.
        """
        subscriber = batch._subscriber
        staged = self._subscribers[subscriber.address, subscriber.name].staged
        streams = repeat(stream, len(batch.tags)) if isinstance(stream, str) else stream
        kept = zip(batch.tags, streams, batch.payloads if records is None else records, strict=True)
        staged |= {tag: (name, record) for tag, name, record in kept if name is not None}
        await batch.accept()
        # What the network had settled before it was accepted, here or at most once, needs no acceptance.
        left = [staged.pop(tag) for tag in batch.tags if tag in staged]
        if left:
            self._append(iter(left))
            self.sync()
            await self._flush()

    def _append(self, records: Iterator[tuple[str, bytes]]) -> None:
        for stream, payload in records:
            self.batch.append(stream, (payload,))

    # --- for the client

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        with self._own_errors():
            known = self._rows.get(f"{self._name}/container", b"").decode()
            if known and container not in (None, known):
                raise JournalCorrupt(
                    f"{self._name}: the journal belongs to container {known!r}, not {container!r}; "
                    f"connect as {known!r}, or give another name"
                )
            for key in self._below("link/"):
                _, _, _, _, role, address, name, *_ = json.loads(self._rows[key])
                self._links[role, address, name] = int(key.rpartition("/")[2])
            for key in self._below("accepted/"):
                self._next_row = max(self._next_row, int(key.rpartition("/")[2]) + 1)
        container = known or container or f"onceway-{secrets.token_hex(8)}"
        if not known:
            self._put("container", container.encode())
        self._wake = wake
        return container

    def publisher(self, address: str, name: str) -> PublisherRows:
        self._gather()
        return PublisherRows(self, address, name)

    def subscriber(self, address: str, name: str) -> SubscriberRows:
        self._gather()
        part = self._subscribers[address, name] = _StagingRows(self, address, name)
        return part

    def sync(self) -> int:
        if not self._pending and not self._touched and self.batch == Batch():
            return self._group - 1
        if self._wanted != self._group:
            self._wanted = self._group
            self._loop.call_soon(self._commit)  # what else this turn of the loop writes comes along
        return self._group

    def close(self) -> None:
        """To be called in another thread than the loop's, which it waits for."""
        waits.STORE(asyncio.run_coroutine_threadsafe(self._flush(), self._loop)).result()

    async def _flush(self) -> None:
        if self.failure is None:
            self.sync()
            self._commit()
            if self._last is not None:
                await asyncio.wait([self._last])
        if self.failure is not None:
            raise self.failure

    # --- committing

    def _commit(self) -> None:
        if self._wanted != self._group or self.failure is not None:
            return  # `_flush` was faster
        self._gather()
        batch, self.batch = self.batch, Batch()
        batch.expect(f"{self._name}/holder", self._holder)
        self._last = asyncio.ensure_future(self._store.commit(batch))
        self._last.add_done_callback(partial(self._committed, self._group))
        self._group += 1

    def _committed(self, group: int, commit: asyncio.Future[Committed]) -> None:
        error = commit.exception()
        if self.failure is None:
            if error is None:
                self.durable = group
            elif isinstance(error, StoreError):
                self.failure = self._translated(error)
            else:
                raise error
        self._wake()

    def _translated(self, error: StoreError) -> JournalError:
        if isinstance(error, Conflict) and error.key == f"{self._name}/holder":
            return JournalLocked(f"{self._name}: another process has taken this journal over")
        if isinstance(error, StoreFull):
            return JournalFull(f"{error}; nothing confirmed is lost")
        return JournalError(f"{error}; nothing confirmed is lost, start again")

    def _gather(self) -> None:
        """What the links have written goes into the batch."""
        pending, self._pending = self._pending, []
        for one in pending:
            if isinstance(one, Run):
                *_, lengths, joined, crc = one.row()
                outcome = one.outcome or b""
                kind = "accepted" if one.outcome is not None else "publications"
                header = _ROW.pack(len(outcome), len(lengths), crc)
                self._put(f"{kind}/{one.link}/{one.key:020d}", header + outcome + lengths + joined)
                continue
            kind, values = one
            if kind == LIVE:
                live, link, first = values
                self._put(f"live/{link}/{first:020d}", live)
            elif kind == FORGOTTEN:
                link, first = values
                self._delete(f"publications/{link}/{first:020d}")
                self._delete(f"live/{link}/{first:020d}")
            else:
                assert kind == SETTLED
                row, link = values
                self._delete(f"accepted/{link}/{row:020d}")
        for link_rows in self._touched:
            self._put(f"link/{link_rows._id}", _link_row(link_rows))
        self._touched = {}

    def _put(self, key: str, value: bytes) -> None:
        self._rows[f"{self._name}/{key}"] = value
        self.batch.put(f"{self._name}/{key}", value)

    def _delete(self, key: str) -> None:
        if self._rows.pop(f"{self._name}/{key}", None) is not None:
            self.batch.delete(f"{self._name}/{key}")

    # --- what is stored

    def _below(self, prefix: str) -> list[str]:
        prefix = f"{self._name}/{prefix}"
        return sorted(key for key in self._rows if key.startswith(prefix))

    def _load_link(self, role: str, address: str, name: str) -> tuple[Any, ...]:
        number = self._links.setdefault((role, address, name), len(self._links) + 1)
        row = self._rows.get(f"{self._name}/link/{number}")
        if row is None:
            return (number, 0, 0, 0, 0, 0.0, "")
        with self._own_errors():
            epoch, identity, sequence, contact_us, _, _, _, timeout_s, mark = json.loads(row)
        return (number, epoch, identity, sequence, contact_us, timeout_s, mark)

    def _load_publications(self, link: int) -> list[tuple[Any, ...]]:
        found = []
        for key in self._below(f"publications/{link}/"):
            first = key.rpartition("/")[2]
            _, lengths, payloads, crc = _unpacked(self._rows[key])
            live = self._rows.get(f"{self._name}/live/{link}/{first}")
            found.append((int(first), lengths, payloads, crc, live))
        return found

    def _load_accepted(self, link: int) -> list[tuple[Any, ...]]:
        return [(int(key.rpartition("/")[2]), *_unpacked(self._rows[key])) for key in self._below(f"accepted/{link}/")]

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        try:
            yield
        except Damaged as error:
            raise JournalCorrupt(f"{self._name}: {error} is damaged; put back a whole copy of the store") from error
        except ValueError as error:
            raise JournalCorrupt(f"{self._name}: the journal is damaged ({error}); put back a whole copy") from error


def _link_row(link: LinkRows) -> bytes:
    epoch, identity, sequence, contact_us, timeout_s, mark, *_ = link.row()
    _, role, address, name = link._key
    return write_json([epoch, identity, sequence, contact_us, role, address, name, timeout_s, mark]).encode()


def _unpacked(row: bytes) -> tuple[bytes, bytes, bytes, int]:
    """(outcome, lengths, items, checksum)"""
    outcome, lengths, crc = _ROW.unpack_from(row)
    start = _ROW.size + outcome
    return row[_ROW.size : start], row[start : start + lengths], row[start + lengths :], crc


def _nobody() -> None:
    pass
