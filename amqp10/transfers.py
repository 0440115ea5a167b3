"""The hot path: runs of transfer frames in, blocks of transfer frames out.

In: a peer encodes all transfers of a link in the same way, except for the frame's size, delivery-id, tag and payload. A
`Shape` holds the common bytes, learnt from one frame that the generic codec has decoded. `take_run` takes as many
further frames as match it exactly and leaves all others to the generic codec. Windows and credit are one limit here.
Out: `encode_block` encodes a whole run with one join.

bench/engine.py measures this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import chain, repeat
from struct import Struct
from typing import Any, Final, Generic, TypeVar

from amqp10.composite import read_list_head
from amqp10.decoder import skip_value
from amqp10.encoder import encode_uint
from amqp10.errors import EncodeError
from amqp10.serial import WRAP

LinkT = TypeVar("LinkT")

TRANSFER_START: Final = b"\x00\x53\x14"
_HEADER: Final = 8  # bytes of the frame header: size 4, doff 1, type 1, channel 2
_LIST8, _LIST32 = 0xC0, 0xD0
_HANDLE: Final = 0
_DELIVERY_ID: Final = 1
_DELIVERY_TAG: Final = 2
_SMALLUINT: Final = 0x52
_UINT: Final = 0x70
_VBIN8: Final = 0xA0

_COLUMNS_FROM: Final = 16  # frames of equal size from which on they are taken in columns: fewer are faster one by one
COLUMNS_AT_FIRST: Final = 16  # how many are tried at once: 16, 128, 1024 ...
COLUMNS_GROW: Final = 8
_uint: Final = Struct(">I")


# Incoming ------------------------------------------------------------------------------------------------------------


class Shape(Generic[LinkT]):
    """The common bytes of all transfers of one link, from behind the frame's size to the payload:

    head | delivery-id | middle | tag | tail      (head and middle end with the constructor of the next field)
    """

    __slots__ = ("_columns", "first_part", "fixed", "head", "link", "message_format", "middle", "pairs",
                 "rcv_settle_mode", "settled", "tail", "unpack")  # fmt: skip

    def __init__(
        self,
        link: LinkT,
        *,
        head: bytes,
        id_size: int,
        middle: bytes,
        tag_size: int,
        tail: bytes,
        settled: bool,
        message_format: int | None,
        rcv_settle_mode: int | None,
    ) -> None:
        self.link = link
        self.head = head
        self.middle = middle
        self.tail = tail
        self.settled = settled
        self.message_format = message_format
        self.rcv_settle_mode = rcv_settle_mode
        self.first_part = f"{'I' if id_size == 4 else 'B'}{len(middle)}s{tag_size}s{len(tail)}s"
        layout = Struct(f">I{len(head)}s{self.first_part}")
        self.unpack: Callable[[bytes, int], tuple[int, bytes, int, bytes, bytes, bytes]] = layout.unpack_from
        self.fixed = layout.size
        self._columns: dict[int, Struct] = {}
        self.pairs: dict[Any, Struct] = {}  # of pairs.py

    def columns(self, size: int) -> Struct:
        """The layout of a frame of this size, payload included, and its size together with the head."""
        columns = self._columns.get(size)
        if columns is None:
            if len(self._columns) >= 32:
                self._columns.clear()
            columns = Struct(f">{4 + len(self.head)}s{self.first_part}{size - self.fixed}s")
            self._columns[size] = columns
        return columns


def shape_key(buf: bytes, offset: int) -> bytes:
    """The key of the transfer frame at `offset` in the table of shapes. It includes channel and handle; different links
    may share it, so a frame is compared with the whole shape. At least 22 bytes must be there."""
    return buf[offset + 4 : offset + 22] if buf[offset + 11] == _LIST32 else buf[offset + 4 : offset + 16]


def learn_shape(
    buf: bytes, offset: int, payload: int, *, link: LinkT, settled: bool, message_format: int | None,
    rcv_settle_mode: int | None,
) -> Shape[LinkT] | None:  # fmt: skip
    """The shape of the frame at `offset`, which has been decoded and whose payload starts at `payload`; None if its
    delivery-id takes no bytes (0), or it has an unusual encoding."""
    body = offset + _HEADER
    if buf[offset + 4] != 2 or buf[body : body + 3] != TRANSFER_START:
        return None
    spans = field_spans(buf, body + 3, payload)
    if len(spans) <= _DELIVERY_TAG:
        return None
    id_start, id_end = spans[_DELIVERY_ID]
    tag_start, tag_end = spans[_DELIVERY_TAG]
    if buf[id_start] not in (_UINT, _SMALLUINT) or buf[tag_start] != _VBIN8:
        return None
    return Shape(
        link,
        head=buf[offset + 4 : id_start + 1],
        id_size=id_end - id_start - 1,
        middle=buf[id_end : tag_start + 2],
        tag_size=tag_end - tag_start - 2,
        tail=buf[tag_end:payload],
        settled=settled,
        message_format=message_format,
        rcv_settle_mode=rcv_settle_mode,
    )


def take_run(
    buf: bytes, offset: int, end: int, shape: Shape[Any], expected: int, limit: int, max_size: int, tags: list[bytes],
    payloads: list[bytes],
) -> int:  # fmt: skip
    """Append tag and payload of the frames at `offset` that match the shape, are no larger than `max_size`, and whose
    delivery-ids go on from `expected` (as on the wire), at most `limit`; return where the first not taken starts."""
    unpack, fixed = shape.unpack, shape.fixed
    if end - offset >= fixed * _COLUMNS_FROM:
        size: int = _uint.unpack_from(buf, offset)[0]
        equal: int = min((end - offset) // size, limit) if fixed <= size <= max_size else 0
        # In growing pieces, so that a run that ends early wastes no more work than it has done.
        piece = COLUMNS_AT_FIRST
        while equal >= _COLUMNS_FROM and expected + equal <= WRAP:
            count = min(equal, piece)
            if not _take_columns(buf, offset, shape, size, expected, count, tags, payloads):
                break
            offset += count * size
            expected += count
            limit -= count
            equal -= count
            piece *= COLUMNS_GROW
    head, middle, tail = shape.head, shape.middle, shape.tail
    last = end - fixed
    while limit and offset <= last:
        size, its_head, delivery_id, its_middle, tag, its_tail = unpack(buf, offset)
        stop = offset + size
        if (
            its_head != head
            or delivery_id != expected
            or its_middle != middle
            or its_tail != tail
            or stop > end
            or size < fixed
            or size > max_size
        ):
            break
        tags.append(tag)
        payloads.append(buf[offset + fixed : stop])
        offset = stop
        expected = (expected + 1) & WRAP
        limit -= 1
    return offset


def _take_columns(
    buf: bytes, offset: int, shape: Shape[Any], size: int, expected: int, count: int, tags: list[bytes],
    payloads: list[bytes],
) -> int:  # fmt: skip
    """Frames of one size: unpack them all and compare column by column. 0, and nothing taken, if one differs."""
    lead = buf[offset : offset + 4 + len(shape.head)]
    last = offset + (count - 1) * size
    if lead[4:] != shape.head or buf[last : last + len(lead)] != lead:
        return 0
    middle_one = offset + (count >> 1) * size
    if buf[middle_one : middle_one + len(lead)] != lead:
        return 0
    rows = shape.columns(size).iter_unpack(memoryview(buf)[offset : offset + count * size])
    leads, ids, middles, its_tags, tails, its_payloads = zip(*rows, strict=True)
    if (
        leads.count(lead) != count
        or ids != tuple(range(expected, expected + count))
        or middles.count(shape.middle) != count
        or tails.count(shape.tail) != count
    ):
        return 0
    tags += its_tags
    payloads += its_payloads
    return count


def field_spans(buf: bytes, offset: int, end: int) -> list[tuple[int, int]]:
    """(start, end) of each field of the list at `offset`, constructors included."""
    offset, _, count = read_list_head(buf, offset, end, "a performative")
    spans = []
    for _ in range(count):
        after = skip_value(buf, offset, end)
        spans.append((offset, after))
        offset = after
    return spans


# Outgoing ------------------------------------------------------------------------------------------------------------


class _Layout:
    """The bytes around tag and payload that all frames of a block share."""

    __slots__ = ("after_id", "after_tag", "before_id", "overhead", "pack")

    def __init__(self, channel: int, handle: int, tag_size: int, settled: bool, message_format: int) -> None:
        if tag_size > 32:  # AMQP 2.8.7
            raise EncodeError(f"a delivery-tag has at most 32 bytes, not {tag_size}")
        fields = encode_uint(handle) + b"\x70"
        self.after_id = b"\xa0" + bytes((tag_size,))
        self.after_tag = encode_uint(message_format) + (b"\x41" if settled else b"")
        list_size = 1 + len(fields) + 4 + 2 + tag_size + len(self.after_tag)
        self.before_id = (
            b"\x02\x00"
            + channel.to_bytes(2, "big")
            + TRANSFER_START
            + bytes((_LIST8, list_size, 5 if settled else 4))
            + fields
        )
        layout = Struct(f">I{len(self.before_id)}sI2s")
        self.pack = layout.pack
        self.overhead = layout.size + tag_size + len(self.after_tag)


@lru_cache(1024)
def _layout(channel: int, handle: int, tag_size: int, settled: bool, message_format: int) -> _Layout:
    return _Layout(channel, handle, tag_size, settled, message_format)


def encode_block(
    channel: int, handle: int, first_id: int, tags: list[bytes], payloads: list[bytes], settled: bool,
    message_format: int,
) -> bytes:  # fmt: skip
    """Transfer frames for whole messages with the delivery-ids first_id, first_id + 1, ... (wrapped here)."""
    count = len(tags)
    tag_size = len(tags[0])
    first_id &= WRAP
    if count == 1:
        payload = payloads[0]
        return encode_lead(channel, handle, first_id, tags[0], len(payload), settled, message_format) + payload
    tag_sizes = set(map(len, tags))
    if len(tag_sizes) > 1:
        return b"".join(
            encode_block(channel, handle, first_id + index, [tag], [payload], settled, message_format)
            for index, (tag, payload) in enumerate(zip(tags, payloads, strict=True))
        )
    layout = _layout(channel, handle, tag_size, settled, message_format)
    ids: Iterator[int]
    if first_id + count > WRAP:
        ids = ((first_id + index) & WRAP for index in range(count))
    else:
        ids = iter(range(first_id, first_id + count))
    overhead = layout.overhead
    sizes = [overhead + size for size in map(len, payloads)]
    heads = map(layout.pack, sizes, repeat(layout.before_id), ids, repeat(layout.after_id))
    return b"".join(chain.from_iterable(zip(heads, tags, repeat(layout.after_tag), payloads)))


def encode_lead(
    channel: int, handle: int, delivery_id: int, tag: bytes, size: int, settled: bool, message_format: int
) -> bytes:
    """All of a transfer frame but its payload of `size` bytes; the id is wrapped."""
    layout = _layout(channel, handle, len(tag), settled, message_format)
    head = layout.pack(layout.overhead + size, layout.before_id, delivery_id, layout.after_id)
    return head + tag + layout.after_tag
