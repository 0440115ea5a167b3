"""Clients that only `make interop` installs, in a directory that INTEROP names, beside what test_types.py does with them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from onceway.amqp_management.entities import ATTRIBUTES
from tests.running import PROGRAMS, Program


@pytest.fixture
def installed() -> Path:
    directory = os.environ.get("INTEROP")
    if directory is None:
        pytest.skip("make interop installs this client")
    return Path(directory)


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
