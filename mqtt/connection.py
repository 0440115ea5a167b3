"""A server's end of one connection (MQTT 5, chapter 4): handshake, keep alive, flow control, topic aliases, the end.

It keeps what dies with the connection. What outlives it, the session's subscriptions and messages, belongs to its
owner, as does every decision: whether CONNECT is accepted, what a PUBLISH means, when it is acknowledged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from mqtt.decoder import DISCONNECT_REASONS, REASONS_OF
from mqtt.encoder import FIRST, SHORT, encode
from mqtt.errors import LocalProtocolError, Reason, RemoteProtocolError, UnknownVersion, violation
from mqtt.kinds import CONNACK
from mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from mqtt.properties import NO_PROPERTIES, Properties
from mqtt.reader import LARGEST, PacketReader

WAITING, CONNECTING, OPEN, CLOSED = range(4)  # for CONNECT; for accept or refuse; between CONNACK and the end; ended
MOST: Final = 65_535  # packets in flight, where nobody says less (3.1.2.11.3)
EARLY: Final = 100  # packets that a client may send before CONNACK
MOST_ALIASED: Final = 1 << 16  # characters of the topic names for which the aliases of a client stand
UNASKED: Final = 1_000  # PUBREL without PUBLISH whose PUBCOMP is waited for
_AWAITS_PUBACK, _AWAITS_PUBREC, _AWAITS_PUBCOMP = range(3)
_AWAITED: Final[dict[type, int]] = {Puback: _AWAITS_PUBACK, Pubrec: _AWAITS_PUBREC, Pubcomp: _AWAITS_PUBCOMP}


class ServerConnection:
    """One client's connection.

    Attributes:
        state: WAITING, CONNECTING, OPEN or CLOSED. When it is CLOSED, send what is left and close the transport.
        connect: What the client asked for, or None; once it is accepted, without credentials, will and user properties.
        error: Why this end closed the connection, or None.
        reader: Has the beginning of a packet.
    """

    __slots__ = (
        "state", "connect", "error", "reader", "_out", "_early", "_receive_maximum", "_alias_maximum",
        "_max_packet_size", "_aliases", "_alias_characters", "_incoming", "_outgoing", "_remote_receive_maximum",
        "_remote_max_packet_size", "_unasked", "_keep_alive_s", "_heard", "_connect_timeout_s",
    )  # fmt: skip

    def __init__(
        self,
        now: float,
        *,
        max_packet_size: int = LARGEST,
        max_connect_size: int = LARGEST,
        receive_maximum: int = MOST,
        topic_alias_maximum: int = 0,
        connect_timeout_s: float = 10.0,
    ) -> None:
        """A transport connection has come.

        Args:
            now: Seconds; only differences matter.
            max_packet_size: Octets of the largest packet that the client may send.
            max_connect_size: The same of its CONNECT.
            receive_maximum: PUBLISH of QoS 1 and 2 that the client of version 5 may have unacknowledged.
            topic_alias_maximum: The greatest topic alias that the client may use.
            connect_timeout_s: How long CONNECT may take.
        """
        self.state = WAITING
        self.connect: Connect | None = None
        self.error: RemoteProtocolError | None = None
        self.reader = PacketReader(max_packet_size=max_packet_size, max_connect_size=max_connect_size)
        self._out: list[bytes] = []
        self._early: list[Packet] = []
        self._receive_maximum = receive_maximum
        self._alias_maximum = topic_alias_maximum
        self._max_packet_size = max_packet_size
        self._aliases: dict[int, str] = {}
        self._alias_characters = 0  # of the topic names that they stand for
        self._incoming: dict[int, bool] = {}  # identifiers of the client's PUBLISH that are not acknowledged to the end
        self._outgoing: dict[int, int] = {}  # identifier of ours -> what is awaited
        self._unasked: dict[int, None] = {}  # identifiers of PUBREL that answer a PUBREC of nothing, or ask
        self._remote_receive_maximum = MOST
        self._remote_max_packet_size = LARGEST
        self._keep_alive_s = 0
        self._heard = now
        self._connect_timeout_s = connect_timeout_s

    def receive_data(self, data: bytes, now: float) -> list[Packet]:
        """What the client says that concerns the owner, topic aliases replaced by topic names.

        The first packet is CONNECT; later ones come from `accept` or after it. A client that breaks a rule is told so
        where its version allows that, and `state` is CLOSED.
        """
        if self.state == CLOSED:
            return []
        fault: RemoteProtocolError | None = None
        try:
            packets = self.reader.receive_data(data)
        except RemoteProtocolError as error:
            fault, packets = error, self.reader.before_fault
        if packets:
            self._heard = now
        events: list[Packet] = []
        if packets and self.state == WAITING:
            connect = packets.pop(0)
            assert isinstance(connect, Connect)  # the reader lets nothing else come first
            self._begin(connect)
            events.append(connect)
        if self.state == CONNECTING:
            self._early += packets
            if len(self._early) > EARLY and fault is None:
                fault = RemoteProtocolError(Reason.QUOTA_EXCEEDED, "too many packets before CONNACK")
        else:
            events += self._checked(packets)
        if fault is not None:
            self._fail(fault)
        return events

    @property
    def more(self) -> bool:
        """A packet is read in parts: give `receive_data` b"" to go on."""
        return self.reader.more

    @property
    def needed(self) -> int:
        """Octets of a packet that are still to come (`PacketReader.needed`)."""
        return self.reader.needed

    @property
    def is_early(self) -> bool:
        """The client has sent something behind its CONNECT, which is held until it is accepted."""
        return bool(self._early)

    def accept(self, now: float, session_present: bool, properties: Properties = NO_PROPERTIES) -> list[Packet]:
        """Send CONNACK, with this connection's limits added; what the client said meanwhile.

        Args:
            now: From when on it may be silent for as long as its keep alive says: it has waited for this.
            session_present: Whether the session goes on.
            properties: Of CONNACK, for version 5.

        Raises:
            LocalProtocolError: No CONNECT waits for an answer.
        """
        connect = self._waiting()
        if connect.version == 5:
            if self._receive_maximum < MOST:
                properties = properties._replace(receive_maximum=self._receive_maximum)
            if self._alias_maximum:
                properties = properties._replace(topic_alias_maximum=self._alias_maximum)
            if self._max_packet_size < LARGEST:
                properties = properties._replace(maximum_packet_size=self._max_packet_size)
        if properties.server_keep_alive_s is not None:  # [MQTT-3.1.2-21]
            self._keep_alive_s = properties.server_keep_alive_s
        self.state = OPEN
        self._heard = now
        # What only a login or a session needs is not kept for as long as the connection.
        kept = connect.properties._replace(user_properties=(), authentication_data=None)
        self.connect = replace(connect, username=None, password=None, will=None, properties=kept)
        self._out.append(encode(Connack(session_present, Reason.SUCCESS, properties), connect.version))
        early, self._early = self._early, []
        return self._checked(early)

    def refuse(self, reason: Reason, properties: Properties = NO_PROPERTIES) -> None:
        """Send CONNACK with a reason from 0x80, and close: nothing else that the client said counts [MQTT-3.1.4-6].

        Raises:
            LocalProtocolError: No CONNECT waits for an answer, or its version has no word for the reason.
        """
        version = self._waiting().version
        if reason < Reason.UNSPECIFIED_ERROR:
            raise LocalProtocolError(f"{reason.name.lower()} is no refusal")
        self._out.append(encode(Connack(False, reason, properties), version))
        self._end()

    def send(self, packet: Packet) -> bool:
        """Send a packet; False where the client takes none so large, and nothing is sent [MQTT-3.1.2-24].

        An answer loses its reason string and user properties where the client wants none, or no packet so large.

        Raises:
            LocalProtocolError: The packet is not the server's to send now.
        """
        if self.state != OPEN or self.connect is None:
            raise LocalProtocolError("the connection is not open")
        version = self.connect.version
        if type(packet) is Publish:
            octets = encode(packet, version)
            if len(octets) > self._remote_max_packet_size:
                return False
            self._note_sent(packet)
            self._out.append(octets)
            return True
        if isinstance(packet, Connect | Connack | Disconnect):
            raise LocalProtocolError("accept, refuse and close send this packet")
        explained = self._explained(packet)
        if explained and self.connect.properties.request_problem_information == 0:  # [MQTT-3.1.2-29]
            packet, explained = self._plain(packet), False
        octets = encode(packet, version)
        if len(octets) > self._remote_max_packet_size and explained:  # [MQTT-3.4.2-2] and its like
            packet = self._plain(packet)
            octets = encode(packet, version)
        if len(octets) > self._remote_max_packet_size:
            return False
        self._note_sent(packet)
        self._out.append(octets)
        return True

    def acknowledge(self, kind: type[Acknowledgement], packet_id: int) -> None:
        """Send an answer that says success and nothing else: what `send` does, for what is sent most."""
        assert self.state == OPEN
        if kind is Pubrel:
            self._outgoing[packet_id] = _AWAITS_PUBCOMP
        elif kind is not Pubrec:
            self._incoming.pop(packet_id, None)
        self._out.append(SHORT(FIRST[kind], 2, packet_id))

    @property
    def may_publish(self) -> bool:
        """Whether the client takes another PUBLISH of QoS 1 or 2 now (4.9)."""
        return self.state == OPEN and len(self._outgoing) < self._remote_receive_maximum

    def close(self, reason: Reason = Reason.SUCCESS, properties: Properties = NO_PROPERTIES) -> None:
        """End the connection, with DISCONNECT where the version has one of the server."""
        if self.state == OPEN and self.reader.version == 5:
            octets = encode(Disconnect(reason, properties), 5)
            if len(octets) > self._remote_max_packet_size:  # [MQTT-3.14.2-3]
                octets = encode(Disconnect(reason), 5)
            if len(octets) <= self._remote_max_packet_size:
                self._out.append(octets)
        self._end()

    def data_to_send(self) -> bytes:
        """What is to be written to the transport, once."""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def heard(self, now: float) -> None:
        """Octets have come and wait to be read: the client is not silent."""
        self._heard = now

    def deadline(self) -> float | None:
        """When `check_time` is to be called, unless something comes before."""
        if self.state == WAITING:
            return self._heard + self._connect_timeout_s
        return self._heard + 1.5 * self._keep_alive_s if self.state == OPEN and self._keep_alive_s else None

    def check_time(self, now: float) -> None:
        """Close the connection of a client that has been silent for too long [MQTT-3.1.2-22]."""
        deadline = self.deadline()
        if deadline is not None and now >= deadline:
            self._fail(RemoteProtocolError(Reason.KEEP_ALIVE_TIMEOUT, "the client was silent for too long"))

    def _begin(self, connect: Connect) -> None:
        self.state = CONNECTING
        self.connect = connect
        self._keep_alive_s = connect.keep_alive_s
        properties = connect.properties
        if properties.receive_maximum is not None:
            self._remote_receive_maximum = properties.receive_maximum
        if properties.maximum_packet_size is not None:
            self._remote_max_packet_size = properties.maximum_packet_size

    def _waiting(self) -> Connect:
        if self.state != CONNECTING or self.connect is None:
            raise LocalProtocolError("no CONNECT waits for an answer")
        return self.connect

    def _checked(self, packets: list[Packet]) -> list[Packet]:
        """The packets that keep the connection's rules; at the first that does not, the connection ends."""
        events: list[Packet] = []
        for packet in packets:
            if type(packet) is Pubrel:
                events.append(packet)
                continue
            try:
                events.append(self._check(packet))
            except RemoteProtocolError as fault:
                self._fail(fault)
                break
            if isinstance(packet, Disconnect):  # [MQTT-3.14.4-1]: nothing comes after it
                self._end()
                break
        return events

    def _check(self, packet: Packet) -> Packet:
        assert self.connect is not None
        if isinstance(packet, Publish):
            if packet.qos and packet.packet_id not in self._incoming:
                if len(self._incoming) >= self._receive_maximum and self.connect.version == 5:  # [MQTT-3.3.4-7]
                    raise RemoteProtocolError(Reason.RECEIVE_MAXIMUM_EXCEEDED, "more PUBLISH than the receive maximum")
                self._incoming[packet.packet_id] = True
            return packet if packet.properties.topic_alias is None else self._resolved(packet)
        awaited = _AWAITED.get(type(packet))
        if awaited is not None:
            assert isinstance(packet, Acknowledgement)
            if awaited == _AWAITS_PUBCOMP and packet.packet_id in self._unasked:
                if self._outgoing.get(packet.packet_id) == _AWAITS_PUBCOMP:
                    del self._outgoing[packet.packet_id]  # who gets this takes it for free; the other one is to come
                else:
                    del self._unasked[packet.packet_id]
                return packet  # whatever has this identifier meanwhile
            known = self._outgoing.get(packet.packet_id, awaited)
            if known != awaited and (known, awaited) != (_AWAITS_PUBCOMP, _AWAITS_PUBREC):  # a repeated PUBREC
                raise violation("an acknowledgement that is not the next of this PUBLISH")
            if awaited != _AWAITS_PUBREC or packet.reason >= Reason.UNSPECIFIED_ERROR:
                self._outgoing.pop(packet.packet_id, None)
        elif isinstance(packet, Auth):
            if self.connect.properties.authentication_method != packet.properties.authentication_method:  # 4.12
                raise violation("AUTH has another authentication method than CONNECT")
        elif isinstance(packet, Disconnect):
            prolonged = packet.properties.session_expiry_s and not self.connect.properties.session_expiry_s
            if prolonged:  # 3.14.2.2.2
                raise violation("DISCONNECT prolongs a session that was to end with its connection")
        return packet

    def _resolved(self, packet: Publish) -> Publish:
        """3.3.2.3.4: the alias is set where a name comes with it, else used."""
        alias, topic, properties = packet.properties.topic_alias, packet.topic, packet.properties
        assert alias is not None
        if alias > self._alias_maximum:  # [MQTT-3.3.2-9]
            raise RemoteProtocolError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}")
        if topic:
            self._alias_characters += len(topic) - len(self._aliases.get(alias, ""))
            if self._alias_characters > MOST_ALIASED:
                raise RemoteProtocolError(
                    Reason.QUOTA_EXCEEDED, f"topic aliases stand for more than {MOST_ALIASED} characters"
                )
            self._aliases[alias] = topic
        elif alias in self._aliases:
            topic = self._aliases[alias]
        else:
            raise violation(f"topic alias {alias} was never set")
        properties = properties._replace(topic_alias=None)
        return Publish(topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id, properties)

    def _note_sent(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if packet.qos:
                if packet.packet_id in self._outgoing:
                    raise LocalProtocolError(f"packet identifier {packet.packet_id} is in use")
                if not self.may_publish:
                    raise LocalProtocolError("the client's receive maximum is reached")
                self._outgoing[packet.packet_id] = _AWAITS_PUBACK if packet.qos == 1 else _AWAITS_PUBREC
        elif isinstance(packet, Pubrel):
            if packet.packet_id in self._outgoing:
                self._outgoing[packet.packet_id] = _AWAITS_PUBCOMP
                return
            if len(self._unasked) >= UNASKED:
                del self._unasked[next(iter(self._unasked))]
            self._unasked[packet.packet_id] = None  # and it may be given to a PUBLISH
        elif isinstance(packet, Puback | Pubcomp) or (isinstance(packet, Pubrec) and packet.reason >= 0x80):
            self._incoming.pop(packet.packet_id, None)

    @staticmethod
    def _explained(packet: Packet) -> bool:
        properties = getattr(packet, "properties", NO_PROPERTIES)
        return properties is not NO_PROPERTIES and (
            properties.reason_string is not None or properties.user_properties != ()
        )

    @staticmethod
    def _plain(packet: Any) -> Packet:
        """The packet without what only explains it."""
        properties = packet.properties._replace(reason_string=None, user_properties=())
        plain: Packet = replace(packet, properties=properties)
        return plain

    def _fail(self, fault: RemoteProtocolError) -> None:
        """Tell the client, where its version has words for it, and close (4.13)."""
        if self.state == CLOSED:
            return
        self.error = fault
        explained = Properties(reason_string=fault.description)
        if self.state == OPEN and fault.reason in DISCONNECT_REASONS[False]:
            self.close(fault.reason, explained)
        elif isinstance(fault, UnknownVersion):
            self._out.append(encode(Connack(False, fault.reason), fault.version))
        elif self.state == CONNECTING and self.reader.version == 5:
            reason = fault.reason if fault.reason in REASONS_OF[CONNACK] else Reason.PROTOCOL_ERROR
            octets = encode(Connack(False, reason), 5)
            if len(octets) <= self._remote_max_packet_size:
                self._out.append(octets)
        self._end()

    def _end(self) -> None:
        self.state = CLOSED
        self.reader.forget()
        self._early.clear()
