"""A router's turns while neighbours send much: each ends after a part, and the rest comes in the next ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from interrouter.events import PeerMessage
from interrouter.waiting import PART_EVENTS
from onceway.serve.neighbours import NeighbourCarrier
from onceway.serve.server import NEIGHBOURS_S, RouterServer
from onceway.serve.transport import VIEW
from onceway.topology import load
from tests.builds import puts_stand_ins
from tests.onceway.test_client_carrier import FakeTransport

TOPOLOGY = """
network: turns
defaults: {host: 127.0.0.1}
routers:
  a: {amqp: 5672, interrouter: 7671, admin: 8671}
  b: {amqp: 5673, interrouter: 7672, admin: 8672}
links: [a - b]
"""


class Loop:
    """What is called soon is called by hand."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> FakeTimer:
        return FakeTimer()

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


class FakeTimer:
    def cancel(self) -> None: ...


class Transport(FakeTransport):
    def get_extra_info(self, name: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def write(self, data: bytes) -> None: ...


class Trunk:
    """Its input is handled when the test says so."""

    def __init__(self) -> None:
        self.more = False
        self.up = True
        self.neighbour = "b"
        self.failure: str | None = None
        self.closed = False

    def receive_data(self, data: bytes, now: float) -> None: ...

    def buffers_to_send(self) -> list[bytes]:
        return []


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    loop = Loop()
    monkeypatch.setattr("onceway.serve.neighbours.asyncio.get_running_loop", lambda: loop)
    return loop


@pytest.fixture
def server(tmp_path: Path, loop: Loop) -> RouterServer:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)
    server = RouterServer(load(path), "a", fresh=True)
    server._loop = cast(Any, loop)
    return server


@puts_stand_ins
def test_a_turn_ends_after_a_part_of_what_neighbours_have_sent(
    server: RouterServer, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0.0
    monkeypatch.setattr(server, "clock", lambda: time.monotonic() + ahead)
    handled: list[object] = []

    def handle(peer: str, data: object, now: float) -> None:
        nonlocal ahead
        ahead += NEIGHBOURS_S
        handled.append(data)

    monkeypatch.setattr(server.router, "peer_message", handle)
    sent = [b"%d" % n for n in range(1000)]
    server.network.sessions.events += [PeerMessage("b", data) for data in sent]
    server.turn()
    turns = [len(handled)]
    for _ in range(len(sent)):
        if len(handled) == len(sent):
            break
        assert loop.soon, "the next turn is asked for"
        loop.turn()
        turns.append(len(handled) - sum(turns))
    assert max(turns) <= PART_EVENTS
    assert handled == sent
    loop.turn()
    assert not loop.soon, "nothing is left"


def carrier_of(server: RouterServer) -> tuple[NeighbourCarrier, Trunk, Transport]:
    carrier, trunk, transport = NeighbourCarrier(server, "b", None), Trunk(), Transport()
    carrier.connection_made(cast(Any, transport))
    carrier.carried = cast(Any, trunk)
    return carrier, trunk, transport


def test_a_trunk_is_not_read_while_what_it_has_received_waits(server: RouterServer, loop: Loop) -> None:
    carrier, trunk, transport = carrier_of(server)
    trunk.more = True
    carrier.buffer_updated(100)
    assert not transport.reading
    loop.turn()
    assert not transport.reading
    trunk.more = False
    loop.turn()
    assert transport.reading
    loop.turn()
    assert not loop.soon


def test_a_trunk_that_fills_a_read_lets_others_be_read(server: RouterServer, loop: Loop) -> None:
    carrier, _, transport = carrier_of(server)
    carrier.buffer_updated(100)
    assert transport.reading
    carrier._view = VIEW[:200]
    carrier.buffer_updated(200)
    assert not transport.reading, "libuv would read it up to 32 times"
    loop.turn()
    assert transport.reading
