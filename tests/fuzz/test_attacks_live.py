"""One live router under several attacks at once: the memory of its process stays bounded, its neighbour keeps it, its
admin listener answers, and who behaves goes on."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from amqp10.frames import AMQP_HEADER
from amqp10.performatives import Attach, Begin, Detach, Flow, Open, Transfer
from amqp10.termini import Source, Target
from chaos.fuzz.targets import frame
from tests.interop.witness import Witness
from tests.live import LiveNetwork

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MIB = 1 << 20
SECONDS = 3.0  # at least
LONGEST_S = 120.0  # for strangers to reach what stops them, on a busy machine
LIMITS = {"half_open", "memory_limit"}
ANSWER_S = 15.0  # for the admin listener, which is asked again and again; for the neighbour it is dead_after
LIMIT_MIB = 8
BODY = b"\x00Su\xb0" + (50_000).to_bytes(4, "big") + bytes(50_000)


@dataclass
class LimitedNetwork(LiveNetwork):
    limits: Mapping[str, Any] = field(default_factory=dict)

    def topology(self) -> dict[str, Any]:
        return {**super().topology(), "limits": dict(self.limits)}


@pytest.fixture
def network(tmp_path: Path) -> Iterator[LimitedNetwork]:
    with LimitedNetwork(
        tmp_path,
        ("a", "b"),
        [("a", "b")],
        settings={
            "memory_limit": f"{LIMIT_MIB}MiB",
            "max_message_size": "1MiB",
            "max_frame_size": "1MiB",
            "dead_after": f"{ANSWER_S:g}s",
        },
        limits={"connections": 60, "half_open": 50, "unread_output": "1MiB"},
    ) as network:
        yield network.start()


def rss(pid: int) -> int:
    """Octets."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def greeting(container: str) -> bytes:
    return AMQP_HEADER + frame(Open(container)) + frame(Begin(None, 0, 2**31 - 1, 2**31 - 1))


def subscribe(name: str, handle: int, address: str, timeout: int = 0) -> bytes:
    return frame(Attach(name, handle, True, 2, 0, Source(address, timeout=timeout), Target()))


def publish(name: str, handle: int, address: str) -> bytes:
    return frame(Attach(name, handle, False, target=Target(address), initial_delivery_count=0))


class Attackers:
    """Each in a thread of its own, until it is `over`; an attacker that is thrown out comes again."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.over = False
        self.threads: list[threading.Thread] = []
        self.sockets: list[socket.socket] = []

    def start(self, attack: Any, times: int = 1) -> None:
        for number in range(times):
            thread = threading.Thread(target=self._again_and_again, args=(attack, number), daemon=True)
            thread.start()
            self.threads.append(thread)

    def _again_and_again(self, attack: Any, number: int) -> None:
        while not self.over:
            with contextlib.suppress(OSError):
                attack(self, number)

    def connect(self) -> socket.socket:
        connected = socket.create_connection(("127.0.0.1", self.port), 5.0)
        connected.settimeout(1.0)
        self.sockets.append(connected)
        return connected

    def join(self) -> None:
        for thread in self.threads:
            thread.join(10.0)
        for each in self.sockets:
            each.close()


def half_open(attackers: Attackers, number: int) -> None:
    attackers.connect().sendall(AMQP_HEADER)


def never_reads_answers(attackers: Attackers, number: int) -> None:
    """Attaches, detaches and flows without end, whose answers nobody reads."""
    stranger = attackers.connect()
    stranger.sendall(greeting(f"deaf {number}"))
    octets = (subscribe("s", 0, "deaf") + frame(Detach(0, True))) * 200
    while not attackers.over:
        stranger.sendall(octets)


def new_names(attackers: Attackers, number: int) -> None:
    stranger = attackers.connect()
    stranger.sendall(greeting(f"names {number}"))
    counter = 0
    while not attackers.over:
        octets = b""
        for _ in range(100):
            counter += 1
            octets += subscribe(f"{time.monotonic_ns()}-{counter}", 0, f"a{counter % 50}", 60) + frame(Detach(0, False))
        stranger.sendall(octets)
        with contextlib.suppress(TimeoutError):
            stranger.recv(1 << 20)


def unfinished(attackers: Attackers, number: int) -> None:
    """Messages without an end on many links."""
    stranger = attackers.connect()
    stranger.sendall(greeting(f"unfinished {number}"))
    for handle in range(200):
        stranger.sendall(publish(f"p{handle}", handle, "elsewhere"))
    time.sleep(0.5)  # for credit; that it has come is nobody's assertion
    for handle in range(200):
        stranger.sendall(frame(Transfer(handle, handle, b"%d" % handle, 0, more=True), 0, BODY))
    while not attackers.over:
        for handle in range(200):
            stranger.sendall(frame(Transfer(handle, more=True), 0, BODY))


def deaf_subscriber(attackers: Attackers, number: int) -> None:
    stranger = attackers.connect()
    credit = frame(Flow(0, 2**31 - 1, 0, 1, handle=0, delivery_count=0, link_credit=10**6))
    stranger.sendall(greeting(f"sleeper {number}") + subscribe("s", 0, "much") + credit)
    while not attackers.over:
        stranger.sendall(b"\x00\x00\x00\x08\x02\x00\x00\x00")
        time.sleep(0.2)


def much(attackers: Attackers, number: int) -> None:
    """Publishes without end what the sleepers do not read."""
    stranger = attackers.connect()
    stranger.sendall(greeting(f"much {number}") + publish("p", 0, "much"))
    delivery = 0
    while not attackers.over:
        stranger.sendall(frame(Transfer(0, delivery, b"%d" % delivery, 0, settled=True), 0, BODY))
        delivery += 1


def test_a_process_under_attack_stays_small_and_of_use(network: LimitedNetwork) -> None:
    router, neighbour = network["a"], network["b"]
    before = rss(router.pid)
    with Witness(router.address, neighbour.address):
        attackers = Attackers(router.amqp_port)
        attackers.start(half_open, 2)
        attackers.start(never_reads_answers, 2)
        attackers.start(new_names, 2)
        attackers.start(unfinished, 2)
        attackers.start(deaf_subscriber, 5)
        attackers.start(much, 2)
        peak = answers = 0
        begun = time.monotonic()
        reached: dict[str, int] = {}
        while time.monotonic() < begun + SECONDS or not reached.keys() >= LIMITS:
            assert time.monotonic() < begun + LONGEST_S, f"only these limits were reached: {reached}"
            assert router.get("/readyz", ANSWER_S)[0] == 200
            reached = router.status(1)["limits"]["refused"]
            peak = max(peak, rss(router.pid))
            answers += 1
        attackers.over = True
        attackers.join()
    # payload twice, incomplete, unread: once each; names: half; and what connections may leave unread
    assert peak - before < (2 + 1 + 1 + 1) * LIMIT_MIB * MIB + 60 * 3 * MIB, f"{(peak - before) / MIB:.0f} MiB more"
    print(f"{(peak - before) / MIB:.0f} MiB more at most, {answers} answers, {reached}")
    assert router.running
    assert "Traceback" not in router.log_tail(10_000), router.log_tail()
    assert "event=session_down" not in neighbour.log_tail(10_000), neighbour.log_tail()
