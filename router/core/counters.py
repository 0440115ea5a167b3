"""What a router counts for its metrics, by address: in batches and ranges, so that a delivery costs nothing of its own.

The first `OWN_COUNTERS` addresses that a router meets have counters of their own for as long as it runs. All others
share those named `OTHER`: a client that invents addresses must not make the metrics grow. Dynamic nodes, of which a
client may make one for each request, count as one address.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final, NamedTuple

from router.config import DYNAMIC_ADDRESS, is_dynamic
from router.core.intervals import Range

OWN_COUNTERS: Final = 200
OTHER: Final = "other"
BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
MARKS: Final = 256
MARK_EVERY_S: Final = 0.005
AGE_ERROR: Final = 1 / 8
LOST_KEPT: Final = 100
EXPIRED: Final = "expired"
BROKEN: Final = "broken"
LostSubscription = tuple[str, str, str, str]
"""Label of the address, container, link, EXPIRED or BROKEN."""


class Histogram:
    """How many took how long; `counts` has one more than `BOUNDS_S`, for those above."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def observe(self, seconds: float, number: int) -> None:
        self.counts[bisect_left(BOUNDS_S, seconds)] += number
        self.sum_s += seconds * number


class Timeline:
    """When the positions of a log were appended, to 5 ms or a quarter of their age.

    It keeps at most `MARKS` times with the first position of each; when they are full, it thins out the older ones.
    """

    __slots__ = ("_latest", "_latest_s", "_positions", "_times", "next_mark_s")

    def __init__(self) -> None:
        self._positions = array("q")
        self._times = array("d")
        self._latest = 0
        self._latest_s = self.next_mark_s = -1.0e9

    def note(self, start: int, now: float) -> None:
        """Positions from `start` on are appended now. Call it from `next_mark_s` on."""
        self._latest, self._latest_s, self.next_mark_s = start, now, now + MARK_EVERY_S
        if len(self._positions) >= MARKS:
            self._thin_out(now)
        self._positions.append(start)
        self._times.append(now)

    def _thin_out(self, now: float) -> None:
        share = AGE_ERROR
        positions, times = self._positions, self._times
        while len(times) > MARKS * 3 // 4:
            kept = [len(times) - 1]
            for i in range(len(times) - 2, -1, -1):  # a mark goes if the next one is as good for its age
                if i == 0 or times[kept[-1]] - times[i - 1] > (now - times[i]) * share:
                    kept.append(i)
            kept.reverse()
            positions, times = array("q", [positions[i] for i in kept]), array("d", [times[i] for i in kept])
            share *= 2
        self._positions, self._times = positions, times

    def appended_at(self, position: int) -> float:
        return self._times[max(bisect_right(self._positions, position) - 1, 0)]

    def observe(self, histogram: Histogram, start: int, stop: int, now: float) -> None:
        """Counts how long it has been since these positions were appended."""
        if start >= self._latest:  # the usual case
            seconds, number = now - self._latest_s, stop - start
            histogram.counts[bisect_left(BOUNDS_S, seconds)] += number  # as `Histogram.observe`, without its call
            histogram.sum_s += seconds * number
            return
        positions, times = self._positions, self._times
        i = max(bisect_right(positions, start) - 1, 0)
        while start < stop:
            end = positions[i + 1] if i + 1 < len(positions) and positions[i + 1] < stop else stop
            histogram.observe(now - times[i], end - start)
            start = end
            i += 1


class SubscriptionCounters:
    """Of the subscriptions of one address here."""

    def __init__(self) -> None:
        self.delivered = 0  # transfers, those after a release included
        self.delivered_settled = 0
        self.delivered_bytes = 0  # on the wire
        self.accepted = 0  # outcomes that subscribers have sent
        self.rejected = 0
        self.released = 0
        self.settled = 0  # settled to them
        self.redelivered = 0  # transfers of deliveries that had been sent before: after a release, or resumed
        self.presettled_dropped = 0
        self.resumed = 0  # attaches of subscriptions that were known
        self.timed_out = 0  # forgotten here, as they were away for too long (protocol 8.3)
        self.broken = 0  # told here that they have missed something (protocol 7.3)


class Counters:
    """Of one address at one router, since the router started."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.received = 0
        self.received_settled = 0  # pre-settled, at most once
        self.received_bytes = 0  # of payload, of both
        self.accepted = 0  # outcomes that publishers were told
        self.rejected = 0
        self.released = 0
        self.settled = 0  # forgotten: publishers have settled them
        self.abandoned = 0  # forgotten: their publisher's link was lost, and its map decides
        self.publishers_resumed = 0  # attaches with unsettled deliveries
        self.acceptance = Histogram()  # from transfer to outcome
        self.settlement = Histogram()  # from transfer to settlement
        self.expired = 0  # not sent, as their time was over; of a queue also by its publishers' router
        self.subscriptions = SubscriptionCounters()


class CountersByAddress:
    """The counters of one router.

    Attributes:
        by_label: By address, or `OTHER`.
        lost: When subscriptions were lost, by the clock of the router's owner; the latest is the last.
    """

    def __init__(self) -> None:
        self.by_label: dict[str, Counters] = {}
        self.lost: dict[LostSubscription, float] = {}

    def of(self, address: str) -> Counters:
        label = DYNAMIC_ADDRESS.match if is_dynamic(address) else address
        if label not in self.by_label and len(self.by_label) >= OWN_COUNTERS:
            label = OTHER
        found = self.by_label.get(label)
        if found is None:
            found = self.by_label[label] = Counters(label)
        return found

    def note_lost(self, counters: Counters, container: str, link: str, reason: str, now: float) -> None:
        """A subscription has lost, or may have lost, what others got. The last `LOST_KEPT` are remembered."""
        if reason == EXPIRED:
            counters.subscriptions.timed_out += 1
        else:
            counters.subscriptions.broken += 1
        lost = counters.label, container, link, reason
        self.lost.pop(lost, None)  # so that the latest is the last
        if len(self.lost) >= LOST_KEPT:
            del self.lost[next(iter(self.lost))]
        self.lost[lost] = now


def age_s(ranges: list[Range], timeline: Timeline, now: float) -> float:
    """For how many seconds the first of these positions has been there; 0 if there is none."""
    return round(max(0.0, now - timeline.appended_at(ranges[0][0])), 3) if ranges else 0.0


class Measured(NamedTuple):
    """What a router counts; nothing here is a copy."""

    counters: Mapping[str, Counters]  # by address, or `OTHER`
    loop_lag: Histogram
    turns: Histogram
    lost_s: Mapping[LostSubscription, float]  # how long ago
