"""`push`, `pull` and `reset`: a pipe for Python programs (docs/contracts/pipe.md)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Unpack

import onceway
from amqp10.sections import Message
from edges.pipe.messages import RESET
from edges.pipe.reader import TELL_AFTER_S, IfGone, Reader, Received, Say, Start
from onceway.client.bodies import Body
from onceway.client.credentials import Who
from onceway.errors import ConnectionFailed, OncewayError

URLs = str | Sequence[str]
LOOK_EVERY_S: Final = 0.1
WARN: Final[Say] = logging.getLogger(__name__).warning


__all__ = ["Received", "pull", "push", "reset"]


async def push(
    routers: URLs,
    topic: str,
    messages: Body | Iterable[Body],
    *,
    stores: URLs = (),
    timeout_s: float = 30.0,
    on_wait: Say | None = None,
    **who: Unpack[Who],
) -> None:
    """Writes messages to the pipe; returns when every participant can read them.

    A program that pushes often opens `onceway.connect` and a publisher itself: a push is a publication.

    Args:
        routers: URLs of routers.
        topic: The pipe.
        messages: bytes, str or a `Message`, or several of them, which get their positions in this order.
        stores: URLs of its stores, to say which are away; empty: the routers name them.
        timeout_s: How long the first router may take to answer.
        on_wait: Told, after a second, what the push waits for, and then that it goes on. None: the log is told,
            which is stderr where nothing else is configured.
        who: `tls` and `credentials`, as of `onceway.connect`; the others take them, too.

    Raises:
        ConnectionFailed: No router answered in time.
        DeliveryRejected: A message is not AMQP.
    """
    bodies = [messages] if isinstance(messages, bytes | bytearray | memoryview | str | Message) else messages
    async with publishing(routers, topic, stores=stores, timeout_s=timeout_s, on_wait=on_wait, **who) as publisher:
        await (await publisher.put_many(bodies))


@asynccontextmanager
async def publishing(
    routers: URLs,
    topic: str,
    *,
    stores: URLs = (),
    timeout_s: float = 30.0,
    on_wait: Say | None = None,
    **who: Unpack[Who],
) -> AsyncIterator[onceway.Publisher]:
    """A publisher of the pipe, which says what it waits for; parameters as of `push`."""
    waits = _Waits(Reader(topic, stores=stores, routers=routers, **who), on_wait or WARN)
    watching = asyncio.create_task(waits.watch())
    try:
        async with onceway.connect(
            routers, connect_timeout_s=timeout_s, close_timeout_s=None, on_report=waits.report, **who
        ) as connection:
            waits.publisher = await connection.publisher(topic)
            yield waits.publisher
        waits.over()
    finally:
        watching.cancel()
        await asyncio.wait([watching])


class _Waits:
    """Says what a publisher waits for, once nothing has had an outcome for TELL_AFTER_S, and that it goes on."""

    def __init__(self, reader: Reader, say: Say) -> None:
        self.publisher: onceway.Publisher | None = None
        self._reader = reader
        self._topic = reader.topic
        self._say = say
        self._lost = ""  # why there is no router
        self._told = False

    def report(self, report: onceway.Report) -> None:
        if isinstance(report, onceway.RouterLost):
            self._lost = f"{report.url}: {report.reason}"
        elif isinstance(report, onceway.RouterConnected):
            self._lost = ""

    async def watch(self) -> None:
        loop = asyncio.get_running_loop()
        moved, seen = loop.time(), -1
        while True:
            publisher = self.publisher
            decided = 0 if publisher is None else publisher.accepted + publisher.rejected
            if decided != seen or (publisher is not None and not publisher.unsettled and not publisher.waits):
                moved, seen = loop.time(), decided
                self.over()
            elif not self._told and loop.time() >= moved + TELL_AFTER_S:
                why = await self._why()
                if publisher is None or decided == publisher.accepted + publisher.rejected:
                    self._told = True
                    self._say(f"{self._topic}: waits {why}")
            await asyncio.sleep(LOOK_EVERY_S)

    def over(self) -> None:
        """It waits no more."""
        if self._told:
            self._told = False
            self._say(f"{self._topic}: goes on")

    async def _why(self) -> str:
        if self._lost:
            return f"for a router: {self._lost}"
        publisher = self.publisher
        if publisher is None:
            return "for the router, which answers once its network has recovered"
        try:
            away = await self._reader.away()
        except ConnectionFailed:
            return "for a store: no file names this pipe, and no store takes what is pushed; is the name right?"
        if away:
            return f"for {', '.join(f'store {url} ({why})' for url, why in away.items())}"
        more = "" if publisher.waiting is None else f": {publisher.waiting.why}"
        return f"until every store has what was pushed{more}"


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
    on_wait: Say | None = None,
    **who: Unpack[Who],
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
        on_wait: As of `push`.

    Raises:
        ConnectionFailed: No store answered in time.
        PipeWasReset: The rest of the old content is gone.
        PipeDropped: Retention has dropped what comes next.
    """
    reading = Reader(
        topic,
        stores=stores,
        routers=routers,
        start=start,
        control=True,
        if_gone=if_gone,
        timeout_s=timeout_s,
        on_wait=on_wait or WARN,
        **who,
    )
    async with reading as reader:
        async for messages in reader.messages(follow=follow, count=count):
            for each in messages:
                yield each


async def reset(
    routers: URLs,
    topic: str,
    *,
    stores: URLs = (),
    timeout_s: float = 30.0,
    on_wait: Say | None = None,
    **who: Unpack[Who],
) -> int:
    """Removes all messages of the pipe; returns how many, when that is done.

    Args:
        routers: URLs of routers.
        topic: The pipe.
        stores: URLs of its stores; empty: the routers name them.
        timeout_s: How long the first router and store may take to answer.
        on_wait: As of `push`.

    Raises:
        ConnectionFailed: Nobody answered in time.
    """
    identity = secrets.token_hex(16)
    reading = Reader(
        topic,
        stores=stores,
        routers=routers,
        start="end",
        control=True,
        timeout_s=timeout_s,
        on_wait=on_wait or WARN,
        **who,
    )
    async with reading as reader:
        request = Message(b"", application_properties={RESET: identity})
        await push(routers, topic, request, stores=stores, timeout_s=timeout_s, on_wait=on_wait, **who)
        async for batch in reader.batches():
            for each in batch:
                what = each.control
                if what is not None and what.get("reset") == identity:
                    return int(what["removed"])
    raise OncewayError(f"pipe {topic!r}: the reset was not seen")
