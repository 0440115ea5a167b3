"""Runs that alternate: transfer, disposition, transfer, disposition ...

A publisher in rcv-settle-mode second whose window is full sends one message for each one that it settles, so proton's
frames alternate. One frame at a time they would cost as much as single messages (bench/engine.py: seventeen times as
much). Two frames of known shapes are taken as one longer frame of a known shape, column by column as in transfers.py.
See transfers.py and dispositions.py for the two halves.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

from amqp10.dispositions import DispositionShape, Range, add_range
from amqp10.serial import HALF, WRAP, difference
from amqp10.transfers import COLUMNS_AT_FIRST, COLUMNS_GROW, Room, Shape

PAIRS_FROM: Final = 3  # pairs from which on they are taken together
Pairs = tuple[list[bytes], list[bytes], list[Range]]
"""Tags and payloads of transfers, and ranges of dispositions."""


class Pair:
    """Two such frames: a transfer of one size and a disposition, or the other way round. It is for one try; their
    layout stays with the transfer's shape."""

    __slots__ = ("disposition", "key", "stride", "transfer", "transfer_first", "transfer_size")

    def __init__(
        self, transfer: Shape[Any], transfer_size: int, disposition: DispositionShape, transfer_first: bool
    ) -> None:
        self.transfer = transfer
        self.transfer_size = transfer_size
        self.disposition = disposition
        self.transfer_first = transfer_first
        self.stride = transfer_size + disposition.size
        self.key = (transfer_size, transfer_first, disposition)


def take_pairs(buf: bytes, offset: int, end: int, pair: Pair, room: Room, taken: Pairs) -> int:
    """As `take_run` and `take_dispositions` at once, where the frames at `offset` alternate; return where the first
    frame not taken starts. Dispositions are those of single deliveries, all with one meaning. proton settles what one
    disposition of ours has accepted in the order of its table of deliveries, which begins anywhere in the window."""
    expected, limit, max_size = room
    if not pair.transfer.fixed <= pair.transfer_size <= max_size:
        return offset
    stride = pair.stride
    left = min((end - offset) // stride, limit)
    piece = COLUMNS_AT_FIRST
    while left >= PAIRS_FROM and expected + left <= WRAP:
        count = min(left, piece)
        if not _take_columns(buf, offset, count, pair, expected, taken):
            break
        offset += count * stride
        expected += count
        left -= count
        piece *= COLUMNS_GROW
    return offset


def _take_columns(buf: bytes, offset: int, count: int, pair: Pair, expected: int, taken: Pairs) -> bool:
    """All of `count` pairs, or none."""
    transfer, transfer_size, disposition = pair.transfer, pair.transfer_size, pair.disposition
    transfer_first, stride = pair.transfer_first, pair.stride
    frame = offset if transfer_first else offset + disposition.size
    lead = buf[frame : frame + 4 + len(transfer.head)]
    other = offset + transfer_size if transfer_first else offset
    if lead[4:] != transfer.head or buf[other : other + len(disposition.lead)] != disposition.lead:
        return False
    for number in (count - 1, count >> 1):
        place = frame + number * stride
        if buf[place : place + len(lead)] != lead:
            return False
    layout = transfer.pairs.get(pair.key)
    if layout is None:
        if len(transfer.pairs) >= 32:
            transfer.pairs.clear()
        one, two = transfer.columns(transfer_size).format[1:], disposition.struct.format[1:]
        layout = transfer.pairs[pair.key] = Struct(f">{one}{two}" if transfer_first else f">{two}{one}")
    columns = list(zip(*layout.iter_unpack(memoryview(buf)[offset : offset + count * stride]), strict=True))
    if transfer_first:
        leads, ids, middles, its_tags, tails, its_payloads = columns[:6]
        said = columns[6:]
    else:
        leads, ids, middles, its_tags, tails, its_payloads = columns[-6:]
        said = columns[:-6]
    firsts, end_of_it = said[1], said[-1]
    first, low, high = firsts[0], min(firsts), max(firsts)
    in_order = firsts == tuple(range(first, first + count))
    newest = expected if transfer_first else expected - 1
    meaning = disposition.meanings.get(end_of_it[0])
    if (
        meaning is None
        or _ahead(transfer, disposition, newest, first if in_order else high)
        or high - low > HALF  # they begin again at 0 among these
        or leads.count(lead) != count
        or ids != tuple(range(expected, expected + count))
        or middles.count(transfer.middle) != count
        or tails.count(transfer.tail) != count
        or said[0].count(disposition.lead) != count
        or end_of_it.count(end_of_it[0]) != count
        or (disposition.has_last and (said[2].count(disposition.middle) != count or said[3] != firsts))
    ):
        return False
    tags, payloads, ranges = taken
    tags += its_tags
    payloads += its_payloads
    if high - low == count - 1 and len(set(firsts)) == count:
        add_range(ranges, low, high, meaning)
    else:
        for each in sorted(firsts):
            add_range(ranges, each, each, meaning)
    return True


def _ahead(transfer: Shape[Any], disposition: DispositionShape, newest: int, first: int) -> bool:
    """Whether the peer's dispositions are about deliveries that it has not sent yet. They have no effect, and must not
    get one because the transfers of a run are processed before its dispositions."""
    return (
        not disposition.is_receiver and transfer.link.session is disposition.session and difference(first, newest) > 0
    )
