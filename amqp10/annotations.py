"""A message annotation in an encoded payload: added, replaced or read, and all other bytes are left as they are.

Knows where sections begin and end (AMQP 3.2), and not what is in them: that is sections.py. The caller must not use it
on a payload of another message-format (AMQP 2.7.5).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from amqp10.composite import read_descriptor, wrong_type
from amqp10.decoder import check_count, check_end, compound_head, decode_value, value_end
from amqp10.decoder import skip_value as skip
from amqp10.encoder import encode_map, encode_symbol
from amqp10.errors import DECODE_ERROR, RESOURCE_LIMIT_EXCEEDED, DecodeError
from amqp10.frames import LARGE
from amqp10.types import Symbol

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
AMQP_SEQUENCE: Final = 0x76
AMQP_VALUE: Final = 0x77
FOOTER: Final = 0x78
_SYMBOLIC: Final = {
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": AMQP_SEQUENCE,
    "amqp:amqp-value:*": AMQP_VALUE,
    "amqp:footer:map": FOOTER,
}


def section_head(code: int) -> bytes:
    return bytes((0x00, 0x53, code))


MOST_ANNOTATIONS: Final = 1024
"""Message annotations of a message that routers take: they look at each."""
MOST_SECTIONS: Final = 1024
"""Sections that routers step through. Behind those they look for a name in all octets at once."""
_SECTION_HEAD: Final = 64  # bytes in which a section's descriptor and the size of its value are, in any encoding
SEARCHED: Final = 2_048
"""Bytes up to which looking for a name is quicker than going through the sections."""
_BEHIND_ANNOTATIONS: Final = frozenset(section_head(code) for code in range(PROPERTIES, FOOTER + 1))
_TEXT: Final = (0xA3, 0xB3, 0xA1, 0xB1)  # the constructors of symbols and strings
_EMPTY_HEADER: Final = section_head(HEADER) + b"\x45"


def sections(payload: bytes) -> list[tuple[int, int, int]]:
    """(descriptor code, start, end) of each section, descriptor included; their contents are not read."""
    found = []
    start = 0
    end = len(payload)
    while start < end:
        code, value_at = read_section(payload, start, end)
        stop = skip(payload, value_at, end)
        found.append((code, start, stop))
        start = stop
    return found


def misplaced(at: int) -> DecodeError:
    """What is wrong with a section behind one that it must not come behind (AMQP 3.2)."""
    return DecodeError(DECODE_ERROR, "header and annotations come once each, and before other sections", at)


def with_message_annotation(payload: bytes, key: str, encoded_value: bytes, most: int | None = None) -> bytes:
    """The payload with this message annotation added or replaced; all other bytes are unchanged.

    encoded_value: from codec.encode_value. most: how many annotations it may have. DecodeError if the payload has no
    sections up to where it must go, or may have the annotation at a second place.
    """
    start, stop = _find_annotations(payload)
    _check_claims(payload, key.encode(), stop)
    return _annotated(payload, start, stop, key, encoded_value, most)


def _annotated(payload: bytes, start: int, stop: int, key: str, encoded_value: bytes, most: int | None) -> bytes:
    """The payload, whose message-annotations are (or belong) at start..stop, with this one."""
    if start == stop:
        return _replaced(payload, start, stop, _annotations(key, encoded_value))
    entries: list[bytes] = []
    for entry_key, begin, middle, end in _annotation_entries(payload, start, stop, most):
        if entry_key != key:
            entries += (payload[begin:middle], payload[middle:end])
    entries += (encode_symbol(key), encoded_value)
    return _replaced(payload, start, stop, section_head(MESSAGE_ANNOTATIONS) + encode_map(entries))


def _replaced(payload: bytes, start: int, stop: int, section: bytes) -> bytes:
    """The payload with these bytes in place of start..stop. A large one is copied once."""
    if len(payload) < LARGE:
        return payload[:start] + section + payload[stop:]
    view = memoryview(payload)
    return b"".join((view[:start], section, view[stop:]))


def with_message_annotations(payloads: list[bytes], key: str, encoded_value: bytes) -> list[bytes]:
    """with_message_annotation for a run of payloads, of at most MOST_ANNOTATIONS each."""
    section = _annotations(key, encoded_value)
    behind, named = _BEHIND_ANNOTATIONS, key.encode()
    annotated = []
    for payload in payloads:
        if len(payload) > SEARCHED or named in payload:
            annotated.append(with_message_annotation(payload, key, encoded_value, MOST_ANNOTATIONS))
        elif payload[:3] in behind:
            annotated.append(section + payload)
        elif payload[:4] == _EMPTY_HEADER and payload[4:7] in behind:
            annotated.append(_replaced(payload, 4, 4, section))
        else:
            annotated.append(with_message_annotation(payload, key, encoded_value, MOST_ANNOTATIONS))
    return annotated


def with_true_annotation(payload: bytes, key: str, encoded_value: bytes) -> bytes:
    """The payload of a message of any format with this message annotation replaced where it has one. DecodeError if it
    has message-annotations at a wrong place."""
    if key.encode() not in payload:
        return payload
    has_annotations = False
    at, end, left = 0, len(payload), MOST_SECTIONS
    try:
        while at < end and left:
            code, value_at = read_section(payload, at, end)
            has_annotations = has_annotations or code == MESSAGE_ANNOTATIONS
            at = skip(payload, value_at, end)
            left -= 1
    except DecodeError:  # nobody reads annotations in it
        return payload
    if at < end:
        raise _too_many_sections(at)
    return with_message_annotation(payload, key, encoded_value, MOST_ANNOTATIONS) if has_annotations else payload


class SectionWalk:
    """Goes through the sections of a payload that comes in parts: no header and no annotations behind others (AMQP
    3.2). The first part has to hold all sections before the body. Behind MOST_SECTIONS the annotation's name must not
    occur any more, and the sections are not gone through."""

    __slots__ = ("_at", "_key", "_left", "_rest")

    def __init__(self) -> None:
        self._at = 0  # offset of the next section in what is still to come, less the rest
        self._rest = b""  # the beginning of a section whose end is not known yet, or of the name
        self._key = b""
        self._left = MOST_SECTIONS

    def begin(self, payload: bytes, key: str, encoded_value: bytes) -> bytes:
        """The first part with this message annotation added or replaced.

        Raises:
            DecodeError: It has no sections, or the body begins behind this part.
        """
        start, stop = _find_annotations(payload)
        at, end, last = stop, len(payload), MESSAGE_ANNOTATIONS
        while True:
            code, value_at = read_section(payload, at, end)
            if code <= last:
                raise misplaced(at)
            if code > APPLICATION_PROPERTIES:
                break
            last = code
            at = skip(payload, value_at, end)
        self._key = key.encode()
        self._rest = payload[at:]
        self._go_on(_SECTION_HEAD)
        return _annotated(payload, start, stop, key, encoded_value, MOST_ANNOTATIONS)

    def go_on(self, payload: bytes, *, last: bool) -> None:
        """The next part. DecodeError if it has what belongs into the first one, or the last one is cut off."""
        if not self._left:
            self._search(self._rest + payload)
            return
        if self._at >= len(payload):
            self._at -= len(payload)
        else:
            self._rest += payload[self._at :]
            self._at = 0
            self._go_on(1 if last else _SECTION_HEAD)
        if last and self._at and self._left:
            raise DecodeError(DECODE_ERROR, "the last section is cut off", 0)

    def _go_on(self, least: int) -> None:
        rest, at = self._rest, 0
        while len(rest) - at >= least and self._left:
            self._left -= 1
            code, value_at = read_section(rest, at, len(rest))
            if code <= MESSAGE_ANNOTATIONS:
                raise misplaced(at)
            at = value_end(rest, value_at, len(rest))
        if not self._left:
            self._search(rest)
        elif at > len(rest):
            self._at, self._rest = at - len(rest), b""
        else:
            self._rest = rest[at:]

    def _search(self, octets: bytes) -> None:
        if octets.find(self._key) >= 0:
            raise _too_many_sections(0)
        self._rest = octets[max(len(octets) - len(self._key) + 1, 0) :]


def message_annotation(payload: bytes, key: str) -> Any:
    """The value of one message annotation, None if there is no such one; the rest is not decoded."""
    start, stop = _find_annotations(payload)
    if start != stop:
        for entry_key, _, middle, end in _annotation_entries(payload, start, stop):
            if entry_key == key:
                return decode_value(payload, middle, end)[0]
    return None


@lru_cache(maxsize=4096)
def _annotations(key: str, encoded_value: bytes) -> bytes:
    return section_head(MESSAGE_ANNOTATIONS) + encode_map([encode_symbol(key), encoded_value])


def _find_annotations(payload: bytes) -> tuple[int, int]:
    """(start, stop) of the message-annotations, or twice the offset at which they belong."""
    # The usual beginning of proton's and others' messages: a header and no annotations.
    if payload[:4] == _EMPTY_HEADER:
        offset = 4
    elif payload[:4] == b"\x00\x53\x70\xc0" and len(payload) > 4:
        offset = 5 + payload[4]
    else:
        offset = 0
    if payload[offset : offset + 3] in _BEHIND_ANNOTATIONS:
        return offset, offset
    offset, end, last = 0, len(payload), 0
    while offset < end:
        code, value_at = read_section(payload, offset, end)
        if code > MESSAGE_ANNOTATIONS:
            break
        if code <= last:
            raise misplaced(offset)
        last = code
        stop = skip(payload, value_at, end)
        if code == MESSAGE_ANNOTATIONS:
            return offset, stop
        offset = stop
    return offset, offset


def _check_claims(payload: bytes, key: bytes, offset: int) -> None:
    """Raises DecodeError if sections from here on may have this annotation, too. 3.2: sections have an order; readers
    such as proton's and rhea's take the last annotations, wherever they are."""
    if len(payload) - offset <= SEARCHED and payload.find(key, offset) < 0:
        return
    wrong = _wrong_behind(payload, offset)
    if wrong is not None and payload.find(key, offset) >= 0:
        raise wrong


def _wrong_behind(payload: bytes, at: int) -> DecodeError | None:
    """What is wrong with the sections from here on, or that nobody looks at so many."""
    end, left = len(payload), MOST_SECTIONS
    try:
        while at < end:
            code, value_at = read_section(payload, at, end)
            if code <= MESSAGE_ANNOTATIONS:
                return misplaced(at)
            if not left:
                return _too_many_sections(at)
            at = skip(payload, value_at, end)
            left -= 1
    except DecodeError as error:
        return error
    return None


def _too_many_sections(at: int) -> DecodeError:
    text = f"the name of an annotation occurs in a message of more than {MOST_SECTIONS} sections"
    return DecodeError(RESOURCE_LIMIT_EXCEEDED, text, at)


def _annotation_entries(
    payload: bytes, start: int, stop: int, most: int | None = None
) -> list[tuple[str | None, int, int, int]]:
    """(key, its offset, offset of the value, offset behind it) of each entry in the section start..stop; None: it is no
    text. DecodeError if there are more than `most`."""
    at = read_section(payload, start, stop)[1]
    code = payload[at]
    if code not in (0xC1, 0xD1):
        raise wrong_type(payload, at, stop, "message-annotations", "map")
    begin, stop, count = compound_head(payload, at + 1, stop, code == 0xD1, at)
    check_count(count, stop - begin, at)
    if count & 1:
        raise DecodeError(DECODE_ERROR, f"a map cannot have {count} entries, an odd number", at)
    if most is not None and count >> 1 > most:
        text = f"message-annotations have at most {most} entries here, not {count >> 1}"
        raise DecodeError(RESOURCE_LIMIT_EXCEEDED, text, at)
    entries = []
    for _ in range(count >> 1):
        is_text = begin < stop and payload[begin] in _TEXT
        key, middle = decode_value(payload, begin, stop) if is_text else (None, skip(payload, begin, stop))
        end = skip(payload, middle, stop)
        entries.append((key, begin, middle, end))
        begin = end
    check_end(begin, stop)
    return entries


def read_section(payload: bytes, offset: int, end: int) -> tuple[int, int]:
    """(descriptor code, offset of the value) of the section at offset."""
    code, value_at = read_descriptor(payload, offset, end)
    if code is None:
        descriptor = decode_value(payload, offset + 1, end, [0])[0]
        code = _SYMBOLIC.get(descriptor) if isinstance(descriptor, Symbol) else None
    if code is None or not HEADER <= code <= FOOTER:
        raise DecodeError(DECODE_ERROR, "this is no section of a message", offset)
    return code, value_at
