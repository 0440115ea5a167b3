"""Publish to several topics and receive from several, over one connection.

    python examples/several_topics.py [URL]

Each topic has a publisher and a subscriber of its own, with credit of its own: a slow one does not hold up the others.
"""

import asyncio
import sys

import onceway

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"
TOPICS = ("fruit", "vegetables", "herbs")


async def receive(subscriber: onceway.Subscriber, count: int) -> list[str]:
    bodies = []
    for _ in range(count):
        delivery = await subscriber.receive()
        bodies.append(delivery.body)
        await delivery.accept()
    return bodies


async def main() -> None:
    async with onceway.connect(URL) as connection, asyncio.TaskGroup() as tasks:
        receiving = {}
        for topic in TOPICS:
            subscriber = await connection.subscriber(topic)
            receiving[topic] = tasks.create_task(receive(subscriber, 3))
        publishers = {topic: await connection.publisher(topic) for topic in TOPICS}
        for number in range(3):
            for topic, publisher in publishers.items():
                await publisher.put(f"{topic} {number}")
        for topic, task in receiving.items():
            print(f"{topic}: {', '.join(await task)}")


asyncio.run(main())
