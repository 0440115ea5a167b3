"""One address at one router: the parts that it has, and what concerns all of them.

Addresses know nothing of each other. A part knows the others only by way of its address:

- `publisher_directory`, `subscription_directory`: what every router knows of publishers and subscriptions;
- `ingress`: publishers attach here, prove themselves, claim, and go;
- `streams`: which subscriptions get the stream of a publisher that is attached here;
- `records`: what these publishers have sent, and which subscriptions still have to accept it;
- `deliveries`: what comes in for subscriptions that are attached here, and its outcomes;
- `egress`: subscriptions attach here, are answered, resume, and go.

Read `router.core.core` for what all addresses share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from router.core import messages as m
from router.core.completion import Completion
from router.core.deliveries import Deliveries
from router.core.egress import Egress
from router.core.feeding import Feeds
from router.core.finishing import Finishing
from router.core.holding import NETWORK
from router.core.ingress import Ingress
from router.core.intervals import OPEN
from router.core.kept_maps import Kept
from router.core.publisher_directory import PublisherDirectory
from router.core.records import Records
from router.core.recovery import Recovery
from router.core.streams import Streams
from router.core.subscription_directory import SubscriptionDirectory
from router.core.turns import Turns

if TYPE_CHECKING:
    from router.core.core import Core


class Address:
    """A topic, as one router sees it. A queue has parts of its own (`router.core.queue`)."""

    RECORDS: ClassVar[type[Records]] = Records
    STREAMS: ClassVar[type[Streams]] = Streams
    INGRESS: ClassVar[type[Ingress]] = Ingress
    DELIVERIES: ClassVar[type[Deliveries]] = Deliveries
    EGRESS: ClassVar[type[Egress]] = Egress

    def __init__(self, core: Core, name: str, first_position: int) -> None:
        self.core = core
        self.name = name
        self.config = core.config.address(name)
        self.counters = core.counters.of(name)
        self.publishers = PublisherDirectory(self)
        self.subscriptions = SubscriptionDirectory(self)
        self.records = self.RECORDS(self, first_position)
        self.streams = self.STREAMS(self)
        self.ingress = self.INGRESS(self)
        self.turns = Turns(self)
        self.deliveries = self.DELIVERIES(self)
        self.egress = self.EGRESS(self)
        self.finishing = Finishing(self)
        self.completion = Completion(self)
        self.feeds = Feeds(self)
        self.kept = Kept(self)
        self.made_by = NETWORK  # whose memory it counts as (`router.core.holding`)
        self.handlers: m.Handlers = {}  # those of the messages that have come: all of them take 2.5 kB
        self.established = core.startup.is_established(name)  # publishers may be told accepted (protocol 4.4)
        # when a publisher was last told accepted here, or before the address was forgotten, and up to which position
        # (protocol 7.3)
        self.accepted_at: float | None = None
        self.accepted_stop = 0
        if self.config.match in core.accepted:
            self.accepted_at, self.accepted_stop = core.accepted[self.config.match]

    def all_handlers(self) -> m.Handlers:
        """What takes each kind of message."""
        parts = (self.publishers, self.subscriptions, self.records, self.ingress, self.deliveries, self.egress)
        found: m.Handlers = {}
        for part in (*parts, self.finishing, self.kept, self.turns):
            found.update(part.handlers())
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
        self.kept.router_up(router)

    def router_down(self, router: str) -> None:
        """The session with that router is over: what it owed is owed by others (protocol 8.6)."""
        self.subscriptions.router_down(router)
        self.publishers.router_down(router)
        self.deliveries.router_down(router)
        self.egress.router_down(router)
        self.ingress.router_down(router)
        self.finishing.router_down(router)
        self.turns.router_down(router)
        self.kept.router_down(router)

    def note_accepted(self, stop: int = OPEN) -> None:
        """A publisher is told accepted of a position below `stop` (protocol 7.3)."""
        self.accepted_at = self.core.now
        self.accepted_stop = max(self.accepted_stop, stop)

    def recovery(self) -> Recovery | None:
        """Returns why publishers are told nothing yet, and for how long at most; None once it is established."""
        return self.core.startup.recovery(self.name)

    def become_established(self) -> None:
        """Attaches that waited are answered, and every record is checked (protocol 4.4)."""
        self.egress.check_all_answered()
        self.records.check_all()
        self.completion.check_all()
        for publisher in list(self.ingress.publishers.values()):
            self.ingress.check_ready(publisher)

    def reconfigured(self) -> None:
        """The topology file has changed (protocol 12.6)."""
        self.config = self.core.config.address(self.name)
        self.records.check_all()  # protocol 6.10: what no subscription has accepted may be done now
        self.ingress.all_windows_changed()

    def flush(self) -> None:
        """Sends what the handlers of a turn have left behind for other routers."""
        if self.core.feeding:
            self.feeds.flush()
        self.deliveries.flush()

    def tick(self) -> None:
        """Does what is due."""
        self.subscriptions.tick()
        self.publishers.tick()
        self.streams.tick()
        self.deliveries.tick()
        self.ingress.waiting.tick()
        self.feeds.tick()

    def deadlines(self) -> list[float]:
        """Returns when something is due next."""
        own = (self.deliveries, self.ingress.waiting, self.feeds)
        parts = (self.subscriptions, self.publishers, self.streams, *own)
        return [deadline for part in parts for deadline in part.deadlines()]

    def data_on_the_wire(self, data: bytes) -> bytes:
        """Returns the data of a subscription as messages have them (protocol 7.10)."""
        return data

    def data_of_its_owner(self, data: bytes) -> bytes:
        """Returns of the data of an entry what its owner has given."""
        return data

    @property
    def is_unused(self) -> bool:
        """Whether no client is known to use it, apart from subscriptions, nor anything is left of one that has."""
        return not (
            self.publishers.entries
            or self.ingress.publishers
            or self.ingress.proving
            or self.deliveries.subscribers
            or self.records.settled
            or self.deliveries.accepts
            or self.deliveries.sync_accepts
            or self.finishing
            or self.completion
            or self.kept
            or self.turns
        )

    def is_empty(self) -> bool:
        return self.is_unused and not self.subscriptions.entries

    def check_invariants(self) -> None:
        """Raises AssertionError where the state of a part, or of two that go together, is impossible."""
        for part in (self.publishers, self.subscriptions, self.records, self.streams, self.ingress, self.deliveries):
            part.check_invariants()
        self.completion.check_invariants()
        self.feeds.check_invariants()
