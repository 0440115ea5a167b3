"""Every line of a contract (docs/contracts) has tests, in the table at its end, and they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = sorted((ROOT / "docs/contracts").glob("*.md"))
ONE_LINE_ONLY = {"reliable-topic": ["16"]}  # the others are shown by schedules (docs/protocol/failures.md)


@pytest.mark.parametrize("path", CONTRACTS, ids=lambda path: path.stem)
def test_every_line_of_the_contract_has_tests_and_they_exist(path: Path) -> None:
    contract, listed = re.split(r"^\| line.*\n", path.read_text(), flags=re.MULTILINE)
    lines = re.findall(r"^(\d+) ", contract, re.MULTILINE)
    requests = re.findall(r"^\| ([A-Z]+ /[\w/.:]*)", contract, re.MULTILINE)  # of the event bus
    rows = dict(re.findall(r"^\| `?(\d+|[A-Z]+ /[\w/.:]*)`? \| (.*) \|$", listed, re.MULTILINE))
    assert sorted(rows) == sorted(ONE_LINE_ONLY.get(path.stem, [*lines, *requests]))
    written = set(
        re.findall(r"def (test_\w+)\(", "".join(test.read_text() for test in ROOT.glob("tests/**/test_*.py")))
    )
    for line, row in rows.items():
        names = re.findall(r"`(test_\w+)`", row)
        assert names, line
        assert [name for name in names if name not in written] == []
