"""Print OpenTelemetry's spans of one message, as they end.

    python examples/tracing.py [URL]

It needs `pip install 'onceway[otel]' opentelemetry-sdk`.
"""

import asyncio
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

import onceway

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
traces: dict[int, int] = {}


def line(span: ReadableSpan) -> str:
    number = traces.setdefault(span.context.trace_id, len(traces) + 1)
    return f"trace {number}: {span.name} ({span.kind.name.lower()}, links: {len(span.links)})\n"


async def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=line)))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("shop")
    async with onceway.connect(URL) as connection:
        subscriber = await connection.subscriber("parcels")
        publisher = await connection.publisher("parcels")
        with tracer.start_as_current_span("checkout"):
            publication = await publisher.put("one parcel")
        delivery = await subscriber.receive()
        with delivery.process():
            with tracer.start_as_current_span("weigh"):
                print(f"weighing {delivery.body}")
            delivery.accept()
        await publication


asyncio.run(main())
