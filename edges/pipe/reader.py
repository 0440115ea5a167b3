"""Reads a pipe over a copy link, from one store after the other: by position, so without gap or repeat.

A `Reader` is given stores, or routers, which name the stores (amqp:link:redirect). When a store is lost it goes to the
next one. It never goes back to a store that has not heard of the latest promotion.
"""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

from amqp10.connection import Connection
from amqp10.errors import INTERNAL_ERROR, LINK_REDIRECT, UNAUTHORIZED_ACCESS
from amqp10.events import ConnectionClosed, LinkAttached, LinkDetached
from amqp10.outcomes import Error
from amqp10.performatives import RCV_FIRST, SND_SETTLED
from amqp10.receiver import ReceiverLink
from amqp10.runs import Transfers
from amqp10.sections import Message
from amqp10.settings import ConnectionSettings
from amqp10.termini import Source, Target
from amqp10.types import Symbol, Timestamp, ULong
from edges.pipe.messages import (
    COMMAND,
    CONTROL,
    END,
    ENTRIES,
    EPOCH,
    EPOCHS,
    FENCE,
    FIRST,
    FROM,
    IF_GONE,
    NEXT,
    PIPE_DROPPED,
    PIPE_RESET,
    REFUSED,
    RESUMED,
    Epochs,
    control_in,
)
from onceway.access.contexts import tls_context
from onceway.base.waits import PIPE_FIRST, PIPE_RECORDS, PIPE_STORE
from onceway.client.bodies import read_body, why_raw
from onceway.client.clock import now_s
from onceway.client.credentials import Credentials, Login, login_for
from onceway.client.driver import NOT_REACHED, end_point_of, why_failed
from onceway.client.protocol.contact import backoff_s
from onceway.client.signals import Changes
from onceway.client.transport import Wire
from onceway.client.urls import RouterUrl, parse_urls
from onceway.errors import ConnectionFailed, OncewayError, UsageError
from router.names import STORES

CREDIT: Final = 8192
TIMER_S: Final = 1.0
TELL_AFTER_S: Final = 1.0  # without an answer
Say = Callable[[str], None]
Start = int | datetime | str | None
IfGone = Literal["error", "first"]


class PipeWasReset(OncewayError):
    """The pipe was reset while the reader was between two stores, and the rest of the old content is gone. Read again,
    from the beginning, for the new content."""


class PipeDropped(OncewayError):
    """What the reader wanted next was dropped by the pipe's retention. Read again, from the beginning, for what is
    left."""


class Received(NamedTuple):
    """One message of a pipe, or a control record. Attributes and properties are as those of a `Delivery`."""

    position: int
    payload: bytes
    message_format: int = 0

    @property
    def body(self) -> Any:
        """Bytes, or the value; the payload, as a `Raw`, where the message cannot be decoded."""
        return read_body(self.payload, self.message_format)

    @property
    def message(self) -> Message:
        return Message.read(self.payload, self.message_format)

    @property
    def raw(self) -> str | None:
        """Why `body` is the payload as it came; None where it was decoded."""
        return why_raw(self.body)

    @property
    def control(self) -> dict[str, Any] | None:
        """What a control record says; None for a message."""
        return None if self.message_format else control_in(self.payload)


class Reader:
    """Use it with `async with`; then `batches`.

    Args:
        topic: The pipe.
        stores: URLs of stores. Empty: the routers are asked.
        routers: URLs of routers.
        start: A position, a time, "end", or None for the beginning.
        control: Control records, too.
        if_gone: When the position that comes next was reset or dropped: "first" goes on with the first there is,
            "error" raises. None: the first at the start, an error later.
        entries: For a store: entries of the log, from a store that has all before this position.
        command: What the store is to do first, for a promotion.
        timeout_s: How long the first store may take to answer; later ones are tried for ever.
        tls: What is shown and asked for at amqps://; None: as the system does.
        credentials: For routers and stores whose URL has none.
        on_wait: Told, after a second without a store, what the reader waits for, and then that it goes on.

    Attributes:
        next: The position that comes next.
        end: The position behind the last message that the store had when it was attached to first.
        epoch: Of the latest promotion that the store knows.
        epochs: The promotions in the store's records.
        fence: The lowest epoch of which the store takes anything.
    """

    def __init__(
        self,
        topic: str,
        *,
        stores: str | Sequence[str] = (),
        routers: str | Sequence[str] = (),
        start: Start = None,
        control: bool = False,
        if_gone: IfGone | None = None,
        entries: int | None = None,
        command: str | None = None,
        timeout_s: float = 30.0,
        tls: ssl.SSLContext | None = None,
        credentials: Credentials | None = None,
        on_wait: Say | None = None,
    ) -> None:
        if isinstance(start, int) and not 0 <= start < 1 << 63:
            raise UsageError(f"position {start}: positions count from 0")
        if isinstance(start, datetime) and start.year < 1970:
            start = None  # all is later
        self.topic = topic
        self.next: int | None = None
        self.end = 0
        self.epoch = 0
        self.epochs: Epochs = []
        self.fence = 0
        self._stores = parse_urls(stores) if stores else []
        self._routers = parse_urls(routers) if routers else []
        for url in (*self._stores, *self._routers):
            if url.in_websocket:
                raise UsageError(f"{url}: pipes are read at amqp:// and amqps://")
        self._start = start
        self._control = control
        self._if_gone = if_gone
        self._entries = entries
        self._command = command
        self._timeout_s = timeout_s
        self._tls = tls
        self._credentials = credentials
        self._say = on_wait
        self._rng = random.Random()
        self._name = f"onceway-pull-{secrets.token_hex(8)}"
        self._link: _Attachment | None = None
        self._reasons: dict[str, str] = {}  # by URL: why there is no answer
        self._told = False
        self._turn = 0

    async def __aenter__(self) -> Reader:
        try:
            async with PIPE_FIRST(asyncio.timeout(self._timeout_s)):
                await self._connect()
        except TimeoutError:
            text = f"no store of pipe {self.topic!r} reached within {self._timeout_s:g} s: {self._waits()}"
            raise ConnectionFailed(f"{text}; start it, or give another URL", self._reasons) from None
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._link is not None:
            await PIPE_STORE(self._link.close())

    async def batches(self, until: int | None = None) -> AsyncIterator[list[Received]]:
        """What has come, in order, each position once; ends before position `until`; None: never.

        Raises:
            PipeWasReset: See there.
            PipeDropped: See there.
            OncewayError: No store can read on: there is damage.
        """
        assert self.next is not None
        unreadable = 0  # stores that could not read on, one after the other
        while until is None or self.next < until:
            if self._link is None:
                await self._connect()
            link = self._link
            assert link is not None
            await PIPE_RECORDS(link.changes).until(lambda: link.runs or link.over)  # noqa: B023
            if not link.runs:
                self._reasons[str(link.url)] = link.over or ""
                await link.close()
                self._link = None
                self._raise_if_gone(link.error)
                unreadable += link.error is not None and link.error.condition == INTERNAL_ERROR
                if unreadable == len(self._stores):
                    raise OncewayError(f"{link.url}: {link.over}")
                continue
            unreadable = 0
            tags, payloads, message_format = link.runs.popleft()
            link.took(len(tags))
            positions = [int.from_bytes(tag, "big") for tag in tags]
            batch = [Received(*each, message_format) for each in zip(positions, payloads, strict=True)]
            if until is not None and batch[-1].position >= until:
                batch = [each for each in batch if each.position < until]
                self.next = until
            else:
                self.next = batch[-1].position + 1
            if batch:
                yield batch

    async def messages(self, *, follow: bool = False, count: int | None = None) -> AsyncIterator[list[Received]]:
        """As `batches`, without control records: `count` messages, or what there was at first; `follow`: for ever."""
        left = count
        async for batch in self.batches(None if follow or count is not None else self.end):
            found = [each for each in batch if each.control is None][:left]
            yield found
            if left is not None:
                left -= len(found)
                if not left:
                    return

    async def _connect(self) -> None:
        """Tries the stores one after the other until one answers."""
        failures = 0
        telling = asyncio.get_running_loop().call_later(TELL_AFTER_S, self._tell)
        try:
            while True:
                if not self._stores or (failures and self._routers):
                    await self._ask_routers()
                for _ in range(len(self._stores)):
                    url = self._stores[self._turn % len(self._stores)]
                    self._turn += 1
                    if await self._attach(url):
                        return
                await asyncio.sleep(backoff_s(failures, self._rng))
                failures += 1
        finally:
            telling.cancel()
            if self._told and self._link is not None and self._say is not None:
                self._told = False
                self._say(f"{self.topic}: goes on")

    def _tell(self) -> None:
        if self._say is not None:
            self._told = True
            self._say(f"{self.topic}: waits for {self._waits()}")

    def _waits(self) -> str:
        kind, urls = ("store", self._stores) if self._stores else ("router", self._routers)
        return ", ".join(f"{kind} {url} ({self._reasons.get(str(url), 'no answer')})" for url in urls)

    async def _attach(self, url: RouterUrl) -> bool:
        link = self._attachment(url, self._properties())
        why = await link.open(max(PIPE_STORE.s, self._timeout_s) if self._command else PIPE_STORE.s)
        if why is None and link.properties.get(EPOCH, 0) < self.epoch:
            why = "it has not heard of the latest promotion"
        if why is None and link.properties.get(NEXT, 0) < (self._entries or 0):
            why = "it does not have as much"
        if why is not None:
            self._reasons[str(url)] = why
            if link.untrusted and not self._told:  # that does not pass by itself
                self._tell()
            await link.close()
            self._raise_if_gone(link.error)
            if link.error is not None and link.error.condition in (REFUSED, UNAUTHORIZED_ACCESS):
                raise OncewayError(f"{url}: {link.error.description}")
            return False
        self.epoch = int(link.properties.get(EPOCH, 0))
        self.epochs = json.loads(link.properties.get(EPOCHS, "[]"))
        self.fence = int(link.properties.get(FENCE, 0))
        if self.next is None:
            self.next = int(link.properties.get(FIRST, 0))
            self.end = int(link.properties.get(NEXT, 0))
        self._link = link
        return True

    def _raise_if_gone(self, error: Error | None) -> None:
        gone = {PIPE_RESET: PipeWasReset, PIPE_DROPPED: PipeDropped}.get(error.condition if error else "")
        if gone is not None and error is not None:
            raise gone(f"pipe {self.topic!r}: {error.description}")

    def _properties(self) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        if self._command is not None:
            properties[Symbol(COMMAND)] = self._command
        if self._control:
            properties[Symbol(CONTROL)] = True
        if self._if_gone is not None:
            properties[Symbol(IF_GONE)] = Symbol(self._if_gone)
        if self._entries is not None:
            properties[Symbol(ENTRIES)] = True
        if self.next is not None:
            properties[Symbol(FROM)] = ULong(self.next)
            properties[Symbol(RESUMED)] = True
        elif isinstance(self._start, datetime):
            properties[Symbol(FROM)] = Timestamp(int(self._start.timestamp() * 1000))
        elif isinstance(self._start, int):
            properties[Symbol(FROM)] = ULong(self._start)
        elif self._start is not None:
            properties[Symbol(FROM)] = Symbol(END)
        return properties

    async def away(self) -> dict[str, str]:
        """The stores that do not answer at once, and why. One that does not let this client read answers.
        ConnectionFailed: no router knows the pipe."""
        if not self._stores:
            await self._ask_routers()
        links = [self._attachment(url, {}) for url in self._stores]
        reasons = await asyncio.gather(*(link.open(TIMER_S, credit=0) for link in links))
        for link in links:
            await link.close()
        return {
            str(link.url): why
            for link, why in zip(links, reasons, strict=True)
            if why is not None and (link.error is None or link.error.condition != UNAUTHORIZED_ACCESS)
        }

    def _attachment(self, url: RouterUrl, properties: dict[str, Any]) -> _Attachment:
        return _Attachment(url, self.topic, self._name, properties, login_for(url, self._credentials), self._tls)

    async def _ask_routers(self) -> None:
        """The stores of the pipe, as a router knows them."""
        self._rng.shuffle(self._routers)
        unknown = 0
        stores: list[RouterUrl] = []
        for url in self._routers:
            link = self._attachment(url, {})
            why = await link.open(PIPE_STORE.s, credit=0)
            await link.close()
            error = link.error
            if error is not None and error.condition == LINK_REDIRECT:
                self._stores = parse_urls([str(each) for each in (error.info or {}).get(STORES, ())])
                return
            if error is not None and error.condition == UNAUTHORIZED_ACCESS:
                raise OncewayError(f"{url}: {error.description}")
            if NEXT in link.properties:
                stores.append(url)  # it is a store
            self._reasons[str(url)] = why or "no such pipe"
            unknown += why is None
        if stores:
            self._stores = stores
        elif unknown == len(self._routers) and self.next is None:
            routers = ", ".join(map(str, self._routers))
            text = f"no pipe {self.topic!r} at {routers}; is the name right? A pipe that no file has needs --store"
            raise ConnectionFailed(text, self._reasons)


class _Attachment:
    """One copy link on a connection of its own."""

    def __init__(
        self,
        url: RouterUrl,
        topic: str,
        name: str,
        properties: dict[str, Any],
        login: Login,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.url = url
        self.changes = Changes()
        self.runs: deque[tuple[list[bytes], list[bytes], int]] = deque()  # tags, payloads, their message-format
        self.over: str | None = None
        self.error: Error | None = None
        self.untrusted = False  # TLS has failed
        self.properties: dict[Any, Any] = {}
        self._topic = topic
        self._name = name
        self._wanted = properties
        self._attached = False
        self._waiting = 0
        self._link: ReceiverLink | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wire = Wire(self)
        self._login = login
        self._tls = tls
        self._connection: Connection | None = None

    async def open(self, timeout_s: float, credit: int = CREDIT) -> str | None:
        """Returns when the store has answered; why not, if it does not serve."""
        loop = asyncio.get_running_loop()
        try:
            async with PIPE_STORE(asyncio.timeout(timeout_s)):
                url, tls = self.url, (self._tls or tls_context()) if self.url.secure else None
                transport, _ = await loop.create_connection(lambda: self._wire, url.host, url.port, ssl=tls)
                sasl = self._login.sasl(url.host, secure=url.secure, end_point=end_point_of(transport))
                settings = ConnectionSettings(
                    container_id=self._name, hostname=url.host, sasl=sasl, incoming_window=CREDIT
                )
                self._connection = connection = Connection(settings, server=False, now=now_s())
                connection.open()
                session = connection.begin()
                self._link = link = session.receiver(f"{self._name}:{self._topic}")
                link.attach(
                    source=Source(address=self._topic, distribution_mode=Symbol("copy")),
                    target=Target(address=self._name),
                    snd_settle_mode=SND_SETTLED,
                    rcv_settle_mode=RCV_FIRST,
                    properties=self._wanted,
                )
                self._timer = loop.call_later(TIMER_S, self._tick)
                self._write()
                await self.changes.until(lambda: self._attached or self.over)
        except TimeoutError:
            return "no answer"
        except NOT_REACHED as error:
            self.untrusted = isinstance(error, ssl.SSLError)
            return why_failed(error)
        if self.over is None and credit:
            link.grant(credit)
            self._write()
        return self.over

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._link is not None:
            self._link.detach()
        if self._connection is not None:
            self._connection.close()
        self._write()
        self._wire.close()

    def took(self, count: int) -> None:
        """Gives credit for as many others, once it is worth a flow."""
        self._waiting -= count
        link = self._link
        if link is not None and link.credit < CREDIT // 2 and self._waiting < CREDIT // 2:
            link.grant(CREDIT - self._waiting)
            self._write()

    # --- the socket

    def wire_received(self, wire: Wire, data: bytes) -> None:
        if self._connection is None:  # it speaks before it is spoken to
            wire.abort()
            return
        for event in self._connection.receive_data(data, now_s()):
            if isinstance(event, Transfers):
                self.runs.append((event.tags, event.payloads, event.message_format or 0))
                self._waiting += len(event.tags)
            elif isinstance(event, LinkAttached):
                attach = event.link.remote_attach
                if attach is not None and attach.source is not None:  # else it is refused, and detach follows
                    self.properties = dict(attach.properties or {})
                    self._attached = True
            elif isinstance(event, LinkDetached | ConnectionClosed):
                self._ended(event.error)
        self._write()
        self.changes.notify()

    def wire_ended(self, wire: Wire) -> None:
        self._ended(None)

    def wire_lost(self, wire: Wire, error: Exception | None) -> None:
        self.untrusted = isinstance(error, ssl.SSLError)
        self._ended(None, "the connection was lost" if error is None else why_failed(error))

    def _ended(self, error: Error | None, lost: str = "the connection was lost") -> None:
        if self.over is None:
            self.error = error
            self.over = lost if error is None else error.description or error.condition
        self.changes.notify()

    def _write(self) -> None:
        if self._connection is not None:
            self._wire.write(self._connection.data_to_send())

    def _tick(self) -> None:
        assert self._connection is not None
        for event in self._connection.handle_timer(now_s()):
            if isinstance(event, ConnectionClosed):
                self._ended(event.error)
        self._write()
        self._timer = asyncio.get_running_loop().call_later(TIMER_S, self._tick)
