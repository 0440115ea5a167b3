"""Performatives: what the table says, what is written by hand, what damage does to either, and the heads of frames."""

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
    Coordinator,
    Disposition,
    End,
    Error,
    Flow,
    Modified,
    Open,
    Received,
    Rejected,
    Released,
    SaslMechanisms,
    Transfer,
    decode_performative,
)
from amqp10.types import Array, Described, Symbol, UInt, ULong
from tests.amqp10.composites import DECODE, decode, described, dispositions, flows, performatives, transfers
from tests.amqp10.values import attempt


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
        ("0000000702000000", 0, "7 bytes"),
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


def test_frame_on_an_impossible_channel_is_an_encode_error() -> None:
    with pytest.raises(EncodeError):
        encode_frame(0, 65536, b"")
