"""Serves pipes to any AMQP client: links with distribution-mode copy, from a position on. What is consumed stays.

The engine is the routers' (`amqp10`), one socket's side the routers' carrier, and `onceway.serve.guard` says who may
come in. `copying` is what a link does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from amqp10.connection import Connection
from amqp10.errors import (
    DETACH_FORCED,
    INTERNAL_ERROR,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
)
from amqp10.events import ConnectionClosed, ConnectionOpened, LinkAttaching, LinkDetached, SessionFlow
from amqp10.link import Link
from amqp10.outcomes import Error
from amqp10.performatives import RCV_FIRST, SND_SETTLED, SND_UNSETTLED
from amqp10.runs import Dispositions, LinkFlow
from amqp10.sasl import Step, server_mechanisms
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.termini import COPY, Source
from amqp10.types import Symbol, ULong
from edges.pipe.copying import Reading, Refused, filters_of, start_of
from edges.pipe.log import PipeLog
from edges.pipe.messages import (
    COMMAND,
    EPOCH,
    EPOCHS,
    FENCE,
    FIRST,
    NEXT,
    REFUSED,
)
from edges.store import StoreError
from onceway.base.logs import Log
from onceway.base.waits import LISTEN
from onceway.errors import OncewayError
from onceway.serve.guard import Guard
from onceway.serve.strangers import Strangers
from onceway.serve.transport import UNSAID, Carrier
from router.json_text import write_json
from router.links.limits import LINKS
from router.links.negotiation import Unauthorized
from router.policies import ANONYMOUS, Identity

SWEEP_S: Final = 0.5  # how often idle-time-outs are looked at

Command = Callable[[str, str], Awaitable[None]]


class Listener:
    """One store's socket for readers. guard: who may come in; None: everyone. owners: whose each pipe is; they, and who
    may act, may promote its stores."""

    def __init__(
        self,
        name: str,
        logs: Mapping[str, PipeLog],
        command: Command,
        log: Log,
        guard: Guard | None = None,
        owners: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.logs = logs
        self.command = command
        self.log = log
        self.guard = guard or Guard(name, log)
        self._owners = owners
        self.settings = ConnectionSettings(
            container_id=f"onceway-pipe-store:{name}", max_frame_size=1 << 20, sasl=server_mechanisms()
        )
        self.strangers = Strangers()
        self._carriers: dict[_Carrier, None] = {}
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None

    async def start(self, host: str, port: int) -> int:
        """Returns the port. OSError if it cannot be bound."""
        loop = asyncio.get_running_loop()
        self._server = await LISTEN(loop.create_server(lambda: _Carrier(self), host, port, backlog=1024))
        self._sweep = loop.call_later(SWEEP_S, self._sweep_timers)
        server: Any = self._server  # uvloop has a list where asyncio has a tuple, and compiled code would refuse it
        found: int = server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for carrier in list(self._carriers):
            carrier.session.connection.close()
            carrier.write()
            carrier.abort()
        await asyncio.sleep(0)

    def detach_readers(self, pipe: PipeLog) -> None:
        """Sends every reader of a pipe away: they come again, by position."""
        for carrier in self._carriers:
            for reading in list(carrier.session.links.values()):
                if reading.pipe is pipe:
                    reading.link.detach(Error(Symbol(DETACH_FORCED), "this store begins anew"), closed=False)
            carrier.write()

    def read_again(self) -> None:
        """Follows changed users, policies and certificates; who may not be here any more is sent away."""
        who_now = self.guard.read_again(self.time())
        for carrier in list(self._carriers):
            session = carrier.session
            who = who_now(carrier, session.identity)
            if who is None:
                session.close(UNAUTHORIZED_ACCESS, f"user {session.user!r:.60} was removed")
                continue
            session.connection.handshake.regroup(who.groups)
            for reading in list(session.links.values()):
                try:
                    self.guard.check(session.identity, "receive", reading.pipe.name)
                except Unauthorized as refused:
                    reading.link.detach(Error(Symbol(refused.condition), refused.description))
            carrier.write()

    def may_command(self, who: Identity, pipe: str) -> bool:
        """Whether this client may fence and promote: the user as whom the stores attach, or one who may act."""
        own, rules = self.guard.authentication, self.guard.admin
        return own is None or who.user == self._owners[pipe] or rules.lets_act(who.user, who.groups)

    # --- for the carriers

    def time(self) -> float:
        return time.monotonic()

    def after_read(self) -> None:
        """A carrier writes for itself."""

    def connection_made(self, carrier: Carrier) -> Session:
        assert isinstance(carrier, _Carrier)
        carrier.session = session = Session(self, carrier)
        self._carriers[carrier] = None
        self.guard.admission.connected(session, self.time(), carrier.peer)
        return session

    def connection_lost(self, carrier: Carrier) -> None:
        assert isinstance(carrier, _Carrier)
        self._carriers.pop(carrier, None)
        if carrier.session.ends:
            carrier.session.ends.cancel()

    def _sweep_timers(self) -> None:
        now = self.time()
        for carrier in list(self._carriers):
            deadline = carrier.session.next_deadline()
            if deadline is not None and deadline <= now:
                carrier.session.handle_timer(now)
                carrier.write()
        self._sweep = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep_timers)


class _Carrier(Carrier):
    """A socket, and whether its transport's buffer is full."""

    __slots__ = ("_guard", "paused", "session")

    session: Session

    def __init__(self, listener: Listener) -> None:
        super().__init__(listener, listener.guard.tls)
        self._guard = listener.guard
        self.paused = False

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
        self.session.wake()

    def write(self) -> None:
        super().write()
        transport, most = self.transport, self._guard.config.limits.unread_output
        if self.paused and transport is not None and transport.get_write_buffer_size() > most:
            transport.pause_reading()  # it asks, and does not read the answers

    def failed(self, kind: str, reason: str) -> None:
        self._guard.tls_failed(self.peer, reason)

    def left(self) -> None:
        self.failed("TLS", UNSAID)


class Session:
    """One client's connection: engine events to links that read, and back."""

    def __init__(self, listener: Listener, carrier: _Carrier) -> None:
        self.listener = listener
        self.carrier = carrier
        self.user: str | None = None  # under which it is counted, once admitted
        self.ends: asyncio.TimerHandle | None = None  # when its token does not hold any more
        guard, limits = listener.guard, listener.guard.config.limits
        login = guard.login(carrier, self._authenticated, self._end_after)
        settings = replace(
            listener.settings,
            sasl=login or server_mechanisms(),
            allow_no_sasl=guard.authentication is None or guard.authentication.anonymous,
            handshake_timeout_s=limits.handshake_timeout_s,
            channel_max=limits.sessions - 1,
            handle_max=limits.links - 1,
        )
        self.connection = Connection(settings, server=True, now=listener.time())
        self.links: dict[Link, Reading] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def closed(self) -> bool:
        return self.connection.closed

    def receive_data(self, data: bytes, now: float) -> None:
        self._handle(self.connection.receive_data(data, now))

    def receive_eof(self, now: float) -> None:
        self._handle(self.connection.receive_eof(now))

    def handle_timer(self, now: float) -> None:
        self._handle(self.connection.handle_timer(now))

    def buffers_to_send(self) -> Sequence[bytes]:
        return (self.data_to_send(),)

    def data_to_send(self) -> bytes:
        return self.connection.data_to_send()

    def next_deadline(self) -> float | None:
        return self.connection.next_deadline()

    @property
    def identity(self) -> Identity:
        return Identity(self.user or ANONYMOUS, self.connection.handshake.groups)

    def close(self, condition: str, text: str) -> None:
        if not self.connection.closing:
            self.connection.close(Error(Symbol(condition), text))
        self.carrier.write()

    def _authenticated(self, step: Step) -> None:
        self._handle(self.connection.authenticated(step, self.listener.time()))

    def _end_after(self, seconds: float) -> None:
        close = self.close
        self.ends = asyncio.get_running_loop().call_later(
            seconds, lambda: close(UNAUTHORIZED_ACCESS, "the token has expired")
        )

    def _opened(self) -> None:
        user = self.connection.handshake.user or ANONYMOUS
        reason = self.listener.guard.admission.admit(self, user)
        if reason is not None:
            self.close(RESOURCE_LIMIT_EXCEEDED, reason)
        else:
            self.user = user

    def _ended(self, event: ConnectionClosed) -> None:
        admission = self.listener.guard.admission
        if event.local and event.error is not None and not event.lost:
            admission.count_engine_error(event.error)
            if self.user is None:
                self.listener.log.warning(
                    "client_refused", "client at {client} refused: {description}", client=self.carrier.peer,
                    condition=str(event.error.condition), description=event.error.description or "",
                )  # fmt: skip
        admission.disconnected(self, self.user)
        self.user = None

    def wake(self) -> None:
        for reading in self.links.values():
            reading.wake.notify()

    def _handle(self, events: list[Any]) -> None:
        for event in events:
            if isinstance(event, ConnectionOpened):
                self._opened()
            elif isinstance(event, ConnectionClosed):
                self._ended(event)
            elif isinstance(event, LinkAttaching):
                self._spawn(self._attach(event.link))
            elif isinstance(event, Dispositions):
                if not event.settled and isinstance(event.link, SenderLink):
                    event.link.settle(event.first_id, event.last_id, event.state)
            elif isinstance(event, LinkFlow | SessionFlow | LinkDetached):
                self.wake()
        if self.connection.closed:
            self.wake()
        self.carrier.write()

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _attach(self, link: Link) -> None:
        try:
            if not isinstance(link, SenderLink):
                raise Refused(NOT_IMPLEMENTED, "a store takes no messages: send to the pipe's address at a router")
            reading = await self._reading(link)
        except (Refused, Unauthorized) as refused:
            self.listener.log.info(
                "link_refused", "reader {link} of {user} refused: {description}", link=link.name,
                user=self.identity.user, client=self.carrier.peer, description=refused.description,
            )  # fmt: skip
            link.refuse(refused.condition, refused.description)
            self.carrier.write()
            return
        except StoreError as error:
            link.refuse(INTERNAL_ERROR, str(error))
            self.carrier.write()
            return
        self.links[link] = reading
        try:
            await reading.run()
        except StoreError as error:  # what is damaged here, another store may have
            if not link.detached:
                self.listener.log.error(
                    "pipe_unreadable", "{pipe}: {reason}", pipe=reading.pipe.name, reason=str(error)
                )
                link.detach(Error(Symbol(INTERNAL_ERROR), str(error)))
                self.carrier.write()
        finally:
            del self.links[link]
            reading.forget()

    async def _reading(self, link: SenderLink) -> Reading:
        attach = link.remote_attach
        assert attach is not None
        source = attach.source
        guard, limits = self.listener.guard, self.listener.guard.config.limits
        if len(self.tasks) > limits.links:
            guard.admission.count_refusal(LINKS)
            raise Refused(RESOURCE_LIMIT_EXCEEDED, f"limit links: a connection may have {limits.links} of them")
        guard.check(self.identity, "receive", (source.address if source is not None else None) or "")
        pipe = self.listener.logs.get(source.address or "") if source is not None else None
        if source is None or pipe is None:
            raise Refused(NOT_FOUND, f"no pipe {source.address if source else None!r:.80} at this store")
        if source.distribution_mode == "move":
            raise Refused(NOT_IMPLEMENTED, "distribution-mode move: what is read of a pipe stays in it, ask for copy")
        properties = {**filters_of(source.filter), **(attach.properties or {})}
        if COMMAND in properties:
            if not self.listener.may_command(self.identity, pipe.name):
                text = f"user {self.identity.user!r:.60} may not promote: that is for the pipe's user, and admin.act"
                raise Refused(UNAUTHORIZED_ACCESS, text)
            try:
                await self.listener.command(pipe.name, str(properties[COMMAND]))
            except OncewayError as error:
                raise Refused(REFUSED, str(error)) from error
        first = await start_of(pipe, properties)
        settled = attach.snd_settle_mode == SND_SETTLED
        reading = Reading(self, link, pipe, first, settled, properties)
        link.attach(
            source=Source(address=source.address, distribution_mode=COPY),
            target=attach.target,
            snd_settle_mode=SND_SETTLED if settled else SND_UNSETTLED,
            rcv_settle_mode=RCV_FIRST,
            properties={
                Symbol(FIRST): ULong(first),
                Symbol(NEXT): ULong(pipe.visible),
                Symbol(EPOCH): ULong(0 if pipe.lacks else pipe.state.epoch),
                Symbol(EPOCHS): write_json(pipe.state.epochs),
                Symbol(FENCE): ULong(pipe.state.fence),
            },
        )
        self.carrier.write()
        return reading
