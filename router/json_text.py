"""JSON as RFC 8259 has it: all that this product writes is written here.

Python's own writer puts NaN and Infinity where a float is one, which is no JSON: strict parsers refuse it. Here they
are the strings "NaN", "Infinity" and "-Infinity", as in the JSON of Protocol Buffers.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

_NAMES: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def write_json(
    value: Any,
    *,
    indent: int | None = None,
    compact: bool = False,
    ascii_only: bool = True,
    sort_keys: bool = False,
    default: Callable[[Any], Any] | None = None,
) -> str:
    """A value of Python as JSON.

    Args:
        value: Dicts, lists, tuples, strings, numbers, booleans and None.
        indent: As of `json.dumps`, as are `sort_keys` and `default`.
        compact: Without spaces.
        ascii_only: All other characters are escaped.
    """
    encode = _encoder(indent, compact, ascii_only, sort_keys, default)
    try:
        return encode(value)
    except ValueError:
        return encode(_finite(value))


@lru_cache(maxsize=64)
def _encoder(
    indent: int | None, compact: bool, ascii_only: bool, sort_keys: bool, default: Callable[[Any], Any] | None
) -> Callable[[Any], str]:
    return json.JSONEncoder(
        allow_nan=False,
        indent=indent,
        separators=(",", ":") if compact else None,
        ensure_ascii=ascii_only,
        sort_keys=sort_keys,
        default=default,
    ).encode


def _finite(value: Any) -> Any:
    """The value with the names of numbers that JSON has not."""
    if isinstance(value, float):
        return _NAMES.get(repr(float(value)), value)
    if isinstance(value, dict):
        return {_finite(key): _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value
