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
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from onceway.spark.batch_manifest import VERSION, Manifest
from onceway.spark.outbox_files import create, explained, load, locked, replace
from onceway.spark.outbox_journal import OutboxJournal
from onceway.spark.sink_errors import OutboxBehind, OutboxError
from onceway.spark.staging import StagedFile

WRITES: Final = "batch writes"
IDENTIFIED: Final = "write-"
_STAGING_S: Final = 86_400.0  # longer than a job takes to stage its rows
_NAME: Final = re.compile(r"batch-\d+|job-[0-9a-f]+|write-[A-Za-z0-9._-]+")


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
        with explained(self.location):
            self.location.mkdir(parents=True, exist_ok=True)
        with locked(self.location, timeout_s):
            with explained(self.location):
                self._identify(owner)
            yield

    def journal(self) -> OutboxJournal:
        path = self.location / "journal"
        if not path.exists() and self._names(".json"):
            raise OutboxError(
                f"{path}: is missing, though batches were published from this outbox; restore it with the whole "
                "directory, or give the query an empty outboxLocation and check what of its last batch has arrived"
            )
        return OutboxJournal(path, self.uuid)

    def check_follows(self, name: str, checkpoint: str | None) -> None:
        """Raises OutboxBehind where Spark has batches behind it of which this outbox knows nothing."""
        number = _number_of(name)
        if number is None or number <= self.last + 1:
            return
        known = "has published nothing yet" if self.last < 0 else f"has published batches up to {self.last} only"
        raise OutboxBehind(
            f"{self.location}: this outbox {known}, and the query is at batch {number}, by its checkpoint"
            f"{f' {checkpoint}' if checkpoint else ''}: the outbox that it had is lost, lies elsewhere, or was "
            f"restored from an older copy.  Batch {number} may have been published from that one, and would be "
            "published again.  Give the query back the outboxLocation that belongs to its checkpoint; where that is "
            "gone, or the query had another sink, start it once with onMissingBatches=ignore: it goes on with this one"
        )

    def decide(self, name: str, files: Sequence[StagedFile], journal: OutboxJournal) -> Manifest:
        """Creates the batch's manifest, or finds it; numbers go on where the journal's end."""
        if not self.decided(name):
            with explained(self.location):
                self._check_staged(name, files)
                firsts = {topic: journal.topic(topic).mark for file in files for topic, _ in file.runs}
                manifest = Manifest(name, tuple(files), firsts)
                create(self._manifest_path(name), manifest.document(self.uuid))
        return self._read(name)

    def unfinished(self) -> list[Manifest]:
        """Decided and not done: one at most, but where locks do not work."""
        return [self._read(name) for name in sorted(self._names(".json") - self._names(".done"))]

    def done(self, name: str) -> dict[str, Any] | None:
        """What became of a batch; None while it is not done."""
        with explained(self.location):
            return load(self._done_path(name))

    def finish(self, manifest: Manifest, tallies: Mapping[str, Mapping[str, int]], *, keep_files: bool) -> None:
        """All of it is decided and settled; tallies: by topic, how many rows have which outcome."""
        with explained(self.location):
            document = {"batch": manifest.name, "rows": manifest.rows, "topics": tallies, "at": time.time()}
            number = _number_of(manifest.name)
            if number is not None and number > self.last:
                # before `done`: what is done can be cleaned away, and must be known even then
                self.last = number
                self._write_identity()
            create(self._done_path(manifest.name), document)
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
        with explained(self.location):
            for name in batches:
                if not self._clean(name, now - retention_s):
                    break  # they are done in their order: no need to look at thousands of files for each batch
            for name in sorted(done.difference(batches)):
                self._clean(name, now - retention_s)
            for name in self._staged() - self._names(".json"):
                number = _number_of(name)
                path = self.directory(name)
                # a batch up to the last that is done can only be a repeat of it; a write may still be staging
                if _age_s(path, now) >= retention_s + _STAGING_S if number is None else number <= self.last:
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
        with explained(self.location):
            names = (entry.removesuffix(suffix) for entry in os.listdir(self.location) if entry.endswith(suffix))
            return {name for name in names if _NAME.fullmatch(name)}

    def _staged(self) -> set[str]:
        with os.scandir(self.location) as entries:
            return {entry.name for entry in entries if _NAME.fullmatch(entry.name) and entry.is_dir()}

    def _identify(self, owner: str) -> None:
        path = self.location / "outbox.json"
        document = load(path)
        if document is None:
            document = {"version": VERSION, "uuid": str(uuid.uuid4()), "owner": owner, "last": -1}
            create(path, document)
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
        replace(self.location / "outbox.json", document)

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

    def _read(self, name: str) -> Manifest:
        path = self._manifest_path(name)
        with explained(self.location):
            document = load(path)
        if document is None or document.get("outbox") != self.uuid:
            raise OutboxError(
                f"{path}: the manifest of another outbox; restore the whole directory, or give an empty outboxLocation"
            )
        return Manifest.of(name, document)


def _age_s(path: Path, now: float) -> float:
    """0 for what has just gone: a write that is given up discards its directory, and asks nobody for the lock."""
    try:
        return now - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _number_of(name: str) -> int | None:
    """Of a query's batch; None: a write's."""
    return int(name.removeprefix("batch-")) if name.startswith("batch-") else None
