"""`push`, `pull` and `reset`: a pipe for Python programs (docs/contracts/pipe.md)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence

import onceway
from amqp10.sections import Message
from edges.pipe.messages import RESET, control_in
from edges.pipe.reader import IfGone, Reader, Received, Start
from onceway.client.bodies import Body
from onceway.errors import OncewayError

URLs = str | Sequence[str]

__all__ = ["Received", "pull", "push", "reset"]


async def push(routers: URLs, topic: str, messages: Body | Iterable[Body], *, timeout_s: float = 30.0) -> None:
    """Writes messages to the pipe; returns when every participant can read them.

    A program that pushes often opens `onceway.connect` and a publisher itself: a push is a publication.

    Args:
        routers: URLs of routers.
        topic: The pipe.
        messages: bytes, str or a `Message`, or several of them, which get their positions in this order.
        timeout_s: How long the first router may take to answer.

    Raises:
        ConnectionFailed: No router answered in time.
        DeliveryRejected: A message is not AMQP.
    """
    bodies = [messages] if isinstance(messages, bytes | bytearray | memoryview | str | Message) else messages
    async with onceway.connect(routers, connect_timeout_s=timeout_s, close_timeout_s=None) as connection:
        publisher = await connection.publisher(topic)
        await (await publisher.put_many(bodies))


async def pull(
    topic: str,
    *,
    routers: URLs = (),
    stores: URLs = (),
    start: Start = None,
    if_gone: IfGone | None = None,
    follow: bool = False,
    count: int | None = None,
    timeout_s: float = 30.0,
) -> AsyncIterator[Received]:
    """Reads the pipe; nothing is removed from it.

    Args:
        topic: The pipe.
        routers: URLs of routers, which name the pipe's stores; or
        stores: URLs of its stores.
        start: A position, a `datetime`, "end", or None for the beginning.
        if_gone: When the position that comes next was reset or dropped: "first" goes on with the first there is,
            "error" raises. None: the first at the start, an error later.
        follow: Wait for more at the end of the pipe.
        count: End after so many messages; wait for them.
        timeout_s: How long the first store may take to answer.

    Raises:
        ConnectionFailed: No store answered in time.
        PipeWasReset: The rest of the old content is gone.
        PipeDropped: Retention has dropped what comes next.
    """
    reading = Reader(
        topic, stores=stores, routers=routers, start=start, control=True, if_gone=if_gone, timeout_s=timeout_s
    )
    async with reading as reader:
        left = count
        until = None if follow or count is not None else reader.end
        async for batch in reader.batches(until):
            for each in batch:
                if control_in(each.payload) is not None:
                    continue
                yield each
                if left is not None:
                    left -= 1
                    if not left:
                        return


async def reset(routers: URLs, topic: str, *, stores: URLs = (), timeout_s: float = 30.0) -> int:
    """Removes all messages of the pipe; returns how many, when that is done.

    Args:
        routers: URLs of routers.
        topic: The pipe.
        stores: URLs of its stores; empty: the routers name them.
        timeout_s: How long the first router and store may take to answer.

    Raises:
        ConnectionFailed: Nobody answered in time.
    """
    identity = secrets.token_hex(16)
    async with Reader(topic, stores=stores, routers=routers, start="end", control=True, timeout_s=timeout_s) as reader:
        request = Message(b"", application_properties={RESET: identity})
        await push(routers, topic, request, timeout_s=timeout_s)
        async for batch in reader.batches():
            for each in batch:
                what = control_in(each.payload)
                if what is not None and what.get("reset") == identity:
                    return int(what["removed"])
    raise OncewayError(f"pipe {topic!r}: the reset was not seen")
