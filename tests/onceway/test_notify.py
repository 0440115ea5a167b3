"""What systemd is told, read from a datagram socket in its place."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Iterator
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
        notifier.alive()
    assert [systemd.next() for _ in range(3)] == ["READY=1", "STATUS=waiting", "WATCHDOG=1"]
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
        notifier.alive()
    other = Notifier({"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"})
    other.alive()  # the watchdog is another process's
    other.ready()
    assert systemd.next() == "READY=1"


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
