"""What snapshots say nothing of, because nothing will ever ask for it: it is put down as when it was new.

Each entry of `AS_IF` names a class, and what its instances are written down with instead of what they have. A line is
right here only if no later behaviour depends on it, as far as these worlds go (two messages, no timers that run):

- counts by which nothing decides, and what an engine has learnt to read faster, to the same effect;
- estimates and windows that are thousands of entries and frames away from deciding anything;
- what only an event that is over has asked for: the maps, properties and termini of the attaches of a link that is
  attached (they are read when an attach is answered, or has been), what a proof was opened with that is closed (opening
  it sets all of that anew), how a publisher came when it has been claimed;
- the order of what is only asked for who is in it, or says something to each of several that none of the others hears
  of, and what is left in a table until it is next looked through, which takes it out unseen;
- which of several that are all asked is asked first (`blocker`).

Exceptions to none of these are known; that worlds which were put together look like whole ones (`agree`) and that quiet
situations are the same without persistent sets, and with nothing left out, would show some.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from amqp10.incoming import Incoming
from amqp10.link import Link, LinkState
from amqp10.outgoing import Outgoing
from amqp10.reading import Reader
from amqp10.receiver import ReceiverLink
from amqp10.sender import SenderLink
from router.client_connection import ClientConnection
from router.core import Core
from router.directory import PublisherEntry
from router.egress import Egress
from router.ingress import Ingress
from router.intervals import IntervalSet
from router.memory import RECOUNT_S, Bookkeeping
from router.proof import Proof
from router.publisher import Phase, Publisher
from router.subscriber import Subscriber
from router.subscriber_link import MOST_AT_ONCE, PORTION, SubscriberLink

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


def _receiver(link: ReceiverLink) -> dict[str, Any]:
    """available: a hint for applications; none of these takes it."""
    return {**_attaches(link), "available": None}


def _proof(proof: Proof) -> dict[str, Any]:
    return {} if proof.open else {"since": 0.0, "_threshold": 0, "_seen": frozenset(), "_written": False}


def _publisher(publisher: Publisher) -> dict[str, Any]:
    come = {} if publisher.phase is Phase.PROVING else {"resumes": False, "goes_on": False}
    covered = {home: dict(sorted(publisher.covered[home].items())) for home in sorted(publisher.covered)}
    return {
        **come,
        "covered": covered,
        "uncovered": dict.fromkeys(sorted(publisher.uncovered, key=attrgetter("name"))),
    }


def _subscriber(subscriber: Subscriber) -> dict[str, Any]:
    return {"joined": dict(sorted(subscriber.joined.items()))}


def _entry(entry: PublisherEntry) -> dict[str, Any]:
    return {"special": dict.fromkeys(sorted(entry.special, key=_by_name))}


def _core(core: Core) -> dict[str, Any]:
    return {
        "publishers": dict(sorted(core.publishers.items(), key=lambda item: (item[1].publisher, item[1].term))),
        "subscribers": dict(sorted(core.subscribers.items(), key=lambda item: _by_name(item[1]))),
    }


def _by_name(subscriber: Subscriber) -> tuple[Any, ...]:
    return subscriber.name, subscriber.term


def _ingress(ingress: Ingress) -> dict[str, Any]:
    """blocker: asked before the others, of which it is one; one that is none of them any more is kept."""
    owing = {entry: None for entry in ingress.owing if entry.owed or entry.syncing}
    blocker = ingress.blocker
    others = (*ingress.awaited.values(), *(entry.owed for entry in owing), *(entry.syncing for entry in owing))
    if not blocker or any(blocker is other for other in others):
        blocker = IntervalSet()
    return {"owing": owing, "blocker": blocker, "awaited": dict(sorted(ingress.awaited.items()))}


def _egress(egress: Egress) -> dict[str, Any]:
    """blocker: the same."""
    blocker = egress.blocker
    asked = blocker is not None and egress.subscribers.get(blocker.name) is blocker
    return {"blocker": None} if asked else {}


AS_IF: dict[type, Callable[[Any], dict[str, Any]]] = {
    ClientConnection: lambda _: {"writes": 0},
    Bookkeeping: lambda _: {"_counted": 0, "_since": 0, "_at": -RECOUNT_S},
    Reader: lambda _: {"frames": 0, "_shapes": {}, "_dispositions": {}},
    SubscriberLink: lambda _: {"_size": PORTION // MOST_AT_ONCE, "_write": 0, "_allowance": MOST_AT_ONCE},
    Incoming: lambda incoming: {"left": USUAL_WINDOW} if incoming.left > WIDE else {},
    Outgoing: lambda outgoing: {"window": USUAL_WINDOW} if outgoing.window > WIDE else {},
    SenderLink: _attaches,
    ReceiverLink: _receiver,
    Proof: _proof,
    Publisher: _publisher,
    Subscriber: _subscriber,
    PublisherEntry: _entry,
    Core: _core,
    Ingress: _ingress,
    Egress: _egress,
}
