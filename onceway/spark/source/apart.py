"""A query whose receivers run by themselves (`ingest=apart`): in place of `ingests`, it only reads who they are.

`onceway ingest` fills the log, through restarts of drivers, and removes old rows by retention alone.  So nothing here
is told how far Spark is, and any number of queries read one log, each under a name of its own (`reader`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceway.spark.options import SourceOptions
from onceway.spark.source.topics import matching
from onceway.spark.wal import Wal

LOOK_S: Final = 5.0


class LoggedTopics:
    """In place of `topics.Topics`: the receivers ask the network; a query looks for what they have added to the log."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.topic_pattern is not None
        self._pattern = options.topic_pattern
        self._location = options.location
        self._found: list[str] = []
        self._looked = -LOOK_S

    def begin(self) -> None:
        pass

    def found(self) -> Sequence[str]:
        if time.monotonic() - self._looked >= LOOK_S:
            self.now(0.0)
        return self._found

    def now(self, within_s: float) -> Sequence[str]:
        self._looked = time.monotonic()
        self._found = matching(self._pattern, dict.fromkeys(Wal.open(self._location).slots.values()))
        return self._found

    def stop(self) -> None:
        pass


class Apart:
    """What `stream` asks of `Ingests`, where somebody else runs them."""

    def __init__(self, options: SourceOptions, wal: Wal) -> None:
        self._wal = wal
        self._holders: dict[int, str] = {}
        self._looked = -LOOK_S

    def begin(self) -> None:
        pass

    def add(self, wal: Wal, slots: Sequence[int]) -> None:
        self._wal = wal

    def recovered(self, slot: int) -> int | None:
        return self._wal.slot(slot).end() if self._look().get(slot) else None

    def check(self) -> None:
        pass

    def drain(self, timeout_s: float) -> dict[int, int]:
        """Trigger.AvailableNow: what is in the log now."""
        return {}

    def processed(self, positions: Mapping[int, int]) -> None:
        pass

    def trim(self, positions: Mapping[int, int]) -> None:
        pass

    def state(self) -> dict[str, Any]:
        held = {slot: holder for slot, holder in self._look().items() if holder}
        missing = [slot for slot in self._wal.slots if slot not in held and slot not in self._wal.before]
        return {
            "state": f"no receiver for slots {', '.join(map(str, missing))}" if missing else "received apart",
            "attached": len(held),
            "receivers": ", ".join(dict.fromkeys(held.values())),
        }

    def stop(self) -> None:
        pass

    def _look(self) -> dict[int, str]:
        if time.monotonic() - self._looked >= LOOK_S:
            self._holders = {slot: self._wal.holder(slot) for slot in self._wal.slots}
            self._looked = time.monotonic()
        return self._holders
