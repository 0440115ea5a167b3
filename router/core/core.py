"""The exactly-once protocol of one router, for all its addresses (protocol 1 to 10, 12), sans-IO.

The links of clients, messages of other routers, and time drive it. It knows terms, tags, positions and which routers
are in session; it knows no AMQP, no path to a router, and has no clock of its own. What addresses share is in
`router.core.base`: messages to other routers and to oneself (protocol 3.3), memory. HELLO, booting and recovering
(protocol 4) are in `router.core.startup`. One address is `router.core.address`.

One handler runs at a time. After a turn of handlers the owner calls `flush`: acceptances, settlements and windows go
out then, in ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from router.config import Life, RouterConfig
from router.core import messages as m
from router.core.address import Address
from router.core.agenda import INF
from router.core.base import BaseAddress, BaseCore
from router.core.declarations import settings_digest
from router.core.held import Batch
from router.core.holding import NETWORK, octets_of_address
from router.core.ports import (
    REJECTED,
    BrowserPort,
    Outcome,
    Part,
    PublisherAttach,
    PublisherPort,
    Refusal,
    SendingPartsPort,
    SubscriberAttach,
    SubscriberPort,
    Term,
)
from router.core.post import Send
from router.core.publisher_handshake import DROPPED
from router.core.queue.browsing import Browsing
from router.core.reasons import tell_why
from router.core.startup import Startup
from router.core.subscriber import Subscriber
from router.policies import owner_of
from router.reporting import NO_LOG, Log
from router.versions import SPOKEN

NEVER_BEFORE: Final = float("-inf")
CLOCKS_DIFFER_US: Final = 10_000_000  # more than a message between routers is on its way


class Core(BaseCore):
    """One router's decisions."""

    def __init__(
        self, config: RouterConfig, life: Life, send: Send, wall_us: Callable[[], int], log: Log = NO_LOG
    ) -> None:
        super().__init__(config, life, send, wall_us, log)
        self.addresses: dict[str, Address]
        self.subscribers: dict[SubscriberPort, Subscriber] = {}
        self.browsers: dict[BrowserPort, Browsing] = {}
        self.startup = Startup(self, life.fresh)
        self.startup.begin()

    # ------------------------------------------------------------------------------------------------- from the links

    def attach_publisher(self, port: PublisherPort, attach: PublisherAttach, now: float) -> None:
        """A sending client has attached. The attach is answered, refused, or deferred until this router is booted
        (protocol 4.1, 5.1)."""
        self.now = self.entered = now
        if not self.recovery.times.booted:
            self.recovery.deferred_publishers[port] = attach
            return
        self.memory.made += 1
        if not self.kinds.refuses_publisher(port, attach):
            self.address(attach.address, owner_of(attach.container)).ingress.attach(port, attach)
        self.drain()

    def proved(self, port: PublisherPort, now: float) -> None:
        """The publisher's sign of life has arrived (protocol 5.2). A transfer is a sign of life by itself."""
        self.now = self.entered = now
        publisher = self.publishers.get(port)
        if publisher:
            publisher.ingress.proved(publisher)
            self.drain()

    def question_answered(self, port: PublisherPort, now: float) -> None:
        """The answer to the open question has come (protocol 5.7)."""
        self.now = self.entered = now
        publisher = self.publishers.get(port)
        if publisher:
            publisher.ingress.question_answered(publisher)
            self.drain()

    def transfers(
        self,
        port: PublisherPort,
        first_id: int,
        tags: list[bytes],
        payloads: list[bytes],
        settled: bool,
        message_format: int,
        now: float,
    ) -> None:
        """Complete deliveries with consecutive delivery-ids have come (protocol 6.1)."""
        self.now = self.entered = now
        assert len(tags) == len(payloads)
        publisher = self.publishers.get(port)
        if publisher and tags:
            batch = Batch(first_id, tags, payloads, settled, message_format)
            publisher.ingress.transfers(publisher, batch)
            self.drain()

    def part(self, port: SendingPartsPort, part: Part, now: float) -> None:
        """A part of a large delivery has come (protocol 6.12)."""
        self.now = self.entered = now
        publisher = self.publishers.get(port)
        if publisher:
            publisher.ingress.part(publisher, part)
            self.drain()

    def publisher_settled(self, port: PublisherPort, first_id: int, last_id: int, now: float) -> None:
        """The publisher has settled these deliveries (protocol 6.6)."""
        assert first_id <= last_id
        self.now = self.entered = now
        publisher = self.publishers.get(port)
        if publisher:
            publisher.records.publisher_settled(publisher, first_id, last_id)
            if self.post.to_self:
                self.drain()

    def publisher_settled_tag(self, port: PublisherPort, tag: bytes, now: float) -> None:
        """A transfer with resume and settled, without payload, has arrived (protocol 6.6)."""
        self.now = self.entered = now
        publisher = self.publishers.get(port)
        if publisher:
            publisher.ingress.settled_tag(publisher, tag)
            self.drain()

    def detach_publisher(self, port: PublisherPort, closed: bool, now: float) -> None:
        """A publisher's link, session or connection has gone (protocol 8.4); closed: by a detach with closed = true."""
        self.now = self.entered = now
        self.recovery.deferred_publishers.pop(port, None)
        publisher = self.publishers.get(port)
        if publisher:
            publisher.ingress.detach(publisher, closed)
            self.drain()

    def attach_subscriber(self, port: SubscriberPort, attach: SubscriberAttach, now: float) -> None:
        """A receiving client has attached. It is answered when all routers in session know of it (protocol 7.2)."""
        self.now = self.entered = now
        if not self.recovery.times.booted:
            self.recovery.deferred_subscribers[port] = attach
            return
        self.memory.made += 1
        if not self.kinds.refuses_subscriber(port, attach):
            self.address(attach.address, owner_of(attach.container)).egress.attach(port, attach)
        self.drain()

    def subscriber_credit(self, port: SubscriberPort, now: float) -> None:
        """`port.capacity()` has grown."""
        self.now = self.entered = now
        subscriber = self.subscribers.get(port)
        if subscriber:
            subscriber.pump()
            if self.post.to_self:
                self.drain()

    def attach_browser(self, port: BrowserPort, address: str, now: float) -> None:
        """A link wants to see what waits in a queue (protocol 16.11)."""
        self.now = self.entered = now
        queue = self.address(address).queue
        assert queue is not None
        self.browsers[port] = queue.browsing
        queue.browsing.attach(port)

    def browser_looks(self, port: BrowserPort, now: float, *, again: bool = True) -> None:
        """Its client has given credit. again: what has come since it saw all is wanted, too."""
        self.now = self.entered = now
        self.browsers[port].look(port, again=again)
        self.drain()

    def detach_browser(self, port: BrowserPort, now: float) -> None:
        self.now = self.entered = now
        browsing = self.browsers.pop(port, None)
        if browsing is not None:
            del browsing.browsers[port]
            self.agenda.touch(browsing.address)

    def subscriber_heard(self, port: SubscriberPort, now: float) -> None:
        """A client has read the answer to its attach (protocol 7.6, 16.8)."""
        self.now = self.entered = now
        subscriber = self.subscribers.get(port)
        if subscriber:
            subscriber.heard()
            queue = self.addresses[subscriber.deliveries.address.name].queue
            if queue is not None:
                queue.reception.heard(subscriber)
            self.drain()

    def subscriber_disposition(
        self,
        port: SubscriberPort,
        first_id: int,
        last_id: int,
        outcome: Outcome | Refusal,
        settled: bool,
        now: float,
        why: bytes = b"",
    ) -> None:
        """A subscriber has sent an outcome (protocol 6.3, 6.4). If it settles without a state, the link passes the
        source's default outcome, else RELEASED. why: what it says beside it (protocol 6.4.9). A port that rejects in
        its client's stead says why instead of an outcome."""
        assert first_id <= last_id
        self.now = self.entered = now
        subscriber = self.subscribers.get(port)
        if subscriber:
            if isinstance(outcome, Refusal):
                tell_why(subscriber.deliveries, subscriber, first_id, last_id, outcome)
                outcome = REJECTED
            elif why:
                tell_why(subscriber.deliveries, subscriber, first_id, last_id, why)
            subscriber.deliveries.disposition(subscriber, first_id, last_id, outcome, settled, bool(why))
            if self.post.to_self:
                self.drain()

    def detach_subscriber(self, port: SubscriberPort, closed: bool, now: float, expiring: bool = True) -> Term | None:
        """A subscription's link has gone (protocol 8.1, 8.2).

        expiring: the subscription's timeout starts now. Otherwise `subscription_expiring` starts it later, with the
        term that is returned here.
        """
        self.now = self.entered = now
        self.recovery.deferred_subscribers.pop(port, None)
        subscriber = self.subscribers.get(port)
        if subscriber is None:
            return None
        self.addresses[subscriber.deliveries.address.name].egress.detach(subscriber, closed, expiring)
        self.drain()
        return subscriber.term

    def subscription_expiring(self, attach: SubscriberAttach, term: Term, now: float) -> None:
        """The session or connection of a subscription that was detached earlier has ended (protocol 8.3)."""
        self.now = self.entered = now
        address = self.addresses.get(attach.address)
        if address is not None:
            address.egress.timeout_begins(attach, term)
            self.drain()

    # ------------------------------------------------------------------------------------------- from the topology file

    def reconfigure(self, config: RouterConfig, now: float) -> None:
        """The topology file has changed. Links keep what they were granted (protocol 12.6)."""
        self.now = self.entered = now
        former, self.config = self.config, config
        self.recovery.set_config(config)
        self.memory.former.addresses.reconfigure(former, config)
        self.memory.set_limits(config)
        digest = settings_digest(config)
        self.members.reconfigure(config.routers, digest, now)
        self.roll_call.look()
        begun_anew, unknown = self.kinds.reconfigure()
        for address in list(self.addresses.values()):
            address.reconfigured()
        self.startup.reconfigure(former, digest, begun_anew, unknown)
        self.drain()
        self.startup.check_booted()
        self.agenda.all_due(now)  # deadlines follow from settings

    def payload_grew(self, port: PublisherPort) -> None:
        """A larger payload has come than before: the port is told its window again (protocol 6.8.5)."""
        publisher = self.publishers.get(port)
        if publisher is not None:
            self.agenda.window_changed(publisher)

    def without_outcome(self, port: PublisherPort) -> int:
        """Returns how many deliveries of this publisher have no outcome yet."""
        publisher = self.publishers.get(port)
        return publisher.sent.undone + publisher.held.count if publisher is not None else 0

    def undecided(self, port: SubscriberPort) -> int:
        """Returns how many deliveries were sent to this subscriber and have no outcome yet."""
        subscriber = self.subscribers.get(port)
        return subscriber.undecided if subscriber is not None else 0

    # ------------------------------------------------------------------------------------------------- from the network

    def peer_up(self, peer: str, now: float, began: float = NEVER_BEFORE, version: int = SPOKEN.newest) -> None:
        """A session with this router has begun (protocol 4.2). version: of the wire between routers, in the session."""
        assert peer not in self.members.up
        self.now = self.entered = now
        self.members.session_began(peer, now, began, version)
        self.kinds.session_began()
        self.agenda.all_due(now)  # protocol 8.4: timeouts that wait for a complete network may start now
        self.startup.send_hello(peer)
        self.roll_call.tell(peer)
        if version >= m.since(m.Suspected):
            for suspected in self.owner.suspects():
                self.post.send(peer, suspected)
        if self.config.mqtt_topics and version >= m.since(m.Clock):
            self.post.send(peer, m.Clock(self.clock_us()))
        for address in list(self.addresses.values()):
            if peer not in self.kinds.apart(address.name):
                address.router_up(peer)
        self._look_at_keeper()
        self.drain()

    def peer_down(self, peer: str, now: float) -> None:
        """The session with this router has ended (protocol 8.6)."""
        self.now = self.entered = now
        self.members.session_ended(peer, now)
        self.kinds.session_ended(peer)
        self.roll_call.session_ended(peer)
        for address in list(self.addresses.values()):
            address.router_down(peer)
        self._look_at_keeper()
        self.drain()
        self.recovery.declarations.session_ended(peer)
        self.startup.tell_who_is_up(peer)
        self.startup.check_awaited()
        self.drain()

    def draining(self, draining: bool, now: float) -> None:
        """This router sends its clients away, or takes clients again (protocol 8.8)."""
        self.now = self.entered = now
        self.roll_call.drain(draining)

    def process_resumed(self, since: float) -> None:
        """This process has run without a pause since then. If that is news, it learns first what it may have missed
        (protocol 4.6)."""
        if self.members.process_resumed(since):
            self.roll_call.look(broken=True)
            self.startup.process_resumed(since)
            self.drain()

    def _look_at_keeper(self) -> None:
        if self.members.choose_keeper():
            for address in self.addresses.values():
                address.keeper_changed()

    def peer_message(self, peer: str, message: m.Message, now: float) -> None:
        """A peer has sent a message. It is dropped if its session is over (protocol 3.2)."""
        self.now = self.entered = now
        if peer in self.members.up:
            self._dispatch(peer, message)
            if self.post.to_self:
                self.drain()

    # ------------------------------------------------------------------------------------------------------------- time

    def tick(self, now: float) -> None:
        """Does what is due."""
        self.now = self.entered = now
        if now < self.agenda.deadline:
            return
        self.startup.tick()
        due: list[Address] = self.agenda.take_due(now, self.addresses.values())
        for address in due:
            self.agenda.look_at(address)
            address.tick()
            self.drain()
            self._drop_if_empty(address)
            if self.addresses.get(address.name) is address:
                self.agenda.due(min(address.deadlines(), default=INF), address)
        self.memory.map_parts.expire(now)
        self.agenda.ticked(now, [*self.startup.deadlines(), *self.memory.map_parts.deadlines()])

    def flush(self, now: float) -> None:
        """Sends acceptances, settlements and windows: once in a turn, before anything that must follow them
        (protocol 3.3, 9)."""
        self.now = self.entered = now
        while self.agenda.touched:
            touched: dict[Address, None] = self.agenda.take_touched()
            for address in touched:
                if self.config.feeding or address.queue is not None:
                    address.records.feeds.flush()
                address.deliveries.reception.flush()
                if address.queue is not None:
                    address.queue.flush()
                if address.egress.kept.links:
                    address.egress.kept.flush()
            if self.post.to_self:
                self.drain()
            for address in touched:
                reached = address.records.reached
                if address.records.settled.starts:
                    address.records.flush()
                completion = address.ingress.streams.completion
                if completion.noted:
                    completion.begin(reached)
            if self.post.to_self:
                self.drain()
            for address in touched:
                if not address.publishers.entries:
                    self._drop_if_empty(address)
        full = self.memory.payload_bytes >= self.config.memory_limit
        if full is not self.memory.full:
            self.memory.look(full)
            for address in self.addresses.values():
                address.ingress.all_windows_changed()
        if self.owner.rejections:
            self.agenda.due(self.owner.rejections.tell(now))
        if not self.agenda.windows:
            return
        windows = self.agenda.take_windows()
        for publisher in windows:
            if publisher.handshake.state is not DROPPED:
                publisher.ingress.windows.tell(publisher)

    # ------------------------------------------------------------------------------------------ for addresses: messages

    def drain(self) -> None:
        """Handles the messages to oneself: after the running handler, and before any other input (protocol 3.3)."""
        own = self.post.to_self
        while own:
            message = own.popleft()
            address = self.addresses.get(message.address) or self.address(message.address)
            handler = address.handlers.get(type(message))
            if handler is not None:
                handler(self.name, message)
            else:
                address.handle(self.name, message)

    def _dispatch(self, sender: str, message: m.Message) -> None:
        if isinstance(message, m.Hello):
            self.startup.on_hello(sender, message)
            return
        if isinstance(message, m.Queues):
            self.kinds.told(sender, message)
            return
        if isinstance(message, m.Suspected):
            self.owner.suspected(message)
            return
        if isinstance(message, m.Clock):
            self._clock_told(sender, message)
            return
        if isinstance(message, m.RouterMessage):
            self.roll_call.handlers[type(message)](sender, message)
            return
        if isinstance(message, m.Ask | m.Answer):
            self.owner.asked(sender, message)
            return
        if self.kinds.differ and sender in self.kinds.apart(message.address):  # protocol 16.13.2
            return
        address = self.addresses.get(message.address) or self.address(message.address)
        handler = address.handlers.get(type(message))
        if handler is not None:
            handler(sender, message)
        else:
            address.handle(sender, message)

    def _clock_told(self, sender: str, message: m.Clock) -> None:
        ahead_us = message.now_us - self.clock_us()
        self.members.clocks[sender] = ahead_us
        if abs(ahead_us) > CLOCKS_DIFFER_US:
            text = "the clock of router {peer} is {ahead_s} s ahead of ours: set both by NTP"
            self.owner.log.warning("clocks_differ", text, peer=sender, ahead_s=round(ahead_us / 1e6, 1))

    # ------------------------------------------------------------------------------------------ for addresses: the rest

    def address(self, name: str, user: str = NETWORK) -> Address:
        """user: who wants to use it."""
        address = self.addresses.get(name)
        if address is None:
            first = self.memory.former.addresses.next_position
            address = self.addresses[name] = Address(self, name, first, self.subscribers)
            address.made_by = user
            self.memory.holding.count(user, octets_of_address(name))
            self.memory.made += 1
            self.owner.shares.created(name)
            self.agenda.touch(address)
        return address

    def waits_for_a_subscriber(self, address: str) -> bool:
        """Says whether publishers of this address have no credit because nobody is subscribed (protocol 6.10)."""
        return not self.is_subscribed(address) and self.config.address(address).no_subscribers == "hold"

    def is_subscribed(self, address: str) -> bool:
        """Says whether a subscription of this address is known, or a queue that it feeds."""
        found = self.addresses.get(address)
        return found is not None and bool(found.subscriptions.entries or found.records.feeds)

    def _drop_if_empty(self, address: Address) -> None:
        if address.is_empty() and self.addresses.get(address.name) is address:
            accepted = address.accepted
            if accepted.at is not None:
                self.memory.former.addresses.note_accepted(address.config.match, (accepted.at, accepted.stop))
            self.forget(address)

    def forget(self, address: BaseAddress) -> None:
        """Nobody uses the address."""
        gone = self.addresses.pop(address.name)
        self.memory.former.addresses.forget(gone.records.log.end)
        self.memory.holding.count(address.made_by, -octets_of_address(address.name))
        for entries in (gone.publishers, gone.subscriptions):  # declared ones may have stayed
            for user, octets in entries.octets_by_user().items():
                self.memory.holding.count(user, -octets)
        self.owner.shares.dropped(address.name)
        self.agenda.forget(address)

    def check_invariants(self) -> None:
        """Raises AssertionError where the state is impossible between two inputs (for simulations and tests)."""
        assert not self.post.to_self, "messages to oneself are left between two inputs"
        assert self.recovery.times.booted or not self.recovery.established
        self.members.check_invariants()
        self.kinds.check_invariants()
        addresses = self.addresses.values()
        for address in addresses:
            address.check_invariants()
            # Some follow from a clock of milliseconds. After a suspension one may move from the past further into it.
            first = max(min(address.deadlines(), default=INF), self.now) + 0.002
            self.agenda.check_in_time(address, first)
        kept = sum(address.records.counted_bytes + address.deliveries.log.counted_bytes for address in addresses)
        assert kept == self.memory.payload_bytes, f"{self.memory.payload_bytes} bytes of payload counted, {kept} kept"
        self._check_holding()
        waiting = sum(each.presettled.size for address in addresses for each in address.deliveries.subscribers.values())
        assert waiting == self.memory.presettled_bytes
        assert all(publisher.port is port for port, publisher in self.publishers.items())
        assert all(subscriber.port is port for port, subscriber in self.subscribers.items())

    def _check_holding(self) -> None:
        """What clients have made is counted to the octet, by who has made it. Connections count above this."""
        held = self.memory.map_parts.octets_by_user()
        for address in self.addresses.values():
            held[address.made_by] += octets_of_address(address.name)
            held.update(address.publishers.octets_by_user())
            held.update(address.subscriptions.octets_by_user())
        held.update(self.owner.connections_hold())
        assert self.memory.holding.by_user == +held, f"{self.memory.holding.by_user} octets counted, {held} held"
        assert self.memory.holding.total == held.total()

    def send_hello(self, peer: str) -> None:
        self.startup.send_hello(peer)
