"""Shares of the loop: reads that take long wait in turns, and cost others a bounded time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from amqp10.settings import BEFORE_LOGIN
from onceway.serve.clients import (
    BULKY_FRAME,
    LARGE_FRAME,
    PACKETS_AT_ONCE,
    TOKEN,
    TURN_S,
    ClientCarrier,
    Shares,
)
from onceway.serve.strangers import STRANGER_READ, STRANGERS_S, Strangers
from onceway.serve.transport import READ_S, READ_SIZE, VIEW
from onceway.serve.turn_times import TurnTimes
from router.border import Border
from router.mqtt.connection import MqttConnection
from router.reporting import NO_LOG


class FakeTransport:
    def __init__(self) -> None:
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None: ...


class FakeConnection:
    """Each byte takes `cost_s` of a clock that nothing else moves."""

    def __init__(self, loop: Loop, cost_s: float) -> None:
        self.loop, self.cost_s = loop, cost_s
        self.received: list[int] = []
        self.delays: list[float] = []
        self.reads = True
        self.user: str | None = "alice"
        self.container = "printer"
        self.named: Any = None
        self.frame = 0
        self.frame_size = 100
        self.reader = SimpleNamespace(
            buffered=1, frames=0, more=False, frame_completed_by=lambda size: self.frame, goes_on=lambda size: False
        )
        self.connection = SimpleNamespace(reader=self.reader)
        self.steps = None
        self.closed = False

    def receive_data(self, data: bytes, now: float) -> None:
        self.loop.now += len(data) * self.cost_s
        self.received.append(len(data))
        self.reader.frames += len(data) // self.frame_size

    def receive_eof(self, now: float) -> None:
        self.loop.now += self.end_s
        self.closed = True

    end_s = 0.0

    def buffers_to_send(self) -> list[bytes]:
        return []

    output_paused = False

    def said(self) -> dict[str, Any]:
        return {"client": "10.0.0.1:1", "user": self.user, "container": self.container}

    def delayed(self, since: float, now: float) -> None:
        self.delays.append(now - since)

    def resume_output(self) -> None: ...

    @property
    def more(self) -> bool:
        return bool(self.reader.more)


class Lines:
    """A log that keeps its warnings."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, object]]] = []

    def debug(self, event: str, text: str, **fields: object) -> None: ...

    def info(self, event: str, text: str, **fields: object) -> None: ...

    def warning(self, event: str, text: str, **fields: object) -> None:
        self.warnings.append((event, fields))

    def error(self, event: str, text: str, **fields: object) -> None: ...


class Loop:
    """asyncio's as far as it is needed, and the server's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = 0
        self.soon: deque[Callable[[], None]] = deque()
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.router = SimpleNamespace(border=Border(SimpleNamespace(entered=None), NO_LOG))
        self.refused: list[str] = []
        self.log = Lines()
        self.turn_times = TurnTimes(self.log)
        self.strangers = Strangers(self.soon.append, self.time)
        self.shares = Shares(
            self.soon.append,
            lambda seconds, call: self.later.append((self.now + seconds, call)),
            self.turn_times.histogram,
        )
        self.carriers: list[ClientCarrier] = []

    def time(self) -> float:
        return self.now

    clock = time

    def after_read(self) -> None:
        self.turns += 1

    def stranger_refused(self, peer: str, reason: str) -> None:
        self.refused.append(peer)

    def client(self, cost_s: float) -> FakeConnection:
        carrier = ClientCarrier(self, self.shares)  # type: ignore[arg-type]
        carrier.transport = FakeTransport()  # type: ignore[assignment]
        carrier.carried = carrier.client = connection = FakeConnection(self, cost_s)  # type: ignore[assignment]
        carrier.stranger = False
        self.carriers.append(carrier)
        return connection

    def turn(self, *sizes: int) -> float:
        """What was called soon, then reads: everybody who is read has so many bytes. Seconds that it took."""
        began = self.now
        due = [call for when, call in self.later if when <= self.now]
        self.later = [(when, call) for when, call in self.later if when > self.now]
        for call in due:
            call()
        for _ in range(len(self.soon)):
            self.soon.popleft()()
        for carrier, size in zip(self.carriers, sizes or [READ_SIZE] * len(self.carriers), strict=True):
            if carrier.transport.reading and size:  # type: ignore[union-attr]
                carrier.buffer_updated(min(size, len(carrier.get_buffer(-1))))
        return self.now - began


@pytest.mark.parametrize("clients", [1, 10, 1_000])
def test_a_turn_is_short_however_many_clients_cost_much(clients: int) -> None:
    loop = Loop()
    each = [loop.client(1e-6) for _ in range(clients)]
    longest = max(loop.turn() for _ in range(3 * clients))
    assert longest < TURN_S + 2 * READ_S
    assert all(connection.received for connection in each)


def test_everybody_is_read_in_turn() -> None:
    loop = Loop()
    each = [loop.client(1e-6) for _ in range(20)]
    for _ in range(400):
        loop.turn()
    octets = sorted(sum(connection.received) for connection in each)
    assert octets[0] > octets[-1] / 3


def test_who_is_cheap_reads_much_at_once_and_waits_for_nobody() -> None:
    loop = Loop()
    cheap = loop.client(1e-9)
    for _ in range(200):
        loop.turn()
    assert cheap.received[-1] == READ_SIZE
    assert max(cheap.delays, default=0.0) < TURN_S
    assert len(loop.shares) == 0


@pytest.mark.parametrize("clients", [1, 20])
@pytest.mark.parametrize("size", [READ_SIZE, 5 * BULKY_FRAME])  # a socket may hold less than the buffer takes
def test_of_clients_that_bring_bodies_one_is_read_in_a_turn(clients: int, size: int) -> None:
    loop = Loop()
    bulky = [loop.client(1e-9) for _ in range(clients)]
    for each in bulky:
        each.frame_size = 2 * BULKY_FRAME
    small = loop.client(1e-6)
    for _ in range(20):
        loop.turn()  # the buffers of the bulky ones have grown
    loop.turn(*[size] * clients, 100)
    longest = max(loop.turn(*[size] * clients, 100) for _ in range(20 * clients))
    assert longest < size * 1e-9 + 100 * 1e-6 + 1e-9
    assert small.received[-1] == 100
    assert small.delays == []
    read = sorted(sum(each.received) for each in bulky)
    assert read[0] > 0.7 * read[-1]
    assert sum(read) > 10 * clients * size


def test_who_becomes_dear_gets_smaller_reads_and_large_ones_again() -> None:
    loop = Loop()
    client = loop.client(1e-9)
    for _ in range(10):
        loop.turn()
    assert client.received[-1] == READ_SIZE
    client.cost_s = 1e-6
    for _ in range(100):
        loop.turn()
    assert client.received[-1] <= 4096
    client.cost_s = 1e-9
    for _ in range(10):
        loop.turn()
    assert client.received[-1] == READ_SIZE


def test_a_read_in_the_middle_of_a_frame_takes_no_turn_unless_it_is_refused() -> None:
    loop = Loop()
    client = loop.client(1e-9)
    client.reader.goes_on = lambda size: True
    loop.turn(100)
    assert (client.received, loop.turns) == ([100], 0)
    client.reader.buffered = 0  # what was held was dropped
    loop.turn(100)
    assert (client.received, loop.turns) == ([100, 100], 1)


def test_octets_that_have_waited_are_no_sign_of_life() -> None:
    loop = Loop()
    loop.client(1e-5)
    second = loop.client(1e-5)
    loop.turn(READ_SIZE, 100)
    assert (second.received, second.delays, len(loop.shares)) == ([], [], 1)
    loop.now += 0.7
    loop.turn(0, 0)
    assert (second.received, len(loop.shares)) == ([100], 0)
    assert second.delays == [pytest.approx(0.7)]


def test_who_does_not_read_our_answers_is_not_read_after_its_turn_either() -> None:
    loop = Loop()
    loop.client(1e-5)
    deaf = loop.client(1e-5)
    loop.turn()
    deaf.reads = False
    loop.turn(0, 0)
    transport: Any = loop.carriers[1].transport
    assert not transport.reading
    deaf.reads = True
    loop.now += 5.0
    loop.carriers[1].resume_writing()
    assert transport.reading
    assert deaf.delays[-1] >= 5.0


def test_output_that_goes_on_lets_nobody_be_read_before_its_turn() -> None:
    loop = Loop()
    loop.client(1e-5)
    waiting = loop.client(1e-5)
    loop.turn()
    loop.carriers[1].resume_writing()
    transport: Any = loop.carriers[1].transport
    assert not transport.reading
    assert waiting.received == []


def test_what_was_kept_for_a_connection_that_is_over_is_dropped() -> None:
    loop = Loop()
    loop.client(1e-5)
    gone = loop.client(1e-5)
    loop.turn()
    gone.closed = True
    loop.turn(0, 0)
    assert (gone.received, loop.shares.kept) == ([], 0)


def test_what_is_kept_is_bounded() -> None:
    loop = Loop()
    for _ in range(2_000):
        loop.client(1e-5)
    loop.turn()
    assert loop.shares.kept < (8 << 20) + READ_SIZE + 2_000 * TOKEN


def test_a_client_waits_for_one_large_frame_and_not_for_those_of_all() -> None:
    loop = Loop()
    large = [loop.client(1e-3) for _ in range(20)]
    honest = loop.client(1e-9)
    for connection in large:
        connection.frame = LARGE_FRAME + 1
    loop.turn(*[100] * 20, 0)
    turns = []
    for _ in range(60):
        turns.append(loop.turn(*[0] * 20, 10))
        loop.now += 0.1
    assert max(turns) < 0.1 + TURN_S  # one of 100 bytes
    assert all(connection.received for connection in large), "none of them waits for ever"
    assert len(honest.received) >= 59
    assert max(honest.delays, default=0.0) < 0.2


def test_large_frames_leave_half_of_the_time_to_who_is_read_meanwhile() -> None:
    loop = Loop()
    large = [loop.client(1e-3) for _ in range(20)]
    loop.client(1e-9)
    for connection in large:
        connection.frame = LARGE_FRAME + 1
    loop.turn(*[100] * 20, 0)
    steps = [0]  # of the honest client, before each large frame
    for _ in range(2_000):
        if loop.turn(*[0] * 20, 10) >= 0.1:  # one of 100 bytes
            steps.append(0)
        else:
            steps[-1] += 1
        loop.now += 0.01
    assert min(steps[1:]) >= 10, "a large frame was taken sooner than 0.1 s after the last"
    assert all(connection.received for connection in large), "none of them waits for ever"


def test_large_frames_do_not_pause_for_nobody() -> None:
    loop = Loop()
    large = [loop.client(1e-3) for _ in range(20)]
    for connection in large:
        connection.frame = LARGE_FRAME + 1
    loop.turn(*[100] * 20)
    for _ in range(20):
        loop.turn(*[0] * 20)
    assert all(connection.received for connection in large)
    assert loop.now == pytest.approx(20 * 0.1)


def test_a_client_whose_input_waits_is_not_silent() -> None:
    loop = Loop()
    client = loop.client(1e-3)
    heard: list[float] = []
    client.heard = heard.append  # type: ignore[attr-defined]
    loop.carriers[0].excuse(1.0)
    client.frame = LARGE_FRAME + 1
    loop.turn(100)
    loop.carriers[0].excuse(2.0)
    loop.turn(0)
    loop.carriers[0].excuse(3.0)
    assert heard == [2.0]


class Handshake:
    """TLS whose handshake takes as long as the loop is told, and one read."""

    kind, failure, over = "TLS", "", False

    def __init__(self, loop: Loop, cost_s: float) -> None:
        self.loop, self.cost_s, self.shaken = loop, cost_s, False

    def receive(self, data: bytes) -> bytes:
        self.loop.now += self.cost_s
        self.shaken = True
        return b""

    def send(self, data: bytes) -> None: ...

    def data_to_send(self) -> bytes:
        return b""


def strange(loop: Loop, peer: str, cost_s: float = 0.001) -> tuple[ClientCarrier, Handshake]:
    """A client that has not said who it is, and whose TLS takes this long."""
    connection = loop.client(1e-9)
    connection.user = None
    carrier = loop.carriers.pop()
    shaking = Handshake(loop, cost_s)
    carrier.stranger, carrier.peer, carrier.layers = True, peer, [shaking]
    return carrier, shaking


def test_handshakes_of_a_thousand_strangers_take_turns() -> None:
    loop = Loop()
    strangers = [strange(loop, f"10.0.0.1:{n}") for n in range(900)]
    honest = loop.client(1e-9)
    for carrier, _ in strangers:
        carrier.buffer_updated(300)
    assert loop.now == 0.0, "nothing is computed before its turn"
    longest = max(loop.turn(100) for _ in range(400))
    assert longest < STRANGERS_S + 0.002
    assert all(shaking.shaken for _, shaking in strangers)
    assert len(honest.received) == 400


def test_a_stranger_of_another_address_waits_for_one_step_and_one_behind_the_same_for_those_before_it() -> None:
    loop = Loop()
    flood = [strange(loop, f"10.0.0.1:{n}") for n in range(100)]
    neighbour, other = strange(loop, "10.0.0.1:200"), strange(loop, "10.0.0.2:1")
    for carrier, _ in [*flood, neighbour, other]:
        carrier.buffer_updated(300)
    loop.turn()
    assert other[1].shaken
    assert not neighbour[1].shaken
    while not neighbour[1].shaken:
        loop.turn()
    assert loop.now == pytest.approx(0.102)


def test_a_stranger_is_read_on_after_its_turn_and_is_none_when_it_has_said_who_it_is() -> None:
    loop = Loop()
    client = loop.client(1e-9)
    client.user = None
    carrier = loop.carriers[0]
    carrier.stranger, carrier.peer = True, "10.0.0.1:1"
    transport: Any = carrier.transport
    loop.turn(100)
    assert (transport.reading, client.received) == (False, [])
    loop.turn(0)
    assert (transport.reading, client.received, carrier.stranger) == (True, [100], True)
    client.user = "alice"
    loop.turn(100)
    loop.turn(0)
    assert (transport.reading, client.received, carrier.stranger) == (True, [100, 100], False)
    loop.turn(100)
    assert client.received == [100, 100, 100], "at once"


def test_whose_password_is_looked_at_is_not_read_until_there_is_an_answer() -> None:
    loop = Loop()
    client = loop.client(1e-9)
    client.user, client.reads = None, False
    carrier = loop.carriers[0]
    carrier.stranger, carrier.peer = True, "10.0.0.1:1"
    transport: Any = carrier.transport
    loop.turn(100)
    loop.turn(0)
    assert (transport.reading, client.received) == (False, [100])
    carrier.write()
    assert not transport.reading
    client.user, client.reads = "alice", True
    carrier.write()
    assert transport.reading
    assert not carrier.stranger


def test_a_stranger_that_sends_without_end_is_disconnected() -> None:
    loop = Loop()
    client = loop.client(1e-9)
    client.user = None
    carrier = loop.carriers[0]
    carrier.stranger, carrier.peer = True, "10.0.0.1:1"
    for _ in range(BEFORE_LOGIN // STRANGER_READ):
        loop.turn(STRANGER_READ)
        loop.turn(0)
    assert sum(client.received) == BEFORE_LOGIN
    assert loop.refused == []
    loop.turn(1)
    loop.turn(0)
    assert sum(client.received) == BEFORE_LOGIN
    assert loop.refused == ["10.0.0.1:1"]
    assert client.closed


def test_turns_are_counted_and_a_long_one_is_logged_with_whose_it_was() -> None:
    loop = Loop()
    quick, dear = loop.client(1e-6), loop.client(1e-3)
    loop.carriers[1].peer = "10.0.0.1:1"
    for _ in range(3):
        loop.turn(100, 0)
    assert loop.turn_times.histogram.counts[0] == 3
    assert loop.log.warnings == []
    loop.turn(0, 200)
    assert sum(loop.turn_times.histogram.counts) == 4
    assert loop.turn_times.histogram.sum_s == pytest.approx(0.2003)
    who = {"client": "10.0.0.1:1", "user": "alice", "container": "printer"}
    assert loop.log.warnings == [("turn_long", {"seconds": 0.2, "what": "input was handled", **who})]
    assert (quick.received, dear.received) == ([100] * 3, [200])


def test_a_handshake_that_takes_long_is_logged_with_its_address() -> None:
    loop = Loop()
    carrier, _ = strange(loop, "10.0.0.1:1", cost_s=0.3)
    carrier.buffer_updated(300)
    loop.turn()
    ((event, fields),) = loop.log.warnings
    assert (event, fields["client"], fields["seconds"]) == ("turn_long", "10.0.0.1:1", 0.3)
    assert fields["user"] is None


def test_frames_that_a_read_has_brought_wait_for_a_later_turn_when_it_has_taken_long_enough() -> None:
    loop = Loop()
    client = loop.client(0.0)
    transport: Any = loop.carriers[0].transport
    handled = 0

    def receive(data: bytes, now: float) -> None:
        nonlocal handled
        handled += 1
        loop.now += 0.002
        client.reader.more = handled < 100

    client.receive_data = receive  # type: ignore[method-assign]
    longest = loop.turn(4096)
    assert 0 < handled < 10
    assert not transport.reading, "nothing is read meanwhile"
    while not transport.reading:
        longest = max(longest, loop.turn(0))
    assert handled == 100
    assert longest < TURN_S + 2 * READ_S


class Pings(MqttConnection):
    """Two bytes each, 2 us."""

    needed = 0

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.user, self.session, self.named = "alice", None, None
        self.received: list[int] = []

    def said(self) -> dict[str, object]:
        return {"client": "127.0.0.1:9", "container": ""}

    def receive_data(self, data: bytes, now: float) -> None:
        self.received.append(len(data))
        if not self.needed:
            self.loop.now += len(data) * 1e-6
        self.needed = 0

    closed, reads, more = False, True, False

    def delayed(self, since: float, now: float) -> None: ...


def test_packets_of_a_large_read_wait_for_a_later_turn_when_it_has_taken_long_enough() -> None:
    """Of MQTT: a ping has two bytes."""
    loop = Loop()
    pings = Pings(loop)
    carrier = ClientCarrier(loop, loop.shares, "mqtt")  # type: ignore[arg-type]
    carrier.transport = transport = FakeTransport()  # type: ignore[assignment]
    carrier.carried = carrier.client = pings  # type: ignore[assignment]
    carrier.stranger = False
    carrier._view = VIEW[: 1 << 20]
    loop.carriers.append(carrier)
    longest = loop.turn(1 << 20)
    assert not transport.reading
    while not transport.reading:
        longest = max(longest, loop.turn(0))
    assert sum(pings.received) == 1 << 20
    assert max(pings.received) == PACKETS_AT_ONCE
    assert longest < TURN_S + 2 * READ_S
    pings.needed, pings.received, carrier._view = 500_000, [], VIEW[: 1 << 20]
    loop.turn(600_000)
    assert pings.received[0] == 500_000, "what a packet needs is one part"


def test_sockets_that_end_at_once_are_told_in_turns() -> None:
    """As when a load balancer dies."""
    loop = Loop()
    clients = [loop.client(1e-9) for _ in range(1_000)]
    honest = loop.client(1e-9)
    for client, carrier in zip(clients, loop.carriers, strict=False):
        client.end_s = 0.0003
        carrier.eof_received()
    assert loop.now == 0.0
    turns = []
    while not all(client.closed for client in clients):
        turns.append(loop.turn(*[0] * 1_000, 100))
    assert max(turns) < TURN_S
    assert len(honest.received) == len(turns)
    assert not honest.closed
