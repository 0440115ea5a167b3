"""AMQP's types as Python values.

    null None | boolean bool | ubyte .. ulong UByte .. ULong | byte .. long Byte .. Long | float Float | double float
    decimal32/64/128 Decimal32/64/128 | char Char | timestamp Timestamp | uuid uuid.UUID | binary bytes | string str
    symbol Symbol | list list | map dict | array Array | described Described

Decoding yields exactly these, so what was decoded is encoded as the same value again. A plain int is encoded as a long.
The sized integers are ints, Symbol and Char are strs: they compare and hash like the plain ones, so a dict with Symbol
keys is read with plain strings. Ranges are checked when a value is encoded, not when it is made. Next: codec.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self


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
