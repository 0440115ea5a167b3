"""The list of tests in docs/contracts/event-bus.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests.live import ROOT


def test_every_line_and_request_of_the_contract_has_tests_and_they_exist() -> None:
    contract, listed = (ROOT / "docs/contracts/event-bus.md").read_text().split("| line, request |")
    lines = re.findall(r"^(\d+) ", contract, re.MULTILINE)
    requests = re.findall(r"^\| ([A-Z]+ /[\w/.:]*)", contract, re.MULTILINE)
    rows = dict(re.findall(r"^\| `?(\d+|[A-Z]+ /[\w/.:]*)`? \| (.*) \|$", listed, re.MULTILINE))
    assert sorted(rows) == sorted([*lines, *requests])
    written = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for row in rows.values():
        names = re.findall(r"`(\w+)`", row)
        assert names
        assert [name for name in names if f"def {name}(" not in written] == []
