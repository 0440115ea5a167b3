"""What docs/start says happens as it is printed, to a newcomer with a clean home folder."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.newcomer import Newcomer, reason_against
from tests.live import ROOT

PAGES = ROOT / "docs" / "start"
ALONE = ("first", "pipe", "event-bus")
MACHINES = ("a", "b", "c")
pytestmark = pytest.mark.skipif(reason_against() is not None, reason=str(reason_against()))


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


@pytest.mark.parametrize("name", ALONE)
def test_the_page_happens_as_it_is_printed(tmp_path: Path, name: str) -> None:
    with Newcomer(tmp_path) as newcomer:
        newcomer.follow(page(name))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
def test_the_page_of_spark_happens_as_it_is_printed(tmp_path: Path) -> None:
    with Newcomer(tmp_path) as newcomer:
        newcomer.follow(page("spark"))


@pytest.mark.slow
@pytest.mark.parametrize("left_out", ["With systemd", "Or with Docker Compose"])
def test_the_page_of_three_machines_happens_as_it_is_printed(tmp_path: Path, left_out: str) -> None:
    text, count = re.subn(rf"^## {left_out}$.*?(?=^## )", "", page("machines"), flags=re.MULTILINE | re.DOTALL)
    assert count == 1
    with Newcomer(tmp_path, MACHINES) as newcomer:
        newcomer.follow(text)


def test_every_page_is_followed() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == {"README", *ALONE, "spark", "machines"}
