"""The hot path: runs taken by shape mean what the generic codec says, blocks read back as what was sent."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp10 import (
    ACCEPTED,
    RELEASED,
    Connection,
    DeliveryState,
    Dispositions,
    Event,
    LinkDetached,
    LinkFlow,
    ReceiverLink,
    Rejected,
    ResumedTransfer,
    SenderLink,
    SessionEnded,
    Transfers,
    reading,
)
from amqp10.codec import encode_uint
from amqp10.dispositions import encode_disposition
from amqp10.frames import AMQP_HEADER, encode_frame
from amqp10.performatives import Begin, Detach, Disposition, Open, Transfer
from amqp10.serial import WRAP
from amqp10.transfers import encode_block, field_spans
from tests.amqp10.pair import Pair, Wire, flow, frames, only, transfer
from tests.builds import puts_stand_ins


def list8(fields: list[bytes]) -> bytes:
    body = b"".join(fields)
    return b"\xc0" + bytes((len(body) + 1, len(fields))) + body


def list32(fields: list[bytes]) -> bytes:
    body = b"".join(fields)
    return b"\xd0" + (len(body) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + body


def uint(value: int) -> bytes:
    return b"\x70" + value.to_bytes(4, "big")


def short(value: int) -> bytes:
    return encode_uint(value)


def encoded(
    delivery_id: int,
    tag: bytes,
    payload: bytes,
    *,
    handle: int = 0,
    compound: Callable[[list[bytes]], bytes] = list8,
    number: Callable[[int], bytes] = short,
    tail: tuple[bytes, ...] = (b"\x43",),
) -> bytes:
    """A transfer frame in one of the many ways in which it can be written."""
    fields = [number(handle), number(delivery_id & WRAP), b"\xa0" + bytes((len(tag),)) + tag, *tail]
    return encode_frame(0, 0, b"\x00\x53\x14" + compound(fields) + payload)


STYLES: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours settled": {"tail": (b"\x43", b"\x41")},
    "proton's": {"tail": (b"\x43", b"\x42", b"\x42")},
    "rhea's": {"compound": list32, "tail": (b"\x43", b"\x42", b"\x42")},
    "all there is": {
        "compound": list32,
        "number": uint,
        "tail": (uint(0), b"\x42", b"\x56\x00", b"\x40", b"\x40", b"\x42", b"\x42", b"\x41"),
    },
    "no message-format": {"tail": ()},
}


def everything(events: list[Event]) -> list[Any]:
    """What events say, whatever runs and ranges they come in."""
    said: list[Any] = []
    for event in events:
        if isinstance(event, Transfers):
            for number, (tag, payload) in enumerate(zip(event.tags, event.payloads, strict=True)):
                said.append(
                    (event.link.name, event.first_id + number, tag, payload, event.settled, event.message_format)
                )
        elif isinstance(event, Dispositions):
            for number in range(event.first_id, event.last_id + 1):
                said.append((event.link.name, number, event.state, event.settled))
        elif isinstance(event, ResumedTransfer):
            said.append((event.link.name, event.delivery_id, event.tag, event.payload, event.state, event.aborted))
        elif isinstance(event, LinkFlow):
            said.append((event.link.name, event.flow))
        elif isinstance(event, LinkDetached | SessionEnded):
            said.append((type(event).__name__, event.error and event.error.condition))
        else:
            said.append(type(event).__name__)
    return said


def server(credit: int = 10_000, **fields: Any) -> Wire:
    wire = Wire(incoming_window=1_000_000, **fields)
    wire.attach_sender("one", 0, credit)
    wire.attach_sender("two", 1, credit)
    wire.events.clear()
    return wire


# In ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("first", [0, 250, 1000, 2**32 - 50])
def test_a_run_in_any_encoding_is_one_event(style: str, first: int) -> None:
    wire = server()
    tags = [b"%04d" % number for number in range(100)]
    data = b"".join(encoded(first + n, tag, b"payload" + tag, **STYLES[style]) for n, tag in enumerate(tags))
    run = only(wire.feed(data), Transfers)
    assert run.first_id == first
    assert run.tags == tags
    assert run.payloads == [b"payload" + tag for tag in tags]
    assert run.settled == ("settled" in style)
    assert run.message_format == (None if style == "no message-format" else 0)


@puts_stand_ins
@pytest.mark.parametrize("style", STYLES)
def test_a_known_shape_needs_no_generic_codec(style: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = server()
    wire.feed(encoded(1000, b"tag0", b"payload", **STYLES[style]))

    def unexpected(*arguments: object) -> None:
        raise AssertionError("the generic codec was asked")

    monkeypatch.setattr(reading, "decode_performative", unexpected)
    data = b"".join(encoded(1001 + n, b"tag1", b"p" * n, **STYLES[style]) for n in range(50))
    assert len(only(wire.feed(data), Transfers).tags) == 50


@puts_stand_ins
def test_flows_of_a_known_shape_need_no_generic_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = server()
    told = [flow(next_incoming_id=n, handle=0, available=2 * n, drain=False, echo=False) for n in range(300, 400)]
    wire.send(told[0])
    monkeypatch.delattr(reading, "decode_performative")
    assert [event.flow for event in wire.feed(b"".join(encode_frame(0, 0, each.encode()) for each in told))] == told


def test_tags_may_grow() -> None:
    wire = server()
    tags = [b"%d" % number for number in range(2000)]
    events = wire.feed(b"".join(encoded(1000 + n, tag, b"") for n, tag in enumerate(tags)))
    assert only(events, Transfers).tags == tags


@puts_stand_ins
def test_links_that_take_turns_keep_their_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = server()
    for handle in (0, 1):
        wire.feed(encoded(1000 + handle, b"t", b"", handle=handle))
    asked: list[object] = []
    decode = reading.decode_performative
    monkeypatch.setattr(reading, "decode_performative", lambda *a: (asked.append(a), decode(*a))[1])
    events = wire.feed(b"".join(encoded(1002 + n, b"t", b"x", handle=n % 2) for n in range(100)))
    assert len(events) == 100
    assert [event.link.name for event in events if isinstance(event, Transfers)] == ["one", "two"] * 50
    assert not asked


def test_shapes_are_forgotten_when_a_handle_changes_hands() -> None:
    wire = server()
    wire.feed(b"".join(encoded(1000 + n, b"t", b"x") for n in range(5)))
    wire.send(Detach(0))
    wire.attach_sender("three", 0)
    events = wire.feed(b"".join(encoded(1005 + n, b"t", b"x") for n in range(5)))
    assert only(events, Transfers).link.name == "three"


def test_as_many_shapes_as_a_peer_likes_are_bounded() -> None:
    wire = server()
    number = 1000
    for tag_size in range(32):
        for tail in range(40):
            fields = (b"\x43", b"\x42", b"\x42", *(b"\x40",) * (tail % 2), *(b"",))
            wire.feed(encoded(number, b"t" * tag_size, b"", compound=(list8, list32)[tail % 2], tail=fields))
            number += 1
    assert len(wire.server.reader._shapes) <= 1024


def mixture(rng: random.Random, count: int) -> list[bytes]:
    """Frames that a peer with two sending links and a liking for variety might write."""
    written: list[bytes] = []
    delivery_id = rng.choice((0, 200, 2**32 - 100))
    low = delivery_id
    while len(written) < count:
        handle = rng.randrange(2)
        style = STYLES[rng.choice([name for name in STYLES if name != "no message-format"])]
        kind = rng.random()
        if kind < 0.6:
            size = rng.choice((0, 10, 100))
            varied = rng.random() < 0.3
            for _ in range(rng.choice((1, 2, 10, 60))):
                payload = rng.randbytes(size + (rng.randrange(20) if varied else 0))
                written.append(encoded(delivery_id, rng.randbytes(4), payload, handle=handle, **style))
                delivery_id += 1
        elif kind < 0.7:
            first = transfer(delivery_id & WRAP, b"big", handle, more=True)
            written.append(encode_frame(0, 0, first.encode() + b"a" * 50))
            written.append(encode_frame(0, 0, Transfer(handle, more=True).encode() + b"b" * 50))
            written.append(encode_frame(0, 0, Transfer(handle, aborted=rng.random() < 0.3).encode() + b"c"))
            delivery_id += 1
        elif kind < 0.75:
            resumed = transfer(delivery_id & WRAP, b"again", handle, resume=True, state=rng.choice((None, ACCEPTED)))
            written.append(encode_frame(0, 0, resumed.encode()))
            delivery_id += 1
        elif kind < 0.85:
            for _ in range(rng.choice((1, 3))):
                available, echo = rng.choice((0, 10, 200, 300, 70_000)), rng.random() < 0.2
                told = flow(next_outgoing_id=rng.randrange(600), handle=handle, available=available, echo=echo)
                written.append(encode_frame(0, 0, told.encode()))
        elif delivery_id > low:
            for _ in range(rng.choice((1, 1, 5, 40))):
                first_settled = rng.randrange(low, delivery_id)
                last = min(first_settled + rng.choice((0, 0, 3)), delivery_id - 1)
                state = rng.choice((None, ACCEPTED, RELEASED, Rejected()))
                written.append(encode_disposition(0, False, first_settled, last, state, rng.random() < 0.5))
    return written


LIMITS: list[tuple[int, dict[str, Any]]] = [(10_000, {}), (150, {}), (10_000, {"max_message_size": 105})]


def by_kind(events: list[Event]) -> tuple[list[Any], list[Any]]:
    """What was said of deliveries, and the rest: pairs.py may put a settlement behind the transfers around it."""
    said = everything(events)
    return [what for what in said if len(what) != 4], [what for what in said if len(what) == 4]


@puts_stand_ins
@pytest.mark.parametrize("seed", range(40))
def test_the_fast_road_and_the_slow_one_lead_to_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    data = b"".join(mixture(rng, 600))
    said = []
    for credit, fields in LIMITS:
        said.append(by_kind(server(credit, **fields).feed(data)))
        pieces = server(credit, **fields)
        start = 0
        while start < len(data):
            step = rng.choice((1, 20, 500))
            pieces.feed(data[start : start + step])
            start += step
        assert by_kind(pieces.events) == said[-1]
    monkeypatch.setattr(reading, "learn_shape", lambda *a, **k: None)
    monkeypatch.setattr(reading, "learn_disposition", lambda *a, **k: None)
    monkeypatch.setattr(reading, "flow_key", lambda *a: rng.randbytes(14))
    for expected, (credit, fields) in zip(said, LIMITS, strict=True):
        assert by_kind(server(credit, **fields).feed(data)) == expected


@pytest.mark.parametrize("list32_too", [False, True])
@pytest.mark.parametrize("with_last", [False, True])
def test_single_dispositions_become_one_range(list32_too: bool, with_last: bool) -> None:
    wire = Wire()
    link = wire.attach_receiver(credit=2000)
    link.send([b"%d" % n for n in range(1000)], [b""] * 1000)
    written = []
    for number in range(300, 900):
        fields = [b"\x41", uint(number), uint(number) if with_last else b"\x40", b"\x42", b"\x00\x53\x24\x45"]
        written.append(encode_frame(0, 0, b"\x00\x53\x15" + (list32 if list32_too else list8)(fields)))
    assert wire.feed(b"".join(written)) == [Dispositions(link, 300, 899, ACCEPTED, False)]


def test_dispositions_that_say_different_things_stay_apart() -> None:
    wire = Wire()
    link = wire.attach_receiver(credit=2000)
    link.send([b"%d" % n for n in range(1000)], [b""] * 1000)
    states: list[DeliveryState] = [ACCEPTED, RELEASED]
    written = b"".join(encode_disposition(0, True, n, n, states[n // 10 % 2], False) for n in range(400, 460))
    assert wire.feed(written) == [
        Dispositions(link, first, first + 9, states[first // 10 % 2], False) for first in range(400, 460, 10)
    ]


def test_field_spans_cover_every_kind_of_value() -> None:
    fields = [b"\x40", b"\x50\x01", b"\x60\x00\x01", uint(7), b"\x80" + bytes(8), b"\x98" + bytes(16), b"\xa0\x02ab",
              b"\xb0\x00\x00\x00\x01x", b"\xc0\x03\x01\x50\x01", b"\xd1\x00\x00\x00\x04\x00\x00\x00\x00",
              b"\x00\x53\x24\x45", b"\x00\xa3\x01x\xc1\x01\x00"]  # fmt: skip
    for compound, head in ((list8, 3), (list32, 9)):
        buf = compound(fields)
        spans = field_spans(buf, 0, len(buf))
        assert spans[0][0] == head
        assert [buf[start:stop] for start, stop in spans] == fields


# Out --------------------------------------------------------------------------------------------------------------------


@given(
    channel=st.integers(0, 0xFFFF),
    handle=st.integers(0, 0xFFFFFFFF),
    first_id=st.one_of(st.integers(0, 2**70), st.integers(2**32 - 5, 2**32 + 5)),
    messages=st.lists(st.tuples(st.binary(max_size=32), st.binary(max_size=300)), min_size=1, max_size=12),
    same_tags=st.booleans(),
    settled=st.booleans(),
    message_format=st.integers(0, 0xFFFFFFFF),
)
def test_a_block_reads_back_as_what_was_sent(
    channel: int,
    handle: int,
    first_id: int,
    messages: list[tuple[bytes, bytes]],
    same_tags: bool,
    settled: bool,
    message_format: int,
) -> None:
    tags = [messages[0][0] if same_tags else tag for tag, _ in messages]
    payloads = [payload for _, payload in messages]
    block = encode_block((channel, handle, settled, message_format), first_id, tags, payloads)
    assert [(performative, payload) for performative, payload in frames(block)] == [
        (
            Transfer(handle, (first_id + n) & WRAP, tag, message_format, settled=True if settled else None),
            payload,
        )
        for n, (tag, payload) in enumerate(zip(tags, payloads, strict=True))
    ]
    assert int.from_bytes(block[6:8], "big") == channel


@given(
    first=st.integers(0, 2**40),
    count=st.integers(1, 1000),
    settled=st.booleans(),
    receiver=st.booleans(),
    state=st.sampled_from([None, ACCEPTED, RELEASED, Rejected(), Rejected(None)]),
)
def test_a_disposition_reads_back_as_what_was_said(
    first: int, count: int, settled: bool, receiver: bool, state: DeliveryState | None
) -> None:
    last = first + count - 1
    ((performative, _),) = frames(encode_disposition(3, receiver, first, last, state, settled))
    assert performative == Disposition(receiver, first & WRAP, None if count == 1 else last & WRAP, settled, state)


def subscribers(count: int, **fields: Any) -> list[tuple[Connection, SenderLink]]:
    made = []
    for _ in range(count):
        wire = Wire(**fields)
        made.append((wire.server, wire.attach_receiver(credit=1000)))
    return made


def test_subscribers_whose_ids_run_along_share_one_encoding() -> None:
    links = subscribers(4)
    tags, payloads = [b"1", b"2", b"3"], [b"a", b"b", b"c"]
    cache: dict[Any, Any] = {}
    firsts = [link.send(tags, payloads, id_hint=77, shared=(cache, 0)) for _, link in links]
    assert firsts == [77] * 4
    assert len(cache) == 1
    written = [server.data_to_send() for server, _ in links]
    assert written[0] is written[1] is written[2] is written[3]


def test_different_slices_of_a_batch_are_kept_apart() -> None:
    (one, first), (two, second) = subscribers(2)
    cache: dict[Any, Any] = {}
    first.send([b"1", b"2"], [b"a", b"b"], shared=(cache, 0))
    second.send([b"2", b"3"], [b"b", b"c"], shared=(cache, 1))
    assert [payload for _, payload in frames(one.data_to_send())] == [b"a", b"b"]
    assert [payload for _, payload in frames(two.data_to_send())] == [b"b", b"c"]


def test_a_shared_block_is_not_used_where_it_exceeds_the_frame_size() -> None:
    ((large, first),) = subscribers(1)
    small = Wire(begun=False)
    small.feed(AMQP_HEADER)
    small.send(Open("small", max_frame_size=512))
    small.send(Begin(None, 0, 2048, 2048))
    second = small.attach_receiver(credit=10)
    cache: dict[Any, Any] = {}
    first.send([b"1", b"2"], [b"x" * 1000, b"y"], shared=(cache, 0))
    second.send([b"1", b"2"], [b"x" * 1000, b"y"], shared=(cache, 0))
    assert len(frames(large.data_to_send())) == 2
    assert len(frames(small.server.data_to_send())) == 4


def test_settled_and_message_format_are_part_of_the_key() -> None:
    links = subscribers(3)
    cache: dict[Any, Any] = {}
    links[0][1].send([b"1"], [b"a"], shared=(cache, 0))
    links[1][1].send([b"1"], [b"a"], shared=(cache, 0), settled=True)
    links[2][1].send([b"1"], [b"a"], shared=(cache, 0), message_format=5)
    found = [frames(server.data_to_send())[0][0] for server, _ in links]
    assert [(performative.settled, performative.message_format) for performative in found] == [
        (None, 0),
        (True, 0),
        (None, 5),
    ]


def test_a_run_goes_through_two_engines_unchanged() -> None:
    pair = Pair()
    sender, link = pair.publishing(credit=1000)
    rng = random.Random(7)
    tags = [rng.randbytes(rng.randrange(33)) for _ in range(500)]
    payloads = [rng.randbytes(rng.randrange(400)) for _ in range(500)]
    first = sender.send(tags, payloads, id_hint=2**32 - 250)
    _, at_server = pair.pump()
    assert at_server == [Transfers(link, first, tags, payloads, False, 0)]


def test_unattached_receivers_get_no_runs() -> None:
    wire = server()
    wire.feed(b"".join(encoded(1000 + n, b"t", b"x") for n in range(5)))
    link = wire.server.channels.sessions[0].links[0]
    assert isinstance(link, ReceiverLink)
    link.detach()
    assert wire.feed(b"".join(encoded(1005 + n, b"t", b"x") for n in range(5))) == []
