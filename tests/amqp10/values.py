"""AMQP values for property tests: strategies, and equality that sees types."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from amqp10.errors import DecodeError
from amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)


def attempt(read: Callable[..., Any], *args: Any) -> Any:
    """What reading yields, or the DecodeError that it raises; nothing else may be raised."""
    try:
        return read(*args)
    except DecodeError as e:
        return e


def same(a: Any, b: Any) -> bool:
    """Equal to AMQP: of one type and of one value, all the way down."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):  # dict or Map
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Described):
        return same(a.descriptor, b.descriptor) and same(a.value, b.value)
    if isinstance(a, Array):
        return a.type == b.type and same(a.values, b.values) and same(a.descriptors, b.descriptors)
    return bool(a == b)


def _ints(cls: type, bits: int, signed: bool) -> st.SearchStrategy[Any]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return (st.integers(-200, 300).filter(lambda n: low <= n <= high) | st.integers(low, high)).map(cls)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=300)
SYMBOLS = st.text(st.characters(max_codepoint=127), max_size=300).map(Symbol)

# By AMQP type name, so that arrays can be made of them.
PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "ubyte": _ints(UByte, 8, False),
    "ushort": _ints(UShort, 16, False),
    "uint": _ints(UInt, 32, False),
    "ulong": _ints(ULong, 64, False),
    "byte": _ints(Byte, 8, True),
    "short": _ints(Short, 16, True),
    "int": _ints(Int, 32, True),
    "long": _ints(Long, 64, True),
    "float": st.floats(width=32).map(Float),
    "double": st.floats(),
    "char": st.characters(exclude_categories=("Cs",)).map(Char),
    "timestamp": _ints(Timestamp, 64, True),
    "uuid": st.uuids(),
    "decimal32": st.binary(min_size=4, max_size=4).map(Decimal32),
    "decimal64": st.binary(min_size=8, max_size=8).map(Decimal64),
    "decimal128": st.binary(min_size=16, max_size=16).map(Decimal128),
    "binary": st.binary(max_size=300),
    "string": TEXT,
    "symbol": SYMBOLS,
}
KEYS = st.sampled_from(["string", "symbol", "binary", "uuid", "timestamp", "char"]).flatmap(PRIMITIVES.__getitem__)
DESCRIPTORS = PRIMITIVES["ulong"] | SYMBOLS


def arrays(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Array]:
    elements = {
        **PRIMITIVES,
        "list": st.lists(values, max_size=3),
        "map": st.dictionaries(PRIMITIVES["string"], values, max_size=3),
        "array": st.lists(PRIMITIVES["int"], max_size=3).map(lambda ints: Array("int", ints)),
    }
    return st.sampled_from(sorted(elements)).flatmap(
        lambda name: st.builds(
            Array, st.just(name), st.lists(elements[name], max_size=6), st.lists(DESCRIPTORS, max_size=2)
        )
    )


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(*PRIMITIVES.values()),
    lambda values: st.one_of(
        st.lists(values, max_size=6),
        st.dictionaries(KEYS, values, max_size=4),
        st.builds(Described, DESCRIPTORS | values.filter(lambda v: v is not None), values),
        arrays(values),
    ),
    max_leaves=12,
)

EXAMPLES: list[tuple[Any, str]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (UByte(0), "5000"),
    (UByte(255), "50ff"),
    (UShort(0x1234), "601234"),
    (UInt(0), "43"),
    (UInt(1), "5201"),
    (UInt(255), "52ff"),
    (UInt(256), "7000000100"),
    (UInt(2**32 - 1), "70ffffffff"),
    (ULong(0), "44"),
    (ULong(255), "53ff"),
    (ULong(256), "800000000000000100"),
    (ULong(2**64 - 1), "80ffffffffffffffff"),
    (Byte(-1), "51ff"),
    (Short(-2), "61fffe"),
    (Int(-128), "5480"),
    (Int(128), "7100000080"),
    (Int(-(2**31)), "7180000000"),
    (Long(-128), "5580"),
    (Long(-129), "81ffffffffffffff7f"),
    (Long(2**63 - 1), "817fffffffffffffff"),
    (Float(1.5), "723fc00000"),
    (-2.0, "82c000000000000000"),
    (Decimal32(b"\x22\x50\x00\x00"), "7422500000"),
    (Decimal64(bytes(range(8))), "840001020304050607"),
    (Decimal128(bytes(range(16))), "94000102030405060708090a0b0c0d0e0f"),
    (Char("€"), "73000020ac"),
    (Char("\U0001f600"), "730001f600"),
    (Timestamp(1311704463521), "830000013167adb8a1"),
    (Timestamp(-1), "83ffffffffffffffff"),
    (uuid.UUID(int=0xF81D4FAE7DEC11D0A76500A0C91E6BF6), "98f81d4fae7dec11d0a76500a0c91e6bf6"),
    (b"", "a000"),
    (b"\x00\xff", "a00200ff"),
    (b"x" * 255, "a0ff" + "78" * 255),
    (b"x" * 256, "b000000100" + "78" * 256),
    ("", "a100"),
    ("é", "a102c3a9"),
    ("é" * 128, "b100000100" + "c3a9" * 128),
    (Symbol("amqp"), "a304616d7170"),
    (Symbol("x" * 256), "b300000100" + "78" * 256),
    ([], "45"),
    ([None], "c0020140"),
    ([Long(1), [True]], "c007025501c0020141"),
    ([None] * 254, "c0fffe" + "40" * 254),
    ([None] * 255, "d000000103000000ff" + "40" * 255),
    ({}, "c10100"),
    ({Symbol("a"): None}, "c10502a3016140"),
    ({"k": b"x" * 256}, "d10000010c00000002a1016bb000000100" + "78" * 256),
    (Described(ULong(0x24), []), "00532445"),
    (Described(Symbol("a:b"), Described(ULong(1), "x")), "00a303613a62005301a10178"),
    (Array("symbol", [Symbol("a"), Symbol("bc")]), "e00702a30161026263"),
    (Array("symbol", [Symbol("x" * 256)]), "f00000010900000001b300000100" + "78" * 256),
    (Array("boolean", [True, False]), "e00402560100"),
    (Array("uint", [UInt(1), UInt(2)]), "e00a02700000000100000002"),
    (Array("null", [None] * 3), "e0020340"),
    (Array("int", []), "e0020071"),
    (Array("string", ["x"], [Symbol("d")]), "e0080100a30164a10178"),
    (Array("array", [Array("ubyte", [UByte(1)]), Array("ubyte", [])]), "e00902e003015001020050"),
    (Array("list", [[], [True]]), "e00702c00100020141"),
    (Array("map", [{}, {"a": None}]), "e00a02c101000502a1016140"),
]
"""Values and the shortest encoding of each, by hand from the specification (1.6)."""


class NoForm:
    """A value that AMQP has no form for.  Its repr says the same in every process: it stands in tests' names."""

    def __repr__(self) -> str:
        return "NoForm()"


NO_FORM = NoForm()
