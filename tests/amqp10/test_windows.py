"""A session's windows, and what waits for them."""

from __future__ import annotations

import pytest

from amqp10 import LocalProtocolError, SessionFlow, Transfers
from amqp10.errors import WINDOW_VIOLATION
from amqp10.frames import encode_frame
from amqp10.performatives import Attach, Begin, End, Flow
from tests.amqp10.pair import Pair, Wire, ended_with, flow, kinds, only, transfer


def test_the_peers_window_limits_what_can_be_sent() -> None:
    pair = Pair(server={"incoming_window": 10})
    sender, link = pair.publishing()
    link.session.pause_incoming()
    assert sender.capacity() == 10
    sender.send([b"%d" % n for n in range(10)], [b""] * 10)
    assert sender.capacity() == 0
    assert sender.credit == 90
    with pytest.raises(LocalProtocolError):
        sender.send([b"x"], [b""])


def test_a_window_that_opens_again_is_told() -> None:
    pair = Pair(server={"incoming_window": 10})
    sender, link = pair.publishing()
    link.session.pause_incoming()
    sender.send([b"%d" % n for n in range(10)], [b""] * 10)
    pair.pump()
    assert sender.capacity() == 0
    link.session.resume_incoming()
    at_client, _ = pair.pump()
    assert only(at_client, SessionFlow).session is sender.session
    assert sender.capacity() == 10


def test_the_window_is_renewed_when_half_of_it_is_used() -> None:
    wire = Wire(incoming_window=10)
    wire.attach_sender()
    for number in range(5):
        wire.send(transfer(number), b"x")
    assert wire.read() == []
    wire.send(transfer(5), b"x")
    (renewed,) = wire.read()
    assert isinstance(renewed, Flow)
    assert (renewed.next_incoming_id, renewed.incoming_window, renewed.handle) == (6, 10, None)


def test_a_paused_session_renews_no_window_whatever_it_says() -> None:
    wire = Wire(incoming_window=10)
    link = wire.attach_sender()
    link.session.pause_incoming()
    for number in range(8):
        wire.send(transfer(number), b"x")
    link.grant(50)
    wire.send(flow(echo=True))
    assert [frame.incoming_window for frame in wire.read()] == [2]
    link.session.resume_incoming()
    assert [frame.incoming_window for frame in wire.read()] == [10]


@pytest.mark.parametrize("start", [0, 300])
def test_transfers_beyond_the_window_end_the_session_alone(start: int) -> None:
    wire = Wire(incoming_window=10)
    link = wire.attach_sender()
    wire.send(Begin(None, 0, 100, 100), channel=1)
    link.session.pause_incoming()
    wire.read()
    events = wire.feed(b"".join(encode_frame(0, 0, transfer(start + n).encode() + b"x") for n in range(11)))
    assert only(events, Transfers).tags == [b"tag"] * 10
    ended_with(events, WINDOW_VIOLATION)
    (ended,) = wire.read()
    assert isinstance(ended, End)
    assert len(wire.server.channels.sessions) == 2
    assert kinds(wire.send(Attach("x", 0, True), channel=1)) == ["LinkAttaching"]


def test_a_message_larger_than_the_window_goes_out_as_it_opens() -> None:
    pair = Pair(server={"incoming_window": 4, "max_frame_size": 512})
    sender, link = pair.publishing()
    payload = bytes(range(256)) * 40
    first = sender.send([b"large", b"small"], [payload, b"little"])
    assert sender.capacity() == 0
    _, at_server = pair.pump()
    run = only(at_server, Transfers)
    assert (run.first_id, run.tags, run.payloads) == (first, [b"large", b"small"], [payload, b"little"])
    assert sender.capacity() > 0
    assert link.delivery_count == 2


def test_what_speaks_of_waiting_deliveries_waits_behind_them() -> None:
    pair = Pair(server={"incoming_window": 4, "max_frame_size": 512})
    sender, link = pair.publishing()
    link.session.pause_incoming()
    first = sender.send([b"large", b"next"], [b"x" * 5000, b"y"])
    sender.settle(first, first)
    sender.flow()
    _, at_server = pair.pump()
    assert kinds(at_server) == []
    link.session.resume_incoming()
    _, at_server = pair.pump()
    assert kinds(at_server) == ["Transfers", "Dispositions", "LinkFlow"]


def test_a_flow_does_not_wait_behind_the_rest_of_a_delivery() -> None:
    """Else a sender that is held back in the middle of one could not answer an echo."""
    pair = Pair(server={"incoming_window": 4, "max_frame_size": 512})
    sender, link = pair.publishing()
    link.session.pause_incoming()
    sender.send([b"large"], [b"x" * 5000])
    sender.flow()
    _, at_server = pair.pump()
    assert kinds(at_server) == ["LinkFlow"]


def test_a_window_in_bytes_follows_the_largest_frame() -> None:
    wire = Wire(incoming_window=100, window_bytes=2_000)
    wire.attach_sender(credit=1_000)
    seen = []
    for number in range(200):
        wire.send(transfer(number), b"x" * (10 if number < 120 else 500))
        seen += [frame.incoming_window for frame in wire.read()]
    assert seen[:3] == [64, 100, 100], "16 at first, 32 with the first credit, and more as it is used"
    assert seen[-1] == 4
    wire.server.check_invariants()


def test_a_detached_link_takes_its_waiting_frames_with_it() -> None:
    pair = Pair(server={"incoming_window": 4, "max_frame_size": 512})
    sender, link = pair.publishing()
    other, _ = pair.publishing(sender.session, name="other")
    link.session.pause_incoming()
    sender.send([b"large"], [b"x" * 5000])
    pair.pump()
    sender.detach()
    pair.pump()
    link.session.resume_incoming()
    pair.pump()
    other.send([b"1"], [b"after"])
    _, at_server = pair.pump()
    assert only(at_server, Transfers).payloads == [b"after"]


def test_transfers_of_a_message_that_waits_do_not_overtake_each_other() -> None:
    pair = Pair(server={"incoming_window": 2, "max_frame_size": 512})
    sender, _ = pair.publishing()
    other, _ = pair.publishing(sender.session, name="other")
    sender.send([b"large"], [b"x" * 3000])
    assert other.capacity() == 0
    _, at_server = pair.pump()
    assert only(at_server, Transfers).payloads == [b"x" * 3000]
    assert other.capacity() > 0


def test_an_echo_for_the_session_is_answered() -> None:
    wire = Wire()
    wire.send(flow(echo=True))
    (answer,) = wire.read()
    assert (answer.handle, answer.echo) == (None, False)
