"""A slow subscriber slows the publisher down: nothing piles up between them, and nothing is dropped.

    python examples/backpressure.py [URL]

The subscriber's `credit` says how many messages may be on their way to it.  The network gives the publisher credit
accordingly: without any, `put` waits, and `put_nowait` raises `PublisherFull`.
"""

import asyncio
import sys

import onceway

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
TOTAL = 5000


async def publish(publisher: onceway.Publisher) -> int:
    full = 0
    for number in range(TOTAL):
        try:
            publisher.put_nowait(b"%d" % number)
        except onceway.PublisherFull:
            full += 1
            await publisher.put(b"%d" % number)  # waits for credit
    await publisher.drain()
    return full


async def main() -> None:
    async with onceway.connect(URL) as connection:
        subscriber = await connection.subscriber("slow", credit=10)
        publisher = await connection.publisher("slow")
        publishing = asyncio.create_task(publish(publisher))
        most = 0
        for _ in range(TOTAL):
            delivery = await subscriber.receive()
            most = max(most, subscriber.waiting + 1)
            if publisher.sequence < TOTAL:
                await asyncio.sleep(0.0001)  # slow work, as long as there is something to hold back
            await delivery.accept()
        print("the publisher was told to wait" if await publishing else "the publisher never waited")
        print(f"at most 10 messages were here: {most <= 10}")


asyncio.run(main())
