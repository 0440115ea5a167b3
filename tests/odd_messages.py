"""Payloads that a router passes on and that few have thought of: what AMQP allows and its clients seldom send, and bodies
that are malformed, at which routers do not look. Made from the tables of the codec, by constructor, section and property."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from struct import pack

from amqp10.annotations import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    section_head,
)
from amqp10.composite import CODES
from amqp10.decoder import ARRAY_TYPES, MAX_DEPTH, MAX_EMPTY
from amqp10.sections import Header, Properties
from edges.pipe import messages
from router import names
from router.links import expiry
from router.mqtt import conversion, retained

NAMING = (names, conversion, retained, messages, expiry)
Odd = tuple[str, bytes, int]
"""What it is, the payload, the message-format."""

MAPS = (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES, FOOTER)
SYMBOLIC = {code: name for name, code in CODES.items() if HEADER <= code <= FOOTER} | {
    DELIVERY_ANNOTATIONS: "amqp:delivery-annotations:map",
    MESSAGE_ANNOTATIONS: "amqp:message-annotations:map",
    APPLICATION_PROPERTIES: "amqp:application-properties:map",
    DATA: "amqp:data:binary",
    AMQP_SEQUENCE: "amqp:amqp-sequence:list",
    AMQP_VALUE: "amqp:amqp-value:*",
    FOOTER: "amqp:footer:map",
}
BODY = section_head(DATA) + b"\xa0\x01x"
SUBJECT = section_head(PROPERTIES) + b"\xc0\x09\x04\x40\x40\x40\xa1\x03a/b"
FORMATS = (1, 0x100, 0x7777, 2**32 - 1)


def bodies_of(code: int) -> Iterator[tuple[str, bytes]]:
    """What may stand behind this constructor: the ends of its range, and what its type forbids or few support."""
    width = code >> 4
    if width == 0x4:
        yield "", b""
    elif width < 0xA:
        octets = 1 << (width - 5)
        for octet in (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"):
            yield octet.hex(), octet * octets
        if ARRAY_TYPES[code] == "char":
            yield "a surrogate", pack(">I", 0xD800)
            yield "beyond Unicode", pack(">I", 0x110000)
        if ARRAY_TYPES[code] in ("float", "double"):
            form = ">f" if octets == 4 else ">d"
            for number in ("nan", "inf", "-inf", "-0.0"):
                yield number, pack(form, float(number))
    elif width in (0xA, 0xB):
        for text in (b"", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", "e\u0301".encode(), b"a" * 200):
            yield text.hex()[:12], pack(">B" if width == 0xA else ">I", len(text)) + text
    else:
        counted = ">BB" if width in (0xC, 0xE) else ">II"
        wide = 1 if width in (0xC, 0xE) else 4
        for name, count, content in _contents(ARRAY_TYPES[code]):
            if wide == 4 or len(content) + 1 < 256 > count:
                yield name, pack(counted, len(content) + wide, count) + content


def _contents(kind: str) -> Iterator[tuple[str, int, bytes]]:
    if kind == "map":
        yield "empty", 0, b""
        yield "a list as key", 2, b"\x45\x40"
        yield "a map as key", 2, b"\xc1\x01\x00\x40"
        yield "null as key", 2, b"\x40\x40"
        yield "keys that differ in their type", 4, b"\x52\x01\x40\x54\x01\x40"
        yield "a key twice", 4, b"\xa1\x01a\x40\xa1\x01a\x41"
        yield "not a number twice", 4, (b"\x82" + pack(">d", float("nan")) + b"\x40") * 2
        yield "an odd number", 1, b"\x40"
    elif kind == "list":
        yield "empty", 0, b""
        yield "nulls", 200, b"\x40" * 200
        yield "too few", 3, b"\x40"
    else:
        yield "of nothing", 0, b"\x40"
        yield "nulls", MAX_EMPTY + 976, b"\x40"
        yield "of true", 3, b"\x41"
        yield "described", 1, b"\x00\xa3\x01a\x50\x01"
        yield "of arrays", 1, b"\xe0\x03\x01\x50\x07"


def values(*, one_of_each: bool = False) -> Iterator[tuple[str, bytes]]:
    for code, kind in ARRAY_TYPES.items():
        for name, octets in islice(bodies_of(code), 1 if one_of_each else None):
            yield f"{kind} {code:#x} {name}".rstrip(), bytes((code,)) + octets
    yield "described", b"\x00\xa3\x01a\xa1\x01b"
    yield "described twice", b"\x00\xa3\x01a\x00\xa3\x01b\xa1\x01c"
    yield "described by a list", b"\x00\x45\x40"
    yield "deep", b"\x00\x40" * (MAX_DEPTH + 1) + b"\x40"
    yield "cut off", b"\xb0\x00\x00\x01\x00abc"
    yield "of no type", b"\x3f"
    yield "nothing", b""


def known_names() -> list[str]:
    """Annotations and application properties that mean something to us."""
    found = {each for module in NAMING for each in vars(module).values() if isinstance(each, str)}
    return sorted(str(each) for each in found if each.startswith(("x-opt-", "onceway:")))


def _map(*entries: bytes) -> bytes:
    content = b"".join(entries)
    return b"\xd1" + pack(">II", len(content) + 4, len(entries)) + content


def odd_messages() -> Iterator[Odd]:
    """All of them."""
    yield "empty", b"", 0
    yield "octets", b"garbage", 0
    for message_format in FORMATS:
        for payload in (b"", b"garbage", b'{"topic":"a"}', BODY, section_head(AMQP_VALUE) + b"\x40"):
            yield f"format {message_format:#x} {payload[:4].hex()}", payload, message_format
    for name, value in values():
        yield f"amqp-value {name}", section_head(AMQP_VALUE) + value, 0
    for name, value in values(one_of_each=True):
        for code in SYMBOLIC:
            if code not in (AMQP_VALUE, *MAPS):
                yield f"section {code:#x} {name}", section_head(code) + value + (b"" if code >= DATA else BODY), 0
        for code in MAPS:
            behind = BODY if code < DATA else b""
            before = BODY if code >= DATA else b""
            yield f"value in {code:#x} {name}", before + section_head(code) + _map(b"\xa3\x01k", value) + behind, 0
            yield f"key in {code:#x} {name}", before + section_head(code) + _map(value, b"\x40") + behind, 0
    kinds = {ARRAY_TYPES.get(value[0], name): value for name, value in values(one_of_each=True) if value}
    kinds |= {"strings": b"\xc0\x07\x02\xa1\x01a\xa1\x01b", "nulls": b"\xc0\x03\x02\x40\x40", "true": b"\x41"}
    kinds |= {"infinity": b"\x72\x7f\x80\0\0", "numbers": b"\xc0\x0b\x02\x80" + b"\xff" * 8 + b"\x40"}
    for key in known_names():
        for kind, value in kinds.items():
            for form in (b"\xa3", b"\xa1"):
                entry = form + bytes((len(key),)) + key.encode(), value
                yield f"{key} {kind}", section_head(MESSAGE_ANNOTATIONS) + _map(*entry) + SUBJECT + BODY, 0
            yield f"property {key} {kind}", SUBJECT + section_head(APPLICATION_PROPERTIES) + _map(*entry) + BODY, 0
        twice = section_head(MESSAGE_ANNOTATIONS) + _map(*(b"\xa3" + bytes((len(key),)) + key.encode(), b"\x40") * 2)
        yield f"{key} twice", twice + BODY, 0
    for section, fields in ((HEADER, Header.fields), (PROPERTIES, Properties.fields)):
        for number, field in enumerate(fields):
            for name, value in values(one_of_each=True):
                content = b"\x40" * number + value
                listed = b"\xd0" + pack(">II", len(content) + 4, number + 1) + content
                yield f"{field.where} {name}", section_head(section) + listed + BODY, 0
    for code, symbolic in SYMBOLIC.items():
        value = {HEADER: b"\x45", PROPERTIES: b"\x45", DATA: b"\xa0\x01x", AMQP_SEQUENCE: b"\x45", AMQP_VALUE: b"\x40"}
        content = value.get(code, b"\xc1\x01\x00")
        behind = BODY if code < DATA else b""
        for name, head in (("symbol", b"\x00\xa3" + bytes((len(symbolic),)) + symbolic.encode()),
                           ("ulong", b"\x00\x80" + pack(">Q", code))):  # fmt: skip
            yield f"section {code:#x} by a {name}", head + content + behind, 0
        yield f"section {code:#x} twice", (section_head(code) + content) * 2 + behind, 0
        yield f"section {code:#x} behind the body", BODY + section_head(code) + content, 0
        yield f"section {code:#x} alone", section_head(code) + content, 0
