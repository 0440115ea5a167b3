"""Spans of a client, and the trace context of its messages, where `opentelemetry-api` is installed (`onceway[otel]`).

    publisher.put --- span send, whose context goes into the message --> subscriber.receive --- span receive (link)
                                                                         with delivery.process(): span process (child)
                                                                         delivery.accept --- span settle (link)

The context is written once, when the application publishes: before the message has a number, is in a journal or an
outbox, and long before it is sent. What is sent again is the same octets. Nothing that is encoded already is changed,
nor a message that has a `traceparent`, nor one with a footer, which may sign what stands before it. What strangers have
sent is read here and never raises.

This is the only module that imports opentelemetry. Publishers and subscribers have no spans where it is not installed,
or where nobody has configured a tracer provider.

Conventions: OpenTelemetry's semantic conventions 1.44.0, docs/messaging/messaging-spans.md (status: development).
Properties: W3C Trace Context (`traceparent`, `tracestate`) as strings in the application properties. W3C's draft for
AMQP has a binary `traceparent`, which nobody writes; it is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from amqp10.annotations import APPLICATION_PROPERTIES, section_head
from amqp10.codec import encode_value
from amqp10.errors import DecodeError
from amqp10.outcomes import Outcome
from amqp10.sections import Glance, Message, Properties
from onceway.client.bodies import Body, encode_body
from router.names import DYNAMIC_PREFIX

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, ProxyTracerProvider, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError:
    INSTALLED = False
else:
    INSTALLED = True

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from onceway.client.driver import Driver

SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_LONGEST_ID: Final = 256  # characters of a message-id in an attribute


def tracing_of(wanted: TracerProvider | bool) -> Tracing | None:
    """What makes spans: with this provider, or with the global one (True). None: nothing does."""
    if wanted is False or not INSTALLED:
        return None
    return Tracing(None if wanted is True else wanted)


class Tracing:
    """Makes the spans of one connection.

    Attributes:
        driver: The connection's; None in an application that only fills an outbox.
    """

    def __init__(self, provider: TracerProvider | None) -> None:
        self.driver: Driver | None = None
        self._provider = provider

    @property
    def _configured(self) -> bool:
        return self._provider is not None or not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)

    def publisher(self, address: str, limit: Callable[[], int | None]) -> PublisherSpans | None:
        """None: nobody has configured a provider. limit: octets that a message may have."""
        return PublisherSpans(self, address, limit) if self._configured else None

    def subscriber(self, address: str, name: str) -> SubscriberSpans | None:
        """As `publisher`. name: the link's."""
        return SubscriberSpans(self, address, name) if self._configured else None

    def create(self, address: str, body: Body) -> bytes:
        """The payload of what another process sends; a span `create`."""
        spans = self.publisher(address, lambda: None)
        payload = encode_body(body)
        return payload if spans is None else spans.create(body, payload)

    @property
    def tracer(self) -> trace.Tracer:
        return trace.get_tracer("onceway", tracer_provider=self._provider, schema_url=SCHEMA)

    def attributes(self) -> dict[str, Any]:
        """Who this client is, and the router that it is connected to now, or was last."""
        if self.driver is None:
            return {}
        found: dict[str, Any] = {"messaging.client.id": self.driver.endpoint.container}
        if self.driver.server is not None:
            found["server.address"], found["server.port"] = self.driver.server
        return found


class Found(NamedTuple):
    """What a message says of itself.

    Attributes:
        context: In which it was created; None: it does not say, or what it says is no context.
        named: It has a `traceparent`, whatever that is worth.
        ids: Its message-id and correlation-id, as attributes.
    """

    context: SpanContext | None
    named: bool
    ids: dict[str, str]

    @property
    def link(self) -> Link | None:
        return None if self.context is None else Link(self.context, self.ids)


class Operation:
    """A span that is open until each of its messages is done."""

    __slots__ = ("_left", "_span")

    def __init__(self, span: Span, count: int) -> None:
        self._span = span
        self._left = count

    def done(self, error: Exception | None) -> None:
        """One of them is."""
        if self._left > 0:
            if error is not None:
                _fail(self._span, error)
            self._left -= 1
            if not self._left:
                self._span.end()

    def abandon(self, error: BaseException) -> None:
        """The rest was not done."""
        if self._left > 0:
            _fail(self._span, error)
            self._span.end()
            self._left = 0


class _Spans:
    """Spans of one link."""

    def __init__(self, tracing: Tracing, address: str) -> None:
        self._tracing = tracing
        self._tracer = tracing.tracer
        self._address = address
        self._common: dict[str, Any] = {"messaging.system": "onceway", "messaging.destination.name": address}
        self._temporary = address.startswith(DYNAMIC_PREFIX)  # reply nodes are too many for names of spans
        if self._temporary:
            self._common["messaging.destination.temporary"] = True
        self._open: dict[int, Operation] = {}  # by number, or position

    def _start(
        self,
        operation: str,
        kind: SpanKind,
        found: Sequence[Found],
        *,
        count: int | None,
        more: Mapping[str, Any] | None = None,
        parent: Context | None = None,
        since_ns: int = 0,
    ) -> Span:
        """count: of a batch; None: it is of one message, of which `found` has at most one."""
        attributes = {
            **self._common,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            **self._tracing.attributes(),
            **(more or {}),
        }
        if count is not None:
            attributes["messaging.batch.message_count"] = count
        elif found:
            attributes.update(found[0].ids)
        return self._tracer.start_span(
            operation if self._temporary else f"{operation} {self._address}",
            context=parent,
            kind=kind,
            attributes=attributes,
            links=[link for each in found if (link := each.link) is not None],
            start_time=since_ns or None,
        )

    def finish(self, first: int, last: int, error: Exception | None = None) -> None:
        """Numbers, or positions, first .. last are done; some of them may be ours."""
        if self._open:
            for number in range(first, last + 1):
                operation = self._open.pop(number, None)
                if operation is not None:
                    operation.done(error)

    def finish_all(self, error: Exception | None = None) -> None:
        """Nothing is told of those that are open any more."""
        for operation in self._open.values():
            operation.done(error)
        self._open.clear()


class PublisherSpans(_Spans):
    def __init__(self, tracing: Tracing, address: str, limit: Callable[[], int | None]) -> None:
        super().__init__(tracing, address)
        self._limit = limit

    def send(self, body: Body, payload: bytes) -> Sending:
        """Begins a span for one message. payload: the encoded body."""
        return self._send([_in_body(body)], [body], [payload], None)

    def send_many(self, bodies: Sequence[Body] | None, payloads: list[bytes]) -> Sending:
        """Begins a span for all of them. bodies: None: they were encoded by others, and are sent as they are."""
        found = list(map(_in_payload, payloads) if bodies is None else map(_in_body, bodies))
        return self._send(found, bodies, payloads, len(payloads))

    def _send(
        self, found: list[Found], bodies: Sequence[Body] | None, payloads: list[bytes], count: int | None
    ) -> Sending:
        made = bodies is None or all(each.named for each in found)  # elsewhere
        span = self._start("send", SpanKind.CLIENT if made else SpanKind.PRODUCER, found, count=count)
        if bodies is not None and not made:
            payloads = self._with_context(span, found, bodies, payloads)
        return Sending(self._open, span, payloads)

    def create(self, body: Body, payload: bytes) -> bytes:
        """A span `create`, which is over; returns the payload with its context."""
        found = _in_body(body)
        if found.named:
            return payload
        span = self._start("create", SpanKind.PRODUCER, [found], count=None)
        span.end()
        return self._with_context(span, [found], [body], [payload])[0]

    def _with_context(
        self, span: Span, found: Sequence[Found], bodies: Sequence[Body], payloads: list[bytes]
    ) -> list[bytes]:
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(span, Context()))
        if not carrier:
            return payloads
        limit = self._limit()
        section = section_head(APPLICATION_PROPERTIES) + encode_value(carrier)
        made = []
        for own, body, payload in zip(found, bodies, payloads, strict=True):
            new = payload if own.named else _with(carrier, section, body, payload)
            made.append(new if limit is None or len(new) <= limit else payload)  # what fits without it goes without it
        return made


class Sending(Operation):
    """A span `send`.

    Attributes:
        payloads: What is to be sent.
    """

    __slots__ = ("_all", "payloads")

    def __init__(self, all_open: dict[int, Operation], span: Span, payloads: list[bytes]) -> None:
        super().__init__(span, len(payloads))
        self._all = all_open
        self.payloads = payloads

    def took(self, first: int, count: int = 1) -> None:
        """The next of them have these numbers."""
        self._all.update(dict.fromkeys(range(first, first + count), self))


class SubscriberSpans(_Spans):
    def __init__(self, tracing: Tracing, address: str, name: str) -> None:
        super().__init__(tracing, address)
        self._common["messaging.destination.subscription.name"] = name
        self._contexts: dict[int, Found] = {}  # by position, of those without outcome

    def receive(
        self,
        payloads: Sequence[bytes],
        formats: Mapping[int, int],
        positions: Sequence[int],
        since_ns: int,
        batch: bool,
    ) -> None:
        """A span `receive`, which is over. formats: by index, as `Batch.other_formats`; positions: -1 where one needs
        no outcome; since_ns: when the application began to wait; 0: it did not."""
        found = _in_payloads(payloads, formats)
        self._contexts.update(
            {position: each for position, each in zip(positions, found, strict=True) if position >= 0 and each.context}
        )
        count = len(payloads) if batch else None
        self._start("receive", SpanKind.CLIENT, found, count=count, since_ns=since_ns).end()

    @contextmanager
    def process(self, payloads: Sequence[bytes], formats: Mapping[int, int], batch: bool) -> Iterator[None]:
        """A span `process`. What is no batch, and not in another span, is a child of the message's context."""
        found = _in_payloads(payloads, formats)
        context, parent = found[0].context if found else None, None
        if not batch and context is not None and not trace.get_current_span().get_span_context().is_valid:
            parent = trace.set_span_in_context(trace.NonRecordingSpan(context))
        count = len(payloads) if batch else None
        span = self._start("process", SpanKind.CONSUMER, found, count=count, parent=parent)
        with trace.use_span(span, end_on_exit=True, set_status_on_exception=False):
            try:
                yield
            except Exception as error:
                _fail(span, error)
                raise

    def settle(self, ranges: Sequence[tuple[int, int]], outcome: Outcome, batch: bool) -> None:
        """Begins a span `settle`, of positions that have got their outcome; it is over when all are settled."""
        positions = [position for first, last in ranges for position in range(first, last + 1)]
        found = [each for position in positions if (each := self._contexts.pop(position, None)) is not None]
        more = {"messaging.onceway.outcome": type(outcome).__name__.lower()}
        count = len(positions) if batch else None
        span = self._start("settle", SpanKind.CLIENT, found, count=count, more=more)
        self._open.update(dict.fromkeys(positions, Operation(span, len(positions))))

    def finish_all(self, error: Exception | None = None) -> None:
        super().finish_all(error)
        self._contexts.clear()


def _with(carrier: Mapping[str, str], section: bytes, body: Body, payload: bytes) -> bytes:
    """The payload of a body, with these properties. section: the same, as a section."""
    if not isinstance(body, Message):
        return section + payload
    if body.footer is not None:
        return payload
    message = copy(body)  # the application may send it again, as another message
    given = {name: value for name, value in (body.application_properties or {}).items() if name != TRACESTATE}
    message.application_properties = {**given, **carrier}
    return encode_body(message)


def _in_body(body: Body) -> Found:
    return _found(body.application_properties, body.properties) if isinstance(body, Message) else _NOTHING


def _in_payloads(payloads: Sequence[bytes], formats: Mapping[int, int]) -> list[Found]:
    return [_NOTHING if formats.get(index) else _in_payload(payload) for index, payload in enumerate(payloads)]


def _in_payload(payload: bytes) -> Found:
    glance = Glance(payload)
    try:
        return _found(glance.application_properties, glance.properties)
    except DecodeError:
        return _NOTHING


def _found(named: Mapping[Any, Any] | None, properties: Properties | None) -> Found:
    given = named or {}
    carrier = {name: str(value) for name in (TRACEPARENT, TRACESTATE) if isinstance(value := given.get(name), str)}
    context = None
    if TRACEPARENT in carrier:
        extracted = TraceContextTextMapPropagator().extract(carrier, Context())
        context = trace.get_current_span(extracted).get_span_context()
    ids: dict[str, str] = {}
    if properties is not None:
        for name, value in (
            ("messaging.message.id", properties.message_id),
            ("messaging.message.conversation_id", properties.correlation_id),
        ):
            if value is not None:
                ids[name] = (value[:_LONGEST_ID].hex() if isinstance(value, bytes) else str(value))[:_LONGEST_ID]
    return Found(context if context is not None and context.is_valid else None, TRACEPARENT in given, ids)


_NOTHING: Final = Found(None, False, {})


def _fail(span: Span, error: BaseException) -> None:
    kind = type(error)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    span.set_attribute("error.type", f"{module}{kind.__qualname__}")
    span.set_status(Status(StatusCode.ERROR, str(error)))
