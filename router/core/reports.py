"""What a router says of itself: all but its addresses at once, and each address in pieces.

A router may have a hundred thousand addresses, and an address thousands of links. A report of one address is a
generator that yields after each link, so that its reader can let other work run in between.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from router.core.counters import age_s
from router.core.intervals import count
from router.core.irregular import Irregular, Resume, State

if TYPE_CHECKING:
    from router.core.address import Address
    from router.core.core import Core
    from router.core.publisher import Publisher
    from router.core.subscriber import Subscriber

Report = dict[str, Any]
T = TypeVar("T")
REPORT_PIECE: Final = 500  # deliveries to count at once


def of_core(core: Core) -> Report:
    """Everything but addresses. Takes time for the routers in session, and for nothing else."""
    return {
        **core.startup.status(),
        "up": list(core.members.peers),
        "payload_bytes": core.memory.payload_bytes,
        "presettled_bytes": core.memory.presettled_bytes,
        "deferred": core.recovery.deferred,
    }


def of_all(core: Core) -> Report:
    """Everything, at once."""
    addresses = {name: at_once(of_address(address)) for name, address in sorted(core.addresses.items())}
    return {**of_core(core), "addresses": addresses}


def of_address(address: Address) -> Generator[None, None, Report]:
    """One address; yields after each link and subscription. Links may come and go meanwhile."""
    publishers = []
    for publisher in address.attached.all():
        publishers.append(of_publisher(address, publisher))
        yield
    subscribers = []
    for subscriber in list(address.deliveries.subscribers.values()):
        subscribers.append((yield from of_subscriber(subscriber)))
        yield
    subscriptions = []
    for entry in list(address.subscriptions.entries.values()):
        subscriptions.append(address.subscriptions.status_of(entry))
        yield
    free = {"free": address.queue.distribution.free.positions.size} if address.queue is not None else {}
    return {
        "type": address.config.type,
        "ingress": {**address.records.status(), **free, "publishers": publishers},
        "egress": {**address.deliveries.status(), "subscribers": subscribers},
        "subscriptions": subscriptions,
        "established": address.established,
        "publishers_known": len(address.publishers.entries),
        "oldest_in_doubt_s": address.publishers.oldest_in_doubt_s(),
    }


def of_publisher(address: Address, publisher: Publisher) -> Report:
    """One publisher that is attached here."""
    without_s = address.core.now - publisher.window.since if publisher.window.reason else 0.0
    told = address.windows.waiting.told(publisher)
    return {
        "container": publisher.brought.container,
        "name": publisher.brought.name,
        "term": list(publisher.term),
        "state": publisher.handshake.said,
        "undone": publisher.sent.undone,
        "unsettled": publisher.sent.unsettled,
        "expected": "unknown" if publisher.resending.unknown else len(publisher.resending.tags),
        "waits_for": sorted(publisher.handshake.missing),
        "no_credit": publisher.window.reason,
        "waiting": None if told is None else told.status(),
        "no_credit_s": round(without_s, 3),
    }


def of_subscriber(subscriber: Subscriber) -> Generator[None, None, Report]:
    """One subscription that is attached here. It may hold a hundred thousand irregular deliveries."""
    irregular = in_doubt = placeholders = not_accepted = 0
    for known in list(subscriber.irregular.by_tag.values()):
        for delivery in list(known.values()):
            if delivery.state is State.DECLINED:
                continue
            irregular += 1
            in_doubt += delivery.position < 0 and delivery.ingress is None
            placeholders += delivery.resume is Resume.PLACEHOLDER
            not_accepted += delivery.state is not State.ACCEPTED
            if not irregular % REPORT_PIECE:
                yield
    deliveries = subscriber.deliveries
    owed = subscriber.owes.overlap(0, deliveries.log.end)
    return {
        "container": subscriber.name[0],
        "name": subscriber.name[1],
        "term": list(subscriber.term),
        "answered": subscriber.handshake.answered,
        "waits_for": sorted(subscriber.handshake.missing),
        "unsettled": subscriber.sent.unsettled.size + irregular,
        "in_doubt": in_doubt,
        "placeholders": placeholders,
        "queued": count(subscriber.owes.overlap(subscriber.cursor, deliveries.log.end)),
        "not_accepted": count(owed) + not_accepted,
        "oldest_s": age_s(owed, deliveries.arrived_at, deliveries.core.now),
        "presettled_dropped": subscriber.presettled.dropped,
    }


def in_doubt(address: Address) -> Iterator[tuple[Subscriber, Irregular] | None]:
    """The deliveries that subscriptions here hold, and whose publisher has no router (protocol 8.4); None in between,
    where there may be a pause."""
    seen = 0
    for subscriber in list(address.deliveries.subscribers.values()):
        yield None
        for known in list(subscriber.irregular.by_tag.values()):
            for delivery in list(known.values()):
                seen += 1
                if not seen % REPORT_PIECE:
                    yield None
                if delivery.position < 0 and delivery.ingress is None and delivery.state is not State.DECLINED:
                    yield subscriber, delivery


def of_doubt(address: Address, subscriber: Subscriber, delivery: Irregular) -> Report:
    """One of them."""
    entry = address.publishers.entries.get(delivery.publisher_id)
    return {
        "container": subscriber.name[0],
        "name": subscriber.name[1],
        "tag": delivery.tag.hex(),
        "publisher": delivery.publisher_id.hex(),
        "state": delivery.state.name.lower(),
        "redeliveries": delivery.redeliveries,
        "away_s": None if entry is None else round(entry.age(address.core.now), 3),
        "timeout_s": None if entry is None else entry.timeout_s,
    }


def at_once(report: Generator[None, None, T]) -> T:
    """A report without pauses."""
    while True:
        try:
            next(report)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
