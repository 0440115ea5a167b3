"""Performatives with wrong fields: the error names the field, the condition and the octet."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.codec import encode_value
from amqp10.composite import BY_CODE
from amqp10.errors import DecodeError, EncodeError
from amqp10.performatives import (
    ACCEPTED,
    Attach,
    Detach,
    Disposition,
    Flow,
    Open,
    SaslOutcome,
    Source,
    Target,
    Transfer,
    decode_performative,
)
from amqp10.types import Array, Described, Symbol, UInt, ULong
from tests.amqp10.composites import DECODE, INVALID, described
from tests.amqp10.values import NO_FORM

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
        (described(0x12, "l", UInt(0), True, *[None] * 4, {X33: None}), INVALID, 18, "32 bytes"),
        (described(0x12, "l", UInt(0), True, *[None] * 4, {b"t": 1}), INVALID, 21, "must be of type delivery-state"),
        (b"\x00\x53\x13\xc0\x05\x04\x43\x43\x43\x41", INVALID, 9, "flow.outgoing-window must be of type uint"),
        (described(0x13, None, UInt(0), UInt(0)), INVALID, 9, "flow.outgoing-window is missing"),
        (described(0x13, None, UInt(0), None, UInt(0)), INVALID, 8, "flow.next-outgoing-id is missing"),
        (described(0x14), INVALID, 4, "transfer.handle is missing"),
        (described(0x14, UInt(0), UInt(0), X33), INVALID, 8, "transfer.delivery-tag has more than 32 bytes"),
        (described(0x14, UInt(0), UInt(0), "t"), INVALID, 8, "transfer.delivery-tag must be of type binary"),
        (described(0x15, True), INVALID, 7, "disposition.first is missing"),
        (described(0x15, None, UInt(0)), INVALID, 6, "disposition.role is missing"),
        (described(0x15, True, UInt(0), None, False, "accepted"), INVALID, 10, "disposition.state must be of type"),
        (b"\x00\x53\x15\xc0\x04\x02\x41\x56\x02", INVALID, 7, "disposition.first must be of type uint, not boolean"),
        (b"\x00\x53\x15\xc0\x04\x02\x56\x02\x43", DECODE, 7, "0x02 is no boolean"),
        (b"\x00\x53\x15\xc0\x04\x02\x41\x43\x40", DECODE, 8, "1 bytes are left over"),
        (b"\x00\x53\x15\xc0\x03\x02\x41\x52\x07", DECODE, 7, "cut off"),
        (b"\x00\x53\x15\xc0\x02\x02\x41\x43", DECODE, 3, "2 entries cannot lie in 1 bytes"),
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
        ("c1 02 04 40", 15, "4 entries in 1 bytes"),
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
        (Transfer(0, 0, X33), "transfer.delivery-tag: a delivery-tag has at most 32 bytes"),
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


@pytest.mark.parametrize("cls", BY_CODE.values(), ids=lambda cls: cls.type_name)
def test_required_field_that_is_none_is_missing(cls: type[Any]) -> None:
    needed = [field for field in cls.fields if field.required]
    if needed:
        with pytest.raises(EncodeError, match=f"^{needed[0].where} is missing$"):
            cls(*[None] * len(cls.fields)).encode()
    else:
        assert cls(*[None] * len(cls.fields)).encode() == cls.descriptor + b"\x45"
