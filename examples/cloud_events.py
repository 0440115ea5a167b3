"""Publish CloudEvents, binary and structured, and receive them.

    python examples/cloud_events.py [URL]

It needs `pip install 'onceway[cloudevents]'`.
"""

import asyncio
import sys

from cloudevents.core.v1.event import CloudEvent

import onceway
from onceway.cloudevents import event_of, message_of

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"


async def main() -> None:
    async with onceway.connect(URL) as connection:
        subscriber = await connection.subscriber("events")
        publisher = await connection.publisher("events")
        for number, structured in enumerate((False, True)):
            event = CloudEvent({"type": "order.placed", "source": "/shop", "id": str(number)}, {"number": number})
            await publisher.put(message_of(event, structured=structured))
        for _ in range(2):
            delivery = await subscriber.receive()
            event = event_of(delivery.message)
            print(f"{event.get_type()} {event.get_id()} of {event.get_source()}: {event.get_data()}")
            delivery.accept()


asyncio.run(main())
