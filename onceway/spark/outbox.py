"""An outbox: a directory that driver and executors share, from which each batch is published exactly once.

    outbox.json                     which outbox this is, and whose
    lock                            held (flock) by the one process that commits
    journal                         epochs and outcomes (onceway.spark.outbox_journal)
    batch-7/3-12-a1b2c3d4.arrow     staged by executors (onceway.spark.staging)
    batch-7.json                    the manifest: which of these files count, and the number of each message
    batch-7.done                    what became of it

A batch is decided when its manifest appears, which happens at once or not at all and never twice.  From then on
(batch, file, row) is a number under its topic's publisher, whoever publishes it and however often.  What is staged
again later is ignored.  One batch is decided when the one before it is done.  `onceway.spark.publishing` does the
publishing; this file knows no network and no Spark.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from onceway.spark.outbox_journal import OutboxJournal
from onceway.spark.sink_errors import OutboxError, OutboxLocked
from onceway.spark.staging import Run, StagedFile, sync

VERSION: Final = 1
WRITES: Final = "batch writes"
_LOOK_AGAIN_S: Final = 0.1
IDENTIFIED: Final = "write-"
_STAGING_S: Final = 86_400.0  # longer than a job takes to stage its rows
_NAME: Final = re.compile(r"batch-\d+|job-[0-9a-f]+|write-[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One decided batch."""

    name: str
    files: tuple[StagedFile, ...]
    firsts: dict[str, int]  # topic -> number of its first message

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

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
        ends = dict(self.firsts)
        for file in self.files:
            for topic, rows in file.runs:
                ends[topic] += rows
        return ends


class Outbox:
    """The directory `location`, which may not be there yet."""

    def __init__(self, location: str) -> None:
        self.location = Path(location)
        self.uuid = ""
        self.owner = ""
        self.last = -1  # of the query's batches, the last that is done

    # -- for executors

    def directory(self, name: str) -> Path:
        """Where the files of a batch are staged."""
        return self.location / name

    def decided(self, name: str) -> bool:
        """Its manifest is there: what is staged now would be ignored."""
        return self._manifest_path(name).exists()

    def discard(self, name: str, files: Iterable[StagedFile]) -> None:
        """Staged files that nobody wants any more; none that a manifest may name."""
        if not self.decided(name):
            for file in files:
                (self.directory(name) / file.name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # other attempts' files are in it, or it is not there
                self.directory(name).rmdir()

    # -- for the driver, in `held`

    def published(self, name: str) -> bool:
        """It is done, though its manifest may have been cleaned away since."""
        if self.decided(name):
            return self._done_path(name).exists()
        number = _number_of(name)
        return number is not None and number <= self.last

    @contextlib.contextmanager
    def held(self, owner: str, timeout_s: float) -> Iterator[None]:
        """Opens it for this process alone; owner: `query ...`, or WRITES.

        Raises OutboxLocked after timeout_s, OutboxError where it is another's, damaged, or cannot be written.
        """
        with _explained(self.location):
            self.location.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.location / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock(lock, timeout_s)
            with _explained(self.location):
                self._identify(owner)
            yield
        finally:
            os.close(lock)

    def journal(self) -> OutboxJournal:
        path = self.location / "journal"
        if not path.exists() and self._names(".json"):
            raise OutboxError(
                f"{path}: is missing, though batches were published from this outbox; restore it with the whole "
                "directory, or give the query an empty outboxLocation and check what of its last batch has arrived"
            )
        return OutboxJournal(path, self.uuid)

    def decide(self, name: str, files: Sequence[StagedFile], journal: OutboxJournal) -> Manifest:
        """Creates the batch's manifest, or finds it; numbers go on where the journal's end."""
        if not self.decided(name):
            with _explained(self.location):
                self._check_staged(name, files)
                firsts = {topic: journal.topic(topic).mark for file in files for topic, _ in file.runs}
                manifest = Manifest(name, tuple(files), firsts)
                self._create(self._manifest_path(name), self._document(manifest))
        return self._read(name)

    def unfinished(self) -> list[Manifest]:
        """Decided and not done: one at most, but where locks do not work."""
        return [self._read(name) for name in sorted(self._names(".json") - self._names(".done"))]

    def done(self, name: str) -> dict[str, Any] | None:
        """What became of a batch; None while it is not done."""
        with _explained(self.location):
            return _load(self._done_path(name))

    def finish(self, manifest: Manifest, tallies: Mapping[str, Mapping[str, int]], *, keep_files: bool) -> None:
        """All of it is decided and settled; tallies: by topic, how many rows have which outcome."""
        with _explained(self.location):
            document = {"batch": manifest.name, "rows": manifest.rows, "topics": tallies, "at": time.time()}
            number = _number_of(manifest.name)
            if number is not None and number > self.last:
                # before `done`: what is done can be cleaned away, and must be known even then
                self.last = number
                self._write_identity()
            self._create(self._done_path(manifest.name), document)
            if not keep_files:
                shutil.rmtree(self.directory(manifest.name), ignore_errors=True)

    def clean(self, retention_s: float) -> None:
        """Takes away what batches have left that were done longer ago, and what died attempts have staged.

        The manifest of a write with an identity of its own stays: whoever repeats it may do so in a year.
        """
        now = time.time()
        done = self._names(".done")
        numbers = sorted(number for name in done if (number := _number_of(name)) is not None)
        batches = [f"batch-{number}" for number in numbers]
        with _explained(self.location):
            for name in batches:
                if not self._clean(name, now - retention_s):
                    break  # they are done in their order: no need to look at thousands of files for each batch
            for name in sorted(done.difference(batches)):
                self._clean(name, now - retention_s)
            for name in self._staged() - self._names(".json"):
                number = _number_of(name)
                path = self.directory(name)
                # a batch up to the last that is done can only be a repeat of it; a write may still be staging
                if path.stat().st_mtime <= now - retention_s - _STAGING_S if number is None else number <= self.last:
                    shutil.rmtree(path, ignore_errors=True)

    # -- helpers

    def _clean(self, name: str, limit: float) -> bool:
        """Whether it was done before `limit`."""
        if self._done_path(name).stat().st_mtime > limit:
            return False
        shutil.rmtree(self.directory(name), ignore_errors=True)
        if not name.startswith(IDENTIFIED):
            # in this order: a manifest without `done` would be published
            self._manifest_path(name).unlink(missing_ok=True)
            self._done_path(name).unlink()
        return True

    def _manifest_path(self, name: str) -> Path:
        return self.location / f"{name}.json"

    def _done_path(self, name: str) -> Path:
        return self.location / f"{name}.done"

    def _names(self, suffix: str) -> set[str]:
        with _explained(self.location):
            names = (entry.removesuffix(suffix) for entry in os.listdir(self.location) if entry.endswith(suffix))
            return {name for name in names if _NAME.fullmatch(name)}

    def _staged(self) -> set[str]:
        with os.scandir(self.location) as entries:
            return {entry.name for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir()}

    def _lock(self, file: int, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # flock knows no timeout, and a signal would be the whole process's: look again now and then
                if time.monotonic() >= deadline:
                    holder = os.pread(file, 200, 0).decode(errors="replace").strip() or "another process"
                    raise OutboxLocked(
                        f"{self.location}: {holder} publishes from this outbox; give each query an outboxLocation of "
                        f"its own, or stop the other one (waited {timeout_s:g} s, lockTimeout)"
                    ) from None
                time.sleep(_LOOK_AGAIN_S)
            except OSError as error:
                raise OutboxError(
                    f"{self.location}: cannot be locked ({error}); outboxLocation needs a file system with flock"
                ) from error
        with contextlib.suppress(OSError):  # a full disk: it is held without a name
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def _identify(self, owner: str) -> None:
        path = self.location / "outbox.json"
        document = _load(path)
        if document is None:
            document = {"version": VERSION, "uuid": str(uuid.uuid4()), "owner": owner, "last": -1}
            self._create(path, document)
        if document.get("version") != VERSION:
            raise OutboxError(
                f"{path}: an outbox of format {document.get('version')}, this onceway writes {VERSION}; let the "
                "onceway that wrote it finish its last batch, or give an empty outboxLocation"
            )
        if document["owner"] != owner:
            raise OutboxError(
                f"{self.location}: this outbox belongs to {document['owner']}, this is {owner}; give it an "
                "outboxLocation of its own.  A query keeps its id with its checkpoint: with a new checkpoint it is "
                "another query, whose batches begin at 0 again"
            )
        self.uuid = document["uuid"]
        self.owner = owner
        self.last = document["last"]

    def _write_identity(self) -> None:
        document = {"version": VERSION, "uuid": self.uuid, "owner": self.owner, "last": self.last}
        fresh = self._fresh(self.location / "outbox.json", document)
        fresh.replace(self.location / "outbox.json")
        sync(self.location)

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

    def _document(self, manifest: Manifest) -> dict[str, Any]:
        topics = list(manifest.firsts)
        following = dict(manifest.firsts)
        files = []
        for file in manifest.files:
            firsts = {topic: following[topic] for topic, _ in file.runs}
            for topic, rows in file.runs:
                following[topic] += rows
            runs = [[topics.index(topic), rows] for topic, rows in file.runs]
            files.append({"name": file.name, "size": file.size, "rows": file.rows, "first": firsts, "runs": runs})
        return {
            "version": VERSION,
            "outbox": self.uuid,
            "batch": manifest.name,
            "topics": [{"topic": topic, "first": manifest.firsts[topic]} for topic in topics],
            "files": files,
        }

    def _read(self, name: str) -> Manifest:
        path = self._manifest_path(name)
        with _explained(self.location):
            document = _load(path)
        if document is None or document.get("outbox") != self.uuid:
            raise OutboxError(
                f"{path}: the manifest of another outbox; restore the whole directory, or give an empty outboxLocation"
            )
        topics = [entry["topic"] for entry in document["topics"]]
        files = tuple(
            StagedFile(file["name"], file["size"], tuple((topics[index], rows) for index, rows in file["runs"]))
            for file in document["files"]
        )
        firsts = {entry["topic"]: entry["first"] for entry in document["topics"]}
        return Manifest(name, files, firsts)

    def _fresh(self, path: Path, document: Mapping[str, Any]) -> Path:
        """A file beside `path`, durable, to be renamed or linked."""
        fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(file, "wb") as stream:
            stream.write(json.dumps(document, indent=1).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        return fresh

    def _create(self, path: Path, document: Mapping[str, Any]) -> None:
        """At once or not at all, and never twice: who comes second finds the first one's."""
        fresh = self._fresh(path, document)
        try:
            # link, not rename: it does not replace, even where two processes both believe that they hold the lock
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
        finally:
            fresh.unlink()
        sync(self.location)


def _load(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise OutboxError(f"{path}: damaged; restore the whole directory, or give an empty outboxLocation")
    return document


def _number_of(name: str) -> int | None:
    """Of a query's batch; None: a write's."""
    return int(name.removeprefix("batch-")) if name.startswith("batch-") else None


@contextlib.contextmanager
def _explained(location: Path) -> Iterator[None]:
    """The operating system's errors as ones that a person can do something about."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what = "no room left in the outbox; make room and restart the query: nothing is published twice"
        else:
            what = (
                f"the outbox cannot be used ({error}); outboxLocation must be a directory that driver and executors "
                "share and may write, on a POSIX file system with hard links"
            )
        raise OutboxError(f"{location}: {what}") from error
