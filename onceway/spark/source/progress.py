"""What a log remembers of each query that reads it (`reader-NAME.json`).

Spark keeps a query's offsets in its checkpoint, which the source never sees.  The log remembers by itself how far Spark
has committed, because trimming lags a batch and a run of Trigger.AvailableNow may have a single one; and that
rows have been handed out at all, which tells a query whose checkpoint is gone from a new one.  And it remembers the
process that serves the query, until that ends in good order: of one that was killed Spark says nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from onceway.base import waits
from onceway.spark.errors import SparkSourceError, WalError
from onceway.spark.files import Documents, is_bucket, process_name, remove_unfinished, this_process
from onceway.spark.source.ingests import say
from onceway.spark.wal import Wal

LONG_S: Final = 5.0  # what takes longer is written down
_DOCUMENTS: Final = Documents(SparkSourceError, "it is written again with the next commit")


class Progress:
    """Read once, written by the one process that serves the query, which says `begin`.

    planned: the end of the batch that runs, and when it was planned (the wall clock), where it takes long.
    waits: where a query is that has done all there is: Spark commits a batch when it plans the next.
    killed: the process that served the query before, where it has not ended in good order; known from `serve` on.
    """

    def __init__(self, wal: Wal, reader: str = "query") -> None:
        self._uuid = wal.uuid
        self._wal = wal
        self._name = f"reader-{reader}.json"
        self._document = wal.document(self._name, _DOCUMENTS)
        self._lock = waits.DISK(threading.RLock())  # a signal handler ends a batch, and may interrupt whoever writes
        self._timer: threading.Timer | None = None
        self.begun = False
        self.initial: dict[int, int] | None = None  # where the batch began that Spark numbers 0
        self.committed: dict[int, int] | None = None  # Spark's last commit; an older one, or none, only delays trimming
        self.planned: tuple[dict[int, int], float] | None = None
        self.waits: dict[int, int] | None = None
        self.killed: str | None = None
        self._serves: dict[str, Any] | None = None  # the process that does, or did
        self._is_served = False  # by this one
        try:
            if (content := self._read()) is not None:
                self._load(content)
        except (SparkSourceError, KeyError, TypeError, ValueError, AttributeError):
            self.begun = True  # somebody has written it

    def _read(self) -> dict[str, Any] | None:
        content = self._document.read()
        return content if content is not None and content.get("wal") == self._uuid else None

    def _load(self, content: Mapping[str, Any]) -> None:
        positions = {int(slot): int(row) for slot, row in content["p"].items()}
        self.committed = positions or None
        self.begun = bool(content.get("begun", positions))
        if content.get("waits") is not None:
            self.waits = {int(slot): int(row) for slot, row in content["waits"].items()}
        if content.get("planned") is not None:
            self.planned = ({int(slot): int(row) for slot, row in content["planned"].items()}, float(content["at"]))
        self._serves = content.get("serves")
        if content.get("initial") is not None:
            self.initial = {int(slot): int(row) for slot, row in content["initial"].items()}

    def begin(self) -> None:
        """This process serves the query from now on.  Raises OSError."""
        self.end_batch()
        if not is_bucket(self._wal.location):
            remove_unfinished(self._wal.location, f"{self._name}.")

    def serve(self) -> None:
        """Nobody else serves the query: this process has the log, which the one before gave back when it had said that
        it ends."""
        with self._lock:
            try:
                self._serves = (self._read() or {}).get("serves")
            except (SparkSourceError, WalError, OSError, AttributeError):
                self._serves = None
            if self._serves is not None:
                self.killed = process_name(self._serves)
                say(
                    f"{self.killed}, which served this query before, was killed, or its machine went down; Spark's own "
                    "error has no reason then (EOFException, Connection reset).  Signal 9 is kill -9, or the kernel's "
                    "when memory is short.  The query goes on from its checkpoint"
                )
            self._serves, self._is_served = this_process(), True
            self._tell(self.planned)

    def end(self) -> None:
        """This process ends in good order."""
        self.end_batch()
        with self._lock:
            if self._is_served:
                self._serves, self._is_served = None, False
                self._tell(None)

    def plan(self, ends: Mapping[int, int]) -> None:
        """A batch begins.  Spark says nothing of it until it is done, so one that takes long is written down."""
        self.end_batch()
        at = time.time()
        self._timer = threading.Timer(LONG_S, self._note_planned, (dict(ends), at))
        self._timer.daemon = True
        self._timer.start()

    def end_batch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            if self.planned is not None:
                self._tell(None)

    def _note_planned(self, ends: dict[int, int], at: float) -> None:
        with self._lock:
            if self._timer is threading.current_thread():  # else the batch has ended just now
                self._tell((ends, at))

    def _tell(self, planned: tuple[dict[int, int], float] | None) -> None:
        self.planned = planned
        try:
            self._write_locked()
        except (OSError, WalError) as error:
            say(f"warning: {self._document.path}: {error}: `onceway ingest status` does not know where the query is")

    def note_begun(self, initial: Mapping[int, int] | None = None) -> None:
        """Rows are handed to a query, whose checkpoint has this batch by now; initial: it is the first one, from there.
        Raises OSError."""
        if not self.begun or (initial is not None and initial != self.initial):
            self.begun = True
            self.initial = self.initial if initial is None else dict(initial)
            self._write()

    def commit(self, positions: Mapping[int, int]) -> None:
        self.committed = dict(positions)
        self.waits = None
        self.begun = True
        try:
            self._write()
        except (OSError, WalError) as error:
            say(f"warning: {self._document.path}: {error}: the log keeps one more batch")

    def wait(self, positions: Mapping[int, int]) -> None:
        """Spark has processed the rows before these, and there is no batch to plan."""
        with self._lock:
            if self.begun and positions != self.waits:
                self.waits = dict(positions)
                self._tell(self.planned)

    def _write(self) -> None:
        with self._lock:
            self._write_locked()

    def _write_locked(self) -> None:
        positions = self.committed or {}
        content = {
            "p": {str(slot): positions[slot] for slot in sorted(positions)},
            "v": 1,
            "wal": self._uuid,
            "begun": self.begun,
            "initial": None if self.initial is None else {str(slot): row for slot, row in sorted(self.initial.items())},
        }
        if self.waits is not None:
            content["waits"] = {str(slot): row for slot, row in self.waits.items()}
        if self._serves is not None:
            content["serves"] = self._serves
        if self.planned is not None:
            ends, at = self.planned
            content |= {"planned": {str(slot): row for slot, row in ends.items()}, "at": at}
        self._document.write(content)
