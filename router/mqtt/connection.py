"""One client's MQTT connection in the router: packets to its session, and back.

Bytes and time come from the owner of the transport (`onceway.serve.server`). The handshake has three steps that may
take time: who the client is, whether the router takes it, and the session's lease. Read `router.mqtt.session` next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from amqp10.sasl import Failure, Step, Success
from amqp10.settings import BEFORE_LOGIN
from mqtt import (
    NO_PROPERTIES,
    Acknowledgement,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    ServerConnection,
    Subscribe,
    Unsubscribe,
    is_servers,
    name_fault,
)
from mqtt.connection import CLOSED, CONNECTING, MOST, OPEN
from mqtt.decoder import REASONS_OF
from mqtt.errors import RETURN_CODES
from mqtt.kinds import CONNACK
from router.border import REFUSED
from router.core.holding import Buffered
from router.mqtt.base import BaseConnection, BaseMqtt
from router.policies import ANONYMOUS, Identity

if TYPE_CHECKING:
    from router.mqtt.outgoing import Outgoing
    from router.mqtt.session import Session

OUTPUT_LIMIT: Final = 1 << 20  # bytes that wait to be fetched, above which nothing more is sent to subscribers
LONGEST_ALIASED: Final = 1_024  # characters of a topic name for which we use an alias
ALIASES: Final = 64  # topic aliases that a client may use, and that we use

Authenticate = Callable[[str | None, bytes | None], Step]
"""Says who a client is, by what its CONNECT has; Pending: `authenticated` is called later."""


class MqttConnection(BaseConnection):
    """Bytes and time in, bytes out. When `closed`, write what `data_to_send` has left and close the transport."""

    __slots__ = (
        "_aliases", "_alias_maximum", "_authenticate", "_early", "_engine", "_output", "_wants_output", "address",
        "buffered", "identity", "limits", "named", "output_paused", "secure", "service",
        "session",
    )  # fmt: skip

    def __init__(self, service: BaseMqtt, now: float, address: str, secure: bool, authenticate: Authenticate) -> None:
        super().__init__()
        self.service = service
        self.address = address
        self.secure = secure
        self.identity = Identity()
        self.limits = service.config.limits
        self.named: tuple[str | None, bytes] | None = None
        self.session: Session | None = None
        self.output_paused = False
        self.buffered = Buffered()
        self._authenticate = authenticate
        self._aliases: dict[str, int] = {}  # that we use
        self._early: list[Packet] = []  # sent before CONNACK, and not handled yet
        self._alias_maximum = 0
        self._output = 0  # bytes that wait to be fetched, about
        self._wants_output = False  # something waits for it to be fetched
        self._engine = ServerConnection(
            now,
            max_packet_size=service.max_packet_size,
            max_connect_size=BEFORE_LOGIN,
            receive_maximum=service.receive_maximum,
            topic_alias_maximum=ALIASES,
            connect_timeout_s=self.limits.handshake_timeout_s,
        )

    # --- for the owner of the transport

    def receive_data(self, data: bytes, now: float) -> None:
        """Call it, and `authenticated`, through `Border.input`."""
        self.service.host.enter(now)
        if self._early:
            self._read_early(None, now)
        self._handle(self._engine.receive_data(data, now), now)
        incomplete = self._engine.reader.buffered
        buffers = self.service.host.buffers
        if incomplete != self.buffered.incomplete_bytes and not buffers.may_hold_incomplete(self, incomplete, now):
            self.drop_incomplete(now)

    def drop_incomplete(self, now: float) -> None:
        """The router holds too much, and this connection has the most, or has sent the last of it."""
        self.close(Reason.QUOTA_EXCEEDED, "limit memory_limit: this router holds too much of incomplete packets")

    def end_on_error(self, text: str) -> None:
        """Its input has met an error that nobody expects, or is refused. The session goes on with the next
        connection."""
        if self.closed:
            self._ended(self.service.now, with_will=True)
        elif self._engine.state == OPEN or self._engine.connect is not None:
            self.close(Reason.UNSPECIFIED_ERROR, text)
        else:
            self.receive_eof(self.service.now)

    def said(self) -> dict[str, Any]:
        session = self.session
        container = session.container if session is not None else None
        return {"client": self.address, "user": self.user, "container": container}

    def receive_eof(self, now: float) -> None:
        self.service.host.enter(now)
        if not self.closed:
            self._engine.close(Reason.UNSPECIFIED_ERROR)
            self._engine.data_to_send()
        self._ended(now, with_will=True)

    def handle_timer(self, now: float) -> None:
        self.service.host.enter(now)
        self._engine.check_time(now)
        self._handle([], now)

    def next_deadline(self) -> float | None:
        return self._engine.deadline()

    def buffers_to_send(self) -> Sequence[bytes]:
        data = self.data_to_send()
        return (data,) if data else ()

    def data_to_send(self) -> bytes:
        data = self._engine.data_to_send()
        self._output = 0
        if self._wants_output and not self.output_paused:
            self._wants_output = False
            if self.session is not None:
                self.service.has_room(self.session)
        return data

    def pause_output(self) -> None:
        """The transport's buffer is above its high-water mark."""
        self.output_paused = True

    def output_waits(self, size: int) -> None:
        """The transport's buffer holds this many bytes."""
        if self.output_paused:
            self.service.host.buffers.count_unread(self, size, self.service.now)

    def resume_output(self) -> None:
        self.output_paused = False
        self.service.host.buffers.count_unread(self, 0, self.service.now)
        if self._wants_output and self.session is not None:
            self._wants_output = False
            self.service.has_room(self.session)

    @property
    def reads(self) -> bool:
        """False while the client leaves too much output unread: nothing is read from it until that drains. False, too,
        from CONNECT to CONNACK as soon as it says more, which is to wait in its own buffers, and while it is looked at
        who it is. One that waits for its session is read: else nobody would notice that it has gone, its connection
        would count on, and its CONNECT would take the session from the router where it is now."""
        if self.buffered.unread_bytes > self.limits.unread_output:
            return False
        return self._engine.state != CONNECTING or (self.user is not None and not self._engine.is_early)

    @property
    def more(self) -> bool:
        """What it has sent is read in parts: give `receive_data` b"" to go on."""
        return self._engine.more

    @property
    def is_busy(self) -> bool:
        """Whether what it has sent is looked at in parts: what it sends meanwhile is to wait."""
        return self.session is not None and self.session.is_busy

    @property
    def needed(self) -> int:
        """Octets of a packet that are still to come."""
        return self._engine.needed

    @property
    def closed(self) -> bool:
        return self._engine.state == CLOSED

    def reads_too_slowly(self) -> None:
        """Of its user, who has the most unread output, it has most, and is dropped for that."""
        text = "client {container} at {client} disconnected: {unread_bytes} bytes of output unread; {user} has most"
        self.service.log.warning("client_too_slow", text, unread_bytes=self.buffered.unread_bytes, **self.said())

    def delayed(self, since: float, now: float) -> None:
        """What is read next may have waited since then. A CONNECT that has may be older than the client's connection to
        another router, whose session it would take: such a client has to connect again."""
        if self.session is None and now - since > self.service.config.proof_after_s:
            self.close(Reason.SERVER_BUSY, "CONNECT has waited for too long")

    def heard(self, now: float) -> None:
        """Input waits to be read, so the client is not silent."""
        self._engine.heard(now)

    # --- the handshake

    def authenticated(self, step: Step, now: float) -> None:
        """The result of a step that was pending."""
        self.service.host.enter(now)
        if self._engine.state == CONNECTING:
            self._identified(step, now)
        self.service.dirty(self)

    def _connecting(self, connect: Connect, now: float) -> None:
        properties = connect.properties
        self.is_bridge = connect.is_bridge
        if properties.authentication_method is not None:
            self._refuse(Reason.BAD_AUTHENTICATION_METHOD, "only user name and password are taken", now)
        elif self.service.draining:
            self._refuse(Reason.SERVER_UNAVAILABLE, "this router is being drained", now)
        else:
            self._identified(self._authenticate(connect.username, connect.password), now)

    def _identified(self, step: Step, now: float) -> None:
        connect = self._engine.connect
        assert connect is not None
        if isinstance(step, Failure):
            self._refuse(Reason.BAD_USER_NAME_OR_PASSWORD, step.reason, now)
            return
        if not isinstance(step, Success):
            return  # pending
        user = step.identity or ANONYMOUS
        self.limits = self.service.host.offers.limits_of(user)
        suspected = self.service.border.suspects.refuses(None, user, self.address, now)
        reason = REFUSED if suspected else self.service.host.admission.admit(self, user)
        if reason is not None:
            self._refuse(Reason.QUOTA_EXCEEDED, reason, now)
            return
        self.user = user
        self.identity = Identity(user, step.groups)
        refusal = self._refusal_of(connect)
        if refusal is not None:
            self._refuse(*refusal, now)
            return
        self._open_session(connect, now)

    def open_session(self, connect: Connect, now: float) -> None:
        """What others know of sessions has become known here."""
        self.service.border.input(self, self._open_session, connect, now)

    def _open_session(self, connect: Connect, now: float) -> None:
        self.service.open_session(self, connect, now)

    def _refusal_of(self, connect: Connect) -> tuple[Reason, str] | None:
        """Why the router does not take this CONNECT; None: it does."""
        if not connect.client_id and not connect.clean_start and connect.version == 4:  # 3.1.1: [MQTT-3.1.3-8]
            return Reason.CLIENT_IDENTIFIER_NOT_VALID, "an empty client identifier needs clean session"
        if len(connect.client_id.encode()) > self.service.longest_name:
            return Reason.CLIENT_IDENTIFIER_NOT_VALID, "the client identifier is too long"
        will = connect.will
        if will is None:
            return None
        if will.retain and connect.version == 5 and not self.service.topics.retained:
            return Reason.RETAIN_NOT_SUPPORTED, "the will is to be retained, and there is no store"
        if is_servers(will.topic):
            return None
        if name_fault(will.topic) is not None or self.service.topics.address_of(will.topic) is None:
            return Reason.TOPIC_NAME_INVALID, f"the will's topic {will.topic!r:.60} has no address here"
        return None

    def session_ready(self, session: Session) -> None:
        """The session is here: CONNACK, and what the client has sent meanwhile."""
        connect = self._engine.connect
        if self._engine.state != CONNECTING or connect is None:
            return
        present = session.present
        asked = connect.properties
        granted: dict[str, Any] = {}
        if connect.version == 5:
            if not self.service.topics.retained:
                granted["retain_available"] = 0
            if session.absence.expiry_s != (asked.session_expiry_s or 0):
                granted["session_expiry_s"] = int(session.absence.expiry_s)
            if not connect.client_id:
                granted["assigned_client_id"] = session.client_id
            self._alias_maximum = min(asked.topic_alias_maximum or 0, ALIASES)
        early = self._engine.accept(self.service.now, present, Properties(**granted))
        self.service.log.info("client_connected", "client {container} connected from {client}", **self.said())
        session.connected(self, connect.will)
        self.service.dirty(self)
        if early:  # this is within the core, which input does not reach so
            self._early = early
            self.service.turn.early[self] = None

    def handle_early(self, now: float) -> None:
        """What the client has sent before CONNACK."""
        self.service.border.input(self, self._read_early, None, now)

    def _read_early(self, _: None, now: float) -> None:
        early, self._early = self._early, []
        self._handle(early, now)

    def _refuse(self, reason: Reason, why: str, now: float) -> None:
        if self._engine.state != CONNECTING or self._engine.connect is None:
            return
        text = "client at {client} refused: {description}"
        self.service.log.warning("client_refused", text, condition=reason.name, description=why, **self.said())
        properties = Properties(reason_string=why[:200])
        if self._engine.connect.version == 4:
            properties = NO_PROPERTIES
            reason = reason if reason in RETURN_CODES else _OLD.get(reason, Reason.SERVER_UNAVAILABLE)
        elif reason not in REASONS_OF[CONNACK]:
            reason = Reason.SERVER_UNAVAILABLE
        self._engine.refuse(reason, properties)
        self._ended(now, with_will=False)

    # --- for the session

    @property
    def full(self) -> bool:
        return self.output_paused or self._output > OUTPUT_LIMIT

    @property
    def may_publish(self) -> bool:
        return self._engine.may_publish

    @property
    def receive_maximum(self) -> int:
        connect = self._engine.connect
        return MOST if connect is None else connect.properties.receive_maximum or MOST

    def wait_for_output(self) -> None:
        """The session has more to send when output has been fetched."""
        self._wants_output = True

    def send(self, packet: Packet) -> None:
        if self._engine.state == OPEN:
            self._engine.send(packet)
            self.service.dirty(self)

    def acknowledge(self, kind: type[Acknowledgement], packet_id: int) -> None:
        """Sends an answer to a PUBLISH that says success and nothing else."""
        if self._engine.state == OPEN:
            self._engine.acknowledge(kind, packet_id)
            self.service.dirty(self)

    def publish(self, one: Outgoing, again: bool) -> bool:
        """Sends a delivery of QoS 1 or 2; False: the client takes none so large."""
        given = one.publish
        assert given is not None
        topic, properties = self._aliased(given)
        return self._publish(Publish(topic, given.payload, one.qos, given.retain, again, one.packet_id, properties))

    def publish_once(self, publish: Publish) -> None:
        """Sends a message with QoS 0."""
        if self._engine.state == OPEN:
            topic, properties = self._aliased(publish)
            self._publish(Publish(topic, publish.payload, 0, publish.retain, properties=properties))

    def _publish(self, packet: Publish) -> bool:
        sent = self._engine.send(packet)
        self._output += len(packet.payload) + 64
        self.service.dirty(self)
        return sent

    def _aliased(self, publish: Publish) -> tuple[str, Properties]:
        """The topic with the alias that stands for it, or the alias alone where the client knows it (3.3.2.3.4)."""
        topic, properties = publish.topic, publish.properties
        if not self._alias_maximum:  # 3.1.1 has neither, and the session may have been one of MQTT 5 until now
            session = self.session
            return topic, properties if session is None or session.version == 5 else NO_PROPERTIES
        alias = self._aliases.get(topic)
        if alias is not None:
            return "", properties._replace(topic_alias=alias)
        if len(self._aliases) < self._alias_maximum and len(topic) <= LONGEST_ALIASED:
            alias = self._aliases[topic] = len(self._aliases) + 1
            properties = properties._replace(topic_alias=alias)
        return topic, properties

    def close(self, reason: Reason, why: str = "") -> None:
        """Ends the connection, and tells a client of version 5 why; its will is published."""
        if self.closed:
            return
        if self._engine.state == CONNECTING:
            self._refuse(reason, why, self.service.now)
            return
        if why:
            text = "client {container} at {client} disconnected: {description}"
            who = self.said()
            self.service.log.warning("client_disconnected", text, condition=reason.name, description=why, **who)
        self._engine.close(reason, Properties(reason_string=why[:200]) if why else NO_PROPERTIES)
        self._ended(self.service.now, with_will=True)

    # --- packets

    def _handle(self, packets: list[Packet], now: float) -> None:
        publishing: list[Publish] = []  # of one address, all of QoS 0 or none
        address = ""
        if packets and self.session is not None:
            self.session.incoming.heard(now)
        core = self.service.core
        for packet in packets:
            core.entered = None
            if type(packet) is Publish:
                to = self._address_for(packet)
                if to is None:
                    continue
                if publishing and (to != address or (packet.qos == 0) != (publishing[0].qos == 0)):
                    self._publish_all(address, publishing, now)
                    publishing = []
                address = to
                publishing.append(packet)
                continue
            if publishing:
                self._publish_all(address, publishing, now)
                publishing = []
                core.entered = None
            self._handle_one(packet, now)
        core.entered = None
        if publishing:
            self._publish_all(address, publishing, now)
        if self.closed:
            error = self._engine.error
            if error is not None and self.session is not None:
                text = "client {container} at {client} disconnected: {description}"
                who = self.said()
                self.service.log.warning(
                    "client_disconnected", text, condition=error.reason.name, description=error.description, **who
                )
                if error.reason is Reason.KEEP_ALIVE_TIMEOUT:
                    self.service.host.admission.count_silence()
            self._ended(now, with_will=True)
        self.service.dirty(self)

    def _publish_all(self, address: str, packets: list[Publish], now: float) -> None:
        if self.session is None:
            return
        if self.service.is_far_over_memory_limit:
            self.close(Reason.QUOTA_EXCEEDED, "limit memory_limit: this router holds twice as much payload")
            return
        self.session.incoming.publish(address, packets, now)

    def _address_for(self, packet: Publish) -> str | None:
        """The address that a PUBLISH goes to; None: it goes nowhere, and was answered where it has to be."""
        session = self.session
        if session is None:  # an earlier packet has ended the connection
            return None
        if packet.retain and not self.service.topics.retained:
            if session.version == 5:  # [MQTT-3.2.2-14]: CONNACK has said so
                self.close(Reason.RETAIN_NOT_SUPPORTED, "retained messages need a store, and there is none")
                return None
            packet.retain = False
        if packet.qos and session.incoming.repeated(packet):
            return None
        topic = packet.topic
        address = self.service.topics.address_of(topic)
        if address is None:
            reason: Reason | None = Reason.TOPIC_NAME_INVALID
        elif packet.retain and packet.payload and not self.service.has_room_to_retain(topic):
            reason = Reason.QUOTA_EXCEEDED
        else:
            reason = session.rights.refusal_of(address, packet.qos)
        if reason is None:
            return address
        if reason is Reason.QOS_NOT_SUPPORTED:  # PUBACK and PUBREC do not have it
            self.close(reason, f"topic {topic!r:.60} does not give QoS {packet.qos}")
        elif packet.qos and session.version == 4 and is_servers(topic):  # [MQTT-3.3.5-2]: acknowledge or close
            self.acknowledge(Puback if packet.qos == 1 else Pubrec, packet.packet_id)
        elif packet.qos and session.version == 4:
            self.close(reason, f"PUBLISH to {topic!r:.60} is not taken")
        elif packet.qos:
            why = Properties(reason_string=f"topic {topic!r:.60}")
            self.send((Puback if packet.qos == 1 else Pubrec)(packet.packet_id, reason, why))
        self.service.count_refusal(reason)
        return None

    def _handle_one(self, packet: Packet, now: float) -> None:
        session = self.session
        if session is None:
            if isinstance(packet, Connect):
                self._connecting(packet, now)
            return
        if isinstance(packet, Pubrec):  # the most frequent first
            session.received(packet.packet_id, packet.reason)
        elif isinstance(packet, Pubcomp):
            session.completed(packet.packet_id, now)
        elif isinstance(packet, Pubrel):
            session.incoming.released(packet.packet_id, now)
        elif isinstance(packet, Puback):
            session.acknowledged(packet.packet_id, packet.reason)
        elif isinstance(packet, Subscribe | Unsubscribe):
            session.change_filters(packet)
        elif isinstance(packet, Pingreq):
            self.send(Pingresp())
        elif isinstance(packet, Disconnect):
            self._disconnecting(packet, session, now)

    def _disconnecting(self, packet: Disconnect, session: Session, now: float) -> None:
        if packet.properties.session_expiry_s is not None:
            session.set_expiry(packet.properties.session_expiry_s)
        self.service.log.info("client_closed", "client {container} closed its connection", **self.said())
        self._ended(now, with_will=packet.reason != Reason.SUCCESS)

    def _ended(self, now: float, *, with_will: bool) -> None:
        self.service.dirty(self)
        session, self.session = self.session, None
        self.service.connection_ended(self)
        if session is not None and session.connection is self:
            session.disconnected(now, with_will=with_will)


_OLD: Final = {
    Reason.BAD_AUTHENTICATION_METHOD: Reason.NOT_AUTHORIZED,
    Reason.QUOTA_EXCEEDED: Reason.SERVER_UNAVAILABLE,
    Reason.TOPIC_NAME_INVALID: Reason.NOT_AUTHORIZED,
}
"""What 3.1.1 has in place of a reason; everything else is "server unavailable"."""
