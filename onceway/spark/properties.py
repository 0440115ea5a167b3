"""The properties and application-properties sections as text: usual forms quickly, all others through `amqp10`.

The quick readers return None for what they do not know and for what is wrong; the codec then reads it, or says in
its words what is wrong with it.
"""

from __future__ import annotations

import uuid
from typing import Any, Final

from amqp10.codec import decode_value
from amqp10.errors import DecodeError
from amqp10.sections import Message
from onceway.spark.text import text

Headers = list[tuple[str, str | None]]
Properties = list[Any]  # by their order in 3.2.4; all but the two times as text

NO_PROPERTIES: Final[Properties] = [None] * 13
_ID: Final = frozenset((0x40, 0xA1, 0x53, 0x44, 0x80, 0x98, 0xA0))
_STRING: Final = frozenset((0x40, 0xA1))
_SYMBOL: Final = frozenset((0x40, 0xA3))
_TIME: Final = frozenset((0x40, 0x83))
_COUNT: Final = frozenset((0x40, 0x52, 0x43, 0x70))
FIELDS: Final = (  # 3.2.4
    *("message_id", "user_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding"),
    *("absolute_expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id"),
)
FORMS: Final = (  # the usual constructors of each
    *(_ID, frozenset((0x40, 0xA0)), _STRING, _STRING, _STRING, _ID, _SYMBOL, _SYMBOL, _TIME, _TIME),
    *(_STRING, _COUNT, _STRING),
)


def _quick_properties(payload: bytes, start: int, stop: int) -> Properties | None:
    if payload[start + 1] != 0x53 or payload[start + 3] != 0xC0 or stop - start < 6:
        return None
    count, at = payload[start + 5], start + 6
    if count > 13:
        return None
    values: Properties = []
    append = values.append
    try:
        for forms in FORMS[:count]:
            form = payload[at]
            if form not in forms:
                return None
            if form == 0x40:
                append(None)
                at += 1
            elif form == 0xA1 or form == 0xA3:
                end = at + 2 + payload[at + 1]
                append(payload[at + 2 : end].decode("utf-8" if form == 0xA1 else "ascii"))
                at = end
            elif form == 0x83:
                append(int.from_bytes(payload[at + 1 : at + 9], "big", signed=True))
                at += 9
            elif form == 0x53 or form == 0x52:
                append(str(payload[at + 1]))
                at += 2
            elif form == 0x44 or form == 0x43:
                append("0")
                at += 1
            elif form == 0x80 or form == 0x70:
                end = at + (9 if form == 0x80 else 5)
                append(str(int.from_bytes(payload[at + 1 : end], "big")))
                at = end
            elif form == 0x98:
                append(str(uuid.UUID(bytes=payload[at + 1 : at + 17])))
                at += 17
            else:
                end = at + 2 + payload[at + 1]
                append(payload[at + 2 : end].hex())
                at = end
    except (IndexError, ValueError):  # UnicodeDecodeError too: the codec will say it better
        return None
    return values + NO_PROPERTIES[count:] if at == stop else None


def read_properties(payload: bytes, start: int, stop: int) -> Properties:
    """The section from start to stop, whatever form it has.  Raises DecodeError."""
    quick = _quick_properties(payload, start, stop)
    if quick is not None:
        return quick
    fields = Message.decode(payload[start:stop]).properties
    assert fields is not None
    return [
        text(fields.message_id),
        text(fields.user_id),
        fields.to,
        fields.subject,
        fields.reply_to,
        text(fields.correlation_id),
        text(fields.content_type),
        text(fields.content_encoding),
        fields.absolute_expiry_time,
        fields.creation_time,
        fields.group_id,
        text(fields.group_sequence),
        fields.reply_to_group_id,
    ]


def read_application(part: bytes) -> Headers:
    """The whole section.  Raises DecodeError."""
    quick = _quick_application(part)
    if quick is not None:
        return quick
    values = Message.decode(part).application_properties or {}
    return [(str(name), text(value)) for name, value in values.items()]


def _quick_application(part: bytes) -> Headers | None:
    if part[1] != 0x53 or part[3] != 0xC1 or len(part) < 6 or part[5] & 1:
        return None
    found: dict[str, str | None] = {}
    at = 6
    try:
        for _ in range(part[5] >> 1):
            if part[at] != 0xA1:
                return None
            end = at + 2 + part[at + 1]
            name = part[at + 2 : end].decode()
            form = part[end]
            if form == 0xA1:
                at = end + 2 + part[end + 1]
                found[name] = part[end + 2 : at].decode()
            else:
                value, at = decode_value(part, end)
                found[name] = text(value)
    except (IndexError, ValueError, DecodeError):  # the codec will say it better
        return None
    return list(found.items()) if at == len(part) and 2 * len(found) == part[5] else None
