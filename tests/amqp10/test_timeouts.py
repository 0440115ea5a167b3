"""Heartbeats, silent peers, and peers that never open."""

from __future__ import annotations

from amqp10 import Connection, ConnectionClosed
from amqp10.errors import RESOURCE_LIMIT_EXCEEDED
from amqp10.frames import AMQP_HEADER, EMPTY_FRAME, encode_frame
from amqp10.performatives import Begin, Close, Open
from tests.amqp10.pair import Wire, kinds, only, settings


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
    assert wire.server.times.last_read == 9.0


def test_a_peer_that_never_opens_is_dropped() -> None:
    server = Connection(settings("server", handshake_timeout_s=5.0), server=True, now=100.0)
    assert server.next_deadline() == 105.0
    server.receive_data(AMQP_HEADER, 101.0)
    assert kinds(server.handle_timer(105.0)) == ["ConnectionClosed"]
    assert server.closed
