"""Judges requests and answers by the description at /openapi.json."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from edges.bus.openapi import DESCRIPTION


def judge(method: str, path: str, body: bytes | None, status: int, kind: str, answer: bytes) -> None:
    """AssertionError if this is not as it is described; a path that is not described must not exist."""
    operation = _operation(method, path.partition("?")[0])
    if operation is None:
        assert status in (401, 404, 405), f"{method} {path} is not described"
        return
    responses = operation["responses"]
    assert str(status) in responses, f"{method} {path}: {status} is not described"
    content = responses[str(status)].get("content")
    if content is None:
        assert answer == b"", f"{method} {path}: {status} with a body"
        return
    ((described, media),) = content.items()
    assert kind.partition(";")[0] == described, f"{method} {path}: {status} with {kind}"
    if described == "application/json":
        _validate(media["schema"], json.loads(answer))
    if body and status < 300:
        _validate(operation["requestBody"]["content"]["application/json"]["schema"], json.loads(body))


def _operation(method: str, path: str) -> dict[str, Any] | None:
    for template, operations in DESCRIPTION["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            found: dict[str, Any] | None = operations.get(method.lower())
            return found
    return None


def _validate(schema: dict[str, Any], value: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs onceway[check]")
    jsonschema.Draft202012Validator({**schema, "components": DESCRIPTION["components"]}).validate(value)
