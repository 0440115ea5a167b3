"""Reject a message for good, and release one that should come again.

    python examples/reject_and_release.py [URL]

`release` gives a message back: it comes again to this subscriber, up to the address's `max_redeliveries`.  `reject` is
final: the publisher's `send` raises `DeliveryRejected`, which says how many subscriptions have rejected the message.
"""

import asyncio
import sys

import onceway

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"


async def work(subscriber: onceway.Subscriber) -> None:
    released = False
    async for delivery in subscriber:
        if delivery.body == "busy" and not released:
            print("busy: released, for later")
            released = True
            await delivery.release()
        elif delivery.body == "nonsense":
            print("nonsense: rejected")
            await delivery.reject("shop:unreadable", "this is no order")
        else:
            print(f"{delivery.body}: accepted")
            await delivery.accept()


async def main() -> None:
    async with onceway.connect(URL) as connection:
        subscriber = await connection.subscriber("work")
        working = asyncio.create_task(work(subscriber))
        publisher = await connection.publisher("work")
        for body in ("good", "busy", "nonsense"):
            try:
                await publisher.send(body, timeout_s=60)
            except onceway.DeliveryRejected as error:
                print(f"{body} was {error}")
        await subscriber.close()
        await working


asyncio.run(main())
