"""What a query has lost, and whether somebody has decided that it goes on without (`losses-NAME.json` in the log).

Schedulers start a query again that has failed.  A loss that is told once would pass as success at the second start: so
it is told at each, under one id, until that id is acknowledged (`acknowledgeLoss`, `onceway spark acknowledge-loss`).

Most losses are found again at each start, in the log.  Not so that the log went back (an older copy was restored): what
is received since then fills the numbers that Spark has passed.  There the mark itself says where Spark goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from onceway.spark.errors import SparkSourceError
from onceway.spark.files import Documents
from onceway.spark.source.journal import Gap
from onceway.spark.wal import Wal

MOST: Final = 1000  # the oldest are forgotten: a loss that comes again has to be acknowledged again
_DOCUMENTS: Final = Documents(
    SparkSourceError, "restore it; without it, each loss that is found again has to be acknowledged again"
)
_GAP: Final = "gap"
_BACK: Final = "back"


@dataclass(frozen=True, slots=True)
class Loss:
    """key: the same whenever this loss is found in this log; what, remedy: for people."""

    key: str
    what: str
    remedy: str

    @classmethod
    def at_gap(cls, slot: int, gap: Gap, what: str, remedy: str) -> Loss:
        return cls(f"{_GAP} {slot} {gap.at} {gap.noted_us}", what, remedy)

    @classmethod
    def went_back(cls, slot: int, end: int, position: int, what: str, remedy: str) -> Loss:
        """The log ended at `end` where Spark was at `position`."""
        return cls(f"{_BACK} {slot} {end} {position}", what, remedy)


class Losses:
    """Of one reader.  Whoever acknowledges may be another process; a query looks when it starts."""

    def __init__(self, wal: Wal, reader: str = "query") -> None:
        """Raises SparkSourceError, WalError, OSError."""
        self._wal = wal
        self.reader = reader
        self._read()

    def _read(self) -> None:
        """By id: `keys`, `what`, `at` (seconds since 1970), `acknowledged`."""
        self._document = self._wal.document(f"losses-{self.reader}.json", _DOCUMENTS)
        content = self._document.read() or {}
        ours = content.get("wal") == self._wal.uuid
        self._losses: dict[str, dict[str, Any]] = dict(content["losses"]) if ours else {}

    def waiting(self) -> dict[str, tuple[float, str]]:
        """Those that nobody has acknowledged, by id: when each was found (seconds since 1970), and what is lost."""
        return {id_: (one["at"], one["what"]) for id_, one in self._losses.items() if not one["acknowledged"]}

    def new(self, losses: Iterable[Loss]) -> list[Loss]:
        """Those of which nobody has acknowledged any that they are part of, each once."""
        decided = {key for one in self._losses.values() if one["acknowledged"] for key in one["keys"]}
        return list({loss.key: loss for loss in losses if loss.key not in decided}.values())

    def found(self, losses: Sequence[Loss], what: str, *, acknowledged: bool) -> str:
        """These are lost together; returns their id.  Durable."""
        keys = sorted(loss.key for loss in losses)
        id_ = sha256("\n".join([self._wal.uuid, *keys]).encode()).hexdigest()[:8]
        one = {"keys": keys, "what": what, "at": time.time(), "acknowledged": acknowledged}
        if (known := self._losses.get(id_)) is None or known["acknowledged"] < acknowledged:
            self._change(lambda: self._losses.update({id_: one}))
        return id_

    def acknowledge(self, ids: Iterable[str]) -> list[str]:
        """Somebody has decided; returns those of the ids that are none.  Durable."""
        known = {id_ for id_ in ids if id_ in self._losses}
        if any(not self._losses[id_]["acknowledged"] for id_ in known):
            self._change(
                lambda: self._losses.update(
                    {id_: {**self._losses[id_], "acknowledged": True} for id_ in known if id_ in self._losses}
                )
            )
        return [id_ for id_ in ids if id_ not in known]

    def restart(self, slot: int, position: int) -> tuple[int, int] | None:
        """Where Spark goes on if it is at a position that the log once did not reach, and which position that was."""
        marks = (key.split() for one in self._losses.values() for key in one["keys"])
        found = [
            (int(until), int(end))
            for kind, at, end, until in (mark for mark in marks if mark[0] == _BACK)
            if int(at) == slot and int(end) < position <= int(until)
        ]
        return min(found)[::-1] if found else None

    def passed(self) -> None:
        """Spark goes on from where the log has all rows: what its checkpoint had lost is no matter any more."""
        gone = [id_ for id_, one in self._losses.items() if not all(key.startswith(_GAP) for key in one["keys"])]
        if gone:
            self._change(lambda: [self._losses.pop(id_, None) for id_ in gone])

    def _change(self, change: Callable[[], object]) -> None:
        while True:
            change()
            self._losses = dict(list(self._losses.items())[-MOST:])
            if self._document.swap({"v": 1, "wal": self._wal.uuid, "losses": self._losses}):
                return
            self._read()
