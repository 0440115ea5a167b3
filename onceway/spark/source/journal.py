"""The client's journal over write-ahead logs: deliveries are durable with their rows, so an accept writes nothing.

Each subscription has a slot of the log: `WalJournal.writer(slot)` takes the rows, and the link's part of the journal
knows their tags.  A restarted process reads from the log's tail what it presents to the network as accepted: every row
that is not known to be settled, so that a repeat is accepted and not appended.  The network's answer leaves out what it
no longer knows, and that is forgotten.

The link's own state (epoch, born, last contact) is in the slot's `link.json`, with the rows that were settled; the
latter may lag without harm.

`gaps.json` in the slot says where messages may be missing, so that no restart can skip it.  A subscription that was
away for longer than the network waits is created again, with another `born` (protocol 7.1); what was published in
between is lost.  The ingest writes the gap durably before it appends a row after it.  Each query stops at each
gap until somebody has acknowledged it (`source.losses`).  A gap is removed when the rows around it have been trimmed.

The order in a process's life (`onceway.spark.wal.fencing`): `open` locks; `subscriber` reads the tail; the link
attaches, which detaches any older process; `attached` fences that one off and reads the rows that it added meanwhile;
then comes credit.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from amqp10.outcomes import ACCEPTED, write_state
from onceway.base import waits
from onceway.client import clock
from onceway.client.journal import PublisherJournal, SubscriberJournal, SubscriberRecord
from onceway.client.reports import SubscriptionGap
from onceway.errors import UsageError
from onceway.spark.errors import DAMAGE_REMEDY, SparkSourceError, WalDamaged, WalError, explain
from onceway.spark.files import Disk, Documents
from onceway.spark.wal import SlotReader, SlotWriter, Wal, WalSettings
from onceway.spark.wal.documents import Document
from onceway.spark.wal.fencing import DOCUMENTS

SETTLED_EVERY_S: Final = 2.0  # how far `link.json` may lag behind the settlements
_NEAR: Final = 10_000  # rows: about two frames
_ACCEPTED: Final = write_state(ACCEPTED)
GAPS: Final = Documents(SparkSourceError, "restore it, or remove it if no messages may be missing")
_CREATED_AGAIN: Final = "the subscription was away for longer than the network waits and was created again"


class WalJournal:
    """`onceway.client.journal.Journal` for the subscriber links of one ingest process, one for each slot.

    The connection closes it, except after a failure: then the process ends, or calls `close`.
    """

    def __init__(
        self,
        wal: Wal,
        slots: Sequence[int] | None = None,
        settings: WalSettings | None = None,
        on_durable: Callable[[SlotWriter], None] | None = None,
        disk: Disk | None = None,
        *,
        apart: bool = False,
    ) -> None:
        """slots: those that this process fills (default: all of the log); `open` locks them.

        on_durable: called from a writer's thread when its `durable` or `failure` has changed.
        """
        self.wal = wal
        self._slots = {(wal.slots[slot], wal.link_of(slot)): slot for slot in (wal.slots if slots is None else slots)}
        self._settings = settings or WalSettings()
        self._on_durable = on_durable
        self._disk = disk or Disk()
        self._apart = apart
        self._wake: Callable[[], None] | None = None
        self._lock = waits.MUTEX(threading.Lock())  # over the numbers here and in the parts
        self._number = 0
        self._writers: dict[int, SlotWriter] = {}
        self._parts: dict[int, _Part] = {}

    @property
    def durable(self) -> int:
        with self._lock:
            waiting = [part.asked for part in self._parts.values() if part.done < part.asked]
            return min(waiting) - 1 if waiting else self._number

    @property
    def failure(self) -> WalError | None:
        for writer in self._writers.values():
            if writer.failure is not None:
                return writer.failure
        return None

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        """Locks the slots (waits up to lockTimeout, blocking) and finds their ends.  Raises WalError."""
        if self._wake is not None:
            raise UsageError(f"{self.wal.location}: is open already; every connection needs a journal of its own")
        if container is not None and container != self.wal.subscription:
            raise UsageError(
                f"{self.wal.location}: the log of {self.wal.subscription!r}; connect as that, not {container!r}"
            )
        self._wake = wake
        try:
            for (topic, _), slot in self._slots.items():
                storage = self.wal.storage(slot, self._disk, self._settings.lease_s, apart=self._apart)
                self._writers[slot] = SlotWriter(storage, slot, topic, self._settings, self._changed)
        except BaseException:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()
            self._wake = None
            raise
        return self.wal.subscription

    def writer(self, slot: int) -> SlotWriter:
        """The slot's writer, once the journal is open; it takes rows after the link has attached."""
        try:
            return self._writers[slot]
        except KeyError:
            raise UsageError(f"{self.wal.location}: slot {slot} is not among those opened here") from None

    def publisher(self, address: str, name: str) -> PublisherJournal:
        raise UsageError(f"{self.wal.location}: a write-ahead log is for subscribers; publish with another journal")

    def slot_named(self, address: str, name: str) -> int:
        """The slot of this link.  Raises UsageError."""
        try:
            return self._slots[address, name]
        except KeyError:
            raise UsageError(
                f"{self.wal.location}: the log of subscription {self.wal.subscription!r}: no slot that was opened here "
                f"is that of link {name!r} of topic {address!r}"
            ) from None

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        slot = self.slot_named(address, name)
        writer = self.writer(slot)
        if slot in self._parts:
            # a link that is opened again: it presents the rows that it has appended, so they must be durable
            writer.drain()
        else:
            try:
                self._parts[slot] = _Part(self, writer, self.wal.slot(slot))
            except OSError as error:
                raise explain(error, writer.place, "reading the log's tail") from error
        return self._parts[slot]

    def sync(self) -> int:
        for part in self._parts.values():
            if part.dirty:
                with self._lock:
                    self._number += 1
                    part.asked = self._number
                part.dirty = False
                part.writer.note(part.write)
        return self._number

    def close(self) -> None:
        """Makes the appended rows durable, then releases the slots.  May block.  Raises the failure, if any."""
        for part in self._parts.values():
            part.note_settled(0.0)
        failure = self.failure
        for writer in self._writers.values():
            writer.close()
        failure = self.failure or failure
        self._writers.clear()
        self._parts.clear()
        if failure is not None:
            raise failure

    def _changed(self, writer: SlotWriter) -> None:
        if self._on_durable is not None:
            self._on_durable(writer)
        if writer.failure is not None and self._wake is not None:
            self._wake()


class _Part:
    """One link's part: `onceway.client.journal.SubscriberJournal`."""

    def __init__(self, journal: WalJournal, writer: SlotWriter, reader: SlotReader) -> None:
        self.writer = writer
        self.asked = 0  # the number of the last sync that has to write this part
        self.done = 0
        self.dirty = False
        self._journal = journal
        self._reader = reader
        self._document = writer.storage.document("link.json", DOCUMENTS)
        content = self._document.read()
        if content is None and writer.storage.was_fenced:
            raise WalDamaged(
                f"{self._document.path}: missing, though the log has been written; restore it from a copy: without "
                "it the network would take this for another subscription, and messages would be missed"
            )
        content = content or {"epoch": 0, "born": 0, "contact_us": 0, "timeout_s": 0.0, "settled_to": 0, "but": []}
        self._epoch: int = content["epoch"]
        self._born: int = content["born"]
        self._answered_born: int = content["born"]  # of an attach that was answered
        self._tried: int = content.get("tried", 0)  # the first attach, while none was answered
        self._contact_us: int = content["contact_us"]
        self._contact_mark: str = content.get("contact_mark", "")  # absent before the clock of the boot counted
        self._timeout_s: float = content["timeout_s"]
        self._known = writer.tail.end  # rows whose tags the link knows
        but: list[tuple[int, int]] = content["but"]
        settled_to: int = content["settled_to"]
        if settled_to > self._known:
            raise WalDamaged(
                f"{self._document.path}: rows up to {settled_to} were durable once, the log ends at row {self._known}; "
                f"{DAMAGE_REMEDY}"
            )
        self._load([*but, (settled_to, self._known)])

    @property
    def record(self) -> SubscriberRecord:
        return SubscriberRecord(
            epoch=self._epoch,
            born=self._answered_born,
            contact_us=clock.restore(self._contact_us, self._contact_mark),
            timeout_s=self._timeout_s,
            unsettled=dict.fromkeys(self.writer.unsettled.tags(), _ACCEPTED),
            tried=self._tried,
        )

    def _load(self, ranges: Iterable[tuple[int, int]]) -> dict[bytes, bytes | None]:
        """Reads the tags of these rows (ascending), notes them as unsettled and returns them as accepted."""
        loaded: dict[bytes, bytes | None] = {}
        for span in _spans((max(low, self.writer.start), high) for low, high in ranges):
            for first, batch in self._reader.stored(span[0][0], span[-1][1]):
                tags = batch.column(1).to_pylist()
                end = first + len(tags)
                for low, high in span:
                    if low < end and high > first:
                        low = max(low, first)
                        chosen = tags[low - first : high - first]
                        self.writer.unsettled.add(chosen, low)
                        loaded.update(dict.fromkeys(chosen, _ACCEPTED))
        return loaded

    # -- the link

    def attach(self, epoch: int, born: int) -> None:
        self._epoch, self._born = epoch, born
        self._tried = self._tried or epoch
        self.dirty = True

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        """Fences older processes off; returns the tags of rows that one of them has added since `record`."""
        # only a subscription whose attach was answered exists: resuming another one would be refused as broken
        self._answered_born = self._born
        self.dirty = True
        try:
            self.writer.fence(epoch)
        except WalError:
            return {}  # it is the journal's failure by now: the sync that credit waits for never completes
        known, self._known = self._known, self.writer.tail.end
        return self._load([(known, self._known)])

    def contact(self, wall_us: int, timeout_s: float) -> None:
        self._contact_us, self._contact_mark, self._timeout_s = wall_us, clock.mark(wall_us), timeout_s
        self.dirty = True

    # -- deliveries

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        """Writes nothing: accepted deliveries are durable with their rows."""
        if outcome != _ACCEPTED:
            raise UsageError(f"{self.writer.place}: rows of a write-ahead log can only be accepted")

    def settle(self, tags: Sequence[bytes]) -> None:
        self.writer.settle(tags)
        self.note_settled(SETTLED_EVERY_S)

    def close(self) -> None:
        """The subscription is closed for good; its rows stay, for Spark."""
        self.writer.settle(self.writer.unsettled.tags())
        self._born = self._answered_born = 0
        self.dirty = True

    # -- link.json

    def note_settled(self, within_s: float) -> None:
        self.writer.note(self.write, within_s)

    def write(self) -> None:
        """In the writer's thread.  Raises OSError."""
        number = self.asked
        settled_to, but = self.writer.settled()
        content: dict[str, Any] = {
            "epoch": self._epoch,
            "born": self._answered_born,
            "tried": self._tried,
            "contact_us": self._contact_us,
            "contact_mark": self._contact_mark,
            "timeout_s": self._timeout_s,
            "settled_to": settled_to,
            "but": [list(span) for span in but],
        }
        self._document.write(content)
        with self._journal._lock:
            self.done = max(self.done, number)
        if self._journal._wake is not None:
            self._journal._wake()


def _spans(ranges: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Groups of ranges that are so close that reading the rows between them is quicker than skipping them."""
    spans: list[list[tuple[int, int]]] = []
    for low, high in ranges:
        if low < high:
            if spans and low - spans[-1][-1][1] <= _NEAR:
                spans[-1].append((low, high))
            else:
                spans.append([(low, high)])
    return spans


# -- gaps


@dataclass(frozen=True, slots=True)
class Gap:
    """Messages may be missing between row at - 1 and row `at`.

    dropped: rows before it that may come twice.  noted_us: the wall clock, which tells gaps of one place apart.
    """

    at: int
    reason: str
    dropped: int = 0
    noted_us: int = field(default=0, compare=False)

    @classmethod
    def now(cls, at: int, reason: str, dropped: int = 0) -> Gap:
        return cls(at, reason, dropped, time.time_ns() // 1000)


@dataclass(slots=True)
class Gaps:
    """The gaps of one slot, ascending, and the `born` of its subscription.

    When the journal has another `born` than this file, a crash came between the attach and the writing of a gap.
    """

    born: int = 0
    known: tuple[Gap, ...] = ()

    def between(self, start: int, end: int) -> list[Gap]:
        """The gaps that rows start .. end - 1 cross, and those at start."""
        return [gap for gap in self.known if start <= gap.at < max(end, start + 1)]


class GapFile:
    """`gaps.json`: written by the slot's ingest, read by the driver."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._gaps = Gaps()

    def read(self) -> Gaps:
        content = self.document.read()
        if content is not None:
            try:
                self._gaps = Gaps(int(content["born"]), tuple(Gap(**gap) for gap in content["gaps"]))
            except (ValueError, KeyError, TypeError) as error:
                raise GAPS.damaged(self.document.path, error) from error
        return self._gaps

    def write(self, born: int, gaps: Sequence[Gap]) -> None:
        """Durable when it returns.  Raises OSError, WalError."""
        self.document.write({"born": born, "gaps": [asdict(gap) for gap in gaps]})
        self._gaps = Gaps(born, tuple(gaps))


class WatchingJournal(WalJournal):
    """A WalJournal whose slots have a gap file."""

    def __init__(
        self,
        wal: Wal,
        slots: Sequence[int],
        settings: WalSettings,
        on_durable: Callable[[SlotWriter], None],
        *,
        apart: bool = False,
    ) -> None:
        super().__init__(wal, slots, settings, on_durable, apart=apart)
        self.watches: dict[int, Watch] = {}  # by slot

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        slot = self.slot_named(address, name)
        writer = self.writer(slot)
        gaps = GapFile(writer.storage.document("gaps.json", GAPS))
        watch = Watch(super().subscriber(address, name), writer, gaps)
        self.watches[slot] = watch
        return watch


class Watch:
    """A slot's SubscriberJournal that compares the `born` of each attach with the gap file's.

    The journal learns it before credit is granted, in time to write the gap.
    """

    def __init__(self, part: SubscriberJournal, writer: SlotWriter, file: GapFile) -> None:
        self.contact, self.accept, self.settle, self.close = part.contact, part.accept, part.settle, part.close
        self._part = part
        self._writer = writer
        self._file = file
        self._born = part.record.born
        self._written: Gap | None = None  # since this attach

    @property
    def record(self) -> SubscriberRecord:
        return self._part.record

    def attach(self, epoch: int, born: int) -> None:
        self._born = born
        self._part.attach(epoch, born)

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        meanwhile = self._part.attached(epoch)
        known = self._file.read()
        self._written = None
        if known.born and known.born != self._born:
            self._written = Gap.now(self._writer.end, _CREATED_AGAIN)
            self._write([*known.known, self._written])
        elif known.born != self._born:
            self._write(known.known)
        return meanwhile

    def note_gap(self, report: SubscriptionGap) -> None:
        """The client reports the reason and how many rows may come twice, or a gap that `born` does not show."""
        known = [gap for gap in self._file.read().known if gap != self._written]
        one = self._written or Gap.now(self._writer.end, report.reason)
        # at the same time: a query may have told of it by this (`losses`)
        self._written = Gap(one.at, report.reason, report.dropped, one.noted_us)
        self._write([*known, self._written])

    def misses_nothing(self) -> None:
        """What came before this attach reaches the log in other slots."""
        self._written = None
        self._write(())

    def trimmed(self, start: int) -> None:
        """The log begins at row `start` now: gaps between removed rows no longer matter."""
        gaps = self._file.read()
        kept = [gap for gap in gaps.known if gap.at >= start]
        if len(kept) < len(gaps.known):
            # A gap that stays does no harm; a later trimming removes it.  The file's `born`, not ours: `attached` may
            # yet have to find a gap by the difference.
            with contextlib.suppress(OSError, WalError):
                self._file.write(gaps.born, kept)

    def _write(self, gaps: Sequence[Gap]) -> None:
        try:
            self._file.write(self._born, gaps)
        except OSError as error:
            # becomes the journal's failure: no credit is granted and no row is appended
            self._writer.fail_on(error, "writing a gap")
        except WalError as error:
            self._writer.fail(error)
