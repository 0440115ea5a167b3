"""An MQTT echo server over blocking sockets, a thread for each client: what a client publishes comes back to it.

    python examples/sansio/mqtt_echo.py [PORT]

`Echo` is the protocol half and knows no sockets. A PUBLISH is acknowledged when its echo has been sent. Sessions end
with their connections, and nothing is retained: CONNACK says so.
"""

import socketserver
import sys
import time
from collections import deque
from dataclasses import replace

from mqtt import (
    NO_PROPERTIES,
    Connect,
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
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    matches,
)
from mqtt.connection import CLOSED, OPEN

MOST = 20  # PUBLISH of a client that wait to be echoed
LIMITS = Properties(session_expiry_s=0, retain_available=0, shared_available=0)
PATIENCE_S = 30.0  # for a client that does not read


class Echo:
    """One client's connection. `receive` is called with what has come, `check_time` at `connection.deadline()`."""

    def __init__(self, now: float) -> None:
        self.connection = ServerConnection(now, max_packet_size=1 << 20, max_connect_size=1 << 16, receive_maximum=MOST)
        self.filters: dict[str, tuple[Subscription, tuple[int, ...]]] = {}  # with its subscription identifier
        self.waiting: deque[Publish] = deque()
        self.begun: dict[int, bool] = {}  # of QoS 2, up to PUBREL -> PUBREC was sent
        self.in_flight: dict[int, None] = {}  # our own, up to PUBACK or PUBCOMP
        self.last_id = 0

    def receive(self, data: bytes, now: float) -> None:
        self.handle(self.connection.receive_data(data, now), now)
        while self.connection.more:  # a long SUBSCRIBE is read in parts
            self.handle(self.connection.receive_data(b"", now), now)
        while self.connection.state == OPEN and self.waiting and self.echoes(self.waiting[0]):
            self.waiting.popleft()
        if len(self.waiting) > MOST:  # of 3.1.1, which has no receive maximum, or of QoS 0
            self.connection.close(Reason.QUOTA_EXCEEDED)

    def handle(self, packets: list[Packet], now: float) -> None:
        for packet in packets:
            if self.connection.state == CLOSED:  # by a later packet, or by us: nothing more can be sent
                return
            if isinstance(packet, Connect):
                self.begin(packet, now)
            else:
                self.take(packet)

    def begin(self, connect: Connect, now: float) -> None:
        five = connect.version == 5
        if connect.properties.authentication_method is not None:
            self.connection.refuse(Reason.BAD_AUTHENTICATION_METHOD)
        elif not (connect.client_id or connect.clean_start or five):  # [MQTT-3.1.3-8] of 3.1.1
            self.connection.refuse(Reason.CLIENT_IDENTIFIER_NOT_VALID)
        elif five and connect.will is not None and connect.will.retain:  # [MQTT-3.2.2-13]
            self.connection.refuse(Reason.RETAIN_NOT_SUPPORTED)
        else:
            limits = LIMITS if connect.client_id else LIMITS._replace(assigned_client_id=f"echo-{id(self)}")
            self.handle(self.connection.accept(now, False, limits if five else NO_PROPERTIES), now)

    def take(self, packet: Packet) -> None:
        connection, five = self.connection, self.connection.reader.version == 5
        match packet:
            case Publish(retain=True) if five:  # [MQTT-3.2.2-14]
                connection.close(Reason.RETAIN_NOT_SUPPORTED)
            case Publish(qos=2, packet_id=packet_id) if packet_id in self.begun:  # again: it is not echoed again
                if self.begun[packet_id]:
                    connection.send(Pubrec(packet_id))
            case Publish():
                if packet.qos == 2:
                    self.begun[packet.packet_id] = False
                self.waiting.append(packet)
            case Pubrel(packet_id=packet_id):
                found = self.begun.pop(packet_id, None) is not None or not five  # 3.1.1 has no reasons here
                connection.send(Pubcomp(packet_id, Reason.SUCCESS if found else Reason.PACKET_IDENTIFIER_NOT_FOUND))
            case Pubrec(packet_id=packet_id, reason=reason) if reason < Reason.UNSPECIFIED_ERROR:
                connection.send(Pubrel(packet_id))
            case Puback(packet_id=packet_id) | Pubrec(packet_id=packet_id) | Pubcomp(packet_id=packet_id):
                self.in_flight.pop(packet_id, None)
            case Subscribe(packet_id=packet_id, subscriptions=subscriptions):
                ids = packet.properties.subscription_ids
                connection.send(Suback(packet_id, [self.subscribe(one, ids, five) for one in subscriptions]))
            case Unsubscribe(packet_id=packet_id, topic_filters=filters):
                known = [self.filters.pop(each, None) is not None for each in filters]
                reasons = [Reason.SUCCESS if each else Reason.NO_SUBSCRIPTION_EXISTED for each in known]
                connection.send(Unsuback(packet_id, reasons))
            case Pingreq():
                connection.send(Pingresp())

    def subscribe(self, one: Subscription, ids: tuple[int, ...], five: bool) -> Reason:
        if five and one.topic_filter.startswith("$share/"):
            return Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED
        self.filters[one.topic_filter] = one, ids
        return Reason(one.qos)

    def echoes(self, publish: Publish) -> bool:
        """Echo one PUBLISH and acknowledge it; False while the client takes no more."""
        wanted = [(one, ids) for one, ids in self.filters.values() if matches(one.topic_filter, publish.topic)]
        wanted = [(one, ids) for one, ids in wanted if not one.no_local]  # the client is its own publisher
        if wanted:
            qos = min(publish.qos, max(one.qos for one, _ in wanted))
            if qos and not self.connection.may_publish:
                return False
            own_id = self.free_id() if qos else 0
            properties = publish.properties._replace(subscription_ids=tuple(each for _, ids in wanted for each in ids))
            copy = replace(publish, qos=qos, retain=False, dup=False, packet_id=own_id, properties=properties)
            if self.connection.send(copy) and qos:  # False: the client takes none so large [MQTT-3.1.2-25]
                self.in_flight[own_id] = None
        if publish.qos == 1:
            self.connection.send(Puback(publish.packet_id))
        elif publish.qos == 2:
            self.begun[publish.packet_id] = True
            self.connection.send(Pubrec(publish.packet_id))
        return True

    def free_id(self) -> int:
        while True:
            self.last_id = self.last_id % 65_535 + 1
            if self.last_id not in self.in_flight:
                return self.last_id


class Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        echo = Echo(time.monotonic())
        while echo.connection.state != CLOSED:
            deadline = echo.connection.deadline()
            left = None if deadline is None else max(deadline - time.monotonic(), 0.001)
            self.request.settimeout(left)
            try:
                data = self.request.recv(65536)
                if not data:
                    return
                echo.receive(data, time.monotonic())
            except TimeoutError:
                echo.connection.check_time(time.monotonic())
            except OSError:
                return  # reset
            self.request.settimeout(PATIENCE_S)
            try:
                self.request.sendall(echo.connection.data_to_send())
            except OSError:
                return  # gone, or it does not read


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True


with Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 1883), Handler) as server:
    print("listening on", server.server_address[1], flush=True)
    server.serve_forever()
