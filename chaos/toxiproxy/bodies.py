"""What requests say: JSON as the original reads it, which is Go's encoding/json, errors in its words.

The first value of a body counts, unknown keys don't, null is as good as absent, keys match in any case, and what has
the wrong type is a bad request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from chaos.toxiproxy.toxics import TYPES, Attributes

PROXY: Final = {"name": "string", "listen": "string", "upstream": "string", "enabled": "bool"}
TOXIC_CHANGE: Final = {"attributes": "any", "toxicity": "float32"}
TOXIC: Final = {"name": "string", "type": "string", "stream": "string", **TOXIC_CHANGE}

_BAD_REQUEST: Final = "bad request body"
_GO_NAMES: Final = {kind: TYPES[kind].__name__ + "Toxic" for kind in TYPES} | {"reset_peer": "ResetToxic"}
_LITERALS: Final = ("true", "false", "null")
_MOST_FLOAT32: Final = 3.4028235677973366e38  # what rounds to more is no float32
_SPACE: Final = " \t\n\r"
_HEX: Final = "0123456789abcdefABCDEF"


class ApiError(Exception):
    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.message = message
        self.status = status

    def document(self) -> dict[str, Any]:
        return {"error": self.message, "status": self.status}


class ListenFailed(ApiError):
    """An address that is none, too.  In the words of the original, which come from Go's net package."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 500)


class _Float(float):
    """With the text that it was given as, for errors."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> _Float:
        made = super().__new__(cls, text)
        made.text = text
        return made


def first_value(text: str) -> Any:
    """Raises ApiError."""
    text = text.lstrip(_SPACE)
    if not text:
        raise _bad("EOF")
    decoder = json.JSONDecoder(parse_float=_Float, parse_int=_integer, parse_constant=_no_constant)
    try:
        return decoder.raw_decode(text)[0]
    except json.JSONDecodeError as error:
        raise _bad(_complaint(text, error)) from error
    except _Constant as error:
        raise _bad(f"invalid character '{error}' looking for beginning of value") from error
    except RecursionError as error:
        raise _bad("exceeded max depth") from error


class _Constant(Exception):
    """NaN and Infinity, which Python knows and JSON does not: the first character."""


def _no_constant(text: str) -> Any:
    raise _Constant(text.removeprefix("-")[0])


def _integer(text: str) -> Any:
    """No number that anybody means has so many digits, and Python refuses to convert more than some thousands."""
    return int(text) if len(text) <= 40 else _Float(text)


def _complaint(text: str, error: json.JSONDecodeError) -> str:
    """Python's in the words of Go's scanner."""
    at, said = error.pos, error.msg
    if said.startswith("Invalid \\"):  # Python points near it
        return _escape(text, text.rindex("\\", 0, at + 2) + 1)
    if said.startswith("Illegal trailing comma"):  # Python 3.13 points at the comma
        at += 1
    while at < len(text) and text[at] in _SPACE and not said.startswith("Invalid control"):
        at += 1
    if said.startswith("Unterminated") or at >= len(text):
        return "unexpected EOF"
    shown = _shown(text[at])
    if said.startswith("Invalid control"):
        return f"invalid character '{shown}' in string literal"
    if said.startswith("Expecting ':'"):
        where = "after object key"
    elif said.startswith("Expecting ','"):
        where = "after object key:value pair" if _container(text, at) == "{" else "after array element"
    elif "property name" in said or (said.startswith("Illegal") and text[at] == "}"):
        where = "looking for beginning of object key string"
    else:
        for literal in _LITERALS:
            if text[at] == literal[0]:
                return _literal(text, at, literal)
        where = "looking for beginning of value"
    return f"invalid character '{shown}' {where}"


def _shown(character: str) -> str:
    return "\\'" if character == "'" else json.dumps(character)[1:-1] if character < " " else character


def _escape(text: str, at: int) -> str:
    """What is wrong behind a backslash."""
    where = "in string escape code"
    if text[at] == "u":
        where = "in \\u hexadecimal character escape"
        at = next((i for i in range(at + 1, len(text)) if text[i] not in _HEX), len(text))
    return f"invalid character '{_shown(text[at])}' {where}" if at < len(text) else "unexpected EOF"


def _literal(text: str, at: int, literal: str) -> str:
    for wanted, found in zip(literal, text[at:], strict=False):
        if wanted != found:
            return f"invalid character '{found}' in literal {literal} (expecting '{wanted}')"
    return "unexpected EOF"


def _container(text: str, at: int) -> str:
    """The innermost bracket that is open at this place; the text before it is good JSON."""
    opened: list[str] = []
    quoted = escaped = False
    for character in text[:at]:
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character in "[{":
            opened.append(character)
        elif character in "]}":
            opened.pop()
    return opened[-1] if opened else ""


def _bad(what: str) -> ApiError:
    return ApiError(f"{_BAD_REQUEST}: {what}", 400)


def fields(body: Any, struct: str, types: Mapping[str, str]) -> dict[str, Any]:
    """The known ones, each of its type; keys match in any case."""
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise bad_type(body, "value", f"toxiproxy.{struct}" if struct else "struct")
    found = {}
    for key, value in body.items():
        field = key.lower()
        kind = types.get(field)
        if kind is not None and value is not None:
            found[field] = _typed(value, kind, f"{struct}.{field}")
    return found


def attributes_of(attributes: Attributes, given: Any) -> dict[str, int]:
    """Those that are given, all good."""
    if given is None:
        return {}
    kind = next(name for name, made in TYPES.items() if type(attributes) is made)
    place = f"{_GO_NAMES[kind]}.attributes"
    if not isinstance(given, dict):
        raise bad_type(given, "struct field .attributes", f"toxics.{_GO_NAMES[kind]}")
    known = {field: f"{place}.{field}" for field in attributes.document()}
    return {
        key.lower(): _typed(value, "int64", known[key.lower()])
        for key, value in given.items()
        if key.lower() in known and value is not None
    }


def _typed(value: Any, kind: str, place: str) -> Any:
    if kind == "any":
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = {
        "string": isinstance(value, str),
        "bool": isinstance(value, bool),
        "float32": number and abs(value) < _MOST_FLOAT32,
        "int64": number and isinstance(value, int) and -(2**63) <= value < 2**63,
    }[kind]
    if not fits:
        raise bad_type(value, f"struct field {place}", kind)
    return float(value) if kind == "float32" else value


def bad_type(value: Any, where: str, kind: str) -> ApiError:
    if isinstance(value, bool):
        shown = "bool"
    elif isinstance(value, int | float):
        shown = "number" if kind not in ("int64", "float32") else f"number {getattr(value, 'text', value)}"
    else:
        names: dict[object, str] = {str: "string", list: "array", dict: "object"}
        shown = names.get(type(value), "null")
    return _bad(f"json: cannot unmarshal {shown} into Go {where} of type {kind}")
