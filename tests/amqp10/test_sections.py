from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp10 import annotations as module
from amqp10.annotations import (
    MOST_ANNOTATIONS,
    MOST_SECTIONS,
    SectionWalk,
    message_annotation,
    sections,
    with_message_annotation,
    with_message_annotations,
    with_true_annotation,
)
from amqp10.codec import decode_value, encode_value
from amqp10.errors import DecodeError, EncodeError
from amqp10.frames import LARGE
from amqp10.sections import AmqpSequence, AmqpValue, Data, Glance, Header, Message, Properties
from amqp10.types import Array, Described, Symbol, Timestamp, ULong
from tests.amqp10.values import NO_FORM, SYMBOLS, TEXT, VALUES, attempt

DECODE = "amqp:decode-error"
INVALID = "amqp:invalid-field"
KEY = "x-opt-onceway-publisher"

ulongs = st.integers(0, 2**64 - 1).map(ULong)
uints = st.integers(0, 2**32 - 1)
ids = ulongs | st.uuids() | st.binary(max_size=9) | TEXT
times = st.integers(-(2**63), 2**63 - 1).map(Timestamp)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


annotations = st.dictionaries(SYMBOLS | ulongs, VALUES, max_size=3)
headers = st.builds(Header, st.booleans(), st.integers(0, 255), optional(uints), st.booleans(), uints)
properties = st.builds(
    Properties,
    optional(ids),
    optional(st.binary(max_size=9)),
    optional(TEXT),
    optional(TEXT),
    optional(TEXT),
    optional(ids),
    optional(SYMBOLS),
    optional(SYMBOLS),
    optional(times),
    optional(times),
    optional(TEXT),
    optional(uints),
    optional(TEXT),
)
bodies = st.one_of(
    st.lists(st.binary(max_size=300), min_size=1, max_size=3).map(lambda chunks: Data(*chunks)),
    st.lists(st.lists(VALUES, max_size=3), min_size=1, max_size=3).map(lambda lists: AmqpSequence(*lists)),
    VALUES.map(AmqpValue),
)
messages = st.builds(
    Message,
    bodies,
    header=optional(headers),
    delivery_annotations=optional(annotations),
    message_annotations=optional(annotations),
    properties=optional(properties),
    application_properties=optional(st.dictionaries(TEXT, VALUES, max_size=3)),
    footer=optional(annotations),
)


def described(code: int, value: Any) -> bytes:
    return encode_value(Described(ULong(code), value))


def without_annotation(payload: bytes, key: str) -> list[tuple[int, bytes]]:
    """The sections but for one annotation, and but for message-annotations that are empty without it."""
    found = []
    for code, start, stop in sections(payload):
        octets = payload[start:stop]
        if code == 0x72:
            entries = decode_value(octets)[0].value
            entries.pop(key, None)
            if not entries:
                continue
            octets = encode_value(list(entries.items()))
        found.append((code, octets))
    return found


@given(messages)
def test_any_message_survives_the_round_trip_and_its_sections_lie_end_to_end(message: Message) -> None:
    payload = message.encode()
    decoded = Message.decode(payload)
    assert repr(decoded) == repr(message) or decoded == message
    assert decoded.encode() == payload
    found = sections(payload)
    assert [start for _, start, _ in found] == [0, *(stop for _, _, stop in found)][:-1]
    assert found[-1][2] == len(payload)
    assert [code for code, _, _ in found] == sorted(code for code, _, _ in found)


@given(messages, VALUES)
def test_annotation_is_added_and_nothing_else_changed(message: Message, value: Any) -> None:
    payload = message.encode()
    annotated = with_message_annotation(payload, KEY, encode_value(value))
    assert encode_value(message_annotation(annotated, KEY)) == encode_value(value)
    assert without_annotation(annotated, KEY) == without_annotation(payload, KEY)
    Message.decode(annotated)
    again = with_message_annotation(annotated, KEY, encode_value(b"other"))
    assert message_annotation(again, KEY) == b"other"
    assert without_annotation(again, KEY) == without_annotation(payload, KEY)
    assert with_message_annotations([payload, annotated], KEY, encode_value(value)) == [annotated, annotated]


@given(messages, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_payload_is_another_message_or_a_decode_error(message: Message, damage: list[tuple[int, int]]) -> None:
    payload = bytearray(message.encode())
    for position, octet in damage:
        payload[position % len(payload)] = octet
    data = bytes(payload)
    for read in (
        Message.decode,
        sections,
        lambda p: with_message_annotation(p, KEY, b"\x40"),
        lambda p: message_annotation(p, KEY),
    ):
        result = attempt(read, data)
        assert not isinstance(result, DecodeError) or 0 <= result.offset <= len(data)


@given(messages, st.data())
def test_payload_cut_within_a_section_is_a_decode_error(message: Message, data: st.DataObject) -> None:
    payload = message.encode()
    cut = data.draw(st.integers(1, len(payload) - 1))
    if cut in [stop for _, _, stop in sections(payload)]:
        return
    for read in (Message.decode, sections):
        with pytest.raises(DecodeError):
            read(payload[:cut])


@pytest.mark.parametrize(
    ("message", "encoding"),
    [
        (Message(b"ab"), "005375 a0026162"),
        (Message(b""), "005375 a000"),
        (Message("ab"), "005377 a1026162"),
        (Message(None), "005377 40"),
        (Message(Data(b"a", b"b")), "005375 a00161 005375 a00162"),
        (Message(Data()), "005375 a000"),
        (Message(AmqpSequence(["a"], [])), "005376 c00401a10161 005376 45"),
        (Message(AmqpSequence()), "005376 45"),
        (Message(b"", header=Header(durable=True, delivery_count=2)), "005370 c0070541404040 5202 005375 a000"),
        (Message(b"", header=Header()), "005370 45 005375 a000"),
        (Message(b"", message_annotations={"k": True}), "005372 c10502 a3016b 41 005375 a000"),
        (Message(b"", message_annotations={7: True}), "005372 c10402 5307 41 005375 a000"),
        (Message(b"", application_properties={"k": True}), "005374 c10502 a1016b 41 005375 a000"),
        (Message(b"", properties=Properties(message_id=1)), "005373 c00301 5301 005375 a000"),
        (Message(b"", footer={"k": True}), "005375 a000 005378 c10502 a3016b 41"),
    ],
    ids=repr,
)
def test_message_looks_as_the_specification_says(message: Message, encoding: str) -> None:
    assert message.encode().hex() == encoding.replace(" ", "")
    assert Message.decode(message.encode()).encode() == message.encode()


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"ab", b"ab"),
        (Data(b"a", b"b"), b"ab"),
        ("ab", "ab"),
        ({"k": 1}, {"k": 1}),
        (AmqpSequence([1], [2]), [[1], [2]]),
        (AmqpValue(b"ab"), b"ab"),
        (None, None),
    ],
)
def test_value_of_a_body_is_what_the_application_meant(body: Any, value: Any) -> None:
    assert Message(body).value == value
    assert Message.decode(Message(body).encode()).value == value


def test_properties_have_natural_values() -> None:
    given_ = Properties(
        message_id=uuid.UUID(int=1), correlation_id=7, content_type="text/plain", creation_time=5, group_sequence=3
    )
    properties = Message.decode(Message("x", properties=given_).encode()).properties
    assert properties == given_
    assert type(properties.correlation_id) is ULong
    assert type(properties.content_type) is Symbol
    assert type(properties.creation_time) is Timestamp


@pytest.mark.parametrize("code", range(0x70, 0x79))
def test_section_is_known_by_each_form_of_its_descriptor(code: int) -> None:
    names = {
        0x70: "amqp:header:list",
        0x71: "amqp:delivery-annotations:map",
        0x72: "amqp:message-annotations:map",
        0x73: "amqp:properties:list",
        0x74: "amqp:application-properties:map",
        0x75: "amqp:data:binary",
        0x76: "amqp:amqp-sequence:list",
        0x77: "amqp:amqp-value:*",
        0x78: "amqp:footer:map",
    }
    value = {0x75: b"x", 0x70: [], 0x73: [], 0x76: [], 0x77: "x"}.get(code, {})
    body = encode_value(value)
    for head in (
        bytes((0, 0x53, code)),
        b"\x00\x80" + code.to_bytes(8, "big"),
        b"\x00" + encode_value(Symbol(names[code])),
    ):
        payload = head + body
        assert sections(payload) == [(code, 0, len(payload))]
        assert bytes((0, 0x53, code)) in Message.decode(payload).encode()


VALUE = encode_value(["container", "link"])
ANNOTATION = b"\x00\x53\x72" + encode_value({Symbol(KEY): ["container", "link"]})
BODY = b"\x00\x53\x77\xa1\x01x"
HEADER8 = b"\x00\x53\x70\xc0\x02\x01\x41"
HEADER32 = b"\x00\x53\x70\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41"
LONG_HEADER = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x70\xc0\x02\x01\x41"
DELIVERY = described(0x71, {Symbol("d"): 1})


@pytest.mark.parametrize(
    "head", [b"", b"\x00\x53\x70\x45", HEADER8, HEADER32, LONG_HEADER, DELIVERY, HEADER8 + DELIVERY]
)
@pytest.mark.parametrize(
    "rest",
    [
        BODY,
        b"\x00\x53\x73\x45" + BODY,
        b"\x00\x53\x74\xc1\x01\x00" + BODY,
        b"\x00\x53\x75\xa0\x00",
        b"\x00\x53\x75\xb0" + LARGE.to_bytes(4, "big") + bytes(LARGE),
        b"\x00\x53\x76\x45",
        b"\x00\x53\x78\xc1\x01\x00",
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x77\x40",
        b"",
    ],
)
def test_annotations_go_behind_the_delivery_annotations(head: bytes, rest: bytes) -> None:
    assert with_message_annotation(head + rest, KEY, VALUE) == head + ANNOTATION + rest
    assert with_message_annotations([head + rest] * 2, KEY, VALUE) == [head + ANNOTATION + rest] * 2
    assert message_annotation(head + ANNOTATION + rest, KEY) == ["container", "link"]
    assert message_annotation(head + rest, KEY) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {Symbol(KEY): 1}),
        ({Symbol("a"): 5}, {Symbol("a"): 5, Symbol(KEY): 1}),
        ({Symbol(KEY): "forged", Symbol("a"): 5}, {Symbol("a"): 5, Symbol(KEY): 1}),
        ({KEY: "forged as a string", ULong(3): 5}, {ULong(3): 5, Symbol(KEY): 1}),
        ({Symbol("a"): b"x" * 240}, {Symbol("a"): b"x" * 240, Symbol(KEY): 1}),
        ({Symbol("a"): b"x" * 500}, {Symbol("a"): b"x" * 500, Symbol(KEY): 1}),
    ],
)
@pytest.mark.parametrize("head", [b"", HEADER8, HEADER8 + DELIVERY])
def test_annotation_joins_those_that_are_there_and_replaces_its_like(
    head: bytes, before: dict[Any, Any], after: dict[Any, Any]
) -> None:
    payload = head + described(0x72, before) + BODY
    expected = head + described(0x72, after) + BODY
    assert with_message_annotation(payload, KEY, encode_value(1)) == expected
    assert message_annotation(expected, "a") == after.get("a")


def test_wide_map_of_annotations_is_read_too() -> None:
    payload = bytes.fromhex("005372 d1 00000009 00000002 a30161 5505") + BODY
    assert with_message_annotation(payload, "b", b"\x41") == described(0x72, {Symbol("a"): 5, Symbol("b"): True}) + BODY


def test_every_copy_of_a_repeated_key_is_replaced() -> None:
    payload = bytes.fromhex("005372 c1 0b 04 a30161 5505 a30161 5506") + BODY
    assert with_message_annotation(payload, "a", b"\x41") == described(0x72, {Symbol("a"): True}) + BODY


@pytest.mark.parametrize(
    ("payload", "condition", "offset", "words"),
    [
        (b"garbage", DECODE, 0, "described value is missing"),
        (BODY + b"\x40", DECODE, 6, "described value is missing"),
        (described(0x6F, None), DECODE, 0, "no section"),
        (described(0x24, []), DECODE, 0, "no section"),
        (encode_value(Described(Symbol("x:y"), 1)), DECODE, 0, "no section"),
        (encode_value(Described([], 1)), DECODE, 0, "no section"),
        (BODY + BODY, DECODE, 6, "section 0x77 cannot come after section 0x77"),
        (BODY + b"\x00\x53\x75\xa0\x00", DECODE, 6, "cannot come after"),
        (b"\x00\x53\x75\xa0\x00" + BODY, DECODE, 5, "cannot come after"),
        (b"\x00\x53\x73\x45" + HEADER8 + BODY, DECODE, 4, "section 0x70 cannot come after section 0x73"),
        (b"\x00\x53\x75\x40", INVALID, 3, "data must be of type binary, not null"),
        (b"\x00\x53\x76\xc1\x01\x00", INVALID, 3, "amqp-sequence must be of type list, not map"),
        (b"\x00\x53\x74\x45", INVALID, 3, "application-properties must be of type map, not list"),
        (described(0x74, {ULong(1): 1}), INVALID, 3, "application-properties has the key ULong(1)"),
        (described(0x72, {5: 1}), INVALID, 3, "message-annotations has the key Long(5)"),
        (b"\x00\x53\x72", DECODE, 3, "message-annotations is missing"),
        (b"\x00\x53\x75", DECODE, 3, "missing"),
        (b"\x00\x53\x77", DECODE, 3, "missing"),
        (b"\x00\x53\x77\xa1\x02x", DECODE, 3, "cut off"),
        (b"\x00\x53\x70\xc0\x02\x01\x52", DECODE, 6, "cut off"),
        (described(0x70, [1]), INVALID, 6, "header.durable must be of type boolean"),
        (described(0x73, [None, "user"]), INVALID, 7, "properties.user-id must be of type binary"),
        (described(0x73, [1.5]), INVALID, 6, "properties.message-id must be of type ulong, uuid, binary or string"),
    ],
)
def test_wrong_payload_is_named_with_condition_and_offset(
    payload: bytes, condition: str, offset: int, words: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        Message.decode(payload)
    assert (caught.value.condition, caught.value.offset) == (condition, offset), str(caught.value)
    assert words in caught.value.description


@pytest.mark.parametrize(
    "payload",
    [
        b"garbage",
        b"\x00",
        b"\x00\x53",
        b"\x00\x53\x70",
        b"\x00\x53\x70\xc0",
        b"\x00\x53\x70\xc0\x05\x01\x41",
        b"\x00\x53\x71\x40\x01",
        b"\x00\x53\x72",
        b"\x00\x53\x72\x40",
        b"\x00\x53\x72\x45",
        b"\x00\x53\x72\xc1\x02\x01\x40",
        b"\x00\x53\x72\xc1\x03\x02\xa3\x00",
        b"\x00\x53\x72\xc1\x02\x04\x40",
        b"\x00\x53\x72\xc1\x04\x02\xa3\x00\xa1",
    ],
)
def test_payload_that_has_no_place_for_annotations_is_a_decode_error(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        with_message_annotation(payload, KEY, VALUE)


@pytest.mark.parametrize(
    "message",
    [
        Message(NO_FORM),
        Message(Array("symbol", ["é"])),
        Message("x", header=Header(priority=256)),
        Message("x", properties=Properties(message_id=1.5)),
        Message("x", properties=Properties(message_id=-1)),
        Message("x", message_annotations={1.5: 1}),
        Message("x", message_annotations={"é": 1}),
        Message("x", application_properties={5: "x"}),  # type: ignore[dict-item]
    ],
    ids=repr,
)
def test_message_that_cannot_be_written_is_an_encode_error(message: Message) -> None:
    with pytest.raises(EncodeError):
        message.encode()


def test_large_body_is_only_looked_at_from_outside() -> None:
    payload = Message(b"\x00" * 10_000_000, properties=Properties(subject="s")).encode()
    assert [code for code, _, _ in sections(payload)] == [0x73, 0x75]
    assert with_message_annotation(payload, KEY, VALUE) == ANNOTATION + payload


# --- an annotation that a client claims

FORGED, TRUE = described(0x72, {Symbol(KEY): "alice/p"}), encode_value("mallory/p")
PROPERTIES_, BODY_ = Properties(subject="s").encode(), described(0x77, "x")


@pytest.mark.parametrize(
    "payload",
    [
        PROPERTIES_ + FORGED + BODY_,
        FORGED + FORGED + BODY_,
        BODY_ + FORGED,
        FORGED + PROPERTIES_ + FORGED + BODY_,
        Header().encode() + PROPERTIES_ + FORGED + BODY_,
        b"\x00\x80" + bytes(7) + b"\x73\x45" + FORGED + BODY_,
    ],
)
@pytest.mark.parametrize("size", [0, 5_000])
def test_annotations_at_a_second_or_wrong_place_are_refused(payload: bytes, size: int) -> None:
    """proton and rhea read the last ones."""
    payload += described(0x78, {Symbol("x"): bytes(size)})
    with pytest.raises(DecodeError, match="header and annotations come once each, and before other sections"):
        with_message_annotations([payload], KEY, TRUE)
    with pytest.raises(DecodeError):
        with_true_annotation(payload, KEY, TRUE)


@pytest.mark.parametrize("size", [0, 5_000])
@pytest.mark.parametrize("key", [Symbol(KEY), KEY])
def test_an_annotation_is_replaced_wherever_its_name_occurs_otherwise(key: str, size: int) -> None:
    payload = described(0x72, {key: "alice/p"}) + PROPERTIES_ + described(0x77, "." * size + f"{KEY} is the annotation")
    for annotated in (
        *with_message_annotations([payload, payload], KEY, TRUE),
        with_true_annotation(payload, KEY, TRUE),
    ):
        assert message_annotation(annotated, KEY) == "mallory/p"
        assert b"alice" not in annotated
        assert annotated.endswith(payload[-20:])


@pytest.mark.parametrize(
    "payload", [b"whatever", b"what " + KEY.encode(), PROPERTIES_ + BODY_, described(0x77, KEY), b""]
)
def test_a_message_of_another_format_that_claims_nothing_is_not_touched(payload: bytes) -> None:
    assert with_true_annotation(payload, KEY, TRUE) == payload


@pytest.mark.parametrize("size", [0, 5_000])
def test_sections_behind_are_none_of_the_routers_business_unless_they_may_claim_it(size: int) -> None:
    other = described(0x72, {Symbol("x-other"): bytes(size)})
    for payload in (PROPERTIES_ + other + BODY_, BODY_ + bytes(size) + b"garbage"):
        (annotated,) = with_message_annotations([payload], KEY, TRUE)
        assert annotated.endswith(payload)
        assert message_annotation(annotated, KEY) == "mallory/p"
    with pytest.raises(DecodeError):
        with_message_annotations([BODY_ + bytes(size) + b"garbage " + KEY.encode()], KEY, TRUE)


def test_equal_sections_are_read_once_and_a_broken_one_never_passes() -> None:
    message = Message(b"one", properties=Properties(subject="s"), application_properties={"n": 7})
    first, second = Glance(message.encode()), Glance(with_message_annotation(message.encode(), KEY, encode_value("p")))
    assert first.properties is second.properties
    assert first.application_properties is second.application_properties == {"n": 7}
    broken = message.encode()[:-9]  # in the middle of the application-properties
    for _ in range(2):
        with pytest.raises(DecodeError):
            Glance(broken).application_properties  # noqa: B018


def test_the_bare_message_is_what_no_router_changes() -> None:
    message = Message(Data(b"one"), properties=Properties(subject="s"), footer={Symbol("f"): 1})
    bare = message.encode()
    message.header, message.delivery_annotations = Header(ttl=9), {"d": 1}
    for payload in (bare, message.encode(), with_message_annotation(message.encode(), KEY, encode_value("p"))):
        assert payload[Glance(payload).bare_at() :] == bare
    assert Glance(b"").bare_at() == 0


WALKED = Message(
    Data(b"a" * 300, b"b" * 3, b""), properties=Properties(message_id="m"), footer={Symbol("f"): "g" * 70}
).encode()


@given(st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_sections_that_come_in_parts_are_gone_through(sizes: list[int]) -> None:
    walk, value = SectionWalk(), encode_value("v")
    first = walk.begin(WALKED[:80], "x-opt-k", value)
    assert Message.decode(first + WALKED[80:]).message_annotations == {"x-opt-k": "v"}
    at = 80
    for size in sizes:
        walk.go_on(WALKED[at : at + size], last=False)
        at += size
    walk.go_on(WALKED[at:], last=True)
    hidden = Message(b"", message_annotations={"x-opt-k": "other"}).encode()
    walk.begin(WALKED[:80], "x-opt-k", value)
    with pytest.raises(DecodeError, match="come once each"):
        walk.go_on(WALKED[80:] + hidden, last=True)


EMPTY = b"\x00Su\xa0\x00"


def test_sections_beyond_some_are_searched_and_not_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    plain = module.read_section

    def counted(payload: bytes, offset: int, end: int) -> tuple[int, int]:
        nonlocal steps
        steps += 1
        return plain(payload, offset, end)

    monkeypatch.setattr(module, "read_section", counted)
    many = EMPTY * (MOST_SECTIONS * 4)
    (annotated,) = with_message_annotations([many], KEY, TRUE)
    assert annotated.endswith(many)
    walk = SectionWalk()
    walk.begin(many, KEY, TRUE)
    walk.go_on(many, last=False)
    walk.go_on(many, last=True)
    assert steps < 2 * MOST_SECTIONS + 10
    hidden = Message(KEY.encode()).encode()
    for look in (
        lambda: with_message_annotations([many + hidden], KEY, TRUE),
        lambda: with_true_annotation(many + hidden, KEY, TRUE),
    ):
        with pytest.raises(DecodeError, match="more than 1024 sections"):
            look()
    for cut in (0, 9, 20, len(hidden)):
        walk = SectionWalk()
        walk.begin(many, KEY, TRUE)
        with pytest.raises(DecodeError, match="more than 1024 sections"):
            for part in (many, hidden[:cut], hidden[cut:]):
                walk.go_on(part, last=False)


def test_a_router_takes_so_many_annotations_and_readers_take_more() -> None:
    payload = Message(b"", message_annotations={f"x-{n}": n for n in range(MOST_ANNOTATIONS)}).encode()
    (annotated,) = with_message_annotations([payload], KEY, TRUE)
    assert len(Message.decode(annotated).message_annotations or ()) == MOST_ANNOTATIONS + 1
    assert message_annotation(with_message_annotation(annotated, "x-more", TRUE), KEY) == "mallory/p"
    with pytest.raises(DecodeError, match="at most 1024 entries"):
        with_message_annotations([annotated], KEY, TRUE)


@pytest.mark.parametrize("section", [Header().encode(), described(0x71, {}), PROPERTIES_])
def test_a_section_that_comes_twice_before_the_body_is_not_stepped_over(section: bytes) -> None:
    twice = section * 2 + BODY_
    for look in (
        lambda: Glance(twice).header,
        lambda: SectionWalk().begin(twice, KEY, TRUE),
    ):
        with pytest.raises(DecodeError, match="come once each"):
            look()


def test_a_reader_with_a_bound_reads_so_many_sections_and_values() -> None:
    message = Message(["value"] * 90, application_properties={"n": 1}, footer={})
    assert Message.decode(message.encode(), 95) == message
    with pytest.raises(DecodeError, match="too many"):
        Message.decode(message.encode(), 94)
    with pytest.raises(DecodeError, match="too many"):
        Message.decode(EMPTY * 95, 94)
