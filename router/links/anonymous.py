"""A sending link without an address: each message names its own, in `to` (OASIS, Using the AMQP Anonymous Terminus).

For each address that messages name the link is a publisher of its own towards the core, an `AddressPort`. These
publishers are new with each attach, and close with the link: what an attach proves about a publisher that may be
elsewhere (protocol 5.1) need not be asked of one that has never been anywhere else. So the first message to an address
waits for one round trip between routers and for no sign of life, and the link gives at-least-once at best: a client
that sends again on its next link does so as another publisher.

A message that cannot be published is refused by its outcome, and the others go on. The link's credit is for all
addresses together. Where nobody is subscribed a message is released, since there is no credit to withhold for one
address (the address's `no_subscribers: hold`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from amqp10.errors import NOT_ALLOWED, DecodeError, RemoteProtocolError
from amqp10.outcomes import ACCEPTED, RELEASED, DeliveryState, Error, Rejected
from amqp10.receiver import ReceiverLink
from amqp10.runs import Dispositions, Transfers
from amqp10.sections import Glance
from amqp10.termini import EXPIRE_LINK_DETACH, Target
from amqp10.types import Symbol
from router.config import is_dynamic
from router.core.holding import PUBLISHER, octets_of_address, octets_of_text
from router.core.ports import Outcome, PublisherAttach, Term, Waiting
from router.core.publisher import NO_SUBSCRIBERS
from router.links.addresses import Names
from router.links.base import BaseConnection
from router.links.limits import POLICIES, PORT
from router.links.negotiation import (
    Modes,
    Unauthorized,
    answer_properties,
    check_allowed,
    publisher_annotation,
    read_address,
)
from router.links.publisher_link import PublisherLink, state_of
from router.names import DETACH_FORCED

Delivery = tuple[int, bytes, bytes, bool, int]
"""Delivery-id, tag, payload, settled, message-format."""
MOST_ADDRESSES: Final = 64
"""Publishers that a link keeps. Beyond it the one without deliveries under way is closed that was unused longest."""


class UnderWay:
    """Deliveries of a link that have no outcome yet."""

    __slots__ = ("_of", "octets")

    def __init__(self) -> None:
        self._of: dict[int, tuple[AddressPort, int]] = {}  # delivery-id -> whose it is, and its size
        self.octets = 0

    def __len__(self) -> int:
        return len(self._of)

    def begin(self, delivery_id: int, port: AddressPort, size: int) -> None:
        self._of[delivery_id] = port, size
        self.octets += size

    def end(self, delivery_id: int) -> AddressPort | None:
        """Returns whose it was, if it was under way until now."""
        port, size = self._of.pop(delivery_id, (None, 0))
        self.octets -= size
        if port is not None:
            port.under_way -= 1
        return port


class AddressPorts:
    """The publishers of a link, one for each address that its messages have named."""

    __slots__ = ("by_address", "over")

    def __init__(self) -> None:
        self.by_address: dict[str, AddressPort] = {}  # the one unused longest first
        self.over: dict[AddressPort, None] = {}  # of dynamic nodes that have ended: to be closed

    def use(self, address: str) -> AddressPort | None:
        port = self.by_address.pop(address, None)
        if port is not None:
            self.by_address[address] = port
        return port

    def idle(self) -> AddressPort | None:
        """The one to close before another one comes, where there are many."""
        if len(self.by_address) < MOST_ADDRESSES:
            return None
        return next((each for each in self.by_address.values() if not each.under_way and not each.queue), None)

    def forget(self, address: str) -> bool:
        port = self.by_address.pop(address, None)
        if port is not None:
            self.over.pop(port, None)
        return port is not None


class AnonymousLink(PublisherLink):
    """The link, with one credit for all addresses."""

    __slots__ = ("_name", "_open", "_ports", "broken")

    def __init__(self, connection: BaseConnection, link: ReceiverLink, attach: PublisherAttach, modes: Modes) -> None:
        super().__init__(connection, link, attach, modes)
        router = connection.router
        # of its publishers: no other attach has it
        self._name = f"{attach.name}#{router.core.incarnation:x}.{next(router.numbers)}"
        self._publisher = publisher_annotation(attach.container, self._name)
        self._ports = AddressPorts()
        self._open = UnderWay()
        self.broken: tuple[str, str] | None = None  # condition and description, for the next flush

    def open(self) -> None:
        """Answers the attach."""
        self.link.session.widen_incoming()  # protocol 6.12.3
        self._attach(Target(expiry_policy=EXPIRE_LINK_DETACH), self.connection.connection.settings.max_message_size)

    # --- the engine's events

    def on_transfers(self, event: Transfers, now: float) -> None:
        self.credit.sizes.observe(event.payloads)
        self.connection.credit_changed(self)
        if self.detach_over_memory(now):
            return
        message_format = event.message_format or 0
        for number, (tag, payload) in enumerate(zip(event.tags, event.payloads, strict=True)):
            delivery_id = (event.first_id + number) & 0xFFFFFFFF
            self.connection.core.entered = None  # what came before is handled
            try:
                to = Glance(payload).properties.to
                if self.is_request(to, payload):
                    if not event.settled:
                        self.link.dispose(delivery_id, delivery_id, ACCEPTED, True)
                        self.connection.output_ready()
                    continue
                address = self._address(to, event.settled)
                self._check_room(address)
                (payload,) = self._annotated([payload], message_format, self.connection.config.address(address))
            except RemoteProtocolError as error:
                self._reject(delivery_id, event.settled, error.condition, error.description)
                continue
            except DecodeError as malformed:
                self._reject(delivery_id, event.settled, malformed.condition, f"this is no message: {malformed}")
                continue
            self._take(self._port(address, now), (delivery_id, tag, payload, event.settled, message_format), now)

    def on_dispositions(self, event: Dispositions, now: float) -> None:
        """Deliveries that it settles before they have an outcome: it does not want to know it."""
        if not event.settled:
            return
        for delivery_id in _ids(event.first_id, event.last_id):
            port = self.closed(delivery_id)
            if port is not None:
                self.connection.core.publisher_settled(port, delivery_id, delivery_id, now)

    def lost(self, closed: bool, now: float) -> None:
        if not self.detached:
            self._mark_detached()
            self.leave(now)

    def detach_with_error(self, condition: str, description: str, now: float) -> None:
        self.leave(now)
        self.detach(condition, description, {}, True)

    # --- for its addresses

    def closed(self, delivery_id: int) -> AddressPort | None:
        """The delivery is no longer under way; returns whose it was, if it was until now."""
        return self._open.end(delivery_id)

    def settle(self, delivery_id: int, state: DeliveryState) -> None:
        """Tells the outcome of a delivery that is not the core's."""
        if self.closed(delivery_id) is not None and not self.link.detached:
            self.link.dispose(delivery_id, delivery_id, state, True)
            self.connection.output_ready()
            self.connection.credit_changed(self)

    def forget(self, address: str) -> None:
        if self._ports.forget(address):
            self.connection.takes(self.link, -_octets_of(address))

    def node_ended(self, port: AddressPort) -> None:
        """Nobody will receive from there again."""
        self._ports.over[port] = None
        self.connection.credit_changed(self)

    # --- credit, draining, policies

    def grant(self) -> None:
        if self.broken is not None and not self.detached:
            self.detach_with_error(*self.broken, self.connection.now)
            return
        self._close_ended()
        self.credit.window(*self.room())
        super().grant()

    def room(self) -> tuple[int, int]:
        """Messages and bytes that it may send."""
        config = self.connection.config
        return config.window_messages - len(self._open), config.window_bytes - self._open.octets

    @property
    def under_way(self) -> int:
        return len(self._open)

    # --- helpers

    def _attach(self, target: Target | None, max_message_size: int) -> None:
        remote = self.link.remote_attach
        assert remote is not None
        answered = self.connection.attach(
            self.link,
            source=remote.source,
            target=target,
            unsettled={},
            properties=answer_properties(guarantee=self._modes.guarantee),
            snd_settle_mode=self._modes.snd,
            rcv_settle_mode=self._modes.rcv,
            max_message_size=max_message_size,
        )
        if answered:
            self.ready()

    def _take(self, port: AddressPort, delivery: Delivery, now: float) -> None:
        """One more delivery is under way."""
        self._open.begin(delivery[0], port, len(delivery[2]))
        port.send(delivery, now)

    def is_request(self, to: Any, payload: bytes) -> bool:
        """Whether it was a request to a management node, which is taken then (`router.links.management_link`)."""
        return False

    def _address(self, to: Any, settled: bool) -> str:
        """The address that a message names, if this client may send to it so."""
        return self._allowed(to, "properties.to", settled, anonymous=True)

    def _allowed(self, value: Any, place: str, settled: bool, *, anonymous: bool = False) -> str:
        """The address that a message names at this place, if this client may send there, settled or unsettled."""
        config = self.connection.config
        address = read_address(value, place, Names(self.connection.router.core, self.connection.config).meant)
        try:
            check_allowed(config, self.connection.identity, "send", address, anonymous=anonymous)
        except Unauthorized:
            self.connection.router.admission.count_refusal(POLICIES)
            raise
        if not settled and config.address(address).guarantee == "at-most-once":
            raise RemoteProtocolError(NOT_ALLOWED, f"{place}: {address!r:.80} is at-most-once: send it settled")
        return address

    def _check_room(self, address: str) -> None:
        """Raises RemoteProtocolError if there is none for one address more."""
        if address not in self._ports.by_address:
            made = 0 if address in self.connection.core.addresses else octets_of_address(address)
            self.connection.check_room(_octets_of(address) + PUBLISHER + made)

    def _port(self, address: str, now: float) -> AddressPort:
        port = self._ports.use(address)
        if port is not None:
            return port
        idle = self._ports.idle()
        if idle is not None:
            self._close(idle, now)
        attach = PublisherAttach(self.attach.container, self._name, address, mode_first=True)
        attach.unsettled_window = self.attach.unsettled_window
        port = self._ports.by_address[address] = AddressPort(self, attach)
        self.connection.takes(self.link, _octets_of(address))
        self.connection.core.attach_publisher(port, attach, now)
        return port

    def _close_ended(self) -> None:
        for port in [each for each in self._ports.over if not each.under_way]:
            self._close(port, self.connection.now)

    def _close(self, port: AddressPort, now: float) -> None:
        self.forget(port.attach.address)
        self.connection.core.detach_publisher(port, True, now)

    def _reject(self, delivery_id: int, settled: bool, condition: str, description: str) -> None:
        """Nobody is told of what was sent settled."""
        if not settled:
            self.link.dispose(delivery_id, delivery_id, Rejected(Error(Symbol(condition), description)), True)
            self.connection.output_ready()

    def leave(self, now: float) -> None:
        ports, self._ports, self._open = self._ports.by_address, AddressPorts(), UnderWay()
        self.connection.takes(self.link, -sum(map(_octets_of, ports)))
        for port in ports.values():
            port.leave(now)


class AddressPort:
    """One address of an anonymous link: the core's PublisherPort. What the core asks for is answered in the next
    flush, since the core is not called from within its own calls."""

    __slots__ = (
        "_answered", "_asked", "_claims", "_link", "_nobody", "_ready", "_refused", "attach", "queue", "under_way",
    )  # fmt: skip

    def __init__(self, link: AnonymousLink, attach: PublisherAttach) -> None:
        self._link = link
        self.attach = attach
        self.queue: list[Delivery] = []  # deliveries that came before the core is ready
        self.under_way = 0  # deliveries without outcome, and those that were sent settled and are queued
        self._claims = False  # its claim is due, or done
        self._answered = False
        self._asked = False
        self._ready = False
        self._nobody = False  # is subscribed
        self._refused: DeliveryState | None = None  # what its deliveries are told if the address is none

    def send(self, delivery: Delivery, now: float) -> None:
        self.under_way += 1
        if self._refused is not None:
            self._tell(delivery, self._refused)
        elif not self._ready or self.queue:
            self.queue.append(delivery)
        else:
            self._publish(delivery, now)

    def grant(self) -> None:
        """Once per flush, when the core has said something."""
        connection = self._link.connection
        core, now = connection.core, connection.now
        if self._answered and not self._claims:
            self._claims = True
            core.proved(self, now)
        if self._asked:
            self._asked = False
            core.question_answered(self, now)
        if self._ready:
            queue, self.queue = self.queue, []
            for delivery in queue:
                self._publish(delivery, now)

    def leave(self, now: float) -> None:
        """The link has gone. What was sent settled before the core is ready is sent when it is (protocol 6.9.3)."""
        core, settled = self._link.connection.core, [each for each in self.queue if each[3]]
        if settled:
            self.grant()
        if settled and not self._ready:
            for delivery in settled:
                self._publish(delivery, now)
        core.detach_publisher(self, True, now)

    def _publish(self, delivery: Delivery, now: float) -> None:
        delivery_id, tag, payload, settled, message_format = delivery
        if self._nobody:
            self._tell(delivery, RELEASED)
            return
        if settled:  # what it takes from here on is the core's to bound
            self._link.closed(delivery_id)
        self._link.connection.core.transfers(self, delivery_id, [tag], [payload], settled, message_format, now)

    def _tell(self, delivery: Delivery, state: DeliveryState) -> None:
        """Ends a delivery that is not the core's. Nobody is told of what was sent settled."""
        if delivery[3]:
            self._link.closed(delivery[0])
        else:
            self._link.settle(delivery[0], state)

    # --- PublisherPort: what the core says

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        self._answered = True
        self._link.connection.credit_changed(self)

    def ready(self) -> None:
        self._ready = True
        self._link.connection.credit_changed(self)

    def set_window(self, messages: int, size: int, reason: str) -> int:
        self._nobody = reason == NO_SUBSCRIBERS
        address = self.attach.address
        if is_dynamic(address) and not self._link.connection.core.is_subscribed(address):
            self._link.node_ended(self)
        return 0

    def waiting(self, waiting: Waiting | None) -> None:
        """The link has credit for other addresses."""

    def ask(self) -> None:
        self._asked = True
        self._link.connection.credit_changed(self)

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        link = self._link
        state = state_of(outcome, rejected, self.attach.address, why, router=link.connection.router)
        for delivery_id in _ids(first_id, last_id):
            link.settle(delivery_id, state)

    def answer_map_part(self) -> None:
        raise AssertionError("it presents no map")

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        """The address is none, a dynamic node that is gone; or it is not served yet: its messages may come again."""
        self._link.forget(self.attach.address)
        self._refused = RELEASED if condition == DETACH_FORCED else Rejected(Error(Symbol(condition), description))
        queue, self.queue = self.queue, []
        for delivery in queue:
            self._tell(delivery, self._refused)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self._link.forget(self.attach.address)
        self._link.broken = condition, f"{self.attach.address}: {description}"
        self._link.connection.credit_changed(self._link)


def _octets_of(address: str) -> int:
    return PORT + octets_of_text(address)


def _ids(first_id: int, last_id: int) -> Iterator[int]:
    """The delivery-ids of a range, which may wrap."""
    for number in range((last_id - first_id & 0xFFFFFFFF) + 1):
        yield first_id + number & 0xFFFFFFFF
