"""AMQP values as text, for columns that are strings: what `fields` says of headers, and JSON of all the rest."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from amqp10.types import (
    Array,
    Byte,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Int,
    Long,
    Short,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

FIRST_MS: Final = -62_135_596_800_000  # year 1, as far back as Spark and Python go
LAST_MS: Final = 253_402_300_799_999  # year 9999

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_INTEGERS: Final = frozenset((int, UByte, UShort, UInt, ULong, Byte, Short, Int, Long))


def text(value: Any) -> str | None:
    """Of a header, a key or an id; see the module."""
    if value is None or type(value) is str:
        return value
    if type(value) in _INTEGERS:
        return str(int(value))
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def as_json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """The value as something that JSON knows."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Timestamp):
        return as_time(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Decimal32 | Decimal64 | Decimal128):
        return value.raw.hex()
    if isinstance(value, Array):
        return [_plain(item) for item in value.values]
    if isinstance(value, Described):
        return {"descriptor": _plain(value.descriptor), "value": _plain(value.value)}
    if isinstance(value, Mapping):
        return {text(key) or "null": _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value]


def as_time(milliseconds: int) -> str:
    if not FIRST_MS <= milliseconds <= LAST_MS:
        return str(int(milliseconds))
    moment = _EPOCH + timedelta(milliseconds=int(milliseconds))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
