"""What a pipe says on the wire and writes into its store: names, positions in messages, control records, log entries.

A record of the store is a message as readers get it; or a control record, whose first byte is 1 and the rest JSON; or a
message of another format than AMQP's, as `with_format` keeps it: it has no annotations, so its position is in its
delivery-tag only. A message begins with the descriptor of its first section, 0. docs/wire.md has the names.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

from amqp10.annotations import message_annotation, with_message_annotation
from amqp10.encoder import encode_symbol
from amqp10.errors import DECODE_ERROR, DecodeError
from amqp10.sections import Message
from onceway.client.bodies import encode_body, read_body, without_format
from router.json_text import write_json
from router.names import PUBLISHER_ANNOTATION

# Link properties, of a reader's attach and of the answer.
FROM: Final = "onceway:from"
RESUMED: Final = "onceway:resumed"
CONTROL: Final = "onceway:control"
ENTRIES: Final = "onceway:entries"
"""As in NAME.log, for a store that reads what it lacks."""
FIRST: Final = "onceway:first"
NEXT: Final = "onceway:next"
EPOCH: Final = "onceway:pipe-epoch"
EPOCHS: Final = "onceway:pipe-epochs"
FENCE: Final = "onceway:pipe-fence"
END: Final = "end"
"""A value of FROM."""

RESET: Final = "onceway:reset"
"""Application property of a message that resets the pipe: the id by which its sender finds the answer."""
COMMAND: Final = "onceway:pipe-command"
"""Link property: what the store is to do before it answers, for a promotion."""
REFUSED: Final = "onceway:refused"
"""Condition: the command cannot be followed."""
PIPE_RESET: Final = "onceway:pipe-reset"
"""Condition: what the reader wanted to go on with was removed by a reset."""
PIPE_DROPPED: Final = "onceway:pipe-dropped"
"""Condition: what the reader wanted was dropped by retention."""
IF_GONE: Final = "onceway:if-gone"
"""What a link wants when the position is gone that comes next: one of the two that follow."""
GONE_ERROR: Final = "error"
GONE_FIRST: Final = "first"

MARK: Final = b"onceway:"
"""In each message that is more to a pipe than its content: in RESET, CONTROL."""
checksum: Final = crc32
POSITION_ANNOTATION: Final = "x-opt-onceway-position"
_NAME: Final = POSITION_ANNOTATION.encode()
_KEY: Final = encode_symbol(POSITION_ANNOTATION)
_ANNOTATIONS: Final = b"\x00\x53\x72\xc1"
_NO_ANNOTATIONS: Final = frozenset(
    (b"\x00\x53\x73", b"\x00\x53\x74", b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77")
)
_PAIR: Final = len(_KEY) + 9
_ONLY_KEY: Final = _ANNOTATIONS + bytes((1 + _PAIR, 2)) + _KEY + b"\x80"
_ULONG: Final = Struct(">Q")
_ENTRY: Final = Struct(">QQIB")
_BESIDE: Final = _ENTRY.size + 8  # octets of an entry, and of the section that it is in, beside its tag and its record
_REMEMBERED: Final = Struct(">IB")
CONTROL_BYTE: Final = 1
_RESET_BYTES: Final = RESET.encode()
_CONTROL_BYTES: Final = CONTROL.encode()


Epochs = list[list[int]]
"""Of the promotions of a log, in order: the epoch, and the position at which it begins."""


class Entry(NamedTuple):
    """One record of a pipe with what recognises the delivery that it came in."""

    record: bytes
    tag: bytes = b""
    check: int = 0  # of the payload as it was delivered: foreign clients may use a tag again


def with_position(payload: bytes, position: int) -> bytes:
    """The message with its position in its annotations.

    Raises:
        DecodeError: It is not an AMQP message.
    """
    if payload[:4] == _ANNOTATIONS:
        end = 5 + payload[4]
        head = _with_key(payload[:end])
        if head is not None:
            return b"".join((head, _ULONG.pack(position), payload[end:]))
    elif payload[:3] in _NO_ANNOTATIONS:
        return b"".join((_ONLY_KEY, _ULONG.pack(position), payload))
    return with_message_annotation(payload, POSITION_ANNOTATION, b"\x80" + _ULONG.pack(position))


@lru_cache(1024)  # a publisher's messages begin alike
def _with_key(annotations: bytes) -> bytes | None:
    """Short annotations, up to where the position belongs; None where it has to be done with care. They may have it: a
    message that was read from a pipe. Its key may be encoded in several ways, so its name is looked for."""
    size, count, rest = annotations[4], annotations[5], annotations[6:]
    if size + _PAIR > 255 or _NAME in rest:
        return None
    return b"".join((_ANNOTATIONS, bytes((size + _PAIR, count + 2)), rest, _KEY, b"\x80"))


def reset_id(payload: bytes) -> str | None:
    """The id in a message that resets the pipe; None for every other message."""
    if _RESET_BYTES not in payload:
        return None
    found = (Message.read(payload).application_properties or {}).get(RESET)
    return str(found) if isinstance(found, str) else None


def _are_epochs(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list) and list(map(type, each)) == [int, int] for each in value
    )


def _is(kind: type) -> Callable[[Any], bool]:
    return lambda value: type(value) is kind


_CONTROLS: Final[dict[str, dict[str, Callable[[Any], bool]]]] = {
    "reset": {"reset": _is(str), "removed": _is(int)},
    "dropped": {"dropped": _is(int)},
    "promoted": {"promoted": _is(str), "epoch": _is(int)},
    "epochs": {"epochs": _are_epochs, "next": _is(int)},
}
"""Kinds of control records, by the key that names them: what each has to say. Later versions may have more."""


def control(**what: Any) -> bytes:
    assert _is_control(what), what
    return bytes((CONTROL_BYTE,)) + write_json(what).encode()


def _is_control(what: Any) -> bool:
    if not isinstance(what, dict):
        return False
    needs = [need for kind, wants in _CONTROLS.items() if kind in what for need in wants.items()]
    return all(fits(what.get(key)) for key, fits in needs)


def read_control(record: bytes) -> dict[str, Any] | None:
    """None for a message."""
    if record[:1] != b"\x01":
        return None
    read: dict[str, Any] = json.loads(record[1:])
    return read


def control_message(record: bytes, position: int) -> bytes:
    """A control record as readers get it that ask for them."""
    what = write_json(read_control(record))
    return with_position(Message(None, application_properties={CONTROL: what}).encode(), position)


def has_no_publisher(payload: bytes) -> bool:
    """Whether readers may take it for a control record: routers name the publisher in what clients send. DecodeError
    if it is no message."""
    return _CONTROL_BYTES in payload and message_annotation(payload, PUBLISHER_ANNOTATION) is None


def control_in(payload: bytes) -> dict[str, Any] | None:
    """What `control_message` has made; None for a message."""
    if not has_no_publisher(payload):
        return None
    found = (Message.read(payload).application_properties or {}).get(CONTROL)
    if not isinstance(found, str):
        return None
    read: dict[str, Any] = json.loads(found)
    return read


def epoch_of(number: int, store: str) -> int:
    """An epoch: its number, then its primary: of two stores that were promoted apart each has its own."""
    return number << 32 | crc32(store.encode())


def number_of(epoch: int) -> int:
    """As people count them."""
    return epoch >> 32


def encode_entry(epoch: int, position: int, entry: Entry) -> bytes:
    """A payload of the topic NAME.log."""
    head = _ENTRY.pack(epoch, position, entry.check, len(entry.tag))
    return encode_body(b"".join((head, entry.tag, entry.record)))


def octets_of_entry(entry: Entry) -> int:
    """Of such a payload, at most."""
    return _BESIDE + len(entry.tag) + len(entry.record)


def decode_entry(payload: bytes) -> tuple[int, int, Entry]:
    """(epoch, position, entry) of a payload of the topic NAME.log. DecodeError if no store has written it."""
    data = read_body(payload)
    if not isinstance(data, bytes) or len(data) < _ENTRY.size or len(data) < _ENTRY.size + data[_ENTRY.size - 1]:
        raise DecodeError(DECODE_ERROR, "this is no entry of a pipe's log", 0)
    epoch, position, check, size = _ENTRY.unpack_from(data)
    start = _ENTRY.size + size
    record = data[start:]
    if not _is_record(record):
        raise DecodeError(DECODE_ERROR, "this entry of a pipe's log has no record", 0)
    return epoch, position, Entry(record, data[_ENTRY.size : start], check)


def _is_record(record: bytes) -> bool:
    """Whether a store may have written it."""
    if record[:1] == b"\x01":
        try:
            return _is_control(json.loads(record[1:]))
        except (ValueError, RecursionError):
            return False
    return record[:1] == b"\x00" or bool(without_format(record)[1])


def encode_remembered(entries: list[Entry]) -> bytes:
    """Of the entries of one commit: what recognises their deliveries."""
    pack = _REMEMBERED.pack
    return b"".join([pack(check, len(tag)) + tag for _, tag, check in entries])


def decode_remembered(data: bytes) -> list[tuple[bytes, int]]:
    found = []
    offset = 0
    while offset < len(data):
        check, size = _REMEMBERED.unpack_from(data, offset)
        offset += _REMEMBERED.size
        found.append((data[offset : offset + size], check))
        offset += size
    return found
