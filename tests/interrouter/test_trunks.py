"""Trunks over AMQP: who may connect, what ends one, and that a slow or hostile neighbour costs little."""

from __future__ import annotations

import random

import pytest

from amqp10.connection import Connection
from amqp10.events import ConnectionClosed, Event, LinkAttaching
from amqp10.performatives import Source, Target
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol, ULong
from interrouter.neighbours import dials
from interrouter.network import Hello, Network
from interrouter.outgoing import TRANSFER
from interrouter.packets import HEARTBEAT_PACKET
from interrouter.trunk import CREDIT, Trunk
from router.versions import Versions
from tests.interrouter.harness import Net


def network(name: str, *neighbours: str, label: str = "n", incarnation: int = 7) -> Network:
    costs = dict.fromkeys(neighbours, 1)
    return Network(Hello(label, name, incarnation), costs, rng=random.Random(1), now=0.0)


def exchange(one: Trunk, other: Trunk, now: float = 0.0) -> None:
    moved = True
    while moved:
        moved = False
        for source, sink in ((one, other), (other, one)):
            source.network.flush(now)
            data = source.data_to_send()
            if data:
                moved = True
                sink.receive_data(data, now)


def joined(client: Network, server: Network, meant: str | None = None) -> tuple[Trunk, Trunk]:
    ends = (
        client.connect(0.0, neighbour=meant or server.hello.name),
        server.connect(0.0, neighbour=None),
    )
    exchange(*ends)
    return ends


# Who may connect ------------------------------------------------------------------------------------------------------


def test_flush_says_whether_there_may_be_something_to_take() -> None:
    a, b = network("a", "b"), network("b", "a", incarnation=8)
    joined(a, b)
    assert a.flush(0.0), "the neighbour came up, and trunks may have output"
    assert [event.peer for event in a.take_events()] == ["b"]
    a.work.take_dirty()
    assert not a.flush(0.0)
    a.send(("b",), b"hello")
    assert a.flush(0.0)
    assert len(a.work.take_dirty()) == 1


@pytest.mark.parametrize(
    ("client", "server", "meant", "why"),
    [
        (network("a", "b", label="x"), network("b", "a", label="y"), None, "network 'y'"),
        (network("a", "b"), network("b", "c"), None, "no neighbour 'a'"),
        (network("a", "b"), network("a", "b"), "b", "itself"),
        (network("a", "b", "c"), network("c", "a"), "b", "'b' was dialled"),
    ],
    ids=["other network", "unknown neighbour", "own name", "not the one that was dialled"],
)
def test_refusals_say_why_on_both_sides(client: Network, server: Network, meant: str | None, why: str) -> None:
    ends = joined(client, server, meant)
    assert all(end.closed and not end.up for end in ends)
    assert any(why in (end.failure or "") for end in ends)
    assert all(not n.status()["paths"] for n in (client, server))
    assert why in str({**client.neighbours.failures, **server.neighbours.failures})


class Told:
    """A log's events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def debug(self, event: str, text: str, /, **fields: object) -> None:
        self.events.append(event)

    info = warning = error = debug


def test_a_refusal_is_told_once_on_each_side_however_often_it_is_dialled() -> None:
    ours, theirs = Told(), Told()
    a = Network(Hello("n", "a", 7, Versions(9, 9)), {"b": 1}, rng=random.Random(1), now=0.0, log=ours)
    b = Network(Hello("n", "b", 8), {"a": 1}, rng=random.Random(1), now=0.0, log=theirs)
    for _ in range(10):
        joined(a, b)
    assert ours.events == theirs.events == ["neighbour_refused"]
    assert "speaks version 9" in b.neighbours.failures["a"]


def test_who_is_refused_has_had_no_neighbour() -> None:
    told = Told()
    a = Network(Hello("n", "a", 7), {"b": 1}, rng=random.Random(1), now=0.0, log=told)
    for _ in range(10):
        joined(a, network("b", "c", incarnation=8))
    assert told.events == ["neighbour_refused"]


def test_a_second_connection_replaces_the_first_without_ending_sessions() -> None:
    a, b = network("a", "b"), network("b", "a", incarnation=8)
    first = joined(a, b)
    token = a.sessions.by_peer["b"].token
    second = joined(a, b)
    exchange(*first)
    assert all(end.closed for end in first)
    assert all(end.up for end in second)
    a.take_events()
    b.take_events()
    a.send(("b",), b"x")
    exchange(*second)
    assert [event.data for event in b.take_events()] == [b"x"]  # type: ignore[union-attr]
    assert a.sessions.by_peer["b"].token == token


def test_when_both_dial_the_connection_of_the_first_name_stays() -> None:
    assert dials("a", "b")
    a, b = network("a", "b"), network("b", "a", incarnation=8)
    proper = joined(a, b)
    wrong = joined(b, a)
    assert all(end.up for end in proper)
    assert all(end.closed for end in wrong)
    a, b = network("a", "b"), network("b", "a", incarnation=8)
    wrong = joined(b, a)
    proper = joined(a, b)
    exchange(*wrong)
    assert all(end.up for end in proper)
    assert all(end.closed for end in wrong)


def test_a_connection_of_a_process_that_was_started_again_since_is_refused() -> None:
    net = Net("abc", ["ab", "bc", "ca"])
    net.run_until(net.converged)
    old = net["a"].network
    net.kill("a")
    net.start("a")
    net.run_until(net.converged)
    net["b"].network.database._mark_former(old.hello.incarnation, net.now)  # as after the flood of a's new link state
    ends = (
        old.connect(net.now, neighbour="b"),
        net["b"].network.connect(net.now, neighbour=None),
    )
    exchange(*ends, now=net.now)
    assert "newer process" in (ends[0].failure or "")


def test_a_trunk_that_is_not_opened_in_time_is_closed() -> None:
    a = network("a", "b")
    trunk = a.connect(0.0, neighbour="b")
    assert trunk.data_to_send()
    deadline = trunk.next_deadline()
    assert deadline is not None
    assert deadline <= 3.0
    trunk.handle_timer(deadline)
    assert trunk.closed
    assert "in time" in a.neighbours.failures["b"]


# What a neighbour may do wrong ----------------------------------------------------------------------------------------


class Stranger:
    """An AMQP client that says it is router b, and sends what it likes."""

    def __init__(self, server: Network, **properties: object) -> None:
        self.trunk = server.connect(0.0, neighbour=None)
        known = {"onceway:network": "n", "onceway:router": "b", "onceway:incarnation": ULong(99), "onceway:trunk": 4}
        wanted = {Symbol(k): v for k, v in {**known, **properties}.items() if v is not None}
        self.connection = Connection(ConnectionSettings(container_id="b", properties=wanted), server=False, now=0.0)
        self.connection.open()
        session = self.connection.begin()
        self.sender = session.sender("mine")
        self.sender.attach(source=Source(address="b"), target=Target(address="t"), snd_settle_mode=1)
        self.events: list[Event] = []
        self.exchange()

    def exchange(self) -> None:
        moved = True
        while moved:
            moved = False
            data = self.connection.data_to_send()
            if data:
                moved = True
                self.trunk.receive_data(data, 0.0)
            self.trunk.network.flush(0.0)
            data = self.trunk.data_to_send()
            if data:
                moved = True
                for event in self.connection.receive_data(data, 0.0):
                    self.events.append(event)
                    if isinstance(event, LinkAttaching):
                        event.link.attach(source=Source(), target=Target())

    def send(self, payload: bytes) -> str | None:
        """The condition of the close, if that is the answer."""
        self.sender.send([b"t"], [payload], settled=True)
        self.exchange()
        for event in self.events:
            if isinstance(event, ConnectionClosed):
                return str(event.error.condition) if event.error else "no error"
        return None


def test_a_heartbeat_takes_ours_along_that_is_due_soon() -> None:
    a, b = network("a", "b"), network("b", "a", incarnation=8)
    trunk, _ = joined(a, b)
    assert trunk.up
    a.tick(0.3)
    a.flush(0.3)
    assert a.next_deadline() == pytest.approx(0.79)
    for now, sent_at, next_at in ((0.5, 0.3, 0.79), (0.55, 0.55, 1.05)):
        a.heartbeats.timer_set()
        a.transfers(trunk, [HEARTBEAT_PACKET * 3], now)
        a.flush(now)
        assert (trunk.last_sent, a.next_deadline()) == (sent_at, pytest.approx(next_at))
        assert a.heartbeats.followed is (now == sent_at)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x00",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x05\x01",
        b"\x00\x00\x00\x01\x63",
        HEARTBEAT_PACKET + b"\xff\xff\xff\xff\x04",
        b"\x00\x00\x00\x08\x04\x80\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x04\x04\x80\x00\x00",
        b"\x00\x00\x00\x03\x02\xff\xff",
        b"\x00\x00\x00\x10" + b"\x03" * 16,
    ],
)
def test_malformed_packets_close_the_trunk_with_an_error(payload: bytes) -> None:
    a = network("a", "b")
    stranger = Stranger(a)
    assert stranger.send(payload) == "amqp:decode-error"
    assert not a.status()["neighbours"]["b"]["up"]
    assert a.neighbours.failures["b"]


def test_any_damage_to_what_neighbours_say_is_answered_or_ignored_but_never_raised() -> None:
    rng = random.Random(5)
    sent: list[bytes] = []
    net = Net("abc", ["ab", "bc"], amqp=False)
    net.run_until(net.converged)
    net.send("a", "bc", b"hello")
    net.run(1.0)
    for name in "ab":
        sent += net.trunk("ab".replace(name, ""), name).sent_payloads  # type: ignore[attr-defined]
    for _ in range(600):
        payload = bytearray(rng.choice(sent))
        for _ in range(rng.randint(1, 4)):
            payload[rng.randrange(len(payload))] = rng.choice([0, 1, 127, 255, rng.randrange(256)])
        if rng.random() < 0.3:
            del payload[rng.randrange(len(payload)) :]
        if payload:
            Stranger(network("a", "b")).send(bytes(payload))


def test_damaged_amqp_octets_close_the_trunk() -> None:
    rng = random.Random(6)
    for _ in range(1000):
        a, b = network("a", "b"), network("b", "a", incarnation=8)
        trunk, other = a.connect(0.0, neighbour="b"), b.connect(0.0, neighbour=None)
        data = bytearray(trunk.data_to_send())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        other.receive_data(bytes(data), 0.0)
        b.flush(0.0)
        trunk.receive_data(other.data_to_send(), 0.0)
        for end in (trunk, other):
            end.network.flush(0.0)
            end.data_to_send()


@pytest.mark.parametrize(
    "properties",
    [
        {"onceway:router": None},
        {"onceway:router": 5},
        {"onceway:network": None},
        {"onceway:incarnation": None},
        {"onceway:incarnation": "x"},
        {"onceway:incarnation": ULong(0)},
        {"onceway:router": "b" * 300},
        {"onceway:trunk": 1},
        {"onceway:trunk": None},
    ],
)
def test_opens_that_are_not_a_router_s_are_refused(properties: dict[str, object]) -> None:
    stranger = Stranger(network("a", "b"), **properties)
    assert not stranger.trunk.up
    assert any(isinstance(e, ConnectionClosed) and e.error is not None for e in stranger.events)


def test_a_link_that_goes_takes_the_trunk_with_it() -> None:
    a = network("a", "b")
    stranger = Stranger(a)
    stranger.sender.detach()
    stranger.exchange()
    assert not a.status()["neighbours"]["b"]["up"]
    assert stranger.trunk.failure


def test_more_transfers_than_credit_close_the_trunk() -> None:
    a = network("a", "b")
    stranger = Stranger(a)
    stranger.sender.credit += 10 * CREDIT
    count = min(stranger.sender.capacity(), 5 * CREDIT)
    stranger.sender.send([b"t"] * count, [HEARTBEAT_PACKET] * count, settled=True)
    stranger.exchange()
    assert not a.status()["neighbours"]["b"]["up"]


# Load -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 64 * 1024, 64 * 1024 + 1, 12_000_000])
def test_messages_of_any_size_pass_over_hops(size: int) -> None:
    net = Net("abc", ["ab", "bc"], check=False)
    net.run_until(net.converged)
    message = random.Random(size).randbytes(size)
    net.send("a", "bc", message)
    net.send("a", "c", b"after it")
    net.run(5.0)
    assert net["b"].received["a"] == [message]
    assert net["c"].received["a"] == [message, b"after it"]


def test_a_large_message_on_a_slow_trunk_starves_neither_heartbeats_nor_others() -> None:
    net = Net("abc", ["ab", "bc"], amqp=False)
    net.run_until(net.converged)
    link = net.link("a", "b")
    link.rate = 10  # chunks a second, each of which is what one flush could send
    net.send("a", "b", bytes(12_000_000))
    net.run(0.5)
    net.send("a", "c", b"small")
    net.run(1.5)
    assert net["c"].received["a"] == [b"small"]
    net.run(20.0)
    assert [len(message) for message in net["b"].received["a"]] == [12_000_000]
    assert all([what for _, what, _ in site.log].count("down") == 0 for site in net.sites.values())


def test_a_neighbour_that_reads_nothing_costs_no_more_than_its_credit() -> None:
    net = Net("abc", ["ab", "bc"], amqp=True)
    net.run_until(net.converged)
    connection = net.link("b", "c").connection
    assert connection is not None
    net.link("b", "c").stalled = True
    for _ in range(400):
        net.send("a", "c", bytes(60_000))
        net.send("b", "c", bytes(60_000))
        net.run(0.002)
    assert connection.most_in_flight < 2 * CREDIT * TRANSFER * 1.1
    waiting = net["b"].network.status()["neighbours"]["c"]["trunk"]["passing_through_bytes"]
    assert waiting < 5_000_000  # the window of a's stream
    net.link("b", "c").stalled = False
    net.run(1.0)
    assert len(net["c"].received["a"]) == len(net["c"].received["b"]) == 400


def test_nothing_lingers_after_everything_was_acknowledged() -> None:
    net = Net("abc", ["ab", "bc"])
    net.run_until(net.converged)
    for _ in range(100):
        net.send("a", "bc", bytes(10_000))
    net.run(1.0)
    for site in net.sites.values():
        for status in site.network.status()["sessions"].values():
            assert status["unacknowledged_messages"] == status["waiting_messages"] == 0
            assert status["sent_again"] == 0


def test_a_silent_network_says_little() -> None:
    net = Net("abc", ["ab", "bc"], amqp=False)
    net.run_until(net.converged)
    trunk = net.trunk("a", "b")
    before = trunk.transfers_sent
    net.run(60.0)
    assert trunk.transfers_sent - before <= 60 * 2 + 4  # heartbeats; nothing of sessions, and a link state of each
