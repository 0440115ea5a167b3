"""JSON is written in one place, and every parser takes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from router.json_text import write_json

NAN, INFINITY = float("nan"), float("inf")


def no_json(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (NAN, "NaN"),
        ({"a": [1.5, (INFINITY, -INFINITY)]}, {"a": [1.5, ["Infinity", "-Infinity"]]}),
        ({NAN: None, 1: True}, {"NaN": None, "1": True}),
        ({"a": {"b": 1e308}}, {"a": {"b": 1e308}}),
    ],
)
@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"compact": True}, {"ascii_only": False}])
def test_a_number_that_json_has_not_is_its_name(value: Any, said: Any, options: Any) -> None:
    assert json.loads(write_json(value, **options), parse_constant=no_json) == said


@pytest.mark.parametrize("options", [{}, {"indent": 1}, {"sort_keys": True}])
def test_all_else_is_written_as_python_does(options: Any) -> None:
    value = {"b": [None, True, 1, 1.5, "\xfc\U0001f600\0"], "a": {}}
    assert write_json(value, **options) == json.dumps(value, **options)


def test_nothing_else_writes_json() -> None:
    writers = re.compile(r"(?<!`)json\.dumps?\(|JSONEncoder|web\.json_response")
    packages = ("amqp10", "mqtt", "router", "interrouter", "onceway", "edges", "pyspark_onceway")
    found = [
        str(path) for package in packages for path in Path(package).rglob("*.py") if writers.search(path.read_text())
    ]
    assert sorted(found) == ["onceway/serve/answers.py", "router/json_text.py"]
