"""The write-ahead log of the Spark source: what a subscriber has accepted, until Spark has committed it.

A directory (`walLocation`) holds `wal.json` (its manifest) and one directory for each slot; a slot is one topic's
subscriber link, or one of several that share its messages (`partitions`), and has one writer, the ingest.  Rows are
numbered 0, 1, 2 ... in each slot; Spark's offsets are such numbers.  Read `frames` for the bytes, `fencing` for who may
write and what readers may believe, `writing` and `storage` for the writing side, `reading` for the other.  Nothing here
knows Spark or the network.
"""

from __future__ import annotations

import os
import re
import secrets
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from onceway.spark.errors import WalError, WalForeign, explain, fenced_off
from onceway.spark.files import Disk, Documents, is_bucket, local_path, locked_by
from onceway.spark.wal.bucket import BucketReader, BucketStorage, ObjectDocument
from onceway.spark.wal.documents import Document, FileDocument
from onceway.spark.wal.fencing import DOCUMENTS, sync_marks
from onceway.spark.wal.leases import LASTS_S, holder_of
from onceway.spark.wal.objects import objects_at
from onceway.spark.wal.reading import DirectoryReader, SlotReader
from onceway.spark.wal.storage import DirectoryStorage, Retention, Storage
from onceway.spark.wal.writing import SlotWriter, WalSettings

FORMAT = 2
MANIFEST = "wal.json"
_PROGRAM = "onceway write-ahead log"
_READER = "reader-"
_READER_NAME = re.compile(r"reader-(.+)\.json")


class Step(StrEnum):
    """How far a change of partitions has come with a slot that was there before."""

    DRAINING = "draining"  # it receives for the last time
    DRAINED = "drained"  # nothing more is appended: only its subscription is left
    ENDED = "ended"


@dataclass(frozen=True)
class Before:
    """What a slot was until the number of partitions changed: partition `partition` of `of`.

    first: where its rows begin that the later partitions may get as well.
    """

    partition: int
    of: int
    first: int
    step: Step = Step.DRAINING


@dataclass(frozen=True)
class Wal:
    """A log's manifest: whose log it is, and the slot of each topic.  Needs no lock; cheap to make; picklable."""

    location: str  # an absolute path
    uuid: str
    subscription: str  # also the container-id of its links
    slots: dict[int, str]  # slot -> topic; the slots of one topic are numbered in the order of its partitions
    partitions: int = 1  # of each topic
    before: dict[int, Before] = field(default_factory=dict)  # slots of an earlier number of partitions, by slot
    changer: str = ""  # names the process that carries out the present change

    @classmethod
    def open_or_create(
        cls,
        location: str,
        subscription: str,
        topics: Sequence[str],
        disk: Disk | None = None,
        partitions: int = 1,
        *,
        change: bool = False,
    ) -> Wal:
        """The log at `location`, with slots for the partitions of each topic; created where there is none.

        change: begins to change the number of partitions (`in_change`, `change_to`) where the log has another one.
        Raises WalForeign (another subscription's, another program's, another format's), WalError (not a directory, no
        permission, no room).
        """
        path = _place(location)
        disk = disk or Disk()
        try:
            if not is_bucket(path) and not os.path.isdir(path):
                disk.make_directory(path)
                disk.sync_directory(os.path.dirname(path))
            document = _document(path, MANIFEST, DOCUMENTS, disk)
            while True:
                wal, content = cls._make(document, path, subscription, topics, partitions, change)
                if content is None or document.swap(content):
                    return wal
        except OSError as error:
            raise explain(error, path, "making the log") from error

    @classmethod
    def _make(
        cls,
        document: Document,
        location: str,
        subscription: str,
        topics: Sequence[str],
        partitions: int,
        change: bool,
    ) -> tuple[Wal, dict[str, Any] | None]:
        """The log, and what is to be written, if anything."""
        manifest = document.path
        content = document.read()
        if content is None:
            if strange := _strange(location):
                raise WalForeign(
                    f"{location}: holds {min(strange)!r} and no {MANIFEST}; give a new or empty place as walLocation, "
                    f"or if this was a log, restore its {MANIFEST}: without it nobody knows whose rows these are"
                )
            # the network knows it by this name alone, so that a log that is lost leaves nobody whom no log can name
            wal = cls(location, str(uuids.uuid4()), subscription, {}, partitions)
        else:
            wal = cls._of(content, location, manifest)
        if wal.subscription != subscription:
            raise WalForeign(
                f"{manifest}: the log of subscription {wal.subscription!r}, not of {subscription!r}; give each "
                "subscription a walLocation of its own"
            )
        if wal.partitions != partitions:
            if wal.in_change():
                raise WalForeign(
                    f"{manifest}: the log is being changed to partitions={wal.partitions}; start the query once with "
                    f"this number, until it receives, before you change it to {partitions}"
                )
            if not change:
                raise WalForeign(
                    f"{manifest}: the log has partitions={wal.partitions}, not {partitions}: a publisher's messages "
                    "would go on in another partition, and what waits in the old one would come after them.  Keep the "
                    "number, or start the query once with changePartitions=true (and ingest=driver, without receivers "
                    "apart), which drains the old partitions first"
                )
            wal = wal._before_change(partitions)
            topics = [*dict.fromkeys(wal.slots.values()), *topics]
        slots = dict(wal.slots)
        current = {topic for slot, topic in slots.items() if slot not in wal.before}
        for topic in dict.fromkeys(topics):
            if topic not in current:
                first = max(slots, default=-1) + 1
                slots.update(dict.fromkeys(range(first, first + partitions), topic))
        if slots == wal.slots and content is not None:
            return wal, None
        wal = replace(wal, slots=slots)
        return wal, wal._content()

    def _before_change(self, partitions: int) -> Wal:
        """All slots receive for the last time."""
        current = [slot for slot in self.slots if slot not in self.before]
        ended = {slot: Before(self.partition_of(slot), self.partitions, self._unsettled(slot)) for slot in current}
        return replace(self, partitions=partitions, before={**self.before, **ended}, changer="")

    def _unsettled(self, slot: int) -> int:
        """The first row that the network may not have settled: it shows such a message to new subscriptions too."""
        link = self.document(f"{slot}/link.json", DOCUMENTS).read() or {"settled_to": 0, "but": []}
        return min(int(row) for row in (link["settled_to"], *(low for low, _ in link["but"])))

    def in_change(self, *steps: Step) -> list[int]:
        """The slots that the present change of partitions is about; with steps, if it has come to one of these."""
        return [slot for slot, one in self.before.items() if one.step in (steps or (Step.DRAINING, Step.DRAINED))]

    def take_change(self) -> Wal:
        """Who calls this carries out the change of partitions; from now on, no process that did so before can go on.

        So where one has written that a step is done, no other had begun to do it again.
        """
        return self._swap(lambda wal: replace(wal, changer=secrets.token_hex(8)))

    def change_to(self, step: Step) -> Wal:
        """The change of partitions has come so far.  Durable.  Raises WalFenced where another process has taken it."""
        if step is Step.DRAINED and not is_bucket(self.location):
            for slot in self.in_change():
                # nobody will recover it after a power cut, so its end must be on the disk
                sync_marks(os.path.join(self.location, str(slot)))

        def done(wal: Wal) -> Wal:
            if wal.changer != self.changer:
                raise fenced_off(f"{self.location}/{MANIFEST}")
            return replace(
                wal, before=wal.before | {slot: replace(wal.before[slot], step=step) for slot in wal.in_change()}
            )

        return self._swap(done)

    def _swap(self, change: Callable[[Wal], Wal]) -> Wal:
        document = self.document(MANIFEST, DOCUMENTS)
        while True:
            content = document.read()
            assert content is not None
            wal = change(self._of(content, self.location, document.path))
            if document.swap(wal._content()):
                return wal

    def _content(self) -> dict[str, Any]:
        before = {str(slot): [one.partition, one.of, one.first, one.step] for slot, one in self.before.items()}
        return {
            "program": _PROGRAM,
            "format": FORMAT,
            "uuid": self.uuid,
            "subscription": self.subscription,
            "partitions": self.partitions,
            "slots": {str(number): topic for number, topic in self.slots.items()},
            "before": before,
            "changer": self.changer,
        }

    @classmethod
    def open(cls, location: str) -> Wal:
        """The existing log.  Raises WalForeign where there is none."""
        path = _place(location)
        document = _document(path, MANIFEST, DOCUMENTS)
        try:
            content = document.read()
        except OSError as error:
            raise explain(error, path, "opening the log") from error
        if content is None:
            raise WalForeign(
                f"{path}: no write-ahead log (there is no {MANIFEST}); give the walLocation that a query reads with"
            )
        return cls._of(content, path, document.path)

    @classmethod
    def _of(cls, content: Mapping[str, Any], location: str, manifest: str) -> Wal:
        if content.get("program") != _PROGRAM:
            raise WalForeign(f"{manifest}: another program's file; give a new or empty directory as walLocation")
        if content.get("format") != FORMAT:
            raise WalForeign(
                f"{manifest}: a log of format {content.get('format')}, this onceway reads {FORMAT}; let the query run "
                "to its end with the onceway that wrote it, or use that one"
            )
        return cls(
            location,
            content["uuid"],
            content["subscription"],
            {int(number): str(topic) for number, topic in content["slots"].items()},
            content["partitions"],
            {
                int(slot): Before(partition, of, first, Step(step))
                for slot, (partition, of, first, step) in content["before"].items()
            },
            content.get("changer", ""),  # logs of this format from before there was one lack it
        )

    def document(self, name: str, documents: Documents) -> Document:
        """A document of the log: `reader-query.json`, `0/gaps.json`."""
        return _document(self.location, name, documents)

    def slot(self, number: int) -> SlotReader:
        kind = BucketReader if is_bucket(self.location) else DirectoryReader
        return kind(self.location, number, self.slots[number], self.uuid)

    def storage(
        self, number: int, disk: Disk | None = None, lease_s: float = LASTS_S, *, apart: bool = False
    ) -> Storage:
        """What the slot's writer writes to.  apart: it is none of a query's own (`onceway ingest`)."""
        uuid = bytes.fromhex(self.uuid.replace("-", ""))
        if is_bucket(self.location):
            reader = BucketReader(self.location, number, self.slots[number], self.uuid)
            return BucketStorage(reader, uuid, lease_s, "onceway ingest" if apart else "")
        return DirectoryStorage(os.path.join(self.location, str(number)), uuid, disk, lease_s, apart=apart)

    def holder(self, number: int) -> str:
        """Who holds the slot's lease, for people; empty: nobody, or a query on a directory, which needs none."""
        return holder_of(self.document(f"{number}/lease.json", DOCUMENTS))

    def locked_by(self, number: int) -> str:
        """The process of a query that receives into the slot's directory, for people; empty: nobody."""
        return "" if is_bucket(self.location) else locked_by(os.path.join(self.location, str(number), "lock"))

    def readers(self) -> list[str]:
        """The names of the queries that have committed something (`reader`)."""
        if is_bucket(self.location):
            names = objects_at(self.location).after(_READER, "")
        else:
            names = os.listdir(self.location)
        found = [_READER_NAME.fullmatch(name) for name in names]
        return sorted(match[1] for match in found if match)

    def slots_of(self, topic: str) -> list[int]:
        """In the order of partitions.  Raises WalForeign where there is no such topic."""
        found = [number for number, known in sorted(self.slots.items()) if known == topic and number not in self.before]
        if not found:
            known = ", ".join(dict.fromkeys(self.slots.values()))
            raise WalForeign(f"{self.location}: no slot for topic {topic!r}; it has {known}")
        return found

    def partition_of(self, slot: int) -> int:
        return self.before[slot].partition if slot in self.before else self.slots_of(self.slots[slot]).index(slot)

    def partitions_of(self, slot: int) -> int:
        """How many its topic has, or had when this was one of them."""
        return self.before[slot].of if slot in self.before else self.partitions

    def repeats(self, slot: int) -> set[bytes]:
        """Tags of rows in slots before a change: the slot's subscription, which was there already, gets them too."""
        tags: set[bytes] = set()
        for other, ended in self.before.items():
            if self.slots[other] == self.slots[slot] and slot not in self.before:
                reader = self.slot(other)
                for _, batch in reader.stored(max(ended.first, reader.start()), reader.end()):
                    tags.update(batch.column(1).to_pylist())
        return tags

    def link_of(self, slot: int) -> str:
        """The link name of the slot's subscription."""
        if (partitions := self.partitions_of(slot)) == 1:
            return self.subscription
        return f"{self.subscription}.{self.partition_of(slot)}-of-{partitions}"


def _document(location: str, name: str, documents: Documents, disk: Disk | None = None) -> Document:
    if is_bucket(location):
        return ObjectDocument(objects_at(location), location, name, documents)
    return FileDocument(os.path.join(location, name), documents, disk)


def _place(location: str) -> str:
    return location.rstrip("/") if is_bucket(location) else path_of(location)


def _strange(location: str) -> list[str]:
    """Some of what is there besides a manifest, or one that was never finished."""
    names = objects_at(location).after("", "") if is_bucket(location) else os.listdir(location)
    return [name for name in names if not name.startswith(f"{MANIFEST}.")]


def path_of(location: str) -> str:
    """The absolute path of a path or a `file:` URL.  Raises WalError for another URL."""
    path = local_path(location) if location else None
    if path is None:
        raise WalError(
            f"walLocation {location!r}: not a path; it has to be a directory on a file system with flock that the "
            "driver and its executors share (a local disk for local[*], NFS 4 or the like for a cluster), or s3://bucket/"
            "prefix, or transport=inline with a disk of the driver's"
        )
    return path


__all__ = ["Retention", "SlotReader", "SlotWriter", "Wal", "WalSettings"]
