"""What becomes of a peer that breaks the rules of framing; and that events do not depend on how bytes arrive."""

from __future__ import annotations

import random

import pytest

from amqp10 import ACCEPTED, ConnectionClosed, Dispositions, Target, Transfers
from amqp10.errors import DECODE_ERROR, FRAMING_ERROR, ILLEGAL_STATE, INVALID_FIELD
from amqp10.frames import AMQP_HEADER, EMPTY_FRAME, encode_frame
from amqp10.performatives import Attach, Begin, Close, Disposition, End, Open, SaslInit
from tests.amqp10.pair import Pair, Wire, flow, kinds, only, transfer

# Frames ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x08\x03\x00\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x08\x02\x07\x00\x00", FRAMING_ERROR),
        (b"\x7f\x00\x00\x08\x02\x00\x00\x00", FRAMING_ERROR),
        (encode_frame(0, 0, b"garbage"), DECODE_ERROR),
        (encode_frame(0, 0, b"\x00\x53\x99\x45"), DECODE_ERROR),
        (encode_frame(0, 0, Begin(None, 0, 1, 1).encode() + b"more"), DECODE_ERROR),
        (encode_frame(0, 0, SaslInit("ANONYMOUS").encode()), FRAMING_ERROR),
        (encode_frame(0, 5, Attach("x", 0, True).encode()), ILLEGAL_STATE),
        (encode_frame(0, 256, Begin(None, 0, 1, 1).encode()), FRAMING_ERROR),
        (encode_frame(0, 0, Begin(None, 0, 1, 1).encode()), ILLEGAL_STATE),
        (encode_frame(0, 3, Begin(9, 0, 1, 1).encode()), ILLEGAL_STATE),
        (encode_frame(0, 0, b"\x00\x53\x12\xc0\x04\x02\x40\x43\x41"), INVALID_FIELD),  # attach without a name
    ],
)
def test_broken_frames_close_the_connection(data: bytes, condition: str) -> None:
    wire = Wire()
    error = only(wire.feed(data), ConnectionClosed).error
    assert error.condition == condition
    (closed,) = wire.read()
    assert closed == Close(error)
    assert wire.feed(b"whatever") == []


def test_a_decode_error_names_the_octet() -> None:
    wire = Wire()
    error = only(wire.feed(encode_frame(0, 0, b"\x00\x53\x10\xc0\x03\x01\x3f\x00")), ConnectionClosed).error
    assert error.description is not None
    assert "byte 14 of a frame of 16" in error.description


def test_a_frame_above_our_max_frame_size_is_refused_before_it_has_come() -> None:
    wire = Wire(max_frame_size=1000)
    error = only(wire.feed((1001).to_bytes(4, "big") + b"\x02\x00\x00\x00"), ConnectionClosed).error
    assert error.condition == FRAMING_ERROR


def test_a_run_does_not_smuggle_an_oversize_frame() -> None:
    wire = Wire(max_frame_size=600)
    wire.attach_sender()
    small = encode_frame(0, 0, transfer(300).encode() + b"x" * 10)
    large = encode_frame(0, 0, transfer(302).encode() + b"x" * 600)
    more = encode_frame(0, 0, transfer(301).encode() + b"x" * 10)
    events = wire.feed(small + more + large)
    assert kinds(events) == ["Transfers", "ConnectionClosed"]
    assert only(events, Transfers).tags == [b"tag", b"tag"]


def test_an_extended_header_is_skipped() -> None:
    wire = Wire()
    body = Attach("x", 0, True).encode()
    frame = (len(body) + 16).to_bytes(4, "big") + b"\x04\x00\x00\x00" + b"extended" + body
    assert kinds(wire.feed(frame)) == ["LinkAttaching"]


def test_frames_are_counted_with_heartbeats() -> None:
    wire = Wire()
    before = wire.server.reader.frames
    wire.feed(EMPTY_FRAME * 3)
    assert wire.server.reader.frames == before + 3
    assert wire.events == []


def test_the_owner_is_told_what_bytes_would_do_with_the_frame_that_is_held() -> None:
    wire = Wire()
    reader = wire.server.reader
    assert not reader.goes_on(1)
    attach = encode_frame(0, 0, Attach("x" * 200, 0, True).encode())
    sent = encode_frame(0, 0, transfer(0, b"tag").encode() + bytes(1000))
    for frame, completed in ((sent, 0), (attach, len(attach))):
        wire.feed(frame[:100])
        rest = len(frame) - 100
        assert [reader.goes_on(size) for size in (1, rest - 1, rest)] == [True, True, False]
        assert [reader.frame_completed_by(size) for size in (rest - 1, rest)] == [0, completed]
        wire.feed(frame[100:])


@pytest.mark.parametrize("seed", range(20))
def test_garbage_at_any_octet_never_raises(seed: int) -> None:
    rng = random.Random(seed)
    conversation = b"".join(
        (
            AMQP_HEADER,
            encode_frame(0, 0, Open("x").encode()),
            encode_frame(0, 0, Begin(None, 0, 100, 100).encode()),
            encode_frame(0, 0, Attach("x", 0, False, initial_delivery_count=0, target=Target("t")).encode()),
            *(encode_frame(0, 0, transfer(300 + n).encode() + b"payload") for n in range(20)),
            *(encode_frame(0, 0, Disposition(False, 300 + n, None, True, ACCEPTED).encode()) for n in range(10)),
            *(
                encode_frame(0, 0, frame.encode())
                for n in range(10)
                for frame in (transfer(320 + n), Disposition(False, 310 + n, None, True, ACCEPTED))
            ),
            encode_frame(0, 0, flow(handle=0).encode()),
            encode_frame(0, 0, End().encode()),
        )
    )
    for _ in range(100):
        data = bytearray(conversation)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        wire = Wire(begun=False)
        start = 0
        while start < len(data):
            step = rng.choice((1, 7, 100, 10_000))
            wire.feed(bytes(data[start : start + step]))
            start += step
        wire.server.data_to_send()


# The same whatever the pieces -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 3, 64, None])
def test_events_do_not_depend_on_how_bytes_arrive(chunk: int | None) -> None:
    pair = Pair(chunk=chunk, client={"max_frame_size": 700}, server={"max_frame_size": 700})
    sender, link = pair.publishing()
    tags = [b"%d" % n for n in range(40)]
    payloads = [b"p" * (n * 40) for n in range(40)]
    sender.send(tags, payloads)
    _, at_server = pair.pump()
    runs = [event for event in at_server if isinstance(event, Transfers)]
    assert [tag for run in runs for tag in run.tags] == tags
    assert [payload for run in runs for payload in run.payloads] == payloads
    link.dispose(0, 9, ACCEPTED, False)
    link.dispose(11, 39, ACCEPTED, True)
    at_client, _ = pair.pump()
    assert [
        (event.first_id, event.last_id, event.settled) for event in at_client if isinstance(event, Dispositions)
    ] == [
        (0, 9, False),
        (11, 39, True),
    ]
