"""What a log remembers of each query that reads it (`reader-NAME.json`).

Spark keeps a query's offsets in its checkpoint, which the source never sees.  The log remembers by itself how far Spark
has committed, because trimming lags a batch and a run of Trigger.AvailableNow may have a single one; that rows have
been handed out at all, which tells a query whose checkpoint is gone from a new one; and which gaps have been reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceway.spark.errors import SparkSourceError, WalError
from onceway.spark.files import Documents
from onceway.spark.source.ingests import say
from onceway.spark.source.journal import Gap
from onceway.spark.wal import Wal

_DOCUMENTS: Final = Documents(SparkSourceError, "it is written again with the next commit")


class Progress:
    """Read once, written by the one process that serves the query."""

    def __init__(self, wal: Wal, reader: str = "query") -> None:
        self._uuid = wal.uuid
        self._document = wal.document(f"reader-{reader}.json", _DOCUMENTS)
        self.begun = False
        self.initial: dict[int, int] | None = None  # where the batch began that Spark numbers 0
        self.committed: dict[int, int] | None = None  # Spark's last commit; an older one, or none, only delays trimming
        self._reported: dict[int, list[tuple[int, int]]] = {}  # by slot: (place, noted_us)
        try:
            content = self._document.read()
            if content is not None and content.get("wal") == self._uuid:
                self._load(content)
        except (SparkSourceError, KeyError, TypeError, ValueError, AttributeError):
            self.begun = True  # somebody has written it

    def _load(self, content: Mapping[str, Any]) -> None:
        positions = {int(slot): int(row) for slot, row in content["p"].items()}
        self.committed = positions or None
        self.begun = bool(content.get("begun", positions))
        if content.get("initial") is not None:
            self.initial = {int(slot): int(row) for slot, row in content["initial"].items()}
        for slot, gaps in content.get("reported", {}).items():
            self._reported[int(slot)] = [(int(at), int(noted_us)) for at, noted_us in gaps]

    def note_begun(self, initial: Mapping[int, int] | None = None) -> None:
        """Rows are handed to a query, whose checkpoint has this batch by now; initial: it is the first one, from there.
        Raises OSError."""
        if not self.begun or (initial is not None and initial != self.initial):
            self.begun = True
            self.initial = self.initial if initial is None else dict(initial)
            self._write()

    def commit(self, positions: Mapping[int, int]) -> None:
        self.committed = dict(positions)
        self.begun = True
        try:
            self._write()
        except (OSError, WalError) as error:
            say(f"warning: {self._document.path}: {error}: the log keeps one more batch")

    def reported(self, slot: int, gap: Gap) -> bool:
        return (gap.at, gap.noted_us) in self._reported.get(slot, ())

    def note_reported(self, slot: int, gaps: Sequence[Gap]) -> None:
        """Raises OSError."""
        known = self._reported.setdefault(slot, [])
        known += [(gap.at, gap.noted_us) for gap in gaps]
        del known[:-100]  # older ones have been passed, or trimmed
        self._write()

    def _write(self) -> None:
        positions = self.committed or {}
        content = {
            "p": {str(slot): positions[slot] for slot in sorted(positions)},
            "v": 1,
            "wal": self._uuid,
            "begun": self.begun,
            "initial": None if self.initial is None else {str(slot): row for slot, row in sorted(self.initial.items())},
            "reported": {str(slot): gaps for slot, gaps in self._reported.items()},
        }
        self._document.write(content)
