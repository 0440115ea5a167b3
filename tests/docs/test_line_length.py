"""Lines of prose in the documents have at most 120 columns, so that a change of a sentence is a change of its lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_commands import DOCUMENTS, ROOT

COLUMNS = 120
FENCE = re.compile(r"\s*(```+|~~~+)")
TABLE = re.compile(r"\s*\|")
INDENTED = re.compile(r" {4}")  # code, where a blank line or code is before it and no list is open
ITEM = re.compile(r"\s*(?:[-*+]|\d+[.)]) ")
DEFINITION = re.compile(r"\s*\[[^\]]+\]: ")
UNBROKEN = re.compile(r"(`+).*?\1|\]\([^)]*\)|<[^>]*>")  # code, where a link leads, a tag: each is one word


def too_long(text: str) -> Iterator[tuple[int, str]]:
    """Yields lines of prose above `COLUMNS` with their numbers. A line that is one word cannot be broken."""
    fence, blank, code, listed = "", True, False, False
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
            continue
        if mark:
            fence, blank, code = mark[1], True, False
            continue
        listed = bool(ITEM.match(line)) or (listed and (not line.strip() or not blank or line.startswith(" ")))
        code = bool(INDENTED.match(line)) and not listed and (blank or code)
        blank = not line.strip()
        if len(line) <= COLUMNS or code or TABLE.match(line) or DEFINITION.match(line):
            continue
        if " " in UNBROKEN.sub("x", ITEM.sub("", line)).strip():
            yield number, line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_of_prose_have_120_columns_at_most(document: Path) -> None:
    found = [f"{document.relative_to(ROOT)}:{n}: {line}" for n, line in too_long(document.read_text(encoding="utf-8"))]
    assert found == []


def test_only_prose_counts() -> None:
    word, prose = "w" * 200, "word " * 40
    tables = f"| {prose} |\n"
    fences = f"```console\n$ {prose}\n```\n- a list\n\n  ```yaml\n  {prose}\n  ```\n"
    code = f"Text:\n\n    {prose}\n\n    {prose}\n\n"
    words = f"{word}\n- {word}\n- `{prose}`\n[a]: {word} '{prose}'\n"
    assert list(too_long(tables + fences + code + words)) == []
    for where, text in enumerate((prose, f"- {prose}", f"text\n    {prose}", f"- a list\n\n    {prose}"), 1):
        assert [line for _, line in too_long(text)] == [text.rpartition("\n")[2]], where
    assert [n for n, _ in too_long(f"{fences}{code}Text.\n\n{prose}")] == [fences.count("\n") + code.count("\n") + 3]
