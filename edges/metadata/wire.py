"""The bytes between an edge and its clients: MessagePack in two dialects (docs/contracts/metadata-pubsub.md).

A client's first byte says which dialect the connection speaks. A value is passed on as the bytes that came.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgpack

from router.links.predicate import Value

PUBLISH: Final = 0
QUERY: Final = 1
DIFF: Final = 2
ERROR: Final = 3
MOST_KEY_CHARACTERS: Final = 1024
READ_BYTES: Final = 64 << 10  # that were read before they are dropped from the buffer

Changes = dict[str, Value | None]
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ARRAY: Final = frozenset((0x93, 0xDC, 0xDD))
_TYPE_BYTES: Final = frozenset((PUBLISH, QUERY, DIFF))
_pack: Final[Callable[[Any], bytes]] = msgpack.Packer().pack


class Publish(NamedTuple):
    """A publisher's message.

    Attributes:
        changes: What of its metadata has changed; None deletes a key.
        value: MessagePack.
    """

    uuid: str
    changes: Changes
    value: bytes


class Subscribe(NamedTuple):
    """A client wants the publishers that match a predicate."""

    predicate: str


class Fault(NamedTuple):
    """Something that a client sent cannot be taken. `fatal`: nor can anything behind it."""

    text: str
    fatal: bool = False


class ArrayDialect:
    """Dialect (a): a string subscribes, an array of three publishes, a map answers."""

    __slots__ = ()

    @staticmethod
    def diff(new: Iterable[str], gone: Iterable[str]) -> bytes:
        return _pack({"New": list(new), "Del": list(gone)})

    @staticmethod
    def message(uuid: str, changes: Changes, value: bytes) -> bytes:
        return b"\x93" + _pack(uuid) + _pack(changes) + value

    @staticmethod
    def error(text: str, line: int | None = None, column: int | None = None) -> bytes:
        return _pack(_error(text, line, column))


class TypedDialect:
    """Dialect (b): each message is a byte that says its type, and a map."""

    __slots__ = ()

    @staticmethod
    def diff(new: Iterable[str], gone: Iterable[str]) -> bytes:
        return b"\x02" + _pack({"New": list(new), "Del": list(gone)})

    @staticmethod
    def message(uuid: str, changes: Changes, value: bytes) -> bytes:
        return b"\x00\x83\xa4UUID" + _pack(uuid) + b"\xa8Metadata" + _pack(changes) + b"\xa5Value" + value

    @staticmethod
    def error(text: str, line: int | None = None, column: int | None = None) -> bytes:
        return b"\x03" + _pack(_error(text, line, column))


Dialect = ArrayDialect | TypedDialect
ARRAYS: Final = ArrayDialect()
TYPED: Final = TypedDialect()


class Decoder:
    """One client's bytes to messages.

    Attributes:
        dialect: Known with the first byte.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self.dialect: Dialect = ARRAYS
        self._most = max_message_bytes
        self._buffer = bytearray()
        self._base = 0  # the position of the buffer's first byte in the stream
        self._start = 0  # of the value that is being read
        self._skipper = msgpack.Unpacker(max_buffer_size=0)  # bounded by `feed`, which can name the limit
        self._type: int | None = None  # dialect (b): the byte before the map
        self._begun = False
        self._first: int | None = None  # byte of the connection, until it is looked at
        self._ended = False

    def add(self, data: bytes) -> None:
        """More has come. After a fatal fault nothing is taken any more."""
        if self._ended:
            return
        if not self._begun and data:
            self._begun = True
            self._first = data[0]
            if self._first in _TYPE_BYTES:
                self.dialect = TYPED
        self._buffer += data
        self._skipper.feed(data)

    def next(self) -> Publish | Subscribe | Fault | None:
        """Returns what comes next; None until more has come."""
        if self._ended:
            return None
        first = self._first
        if first is not None:
            self._first = None
            if not (first in _TYPE_BYTES or 0xA0 <= first <= 0xBF or 0xD9 <= first <= 0xDB or first in _ARRAY):
                text = f"a connection begins with a string, an array of three or a type byte 0 to 2, not {first:#x}"
                return self._end(text)
        while True:
            try:
                self._skipper.skip()
            except msgpack.OutOfData:
                self._drop_read()
                return self._too_large() if len(self._buffer) > self._most else None
            except (ValueError, msgpack.StackError) as error:
                return self._end(f"this is not MessagePack, or nested too deeply: {error}")
            end = self._skipper.tell()
            raw = bytes(self._buffer[self._start - self._base : end - self._base])
            self._start = end
            if self._start - self._base > READ_BYTES:
                self._drop_read()
            if len(raw) > self._most:
                return self._too_large()
            try:
                message = self._message(raw)
            except _Wrong as wrong:
                message = Fault(str(wrong), wrong.fatal)
                self._ended = wrong.fatal
            if message is not None:
                return message

    def feed(self, data: bytes) -> list[Publish | Subscribe | Fault]:
        """Adds data, and returns all that can be read then."""
        self.add(data)
        found: list[Publish | Subscribe | Fault] = []
        while (message := self.next()) is not None:
            found.append(message)
        return found

    def _drop_read(self) -> None:
        del self._buffer[: self._start - self._base]
        self._base = self._start

    def _too_large(self) -> Fault:
        return self._end(f"a message has at most {self._most} bytes here (--max-message)")

    def _end(self, text: str) -> Fault:
        self._ended = True
        self._buffer.clear()
        return Fault(text, fatal=True)

    def _message(self, raw: bytes) -> Publish | Subscribe | Fault | None:
        if self.dialect is ARRAYS:
            return _subscribe(_part(raw)) if raw[0] not in _ARRAY else _publish_array(raw)
        if self._type is None:
            if raw[0] not in _TYPE_BYTES or len(raw) > 1:
                raise _Wrong("expected a type byte 0 to 2 and a map", fatal=True)
            self._type = raw[0]
            return None
        kind, self._type = self._type, None
        fields = fields_of(raw)
        if kind == PUBLISH:
            value = fields.get("Value", b"\xc0")
            return Publish(_uuid(_needed(fields, "UUID")), changes_of(_part(fields.get("Metadata", b"\xc0"))), value)
        if kind == QUERY:
            return _subscribe(_needed(fields, "Query"))
        raise _Wrong("clients publish (0) and query (1); diffs (2) come from the edge")


class _Wrong(ValueError):
    def __init__(self, text: str, *, fatal: bool = False) -> None:
        super().__init__(text)
        self.fatal = fatal


def _publish_array(raw: bytes) -> Publish:
    unpacker = msgpack.Unpacker()
    unpacker.feed(raw)
    length = unpacker.read_array_header()
    if length != 3:
        raise _Wrong(f"a publication is an array of 3 [uuid, metadata, value], not of {length}")
    try:
        uuid = unpacker.unpack()
        changes = unpacker.unpack()
    except ValueError as error:
        raise _Wrong(f"uuid or metadata cannot be read: {error}") from None
    return Publish(_uuid(uuid), changes_of(changes), raw[unpacker.tell() :])


def fields_of(raw: bytes) -> dict[str, bytes]:
    """The values of a map, as they are."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(raw)
    try:
        count = unpacker.read_map_header()
    except ValueError:
        raise _Wrong("expected a map behind the type byte", fatal=True) from None
    fields = {}
    for _ in range(count):
        try:
            name = unpacker.unpack()
        except ValueError as error:
            raise _Wrong(f"a name in the map cannot be read: {error}") from None
        start = unpacker.tell()
        unpacker.skip()
        if not isinstance(name, str):
            raise _Wrong(f"names in the map are strings, not {name!r:.40}")
        fields[name] = raw[start : unpacker.tell()]
    return fields


def _needed(fields: dict[str, bytes], name: str) -> Any:
    if name not in fields:
        raise _Wrong(f"the map has no {name}")
    return _part(fields[name])


def _part(raw: bytes) -> Any:
    try:
        return msgpack.unpackb(raw)
    except ValueError as error:
        raise _Wrong(f"this cannot be read: {error}") from None


def _subscribe(text: Any) -> Subscribe:
    if not isinstance(text, str):
        raise _Wrong(f"a subscription is a string, and a publication an array of 3, not {text!r:.60}")
    return Subscribe(text)


def _uuid(value: Any) -> str:
    if isinstance(value, bytes) and len(value) == 16:
        return str(UUID(bytes=value))
    if isinstance(value, str) and _UUID.fullmatch(value):
        return value.lower()
    raise _Wrong(f"a publisher is named by a UUID, as text or as 16 bytes, not by {value!r:.60}")


def changes_of(value: Any) -> Changes:
    """What of a publisher's metadata has changed. Raises ValueError."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _Wrong(f"metadata are a map, not {value!r:.60}")
    for key, each in value.items():
        if not isinstance(key, str) or not key or len(key) > MOST_KEY_CHARACTERS:
            raise _Wrong(f"a metadata key is a string of 1 to {MOST_KEY_CHARACTERS} characters, not {key!r:.60}")
        if each is not None and not isinstance(each, str | int | float):
            raise _Wrong(f"metadata {key!r:.60}: a string, a number, a boolean, or nil to delete it, not {each!r:.60}")
    return value


_SIZES: Final[tuple[int, ...]] = (
    *(1,) * 0x80,  # positive fixint
    *(0,) * 0x20,  # fixmap, fixarray
    *range(1, 0x21),  # fixstr
    *(1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 5, 9),  # nil, -, false, true, bin, ext, float
    *(2, 3, 5, 9, 2, 3, 5, 9),  # uint, int
    *(3, 4, 6, 10, 18, 0, 0, 0, 0, 0, 0, 0),  # fixext, str, array, map
    *(1,) * 0x20,  # negative fixint
)
"""By the first byte of a value: how many bytes it has; 0: it says so itself."""


def is_value(raw: Any) -> bool:
    """Whether these are the bytes of one value of MessagePack, and no more: clients get them as they are."""
    if not isinstance(raw, bytes) or not raw:
        return False
    if size := _SIZES[raw[0]]:
        return len(raw) == size
    unpacker = msgpack.Unpacker(read_size=1024, max_buffer_size=0)  # else it takes a MiB of memory
    unpacker.feed(raw)
    try:
        unpacker.skip()
    except (ValueError, msgpack.UnpackException):
        return False
    return bool(unpacker.tell() == len(raw))


class Values:
    """Bytes to the values of MessagePack that they hold, each as the bytes that came: none is decoded."""

    def __init__(self) -> None:
        self._skipper = msgpack.Unpacker(max_buffer_size=0)
        self._buffer = bytearray()
        self._base = 0  # the position of the buffer's first byte in the stream

    def feed(self, data: bytes) -> list[bytes]:
        """Raises ValueError: it is not MessagePack."""
        self._buffer += data
        self._skipper.feed(data)
        found = []
        start = 0
        while True:
            try:
                self._skipper.skip()
            except msgpack.OutOfData:
                break
            end = self._skipper.tell() - self._base
            found.append(bytes(self._buffer[start:end]))
            start = end
        del self._buffer[:start]
        self._base += start
        return found


def _error(text: str, line: int | None, column: int | None) -> dict[str, Any]:
    return {"Error": text} if line is None else {"Error": text, "Line": line, "Column": column}
