"""What shows each rule of docs/protocol: the named schedules, and the tests, whose docstrings cite it.

Only whole rules count: who cites a section or a chapter says where to read on. `scripts/tables.py` writes the list into
docs/protocol/failures.md.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from chaos.simulation.defects.mutations import MUTATIONS
from chaos.simulation.mqtt.defects import DEFECTS
from chaos.simulation.mqtt.schedules import SCHEDULES
from chaos.simulation.scenarios import SCENARIOS

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = sorted((ROOT / "docs" / "protocol").glob("*.md"))
RULE: Final = re.compile(r"^\*\*(\d+(?:\.\d+)+)\*\* ", re.MULTILINE)
NUMBER: Final = r"\d+(?:\.\d+)*"
LIST: Final = rf"{NUMBER}(?:(?:, (?:and )?| and | or | to |/){NUMBER})*"
CITATION: Final = re.compile(rf"\bprotocol ({LIST})", re.IGNORECASE)
DEFINITIONS: Final = re.compile(r"^\*Definitions\*.*?\n\n", re.MULTILINE | re.DOTALL)
GUARANTEE: Final = re.compile(r"G[1-6]")


def rules() -> list[str]:
    """The number of each, in order."""
    return sorted({number for page in PAGES for number in RULE.findall(page.read_text())}, key=in_order)


def in_order(number: str) -> tuple[int, ...]:
    return tuple(map(int, number.split(".")))


def listed(text: str) -> Iterator[str]:
    """The numbers of a list such as "5.3, 6.2 to 6.4 and 9"."""
    found = re.findall(NUMBER, text)
    yield from found
    for first, last in re.findall(rf"({NUMBER}) to ({NUMBER})", text):
        chapter, _, start = first.partition(".")
        yield from (f"{chapter}.{n}" for n in range(int(start or 0) + 1, int(last.partition(".")[2] or 0)))


def joined(text: str) -> str:
    """Without line breaks, which may part a citation."""
    return re.sub(r"\s*\n\s*(?:#:? )?", " ", text)


@cache
def shown() -> dict[str, dict[str, str]]:
    """By rule: what fails without it, each with the guarantee that the deliberate defect breaks there, if it is one."""
    known = rules()
    breaks = {each.schedule: each.expected for each in MUTATIONS.values() if each.schedule}
    breaks |= {schedule: expected for _, schedule, expected in DEFECTS.values()}
    found: dict[str, dict[str, str]] = {rule: {} for rule in known}
    for name, text in docstrings():
        for citation in CITATION.findall(joined(text)):
            for rule in found.keys() & set(listed(citation)):
                guarantee = GUARANTEE.match(breaks.get(name, ""))
                found[rule][name] = guarantee[0] if guarantee else ""
    return found


def docstrings() -> Iterator[tuple[str, str]]:
    """Of named schedules, and of tests."""
    for name, function in SCENARIOS.items():
        yield name, function.__doc__ or ""
    for name, (schedule, *_) in SCHEDULES.items():
        yield name, schedule.__doc__ or ""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = "" if "node_modules" in path.parts else path.read_text()
        if CITATION.search(joined(text)):
            for each in ast.walk(ast.parse(text)):
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                    yield each.name, ast.get_docstring(each) or ""


def shown_list() -> Iterator[str]:
    for rule, names in shown().items():
        if names:
            each = (f"`{name}` ({broken})" if broken else f"`{name}`" for name, broken in sorted(names.items()))
            yield from textwrap.wrap(f"- {rule}: {', '.join(each)}", 120, subsequent_indent="  ")


def definitions() -> list[str]:
    """The rules of which failures.md says that nothing can show them."""
    found = DEFINITIONS.search((ROOT / "docs" / "protocol" / "failures.md").read_text())
    assert found is not None
    return re.findall(r"\d+(?:\.\d+)+", found[0])


def not_shown() -> list[str]:
    return [rule for rule, names in shown().items() if not names and rule not in definitions()]


def not_shown_list() -> Iterator[str]:
    yield from textwrap.wrap(f"{', '.join(not_shown())}.", 120)
