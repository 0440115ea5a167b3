"""Open, close, channels."""

from __future__ import annotations

import pytest

from amqp10 import (
    ConnectionClosed,
    ConnectionOpened,
    Error,
    LinkAttached,
    LinkAttaching,
    LocalProtocolError,
    ReceiverLink,
    SessionBegun,
    SessionEnded,
    Source,
    Target,
)
from amqp10.errors import ILLEGAL_STATE, INVALID_FIELD, RESOURCE_LIMIT_EXCEEDED
from amqp10.frames import AMQP_HEADER
from amqp10.performatives import Begin, Close, Detach, End, Open
from tests.amqp10.pair import Pair, Wire, frames, kinds, only, transfer

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
    assert pair.server.channels.sessions == [link.session]
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
    assert error.condition == ILLEGAL_STATE
    assert wire.read()[-1].error == error


def test_an_open_with_a_frame_size_below_the_minimum_is_an_error() -> None:
    wire = Wire(begun=False)
    wire.feed(AMQP_HEADER)
    error = only(wire.send(Open("wire", max_frame_size=511)), ConnectionClosed).error
    assert error.condition == INVALID_FIELD


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
    assert error.condition == RESOURCE_LIMIT_EXCEEDED


def test_the_peers_channel_need_not_be_ours() -> None:
    wire = Wire()
    session = only(wire.send(Begin(None, 0, 1, 1), channel=42), SessionBegun).session
    assert session.channel == 1
    assert wire.read() == [Begin(42, 0, 4096, 0x7FFFFFFF, 255, properties={})]
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
