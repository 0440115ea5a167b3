"""An outbox: a directory that driver and executors share, from which each batch is published exactly once.

    outbox.json                     which outbox this is, and whose
    lock                            held (flock) by the one process that commits
    journal                         epochs and outcomes (`journal`)
    lock-3, journal-3               the same of the third publisher beside it, a task (`onceway.spark.executors`)
    batch-7/3-12-a1b2c3d4.arrow     staged by executors (`staging`)
    batch-7.json                    the manifest: which of these files count, and the number of each message
    batch-7.done                    the outcome of the batch

A batch is decided when its manifest appears, which happens atomically and only once.  From then on (batch, file, row)
is a number under a publisher of its topic, whichever process publishes it and however often.  Files staged later are
ignored.  The next batch is decided when this one is done.  `publishing` does the publishing; this module knows
neither network nor Spark.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceway.spark.errors import OutboxBehind, OutboxError, OutboxLocked, outbox_errors
from onceway.spark.files import Documents, Lock, LockHeld, remove_unfinished
from onceway.spark.sink.journal import OutboxJournal
from onceway.spark.sink.staging import Run, StagedFile

VERSION: Final = 1
SHARED_VERSION: Final = 2  # with publishers beside the driver
WRITES: Final = "batch writes"
IDENTIFIED: Final = "write-"
_DOCUMENT_NAMES: Final = ("outbox.", "batch-", "job-", IDENTIFIED)
_DOCUMENTS: Final = Documents(OutboxError, "restore the whole directory, or give an empty outboxLocation")
_STAGING_S: Final = 86_400.0  # longer than a job takes to stage its rows
_NAME: Final = re.compile(r"batch-\d+|job-[0-9a-f]+|write-[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One decided batch: which staged files count, and the number of each of their messages.

    The document lists topics with the number of their first message, and files with their runs (`staging`).  Numbers
    continue from run to run and from file to file.  What other publishers than the driver publish is in shares, each
    with numbers of its own.
    """

    name: str
    files: tuple[StagedFile, ...]
    firsts: dict[str, int]  # topic -> number of its first message
    publisher: int = 0  # whose numbers these are; 0: the driver's
    shares: tuple[Manifest, ...] = ()

    @property
    def parts(self) -> tuple[Manifest, ...]:
        """By publisher: the driver's, and the shares."""
        return (self, *self.shares)

    @property
    def rows(self) -> int:
        return sum(file.rows for part in self.parts for file in part.files)

    def runs(self, directory: Path) -> dict[str, list[Run]]:
        """By topic, in the order of partitions and rows."""
        found: dict[str, list[Run]] = {}
        following = dict(self.firsts)
        for file in self.files:
            for index, (topic, rows) in enumerate(file.runs):
                found.setdefault(topic, []).append(Run(following[topic], rows, directory / file.name, index))
                following[topic] += rows
        return found

    def ends(self) -> dict[str, int]:
        """By topic, the number after its last message."""
        ends = dict(self.firsts)
        for file in self.files:
            for topic, rows in file.runs:
                ends[topic] += rows
        return ends

    def document(self, outbox: str) -> dict[str, Any]:
        """outbox: the uuid of the outbox that the batch belongs to."""
        topics = list(self.firsts)
        following = dict(self.firsts)
        files = []
        for file in self.files:
            firsts = {topic: following[topic] for topic, _ in file.runs}
            for topic, rows in file.runs:
                following[topic] += rows
            runs = [[topics.index(topic), rows] for topic, rows in file.runs]
            files.append({"name": file.name, "size": file.size, "rows": file.rows, "first": firsts, "runs": runs})
        document = {
            "version": VERSION,
            "outbox": outbox,
            "batch": self.name,
            "topics": [{"topic": topic, "first": self.firsts[topic]} for topic in topics],
            "files": files,
        }
        if self.shares:
            document["shares"] = [{"publisher": one.publisher, **one.document(outbox)} for one in self.shares]
        return document

    @classmethod
    def of(cls, name: str, document: Mapping[str, Any]) -> Manifest:
        topics = [entry["topic"] for entry in document["topics"]]
        files = tuple(
            StagedFile(file["name"], file["size"], tuple((topics[index], rows) for index, rows in file["runs"]))
            for file in document["files"]
        )
        firsts = {entry["topic"]: entry["first"] for entry in document["topics"]}
        shares = tuple(cls.of(name, share) for share in document.get("shares", ()))
        return cls(name, files, firsts, document.get("publisher", 0), shares)


class Outbox:
    """The directory `location`, which need not exist yet."""

    def __init__(self, location: str) -> None:
        self.location = Path(location)
        self.uuid = ""
        self.owner = ""
        self.last = -1  # the query's last batch that is done
        self.publishers = 0  # beside the driver, at most so far

    # -- for executors

    def directory(self, name: str) -> Path:
        """Where the files of a batch are staged."""
        return self.location / name

    def decided(self, name: str) -> bool:
        """Its manifest exists: files staged from now on would be ignored."""
        return self._manifest_path(name).exists()

    def discard(self, name: str, files: Iterable[StagedFile]) -> None:
        """Removes staged files that nobody needs, unless a manifest may name them."""
        if not self.decided(name):
            for file in files:
                (self.directory(name) / file.name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it holds other attempts' files, or does not exist
                self.directory(name).rmdir()

    # -- for the driver, in `held`

    def published(self, name: str) -> bool:
        """It is done, though its manifest may have been removed since."""
        if self.decided(name):
            return self._done_path(name).exists()
        number = _number_of(name)
        return number is not None and number <= self.last

    @contextlib.contextmanager
    def held(self, owner: str, timeout_s: float) -> Iterator[None]:
        """Opens it for this process alone; owner: `query ...`, or WRITES.

        Raises OutboxLocked after timeout_s, OutboxError where it is another's, damaged, or cannot be written.
        """
        with outbox_errors(self.location):
            self.location.mkdir(parents=True, exist_ok=True)
        with self._locked("lock", timeout_s):
            with outbox_errors(self.location):
                remove_unfinished(self.location, _DOCUMENT_NAMES)  # not a journal's: its own lock guards that one
                self._identify(owner)
            yield

    @contextlib.contextmanager
    def share(self, publisher: int, timeout_s: float) -> Iterator[OutboxJournal]:
        """The journal of a publisher beside the driver, for this process alone.

        Raises OutboxLocked after timeout_s, OutboxError.
        """
        with self._locked(f"lock-{publisher}", timeout_s):
            with outbox_errors(self.location):
                identity = _DOCUMENTS.read(self._identity_path)
            if identity is None:
                raise OutboxError(
                    f"{self._identity_path}: not there; outboxLocation must be one directory for driver and executors, "
                    "on a shared POSIX file system"
                )
            self._know(identity)
            journal = self.journal(publisher)
            try:
                yield journal
            finally:
                journal.release()

    @contextlib.contextmanager
    def _locked(self, name: str, timeout_s: float) -> Iterator[None]:
        with outbox_errors(self.location):
            try:
                lock = Lock(self.location / name, timeout_s)
            except LockHeld as held:
                raise OutboxLocked(
                    f"{self.location}: {held.holder} publishes from this outbox; give each query an outboxLocation of "
                    f"its own, or stop the other one (waited {timeout_s:g} s, lockTimeout)"
                ) from None
        try:
            yield
        finally:
            lock.release()

    def journal(self, publisher: int = 0) -> OutboxJournal:
        path = self.location / (f"journal-{publisher}" if publisher else "journal")
        used = publisher <= self.publishers if publisher else self._names(".json")
        if not path.exists() and used:
            raise OutboxError(
                f"{path}: is missing, though batches were published from this outbox; restore it with the whole "
                "directory, or give the query an empty outboxLocation and check what of its last batch has arrived"
            )
        return OutboxJournal(path, self.uuid)

    def check_follows(self, name: str, checkpoint: str | None) -> None:
        """Raises OutboxBehind where the query has completed batches that this outbox does not know."""
        number = _number_of(name)
        if number is None or number <= self.last + 1:
            return
        known = "has published nothing yet" if self.last < 0 else f"has published batches up to {self.last} only"
        raise OutboxBehind(
            f"{self.location}: this outbox {known}, and the query is at batch {number}, by its checkpoint"
            f"{f' {checkpoint}' if checkpoint else ''}: the outbox that it had is lost, lies elsewhere, or was "
            f"restored from an older copy.  Batch {number} may have been published from that one, and would be "
            "published again.  Give the query the outboxLocation that belongs to its checkpoint; where that is lost, "
            "or the query had another sink, start it once with onMissingBatches=ignore: it continues with this one"
        )

    def decide(
        self,
        name: str,
        files: Sequence[StagedFile],
        journal: OutboxJournal,
        publishers: int = 0,
        timeout_s: float = 0.0,
    ) -> Manifest:
        """Creates the batch's manifest, or reads the existing one; numbers continue after the journals' last.

        publishers: beside the driver, who share the partitions; timeout_s: how long to wait for one of an earlier life.
        """
        if not self.decided(name):
            with outbox_errors(self.location):
                self._check_staged(name, files)
                shares = self._shares(name, files, publishers, timeout_s)
                manifest = Manifest(name, *_numbered([] if publishers else files, journal), shares=shares)
                _DOCUMENTS.create(self._manifest_path(name), manifest.document(self.uuid))
        return self.read(name)

    def unfinished(self) -> list[Manifest]:
        """Batches that are decided and not done: at most one, unless locks do not work."""
        return [self.read(name) for name in sorted(self._names(".json") - self._names(".done"))]

    def finish(self, manifest: Manifest, tallies: Mapping[str, Mapping[str, int]], *, keep_files: bool) -> None:
        """Marks a batch done.  tallies: by topic, how many rows have which outcome."""
        with outbox_errors(self.location):
            document = {"batch": manifest.name, "rows": manifest.rows, "topics": tallies, "at": time.time()}
            number = _number_of(manifest.name)
            if number is not None and number > self.last:
                # before `done`: a batch that is done can be cleaned, and must be known even then
                self.last = number
                self._write_identity()
            _DOCUMENTS.create(self._done_path(manifest.name), document)
            if not keep_files:
                shutil.rmtree(self.directory(manifest.name), ignore_errors=True)

    def clean(self, retention_s: float) -> None:
        """Removes the files of batches that were done longer ago, and of attempts that died.

        The manifest of a write with a `writeId` stays: a repeat may come after a year.
        """
        now = time.time()
        done = self._names(".done")
        numbers = sorted(number for name in done if (number := _number_of(name)) is not None)
        batches = [f"batch-{number}" for number in numbers]
        with outbox_errors(self.location):
            for name in batches:
                if not self._clean(name, now - retention_s):
                    break  # they are done in order: no need to check thousands of files for each batch
            for name in sorted(done.difference(batches)):
                self._clean(name, now - retention_s)
            for name in self._staged() - self._names(".json"):
                number = _number_of(name)
                path = self.directory(name)
                # up to the last batch that is done it can only be a repeat; a write may still be staging
                if _age_s(path, now) >= retention_s + _STAGING_S if number is None else number <= self.last:
                    shutil.rmtree(path, ignore_errors=True)

    # -- helpers

    def _clean(self, name: str, limit: float) -> bool:
        """Removes it if it was done before `limit`; returns whether it was."""
        if self._done_path(name).stat().st_mtime > limit:
            return False
        shutil.rmtree(self.directory(name), ignore_errors=True)
        if not name.startswith(IDENTIFIED):
            # in this order: a manifest without its `.done` would be published again
            self._manifest_path(name).unlink(missing_ok=True)
            self._done_path(name).unlink()
        return True

    def _manifest_path(self, name: str) -> Path:
        return self.location / f"{name}.json"

    def _done_path(self, name: str) -> Path:
        return self.location / f"{name}.done"

    def _names(self, suffix: str) -> set[str]:
        with outbox_errors(self.location):
            names = (entry.removesuffix(suffix) for entry in os.listdir(self.location) if entry.endswith(suffix))
            return {name for name in names if _NAME.fullmatch(name)}

    def _staged(self) -> set[str]:
        with os.scandir(self.location) as entries:
            return {entry.name for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir()}

    def _shares(
        self, name: str, files: Sequence[StagedFile], publishers: int, timeout_s: float
    ) -> tuple[Manifest, ...]:
        """A partition has one publisher, so that its rows keep their order; a batch is done before the next begins."""
        shares = []
        for publisher in range(1, publishers + 1):
            its_own = [file for file in files if file.partition % publishers == publisher - 1]
            with self.share(publisher, timeout_s) as journal:
                shares.append(Manifest(name, *_numbered(its_own, journal), publisher))
        if publishers > self.publishers:  # their journals are there: from now on one that is missing is lost
            self.publishers = publishers
            self._write_identity()
        return tuple(shares)

    @property
    def _identity_path(self) -> Path:
        return self.location / "outbox.json"

    def _write_identity(self) -> None:
        version = SHARED_VERSION if self.publishers else VERSION  # an older onceway must not publish a part of a batch
        identity = {"version": version, "uuid": self.uuid, "owner": self.owner, "last": self.last}
        _DOCUMENTS.write(self._identity_path, {**identity, "publishers": self.publishers})

    def _know(self, document: Mapping[str, Any]) -> None:
        self.uuid = document["uuid"]
        self.owner = document["owner"]
        self.last = document["last"]
        self.publishers = document.get("publishers", 0)

    def _identify(self, owner: str) -> None:
        path = self._identity_path
        document = _DOCUMENTS.read(path)
        if document is None:
            document = {"version": VERSION, "uuid": str(uuid.uuid4()), "owner": owner, "last": -1}
            _DOCUMENTS.create(path, document)
        if document.get("version") not in (VERSION, SHARED_VERSION):
            raise OutboxError(
                f"{path}: an outbox of format {document.get('version')}, this onceway writes {SHARED_VERSION}; let the "
                "onceway that wrote it finish its last batch, or give an empty outboxLocation"
            )
        if document["owner"] != owner:
            raise OutboxError(
                f"{self.location}: this outbox belongs to {document['owner']}, this is {owner}; give it an "
                "outboxLocation of its own.  A query keeps its id with its checkpoint: with a new checkpoint it is "
                "another query, whose batches begin at 0 again"
            )
        self._know(document)

    def _check_staged(self, name: str, files: Sequence[StagedFile]) -> None:
        for file in files:
            path = self.directory(name) / file.name
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                size = -1
            if size != file.size:
                raise OutboxError(
                    f"{path}: an executor has staged {file.size} bytes here, and the driver sees "
                    f"{'no such file' if size < 0 else size}; outboxLocation must be one directory for driver and "
                    "executors, on a shared POSIX file system"
                )

    def read(self, name: str) -> Manifest:
        """A batch that was decided.  Raises OutboxError."""
        path = self._manifest_path(name)
        with outbox_errors(self.location):
            document = _DOCUMENTS.read(path)
        if document is None or document.get("outbox") != self.uuid:
            raise OutboxError(
                f"{path}: the manifest of another outbox; restore the whole directory, or give an empty outboxLocation"
            )
        return Manifest.of(name, document)


def _numbered(files: Sequence[StagedFile], journal: OutboxJournal) -> tuple[tuple[StagedFile, ...], dict[str, int]]:
    """The files, and the number of each topic's first message in them."""
    return tuple(files), {topic: journal.topic(topic).mark for file in files for topic, _ in file.runs}


def _age_s(path: Path, now: float) -> float:
    """0 where it has just been removed: an aborted write discards its directory without the lock."""
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _number_of(name: str) -> int | None:
    """The number of a query's batch; None for a write."""
    return int(name.removeprefix("batch-")) if name.startswith("batch-") else None
