"""Where one delivery is, as far as one router knows.

A delivery is named by its publisher (address, container-id, link name) and the publisher's own tag. The router may be
the publisher's ingress, the egress of some of its subscriptions, or neither. It looks through the tags of what is not
settled, once for each question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.core.directory import PublisherEntry
from router.core.irregular import Irregular, State
from router.core.naming import PREFIX, derive_publisher_id, outgoing_tags
from router.core.publisher import Publisher

if TYPE_CHECKING:
    from router.core.address import Address
    from router.core.core import Core
    from router.core.subscriber import Subscriber

Trace = dict[str, Any]


def trace(core: Core, name: str, container: str, link: str, tag: bytes) -> Trace:
    """Returns `{"known": [...]}` with an entry for each publisher of that name that the router knows: at most two, one
    that promises unique tags and one that does not.

    An entry has `unique_tags`; `home`: the router that the publisher is attached to, or None; `away_s`, `closed`;
    `ingress`: what this router has of the delivery as its ingress (`_at_ingress`), None where it is not; `egress`: the
    state of the delivery at each subscription that is attached here and knows it.
    """
    address = core.addresses.get(name)
    if address is None:
        return {"known": []}
    found: list[Trace] = []
    for unique in (False, True):
        publisher_id = derive_publisher_id(container, link, name, unique)
        entry = address.publishers.entries.get(publisher_id)
        publisher = address.ingress.publishers.get(publisher_id)
        if publisher is None:
            publisher = next(iter(address.attached.proving_as(publisher_id)), None)
        if publisher is None and entry is None:
            continue
        found.append(
            {
                "unique_tags": unique,
                "home": entry.home if entry is not None else None,
                "away_s": round(entry.age(core.now), 3) if entry is not None else 0.0,
                "closed": entry is not None and entry.closed,
                "ingress": None if publisher is None else _at_ingress(address, publisher, tag),
                "egress": [] if entry is None else _at_egress(address, entry, tag),
            }
        )
    return {"known": found}


def _at_ingress(address: Address, publisher: Publisher, tag: bytes) -> Trace:
    """`state` is
    - unknown: the router has nothing of it: it never came, or it is settled and forgotten,
    - expected: the publisher may send it again (it came before, to a router that has gone),
    - held: it came, and waits until the publisher's link is ready,
    - undone: `waits_for` names the subscriptions that have not accepted it,
    - done: the publisher was told the outcome, `rejected` says by how many, and has not settled it.
    """
    told: Trace = {"link": publisher.handshake.said, "credit": publisher.window.reason or "yes"}
    if tag in publisher.handshake.presented or any(tag in held.tags for held in publisher.held.batches):
        return {**told, "state": "expected" if tag in publisher.handshake.presented else "held"}
    (outgoing,) = outgoing_tags(publisher.prefix, [tag])
    if outgoing in publisher.resending.tags:
        return {**told, "state": "expected"}
    records = address.records
    position = records.find(publisher, outgoing)
    if position is None:
        return {**told, "state": "unknown"}
    age = max(0.0, address.core.now - records.taken_at.appended_at(position))
    told |= {"position": position, "age_s": round(age, 3), "rejected": records.refused.of(position)[0]}
    if position not in records.undone:
        return {**told, "state": "done"}
    return {**told, "state": "undone", "waits_for": _waits_for(address, publisher, position)}


def _waits_for(address: Address, publisher: Publisher, position: int) -> list[Trace]:
    """The subscriptions that may not have accepted it, with their home, and why. Those that share a copy at one home
    (`shared`) have one token: that home says which of them have accepted. `fed`: a queue, one of whose consumers is to
    get it (protocol 16.12)."""
    found: list[Trace] = []
    for home, tokens in address.records.awaited.items():
        if position in tokens:
            for container, name in sorted(publisher.coverage.covered.get(home, {})):
                found.append({"container": container, "name": name, "home": home, "why": "shared"})
    for entry in address.subscriptions.entries.values():
        why = "owed" if position in entry.owed else "syncing" if position in entry.syncing else None
        if why is not None:
            container, name = entry.name
            age = round(entry.age(address.core.now), 3)
            found.append({"container": container, "name": name, "home": entry.home, "why": why, "away_s": age})
    for queue, positions in address.records.feeds.awaited.items():
        if position in positions:
            found.append({"container": queue, "name": "", "home": None, "why": "fed"})
    return found


def _at_egress(address: Address, entry: PublisherEntry, tag: bytes) -> list[Trace]:
    """The state of the delivery at each subscription here: queued, sent, released, accepted or rejected; with
    `in_doubt` where the publisher's ingress is lost. A subscription that does not know it is left out."""
    (outgoing,) = outgoing_tags(entry.publisher_id + entry.incarnation.to_bytes(8, "big"), [tag])
    position = _arrived(address, entry.publisher_id, outgoing)
    found: list[Trace] = []
    for (container, name), subscriber in address.deliveries.subscribers.items():
        state = _state_at(subscriber, entry.publisher_id, outgoing, position)
        if state is not None:
            found.append({"container": container, "name": name, **state})
    return found


def _arrived(address: Address, publisher_id: bytes, outgoing: bytes) -> int | None:
    log = address.deliveries.log
    for run in log.runs.runs:
        if run.publisher_id == publisher_id:
            for start, stop in log.alive.overlap(run.start, run.stop):
                tags = log.segments.tags(start, stop)
                if outgoing in tags:
                    return start + tags.index(outgoing)
    return None


def _state_at(subscriber: Subscriber, publisher_id: bytes, outgoing: bytes, position: int | None) -> Trace | None:
    # an entry of the client's map may be of another incarnation
    known = subscriber.irregular.by_tag.get(publisher_id, {})
    for tag, delivery in known.items():
        if tag[PREFIX:] == outgoing[PREFIX:]:
            return _state_of(delivery)
    if position is None:
        return None
    if position in subscriber.sent.unsettled:
        if position in subscriber.sent.rejected:
            return {"state": "rejected"}
        return {"state": "sent" if position in subscriber.owes else "accepted"}
    return {"state": "queued"} if position in subscriber.owes else None


def _state_of(delivery: Irregular) -> Trace:
    state = delivery.state.name.lower()
    if delivery.state is State.ACCEPTED and delivery.rejected:
        state = "rejected"
    in_doubt = delivery.position < 0 and delivery.ingress is None
    return {"state": state, "in_doubt": in_doubt, "redeliveries": delivery.redeliveries}
