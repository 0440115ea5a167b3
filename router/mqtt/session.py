"""One session of MQTT: its subscriptions, what is in flight both ways, its will.

It has ports on the core, a publisher and a subscriber for each address, and a connection while its client is there. It
decides what an outcome means to the client and what an acknowledgement means to the core. `router.mqtt.connection`
reads and writes packets, `router.mqtt.service` knows all sessions of the router.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from mqtt import (
    Publish,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqtt.topics import is_shared
from router.core.containers import subscriptions_of
from router.core.ports import KnownSubscription, Outcome, Refusal
from router.mqtt.absence import Absence
from router.mqtt.base import BaseConnection, BaseMqtt, BaseSession
from router.mqtt.filters import Filter, Filters
from router.mqtt.holding import SESSION, octets_of_filter, octets_of_will
from router.mqtt.incoming import IncomingMessages
from router.mqtt.kept import KeptSubscriber, read, too_many, written
from router.mqtt.lease import Lease
from router.mqtt.outgoing import QUESTION, Identifiers, State
from router.mqtt.publisher import LINK, MqttPublisher
from router.mqtt.subscriber import MqttSubscriber, TransientSubscriber
from router.names import RESOURCE_DELETED, STOLEN, SUBSCRIPTION_BROKEN, SUBSCRIPTION_UNDECLARED, publisher_text
from router.policies import NOBODY, Identity

GONE_WITH_IT: Final = Refusal(RESOURCE_DELETED, "the session that may have received it is over")
PART: Final = 128
"""Topic filters of a packet that are looked at in one turn."""
MOST_ASKED: Final = 1_000
"""SUBACK and UNSUBACK that wait at once, above which the client is not read."""
MOST_QOS: Final = {"exactly-once": 2, "at-least-once": 1, "at-most-once": 0}


class _Asked:
    """A SUBSCRIBE or UNSUBSCRIBE whose answer waits until every router knows the filters."""

    def __init__(
        self, on: BaseConnection | None, answer: Suback | Unsuback, texts: list[str], waits: dict[str, int]
    ) -> None:
        self.on = on  # who has asked
        self.retained: list[Filter] = []  # that get what is retained, after SUBACK
        self.answer = answer
        self.texts = texts
        self.waits = waits  # address -> number of the change


class _Changes:
    """Of the filters of one session, under way."""

    __slots__ = ("asked", "leaving", "work")

    def __init__(self) -> None:
        self.work: deque[Iterator[None]] = deque()  # SUBSCRIBE and UNSUBSCRIBE that are not handled to their end
        self.asked: dict[_Asked, None] = {}
        self.leaving: dict[str, None] = {}  # addresses that need no filter any more, where its client has messages

    def begin(self, change: Iterator[None]) -> bool:
        """Says whether it is the only one."""
        self.work.append(change)
        return len(self.work) == 1


class Rights:
    """What the client of a session may publish, as was looked up once."""

    __slots__ = ("_service", "identity", "refusals")

    def __init__(self, service: BaseMqtt) -> None:
        self._service = service
        self.identity = NOBODY
        self.refusals: dict[tuple[str, int], Reason | None] = {}  # by address and QoS

    def changed(self) -> None:
        """The file, or the groups of its user, have changed."""
        self.refusals.clear()

    def refusal_of(self, address: str, qos: int) -> Reason | None:
        """Why the client may not publish there; None: it may."""
        key = address, qos
        if key in self.refusals:
            return self.refusals[key]
        found = self.refusals[key] = self._look_up_refusal(address, qos)
        return found

    def _look_up_refusal(self, address: str, qos: int) -> Reason | None:
        if not self._service.may(self.identity, "send", address):
            return Reason.NOT_AUTHORIZED
        return Reason.QOS_NOT_SUPPORTED if qos > self.most_qos(address) else None

    def most_qos(self, address: str) -> int:
        addresses = [address, *self._service.topics.topics_of(address)]
        return min(MOST_QOS[self._service.config.address(each).guarantee] for each in addresses)


class Session(BaseSession):
    """One client's.

    Attributes:
        known: The subscriptions that another router has left of it, while they are attached.
    """

    def __init__(
        self, service: BaseMqtt, container: str, incarnation: int, expiry_s: float, version: int, *, goes_on: bool
    ) -> None:
        self.service = service
        self.core = service.core
        self.container = container
        self.client_id = ""
        self.rights = Rights(service)
        self.present = goes_on  # with the last CONNECT
        self.incarnation = incarnation
        self.persists = goes_on or expiry_s > 0
        self.version = version
        self.connection: BaseConnection | None = None
        self.filters = Filters(service.filters, publisher_text(container, LINK))
        self.identifiers = Identifiers()
        self.incoming = IncomingMessages(self)
        self.incoming.may_be_elsewhere = goes_on
        self.subscribers: dict[str, MqttSubscriber] = {}
        self.lease: Lease | None = None
        self.known: dict[str, KnownSubscription] | None = {} if goes_on else None
        self.ended = False
        self.absence = Absence(expiry_s)
        self._changes = _Changes()
        self.held = 0  # octets, as counted

    @property
    def identity(self) -> Identity:
        return self.rights.identity

    @identity.setter
    def identity(self, identity: Identity) -> None:
        self.rights.identity = identity
        self.rights.changed()

    # --- life

    def recount(self) -> None:
        """Its filters or its will have changed."""
        octets = 0 if self.ended else SESSION + self.filters.octets + octets_of_will(self.absence.will)
        self.core.memory.holding.count(self.identity.user, octets - self.held)
        self.held = octets

    def take_lease(self, epoch: int, born: int, now: float) -> None:
        """Makes this router the session's; `leased` follows, or `lease_lost`."""
        before, self.lease = self.lease, Lease(self, epoch, born)
        if before is not None:  # the core drops it for the new one
            before.detached = True
        self.core.attach_subscriber(self.lease, self.lease.attach, now)

    def leased(self, lease: Lease) -> None:
        """All routers know that the session is here."""
        if lease is not self.lease:
            return
        now = self.service.now
        left = self._left()
        if self.known is not None:
            self.known = {each.address: each for each in left if self._is_mine(each)}
            for each in self.known.values():
                if each.address not in self.subscribers:  # the client may have connected twice meanwhile
                    self._go_on_with(each, now)
        for each in left:
            if each.home is None and each.address not in self.subscribers:  # of a session before this one
                epoch = self._epoch_at(each.address)
                former = TransientSubscriber(self, each.address, epoch, epoch)
                former.begin(now)
                former.leave(now, closed=True)
        self._check_ready()

    def _left(self) -> list[KnownSubscription]:
        """Returns the subscriptions of MQTT that this router knows of its client."""
        topics = self.service.topics
        return [
            each
            for each in subscriptions_of(self.core, self.container, LINK)
            if each.address in topics.addresses or topics.filter_of(each.address) is not None
        ]

    def _is_mine(self, known: KnownSubscription) -> bool:
        found = read(known.data)
        return found is not None and found[0] == self.incarnation

    def _go_on_with(self, known: KnownSubscription, now: float) -> None:
        """Attaches what another router has left."""
        found = read(known.data)
        assert found is not None
        assert known.born is not None
        for one in found[1]:
            addresses = self.service.topics.addresses_of(one.options.topic_filter)
            if all(self.service.may(self.identity, "receive", address) for address in addresses):
                self.filters.add(Filter(one.options, one.identifier, tuple(addresses)))
        subscriber = self.subscribers[known.address] = KeptSubscriber(
            self, known.address, self._epoch_at(known.address), known.born[0]
        )
        self.recount()
        subscriber.attach.data = known.data
        subscriber.begin(now)

    def _epoch_at(self, address: str) -> int:
        """An epoch above all that its subscription of the address has had, as far as is known: clocks of routers
        differ."""
        found = self.core.addresses.get(address)
        entry = found.subscriptions.entries.get((self.container, LINK)) if found is not None else None
        return self.service.epoch(max(entry.term, entry.recalled_by)[0] if entry is not None else 0)

    def _check_ready(self) -> None:
        """CONNACK follows when what another router has left is here."""
        if self.known is not None and not all(
            address in self.subscribers and self.subscribers[address].answered for address in self.known
        ):
            return
        self.known = None
        # by the topology file of today
        for address in sorted(each for each in self.subscribers if not self.filters.needs(each)):
            self._leave(address, self.service.now)
        if self.connection is not None:
            self.connection.session_ready(self)

    def lease_lost(self, lease: Lease, condition: str, description: str) -> None:
        """The session is at another router now, or over."""
        if lease is not self.lease or self.ended:
            return
        if condition == STOLEN:
            self.service.session_moved(self)
        elif condition == SUBSCRIPTION_BROKEN and self.known is not None:
            self.service.begin_anew(self)
        else:
            self.service.session_refused(self, condition, description)

    def connected(self, connection: BaseConnection, will: Will | None) -> None:
        """Its client is there, after CONNACK."""
        self.absence.over(will)
        self.recount()
        self.identifiers.send_again()
        for packet_id, one in self.identifiers.in_flight.items():
            if one.state is State.RELEASED:
                connection.send(Pubrel(packet_id))
        self.send_waiting()
        self.incoming.connected()
        self.service.has_room(self)

    def disconnected(self, now: float, *, with_will: bool) -> None:
        """Its client has gone. The session's time begins, and that of its will."""
        self.connection = None
        self._changes.asked.clear()
        if not with_will:
            self.absence.will = None
            self.recount()
        self.absence.begin(now)
        if self.absence.expiry_s <= 0:
            self.end(now)
            return
        for subscriber in self.subscribers.values():
            self._give_back(subscriber, now)
        self.tick(now)
        self.service.schedule(self)

    def set_expiry(self, seconds: int) -> None:
        """DISCONNECT has another expiry (3.14.2.2.2)."""
        if self.persists:
            self.absence.expiry_s = min(float(seconds), self.service.longest_session_s)

    def tick(self, now: float) -> None:
        """Does what is due."""
        if self.absence.is_will_due(now):
            self._publish_will(now)
        if self.absence.has_ended(now) and not self.ended:
            self.end(now)

    def end(self, now: float) -> None:
        """It is over: what it has subscribed to is removed, and what was published goes its way."""
        if not self.ended:
            if self.absence.will is not None and self.connection is None:
                self._publish_will(now)
            self._stop(now, closed=True)
            self.incoming.end(now)

    def leave(self, now: float) -> None:
        """It goes on at another router."""
        if not self.ended:
            self._stop(now, closed=False)
            self.incoming.leave(now)

    def _stop(self, now: float, *, closed: bool) -> None:
        self.ended = True
        for one in list(self.identifiers.in_flight.values()) if closed else ():
            # [MQTT-4.8.2-5]: no other member gets what this client may have received
            if one.subscriber.shares and one.qos == 2 and one.state is State.SENT and one.repeated:
                one.subscriber.finished(one, GONE_WITH_IT)
        for subscriber in list(self.subscribers.values()):
            subscriber.leave(now, closed=closed)
        if self.lease is not None:
            self.lease.leave(now, closed=closed)
        self._changes.work.clear()
        self.filters.clear()
        self.recount()
        self.service.forget(self)

    def _publish_will(self, now: float) -> None:
        will = self.absence.take_will()
        self.recount()
        address = self.service.topics.address_of(will.topic)
        if address is not None and self.service.may(self.identity, "send", address):
            properties = will.properties._replace(will_delay_s=None)
            qos = min(will.qos, self.rights.most_qos(address))
            retain = will.retain and bool(self.service.topics.retained)
            publish = Publish(will.topic, will.payload, qos, retain, properties=properties)
            written = self.service.border.ask((), self.incoming.written, address, [publish])
            gone = self.lease is not None and self.lease.detached
            publish_written = self.incoming.publish_elsewhere if gone else self.incoming.publish_written
            publish_written(list(written), now)

    def publisher_lost(self, publisher: MqttPublisher, condition: str, description: str) -> None:
        """The core has detached it: it works elsewhere, or has expired."""
        self.incoming.lost(publisher)
        if condition != STOLEN:
            self.service.session_refused(self, condition, f"{publisher.attach.address}: {description}")

    # --- the client subscribes

    def change_filters(self, packet: Subscribe | Unsubscribe) -> None:
        """SUBACK or UNSUBACK follows when every router knows of it."""
        on = self.connection
        change = self._subscribe(packet, on) if isinstance(packet, Subscribe) else self._unsubscribe(packet, on)
        if self._changes.begin(change):
            self.go_on()

    @property
    def is_busy(self) -> bool:
        """Whether filters wait to be looked at, PART in a turn, or many answers for other routers to know them."""
        return bool(self._changes.work) or len(self._changes.asked) >= MOST_ASKED

    def go_on(self) -> None:
        """Looks at what is left of the client's filters, as far as a turn goes."""
        work = self._changes.work
        while work:
            for _ in work[0]:
                self.service.turn.busy[self] = None
                return
            if work:  # else the session has ended
                work.popleft()
        if self.connection is not None:
            self.service.dirty(self.connection)

    def _subscribe(self, packet: Subscribe, on: BaseConnection | None) -> Iterator[None]:
        identifiers = packet.properties.subscription_ids
        reasons: list[Reason] = []
        retained: list[Filter] = []
        links = self.service.host.offers.limits_of(self.identity.user).links
        held = {*self.subscribers, *self.filters.addresses()}
        for number, options in enumerate(packet.subscriptions, 1):
            if not number % PART:
                yield None
            addresses = self.service.topics.addresses_of(options.topic_filter)
            refusal = self._refusal_of_filter(options.topic_filter, addresses)
            if on is not None and on.is_bridge:  # what its filters say in version 5
                options.no_local = not is_shared(options.topic_filter)
                options.retain_as_published = True
            if refusal is None:
                options.qos = min(options.qos, *(self.rights.most_qos(address) for address in addresses))
                one = Filter(options, identifiers[0] if identifiers else 0, tuple(addresses))
                more = [address for address in addresses if address not in held]
                # else a client could make addresses without end, at all routers
                over = is_shared(options.topic_filter) and len(held) + len(more) > links
                over = over or not self.core.memory.holding.has_room(self.identity.user, octets_of_filter(one))
                if over or any(too_many(self.filters.octets_with(one, address)) for address in addresses):
                    refusal = Reason.QUOTA_EXCEEDED
                else:
                    held.update(more)
                    known = self.filters.add(one)
                    self.recount()
                    if options.retain_handling < 2 - known and not is_shared(options.topic_filter):
                        retained.append(one)
                        # a client that subscribes again is owed what has come for its first subscription
                        one.sees = 0 if known else self.service.entered()
                    refusal = Reason(options.qos)
            reasons.append(refusal)
        texts = [options.topic_filter for options in packet.subscriptions]
        for i, text in enumerate(texts):
            if reasons[i] < Reason.UNSPECIFIED_ERROR and text not in self.filters.by_text:
                reasons[i] = Reason.UNSPECIFIED_ERROR  # its subscription was lost between two parts
        granted = [text for text, reason in zip(texts, reasons, strict=True) if reason < Reason.UNSPECIFIED_ERROR]
        needed = self.filters.addresses(granted)
        self._ask(on, Suback(packet.packet_id, reasons), texts, needed, retained)

    def _refusal_of_filter(self, text: str, addresses: list[str]) -> Reason | None:
        if not addresses:
            return Reason.TOPIC_FILTER_INVALID
        service, closed = self.service, self.core.recovery.declarations.is_closed
        if is_shared(text) and any(closed(topic) for each in addresses for topic in service.topics.topics_of(each)):
            return Reason.NOT_AUTHORIZED  # such an address takes declared subscriptions only
        if not all(service.may(self.identity, "receive", address) for address in addresses):
            return Reason.NOT_AUTHORIZED
        return None

    def data_of(self, address: str) -> bytes:
        """What all routers are to know of the subscription of this address."""
        return written(self.incarnation, self.filters.of(address))

    def _ask(
        self,
        on: BaseConnection | None,
        answer: Suback | Unsuback,
        texts: list[str],
        addresses: Iterable[str],
        retained: list[Filter] | None = None,
    ) -> None:
        """Answers when all routers know the filters that concern these addresses."""
        now = self.service.now
        asked = _Asked(on, answer, texts, {})
        asked.retained = retained or []
        self._changes.asked[asked] = None
        for address in addresses:
            known = self.subscribers.get(address)
            if known is None:
                kind = KeptSubscriber if self.persists else TransientSubscriber
                epoch = self._epoch_at(address)
                known = self.subscribers[address] = kind(self, address, epoch, epoch)
                asked.waits[address] = known.number
                known.begin(now)
            elif self.persists or not known.answered:
                asked.waits[address] = known.number + self.persists  # before `tell`, which may be done at once
                known.tell(now)
        self._answer(asked)

    def filters_told(self, subscriber: MqttSubscriber, number: int) -> None:
        """All routers know the filters as of this change."""
        address = subscriber.attach.address
        for asked in list(self._changes.asked):
            if asked.waits.get(address, number + 1) <= number:
                del asked.waits[address]
            self._answer(asked)
        if self.known is not None:
            self._check_ready()

    def subscription_lost(self, subscriber: MqttSubscriber, condition: str, description: str) -> None:
        """The core has refused or detached it."""
        address = subscriber.attach.address
        if self.subscribers.get(address) is subscriber:
            del self.subscribers[address]
        if self.ended:
            return
        if condition == STOLEN:
            if self.lease is not None and not self.lease.detached:
                self.service.session_disturbed(self)
            return
        if self.known is not None:  # it may have missed something: then the session is not present
            self.service.begin_anew(self)
            return
        if subscriber.answered:
            self.service.session_refused(self, condition, description)
            return
        reason = Reason.NOT_AUTHORIZED if condition == SUBSCRIPTION_UNDECLARED else Reason.UNSPECIFIED_ERROR
        lost = {one.options.topic_filter for one in self.filters.of(address)}
        for text in lost:
            self.filters.remove(text)
        self.recount()
        for asked in list(self._changes.asked):
            if isinstance(asked.answer, Suback):
                asked.answer.reasons = [
                    reason if text in lost else was for was, text in zip(asked.answer.reasons, asked.texts, strict=True)
                ]
            asked.waits.pop(address, None)
            self._answer(asked)

    def _answer(self, asked: _Asked) -> None:
        if not asked.waits and asked in self._changes.asked:
            del self._changes.asked[asked]
            if asked.on is self.connection:
                self.send_packet(asked.answer)
            if asked.retained and self._changes.begin(self._send_retained(asked.retained)):
                self.service.turn.busy[self] = None

    def _send_retained(self, filters: list[Filter]) -> Iterator[None]:
        for number, one in enumerate(filters, 1):
            if not number % PART:
                yield None
            self.service.send_retained(self, one)

    def _unsubscribe(self, packet: Unsubscribe, on: BaseConnection | None) -> Iterator[None]:
        changed: set[str] = set()
        reasons: list[Reason] = []
        for number, text in enumerate(packet.topic_filters, 1):
            if not number % PART:
                yield None
            known = self.filters.remove(text)
            changed.update(known.addresses if known is not None else ())
            reasons.append(Reason.SUCCESS if known is not None else Reason.NO_SUBSCRIPTION_EXISTED)
        now = self.service.now
        self.recount()
        needed = {address for address in changed if self.filters.needs(address)}
        for address in sorted(changed - needed):
            self._leave(address, now)
        told = needed | (changed & self._changes.leaving.keys()) if self.persists else ()
        self._ask(on, Unsuback(packet.packet_id, reasons), packet.topic_filters, told)

    def _leave(self, address: str, now: float) -> None:
        """It needs nothing of this address any more. What its client has not acknowledged to the end goes on."""
        subscriber = self.subscribers.get(address)
        if subscriber is None:  # lost while an UNSUBSCRIBE was handled in parts
            return
        self._give_back(subscriber, now)
        if (subscriber.shares or self.persists) and self._may_hold_of(subscriber):
            self._changes.leaving[address] = None
            return
        del self.subscribers[address]
        subscriber.leave(now, closed=True)
        for asked in list(self._changes.asked):
            asked.waits.pop(address, None)
            self._answer(asked)
        for one in [each for each in self.identifiers.in_flight.values() if each.subscriber is subscriber]:
            if one.state is State.KEPT:
                self.identifiers.free(one)
            elif one.state is State.RECEIVED:
                self.release(one)

    def leave_what_is_done(self, now: float) -> None:
        """Leaves the subscriptions of which the client has nothing any more. Before, another member of a shared one
        would get what it may have received, and another router would not send PUBREL."""
        for address in list(self._changes.leaving):
            subscriber = self.subscribers.get(address)
            if subscriber is None or self.filters.needs(address):
                del self._changes.leaving[address]
            elif not self._may_hold_of(subscriber):
                del self._changes.leaving[address]
                self._leave(address, now)

    def _may_hold_of(self, subscriber: MqttSubscriber) -> bool:
        """Whether the client may have something of it that it has not answered to the end."""
        return any(one.subscriber is subscriber for one in self.identifiers.in_flight.values())

    def _give_back(self, subscriber: MqttSubscriber, now: float) -> None:
        """Other members of a shared subscription get what the client has not been sent."""
        if not subscriber.shares:
            return
        for one in self.identifiers.unsent(subscriber):
            self.identifiers.free(one)
            subscriber.finished(one, Outcome.RELEASED)
        subscriber.give_back(now)

    # --- the client gets messages

    def acknowledged(self, packet_id: int, reason: Reason) -> None:
        """PUBACK has come."""
        one = self.identifiers.in_flight.get(packet_id)
        if one is not None and one.qos == 1 and one.state is State.SENT:
            self.identifiers.free(one)
            one.state = State.RELEASED  # it may wait to be sent again
            fine = reason < Reason.UNSPECIFIED_ERROR
            one.subscriber.finished(one, Outcome.ACCEPTED if fine else _refusal_of(reason))
            self.service.has_room(self)

    def received(self, packet_id: int, reason: Reason) -> None:
        """PUBREC has come."""
        one = self.identifiers.in_flight.get(packet_id)
        if one is None:
            if reason < Reason.UNSPECIFIED_ERROR:
                self.send_packet(Pubrel(packet_id, self.unknown))
        elif one.qos != 2:
            return
        elif one.state is State.SENT and reason >= Reason.UNSPECIFIED_ERROR:
            self.identifiers.free(one)
            one.state = State.RELEASED
            one.subscriber.finished(one, _refusal_of(reason))
            self.service.has_room(self)
        elif one.state is State.SENT:
            one.state = State.RECEIVED
            if one.subscriber.accepted(one) or one.subscriber.detached:
                self.release(one)
        elif one.state is State.RELEASED:
            self.send_packet(Pubrel(packet_id))

    def completed(self, packet_id: int, now: float) -> None:
        """PUBCOMP has come."""
        one = self.identifiers.in_flight.get(packet_id)
        if packet_id == QUESTION:
            self.incoming.answered(now)
        elif one is not None and one.state is State.RELEASED:
            self.identifiers.free(one)
            one.subscriber.released(one)
            self.service.has_room(self)


def _refusal_of(reason: Reason) -> Refusal:
    name = reason.name.lower().replace("_", "-")
    return Refusal(f"mqtt:{name}", f"the client has answered with reason 0x{reason:02X}")
