"""Receive ten messages of the topic `orders`, and accept each when its work is done.

    python examples/subscribe.py [URL] &
    python examples/publish.py

A message that is not accepted, because the program has died or has lost its connection, comes again.
"""

import asyncio
import sys

import onceway

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"


async def main() -> None:
    async with onceway.connect(URL) as connection:
        subscriber = await connection.subscriber("orders")
        print("subscribed", flush=True)
        count = 0
        async for delivery in subscriber:
            print(f"received {delivery.body}", flush=True)
            await delivery.accept()
            count += 1
            if count == 10:
                break


asyncio.run(main())
