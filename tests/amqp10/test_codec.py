from __future__ import annotations

import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp10.codec import KNOWN_CODES, MAX_DEPTH, MAX_VALUES, decode_value, encode_value, skip_value
from amqp10.errors import DecodeError, EncodeError
from amqp10.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Described,
    Float,
    Int,
    Long,
    Map,
    Short,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
)
from tests.amqp10.values import EXAMPLES, NO_FORM, VALUES, attempt, same

DECODE = "amqp:decode-error"
LIMIT = "amqp:resource-limit-exceeded"
NOT_IMPLEMENTED = "amqp:not-implemented"


def hexa(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


@pytest.mark.parametrize(("value", "encoding"), EXAMPLES, ids=[repr(v)[:40] for v, _ in EXAMPLES])
def test_value_and_its_shortest_encoding_become_each_other(value: Any, encoding: str) -> None:
    assert encode_value(value).hex() == encoding
    decoded, end = decode_value(hexa(encoding))
    assert same(decoded, value)
    assert end == len(encoding) // 2


@pytest.mark.parametrize(
    ("encoding", "value"),
    [
        ("5601", True),
        ("5600", False),
        ("5200", UInt(0)),
        ("7000000007", UInt(7)),
        ("5300", ULong(0)),
        ("800000000000000007", ULong(7)),
        ("7100000007", Int(7)),
        ("810000000000000007", Long(7)),
        ("b00000000161", b"a"),
        ("b10000000161", "a"),
        ("b30000000161", Symbol("a")),
        ("c00100", []),
        ("d0 00000004 00000000", []),
        ("d0 00000005 00000001 40", [None]),
        ("d1 00000004 00000000", {}),
        ("d1 00000008 00000002 a10161 40", {"a": None}),
        ("f0 00000007 00000001 a3 0161", Array("symbol", [Symbol("a")])),
        ("e0 02 03 41", Array("boolean", [True] * 3)),
        ("e0 02 03 42", Array("boolean", [False] * 3)),
        ("e0 02 02 43", Array("uint", [UInt(0)] * 2)),
        ("e0 02 02 44", Array("ulong", [ULong(0)] * 2)),
        ("e0 02 02 45", Array("list", [[], []])),
        ("e0 04 02 52 0102", Array("uint", [UInt(1), UInt(2)])),
        ("e0 04 02 53 0102", Array("ulong", [ULong(1), ULong(2)])),
        ("e0 04 02 54 ff02", Array("int", [Int(-1), Int(2)])),
        ("e0 04 02 55 ff02", Array("long", [Long(-1), Long(2)])),
        ("e0 0b 02 b1 00000000 00000001 61", Array("string", ["", "a"])),
        ("e0 0b 01 d0 00000005 00000001 40", Array("list", [[None]])),
        ("e0 0a 01 d1 00000004 00000000", Array("map", [{}])),
        ("e0 0d 01 f0 00000007 00000001 a0 0161", Array("array", [Array("binary", [b"a"])])),
        ("e0 0b 02 00 5301 00 a30162 50 0102", Array("ubyte", [UByte(1), UByte(2)], [ULong(1), Symbol("b")])),
        ("00 80 0000000000000024 45", Described(ULong(0x24), [])),
    ],
)
def test_longer_and_special_forms_are_read(encoding: str, value: Any) -> None:
    data = hexa(encoding)
    decoded, end = decode_value(data)
    assert same(decoded, value)
    assert end == skip_value(data, 0, len(data)) == len(data)


@given(VALUES, st.binary(max_size=20), st.binary(max_size=20))
def test_value_is_read_from_within_a_buffer(value: Any, before: bytes, behind: bytes) -> None:
    data = encode_value(value)
    end = len(before) + len(data)
    decoded, stop = decode_value(before + data + behind, len(before), end)
    assert same(decoded, value)
    assert encode_value(decoded) == data
    assert stop == end == skip_value(before + data + behind, len(before), end)


@given(VALUES, st.data())
def test_value_cut_anywhere_is_a_decode_error_whatever_lies_behind_the_cut(value: Any, data: st.DataObject) -> None:
    encoding = encode_value(value)
    cut = data.draw(st.integers(0, len(encoding) - 1))
    for buf in (encoding[:cut], encoding):
        with pytest.raises(DecodeError) as caught:
            decode_value(buf, 0, cut)
        assert caught.value.condition == DECODE
        assert 0 <= caught.value.offset <= cut
        with pytest.raises(DecodeError):
            skip_value(buf, 0, cut)


@given(VALUES, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_value_is_a_value_or_a_decode_error(value: Any, damage: list[tuple[int, int]]) -> None:
    encoding = bytearray(encode_value(value))
    for position, octet in damage:
        encoding[position % len(encoding)] = octet
    data = bytes(encoding)
    result = attempt(decode_value, data)
    if isinstance(result, DecodeError):
        assert 0 <= result.offset <= len(data)
    else:
        decoded, end = result
        assert end == skip_value(data, 0, len(data))
        assert same(decode_value(encode_value(decoded))[0], decoded)


@pytest.mark.parametrize(
    ("encoding", "condition", "offset", "words"),
    [
        ("", DECODE, 0, "missing"),
        ("00", DECODE, 1, "missing"),
        ("00 5324", DECODE, 3, "missing"),
        ("01", DECODE, 0, "0x01 is no constructor"),
        ("46", DECODE, 0, "0x46"),
        ("ff", DECODE, 0, "0xff"),
        ("a2 00", DECODE, 0, "0xa2"),
        ("b2 00000000", DECODE, 0, "0xb2"),
        ("52", DECODE, 0, "cut off"),
        ("70 000000", DECODE, 0, "cut off"),
        ("80 00000000000000", DECODE, 0, "cut off"),
        ("98 00", DECODE, 0, "cut off"),
        ("a1", DECODE, 0, "cut off"),
        ("a1 02 61", DECODE, 0, "cut off"),
        ("b1 000000", DECODE, 0, "cut off"),
        ("b1 00000002 61", DECODE, 0, "cut off"),
        ("b0 ffffffff 61", DECODE, 0, "cut off"),
        ("56 02", DECODE, 1, "0x02 is no boolean"),
        ("73 0000d800", DECODE, 1, "0xd800 is no Unicode character"),
        ("73 00110000", DECODE, 1, "0x110000"),
        ("a1 03 61 ff 61", DECODE, 3, "UTF-8"),
        ("a1 02 61 c3", DECODE, 3, "UTF-8"),
        ("a1 03 eda080", DECODE, 2, "UTF-8"),
        ("a3 03 61 62 80", DECODE, 4, "ASCII"),
        ("b3 00000001 e9", DECODE, 5, "ASCII"),
        # lists
        ("c0", DECODE, 0, "cut off"),
        ("c0 01", DECODE, 0, "cut off"),
        ("c0 00 00", DECODE, 0, "no room for the count"),
        ("c0 02 01", DECODE, 0, "cut off"),
        ("c0 02 02 40", DECODE, 0, "2 entries cannot lie in 1 bytes"),
        ("c0 ff ff 40", DECODE, 0, "cut off"),
        ("d0 00000003 00000000", DECODE, 0, "no room for the count"),
        ("d0 00000005 ffffffff 40", DECODE, 0, "4294967295 entries"),
        ("d0 ffffffff 00000001 40", DECODE, 0, "cut off"),
        ("c0 03 01 40 40", DECODE, 4, "1 bytes are left over"),
        ("c0 04 02 40 a1 05", DECODE, 4, "cut off"),  # the entry ends behind its list
        ("c0 05 02 40 c0 02 01", DECODE, 4, "cut off"),
        ("c0 06 02 5201 a1 ff 61", DECODE, 5, "cut off"),
        # maps
        ("c1 02 01 40", DECODE, 0, "odd number"),
        ("c1 03 02 a100", DECODE, 5, "missing"),
        ("c1 09 04 a10161 40 a10161 40", DECODE, 7, "'a' twice"),
        ("c1 09 04 a30161 40 a30161 40", DECODE, 7, "Symbol('a') twice"),
        ("c1 09 04 a30161 40 a10161 40", NOT_IMPLEMENTED, 7, "type only"),
        ("c1 07 04 5501 40 5201 40", NOT_IMPLEMENTED, 6, "type only"),
        ("c1 05 04 41 40 41 40", DECODE, 5, "True twice"),
        ("c1 03 02 45 40", NOT_IMPLEMENTED, 3, "keys"),
        ("c1 03 04 4040", DECODE, 0, "4 entries"),
        ("c1 00 00", DECODE, 0, "no room"),
        ("c1 04 02 41 40 41", DECODE, 5, "left over"),
        # arrays
        ("e0 01 00", DECODE, 3, "missing"),
        ("e0 02 00 01", DECODE, 3, "0x01"),
        ("e0 03 02 50 01", DECODE, 0, "2 entries"),
        ("e0 04 01 50 01 02", DECODE, 5, "left over"),
        ("e0 05 02 a1 01 61 05", DECODE, 6, "cut off"),
        ("e0 04 01 56 01 02", DECODE, 5, "left over"),
        ("e0 04 02 56 01 02", DECODE, 5, "no boolean"),
        ("e0 03 00 00 40", DECODE, 5, "missing"),
        ("e0 04 01 a3 01 e9", DECODE, 5, "ASCII"),
        ("f0 00000005 ffffffff 50", DECODE, 0, "4294967295 entries"),
        ("f0 00000005 ffffffff 40", LIMIT, 0, "more than"),
        ("f0 00000005 000f4241 45", LIMIT, 0, "more than"),
    ],
)
def test_malformed_value_is_named_with_condition_and_offset(
    encoding: str, condition: str, offset: int, words: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_value(hexa(encoding))
    assert (caught.value.condition, caught.value.offset) == (condition, offset), str(caught.value)
    assert words in caught.value.description
    assert f"at byte {offset}" in str(caught.value)


def test_every_constructor_is_either_known_or_named() -> None:
    for code in range(1, 256):
        data = bytes((code,)) + bytes(20)
        if code in KNOWN_CODES:
            continue
        with pytest.raises(DecodeError, match=f"0x{code:02x} is no constructor"):
            decode_value(data)
        with pytest.raises(DecodeError, match=f"0x{code:02x} is no constructor"):
            skip_value(data, 0, len(data))


def _nested_lists(depth: int) -> bytes:
    data = b"\x45"
    for _ in range(depth):
        data = b"\xd0" + (len(data) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + data
    return data


def test_nesting_is_bounded_when_reading() -> None:
    assert decode_value(_nested_lists(MAX_DEPTH))[0]
    with pytest.raises(DecodeError) as caught:
        decode_value(_nested_lists(MAX_DEPTH + 1))
    assert (caught.value.condition, caught.value.offset) == (LIMIT, MAX_DEPTH * 9)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 5000,
        b"\x00\x53\x01" * 5000 + b"\x40",
        b"\x00" * 5000 + b"\x40" * 5001,
        _nested_lists(5000),
        b"\xe0\xfe\x01" + b"\x00\x40" * 126 + b"\x50",
    ],
)
def test_endless_nesting_is_refused_and_not_followed(data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_value(data)
    assert caught.value.condition == LIMIT


@pytest.mark.parametrize("data", [b"\x00" * 5000, b"\x00\x53\x01" * 5000 + b"\x40", b"\x00" * 5000 + b"\x40" * 5001])
def test_endless_descriptors_are_not_skipped_either(data: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        skip_value(data, 0, len(data))
    assert caught.value.condition == LIMIT


def test_nesting_is_bounded_when_writing() -> None:
    value: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        value = [value]
    assert decode_value(encode_value(value))[0] == value
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(EncodeError, match="deep"):
        encode_value(endless)
    described: Any = None
    for _ in range(MAX_DEPTH + 1):
        described = Described(ULong(1), described)
    with pytest.raises(EncodeError, match="deep"):
        encode_value(described)


def test_claimed_counts_cost_no_memory() -> None:
    bombs = [
        hexa("f0 00000005 ffffffff 40"),
        hexa("f0 00000005 ffffffff 50"),
        hexa("d0 00000004 ffffffff"),
        hexa("d1 00000004 fffffffe"),
        hexa("b0 ffffffff"),
    ]
    tracemalloc.start()
    try:
        for bomb in bombs:
            with pytest.raises(DecodeError):
                decode_value(bomb)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_many_small_bombs_share_one_bound() -> None:
    one = hexa("f0 00000005 0000ffff 43")
    count = MAX_VALUES // 0xFFFF + 1
    body = one * count
    with pytest.raises(DecodeError) as caught:
        decode_value(b"\xd0" + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + body)
    assert caught.value.condition == LIMIT


def test_plain_python_values_have_an_amqp_type() -> None:
    assert same(decode_value(encode_value(5))[0], Long(5))
    assert same(decode_value(encode_value((1, "x")))[0], [Long(1), "x"])
    assert same(decode_value(encode_value(bytearray(b"x")))[0], b"x")
    assert same(decode_value(encode_value(memoryview(b"x")))[0], b"x")


def test_subclass_is_encoded_as_its_base() -> None:
    class Name(str):
        pass

    class Reason(Symbol):
        pass

    assert same(decode_value(encode_value(Name("x")))[0], "x")
    assert same(decode_value(encode_value(Reason("x")))[0], Symbol("x"))


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        UByte(256),
        UByte(-1),
        UShort(65536),
        UInt(-1),
        UInt(2**32),
        ULong(-1),
        ULong(2**64),
        Byte(128),
        Short(-32769),
        Int(2**31),
        Long(2**63),
        Float(1e300),
        Char("ab"),
        Char(""),
        Char("\ud800"),
        Symbol("é"),
        "\ud800",
        NO_FORM,
        {1, 2},
        [1, [NO_FORM]],
        {"a": NO_FORM},
        Array("symbol", ["é"]),
        Array("symbol", [5]),
        Array("ubyte", [256]),
        Array("ubyte", ["x"]),
        Array("null", [1]),
        Array("string", [b"x"]),
        Array("binary", ["x"]),
        Array("binary", [5]),
        Array("list", ["x"]),
        Array("list", [5]),
        Array("map", [[1]]),
        Array("array", [[1]]),
        Array("uuid", [b"x" * 16]),
        Array("decimal32", [b"xxxx"]),
        Array("decimal32", [Described(ULong(1), None)]),
        Array("nonsense", [1]),
        Array("char", ["ab"]),
    ],
    ids=lambda v: repr(v)[:40],
)
def test_value_without_amqp_form_is_an_encode_error(value: Any) -> None:
    with pytest.raises(EncodeError):
        encode_value(value)


def test_a_map_of_other_keys_than_text_is_read_like_a_dict() -> None:
    keys = [uuid.UUID(int=7), ULong(5), 1.5, -0.0, None, True, b"i5", "5", Decimal32(b"1234")]
    encoded = encode_value(dict(zip(keys, range(9), strict=True)))
    decoded, _ = decode_value(encoded)
    assert isinstance(decoded, Map)
    assert [decoded[key] for key in keys] == [*range(9)]
    assert decoded[5] == decoded[5.0] == 1
    assert decoded == dict(decoded)
    assert dict(decoded) == decoded
    assert (encode_value(decoded), len(decoded), b"5" in decoded) == (encoded, 9, False)
    del decoded[1]
    decoded[5] = "new"
    assert (len(decoded), decoded[ULong(5)], decoded == dict(zip(keys, range(9), strict=True))) == (8, "new", False)


@pytest.mark.parametrize("number", [1, 1 << 61])
def test_keys_that_have_one_hash_are_compared_with_nobody(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python hashes a UUID as its number modulo 2**61 - 1, in every process."""
    keys = [uuid.UUID(int=number + n * (2**61 - 1)) for n in range(200)]
    octets = b"".join(b"\x98" + key.bytes + b"\x40" for key in keys)
    compared = 0
    plain = uuid.UUID.__eq__

    def counted(self: uuid.UUID, other: object) -> bool:
        nonlocal compared
        compared += 1
        return plain(self, other)

    monkeypatch.setattr(uuid.UUID, "__eq__", counted)
    decoded, _ = decode_value(b"\xd1" + (len(octets) + 4).to_bytes(4, "big") + b"\0\0\x01\x90" + octets)
    assert (len(decoded), compared) == (200, 0)


def test_symbol_is_found_by_plain_string() -> None:
    assert {Symbol("a"): 1}["a"] == 1
    assert Symbol("a") == "a"
    assert repr(Symbol("a")) == "Symbol('a')"
    assert str(Symbol("a")) == "a"
    assert type(str(Symbol("a"))) is str


def test_decimal_of_the_wrong_width_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="4 bytes"):
        Decimal32(b"12345")
