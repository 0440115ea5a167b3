"""Blocks: many records of a stream as one value in a database. Positions are consecutive, and the time is one."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from typing import Final

from edges.store import Record

BLOCK_RECORDS: Final = 1000
BLOCK_OCTETS: Final = 1 << 20


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


def take(found: list[Record], body: bytes, at: int, time_us: int, first: int, records: int, octets: int) -> bool:
    """Adds the records of a block that begins at position `at` to `found`, from position `first` on, at most so many
    and so large together, and at least one in all. Returns whether the rest of the block fitted."""
    payloads = decode(body)
    if first > at:
        payloads = payloads[first - at :]
        at = first
    cut = min(len(payloads), records)
    if len(body) > octets:
        cut = min(cut, bisect_right(list(accumulate(map(len, payloads))), octets))
        cut = max(cut, 0 if found else 1)
    found += map(Record, range(at, at + cut), repeat(time_us), payloads[:cut])
    return cut == len(payloads)
