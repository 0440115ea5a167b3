"""One address at one router: the parts that it has, and what concerns all of them.

Addresses know nothing of each other. A part knows those parts that its constructor takes:

- `publisher_directory`, `subscription_directory`: what every router knows of publishers and subscriptions;
- `ingress`: publishers attach here, prove themselves, claim, and go; it has the `streams`, which subscriptions get that
  of a publisher, with the `completion` of what it settles, and the `turns` of large deliveries;
- `windows`: how much a publisher that is attached here may send;
- `records`: what these publishers have sent and not settled; and the `feeds` of queues from a topic;
- `deliveries`: what comes in for subscriptions that are attached here, and its outcomes;
- `egress`: subscriptions attach here, are answered, resume, and go; it has the maps that are `kept` for clients.

Topics and queues have all of these. What differs are two objects that they hold: `records.distribution` says to whom
records go and when they are done, `deliveries.reception` how deliveries come and who answers for them. They are those
of `router.core.topic` or of `router.core.queue`; whatever else only a queue has is `queue`.

Read `router.core.base` for what all addresses share.
"""

from __future__ import annotations

from collections.abc import Iterator

from router.core import messages as m
from router.core.base import BaseAddress, BaseCore
from router.core.completion import Completion
from router.core.deliveries import Deliveries
from router.core.directory import SubscriptionEntry
from router.core.egress import Egress
from router.core.feeding import Feeds
from router.core.finishing import Finishing
from router.core.ingress import Ingress
from router.core.keeping import Attached
from router.core.kept_maps import Kept
from router.core.naming import NO_TERM
from router.core.ports import PublisherAttach, PublisherPort, SubscriberAttach, SubscriberPort
from router.core.publisher_directory import PublisherDirectory
from router.core.queue.expiring import Expiring
from router.core.queue.queue import Queue
from router.core.queue.reception import QueueReception
from router.core.records import Records
from router.core.streams import Streams
from router.core.subscription_directory import SubscriptionDirectory
from router.core.topic.distribution import TopicDistribution
from router.core.topic.reception import TopicReception
from router.core.turns import Turns
from router.core.windows import Windows


class Address(BaseAddress):
    """A topic or a queue, as one router sees it."""

    def __init__(self, core: BaseCore, name: str, first_position: int, subscribers: Attached) -> None:
        super().__init__(core, name)
        kept = Kept(self, subscribers)
        self.publishers = PublisherDirectory(self)
        self.deliveries = Deliveries(self, self.publishers)
        consumers = QueueReception(self.deliveries) if self.doubts is not None else None
        self.egress = self.publishers.egress = Egress(self, self.deliveries, kept, consumers)
        completion = Completion(self, Finishing(self, kept))
        feeds, turns = Feeds(self, completion), Turns(self)
        self.records = feeds.records = Records(self, first_position, feeds, turns)
        streams = Streams(self, self.records, completion)
        self.windows = Windows(self, streams)
        self.ingress = Ingress(self, self.publishers, streams, turns, self.windows)
        self.queue = Queue(self.records, self.ingress, consumers) if consumers is not None else None
        if self.queue is None:
            self.deliveries.reception = TopicReception(self.deliveries, self.egress)
            self.records.distribution = TopicDistribution(self.records)
        self.subscriptions = SubscriptionDirectory(self, self.egress, streams, self.ingress)

    @property
    def timed(self) -> TopicReception | Expiring:
        """What has deliveries whose time may be over."""
        if self.queue is not None:
            return self.queue.distribution.expiring
        assert isinstance(self.deliveries.reception, TopicReception)
        return self.deliveries.reception

    def all_handlers(self) -> m.Handlers:
        """What takes each kind of message."""
        parts = (self.publishers, self.subscriptions, self.records, self.ingress, self.deliveries, self.egress)
        found: m.Handlers = {}
        kind = (self.records.distribution, self.deliveries.reception)
        for part in (*parts, self.ingress.streams.completion.finishing, self.egress.kept, self.ingress.turns, *kind):
            found.update(part.handlers())
        if self.queue is not None:
            found.update(self.queue.browsing.handlers())
        return found

    def handle(self, sender: str, message: m.AddressMessage) -> None:
        """Takes a message of this router or another. Raises PeerProtocolError if it makes no sense here."""
        kind = type(message)
        handler = self.handlers.get(kind)
        if handler is None:
            handler = self.all_handlers().get(kind)
            if handler is None:  # protocol 16.1: files differ in what is a queue
                raise m.PeerProtocolError(f"{kind.__name__} at a {self.config.type}")
            self.handlers[kind] = handler
        handler(sender, message)

    def router_up(self, router: str) -> None:
        """A session with that router has begun: it is told what is attached here (protocol 4.2)."""
        self.publishers.router_up(router)
        self.ingress.router_up(router)
        self.egress.router_up(router)
        self.egress.kept.router_up(router)

    def router_down(self, router: str) -> None:
        """The session with that router is over: what it owed is owed by others (protocol 8.6)."""
        self.subscriptions.router_down(router)
        self.publishers.router_down(router)
        self.deliveries.router_down(router)
        self.egress.router_down(router)
        self.ingress.router_down(router)
        self.ingress.streams.completion.finishing.router_down(router)
        self.ingress.turns.router_down(router)
        self.egress.kept.router_down(router)
        if self.queue is not None:
            self.queue.browsing.router_down(router)

    def attach_publisher(self, port: PublisherPort, attach: PublisherAttach) -> None:
        self.ingress.attach(port, attach)

    def attach_subscriber(self, port: SubscriberPort, attach: SubscriberAttach) -> None:
        self.egress.attach(port, attach)

    def keeper_changed(self) -> None:
        """Another router keeps its maps (protocol 7.9.4)."""
        for link in self.egress.kept.links:
            link.keeper_changed()

    def feed_late(self, queue: str) -> None:
        """That queue has got a consumer (protocol 16.12.4)."""
        self.records.feeds.late[queue] = None
        self.ingress.all_windows_changed()
        self.core.agenda.touch(self)

    def feed_learnt(self, queue: str) -> None:
        """That queue's directory has a publisher of whom another router has told."""
        self.records.feeds.learnt[queue] = None

    def holders(self) -> Iterator[SubscriptionEntry]:
        """Subscriptions that have yet to accept something, as far as this router knows: those that are away first.

        Of copies that are out at another router, only that router knows which of its subscriptions hold them.
        """
        records, core = self.records, self.core
        end = records.log.end
        entries = self.known_subscriptions.values()
        for entry in sorted(entries, key=lambda each: each.home is not None):
            if entry.owed.overlap(0, end) or entry.syncing:
                yield entry
            elif entry.home == core.name:
                local = self.deliveries.subscribers.get(entry.name)
                if local is not None and local.owes.overlap(0, self.deliveries.log.end):
                    yield entry
            elif entry.home is not None and records.awaited.get(entry.home):
                yield entry
        for queue, positions in records.feeds.awaited.items():
            if positions and queue in core.addresses:
                yield from core.addresses[queue].holders()

    def use(self) -> str:
        """Says who uses it; nothing if nobody does. A declared subscription that has never attached does not."""
        publishers = [each.home for each in self.known_publishers.values()]
        publishers += [self.core.name for _ in self.attached.proving()]
        entries = self.known_subscriptions.values()
        subscriptions = [each.home for each in entries if not each.declared or each.term != NO_TERM]
        used = [
            _count(homes, what) for homes, what in ((publishers, "publisher"), (subscriptions, "subscription")) if homes
        ]
        return " and ".join(used) or ("" if self.is_unused else "deliveries")

    def become_established(self) -> None:
        """Attaches that waited are answered, and every record is checked (protocol 4.4)."""
        self.egress.check_all_answered()
        self.records.check_all()
        self.ingress.streams.completion.check_all()
        for publisher in list(self.ingress.publishers.values()):
            self.ingress.check_ready(publisher)

    def reconfigured(self) -> None:
        """The topology file has changed (protocol 12.6)."""
        self.config = self.core.config.address(self.name)
        self.records.check_all()  # protocol 6.10: what no subscription has accepted may be done now
        self.ingress.all_windows_changed()

    def tick(self) -> None:
        """Does what is due."""
        self.subscriptions.tick()
        self.publishers.tick()
        self.ingress.streams.tick()
        self.timed.tick()
        self.windows.waiting.tick()
        self.records.feeds.tick()

    def deadlines(self) -> list[float]:
        """Returns when something is due next."""
        own = (self.timed, self.windows.waiting, self.records.feeds)
        parts = (self.subscriptions, self.publishers, self.ingress.streams, *own)
        return [deadline for part in parts for deadline in part.deadlines()]

    @property
    def is_unused(self) -> bool:
        """Whether no client is known to use it, apart from subscriptions, nor anything is left of one that has."""
        if self.queue is not None and not self.queue.is_unused:
            return False
        return not (
            self.publishers.entries
            or self.attached
            or self.deliveries.subscribers
            or self.records.settled
            or self.deliveries.accepts
            or self.deliveries.sync_accepts
            or self.ingress.streams.completion.finishing
            or self.ingress.streams.completion
            or self.egress.kept
            or self.ingress.turns
        )

    def is_empty(self) -> bool:
        return self.is_unused and not self.subscriptions.entries

    def check_invariants(self) -> None:
        """Raises AssertionError where the state of a part, or of two that go together, is impossible."""
        for part in (self.publishers, self.subscriptions, self.records, self.ingress.streams, self.ingress):
            part.check_invariants()
        self.deliveries.check_invariants()
        self.deliveries.reception.check_invariants()
        self.ingress.streams.completion.check_invariants()
        self.records.feeds.check_invariants()


def _count(homes: list[str | None], what: str) -> str:
    places = sorted({f"at {home}" for home in homes if home is not None}) + ["away"] * (None in homes)
    return f"{len(homes)} {what}{'s' if len(homes) > 1 else ''} ({', '.join(places)})"
