"""A peer that takes only small frames."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10 import DeliveryState, Error, LinkAttaching, Modified, Rejected, SessionEnded, Source, Target
from amqp10.errors import FRAME_SIZE_TOO_SMALL
from amqp10.frames import AMQP_HEADER
from amqp10.performatives import Attach, Begin, Open
from tests.amqp10.pair import Wire, frames, only, transfer


def small_wire(**fields: Any) -> Wire:
    wire = Wire(begun=False, **fields)
    wire.feed(AMQP_HEADER)
    wire.send(Open("small", max_frame_size=512))
    wire.send(Begin(None, 0, 2048, 2048))
    wire.read()
    return wire


def largest_frame(data: bytes) -> int:
    offset = largest = 0
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 4], "big")
        largest = max(largest, size)
        offset += size
    return largest


def test_a_refusal_fits_the_peers_frames() -> None:
    wire = small_wire(on_attaching=None)
    target = Target("t" * 1000)
    link = only(
        wire.send(Attach("x", 0, False, target=target, source=Source("s" * 1000), initial_delivery_count=0)),
        LinkAttaching,
    ).link
    link.refuse("amqp:not-found", "no topic of that name: " + "t" * 1000, {"name": "t" * 1000})
    data = wire.server.data_to_send()
    assert largest_frame(data) <= 512
    (attach, _), (detach, _) = frames(data)
    assert attach.target is None
    assert detach.error.condition == "amqp:not-found"
    assert detach.error.description.startswith("no topic of that name")


def test_a_name_that_no_answer_can_carry_ends_the_session() -> None:
    wire = small_wire(on_attaching=None)
    error = only(wire.send(Attach("n" * 500, 0, True)), SessionEnded).error
    assert error.condition == FRAME_SIZE_TOO_SMALL
    assert largest_frame(wire.server.data_to_send()) <= 512


def test_errors_of_session_and_connection_fit_the_peers_frames() -> None:
    wire = small_wire()
    error = Error("amqp:internal-error", "why " * 500, {"what": "x" * 1000})
    wire.server.channels.sessions[0].end(error)
    wire.server.close(error)
    data = wire.server.data_to_send()
    assert largest_frame(data) <= 512
    assert [performative.error.condition for performative, _ in frames(data)] == ["amqp:internal-error"] * 2


@pytest.mark.parametrize(
    "state", [Rejected(Error("amqp:internal-error", "why " * 500, {"n": 3})), Modified(True, False, {"x": "y" * 600})]
)
def test_states_fit_the_peers_frames(state: DeliveryState) -> None:
    wire = small_wire()
    link = wire.attach_sender()
    wire.send(transfer(0), b"")
    sender = wire.attach_receiver("out", 1)
    link.dispose(0, 0, state, False)
    sender.resume(b"tag", state, b"payload")
    data = wire.server.data_to_send()
    assert largest_frame(data) <= 512
    disposition, resumed = sorted((performative for performative, _ in frames(data)), key=lambda p: type(p).__name__)
    assert type(disposition.state) is type(resumed.state) is type(state)
    assert not resumed.more
