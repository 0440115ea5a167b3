"""The write-ahead log of the Spark source: what a subscriber has accepted, until Spark has committed it.

A directory (`walLocation`) holds `wal.json` (its manifest) and one directory for each slot; a slot is one topic's
subscriber link and has one writer, the ingest.  Rows are numbered 0, 1, 2 ... in each slot; Spark's offsets
are such numbers.  Read `frames` for the bytes, `fencing` for who may write and what readers may believe, `writing` and
`storage` for the writing side, `reading` for the other.  Nothing here knows Spark or the network.
"""

from __future__ import annotations

import os
import uuid as uuids
from collections.abc import Sequence
from dataclasses import dataclass

from onceway.spark.errors import WalError, WalForeign, explain
from onceway.spark.files import Disk, local_path
from onceway.spark.wal.fencing import DOCUMENTS, take_lock
from onceway.spark.wal.reading import SlotReader
from onceway.spark.wal.storage import Retention
from onceway.spark.wal.writing import SlotWriter, WalSettings

FORMAT = 1
MANIFEST = "wal.json"
_PROGRAM = "onceway write-ahead log"
_LOCK = "wal.lock"
_LOCK_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Wal:
    """A log's manifest: whose log it is, and the slot of each topic.  Needs no lock; cheap to make; picklable."""

    location: str  # an absolute path
    uuid: str
    subscription: str  # link name
    container: str  # container-id of its links
    slots: dict[int, str]  # slot -> topic

    @classmethod
    def open_or_create(
        cls,
        location: str,
        subscription: str,
        topics: Sequence[str],
        container: str | None = None,
        disk: Disk | None = None,
    ) -> Wal:
        """The log at `location`, with a slot for each of the topics; created where there is none.

        container: `onceway-spark-<uuid>` unless given, or what an existing log has.  Raises WalForeign (another
        subscription's, another program's, another format's), WalError (not a directory, no permission, no room).
        """
        path = path_of(location)
        disk = disk or Disk()
        try:
            if not os.path.isdir(path):
                disk.make_directory(path)
                disk.sync_directory(os.path.dirname(path))
            lock = take_lock(os.path.join(path, _LOCK), _LOCK_TIMEOUT_S)
            try:
                return cls._make(disk, path, subscription, topics, container)
            finally:
                lock.release()
        except OSError as error:
            raise explain(error, path, "making the log") from error

    @classmethod
    def _make(cls, disk: Disk, path: str, subscription: str, topics: Sequence[str], container: str | None) -> Wal:
        manifest = os.path.join(path, MANIFEST)
        wal = cls._read(path)
        if wal is None:
            strange = sorted(name for name in os.listdir(path) if name not in (_LOCK, f"{MANIFEST}.new"))
            if strange:
                raise WalForeign(
                    f"{path}: holds {strange[0]!r} and no {MANIFEST}; give a new or empty directory as walLocation, or "
                    f"if this was a log, restore its {MANIFEST}: without it nobody knows whose rows these are"
                )
            uuid = str(uuids.uuid4())
            wal = cls(path, uuid, subscription, container or f"onceway-spark-{uuid}", {})
        elif wal.subscription != subscription:
            raise WalForeign(
                f"{manifest}: the log of subscription {wal.subscription!r}, not of {subscription!r}; give each "
                "subscription a walLocation of its own"
            )
        elif container is not None and wal.container != container:
            raise WalForeign(
                f"{manifest}: the log of container {wal.container!r}, not of {container!r}: with another container-id "
                "the network would know it as another subscription"
            )
        slots = dict(wal.slots)
        for topic in topics:
            if topic not in slots.values():
                slots[max(slots, default=-1) + 1] = topic
        if slots != wal.slots or not wal.slots:
            wal = cls(path, wal.uuid, wal.subscription, wal.container, slots)
            content = {
                "program": _PROGRAM,
                "format": FORMAT,
                "uuid": wal.uuid,
                "subscription": wal.subscription,
                "container": wal.container,
                "slots": {str(number): topic for number, topic in slots.items()},
            }
            DOCUMENTS.write(manifest, content, disk)
        return wal

    @classmethod
    def open(cls, location: str) -> Wal:
        """The existing log.  Raises WalForeign where there is none."""
        path = path_of(location)
        try:
            wal = cls._read(path)
        except OSError as error:
            raise explain(error, path, "opening the log") from error
        if wal is None:
            raise WalForeign(
                f"{path}: no write-ahead log (there is no {MANIFEST}); give the walLocation that a query reads with"
            )
        return wal

    @classmethod
    def _read(cls, path: str) -> Wal | None:
        manifest = os.path.join(path, MANIFEST)
        content = DOCUMENTS.read(manifest)
        if content is None:
            return None
        if content.get("program") != _PROGRAM:
            raise WalForeign(f"{manifest}: another program's file; give a new or empty directory as walLocation")
        if content.get("format") != FORMAT:
            raise WalForeign(
                f"{manifest}: a log of format {content.get('format')}, this onceway reads {FORMAT}; let the query run "
                "to its end with the onceway that wrote it, or use that one"
            )
        slots = {int(number): str(topic) for number, topic in content["slots"].items()}
        return cls(path, content["uuid"], content["subscription"], content["container"], slots)

    def slot(self, number: int) -> SlotReader:
        return SlotReader(self.location, number, self.slots[number], self.uuid)

    def slot_of(self, topic: str) -> int:
        for number, known in self.slots.items():
            if known == topic:
                return number
        raise WalForeign(f"{self.location}: no slot for topic {topic!r}; it has {', '.join(self.slots.values())}")


def path_of(location: str) -> str:
    """The absolute path of a path or a `file:` URL.  Raises WalError for another URL."""
    path = local_path(location) if location else None
    if path is None:
        raise WalError(
            f"walLocation {location!r}: not a path; it has to be a directory on a file system with flock that the "
            "driver and its executors share (a local disk for local[*], NFS 4 or the like for a cluster), or "
            "transport=inline with a disk of the driver's"
        )
    return path


__all__ = ["Retention", "SlotReader", "SlotWriter", "Wal", "WalSettings"]
