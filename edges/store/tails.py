"""The last records of streams, in memory: who waits for records asks for them as soon as they are there."""

from __future__ import annotations

from typing import Final

from edges.store import Record

STREAMS: Final = 64  # the others' records are read from the database
OCTETS: Final = 1 << 16  # of a stream, about
RECORDS: Final = 256
FRESH: Final = 128  # appended at a time: more are read in large pieces anyway


def fresh(first: int, time_us: int, payloads: list[bytes]) -> list[Record]:
    """What was appended, if it is to be remembered."""
    if len(payloads) > FRESH or sum(map(len, payloads)) > OCTETS // 2:
        return []
    return [Record(first + index, time_us, payload) for index, payload in enumerate(payloads)]


class Tails:
    """The writer's thread remembers, the loop reads: a list is replaced as a whole."""

    def __init__(self) -> None:
        self._records: dict[str, list[Record]] = {}
        self._octets: dict[str, int] = {}

    def remember(self, stream: str, fresh: list[Record]) -> None:
        """These are durable."""
        tail = self._records.pop(stream, [])
        octets = self._octets.pop(stream, 0)
        if tail and (tail[-1].position + 1 != fresh[0].position or octets > OCTETS // 2):
            tail, octets = [], 0
        gone = max(0, len(tail) + len(fresh) - RECORDS)
        new = [*tail, *fresh]
        self._octets[stream] = octets + _octets(fresh) - _octets(new[:gone])
        self._records[stream] = new[gone:]
        if len(self._records) > STREAMS:
            oldest = next(iter(self._records))
            del self._records[oldest], self._octets[oldest]

    def read(self, stream: str, first: int, end: int, records: int) -> list[Record] | None:
        """The records from `first` to the stream's end, at most so many; None if they are not in memory."""
        tail = self._records.get(stream)
        if not tail or first < tail[0].position or tail[-1].position + 1 < end:
            return None
        return tail[first - tail[0].position :][:records]


def _octets(records: list[Record]) -> int:
    return sum(len(record.payload) for record in records)
