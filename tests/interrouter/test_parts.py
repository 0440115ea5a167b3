"""What neighbours bring is handled in parts: how much a turn takes, in which order, and what does not wait for it."""

from __future__ import annotations

import random

from interrouter.events import NetworkEvent
from interrouter.network import BACKLOG, Hello, Network, PeerDown, PeerMessage, PeerUp, Timers
from interrouter.outgoing import TRANSFER
from interrouter.trunk import CREDIT, RESERVE, Trunk
from interrouter.waiting import PART_EVENTS, PART_OCTETS, Waiting
from tests.interrouter.harness import Net

SMALL = b"x" * 100


def network(name: str, *neighbours: str, window: int = 1 << 23) -> Network:
    costs = dict.fromkeys(neighbours, 1)
    return Network(Hello("n", name, ord(name)), costs, rng=random.Random(1), now=0.0, timers=Timers(window=window))


def take_all(one: Network) -> list[NetworkEvent]:
    found: list[NetworkEvent] = []
    one.flush(0.0)
    while one.more:
        found += one.take_events()
        one.flush(0.0)
    return found


def carry(source: Trunk, sink: Trunk) -> int:
    """Hands over what the one has to say, in one read; returns how many octets that was."""
    source.network.flush(0.0)
    data = source.data_to_send()
    if data:
        sink.receive_data(data, 0.0)
    return len(data)


def joined(one: Network, other: Network) -> tuple[Trunk, Trunk]:
    """Their trunk, and nothing is under way on it."""
    ends = one.connect(0.0, neighbour=other.hello.name), other.connect(0.0, neighbour=None)
    while sum([carry(*ends), carry(*reversed(ends)), len(take_all(one)), len(take_all(other))]):
        pass
    return ends


def data_of(events: list[NetworkEvent], peer: str) -> list[object]:
    return [event.data for event in events if isinstance(event, PeerMessage) and event.peer == peer]


# What a trunk has received ----------------------------------------------------------------------------------------------


def test_what_one_read_of_a_trunk_brings_is_handled_in_parts() -> None:
    a, b = network("a", "b"), network("b", "a")
    there, here = joined(a, b)
    sent = [b"%d" % n + bytes(1000) for n in range(1000)]
    for message in sent:
        a.send(("b",), message)
    before = here.transfers_received
    came = carry(there, here)
    parts = [here.transfers_received - before]
    while here.more:
        before = here.transfers_received
        b.flush(0.0)
        parts.append(here.transfers_received - before)
    assert came > 10 * TRANSFER
    assert max(parts) <= 2, "a transfer has 64 KiB, or hardly less"
    assert data_of(take_all(b), "a") == sent


def test_neighbours_take_turns_with_what_they_have_sent() -> None:
    a, b, c = network("a", "b", "c"), network("b", "a", "c"), network("c", "a", "b")
    (of_b, from_b), (of_c, from_c) = joined(b, a), joined(c, a)
    for one in (b, c):
        for _ in range(1000):
            one.send(("a",), bytes(1000))
    carry(of_b, from_b)
    carry(of_c, from_c)
    turns = []
    while a.more or not turns:
        before = from_b.transfers_received, from_c.transfers_received
        a.flush(0.0)
        turns.append((from_b.transfers_received - before[0], from_c.transfers_received - before[1]))
        a.take_events()
    both = [turn for turn in turns if any(turn)][:8]
    assert both == [(1, 0), (0, 1)] * 4


def test_a_trunk_that_closes_is_lost_behind_what_it_has_received() -> None:
    a, b = network("a", "b"), network("b", "a")
    there, here = joined(a, b)
    for n in range(1000):
        a.send(("b",), b"%d" % n + bytes(1000))
    carry(there, here)
    here.receive_eof(0.0)
    assert here.more
    assert here.up
    events = take_all(b)
    assert len(data_of(events, "a")) == 1000
    assert isinstance(events[-1], PeerDown)
    assert not here.up


# What the owner has not taken -------------------------------------------------------------------------------------------


def test_messages_are_taken_in_parts_by_router_in_turns() -> None:
    net = Net("abc", ["ab", "ac"], amqp=False)
    net.run_until(net.converged)
    a = net["a"].network
    take_all(a)
    sent = [b"%d" % n for n in range(1000)]
    for message in sent:
        net["b"].network.send(("a",), message)
    net["c"].network.send(("a",), b"only")
    for name in "bc":
        net[name].network.flush(net.now)
        net.trunk("a", name).receive_data(net.trunk(name, "a").data_to_send(), net.now)
    parts = []
    a.flush(net.now)
    while a.more:
        parts.append(a.take_events())
        a.check_invariants()
        a.flush(net.now)
    assert max(map(len, parts)) == PART_EVENTS
    assert data_of(parts[0], "c") == [b"only"], "it does not wait for all of the other's"
    assert [each for part in parts for each in data_of(part, "b")] == sent


def test_a_part_ends_when_its_octets_do() -> None:
    waiting = Waiting()
    waiting.put([PeerMessage("b", [bytes(PART_OCTETS // 2), b"end"]) for _ in range(5)])
    assert [len(waiting.take()) for _ in range(3)] == [2, 2, 1]
    assert not waiting.by_peer
    assert waiting.octets == 0


def test_a_part_has_one_session_of_a_router() -> None:
    waiting = Waiting()
    up, down = PeerUp("b", 2), PeerDown("b", True)
    waiting.put([PeerMessage("b", b"old"), down, up, PeerMessage("b", b"new"), PeerUp("c", 3)])
    assert waiting.take() == [PeerMessage("b", b"old"), PeerUp("c", 3), down]
    assert waiting.take() == [up, PeerMessage("b", b"new")]


def test_a_reset_drops_messages_that_wait_and_the_next_session_follows_its_down() -> None:
    a, b = network("a", "b"), network("b", "a")
    there, here = joined(a, b)
    for _ in range(PART_EVENTS * 2):
        a.send(("b",), SMALL)
    carry(there, here)
    b.flush(0.0)
    assert len(b.take_events()) == PART_EVENTS
    b.peer_reset("a", 0.0)
    for _ in range(4):
        carry(here, there)
        carry(there, here)
    first, second = b.take_events(), b.take_events()
    assert first == [PeerDown("a", True)]
    assert second == [PeerUp("a", ord("a"))]
    assert b.sessions.backlog == 0
    b.check_invariants()


# Flow control -----------------------------------------------------------------------------------------------------------


def test_a_neighbour_with_much_that_waits_has_credit_for_heartbeats_only() -> None:
    a, b = network("a", "b", window=1 << 26), network("b", "a")
    there, here = joined(a, b)
    for _ in range(100):
        for _ in range(1000):
            a.send(("b",), SMALL)
        while carry(there, here):
            while here.more:
                b.flush(0.0)
            carry(here, there)
    most = BACKLOG + (CREDIT + 1) * (TRANSFER + 1000)
    assert BACKLOG < b.sessions.backlog < most
    assert there._capacity() == RESERVE
    received = here.transfers_received
    for _ in range(3 * RESERVE):
        there.outgoing.queue_heartbeat()
        a.work.schedule(there)
        carry(there, here)
        carry(here, there)
    assert here.transfers_received == received + 3 * RESERVE
    assert there._capacity() > 0

    taken = 0
    while taken < 100_000:
        taken += len(data_of(take_all(b), "a"))
        assert carry(here, there) + carry(there, here)
    assert there._capacity() > RESERVE
    assert b.sessions.backlog == 0
