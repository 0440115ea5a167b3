"""Messages of one layout, read together, say what each of them says by itself."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp10.sections import AmqpSequence, Header, Message, Properties
from amqp10.types import Array, Char, Described, Float, Int, Long, Symbol, Timestamp, UByte, UInt, ULong, UShort
from onceway.spark import columns
from onceway.spark.columns import fields
from onceway.spark.columns.layouts import layout_of
from onceway.spark.columns.pieces import Payloads
from tests.amqp10.test_sections import messages

NEEDED = [name for name in columns._TYPES if name in columns._OF_THE_MESSAGE]


def as_list(found: dict[str, Any]) -> list[dict[str, Any]]:
    """One dict for each row, timestamps in microseconds."""
    lists = {
        name: (array.cast(pa.int64()) if name == "timestamp" else array).to_pylist() for name, array in found.items()
    }
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def one_by_one(payloads: Sequence[bytes]) -> list[dict[str, Any]]:
    found = [fields.read(payload) for payload in payloads]
    return [{name: columns._cell(row, name) for name in NEEDED} for row in found]


def check(payloads: Sequence[bytes]) -> int:
    """Reads them by the layout of the first; returns how many have it."""
    layout = layout_of(payloads[0])
    if layout is None:
        return 0
    array = pa.array([b"in front", *payloads], pa.binary()).slice(1)
    read = layout.read(array, NEEDED, 1)
    assert read is not None, "a message does not have its own layout"
    good, found = read
    for column in found.values():
        column.validate(full=True)
    assert as_list(found) == one_by_one(
        [payload for payload, fits in zip(payloads, good.to_pylist(), strict=True) if fits]
    )
    value = layout.read(array, ["value"], 1)
    assert value[0] == good
    assert value[1]["value"] == found["value"]
    return int(good.true_count)


TYPES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=12),
    "symbol": st.text(st.characters(max_codepoint=127), max_size=12).map(Symbol),
    "long text": st.text("äb", min_size=300, max_size=310),
    "bool": st.booleans(),
    "ubyte": st.integers(0, 255).map(UByte),
    "ushort": st.integers(0, 65535).map(UShort),
    "uint": st.one_of(st.integers(0, 300), st.integers(0, 2**32 - 1)).map(UInt),
    "ulong": st.one_of(st.integers(0, 300), st.integers(0, 2**64 - 1)).map(ULong),
    "int": st.one_of(st.integers(-200, 200), st.integers(-(2**31), 2**31 - 1)).map(Int),
    "long": st.one_of(st.integers(-200, 200), st.integers(-(2**63), 2**63 - 1)).map(Long),
    "float": st.floats(width=32).map(Float),
    "double": st.floats(),
    "char": st.characters().map(Char),
    "time": st.integers(-(2**63), 2**63 - 1).map(Timestamp),
    "uuid": st.uuids(),
    "binary": st.binary(max_size=12),
    "null": st.none(),
}
NESTED: dict[str, st.SearchStrategy[Any]] = {
    **TYPES,
    "list": st.lists(st.text(max_size=3) | st.integers(-9, 9), max_size=3),
    "map": st.dictionaries(st.text(max_size=3), st.booleans(), max_size=3),
}
IDS = st.sampled_from(["text", "ulong", "uuid", "binary", "null"])
TEXT = st.sampled_from(["text", "null"])
SYMBOL = st.sampled_from(["symbol", "null"])
PROPERTIES = {
    "message_id": IDS,
    "user_id": st.sampled_from(["binary", "null"]),
    "to": TEXT,
    "subject": TEXT,
    "reply_to": TEXT,
    "correlation_id": IDS,
    "content_type": SYMBOL,
    "content_encoding": SYMBOL,
    "absolute_expiry_time": st.sampled_from(["time", "null"]),
    "creation_time": st.sampled_from(["time", "null"]),
    "group_id": TEXT,
    "group_sequence": st.sampled_from(["uint", "null"]),
    "reply_to_group_id": TEXT,
}
NAMES = st.sampled_from(["a", "beta", "x-opt-partition-key", "x-opt-bridge.key", "amqp.to", "amqp.ttl", "name " * 20])
BODIES = {
    "data": st.binary(max_size=300),
    "text": st.text(max_size=90).map(str),
    "null": st.none(),
    "other": st.integers(0, 9),
}


@st.composite
def alike(draw: Any) -> list[Message]:
    """Messages that have the same parts of the same types; what they hold is each one's own."""
    kinds = {name: draw(kind) for name, kind in PROPERTIES.items()} if draw(st.booleans()) else {}
    annotated = draw(st.dictionaries(NAMES, st.sampled_from(sorted(NESTED)), max_size=3))
    described = draw(st.dictionaries(NAMES, st.sampled_from(sorted(TYPES)), max_size=3))
    header = draw(st.sampled_from([None, Header(durable=True, ttl=5), Header(priority=9)]))
    body = BODIES[draw(st.sampled_from(sorted(BODIES)))]
    return [
        Message(
            draw(body),
            header=header,
            message_annotations={Symbol(name): draw(NESTED[kind]) for name, kind in annotated.items()} or None,
            properties=Properties(**{name: draw(TYPES[kind]) for name, kind in kinds.items()}) if kinds else None,
            application_properties={name: draw(TYPES[kind]) for name, kind in described.items()} or None,
        )
        for _ in range(draw(st.integers(1, 6)))
    ]


@settings(max_examples=120, deadline=None)
@given(alike())
def test_messages_of_one_layout_are_read_as_each_by_itself(some: list[Message]) -> None:
    check([message.encode() for message in some])


@settings(max_examples=120, deadline=None)
@given(alike(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 400), st.integers(0, 255)), min_size=1))
def test_changed_octets_are_read_as_by_themselves_or_have_another_layout(
    some: list[Message], changes: list[tuple[int, int, int]]
) -> None:
    payloads = [bytearray(message.encode()) for message in (some[0], *some)]
    for number, at, octet in changes:
        payload = payloads[1 + number % len(some)]
        payload[at % len(payload)] = octet
    check([bytes(payload) for payload in payloads])


@settings(max_examples=60, deadline=None)
@given(messages, st.lists(messages, max_size=3), st.lists(st.binary(max_size=20), max_size=2), st.integers(0, 40))
def test_any_message_beside_any_others_and_pieces_of_them(
    first: Message, others: list[Message], octets: list[bytes], cut: int
) -> None:
    encoded = first.encode()
    check([encoded, *(other.encode() for other in others), *octets, encoded[:cut], encoded + encoded[:cut], encoded])


def with_many() -> Message:
    return Message(
        b"body",
        message_annotations={Symbol("x-opt-partition-key"): "customer", Symbol("x-opt-list"): ["a", 1]},
        properties=Properties(message_id=uuid.UUID(int=7), subject="s", creation_time=Timestamp(1_000), group_id="g"),
        application_properties={"trace": "ä", "count": UInt(7), "yes": True},
    )


def test_usual_messages_have_a_layout_whatever_they_hold() -> None:
    first, second = with_many(), with_many()
    second.message_annotations[Symbol("x-opt-partition-key")] = "another customer"  # type: ignore[index]
    second.properties.message_id = uuid.UUID(int=8)  # type: ignore[union-attr]
    second.application_properties.update(trace="long " * 9, count=UInt(70_000), yes=False)  # type: ignore[union-attr]
    second.body = Message(b"x" * 200).body
    assert check([first.encode(), second.encode(), Message(b"plain").encode(), b"broken"]) == 2


@pytest.mark.parametrize(
    "message",
    [
        Message(AmqpSequence([[1], [2]])),
        Message(Described(Symbol("d"), 1)),
        Message(b"x", footer={Symbol("crc"): 1}),
        Message(Array("ulong", [1])),
        Message(b"x", message_annotations={Symbol("d"): Described(Symbol("d"), 1)}),
    ],
)
def test_what_is_rare_has_none(message: Message) -> None:
    assert layout_of(message.encode()) is None


def test_what_is_no_message_has_none() -> None:
    for payload in (b"", b"\x00", b"\x00Su", b"\x00Su\xa0\x05x"):
        assert layout_of(payload) is None


def test_wrong_text_in_a_column_that_nobody_wants_is_found_all_the_same() -> None:
    good = Message(b"x", properties=Properties(subject="good")).encode()
    bad = good.replace(b"good", b"b\xffd.")
    layout = layout_of(good)
    read = layout.read(pa.array([good, bad, good], pa.binary()), ["value"], 1)
    assert read[0].to_pylist() == [True, False, True]
    assert read[1]["value"].to_pylist() == [b"x", b"x"]
    assert layout.read(pa.array([bad], pa.binary()), ["value"], 1) is None


def test_a_batch_in_which_everything_differs_is_read_by_layouts_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    slow = columns._one_by_one
    monkeypatch.setattr(
        columns, "_one_by_one", lambda payloads, needed: (read.append(len(payloads)), slow(payloads, needed))[1]
    )
    payloads = [
        Message(
            b"%d" % number,
            properties=Properties(message_id=f"m{number}") if number % 3 else None,
            application_properties={"n": UInt(number)} if number % 2 else {"s": "x" * (number % 7)},
        ).encode()
        for number in range(3000)
    ]
    payloads[::100] = [b"broken"] * 30
    found = columns._messages(pa.array(payloads, pa.binary()), NEEDED)
    assert as_list(found) == one_by_one(payloads)
    assert read == [30]


def test_positions_beyond_the_end_are_answered_with_any_octet() -> None:
    octets = Payloads(pa.array([b"ab", b"c"], pa.binary()))
    assert octets.at(pa.array([0, 9], pa.int64())).to_pylist() == [97, 99]
    assert octets.are(pa.array([1, 2], pa.int64()), b"bc").to_pylist() == [False, False]
    assert octets.are(pa.array([0, 2], pa.int64()), b"ab").to_pylist() == [True, False]
