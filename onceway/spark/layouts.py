"""All payloads of one layout as columns in one go, however their contents differ.

A layout is what one message's encoding is made of: which sections, which names in their maps, which constructor each
value has (`layout_reading` finds it).  What may differ is what the values hold and how long it is.  So a layout is a
list of steps that are taken through all payloads together: octets that must be there, a size, a piece to be taken out.
A payload with which every step fits and ends where it has to is read by Arrow's loops (`octets`); the others are left
to `fields`, which also says what any of this means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from onceway.spark.octets import Malformed, Octets, Texts, int64, integers, numbers
from onceway.spark.text import FIRST_MS, LAST_MS


@dataclass(frozen=True, slots=True)
class Must:
    """These octets."""

    octets: bytes


@dataclass(frozen=True, slots=True)
class Size:
    """Of all that comes until `Over`, in so many octets."""

    width: int


@dataclass(frozen=True, slots=True)
class Over:
    """What the last size was for ends here."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """So many octets, or (sized) as many as a length in so many octets says."""

    octets: int
    sized: bool
    texts: Texts
    checked: bool = False  # its octets may be wrong: looked at though no column wants it


@dataclass(frozen=True, slots=True, eq=False)
class Varying:
    """One of these constructors and the octets that it says; the piece is all of it."""

    widths: dict[int, int]
    texts: Texts
    checked: bool = False


Step: TypeAlias = Must | Size | Over | Piece | Varying
Taken: TypeAlias = Piece | Varying
Places: TypeAlias = dict[Taken, tuple[Any, Any]]  # where each begins and ends
Said: TypeAlias = str | Taken | None  # what a column holds: the same in each payload, or a piece of it


@dataclass(slots=True)
class Layout:
    steps: list[Step] = field(default_factory=list)
    columns: dict[str, Said] = field(default_factory=dict)  # those that are text
    headers: list[tuple[str, Said]] = field(default_factory=list)
    created: Piece | None = None
    value: Piece | None = None

    def read(self, payloads: Any, needed: Sequence[str], least: int) -> tuple[Any, dict[str, Any]] | None:
        """(which payloads have this layout, their columns); None where fewer than `least` have it.

        `timestamp` is null where the message says none.
        """
        octets = Octets(payloads)
        good, everywhere = self._walk(octets)
        while (count := good.true_count) >= max(least, 1):
            places = everywhere
            if count < len(payloads):
                places = {piece: (start.filter(good), end.filter(good)) for piece, (start, end) in everywhere.items()}
            try:
                return good, self._columns(octets, places, count, needed)
            except Malformed as error:
                good = pc.replace_with_mask(good, good, error.good)
        return None

    def _walk(self, octets: Octets) -> tuple[Any, Places]:
        """(which payloads have this layout, where in those each piece is).

        No step goes back.  So where one reads beyond its payload, which may be another's octets, the end is missed.
        """
        at, behind = octets.starts, octets.starts
        good = pa.repeat(pa.scalar(True, pa.bool_()), len(at))
        places: Places = {}
        for step in self.steps:
            if isinstance(step, Must):
                good = pc.and_(good, octets.are(at, step.octets))
                at = pc.add(at, int64(len(step.octets)))
            elif isinstance(step, Size):
                size = octets.length(at, step.width)
                at = pc.add(at, int64(step.width))
                behind = pc.add(at, size)
            elif isinstance(step, Over):
                good = pc.and_(good, pc.equal(at, behind))
            elif isinstance(step, Varying):
                start = at
                width = pc.index_in(octets.at(at), pa.array(step.widths, pa.uint8()))
                good = pc.and_(good, width.is_valid())
                width = pc.take(
                    pa.array(step.widths.values(), pa.int64()), pc.fill_null(width, pa.scalar(0, pa.int32()))
                )
                at = pc.add(at, pc.add(width, int64(1)))
                places[step] = (start, at)
            else:
                start = at
                if step.sized:
                    start = pc.add(at, int64(step.octets))
                    at = pc.add(start, octets.length(at, step.octets))
                else:
                    at = pc.add(at, int64(step.octets))
                places[step] = (start, at)
        return pc.and_(good, pc.equal(at, octets.ends)), places

    def _columns(self, octets: Octets, places: Places, rows: int, needed: Sequence[str]) -> dict[str, Any]:
        known: dict[Taken, Any] = {}

        def texts(said: Said) -> Any:
            if said is None or isinstance(said, str):
                return pa.nulls(rows, pa.string()) if said is None else pa.repeat(pa.scalar(said, pa.string()), rows)
            if said not in known:
                known[said] = said.texts(octets.pieces(*places[said]))
            return known[said]

        for piece in places:
            if piece.checked:
                texts(piece)
        made: dict[str, Any] = {}
        for name in needed:
            if name == "value":
                made[name] = octets.pieces(*places[self.value]) if self.value else pa.nulls(rows, pa.binary())
            elif name == "timestamp":
                made[name] = self._timestamps(octets, places, rows)
            elif name == "headers":
                made[name] = _maps(self.headers, texts, rows)
            else:
                made[name] = texts(self.columns.get(name))
        return made

    def _timestamps(self, octets: Octets, places: Places, rows: int) -> Any:
        kind = pa.timestamp("us", tz="UTC")
        if self.created is None:
            return pa.nulls(rows, kind)
        times = integers(octets.pieces(*places[self.created]), 8, signed=True)
        known = pc.and_(pc.greater_equal(times, int64(FIRST_MS)), pc.less_equal(times, int64(LAST_MS)))
        return pc.if_else(known, pc.multiply(times, int64(1000)), pa.scalar(None, pa.int64())).view(kind)


def _maps(headers: Sequence[tuple[str, Said]], texts: Callable[[Said], Any], rows: int) -> Any:
    kind = pa.map_(pa.string(), pa.string())
    width = len(headers)
    if not width:
        return pa.nulls(rows, kind)
    index = numbers(0, rows * width)
    row = pc.divide(index, int64(width))
    name = pc.subtract(index, pc.multiply(row, int64(width)))
    values = pa.concat_arrays([texts(said) for _, said in headers])
    return pa.MapArray.from_arrays(
        pc.multiply(numbers(0, rows + 1), int64(width)).cast(pa.int32()),
        pa.array([name for name, _ in headers], pa.string()).take(name),
        values.take(pc.add(row, pc.multiply(name, int64(rows)))),
    )
