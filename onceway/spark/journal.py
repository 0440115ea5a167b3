"""The client's journal over write-ahead logs: deliveries are durable with their data, so an accept writes nothing.

For each topic a slot of the log: `WalJournal.writer(topic)` takes the rows, and the link's part of the journal knows
their tags.  What a restarted process tells the network as accepted, it reads from the log's own tail: every row that
was not settled as far as is known, so that a repeat is accepted and not appended.  What the network does not know any
more it leaves out of its answer, and it is forgotten.

The link itself needs a few words that are not in the log (epoch, born, when the network was last heard of): `link.json`
in the slot, with which rows were settled up to when.  Being behind with the latter does no harm.

The order in a process's life (`onceway.spark.wal.fencing`): `open` locks; `subscriber` reads the tail; the link
attaches, which takes it away from any older process; `attached` fences that one off and reads what it has added
meanwhile; then credit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from amqp10.outcomes import ACCEPTED, write_state
from onceway.client.journal import PublisherJournal, SubscriberJournal, SubscriberRecord
from onceway.errors import UsageError
from onceway.spark.wal import SlotReader, SlotWriter, Wal, WalDamaged, WalError, WalSettings
from onceway.spark.wal.disk import Disk, explain
from onceway.spark.wal.documents import read_document, write_document
from onceway.spark.wal.indexing import DAMAGED

SETTLED_EVERY_S: Final = 2.0  # how far what is known to be settled may lag behind
_NEAR: Final = 10_000  # rows: about two frames
_ACCEPTED: Final = write_state(ACCEPTED)


class WalJournal:
    """`onceway.client.journal.Journal` for the subscriber links of one ingest process, one for each topic.

    Closed by the connection, but not after a failure: then the process ends, or calls `close` itself.
    """

    def __init__(
        self,
        wal: Wal,
        topics: Sequence[str] | None = None,
        settings: WalSettings | None = None,
        on_durable: Callable[[SlotWriter], None] | None = None,
        disk: Disk | None = None,
    ) -> None:
        """topics: those this process receives (default: all of the log); their slots are locked by `open`.

        on_durable: called from a writer's thread when its `durable` or `failure` has changed.
        """
        self.wal = wal
        self._topics = list(wal.slots.values()) if topics is None else list(topics)
        self._settings = settings or WalSettings()
        self._on_durable = on_durable
        self._disk = disk or Disk()
        self._wake: Callable[[], None] | None = None
        self._lock = threading.Lock()  # over numbers and what the parts remember
        self._number = 0
        self._writers: dict[str, SlotWriter] = {}
        self._parts: dict[str, _Part] = {}

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
        """Locks the slots (waits up to lockTimeout, blocking) and looks where they end.  Raises WalError."""
        if self._wake is not None:
            raise UsageError(f"{self.wal.location}: is open already; every connection needs a journal of its own")
        if container is not None and container != self.wal.container:
            raise UsageError(
                f"{self.wal.location}: the log of container {self.wal.container!r}; connect as that, not {container!r}"
            )
        self._wake = wake
        try:
            for topic in self._topics:
                slot = self.wal.slot_of(topic)
                directory = os.path.join(self.wal.location, str(slot))
                writer = SlotWriter(directory, slot, topic, self.wal.uuid, self._settings, self._changed, self._disk)
                self._writers[topic] = writer
        except BaseException:
            for writer in self._writers.values():
                writer.close()
            self._writers.clear()
            self._wake = None
            raise
        return self.wal.container

    def writer(self, topic: str) -> SlotWriter:
        """The topic's writer, once the journal is open; it takes rows when the link has been attached."""
        try:
            return self._writers[topic]
        except KeyError:
            raise UsageError(f"{self.wal.location}: topic {topic!r} is not among those opened here") from None

    def publisher(self, address: str, name: str) -> PublisherJournal:
        raise UsageError(f"{self.wal.location}: a write-ahead log is for subscribers; publish with another journal")

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        if name != self.wal.subscription:
            raise UsageError(f"{self.wal.location}: the log of subscription {self.wal.subscription!r}, not {name!r}")
        writer = self.writer(address)
        if address in self._parts:
            # a link that is opened again: what its last life appended has to be as durable as it will be said to be
            writer.drain()
        else:
            try:
                self._parts[address] = _Part(self, writer, self.wal.slot(writer.slot), self._disk)
            except OSError as error:
                raise explain(error, writer.directory, "reading the log's tail") from error
        return self._parts[address]

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
        """Makes durable what was appended, then lets go of the slots.  May block.  Raises the failure, if any."""
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

    def __init__(self, journal: WalJournal, writer: SlotWriter, reader: SlotReader, disk: Disk) -> None:
        self.writer = writer
        self.asked = 0  # the number of the last sync that this part had something for
        self.done = 0
        self.dirty = False
        self._journal = journal
        self._reader = reader
        self._disk = disk
        self._path = os.path.join(writer.directory, "link.json")
        content = read_document(self._path)
        if content is None and os.path.exists(os.path.join(writer.directory, "epoch")):
            raise WalDamaged(
                f"{self._path}: missing, though the log has been written; restore it from a copy: without it the "
                "network would take this for another subscription, and messages would be missed"
            )
        content = content or {"epoch": 0, "born": 0, "contact_us": 0, "timeout_s": 0.0, "settled_to": 0, "but": []}
        self._epoch: int = content["epoch"]
        self._born: int = content["born"]
        self._answered_born: int = content["born"]  # of an attach that was answered
        self._contact_us: int = content["contact_us"]
        self._timeout_s: float = content["timeout_s"]
        self._known = writer.tail.end  # rows whose tags the link knows
        but: list[tuple[int, int]] = content["but"]
        settled_to: int = content["settled_to"]
        if settled_to > self._known:
            raise WalDamaged(
                f"{self._path}: rows up to {settled_to} were durable once, the log ends at row {self._known}; {DAMAGED}"
            )
        self._load([*but, (settled_to, self._known)])

    @property
    def record(self) -> SubscriberRecord:
        return SubscriberRecord(
            epoch=self._epoch,
            born=self._answered_born,
            contact_us=self._contact_us,
            timeout_s=self._timeout_s,
            unsettled=dict.fromkeys(self.writer.unsettled.tags(), _ACCEPTED),
        )

    def _load(self, ranges: Iterable[tuple[int, int]]) -> dict[bytes, bytes | None]:
        """The tags of these rows (ascending), as accepted, and kept in mind as not settled."""
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
        self.dirty = True

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        """Fences older processes off; returns the tags of what one of them has added since `record`."""
        # only a subscription that was answered exists: resuming another one would be told that it is broken
        self._answered_born = self._born
        self.dirty = True
        try:
            self.writer.fence(epoch)
        except WalError:
            return {}  # the journal's failure by now: the sync that credit waits for never comes
        known, self._known = self._known, self.writer.tail.end
        return self._load([(known, self._known)])

    def contact(self, wall_us: int, timeout_s: float) -> None:
        self._contact_us, self._timeout_s = wall_us, timeout_s
        self.dirty = True

    # -- deliveries

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        """Nothing: they are durable with their rows, or the application would not accept them."""
        if outcome != _ACCEPTED:
            raise UsageError(f"{self.writer.directory}: what is in a write-ahead log can only be accepted")

    def settle(self, tags: Sequence[bytes]) -> None:
        self.writer.settle(tags)
        self.note_settled(SETTLED_EVERY_S)

    def close(self) -> None:
        """The subscription is over for good; its rows stay, for Spark."""
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
            "contact_us": self._contact_us,
            "timeout_s": self._timeout_s,
            "settled_to": settled_to,
            "but": [list(span) for span in but],
        }
        write_document(self._disk, self._path, content)
        with self._journal._lock:
            self.done = max(self.done, number)
        if self._journal._wake is not None:
            self._journal._wake()


def _spans(ranges: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Ranges that lie so near each other that reading what is between them is quicker than leaving it out."""
    spans: list[list[tuple[int, int]]] = []
    for low, high in ranges:
        if low < high:
            if spans and low - spans[-1][-1][1] <= _NEAR:
                spans[-1].append((low, high))
            else:
                spans.append([(low, high)])
    return spans
