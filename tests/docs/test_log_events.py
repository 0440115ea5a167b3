"""docs/operating/logs.md names every event that the code logs, with its levels and its fields."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from onceway.base.logs import LIMITED

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("router", "interrouter", "onceway")
LEVELS = ("debug", "info", "warning", "error")
NAME = re.compile(r"[a-z][a-z_]*")
ROW = re.compile(r"^\| `(\w+)` \| ([a-z, ]+) \| (.*) \| (.*)\|$", re.MULTILINE)
COMMON = {"router", "container", "user", "client"}  # told above the table


@dataclass
class Event:
    levels: set[str] = field(default_factory=set)
    fields: set[str] = field(default_factory=set)
    limited: bool = False
    complete: bool = True  # all fields are given by name


def calls(tree: ast.AST) -> Iterator[tuple[list[str], ast.Call, str]]:
    """(levels, call, text) of each call such as `log.info("event", text, field=...)`."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        texts: dict[str, str] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                constants = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
                texts[node.targets[0].id] = " ".join(value for value in constants if isinstance(value, str))
        for node in ast.walk(function):
            if not (isinstance(node, ast.Call) and len(node.args) == 2 and isinstance(node.args[0], ast.Constant)):
                continue
            event, text = node.args
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            levels = called.split("_or_")  # a method, or a variable that has one of two
            if not set(levels) <= set(LEVELS):
                continue
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield levels, node, text.value
            else:
                assert isinstance(text, ast.Name), f"line {node.lineno}: the text of {event.value} is no constant"
                # The text was assigned above; where a function has several, the last is taken.
                yield levels, node, texts[text.id]


@cache
def logged() -> dict[str, Event]:
    events: dict[str, Event] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for levels, call, text in calls(ast.parse(path.read_text())):
                name = call.args[0].value  # type: ignore[attr-defined]
                assert NAME.fullmatch(name), f"{path}:{call.lineno}: {name!r} is no event's name"
                event = events.setdefault(name, Event(limited=name in LIMITED))
                event.levels.update(levels)
                given = {keyword.arg for keyword in call.keywords if keyword.arg}
                spread = any(keyword.arg is None for keyword in call.keywords)
                if not spread and isinstance(call.args[1], ast.Constant):
                    used = {field for _, field, _, _ in string.Formatter().parse(text) if field}
                    assert used <= given | COMMON, f"{path}:{call.lineno}: {used - given} in the text is not given"
                event.complete = event.complete and not spread
                event.fields |= given - COMMON - {"exc"}
    # Made by the log itself.
    events["suppressed"] = Event({"warning"}, {"suppressed", "count"})
    events["log_failed"] = Event({"error"}, {"reason"})
    events["log_lines_lost"] = Event({"warning"}, {"count"})
    events["library"] = Event({"warning"}, {"logger", "message"}, limited=True)
    return events


def documented() -> dict[str, Event]:
    page = (ROOT / "docs" / "operating" / "logs.md").read_text()
    rows = ROW.findall(page)
    events = {
        name: Event(set(levels.split(", ")), set(re.findall(r"`(\w+)`", fields)), "*limited*" in meaning)
        for name, levels, meaning, fields in rows
    }
    assert len(events) == len(rows), "an event has two rows"
    return events


def test_the_table_has_exactly_the_events_that_are_logged() -> None:
    code, page = logged(), documented()
    assert sorted(page) == sorted(code)
    for name, event in code.items():
        assert page[name].levels == event.levels, name
        assert page[name].limited == event.limited, name
        assert event.fields <= page[name].fields, name
        assert page[name].fields <= event.fields or not event.complete, name


def test_every_limited_event_is_logged() -> None:
    assert set(logged()) >= LIMITED
