"""What is in the rows of the store, in either database, with their checksums; and what readers ask of them.

A block is many records of a stream as one value. Their positions are consecutive, and their time is one. Whatever is
read is checked: a row against its checksum, and a stream's blocks against the positions that they must have. Damage is
found where it is read, and never becomes a record.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice, pairwise, repeat
from typing import Any, Final, NamedTuple

from edges.store import Record
from onceway.client.sqlite_format import Damaged, crc_of

BLOCK_RECORDS: Final = 1000
BLOCK_OCTETS: Final = 1 << 20
FETCHED: Final = 64  # blocks at a time, at most


@dataclass(slots=True)
class Stream:
    """A row of the table of streams."""

    id: int
    name: str
    first: int = 0
    next: int = 0
    time_us: int = 0
    octets: int = 0  # of its blocks
    keep_us: int | None = None
    keep_octets: int | None = None
    waiting: list[bytes] = field(default_factory=list)  # appended, and not yet in a block
    fresh: list[Record] = field(default_factory=list)  # for `tails`

    def values(self) -> tuple[Any, ...]:
        """Of COLUMNS."""
        values = (
            self.id,
            self.name,
            self.first,
            self.next,
            self.time_us,
            self.octets,
            self.keep_us,
            self.keep_octets,
        )
        return *values, crc_of(*values)


class Block(NamedTuple):
    first: int
    last: int
    time_us: int
    body: bytes


COLUMNS: Final = "id, name, first, next, time_us, octets, keep_us, keep_octets, crc"


def streams(database: Any, where: str = "", *arguments: Any) -> list[Stream]:
    found = []
    for *values, crc in database.execute(f"SELECT {COLUMNS} FROM streams {where}", arguments):
        if crc_of(*values) != crc:
            raise Damaged(f"what is known of the stream {values[1]!r}")
        found.append(Stream(*values))
    return found


def find(database: Any, name: str) -> Stream | None:
    return next(iter(streams(database, "WHERE name = ?", name)), None)


def key_crc(key: str, value: bytes) -> int:
    return zlib.crc32(value, crc_of(key))


def checked_value(key: str, value: bytes, crc: int) -> bytes:
    if not isinstance(value, bytes) or key_crc(key, value) != crc:
        raise Damaged(f"the value of {key!r}")
    return value


def get(database: Any, key: str) -> bytes | None:
    row = database.execute("SELECT value, crc FROM keys WHERE key = ?", (key,)).fetchone()
    return None if row is None else checked_value(key, *row)


def block_crc(stream: int, first: int, last: int, time_us: int, body: bytes) -> int:
    return zlib.crc32(body, crc_of(stream, first, last, time_us))


def blocks(database: Any, stream: Stream, position: int, limit: int) -> Iterator[Block]:
    """The first blocks of a stream that end at or after the position; none after a gap."""
    query = "SELECT first, last, time_us, body, crc FROM blocks WHERE stream = ? AND last >= ? ORDER BY last LIMIT ?"
    for *values, crc in database.execute(query, (stream.id, position, limit)):
        block = Block(*values)
        if not isinstance(block.body, bytes) or block_crc(stream.id, *block) != crc:
            raise _damaged(stream.name, position)
        if not block.first <= position <= block.last:
            break
        yield block
        position = block.last + 1


def _damaged(stream: str, position: int) -> Damaged:
    return Damaged(f"the stream {stream!r} from position {position} on")


def split(payloads: Sequence[bytes]) -> Iterator[list[bytes]]:
    """In blocks of at most BLOCK_RECORDS records and about BLOCK_OCTETS."""
    block: list[bytes] = []
    octets = 0
    for payload in payloads:
        if block and (len(block) == BLOCK_RECORDS or octets + len(payload) > BLOCK_OCTETS):
            yield block
            block, octets = [], 0
        block.append(payload)
        octets += len(payload)
    if block:
        yield block


def encode(payloads: Sequence[bytes]) -> bytes:
    """Their count and lengths as 32-bit numbers, little-endian, then the payloads."""
    return struct.pack(f"<{len(payloads) + 1}I", len(payloads), *map(len, payloads)) + b"".join(payloads)


def decode(body: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<I", body)
    ends = accumulate(struct.unpack_from(f"<{count}I", body, 4), initial=4 * count + 4)
    return [body[start:end] for start, end in pairwise(ends)]


def take(found: list[Record], block: Block, first: int, records: int, octets: int) -> bool:
    """Adds the records of a block to `found`, from position `first` on, at most so many and so large together, and at
    least one in all. Returns whether the rest of the block fitted."""
    payloads = decode(block.body)[first - block.first :]
    cut = min(len(payloads), records)
    if len(block.body) > octets:
        cut = min(cut, bisect_right(list(accumulate(map(len, payloads))), octets))
        cut = max(cut, 0 if found else 1)
    found += map(Record, range(first, first + cut), repeat(block.time_us), payloads[:cut])
    return cut == len(payloads)


def read(database: Any, name: str, first: int, records: int, octets: int) -> list[Record]:
    found: list[Record] = []
    taken = 0
    limit = 1
    while (stream := find(database, name)) is not None:
        position = max(first, stream.first)
        if position >= stream.next or (found and position > first):
            break
        first = position
        limit = min(2 * limit, FETCHED)
        for block in blocks(database, stream, position, limit):
            whole = take(found, block, first, records - len(found), octets - taken)
            taken += len(block.body)
            if not whole or len(found) == records or taken > octets:
                return found
            first = block.last + 1
        if first == position:
            _check_trimmed(database, name, position)
    return found


def position_at(database: Any, name: str, time_us: int) -> int:
    """Halves what is left of the stream again and again: times only ascend."""
    stream = find(database, name)
    low, high = (stream.first, stream.next) if stream is not None else (0, 0)
    while stream is not None and low < high:
        middle = (low + high) // 2
        block = next(blocks(database, stream, middle, 1), None)
        if block is None:
            _check_trimmed(database, name, middle)
            low = middle + 1
        elif block.time_us < time_us:
            low = block.last + 1
        else:
            high = max(low, block.first)
    return low


def surplus(database: Any, stream: Stream, oldest_us: int, octets: int | None, most: int, most_octets: int) -> int:
    """The position before which are the stream's oldest blocks, as far as they are older than that time or more than so
    many octets. At most so many blocks are looked at, of about so many octets."""
    excess = 0 if octets is None else stream.octets - octets
    enough = excess - most_octets
    before = stream.first
    for last, time_us, size in islice(_oldest(database, stream), most):
        if (excess <= 0 and time_us >= oldest_us) or excess <= enough:
            break
        before = last + 1
        excess -= size
    return before


def _oldest(database: Any, stream: Stream) -> Iterator[tuple[int, int, int]]:
    """(last position, time, octets) of its blocks. They are asked for a few at a time: one is often enough."""
    position = stream.first
    query = "SELECT last, time_us, length(body) FROM blocks WHERE stream = ? AND last >= ? ORDER BY last LIMIT 8"
    while rows := database.execute(query, (stream.id, position)).fetchall():
        yield from rows
        position = rows[-1][0] + 1


def _check_trimmed(database: Any, name: str, position: int) -> None:
    """A position that was in the stream has no block: it was trimmed meanwhile, or there is damage."""
    stream = find(database, name)
    if stream is not None and stream.first <= position:
        raise _damaged(name, position)
