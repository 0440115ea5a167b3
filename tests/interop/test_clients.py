"""Clients that only `make interop` installs, in a directory that INTEROP names: each sends to itself through three routers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from onceway.amqp_management.entities import ATTRIBUTES
from tests.interop.raw import unique
from tests.running import PROGRAMS, Program

COUNT = 50


@pytest.fixture
def installed() -> Path:
    directory = os.environ.get("INTEROP")
    if directory is None:
        pytest.skip("make interop installs this client")
    return Path(directory)


def program(installed: Path, client: str, role: str, at: str, address: str) -> Program:
    """One that sends m0, m1, ... or receives and prints them."""
    if client == "c":
        root = installed / "deb"
        if not (root / "receive").exists():
            pytest.skip("Debian's qpid-proton is not installed")
        (library,) = (root / "root/usr/lib").glob("*/libqpid-proton-core.so.10")
        environment = {**os.environ, "LD_LIBRARY_PATH": str(library.parent)}
        return Program([str(root / role), *at.split(":"), address, str(COUNT)], environment)
    if client == "promise.js":
        environment = {**os.environ, "NODE_PATH": str(installed / "node_modules")}
        path = PROGRAMS.parent / "rhea" / client
        return Program(["node", str(path), role, at, address, str(COUNT)], environment)
    python = str(installed / "python" / "bin" / "python")
    return Program([python, str(PROGRAMS / client), role, at, address, str(COUNT)])


def sends_and_receives(installed: Path, network: Any, client: str) -> tuple[list[str], list[str]]:
    address, first, last = unique("clients"), network["a"], network["c"]
    with program(installed, client, "receive", last.address, address) as receiver:
        if client != "c":  # it says nothing before it has received: the publisher waits for credit
            assert receiver.line() == "attached"
        with program(installed, client, "send", first.address, address) as sender:
            return sender.rest(), receiver.rest()


def test_rhea_promise_reaches_itself(installed: Path, three_routers: Any) -> None:
    sent, received = sends_and_receives(installed, three_routers, "promise.js")
    assert (sent, received) == ([f"{COUNT} sent"], [f"{COUNT} received in order"])


def test_azures_pure_python_amqp_reaches_itself(installed: Path, three_routers: Any) -> None:
    sent, received = sends_and_receives(installed, three_routers, "azure_amqp.py")
    assert (sent, received) == ([f"{COUNT} sent"], [f"{COUNT} received in order"])


def test_debians_c_clients_reach_each_other(installed: Path, three_routers: Any) -> None:
    sent, received = sends_and_receives(installed, three_routers, "c")
    assert sent == [f"{COUNT} messages sent and acknowledged"]
    assert received == [*(f'{{"sequence"={number}}}' for number in range(1, COUNT + 1)), f"{COUNT} messages received"]


def test_azures_core_amqp_asks_the_management_node(installed: Path, three_routers: Any) -> None:
    environment = {**os.environ, "NODE_PATH": str(installed / "node_modules")}
    path = PROGRAMS.parent / "rhea" / "core_amqp.js"
    with Program(["node", str(path), "ask", three_routers["a"].address], environment) as client:
        assert sorted(client.rest()) == sorted(f"onceway.{kind}" for kind in ATTRIBUTES)


def test_rabbitmqs_client_takes_rabbitmq_only(installed: Path, three_routers: Any) -> None:
    """The reason why docs/interop.md has nothing else of it."""
    text = (
        "from rabbitmq_amqp_python_client import Environment\n"
        f"Environment(uri='amqp://guest:guest@{three_routers['a'].address}/').connection().dial()\n"
    )
    with Program([str(installed / "python" / "bin" / "python"), "-c", text]) as client:
        assert client.process.wait(60) != 0
    assert "Expected 'RabbitMQ', got 'onceway'" in client.errors
