"""The free records of a queue, and in which order, and to whom, they go (protocol 16.9, 16.10).

Most records are plain: they go in the order of positions to whoever has credit. Those with a group or with another
priority have a `Kind`. As long as there are any, the free ones are also kept by kind, so that what waits for one
consumer is not looked at while others get theirs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from heapq import merge
from typing import Final, NamedTuple

from router.core.directory import SubscriptionEntry
from router.core.intervals import IntervalSet
from router.core.messages import SubscriptionName

GROUPS: Final = 1 << 10  # numbers
GROUPS_SIZE: Final = GROUPS // 8  # bytes of a consumer's data
PRIORITY: Final = 4  # of a message that says nothing (AMQP 3.2.1)


class Kind(NamedTuple):
    """What a record has beside its position. group: its number."""

    priority: int = PRIORITY
    group: int | None = None


PLAIN: Final = Kind()
Stretch = tuple[int, int, int | None]
"""Positions start..stop-1 of one group, or of none."""


class FreeRecords:
    """Positions of free records. `kinds`: of all records that are not plain and not done, free or not."""

    __slots__ = ("by_kind", "kinds", "positions")

    def __init__(self) -> None:
        self.positions = IntervalSet()
        self.kinds: dict[int, Kind] = {}
        self.by_kind: dict[Kind, IntervalSet] = {}  # empty while `kinds` is

    def note(self, position: int, kind: Kind) -> None:
        """A record that is not free yet has this kind."""
        if not self.kinds:
            self.by_kind = {PLAIN: IntervalSet(self.positions)}
        self.kinds[position] = kind

    def forget(self, start: int, stop: int) -> None:
        """These records, which are not free any more, are done."""
        if self.kinds:
            for position in range(start, stop):
                self.kinds.pop(position, None)
            if not self.kinds:
                self.by_kind = {}

    def add(self, start: int, stop: int) -> None:
        self.positions.add(start, stop)
        if self.kinds:
            for kind, low, high in self.alike(start, stop):
                self.by_kind.setdefault(kind, IntervalSet()).add(low, high)

    def remove(self, start: int, stop: int) -> None:
        found = self.positions.remove(start, stop)
        if self.kinds:
            for first, last in found:
                for kind, low, high in self.alike(first, last):
                    self.by_kind[kind].remove(low, high)
                    if not self.by_kind[kind] and kind is not PLAIN:
                        del self.by_kind[kind]

    def alike(self, start: int, stop: int) -> Iterator[tuple[Kind, int, int]]:
        """Splits a stretch, free or not, where kinds change."""
        if not self.kinds:
            yield PLAIN, start, stop
            return
        low, kind = start, self.kinds.get(start, PLAIN)
        for position in range(start + 1, stop):
            other = self.kinds.get(position, PLAIN)
            if other != kind:
                yield kind, low, position
                low, kind = position, other
        if low < stop:
            yield kind, low, stop

    def in_order(self, waiting: Container[int]) -> Iterable[Stretch]:
        """Returns what may be assigned now, in the order in which it is. waiting: groups of which nothing may be. What
        has been returned may be removed meanwhile."""
        if not self.kinds:
            return [(start, stop, None) for start, stop in self.positions]
        stretches = [_stretches(kind, each) for kind, each in self.by_kind.items() if kind.group not in waiting]
        return ((start, stop, group) for _, start, stop, group in merge(*stretches))

    def check_invariants(self) -> None:
        self.positions.check_invariants()
        for kind, each in self.by_kind.items():
            each.check_invariants()
            assert each or kind is PLAIN
            assert all(self.kinds.get(at, PLAIN) == kind for start, stop in each for at in range(start, stop))
        assert not self.kinds or sum(each.size for each in self.by_kind.values()) == self.positions.size


def _stretches(kind: Kind, positions: IntervalSet) -> Iterator[tuple[int, int, int, int | None]]:
    at = 0
    while (found := positions.following(at)) is not None:
        yield -kind.priority, *found, kind.group
        at = found[1]


class Groups:
    """Which consumers have which groups, as one ingress sees it (protocol 16.9)."""

    def __init__(
        self, subscriptions: dict[SubscriptionName, SubscriptionEntry], free: FreeRecords, doubted: IntervalSet
    ) -> None:
        self.subscriptions = subscriptions
        self.free = free
        self.doubted = doubted
        self._holders: dict[int, SubscriptionName] = {}
        self._contested: set[int] = set()  # another consumer has said that it has it, too

    def assigned(self, group: int, name: SubscriptionName) -> None:
        self._holders[group] = name

    def noted(self, name: SubscriptionName, data: bytes) -> None:
        """A consumer has these groups."""
        has = int.from_bytes(data[:GROUPS_SIZE], "big")
        self._contested.update([g for g, holder in self._holders.items() if holder != name and has >> g & 1])
        self.forget_contested()

    def forget_contested(self) -> None:
        """Where no record of a group is undone, the routers agree again about who has it."""
        if self._contested:
            undone = {kind.group for kind in self.free.kinds.values()}
            for group in self._contested - undone:
                self._holders.pop(group, None)
            self._contested &= undone

    def holder(self, group: int) -> SubscriptionName | None:
        """Returns the consumer that has it, if there is one."""
        subscriptions = self.subscriptions
        holder = self._holders.get(group)
        if holder is not None:
            if holder in subscriptions:
                return holder
            del self._holders[group]
        all_data = ((e.name, e.data[:GROUPS_SIZE]) for e in subscriptions.values() if e.data)
        return min((name for name, data in all_data if int.from_bytes(data, "big") >> group & 1), default=None)

    def named(self, name: SubscriptionName, start: int, stop: int) -> None:
        """A consumer holds these records: their groups are its own where they are nobody's."""
        for kind, _, _ in self.free.alike(start, stop):
            if kind.group is not None and self.holder(kind.group) is None:
                self.assigned(kind.group, name)

    def in_doubt(self) -> set[int]:
        """Returns the groups of which a record has been sent again, and may be somebody's or nobody's."""
        kinds = self.free.kinds
        doubted = self.doubted if kinds else ()
        found = {kinds.get(at, PLAIN).group for start, stop in doubted for at in range(start, stop)}
        return {group for group in found if group is not None}


def added(data: bytes, more: bytes) -> bytes:
    """Returns data of a consumer with the groups of both, and what the later one has behind them (protocol 16.9)."""
    if not more or data == more:
        return data
    has = int.from_bytes(data[:GROUPS_SIZE], "big") | int.from_bytes(more[:GROUPS_SIZE], "big")
    return has.to_bytes(GROUPS_SIZE, "big") + (more[GROUPS_SIZE:] or data[GROUPS_SIZE:])


def data_of(groups: Iterable[int]) -> bytes:
    """Returns the data of a consumer with these groups."""
    has = 0
    for group in groups:
        has |= 1 << group
    return has.to_bytes(GROUPS_SIZE, "big")
