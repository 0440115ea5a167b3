"""What snapshots leave out, because nothing will ever read it again: it is written as when it was new.

Each entry of `AS_IF` names a class, and the values that its instances are written with instead of their own. It is
right only if no later behaviour depends on the values, in worlds as small as these (two messages, no timers that run):

- counters, ages and times that only metrics tell, and caches that only make the engine faster;
- estimates and windows that are thousands of entries and frames away from deciding anything;
- what only a past event needed: the maps, properties and termini of the attaches of an attached link (they are read
  when an attach is answered), what a closed proof was opened with (opening it sets all of that anew), how a publisher
  came once it has been claimed;
- the order of collections that are only asked for membership, or whose members are told something independently of each
  other, and what is left in a table until it is next looked through, which drops it unseen;
- which of several members, all of which are asked, is asked first (`blocker`).

No exceptions to these are known. Two checks would show one: states that were put together look like whole worlds
(`agree`), and quiet states are the same without persistent sets and with nothing left out.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from operator import attrgetter
from typing import Any

from amqp10.incoming import Incoming
from amqp10.link import Link, LinkState
from amqp10.outgoing import Outgoing
from amqp10.reading import Reader
from amqp10.receiver import ReceiverLink
from amqp10.sender import SenderLink
from router.core.core import Core
from router.core.counters import Counters, CountersByAddress, SubscriptionCounters, Timeline
from router.core.coverage import Coverage
from router.core.deliveries import Deliveries
from router.core.intervals import IntervalSet
from router.core.irregular import Irregulars
from router.core.publisher import Publisher
from router.core.publisher_handshake import Handshake
from router.core.records import Records
from router.core.subscriber import Subscriber
from router.core.subscriber_handshake import Handshake as SubscriberHandshake
from router.core.topic.distribution import TopicDistribution
from router.core.topic.reception import TopicReception
from router.links.client_connection import ClientConnection
from router.links.limits import RECOUNT_S, Bookkeeping
from router.links.proof import Proof
from router.links.subscriber_link import MAX_BURST, MAX_BURST_BYTES, SubscriberLink

UNANSWERED = (LinkState.NEW, LinkState.ATTACH_SENT, LinkState.ATTACH_RECEIVED)
WIDE = 1024  # frames: far more than there are
USUAL_WINDOW = 4096


def _attaches(link: Link) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    if link._state not in UNANSWERED:
        for name in ("local_attach", "remote_attach"):
            attach = getattr(link, name)
            if attach is not None:
                changed[name] = replace(attach, unsettled=None, properties=None, source=None, target=None)
    return changed


def _proof(proof: Proof) -> dict[str, Any]:
    closed = {"since": 0.0, "_threshold": 0, "_seen": frozenset(), "_written": False, "question": False}
    return {} if proof.open else closed


def _publisher(publisher: Publisher) -> dict[str, Any]:
    if publisher.handshake.is_proving:
        return {}
    brought = copy(publisher.brought)
    brought.resumes = False
    return {"brought": brought}


def _coverage(coverage: Coverage) -> dict[str, Any]:
    covered = {home: dict(sorted(names.items())) for home, names in sorted(coverage.covered.items())}
    return {"covered": covered, "uncovered": dict.fromkeys(sorted(coverage.uncovered, key=attrgetter("name")))}


def _handshake(handshake: Handshake) -> dict[str, Any]:
    late = handshake.may_be_late and handshake.is_proving
    return {"may_be_late": late, "call": handshake.call if handshake.is_calling else 0}


def _irregulars(irregular: Irregulars) -> dict[str, Any]:
    return dict.fromkeys([name for name in ("to_resume", "sync_queue") if not getattr(irregular, name)], ())


def _joined(handshake: SubscriberHandshake) -> dict[str, Any]:
    return {"joined": dict(sorted(handshake.joined.items()))}


def _core(core: Core) -> dict[str, Any]:
    """The tables are sorted in their place: parts of addresses have them, too."""
    publishers = sorted(core.publishers.items(), key=lambda item: (item[1].publisher_id, item[1].term))
    subscribers = sorted(core.subscribers.items(), key=lambda item: _by_name(item[1]))
    core.publishers.clear()
    core.publishers.update(publishers)
    core.subscribers.clear()
    core.subscribers.update(subscribers)
    return {}


def _by_name(subscriber: Subscriber) -> tuple[Any, ...]:
    return subscriber.name, subscriber.term


def _counters(counters: Counters) -> dict[str, Any]:
    return {**vars(Counters(counters.label)), "subscriptions": counters.subscriptions}


def _records(records: Records) -> dict[str, Any]:
    owing = {entry: None for entry in records.owing if entry.owed or entry.syncing}
    return {"owing": owing, "awaited": dict(sorted(records.awaited.items()))}


def _distribution(distribution: TopicDistribution) -> dict[str, Any]:
    """blocker: asked before the others, of which it is one; one that is none of them any more is kept."""
    records, blocker = distribution.records, distribution.blocker
    others = [*records.awaited.values(), *(each for entry in records.owing for each in (entry.owed, entry.syncing))]
    return {"blocker": IntervalSet()} if not blocker or any(blocker is other for other in others) else {}


def _deliveries(deliveries: Deliveries) -> dict[str, Any]:
    """Sorted in its place: the egress has it, too."""
    for those in deliveries.special.values():
        ordered = sorted(those, key=_by_name)
        those.clear()
        those.update(dict.fromkeys(ordered))
    return {}


def _reception(reception: TopicReception) -> dict[str, Any]:
    """Whom it asks first who owes something decides nothing."""
    return {"_ring": deque(), "_ring_end": 0}


def _timeline(_: Timeline) -> dict[str, Any]:
    return {
        "_positions": array("q", [0]),
        "_times": array("d", [0.0]),
        "_latest": 0,
        "_latest_s": -1.0e9,
        "next_mark_s": -1.0e9,
    }


AS_IF: dict[type, Callable[[Any], dict[str, Any]]] = {
    ClientConnection: lambda _: {"writes": 0},
    Bookkeeping: lambda _: {"_counted": 0, "_added": 0, "_counted_at": -RECOUNT_S},
    Reader: lambda _: {"frames": 0, "_shapes": {}, "_dispositions": {}, "_flows": {}},
    SubscriberLink: lambda _: {"_size": MAX_BURST_BYTES // MAX_BURST, "_write": 0, "_allowance": MAX_BURST},
    Incoming: lambda incoming: {"left": USUAL_WINDOW} if incoming.left > WIDE else {},
    Outgoing: lambda outgoing: {"window": USUAL_WINDOW} if outgoing.window > WIDE else {},
    SenderLink: _attaches,
    ReceiverLink: _attaches,
    Proof: _proof,
    Publisher: _publisher,
    Coverage: _coverage,
    Handshake: _handshake,
    Irregulars: _irregulars,
    SubscriberHandshake: _joined,
    Core: _core,
    Counters: _counters,
    SubscriptionCounters: lambda _: vars(SubscriptionCounters()),
    CountersByAddress: lambda _: {"lost": {}},
    Timeline: _timeline,
    Records: _records,
    TopicDistribution: _distribution,
    TopicReception: _reception,
    Deliveries: _deliveries,
}
