"""What a subscriber has in hand: every delivery that the network has not settled, and the verdict on it.

Every new delivery gets a position, 0, 1, 2 ..., by which it is known here however often the link is attached again.
Its tag is held until the network has settled it, and a tag that is held is never handed on again (PROTOCOL 15).  A
position that is held has been accepted, has another verdict, is wanted (known without its payload), or is the
application's to decide.  Runs throughout: segments of tags by position, spans of verdicts.

Knows nothing of links, delivery-ids and the journal: `subscribing` does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping

from amqp10.outcomes import (
    ACCEPTED,
    Accepted,
    DeliveryState,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    read_state,
)
from router.intervals import IntervalSet

NEEDED = Received(section_number=0, section_offset=0)
"""In a map: known, and wanted with its payload."""


class Segment:
    """Tags of consecutive positions."""

    __slots__ = ("front", "live", "position", "tags")

    def __init__(self, position: int, tags: list[bytes]) -> None:
        self.position = position
        self.tags = tags
        self.live = len(tags)  # held
        self.front = 0  # so many at the front are not


class Holdings:
    """Positions are given by `take`, and end with `settle` or `forget`."""

    __slots__ = ("_starts", "accepted", "positions", "reached", "segments", "settled_early", "verdicts", "wanted")

    def __init__(self) -> None:
        self.reached = 0  # the next position
        self.positions: dict[bytes, int] = {}  # of the tags that are held, in order of arrival
        self.accepted = IntervalSet()  # durably, not settled
        self.verdicts: dict[int, Outcome] = {}  # other than accepted, durable, not settled
        self.wanted: dict[int, None] = {}  # positions without payload
        self.settled_early: dict[int, None] = {}  # settled by the network before they were decided
        self.segments: list[Segment] = []
        self._starts: list[int] = []  # positions of the segments

    # -- what comes

    def take(self, tags: list[bytes]) -> int:
        """New deliveries; returns the position of the first."""
        position = self.reached
        self.reached = position + len(tags)
        self.positions.update(zip(tags, range(position, self.reached), strict=True))
        self.segments.append(Segment(position, tags))
        self._starts.append(position)
        return position

    def pass_by(self, count: int) -> int:
        """Positions for so many that were settled when they came: nothing of them is held."""
        position = self.reached
        self.reached = position + count
        return position

    def load(self, unsettled: Mapping[bytes, bytes | None]) -> bool:
        """What the journal knows (tag -> encoded outcome, or None: wanted again).  Whether any of it is new here."""
        new = [tag for tag in unsettled if tag not in self.positions]
        for tag, outcome in unsettled.items():
            position = self.positions.get(tag)
            if outcome is not None and position is not None and not self.has_verdict(position):
                # in hand here, but another process has decided it: our application's verdict is void
                self.settled_early[position] = None
                self.wanted.pop(position, None)
                self._note(position, outcome)
        if not new:
            return False
        for position, tag in enumerate(new, self.take(new)):
            outcome = unsettled[tag]
            if outcome is None:
                self.wanted[position] = None
            else:
                self._note(position, outcome)
        return True

    def _note(self, position: int, outcome: bytes) -> None:
        state = read_state(outcome, 0, len(outcome))[0]
        if isinstance(state, Accepted):
            self.accepted.add(position, position + 1)
        else:
            assert isinstance(state, Rejected | Released | Modified)
            self.verdicts[position] = state

    # -- verdicts

    def has_verdict(self, position: int) -> bool:
        return position in self.accepted or position in self.verdicts

    def verdict(self, position: int) -> Outcome | None:
        return ACCEPTED if position in self.accepted else self.verdicts.get(position)

    def decide(self, first: int, last: int, state: Outcome) -> None:
        """The verdict on first .. last is durable."""
        if isinstance(state, Accepted):
            self.accepted.add(first, last + 1)
        else:
            for position in range(first, last + 1):
                self.verdicts[position] = state

    def not_settled(self, first: int, last: int) -> list[tuple[int, int]]:
        """first .. last without what the network has settled before the verdict (which is void then)."""
        early = self.settled_early
        if not early:
            return [(first, last)]
        hit = [position for position in early if first <= position <= last]
        for position in hit:
            del early[position]
        if not hit:
            return [(first, last)]
        void = set(hit)
        return ranges_of([position for position in range(first, last + 1) if position not in void])

    def unsettled_map(self) -> dict[bytes, DeliveryState | None]:
        """As an attach says it (PROTOCOL 15)."""
        accepted, verdicts, wanted = self.accepted, self.verdicts, self.wanted
        if not (verdicts or wanted):
            return {tag: ACCEPTED if position in accepted else None for tag, position in self.positions.items()}
        return {
            tag: ACCEPTED if position in accepted else NEEDED if position in wanted else verdicts.get(position)
            for tag, position in self.positions.items()
        }

    # -- what goes

    def settle(self, first: int, last: int) -> list[bytes]:
        """The network is done with positions first .. last; those that nobody has decided get a void verdict.

        Returns the tags that are held no more.
        """
        done = self.accepted.remove(first, last + 1)
        if done != [(first, last + 1)]:
            known = {position for start, end in done for position in range(start, end)}
            for tag in self.tags(first, last):
                position = self.positions.get(tag, -1)
                if first <= position <= last and position not in known and position not in self.verdicts:
                    self.settled_early[position] = None
                    self.wanted.pop(position, None)
        return self.forget(first, last)

    def forget(self, first: int, last: int) -> list[bytes]:
        """Positions first .. last are settled.  Returns the tags that are held no more."""
        gone: list[bytes] = []
        held = self.positions
        self.accepted.remove(first, last + 1)
        if self.verdicts:
            for position in [position for position in self.verdicts if first <= position <= last]:
                del self.verdicts[position]
        at = max(bisect_right(self._starts, first) - 1, 0)
        while at < len(self._starts) and self._starts[at] <= last:
            segment = self.segments[at]
            start = segment.position
            low, size = max(first - start, 0), len(segment.tags)
            tags = segment.tags[low : max(last - start + 1, 0)]
            if low == segment.front and segment.live == size - low:  # as a rule: all from here on are held
                deque(map(held.__delitem__, tags), maxlen=0)
                gone += tags
                segment.front += len(tags)
                segment.live -= len(tags)
            else:
                for number, tag in enumerate(tags, start + low):
                    if held.get(tag) == number:
                        del held[tag]
                        gone.append(tag)
                        segment.live -= 1
            if segment.live:
                at += 1
            else:
                del self.segments[at], self._starts[at]
        return gone

    def tags(self, first: int, last: int) -> list[bytes]:
        """Of the positions first .. last that are still known (segments with nothing held are gone)."""
        at = max(bisect_right(self._starts, first) - 1, 0)
        if at < len(self._starts):
            segment = self.segments[at]
            start = segment.position
            if start <= first and last < start + len(segment.tags):
                return segment.tags[first - start : last - start + 1]
        tags: list[bytes] = []
        while at < len(self._starts) and self._starts[at] <= last:
            segment = self.segments[at]
            start = segment.position
            tags += segment.tags[max(first - start, 0) : max(last - start + 1, 0)]
            at += 1
        return tags


def ranges_of(numbers: list[int]) -> list[tuple[int, int]]:
    """Numbers as inclusive ranges."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges
