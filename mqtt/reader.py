"""A stream of octets becomes packets (MQTT 5, 2.1): the fixed header, the limit of size, who may send what.

The reader knows the version (from CONNECT, where it reads for a server) and nothing else of the connection: what is in
flight, topic aliases and the keep alive belong to connection.py.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from mqtt import kinds
from mqtt.decoder import ACKNOWLEDGEMENTS, decode, decode_connect, decode_in_parts, decode_publish
from mqtt.errors import Reason, RemoteProtocolError, malformed, violation
from mqtt.packets import Packet, Subscribe, Unsubscribe

LARGEST: Final = 268_435_455 + 5
"""Octets of the largest packet that MQTT knows (2.1.4)."""
LONG: Final = 4_096  # octets: a longer packet of topic filters is read in parts
CHUNK_OCTETS: Final = 64  # that a piece takes beside what it has
_BOTH: Final = frozenset({kinds.PUBLISH, kinds.PUBACK, kinds.PUBREC, kinds.PUBREL, kinds.PUBCOMP})
_CLIENT: Final = _BOTH | {kinds.SUBSCRIBE, kinds.UNSUBSCRIBE, kinds.PINGREQ, kinds.DISCONNECT}
_SERVER: Final = _BOTH | {kinds.CONNACK, kinds.SUBACK, kinds.UNSUBACK, kinds.PINGRESP}
SENT: Final = {
    (True, 4): _CLIENT,
    (True, 5): _CLIENT | {kinds.AUTH},
    (False, 4): _SERVER,
    (False, 5): _SERVER | {kinds.AUTH, kinds.DISCONNECT},
}
"""(by a client, version) -> the types of packets that such a peer may send after CONNECT (table 2-1)."""
ANSWERS: Final = {kind << 4 | (2 if kind == kinds.PUBREL else 0): made for kind, made in ACKNOWLEDGEMENTS.items()}


class PacketReader:
    """Reads what one peer sends.

    Attributes:
        version: 4 or 5; 0 while a server waits for CONNECT.
        buffered: What the beginning of a packet takes, in octets: many small pieces take more than they have.
        more: A packet of many topic filters is read in parts, and what follows it waits: give the reader b"" to go on.
    """

    __slots__ = (
        "before_fault", "buffered", "more", "version", "_from_client", "_max_connect_size", "_max_packet_size", "_sent",
        "_chunks", "_held", "_needed", "_steps",
    )  # fmt: skip

    def __init__(self, *, version: int = 0, max_packet_size: int = LARGEST, max_connect_size: int = LARGEST) -> None:
        """Read for a client where `version` is given (4 or 5), for a server where it is not.

        Args:
            version: That of the CONNECT which the client has sent.
            max_packet_size: Octets of the largest packet that is taken, with its fixed header.
            max_connect_size: The same of CONNECT, which strangers send.
        """
        self.version = version
        self._from_client = not version
        self._max_packet_size = max_packet_size
        self._max_connect_size = min(max_connect_size, max_packet_size)
        self._sent = SENT[False, version] if version else frozenset({kinds.CONNECT})
        self._chunks: list[bytes] = []  # the beginning of a packet
        self._held = 0  # octets in them
        self.buffered = 0
        self._needed = 0  # octets that the packet has, as far as is known
        self.more = False
        self.before_fault: list[Packet] = []
        self._steps: Generator[None, None, Subscribe | Unsubscribe] | None = None

    @property
    def needed(self) -> int:
        """Octets of the packet that is held that have not come; 0: that is not known, or there is none."""
        return self._needed - self._held if self._chunks else 0

    def receive_data(self, data: bytes) -> list[Packet]:
        """Decode all packets that are complete.

        Args:
            data: What has come, in pieces of any size.

        Raises:
            RemoteProtocolError: The peer broke a rule; `before_fault` has the packets before that. The connection must
                be closed: nothing that comes later can be read.
        """
        packets: list[Packet] = []
        try:
            if self.more:
                self._go_on(packets)
            if self._chunks:
                self._chunks.append(data)
                self._held += len(data)
                self.buffered += len(data) + CHUNK_OCTETS
                if self._held < self._needed or self.more:
                    return packets
                data = b"".join(self._chunks)
                self.forget()
            position, end = 0, len(data)
            while position < end:
                stop = self._read(data, position, end, packets)
                if not stop or self.more:
                    position = stop or position
                    self._chunks.append(data[position:] if position else data)
                    self._held = end - position
                    self.buffered = self._held + CHUNK_OCTETS
                    if self.more:
                        self._needed = 0
                        self.buffered += stop  # what is read in parts is held, too
                    break
                position = stop
        except RemoteProtocolError:
            self.before_fault = packets
            raise
        return packets

    def forget(self) -> None:
        """What is held is read no more."""
        self._chunks.clear()
        self.buffered = 0
        self.more = False
        self._steps = None

    def _go_on(self, packets: list[Packet]) -> None:
        assert self._steps is not None
        try:
            next(self._steps)
        except StopIteration as end:
            packets.append(end.value)
            self.more = False
            self._steps = None

    def _read(self, data: bytes, start: int, end: int, packets: list[Packet]) -> int:
        """Decode the packet that begins at `start`; where it ends, or 0 if it is not complete."""
        first = data[start]
        position = start + 2
        if position > end:
            self._needed = 2
            return 0
        length = data[start + 1]
        if length == 2 and first in ANSWERS and first >> 4 in self._sent and position + 2 <= end:
            packet_id = data[position] << 8 | data[position + 1]
            if not packet_id:  # [MQTT-2.2.1-3]
                raise violation("packet identifier 0")
            packets.append(ANSWERS[first](packet_id))
            return position + 2
        kind = first >> 4
        if kind not in self._sent:
            self._refuse(kind)
        padded = False
        if length >= 0x80:  # 1.5.5: seven bits of an octet, the lowest first
            length &= 0x7F
            for shift in (7, 14, 21):
                if position == end:
                    self._needed = position + 1 - start
                    return 0
                octet = data[position]
                position += 1
                length |= (octet & 0x7F) << shift
                if octet < 0x80:
                    padded = not octet
                    break
            else:
                raise malformed("the remaining length has more than four octets")
        stop = position + length
        if stop - start > (self._max_packet_size if self.version else self._max_connect_size):
            raise RemoteProtocolError(Reason.PACKET_TOO_LARGE, f"a packet of {stop - start} octets")
        if stop > end:
            self._needed = stop - start
            return 0
        if kind == kinds.PUBLISH:
            packets.append(decode_publish(first, data, position, stop, self.version, self._from_client))
        elif kind == kinds.CONNECT:
            connect = decode_connect(first, data, position, stop)
            self.version = connect.version
            self._sent = SENT[True, connect.version]
            packets.append(connect)
        elif length > LONG and self._from_client and kind in (kinds.SUBSCRIBE, kinds.UNSUBSCRIBE):
            if padded and self.version == 5:
                raise malformed("the remaining length is not in its shortest form")
            self._steps = decode_in_parts(first, data, position, stop, self.version)
            self.more = True
            self._go_on(packets)
            return stop
        else:
            packets.append(decode(first, data, position, stop, self.version, self._from_client))
        if padded and self.version == 5:  # [MQTT-1.5.5-1]; 3.1.1 does not ask for the shortest form
            packets.pop()
            raise malformed("the remaining length is not in its shortest form")
        return stop

    def _refuse(self, kind: int) -> None:
        if not kind or (kind == kinds.AUTH and self.version == 4):  # table 2-1: reserved
            raise malformed(f"a packet of the reserved type {kind}")
        if not self.version:  # [MQTT-3.1.0-1]
            raise violation("the first packet is not CONNECT")
        if kind == kinds.CONNECT and self._from_client:  # [MQTT-3.1.0-2]
            raise violation("a second CONNECT")
        raise violation(f"a packet of type {kind} is not the peer's to send")
