from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp10.codec import encode_value
from amqp10.composite import Composite, read_descriptor, read_fields
from amqp10.errors import DecodeError, EncodeError
from amqp10.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, encode_frame, parse_frame_header
from amqp10.outcomes import read_state
from amqp10.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Source,
    Target,
    Transfer,
    decode_performative,
)
from amqp10.types import Array, Described, Symbol, UInt, ULong
from tests.amqp10.values import NO_FORM, SYMBOLS, TEXT, VALUES, attempt

DECODE = "amqp:decode-error"
INVALID = "amqp:invalid-field"

uints = st.sampled_from([0, 1, 255, 256, 2**32 - 1]) | st.integers(0, 2**32 - 1)
ushorts = st.integers(0, 65535)
booleans = st.booleans()
tags = st.binary(max_size=32)
fields = st.dictionaries(SYMBOLS, VALUES, max_size=2)
symbol_tuples = st.lists(SYMBOLS, max_size=3).map(tuple)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


errors = st.builds(Error, SYMBOLS, optional(TEXT), optional(fields))
states = st.one_of(
    st.just(ACCEPTED),
    st.just(RELEASED),
    st.builds(Rejected, optional(errors)),
    st.builds(Modified, booleans, booleans, optional(fields)),
    st.builds(Received, uints, st.integers(0, 2**64 - 1)),
    st.builds(Described, st.just(ULong(0x34)), st.lists(st.binary(max_size=5), max_size=2)),
)
sources = st.builds(
    Source,
    optional(TEXT),
    st.integers(0, 2),
    SYMBOLS,
    uints,
    booleans,
    optional(fields),
    optional(SYMBOLS),
    optional(fields),
    optional(states),
    symbol_tuples,
    symbol_tuples,
)
targets = st.builds(
    Target, optional(TEXT), st.integers(0, 2), SYMBOLS, uints, booleans, optional(fields), symbol_tuples
) | st.builds(Coordinator, symbol_tuples)
transfers = st.builds(
    Transfer,
    uints,
    optional(uints),
    optional(tags),
    optional(uints),
    optional(booleans),
    booleans,
    optional(st.integers(0, 1)),
    optional(states),
    booleans,
    booleans,
    booleans,
)
flows = st.builds(
    Flow,
    optional(uints),
    uints,
    uints,
    uints,
    optional(uints),
    optional(uints),
    optional(uints),
    optional(uints),
    booleans,
    booleans,
    optional(fields),
)
dispositions = st.builds(Disposition, booleans, uints, optional(uints), booleans, optional(states), booleans)
performatives = st.one_of(
    st.builds(
        Open,
        TEXT,
        optional(TEXT),
        uints,
        ushorts,
        optional(uints),
        symbol_tuples,
        symbol_tuples,
        symbol_tuples,
        symbol_tuples,
        optional(fields),
    ),
    st.builds(Begin, optional(ushorts), uints, uints, uints, uints, symbol_tuples, symbol_tuples, optional(fields)),
    st.builds(
        Attach,
        TEXT,
        uints,
        booleans,
        st.integers(0, 2),
        st.integers(0, 1),
        optional(sources),
        optional(targets),
        optional(st.dictionaries(tags, optional(states), max_size=4)),
        booleans,
        optional(uints),
        optional(st.integers(0, 2**64 - 1)),
        symbol_tuples,
        symbol_tuples,
        optional(fields),
    ),
    flows,
    transfers,
    dispositions,
    st.builds(Detach, uints, booleans, optional(errors)),
    st.builds(End, optional(errors)),
    st.builds(Close, optional(errors)),
    st.builds(SaslMechanisms, symbol_tuples),
    st.builds(SaslInit, SYMBOLS, optional(st.binary(max_size=40)), optional(TEXT)),
    st.builds(SaslChallenge, st.binary(max_size=40)),
    st.builds(SaslResponse, st.binary(max_size=40)),
    st.builds(SaslOutcome, st.integers(0, 4), optional(st.binary(max_size=40))),
)


def described(code: int, *values: Any) -> bytes:
    return encode_value(Described(ULong(code), list(values)))


def decode(data: bytes) -> Any:
    performative, end = decode_performative(data, 0, len(data))
    assert end == len(data)
    return performative


def through_the_table(data: bytes, offset: int, end: int) -> Any:
    code, position = read_descriptor(data, offset, end)
    cls = {0x13: Flow, 0x14: Transfer, 0x15: Disposition}[code or 0]
    return read_fields(cls, data, position, end)


@given(performatives, st.binary(max_size=8), st.binary(max_size=8))
def test_any_performative_survives_the_round_trip_with_a_payload_behind_it(
    performative: Any, before: bytes, payload: bytes
) -> None:
    body = performative.encode()
    buf = before + body + payload
    decoded, end = decode_performative(buf, len(before), len(buf))
    assert decoded == performative
    assert type(decoded) is type(performative)
    assert buf[end:] == payload


@given(performatives)
def test_hand_written_encoding_is_the_table_s(performative: Any) -> None:
    assert performative.encode() == Composite.encode(performative)


@given(performatives, st.data())
def test_performative_cut_anywhere_is_a_decode_error_whatever_lies_behind_the_cut(
    performative: Any, data: st.DataObject
) -> None:
    body = performative.encode()
    cut = data.draw(st.integers(0, len(body) - 1))
    for buf in (body[:cut], body, body + body):
        with pytest.raises(DecodeError) as caught:
            decode_performative(buf, 0, cut)
        assert caught.value.condition == DECODE
        assert 0 <= caught.value.offset <= cut


@given(performatives, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_performative_is_another_or_a_decode_error(performative: Any, damage: list[tuple[int, int]]) -> None:
    body = bytearray(performative.encode())
    for position, octet in damage:
        body[position % len(body)] = octet
    result = attempt(decode_performative, bytes(body), 0, len(body))
    if isinstance(result, DecodeError):
        assert 0 <= result.offset <= len(body)
    else:
        decoded, end = result
        again = decoded.encode()
        assert repr(decode(again)) == repr(decoded)
        assert end <= len(body)


@given(
    flows | transfers | dispositions,
    st.lists(st.tuples(st.integers(3, 40), st.integers(0, 255) | st.sampled_from(list(b"@ABCRp\x00\x01\x02")))),
    st.binary(max_size=4),
    st.integers(0, 3),
)
def test_hand_written_decoding_finds_what_the_table_finds(
    performative: Any, damage: list[tuple[int, int]], behind: bytes, cut: int
) -> None:
    body = bytearray(performative.encode())
    for position, octet in damage:
        if position < len(body):
            body[position] = octet
    buf = bytes(body) + behind
    end = len(body) - cut

    def outcome(read: Any) -> Any:
        try:
            return repr(read(buf, 0, end))
        except DecodeError as e:
            return e.args

    assert outcome(decode_performative) == outcome(through_the_table)


@pytest.mark.parametrize(
    ("performative", "encoding"),
    [
        (Disposition(True, 7, 300, True, ACCEPTED), "005315 c0 0e 05 41 5207 700000012c 41 00532445"),
        (Disposition(False, 0, None, True), "005315 c0 05 04 42 43 40 41"),
        (Disposition(True, 1), "005315 c0 04 02 41 5201"),
        (Flow(0, 5, 1, 6, 0, 2, 100), "005313 c0 0d 07 43 5205 5201 5206 43 5202 5264"),
        (Flow(None, 5, 1, 6, echo=True), "005313 c0 0e 0a 40 5205 5201 5206 40 40 40 40 40 41"),
        (Transfer(0, 1, b"ab", 0, False), "005314 c0 0a 05 43 5201 a0026162 43 42"),
        (Transfer(0, more=True), "005314 c0 07 06 43 40 40 40 40 41"),
        (End(), "005317 45"),
        (Begin(None, 0, 1, 1), "005311 c0 07 04 40 43 5201 5201"),
        (Open("c"), "005310 c0 04 01 a10163"),
        (SaslMechanisms(("PLAIN",)), "005340 c0 0b 01 e0 08 01 a3 05 504c41494e"),
    ],
)
def test_performative_looks_as_the_specification_says(performative: Any, encoding: str) -> None:
    data = bytes.fromhex(encoding)
    assert performative.encode().hex() == data.hex()
    assert decode(data) == performative


@pytest.mark.parametrize(
    "descriptor", ["00 53 15", "00 80 0000000000000015", "00 a3 15" + b"amqp:disposition:list".hex()]
)
@pytest.mark.parametrize(
    ("count", "entries"),
    [
        (5, "41 5207 5209 41 00532445"),
        (6, "5601 7000000007 7000000009 5601 005324c00100 42"),
        (6, "41 7000000007 5209 41 00800000000000000024d00000000400000000 40"),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_every_encoding_of_a_disposition_is_read(descriptor: str, count: int, entries: str, wide: bool) -> None:
    body = bytes.fromhex(entries)
    if wide:
        head = b"\xd0" + (len(body) + 4).to_bytes(4, "big") + count.to_bytes(4, "big")
    else:
        head = bytes((0xC0, len(body) + 1, count))
    assert decode(bytes.fromhex(descriptor) + head + body) == Disposition(True, 7, 9, True, ACCEPTED)


def test_states_of_nearly_all_traffic_are_one_object() -> None:
    assert decode(Disposition(True, 1, state=Accepted()).encode()).state is ACCEPTED
    assert decode(Disposition(True, 1, state=Released()).encode()).state is RELEASED
    long_form = bytes.fromhex("00 80 0000000000000024 c0 01 00")
    assert read_state(long_form, 0, len(long_form)) == (ACCEPTED, len(long_form))


def test_state_of_an_unknown_kind_is_kept() -> None:
    state = Described(ULong(0x34), [b"txn", ACCEPTED])
    kept = decode(Disposition(True, 1, state=state).encode()).state
    assert kept == Described(ULong(0x34), [b"txn", Described(ULong(0x24), [])])


def test_missing_fields_get_the_specification_s_defaults() -> None:
    assert decode(described(0x10, "c")) == Open("c", max_frame_size=2**32 - 1, channel_max=65535)
    attach = decode(described(0x12, "l", UInt(0), True))
    assert (attach.snd_settle_mode, attach.rcv_settle_mode, attach.incomplete_unsettled) == (2, 0, False)
    source = decode(described(0x12, "l", UInt(0), True, None, None, Described(ULong(0x28), []))).source
    assert (source.durable, source.expiry_policy, source.timeout, source.dynamic) == (0, "session-end", 0, False)


@pytest.mark.parametrize(
    ("value", "capabilities"),
    [
        (None, ()),
        (Symbol("a"), ("a",)),
        (Array("symbol", []), ()),
        (Array("symbol", ["a"]), ("a",)),
        (Array("symbol", ["a", "b"]), ("a", "b")),
    ],
)
def test_multiple_is_null_or_one_or_an_array(value: Any, capabilities: tuple[str, ...]) -> None:
    opened = decode(described(0x10, "c", None, None, None, None, None, None, value))
    assert opened.offered_capabilities == capabilities
    assert all(type(c) is Symbol for c in opened.offered_capabilities)


def test_plain_strings_are_written_where_symbols_belong() -> None:
    opened = decode(Open("c", offered_capabilities=["a", "b"], desired_capabilities="c", properties={"k": 1}).encode())
    assert opened.offered_capabilities == ("a", "b")
    assert opened.desired_capabilities == ("c",)
    assert type(next(iter(opened.properties))) is Symbol


def test_string_keys_of_sloppy_clients_are_let_pass() -> None:
    opened = decode(described(0x10, "c", None, None, None, None, None, None, None, None, {"product": "x"}))
    assert opened.properties == {Symbol("product"): "x"}


def test_unsettled_map_of_any_size_is_read() -> None:
    unsettled = {n.to_bytes(8, "big"): (None, ACCEPTED, Received(1, n))[n % 3] for n in range(20_000)}
    assert decode(Attach("l", 0, True, unsettled=unsettled).encode()).unsettled == unsettled


def test_target_may_be_a_coordinator() -> None:
    attach = decode(Attach("l", 0, False, target=Coordinator(("amqp:local-transactions",))).encode())
    assert attach.target == Coordinator((Symbol("amqp:local-transactions"),))


X33 = b"x" * 33
SOURCE = Described(ULong(0x28), [])


@pytest.mark.parametrize(
    ("data", "condition", "offset", "words"),
    [
        (b"", DECODE, 0, "missing"),
        (b"\x00", DECODE, 1, "missing"),
        (b"\x40", DECODE, 0, "described"),
        (b"\x00\x53\x10", DECODE, 3, "the list of open is missing"),
        (b"\x00\x53\x10\x40", INVALID, 3, "open must be of type list, not null"),
        (b"\x00\x53\x10\xc1\x01\x00", INVALID, 3, "open must be of type list, not map"),
        (b"\x00\x53\x10\x01", DECODE, 3, "0x01 is no constructor"),
        (described(0x19), DECODE, 0, "0x19 is no performative"),
        (described(0x24), DECODE, 0, "0x24 is no performative"),
        (encode_value(Described(Symbol("x:y"), [])), DECODE, 0, "Symbol('x:y') is no performative"),
        (encode_value(Described([], [])), DECODE, 0, "[] is no performative"),
        (described(0x10), INVALID, 4, "open.container-id is missing"),
        (described(0x10, None, "h"), INVALID, 6, "open.container-id is missing"),
        (described(0x10, 5), INVALID, 6, "open.container-id must be of type string, not long"),
        (described(0x10, Symbol("c")), INVALID, 6, "open.container-id must be of type string, not symbol"),
        (described(0x10, "c", None, 5), INVALID, 10, "open.max-frame-size must be of type uint, not long"),
        (described(0x10, "c", None, None, UInt(1)), INVALID, 11, "open.channel-max must be of type ushort, not uint"),
        (described(0x10, "c", None, None, None, ULong(1)), INVALID, 12, "open.idle-time-out"),
        (described(0x10, "c", *[None] * 9, None), INVALID, 3, "open has 10 fields, not 11"),
        (described(0x10, "c", *[None] * 6, "cap"), INVALID, 15, "open.offered-capabilities must be of type symbol"),
        (described(0x10, "c", *[None] * 6, Array("string", ["a"])), INVALID, 15, "array of symbol, not of string"),
        (described(0x10, "c", *[None] * 8, []), INVALID, 17, "open.properties must be of type map, not list"),
        (described(0x10, "c", *[None] * 8, {5: 1}), INVALID, 17, "open.properties has the key Long(5)"),
        (described(0x11, None, UInt(1), UInt(1)), INVALID, 11, "begin.outgoing-window is missing"),
        (described(0x12, "l", UInt(0)), INVALID, 10, "attach.role is missing"),
        (described(0x12, "l", UInt(0), UInt(0)), INVALID, 10, "attach.role must be of type boolean, not uint"),
        (
            b"\x00\x53\x12\xc0\x08\x04\xa1\x01l\x43\x41\x50\x03",
            INVALID,
            11,
            "attach.snd-settle-mode must lie in 0 to 2",
        ),
        (b"\x00\x53\x12\xc0\x09\x05\xa1\x01l\x43\x41\x40\x50\x02", INVALID, 12, "attach.rcv-settle-mode must lie in"),
        (described(0x12, "l", UInt(0), True, None, None, "q"), INVALID, 13, "attach.source must be of type source"),
        (described(0x12, "l", UInt(0), True, None, None, Described(ULong(0x29), [])), INVALID, 13, "attach.source"),
        (described(0x12, "l", UInt(0), True, None, None, None, SOURCE), INVALID, 14, "target or coordinator"),
        (
            described(0x12, "l", UInt(0), True, None, None, Described(ULong(0x28), [b"q"])),
            INVALID,
            19,
            "source.address must be of type string, not binary",
        ),
        (described(0x12, "l", UInt(0), True, *[None] * 4, []), INVALID, 15, "attach.unsettled must be of type map"),
        (
            described(0x12, "l", UInt(0), True, *[None] * 4, {"t": None}),
            INVALID,
            18,
            "unsettled must be of type binary",
        ),
        (described(0x12, "l", UInt(0), True, *[None] * 4, {X33: None}), INVALID, 18, "32 octets"),
        (described(0x12, "l", UInt(0), True, *[None] * 4, {b"t": 1}), INVALID, 21, "must be of type delivery-state"),
        (b"\x00\x53\x13\xc0\x05\x04\x43\x43\x43\x41", INVALID, 9, "flow.outgoing-window must be of type uint"),
        (described(0x13, None, UInt(0), UInt(0)), INVALID, 9, "flow.outgoing-window is missing"),
        (described(0x13, None, UInt(0), None, UInt(0)), INVALID, 8, "flow.next-outgoing-id is missing"),
        (described(0x14), INVALID, 4, "transfer.handle is missing"),
        (described(0x14, UInt(0), UInt(0), X33), INVALID, 8, "transfer.delivery-tag has more than 32 octets"),
        (described(0x14, UInt(0), UInt(0), "t"), INVALID, 8, "transfer.delivery-tag must be of type binary"),
        (described(0x15, True), INVALID, 7, "disposition.first is missing"),
        (described(0x15, None, UInt(0)), INVALID, 6, "disposition.role is missing"),
        (described(0x15, True, UInt(0), None, False, "accepted"), INVALID, 10, "disposition.state must be of type"),
        (b"\x00\x53\x15\xc0\x04\x02\x41\x56\x02", INVALID, 7, "disposition.first must be of type uint, not boolean"),
        (b"\x00\x53\x15\xc0\x04\x02\x56\x02\x43", DECODE, 7, "0x02 is no boolean"),
        (b"\x00\x53\x15\xc0\x04\x02\x41\x43\x40", DECODE, 8, "1 octets are left over"),
        (b"\x00\x53\x15\xc0\x03\x02\x41\x52\x07", DECODE, 7, "cut off"),
        (b"\x00\x53\x15\xc0\x02\x02\x41\x43", DECODE, 3, "2 entries cannot lie in 1 octets"),
        (b"\x00\x53\x15\xd0\x00\x00\x00\x06\xff\xff\xff\xff\x41\x43", DECODE, 3, "4294967295 entries"),
        (described(0x16, UInt(0), True, "e"), INVALID, 8, "detach.error must be of type error, not string"),
        (described(0x17, Described(ULong(0x1D), [])), INVALID, 10, "error.condition is missing"),
        (described(0x17, Described(ULong(0x1D), ["c"])), INVALID, 12, "error.condition must be of type symbol"),
        (described(0x40), INVALID, 4, "sasl-mechanisms.sasl-server-mechanisms is missing"),
        (b"\x00\x53\x44\xc0\x03\x01\x50\x05", INVALID, 6, "sasl-outcome.code must lie in 0 to 4"),
    ],
    ids=lambda v: v.hex() if isinstance(v, bytes) else None,
)
def test_wrong_performative_is_named_with_field_condition_and_offset(
    data: bytes, condition: str, offset: int, words: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        decode_performative(data, 0, len(data))
    assert (caught.value.condition, caught.value.offset) == (condition, offset), str(caught.value)
    assert words in caught.value.description


@pytest.mark.parametrize(
    ("entries", "offset", "words"),
    [
        ("c1 04 01 a00174", 15, "cannot have 1 entries"),
        ("c1 09 04 a00174 40 a00174 40", 22, "twice"),
        ("c1 02 04 40", 15, "4 entries in 1 octets"),
        ("c1 04 02 a00274", 18, "cut off"),
        ("c1 04 02 a00174", 21, "cut off"),
        ("c1 06 02 a00174 40 40", 22, "left over"),
        ("c1 08 02 a00174 00532401", 24, "0x01 is no constructor"),
        ("c1 09 02 a00174 005324a100", 24, "accepted must be of type list"),
    ],
)
def test_unsettled_map_is_checked_like_any_map(entries: str, offset: int, words: str) -> None:
    body = bytes.fromhex("a1016c 43 41 40 40 40 40" + entries)
    data = b"\x00\x53\x12\xc0" + bytes((len(body) + 1, 8)) + body
    with pytest.raises(DecodeError) as caught:
        decode_performative(data, 0, len(data))
    assert (caught.value.offset, words in caught.value.description) == (offset, True), str(caught.value)


@pytest.mark.parametrize(
    ("performative", "words"),
    [
        (Open(None), "open.container-id is missing"),  # type: ignore[arg-type]
        (Open(b"c"), "open.container-id: b'c' is no string"),  # type: ignore[arg-type]
        (Open("c", max_frame_size=2**32), "open.max-frame-size"),
        (Open("c", channel_max=-1), "open.channel-max"),
        (Open("c", offered_capabilities=("é",)), "open.offered-capabilities"),
        (Open("c", properties={"k": NO_FORM}), "open.properties"),
        (Attach("l", 0, 1), "attach.role: 1 is no boolean"),  # type: ignore[arg-type]
        (Attach("l", 0, True, snd_settle_mode=3), "attach.snd-settle-mode"),
        (Attach("l", 0, True, source=Target()), "attach.source: must be of type source"),  # type: ignore[arg-type]
        (Attach("l", 0, True, unsettled={b"t": Source()}), "attach.unsettled"),  # type: ignore[dict-item]
        (Flow(-1, 1, 1, 1), "flow.next-incoming-id"),
        (Flow(1, 1, None, 1), "flow.next-outgoing-id is missing"),  # type: ignore[arg-type]
        (Flow(1, "1", 1, 1), "flow.incoming-window"),  # type: ignore[arg-type]
        (Transfer(2**32), "transfer.handle"),
        (Transfer(0, 0, X33), "transfer.delivery-tag: a delivery-tag has at most 32 octets"),
        (Transfer(0, 0, "t"), "transfer.delivery-tag"),  # type: ignore[arg-type]
        (Disposition(True, -1), "disposition.first"),
        (Disposition(True, None), "disposition.first is missing"),  # type: ignore[arg-type]
        (Disposition(True, 1, state="accepted"), "disposition.state"),  # type: ignore[arg-type]
        (Detach(0, error=ACCEPTED), "detach.error"),  # type: ignore[arg-type]
        (SaslOutcome(5), "sasl-outcome.code"),
    ],
    ids=repr,
)
def test_field_that_cannot_be_written_is_named(performative: Any, words: str) -> None:
    with pytest.raises(EncodeError) as caught:
        performative.encode()
    assert words in str(caught.value)


def test_outcomes_are_values() -> None:
    assert len({Accepted(), ACCEPTED, Released(), Rejected(Error("a", "b")), Rejected(Error("a", "b"))}) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        Modified().delivery_failed = True  # type: ignore[misc]


def test_composites_nested_in_plain_values_are_encoded() -> None:
    assert encode_value([ACCEPTED]).hex() == "c0050100532445"


# Frames


def test_frame_has_its_head_and_its_body() -> None:
    frame = encode_frame(0, 5, [b"ab", b"", b"c"])
    assert frame.hex() == "0000000b02000005" + "616263"
    assert parse_frame_header(b"xx" + frame, 2) == (11, 2, 0, 5)
    assert encode_frame(0, 0, b"") == EMPTY_FRAME
    assert encode_frame(1, 0, b"abc") == bytes.fromhex("0000000b02010000616263")
    assert (AMQP_HEADER, SASL_HEADER) == (b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00")


@pytest.mark.parametrize(
    ("head", "offset", "words"),
    [
        ("0000000702000000", 0, "7 octets"),
        ("0000000801000000", 4, "inside the frame's head"),
        ("0000000800000000", 4, "inside the frame's head"),
        ("0000000803000000", 4, "outside the frame"),
    ],
)
def test_impossible_frame_head_is_a_framing_error(head: str, offset: int, words: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_frame_header(bytes.fromhex(head))
    assert caught.value.condition == "amqp:connection:framing-error"
    assert caught.value.offset == offset
    assert words in caught.value.description


def test_extended_header_is_allowed() -> None:
    assert parse_frame_header(bytes.fromhex("0000000c03000001")) == (12, 3, 0, 1)


def test_frame_on_an_impossible_channel_is_an_encode_error() -> None:
    with pytest.raises(EncodeError):
        encode_frame(0, 65536, b"")
