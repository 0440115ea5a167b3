"""What a stored journal keeps of each link: the rows that hold its publications, or the tags that it has accepted.

This code runs on the caller's side, under the journal's lock.  It gathers writes for the next transaction, and does not
read what is stored once the link is open.  A run of messages or of accepted tags is one row; beside a run of messages
is a short list of the ranges that have no outcome.  A `Gathering` stores it: `sqlite_journal` in a file of its own,
`edges.store.journal` in the store of an edge.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from struct import Struct
from typing import Any, Final

from onceway.base import waits
from onceway.client import clock
from onceway.client.journal import PublisherRecord, SubscriberRecord
from onceway.client.ranges import RangeSet
from onceway.client.sqlite_format import Damaged, crc_of, run_crc, with_crc, without_crc

Operation = tuple[str, tuple[Any, ...]]
"""A write that is no new row, and its values:"""
LIVE: Final = "live"  # ranges without outcome, link, first: of a run of publications
FORGOTTEN: Final = "forgotten"  # link, first: a run of publications is gone
SETTLED: Final = "settled"  # row, link: a run of accepted tags is gone

_RUN_BYTES = 1 << 20  # a run of publications grows to about this size before a new row is begun
_RANGE = Struct(">QQ")


class Gathering(ABC):
    """A journal as its links see it: what it gathers for the next transaction, and what it has stored."""

    def __init__(self) -> None:
        self._lock = waits.MUTEX(threading.Condition())  # guards what is gathered
        self._pending: list[Operation | Run] = []
        self._touched: dict[LinkRows, None] = {}  # links whose row has to be written again
        self._group = 1  # number of the transaction being gathered
        self._next_row = 1
        self._contacts_marked = True  # by the clock of the boot; simulations have another

    @abstractmethod
    def _load_link(self, role: str, address: str, name: str) -> tuple[Any, ...]:
        """id, epoch, identity, sequence, contact_us, timeout_s, contact_mark of a link, which is made if it is new."""

    @abstractmethod
    def _load_publications(self, link: int) -> list[tuple[Any, ...]]:
        """(first, lengths, payloads, crc, live) of each run, ascending."""

    @abstractmethod
    def _load_accepted(self, link: int) -> list[tuple[Any, ...]]:
        """(row, outcome, lengths, tags, crc) of each run, ascending."""

    @abstractmethod
    def _own_errors(self) -> AbstractContextManager[None]:
        """Makes JournalErrors of what the storage and the format say."""


class LinkRows:
    """Base of both kinds: the link's row."""

    __slots__ = (
        "_contact_mark",
        "_contact_us",
        "_epoch",
        "_id",
        "_identity",
        "_journal",
        "_key",
        "_sequence",
        "_timeout_s",
    )

    def __init__(self, journal: Gathering, role: str, address: str, name: str) -> None:
        self._journal = journal
        (
            self._id,
            self._epoch,
            self._identity,
            self._sequence,
            self._contact_us,
            self._timeout_s,
            self._contact_mark,
        ) = journal._load_link(role, address, name)
        self._contact_us = clock.restore(self._contact_us, self._contact_mark)
        self._key = (self._id, role, address, name)

    def row(self) -> tuple[Any, ...]:
        state = (self._epoch, self._identity, self._sequence, self._contact_us, self._timeout_s, self._contact_mark)
        return (*state, crc_of(*self._key, *state), self._id)

    def attach(self, epoch: int, identity: int) -> None:
        with self._journal._lock:
            self._epoch, self._identity = epoch, identity
            self._journal._touched[self] = None

    def contact(self, wall_us: int, timeout_s: float) -> None:
        with self._journal._lock:
            self._contact_us, self._timeout_s = wall_us, float(timeout_s)  # as SQLite returns it
            self._contact_mark = clock.mark(wall_us) if self._journal._contacts_marked else ""
            self._journal._touched[self] = None


class Run:
    """A run of publications or of tags that becomes one row; grows until its transaction begins."""

    __slots__ = ("group", "items", "key", "link", "live", "outcome", "size")

    def __init__(self, group: int, link: int, key: int, outcome: bytes | None) -> None:
        self.group = group
        self.link = link
        self.key = key  # first sequence, or number of the row
        self.outcome = outcome  # None: publications
        self.items: list[bytes] = []
        self.size = 0
        self.live = RangeSet()  # publications: what has no outcome yet

    def row(self) -> tuple[Any, ...]:
        """(link, first, lengths, payloads, crc) of publications; (row, link, outcome, lengths, tags, crc) of tags."""
        lengths = array("I", map(len, self.items)).tobytes()
        joined = b"".join(self.items)
        self.items = []  # the row has them now
        key = (self.link, self.key) if self.outcome is None else (self.key, self.link, self.outcome)
        return (*key, lengths, joined, run_crc(key, lengths, joined))


class PublisherRows(LinkRows):
    __slots__ = ("_firsts", "_runs", "record")

    def __init__(self, journal: Gathering, address: str, name: str) -> None:
        super().__init__(journal, "publisher", address, name)
        self._firsts: list[int] = []  # of the runs, ascending
        self._runs: list[Run] = []
        undecided: list[tuple[int, bytes]] = []
        for first, lengths, payloads, crc, live in journal._load_publications(self._id):
            with journal._own_errors():
                items = _split((self._id, first), lengths, payloads, crc, f"the row of messages from {first} on")
                live = without_crc(live, self._id, first)
            run = Run(0, self._id, first, None)
            run.live = RangeSet([(first, first + len(items) - 1)] if live is None else _RANGE.iter_unpack(live))
            self._firsts.append(first)
            self._runs.append(run)
            for low, high in run.live:
                undecided.extend((number, items[number - first]) for number in range(low, high + 1))
        self.record = PublisherRecord(
            epoch=self._epoch,
            incarnation=self._identity,
            sequence=self._sequence,
            contact_us=self._contact_us,
            timeout_s=self._timeout_s,
            undecided=undecided,
        )

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        journal = self._journal
        with journal._lock:
            run = self._runs[-1] if self._runs else None
            fits = (
                run is not None
                and run.group == journal._group
                and run.size < _RUN_BYTES
                and list(run.live) == [(run.key, first - 1)]
            )
            if run is None or not fits:
                run = Run(journal._group, self._id, first, None)
                self._firsts.append(first)
                self._runs.append(run)
                journal._pending.append(run)
            run.items.extend(payloads)
            run.size += sum(map(len, payloads))
            self._sequence = first + len(payloads)
            run.live.add(first, self._sequence - 1)
            journal._touched[self] = None

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        journal = self._journal
        with journal._lock:
            at = max(bisect_right(self._firsts, first) - 1, 0)
            while at < len(self._runs) and self._firsts[at] <= last:
                run = self._runs[at]
                if not run.live.remove(first, last):
                    at += 1
                    continue
                if run.live:
                    ranges = b"".join([_RANGE.pack(low, high) for low, high in run.live])
                    blob = with_crc(ranges, self._id, run.key)
                    journal._pending.append((LIVE, (blob, self._id, run.key)))
                    at += 1
                else:
                    journal._pending.append((FORGOTTEN, (self._id, run.key)))
                    del self._runs[at], self._firsts[at]

    def check_invariants(self, undecided: Iterable[int]) -> None:
        """Its rows hold what the link has not decided, and nothing else (for simulations and tests)."""
        assert self._firsts == sorted(run.key for run in self._runs)
        live = [number for run in self._runs for first, last in run.live for number in range(first, last + 1)]
        assert live == list(undecided), f"the journal holds the messages {live}, undecided are {list(undecided)}"
        assert not live or live[-1] < self._sequence, "the journal does not know the next number"

    def close(self) -> None:
        with self._journal._lock:
            self._journal._pending += [(FORGOTTEN, (self._id, first)) for first in self._firsts]
            self._runs, self._firsts = [], []
            self._identity = 0
            self._journal._touched[self] = None


class SubscriberRows(LinkRows):
    __slots__ = ("_born", "_counts", "_open", "_rows", "record")

    def __init__(self, journal: Gathering, address: str, name: str) -> None:
        super().__init__(journal, "subscriber", address, name)
        self._rows: dict[bytes, int] = {}  # tag -> row that holds it
        self._counts: dict[int, int] = {}  # row -> tags not settled
        self._open: Run | None = None
        self._born = self._identity
        unsettled: dict[bytes, bytes | None] = {}
        for row, outcome, lengths, joined, crc in journal._load_accepted(self._id):
            with journal._own_errors():
                tags = _split((row, self._id, outcome), lengths, joined, crc, f"row {row} of accepted tags")
            # settled tags of a row that is not empty yet come back: the next attach settles them again
            self._note(row, tags)
            unsettled.update(dict.fromkeys(tags, outcome))
        self.record = SubscriberRecord(
            epoch=self._epoch,
            born=self._identity,
            contact_us=self._contact_us,
            timeout_s=self._timeout_s,
            unsettled=unsettled,
        )

    def _note(self, row: int, tags: Iterable[bytes]) -> None:
        rows, counts = self._rows, self._counts
        for tag in tags:
            old = rows.get(tag)
            if old is not None and old != row:
                self._drop(old)
            if old != row:
                counts[row] = counts.get(row, 0) + 1
            rows[tag] = row

    def _drop(self, row: int) -> None:
        left = self._counts[row] - 1
        if left:
            self._counts[row] = left
        else:
            del self._counts[row]
            if self._open is not None and self._open.key == row:
                self._open = None
            self._journal._pending.append((SETTLED, (row, self._id)))

    def attach(self, epoch: int, born: int) -> None:
        self._born = born
        super().attach(epoch, self._identity)

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        # only a subscription that was answered exists: the network would call any other one broken
        if self._identity != self._born:
            super().attach(self._epoch, self._born)
        return {}  # the file is locked: no other process has added anything

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        journal = self._journal
        with journal._lock:
            run = self._open
            if run is None or run.group != journal._group or run.outcome != outcome:
                run = self._open = Run(journal._group, self._id, journal._next_row, outcome)
                journal._next_row += 1
                journal._pending.append(run)
            run.items.extend(tags)
            self._note(run.key, tags)

    def settle(self, tags: Sequence[bytes]) -> None:
        with self._journal._lock:
            rows = self._rows
            for tag in tags:
                row = rows.pop(tag, None)
                if row is not None:
                    self._drop(row)

    def check_invariants(self, held: Collection[bytes]) -> None:
        """A row is there as long as one of its tags is held, and no longer (for simulations and tests)."""
        counted = Counter(self._rows.values())
        assert counted == self._counts, f"the journal counts {self._counts} tags in its rows, there are {dict(counted)}"
        assert self._rows.keys() <= set(held), "the journal holds a tag that is settled"

    def close(self) -> None:
        with self._journal._lock:
            self._journal._pending += [(SETTLED, (row, self._id)) for row in self._counts]
            self._rows, self._counts, self._open = {}, {}, None
            self._identity = 0
            self._journal._touched[self] = None


def _split(key: tuple[object, ...], lengths: Any, joined: Any, crc: Any, what: str) -> list[bytes]:
    """The items of a row.  Raises Damaged."""
    if not isinstance(lengths, bytes) or not isinstance(joined, bytes) or run_crc(key, lengths, joined) != crc:
        raise Damaged(what)
    sizes = array("I")
    sizes.frombytes(lengths)
    ends = list(accumulate(sizes))
    return [joined[end - size : end] for end, size in zip(ends, sizes, strict=True)]
