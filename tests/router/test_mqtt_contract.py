"""The list of tests in docs/contracts/mqtt.md."""

from __future__ import annotations

import re

from tests.live import ROOT


def test_every_line_of_the_contract_has_tests_that_exist() -> None:
    contract = (ROOT / "docs/contracts/mqtt.md").read_text()
    lines = re.findall(r"^(\d+) ", contract, re.MULTILINE)
    rows = dict(re.findall(r"^\| (\d+) \| (.*) \|$", contract, re.MULTILINE))
    assert list(rows) == lines
    written = "".join(
        path.read_text() for part in ("router", "interop") for path in (ROOT / "tests" / part).glob("*.py")
    )
    for row in rows.values():
        names = re.findall(r"`(\w+)`", row)
        assert any(name.startswith("test_") for name in names)
        for name in names:
            assert f"def {name}(" in written
