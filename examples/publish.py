"""Publish ten messages to the topic `orders`.

    python examples/subscribe.py &
    python examples/publish.py [URL]

`send` returns when every subscriber has accepted the message.  A topic without subscriber gives no credit, so `send`
waits for one.
"""

import asyncio
import sys

import onceway

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"


async def main() -> None:
    async with onceway.connect(URL) as connection:
        publisher = await connection.publisher("orders")
        for number in range(10):
            await publisher.send(f"order {number}", timeout_s=60)
            print(f"order {number} was accepted")


asyncio.run(main())
