"""Dispositions: runs of single ones are merged into ranges when read, adjacent ones when written.

rhea sends one disposition per delivery, proton ranges where it can. As in transfers.py, frames of one size whose bytes
differ only in the ids are taken together; the meaning of the other bytes is learnt from the generic codec. Next:
session.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from amqp10.endpoints import Channel
from amqp10.outcomes import ACCEPTED, DeliveryState, shortened_state, write_state
from amqp10.performatives import Disposition
from amqp10.serial import WRAP
from amqp10.transfers import COLUMNS_AT_FIRST, COLUMNS_GROW, field_spans

DISPOSITION_START: Final = b"\x00\x53\x15"
_HEADER: Final = 8
_LIST8: Final = 0xC0
_NULL: Final = 0x40
_SMALLUINT: Final = 0x52
_UINT: Final = 0x70
_COLUMNS_FROM: Final = 6
_MEANINGS: Final = 64  # tails remembered per shape
_AROUND_IDS: Final = 1024
_ACCEPTED: Final = write_state(ACCEPTED)
_SMALL_STATE: Final = 32  # bytes: rejections may be as large as a frame

Range = tuple[int, int, DeliveryState | None, bool]
"""first and last delivery-id, as on the wire when read, state, settled"""


class DispositionShape:
    """lead | first | middle | last | tail, or without middle and last; lead begins with the frame's size."""

    __slots__ = ("has_last", "is_receiver", "lead", "meanings", "middle", "session", "size", "struct", "unpack")

    def __init__(
        self, session: Channel, is_receiver: bool, lead: bytes, first_size: int, last: tuple[bytes, int] | None,
        size: int,
    ) -> None:  # fmt: skip
        """last: what is before it, and its size."""
        self.session = session
        self.is_receiver = is_receiver
        self.lead = lead
        self.middle = None if last is None else last[0]
        self.has_last = last is not None
        self.size = size
        layout = f">{len(lead)}s{'I' if first_size == 4 else 'B'}"
        used = len(lead) + first_size
        if last is not None:
            layout += f"{len(last[0])}s{'I' if last[1] == 4 else 'B'}"
            used += len(last[0]) + last[1]
        self.struct = Struct(f"{layout}{size - used}s")
        self.unpack: Callable[[bytes, int], tuple[Any, ...]] = self.struct.unpack_from
        self.meanings: dict[bytes, tuple[DeliveryState | None, bool]] = {}


def learn_disposition(
    known: DispositionShape | None, buf: bytes, offset: int, stop: int, session: Channel, decoded: Disposition
) -> DispositionShape | None:
    """The shape of the frame at `offset`, with the meaning of its tail added; `known` is the
    one found by its key. None for an unusual encoding."""
    if buf[offset + 4] != 2 or buf[offset + 8 : offset + 11] != DISPOSITION_START:
        return None
    spans = field_spans(buf, offset + _HEADER + 3, stop)
    if len(spans) < 4 or spans[-1][1] != stop:
        return None
    (first_start, first_end), (last_start, last_end) = spans[1], spans[2]
    if buf[first_start] not in (_SMALLUINT, _UINT) or buf[last_start] not in (_NULL, _SMALLUINT, _UINT):
        return None
    lead = buf[offset : first_start + 1]
    last: tuple[bytes, int] | None = None
    tail_start = first_end
    if buf[last_start] != _NULL:
        last = buf[first_end : last_start + 1], last_end - last_start - 1
        tail_start = last_end
    if known is not None and known.lead == lead and known.middle == (None if last is None else last[0]):
        shape = known
    else:
        shape = DispositionShape(session, decoded.role, lead, first_end - first_start - 1, last, stop - offset)
    if len(shape.meanings) < _MEANINGS:
        shape.meanings[buf[tail_start:stop]] = (decoded.state, decoded.settled)
    return shape


def take_dispositions(buf: bytes, offset: int, end: int, shape: DispositionShape, ranges: list[Range]) -> int:
    """Append the ranges of the frames at `offset` that match the shape, adjacent ones of the same meaning as one;
    return where the first frame not taken starts."""
    size, lead = shape.size, shape.lead
    count = (end - offset) // size if buf[offset + size : offset + size + len(lead)] == lead else 1
    piece = COLUMNS_AT_FIRST
    while count >= _COLUMNS_FROM:
        some = min(count, piece)
        taken = _take_columns(buf, offset, some, shape, ranges)
        if not taken:
            break
        offset = taken
        count -= some
        piece *= COLUMNS_GROW
    for _ in range(count):
        pieces = shape.unpack(buf, offset)
        meaning = shape.meanings.get(pieces[-1])
        if meaning is None or pieces[0] != lead or (shape.has_last and pieces[2] != shape.middle):
            break
        first: int = pieces[1]
        last: int = pieces[3] if shape.has_last else first
        if ranges:
            add_range(ranges, first, last, meaning)
        else:
            ranges.append((first, last, meaning[0], meaning[1]))
        offset += size
    return offset


def _take_columns(buf: bytes, offset: int, count: int, shape: DispositionShape, ranges: list[Range]) -> int:
    """Take `count` frames if they are single dispositions of consecutive deliveries with one meaning; else return 0."""
    size, lead = shape.size, shape.lead
    end = offset + count * size
    for probe in (end - size, offset + (count >> 1) * size):
        if buf[probe : probe + len(lead)] != lead:
            return 0
    columns = list(zip(*shape.struct.iter_unpack(memoryview(buf)[offset:end]), strict=True))
    leads, firsts, tails = columns[0], columns[1], columns[-1]
    first, tail = firsts[0], tails[0]
    meaning = shape.meanings.get(tail)
    if (
        meaning is None
        or leads.count(lead) != count
        or tails.count(tail) != count
        or firsts != tuple(range(first, first + count))
        or (shape.has_last and (columns[2].count(shape.middle) != count or columns[3] != firsts))
    ):
        return 0
    add_range(ranges, first, first + count - 1, meaning)
    return end


def add_range(ranges: list[Range], first: int, last: int, meaning: tuple[DeliveryState | None, bool]) -> None:
    """Append a range, or extend the last one."""
    if ranges and ranges[-1][1] + 1 == first and ranges[-1][2] is meaning[0] and ranges[-1][3] is meaning[1]:
        ranges[-1] = (ranges[-1][0], last, meaning[0], meaning[1])
    else:
        ranges.append((first, last, meaning[0], meaning[1]))


class PendingDispositions:
    """Dispositions of one side of a session, until the next data_to_send."""

    __slots__ = ("_is_receiver", "_session", "entries")

    def __init__(self, session: Channel, *, is_receiver: bool) -> None:
        self._session = session
        self._is_receiver = is_receiver
        self.entries: list[Range] = []

    def add(self, first: int, last: int, state: DeliveryState | None, settled: bool) -> None:
        """first .. last inclusive, unwrapped."""
        self._session.connection._with_output[self._session] = None
        entries = self.entries
        if entries:
            before = entries[-1]
            if before[1] + 1 == first and before[3] is settled and (before[2] is state or before[2] == state):
                entries[-1] = (before[0], last, state, settled)
                return
        entries.append((first, last, state, settled))

    def drop_from(self, delivery_id: int) -> None:
        """Drop what concerns this delivery and later ones: they were never sent."""
        self.entries = [
            (first, min(last, delivery_id - 1), state, settled)
            for first, last, state, settled in self.entries
            if first < delivery_id
        ]

    def write(self) -> None:
        """All as frames; states of the same delivery keep their order."""
        entries, self.entries = self.entries, []
        if len(entries) > 2 or (len(entries) == 2 and entries[0][3] is entries[1][3]):
            entries = _merge(entries)
        connection, channel = self._session.connection, self._session.channel
        for first, last, state, settled in entries:
            frame = encode_disposition(channel, self._is_receiver, first, last, state, settled)
            if len(frame) > connection.remote_max_frame_size:
                frame = encode_disposition(channel, self._is_receiver, first, last, shortened_state(state), settled)
            connection._out.append(frame)
            connection.output_size += len(frame)


def _merge(entries: list[Range]) -> list[Range]:
    """Consecutive entries of the same state may be reordered: sort them, join adjacent ranges."""
    merged: list[Range] = []
    start = 0
    while start < len(entries):
        _, _, state, settled = entries[start]
        stop = start + 1
        if stop == len(entries) or entries[stop][3] is not settled or entries[stop][2] != state:
            merged.append(entries[start])
            start = stop
            continue
        while stop < len(entries) and entries[stop][3] is settled and entries[stop][2] == state:
            stop += 1
        ranges = sorted((first, last) for first, last, _, _ in entries[start:stop])
        first, last = ranges[0]
        for next_first, next_last in ranges[1:]:
            if next_first <= last + 1:
                last = max(last, next_last)
            else:
                merged.append((first, last, state, settled))
                first, last = next_first, next_last
        merged.append((first, last, state, settled))
        start = stop
    return merged


def encode_disposition(
    channel: int, is_receiver: bool, first: int, last: int, state: DeliveryState | None, settled: bool
) -> bytes:
    """One disposition frame; ids are wrapped here. For a single delivery `last` is omitted (AMQP 2.7.6)."""
    told = b"" if state is None else _ACCEPTED if state is ACCEPTED else write_state(state)
    around_ids = _around_ids if len(told) <= _SMALL_STATE else _around_ids.__wrapped__
    before, after = around_ids(channel, is_receiver, first == last, told, settled)
    if first == last:
        return before + (first & WRAP).to_bytes(4, "big") + after
    return before + (first & WRAP).to_bytes(4, "big") + b"\x70" + (last & WRAP).to_bytes(4, "big") + after


@lru_cache(_AROUND_IDS)
def _around_ids(channel: int, is_receiver: bool, single: bool, state: bytes, settled: bool) -> tuple[bytes, bytes]:
    """The frame before the first id and behind the last: the same for most dispositions of a connection."""
    before = b"\x41\x70" if is_receiver else b"\x42\x70"
    after = (b"\x40" if single else b"") + (b"\x41" if settled else b"\x42") + state
    size = len(before) + len(after) + (4 if single else 9)
    count = 5 if state else 4
    if size < 255:
        body = DISPOSITION_START + bytes((_LIST8, size + 1, count)) + before
    else:
        body = DISPOSITION_START + b"\xd0" + (size + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + before
    frame = len(body) + size - len(before) + _HEADER
    return frame.to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body, after
