"""paho-mqtt judges: its table of properties beside ours, its client in conversation with our packets over a socket."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import paho.mqtt.properties as paho_properties
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

from mqtt import PacketReader, Properties, Reason, encode, kinds, packets
from mqtt.fields import FieldReader
from mqtt.properties import (
    BINARY,
    BYTE,
    FOUR,
    NO_PROPERTIES,
    PAIR,
    TABLE,
    TEXT,
    TWO,
    VARIABLE,
    read_properties,
    write_properties,
)
from tests.mqtt import strategies

BOUND_S = 60.0
FORMS = [BYTE, TWO, FOUR, VARIABLE, BINARY, TEXT, PAIR]  # in the order of paho
NAMES = {identifier: name for name, identifier in paho_properties.Properties(PacketTypes.CONNECT).names.items()}


def test_paho_has_the_same_table_of_properties() -> None:
    theirs = paho_properties.Properties(PacketTypes.CONNECT).properties
    assert {row.identifier: (row.form, row.packets) for row in TABLE} == {
        identifier: (FORMS[form], {kinds.WILL if kind == PacketTypes.WILLMESSAGE else kind for kind in of})
        for identifier, (form, of) in theirs.items()
    }


@pytest.mark.parametrize("kind", [kind for kind in range(1, 16) if kind not in (kinds.PINGREQ, kinds.PINGRESP)])
@given(data=st.data())
@settings(max_examples=25, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])
def test_paho_reads_our_properties_and_we_read_its(kind: int, data: st.DataObject) -> None:
    small = st.none() | st.integers(1, 268_435_455)  # paho takes no larger maximum packet size
    identified = kind in (kinds.PUBLISH, kinds.SUBSCRIBE)
    given_fields: dict[str, Any] = {"maximum_packet_size": small} if kind in (kinds.CONNECT, kinds.CONNACK) else {}
    if identified:
        given_fields["subscription_ids"] = st.tuples(st.integers(1, 268_435_455))
    ours = data.draw(strategies.properties(5, kind, **given_fields))
    theirs = paho_properties.Properties(kind)
    octets = write_properties(ours, kind)
    theirs.unpack(octets)
    for row, value, absent in zip(TABLE, ours, NO_PROPERTIES, strict=True):
        name = NAMES[row.identifier].replace(" ", "")
        if value == absent:
            assert not hasattr(theirs, name)
        else:
            found: Any = getattr(theirs, name)
            assert (tuple(found) if row.form == PAIR or row.identifier == 11 else found) == value
    packed = theirs.pack()
    assert read_properties(FieldReader(packed, 0, len(packed)), kind) == ours


class Paho:
    """A client of paho on one end of a TCP connection, our packets on the other; one thread, in turns."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.heard: list[tuple[str, Any]] = []
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id="c", protocol=paho.MQTTProtocolVersion(version)
        )
        self.client.on_connect = lambda *a: self.heard.append(("connect", (a[2].session_present, a[3].value, a[4])))
        self.client.on_message = lambda *a: self.heard.append(("message", a[2]))
        self.client.on_publish = lambda *a: self.heard.append(("publish", (a[2], a[3].value)))
        self.client.on_subscribe = lambda *a: self.heard.append(("subscribe", (a[2], [code.value for code in a[3]])))
        self.client.on_unsubscribe = lambda *a: self.heard.append(
            ("unsubscribe", (a[2], [code.value for code in a[3]]))
        )
        self.client.on_disconnect = lambda *a: self.heard.append(("disconnect", a[3].value))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.reader = PacketReader()
        self.peer: socket.socket | None = None

    def connect(self, **options: Any) -> packets.Connect:
        self.client.connect("127.0.0.1", self.listener.getsockname()[1], **options)
        self.peer, _ = self.listener.accept()
        self.peer.settimeout(BOUND_S)
        packet = self.says()
        assert isinstance(packet, packets.Connect)
        return packet

    def says(self) -> packets.Packet:
        """The one packet that the client says next."""
        assert self.peer
        while True:
            while self.client.want_write():
                self.client.loop_write()
            found = self.reader.receive_data(self.peer.recv(65_536))
            if found:
                (packet,) = found
                return packet

    def hears(self, packet: packets.Packet) -> None:
        """Say a packet to the client."""
        assert self.peer
        sock = self.client.socket()
        assert sock
        self.peer.sendall(encode(packet, self.version))
        assert select.select([sock], [], [], BOUND_S)[0]
        self.client.loop_read()

    def told(self, what: str) -> Any:
        """What the client told its application last."""
        assert self.heard[-1][0] == what
        return self.heard.pop()[1]

    def close(self) -> None:
        self.client.loop_write()
        sock = self.client.socket()
        for one in (self.listener, self.peer, sock):
            if one:
                one.close()


@pytest.fixture(params=[4, 5])
def client(request: pytest.FixtureRequest) -> Iterator[Paho]:
    found = Paho(request.param)
    yield found
    found.close()


def user(kind: int) -> paho_properties.Properties:
    found = paho_properties.Properties(kind)
    found.UserProperty = [("a", "b"), ("a", "c")]
    return found


USER = Properties(user_properties=(("a", "b"), ("a", "c")))


def connected(client: Paho) -> Paho:
    client.connect()
    client.hears(packets.Connack())
    assert client.told("connect")[:2] == (False, 0)
    return client


def test_pahos_connect_is_read(client: Paho) -> None:
    client.client.username_pw_set("u", "p")
    if client.version == 4:
        client.client.will_set("w/t", b"gone", 2, True)
        assert client.connect(keepalive=30) == packets.Connect(
            "c", 4, True, 30, "u", b"p", packets.Will("w/t", b"gone", 2, True)
        )
    else:
        will = paho_properties.Properties(PacketTypes.WILLMESSAGE)
        will.WillDelayInterval = 7
        client.client.will_set("w/t", b"gone", 1, False, will)
        properties = user(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = 100
        properties.ReceiveMaximum = 20
        assert client.connect(keepalive=30, clean_start=False, properties=properties) == packets.Connect(
            "c", 5, False, 30, "u", b"p", packets.Will("w/t", b"gone", 1, False, Properties(will_delay_s=7)),
            USER._replace(session_expiry_s=100, receive_maximum=20),
        )  # fmt: skip


def test_paho_reads_our_connack(client: Paho) -> None:
    client.connect()
    found = (
        Properties(assigned_client_id="x", topic_alias_maximum=5, maximum_qos=1)
        if client.version == 5
        else NO_PROPERTIES
    )
    client.hears(packets.Connack(False, Reason.SUCCESS, found))
    present, reason, properties = client.told("connect")
    assert (present, reason) == (False, 0)
    if client.version == 5:
        assert (properties.AssignedClientIdentifier, properties.TopicAliasMaximum, properties.MaximumQoS) == ("x", 5, 1)


def test_paho_reads_our_refusal(client: Paho) -> None:
    client.connect()
    client.hears(packets.Connack(False, Reason.NOT_AUTHORIZED))
    assert ("connect", (False, 0x87)) in [(what, found[:2]) for what, found in client.heard if what == "connect"]


def test_paho_publishes_with_qos_2(client: Paho) -> None:
    connected(client)
    properties = user(PacketTypes.PUBLISH) if client.version == 5 else None
    info = client.client.publish("a/b", b"\0body", 2, True, properties)
    expected = USER if client.version == 5 else NO_PROPERTIES
    assert client.says() == packets.Publish("a/b", b"\0body", 2, True, False, info.mid, expected)
    client.hears(packets.Pubrec(info.mid))
    assert client.says() == packets.Pubrel(info.mid)
    client.hears(packets.Pubcomp(info.mid))
    assert client.told("publish") == (info.mid, 0)


def test_paho_publishes_with_qos_1_and_0(client: Paho) -> None:
    connected(client)
    info = client.client.publish("a", b"x", 1)
    assert client.says() == packets.Publish("a", b"x", 1, packet_id=info.mid)
    client.hears(packets.Puback(info.mid, Reason.QUOTA_EXCEEDED if client.version == 5 else Reason.SUCCESS))
    assert client.told("publish")[1] == (0x97 if client.version == 5 else 0)
    client.client.publish("a")
    assert client.says() == packets.Publish("a")


def test_paho_hears_with_qos_2(client: Paho) -> None:
    connected(client)
    properties = USER._replace(subscription_ids=(3, 300), topic_alias=4) if client.version == 5 else NO_PROPERTIES
    client.hears(packets.Publish("t\u00e4", b"x" * 300, 2, True, False, 77, properties))
    assert client.says() == packets.Pubrec(77)
    client.hears(packets.Pubrel(77))
    message = client.told("message")
    assert (message.topic, message.payload, message.qos, message.retain) == ("t\u00e4", b"x" * 300, 2, True)
    if client.version == 5:
        assert message.properties.UserProperty == [("a", "b"), ("a", "c")]
        assert message.properties.SubscriptionIdentifier == [3, 300]
        assert message.properties.TopicAlias == 4
    assert client.says() == packets.Pubcomp(77)


def test_paho_subscribes(client: Paho) -> None:
    connected(client)
    if client.version == 5:
        options = SubscribeOptions(2, True, True, SubscribeOptions.RETAIN_DO_NOT_SEND)
        properties = paho_properties.Properties(PacketTypes.SUBSCRIBE)
        properties.SubscriptionIdentifier = 300
        _, mid = client.client.subscribe([("a/+", options), ("$share/g/#", SubscribeOptions(1))], properties=properties)
        subscriptions = [packets.Subscription("a/+", 2, True, True, 2), packets.Subscription("$share/g/#", 1)]
        expected = Properties(subscription_ids=(300,))
    else:
        _, mid = client.client.subscribe([("a/+", 2), ("#", 1)])
        subscriptions, expected = [packets.Subscription("a/+", 2), packets.Subscription("#", 1)], NO_PROPERTIES
    assert mid
    assert client.says() == packets.Subscribe(mid, subscriptions, expected)
    refused = Reason.NOT_AUTHORIZED if client.version == 5 else Reason.UNSPECIFIED_ERROR
    client.hears(packets.Suback(mid, [Reason.GRANTED_QOS_2, refused]))
    assert client.told("subscribe") == (mid, [2, refused])


def test_paho_unsubscribes(client: Paho) -> None:
    connected(client)
    _, mid = client.client.unsubscribe(["a/+", "#"])
    assert mid
    assert client.says() == packets.Unsubscribe(mid, ["a/+", "#"])
    reasons = [Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED]
    client.hears(packets.Unsuback(mid, reasons if client.version == 5 else []))
    assert client.told("unsubscribe") == (mid, reasons if client.version == 5 else [])


def test_paho_says_goodbye(client: Paho) -> None:
    connected(client)
    client.client.disconnect()
    assert client.says() == packets.Disconnect()


def test_paho_hears_our_goodbye() -> None:
    client = connected(Paho(5))
    client.hears(packets.Disconnect(Reason.SESSION_TAKEN_OVER, Properties(reason_string="elsewhere")))
    assert client.told("disconnect") == 0x8E
    client.close()
