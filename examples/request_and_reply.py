"""Ask a service and receive its reply, over two topics: `questions` and `answers`.

    python examples/request_and_reply.py [URL]

The service sends its reply before it accepts the request: if it dies in between, the request comes again and is
answered again, with the same correlation-id.  Whoever asks uses `put`: `send` would return only when the service has
accepted the request, and the service waits for its reply to be accepted.
"""

import asyncio
import sys

import onceway
from onceway import Message, Properties

URL = sys.argv[1] if len(sys.argv) > 1 else "amqp://127.0.0.1:5672"


async def serve(requests: onceway.Subscriber, replies: onceway.Publisher) -> None:
    async for request in requests:
        message = request.message
        assert message.properties is not None
        properties = Properties(correlation_id=message.properties.message_id)
        await replies.send(Message(message.value.upper(), properties=properties), timeout_s=60)
        await request.accept()


async def main() -> None:
    async with onceway.connect(URL) as connection:
        requests = await connection.subscriber("questions")
        replies = await connection.subscriber("answers")
        service = asyncio.create_task(serve(requests, await connection.publisher("answers")))
        asking = await connection.publisher("questions")
        for number, word in enumerate(["once", "and", "only", "once"]):
            await asking.put(Message(word, properties=Properties(message_id=number)))
            reply = await replies.receive()
            properties = reply.message.properties
            assert properties is not None
            assert properties.correlation_id == number
            print(f"{word} -> {reply.body}")
            await reply.accept()
        await asking.drain()
        await requests.close()  # ends the service's loop
        await service


asyncio.run(main())
