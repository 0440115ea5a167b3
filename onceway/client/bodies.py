"""Bodies and payloads: the common shapes are encoded and decoded without making a Message of each.

A body is bytes (one data section), str (an amqp-value), or a whole Message.  A payload that arrives begins with the
publisher's identity, which the publisher's router has put there.  These bytes are the same for every message of a
publisher, so they are decoded once.  Everything unusual goes through `amqp10.sections`, and what cannot be decoded is
handed over raw: `read_body` and `Message.read` never raise on account of what somebody has sent.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any, Final, TypeAlias

from amqp10.annotations import message_annotation
from amqp10.codec import encode_value
from amqp10.errors import DecodeError, EncodeError
from amqp10.sections import REMEMBERED, Message
from amqp10.types import Raw
from onceway.errors import UsageError
from router.names import PUBLISHER_ANNOTATION, publisher_named

Body: TypeAlias = bytes | bytearray | memoryview | str | Message

_DATA: Final = b"\x00\x53\x75"
_SHORT_DATA: Final = b"\x00\x53\x75\xa0"
_LONG_DATA: Final = b"\x00\x53\x75\xb0"
_VALUE: Final = b"\x00\x53\x77"
_ANNOTATIONS: Final = b"\x00\x53\x72\xc1"
FORMAT_BYTE: Final = 2
_FORMAT: Final = Struct(">BI")
_SHORT_HEADS: Final = tuple(_SHORT_DATA + bytes((length,)) for length in range(256))


def encode_body(body: Body) -> bytes:
    if type(body) is bytes:
        length = len(body)
        if length < 256:
            return _SHORT_HEADS[length] + body
        return _LONG_DATA + length.to_bytes(4, "big") + body
    if isinstance(body, str):
        return _VALUE + encode_value(str(body))
    if isinstance(body, Message):
        try:
            return body.encode()
        except EncodeError as error:
            raise UsageError(f"this message cannot be encoded: {error}") from error
    if isinstance(body, bytes | bytearray | memoryview):
        return encode_body(bytes(body))
    raise UsageError(f"a body is bytes, str or a Message, not {type(body).__name__}; wrap it: Message(body)")


def read_body(payload: bytes, message_format: int = 0) -> Any:
    """bytes of data sections, the value of an amqp-value, or the lists of amqp-sequences; a `Raw` where the message
    cannot be decoded."""
    if message_format:
        return Message.read(payload, message_format).value
    start = 5 + payload[4] if payload[:4] == _ANNOTATIONS and len(payload) > 4 else 0
    head = payload[start : start + 4]
    if head == _SHORT_DATA:
        begin = start + 5
        if len(payload) >= begin and begin + payload[begin - 1] == len(payload):
            return payload[begin:]
    elif head == _LONG_DATA:
        begin = start + 8
        if begin + int.from_bytes(payload[start + 4 : begin], "big") == len(payload):
            return payload[begin:]
    return Message.read(payload).value


def with_format(payload: bytes, message_format: int) -> bytes:
    """A payload as a store keeps it that has no place for message-formats. Those of AMQP's own (0) are kept as they
    are; they begin with the descriptor of their first section, 0. Others follow the octet 2 and their format."""
    return payload if not message_format else _FORMAT.pack(FORMAT_BYTE, message_format) + payload


def without_format(kept: bytes) -> tuple[bytes, int]:
    """(payload, message-format) of what `with_format` gave."""
    if kept[:1] != b"\x02" or len(kept) < _FORMAT.size:
        return kept, 0
    return kept[_FORMAT.size :], _FORMAT.unpack_from(kept)[1]


def why_raw(body: object) -> str | None:
    """Why a message was not decoded whose body was read as this; None if it was."""
    return body.reason if isinstance(body, Raw) else None


def publisher_of(payload: bytes) -> tuple[str, str] | None:
    """(container-id, link name) of the publisher; None if the payload does not name it."""
    if payload[:4] == _ANNOTATIONS and len(payload) > 4:
        return _publisher_in(payload[: 5 + payload[4]])
    return _publisher_in(payload) if len(payload) <= REMEMBERED else _publisher_in.__wrapped__(payload)


@lru_cache(maxsize=1024)
def _publisher_in(payload: bytes) -> tuple[str, str] | None:
    try:
        return publisher_named(message_annotation(payload, PUBLISHER_ANNOTATION))
    except DecodeError:
        return None
