"""All payloads of one layout as columns at once, although their contents differ.

A layout is the structure of one message's encoding: its sections, the names in its maps, the constructor of each
value.  Contents and lengths of the values may differ.  `layout_of` walks one message and records the steps: bytes that
must be there, a size, a piece to take out.  `Layout.read` takes those steps through all payloads together, by Arrow's
kernels (`pieces`).  A payload that fits every step and ends where it has to is read; the others are left to `fields`,
which also defines what the columns mean.

Sections in an unusual encoding, several body sections, a footer, described values: such messages have no layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from amqp10.annotations import (
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
)
from amqp10.codec import decode_value
from amqp10.errors import DecodeError
from onceway.spark.columns.fields import (
    BINARY_HEADERS,
    FIELDS,
    FIRST_MS,
    FORMS,
    KEYS,
    LAST_MS,
    RARE,
    as_time,
    headers_of,
    text,
    valid_sections,
)
from onceway.spark.columns.pieces import (
    BINARY_HEADERS_TYPE,
    Malformed,
    Payloads,
    Texts,
    ascii_text,
    booleans,
    compact,
    distinct,
    hexadecimal,
    int64,
    integers,
    numbers,
    signed,
    unsigned,
    utf8,
    uuids,
)

_MAPS: Final = {0xC1: 1, 0xD1: 4}  # constructor -> bytes of its size and count
_LISTS: Final = {0xC0: 1, 0xD0: 4}
_FIXED: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}  # upper half of a constructor -> bytes
_SIZED: Final = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
_TEXTS: Final[dict[int, Texts]] = {
    0xA1: utf8, 0xB1: utf8, 0xA3: ascii_text, 0xB3: ascii_text, 0xA0: hexadecimal, 0xB0: hexadecimal, 0x98: uuids,
    0x50: unsigned(1), 0x60: unsigned(2), 0x51: signed(1), 0x61: signed(2),
}  # fmt: skip
# Types whose constructor depends on the value: constructor -> bytes after it
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


@dataclass(frozen=True, slots=True)
class Must:
    """These bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Size:
    """The size of everything up to `Over`, in so many bytes."""

    width: int


@dataclass(frozen=True, slots=True)
class Over:
    """The end of what the last size covers."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """So many bytes, or (sized) as many as a length in so many bytes says."""

    width: int
    sized: bool
    texts: Texts
    checked: bool = False  # its bytes may be invalid: read even if no column needs it


@dataclass(frozen=True, slots=True, eq=False)
class Varying:
    """One of these constructors, and as many bytes as it takes; the piece includes the constructor."""

    widths: dict[int, int]
    texts: Texts
    checked: bool = False


Step: TypeAlias = Must | Size | Over | Piece | Varying
Taken: TypeAlias = Piece | Varying
Places: TypeAlias = dict[Taken, tuple[Any, Any]]  # where each begins and ends
Origin: TypeAlias = str | Taken | None  # a column's source: a constant, or a piece of each payload


@dataclass(slots=True)
class Layout:
    steps: list[Step] = field(default_factory=list)
    columns: dict[str, Origin] = field(default_factory=dict)  # the text columns
    headers: list[tuple[str, Origin]] = field(default_factory=list)
    created: Piece | None = None
    value: Piece | None = None

    def read(self, payloads: Any, needed: Sequence[str], least: int) -> tuple[Any, dict[str, Any]] | None:
        """(which payloads have this layout, their columns); None where fewer than `least` have it.

        `timestamp` is null where the message has none.
        """
        arrow = Payloads(payloads)
        good, everywhere = self._walk(arrow)
        while (count := good.true_count) >= max(least, 1):
            places = everywhere
            if count < len(payloads):
                places = {piece: (start.filter(good), end.filter(good)) for piece, (start, end) in everywhere.items()}
            try:
                return good, self._columns(arrow, places, count, needed)
            except Malformed as error:
                good = pc.replace_with_mask(good, good, error.good)
        return None

    def _walk(self, payloads: Payloads) -> tuple[Any, Places]:
        """(which payloads have this layout, where in those each piece is).

        No step goes back.  So a payload whose steps read beyond its end, into the next payload, misses its end.
        """
        at, stop = payloads.starts, payloads.starts
        good = pa.repeat(pa.scalar(True, pa.bool_()), len(at))
        places: Places = {}
        for step in self.steps:
            if isinstance(step, Must):
                good = pc.and_(good, payloads.are(at, step.data))
                at = pc.add(at, int64(len(step.data)))
            elif isinstance(step, Size):
                size = payloads.length(at, step.width)
                at = pc.add(at, int64(step.width))
                stop = pc.add(at, size)
            elif isinstance(step, Over):
                good = pc.and_(good, pc.equal(at, stop))
            elif isinstance(step, Varying):
                start = at
                width = pc.index_in(payloads.at(at), pa.array(step.widths, pa.uint8()))
                good = pc.and_(good, width.is_valid())
                width = pc.take(
                    pa.array(step.widths.values(), pa.int64()), pc.fill_null(width, pa.scalar(0, pa.int32()))
                )
                at = pc.add(at, pc.add(width, int64(1)))
                places[step] = (start, at)
            else:
                start = at
                if step.sized:
                    start = pc.add(at, int64(step.width))
                    at = pc.add(start, payloads.length(at, step.width))
                else:
                    at = pc.add(at, int64(step.width))
                places[step] = (start, at)
        return pc.and_(good, pc.equal(at, payloads.ends)), places

    def _columns(self, payloads: Payloads, places: Places, rows: int, needed: Sequence[str]) -> dict[str, Any]:
        known: dict[Taken, Any] = {}

        def texts(origin: Origin) -> Any:
            if origin is None or isinstance(origin, str):
                return (
                    pa.nulls(rows, pa.string()) if origin is None else pa.repeat(pa.scalar(origin, pa.string()), rows)
                )
            if origin not in known:
                known[origin] = origin.texts(payloads.pieces(*places[origin]))
            return known[origin]

        def octets(origin: Origin) -> Any:
            if isinstance(origin, Piece) and origin.texts is hexadecimal:
                return payloads.pieces(*places[origin])
            return texts(origin).cast(pa.binary())

        for piece in places:
            if piece.checked:
                texts(piece)
        made: dict[str, Any] = {}
        for name in needed:
            if name == "value":
                made[name] = payloads.pieces(*places[self.value]) if self.value else pa.nulls(rows, pa.binary())
            elif name == "timestamp":
                made[name] = self._timestamps(payloads, places, rows)
            elif name == "headers":
                made[name] = _headers(self.headers, texts, rows, pa.string())
            elif name == BINARY_HEADERS:
                made[name] = _headers(self.headers, octets, rows, pa.binary())
            else:
                made[name] = texts(self.columns.get(name))
        return made

    def _timestamps(self, payloads: Payloads, places: Places, rows: int) -> Any:
        kind = pa.timestamp("us", tz="UTC")
        if self.created is None:
            return pa.nulls(rows, kind)
        times = integers(payloads.pieces(*places[self.created]), 8, signed=True)
        known = pc.and_(pc.greater_equal(times, int64(FIRST_MS)), pc.less_equal(times, int64(LAST_MS)))
        return pc.if_else(known, pc.multiply(times, int64(1000)), pa.scalar(None, pa.int64())).view(kind)


def _headers(headers: Sequence[tuple[str, Origin]], made: Callable[[Origin], Any], rows: int, kind: Any) -> Any:
    """A map of texts, or (kind: binary) a list of keys and bytes; made: the values of one of them."""
    width = len(headers)
    if not width:
        return pa.nulls(rows, pa.map_(pa.string(), kind) if kind == pa.string() else BINARY_HEADERS_TYPE)
    index = numbers(0, rows * width)
    row = pc.divide(index, int64(width))
    name = pc.subtract(index, pc.multiply(row, int64(width)))
    values = pa.concat_arrays([made(origin) for _, origin in headers]).take(pc.add(row, pc.multiply(name, int64(rows))))
    names = pa.array([name for name, _ in headers], pa.string()).take(name)
    bounds = pc.multiply(numbers(0, rows + 1), int64(width)).cast(pa.int32())
    if kind == pa.string():
        return pa.MapArray.from_arrays(bounds, names, values)
    return pa.ListArray.from_arrays(bounds, pa.StructArray.from_arrays([names, values], ["key", "value"]))


# -- the layout of a message


class _NoLayout(Exception):
    """The message has no layout."""


def layout_of(payload: bytes) -> Layout | None:
    """The layout of one message; None where it is invalid or has to be read by itself."""
    try:
        return _Reading(payload).layout()
    except (DecodeError, _NoLayout):
        return None


class _Reading:
    """Walks one message and records the steps."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._layout = Layout()
        self._must = 0  # from here to `_at`, no step covers the bytes yet
        self._at = 0

    def layout(self) -> Layout:
        payload, layout = self._payload, self._layout
        found = valid_sections(payload)
        if not found or found[-1][0] not in _BODIES:
            raise _NoLayout
        annotations: list[tuple[str, Origin]] = []
        application: list[tuple[str, Origin]] = []
        properties: list[Origin] = [None] * len(FIELDS)
        origin: list[tuple[str, Origin]] = []
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
                    shown = headers_of(payload[start:stop], b"")[1]
                    origin += [(name, value) for name, value in shown if not isinstance(value, bytes)]  # none is
            elif (code, start, stop) == found[-1]:
                self._body(code, stop)
            else:
                raise _NoLayout
        self._flush()
        headers = dict(application)
        for name, value in [*annotations, *origin]:
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
        """Bytes that no step covers yet must be there."""
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

    def _piece(self, width: int, texts: Texts, *, sized: bool, checked: bool = False) -> Piece:
        """After the constructor."""
        self._flush()
        piece = Piece(width, sized, texts, checked)
        self._layout.steps.append(piece)
        self._at += width + (self._number(width) if sized else 0)
        self._must = self._at
        return piece

    def _number(self, width: int) -> int:
        return int.from_bytes(self._payload[self._at : self._at + width], "big")

    def _value(self) -> Origin:
        """The value here, of any type with a usual encoding."""
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

    def _map(self, stop: int) -> list[tuple[str, Origin]]:
        width = self._open(_MAPS)
        count = self._number(width)
        self._at += width
        found: dict[str, Origin] = {}
        for _ in range(count // 2):
            name, self._at = decode_value(self._payload, self._at)
            found[str(name)] = self._value()
        if len(found) * 2 != count:
            raise _NoLayout
        self._over(stop)
        return list(found.items())

    def _open(self, constructors: dict[int, int]) -> int:
        """Reads constructor and size here; returns the width of the size, and of the count after it."""
        width = constructors.get(self._payload[self._at])
        if width is None:
            raise _NoLayout
        self._at += 1
        self._size(width)
        return width

    def _properties(self, stop: int) -> list[Origin]:
        width = self._open(_LISTS)
        count = self._number(width)
        self._at += width
        found: list[Origin] = []
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
    """The text of a value of a rare type, from the bytes after its constructor and size."""

    def read(data: bytes) -> str | None:
        size = len(data).to_bytes(width, "big") if width else b""
        return text(decode_value(bytes((form,)) + size + data, 0)[0])

    return read


def _time(data: bytes) -> str:
    return as_time(int.from_bytes(data, "big", signed=True))
