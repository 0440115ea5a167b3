"""Spark's offset: which log, and for each of its slots the sequence number of the next row.

    {"p":{"0":12345,"1":99},"v":1,"wal":"0b4c..."}

Spark keeps the JSON text and compares it, so the same position always gives the same text: keys are in one order.  A
slot that an offset does not name was added to the log later; nothing of it has been read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceway.spark.errors import SparkSourceError

VERSION: Final = 1


class OffsetError(SparkSourceError, ValueError):
    """No offset of this source, or of a version that this one cannot read."""


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in the log with uuid `wal`."""

    wal: str
    positions: Mapping[int, int]

    def as_dict(self) -> dict[str, Any]:
        """What Spark gets: json.dumps of it is the same for the same position."""
        return {
            "p": {str(slot): self.positions[slot] for slot in sorted(self.positions)},
            "v": VERSION,
            "wal": self.wal,
        }

    def with_extra(self, **extra: object) -> dict[str, Any]:
        """For progress reports, which may say more."""
        return {**self.as_dict(), **extra}


def offset_of(value: object) -> Offset:
    """Of what Spark hands back, or of JSON text.  Raises OffsetError."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise OffsetError(f"{value!r} is no offset: {error}; {_REMEDY}") from None
    if not isinstance(value, Mapping):
        raise OffsetError(f"{value!r} is no offset of onceway; {_REMEDY}")
    version = value.get("v")
    if version != VERSION:
        if isinstance(version, int) and version > VERSION:
            raise OffsetError(
                f"the offset {json.dumps(dict(value))} is of version {version}, this onceway reads {VERSION}; "
                "go on with the onceway that wrote the checkpoint, or a newer one"
            )
        raise OffsetError(f"{json.dumps(dict(value))} is no offset of onceway; {_REMEDY}")
    wal, positions = value.get("wal"), value.get("p")
    if not isinstance(wal, str) or not isinstance(positions, Mapping):
        raise OffsetError(f"{json.dumps(dict(value))} is incomplete; {_REMEDY}")
    read: dict[int, int] = {}
    for slot, position in positions.items():
        whole = isinstance(position, int) and not isinstance(position, bool) and position >= 0
        if not str(slot).isdecimal() or not whole:
            raise OffsetError(f"slot {slot!r} at {position!r} in an offset is no position; {_REMEDY}")
        read[int(slot)] = int(position)
    return Offset(wal, read)


_REMEDY: Final = "was the checkpoint written by another source? give the query a checkpoint of its own"
