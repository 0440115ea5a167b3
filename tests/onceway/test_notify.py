"""What systemd is told, read from a datagram socket in its place."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from onceway.host.notify import Notifier
from tests.cli.conftest import BOUND_S, COMMAND
from tests.live import LiveNetwork
from tests.running import Program


class Systemd:
    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(address.replace("@", "\0") if address.startswith("@") else address)
        self.socket.settimeout(BOUND_S)
        self.told: list[str] = []

    def next(self) -> str:
        self.told.append(self.socket.recv(4096).decode())
        return self.told[-1]

    def until(self, pattern: str) -> None:
        while not re.fullmatch(pattern, self.next()):
            pass


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    made = Systemd(str(tmp_path / "notify"))
    yield made
    made.socket.close()


def test_a_service_tells_its_states(systemd: Systemd) -> None:
    environment = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier(environment)
    assert environment == {}, "children do not inherit it"
    for _ in range(2):
        notifier.ready()
        notifier.status("waiting")
    assert [systemd.next() for _ in range(2)] == ["READY=1", "STATUS=waiting"]
    notifier.reloading()
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=[0-9]+", systemd.next())
    notifier.ready()
    notifier.stopping()
    assert [systemd.next() for _ in range(2)] == ["READY=1", "STOPPING=1"]


def test_an_abstract_socket_is_told() -> None:
    systemd = Systemd(f"@onceway-test-{os.getpid()}")
    Notifier({"NOTIFY_SOCKET": systemd.address}).ready()
    assert systemd.next() == "READY=1"
    systemd.socket.close()


def test_nothing_happens_without_systemd_or_when_it_is_gone(systemd: Systemd) -> None:
    for environment in ({}, {"NOTIFY_SOCKET": "/nowhere"}, {"WATCHDOG_USEC": "nonsense"}):
        notifier = Notifier(environment)
        notifier.ready()
        notifier.watch(lambda: 0).set()
    other = Notifier({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"})
    other.watch(lambda: 0).set()  # the watchdog is another process's
    other.ready()
    assert systemd.next() == "READY=1"


def test_systemd_is_told_that_a_service_works_while_its_turns_end_or_others_have_the_cpu(systemd: Systemd) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "20000"})
    turns, state = count(), "S"
    over = notifier.watch(lambda: next(turns), lambda pid: (state, 0.0))
    assert [systemd.next() for _ in range(5)] == ["WATCHDOG=1"] * 5
    over.set()
    over = notifier.watch(lambda: 7, lambda pid: ("R", 0.0))
    assert [systemd.next() for _ in range(5)] == ["WATCHDOG=1"] * 5
    over.set()
    asked, often = count(), threading.Event()

    def waits(pid: int) -> tuple[str, float]:
        if next(asked) == 50:
            often.set()
        return "S", 0.0

    over = notifier.watch(lambda: 7, waits)
    assert often.wait(BOUND_S)
    over.set()
    systemd.socket.setblocking(False)
    told = 0
    with pytest.raises(BlockingIOError):
        while systemd.next() == "WATCHDOG=1":
            told += 1
    assert told < 15, "it waits for something, and no turn ends"


def test_up_and_router_tell_systemd(systemd: Systemd, tmp_path: Path) -> None:
    path = str(LiveNetwork(tmp_path, ["a"]).topology_path)
    environment = {**os.environ, "NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "20000"}
    for command, ready in (["up", path], "STATUS=a: ready"), (["router", path, "a", "--fresh"], "STATUS=ready"):
        systemd.told.clear()
        with Program([*COMMAND, *command], environment) as program:
            systemd.until("READY=1")
            systemd.until(ready)
            systemd.until("WATCHDOG=1")
            program.process.send_signal(signal.SIGTERM)
            systemd.until("STOPPING=1")
            program.rest()
        assert systemd.told.count("READY=1") == 1
