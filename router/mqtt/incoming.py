"""What one session's client has published and what is not acknowledged to the end, by packet identifier.

It decides what an outcome means to the client, and when an identifier is free for another message. The ports on the
core are in `router.mqtt.publisher`.
"""

from __future__ import annotations

from mqtt import NO_PROPERTIES, Properties, Puback, Pubcomp, Publish, Pubrec, Pubrel, Reason
from router.core.containers import knows_publisher
from router.core.ports import Outcome
from router.mqtt.base import BaseConnection, BaseSession
from router.mqtt.conversion import Stamp
from router.mqtt.outgoing import QUESTION
from router.mqtt.publisher import MqttPublisher, name_of, name_of_will
from router.reasons import sentence


class Incoming:
    """A PUBLISH of QoS 1 or 2, or a part of one: it goes to its address, and to the address of what is retained. `head`
    is what stands for both."""

    __slots__ = (
        "asked_on", "decided", "delivery_id", "done", "head", "missing", "packet_id", "parts", "publisher", "qos",
        "released", "result", "why",
    )  # fmt: skip

    def __init__(self, publisher: MqttPublisher, delivery_id: int, packet_id: int, qos: int) -> None:
        self.publisher = publisher
        # Only this connection is told the outcome: on another one the client first repeats its PUBLISH [MQTT-4.4.0-1].
        self.asked_on = publisher.session.connection
        self.delivery_id = delivery_id
        self.packet_id = packet_id  # 0: no client waits for it
        self.qos = qos
        self.decided = False  # it has its own outcome
        self.done: Reason | None = None  # what it is answered with
        self.why = NO_PROPERTIES
        self.released = False  # PUBREL has come
        self.head = self
        self.parts: tuple[Incoming, ...] = ()  # beside the head
        self.missing = 1  # outcomes, of the head and its parts
        self.result: Reason | None = None  # of those that have one

    def add(self, part: Incoming) -> None:
        part.head = self
        self.parts += (part,)

    @property
    def is_refused(self) -> bool:
        return self.done is not None and self.done >= Reason.UNSPECIFIED_ERROR


Written = tuple[str, list[Publish], list[bytes]]
"""An address, what is published there, and the payloads of the transfers that stand for it."""


class IncomingMessages:
    """One session's."""

    def __init__(self, session: BaseSession) -> None:
        self.session = session
        self.by_id: dict[int, Incoming] = {}
        self.publishers: dict[str, MqttPublisher] = {}
        # Another router may have taken what the client has not released, so a PUBREL that is unknown here settles it.
        self.may_be_elsewhere = False
        self._releasing: dict[int, set[str]] = {}  # such ones -> addresses whose completion is awaited
        self._asked: list[MqttPublisher] = []  # whom the open question is for
        self._asked_on: BaseConnection | None = None  # which has it
        self._asked_at = 0.0
        self._life = (session.incarnation & 0xFFFFFFFFFFFFFF).to_bytes(7, "big")
        self._count = 0

    def publisher(self, address: str, now: float) -> MqttPublisher:
        """The port for an address, attached."""
        found = self.publishers.get(address)
        if found is None or found.detached:
            found = self.publishers[address] = MqttPublisher(self, address)
            self.session.core.attach_publisher(found, found.attach, now)
        return found

    def publish(self, address: str, packets: list[Publish], now: float) -> None:
        """Sends application messages of one address, all of QoS 0 or none, to it, and to the address of what is
        retained."""
        self.publish_written(self.written(address, packets), now)

    def written(self, address: str, packets: list[Publish]) -> list[Written]:
        """The messages that stand for them, by address: before anything of the core is changed."""
        service = self.session.service
        now_ms, write, retained = service.time_ms(), service.messages.written, service.topics.retained
        found: list[Written] = []
        stamps: dict[int, Stamp] = {}  # of packets by number
        if retained:
            stamps = {i: service.stamp() for i, each in enumerate(packets) if each.retain or address == retained}
        if address != retained:
            found.append((address, packets, write(packets, address, self.session.filters.named, now_ms, stamps)))
        if stamps:
            kept = [packets[i] for i in stamps]
            of_kept = dict(enumerate(stamps.values()))
            found.append((retained, kept, write(kept, retained, self.session.filters.named, now_ms, of_kept)))
        return found

    def publish_written(self, written: list[Written], now: float) -> None:
        for address, packets, payloads in written:
            self.publisher(address, now).publish(packets, payloads, now)

    def publish_elsewhere(self, written: list[Written], now: float) -> None:
        """Sends what the session has left to this router, while the session itself goes on at another one."""
        service = self.session.service
        name = name_of_will(self.session.incarnation, service.epoch())
        for address, packets, payloads in written:
            publisher = MqttPublisher(self, address, name)
            self.session.core.attach_publisher(publisher, publisher.attach, now)
            publisher.publish(packets, payloads, now)
            service.orphaned(publisher)

    def enter(self, publisher: MqttPublisher, delivery_id: int, packet: Publish) -> Incoming:
        one = Incoming(publisher, delivery_id, packet.packet_id, packet.qos)
        if not packet.packet_id:
            return one
        if publisher.retains:
            head = self.by_id.get(packet.packet_id)
            if head is not None:  # else the core has refused the head meanwhile
                head.add(one)
            return one
        one.missing += packet.retain and bool(self.session.service.topics.retained)
        self.by_id[packet.packet_id] = one
        return one

    def tag_of(self, packet: Publish) -> bytes:
        if packet.qos == 2 and packet.packet_id and self.session.persists:
            return self._tag(packet.packet_id)
        self._count += 1
        return b"\x01" + self._life + self._count.to_bytes(8, "big")

    def _tag(self, packet_id: int) -> bytes:
        return b"\x02" + self.session.incarnation.to_bytes(8, "big") + packet_id.to_bytes(2, "big")

    def published(self, one: Incoming, outcome: Outcome, rejected: int, why: bytes) -> None:
        """A PUBLISH has its outcome."""
        session = self.session
        reason, head = Reason.SUCCESS, one.head
        if session.version == 5 and outcome is Outcome.RELEASED:
            reason = Reason.NO_MATCHING_SUBSCRIBERS
        elif session.version == 5 and outcome is not Outcome.ACCEPTED:
            reason = Reason.UNSPECIFIED_ERROR
            head.why = Properties(reason_string=session.service.border.ask(None, sentence, rejected, why))
        if head.result is None or reason >= Reason.UNSPECIFIED_ERROR or head.result is Reason.NO_MATCHING_SUBSCRIBERS:
            head.result = reason
        one.decided = True
        head.missing -= 1
        if head.missing:
            return
        head.done = head.result
        if head.qos == 2 and head.packet_id and not head.is_refused:
            self._tell(head)
            return  # PUBREL follows
        self._settle(head)
        if not self._is_completing(head) and (self._tell(head) or not head.packet_id):
            self.by_id.pop(head.packet_id, None)
        if session.ended:
            for each in (head, *head.parts):
                if not each.publisher.undecided:
                    session.service.to_leave(each.publisher)

    def _settle(self, head: Incoming) -> None:
        for each in (head, *head.parts):
            if each.delivery_id in each.publisher.incoming:
                each.publisher.settle(each)

    def _is_completing(self, head: Incoming) -> bool:
        """Whether its identifier may not come again yet."""
        if not head.parts:
            return head.delivery_id in head.publisher.completing
        return any(each.delivery_id in each.publisher.completing for each in (head, *head.parts))

    def _tell(self, one: Incoming) -> bool:
        """Answers the PUBLISH, if its client is there and has asked."""
        connection = self.session.connection
        if one.packet_id == 0 or connection is None or one.asked_on is not connection:
            return False
        assert one.done is not None
        kind = Puback if one.qos == 1 else Pubrec
        if one.done and self.session.version == 5:  # 3.1.1 has no word for it, and may go on with the session
            connection.send(kind(one.packet_id, one.done, one.why))
        else:
            connection.acknowledge(kind, one.packet_id)
        return True

    def repeated(self, packet: Publish) -> bool:
        """Whether a PUBLISH is one that is not over; it is answered when it has its outcome, or now. One of QoS 1 that
        does not say that it is a repeat is none: its identifier may be in use again."""
        one = self.by_id.get(packet.packet_id)
        if one is None or one.qos != packet.qos or (packet.qos == 1 and not packet.dup):
            return False
        one.asked_on = self.session.connection
        if one.done is not None and not self._is_completing(one):
            self._tell(one)
            if one.qos == 1 or one.is_refused:
                del self.by_id[packet.packet_id]
        return True

    def released(self, packet_id: int, now: float) -> None:
        """PUBREL has come. PUBCOMP follows when nobody can take the next message with this identifier for this one."""
        one = self.by_id.get(packet_id)
        if one is None:
            self._release_unknown(packet_id, now)
        elif not one.released:
            one.released = True
            self._settle(one)
            self.complete(one)

    def complete(self, one: Incoming) -> None:
        """Nobody holds it. When that is so of all its parts, its identifier is free."""
        one = one.head
        if self._is_completing(one):
            return
        if one.released:
            self.by_id.pop(one.packet_id, None)
            if self.session.connection is not None:
                self.session.connection.acknowledge(Pubcomp, one.packet_id)
        elif self._tell(one):
            self.by_id.pop(one.packet_id, None)

    def _release_unknown(self, packet_id: int, now: float) -> None:
        session = self.session
        if packet_id in self._releasing:
            return
        name = name_of(session.incarnation)
        known = [
            address
            for address in (session.service.topics.addresses if self.may_be_elsewhere else ())
            if knows_publisher(session.core, session.container, name, address, True)
        ]
        if not known:
            session.send_packet(Pubcomp(packet_id, session.unknown))
            return
        self._releasing[packet_id] = set(known)
        for address in known:
            session.core.publisher_settled_tag(self.publisher(address, now), self._tag(packet_id), now)

    def tag_complete(self, tag: bytes, address: str) -> None:
        packet_id = int.from_bytes(tag[-2:], "big")
        missing = self._releasing.get(packet_id, set())
        missing.discard(address)
        if not missing and self._releasing.pop(packet_id, None) is not None:
            self.session.send_packet(Pubcomp(packet_id))

    # --- whether the client is there

    def ask(self) -> None:
        """The core asks publishers a question: a PUBREL that the client answers (protocol 5.7.8). One is open."""
        connection = self.session.connection
        asked = [each for each in self.publishers.values() if each.asked]
        if connection is not None and self._asked_on is not connection and asked:
            self._asked, self._asked_on, self._asked_at = asked, connection, self.session.service.now
            connection.send(Pubrel(QUESTION, self.session.unknown))

    def connected(self) -> None:
        """CONNACK has been sent. A question that was asked before it has not been."""
        self._asked_on = None
        self.ask()

    def answered(self, now: float) -> None:
        """The client has answered."""
        asked, self._asked, self._asked_on = self._asked, [], None
        for each in asked:
            each.answered(now)
        self.ask()

    def heard(self, now: float) -> None:
        """The client has sent something. That is an answer, too, if it cannot have waited for so long."""
        if self._asked_on is not None and now - self._asked_at > self.session.service.config.proof_after_s:
            self.answered(now)

    # --- the end

    def lost(self, publisher: MqttPublisher) -> None:
        """The core has detached it. What it had taken is not acknowledged, so the client sends it again."""
        for one in [*publisher.incoming.values(), *publisher.completing.values()]:
            self.by_id.pop(one.head.packet_id, None)
        publisher.incoming.clear()
        publisher.completing.clear()
        self._releasing.clear()
        self.may_be_elsewhere = True
        self.publishers.pop(publisher.attach.address, None)

    def leave(self, now: float) -> None:
        """The session goes on elsewhere, and what has no outcome is published there again."""
        for publisher in self.publishers.values():
            publisher.leave(now, closed=False)

    def end(self, now: float) -> None:
        """The session is over. What was published goes its way."""
        for publisher in list(self.publishers.values()):
            for one in list(publisher.incoming.values()):
                one.packet_id = 0
                if one.decided:
                    publisher.settle(one)
            if publisher.undecided:
                self.session.service.orphaned(publisher)
            else:
                publisher.leave(now)
