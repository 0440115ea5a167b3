"""What encoding and decoding MQTT costs: microseconds of CPU per message, beside a transfer of AMQP.

    python -m bench mqtt [--seconds S]

Messages of 100 bytes under a topic of 20 come and go in batches of b = 1, 10 and 100, one batch to a read. "QoS 2 in"
is what a server does for a publisher: PUBLISH and PUBREL read, PUBREC and PUBCOMP written; "out" what it does for a
subscriber. The lines of AMQP are the engine's (`bench engine`), which also keeps its state; here are packets only.
The best of several rounds, since other programs run on the same machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench import engine
from mqtt import Connect, PacketReader, Properties, Puback, Pubcomp, Publish, Pubrec, Pubrel, encode

TOTAL = 20_000  # messages in a round
TOPIC = "some/topic/of/twenty"
BODY = b"x" * 100
USER = Properties(user_properties=(("key", "value"), ("other", "thing")), message_expiry_s=60)


def reader(version: int) -> PacketReader:
    found = PacketReader()
    found.receive_data(encode(Connect("c", version), version))
    return found


def ids(batch: int) -> list[range]:
    return [range(1 + start, 1 + start + batch) for start in range(0, TOTAL, batch)]


def publish(version: int, qos: int, packet_id: int, properties: Properties | None = None) -> bytes:
    if properties:
        return encode(Publish(TOPIC, BODY, qos, False, False, packet_id, properties), version)
    return encode(Publish(TOPIC, BODY, qos, False, False, packet_id), version)


def incoming(version: int, qos: int, batch: int, properties: Properties | None = None) -> Callable[[], None]:
    """PUBLISH is read; with QoS 1 PUBACK is written; with QoS 2 PUBREC and PUBCOMP are, and PUBREL is read."""
    rounds = [
        (
            b"".join(publish(version, qos, i if qos else 0, properties) for i in some),
            b"".join(encode(Pubrel(i), version) for i in some) if qos == 2 else b"",
        )
        for some in ids(batch)
    ]
    receive = reader(version).receive_data

    def run() -> None:
        for published, released in rounds:
            found = receive(published)
            if qos == 1:
                b"".join([encode(Puback(packet.packet_id), version) for packet in found if isinstance(packet, Publish)])
            elif qos == 2:
                b"".join([encode(Pubrec(packet.packet_id), version) for packet in found if isinstance(packet, Publish)])
                found = receive(released)
                b"".join([encode(Pubcomp(packet.packet_id), version) for packet in found if isinstance(packet, Pubrel)])

    return run


def outgoing(version: int, qos: int, batch: int) -> Callable[[], None]:
    """PUBLISH is written; with QoS 2 PUBREC and PUBCOMP are read and PUBREL is written."""
    rounds = [
        (
            some,
            b"".join(encode(Pubrec(i), version) for i in some),
            b"".join(encode(Pubcomp(i), version) for i in some),
        )
        for some in ids(batch)
    ]
    receive = reader(version).receive_data

    def run() -> None:
        for some, received, completed in rounds:
            b"".join([publish(version, qos, i if qos else 0) for i in some])
            if qos == 2:
                found = receive(received)
                b"".join([encode(Pubrel(packet.packet_id), version) for packet in found if isinstance(packet, Pubrec)])
                receive(completed)

    return run


def of_engine(subject: str, batch: int) -> Callable[[], None]:
    """A round of `bench engine`, as many messages."""
    run, messages, _ = engine.SUBJECTS[subject](batch)
    assert messages == TOTAL
    return run


SUBJECTS: dict[str, Callable[[int], Callable[[], None]]] = {
    "QoS 0 in": lambda batch: incoming(5, 0, batch),
    "QoS 1 in": lambda batch: incoming(5, 1, batch),
    "QoS 2 in": lambda batch: incoming(5, 2, batch),
    "QoS 2 in, 3.1.1": lambda batch: incoming(4, 2, batch),
    "QoS 2 in, three properties": lambda batch: incoming(5, 2, batch, USER),
    "QoS 0 out": lambda batch: outgoing(5, 0, batch),
    "QoS 2 out": lambda batch: outgoing(5, 2, batch),
    "AMQP: transfers and settlements in": lambda batch: of_engine("transfers and settlements in turn", batch),
    "AMQP: transfers out": lambda batch: of_engine("transfers out, 1 link", batch),
}


def main(argv: Sequence[str] | None = None) -> int:
    def cost(subject: str, batch: int, seconds: float) -> float:
        return engine.best_round(SUBJECTS[subject](batch), TOTAL, seconds)

    return engine.table(argv, __doc__, cost, SUBJECTS)
