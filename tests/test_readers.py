"""Everything that is accepted can be read by every reader: one corpus goes through every pair of writer and reader.

A writer makes payloads of what clients may say; `clients` are the odd messages that any client may send. A reader gets
whatever any writer makes. It decodes it, or hands it over raw, or rejects it with a reason; it never raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from amqp10.annotations import with_message_annotations, with_true_annotation
from amqp10.encoder import encode_value
from amqp10.errors import DecodeError
from amqp10.sections import AmqpValue, Message, with_failures
from amqp10.types import Raw
from edges.bus.rules import BadRequest, event, is_event, read_event, text_of
from edges.caches.live import read as read_samples
from edges.metadata.exchange import LocalPublishers
from edges.metadata.exchange import read as read_metadata
from edges.pipe.log import PipeLog, State
from edges.pipe.messages import decode_entry, encode_entry, with_position
from edges.pipe.reader import Received
from edges.pipe.serve import StoredPipe
from edges.queue.codec import plain
from edges.queue.codec import read as read_members
from edges.queue.messages import Element, ElementId
from edges.reading import read_or_reject
from mqtt import NO_PROPERTIES, Properties, Publish, encode
from onceway.base.logs import logger
from onceway.cli.subscribe import shown
from onceway.client.bodies import encode_body, with_format, without_format
from onceway.client.delivery import Batch, Delivery
from onceway.client.protocol.events import Arrived
from router.core.ports import Refusal
from router.links.expiry import with_expiry
from router.mqtt.conversion import to_message, to_publish
from router.mqtt.retained import end, question
from router.mqtt.retained import read as read_retained
from router.names import PUBLISHER_ANNOTATION
from tests.odd_messages import odd_messages

Payload = tuple[bytes, int]
"""And its message-format."""
NAMED = encode_value("somebody/link")
NOBODY: Any = None


# -- writers


def clients() -> Iterable[Payload]:
    """What routers pass on of what clients send: with the publisher's name, and without what is no message to them."""
    for _, payload, message_format in odd_messages():
        try:
            if message_format:
                yield with_true_annotation(payload, PUBLISHER_ANNOTATION, NAMED), message_format
            else:
                yield with_message_annotations([payload], PUBLISHER_ANNOTATION, NAMED)[0], 0
        except DecodeError:  # the publisher is detached
            continue


def publishers() -> Iterable[Payload]:
    """The client library, of whatever it is given, and of what it has read."""
    for body in (b"", b"x" * 300, "", "\0", "\U0010ffff" * 300, Message({1: ["a"], "\0": float("nan")}), Message()):
        yield encode_body(body), 0
    for name, payload, message_format in odd_messages():
        if name.startswith(("amqp-value", "format")):
            yield encode_body(Message.read(payload, message_format)), 0


def mqtt() -> Iterable[Payload]:
    """Routers, of what clients of MQTT publish."""
    texts = ["", "a", "\ufeff", "e\u0301", "x-opt-mqtt-qos", "\U0010ffff", "x" * 65_535]
    pairs = [(), (("", ""),), (("a", "1"), ("a", "2")), tuple((text, text) for text in texts)]
    for pair in pairs:
        for text in texts:
            properties = Properties(
                payload_format=1, message_expiry_s=0xFFFFFFFF, content_type=text, response_topic=text[:9] or None,
                correlation_data=text.encode()[:65_535], user_properties=pair,
            )  # fmt: skip
            for qos in (0, 1, 2):
                publish = Publish("a/b", text.encode(), qos, retain=qos == 1, properties=properties)
                yield to_message(publish, "somebody/link", 1 << 40, stamp=(1, "r") if qos else None), 0
    yield question("who"), 0
    yield end("who", "store"), 0


def pushes() -> Iterable[Payload]:
    """The bus, of what is pushed to it."""
    for data in (None, "", "\0", "\u20ac" * 9000, 1 << 300, 1.5e300, [[]], {"": None}, {"data": [{}] * 5000}):
        yield (
            encode_body(event("orders", {"type": "noop", "url": "https://x/\xfc", "timestamp": 1, "data": data}, 0)),
            0,
        )


def edges() -> Iterable[Payload]:
    """Edges, of what they say to each other."""
    own = LocalPublishers("edge", 1, lambda: 1)
    for value in (None, b"", "\0", 1 << 62, float("inf"), [[[]]], {1: 2}, msgpack.ExtType(5, b"x")):
        changes = {"key": value} if isinstance(value, str | int | float) else {}
        own.publish({}, "11111111-1111-1111-1111-111111111111", changes, msgpack.packb(value))
        yield encode_body(Message(AmqpValue(["sample", "writer", 1, 0, "key", attempt(value)]))), 0
        yield encode_body(Message(AmqpValue(["member", plain(Element(ElementId("member", 1, 1), b"x"))]))), 0
    out = own.message(0.0)
    yield encode_body(out.body), 0


def attempt(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bytes | list | dict | None) else repr(value)


def spark() -> Iterable[Payload]:
    """Spark's sink, of the rows of a DataFrame."""
    pa = pytest.importorskip("pyarrow")
    from onceway.spark.columns.encoding import payloads

    texts = ["", None, "\0", "\U0010ffff" * 300]
    rows = {
        "key": pa.array(texts), "value": pa.array([b"", None, b"\xff" * 9, b"x" * 300]), "subject": pa.array(texts),
        "content_type": pa.array(["", None, "a", "a" * 300]), "message_id": pa.array(texts),
        "headers": pa.array([[], None, [("", None)], [("a", "\0"), ("x-opt-onceway-publisher", "b")]], pa.map_(pa.string(), pa.string())),
    }  # fmt: skip
    for payload in payloads(pa.RecordBatch.from_pydict(rows)).to_pylist():
        yield payload, 0


# -- readers: what came of a payload, decoded or raw; or None, it was rejected


def batch_of(payload: bytes, message_format: int) -> Batch:
    batch = Batch(NOBODY)
    batch._add(Arrived(0, [b"tag"], [payload], False, message_format), 0, 1)
    return batch


def client(payload: bytes, message_format: int) -> object:
    batch = batch_of(payload, message_format)
    delivery = Delivery(NOBODY, 0, b"tag", payload, message_format, False)
    body, message = delivery.body, delivery.message
    assert repr(body) == repr(batch.bodies[0]) == repr(batch[0].body)
    assert repr(message) == repr(batch.messages[0])
    assert delivery.publisher in (("somebody", "link"), None)
    assert (delivery.raw is not None) == isinstance(body, Raw)
    if message.raw is None:
        assert repr(body) == repr(message.value)
    else:
        assert message.value == payload
        assert Message.decode(message.encode()).value == payload  # it can be passed on
        assert body == payload or delivery.raw is None  # the body alone may be readable
    return body


def subscribe(payload: bytes, message_format: int) -> object:
    lines = shown("test", batch_of(payload, message_format).bodies)
    assert lines.endswith("\n")
    assert lines.count("\n") == 1
    return lines


def pipe(payload: bytes, message_format: int) -> object:
    log = PipeLog(NOBODY, "jobs", State(), logger("pipe"))
    store: Any = SimpleNamespace(_log=log)
    entries, refused = StoredPipe._entries(store, batch_of(payload, message_format), None)
    if not entries:
        ((_, error),) = refused
        assert error.description
        return None
    (entry,) = entries
    assert decode_entry(encode_entry(1, 0, entry)) == (1, 0, entry)
    received = Received(0, *without_format(entry.record))
    assert received.message_format == message_format
    assert received.control is None
    assert received.raw is None or received.message.raw == received.raw
    return received.body


def as_an_edge(read: Callable[[Any], object]) -> Callable[[bytes, int], object]:
    """A reader that takes one delivery after the other."""

    def reader(payload: bytes, message_format: int) -> object:
        delivery = Refused(NOBODY, 0, b"tag", payload, message_format, False)
        found = read_or_reject(delivery, read)
        assert (found is None) == bool(delivery.reasons)
        return found

    return reader


class Refused(Delivery):
    """Remembers why it was rejected."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reasons: list[str] = []

    def reject(self, condition: str = "", description: str | None = None) -> Any:
        assert description
        self.reasons.append(description)


def bus(payload: bytes, message_format: int) -> object:
    (body,) = batch_of(payload, message_format).bodies
    if not is_event(body):
        with pytest.raises(BadRequest, match=r"."):
            read_event(body)
        return None
    topic, text = read_event(body)
    assert json.loads(text, parse_constant=NOBODY)["topic"] == topic
    assert text_of(body) == text  # what is kept is sent
    return topic


def to_mqtt(payload: bytes, message_format: int) -> object:
    found = to_publish(payload, message_format, "a/b")
    if isinstance(found, Refusal):
        assert found.description
        return None
    publish = found.publish
    assert encode(replace(publish, properties=NO_PROPERTIES), 4)
    assert encode(publish, 5)
    return publish


def retained(payload: bytes, message_format: int) -> object:
    return None if message_format else read_retained(payload)


def spark_source(payload: bytes, message_format: int) -> object:
    pytest.importorskip("pyarrow")
    from onceway.spark.columns.fields import read

    fields = read(with_format(payload, message_format))
    assert fields.raw is None or fields.value == payload
    return fields


WRITERS: dict[str, Callable[[], Iterable[Payload]]] = {
    each.__name__: each for each in (clients, publishers, mqtt, pushes, edges, spark)
}
READERS: dict[str, Callable[[bytes, int], object]] = {
    "onceway.client": client,
    "onceway.cli.subscribe": subscribe,
    "edges.pipe": pipe,
    "edges.bus": bus,
    "edges.metadata": as_an_edge(read_metadata),
    "edges.caches": as_an_edge(read_samples),
    "edges.queue": as_an_edge(read_members),
    "edges.retained": retained,
    "router.mqtt": to_mqtt,
    "onceway.spark": spark_source,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_reader_reads_what_every_writer_writes(writer: str, reader: str) -> None:
    read = READERS[reader]
    for payload, message_format in WRITERS[writer]():
        try:
            read(payload, message_format)
        except Exception as error:
            raise AssertionError(f"{payload!r} of message-format {message_format}") from error


ADDED: dict[str, Callable[[bytes], bytes]] = {
    "the publisher": lambda payload: with_message_annotations([payload], PUBLISHER_ANNOTATION, NAMED)[0],
    "a position": lambda payload: with_position(payload, 7),
    "a time": lambda payload: with_expiry([payload], 1 << 40)[0],
    "failures": lambda payload: with_failures(payload, 3),
}


@pytest.mark.parametrize("what", ADDED)
def test_what_is_added_to_a_message_leaves_it_readable(what: str) -> None:
    add = ADDED[what]
    for name, payload, message_format in odd_messages():
        before = Message.read(payload, message_format)
        if before.raw is None:
            twice = Message.read(add(add(payload)))
            assert twice.raw is None, name
            assert repr(twice.value) == repr(before.value), name


def test_spark_reads_all_at_once_as_it_reads_each() -> None:
    pa = pytest.importorskip("pyarrow")
    from onceway.spark.columns import decode
    from onceway.spark.columns.fields import read

    kept = [with_format(*each) for writer in WRITERS.values() for each in writer()]
    tags, received = pa.array([b"tag"] * len(kept), pa.binary()), pa.array([1] * len(kept), pa.int64())
    rows = decode(pa.array(kept, pa.binary()), tags, received, topic="t", partition=0, first=0)
    for name in ("value", "raw", "key", "message_id"):
        assert rows.column(name).to_pylist() == [getattr(read(each), name) for each in kept]


def test_whoever_subscribes_is_in_the_table_of_readers() -> None:
    """Programs of ours that read what others have sent."""
    sources = [path for package in ("onceway", "edges") for path in Path(package).rglob("*.py")]
    found = {str(path.with_suffix("")).replace("/", ".") for path in sources if SUBSCRIBES.search(path.read_text())}
    readers = {name for name in found if any(name.startswith(reader) for reader in READERS)}
    assert found - readers == set(TRUSTING)


def test_what_others_have_sent_is_read_with_what_never_raises() -> None:
    """`Message.read`, not `Message.decode`, but for the columns of Spark: `fields.read` makes a raw row of its errors."""
    sources = [path for package in ("onceway", "edges") for path in Path(package).rglob("*.py")]
    assert [str(path) for path in sources if "Message.decode(" in path.read_text()] == [
        "onceway/spark/columns/fields.py"
    ]


SUBSCRIBES = re.compile(r"\.subscriber\(")
TRUSTING = {
    "onceway.sync": "it hands over what the client has read",
    "onceway.demo.applications": "it has its network for itself",
    "edges.store.journal": "it keeps payloads as they came",
}
