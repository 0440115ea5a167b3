"""Which subscriptions of an address a message may be for, by a table: the others are not touched (protocol 6.4.5).

A selection may need one value of a property (`router.core.ports.Needs`). A subscription of that kind that has nothing
to do is *idle*: it owes nothing of what has come, and holds nothing. All idle ones share one set of what they owe,
`tail`, which moves on with the log. So nobody goes through them when a message comes or is settled. Whatever else gives
one something to do wakes it (`Subscriber.pump`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from router.core.intervals import OPEN, IntervalSet
from router.core.ports import Needs, Places
from router.core.subscriber_handshake import NOTHING_NEW

if TYPE_CHECKING:
    from router.core.subscriber import Subscriber
    from router.core.traffic import Data


class ByNeed:
    """The subscriptions of one address, of which some need a value. `awake`: all that are not idle, of any kind.
    `others`: that need none. `tail`: the positions behind the log."""

    __slots__ = ("_by_name", "_ready", "awake", "others", "tail")

    def __init__(self, subscribers: Iterable[Subscriber], ready: dict[Subscriber, None], end: int) -> None:
        """ready: those that are asked when something comes. end: of the log."""
        self.awake: dict[Subscriber, None] = dict.fromkeys(subscribers)
        self.others = self.awake.copy()
        self.tail = IntervalSet([(end, OPEN)])
        self._ready = ready
        self._by_name: dict[str, dict[str | bytes, dict[Subscriber, None]]] = {}  # property -> value -> who needs it

    def __bool__(self) -> bool:
        """Says whether anybody needs a value."""
        return bool(self._by_name)

    def enter(self, subscriber: Subscriber) -> None:
        self.awake[subscriber] = None
        needs = needs_of(subscriber)
        if needs is None:
            self.others[subscriber] = None
        else:
            self._by_name.setdefault(needs.name, {}).setdefault(needs.value, {})[subscriber] = None

    def leave(self, subscriber: Subscriber) -> None:
        self.wake(subscriber)
        del self.awake[subscriber]
        self._ready.pop(subscriber, None)
        needs = needs_of(subscriber)
        if needs is None:
            del self.others[subscriber]
        else:
            values = self._by_name[needs.name]
            del values[needs.value][subscriber]
            if not values[needs.value]:
                del values[needs.value]
            if not values:
                del self._by_name[needs.name]

    def places(self, message: Data) -> Places | None:
        """Returns where the values are that somebody needs. None: it cannot be said, and any message may be wanted."""
        if message.open or message.message_format:
            return None
        asked = next(self._all()).selecting
        assert asked is not None
        return asked.selection.places(message.payloads, self._by_name)

    def wanting(self, found: Places) -> Iterator[tuple[Subscriber, list[int]]]:
        """Those that need what was found, each with the indexes of the messages that have it."""
        for (name, value), indexes in found.items():
            for subscriber in self._by_name.get(name, {}).get(value, ()):
                yield subscriber, indexes

    def come(self, message: Data, start: int, stop: int) -> Places | None:
        """This has come to the end of the log: wakes those that it may be for. Returns what `places` does."""
        found = self.places(message)
        if found is None:
            for subscriber in self._all():
                self.wake(subscriber)
        else:
            for subscriber, _ in self.wanting(found):
                self.wake(subscriber)
        self.tail.remove(start, stop)
        return found

    def wake(self, subscriber: Subscriber) -> None:
        """It may have something to do."""
        selecting = subscriber.selecting
        if selecting is not None and selecting.idle:
            selecting.idle = False
            selecting.selected = self.tail.first()
            subscriber.owes = IntervalSet(self.tail)
            self.awake[subscriber] = self._ready[subscriber] = None

    def rest(self, subscriber: Subscriber) -> None:
        """It is idle if it needs a value and has nothing to do."""
        selecting = subscriber.selecting
        if selecting is None or selecting.selection.needs is None or selecting.idle:
            return
        if has_nothing_to_do(subscriber, self.tail.first()):
            selecting.idle = True
            subscriber.owes = self.tail
            del self.awake[subscriber], self._ready[subscriber]

    def passes_by(self, subscriber: Subscriber, found: Places, start: int, stop: int) -> bool:
        """Says whether nothing that has just come is for it. What is not is answered for, and it may be idle then."""
        needs, selecting = needs_of(subscriber), subscriber.selecting
        if needs is None or selecting is None:
            return False
        wanted = found.get(needs, [])
        if not selecting.answer_without(subscriber, start, stop, wanted) or wanted:
            return False
        self.rest(subscriber)
        return True

    def _all(self) -> Iterator[Subscriber]:
        """Those that need a value."""
        for values in self._by_name.values():
            for those in values.values():
                yield from those

    def check_invariants(self, subscribers: Collection[Subscriber], end: int) -> None:
        idle = {each for each in subscribers if each.selecting is not None and each.selecting.idle}
        assert {*self.awake} == {*subscribers} - idle
        assert list(self.tail) == [(end, OPEN)]
        assert all(each.owes is self.tail and has_nothing_to_do(each, end) for each in idle)
        assert all(each.owes is not self.tail for each in self.awake)
        assert {*self.others} == {each for each in subscribers if needs_of(each) is None}
        assert {*self._all()} == {each for each in subscribers if needs_of(each) is not None}


def needs_of(subscriber: Subscriber) -> Needs | None:
    return subscriber.selecting.selection.needs if subscriber.selecting is not None else None


def has_nothing_to_do(subscriber: Subscriber, end: int) -> bool:
    """Says whether it owes nothing before the log's end, holds nothing, and nothing waits for it."""
    passage, irregular = subscriber.passage, subscriber.irregular
    return (
        subscriber.handshake.state not in NOTHING_NEW
        and subscriber.owes.starts == [end]
        and not subscriber.sent.unsettled.starts
        and not subscriber.irregular.skip.starts
        and not irregular.by_tag
        and not (irregular.to_resume or irregular.released or irregular.sync_queue)
        and not subscriber.presettled.batches
        and (passage is None or (passage.partial is None and not passage.passed_by))
    )
