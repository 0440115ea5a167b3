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


Said = tuple[bool, int | None, int | None]
"""What transfers of one run say of themselves: settled, message-format, rcv-settle-mode."""
Span = tuple[int, int]
Room = tuple[int, int, int]
"""The delivery-id that is expected, as on the wire; how many transfers may be taken; bytes that a frame may have."""
Taken = tuple[list[bytes], list[bytes]]
"""Tags and payloads."""


KEY_ENDS: Final = bytes([22 if constructor == _LIST32 else 16 for constructor in range(256)])
"""Where in a frame its key in a table of shapes ends, by the constructor of its list: behind what begins with the first
field. The key of a transfer begins behind the frame's size, that of a disposition with it. Different links may share
one, so a frame is compared with the whole shape."""


class Shape(Generic[LinkT]):
    """The common bytes of all transfers of one link, from behind the frame's size to the payload:

    head | delivery-id | middle | tag | tail      (head and middle end with the constructor of the next field)
    """

    __slots__ = ("_columns", "first_part", "fixed", "head", "link", "middle", "pairs", "said", "tail", "unpack")

    def __init__(self, link: LinkT, said: Said, lead: bytes, of_id: Span, of_tag: Span) -> None:
        """lead: the bytes of such a transfer. of_id, of_tag: where the two have their places in it, without
        constructors."""
        self.link = link
        self.said = said
        self.head = lead[: of_id[0]]
        self.middle = lead[of_id[1] : of_tag[0]]
        self.tail = lead[of_tag[1] :]
        id_code, tag_size = "I" if of_id[1] - of_id[0] == 4 else "B", of_tag[1] - of_tag[0]
        self.first_part = f"{id_code}{len(self.middle)}s{tag_size}s{len(self.tail)}s"
        layout = Struct(f">I{len(self.head)}s{self.first_part}")
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


def learn_shape(buf: bytes, offset: int, payload: int, link: LinkT, said: Said) -> Shape[LinkT] | None:
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
    start = offset + 4
    of_id, of_tag = (id_start + 1 - start, id_end - start), (tag_start + 2 - start, tag_end - start)
    return Shape(link, said, buf[start:payload], of_id, of_tag)


def take_run(buf: bytes, offset: int, end: int, shape: Shape[Any], room: Room, taken: Taken) -> int:
    """Append tag and payload of the frames at `offset` that match the shape, as far as there is room; return where the
    first not taken starts."""
    expected, limit, max_size = room
    tags, payloads = taken
    unpack, fixed = shape.unpack, shape.fixed
    if end - offset >= fixed * _COLUMNS_FROM:
        size: int = _uint.unpack_from(buf, offset)[0]
        equal: int = min((end - offset) // size, limit) if fixed <= size <= max_size else 0
        # In growing pieces, so that a run that ends early wastes no more work than it has done.
        piece = COLUMNS_AT_FIRST
        while equal >= _COLUMNS_FROM and expected + equal <= WRAP:
            count = min(equal, piece)
            columns = _take_columns(buf, offset, shape, size, expected, count)
            if columns is None:
                break
            tags += columns[0]
            payloads += columns[1]
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
    buf: bytes, offset: int, shape: Shape[Any], size: int, expected: int, count: int
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]] | None:
    """Frames of one size: unpack them all and compare column by column. Their tags and payloads; None if one
    differs."""
    lead = buf[offset : offset + 4 + len(shape.head)]
    last = offset + (count - 1) * size
    if lead[4:] != shape.head or buf[last : last + len(lead)] != lead:
        return None
    middle_one = offset + (count >> 1) * size
    if buf[middle_one : middle_one + len(lead)] != lead:
        return None
    rows = shape.columns(size).iter_unpack(memoryview(buf)[offset : offset + count * size])
    leads, ids, middles, its_tags, tails, its_payloads = zip(*rows, strict=True)
    if (
        leads.count(lead) != count
        or ids != tuple(range(expected, expected + count))
        or middles.count(shape.middle) != count
        or tails.count(shape.tail) != count
    ):
        return None
    return its_tags, its_payloads


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


Common = tuple[int, int, bool, int]
"""What the transfers of a block have in common: channel, handle, settled, message-format."""


class _Layout:
    """The bytes around tag and payload that all frames of a block share."""

    __slots__ = ("after_id", "after_tag", "before_id", "overhead", "pack")

    def __init__(self, common: Common, tag_size: int) -> None:
        channel, handle, settled, message_format = common
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
def _layout(common: Common, tag_size: int) -> _Layout:
    return _Layout(common, tag_size)


def encode_block(common: Common, first_id: int, tags: list[bytes], payloads: list[bytes]) -> bytes:
    """Transfer frames for whole messages with the delivery-ids first_id, first_id + 1, ... (wrapped here)."""
    count = len(tags)
    tag_size = len(tags[0])
    first_id &= WRAP
    if count == 1:
        payload, layout = payloads[0], _layout(common, tag_size)
        head = layout.pack(layout.overhead + len(payload), layout.before_id, first_id, layout.after_id)
        return b"".join((head, tags[0], layout.after_tag, payload))
    tag_sizes = set(map(len, tags))
    if len(tag_sizes) > 1:
        return b"".join(
            encode_block(common, first_id + index, [tag], [payload])
            for index, (tag, payload) in enumerate(zip(tags, payloads, strict=True))
        )
    layout = _layout(common, tag_size)
    ids: Iterator[int]
    if first_id + count > WRAP:
        ids = ((first_id + index) & WRAP for index in range(count))
    else:
        ids = iter(range(first_id, first_id + count))
    overhead = layout.overhead
    sizes = [overhead + size for size in map(len, payloads)]
    heads = map(layout.pack, sizes, repeat(layout.before_id), ids, repeat(layout.after_id))
    return b"".join(chain.from_iterable(zip(heads, tags, repeat(layout.after_tag), payloads)))


def encode_lead(common: Common, delivery_id: int, tag: bytes, size: int) -> bytes:
    """All of a transfer frame but its payload of `size` bytes; the id is wrapped."""
    layout = _layout(common, len(tag))
    head = layout.pack(layout.overhead + size, layout.before_id, delivery_id, layout.after_id)
    return head + tag + layout.after_tag
