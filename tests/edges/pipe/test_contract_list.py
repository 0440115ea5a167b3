"""The list of tests in docs/contracts/pipe.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests.live import ROOT


def test_every_line_of_the_contract_has_tests_and_they_exist() -> None:
    contract = (ROOT / "docs/contracts/pipe.md").read_text()
    lines = re.findall(r"^(\d+) ", contract, re.MULTILINE)
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", contract, re.MULTILINE))
    assert list(rows) == lines
    written = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for row in rows.values():
        for name in re.findall(r"`(\w+)`", row):
            assert f"def {name}(" in written
