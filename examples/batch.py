"""Publish and receive 10,000 messages in batches: the quick way where there are many.

    python examples/batch.py [URL]

`put_many` takes any iterable and waits for credit as it goes.  `batches` gives what has arrived, as columns; accepting
a batch accepts all of it at once.
"""

import asyncio
import sys

import onceway

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
TOTAL = 10_000


async def publish(publisher: onceway.Publisher) -> None:
    await (await publisher.put_many(b"%d" % number for number in range(TOTAL)))


async def main() -> None:
    async with onceway.connect(URL) as connection:
        subscriber = await connection.subscriber("readings")
        publishing = asyncio.create_task(publish(await connection.publisher("readings")))
        total = count = 0
        async for batch in subscriber.batches(max_messages=1000, max_wait=0.05):
            total += sum(map(int, batch.bodies))
            count += len(batch)
            await batch.accept()
            if count == TOTAL:
                break
        await publishing
        print(f"{count} messages, sum {total}")


asyncio.run(main())
