"""The bytes of the messages between routers.

`encode` and `decode` are each other's inverse; `decode` believes nothing: what is malformed is a `PeerProtocolError`,
upon which the owner of the session resets it.  Form: one byte kind, the address, then the fields (`router.fields`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from router.fields import (
    F64,
    U16,
    U32,
    U64,
    Reader,
    write_expected,
    write_maybe_term,
    write_name,
    write_payloads,
    write_ranges,
    write_rejections,
    write_sparse_payloads,
    write_string,
    write_tags,
    write_term,
)
from router.intervals import OPEN
from router.messages import (
    Accept,
    AcceptSync,
    Data,
    Entries,
    Flush,
    Hello,
    Join,
    Joined,
    JoinKind,
    JoinResult,
    Leave,
    Message,
    Orphan,
    PeerProtocolError,
    Pub,
    PubAck,
    PubClose,
    PubDown,
    PublisherNews,
    Settle,
    SettleTags,
    SubscriptionNews,
    Sync,
)

_DATA = struct.Struct(">QI?I")  # position, message format, settled, how many


def _encode_hello(m: Hello) -> bytes:
    parts = [b"\0\0", U64.pack(m.incarnation), b"\1" if m.established else b"\0", U16.pack(len(m.up))]
    parts += [write_string(router) + U64.pack(incarnation) for router, incarnation in m.up]
    parts.append(U32.pack(len(m.publishers)))
    for p in m.publishers:
        parts += [write_string(p.address), p.publisher, U64.pack(p.incarnation), write_term(p.term), F64.pack(p.age_s)]
    parts.append(U32.pack(len(m.subscriptions)))
    for s in m.subscriptions:
        parts += [write_string(s.address), write_name(s.name), write_maybe_term(s.born), write_term(s.term)]
        parts += [F64.pack(s.timeout_s), F64.pack(s.age_s)]
    return b"".join(parts)


def _decode_hello(r: Reader, address: str) -> Hello:
    incarnation, established = r.u64(), r.flag()
    up = tuple([(r.string(), r.u64()) for _ in range(r.fields(U16)[0])])
    publishers = [PublisherNews(r.string(), r.publisher(), r.u64(), r.term(), r.seconds()) for _ in range(r.many(36))]
    subscriptions = [
        SubscriptionNews(r.string(), r.name(), r.maybe_term(), r.term(), r.seconds(), r.seconds())
        for _ in range(r.many(33))
    ]
    return Hello(incarnation, established, up, publishers, subscriptions)


def _encode_pub(m: Pub) -> bytes:
    return (
        write_string(m.address)
        + m.publisher
        + U64.pack(m.incarnation)
        + write_term(m.term)
        + write_expected(m.expected)
    )


def _decode_pub(r: Reader, address: str) -> Pub:
    return Pub(address, r.publisher(), r.u64(), r.term(), r.expected())


def _encode_puback(m: PubAck) -> bytes:
    head = write_string(m.address) + m.publisher + write_term(m.term)
    if m.stale is None:
        return head + b"\0"
    term, incarnation, real = m.stale
    return head + b"\1" + write_term(term) + U64.pack(incarnation) + (b"\1" if real else b"\0")


def _decode_puback(r: Reader, address: str) -> PubAck:
    publisher, term = r.publisher(), r.term()
    return PubAck(address, publisher, term, (r.term(), r.u64(), r.flag()) if r.flag() else None)


def _encode_pubdown(m: PubDown) -> bytes:
    return write_string(m.address) + m.publisher + write_term(m.term)


def _decode_pubdown(r: Reader, address: str) -> PubDown:
    return PubDown(address, r.publisher(), r.term())


def _encode_incarnation(m: PubClose | Flush) -> bytes:
    return write_string(m.address) + m.publisher + U64.pack(m.incarnation) + write_term(m.term)


def _decode_pubclose(r: Reader, address: str) -> PubClose:
    return PubClose(address, r.publisher(), r.u64(), r.term())


def _decode_flush(r: Reader, address: str) -> Flush:
    return Flush(address, r.publisher(), r.u64(), r.term())


def _encode_join(m: Join) -> bytes:
    head = write_string(m.address) + write_name(m.name) + write_maybe_term(m.born) + write_term(m.term)
    return head + bytes([m.kind, m.history, m.heard]) + F64.pack(m.timeout_s)


def _decode_join(r: Reader, address: str) -> Join:
    name, born, term = r.name(), r.maybe_term(), r.term()
    kind, history, heard = JoinKind(r.u8(2)), r.flag(), r.flag()
    return Join(address, name, born, term, kind, history, r.seconds(), heard)


def _encode_joined(m: Joined) -> bytes:
    head = write_string(m.address) + write_name(m.name) + write_term(m.term) + bytes([m.result, m.known])
    return head + write_maybe_term(m.mark) + write_maybe_term(m.other)


def _decode_joined(r: Reader, address: str) -> Joined:
    return Joined(address, r.name(), r.term(), JoinResult(r.u8(3)), r.flag(), r.maybe_term(), r.maybe_term())


def _encode_orphan(m: Orphan) -> bytes:
    return write_string(m.address) + write_name(m.name) + write_term(m.term) + F64.pack(m.timeout_s)


def _decode_orphan(r: Reader, address: str) -> Orphan:
    return Orphan(address, r.name(), r.term(), r.seconds())


def _encode_leave(m: Leave) -> bytes:
    return write_string(m.address) + write_name(m.name) + write_term(m.term) + bytes([m.broken])


def _decode_leave(r: Reader, address: str) -> Leave:
    return Leave(address, r.name(), r.term(), r.flag())


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


def _encode_data(m: Data) -> bytes:
    head = _DATA.pack(m.position, m.message_format, m.settled, len(m.tags))
    return b"".join(
        [write_string(m.address), m.publisher, write_term(m.term), head, write_tags(m.tags), write_payloads(m.payloads)]
    )


def _decode_data(r: Reader, address: str) -> Data:
    publisher, term = r.publisher(), r.term()
    position, message_format, settled, n = r.fields(_DATA)
    tags = r.tags()
    if len(tags) != n or not n or position + n >= OPEN:
        raise PeerProtocolError(f"DATA of {n} messages at {position} with {len(tags)} tags")
    return Data(address, publisher, term, position, message_format, bool(settled), tags, r.payloads(n))


def _encode_accept(m: Accept) -> bytes:
    return write_string(m.address) + write_rejections(m.ranges)


def _decode_accept(r: Reader, address: str) -> Accept:
    return Accept(address, r.rejections())


def _encode_accept_sync(m: AcceptSync) -> bytes:
    return write_string(m.address) + write_name(m.name) + write_term(m.term) + write_rejections(m.ranges)


def _decode_accept_sync(r: Reader, address: str) -> AcceptSync:
    return AcceptSync(address, r.name(), r.term(), r.rejections())


def _encode_settle(m: Settle) -> bytes:
    return write_string(m.address) + write_ranges(m.ranges)


def _decode_settle(r: Reader, address: str) -> Settle:
    return Settle(address, r.ranges())


def _encode_settle_tags(m: SettleTags) -> bytes:
    return write_string(m.address) + m.publisher + write_term(m.term) + write_tags(m.tags)


def _decode_settle_tags(r: Reader, address: str) -> SettleTags:
    return SettleTags(address, r.publisher(), r.term(), r.tags())


# A message's kind is its place here.
_KINDS: Final[list[tuple[type[Message], Callable[[Any], bytes], Callable[[Reader, str], Message]]]] = [
    (Hello, _encode_hello, _decode_hello),
    (Pub, _encode_pub, _decode_pub),
    (PubAck, _encode_puback, _decode_puback),
    (PubDown, _encode_pubdown, _decode_pubdown),
    (PubClose, _encode_incarnation, _decode_pubclose),
    (Flush, _encode_incarnation, _decode_flush),
    (Join, _encode_join, _decode_join),
    (Joined, _encode_joined, _decode_joined),
    (Orphan, _encode_orphan, _decode_orphan),
    (Leave, _encode_leave, _decode_leave),
    (Sync, _encode_sync, _decode_sync),
    (Data, _encode_data, _decode_data),
    (Accept, _encode_accept, _decode_accept),
    (AcceptSync, _encode_accept_sync, _decode_accept_sync),
    (Settle, _encode_settle, _decode_settle),
    (SettleTags, _encode_settle_tags, _decode_settle_tags),
]
_ENCODERS: Final = {cls: (bytes([kind]), encoder) for kind, (cls, encoder, _) in enumerate(_KINDS)}
_DECODERS: Final = [decoder for _, _, decoder in _KINDS]


def encode(message: Message) -> bytes:
    """The bytes of a message."""
    kind, encoder = _ENCODERS[message.__class__]
    return kind + encoder(message)


def decode(data: bytes) -> Message:
    """The message of these bytes, all of them.  Raises PeerProtocolError."""
    reader = Reader(data)
    message = _DECODERS[reader.u8(len(_DECODERS) - 1)](reader, reader.string())
    reader.end()
    return message
