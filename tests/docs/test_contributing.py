"""CONTRIBUTING.md, the architecture and the table of who may do what send people to places that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
QUESTIONS = dict(re.findall(r"^\| (Where [^|]*\?|How [^|]*\?) \| (.*) \|$", PAGE, re.MULTILINE))
ROWS = re.findall(
    r"^\| ([^|]*) \| [^|]* \| ([^|]*`[^|]*) \| ([^|]*`test_[^|]*) \|$",
    (ROOT / "docs" / "security.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


def code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def defined(path: Path) -> set[str]:
    """Names of a module: `Class`, `function`, `CONSTANT`, and `Class.member` of its classes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set(_names(tree.body))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{member}" for member in _names(node.body)}
    return found


def _names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def places(cell: str) -> Iterator[tuple[list[str], Path]]:
    """The names of a cell with the module that follows them: "`A` and `B.c` in `d/e.py`"."""
    names: list[str] = []
    for word in code(cell):
        if PATH.fullmatch(word):
            yield names, ROOT / word
            names = []
        elif NAME.fullmatch(word):
            names.append(word)
    assert not names, f"{names}: name the module behind them"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_path_exists(page: str) -> None:
    words = code((ROOT / page).read_text(encoding="utf-8"))
    paths = [word for word in words if PATH.fullmatch(word) and not word.startswith(".venv/")]
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_five_questions_have_answers() -> None:
    assert len(QUESTIONS) == 5
    assert sum(len(names) for cell in QUESTIONS.values() for names, _ in places(cell)) > 10


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_name_is_in_the_module_that_the_table_says(question: str) -> None:
    for names, path in places(QUESTIONS[question]):
        missing = set(names) - defined(path) if path.suffix == ".py" else set(names)
        assert not missing, f"CONTRIBUTING.md: {path.relative_to(ROOT)} has no {', '.join(sorted(missing))}"


def test_the_table_of_who_may_do_what_has_its_rows() -> None:
    assert len(ROWS) >= 13


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_asset_has_code_and_a_test_that_are_there(row: tuple[str, str, str]) -> None:
    for cell in row[1:]:
        for names, path in places(cell):
            missing = set(names) - defined(path) if path.suffix == ".py" else set(names)
            assert path.exists()
            assert not missing, f"docs/security.md: {path.relative_to(ROOT)} has no {', '.join(sorted(missing))}"
    assert re.findall(r"`test_\w+` in `tests/", row[2])
