"""Qpid Proton's encoder and decoder against ours: what one writes the other must read as the same value."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp10.annotations import sections
from amqp10.codec import decode_value, encode_value
from amqp10.sections import AmqpValue, Data, Header, Message, Properties
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
from tests.amqp10.values import PRIMITIVES, same

proton = pytest.importorskip("proton")

TO_PROTON: dict[type, Any] = {
    UByte: proton.ubyte,
    UShort: proton.ushort,
    UInt: proton.uint,
    ULong: proton.ulong,
    Byte: proton.byte,
    Short: proton.short,
    Int: proton.int32,
    Long: int,
    Float: proton.float32,
    Char: proton.char,
    Timestamp: proton.timestamp,
    Symbol: proton.symbol,
    Decimal32: lambda v: proton.decimal32(int.from_bytes(v.raw, "big")),
    Decimal64: lambda v: proton.decimal64(int.from_bytes(v.raw, "big")),
    Decimal128: lambda v: proton.decimal128(v.raw),
}
CODES = {
    "boolean": proton.Data.BOOL,
    "ubyte": proton.Data.UBYTE,
    "ushort": proton.Data.USHORT,
    "uint": proton.Data.UINT,
    "ulong": proton.Data.ULONG,
    "byte": proton.Data.BYTE,
    "short": proton.Data.SHORT,
    "int": proton.Data.INT,
    "long": proton.Data.LONG,
    "float": proton.Data.FLOAT,
    "double": proton.Data.DOUBLE,
    "char": proton.Data.CHAR,
    "timestamp": proton.Data.TIMESTAMP,
    "uuid": proton.Data.UUID,
    "decimal32": proton.Data.DECIMAL32,
    "decimal64": proton.Data.DECIMAL64,
    "decimal128": proton.Data.DECIMAL128,
    "binary": proton.Data.BINARY,
    "string": proton.Data.STRING,
    "symbol": proton.Data.SYMBOL,
}
NAMES = {code: name for name, code in CODES.items()}


def to_proton(value: Any) -> Any:
    if isinstance(value, Described):
        return proton.Described(to_proton(value.descriptor), to_proton(value.value))
    if isinstance(value, Array):
        descriptor = to_proton(value.descriptors[0]) if value.descriptors else proton.UNDESCRIBED
        return proton.Array(descriptor, CODES[value.type], *map(to_proton, value.values))
    if isinstance(value, list):
        return [to_proton(v) for v in value]
    if isinstance(value, dict):
        return {to_proton(k): to_proton(v) for k, v in value.items()}
    convert = TO_PROTON.get(type(value))
    return value if convert is None else convert(value)


FROM_PROTON: dict[type, Any] = {
    proton.ubyte: UByte,
    proton.ushort: UShort,
    proton.uint: UInt,
    proton.ulong: ULong,
    proton.byte: Byte,
    proton.short: Short,
    proton.int32: Int,
    int: Long,
    proton.float32: Float,
    proton.char: Char,
    proton.timestamp: Timestamp,
    proton.symbol: Symbol,
    memoryview: bytes,
    proton.decimal32: lambda v: Decimal32(int(v).to_bytes(4, "big")),
    proton.decimal64: lambda v: Decimal64(int(v).to_bytes(8, "big")),
    proton.decimal128: lambda v: Decimal128(bytes(v)),
}


def from_proton(value: Any) -> Any:
    if isinstance(value, proton.Described):
        return Described(from_proton(value.descriptor), from_proton(value.value))
    if isinstance(value, proton.Array):
        descriptors = () if value.descriptor is proton.UNDESCRIBED else (from_proton(value.descriptor),)
        return Array(NAMES[value.type], map(from_proton, value.elements), descriptors)
    if isinstance(value, list):
        return [from_proton(v) for v in value]
    if isinstance(value, dict):
        return {from_proton(k): from_proton(v) for k, v in value.items()}
    convert = FROM_PROTON.get(type(value))
    return value if convert is None else convert(value)


def proton_encode(value: Any) -> bytes:
    data = proton.Data()
    data.put_object(to_proton(value))
    return bytes(data.encode())


def proton_decode(encoding: bytes) -> Any:
    data = proton.Data()
    assert data.decode(encoding) == len(encoding)
    data.next()
    return from_proton(data.get_object())


primitives = st.one_of(*(strategy for name, strategy in PRIMITIVES.items() if name != "null"))
arrays = st.sampled_from(sorted(CODES)).flatmap(
    lambda name: st.builds(
        Array,
        st.just(name),
        st.lists(PRIMITIVES[name], min_size=1, max_size=4),
        st.lists(PRIMITIVES["ulong"] | PRIMITIVES["symbol"], max_size=1),
    )
)
values = st.recursive(
    primitives | arrays | st.none(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(PRIMITIVES["string"] | PRIMITIVES["symbol"], inner, max_size=3),
        # Proton's decoder loses a described value directly inside a described value.
        st.builds(
            Described,
            PRIMITIVES["ulong"] | PRIMITIVES["symbol"],
            inner.filter(lambda v: not isinstance(v, Described)),
        ),
    ),
    max_leaves=8,
)


@given(values)
def test_proton_reads_what_we_write(value: Any) -> None:
    assert same(proton_decode(encode_value(value)), value)


@given(values)
def test_we_read_what_proton_writes(value: Any) -> None:
    assert same(decode_value(proton_encode(value))[0], value)


@pytest.mark.parametrize(
    "body",
    [None, True, 5, -(2**40), 1.5, "text", "é" * 400, b"", b"x" * 400, [1, "a", [None]], {"k": [1]}, uuid.UUID(int=9)],
    ids=lambda v: repr(v)[:30],
)
def test_we_read_proton_s_messages(body: Any) -> None:
    sent = proton.Message(
        body=body,
        id="id-1",
        user_id=b"user",
        address="topic",
        subject="subject",
        reply_to="reply",
        correlation_id=uuid.UUID(int=7),
        content_type="text/plain",
        content_encoding="utf-8",
        expiry_time=2.0,
        creation_time=1.0,
        group_id="group",
        group_sequence=3,
        reply_to_group_id="reply-group",
        durable=True,
        priority=7,
        ttl=1.5,
        delivery_count=2,
        properties={"k": 5},
        annotations={proton.symbol("x-opt-a"): "v"},
        instructions={proton.symbol("i"): 1},
    )
    payload = bytes(sent.encode())
    message = Message.decode(payload)
    assert message.value == body
    assert message.header == Header(True, 7, 1500, False, 2)
    assert message.properties == Properties(
        "id-1",
        b"user",
        "topic",
        "subject",
        "reply",
        uuid.UUID(int=7),
        "text/plain",
        "utf-8",
        2000,
        1000,
        "group",
        3,
        "reply-group",
    )
    assert message.application_properties == {"k": 5}
    assert message.message_annotations == {"x-opt-a": "v"}
    assert message.delivery_annotations == {"i": 1}
    body_sections = [] if body is None else [0x77]  # proton sends no body at all for None
    assert [code for code, _, _ in sections(payload)] == [0x70, 0x71, 0x72, 0x73, 0x74, *body_sections]


@pytest.mark.parametrize("body", [Data(b"bytes"), AmqpValue("text"), AmqpValue([1, {"k": None}]), AmqpValue(b"x")])
def test_proton_reads_our_messages(body: Any) -> None:
    payload = Message(
        body,
        header=Header(durable=True, priority=9, ttl=5000),
        message_annotations={"x-opt-a": 1},
        properties=Properties(message_id=5, user_id=b"u", to="t", subject="s", creation_time=1000),
        application_properties={"k": "v"},
    ).encode()
    message = proton.Message()
    message.decode(payload)
    received = message.body.tobytes() if isinstance(message.body, memoryview) else message.body
    assert received == Message(body).value
    assert (message.durable, message.priority, message.ttl) == (True, 9, 5.0)
    assert (message.id, bytes(message.user_id), message.address, message.subject) == (5, b"u", "t", "s")
    assert message.creation_time == 1.0
    assert message.annotations == {"x-opt-a": 1}
    assert message.properties == {"k": "v"}
