"""What is written is read again, in pieces of any size; no octets bring anything but packets and the peer's faults."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtt import MqttError, PacketReader, RemoteProtocolError, encode, packets
from tests.mqtt import strategies

OCTETS = settings(max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=[*HealthCheck])
PACKETS = settings(OCTETS, max_examples=15)  # drawing them takes long


def server_reader(version: int) -> PacketReader:
    reader = PacketReader()
    reader.receive_data(encode(packets.Connect("c", version), version))
    return reader


@pytest.mark.parametrize("version", [4, 5])
@given(data=st.data())
@PACKETS
def test_what_a_client_writes_a_server_reads(version: int, data: st.DataObject) -> None:
    said: list[packets.Packet] = [data.draw(strategies.connects(version))]
    said += data.draw(st.lists(strategies.from_client(version), max_size=4))
    octets = b"".join(encode(packet, version) for packet in said)
    assert PacketReader().receive_data(octets) == said
    cuts = sorted(data.draw(st.lists(st.integers(0, len(octets)), max_size=4)))
    reader = PacketReader()
    pieces = [octets[a:b] for a, b in zip([0, *cuts], [*cuts, len(octets)], strict=True)]
    assert [packet for piece in pieces for packet in reader.receive_data(piece)] == said


@pytest.mark.parametrize("version", [4, 5])
@given(data=st.data())
@PACKETS
def test_what_a_server_writes_a_client_reads(version: int, data: st.DataObject) -> None:
    said = data.draw(st.lists(strategies.from_server(version), min_size=1, max_size=5))
    octets = b"".join(encode(packet, version) for packet in said)
    assert PacketReader(version=version).receive_data(octets) == said
    reader = PacketReader(version=version)
    assert [packet for octet in octets for packet in reader.receive_data(bytes((octet,)))] == said


@pytest.mark.parametrize("client", [True, False])
@pytest.mark.parametrize("version", [4, 5])
@given(data=st.data())
@PACKETS
def test_changed_octets_are_packets_or_the_peers_fault(version: int, client: bool, data: st.DataObject) -> None:
    one = strategies.from_client(version) if client else strategies.from_server(version)
    octets = bytearray(b"".join(encode(packet, version) for packet in data.draw(st.lists(one, min_size=1, max_size=3))))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(octets)))
        octets[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    reader = server_reader(version) if client else PacketReader(version=version)
    check(reader, bytes(octets), version, client)


@pytest.mark.parametrize("client", [True, False])
@pytest.mark.parametrize("version", [4, 5])
@given(octets=st.binary(max_size=60))
@OCTETS
def test_any_octets_are_packets_or_the_peers_fault(version: int, client: bool, octets: bytes) -> None:
    check(server_reader(version) if client else PacketReader(version=version), octets, version, client)


@given(octets=st.binary(max_size=60))
@OCTETS
def test_any_octets_in_place_of_connect_are_packets_or_the_peers_fault(octets: bytes) -> None:
    head = b"\x10" + bytes((len(octets) + 6,)) + b"\0\x04MQTT"
    for data in (octets, head + octets):
        reader = PacketReader()
        check(reader, data, reader.version or 5, True)


def check(reader: PacketReader, octets: bytes, version: int, client: bool) -> None:
    """What is read can be written, and is the same when it is read again."""
    try:
        found = reader.receive_data(octets)
    except RemoteProtocolError:
        found = reader.before_fault
    for packet in found:
        assert type(packet) is not packets.Acknowledgement
        if isinstance(packet, packets.Connect):
            assert PacketReader().receive_data(encode(packet, 5)) == [packet]
            version = packet.version
            continue
        again = server_reader(version) if client else PacketReader(version=version)
        try:
            octets = encode(packet, version)
        except MqttError as error:
            raise AssertionError(f"{packet} was read, and cannot be written") from error
        assert again.receive_data(octets) == [packet]
