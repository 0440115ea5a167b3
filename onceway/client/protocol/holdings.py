"""A subscriber's deliveries that the network has not settled, and their outcomes.

Every new delivery gets a position, 0, 1, 2 ..., which it keeps however often the link attaches again.  Its tag is held
until the network has settled it, and a delivery whose tag is held is never handed on again (protocol 15).  A held
position is accepted, has another outcome, is wanted (known without its payload), or is undecided.  Tags are kept in
segments of consecutive positions, accepted positions as ranges.

Links, delivery-ids and the journal are the business of `subscribing`.
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
from onceway.client.ranges import RangeSet, ranges_of

NEEDED = Received(section_number=0, section_offset=0)
"""In a map: known, and wanted with its payload."""


class Segment:
    """Tags of consecutive positions."""

    __slots__ = ("front", "live", "position", "tags")

    def __init__(self, position: int, tags: list[bytes]) -> None:
        self.position = position
        self.tags = tags
        self.live = len(tags)  # how many are held
        self.front = 0  # how many at the front are not held


class Holdings:
    """Positions are given by `take`, and end with `settle` or `forget`."""

    __slots__ = ("_starts", "accepted", "positions", "reached", "segments", "settled_early", "outcomes", "wanted")

    def __init__(self) -> None:
        self.reached = 0  # the next position
        self.positions: dict[bytes, int] = {}  # of the tags that are held, in order of arrival
        self.accepted = RangeSet()  # durably, not settled
        self.outcomes: dict[int, Outcome] = {}  # other than accepted, durable, not settled
        self.wanted: dict[int, None] = {}  # positions without payload
        self.settled_early: dict[int, None] = {}  # settled by the network before the application's outcome
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
        """Positions for so many deliveries that arrived settled: they are not held."""
        position = self.reached
        self.reached = position + count
        return position

    def load(self, unsettled: Mapping[bytes, bytes | None]) -> bool:
        """Adds what the journal knows (tag -> encoded outcome; None: wanted).  Returns whether any of it is new."""
        new = [tag for tag in unsettled if tag not in self.positions]
        for tag, outcome in unsettled.items():
            position = self.positions.get(tag)
            if outcome is not None and position is not None and not self.has_outcome(position):
                # another process has decided it: our application's outcome is void
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
            self.accepted.add(position, position)
        else:
            assert isinstance(state, Rejected | Released | Modified)
            self.outcomes[position] = state

    # -- outcomes

    def has_outcome(self, position: int) -> bool:
        return position in self.accepted or position in self.outcomes

    def outcome(self, position: int) -> Outcome | None:
        return ACCEPTED if position in self.accepted else self.outcomes.get(position)

    def decide(self, first: int, last: int, state: Outcome) -> None:
        """The outcome of first .. last is durable."""
        if isinstance(state, Accepted):
            self.accepted.add(first, last)
        else:
            for position in range(first, last + 1):
                self.outcomes[position] = state

    def not_settled(self, first: int, last: int) -> list[tuple[int, int]]:
        """Returns first .. last without what the network had settled before its outcome. Such an outcome is void."""
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
        """The unsettled map of an attach (protocol 15)."""
        accepted, outcomes, wanted = self.accepted, self.outcomes, self.wanted
        if not (outcomes or wanted):
            return {tag: ACCEPTED if position in accepted else None for tag, position in self.positions.items()}
        return {
            tag: ACCEPTED if position in accepted else NEEDED if position in wanted else outcomes.get(position)
            for tag, position in self.positions.items()
        }

    @property
    def undecided(self) -> int:
        """How many held deliveries have a payload and no durable outcome."""
        decided = sum(last - first + 1 for first, last in self.accepted) + len(self.outcomes)
        return len(self.positions) - decided - len(self.wanted)

    def check_invariants(self) -> None:
        """Raises AssertionError where the state is impossible between two inputs (for simulations and tests)."""
        positions = list(self.positions.values())
        held = set(positions)
        assert len(held) == len(positions), "two tags have one position"
        assert not positions or max(positions) < self.reached
        accepted = {position for first, last in self.accepted for position in range(first, last + 1)}
        assert accepted <= held, f"accepted and not held: {accepted - held}"
        assert self.outcomes.keys() <= held, f"decided and not held: {self.outcomes.keys() - held}"
        assert self.wanted.keys() <= held, f"wanted and not held: {self.wanted.keys() - held}"
        assert accepted.isdisjoint(self.outcomes), "two outcomes of one delivery"
        assert accepted.isdisjoint(self.wanted), "accepted without its payload"
        assert sum(segment.live for segment in self.segments) == len(positions)
        assert self._starts == sorted(segment.position for segment in self.segments)

    # -- what goes

    def settle(self, first: int, last: int) -> list[bytes]:
        """The network has settled positions first .. last; the outcome of those without one will be void.

        Returns the tags that are no longer held.
        """
        done = self.accepted.remove(first, last)
        if done != [(first, last)]:
            known = {position for low, high in done for position in range(low, high + 1)}
            for tag in self.tags(first, last):
                position = self.positions.get(tag, -1)
                if first <= position <= last and position not in known and position not in self.outcomes:
                    self.settled_early[position] = None
                    self.wanted.pop(position, None)
        return self.forget(first, last)

    def forget(self, first: int, last: int) -> list[bytes]:
        """Positions first .. last are settled.  Returns the tags that are no longer held."""
        gone: list[bytes] = []
        held = self.positions
        self.accepted.remove(first, last)
        if self.outcomes:
            for position in [position for position in self.outcomes if first <= position <= last]:
                del self.outcomes[position]
        at = max(bisect_right(self._starts, first) - 1, 0)
        while at < len(self._starts) and self._starts[at] <= last:
            segment = self.segments[at]
            start = segment.position
            low, size = max(first - start, 0), len(segment.tags)
            tags = segment.tags[low : max(last - start + 1, 0)]
            if low == segment.front and segment.live == size - low:  # as a rule, all from here on are held
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
        """The tags of positions first .. last; those of segments in which nothing is held are gone."""
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
