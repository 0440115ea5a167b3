"""Headers, SASL, open, time-outs, channels, close; and what becomes of a peer that breaks the rules."""

from __future__ import annotations

import random
from typing import Any

import pytest

from amqp10 import (
    ACCEPTED,
    Connection,
    ConnectionClosed,
    ConnectionOpened,
    Dispositions,
    Error,
    LinkAttached,
    LinkAttaching,
    LocalProtocolError,
    ReceiverLink,
    SessionBegun,
    SessionEnded,
    Source,
    Target,
    Transfers,
)
from amqp10.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)
from amqp10.frames import AMQP_HEADER, EMPTY_FRAME, SASL_HEADER, TLS_HEADER, encode_frame
from amqp10.performatives import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from amqp10.sasl import Anonymous, Plain, server_mechanisms
from amqp10.types import Symbol
from tests.amqp10.pair import Pair, Wire, flow, frames, kinds, only, settings, transfer


def sasl_server(**fields: Any) -> Connection:
    mechanisms = server_mechanisms(verify=lambda user, password: (user, password) == ("ann", "secret"))
    return Connection(settings("server", sasl=mechanisms, **fields), server=True, now=0.0)


def sasl_frame(performative: Any) -> bytes:
    return encode_frame(1, 0, performative.encode())


# Open and close ------------------------------------------------------------------------------------------------------


def test_open_carries_what_the_settings_say() -> None:
    pair = Pair(
        client={
            "hostname": "example",
            "max_frame_size": 4096,
            "channel_max": 7,
            "idle_timeout_s": 30.0,
            "offered_capabilities": ("one", "two"),
            "desired_capabilities": ("three",),
            "properties": {"product": "test"},
        }
    )
    opened = pair.server.remote_open
    assert opened is not None
    assert (opened.container_id, opened.hostname) == ("client", "example")
    assert (opened.max_frame_size, opened.channel_max, opened.idle_time_out) == (4096, 7, 15_000)
    assert tuple(opened.offered_capabilities) == ("one", "two")
    assert tuple(opened.desired_capabilities) == ("three",)
    assert opened.properties == {"product": "test"}
    assert pair.server.remote_max_frame_size == 4096


def test_client_pipelines_everything_up_to_credit() -> None:
    pair = Pair(open=False)
    pair.client.open()
    session = pair.client.begin()
    receiver = session.receiver("r")
    receiver.attach(source=Source("there"), target=Target("here"))
    receiver.grant(10)
    written = pair.client.data_to_send()
    assert written.startswith(AMQP_HEADER)
    assert [type(performative).__name__ for performative, _ in frames(written)] == ["Open", "Begin", "Attach", "Flow"]
    events = pair.server.receive_data(written, 0.0)
    assert kinds(events) == ["ConnectionOpened", "SessionBegun", "LinkAttaching", "LinkFlow"]


def test_close_is_answered_and_ends_both_sides() -> None:
    pair = Pair()
    pair.client.close()
    at_client, at_server = pair.pump()
    assert at_client == [ConnectionClosed(pair.client, None, True)]
    assert at_server == [ConnectionClosed(pair.server, None, False)]
    assert pair.client.closed
    assert pair.server.closed


def test_close_carries_its_error() -> None:
    pair = Pair()
    error = Error("amqp:connection:forced", "going down", {"restart": True})
    pair.server.close(error)
    at_client, at_server = pair.pump()
    assert only(at_client, ConnectionClosed).error == error
    assert only(at_server, ConnectionClosed).error == error


def test_close_takes_links_and_sessions_with_it() -> None:
    pair = Pair()
    sender, link = pair.publishing()
    pair.client.close()
    _, at_server = pair.pump()
    assert kinds(at_server) == ["ConnectionClosed"]
    assert pair.server.sessions == [link.session]
    assert link.session.links == [link]
    assert link.detached
    assert sender.detached
    assert sender.capacity() == 0


def test_a_server_refuses_a_peer_by_closing_after_open() -> None:
    wire = Wire(begun=False)
    wire.feed(AMQP_HEADER)
    wire.send(Open("wire"))
    wire.server.close(Error("amqp:unauthorized-access", "not you"))
    assert [type(performative) for performative in wire.read()] == [Open, Close]


def test_close_before_the_peers_open_is_preceded_by_ours() -> None:
    wire = Wire(begun=False)
    wire.feed(AMQP_HEADER)
    wire.send(Begin(None, 0, 1, 1))
    opened, closed = wire.read()
    assert isinstance(opened, Open)
    assert closed.error.condition == ILLEGAL_STATE


def test_lost_bytes_are_not_a_close() -> None:
    pair = Pair()
    assert pair.server.receive_eof(1.0) == [ConnectionClosed(pair.server, None, False, lost=True)]
    assert pair.server.closed
    assert pair.server.receive_eof(2.0) == []


def test_nothing_is_said_after_our_close() -> None:
    pair = Pair()
    sender, _ = pair.publishing()
    pair.client.close()
    pair.client.data_to_send()
    sender.session.end()
    sender.detach()
    sender.settle(0, 0)
    assert pair.client.data_to_send() == b""
    with pytest.raises(LocalProtocolError):
        pair.client.begin()
    with pytest.raises(LocalProtocolError):
        sender.send([b"1"], [b""])


def test_an_unanswered_close_is_given_up() -> None:
    pair = Pair()
    pair.client.close()
    pair.client.data_to_send()
    deadline = pair.client.next_deadline()
    assert deadline is not None
    assert pair.client.handle_timer(deadline - 0.01) == []
    assert kinds(pair.client.handle_timer(deadline)) == ["ConnectionClosed"]
    assert pair.client.closed


def test_what_comes_after_our_close_is_discarded() -> None:
    wire = Wire()
    wire.attach_sender()
    wire.server.close()
    wire.events.clear()
    wire.send(transfer(0), b"x")
    wire.send(Begin(None, 0, 1, 1), channel=3)
    wire.send(Detach(77))
    assert wire.events == []
    assert kinds(wire.send(Close())) == ["ConnectionClosed"]


def test_a_second_open_is_an_error() -> None:
    wire = Wire()
    error = only(wire.send(Open("again")), ConnectionClosed).error
    assert error is not None
    assert error.condition == ILLEGAL_STATE
    assert wire.read()[-1].error == error


def test_an_open_with_a_frame_size_below_the_minimum_is_an_error() -> None:
    wire = Wire(begun=False)
    wire.feed(AMQP_HEADER)
    error = only(wire.send(Open("wire", max_frame_size=511)), ConnectionClosed).error
    assert error is not None
    assert error.condition == INVALID_FIELD


# Protocol headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", [b"AMQP\x00\x00\x09\x01", TLS_HEADER, b"AMQP\x01\x01\x00\x00", b"AMQP\x00\x01\x00\x01"]
)
def test_an_unknown_version_is_answered_with_ours(header: bytes) -> None:
    server = Connection(settings("server"), server=True, now=0.0)
    error = only(server.receive_data(header, 0.0), ConnectionClosed).error
    assert error is not None
    assert error.condition == NOT_IMPLEMENTED
    assert server.data_to_send() == AMQP_HEADER
    assert server.closing


def test_something_else_than_amqp_is_answered_with_our_header() -> None:
    server = Connection(settings("server"), server=True, now=0.0)
    error = only(server.receive_data(b"GET / HTTP/1.1\r\n\r\n", 0.0), ConnectionClosed).error
    assert error is not None
    assert error.condition == FRAMING_ERROR
    assert server.data_to_send() == AMQP_HEADER
    assert server.receive_data(b"more", 0.0) == []


def test_sasl_without_mechanisms_is_answered_with_the_amqp_header() -> None:
    server = Connection(settings("server"), server=True, now=0.0)
    only(server.receive_data(SASL_HEADER, 0.0), ConnectionClosed)
    assert server.data_to_send() == AMQP_HEADER


def test_a_client_tells_of_a_server_with_another_version() -> None:
    client = Connection(settings("client"), server=False, now=0.0)
    client.open()
    client.data_to_send()
    closed = only(client.receive_data(b"AMQP\x00\x00\x09\x01", 0.0), ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == NOT_IMPLEMENTED
    assert client.data_to_send() == b""


# SASL -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("client", "user"), [(Anonymous(), "anonymous"), (Plain("ann", "secret"), "ann")])
@pytest.mark.parametrize("chunk", [None, 1])
def test_sasl_comes_before_open(client: Any, user: str, chunk: int | None) -> None:
    mechanisms = server_mechanisms(verify=lambda name, password: password == "secret")
    pair = Pair(client={"sasl": client}, server={"sasl": mechanisms, "allow_no_sasl": False}, chunk=chunk)
    assert pair.server.user == user
    assert pair.client.remote_open is not None


def round_trips(client: Connection, server: Connection) -> int:
    """Until the client is open; each side reads all that the other has said, then answers."""
    client.open()
    trips = 0
    while client.remote_open is None:
        trips += 1
        assert trips < 9
        server.receive_data(client.data_to_send(), 0.0)
        client.receive_data(server.data_to_send(), 0.0)
    return trips


@pytest.mark.parametrize(
    ("fields", "trips"), [({}, 1), ({"sasl": Anonymous()}, 3), ({"sasl": Anonymous(), "pipelined": True}, 1)]
)
def test_pipelined_a_connection_is_open_after_one_round_trip(fields: dict[str, Any], trips: int) -> None:
    client = Connection(settings("client", **fields), server=False, now=0.0)
    server = sasl_server()
    assert round_trips(client, server) == trips
    assert server.user == (None if not fields else "anonymous")


@pytest.mark.parametrize("chunk", [1, 7, None])
def test_pipelined_it_is_the_same_connection(chunk: int | None) -> None:
    pair = Pair(client={"sasl": Anonymous(), "pipelined": True}, server={"sasl": server_mechanisms()}, chunk=chunk)
    assert pair.client.remote_open is not None
    session = pair.client.begin()
    pair.pump()
    assert session.remote_begin is not None
    assert pair.sent_by_client.count(SASL_HEADER) == 1
    assert pair.sent_by_client.count(AMQP_HEADER) == 1


def test_pipelined_it_is_told_which_mechanisms_there_are_instead() -> None:
    mechanisms = server_mechanisms(anonymous=False, verify=lambda user, password: True)
    pair = Pair(client={"sasl": Anonymous(), "pipelined": True}, server={"sasl": mechanisms}, open=False)
    pair.client.open()
    at_client, at_server = pair.pump()
    closed = only(at_client, ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == UNAUTHORIZED_ACCESS
    assert "does not offer ANONYMOUS, but PLAIN" in (closed.error.description or "")
    assert "ANONYMOUS" in str(only(at_server, ConnectionClosed).error)


def test_pipelined_it_cannot_be_challenged() -> None:
    client = Connection(settings("client", sasl=Anonymous(), pipelined=True), server=False, now=0.0)
    client.open()
    said = SASL_HEADER + sasl_frame(SaslMechanisms((Symbol("ANONYMOUS"),))) + sasl_frame(SaslChallenge(b"who?"))
    closed = only(client.receive_data(said, 0.0), ConnectionClosed)
    assert closed.error is not None
    assert closed.error.condition == ILLEGAL_STATE


def test_a_wrong_password_gets_an_outcome_and_no_connection() -> None:
    mechanisms = server_mechanisms(verify=lambda name, password: False)
    pair = Pair(client={"sasl": Plain("ann", "guess")}, server={"sasl": mechanisms}, open=False)
    pair.client.open()
    at_client, at_server = pair.pump()
    for events, local in ((at_client, False), (at_server, True)):
        closed = only(events, ConnectionClosed)
        assert closed.error is not None
        assert (closed.error.condition, closed.local) == (UNAUTHORIZED_ACCESS, local)
    assert pair.server.user is None


def test_a_mechanism_that_is_not_offered_is_refused() -> None:
    server = sasl_server()
    server.receive_data(SASL_HEADER, 0.0)
    server.data_to_send()
    only(server.receive_data(sasl_frame(SaslInit("EXTERNAL", b"")), 0.0), ConnectionClosed)
    ((outcome, _),) = frames(server.data_to_send())
    assert outcome == SaslOutcome(1)


def test_plain_without_an_initial_response_is_challenged() -> None:
    server = sasl_server()
    server.receive_data(SASL_HEADER + sasl_frame(SaslInit("PLAIN")), 0.0)
    assert server.user is None
    server.receive_data(sasl_frame(SaslResponse(b"\x00ann\x00secret")) + AMQP_HEADER, 0.0)
    assert server.user == "ann"


def test_a_server_that_insists_on_sasl_answers_the_amqp_header_with_sasls() -> None:
    server = sasl_server(allow_no_sasl=False)
    only(server.receive_data(AMQP_HEADER, 0.0), ConnectionClosed)
    assert server.data_to_send() == SASL_HEADER


def test_a_server_with_sasl_may_also_do_without() -> None:
    server = sasl_server()
    server.receive_data(AMQP_HEADER + encode_frame(0, 0, Open("x").encode()), 0.0)
    assert server.remote_open is not None
    assert server.user is None


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        ((600).to_bytes(4, "big") + b"\x02\x01\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x04\x02\x01\x00\x00", FRAMING_ERROR),
        (b"\x00\x00\x00\x08\x02\x01\x00\x00", FRAMING_ERROR),
        (encode_frame(0, 0, SaslInit("ANONYMOUS").encode()), FRAMING_ERROR),
        (encode_frame(1, 0, b"\x00\x53\x41\xc0"), DECODE_ERROR),
        (encode_frame(1, 0, SaslInit("ANONYMOUS").encode() + b"x"), FRAMING_ERROR),
        (encode_frame(1, 0, SaslResponse(b"").encode()), ILLEGAL_STATE),
        (encode_frame(1, 0, Open("x").encode()), ILLEGAL_STATE),
        (encode_frame(1, 0, SaslMechanisms(("PLAIN",)).encode()), ILLEGAL_STATE),
    ],
)
def test_nonsense_instead_of_sasl_ends_the_connection(data: bytes, condition: str) -> None:
    server = sasl_server()
    server.receive_data(SASL_HEADER, 0.0)
    error = only(server.receive_data(data, 0.0), ConnectionClosed).error
    assert error is not None
    assert error.condition == condition


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
    assert error is not None
    assert error.condition == condition
    (closed,) = wire.read()
    assert closed == Close(error)
    assert wire.feed(b"whatever") == []


def test_a_decode_error_names_the_octet() -> None:
    wire = Wire()
    error = only(wire.feed(encode_frame(0, 0, b"\x00\x53\x10\xc0\x03\x01\x3f\x00")), ConnectionClosed).error
    assert error is not None
    assert error.description is not None
    assert "octet 14 of a frame of 16" in error.description


def test_a_frame_above_our_max_frame_size_is_refused_before_it_has_come() -> None:
    wire = Wire(max_frame_size=1000)
    error = only(wire.feed((1001).to_bytes(4, "big") + b"\x02\x00\x00\x00"), ConnectionClosed).error
    assert error is not None
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
    before = wire.server.frames_read
    wire.feed(EMPTY_FRAME * 3)
    assert wire.server.frames_read == before + 3
    assert wire.events == []


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


# Time-outs ------------------------------------------------------------------------------------------------------------


def test_heartbeats_go_out_at_half_the_peers_time_out() -> None:
    wire = Wire(begun=False)
    wire.feed(AMQP_HEADER)
    wire.send(Open("wire", idle_time_out=8000))
    wire.read()
    assert wire.server.next_deadline() == 4.0
    assert wire.server.handle_timer(3.9) == []
    assert wire.server.data_to_send() == b""
    assert wire.server.handle_timer(4.0) == []
    assert wire.server.data_to_send() == EMPTY_FRAME
    assert wire.server.next_deadline() == 8.0


def test_no_heartbeat_where_something_else_was_written() -> None:
    wire = Wire(begun=False)
    wire.feed(AMQP_HEADER)
    wire.send(Open("wire", idle_time_out=8000))
    wire.read()
    wire.server.receive_data(encode_frame(0, 0, Begin(None, 0, 1, 1).encode()), 3.0)
    wire.server.data_to_send()
    wire.server.handle_timer(4.0)
    assert wire.server.data_to_send() == b""
    assert wire.server.next_deadline() == 7.0


def test_a_silent_peer_is_closed() -> None:
    wire = Wire(idle_timeout_s=10.0)
    deadline = wire.server.next_deadline()
    assert deadline == 10.0
    assert wire.server.handle_timer(deadline - 0.1) == []
    error = only(wire.server.handle_timer(deadline), ConnectionClosed).error
    assert error is not None
    assert error.condition == RESOURCE_LIMIT_EXCEEDED
    assert wire.read()[-1] == Close(error)
    assert wire.server.closed
    assert wire.server.next_deadline() is None


def test_a_peer_is_not_silent_while_we_stand_still() -> None:
    """Our timer is late, and what has come is not read yet."""
    wire = Wire(idle_timeout_s=10.0)
    assert wire.server.next_deadline() == 10.0
    assert wire.server.handle_timer(60.0) == []
    assert wire.server.next_deadline() == 62.5
    wire.server.receive_data(EMPTY_FRAME, 60.0)
    assert wire.server.next_deadline() == 70.0
    assert wire.server.handle_timer(130.0) == []
    closed = only(wire.server.handle_timer(132.5), ConnectionClosed)
    assert closed.error is not None
    assert "nothing heard for 72.5 s" in (closed.error.description or "")


def test_a_heartbeat_is_due_too_when_we_have_stood_still() -> None:
    wire = Wire(begun=False, idle_timeout_s=10.0)
    wire.feed(AMQP_HEADER)
    wire.send(Open("wire", idle_time_out=8000))
    wire.read()
    assert wire.server.handle_timer(60.0) == []
    assert wire.server.data_to_send() == EMPTY_FRAME


def test_a_heartbeat_is_a_sign_of_life() -> None:
    wire = Wire(idle_timeout_s=10.0)
    wire.server.receive_data(EMPTY_FRAME, 9.0)
    assert wire.server.next_deadline() == 19.0
    assert wire.server.last_read == 9.0


def test_a_peer_that_never_opens_is_dropped() -> None:
    server = Connection(settings("server", handshake_timeout_s=5.0), server=True, now=100.0)
    assert server.next_deadline() == 105.0
    server.receive_data(AMQP_HEADER, 101.0)
    assert kinds(server.handle_timer(105.0)) == ["ConnectionClosed"]
    assert server.closed


# Channels -------------------------------------------------------------------------------------------------------------


def test_channels_are_used_again_after_end() -> None:
    pair = Pair(client={"channel_max": 1})
    first, _ = pair.begin()
    second, _ = pair.begin()
    assert (first.channel, second.channel) == (0, 1)
    with pytest.raises(LocalProtocolError):
        pair.client.begin()
    first.end()
    pair.pump()
    assert pair.client.begin().channel == 0


def test_channels_beyond_the_peers_channel_max_are_not_used() -> None:
    pair = Pair(server={"channel_max": 0})
    pair.begin()
    with pytest.raises(LocalProtocolError):
        pair.client.begin()


def test_a_peer_with_more_sessions_than_it_takes_itself_is_closed() -> None:
    wire = Wire(begun=False)
    wire.feed(AMQP_HEADER)
    wire.send(Open("wire", channel_max=0))
    wire.send(Begin(None, 0, 1, 1), channel=0)
    error = only(wire.send(Begin(None, 0, 1, 1), channel=1), ConnectionClosed).error
    assert error is not None
    assert error.condition == RESOURCE_LIMIT_EXCEEDED


def test_the_peers_channel_need_not_be_ours() -> None:
    wire = Wire()
    session = only(wire.send(Begin(None, 0, 1, 1), channel=42), SessionBegun).session
    assert session.channel == 1
    assert wire.read() == [Begin(42, 0, 4096, 0x7FFFFFFF, 255)]
    ended = only(wire.send(End(), channel=42), SessionEnded)
    assert ended.session is session
    assert not ended.local


def test_both_sides_may_begin() -> None:
    pair = Pair()
    session = pair.server.begin()
    at_client, at_server = pair.pump()
    assert only(at_client, SessionBegun).local is False
    assert only(at_server, SessionBegun) == SessionBegun(session, True)
    receiver = session.receiver("x")
    receiver.attach(source=Source("a"), target=Target("b"))
    at_client, at_server = pair.pump()
    assert only(at_client, LinkAttaching).link.is_sender
    assert only(at_server, LinkAttached).link is receiver


def test_output_is_joined_into_one_piece() -> None:
    pair = Pair()
    sender, _ = pair.publishing()
    sender.send([b"1"], [b"a"])
    sender.send([b"2"], [b"b"])
    assert pair.client.output_size > 0
    assert pair.client.has_output
    assert len(frames(pair.client.data_to_send())) == 2
    assert pair.client.output_size == 0
    assert pair.client.data_to_send() == b""


def test_receivers_and_contexts_are_the_owners() -> None:
    pair = Pair()
    assert isinstance(pair.publishing()[1], ReceiverLink)
    assert pair.client.context is None
    opened = ConnectionOpened(pair.client, Open("x"))
    assert opened.connection is pair.client
