"""A query whose receivers run by themselves (`ingest=apart`): in place of `ingests`, it only reads who they are.

`onceway ingest` fills the log, through restarts of drivers, and removes old rows by retention alone.  So nothing here
is told how far Spark is, and any number of queries read one log, each under a name of its own (`reader`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onceway.spark.options import SourceOptions
from onceway.spark.wal import Wal

LOOK_S: Final = 5.0


class Apart:
    """What `stream` asks of `Ingests`, where somebody else runs them."""

    def __init__(self, options: SourceOptions, wal: Wal) -> None:
        self._wal = wal
        self._holders: dict[int, str] = {}
        self._looked = -LOOK_S

    def begin(self) -> None:
        pass

    def add(self, wal: Wal, slots: Sequence[int]) -> None:
        """Never called: `topicPattern` is refused."""

    def recovered(self, slot: int) -> bool:
        return bool(self._look().get(slot))

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
        missing = [slot for slot in self._wal.slots if slot not in held]
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
