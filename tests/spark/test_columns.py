"""What the columns say of every kind of message, and that the quick ways say the same as the slow one."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp10.annotations import with_message_annotations
from amqp10.codec import encode_value
from amqp10.errors import DecodeError
from amqp10.sections import AmqpSequence, AmqpValue, Data, Header, Message, Properties
from amqp10.types import (
    Array,
    Char,
    Decimal32,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
)
from onceway.client.bodies import encode_body, with_format
from onceway.spark import columns
from onceway.spark.columns import fields
from onceway.spark.columns.fields import text
from tests.amqp10.test_sections import messages

RECEIVED_US = 1_700_000_000_000_000
UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")


def table(payloads: Sequence[bytes], names: Sequence[str] | None = None, first: int = 0) -> pa.RecordBatch:
    batch = columns.decode(
        pa.array(payloads, pa.binary()),
        pa.array([b"t%d" % n for n in range(len(payloads))], pa.binary()),
        pa.array([RECEIVED_US] * len(payloads), pa.int64()),
        topic="orders",
        partition=2,
        first=first,
        columns=names,
    )
    batch.validate(full=True)
    return batch


def row(message: Message | bytes) -> dict[str, Any]:
    """The one row of this message; headers as a dict."""
    found: dict[str, Any] = table([message if isinstance(message, bytes) else message.encode()]).to_pylist()[0]
    if found["headers"] is not None:
        found["headers"] = dict(found["headers"])
    return found


def test_schema_is_what_the_source_promises() -> None:
    assert columns.schema().names == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "received_at", "message_id", "correlation_id"),
        *("subject", "content_type", "reply_to", "group_id", "delivery_tag", "raw", "headers"),
    ]
    types = {field.name: str(field.type) for field in columns.schema()}
    assert types["timestamp"] == types["received_at"] == "timestamp[us, tz=UTC]"
    assert (types["offset"], types["partition"], types["value"]) == ("int64", "int32", "binary")
    assert types["headers"] == "map<string, string>"
    assert columns.schema(["value", "key"]).names == ["value", "key"]


def test_every_column_of_a_message_that_has_everything() -> None:
    message = Message(
        b"body",
        header=Header(durable=True, priority=7, ttl=1000, delivery_count=2),
        message_annotations={Symbol("x-opt-partition-key"): "customer 7", Symbol("x-opt-kind"): Symbol("k")},
        properties=Properties(
            message_id="m1",
            user_id=b"\x01\xff",
            to="orders",
            subject="created",
            reply_to="answers",
            correlation_id=UUID,
            content_type="application/json",
            content_encoding="gzip",
            absolute_expiry_time=1_600_000_000_000,
            creation_time=1_600_000_000_123,
            group_id="g",
            group_sequence=4,
            reply_to_group_id="rg",
        ),
        application_properties={"kind": "mine", "count": 3},
        footer={Symbol("crc"): 1},
    )
    assert row(message) == {
        "key": "customer 7",
        "value": b"body",
        "topic": "orders",
        "partition": 2,
        "offset": 0,
        "timestamp": datetime(2020, 9, 13, 12, 26, 40, 123000, tzinfo=UTC),
        "received_at": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "message_id": "m1",
        "correlation_id": str(UUID),
        "subject": "created",
        "content_type": "application/json",
        "reply_to": "answers",
        "group_id": "g",
        "delivery_tag": b"t0",
        "raw": None,
        "headers": {
            "kind": "mine",
            "count": "3",
            "x-opt-partition-key": "customer 7",
            "x-opt-kind": "k",
            "amqp.durable": "true",
            "amqp.priority": "7",
            "amqp.ttl": "1000",
            "amqp.delivery-count": "2",
            "amqp.user-id": "01ff",
            "amqp.to": "orders",
            "amqp.content-encoding": "gzip",
            "amqp.absolute-expiry-time": "2020-09-13T12:26:40.000Z",
            "amqp.group-sequence": "4",
            "amqp.reply-to-group-id": "rg",
        },
    }


def test_message_that_has_nothing_but_a_body() -> None:
    found = row(encode_body(b"x"))
    assert found["value"] == b"x"
    assert found["timestamp"] == found["received_at"]
    absent = ("key", "message_id", "correlation_id", "subject", "content_type", "reply_to", "group_id", "headers")
    assert [found[name] for name in absent] == [None] * len(absent)


@pytest.mark.parametrize(
    ("annotations", "group", "key"),
    [
        ({"x-opt-partition-key": "p", "x-opt-bridge.key": "b"}, "g", "p"),
        ({"x-opt-bridge.key": "b"}, "g", "b"),
        ({"x-opt-partition-key": ULong(7)}, None, "7"),
        ({"x-opt-partition-key": None}, "g", "g"),
        (None, "g", "g"),
        (None, None, None),
    ],
)
def test_key(annotations: dict[str, Any] | None, group: str | None, key: str | None) -> None:
    named = None if annotations is None else {Symbol(name): value for name, value in annotations.items()}
    assert row(Message(b"", message_annotations=named, properties=Properties(group_id=group)))["key"] == key


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"", b""),
        (Data(b"a", b"", b"bc"), b"abc"),
        (b"x" * 300, b"x" * 300),
        ("text \u00e9", "text \u00e9".encode()),
        ("y" * 300, b"y" * 300),
        (Symbol("sym"), b"sym"),
        (AmqpValue(b"raw"), b"raw"),
        (None, None),
        (Int(-5), b"-5"),
        (True, b"true"),
        (1.5, b"1.5"),
        (float("nan"), b'"nan"'),
        (ULong(2**64 - 1), b"18446744073709551615"),
        (Timestamp(0), b'"1970-01-01T00:00:00.000Z"'),
        (UUID, f'"{UUID}"'.encode()),
        (Char("\u00e9"), "\u00e9".encode()),
        ([1, "a", None, b"\x01"], b'[1, "a", null, "01"]'),
        ({"a": {"b": [1]}, Symbol("c"): False, Int(3): 4}, b'{"a": {"b": [1]}, "c": false, "3": 4}'),
        (Array("int", [1, 2]), b"[1, 2]"),
        (Described(Symbol("d"), 1), b'{"descriptor": "d", "value": 1}'),
        (Decimal32(b"\x01\x02\x03\x04"), b'"01020304"'),
        (AmqpSequence([1, 2], ["x"]), b'[1, 2, "x"]'),
        (AmqpSequence([]), b"[]"),
    ],
)
def test_value_of_each_kind_of_body(body: Any, value: bytes | None) -> None:
    assert row(Message(body))["value"] == value


@pytest.mark.parametrize(
    ("given_id", "said"),
    [
        ("id", "id"),
        ("", ""),
        (0, "0"),
        (7, "7"),
        (ULong(2**63 + 1), "9223372036854775809"),
        (UUID, str(UUID)),
        (b"\x00\xab", "00ab"),
        ("i" * 300, "i" * 300),
    ],
)
def test_ids_of_each_type(given_id: Any, said: str) -> None:
    found = row(Message(b"", properties=Properties(message_id=given_id, correlation_id=given_id)))
    assert (found["message_id"], found["correlation_id"]) == (said, said)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("s", "s"),
        (None, None),
        (True, "true"),
        (UByte(3), "3"),
        (-4, "-4"),
        (UInt(0), "0"),
        (Float(0.5), "0.5"),
        (float("inf"), "inf"),
        (Timestamp(-1), "1969-12-31T23:59:59.999Z"),
        (Timestamp(2**62), str(2**62)),
        (UUID, str(UUID)),
        (b"\xca\xfe", "cafe"),
        (Symbol("y"), "y"),
        ([1, ["a"]], '[1, ["a"]]'),
        ({"k": b"\x01"}, '{"k": "01"}'),
    ],
)
def test_headers_of_each_type(value: Any, said: str | None) -> None:
    found = row(Message(b"", application_properties={"h": value}, message_annotations={Symbol("x-opt-a"): value}))
    assert found["headers"] == {"h": said, "x-opt-a": said}


def test_headers_as_bytes_are_binary_as_it_is_and_other_values_as_text() -> None:
    message = Message(
        b"",
        message_annotations={Symbol("x-opt-a"): b"\xff"},
        properties=Properties(user_id=b"\x00me", to="x"),
        application_properties={"b": b"\xca\xfe", "n": UByte(3), "no": None, "text": "ä"},
    ).encode()
    expected = [
        {"key": "b", "value": b"\xca\xfe"},
        {"key": "n", "value": b"3"},
        {"key": "no", "value": None},
        {"key": "text", "value": "ä".encode()},
        {"key": "x-opt-a", "value": b"\xff"},
        {"key": "amqp.user-id", "value": b"\x00me"},
        {"key": "amqp.to", "value": b"x"},
    ]
    for count in (1, 200):  # one by one, and together
        batch = table([message] * count, [fields.BINARY_HEADERS])
        assert batch.column(0).to_pylist() == [expected] * count
    assert row(message)["headers"]["b"] == "cafe"
    assert row(message)["headers"]["amqp.user-id"] == "006d65"


def test_application_property_wins_over_what_else_has_its_name() -> None:
    message = Message(
        b"",
        message_annotations={Symbol("n"): "annotation"},
        properties=Properties(to="x"),
        application_properties={"n": "property", "amqp.to": "mine"},
    )
    assert row(message)["headers"] == {"n": "property", "amqp.to": "mine"}


@pytest.mark.parametrize("milliseconds", [-(2**63), 2**63 - 1, 253_402_300_800_000])
def test_time_that_no_calendar_has_is_when_it_was_received(milliseconds: int) -> None:
    found = row(Message(b"", properties=Properties(creation_time=milliseconds)))
    assert found["timestamp"] == found["received_at"]


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"no message at all",
        b"\x00\x53\x75\xa0\x05abc",
        b"\x00\x53\x75\xa1\x01a",
        b"\x00\x53\x77\xa1\x01\xff",
        b"\x00\x53\x75\xa0\x01a\x00\x53\x77\x40",
        b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff" + encode_body(b"x"),
        b"\x00\x53\x74\xc1\x03\x02\x50\x01" + encode_body(b"x"),
        b"\x00\x53\x72\xc1\x01\x01" + encode_body(b"x"),
        encode_body(b"x") + b"\x00\x53\x70\x45",
    ],
)
def test_what_is_no_message_is_a_row_that_says_so(payload: bytes) -> None:
    good = encode_body(b"good")
    found = table([good, payload, good]).to_pylist()
    assert [line["value"] for line in found] == [b"good", payload, b"good"]
    assert [line["raw"] for line in found] == [None, Message.read(payload).raw, None]
    assert found[1]["raw"]


def test_a_message_of_another_format_is_a_row_that_says_so() -> None:
    found = row(with_format(encode_body(b"not AMQP's"), 0x7777))
    assert found["value"] == encode_body(b"not AMQP's")
    assert "0x7777" in found["raw"]


def test_order_is_kept_whatever_the_mixture() -> None:
    rng = random.Random(4)
    kinds = [
        lambda n: encode_body(b"short %d" % n),
        lambda n: encode_body(b"%d " % n * 200),
        lambda n: with_message_annotations([encode_body(b"a%d" % n)], "x-opt-p", encode_value(["one"]))[0],
        lambda n: with_message_annotations([encode_body(b"b%d" % n)], "x-opt-p", encode_value(["two"]))[0],
        lambda n: Message(b"id%d" % n, properties=Properties(message_id=f"m{n}")).encode(),
        lambda n: Message(f"value {n}").encode(),
        lambda n: b"broken %d" % n,
    ]
    for size in (1, 2, 10, 500, 3000):
        payloads = [rng.choice(kinds)(n) for n in range(size)]
        batch = table(payloads, first=100)
        expected = [fields.read(payload) for payload in payloads]
        assert batch.column("value").to_pylist() == [each.value for each in expected]
        assert batch.column("message_id").to_pylist() == [each.message_id for each in expected]
        assert batch.column("headers").to_pylist() == [columns._cell(each, "headers") for each in expected]
        assert batch.column("offset").to_pylist() == list(range(100, 100 + size))
        assert table(payloads, ["value"]).column(0).to_pylist() == [each.value for each in expected]


def test_lengths_at_the_edges_of_the_short_form_are_told_apart() -> None:
    payloads = [encode_body(b"x" * size) for size in (0, 1, 254, 255, 256, 257, 70000)] * 100
    # one that begins like the others and whose length says something else
    payloads[350] = encode_body(b"y" * 5) + b"\x00\x53\x78\xc1\x01\x00"
    payloads[351] = encode_body(b"y" * 5)[:-1]
    batch = table(payloads, ["value"])
    assert batch.column(0).to_pylist() == [fields.read(payload).value for payload in payloads]


def test_part_of_an_array_is_decoded_as_if_it_were_alone() -> None:
    payloads = pa.array([encode_body(b"%d" % n) for n in range(100)], pa.binary()).slice(40, 20)
    tags = pa.array([b"%d" % n for n in range(100)], pa.binary()).slice(40, 20)
    received = pa.array(range(100), pa.int64()).slice(40, 20)
    batch = columns.decode(payloads, tags, received, topic="t", partition=0, first=40)
    assert (
        batch.column("value").to_pylist()
        == batch.column("delivery_tag").to_pylist()
        == [b"%d" % n for n in range(40, 60)]
    )
    assert batch.column("offset").to_pylist() == list(range(40, 60))


def test_no_rows_are_an_empty_batch() -> None:
    assert table([]).num_rows == 0
    assert table([]).schema == columns.schema()


def agree(payload: bytes) -> None:
    """The quick reader says what the codec says."""
    known = Message.decode(payload)
    found = fields.read(payload)
    properties = known.properties or Properties()
    headers = dict(columns._cell(found, "headers") or [])
    assert found.raw is None
    assert (found.subject, found.group_id, found.reply_to) == (
        properties.subject,
        properties.group_id,
        properties.reply_to,
    )
    assert found.message_id == text(properties.message_id)
    assert found.correlation_id == text(properties.correlation_id)
    assert found.content_type == text(properties.content_type)
    for name, value in (known.application_properties or {}).items():
        assert headers[str(name)] == text(value)
    body = known.body
    if isinstance(body, Data):
        assert found.value == b"".join(body.chunks)
    elif isinstance(body, AmqpValue) and (body.value is None or type(body.value) is bytes):
        assert found.value == body.value
    elif isinstance(body, AmqpValue) and isinstance(body.value, str):
        assert found.value == str(body.value).encode()
    else:
        json.loads(found.value)


@settings(max_examples=150, deadline=None)
@given(messages)
def test_whatever_a_message_is_made_of_both_readers_agree(message: Message) -> None:
    agree(message.encode())


@settings(max_examples=150, deadline=None)
@given(messages, st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), min_size=1, max_size=3))
def test_changed_octets_are_read_alike_or_not_at_all(message: Message, changes: list[tuple[int, int]]) -> None:
    data = bytearray(message.encode())
    for at, octet in changes:
        data[at % len(data)] = octet
    payload = bytes(data)
    try:
        Message.decode(payload)
    except DecodeError:
        assert table([payload]).num_rows == 1
    else:
        agree(payload)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60) | st.builds(lambda data, cut: data[:cut], st.binary(max_size=60), st.integers(0, 60)))
def test_any_octets_are_a_row(payload: bytes) -> None:
    found = fields.read(payload)
    try:
        Message.decode(payload)
    except DecodeError:
        # what no column shows may be wrong unseen; what is shown is never made up
        assert found.value is None or found.value == payload or found.value in payload
    assert table([payload]).num_rows == 1
