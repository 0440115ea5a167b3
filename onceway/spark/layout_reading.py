"""The layout of a message: goes through it once, and writes down the steps that `layouts` takes through many.

Sections in another encoding than the usual, several body sections, a footer, described values: no layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from amqp10.codec import decode_value
from amqp10.errors import DecodeError
from amqp10.sections import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from onceway.spark.fields import KEYS, RARE, said_of, valid_sections
from onceway.spark.layouts import Layout, Must, Over, Piece, Said, Size, Varying
from onceway.spark.octets import (
    Texts,
    ascii_text,
    booleans,
    compact,
    distinct,
    hexadecimal,
    signed,
    unsigned,
    utf8,
    uuids,
)
from onceway.spark.properties import FIELDS, FORMS
from onceway.spark.text import as_time, text

_MAPS: Final = {0xC1: 1, 0xD1: 4}  # constructor -> octets of its size and count
_LISTS: Final = {0xC0: 1, 0xD0: 4}
_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}  # upper half of a constructor -> octets
_SIZED: Final = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
_TEXTS: Final[dict[int, Texts]] = {
    0xA1: utf8, 0xB1: utf8, 0xA3: ascii_text, 0xB3: ascii_text, 0xA0: hexadecimal, 0xB0: hexadecimal, 0x98: uuids,
    0x50: unsigned(1), 0x60: unsigned(2), 0x51: signed(1), 0x61: signed(2),
}  # fmt: skip
# Types whose constructor depends on the value: constructor -> octets behind it
_UINT: Final = {0x43: 0, 0x52: 1, 0x70: 4}
_ULONG: Final = {0x44: 0, 0x53: 1, 0x80: 8}
_INT: Final = {0x54: 1, 0x71: 4}
_LONG: Final = {0x55: 1, 0x81: 8}
_BOOL: Final = {0x41: 0, 0x42: 0}
_KINDS: Final[tuple[tuple[dict[int, int], Texts], ...]] = (
    (_UINT, compact(_UINT.values(), signed=False)),
    (_ULONG, compact(_ULONG.values(), signed=False)),
    (_INT, compact(_INT.values(), signed=True)),
    (_LONG, compact(_LONG.values(), signed=True)),
    (_BOOL, booleans),
)
_BODIES: Final = {DATA: {0xA0: 1, 0xB0: 4}, AMQP_VALUE: {0xA0: 1, 0xB0: 4, 0xA1: 1, 0xB1: 4}}
_NULL: Final = 0x40
_BOOLEAN: Final = 0x56
_CHAR: Final = 0x73


class _NoLayout(Exception):
    """Not worth one."""


def layout_of(payload: bytes) -> Layout | None:
    """The layout of one message; None where it is none, or one of those that are read one by one."""
    try:
        return _Reading(payload).layout()
    except (DecodeError, _NoLayout):
        return None


class _Reading:
    """Goes through one message and writes down the steps."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._layout = Layout()
        self._must = 0  # octets before `_at` that no step has yet
        self._at = 0

    def layout(self) -> Layout:
        payload, layout = self._payload, self._layout
        found = valid_sections(payload)
        if not found or found[-1][0] not in _BODIES:
            raise _NoLayout
        annotations: list[tuple[str, Said]] = []
        application: list[tuple[str, Said]] = []
        properties: list[Said] = [None] * len(FIELDS)
        said: list[tuple[str, Said]] = []
        for code, start, stop in found:
            if payload[start : start + 2] != b"\x00\x53":
                raise _NoLayout
            self._at = start + 3
            if code == MESSAGE_ANNOTATIONS:
                annotations = self._map(stop)
            elif code == APPLICATION_PROPERTIES:
                application = self._map(stop)
            elif code == PROPERTIES:
                properties = self._properties(stop)
            elif code in (HEADER, DELIVERY_ANNOTATIONS):
                self._at = stop
                if code == HEADER:
                    said += said_of(payload[start:stop], b"")[1]
            elif (code, start, stop) == found[-1]:
                self._body(code, stop)
            else:
                raise _NoLayout
        self._flush()
        headers = dict(application)
        for name, value in [*annotations, *said]:
            headers.setdefault(name, value)
        columns = dict(zip(FIELDS, properties, strict=True))
        for name, column in RARE.items():
            if columns[column] is not None:
                headers.setdefault(name, columns[column])
        by_name = dict(annotations)
        key = next((by_name[name] for name in KEYS if by_name.get(name) is not None), columns["group_id"])
        layout.headers = list(headers.items())
        layout.columns = {**columns, "key": key}
        return layout

    def _flush(self) -> None:
        """What no step has yet must be there."""
        if self._must < self._at:
            self._layout.steps.append(Must(self._payload[self._must : self._at]))
        self._must = self._at

    def _size(self, width: int) -> None:
        self._flush()
        self._layout.steps.append(Size(width))
        self._at += width
        self._must = self._at

    def _over(self, stop: int) -> None:
        if self._at != stop:
            raise _NoLayout
        self._flush()
        self._layout.steps.append(Over())

    def _piece(self, octets: int, texts: Texts, *, sized: bool, checked: bool = False) -> Piece:
        """Behind the constructor."""
        self._flush()
        piece = Piece(octets, sized, texts, checked)
        self._layout.steps.append(piece)
        if sized:
            octets += int.from_bytes(self._payload[self._at : self._at + octets], "big")
        self._at += octets
        self._must = self._at
        return piece

    def _value(self) -> Said:
        """The value here, of any type that has a usual encoding."""
        start, form = self._at, self._payload[self._at]
        for widths, kind in _KINDS:
            if form in widths:
                self._flush()
                piece = Varying(widths, kind)
                self._layout.steps.append(piece)
                self._at += 1 + widths[form]
                self._must = self._at
                return piece
        fixed, width = _FIXED.get(form >> 4), _SIZED.get(form >> 4)
        self._at += 1
        if fixed == 0:
            return text(decode_value(self._payload, start)[0])
        texts = _TEXTS.get(form)
        if fixed is not None:
            texts = texts or distinct(_other(form, 0))
            return self._piece(fixed, texts, sized=False, checked=form in (_BOOLEAN, _CHAR))
        if width is not None:
            checked = texts is None or texts in (utf8, ascii_text)
            return self._piece(width, texts or distinct(_other(form, width)), sized=True, checked=checked)
        raise _NoLayout

    def _map(self, stop: int) -> list[tuple[str, Said]]:
        width = self._open(_MAPS)
        count = int.from_bytes(self._payload[self._at : self._at + width], "big")
        self._at += width
        found: dict[str, Said] = {}
        for _ in range(count // 2):
            name, self._at = decode_value(self._payload, self._at)
            found[str(name)] = self._value()
        if len(found) * 2 != count:
            raise _NoLayout
        self._over(stop)
        return list(found.items())

    def _open(self, constructors: dict[int, int]) -> int:
        """The constructor and size here; the octets of the size, and of the count behind it."""
        width = constructors.get(self._payload[self._at])
        if width is None:
            raise _NoLayout
        self._at += 1
        self._size(width)
        return width

    def _properties(self, stop: int) -> list[Said]:
        width = self._open(_LISTS)
        count = int.from_bytes(self._payload[self._at : self._at + width], "big")
        self._at += width
        found: list[Said] = []
        for name, forms in zip(FIELDS[:count], FORMS, strict=False):
            form = self._payload[self._at]
            if form not in forms:
                raise _NoLayout
            if form == 0x83:
                self._at += 1
                piece = self._piece(8, distinct(_time), sized=False)
                found.append(piece)
                if name == "creation_time":
                    self._layout.created = piece
            else:
                found.append(self._value())
        self._over(stop)
        return found + [None] * (len(FIELDS) - len(found))

    def _body(self, code: int, stop: int) -> None:
        form = self._payload[self._at]
        width = _BODIES.get(code, {}).get(form)
        self._at += 1
        if width is not None:
            texts = utf8 if form in (0xA1, 0xB1) else hexadecimal
            self._layout.value = self._piece(width, texts, sized=True, checked=texts is utf8)
        elif code != AMQP_VALUE or form != _NULL:
            raise _NoLayout
        if self._at != stop:
            raise _NoLayout


def _other(form: int, width: int) -> Callable[[bytes], str | None]:
    """Text of a value of a rare type, from the octets behind its constructor and size."""

    def read(octets: bytes) -> str | None:
        size = len(octets).to_bytes(width, "big") if width else b""
        return text(decode_value(bytes((form,)) + size + octets, 0)[0])

    return read


def _time(octets: bytes) -> str:
    return as_time(int.from_bytes(octets, "big", signed=True))
