"""The bytes of the messages between routers (protocol 3.5).

`encode` and `decode` are each other's inverse. `decode` trusts nothing: malformed bytes raise PeerProtocolError, and
the owner of the session resets it. The form is one byte for the kind, the address, then the fields
(`router.peers.fields`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from router.core.intervals import OPEN
from router.core.messages import (
    AcceptSync,
    Again,
    Answer,
    Ask,
    Assign,
    Browse,
    Browsed,
    Call,
    Called,
    Clock,
    Credit,
    Declaration,
    DeclaredAddress,
    Draining,
    Entries,
    Finish,
    Finished,
    Flush,
    Hello,
    Hold,
    Join,
    Joined,
    JoinKind,
    JoinResult,
    Keep,
    Kept,
    Leave,
    Message,
    Note,
    Orphan,
    Part,
    PeerProtocolError,
    Pub,
    PubAck,
    PubClose,
    PubDown,
    PublisherNews,
    Queues,
    Reason,
    Recall,
    Recalled,
    Return,
    SettleTags,
    Stopped,
    SubscriptionNews,
    Suspected,
    Sync,
    Taken,
    Told,
    Turn,
    since,
)
from router.core.traffic import Accept, Data, Settle
from router.peers.fields import (
    F64,
    REJECTION,
    U16,
    U32,
    U64,
    PartsReader,
    Reader,
    write_binary,
    write_expected,
    write_kept,
    write_maybe_term,
    write_name,
    write_payload_lengths,
    write_ranges,
    write_rejections,
    write_sparse_payloads,
    write_string,
    write_tags,
    write_term,
)
from router.versions import SPOKEN

LARGE: Final = 16 * 1024  # bytes of a payload that is a part of its own
_ASSIGN: Final = struct.Struct(">Q?IQI")  # round, held, failures, position, message format
_PUBLISHER_TERM: Final = struct.Struct(">8sQ")  # a publisher, and the number of its term
_DATA: Final = struct.Struct(">QIBI")  # position, message format, 1 settled or 2 open, how many
_DATA_TAGS: Final = struct.Struct(">QIBIIB")  # the same, and behind it the number and the length of tags
_PART: Final = struct.Struct(">Q?")  # position, last
_known_string: Final = lru_cache(1024)(write_string)  # of addresses in the most frequent messages
_known_term: Final = lru_cache(1024)(write_term)
WithPayloads = tuple[list[bytes], list[bytes]]
"""The fields before the payloads, and these."""


def _encode_hello(m: Hello) -> bytes:
    parts = [b"\0\0", U64.pack(m.incarnation), b"\1" if m.all_recovered else b"\0", U16.pack(len(m.recovered))]
    parts += [write_string(match) for match in m.recovered]
    parts += [U64.pack(m.settings_digest), U64.pack(m.topology_digest)]
    # what is declared is told once for all routers that declare the same
    contents = list(dict.fromkeys(each.addresses for each in m.declarations))
    parts.append(U16.pack(len(contents)))
    for content in contents:
        parts.append(U32.pack(len(content)))
        for address, closed, names in content:
            parts += [write_string(address), b"\1" if closed else b"\0", U32.pack(len(names)), *map(write_name, names)]
    parts.append(U16.pack(len(m.declarations)))
    for d in m.declarations:
        parts += [write_string(d.router), U64.pack(d.version), U16.pack(contents.index(d.addresses))]
    parts += [U16.pack(len(m.routers)), *map(write_string, m.routers), U16.pack(len(m.up))]
    parts += [write_string(router) + U64.pack(incarnation) for router, incarnation in m.up]
    parts.append(U32.pack(len(m.publishers)))
    for p in m.publishers:
        parts += [write_string(p.address), p.publisher, U64.pack(p.incarnation), write_term(p.term)]
        parts += [F64.pack(p.timeout_s), F64.pack(p.age_s)]
    parts.append(U32.pack(len(m.subscriptions)))
    for s in m.subscriptions:
        born = b"\2" + write_term(s.born) if s.untold and s.born is not None else write_maybe_term(s.born)
        parts += [write_string(s.address), write_name(s.name), born, write_term(s.term)]
        parts += [F64.pack(s.timeout_s), F64.pack(s.age_s), write_binary(s.data)]
    return b"".join(parts)


def _decode_hello(r: Reader, address: str) -> Hello:
    incarnation, all_recovered = r.u64(), r.flag()
    recovered = tuple([r.string() for _ in range(r.fields(U16)[0])])
    settings, topology = r.u64(), r.u64()
    contents = [_decode_declared(r) for _ in range(r.fields(U16)[0])]
    declarations: list[Declaration] = []
    for _ in range(r.fields(U16)[0]):
        router, version, place = r.string(), r.u64(), r.fields(U16)[0]
        if place >= len(contents):
            raise PeerProtocolError(f"declaration {place} of {len(contents)}")
        declarations.append(Declaration(router, version, contents[place]))
    routers = tuple([r.string() for _ in range(r.fields(U16)[0])])
    up = tuple([(r.string(), r.u64()) for _ in range(r.fields(U16)[0])])
    publishers = [
        PublisherNews(r.string(), r.publisher(), r.u64(), r.term(), r.seconds(), r.seconds()) for _ in range(r.many(44))
    ]
    subscriptions = [_decode_subscription_news(r) for _ in range(r.many(35))]
    return Hello(
        incarnation, all_recovered, recovered, settings, topology, declarations, routers, up, publishers, subscriptions
    )


def _decode_subscription_news(r: Reader) -> SubscriptionNews:
    address, name, kind = r.string(), r.name(), r.u8(2)
    born = r.term() if kind else None
    return SubscriptionNews(address, name, born, r.term(), r.seconds(), r.seconds(), r.binary(), kind == 2)


def _decode_declared(r: Reader) -> tuple[DeclaredAddress, ...]:
    return tuple(
        [DeclaredAddress(r.string(), r.flag(), tuple([r.name() for _ in range(r.many(4))])) for _ in range(r.many(7))]
    )


def _encode_puback(m: PubAck) -> bytes:
    head = write_string(m.address) + m.publisher + write_term(m.term)
    if m.stale is None:
        return head + b"\0"
    term, incarnation, real = m.stale
    return head + b"\1" + write_term(term) + U64.pack(incarnation) + (b"\1" if real else b"\0")


def _decode_puback(r: Reader, address: str) -> PubAck:
    publisher, term = r.publisher(), r.term()
    return PubAck(address, publisher, term, (r.term(), r.u64(), r.flag()) if r.flag() else None)


def _encode_join(m: Join) -> bytes:
    head = write_string(m.address) + write_name(m.name) + write_maybe_term(m.born) + write_term(m.term)
    times = F64.pack(m.timeout_s) + F64.pack(m.life_s)
    return head + bytes([m.kind, m.history, m.heard]) + times + write_binary(m.data)


def _decode_join(r: Reader, address: str) -> Join:
    name, born, term = r.name(), r.maybe_term(), r.term()
    kind, history, heard = JoinKind(r.u8(3)), r.flag(), r.flag()
    return Join(address, name, born, term, kind, history, r.seconds(), heard, r.seconds(), r.binary())


def _encode_sync(m: Sync) -> bytes:
    parts = [write_string(m.address), m.publisher, U64.pack(m.incarnation), write_term(m.term), write_name(m.name)]
    parts += [write_term(m.subscription_term), write_expected(m.expected), U32.pack(len(m.entries))]
    for e in m.entries:
        parts += [U64.pack(e.position), U32.pack(e.message_format), write_tags(e.tags)]
        parts += [write_sparse_payloads(e.payloads), write_ranges(e.owed)]
    return b"".join(parts)


def _decode_sync(r: Reader, address: str) -> Sync:
    publisher, incarnation, term = r.publisher(), r.u64(), r.term()
    name, subscription_term, expected = r.name(), r.term(), r.expected()
    if expected is None:
        raise PeerProtocolError("SYNC without expected tags")
    entries: list[Entries] = []
    for _ in range(r.many(21)):
        position, message_format, tags = r.u64(), r.u32(), r.tags()
        if position + len(tags) >= OPEN or not tags:
            raise PeerProtocolError(f"{len(tags)} entries at position {position}")
        entry = Entries(position, message_format, tags, r.sparse_payloads(len(tags)), r.ranges())
        for start, stop in entry.owed:
            if start < position or stop > position + len(tags):
                raise PeerProtocolError(f"tokens {start}..{stop} outside of the entries at {position}")
        entries.append(entry)
    return Sync(address, publisher, incarnation, term, name, subscription_term, entries, expected)


def _encode_data(m: Data) -> WithPayloads:
    head = _DATA.pack(m.position, m.message_format, m.settled + 2 * m.open, len(m.tags))
    parts = [_known_string(m.address), m.publisher, _known_term(m.term), head, write_tags(m.tags)]
    return parts, m.payloads


def _decode_data(r: Reader, address: str) -> Data:
    publisher, number = r.fields(_PUBLISHER_TERM)
    term = number, r.string()
    position, message_format, flags, n, count, length = r.fields(_DATA_TAGS)
    tags = r.tags_of(count, length)
    if len(tags) != n or not n or position + n >= OPEN:
        raise PeerProtocolError(f"DATA of {n} messages at {position} with {len(tags)} tags")
    settled, is_open = flags == 1, flags == 2
    if flags > 2 or (is_open and n > 1):
        raise PeerProtocolError(f"DATA of {n} messages with flags {flags}")
    return Data(address, publisher, term, position, message_format, settled, tags, r.payloads(n), is_open)


def _encode_part(m: Part) -> WithPayloads:
    return [write_string(m.address), _PART.pack(m.position, m.last)], [m.payload]


def _decode_part(r: Reader, address: str) -> Part:
    position, last = r.fields(_PART)
    return Part(address, position, last, r.payloads(1)[0])


def _encode_assign(m: Assign) -> WithPayloads:
    head = _ASSIGN.pack(m.round, m.held, m.failures, m.position, m.message_format)
    parts = [write_string(m.address), m.publisher, write_term(m.term), write_name(m.name)]
    parts += [write_term(m.subscription_term), head, write_tags(m.tags)]
    return parts, m.payloads


def _decode_assign(r: Reader, address: str) -> Assign:
    publisher, term, name, subscription_term = r.publisher(), r.term(), r.name(), r.term()
    number, held, failures, position, message_format = r.fields(_ASSIGN)
    tags = r.tags()
    if not tags or position + len(tags) >= OPEN:
        raise PeerProtocolError(f"ASSIGN of {len(tags)} messages at {position}")
    payloads = r.payloads(len(tags))
    return Assign(
        address, publisher, term, name, subscription_term, number, held, failures, position, message_format, tags,
        payloads,
    )  # fmt: skip


def _encode_browsed(m: Browsed) -> WithPayloads:
    head = U64.pack(m.number) + U64.pack(m.position) + (b"\1" if m.last else b"\0") + U32.pack(m.message_format)
    return [write_string(m.address), head, write_tags(m.tags)], m.payloads


def _decode_browsed(r: Reader, address: str) -> Browsed:
    number, position, last, message_format, tags = r.u64(), r.u64(), r.flag(), r.u32(), r.tags()
    return Browsed(address, number, position, last, message_format, tags, r.payloads(len(tags)))


def _encode_accept(m: Accept) -> bytes:
    return _known_string(m.address) + write_rejections(m.ranges)


def _decode_accept(r: Reader, address: str) -> Accept:
    return Accept(address, r.ranges(REJECTION))


def _encode_settle(m: Settle) -> bytes:
    return _known_string(m.address) + write_ranges(m.ranges)


def _decode_settle(r: Reader, address: str) -> Settle:
    return Settle(address, r.ranges())


Encoded = bytes | list[bytes]
"""A message whole, or in parts, of which none is empty."""
FieldType = tuple[Callable[[Any], bytes], Callable[[Reader], Any]]
"""How a field is written and read."""
Kind = tuple[type[Message], Callable[[Any], bytes | WithPayloads], Callable[[Reader, str], Message]]

_PUBLISHER: Final[FieldType] = (bytes, Reader.publisher)
_U64: Final[FieldType] = (U64.pack, Reader.u64)
_TERM: Final[FieldType] = (write_term, Reader.term)
_MAYBE_TERM: Final[FieldType] = (write_maybe_term, Reader.maybe_term)
_STRING: Final[FieldType] = (write_string, Reader.string)
_NAME: Final[FieldType] = (write_name, Reader.name)
_SECONDS: Final[FieldType] = (F64.pack, Reader.seconds)
_FLAG: Final[FieldType] = (lambda value: b"\1" if value else b"\0", Reader.flag)
_TAGS: Final[FieldType] = (write_tags, Reader.tags)
_BINARY: Final[FieldType] = (write_binary, Reader.binary)
_PAYLOAD: Final[FieldType] = (lambda value: write_payload_lengths([value]) + value, lambda r: r.payloads(1)[0])
_STRINGS: Final[FieldType] = (
    lambda value: U32.pack(len(value)) + b"".join(map(write_string, value)),
    lambda r: [r.string() for _ in range(r.many(2))],
)
_QUEUE_TABLE: Final[FieldType] = (
    lambda value: U32.pack(len(value)) + b"".join([write_string(match) + bytes((queue,)) for match, queue in value]),
    lambda r: tuple([(r.string(), r.flag()) for _ in range(r.many(3))]),
)
_RANGES: Final[FieldType] = (write_ranges, Reader.ranges)
_KEPT: Final[FieldType] = (write_kept, Reader.kept)
_EXPECTED: Final[FieldType] = (write_expected, Reader.expected)
_REJECTIONS: Final[FieldType] = (write_rejections, lambda r: r.ranges(REJECTION))
_JOIN_RESULT: Final[FieldType] = (lambda value: bytes((value,)), lambda r: JoinResult(r.u8(3)))


def _in_order(cls: Any, *types: FieldType) -> Kind:
    """A message whose fields are on the wire in the order of the class: the address, then these."""
    get = attrgetter(*[each.name for each in fields(cls)[1:]])
    writers, readers = zip(*types, strict=True)

    def encode(m: Any) -> bytes:
        return write_string(m.address) + b"".join([write(value) for write, value in zip(writers, get(m), strict=True)])

    def decode(r: Reader, address: str) -> Any:
        return cls(address, *[read(r) for read in readers])

    return cls, encode, decode


def _of_a_router(cls: Any, *types: FieldType) -> Kind:
    """The same, of a message that is about no address."""
    names = [each.name for each in fields(cls)]

    def encode(m: Any) -> bytes:
        return b"\0\0" + b"".join([write(getattr(m, name)) for name, (write, _) in zip(names, types, strict=True)])

    def decode(r: Reader, address: str) -> Any:
        return cls(*[read(r) for _, read in types])

    return cls, encode, decode


# A message's kind is its place here. The most frequent ones are written and read by functions of their own.
_KINDS: Final[list[Kind]] = [
    (Hello, _encode_hello, _decode_hello),
    _in_order(Pub, _PUBLISHER, _U64, _TERM, _SECONDS, _EXPECTED),
    (PubAck, _encode_puback, _decode_puback),
    _in_order(PubDown, _PUBLISHER, _TERM),
    _in_order(PubClose, _PUBLISHER, _U64, _TERM, _FLAG),
    _in_order(Flush, _PUBLISHER, _U64, _TERM),
    (Join, _encode_join, _decode_join),
    _in_order(Joined, _NAME, _TERM, _JOIN_RESULT, _FLAG, _MAYBE_TERM, _MAYBE_TERM),
    _in_order(Orphan, _NAME, _TERM, _SECONDS),
    _in_order(Leave, _NAME, _TERM, _FLAG),
    (Sync, _encode_sync, _decode_sync),
    (Data, _encode_data, _decode_data),
    (Accept, _encode_accept, _decode_accept),
    _in_order(AcceptSync, _NAME, _TERM, _REJECTIONS),
    (Settle, _encode_settle, _decode_settle),
    _in_order(SettleTags, _PUBLISHER, _TERM, _TAGS),
    _of_a_router(Draining, _FLAG),
    _of_a_router(Call, _U64, _FLAG),
    _of_a_router(Called, _U64, _FLAG),
    _in_order(Note, _NAME, _TERM, _BINARY),
    _in_order(Finish, _U64, _FLAG),
    _in_order(Finished, _U64, _FLAG),
    _in_order(Recall, _NAME, _TERM),
    _in_order(Recalled, _NAME, _TERM, _MAYBE_TERM, _U64, _KEPT),
    _in_order(Keep, _NAME, _TERM, _U64, _FLAG, _KEPT, _TAGS),
    _in_order(Kept, _NAME, _TERM, _U64),
    _in_order(Credit, _NAME, _TERM, _U64, _U64),
    (Assign, _encode_assign, _decode_assign),
    _in_order(Return, _NAME, _TERM, _U64, _REJECTIONS),
    _in_order(Stopped, _NAME, _TERM, _U64),
    _in_order(Hold, _PUBLISHER, _TERM, _NAME, _TERM, _TAGS, _TAGS, _FLAG),
    _in_order(Reason, _RANGES, _BINARY),
    _in_order(Browse, _U64, _U64, _U64),
    (Browsed, _encode_browsed, _decode_browsed),
    (Part, _encode_part, _decode_part),
    _in_order(Taken, _U64, _U64),
    _in_order(Again, _PUBLISHER, _TERM),
    _in_order(Turn, _FLAG, _FLAG),
    _of_a_router(Ask, _U64, _STRING, _STRINGS, _PAYLOAD),
    _of_a_router(Answer, _U64, _PAYLOAD),
    _in_order(Told, _NAME, _TERM),
    _of_a_router(Queues, _QUEUE_TABLE),
    _of_a_router(Suspected, _BINARY, _STRING, _SECONDS),
    _of_a_router(Clock, _U64),
]
_ENCODERS: Final = {cls: (bytes([kind]), encoder) for kind, (cls, encoder, _) in enumerate(_KINDS)}
_WITH_PAYLOADS: Final = [
    bytes([kind]) for kind, (cls, _, _) in enumerate(_KINDS) if cls in (Data, Assign, Browsed, Part)
]
_DECODERS: Final = [decoder for _, _, decoder in _KINDS]
LATER: Final[dict[type[Message], int]] = {cls: since(cls) for cls, _, _ in _KINDS if since(cls) > SPOKEN.oldest}
"""Messages that not every router knows to which this one speaks -> the first version that has them."""
_LAST_KIND: Final = {
    version: sum(since(cls) <= version for cls, _, _ in _KINDS) - 1
    for version in range(SPOKEN.oldest, SPOKEN.newest + 1)
}
assert [since(cls) for cls, _, _ in _KINDS] == sorted(since(cls) for cls, _, _ in _KINDS), "new kinds stand behind old"


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    parts = encode_parts(message)
    return parts if isinstance(parts, bytes) else b"".join(parts)


def encode_parts(message: Message) -> Encoded:
    """The same, in parts if there are large payloads: these are not copied."""
    kind, encoder = _ENCODERS[message.__class__]
    body = encoder(message)
    if isinstance(body, bytes):
        return kind + body
    parts, payloads = body
    parts.append(write_payload_lengths(payloads))
    for payload in payloads:
        if len(payload) >= LARGE:
            return [kind + b"".join(parts), *filter(None, payloads)]
    return kind + b"".join(parts + payloads)


def decode(data: bytes | Sequence[bytes | memoryview], version: int = SPOKEN.newest) -> Message:
    """The message of these bytes, all of them, whole or in parts.  Raises PeerProtocolError, also for one that this
    version does not have."""
    last = _LAST_KIND[version]
    if not isinstance(data, bytes):
        if data[0][:1] in _WITH_PAYLOADS:
            with suppress(PeerProtocolError):  # it may have been cut elsewhere
                return _decode(PartsReader(data), last)
        data = b"".join(data)
    return _decode(Reader(data), last)


def _decode(reader: Reader, last: int) -> Message:
    data = reader.data
    if not data or data[0] > last:
        reader.u8(last)  # says what is wrong
    reader.at = 1
    message = _DECODERS[data[0]](reader, reader.string())
    if reader.at != len(data):
        reader.end()
    return message
