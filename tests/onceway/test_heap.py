"""Free memory goes back to the system after a peak."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from amqp10.frames import AMQP_HEADER
from amqp10.performatives import Open
from chaos.fuzz.targets import frame
from onceway.base.heap import AGAIN_S, LONG_S, LOOK_EVERY_S, SLACK, Freezing, Trimming, trimmer
from tests.live import LiveNetwork, wait_until

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


def test_what_long_collections_have_visited_is_frozen_until_as_much_has_gone_as_is_left() -> None:
    now, there, gone, calls = 0.0, 100, 7, list[str]()
    freezing = Freezing(
        lambda: (there, gone),
        freeze=lambda: calls.append("freeze"),
        thaw=lambda: calls.append("thaw"),
        clock=lambda: now,
    )

    def collect(seconds: float, generation: int = 2) -> list[str]:
        nonlocal now
        freezing.collected("start", {"generation": generation})
        now += seconds
        freezing.collected("stop", {"generation": generation})
        done = calls.copy()
        calls.clear()
        return done

    assert collect(LONG_S / 2) == []
    assert collect(2 * LONG_S, generation=1) == []
    assert collect(2 * LONG_S) == ["freeze"]
    gone += 100
    assert collect(2 * LONG_S) == ["freeze"]
    gone += 1
    assert collect(2 * LONG_S) == ["thaw", "freeze"]
    assert collect(LONG_S / 2) == []


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


def resident(pid: int) -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) * 1024
