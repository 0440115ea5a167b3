"""docs/wire.md names everything that Onceway adds to AMQP, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("amqp10", "edges", "interrouter", "onceway", "router")
NAME = re.compile(r"onceway:[a-z][a-z-]*|x-opt-onceway-[a-z-]+")


def test_every_name_on_the_wire_stands_in_wire_md_and_every_name_there_is_in_the_code() -> None:
    code = {
        name
        for package in PACKAGES
        for module in (ROOT / package).rglob("*.py")
        for name in NAME.findall(module.read_text())
    }
    described = set(NAME.findall((ROOT / "docs" / "wire.md").read_text()))
    assert code - described == set(), "describe these in docs/wire.md"
    assert described - code == set(), "docs/wire.md describes what is not in the code"
    assert "onceway:epoch" in code
