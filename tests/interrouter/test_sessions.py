"""When a session begins and ends, for both sides, and what never gets from one into the next (protocol 3.2)."""

from __future__ import annotations

import random

from interrouter.network import Hello, Network, PeerDown, PeerMessage, PeerUp
from interrouter.packets import STREAM
from tests.interrouter.harness import Net
from tests.interrouter.transports import PlainTrunk

LINE = ["ab", "bc"]


def log_of(net: Net, at: str, peer: str) -> list[str]:
    return [what for _, what, whom in net[at].log if whom == peer]


def test_partition_takes_both_sides_down_and_healing_begins_a_new_session() -> None:
    net = Net("abc", LINE, amqp=False)
    net.run_until(net.converged)
    before = net["a"].network.sessions.by_peer["c"].token
    net.cut("b", "c")
    net.run(0.1)
    assert log_of(net, "a", "c") == ["up", "down"]
    assert log_of(net, "c", "a") == ["up", "down"]
    assert log_of(net, "a", "b") == ["up"]
    net.mend("b", "c")
    net.run_until(net.converged)
    assert log_of(net, "a", "c") == log_of(net, "c", "a") == ["up", "down", "up"]
    assert net["a"].network.sessions.by_peer["c"].token != before


def test_restarted_router_is_a_new_one_at_once() -> None:
    net = Net("abcd", ["ab", "bc", "cd"], amqp=False)
    net.run_until(net.converged)
    old = net["a"].network.hello.incarnation
    for _ in range(20):  # a sequence number that the next incarnation's first one is far below
        net.cut("a", "b", for_good=False)
        net.run(0.2)
    assert net["d"].network.database.others[old].sequence > 20
    net.kill("a", notice=2.0)  # nobody sees the socket close before the new process connects
    net.start("a")
    assert net.run_until(net.converged) < 0.5
    assert net["d"].network.sessions.by_peer["a"].incarnation == net["a"].network.hello.incarnation != old
    assert log_of(net, "d", "a")[-2:] == ["down", "up"]
    net.run(0.3)
    for name in "bcd":
        assert old not in net[name].network.database.others


def test_a_half_open_trunk_to_the_former_process_is_closed_when_the_new_one_is_heard_of() -> None:
    net = Net("abc", ["ab", "bc", "ca"], amqp=False)
    net.run_until(net.converged)
    net.link("a", "b").enabled = False  # the new process reaches a through c only, and a has seen no socket close
    net.kill("b", notice=60.0)
    net.start("b")
    net.run(0.5)
    assert net["a"].network.sessions.by_peer["b"].incarnation == net["b"].network.hello.incarnation
    assert not net["a"].network.status()["neighbours"]["b"]["up"]
    assert net["a"].network.status()["paths"]["b"]["next"] == "c"


def test_a_link_silent_in_one_direction_is_given_up_by_both_after_dead_after() -> None:
    net = Net("ab", ["ab"], amqp=False)
    net.run_until(net.converged)
    net.silenced.add(("a", "b"))
    net.run(2.4)
    assert log_of(net, "b", "a") == ["up"]
    net.run(0.7)
    assert log_of(net, "a", "b") == log_of(net, "b", "a") == ["up", "down"]
    net.silenced.clear()
    net.run_until(net.converged)
    assert "nothing received" in net["a"].network.neighbours.failures.get("b", "nothing received")


def test_reset_ends_the_session_for_both_and_a_new_one_follows() -> None:
    """Protocol 3.2.2."""
    net = Net("abc", LINE, amqp=False)
    net.run_until(net.converged)
    net.send("c", "a", b"before")
    net.run(0.1)
    net["a"].network.peer_reset("c", net.now)
    net.attend("a")
    net.run_until(net.converged)
    assert log_of(net, "a", "c") == log_of(net, "c", "a") == ["up", "down reachable", "up"]
    assert net["a"].network.sessions.resets == 1


def test_a_packet_of_an_old_session_is_not_read_in_the_new_one() -> None:
    """Protocol 3.2.3."""
    net = Net("ab", ["ab"], amqp=False)
    net.run_until(net.converged)
    trunk = net.trunk("a", "b")
    assert isinstance(trunk, PlainTrunk)
    del trunk.sent_payloads[:]
    net.send("a", "b", b"first of the old session")
    net.run(0.1)
    old = [p for p in trunk.sent_payloads if p[4] == STREAM]
    assert len(old) == 1
    net["b"].network.peer_reset("a", net.now)
    net.attend("b")
    net.run_until(net.converged)
    assert net["b"].network.sessions.by_peer["a"].incoming.expected == 0
    net["b"].network.transfers(net.trunk("b", "a"), old, net.now)
    net.attend("b")
    assert net["b"].received["a"] == [b"first of the old session"]


def pair() -> tuple[Network, Network]:
    """Two networks without anybody who takes their events."""
    networks = [
        Network(Hello("n", name, number), {other: 1}, rng=random.Random(number), now=0.0)
        for name, other, number in (("a", "b", 11), ("b", "a", 22))
    ]
    return networks[0], networks[1]


def exchange(*trunks: object) -> None:
    moved = True
    while moved:
        moved = False
        for trunk, other in (trunks, trunks[::-1]):
            assert hasattr(trunk, "network")
            trunk.network.flush(0.0)
            data = trunk.data_to_send()  # type: ignore[attr-defined]
            if data:
                moved = True
                other.receive_data(data, 0.0)  # type: ignore[attr-defined]


def test_events_are_handed_out_only_up_to_the_next_session() -> None:
    """Protocol 3.2.4."""
    a, b = pair()
    ends = (a.connect(0.0, neighbour="b"), b.connect(0.0, neighbour=None))
    exchange(*ends)
    assert a.take_events() == [PeerUp("b", 22)]
    assert b.take_events() == [PeerUp("a", 11)]
    b.send(("a",), b"one")
    exchange(*ends)
    b.peer_reset("a", 0.0)
    exchange(*ends)
    assert a.take_events() == [PeerMessage("b", b"one"), PeerDown("b", True)]
    a.send(("b",), b"an answer to one")  # the old session's: it must not get into the new one
    assert a.take_events() == [PeerUp("b", 22)]
    a.send(("b",), b"hello")
    exchange(*ends)
    assert b.take_events() == [PeerDown("a", True)]
    assert b.take_events() == [PeerUp("a", 11), PeerMessage("a", b"hello")]


def test_reset_drops_what_was_not_taken_yet() -> None:
    a, b = pair()
    ends = (a.connect(0.0, neighbour="b"), b.connect(0.0, neighbour=None))
    exchange(*ends)
    assert a.take_events()
    assert b.take_events()
    for message in (b"1", b"2", b"3"):
        b.send(("a",), message)
    exchange(*ends)
    a.peer_reset("b", 0.0)
    assert a.take_events() == [PeerDown("b", True)]


def test_a_message_to_nobody_who_is_up_is_dropped() -> None:
    """Protocol 3.2.5."""
    a, _ = pair()
    a.send(("b", "nobody"), b"x")
    a.flush(0.0)
    assert a.take_events() == []


def test_sessions_come_up_without_time_passing() -> None:
    """The simulator of the routers' protocol moves no time between the networks' own steps."""
    a, b = pair()
    exchange(a.connect(0.0, neighbour="b"), b.connect(0.0, neighbour=None))
    assert a.status()["sessions"]["b"]["up"]
    assert b.status()["sessions"]["a"]["up"]
