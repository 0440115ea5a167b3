"""A server's end of a connection: handshake, keep alive, flow control, topic aliases, and what a client is told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtt import LocalProtocolError, PacketReader, Properties, Reason, encode, packets
from mqtt.connection import CLOSED, CONNECTING, EARLY, OPEN, WAITING, ServerConnection
from mqtt.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.mqtt import strategies


class Client:
    """Speaks to a ServerConnection at a time that tests move."""

    def __init__(self, version: int = 5, **settings: Any) -> None:
        self.now = 100.0
        self.version = version
        self.server = ServerConnection(self.now, **settings)
        self.reader = PacketReader(version=version)

    def says(self, *said: Packet) -> list[Packet]:
        return self.server.receive_data(b"".join(encode(packet, self.version) for packet in said), self.now)

    def hears(self) -> list[Packet]:
        return self.reader.receive_data(self.server.data_to_send())

    def connected(self, **properties: Any) -> Client:
        self.says(Connect("c", self.version, keep_alive_s=10, properties=Properties(**properties)))
        self.server.accept(self.now, False)
        self.hears()
        return self

    def is_told(self, reason: Reason) -> None:
        (packet,) = self.hears()
        assert isinstance(packet, packets.Disconnect)
        assert packet.reason == reason
        assert packet.properties.reason_string
        assert self.server.state == CLOSED


def test_connection_opens_with_connack_and_its_limits() -> None:
    client = Client(receive_maximum=5, topic_alias_maximum=3, max_packet_size=1000)
    assert client.server.state == WAITING
    assert client.says(Connect("c")) == [Connect("c")]
    assert client.server.state == CONNECTING
    assert client.hears() == []
    assert client.server.accept(client.now, True, Properties(assigned_client_id="x")) == []
    limits = Properties(assigned_client_id="x", receive_maximum=5, topic_alias_maximum=3, maximum_packet_size=1000)
    assert client.hears() == [packets.Connack(True, properties=limits)]
    assert client.server.state == OPEN


def test_limits_are_not_said_in_3_1_1() -> None:
    client = Client(4, receive_maximum=5, max_packet_size=1000)
    client.says(Connect("c", 4))
    client.server.accept(client.now, False)
    assert client.hears() == [packets.Connack()]


def test_what_comes_before_connack_waits_for_it() -> None:
    """[MQTT-3.1.4-6]"""
    client = Client()
    assert client.says(Connect("c"), Publish("a")) == [Connect("c")]
    assert client.says(Publish("b")) == []
    assert client.server.accept(client.now, False) == [Publish("a"), Publish("b")]


def test_what_comes_before_a_refusal_is_forgotten() -> None:
    client = Client()
    client.says(Connect("c"), Publish("a"))
    client.server.refuse(Reason.NOT_AUTHORIZED)
    assert client.hears() == [packets.Connack(False, Reason.NOT_AUTHORIZED)]
    assert client.server.state == CLOSED
    assert client.says(Publish("b")) == []


def test_too_much_before_connack_is_refused() -> None:
    client = Client()
    client.says(Connect("c"), *[Publish("a")] * (EARLY + 1))
    assert client.hears() == [packets.Connack(False, Reason.QUOTA_EXCEEDED)]
    with pytest.raises(LocalProtocolError):
        client.server.accept(client.now, False)


@pytest.mark.parametrize("version", [4, 5])
def test_a_fault_before_connack_is_told_in_connack(version: int) -> None:
    client = Client(version)
    assert client.server.receive_data(encode(Connect("c", version), version) + b"\0\0", 100.0)
    assert client.hears() == ([packets.Connack(False, Reason.MALFORMED_PACKET)] if version == 5 else [])
    assert client.server.state == CLOSED


def test_a_fault_in_place_of_connect_closes_silently() -> None:
    client = Client()
    assert client.server.receive_data(b"\xc0\0", 100.0) == []
    assert client.hears() == []
    assert client.server.error
    assert client.server.error.reason == Reason.PROTOCOL_ERROR


def test_a_fault_is_told_in_disconnect_and_what_came_before_it_counts() -> None:
    client = Client().connected()
    assert client.server.receive_data(encode(Publish("a"), 5) + b"\0\0", 100.0) == [Publish("a")]
    client.is_told(Reason.MALFORMED_PACKET)


def test_3_1_1_has_no_disconnect_of_the_server() -> None:
    client = Client(4).connected()
    client.server.close(Reason.SERVER_SHUTTING_DOWN)
    assert client.hears() == []
    assert client.server.state == CLOSED


def test_nothing_counts_after_disconnect() -> None:
    """[MQTT-3.14.4-1]"""
    client = Client().connected()
    assert client.says(packets.Disconnect(), Publish("a")) == [packets.Disconnect()]
    assert client.server.state == CLOSED
    assert client.server.error is None


def test_disconnect_cannot_prolong_a_session_of_no_time() -> None:
    """3.14.2.2.2"""
    late = packets.Disconnect(properties=Properties(session_expiry_s=5))
    client = Client().connected()
    client.says(late)
    client.is_told(Reason.PROTOCOL_ERROR)
    assert Client().connected(session_expiry_s=1).says(late) == [late]


def test_auth_has_the_method_of_connect() -> None:
    client = Client().connected()
    client.says(packets.Auth(Reason.REAUTHENTICATE, Properties(authentication_method="m")))
    client.is_told(Reason.PROTOCOL_ERROR)


def test_silence_for_one_and_a_half_keep_alives_closes() -> None:
    """[MQTT-3.1.2-22]"""
    client = Client().connected()
    client.now = 110.0
    client.says(packets.Pingreq())
    assert client.server.deadline() == 125.0
    client.server.check_time(124.9)
    assert client.server.state == OPEN
    client.server.check_time(125.0)
    client.is_told(Reason.KEEP_ALIVE_TIMEOUT)
    assert client.server.deadline() is None


def test_a_part_of_a_packet_breaks_no_silence() -> None:
    client = Client().connected()
    client.server.receive_data(b"\x30", 114.0)
    assert client.server.deadline() == 115.0


def test_the_servers_keep_alive_replaces_the_clients() -> None:
    """[MQTT-3.1.2-21]"""
    client = Client()
    client.says(Connect("c", keep_alive_s=10))
    client.server.accept(client.now, False, Properties(server_keep_alive_s=4))
    assert client.server.deadline() == 106.0


def test_who_has_waited_for_its_connack_is_not_taken_for_silent() -> None:
    """Its login, or its session, has taken longer than its keep alive."""
    client = Client()
    client.says(Connect("c", keep_alive_s=10))
    client.server.accept(client.now + 60.0, False)
    assert client.server.deadline() == client.now + 75.0


def test_keep_alive_0_is_none() -> None:
    client = Client()
    client.says(Connect("c"))
    client.server.accept(client.now, False)
    assert client.server.deadline() is None


def test_connect_that_does_not_come_closes() -> None:
    server = ServerConnection(1.0, connect_timeout_s=3.0)
    assert server.deadline() == 4.0
    server.check_time(4.0)
    assert server.state == CLOSED
    assert server.data_to_send() == b""


def test_more_than_the_receive_maximum_is_refused() -> None:
    """[MQTT-3.3.4-7]"""
    client = Client(receive_maximum=2).connected()
    assert len(client.says(Publish("a", qos=1, packet_id=1), Publish("a", qos=2, packet_id=2), Publish("a"))) == 3
    assert client.says(Publish("a", qos=1, packet_id=3)) == []
    client.is_told(Reason.RECEIVE_MAXIMUM_EXCEEDED)


@pytest.mark.parametrize(
    ("qos", "answers"),
    [(1, [Puback(1)]), (1, [Puback(1, Reason.QUOTA_EXCEEDED)]), (2, [Pubrec(1, Reason.QUOTA_EXCEEDED)]), (2, [Pubrec(1), Pubcomp(1)])],
)  # fmt: skip
def test_an_acknowledgement_makes_room(qos: int, answers: list[Packet]) -> None:
    client = Client(receive_maximum=1).connected()
    client.says(Publish("a", qos=qos, packet_id=1))
    for answer in answers:
        assert client.server.send(answer)
    assert client.says(Publish("a", qos=1, packet_id=2))
    assert client.server.state == OPEN


def test_pubrec_alone_makes_no_room() -> None:
    client = Client(receive_maximum=1).connected()
    client.says(Publish("a", qos=2, packet_id=1))
    client.server.send(Pubrec(1))
    client.says(Publish("a", qos=2, packet_id=2))
    client.hears()
    assert client.server.state == CLOSED


def test_a_repeat_takes_no_room() -> None:
    client = Client(receive_maximum=1).connected()
    client.says(Publish("a", qos=2, packet_id=1))
    assert client.says(Publish("a", qos=2, dup=True, packet_id=1))


def test_3_1_1_knows_no_receive_maximum() -> None:
    client = Client(4, receive_maximum=1)
    client.says(Connect("c", 4))
    client.server.accept(client.now, False)
    assert len(client.says(*[Publish("a", qos=1, packet_id=i) for i in (1, 2, 3)])) == 3


def test_the_clients_receive_maximum_is_kept() -> None:
    """[MQTT-3.3.4-9]"""
    client = Client().connected(receive_maximum=2)
    client.server.send(Publish("a", qos=1, packet_id=1))
    client.server.send(Publish("a", qos=2, packet_id=2))
    assert not client.server.may_publish
    with pytest.raises(LocalProtocolError):
        client.server.send(Publish("a", qos=1, packet_id=3))
    assert client.server.send(Publish("a"))
    client.says(Puback(1))
    assert client.server.may_publish
    client.says(Pubrec(2))
    client.server.send(Pubrel(2))
    client.server.send(Publish("a", qos=2, packet_id=3))
    assert not client.server.may_publish
    client.says(Pubcomp(2))
    assert client.server.may_publish
    client.says(Pubrec(3, Reason.QUOTA_EXCEEDED))
    client.server.send(Publish("a", qos=1, packet_id=3))


def test_an_identifier_in_use_is_not_used_again() -> None:
    client = Client().connected()
    client.server.send(Publish("a", qos=1, packet_id=1))
    with pytest.raises(LocalProtocolError):
        client.server.send(Publish("b", qos=1, packet_id=1))


@given(st.lists(st.one_of(strategies.from_client(5), st.binary(max_size=5)), max_size=6))
@settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])
def test_whatever_a_client_says_the_connection_is_open_or_says_why_not(said: list[Packet | bytes]) -> None:
    client = Client(receive_maximum=2, topic_alias_maximum=1)
    client.says(Connect("c", properties=Properties(authentication_method="m", session_expiry_s=1)))
    client.server.accept(client.now, False)
    events: list[Packet] = []
    for one in said:
        octets = one if isinstance(one, bytes) else encode(one, 5)
        events += client.server.receive_data(octets, client.now)
    client.hears()  # our own packets can be read
    left = bool(events) and isinstance(events[-1], packets.Disconnect)
    assert client.server.state == (CLOSED if left or client.server.error else OPEN)


@pytest.mark.parametrize(("qos", "answer"), [(1, Pubrec(1)), (1, Pubcomp(1)), (2, Puback(1)), (2, Pubcomp(1))])
def test_an_acknowledgement_out_of_turn_is_refused(qos: int, answer: Packet) -> None:
    client = Client().connected()
    client.server.send(Publish("a", qos=qos, packet_id=1))
    client.hears()
    client.says(answer)
    client.is_told(Reason.PROTOCOL_ERROR)


def test_an_alias_stands_for_its_name_until_it_is_set_again() -> None:
    client = Client(topic_alias_maximum=2).connected()
    alias = Properties(topic_alias=2)
    said = [Publish("a", properties=alias), Publish("", properties=alias), Publish("b", properties=alias)]
    assert client.says(*said, Publish("", b"x", properties=alias)) == [
        Publish("a"), Publish("a"), Publish("b"), Publish("b", b"x"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("alias", "reason"), [(3, Reason.TOPIC_ALIAS_INVALID), (1, Reason.PROTOCOL_ERROR)], ids=["beyond", "never set"]
)
def test_a_bad_alias_is_refused(alias: int, reason: Reason) -> None:
    """[MQTT-3.3.2-9], 3.3.2.3.4"""
    client = Client(topic_alias_maximum=2).connected()
    client.says(Publish("", properties=Properties(topic_alias=alias)))
    client.is_told(reason)


def test_a_packet_larger_than_the_client_takes_is_not_sent() -> None:
    """[MQTT-3.1.2-24]"""
    client = Client().connected(maximum_packet_size=20)
    assert not client.server.send(Publish("a", b"x" * 20, qos=1, packet_id=1))
    assert client.hears() == []
    assert client.server.send(Publish("a", qos=1, packet_id=1))  # the identifier was not used


def test_a_reason_string_that_is_too_long_is_left_out() -> None:
    client = Client().connected(maximum_packet_size=20)
    long = Properties(reason_string="x" * 20)
    assert client.server.send(Puback(1, Reason.QUOTA_EXCEEDED, long))
    assert client.hears() == [Puback(1, Reason.QUOTA_EXCEEDED)]
    client.server.close(Reason.SERVER_SHUTTING_DOWN, long)
    assert client.hears() == [packets.Disconnect(Reason.SERVER_SHUTTING_DOWN)]


def test_a_client_that_wants_no_reason_strings_gets_none() -> None:
    """[MQTT-3.1.2-29]"""
    client = Client().connected(request_problem_information=0)
    both = Properties(reason_string="why", user_properties=(("a", "b"),))
    client.server.send(packets.Suback(1, [Reason.NOT_AUTHORIZED], both))
    client.server.send(Publish("t", properties=Properties(user_properties=(("a", "b"),))))
    heard = client.hears()
    assert heard == [
        packets.Suback(1, [Reason.NOT_AUTHORIZED]), Publish("t", properties=Properties(user_properties=(("a", "b"),))),
    ]  # fmt: skip


@pytest.mark.parametrize("packet", [Connect("c"), packets.Connack(), packets.Disconnect()])
def test_what_has_its_own_method_is_not_sent(packet: Packet) -> None:
    with pytest.raises(LocalProtocolError):
        Client().connected().server.send(packet)


def test_nothing_is_sent_before_connack_or_after_the_end() -> None:
    client = Client()
    client.says(Connect("c"))
    with pytest.raises(LocalProtocolError):
        client.server.send(Publish("a"))
    client.server.accept(client.now, False)
    client.server.close()
    with pytest.raises(LocalProtocolError):
        client.server.send(Publish("a"))


def test_a_refusal_has_a_reason() -> None:
    client = Client()
    client.says(Connect("c"))
    with pytest.raises(LocalProtocolError):
        client.server.refuse(Reason.SUCCESS)


def test_identifier_of_a_pubrec_of_nothing_is_free() -> None:
    client = Client().connected()
    assert client.says(Pubrec(1)) == [Pubrec(1)]
    client.server.send(Pubrel(1, Reason.PACKET_IDENTIFIER_NOT_FOUND))
    client.server.send(Publish("a", b"x", 1, packet_id=1))
    assert client.says(Pubcomp(1)) == [Pubcomp(1)]  # it is of that PUBREL
    assert client.says(Puback(1)) == [Puback(1)]
    assert client.server.state == OPEN


def test_identifier_of_a_pubrec_of_nothing_is_free_again_when_its_message_is_released_by_the_pubcomp_of_that() -> None:
    client = Client().connected()
    client.says(Pubrec(1))
    client.server.send(Pubrel(1, Reason.PACKET_IDENTIFIER_NOT_FOUND))
    for _ in range(2):
        client.server.send(Publish("a", b"x", 2, packet_id=1))
        client.says(Pubrec(1))
        client.server.acknowledge(Pubrel, 1)
        assert client.says(Pubcomp(1)) == [Pubcomp(1)]
    assert client.says(Pubcomp(1)) == [Pubcomp(1)]
    assert client.server.state == OPEN
