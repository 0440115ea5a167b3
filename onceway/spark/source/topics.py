"""Topics by pattern (`topicPattern`): the router is asked every few seconds which addresses there are.

Every router knows all addresses that have a publisher or a subscription anywhere in the network.  Asked is its node
`$management`, over a connection of the driver's, in a thread: the query takes up what has been found when it plans its
next batch.  A topic that nobody subscribes to yet holds its publishers, so that nothing of it is missed; of one that
has other subscribers the query gets what is published after it has attached.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import onceway
from amqp10.errors import NOT_FOUND
from amqp10.sections import Message, Properties
from onceway.base import waits
from onceway.errors import LinkRefused, OncewayError
from onceway.spark.errors import IngestFailed, SparkSourceError
from onceway.spark.options import SourceOptions

if TYPE_CHECKING:
    from onceway.client.connection import Connection

LOOK_EVERY_S: Final = 5.0
NODE: Final = "$management"
_QUERY: Final = {
    "operation": "QUERY",
    "entityType": "org.apache.qpid.dispatch.router.address",
}  # says what is a queue
_ATTRIBUTES: Final = ("key", "distribution")


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Of these names, sorted."""
    return sorted(name for name in names if re.fullmatch(pattern, name))


class Topics:
    """What has been found, from `begin` to `stop`."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.topic_pattern is not None
        self._options = options
        self._pattern = options.topic_pattern
        self._changed = waits.TOPICS(threading.Condition())
        self._found: list[str] = []
        self._asked = 0  # answers so far
        self._failure: str | None = None
        self._stopped = False
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def begin(self) -> None:
        threading.Thread(target=self._run, name="onceway topics", daemon=True).start()

    def found(self) -> Sequence[str]:
        """Raises IngestFailed where the router refuses to say."""
        with self._changed:
            if self._failure is not None:
                raise IngestFailed(self._failure)
            return self._found

    def now(self, within_s: float) -> Sequence[str]:
        """As they are now.  Raises IngestFailed, also where no router answers in time."""
        with self._changed:
            asked = self._asked
            if not self._changed.wait_for(lambda: self._asked > asked or self._failure, within_s):
                raise IngestFailed(f"topicPattern: no router said within {within_s:g} s which topics there are")
        return self.found()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            if self._stop is not None:
                loop, event = self._stop
                self._stop = None
                loop.call_soon_threadsafe(event.set)

    # -- the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._look())
        except OncewayError as error:
            with self._changed:
                self._failure = (
                    f"topicPattern: the router does not say which topics there are: {error}; let the query's user read "
                    "$management (admin in the topology file), or name the topics by the option topic"
                )
                self._changed.notify_all()

    async def _look(self) -> None:
        stop = asyncio.Event()
        with self._changed:
            if self._stopped:
                return
            self._stop = (asyncio.get_running_loop(), stop)
        try:
            async with onceway.connect(
                self._options.url, connect_timeout_s=None, **self._options.access.arguments()
            ) as connection:
                while not stop.is_set():
                    names = await self._ask(connection)
                    with self._changed:
                        self._found = matching(self._pattern, names)
                        self._asked += 1
                        self._changed.notify_all()
                    try:
                        await waits.PAUSE(asyncio.wait_for)(stop.wait(), LOOK_EVERY_S)
                    except TimeoutError:
                        continue
        finally:
            with self._changed:
                self._stop = None

    async def _ask(self, connection: Connection) -> list[str]:
        """Links of their own for each question: a router that dies takes question or answer along."""
        while True:
            reply = f"topics-{uuid4().hex}"
            try:
                answers = await connection.subscriber(NODE, name=reply, guarantee="at-most-once", credit=1)
                questions = await connection.publisher(NODE, name=reply, guarantee="at-least-once")
            except LinkRefused as error:
                if error.condition != NOT_FOUND:
                    raise
                await asyncio.sleep(1.0)  # the router is starting
                continue
            try:
                async with asyncio.timeout(waits.TOPICS.s):
                    properties = Properties(message_id=reply, reply_to=reply)
                    body = {"attributeNames": list(_ATTRIBUTES)}
                    await questions.put(Message(body, properties=properties, application_properties=dict(_QUERY)))
                    async for delivery in answers:
                        return _names(delivery.message)
            except TimeoutError:
                continue
            finally:
                await questions.close()
                await answers.close()


def _names(message: Message) -> list[str]:
    """Of topics, without what begins as addresses of routers and other specifications do."""
    said: Any = message.application_properties or {}
    answer: Any = message.value
    if said.get("statusCode") != 200:
        raise SparkSourceError(f"{said.get('statusCode')} {said.get('statusDescription')}")
    keys, kinds = (list(answer["attributeNames"]).index(name) for name in _ATTRIBUTES)
    addresses = [str(row[keys])[1:] for row in answer["results"] if row[kinds] == "multicast"]
    return [name for name in addresses if name[:1] not in ("$", "_")]
