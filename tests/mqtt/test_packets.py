"""The standards' statements about the form of packets: octets that break one, and the reason that the peer is told.

Each case names its statement in MQTT 5 or, with a leading 3.1.1, in MQTT 3.1.1.
"""

from __future__ import annotations

import pytest

from mqtt import NO_PROPERTIES, EncodeError, PacketReader, Properties, Reason, RemoteProtocolError, encode, packets
from mqtt.properties import MOST_BEFORE_LOGIN, TABLE

MALFORMED, VIOLATION = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR
CONNECT = "10 0d 00044d515454 05 02 0000 00 0000"
CONNECT_4 = "10 0c 00044d515454 04 02 0000 0000"
SAID_TO_A_SERVER = {
    # statement: (octets, reason), after a CONNECT of version 5
    "2.1.2 a reserved type": ("00 00", MALFORMED),
    "2.1.3-1 flags of PUBACK": ("41 02 0001", MALFORMED),
    "2.1.3-1 flags of PUBREL": ("60 02 0001", MALFORMED),
    "2.1.3-1 flags of SUBSCRIBE": ("80 07 0001 00 000161 00", MALFORMED),
    "2.1.4 five octets of length": ("30 ff ff ff ff 01", MALFORMED),
    "1.5.5-1 a padded length": ("c0 80 00", MALFORMED),
    "1.5.4-1 no UTF-8": ("30 04 0001 ff 00", MALFORMED),
    "1.5.4-1 a surrogate": ("30 06 0003 eda080 00", MALFORMED),
    "1.5.4-2 a null character": ("30 04 0001 00 00", MALFORMED),
    "2.2.1-3 identifier 0 of PUBLISH": ("32 06 0001 61 0000 00", VIOLATION),
    "2.2.1-3 identifier 0 of SUBSCRIBE": ("82 07 0000 00 000161 00", VIOLATION),
    "2.2.1-3 identifier 0 of PUBREC": ("50 02 0000", VIOLATION),
    "2.2.2.2 an unknown property": ("30 06 0001 61 02 7f 00", MALFORMED),
    "2.2.2.2 another packet's property": ("30 09 0001 61 05 11 00000001", MALFORMED),
    "2.2.2.2 a property that goes beyond": ("30 06 0001 61 02 23 00", MALFORMED),
    "2.2.2.2 properties that go beyond": ("30 05 0001 61 09 23", MALFORMED),
    "3.1.0-2 a second CONNECT": (CONNECT, VIOLATION),
    "2.1.2 a server's packet": ("20 03 00 00 00", VIOLATION),
    "3.3.1-2 DUP with QoS 0": ("38 04 0001 61 00", VIOLATION),
    "3.3.1-4 QoS 3": ("36 06 0001 61 0001 00", MALFORMED),
    "3.3.2-2 a wildcard in a topic name": ("30 04 0001 23 00", MALFORMED),
    "3.3.2.1 neither name nor alias": ("30 03 0000 00", VIOLATION),
    "3.3.2-8 topic alias 0": ("30 06 0000 03 23 0000", Reason.TOPIC_ALIAS_INVALID),
    "3.3.2.3.4 two aliases": ("30 09 0000 06 230001 230001", VIOLATION),
    "3.3.2.3.2 a payload format of 2": ("30 06 0001 61 02 01 02", VIOLATION),
    "3.3.2-14 a wildcard in a response topic": ("30 08 0001 61 04 08 0001 2b", VIOLATION),
    "3.3.4-6 a client's subscription identifier": ("30 06 0001 61 02 0b 01", VIOLATION),
    "3.3.2 a name that goes beyond": ("30 03 0009 61", MALFORMED),
    "3.3.2 no identifier": ("32 03 0001 61", MALFORMED),
    "3.4.2-1 a reason that PUBACK has not": ("40 03 0001 92", VIOLATION),
    "3.6.2-1 a reason that PUBREL has not": ("62 03 0001 80", VIOLATION),
    "3.4 an identifier cut short": ("40 01 00", MALFORMED),
    "3.8.3-2 no filter": ("82 03 0001 00", VIOLATION),
    "3.8.3-5 reserved options": ("82 07 0001 00 000161 40", MALFORMED),
    "3.8.3.1 QoS 3 of a subscription": ("82 07 0001 00 000161 03", VIOLATION),
    "3.8.3.1 Retain Handling 3": ("82 07 0001 00 000161 30", VIOLATION),
    "3.8.3-4 No Local on a shared one": ("82 10 0001 00 000a 2473686172652f672f61 04", VIOLATION),
    "3.8.2.1.2 subscription identifier 0": ("82 09 0001 02 0b00 000161 00", VIOLATION),
    "3.8.2.1.2 two identifiers": ("82 0b 0001 04 0b010b01 000161 00", VIOLATION),
    "4.7.1-1 a bad filter": ("82 08 0001 00 0002 6123 00", MALFORMED),
    "4.7.3-1 an empty filter": ("82 06 0001 00 0000 00", MALFORMED),
    "4.8.2-1 an empty share name": ("82 0f 0001 00 0009 2473686172652f2f61 00", MALFORMED),
    "3.10.3-2 nothing to unsubscribe": ("a2 03 0001 00", VIOLATION),
    "3.12.1 PINGREQ with content": ("c0 01 00", MALFORMED),
    "3.14.2.1 a server's reason": ("e0 01 8e", VIOLATION),
    "3.14.2.2.5 a client's server reference": ("e0 06 00 04 1c 0001 61", VIOLATION),
    "3.15.2.2.2 AUTH without a method": ("f0 02 18 00", VIOLATION),
}  # fmt: skip
SAID_IN_3_1_1 = {
    "3.1.1 2.2.1 AUTH's type": ("f0 00", MALFORMED),
    "3.1.1 3.8.3-4 version 5's options": ("82 06 0001 000161 04", MALFORMED),
    "3.1.1 3.14 DISCONNECT with content": ("e0 01 00", MALFORMED),
    "3.1.1 3.4.1 PUBACK with a reason": ("40 03 0001 00", MALFORMED),
    "3.1.1 4.7.3-1 an empty topic": ("30 02 0000", VIOLATION),
    "3.1.1 2.3.1-1 identifier 0": ("34 05 0001 61 0000", VIOLATION),
}
SAID_FIRST = {
    "3.1.0-1 another packet first": ("c0 00", VIOLATION),
    "2.1.3-1 flags of CONNECT": ("11 0d 00044d515454 05 02 0000 00 0000", MALFORMED),
    "3.1.2-1 another protocol": ("10 0d 00044d515458 05 02 0000 00 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
    "3.1.2-2 version 3": ("10 0e 00064d514973647003 02 0000 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
    "3.1.2-2 version 6": ("10 0d 00044d515454 06 02 0000 00 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
    "3.1.2-3 the reserved flag": ("10 0d 00044d515454 05 03 0000 00 0000", MALFORMED),
    "3.1.2-11 a will's QoS and no will": ("10 0d 00044d515454 05 0a 0000 00 0000", MALFORMED),
    "3.1.2-13 a will's retain and no will": ("10 0d 00044d515454 05 22 0000 00 0000", MALFORMED),
    "3.1.2-12 a will with QoS 3": ("10 13 00044d515454 05 1e 0000 00 0000 00 000161 0000", MALFORMED),
    "3.1.1 3.1.2-22 a password and no name": ("10 0e 00044d515454 04 42 0000 0000 0000", MALFORMED),
    "3.1.2.11.3 receive maximum 0": ("10 10 00044d515454 05 02 0000 03 210000 0000", VIOLATION),
    "3.1.2.11.4 maximum packet size 0": ("10 12 00044d515454 05 02 0000 05 2700000000 0000", VIOLATION),
    "3.1.2.11.7 request problem information 2": ("10 0f 00044d515454 05 02 0000 02 1702 0000", VIOLATION),
    "3.1.2.11.10 data without a method": ("10 11 00044d515454 05 02 0000 04 16000161 0000", VIOLATION),
    "3.1.3 octets too many": ("10 0e 00044d515454 05 02 0000 00 0000 00", MALFORMED),
    "1.5.5-1 a padded length": ("10 8d 00 00044d515454 05 02 0000 00 0000", MALFORMED),
}
SAID_TO_A_CLIENT = {
    "2.1.2 a client's packet": ("c0 00", VIOLATION),
    "2.1.2 CONNECT": (CONNECT, VIOLATION),
    "3.2.2-1 reserved flags": ("20 03 02 00 00", MALFORMED),
    "3.2.2-6 a refusal with Session Present": ("20 03 01 80 00", VIOLATION),
    "3.2.2.2 a reason that CONNACK has not": ("20 03 00 92 00", VIOLATION),
    "3.2.2.3.4 maximum QoS 2": ("20 05 00 00 02 2402", VIOLATION),
    "3.9.3-2 a reason that SUBACK has not": ("90 04 0001 00 11", VIOLATION),
    "3.9.3-1 no reason": ("90 03 0001 00", VIOLATION),
    "3.11.3-2 a reason that UNSUBACK has not": ("b0 04 0001 00 01", VIOLATION),
    "3.14.2-2 a server's session expiry": ("e0 07 00 05 1100000001", VIOLATION),
    "3.14.2.1 a client's reason": ("e0 01 04", VIOLATION),
}


def reason_for(reader: PacketReader, octets: str) -> Reason:
    with pytest.raises(RemoteProtocolError) as caught:
        reader.receive_data(bytes.fromhex(octets))
    assert reader.before_fault == []
    return caught.value.reason


def connected(connect: str = CONNECT) -> PacketReader:
    reader = PacketReader()
    assert len(reader.receive_data(bytes.fromhex(connect))) == 1
    return reader


@pytest.mark.parametrize(("octets", "reason"), SAID_TO_A_SERVER.values(), ids=SAID_TO_A_SERVER)
def test_server_refuses(octets: str, reason: Reason) -> None:
    assert reason_for(connected(), octets) == reason


@pytest.mark.parametrize(("octets", "reason"), SAID_IN_3_1_1.values(), ids=SAID_IN_3_1_1)
def test_server_refuses_in_3_1_1(octets: str, reason: Reason) -> None:
    assert reason_for(connected(CONNECT_4), octets) == reason


@pytest.mark.parametrize(("octets", "reason"), SAID_FIRST.values(), ids=SAID_FIRST)
def test_server_refuses_a_first_packet(octets: str, reason: Reason) -> None:
    assert reason_for(PacketReader(), octets) == reason


@pytest.mark.parametrize(("octets", "reason"), SAID_TO_A_CLIENT.values(), ids=SAID_TO_A_CLIENT)
def test_client_refuses(octets: str, reason: Reason) -> None:
    assert reason_for(PacketReader(version=5), octets) == reason


@pytest.mark.parametrize("row", [row for row in TABLE if row.form != 3 and row.form < 4], ids=lambda row: row.field)
def test_a_property_comes_once(row: object) -> None:
    assert isinstance(row, tuple)
    identifier, _, form, kinds_of, low, *_ = row
    kind = 2 if 2 in kinds_of else 1 if 1 in kinds_of else 3 if 3 in kinds_of else 0
    octets = (bytes((identifier,)) + low.to_bytes((1, 2, 4)[form], "big")) * 2
    octets = bytes((len(octets),)) + octets
    head = {
        0: b"\0\4MQTT\5\6\0\0\0\0\0" + octets + b"\0\1a\0\0",
        1: b"\0\4MQTT\5\2\0\0" + octets + b"\0\0",
        2: b"\0\0" + octets,
        3: b"\0\1a" + octets,
    }[kind]
    reader = PacketReader(version=5) if kind in (2, 3) else PacketReader()
    assert reason_for(reader, (bytes(((kind or 1) << 4, len(head))) + head).hex()) == VIOLATION


def test_padded_length_is_taken_in_3_1_1() -> None:
    assert connected(CONNECT_4).receive_data(b"\xc0\x80\x00") == [packets.Pingreq()]


def test_packets_before_a_fault_are_not_lost() -> None:
    reader = connected()
    with pytest.raises(RemoteProtocolError) as caught:
        reader.receive_data(b"\xc0\x00\x40\x02\x00\x05\xd0\x00\xc0\x00")
    assert reader.before_fault == [packets.Pingreq(), packets.Puback(5)]
    assert str(caught.value) == "0x82 protocol_error: a packet of type 13 is not the peer's to send"


def test_too_large_a_packet_is_refused_before_its_content_comes() -> None:
    reader = PacketReader(max_packet_size=100)
    reader.receive_data(bytes.fromhex(CONNECT))
    assert reader.receive_data(b"\x30\x62" + b"\0\1a\0" + b"x" * 94)
    assert reason_for(reader, "30 63") == Reason.PACKET_TOO_LARGE
    assert reason_for(PacketReader(max_packet_size=100), "10 ff ff ff 7f") == Reason.PACKET_TOO_LARGE


def test_a_packet_of_the_wrong_type_is_refused_before_its_content_comes() -> None:
    assert reason_for(PacketReader(), "30 ff") == VIOLATION


def test_a_large_packet_in_small_pieces_is_joined_once() -> None:
    reader = connected()
    octets = encode(packets.Publish("t", b"x" * 3_000_000), 5)
    for start in range(0, len(octets) - 1, 1000):
        assert reader.receive_data(octets[start : min(start + 1000, len(octets) - 1)]) == []
    assert len(reader._chunks) > 2000  # no joining on the way: the work is linear
    (packet,) = reader.receive_data(octets[-1:])
    assert isinstance(packet, packets.Publish)
    assert len(packet.payload) == 3_000_000


def test_a_byte_order_mark_stays() -> None:
    """[MQTT-1.5.4-3]"""
    assert connected().receive_data(b"\x30\x06\0\3\xef\xbb\xbf\0") == [packets.Publish("\ufeff")]


@pytest.mark.parametrize(
    ("packet", "octets"),
    [
        (packets.Puback(0x1234), "40 02 1234"),
        (packets.Pubrel(1, Reason.PACKET_IDENTIFIER_NOT_FOUND), "62 03 0001 92"),
        (packets.Pubrec(1, Reason.SUCCESS, Properties(reason_string="a")), "50 08 0001 00 04 1f 0001 61"),
        (packets.Disconnect(), "e0 00"),
        (packets.Disconnect(Reason.SESSION_TAKEN_OVER), "e0 01 8e"),
        (packets.Publish("a", b"b", 2, True, True, 10), "3d 07 0001 61 000a 00 62"),
        (packets.Connack(False, Reason.NOT_AUTHORIZED), "20 03 00 87 00"),
    ],
)
def test_the_shortest_form_is_written(packet: packets.Packet, octets: str) -> None:
    assert encode(packet, 5) == bytes.fromhex(octets)


def test_3_1_1_has_coarser_words() -> None:
    assert encode(packets.Connack(False, Reason.NOT_AUTHORIZED), 4) == bytes.fromhex("20 02 00 05")
    assert encode(packets.Suback(1, [Reason.GRANTED_QOS_2, Reason.NOT_AUTHORIZED]), 4) == bytes.fromhex("90040001 0280")
    assert encode(packets.Unsuback(1, [Reason.NO_SUBSCRIPTION_EXISTED]), 4) == bytes.fromhex("b0 02 0001")


USER = Properties(user_properties=(("a", "b"),))


@pytest.mark.parametrize(
    ("packet", "version"),
    [
        (packets.Publish(""), 5),
        (packets.Publish("", properties=Properties(topic_alias=1)), 4),
        (packets.Publish("a/+"), 5),
        (packets.Publish("a\0"), 5),
        (packets.Publish("\ud800"), 5),
        (packets.Publish("a" * 65_536), 5),
        (packets.Publish("a", qos=1), 5),
        (packets.Publish("a", qos=3, packet_id=1), 5),
        (packets.Publish("a", dup=True), 5),
        (packets.Publish("a", packet_id=1), 5),
        (packets.Publish("a", properties=USER), 4),
        (packets.Publish("a", properties=Properties(receive_maximum=1)), 5),
        (packets.Publish("a", properties=Properties(topic_alias=0)), 5),
        (packets.Publish("a", properties=Properties(response_topic="#")), 5),
        (packets.Publish("a", properties=Properties(message_expiry_s=1 << 32)), 5),
        (packets.Publish("a", b"x" * 268_435_455), 5),
        (packets.Puback(65_536), 5),
        (packets.Puback(1, Reason.PACKET_IDENTIFIER_NOT_FOUND), 5),
        (packets.Pubrec(1, Reason.QUOTA_EXCEEDED), 4),
        (packets.Connect("c", 3), 5),
        (packets.Connect("c", 4, password=b"p"), 4),
        (packets.Connect("c", keep_alive_s=65_536), 5),
        (packets.Connect("c", will=packets.Will("#")), 5),
        (packets.Connect("c", will=packets.Will("a", qos=3)), 5),
        (packets.Connect("c", properties=Properties(authentication_data=b"d")), 5),
        (packets.Connack(True, Reason.NOT_AUTHORIZED), 5),
        (packets.Connack(False, Reason.BANNED), 4),
        (packets.Subscribe(1, []), 5),
        (packets.Subscribe(1, [packets.Subscription("a", no_local=True)]), 4),
        (packets.Subscribe(1, [packets.Subscription("a", 3)]), 5),
        (packets.Subscribe(1, [packets.Subscription("a#")]), 5),
        (packets.Subscribe(1, [packets.Subscription("a")], Properties(subscription_ids=(1, 2))), 5),
        (packets.Unsubscribe(1, []), 5),
        (packets.Unsubscribe(1, [""]), 5),
        (packets.Suback(1, []), 5),
        (packets.Auth(), 5),
        (packets.Auth(properties=Properties(authentication_method="m")), 4),
        (packets.Disconnect(Reason.DISCONNECT_WITH_WILL), 4),
    ],
)  # fmt: skip
def test_what_has_no_form_is_not_written(packet: packets.Packet, version: int) -> None:
    with pytest.raises(EncodeError):
        encode(packet, version)


def test_packets_without_properties_share_them() -> None:
    (packet,) = connected().receive_data(b"\x30\x04\0\1a\0")
    assert isinstance(packet, packets.Publish)
    assert packet.properties is NO_PROPERTIES


def test_a_connect_is_bounded_by_its_head_before_its_octets_come_and_a_publish_behind_it_is_not() -> None:
    reader = PacketReader(max_connect_size=100)
    assert reason_for(PacketReader(max_connect_size=100), "10 ff ff ff 7f") == Reason.PACKET_TOO_LARGE
    reader.receive_data(encode(packets.Connect("c"), 5))
    large = packets.Publish("a", b"x" * 1_000)
    assert reader.receive_data(encode(large, 5)) == [large]


@pytest.mark.parametrize("of_will", [False, True])
def test_a_connect_may_have_fewer_user_properties_than_a_publish(of_will: bool) -> None:
    def connect(count: int) -> bytes:
        many = Properties(user_properties=(("a", "b"),) * count)
        if of_will:
            return encode(packets.Connect("c", will=packets.Will("t", b"", 0, False, many)), 5)
        return encode(packets.Connect("c", properties=many), 5)

    reader = PacketReader()
    with pytest.raises(RemoteProtocolError, match="more than 128 user properties"):
        PacketReader().receive_data(connect(MOST_BEFORE_LOGIN + 1))
    assert len(reader.receive_data(connect(MOST_BEFORE_LOGIN))) == 1
    many = packets.Publish("a", b"", properties=Properties(user_properties=(("a", "b"),) * 1_000))
    assert reader.receive_data(encode(many, 5)) == [many]
