"""The exactly-once protocol of one router, for all its addresses (PROTOCOL.md sections 1 to 10 and 12), sans-IO.

Driven by the links' adapter, by peers' messages, and by time.  Knows terms, tags, positions and which routers are up;
knows no AMQP, no path to a peer, no clock of its own.  What addresses share is here: sessions with peers, HELLO,
booting and recovering (4), messages to oneself (3.3), memory.  One address is `router.address`.

After a turn of handlers the owner calls `flush`: acceptances, settlements and windows go out then, in ranges.

The place of `on_partition: stop` (PROTOCOL 14; a ConfigError until it is built) is this module: who is established
(`_check_established`, `peer_down`) and what that permits (`may_accept`) are decided here and nowhere else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from router import messages as m
from router.address import Address
from router.config import RouterConfig
from router.directory import publisher_id
from router.membership import Membership
from router.parts import Parts
from router.ports import Outcome, PublisherAttach, PublisherPort, SubscriberAttach, SubscriberPort, Term
from router.publisher import Phase, Publisher
from router.subscriber import Subscriber
from router.wire import decode, encode

SHARE_OF_FREE = 8
LOOK_S = 20e-6  # how long, for each deadline there is, the next look at all of them has to wait


class Send(Protocol):
    """A message to several peers that are up, in reliable FIFO streams."""

    def __call__(self, peers: tuple[str, ...], data: bytes) -> None: ...


class Core:
    """One router's decisions."""

    def __init__(
        self,
        config: RouterConfig,
        name: str,
        incarnation: int,
        send: Send,
        now: float,
        wall_us: Callable[[], int],
        fresh: bool = False,
    ) -> None:
        self.config = config
        self.name = name
        self.incarnation = incarnation
        self.clock_us = wall_us
        self.now = now
        self.fresh = fresh
        self._send = send
        self.addresses: dict[str, Address] = {}
        self.publishers: dict[PublisherPort, Publisher] = {}
        self.subscribers: dict[SubscriberPort, Subscriber] = {}
        self.parts = Parts()
        self.members = Membership(name, config.routers, now)
        self.up = self.members.up
        self.booted = False
        self.established = False
        self.released = False  # has it ever released an accepted?
        self.given_up: Term | None = None  # 7.3: the latest born of all subscriptions that it no longer waits for
        self.meter = 0  # bytes of payload kept
        self.done_bytes = min(config.done_bytes, config.memory_limit // 4)  # what is done must leave room for the rest
        self.presettled = 0  # bytes of at-most-once messages that wait for subscribers
        self._boot_at = now + config.discovery_s
        self._recover_at: float | None = None
        self._deferred_publishers: dict[PublisherPort, PublisherAttach] = {}
        self._deferred_subscribers: dict[SubscriberPort, SubscriberAttach] = {}
        self._own: deque[m.AddressMessage] = deque()  # 3.3
        self._touched: dict[Address, None] = {}
        self._windows: dict[Publisher, None] = {}
        self._over_limit = False
        self._start = 0  # no ingress log of a forgotten address went beyond
        self._deadline = self._boot_at
        self._check_booted()

    # ------------------------------------------------------------------------------------------------- from the adapter

    def attach_publisher(self, port: PublisherPort, attach: PublisherAttach, now: float) -> None:
        """A sending client's attach has come (5.1).  Answered, refused, or deferred until booted (4.1)."""
        self.now = now
        self._attach_publisher(port, attach)
        self.drain()

    def proved(self, port: PublisherPort, now: float) -> None:
        """The sign of life of 5.2.  A transfer is one by itself."""
        self.now = now
        link = self.publishers.get(port)
        if link:
            link.ingress.proved(link)
            self.drain()

    def answered(self, port: PublisherPort, now: float) -> None:
        """The answer to the open question of 5.7."""
        self.now = now
        link = self.publishers.get(port)
        if link:
            link.ingress.answered(link)
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
        """Complete deliveries with consecutive ids (6.1)."""
        self.now = now
        link = self.publishers.get(port)
        if link and tags:
            link.ingress.transfers(link, first_id, tags, payloads, settled, message_format)
            self.drain()

    def publisher_settled(self, port: PublisherPort, first_id: int, last_id: int, now: float) -> None:
        """6.6."""
        self.now = now
        link = self.publishers.get(port)
        if link:
            link.ingress.publisher_settled(link, first_id, last_id)
            self.drain()

    def publisher_settled_tag(self, port: PublisherPort, tag: bytes, now: float) -> None:
        """6.6: a transfer with resume and settled, without payload."""
        self.now = now
        link = self.publishers.get(port)
        if link:
            link.ingress.publisher_settled_tag(link, tag)
            self.drain()

    def detach_publisher(self, port: PublisherPort, closed: bool, now: float) -> None:
        """Its link, session or connection has gone; closed: the client detached it with closed = true (8.4)."""
        self.now = now
        self._deferred_publishers.pop(port, None)
        link = self.publishers.get(port)
        if link:
            link.ingress.detach(link, closed)
            self.drain()

    def attach_subscriber(self, port: SubscriberPort, attach: SubscriberAttach, now: float) -> None:
        """A receiving client's attach has come (7).  Answered when all reachable routers know of it."""
        self.now = now
        self._attach_subscriber(port, attach)
        self.drain()

    def subscriber_credit(self, port: SubscriberPort, now: float) -> None:
        """`port.capacity()` has grown."""
        self.now = now
        link = self.subscribers.get(port)
        if link:
            link.pump()
            self.drain()

    def subscriber_disposition(
        self, port: SubscriberPort, first_id: int, last_id: int, outcome: Outcome, settled: bool, now: float
    ) -> None:
        """6.3, 6.4.  Settled without a state: the adapter says the source's default outcome, else RELEASED."""
        self.now = now
        link = self.subscribers.get(port)
        if link:
            link.egress.disposition(link, first_id, last_id, outcome, settled)
            self.drain()

    def detach_subscriber(self, port: SubscriberPort, closed: bool, now: float, expiring: bool = True) -> Term | None:
        """Its link has gone (8.1, 8.2).  expiring: by its expiry policy its own timeout runs from now on; else
        `subscription_expiring` is to follow, with the term that is returned here."""
        self.now = now
        self._deferred_subscribers.pop(port, None)
        link = self.subscribers.get(port)
        if link is None:
            return None
        link.egress.detach(link, closed, expiring)
        self.drain()
        return link.term

    def subscription_expiring(self, attach: SubscriberAttach, term: Term, now: float) -> None:
        """8.3: the session or connection of a subscription that was detached earlier has ended."""
        self.now = now
        address = self.addresses.get(attach.address)
        if address is None:
            return
        granted = min(attach.timeout_s, address.config.subscription_timeout_s)
        name = (attach.container, attach.name)
        if granted <= 0:
            self.broadcast(m.Leave(attach.address, name, term))
        else:
            self.broadcast(m.Orphan(attach.address, name, term, granted))
        self.drain()

    # ------------------------------------------------------------------------------------------------- from the network

    def peer_up(self, peer: str, now: float) -> None:
        """A session with this router has begun (4.2)."""
        self.now = now
        if self.members.came(peer, now):
            self.due(now)  # 8.4: what had to wait for that has a time now
        self._send_hello(peer)
        for address in list(self.addresses.values()):
            address.router_up(peer)
        self.drain()

    def peer_down(self, peer: str, now: float) -> None:
        """It has ended (8.6)."""
        self.now = now
        self.members.went(peer)
        for address in list(self.addresses.values()):
            address.router_down(peer)
        self.drain()
        self._say_who_is_up(peer)
        self._check_awaited()
        self.drain()

    def peer_message(self, peer: str, data: bytes, now: float) -> None:
        """Raises PeerProtocolError: the owner resets the session, and `peer_down` follows."""
        self.now = now
        if peer in self.up:
            self._dispatch(peer, decode(data))
            self.drain()

    # ------------------------------------------------------------------------------------------------------------- time

    def next_deadline(self) -> float | None:
        return self._deadline if self._deadline != float("inf") else None

    def due(self, when: float) -> None:
        """Something is due then."""
        self._deadline = min(self._deadline, when)

    def tick(self, now: float) -> None:
        self.now = now
        if now < self._deadline:
            return
        if not self.booted and now >= self._boot_at:
            self._boot()
        if not self.established and self._recover_at is not None and now >= self._recover_at:
            self._establish()
        for address in list(self.addresses.values()):
            address.tick()
            self.drain()
            self._drop_if_empty(address)
        self.parts.expire(now)
        deadlines = list(self._deadlines())
        # Looking costs in proportion; somebody may have made thousands of names that expire one after the other.
        self._deadline = max(min(deadlines, default=float("inf")), now + len(deadlines) * LOOK_S)

    def _deadlines(self) -> Iterable[float]:
        if not self.booted:
            yield self._boot_at
        elif not self.established and self._recover_at is not None:
            yield self._recover_at
        for address in self.addresses.values():
            yield from address.deadlines()
        yield from self.parts.deadlines()

    def flush(self, now: float) -> None:
        """Once per turn: acceptances, settlements, windows."""
        self.now = now
        while self._touched:
            touched, self._touched = self._touched, {}
            for address in touched:
                address.egress.flush()
            self.drain()
            for address in touched:
                if address.ingress.settled:
                    address.ingress.flush()
            self.drain()
            for address in touched:
                if not address.publishers:
                    self._drop_if_empty(address)
        over = self.meter >= self.config.memory_limit
        if over is not self._over_limit:
            self._over_limit = over
            for address in self.addresses.values():
                address.ingress.all_windows_changed()
        if not self._windows:
            return
        windows, self._windows = self._windows, {}
        for link in windows:
            if link.phase is not Phase.DROPPED:
                link.ingress.tell_window(link)

    # ------------------------------------------------------------------------------------------ for addresses: messages

    def broadcast(self, message: m.AddressMessage) -> None:
        """To all that are up, and to oneself."""
        if self.members.peers:
            self._send(self.members.peers, encode(message))
        self._own.append(message)

    def send_to(self, router: str, message: m.AddressMessage) -> None:
        if router == self.name:
            self._own.append(message)
        elif router in self.up:
            self._send((router,), encode(message))

    def multicast(self, routers: tuple[str, ...], message: m.AddressMessage) -> None:
        if self.name in routers:
            self._own.append(message)
            if len(routers) == 1:
                return
        peers = tuple([router for router in routers if router in self.up])
        if peers:
            self._send(peers, encode(message))

    def drain(self) -> None:
        """3.3: messages to oneself, after the running handler and before any other input."""
        own = self._own
        while own:
            message = own.popleft()
            address = self.addresses.get(message.address) or self.address(message.address)
            address.handlers[type(message)](self.name, message)

    def _dispatch(self, sender: str, message: m.Message) -> None:
        if isinstance(message, m.Hello):
            self._on_hello(sender, message)
            return
        address = self.addresses.get(message.address) or self.address(message.address)
        address.handlers[type(message)](sender, message)

    # ------------------------------------------------------------------------------------------ for addresses: the rest

    def address(self, name: str) -> Address:
        address = self.addresses.get(name)
        if address is None:
            address = self.addresses[name] = Address(self, name, self._start)
            self.touch(address)
        return address

    def touch(self, address: Address) -> None:
        """It has something to flush."""
        self._touched[address] = None

    def window_changed(self, link: Publisher) -> None:
        self._windows[link] = None

    def defer_publisher(self, port: PublisherPort, attach: PublisherAttach) -> None:
        """5.3: before this router is established, the attach of an unknown publisher that resumes waits."""
        self._deferred_publishers[port] = attach

    def _drop_if_empty(self, address: Address) -> None:
        if address.is_empty() and self.addresses.get(address.name) is address:
            self._start = max(self._start, address.ingress.log.end)
            del self.addresses[address.name]

    # ------------------------------------------------------------------------------------------- booting, recovering: 4

    def _attach_publisher(self, port: PublisherPort, attach: PublisherAttach) -> None:
        if not self.booted:
            self._deferred_publishers[port] = attach
            return
        self.address(attach.address).ingress.attach(port, attach)

    def _attach_subscriber(self, port: SubscriberPort, attach: SubscriberAttach) -> None:
        if not self.booted:
            self._deferred_subscribers[port] = attach
            return
        self.address(attach.address).egress.attach(port, attach)

    def _take_deferred(self) -> None:
        publishers, self._deferred_publishers = self._deferred_publishers, {}
        subscribers, self._deferred_subscribers = self._deferred_subscribers, {}
        for publisher_port, publisher_attach in publishers.items():
            self._attach_publisher(publisher_port, publisher_attach)
            self.drain()
        for subscriber_port, subscriber_attach in subscribers.items():
            self._attach_subscriber(subscriber_port, subscriber_attach)
            self.drain()

    def _check_booted(self) -> None:
        """4.1: the HELLO of every router of the topology file has come."""
        if not self.booted and self.members.all_said():
            self._boot()

    def _boot(self) -> None:
        self.booted = True
        self._recover_at = self.now + self.config.recovery_s
        self.due(self._recover_at)
        self._check_established()
        if self.fresh and not self.established:  # 4.4: no subscription from before is to be waited for
            self._establish()
        self._take_deferred()

    def _check_established(self) -> None:
        """4.4: an established router's HELLO has come, and the HELLO of everybody who is up with it."""
        if not self.established and self.members.knows_established() and not self.members.awaited():
            self._establish()

    def awaited(self) -> list[str]:
        """4.4: whose HELLO is waited for; nobody's once we are established."""
        return [] if self.established else self.members.awaited()

    def _check_awaited(self) -> None:
        """Somebody may have been awaited who is no more."""
        self._check_established()
        if not self.established and not self.awaited():
            for address in list(self.addresses.values()):
                address.egress.check_all_answered()

    def _say_who_is_up(self, changed: str) -> None:
        """4.4: to those who may wait for that router, because we have said that it is up."""
        if self.established:
            for peer in self.members.perhaps_waiting():
                if peer != changed:
                    self._send_hello(peer)

    def may_accept(self) -> bool:
        """4.4: a router that is not established releases no accepted."""
        return self.established

    def _establish(self) -> None:
        self.established = True
        if not self.booted:
            self._boot()
        for peer in self.members.peers:
            self._send_hello(peer)
        for address in list(self.addresses.values()):
            address.become_established()
        self.drain()
        self._take_deferred()

    def _send_hello(self, peer: str) -> None:
        publishers: list[m.PublisherNews] = []
        subscriptions: list[m.SubscriptionNews] = []
        for address in self.addresses.values():
            some_publishers, some_subscriptions = address.news()
            publishers += some_publishers
            subscriptions += some_subscriptions
        up = self.members.list_for_hello()
        self._send((peer,), encode(m.Hello(self.incarnation, self.established, up, publishers, subscriptions)))

    def _on_hello(self, sender: str, message: m.Hello) -> None:
        """4.3."""
        first = self.members.heard(sender, message)
        for publisher in message.publishers:
            address = self.address(publisher.address)
            address.tell_of_close(sender, publisher)
            address.hear_of_publisher(publisher)
        if not self.established:
            for subscription in message.subscriptions:
                self.address(subscription.address).hear_of_subscription(sender, subscription)
        if first:
            self._say_who_is_up(sender)
        self._check_awaited()
        self._check_booted()

    # ------------------------------------------------------------------------------------------------- memory: 6.8, 7.7

    def fair_share(self, taken: int) -> int:
        """What one publisher or subscriber may have of the memory: a part of what is free, so that it cannot be taken
        by some before others come (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998)."""
        return min(self.config.window_bytes, (self.config.memory_limit - taken) // SHARE_OF_FREE)

    def entries_of_parts(self, attach: PublisherAttach | SubscriberAttach) -> int:
        """7.7: how many entries of its map have come before, in parts."""
        if not self.parts:
            return 0
        if isinstance(attach, PublisherAttach):
            return self.parts.of(publisher_id(attach.container, attach.name, attach.address, False))
        return self.parts.of((attach.address, attach.container, attach.name))

    @property
    def deferred(self) -> int:
        """Attaches that wait until this router is booted, or established."""
        return len(self._deferred_publishers) + len(self._deferred_subscribers)

    # ----------------------------------------------------------------------------------------------------------- status

    def status(self) -> dict[str, object]:
        """For the status page."""
        recovering = None
        if not self.established and self._recover_at is not None:
            recovering = round(max(0.0, self._recover_at - self.now), 3)
        return {
            "booted": self.booted,
            "established": self.established,
            "recovering_s": recovering,
            "awaited": self.awaited(),
            "up": list(self.members.peers),
            "payload_bytes": self.meter,
            "presettled_bytes": self.presettled,
            "deferred": self.deferred,
            "addresses": {name: address.status() for name, address in sorted(self.addresses.items())},
        }
