"""Free memory goes back to the system after a peak."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from amqp10.connection import Connection
from amqp10.events import LinkAttached
from amqp10.frames import AMQP_HEADER
from amqp10.performatives import RCV_FIRST, Open
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from chaos.fuzz.targets import frame
from onceway.base.heap import AGAIN_S, LONG_S, LOOK_EVERY_S, SLACK, WORTH, Freezing, Trimming, trimmer
from tests.live import PATIENT, LiveNetwork, wait_until

MIB = 1 << 20
BACK_WITHIN_S = 60.0


class Process:
    """A process whose allocator keeps `free` bytes beside what is in use."""

    def __init__(self) -> None:
        self.used = 100 * MIB
        self.free = 0
        self.trims = 0
        self.now = 0.0
        self.trimming = Trimming(self.trim, lambda: self.used + self.free)

    def trim(self) -> None:
        self.trims += 1
        self.free = 0

    def look(self, held: int) -> int:
        self.now += LOOK_EVERY_S
        self.trimming.look(held, self.now)
        return self.trims


def test_memory_is_given_back_once_after_a_peak() -> None:
    process = Process()
    assert process.look(0) == 0
    process.used += 500 * MIB
    assert process.look(500 * MIB) == 0, "it is in use"
    process.used, process.free = 100 * MIB, 500 * MIB
    assert process.look(0) == 1
    assert process.look(0) == 1


def test_what_is_in_use_beside_payload_is_tried_for_now_and_then() -> None:
    process = Process()
    process.look(0)
    process.used += 300 * MIB  # names, maps
    tries = int(AGAIN_S / LOOK_EVERY_S)
    assert [process.look(0) for _ in range(tries)] == [1] * tries
    process.used, process.free = 100 * MIB, 300 * MIB
    assert process.look(0) == 2
    assert process.free == 0
    assert [process.look(0) for _ in range(2 * tries)] == [2] * 2 * tries


def test_little_free_memory_stays() -> None:
    process = Process()
    process.look(0)
    process.free = SLACK
    assert process.look(0) == 0


class Garbage:
    """A process whose collections are as long as a test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.there = 100
        self.gone = 7
        self.objects = 1_000
        self.calls: list[str] = []
        self.freezing = Freezing(
            lambda: (self.there, self.gone),
            freeze=lambda: self.calls.append("freeze"),
            thaw=lambda: self.calls.append("thaw"),
            frozen=lambda: self.objects,
            collect=lambda: self.calls.append("collect"),
            trim=lambda: self.calls.append("trim"),
            clock=lambda: self.now,
        )

    def collect(self, seconds: float, generation: int = 2) -> list[str]:
        self.freezing.collected("start", {"generation": generation})
        self.now += seconds
        self.freezing.collected("stop", {"generation": generation})
        return self.done()

    def done(self) -> list[str]:
        done, self.calls = self.calls, []
        return done


def test_what_long_collections_have_visited_is_frozen_until_as_much_has_gone_as_is_left() -> None:
    process = Garbage()
    assert process.collect(LONG_S / 2) == []
    assert process.collect(2 * LONG_S, generation=1) == []
    assert process.collect(2 * LONG_S) == ["freeze"]
    process.gone += 100
    assert process.collect(2 * LONG_S) == ["freeze"]
    process.gone += 1
    assert process.collect(2 * LONG_S) == ["thaw", "freeze"]
    assert process.collect(LONG_S / 2) == []


def test_what_is_frozen_is_thawed_when_as_much_has_been_frozen_again() -> None:
    process = Garbage()
    assert process.collect(2 * LONG_S) == ["freeze"]
    process.objects = 2_000
    assert process.collect(2 * LONG_S) == ["freeze"]
    process.objects = 2_001
    assert process.collect(2 * LONG_S) == ["thaw", "freeze"]


def test_a_process_that_has_become_idle_collects_what_has_gone() -> None:
    process = Garbage()
    process.collect(LONG_S / 2)
    process.gone += WORTH
    process.freezing.look()
    assert process.done() == [], "it is not worth it"
    process.gone += 1
    process.freezing.look()
    assert process.done() == ["collect", "trim"]
    process.collect(LONG_S / 2)
    process.freezing.look()
    assert process.done() == []
    process.there, process.gone = 10_000, process.gone + 10_000
    process.freezing.look()
    assert process.done() == [], "more is left"


@pytest.mark.skipif(trimmer() is None, reason="not glibc")
def test_a_router_gives_back_what_unfinished_frames_took(tmp_path: Path) -> None:
    size, clients = 8 * MIB - 1, 12
    with LiveNetwork(tmp_path, ["a"]) as network:
        network.start()
        router = network.routers["a"]
        before = resident(router.pid)
        sockets = []
        for number in range(clients):
            client = socket.create_connection(("127.0.0.1", router.amqp_port))
            client.sendall(AMQP_HEADER + frame(Open(f"c{number}")))
            client.sendall(size.to_bytes(4, "big") + b"\2\0\0\0" + bytes(size - 9))
            sockets.append(client)
        wait_until(lambda: router.status()["incomplete_bytes"] > clients * (size - 10), "all frames")
        peak = resident(router.pid)
        assert before + clients * size / 2 < peak < before + 2 * clients * size
        for client in sockets:
            client.close()
        wait_until(lambda: resident(router.pid) < before + SLACK + 10 * MIB, "memory given back", BACK_WITHIN_S)


def make_nodes_and_go(port: int, links: int) -> None:
    """One connection that makes so many dynamic nodes, and is lost when it has them all."""
    client = Connection(ConnectionSettings(container_id="client", idle_timeout_s=None), server=False, now=0.0)
    client.open()
    for number in range(links):
        if number % 250 == 0:  # how many a session may have is told by its router's begin
            session = client.begin()
        session.receiver(f"{number}").attach(source=Source(dynamic=True), target=Target(), rcv_settle_mode=RCV_FIRST)
    answered = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60.0) as transport:
        while answered < links:
            transport.sendall(client.data_to_send())
            answered += sum(
                isinstance(each, LinkAttached) for each in client.receive_data(transport.recv(1 << 20), 0.0)
            )


@pytest.mark.long
@pytest.mark.skipif(trimmer() is None, reason="not glibc")
def test_the_memory_of_nodes_that_are_gone_is_free_at_a_neighbour_as_well(tmp_path: Path) -> None:
    with LiveNetwork(tmp_path, ["a", "b"], links=[("a", "b")], settings=PATIENT) as network:
        network.start()
        a, b = network.routers["a"], network.routers["b"]

        def nodes(connections: int) -> None:
            for _ in range(connections):
                make_nodes_and_go(a.amqp_port, 1_000)
            wait_until(lambda: not b.status()["addresses_known"], "the nodes are gone")

        nodes(5)
        most = {each.pid: resident(each.pid) + 20 * MIB for each in (a, b)}
        nodes(15)
        wait_until(lambda: all(resident(pid) < most[pid] for pid in most), "the memory is given back", BACK_WITHIN_S)


def resident(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024
