"""AMQP's types as Python values.

    null None | boolean bool | ubyte .. ulong UByte .. ULong | byte .. long Byte .. Long | float Float | double float
    decimal32/64/128 Decimal32/64/128 | char Char | timestamp Timestamp | uuid uuid.UUID | binary bytes | string str
    symbol Symbol | list list | map dict or Map | array Array | described Described

Decoding yields exactly these, so what was decoded is encoded as the same value again. A plain int is encoded as a long.
A map whose keys are all strings, symbols and binaries is a dict, and every other one is a Map.
The sized integers are ints, Symbol and Char are strs: they compare and hash like the plain ones, so a dict with Symbol
keys is read with plain strings. Ranges are checked when a value is encoded, not when it is made. Next: codec.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self


class _Int(int):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"

    __str__ = int.__repr__


class UByte(_Int):
    __slots__ = ()


class UShort(_Int):
    __slots__ = ()


class UInt(_Int):
    __slots__ = ()


class ULong(_Int):
    __slots__ = ()


class Byte(_Int):
    __slots__ = ()


class Short(_Int):
    __slots__ = ()


class Int(_Int):
    __slots__ = ()


class Long(_Int):
    __slots__ = ()


class Timestamp(_Int):
    """Milliseconds since 1970-01-01 UTC, signed."""

    __slots__ = ()


class Float(float):
    """A 32 bit float. It is rounded to 32 bits when it is encoded."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Float({float(self)!r})"


class Symbol(str):
    """ASCII text from a constrained domain."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


class Char(str):
    """One Unicode character."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Char({str(self)!r})"


class Raw(bytes):
    """The octets of a message that was not decoded, as they came (`sections.Message.read`). To AMQP it is a binary.

    Attributes:
        reason: Why it was not decoded.
    """

    reason: str

    def __new__(cls, octets: bytes, reason: str = "") -> Self:
        raw = super().__new__(cls, octets)
        raw.reason = reason
        return raw

    def __repr__(self) -> str:
        return f"Raw({bytes(self)!r}, {self.reason!r})"


class _Decimal:
    """An IEEE 754 decimal in its binary interchange format: carried, not calculated with."""

    __slots__ = ("raw",)
    width: ClassVar[int]

    def __init__(self, raw: bytes) -> None:
        if len(raw) != self.width:
            raise ValueError(f"{type(self).__name__} takes {self.width} bytes, not {len(raw)}")
        self.raw = raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Decimal) and type(other) is type(self) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash((type(self), self.raw))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.raw!r})"


class Decimal32(_Decimal):
    __slots__ = ()
    width = 4


class Decimal64(_Decimal):
    __slots__ = ()
    width = 8


class Decimal128(_Decimal):
    __slots__ = ()
    width = 16


@dataclass(frozen=True, slots=True)
class Described:
    """A value of a type that its descriptor names: usually a ULong or a Symbol."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True, init=False)
class Array:
    """Values of one type, an AMQP type name like "symbol" or "uint".

    descriptors: if the elements are described, the descriptor; more than one if they are described described values,
    outermost first. The values are held without their descriptors.
    """

    type: str
    values: tuple[Any, ...]
    descriptors: tuple[Any, ...]

    def __init__(self, type: str, values: Iterable[Any] = (), descriptors: Iterable[Any] = ()) -> None:  # noqa: A002
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "values", tuple(values))
        object.__setattr__(self, "descriptors", tuple(descriptors))


SECRETLY_HASHED: Final = frozenset((str, Symbol, Char, bytes))
"""The types whose hash has a secret of this process in it: no sender can choose keys that have one hash."""


class Map(MutableMapping[Any, Any]):
    """A map with keys of other types than those in SECRETLY_HASHED; it is read and changed like a dict.

    Whoever sends a map chooses its keys, and Python hashes numbers and UUIDs by their value alone: a dict takes n * n
    steps for n keys of one hash. Here entries are found by octets that stand for the key. Keys are equal as in a dict:
    1, True and 1.0 are one key.
    """

    __slots__ = ("_entries",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = ()) -> None:
        self._entries: dict[str | bytes, tuple[Any, Any]] = {}
        self.update(entries)

    def __getitem__(self, key: Any) -> Any:
        entry = self._entries.get(place_of(key))
        if entry is None:
            raise KeyError(key)
        return entry[1]

    def __setitem__(self, key: Any, value: Any) -> None:
        place = place_of(key)
        self._entries[place] = (self._entries.get(place, (key,))[0], value)

    def __delitem__(self, key: Any) -> None:
        if self._entries.pop(place_of(key), None) is None:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return place_of(key) in self._entries

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and all(key in self and self[key] == value for key, value in other.items())

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{key!r}: {value!r}' for key, value in self._entries.values())}}}"


def place_of(key: Any) -> str | bytes:
    """What stands for a key: equal for equal keys, and hashed with the secret. TypeError where a dict raises it."""
    if isinstance(key, str):
        return key
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, float):
        if not key.is_integer():
            return b"v" + repr(float(key)).encode()  # a Float is equal to a double
        key = int(key)
    if isinstance(key, int):
        return b"%d" % key
    if isinstance(key, uuid.UUID):
        return b"u" + key.bytes
    hash(key)
    return b"v" + repr(key).encode("utf-8", "surrogatepass")
