"""Where messages may be missing from a slot, kept beside its rows so that no restart can pass over it.

A subscription that was away for longer than the network waits joins again as a new one; what was published meanwhile
is gone.  The ingest writes the gap here, durably, before it appends a row that came after it.  A batch that would reach
over the gap fails where `failOnDataLoss` is true, today and after every restart, until a run with false has passed it.
When the rows before it and behind it have been trimmed it is taken out.

`born` (PROTOCOL 15: when the subscription was created) tells on a crash between the joining and the writing: when the
journal knows another one than this file, there was a gap that nobody wrote down.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from onceway.spark.errors import SparkSourceError
from onceway.spark.wal.disk import Disk

FILE: Final = "gaps.json"


@dataclass(frozen=True, slots=True)
class Gap:
    """Between row at - 1 and row `at`.  `dropped`: rows before it that may come a second time."""

    at: int
    reason: str
    dropped: int = 0


@dataclass(slots=True)
class Gaps:
    """Of one slot, ascending, and the subscription that they are gaps of."""

    born: int = 0
    known: tuple[Gap, ...] = ()

    def between(self, start: int, end: int) -> list[Gap]:
        """Those that rows start .. end - 1 would pass, and those where start stands."""
        return [gap for gap in self.known if start <= gap.at < max(end, start + 1)]


class GapFile:
    """Read by the driver, written by the slot's ingest."""

    def __init__(self, location: str, slot: int) -> None:
        self.path = os.path.join(location, str(slot), FILE)
        self._seen: tuple[int, int, int] | None = None
        self._gaps = Gaps()

    def read(self) -> Gaps:
        """Cheap where nothing has changed."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return self._gaps
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            self._gaps = self._load()
            self._seen = seen
        return self._gaps

    def _load(self) -> Gaps:
        with open(self.path, encoding="utf-8") as file:
            text = file.read()
        try:
            content = json.loads(text)
            return Gaps(int(content["born"]), tuple(Gap(**gap) for gap in content["gaps"]))
        except (ValueError, KeyError, TypeError) as error:
            raise SparkSourceError(
                f"{self.path}: damaged ({error}); restore it, or remove it if no messages may be missing"
            ) from error

    def write(self, born: int, gaps: Sequence[Gap]) -> None:
        """Durable when it returns.  Raises OSError."""
        content = {"born": born, "gaps": [asdict(gap) for gap in gaps]}
        Disk().replace(self.path, json.dumps(content, indent=1).encode() + b"\n")
        self._gaps = Gaps(born, tuple(gaps))
        self._seen = None
