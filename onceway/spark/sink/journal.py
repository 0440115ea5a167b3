"""The publishers' journal of an outbox: epochs, and which numbers have which outcome.  Payloads stay in staged files.

One file of lines, appended to by a thread of its own.  A line is one group of operations, as JSON after a checksum; it
is durable before anybody relies on it.  A killed process, or a power cut, leaves at most a torn last line, which is
cut.  A bad line before a good one is damage, and an error.

Now and then `publish` writes a mark ahead of what is sent: no message from the mark on has ever been sent.  Below the
mark a message counts as sent until it has its outcome.  `onceway.client.journal` defines the methods of a journal; the
numbers of a batch come from its manifest (`outbox`).
"""

from __future__ import annotations

import errno
import json
import os
import threading
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from amqp10.outcomes import Accepted, Modified, Rejected, Released
from onceway.base import waits
from onceway.client import clock
from onceway.client.journal import UNDECIDED, PublisherJournal, PublisherRecord, SubscriberJournal
from onceway.errors import JournalCorrupt, JournalError, JournalFull, UsageError
from onceway.spark.files import sync_path
from onceway.spark.sink.staging import Run
from router.core.intervals import IntervalSet, Range, count
from router.json_text import write_json

VERSION: Final = 1
AHEAD: Final = 4096  # how far the mark is set ahead: at most so many rows are in doubt that were not sent
_LARGE: Final = 1 << 18  # bytes from which the file is compacted when it is opened

ACCEPTED: Final = "accepted"
IN_DOUBT: Final = UNDECIDED
_WORDS: Final[dict[type, str]] = {Accepted: ACCEPTED, Rejected: "rejected", Released: "released", Modified: "modified"}


def word_of(outcome: object) -> str:
    if outcome == UNDECIDED:
        return IN_DOUBT
    return _WORDS.get(type(outcome), "settled without an outcome")


@dataclass(slots=True)
class TopicState:
    """One topic's publisher, and the outcomes of its batch that is not done yet."""

    epoch: int = 0
    incarnation: int = 0
    contact_us: int = 0
    contact_mark: str = ""  # the same by the clock of the boot (`onceway.client.clock`)
    timeout_s: float = 0.0
    mark: int = 0  # numbers from here on were never sent
    outcomes: dict[str, IntervalSet] = field(default_factory=dict)
    decided: IntervalSet = field(default_factory=IntervalSet)  # all of these together

    def decide(self, first: int, last: int, word: str) -> list[Range]:
        """Records an outcome; the first one of a number counts.  Returns the ranges that are new."""
        new = self.decided.missing([(first, last + 1)])
        known = self.outcomes.setdefault(word, IntervalSet())
        for start, stop in new:
            known.add(start, stop)
            self.decided.add(start, stop)
        return new

    def restore(self, first: int, last: int) -> None:
        """Removes outcomes: the messages are to be sent again, or their batch is done."""
        for known in (*self.outcomes.values(), self.decided):
            known.remove(first, last + 1)

    def tally(self, first: int, end: int) -> dict[str, int]:
        """How many of first .. end - 1 have which outcome."""
        counts = {word: count(known.overlap(first, end)) for word, known in self.outcomes.items()}
        return {word: number for word, number in counts.items() if number}


class OutboxJournal:
    """The journal at `path`, created if there is none.  Raises JournalError, JournalCorrupt."""

    def __init__(self, path: Path, outbox: str) -> None:
        self.path = path
        self.outbox = outbox
        self.durable = 0
        self.failure: JournalError | None = None
        self.progress = 0  # outcomes since this object was made
        self.topics: dict[str, TopicState] = {}
        self._runs: dict[str, tuple[int, int, Sequence[Run]]] = {}  # topic -> (first, end, where they are)
        self._lock = waits.MUTEX(threading.Condition())
        self._pending: list[list[Any]] = []
        self._group = 1
        self._wanted = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        self._file = -1
        self._wake: Callable[[], None] = lambda: None
        try:
            self._load()
        except OSError as error:
            raise self._translate(error) from error

    # -- for the outbox

    def topic(self, name: str) -> TopicState:
        return self.topics.setdefault(name, TopicState())

    def use(self, topic: str, runs: Sequence[Run]) -> None:
        """The messages of a topic to publish next; all earlier ones are done."""
        first, end = runs[0].first, runs[-1].first + runs[-1].rows
        self._runs[topic] = (first, end, runs)
        state = self.topic(topic)
        if state.decided.first() < first:
            state.restore(0, first - 1)
            self._write_later(["restore", topic, 0, first - 1])

    def restore(self, topic: str, ranges: Sequence[Range]) -> None:
        """Marks messages in doubt to be sent again.  Written with the next group, before any attach."""
        state = self.topic(topic)
        for start, stop in ranges:
            state.restore(start, stop - 1)
            self._write_later(["restore", topic, start, stop - 1])

    def release(self) -> None:
        """Closes the file, also after a failure."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    # -- Journal

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        assert container is not None
        if self._thread is not None:
            raise UsageError(f"{self.path}: is open already")
        self._wake = wake
        self._closing = False
        self._thread = threading.Thread(target=self._write, name=f"outbox {self.path}", daemon=True)
        self._thread.start()
        return container

    def publisher(self, address: str, name: str) -> PublisherJournal:
        return _Publisher(self, address)

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        raise UsageError("an outbox has no subscriptions")

    def sync(self) -> int:
        with self._lock:
            if not self._pending:
                return self._group - 1
            if self._wanted != self._group:
                self._wanted = self._group
                self._lock.notify_all()
            return self._group

    def close(self) -> None:
        if self._thread is not None:
            with self._lock:
                self._closing = True
                self._lock.notify_all()
            waits.DISK(self._thread).join()
            self._thread = None
        if self.failure is not None:
            raise self.failure

    # -- writing

    def _write_later(self, operation: list[Any]) -> None:
        with self._lock:
            if self._pending and _continues(self._pending[-1], operation):
                self._pending[-1][3] = operation[3]
            else:
                self._pending.append(operation)

    def _write(self) -> None:
        while True:
            with self._lock:
                while self._wanted < self._group and not self._closing:
                    self._lock.wait()
                pending, self._pending = self._pending, []
                group = self._group
                self._group += 1
                closing = self._closing
            if pending:
                try:
                    _append(self._file, pending)
                except OSError as error:
                    with self._lock:
                        self.failure = self._translate(error)
                    self._wake()
                    return
            with self._lock:
                self.durable = group
            self._wake()
            if closing:
                return

    def _translate(self, error: OSError) -> JournalError:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return JournalFull(
                f"{self.path}: no room left for the outbox; make room and restart the query: nothing is published twice"
            )
        return JournalError(
            f"{self.path}: the outbox's journal failed ({error}); restart the query once it can be written: nothing is "
            "published twice"
        )

    # -- reading

    def _load(self) -> None:
        if not self.path.exists():
            self._replace()
        else:
            data = self.path.read_bytes()
            groups, good = _read_groups(data)
            if groups is None or groups[0][:1] != [["outbox", self.outbox, VERSION]]:
                raise JournalCorrupt(
                    f"{self.path}: damaged, or the journal of another outbox; restore it with the whole directory, or "
                    "give the query an empty outboxLocation and check what of its last batch has arrived"
                )
            for group in groups:
                for operation in group:
                    self._apply(operation)
            if good > _LARGE:
                self._replace()
            elif good < len(data):
                os.truncate(self.path, good)  # torn: nobody relied on it
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _apply(self, operation: list[Any]) -> None:
        match operation:
            case ["attach", topic, epoch, incarnation]:
                state = self.topic(topic)
                state.epoch, state.incarnation = epoch, incarnation
            case ["contact", topic, wall_us, timeout_s, *rest]:
                state = self.topic(topic)
                state.contact_us, state.timeout_s = wall_us, timeout_s
                state.contact_mark = rest[0] if rest else ""
            case ["mark", topic, mark]:
                self.topic(topic).mark = mark
            case ["forget", topic, first, last, word]:
                self.topic(topic).decide(first, last, word)
            case ["restore", topic, first, last]:
                self.topic(topic).restore(first, last)
            case _:
                assert operation[0] == "outbox", operation

    def _replace(self) -> None:
        """Compacts the file: writes the state in place of its history."""
        operations: list[list[Any]] = []
        for topic, state in self.topics.items():
            operations.append(["attach", topic, state.epoch, state.incarnation])
            operations.append(["contact", topic, state.contact_us, state.timeout_s, state.contact_mark])
            operations.append(["mark", topic, state.mark])
            for word, known in state.outcomes.items():
                operations += [["forget", topic, start, stop - 1, word] for start, stop in known]
        fresh = self.path.with_name(f"{self.path.name}.new")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            _append(file, [["outbox", self.outbox, VERSION], *operations])
        finally:
            os.close(file)
        fresh.replace(self.path)
        sync_path(str(self.path.parent))


class _Publisher:
    """One topic's part, for the messages given to `OutboxJournal.use`."""

    def __init__(self, journal: OutboxJournal, topic: str) -> None:
        self._journal = journal
        self._topic = topic
        self._state = state = journal.topic(topic)
        first, self._end, runs = journal._runs[topic]
        mark = max(state.mark, first)
        undecided: list[tuple[int, bytes]] = []
        for run in runs:
            window = (run.first, min(run.first + run.rows, mark))
            pieces = state.decided.missing([window]) if window[0] < mark else []
            payloads = run.payloads() if pieces else []
            for start, stop in pieces:
                undecided += zip(range(start, stop), payloads[start - run.first : stop - run.first], strict=True)
        self.record = PublisherRecord(
            epoch=state.epoch,
            incarnation=state.incarnation,
            sequence=mark,
            contact_us=clock.restore(state.contact_us, state.contact_mark),
            timeout_s=state.timeout_s,
            undecided=undecided,
        )

    def attach(self, epoch: int, incarnation: int) -> None:
        self._state.epoch, self._state.incarnation = epoch, incarnation
        self._journal._write_later(["attach", self._topic, epoch, incarnation])

    def contact(self, wall_us: int, timeout_s: float) -> None:
        state = self._state
        state.contact_us, state.contact_mark, state.timeout_s = wall_us, clock.mark(wall_us), timeout_s
        self._journal._write_later(["contact", self._topic, wall_us, timeout_s, state.contact_mark])

    def publish(self, first: int, payloads: Sequence[bytes]) -> None:
        end = first + len(payloads)
        assert end <= self._end, f"{self._topic}: message {end - 1} is past the batch's last, {self._end - 1}"
        if end > self._state.mark:
            self._state.mark = min(self._end, end + AHEAD)
            self._journal._write_later(["mark", self._topic, self._state.mark])

    def forget(self, first: int, last: int, outcome: object = None) -> None:
        word = word_of(outcome)
        for start, stop in self._state.decide(first, last, word):
            self._journal.progress += stop - start
            self._journal._write_later(["forget", self._topic, start, stop - 1, word])

    def close(self) -> None:
        self.attach(self._state.epoch, 0)


# -- lines


def _continues(last: list[Any], operation: list[Any]) -> bool:
    """Whether two outcomes of adjacent messages can be written as one operation."""
    if not last[0] == operation[0] == "forget":
        return False
    return bool(last[1] == operation[1] and last[3] + 1 == operation[2] and last[4] == operation[4])


def _append(file: int, operations: Sequence[Sequence[Any]]) -> None:
    """Writes one group durably."""
    text = write_json(operations, compact=True).encode()
    data = memoryview(b"%08x %s\n" % (zlib.crc32(text), text))
    while data:
        data = data[os.write(file, data) :]
    os.fdatasync(file)


def _read_groups(data: bytes) -> tuple[list[list[list[Any]]] | None, int]:
    """(groups, their length in bytes); None where the damage is not a crash's."""
    groups: list[list[list[Any]]] = []
    good = 0
    torn = False
    for line in data.splitlines(keepends=True):
        text = line[9:-1]
        if not line.endswith(b"\n") or line[:9] != b"%08x " % zlib.crc32(text):
            torn = True
        elif torn:
            return None, 0
        else:
            groups.append(json.loads(text))
            good += len(line)
    return (groups or None), good
