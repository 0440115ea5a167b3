"""Routers of two versions in one network: what two of them speak, who is refused, and that each session knows its
version before the first message."""

from __future__ import annotations

import random

import pytest

from amqp10.connection import Connection
from amqp10.events import ConnectionClosed, Event
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol, ULong
from interrouter.network import Hello, Network
from router.versions import SPOKEN, Versions
from tests.interrouter.harness import Net

BEFORE = Versions(4, 4)
LATER = Versions(5, 6)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (Versions(4, 5), Versions(4, 5), 5),
        (Versions(4, 5), Versions(4, 4), 4),
        (Versions(4, 5), Versions(5, 6), 5),
        (Versions(4, 4), Versions(5, 6), None),
        (Versions(4, 9), Versions(6, 7), 7),
    ],
)
def test_two_routers_speak_the_newest_version_that_both_speak(one: Versions, other: Versions, common: int) -> None:
    assert one.common(other) == other.common(one) == common


def versions_of(net: Net) -> dict[str, int]:
    """What each says of its session with each other router."""
    said = {name: site.network.status()["sessions"] for name, site in net.sites.items()}
    return {a + b: session["version"] for a, sessions in said.items() for b, session in sessions.items()}


@pytest.mark.parametrize("amqp", [True, False])
def test_a_router_speaks_the_version_before_with_those_that_are_not_upgraded_yet(amqp: bool) -> None:
    net = Net("abc", ["ab", "bc"], amqp=amqp, versions={"b": BEFORE})
    net.run_until(net.converged)
    assert versions_of(net) == {"ab": 4, "ba": 4, "bc": 4, "cb": 4, "ac": 5, "ca": 5}, "a and c over the hop b, too"
    assert [net.trunk(*ends).status()["version"] for ends in ("ab", "ba", "bc")] == [4, 4, 4]


def test_one_router_after_the_other_is_upgraded() -> None:
    net = Net("abc", ["ab", "bc", "ca"], versions=dict.fromkeys("abc", BEFORE))
    net.run_until(net.converged)
    assert set(versions_of(net).values()) == {4}
    for name in "bca":
        net.kill(name)
        net.versions = {other: v for other, v in net.versions.items() if other != name}
        net.start(name)
        net.run_until(net.converged)
    assert set(versions_of(net).values()) == {SPOKEN.newest}
    assert {net.trunk(*ends).status()["version"] for ends in ("ab", "bc", "ac")} == {SPOKEN.newest}


def test_a_session_that_begins_anew_keeps_the_version_and_takes_a_larger_number() -> None:
    """Protocol 3.2.1."""
    net = Net("ab", ["ab"], versions={"b": BEFORE})
    net.run_until(net.converged)
    for _ in range(3):
        before = net["a"].network.sessions.by_peer["b"].number
        net["a"].network.peer_reset("b", net.now)
        net.attend("a")
        net.run_until(net.converged)
        assert net["a"].network.sessions.by_peer["b"].number > before
    assert versions_of(net) == {"ab": 4, "ba": 4}
    assert [net[name].network.status()["sessions"] for name in "ab"] == [
        {"b": net["a"].network.sessions.status()["b"]},
        {"a": net["b"].network.sessions.status()["a"]},
    ]
    assert net["a"].network.status()["sessions"]["b"]["number"] < 10, "people see the count, without the version"


@pytest.mark.parametrize("amqp", [True, False])
def test_neighbours_without_a_common_version_are_refused_and_told_both_ranges(amqp: bool) -> None:
    net = Net("ab", ["ab"], amqp=amqp, versions={"a": BEFORE, "b": LATER})
    net.run(1.0)
    assert not net["a"].network.status()["paths"]
    said = {net[name].network.neighbours.failures.get(other, "") for name, other in ("ab", "ba")}
    assert any("version 4 " in text and "5 to 6" in text for text in said), said


def test_routers_without_a_common_version_have_no_session_over_a_hop_that_speaks_with_both() -> None:
    net = Net("abc", ["ab", "bc"], versions={"a": BEFORE, "c": LATER})
    net.run(5.0)
    up = {name: sorted(peer for peer, s in net[name].network.sessions.by_peer.items() if s.up) for name in "abc"}
    assert up == {"a": ["b"], "b": ["a", "c"], "c": ["b"]}
    assert versions_of(net)["bc"] == 5


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ({"onceway:trunk": 4}, 4),  # the open of v0.9.0
        ({"onceway:trunk": 4, "onceway:trunk-newest": 4}, 4),
        ({"onceway:trunk": 4, "onceway:trunk-newest": 5}, 5),
        ({"onceway:trunk": 5, "onceway:trunk-newest": 99}, 5),
        ({"onceway:trunk": 3}, 0),
        ({"onceway:trunk": 6, "onceway:trunk-newest": 7}, 0),
        ({"onceway:trunk": 5, "onceway:trunk-newest": 4}, 0),
        ({"onceway:trunk": 4, "onceway:trunk-newest": "5"}, 0),
        ({"onceway:trunk-newest": 5}, 0),
    ],
)
def test_an_open_says_the_oldest_and_the_newest_version(said: dict[str, int], version: int) -> None:
    a = Network(Hello("n", "a", 7), {"b": 1}, rng=random.Random(1), now=0.0)
    trunk = a.connect(0.0, neighbour=None)
    known = {"onceway:network": "n", "onceway:router": "b", "onceway:incarnation": ULong(99), **said}
    properties = {Symbol(key): value for key, value in known.items()}
    other = Connection(ConnectionSettings(container_id="b", properties=properties), server=False, now=0.0)
    other.open()
    trunk.receive_data(other.data_to_send(), 0.0)
    a.flush(0.0)
    answer: list[Event] = other.receive_data(trunk.data_to_send(), 0.0)
    assert (trunk.up, trunk.version) == (bool(version), version)
    assert any(isinstance(event, ConnectionClosed) for event in answer) is not trunk.up
    assert other.remote_open is not None
    properties = dict(other.remote_open.properties or {})
    assert (properties["onceway:trunk"], properties["onceway:trunk-newest"]) == SPOKEN
