"""Spans of the client, and the trace context of its messages, through a router."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from cloudevents.core.v1.event import CloudEvent
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as MqttProperties

import onceway
from amqp10.sections import Message, Properties
from amqp10.types import ULong
from onceway.client.bodies import encode_body
from onceway.client.database_journal import TABLE
from onceway.client.signals import Changes
from onceway.client.tracing import SCHEMA, Tracing, _in_payload, tracing_of
from onceway.cloudevents import event_of, event_of_mqtt, message_of
from router.names import GUARANTEES
from tests.live import LiveNetwork

BOUND_S = 60.0
TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE_ID}-{SPAN_ID}-01"


class Spans(SpanProcessor):
    """What one program exports."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.provider.add_span_processor(self)
        self.changes = Changes()
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def on_end(self, span: ReadableSpan) -> None:
        self.changes.notify()

    async def ended(self, name: str) -> None:
        assert await self.changes.until(lambda: self.named(name), BOUND_S)


def traceparent(span: ReadableSpan) -> str:
    context = span.get_span_context()
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"


def place(context: trace.SpanContext | None) -> tuple[int, int] | None:
    return None if context is None else (context.trace_id, context.span_id)


def links(span: ReadableSpan) -> list[tuple[int, int] | None]:
    return [place(link.context) for link in span.links]


def properties_of(delivery: onceway.Delivery) -> dict[Any, Any]:
    return dict(delivery.message.application_properties or {})


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveNetwork, int]]:
    with LiveNetwork(tmp_path_factory.mktemp("tracing"), ["a"]) as network:
        ports = network.serve_mqtt(topics={"mqtt": "mqtt"})
        network.start()
        yield network, ports["a"]


@pytest.fixture
def url(network: tuple[LiveNetwork, int]) -> str:
    return network[0].urls()


async def test_a_message_has_spans_from_put_to_settlement(url: str) -> None:
    ours, theirs = Spans(), Spans()
    async with (
        onceway.connect(url, container="shop", tracing=theirs.provider) as consumer,
        onceway.connect(url, container="till", tracing=ours.provider) as producer,
    ):
        subscriber = await consumer.subscriber("orders", name="billing")
        publisher = await producer.publisher("orders")
        with ours.tracer.start_as_current_span("checkout"):
            message = Message(b"1", properties=Properties(message_id="m1", correlation_id="c1"))
            publication = await publisher.put(message)
        assert message.application_properties is None, "the application's message is its own"
        delivery = await subscriber.receive()
        with delivery.process():
            with theirs.tracer.start_as_current_span("work"):
                pass
            await delivery.accept()
        await publication
        await theirs.ended("settle orders")
    send, checkout = ours.one("send orders"), ours.one("checkout")
    receive, process = theirs.one("receive orders"), theirs.one("process orders")
    settle, work = theirs.one("settle orders"), theirs.one("work")
    assert properties_of(delivery) == {"traceparent": traceparent(send)}
    sent = place(send.get_span_context())
    assert [span.kind for span in (send, receive, process, settle)] == [
        SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CONSUMER, SpanKind.CLIENT
    ]  # fmt: skip
    assert place(send.parent) == place(checkout.get_span_context())
    assert send.links == ()
    assert (receive.parent, links(receive)) == (None, [sent])
    assert (place(process.parent), links(process)) == (sent, [sent])
    assert place(work.parent) == place(process.get_span_context())
    assert (place(settle.parent), links(settle)) == (place(process.get_span_context()), [sent])
    host, port = url.removeprefix("amqp://").split(":")
    common = {
        "messaging.system": "onceway",
        "messaging.destination.name": "orders",
        "messaging.message.id": "m1",
        "messaging.message.conversation_id": "c1",
        "server.address": host,
        "server.port": int(port),
    }
    operation = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert dict(send.attributes or {}) == {**common, **operation, "messaging.client.id": "till"}
    for span, name in ((receive, "receive"), (process, "process")):
        assert dict(span.attributes or {}) == {
            **common,
            "messaging.operation.name": name,
            "messaging.operation.type": name,
            "messaging.client.id": "shop",
            "messaging.destination.subscription.name": "billing",
        }
    assert (settle.attributes or {})["messaging.onceway.outcome"] == "accepted"
    assert all(span.status.status_code is StatusCode.UNSET for span in (send, receive, process, settle))
    assert send.instrumentation_scope is not None
    assert send.instrumentation_scope.schema_url == SCHEMA


async def test_a_receive_span_is_as_long_as_the_application_has_waited(url: str) -> None:
    spans = Spans()
    async with onceway.connect(url, tracing=spans.provider) as connection:
        subscriber = await connection.subscriber("waited")
        publisher = await connection.publisher("waited")
        waiting = asyncio.create_task(subscriber.receive())
        await asyncio.sleep(0)  # it waits now
        publication = await publisher.put(b"1")
        await (await waiting).accept()
        await publication
        cancelled = asyncio.create_task(subscriber.receive())
        await asyncio.sleep(0)
        cancelled.cancel()
    receive, send = spans.one("receive waited"), spans.one("send waited")
    assert receive.start_time is not None
    assert receive.end_time is not None
    assert send.start_time is not None
    assert receive.start_time <= send.start_time <= receive.end_time


async def test_batches_have_one_span_with_links(url: str) -> None:
    ours, theirs = Spans(), Spans()
    async with (
        onceway.connect(url, tracing=theirs.provider) as consumer,
        onceway.connect(url, tracing=ours.provider) as producer,
    ):
        subscriber = await consumer.subscriber("many")
        publisher = await producer.publisher("many")
        own = Message("own", application_properties={"traceparent": GIVEN})
        publications = await publisher.put_many([b"0", own, "2"])
        got = 0
        async for batch in subscriber.batches(max_wait=BOUND_S, max_messages=3):
            with batch.process():
                await batch.accept()
            got += len(batch)
            if got == 3:
                break
        await publications
        await theirs.ended("settle many")
    send, given = ours.one("send many"), (int(TRACE_ID, 16), int(SPAN_ID, 16))
    sent = place(send.get_span_context())
    assert send.kind is SpanKind.PRODUCER
    assert links(send) == [given]
    for name in ("receive", "process", "settle"):
        span = theirs.one(f"{name} many")
        assert links(span) == [sent, given, sent]
        assert (span.attributes or {})["messaging.batch.message_count"] == 3
    assert theirs.one("process many").parent is None
    assert (send.attributes or {})["messaging.batch.message_count"] == 3


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_each_guarantee_has_its_spans(url: str, guarantee: str) -> None:
    spans = Spans()
    async with onceway.connect(url, tracing=spans.provider) as connection:
        subscriber = await connection.subscriber(guarantee, guarantee=guarantee)
        publisher = await connection.publisher(guarantee, guarantee=guarantee)
        publication = await publisher.put(b"1")
        delivery = await subscriber.receive()
        with delivery.process():
            await delivery.accept()
        await publication
        if guarantee != "at-most-once":
            await spans.ended(f"settle {guarantee}")
    names = ["send", "receive", "process"] if guarantee == "at-most-once" else ["send", "receive", "process", "settle"]
    assert sorted(span.name for span in spans.exporter.get_finished_spans()) == sorted(
        f"{name} {guarantee}" for name in names
    )


async def test_what_is_rejected_is_an_error_of_send(url: str) -> None:
    spans = Spans()
    async with onceway.connect(url, tracing=spans.provider) as connection:
        subscriber = await connection.subscriber("bad")
        publisher = await connection.publisher("bad")
        publication = await publisher.put("x")
        delivery = await subscriber.receive()
        with pytest.raises(ValueError), delivery.process():
            raise ValueError("unreadable")
        await delivery.reject()
        with pytest.raises(onceway.DeliveryRejected):
            await publication
        await spans.ended("settle bad")
    send, process = spans.one("send bad"), spans.one("process bad")
    assert (send.attributes or {})["error.type"] == "onceway.errors.DeliveryRejected"
    assert (process.attributes or {})["error.type"] == "ValueError"
    assert send.status.status_code is process.status.status_code is StatusCode.ERROR
    assert [event.name for event in process.events] == ["exception"]
    assert (spans.one("settle bad").attributes or {})["messaging.onceway.outcome"] == "rejected"


async def test_a_put_that_is_not_made_is_an_error_of_send(url: str) -> None:
    spans = Spans()
    async with onceway.connect(url, tracing=spans.provider) as connection:
        publisher = await connection.publisher("nobody")
        with pytest.raises(onceway.PublisherFull):
            publisher.put_nowait(b"1")
        with pytest.raises(onceway.SendTimeout):
            await publisher.send(b"1", timeout_s=0.05)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await publisher.put_many([b"1", b"2"])
    assert [(span.attributes or {})["error.type"] for span in spans.named("send nobody")] == [
        "asyncio.exceptions.CancelledError"
    ] * 2


@pytest.mark.parametrize(
    "own", [GIVEN, f"00-{TRACE_ID}-{SPAN_ID}-00", "nonsense", 7, None], ids=["valid", "unsampled", "bad", "int", "null"]
)
async def test_a_message_with_a_traceparent_keeps_it(url: str, own: object) -> None:
    spans = Spans()
    message = Message(b"1", application_properties={"traceparent": own, "tracestate": "a=b", "more": 1})
    async with onceway.connect(url, tracing=spans.provider) as connection:
        subscriber = await connection.subscriber("kept")
        publisher = await connection.publisher("kept")
        publication = await publisher.put(message)
        delivery = await subscriber.receive()
        with delivery.process():
            await delivery.accept()
        await publication
    assert properties_of(delivery) == message.application_properties
    send = spans.one("send kept")
    valid = isinstance(own, str) and own.startswith("00")
    assert (send.kind, links(send)) == (SpanKind.CLIENT, [(int(TRACE_ID, 16), int(SPAN_ID, 16))] if valid else [])
    if own == GIVEN:
        assert send.links[0].context.trace_state.to_header() == "a=b"
    process = spans.named("process kept")
    if valid and own != GIVEN:
        assert process == [], "whose parent is not sampled is not"
    else:
        assert place(process[0].parent) == ((int(TRACE_ID, 16), int(SPAN_ID, 16)) if valid else None)


async def test_a_context_that_is_not_sampled_goes_on(url: str) -> None:
    spans = Spans()
    unsampled = trace.NonRecordingSpan(
        trace.SpanContext(
            int(TRACE_ID, 16), int(SPAN_ID, 16), True, trace.TraceFlags(0), trace.TraceState([("a", "b")])
        )
    )
    async with onceway.connect(url, tracing=spans.provider) as connection:
        subscriber = await connection.subscriber("unsampled")
        publisher = await connection.publisher("unsampled")
        with trace.use_span(unsampled):
            publication = await publisher.put(b"1")
        delivery = await subscriber.receive()
        with delivery.process():
            assert trace.get_current_span().get_span_context().trace_id == int(TRACE_ID, 16)
        await delivery.accept()
        await publication
    named = properties_of(delivery)
    assert named["traceparent"].startswith(f"00-{TRACE_ID}-")
    assert named["traceparent"].endswith("-00")
    assert named["tracestate"] == "a=b"
    assert spans.named("send unsampled") == spans.named("process unsampled") == []


async def test_without_tracing_nothing_is_added(url: str) -> None:
    assert tracing_of(False) is None
    global_one = tracing_of(True)
    assert global_one is not None
    assert global_one.publisher("x", lambda: None) is None, "nobody has configured a global provider"
    for tracing in (False, True):
        async with onceway.connect(url, tracing=tracing) as connection:
            subscriber = await connection.subscriber("plain")
            publisher = await connection.publisher("plain")
            publication = await publisher.put(b"1")
            delivery = await subscriber.receive()
            with delivery.process():
                await delivery.accept()
            await publication
            assert delivery.message.application_properties is None


def test_without_the_package_there_are_no_spans() -> None:
    program = (
        "import sys\nsys.modules['opentelemetry'] = None\n"
        "import onceway\nfrom onceway.client.tracing import tracing_of\n"
        "assert tracing_of(True) is None\n"
        "connection = onceway.connect('amqp://127.0.0.1')\nassert connection._driver.tracing is None\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=BOUND_S)


@pytest.mark.parametrize(
    "value",
    [
        "", "x", GIVEN.upper(), GIVEN[:-1], GIVEN + "-", "ff" + GIVEN[2:], f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01", "\u00fc" * 55, "0" * 100_000, GIVEN + "\n\n", b"\x00" * 29, 7, None, True, [GIVEN],
        {"a": GIVEN},
    ],
)  # fmt: skip
def test_what_is_no_context_is_none(value: object) -> None:
    found = _in_payload(Message(b"", application_properties={"traceparent": value, "tracestate": "a=b"}).encode())
    assert (found.context, found.named) == (None, True)


@pytest.mark.parametrize(
    "value", ["", "=", "a", ",,,", "a=b,a=c", "x" * 100_000, "\u00fc=1", ",".join(["a=b"] * 99), 7, b"a=b"]
)
def test_a_tracestate_that_is_none_leaves_the_context(value: object) -> None:
    found = _in_payload(Message(b"", application_properties={"traceparent": GIVEN, "tracestate": value}).encode())
    assert place(found.context) == (int(TRACE_ID, 16), int(SPAN_ID, 16))
    assert found.context is not None
    assert not found.context.trace_state


@pytest.mark.parametrize(
    "payload", [b"", b"\x00", b"\x00\x53\x74", b"\x00\x53\x74\xc1\xff\x02", b"\x00\x53\x74\x40", b"ab"]
)
def test_what_cannot_be_decoded_has_no_context(payload: bytes) -> None:
    assert _in_payload(payload).context is None


def test_ids_of_strangers_are_short_texts() -> None:
    for value, text in ((b"\x01\xff", "01ff"), ("x" * 1000, "x" * 256), (ULong(7), "7"), (None, None)):
        found = _in_payload(Message(b"", properties=Properties(message_id=value)).encode())
        assert found.ids.get("messaging.message.id") == text


def test_what_has_no_room_and_what_is_signed_is_sent_as_it_is() -> None:
    spans = Spans()
    payload = encode_body(b"x" * 100)
    publisher = Tracing(spans.provider).publisher("tight", lambda: len(payload) + 10)
    assert publisher is not None
    assert publisher.send(b"x" * 100, payload).payloads == [payload]
    assert publisher.send(b"x", encode_body(b"x")).payloads != [encode_body(b"x")]
    signed = Message(b"x", footer={"digest": b"1"})
    assert publisher.send(signed, signed.encode()).payloads == [signed.encode()]


def test_addresses_of_reply_nodes_are_in_no_name() -> None:
    spans = Spans()
    publisher = Tracing(spans.provider).publisher("_dynamic/a/1", lambda: None)
    assert publisher is not None
    publisher.send(b"x", encode_body(b"x")).took(0)
    publisher.finish(0, 0)
    attributes = spans.one("send").attributes or {}
    assert attributes["messaging.destination.temporary"] is True
    assert attributes["messaging.destination.name"] == "_dynamic/a/1"


async def test_what_another_process_sends_again_has_the_context_of_the_first(url: str, tmp_path: Path) -> None:
    first, second, theirs = Spans(), Spans(), Spans()
    journal = tmp_path / "journal"
    async with onceway.connect(url) as consumer:
        subscriber = await consumer.subscriber("again")
        connection = await onceway.connect(url, journal=journal, container="again", tracing=first.provider)
        publisher = await connection.publisher("again")
        await publisher.put(b"1")
        seen = properties_of(await subscriber.receive())
        (left,) = await connection.close(timeout_s=0.0)
        await subscriber.close()
    send = first.one("send again")
    assert seen == {"traceparent": traceparent(send)}
    async with (
        onceway.connect(url, tracing=theirs.provider) as consumer,
        onceway.connect(url, journal=journal, tracing=second.provider) as connection,
    ):
        subscriber = await consumer.subscriber("again")
        publisher = await connection.publisher("again")
        assert publisher._link.undecided == list(left.publications)
        delivery = await subscriber.receive()
        with delivery.process():
            await delivery.accept()
        await publisher.drain()
    assert properties_of(delivery) == seen
    assert place(theirs.one("process again").parent) == place(send.get_span_context())
    assert second.exporter.get_finished_spans() == ()


async def test_a_lost_router_changes_no_context_and_makes_no_span(tmp_path: Path) -> None:
    spans = Spans()
    with LiveNetwork(tmp_path, ["a", "b"], links=[("a", "b")]) as network:
        network.start()
        async with onceway.connect(network.urls(), ordered=True, tracing=spans.provider) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            publication = await publisher.put(b"1")
            delivery = await subscriber.receive()
            network.kill("a")
            await delivery.accept()
            await publication
            await spans.ended("settle orders")
    assert properties_of(delivery) == {"traceparent": traceparent(spans.one("send orders"))}
    assert len(spans.exporter.get_finished_spans()) == 3


async def test_what_is_in_an_outbox_has_the_context_of_who_put_it_there(url: str, tmp_path: Path) -> None:
    ours, theirs = Spans(), Spans()

    def open_database() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    database = open_database()
    database.execute(TABLE["sqlite"])
    with ours.tracer.start_as_current_span("checkout"):
        onceway.put_in_outbox(database, "shop", "outbox", b"1", tracing=ours.provider)
        onceway.put_in_outbox(database, "shop", "outbox", b"2", tracing=False)
    database.commit()
    database.close()
    journal = onceway.DatabaseJournal(open_database)
    async with (
        onceway.connect(url, tracing=theirs.provider) as consumer,
        onceway.connect(url, container="shop", journal=journal, tracing=ours.provider) as connection,
    ):
        subscriber = await consumer.subscriber("outbox")
        async with connection.outbox("outbox") as outbox:
            deliveries = [await subscriber.receive() for _ in range(2)]
            for delivery in deliveries:
                with delivery.process():
                    await delivery.accept()
            await outbox.flush()
    create, send = ours.one("create outbox"), ours.one("send outbox")
    assert place(create.parent) == place(ours.one("checkout").get_span_context())
    assert create.kind is SpanKind.PRODUCER
    assert properties_of(deliveries[0]) == {"traceparent": traceparent(create)}
    assert properties_of(deliveries[1]) == {}
    assert (send.kind, links(send)) == (SpanKind.CLIENT, [place(create.get_span_context())])
    assert [place(span.parent) for span in theirs.named("process outbox")] == [place(create.get_span_context()), None]


def test_threads_have_the_context_of_their_callers(url: str) -> None:
    spans = Spans()
    with onceway.sync.connect(url, tracing=spans.provider) as connection:
        subscriber = connection.subscriber("threads")
        publisher = connection.publisher("threads")
        with spans.tracer.start_as_current_span("request"):
            publication = publisher.put(b"1")
        delivery = subscriber.receive(timeout_s=BOUND_S)
        with delivery.process():
            delivery.accept()
        publication.wait(BOUND_S)
    send, process = spans.one("send threads"), spans.one("process threads")
    assert place(send.parent) == place(spans.one("request").get_span_context())
    assert place(process.parent) == place(send.get_span_context())
    assert place(spans.one("settle threads").parent) == place(process.get_span_context())


async def test_mqtts_clients_have_the_context_as_user_properties(network: tuple[LiveNetwork, int]) -> None:
    routers, port = network
    spans = Spans()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    came: list[paho.MQTTMessage] = []
    subscribed, arrived = threading.Event(), threading.Event()

    def on_message(client: object, data: object, message: paho.MQTTMessage) -> None:
        came.append(message)
        arrived.set()

    client.on_connect = lambda *_: client.subscribe("mqtt", qos=2)
    client.on_subscribe = lambda *_: subscribed.set()
    client.on_message = on_message
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert await asyncio.to_thread(subscribed.wait, BOUND_S)
        async with onceway.connect(routers.urls(), tracing=spans.provider) as connection:
            subscriber = await connection.subscriber("mqtt")
            publisher = await connection.publisher("mqtt")
            event = CloudEvent({"type": "t", "source": "/s", "traceparent": GIVEN}, {"number": 1})
            publication = await publisher.put(message_of(event))
            own = await subscriber.receive()
            await own.accept()
            await publication
            assert await asyncio.to_thread(arrived.wait, BOUND_S)
            properties: Any = came[0].properties
            named = dict(properties.UserProperty)
            send = spans.one("send mqtt")
            assert named["traceparent"] == traceparent(send)
            # The event's own context is another thing: in which the event was made, whoever has sent it since.
            assert named["cloudEvents_traceparent"] == GIVEN
            assert event_of(own.message).get_attributes()["traceparent"] == GIVEN
            other = event_of_mqtt(
                bytes(came[0].payload), getattr(properties, "ContentType", None), properties.UserProperty
            )
            assert other.get_attributes() == event.get_attributes()
            sent: Any = MqttProperties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            sent.UserProperty = [("traceparent", GIVEN), ("tracestate", "a=b")]
            client.publish("mqtt", b"back", qos=2, properties=sent)
            back = await subscriber.receive()
            with back.process():
                await back.accept()
            assert properties_of(back) == {"traceparent": GIVEN, "tracestate": "a=b"}
    finally:
        client.disconnect()
        client.loop_stop()
    process = spans.one("process mqtt")
    assert place(process.parent) == (int(TRACE_ID, 16), int(SPAN_ID, 16))
    assert process.links[0].context.trace_state.to_header() == "a=b"
