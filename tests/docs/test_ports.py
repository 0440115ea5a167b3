"""5671 is the port of `amqps`, 5672 that of `amqp`: nothing that we ship or print mixes them up."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from onceway.cli.options import DEFAULT_URL
from onceway.client.urls import parse_urls

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("*.md", "*.yaml", "*.py", "*.js", "*.sh", "Makefile")
TLS_PORT = re.compile(r"(?<![\w.])5671\b")
# What names 5671 for TLS, up to the port and with no other scheme or key between.
OF_TLS = re.compile(r"(amqps(://|: ?\"?|\", |` \| )|DEFAULT_TLS_PORT = )[^\s{}]*$")


def wrong_ports(text: str) -> list[str]:
    """The lines that name 5671 for something else than `amqps`."""
    return [
        line
        for line in text.splitlines()
        if any(not OF_TLS.search(line[: found.start()]) for found in TLS_PORT.finditer(line))
    ]


def shipped() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *PLACES], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split() if not name.startswith("tests/")]


def test_nothing_shipped_names_the_port_of_amqps_for_amqp() -> None:
    paths = shipped()
    assert {"README.md", "topologies/ring.yaml", "examples/publish.py"} <= {
        str(path.relative_to(ROOT)) for path in paths
    }
    wrong = {str(path.relative_to(ROOT)): lines for path in paths if (lines := wrong_ports(path.read_text()))}
    assert wrong == {}


@pytest.mark.parametrize(
    "line",
    [
        "a: {amqp: 5671}",
        'amqp: "0.0.0.0:5671"',
        "--url amqp://127.0.0.1:5671,127.0.0.1:5672",
        "amqp://h:5671 and amqps://h:5671",
        '{amqps: "0.0.0.0:5671", amqp: 5671}',
    ],
)
def test_the_port_of_amqps_is_wrong_for_amqp(line: str) -> None:
    assert wrong_ports(line) == [line]


@pytest.mark.parametrize(
    "line", ["--url amqps://127.0.0.1:5671", '{amqp: 5672, amqps: "0.0.0.0:5671", interrouter: 7671}', "amqps: 5671"]
)
def test_the_port_of_amqps_is_right_for_amqps(line: str) -> None:
    assert wrong_ports(line) == []


def test_commands_connect_to_the_port_of_amqp_by_default() -> None:
    (default,) = parse_urls(DEFAULT_URL)
    assert (default.port, default.secure) == (5672, False)
    assert parse_urls("amqps://host")[0].port == 5671
