"""A duration, size or count within bounds, as several parts of the file have them."""

from __future__ import annotations

from typing import Final, Literal

from onceway.topology.document import Item
from onceway.topology.values import format_duration, read_count, read_duration, read_size

Form = Literal["duration", "size", "count"]
Bounds = tuple[float, float]
_EXPECTED: Final = {
    "duration": "a duration such as 60s",
    "size": "a size such as 8MiB",
    "count": "a whole number",
}


def read_quantity(item: Item, form: Form, bounds: Bounds) -> float | int | None:
    """Seconds, bytes or a number; None, and a problem noted, where it is unfit."""
    least, most = bounds
    value: float | int | None
    if form == "duration":
        value = item.scalar(read_duration, _EXPECTED[form])
    else:
        value = item.scalar(read_size if form == "size" else read_count, _EXPECTED[form])
    if value is None or least <= value <= most:
        return value

    def shown(limit: float) -> str:
        if form == "duration":
            return format_duration(limit)
        return f"{limit:.0f}{'B' if form == 'size' else ''}"

    way = f"less than {shown(least)}" if value < least else f"more than {shown(most)}"
    item.problem(f"{item.text} is {way}", f"write a value from {shown(least)} to {shown(most)}")
    return None
