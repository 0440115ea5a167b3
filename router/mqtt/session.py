"""One session of MQTT: its subscriptions, what is in flight both ways, its will.

It has ports on the core, a publisher and a subscriber for each address, and a connection while its client is there. It
decides what an outcome means to the client and what an acknowledgement means to the core. `router.mqtt.connection`
reads and writes packets, `router.mqtt.service` knows all sessions of the router.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mqtt import (
    NO_PROPERTIES,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from mqtt.topics import is_shared
from router.core.ports import Outcome
from router.mqtt.filters import Filter, Filters
from router.mqtt.lease import Lease
from router.mqtt.outgoing import Identifiers, Outgoing, State
from router.mqtt.publisher import Incoming, MqttPublisher
from router.mqtt.subscriber import MqttSubscriber
from router.names import STOLEN, SUBSCRIPTION_UNDECLARED
from router.policies import NOBODY

if TYPE_CHECKING:
    from router.core.core import Core
    from router.mqtt.connection import MqttConnection
    from router.mqtt.service import Mqtt

IN_FLIGHT: Final = 1_000
"""The most PUBLISH of QoS 1 and 2 that a client has unacknowledged; 3.1.1 has no words for less."""
MOST_QOS: Final = {"exactly-once": 2, "at-least-once": 1, "at-most-once": 0}


class _Asked:
    """A SUBSCRIBE whose SUBACK waits until every router knows the subscriptions that it needs."""

    def __init__(self, packet_id: int, reasons: list[Reason], texts: list[str], waits: set[str]) -> None:
        self.packet_id = packet_id
        self.reasons = reasons
        self.texts = texts
        self.waits = waits  # addresses


class Session:
    """One client's.

    Attributes:
        container: The client identifier, with the user's name in front (protocol 1.12).
        expiry_s: How long it lives without a connection, as granted; 0: it ends with its connection.
        connection: None while the client is away.
    """

    def __init__(self, service: Mqtt, container: str, incarnation: int, expiry_s: float, version: int) -> None:
        self.service = service
        self.core: Core = service.core
        self.container = container
        self.client_id = ""
        self.identity = NOBODY
        self.present = False  # it went on with the last CONNECT
        self.incarnation = incarnation
        self.expiry_s = expiry_s
        self.persists = expiry_s > 0
        self.version = version
        self.connection: MqttConnection | None = None
        self.filters = Filters()
        self.identifiers = Identifiers(self.persists)
        self.incoming: dict[int, Incoming] = {}  # by packet identifier
        self.publishers: dict[str, MqttPublisher] = {}
        self.subscribers: dict[str, MqttSubscriber] = {}
        self.lease: Lease | None = None
        self.ended = False
        self.will: Will | None = None
        self.will_at: float | None = None
        self.expires_at: float | None = None
        self._asked: list[_Asked] = []
        self._life = (incarnation & 0xFFFFFFFFFFFFFF).to_bytes(7, "big")
        self._count = 0

    # --- life

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
        if self.connection is not None:
            self.connection.session_ready(self)

    def lease_lost(self, lease: Lease, condition: str, description: str) -> None:
        """The session is at another router now, or over."""
        if lease is not self.lease or self.ended:
            return
        if condition == STOLEN:
            self.service.session_moved(self)
        else:
            self.service.session_refused(self, condition, description)

    def connected(self, connection: MqttConnection, will: Will | None) -> None:
        """Its client is there, after CONNACK."""
        self.will = will
        self.will_at = self.expires_at = None
        self.identifiers.send_again()
        for packet_id, one in self.identifiers.in_flight.items():
            if one.state is State.RELEASED:
                connection.send(Pubrel(packet_id))
        self.send_waiting()
        self.service.has_room(self)

    def disconnected(self, now: float, *, with_will: bool) -> None:
        """Its client has gone. The session's time begins, and that of its will."""
        self.connection = None
        self._asked.clear()
        if not with_will:
            self.will = None
        if self.will is not None:
            self.will_at = now + min(self.will.properties.will_delay_s or 0, self.expiry_s)
        self.expires_at = now + self.expiry_s
        if self.expiry_s <= 0:
            self.end(now)
            return
        self.tick(now)
        self.service.schedule(self)

    def set_expiry(self, seconds: int) -> None:
        """DISCONNECT has another expiry (3.14.2.2.2)."""
        if self.persists:
            self.expiry_s = min(float(seconds), self.service.longest_session_s)

    def next_deadline(self) -> float | None:
        times = [at for at in (self.will_at, self.expires_at) if at is not None]
        return min(times, default=None)

    def tick(self, now: float) -> None:
        """Does what is due."""
        if self.will_at is not None and now >= self.will_at:
            self._publish_will(now)
        if self.expires_at is not None and now >= self.expires_at and not self.ended:
            self.end(now)

    def end(self, now: float) -> None:
        """It is over: what it has subscribed to is removed, and what was published goes its way."""
        if self.ended:
            return
        if self.will is not None and self.connection is None:
            self._publish_will(now)
        self.ended = True
        for subscriber in list(self.subscribers.values()):
            subscriber.leave(now)
        if self.lease is not None:
            self.lease.leave(now)
        for publisher in self.publishers.values():
            for one in list(publisher.incoming.values()):
                one.packet_id = 0
                if one.done is not None:
                    publisher.settle(one)
            self.service.orphaned(publisher) if publisher.undecided else publisher.leave(now)
        self.service.forget(self)

    def _publish_will(self, now: float) -> None:
        will, self.will, self.will_at = self.will, None, None
        assert will is not None
        address = self.service.topics.address_of(will.topic)
        if address is not None and self.service.may(self.identity, "send", address):
            properties = will.properties._replace(will_delay_s=None)
            qos = min(will.qos, self._most_qos(address))
            self.publisher(address, now).publish([Publish(will.topic, will.payload, qos, properties=properties)], now)

    # --- the client publishes

    def refusal_of(self, topic: str, qos: int) -> Reason | None:
        """Why the client may not publish there; None: it may."""
        address = self.service.topics.address_of(topic)
        if address is None:
            return Reason.TOPIC_NAME_INVALID
        if not self.service.may(self.identity, "send", address):
            return Reason.NOT_AUTHORIZED
        return Reason.QOS_NOT_SUPPORTED if qos > self._most_qos(address) else None

    def publisher(self, address: str, now: float) -> MqttPublisher:
        """The port for an address, attached."""
        found = self.publishers.get(address)
        if found is None or found.detached:
            found = self.publishers[address] = MqttPublisher(self, address)
            self.core.attach_publisher(found, found.attach, now)
        return found

    def tag_of(self, packet: Publish) -> bytes:
        if packet.qos == 2 and packet.packet_id:
            return b"\x02" + self.incarnation.to_bytes(8, "big") + packet.packet_id.to_bytes(2, "big")
        self._count += 1
        return b"\x01" + self._life + self._count.to_bytes(8, "big")

    def published(self, one: Incoming, outcome: Outcome, rejected: int) -> None:
        """A PUBLISH has its outcome."""
        why = NO_PROPERTIES
        one.done = Reason.SUCCESS
        if self.version == 5 and outcome is Outcome.RELEASED:
            one.done = Reason.NO_MATCHING_SUBSCRIBERS
        elif self.version == 5 and outcome is not Outcome.ACCEPTED:
            one.done = Reason.UNSPECIFIED_ERROR
            why = Properties(reason_string=f"rejected by {rejected} subscription{'s' if rejected != 1 else ''}")
        told = one.packet_id != 0 and self.connection is not None and one.asked_on is self.connection
        if told:
            self._send((Puback if one.qos == 1 else Pubrec)(one.packet_id, one.done, why))
        if one.qos == 2 and one.packet_id and one.done < Reason.UNSPECIFIED_ERROR:
            return  # PUBREL follows
        if told or not one.packet_id:
            self.incoming.pop(one.packet_id, None)
        one.publisher.settle(one)
        if self.ended and not one.publisher.undecided:
            self.service.to_leave(one.publisher)

    def repeated(self, packet: Publish) -> bool:
        """Whether a PUBLISH is one that is not over; it is answered when it has its outcome, or now. One of QoS 1 that
        does not say that it is a repeat is none: its identifier may be in use again."""
        one = self.incoming.get(packet.packet_id)
        if one is None or one.qos != packet.qos or (packet.qos == 1 and not packet.dup):
            return False
        one.asked_on = self.connection
        if one.done is not None:
            self._send((Puback if one.qos == 1 else Pubrec)(packet.packet_id, one.done))
            if one.qos == 1 or one.done >= Reason.UNSPECIFIED_ERROR:
                del self.incoming[packet.packet_id]
        return True

    def released(self, packet_id: int) -> None:
        """PUBREL has come."""
        one = self.incoming.pop(packet_id, None)
        if one is None:
            unknown = Reason.PACKET_IDENTIFIER_NOT_FOUND if self.version == 5 else Reason.SUCCESS
            self._send(Pubcomp(packet_id, unknown))
            return
        one.publisher.settle(one)
        self._send(Pubcomp(packet_id))

    def publisher_lost(self, publisher: MqttPublisher, condition: str, description: str) -> None:
        """The core has detached it: it works elsewhere, or has expired. What it had taken is not acknowledged, so the
        client sends it again."""
        for one in publisher.incoming.values():
            self.incoming.pop(one.packet_id, None)
        publisher.incoming.clear()
        self.publishers.pop(publisher.attach.address, None)
        if self.connection is not None and condition != STOLEN:
            self.connection.close(Reason.ADMINISTRATIVE_ACTION, f"{publisher.attach.address}: {description}")

    # --- the client subscribes

    def subscribe(self, packet: Subscribe, now: float) -> None:
        """SUBACK follows when every router knows of it."""
        identifiers = packet.properties.subscription_ids
        reasons, texts, waits = [], [], set()
        for options in packet.subscriptions:
            text = options.topic_filter
            addresses = self.service.topics.addresses_of(text)
            texts.append(text)
            if is_shared(text):
                reasons.append(Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED)
                continue
            if not addresses:
                reasons.append(Reason.TOPIC_FILTER_INVALID)
                continue
            if not all(self.service.may(self.identity, "receive", address) for address in addresses):
                reasons.append(Reason.NOT_AUTHORIZED)
                continue
            options.qos = min(options.qos, *(self._most_qos(address) for address in addresses))
            reasons.append(Reason(options.qos))
            self.filters.add(Filter(options, identifiers[0] if identifiers else 0, tuple(addresses)))
            for address in addresses:
                if self._attached(address, now):
                    continue
                waits.add(address)
        asked = _Asked(packet.packet_id, reasons, texts, waits)
        self._asked.append(asked)
        self._answer(asked)

    def _attached(self, address: str, now: float) -> bool:
        """Attaches a subscription of this address unless there is one. Returns whether all routers know of it."""
        known = self.subscribers.get(address)
        if known is None:
            known = self.subscribers[address] = MqttSubscriber(self, address, self.service.epoch())
            self.core.attach_subscriber(known, known.attach, now)
        return known.answered

    def subscription_answered(self, subscriber: MqttSubscriber) -> None:
        for asked in list(self._asked):
            asked.waits.discard(subscriber.attach.address)
            self._answer(asked)

    def subscription_lost(self, subscriber: MqttSubscriber, condition: str, description: str) -> None:
        """The core has refused or detached it."""
        address = subscriber.attach.address
        if self.subscribers.get(address) is subscriber:
            del self.subscribers[address]
        if self.ended or condition == STOLEN:
            return
        if subscriber.answered:
            self.service.session_refused(self, condition, description)
            return
        reason = Reason.NOT_AUTHORIZED if condition == SUBSCRIPTION_UNDECLARED else Reason.UNSPECIFIED_ERROR
        lost = [text for text, one in self.filters.by_text.items() if address in one.addresses]
        for text in lost:
            self.filters.remove(text)
        for asked in list(self._asked):
            asked.reasons = [
                reason if text in lost else was for was, text in zip(asked.reasons, asked.texts, strict=True)
            ]
            asked.waits.discard(address)
            self._answer(asked)

    def _answer(self, asked: _Asked) -> None:
        if not asked.waits and asked in self._asked:
            self._asked.remove(asked)
            self._send(Suback(asked.packet_id, asked.reasons))

    def unsubscribe(self, packet: Unsubscribe, now: float) -> None:
        reasons = [
            Reason.SUCCESS if self.filters.remove(text) is not None else Reason.NO_SUBSCRIPTION_EXISTED
            for text in packet.topic_filters
        ]
        needed = self.filters.addresses()
        for address in [each for each in self.subscribers if each not in needed]:
            self.subscribers.pop(address).leave(now)
        self._send(Unsuback(packet.packet_id, reasons))

    # --- the client gets messages

    @property
    def room(self) -> int:
        """How many more PUBLISH of QoS 1 and 2 the client takes now."""
        connection = self.connection
        most = IN_FLIGHT if connection is None else min(IN_FLIGHT, connection.receive_maximum)
        return max(most - len(self.identifiers.in_flight), 0)

    def send(self, one: Outgoing) -> None:
        """Sends a delivery of QoS 1 or 2, or lets it wait."""
        self.identifiers.waiting.append(one)
        self.send_waiting()

    def send_waiting(self) -> None:
        """Sends what waits, in order, as far as it can be sent now."""
        waiting, connection = self.identifiers.waiting, self.connection
        while waiting and connection is not None and connection.may_publish:
            one = waiting[0]
            again = one.packet_id != 0
            if not again and not self.identifiers.take(one):
                return
            waiting.popleft()
            if not connection.publish(one, again):  # larger than the client takes [MQTT-3.1.2-25]
                self.identifiers.in_flight.pop(one.packet_id, None)
                one.subscriber.dispose(one.delivery_id, Outcome.ACCEPTED, True)

    def send_unacknowledged(self, publish: Publish) -> None:
        if self.connection is not None:
            self.connection.publish_once(publish)

    def acknowledged(self, packet_id: int, reason: Reason) -> None:
        """PUBACK has come."""
        one = self.identifiers.in_flight.pop(packet_id, None)
        if one is not None:
            outcome = Outcome.REJECTED if reason >= Reason.UNSPECIFIED_ERROR else Outcome.ACCEPTED
            one.subscriber.dispose(one.delivery_id, outcome, True)
            self.service.has_room(self)

    def received(self, packet_id: int, reason: Reason) -> None:
        """PUBREC has come."""
        one = self.identifiers.in_flight.get(packet_id)
        if one is None:
            unknown = Reason.PACKET_IDENTIFIER_NOT_FOUND if self.version == 5 else Reason.SUCCESS
            if reason < Reason.UNSPECIFIED_ERROR:
                self._send(Pubrel(packet_id, unknown))
        elif reason >= Reason.UNSPECIFIED_ERROR:
            del self.identifiers.in_flight[packet_id]
            one.subscriber.dispose(one.delivery_id, Outcome.REJECTED, True)
            self.service.has_room(self)
        elif one.state is State.SENT:
            one.state = State.RECEIVED
            one.subscriber.dispose(one.delivery_id, Outcome.ACCEPTED, False)
            if one.settled or one.subscriber.detached:
                self.settled(one)
        elif one.state is State.RELEASED:
            self._send(Pubrel(packet_id))

    def settled(self, one: Outgoing) -> None:
        """The network has settled a delivery."""
        one.settled = True
        if one.state is State.RECEIVED:
            one.state = State.RELEASED
            self._send(Pubrel(one.packet_id))

    def completed(self, packet_id: int) -> None:
        """PUBCOMP has come."""
        one = self.identifiers.in_flight.get(packet_id)
        if one is not None and one.state is State.RELEASED:
            del self.identifiers.in_flight[packet_id]
            self.service.has_room(self)

    # --- helpers

    def _most_qos(self, address: str) -> int:
        return MOST_QOS[self.service.config.address(address).guarantee]

    def _send(self, packet: Puback | Pubrec | Pubrel | Pubcomp | Suback | Unsuback) -> None:
        if self.connection is not None:
            self.connection.send(packet)
