"""The judge of a run: reads its history (history.py) by time and counts what the verdict (verdict.py) rests on.

    onceway chaos judge DIRECTORY [--json]        exit 0 ok, 1 violated, 3 unknown, 2 not a history

Knows what applications saw and nothing of routers.  One pass; memory grows with the pairs of publisher and subscriber
and with the holes in what they saw, not with messages.  A subscription's *life* runs from a subscriber's `ready` until
it closes or is told of a gap; what was sent within it and accepted in time is due.  audit.py counts the same otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.judge.history import Event, HistoryError, read
from chaos.judge.ranges import Deliveries, Ranges
from chaos.judge.verdict import (
    EXAMPLES,
    Client,
    Judgement,
    PairTally,
    PublisherTally,
    RunFacts,
    Some,
    SubscriberTally,
    conclude,
    declared,
)

DEATHS = frozenset({"kill", "crash", "restart"})
"""Kinds of faults after which a client has nothing in hand any more."""
PASSING = frozenset({"kill", "crash", "restart", "reset", "reset_peer", "close"})
"""Kinds that are over at once, whatever their `until` says."""


def judge(directory: str | Path) -> Judgement:
    """HistoryError where it cannot be read."""
    return judge_events(read(directory))


def judge_events(events: Iterable[Event]) -> Judgement:
    counter = Counter()
    for event in events:
        counter.take(event)
    return counter.conclude()


@dataclass(slots=True)
class Publishing:
    client: Client
    tally: PublisherTally
    sent: Ranges = field(default_factory=Ranges)
    accepted: Ranges = field(default_factory=Ranges)
    answered: Ranges = field(default_factory=Ranges)


@dataclass(slots=True)
class Pair(Deliveries):
    let_go: Ranges = field(default_factory=Ranges)
    """In the hand of processes that were killed, and perhaps accepted there."""
    duplicated: Ranges = field(default_factory=Ranges)
    phantom: Ranges = field(default_factory=Ranges)
    reordered: Ranges = field(default_factory=Ranges)
    required: Ranges = field(default_factory=Ranges)
    """Of lives that ended with a close."""
    told_of: Ranges = field(default_factory=Ranges)
    """Sent within lives that ended with a rightful message of a gap."""
    wrongly_told_of: Ranges = field(default_factory=Ranges)


@dataclass(slots=True)
class Subscribing:
    client: Client
    tally: SubscriberTally
    pairs: dict[str, Pair] = field(default_factory=dict)
    before: dict[str, Ranges] | None = None
    """While a life lasts: what each publisher had sent when it began."""

    def pair(self, publisher: str) -> Pair:
        pair = self.pairs.get(publisher)
        if pair is None:
            pair = self.pairs[publisher] = Pair()
        return pair


class Counter:
    def __init__(self) -> None:
        self.run: Mapping[str, Any] | None = None
        self.end: Mapping[str, Any] | None = None
        self.publishers: dict[str, Publishing] = {}
        self.subscribers: dict[str, Subscribing] = {}
        self.faults: list[Event] = []
        self.first: float | None = None
        self.last = 0.0
        self._declared: tuple[dict[str, Client], dict[str, Client]] = {}, {}
        self._take = {
            "run": self._run,
            "end": self._end,
            "fault": self._fault,
            "send": self._send,
            "outcome": self._outcome,
            "receive": self._receive,
            "accept": self._accept,
            "ready": self._ready,
            "close": self._close,
            "told": self._told,
            "start": self._start,
            "attached": self._seen,
        }

    def take(self, event: Event) -> None:
        """Events come by time."""
        if self.first is None:
            self.first = event.t
        self.last = event.t
        take = self._take.get(event.op)
        if take is not None:
            take(event)

    # clients
    def publisher(self, name: str) -> Publishing:
        found = self.publishers.get(name)
        if found is None:
            client = self._declared[0].get(name) or Client(name)
            found = self.publishers[name] = Publishing(client, PublisherTally(name, seen=True))
        return found

    def subscriber(self, name: str) -> Subscribing:
        found = self.subscribers.get(name)
        if found is None:
            client = self._declared[1].get(name) or Client(name)
            found = self.subscribers[name] = Subscribing(client, SubscriberTally(name, seen=True))
        return found

    def _seen(self, event: Event) -> Publishing | Subscribing:
        role, name = event.client
        return self.publisher(name) if role == "p" else self.subscriber(name)

    # the run
    def _run(self, event: Event) -> None:
        if self.run is not None:
            raise HistoryError(f"{event.file}:{event.line}: a second line of the run")
        self.run = event.fields
        self._declared = declared(event.fields)
        for one in self.publishers.values():  # a client that was quicker than the runner
            one.client = self._declared[0].get(one.client.name, one.client)
        for other in self.subscribers.values():
            other.client = self._declared[1].get(other.client.name, other.client)

    def _end(self, event: Event) -> None:
        if self.end is not None:
            raise HistoryError(f"{event.file}:{event.line}: a second end")
        self.end = event.fields

    def _fault(self, event: Event) -> None:
        self.faults.append(event)
        name = killed_client(event.fields)
        if name is not None and name in self.subscribers:
            self._died(self.subscribers[name])

    # publishers
    def _send(self, event: Event) -> None:
        self.publisher(event.fields["p"]).sent.add(event.fields["n"])

    def _outcome(self, event: Event) -> None:
        fields = event.fields
        publisher, n = self.publisher(fields["p"]), fields["n"]
        publisher.answered.add(n)
        if fields["outcome"] == "accepted":
            publisher.accepted.add(n)

    # subscribers
    def _ready(self, event: Event) -> None:
        subscriber = self.subscriber(event.fields["s"])
        if subscriber.before is None:
            subscriber.tally.lives += 1
            subscriber.before = {name: one.sent.copy() for name, one in self.publishers.items()}

    def _receive(self, event: Event) -> None:
        fields = event.fields
        name, n = fields["p"], fields["n"]
        pair = self.subscriber(fields["s"]).pair(name)
        sender = self.publishers.get(name)
        if sender is None or n not in sender.sent:
            pair.phantom.add(n)
        repeats, late = pair.hand(n)
        if repeats:
            pair.duplicated.add(n)
        if late:
            pair.reordered.add(n)

    def _accept(self, event: Event) -> None:
        self.subscriber(event.fields["s"]).pair(event.fields["p"]).accept(event.fields["n"])

    def _close(self, event: Event) -> None:
        client = self._seen(event)
        if isinstance(client, Publishing):
            client.tally.closed = True
            return
        for pair in client.pairs.values():
            pair.in_hand.clear()
        for name, sent in self._end_life(client).items():
            client.pair(name).required |= sent & self.publishers[name].accepted

    def _told(self, event: Event) -> None:
        client = self._seen(event)
        if isinstance(client, Subscribing) and client.before is None:
            return  # there was nothing that could have a gap
        cause = any(fault.t + client.client.timeout_s <= event.t for fault in self.faults)
        client.tally.told += 1
        client.tally.told_without_cause += not cause
        if isinstance(client, Subscribing):
            for name, sent in self._end_life(client).items():
                pair = client.pair(name)
                if cause:
                    pair.told_of |= sent
                else:
                    pair.wrongly_told_of |= sent

    def _end_life(self, subscriber: Subscribing) -> dict[str, Ranges]:
        """What was sent within it."""
        before, subscriber.before = subscriber.before, None
        if before is None:
            return {}
        return {name: one.sent - before.get(name, Ranges()) for name, one in self.publishers.items()}

    def _start(self, event: Event) -> None:
        client = self._seen(event)
        if isinstance(client, Subscribing):
            self._died(client)

    def _died(self, subscriber: Subscribing) -> None:
        for pair in subscriber.pairs.values():
            pair.let_go |= pair.in_hand
            pair.in_hand.clear()

    # the end
    def conclude(self) -> Judgement:
        facts = RunFacts(
            self.run,
            self.end,
            lasting_faults((fault.fields for fault in self.faults), self.end),
            len(self.faults),
            self.last - (self.first or 0.0),
        )
        pairs = []
        for name, subscriber in self.subscribers.items():
            for publisher, sent in self._end_life(subscriber).items():
                subscriber.pair(publisher).required |= sent
            for publisher, pair in subscriber.pairs.items():
                sender = self.publishers.get(publisher)
                pairs.append(count_pair(name, publisher, pair, sender.accepted if sender else Ranges()))
        for one in self.publishers.values():
            one.tally.sent = len(one.sent)
            one.tally.accepted = len(one.accepted)
            one.tally.unresolved = some(one.sent - one.answered)
            one.tally.unsent = some(one.answered - one.sent)
        return conclude(
            facts,
            [one.tally for one in self.publishers.values()],
            [one.tally for one in self.subscribers.values()],
            pairs,
        )


def count_pair(subscriber: str, publisher: str, pair: Pair, accepted: Ranges) -> PairTally:
    required = pair.required & accepted
    wrongly = (pair.wrongly_told_of & accepted) - required
    excused = (pair.told_of & accepted) - required - wrongly
    missing = required - pair.accepted
    in_doubt = missing & pair.received
    return PairTally(
        subscriber,
        publisher,
        len(required) + len(wrongly) + len(excused),
        len(pair.received),
        len(pair.accepted),
        lost=some(wrongly - pair.accepted),
        silent=some(missing - pair.received),
        early=some(in_doubt - pair.let_go),
        unwritten=some(in_doubt & pair.let_go),
        excused=some(excused - pair.accepted),
        duplicated=some(pair.duplicated),
        phantom=some(pair.phantom),
        reordered=some(pair.reordered),
        unreceived=some(pair.accepted - pair.received),
    )


def some(numbers: Ranges) -> Some:
    return Some(len(numbers), numbers.first(EXAMPLES))


def killed_client(fault: Mapping[str, Any]) -> str | None:
    """The name of the client, of a fault that ends its process: `client s0`, `subscriber s0` or `s0`."""
    words = fault["target"].replace(":", " ").split()
    if fault["kind"] not in DEATHS or not words or words[0] in ("router", "trunk", "link"):
        return None
    return str(words[-1])


def lasting_faults(faults: Iterable[Mapping[str, Any]], end: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Those that were still there at the end: without `until`, or with one behind it."""
    if end is None:
        return ()
    return tuple(
        f"{fault['kind']} {fault['target']}"
        for fault in faults
        if fault["kind"] not in PASSING and (fault.get("until") is None or fault["until"] > end["t"])
    )
