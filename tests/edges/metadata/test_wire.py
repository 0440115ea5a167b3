"""Both dialects, from bytes to messages and back, and everything that is neither."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edges.metadata.wire import ARRAYS, TYPED, Decoder, Fault, Publish, Subscribe, is_value
from tests.edges.metadata import messagepack

UUID = "5a0c8b52-3f3c-4c69-a5cd-6cdb9a3b1d70"
MOST = 1 << 20
WRITERS = pytest.mark.parametrize("pack", [msgpack.packb, messagepack.pack], ids=["msgpack", "second"])
DIALECTS = pytest.mark.parametrize("dialect", [ARRAYS, TYPED], ids=["arrays", "typed"])


def decode(data: bytes, most: int = MOST) -> list[Publish | Subscribe | Fault]:
    return Decoder(most).feed(data)


@WRITERS
def test_dialect_a(pack: Any) -> None:
    decoder = Decoder(MOST)
    assert decoder.feed(pack("has Room")) == [Subscribe("has Room")]
    assert decoder.feed(pack([UUID, {"Room": "410", "x": None, "n": 1.5}, 7])) == [
        Publish(UUID, {"Room": "410", "x": None, "n": 1.5}, pack(7))
    ]
    assert decoder.feed(pack([UUID, None, None]) + pack("has a")) == [Publish(UUID, {}, b"\xc0"), Subscribe("has a")]
    assert decoder.dialect is ARRAYS


@WRITERS
def test_dialect_b(pack: Any) -> None:
    decoder = Decoder(MOST)
    assert decoder.feed(b"\x01" + pack({"UUID": UUID, "Query": "has Room"})) == [Subscribe("has Room")]
    assert decoder.feed(b"\x00" + pack({"Value": [1], "UUID": UUID, "Metadata": {"Room": True}})) == [
        Publish(UUID, {"Room": True}, pack([1]))
    ]
    assert decoder.feed(b"\x00" + pack({"UUID": UUID})) == [Publish(UUID, {}, b"\xc0")]
    assert decoder.dialect is TYPED


@pytest.mark.parametrize("head", [b"\xdc\x00\x03", b"\xdd\x00\x00\x00\x03"])
def test_an_array_of_three_in_any_form_publishes(head: bytes) -> None:
    body = msgpack.packb(UUID) + msgpack.packb({}) + msgpack.packb(1)
    assert decode(head + body) == [Publish(UUID, {}, b"\x01")]


def test_a_uuid_is_text_or_sixteen_bytes() -> None:
    data = bytes.fromhex(UUID.replace("-", ""))
    assert (
        decode(msgpack.packb([data, {}, 1]))
        == decode(msgpack.packb([UUID.upper(), {}, 1]))
        == [Publish(UUID, {}, b"\x01")]
    )


@DIALECTS
@WRITERS
def test_what_subscribers_get(dialect: Any, pack: Any) -> None:
    read = messagepack.unpack
    kind = 0 if dialect is ARRAYS else 1
    message = dialect.message(UUID, {"Room": None}, pack({"t": [1, 2]}))
    diff = dialect.diff([UUID], [])
    error = dialect.error("no", 1, 2)
    assert read(diff, kind) == ({"New": [UUID], "Del": []}, len(diff))
    assert read(error, kind) == ({"Error": "no", "Line": 1, "Column": 2}, len(error))
    if dialect is ARRAYS:
        assert read(message) == ([UUID, {"Room": None}, {"t": [1, 2]}], len(message))
    else:
        assert (message[0], diff[0], error[0]) == (0, 2, 3)
        assert read(message, 1) == ({"UUID": UUID, "Metadata": {"Room": None}, "Value": {"t": [1, 2]}}, len(message))


@given(st.lists(st.integers(1, 60)), st.binary(max_size=60))
def test_bytes_come_in_any_pieces(sizes: list[int], value: bytes) -> None:
    whole = b"".join(
        [
            msgpack.packb([UUID, {"a": 1}, value]),
            msgpack.packb("has a"),
            msgpack.packb([UUID, {}, {"v": [value, -1]}]),
        ]
    )
    decoder, found, at = Decoder(MOST), [], 0
    for size in sizes:
        found += decoder.feed(whole[at : at + size])
        at += size
    found += decoder.feed(whole[at:])
    assert found == decode(whole)
    assert len(found) == 3


def test_a_value_passes_bit_for_bit() -> None:
    for value in (
        b"\xd0\x01",
        b"\xca\x3f\x80\x00\x00",
        b"\xd9\x01a",
        b"\xa1\xff",
        b"\xc7\x02\x05ab",
        b"\xdf\x00\x00\x00\x00",
    ):
        (found,) = decode(b"\x93" + msgpack.packb(UUID) + b"\x80" + value)
        assert found.value == value
        assert TYPED.message(UUID, {}, value).endswith(value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xdc\x00\x02" + msgpack.packb(UUID) + b"\x80", "array of 3 [uuid, metadata, value], not of 2"),
        (msgpack.packb(["no uuid", {}, 1]), "named by a UUID"),
        (msgpack.packb([UUID, 5, 1]), "metadata are a map, not 5"),
        (msgpack.packb([UUID, {"": 1}, 1]), "a metadata key is a string"),
        (msgpack.packb([UUID, {"k" * 2000: 1}, 1]), "a metadata key is a string"),
        (msgpack.packb([UUID, {"k": [1]}, 1]), "metadata 'k': a string, a number"),
        (msgpack.packb([UUID, {1: "a"}, 1]), "cannot be read"),
        (b"\x93" + b"\xa1\xff" + b"\x80\xc0", "cannot be read"),
        (b"\xa1\xff", "cannot be read"),
        (b"\x01" + msgpack.packb({"UUID": UUID}), "the map has no Query"),
        (b"\x00" + msgpack.packb({"Metadata": {}}), "the map has no UUID"),
        (b"\x02" + msgpack.packb({"New": []}), "clients publish (0) and query (1)"),
        (b"\x01" + msgpack.packb({"Query": 5}), "a subscription is a string"),
    ],
)
def test_a_fault_is_answered_and_the_connection_goes_on(data: bytes, said: str) -> None:
    decoder = Decoder(MOST)
    (fault,) = decoder.feed(data)
    assert said in fault.text
    assert not fault.fatal
    more = msgpack.packb("has a") if decoder.dialect is ARRAYS else b"\x01" + msgpack.packb({"Query": "has a"})
    assert decoder.feed(more) == [Subscribe("has a")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"GET / HTTP/1.1\r\n", "a connection begins with"),
        (b"\x05", "not 0x5"),
        (b"\xc0", "not 0xc0"),
        (msgpack.packb("has a") + b"\xc1", "not MessagePack"),
        (b"\x93" + b"\x91" * 5000, "nested too deeply"),
        (b"\x01\x01", "expected a map behind the type byte"),
        (b"\x01" + msgpack.packb({"Query": "has a"}) + b"\xa1a", "expected a type byte"),
        (b"\xdb\x7f\xff\xff\xff" + b"a" * 200, "at most 100 bytes"),
        (msgpack.packb([UUID, {}, b"x" * 100]), "at most 100 bytes"),
    ],
)
def test_after_these_bytes_nothing_can_be_understood(data: bytes, said: str) -> None:
    decoder = Decoder(100) if "100" in said else Decoder(MOST)
    fault = decoder.feed(data)[-1]
    assert fault.fatal
    assert said in fault.text
    assert decoder.feed(msgpack.packb("has a")) == []


def test_no_bytes_break_the_decoder() -> None:
    rng = random.Random(11)
    seeds = [
        msgpack.packb([UUID, {"a": 1, "b": "x"}, [1, {"v": b"y"}]]) + msgpack.packb("has a"),
        b"\x00"
        + msgpack.packb({"UUID": UUID, "Metadata": {"a": None}, "Value": 1})
        + b"\x01"
        + msgpack.packb({"Query": "x"}),
    ]
    kinds = set()
    for _ in range(5000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 5)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        decoder = Decoder(200)
        for start in range(0, len(data), 16):
            for found in decoder.feed(bytes(data[start : start + 16])):
                kinds.add((type(found), getattr(found, "fatal", None)))
    assert kinds == {(Publish, None), (Subscribe, None), (Fault, True), (Fault, False)}


@pytest.mark.parametrize(
    "value",
    [None, True, 0, 127, 128, 1 << 15, 1 << 31, 1 << 63, -1, -33, -(1 << 15), -(1 << 31), -(1 << 63), 1.5, "", "a" * 31,
     "a" * 32, "a" * 300, b"", b"x" * 300, [], [1] * 20, {}, {1: 2}, *(msgpack.ExtType(5, b"x" * n) for n in (0, 1, 2, 4, 8, 16, 17))],
)  # fmt: skip
def test_a_value_is_one_and_whole(value: object) -> None:
    raw = msgpack.packb(value)
    assert is_value(raw)
    assert not is_value(raw + b"\xc0")
    assert not is_value(raw[:-1])
    assert is_value(msgpack.packb(1.5, use_single_float=True))
    assert not is_value(b"\xc1")


def test_messages_are_read_one_by_one_and_what_was_read_is_dropped() -> None:
    """So that others have a turn between two of them."""
    decoder, count = Decoder(1 << 20), 20_000
    decoder.add(msgpack.packb("has a") * count)
    assert decoder.next() == Subscribe("has a")
    whole = len(decoder._buffer)
    for _ in range(count - 1):
        assert decoder.next() == Subscribe("has a")
    assert len(decoder._buffer) < whole
    assert decoder.next() is None
    assert not decoder._buffer
