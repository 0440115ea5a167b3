"""One edge: clients on TCP, and the network on which edges exchange what their publishers say.

What a client publishes goes through the network also to the clients of its own edge, so there is one way only. A
delivery is accepted when it was written to all clients that want it; a client that does not read holds it up, and with
it whoever publishes, until the client has been stuck for too long and is disconnected.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import onceway
from amqp10.sasl import Failure, Pending, Step, Success
from edges.metadata.client import keep_alive
from edges.metadata.exchange import (
    ALIVE_S,
    MESSAGE_BYTES,
    Account,
    Asked,
    Deliver,
    LocalPublishers,
    Lost,
    NetworkPublishers,
    Output,
    TooManyKeys,
    TooMuch,
    read,
)
from edges.metadata.registry import Query
from edges.metadata.wire import Decoder, Dialect, Fault, Publish
from edges.reading import read_or_reject, room_in
from onceway.base import waits
from onceway.base.logs import Log, logger
from onceway.client.delivery import Delivery
from onceway.client.publications import Publication
from onceway.client.publisher import Publisher
from onceway.client.signals import Changes
from onceway.client.subscriber import Subscriber
from onceway.errors import DeliveryNotAccepted, DeliveryUndecided
from onceway.serve.guard import Guard
from onceway.serve.strangers import Strangers
from onceway.serve.transport import UNSAID, Carrier
from router.links.negotiation import Unauthorized
from router.links.predicate import Predicate, PredicateError
from router.policies import NOBODY, Direction, Identity

BESIDE: Final = 2 * MESSAGE_BYTES  # octets of a message of the network beside one of a client
TICK_S: Final = 0.5
SUBSCRIPTION_TIMEOUT_S: Final = 20.0  # for so long an edge that died holds up whoever publishes
CREDIT: Final = 256
HIGH_BYTES: Final = 16 << 10  # of what waits to be published: then clients are not read, as others wait behind it
LOW_BYTES: Final = 4 << 10
UNHEARD: Final = 2  # messages under way, for the same reason
TURN_S: Final = 0.001  # after which others have the loop
PART: Final = 16  # messages of one client, before those of the next
TESTED: Final = 256  # publishers that a new predicate looks at, before others have a turn


class Edge:
    """One edge of an address; `await start()`, then it runs until `await stop()`.

    Args:
        urls: URLs of routers.
        address: The address on which all edges meet.
        name: This edge's name. No two processes may have it at once.
        max_message_bytes: The largest message of a client.
        stall_s: A client that reads nothing for so long, in seconds, is disconnected.
        connect_timeout_s: How long the first router may take to answer, in seconds.
        tls, credentials: As of `onceway.connect`.
        guard: Who may come in as a client; None: everyone, without TLS.

    Attributes:
        failed: Done with an exception when the edge cannot go on.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        address: str,
        name: str,
        *,
        host: str = "127.0.0.1",
        port: int = 4444,
        max_message_bytes: int = 1 << 20,
        stall_s: float = 30.0,
        connect_timeout_s: float = 30.0,
        tls: ssl.SSLContext | None = None,
        credentials: onceway.Credentials | None = None,
        guard: Guard | None = None,
    ) -> None:
        self.name = name
        self.port = port
        self.max_message_bytes = max_message_bytes
        self.log: Log = logger("metadata", edge=name)
        self.failed: asyncio.Future[None] = waits.STOP(asyncio.get_running_loop().create_future())
        process = time.time_ns()
        self.guard = guard or Guard(name, self.log)
        self.local = LocalPublishers(name, process, time.time_ns, self.guard.config.memory_limit, max_message_bytes)
        self.network = NetworkPublishers(name, process, time.monotonic())
        self._accounts: WeakValueDictionary[str, Account] = WeakValueDictionary()  # of users
        self.address = address
        self.clients: dict[Client, None] = {}
        self.looks: list[Callable[[], None]] = []  # what the process does now and then, between two turns
        self.strangers = Strangers()
        self._process = process
        self._host = host
        self._stall_s = stall_s
        self._connection = onceway.connect(
            urls,
            container=f"{address}.{name}",
            connect_timeout_s=connect_timeout_s,
            close_timeout_s=waits.METADATA_LEAVE.s,
            tls=tls,
            credentials=credentials,
        )
        self._subscriber: Subscriber | None = None
        self._publisher: Publisher | None = None
        self._server: asyncio.Server | None = None
        self._changes = Changes()  # something is to be said, a client reads again, or this edge has joined
        self._unread: dict[Client, None] = {}  # clients that are not read: too much waits
        self._written: dict[Client, None] = {}  # clients with something to write
        self._serving: deque[Client] = deque()  # clients of whose input not all was looked at
        self._turn_asked = False
        self._hearing = waits.METADATA_READER(asyncio.Lock())  # what edges say is taken in order, and in parts
        self._tasks: set[asyncio.Task[None]] = set()
        self._left = False

    async def start(self) -> None:
        """Returns when all publishers are known and clients are served.

        Raises:
            OSError: The port cannot be bound.
            OncewayError: There is no router, it refuses the address, or takes no messages of a useful size.
        """
        await self._connection
        self._subscriber = await self._connection.subscriber(
            self.address,
            credit=CREDIT,
            subscription_timeout_s=SUBSCRIPTION_TIMEOUT_S,
            on_gap=lambda _: self._begin_again(),
        )
        self._publisher = await self._connection.publisher(self.address, on_undecided=lambda _: None)
        self._fit(self._publisher.max_message_bytes)
        for work in (self._publish(self._publisher), self._receive(self._subscriber), self._tick()):
            self._spawn(work)
        self.failed.add_done_callback(lambda _: self._changes.notify())
        await waits.METADATA_JOIN(self._changes).until(lambda: self.network.joined or self.failed.done())
        if self.failed.done():
            self.failed.result()
        await self._listen()

    def _fit(self, largest: int | None) -> None:
        """What clients say has room in the network's messages."""
        room = room_in(largest, BESIDE)
        if room is None or room >= self.max_message_bytes:
            return
        text = "a client's message has at most {most} bytes: those of the routers have {largest}"
        self.max_message_bytes = self.local.most = room
        self.log.warning("metadata_max_message", text, most=self.max_message_bytes, largest=largest)

    async def stop(self) -> None:
        """Says goodbye to clients and edges."""
        self._left = True
        if self._server is not None:
            self._server.close()
        for client in list(self.clients):
            client.close()
        if not self.failed.done():
            self.local.leave()
            self._changes.notify()
            await self._changes.until(lambda: not self.unheard or self.failed.done(), waits.METADATA_LEAVE.s)
        if self._subscriber is not None:
            await self._subscriber.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._connection.close(timeout_s=waits.METADATA_LEAVE.s)
        if not self.failed.done():
            self.failed.cancel()

    @property
    def unheard(self) -> bool:
        """Whether there is something that not every edge has heard, or that is not known to have been heard."""
        return self.local.waits or (self._publisher is not None and self._publisher.unsettled > 0)

    # -- for clients

    def publish(self, client: Client, message: Publish) -> None:
        """Raises:
        TooManyKeys: Nothing was published.
        TooMuch: Nothing was published.
        """
        self.local.publish(client.publishers, *message, client.account)
        self._changes.notify()
        if self.local.waiting_bytes > HIGH_BYTES:
            self._leave_unread(client)

    def population(self) -> tuple[int, int]:
        """How many publishers there are, of all edges, and how many have gone."""
        return self.network.population()

    def read_again(self) -> None:
        """Follows changed users, policies and certificates; who may not be here any more is sent away."""
        who_now = self.guard.read_again(self.time())
        for client in list(self.clients):
            if client.who is None:
                continue
            who = who_now(client, client.who)
            if who is None:
                client.fail(f"user {client.who.user!r:.60} was removed")
                continue
            client.who = who
            if client.query is not None and (refusal := client.may_not("receive")):
                client.fail(refusal)

    # -- for the carriers

    def time(self) -> float:
        return time.monotonic()

    def after_read(self) -> None:
        """A client writes for itself."""

    def connection_made(self, client: Carrier) -> Client:
        assert isinstance(client, Client)
        self.clients[client] = None
        self.guard.admission.connected(client, self.time(), client.peer)
        if not self.network.joined:
            self._leave_unread(client)
        return client

    def connection_lost(self, client: Carrier) -> None:
        assert isinstance(client, Client)
        self.disconnected(client)
        self.guard.admission.disconnected(client, client.who.user if client.who is not None else None)
        self.clients.pop(client, None)
        self._unread.pop(client, None)
        self._written.pop(client, None)
        self._changes.notify()

    def account_of(self, who: Identity) -> Account:
        """What the publishers of a client are counted in: that of its user, or its own where nobody says who he is."""
        if self.guard.authentication is None:
            return Account()
        return self._accounts.setdefault(who.user, Account())

    def serve(self, client: Client) -> None:
        """It has said something, which is looked at when it has its turn: clients take turns, part by part."""
        if client not in self._serving:
            self._serving.append(client)
        self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if not self._turn_asked and self._serving:
            self._turn_asked = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_asked = False
        end = self.time() + TURN_S
        while self._serving and self.time() < end:
            client = self._serving.popleft()
            if client.take_part():
                self._serving.append(client)
        self._ask_for_turn()

    def disconnected(self, client: Client) -> None:
        """Its publishers have gone."""
        known, client.publishers = client.publishers, {}
        self.local.disconnected(known)
        self._changes.notify()

    def writable(self, client: Client) -> None:
        """It has read what it was sent."""
        if client not in self._unread:
            client.read(True)
        self._changes.notify()

    def _leave_unread(self, client: Client) -> None:
        self._unread[client] = None
        client.read(False)

    def _read_all(self) -> None:
        unread, self._unread = self._unread, {}
        for client in unread:
            client.read(True)

    # -- between clients and network

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        listening = loop.create_server(lambda: Client(self), self._host, self.port, backlog=1024)
        self._server = await waits.LISTEN(listening)
        server: Any = self._server  # uvloop has a list where asyncio has a tuple, and compiled code would refuse it
        self.port = server.sockets[0].getsockname()[1]
        self.log.info("metadata_listening", "clients are served at {at}", at=f"{self._host}:{self.port}")

    async def _publish(self, publisher: Publisher) -> None:
        unheard: deque[asyncio.Task[None]] = deque()
        while True:
            if len(unheard) >= UNHEARD:  # where somebody does not read, this edge goes on saying that it is there
                await waits.PAUSE(asyncio.wait)((unheard.popleft(),), timeout=ALIVE_S / 2)
            out = self.local.message(time.monotonic())
            if out is None:
                await waits.PAUSE(self._changes).until(lambda: self.local.waits or self.local.telling, TICK_S)
                continue
            publication = await publisher.put(out.body)
            unheard.append(self._spawn(self._decided(publication, out.joins, out.told)))
            if self._unread and self.network.joined and self.local.waiting_bytes < LOW_BYTES:
                self._read_all()

    async def _decided(self, publication: Publication, joins: bool, told: list[Delivery]) -> None:
        """All edges have heard the message, or it is not known whether they have."""
        try:
            await publication
        except (DeliveryNotAccepted, DeliveryUndecided) as error:
            if not joins and not told:
                return
            self.log.warning("metadata_unheard", "not every edge has heard this one: {reason}", reason=str(error))
            for delivery in told:
                delivery.release()
            if joins:
                self.local.join()
            return
        finally:
            self._changes.notify()
        for delivery in told:
            delivery.accept()
        if joins:
            self.network.joined = True
            self.log.info("metadata_joined", "knows the publishers of {edges}", edges=", ".join(self.network.edges))
            self._read_all()
            self._changes.notify()

    async def _receive(self, subscriber: Subscriber) -> None:
        async for delivery in subscriber:
            said = read_or_reject(delivery, read, self._nonsense)
            if said is None:
                continue
            try:
                async with self._hearing:
                    later = await self._hear(self.network.hear(said, self.time()), delivery)
            except ValueError as error:
                self._nonsense(str(error))
                delivery.reject(description=str(error))
                continue
            if not later:
                delivery.accept()
            # who only publishes, and reads no errors, holds up nobody but himself
            stuck = [client for client in self.clients if client.stuck and client.query is not None]
            if stuck:
                await self._let_read(stuck)

    def _nonsense(self, why: str) -> None:
        self.log.warning(
            "metadata_nonsense", "a message of {address} is refused: {reason}", address=self.address, reason=why
        )

    async def _hear(self, steps: Iterator[list[Output]], delivery: Delivery | None = None) -> bool:
        """What edges say, or do not say any more, by turns. Whether the delivery is accepted later."""
        network, later, end = self.network, False, self.time() + TURN_S
        try:
            for outputs in steps:
                later = self._apply(outputs, delivery) or later
                if self.time() >= end:
                    self._write_all()
                    await asyncio.sleep(0)
                    end = self.time() + TURN_S
                if self.network is not network:  # it has begun again, and this was said to another
                    break
        finally:
            self._write_all()
        return later

    def _apply(self, outputs: list[Output], delivery: Delivery | None = None) -> bool:
        """Whether the delivery is accepted later."""
        later = False
        for output in outputs:
            if isinstance(output, Deliver):
                messages: dict[Dialect, bytes] = {}
                for query in output.queries:
                    for client in query.watchers:
                        assert isinstance(client, Client)
                        message = messages.get(client.dialect)
                        if message is None:
                            message = messages[client.dialect] = client.dialect.message(*output[1:])
                        client.out.append(message)
                        self._written[client] = None
            elif isinstance(output, dict):
                for query, (new, gone) in output.items():
                    for client in query.watchers:
                        assert isinstance(client, Client)
                        client.out.append(client.dialect.diff(new, gone))
                        self._written[client] = None
            elif isinstance(output, Asked):
                assert delivery is not None
                self.local.tell(delivery)
                self._changes.notify()
                later = True
            elif isinstance(output, Lost):
                self._begin_again()
        return later

    def _write_all(self) -> None:
        written, self._written = self._written, {}
        for client in written:
            client.write()

    async def _let_read(self, stuck: list[Client]) -> None:
        """Waits until these clients have read, and disconnects those that do not."""
        await waits.METADATA_READER(self._changes).until(
            lambda: not any(client.stuck for client in stuck), self._stall_s
        )
        for client in stuck:
            if client.stuck:
                self.log.warning(
                    "metadata_client_stuck", "client {client} has read nothing for {seconds} s and is disconnected",
                    client=client.peer, seconds=f"{self._stall_s:g}",
                )  # fmt: skip
                client.abort()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for look in self.looks:
                look()
            now = time.monotonic()
            async with self._hearing:
                await self._hear(self.network.tick(now))
            for client in list(self.guard.admission.half_open):
                assert isinstance(client, Client)
                late = client.began + self.guard.config.limits.handshake_timeout_s < now
                if late and client.tls is not None and not client.tls.shaken:
                    self.guard.admission.count_refusal("handshake_timeout")
                    client.abort()

    def _begin_again(self) -> None:
        """Messages were missed. Clients must not go on as if they had all, so they are disconnected."""
        text = "this edge was cut off from the network and may have missed messages; subscribe again"
        self.log.warning("metadata_cut_off", "messages may have been missed: subscribers are disconnected")
        for client in list(self.clients):
            self._leave_unread(client)
            if client.forget_query():
                client.fail(text)
        self.network = NetworkPublishers(self.name, self._process, time.monotonic())
        self.local.join()
        self._changes.notify()

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)


class Client(Carrier):
    """One connection, and what is said on it."""

    def __init__(self, edge: Edge) -> None:
        super().__init__(edge, edge.guard.tls)
        self.publishers: dict[str, None] = {}
        self.account = Account()
        self.query: Query | None = None
        self._wanted: Query | None = None  # it watches this one when all publishers have been looked at
        self.out: list[bytes] = []
        self.stuck = False
        self.closed = False
        self.who: Identity | None = None  # once it has said something, and may be here
        self.began = edge.time()
        self._edge = edge
        self._decoder = Decoder(edge.max_message_bytes)
        self._reading = True
        self._waits = False  # for its turn
        self._held: list[bytes] = []
        self._login = edge.guard.login(self, self._identified, lambda _: None)

    @property
    def dialect(self) -> Dialect:
        return self._decoder.dialect

    # -- for the carrier

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        keep_alive(transport.get_extra_info("socket"))  # a client that vanishes is noticed
        super().connection_made(transport)

    def receive_data(self, data: bytes, now: float) -> None:
        if self.closed:
            return
        if not self._reading:  # uvloop starts to read after connection_made, whatever was said there
            self._held.append(data)
            self.read(False)
            return
        if self.who is None and not self._is_known(data):
            return
        self._decoder.add(data)
        if self._waits:
            self._catch_up(False)
        elif self.take_part():
            self._edge.serve(self)

    def take_part(self) -> bool:
        """Looks at some of what it has said. Returns whether there is more; nothing more is read until there is not."""
        self._waits = False
        may_send = False
        for _ in range(PART):
            if self.closed or not self._reading:
                return False
            if self._wanted is not None:
                self._test(self._wanted)
                break
            message = self._decoder.next()
            if message is None:
                self._catch_up(True)
                self.write()
                return False
            if isinstance(message, Publish):
                if not may_send and (refusal := self.may_not("send")):
                    self.fail(refusal)
                    return False
                may_send = True
                try:
                    self._edge.publish(self, message)
                except (TooManyKeys, TooMuch) as error:
                    self.out.append(self.dialect.error(str(error)))
            elif isinstance(message, Fault):
                if message.fatal:
                    self.fail(message.text)
                    return False
                self.out.append(self.dialect.error(message.text))
            else:
                self._subscribe(message.predicate)
                break
        self._catch_up(False)
        self.write()
        self._waits = not self.closed
        return self._waits

    def _catch_up(self, done: bool) -> None:
        """Its socket is not read while some of what it has said waits."""
        if self._reading and self.transport is not None and not self.transport.is_closing():
            if done:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    def eof_received(self) -> bool:
        """A subscriber that has said all may go on listening, where TLS does not end with its half."""
        self._edge.disconnected(self)
        if (self.query is not None or self._wanted is not None) and self.tls is None:
            return True
        return super().eof_received()

    def receive_eof(self, now: float) -> None:
        """It is gone, or is dropped before it has said who it is."""
        self.close()

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self.closed = True
        self._unsubscribe()
        self.transport = None
        self.stuck = False

    def pause_writing(self) -> None:
        self.stuck = True
        self.read(False)

    def resume_writing(self) -> None:
        self.stuck = False
        self._edge.writable(self)

    def failed(self, kind: str, reason: str) -> None:
        self._edge.guard.tls_failed(self.peer, reason)

    def left(self) -> None:
        self.failed("TLS", UNSAID)

    def buffers_to_send(self) -> list[bytes]:
        out, self.out = self.out, []
        return [b"".join(out)] if out else out

    def next_deadline(self) -> None:
        return None

    def handle_timer(self, now: float) -> None:
        """It has none."""

    # -- for the edge

    def may_not(self, direction: Direction) -> str:
        """Why the policies do not let it; empty if they do."""
        try:
            self._edge.guard.check(self.who or NOBODY, direction, self._edge.address)
        except Unauthorized as error:
            return error.description
        return ""

    def _resume(self) -> None:
        if self._reading and not self._waits:
            super()._resume()

    def read(self, on: bool) -> None:
        self._reading = on
        if self.transport is not None and not self.transport.is_closing():
            if on:
                held, self._held = self._held, []
                if self.who is None:
                    self.transport.resume_reading()
                else:  # what it has said before comes first
                    self._waits = True
                    self._edge.serve(self)
                for data in held:
                    self.receive_data(data, 0.0)
            else:
                self.transport.pause_reading()

    def fail(self, text: str) -> None:
        """Says why, and closes."""
        self.out.append(self.dialect.error(text))
        self.close()

    def close(self) -> None:
        self.closed = True
        self.write()

    # -- who it is

    def _is_known(self, data: bytes) -> bool:
        """Before what it says first is looked at. Else that is held until its certificate has said who it is, where
        the file has users."""
        self._held.append(data)
        if self._login is None:
            known = self._admit(NOBODY)
            self._held.clear()
            return known
        self.read(False)
        step = self._login.by_password(None, None)
        if not isinstance(step, Pending):
            self._identified(step)
        return False

    def _identified(self, step: Step) -> None:
        if isinstance(step, Failure):
            self._refuse(f"{step.reason}; show a certificate of a user")
        elif isinstance(step, Success) and self._admit(Identity(step.identity, step.groups)):
            self._edge.writable(self)

    def _admit(self, who: Identity) -> bool:
        why = "" if self.closed else self._edge.guard.admission.admit(self, who.user)
        if why is None:
            self.who = who
            self.account = self._edge.account_of(who)
        else:
            self._refuse(why)
        return why is None

    def _refuse(self, why: str) -> None:
        if not self.closed:
            self._edge.log.warning(
                "client_refused", "client at {client} refused: {description}", client=self.peer, description=why
            )
            self._decoder.feed(b"".join(self._held)[:1])  # says which dialect it speaks
            self.fail(why)

    def _subscribe(self, text: str) -> None:
        network = self._edge.network
        try:
            predicate = Predicate(text)
        except PredicateError as error:
            self.out.append(self.dialect.error(str(error), error.line, error.column))
            return
        if refusal := self.may_not("receive"):
            self.fail(refusal)
            return
        if not network.joined:
            self.out.append(self.dialect.error("this edge is joining the network; subscribe again in a moment"))
            return
        self._unsubscribe()
        self._wanted = network.registry.begin(predicate, self)
        self._test(self._wanted)

    def _test(self, query: Query) -> None:
        if self._edge.network.registry.test(query, self, TESTED):
            self.query, self._wanted = query, None
            self.out.append(self.dialect.diff(query.members, ()))

    def forget_query(self) -> bool:
        """It dies with its registry. Returns whether there was one."""
        had = self.query is not None or self._wanted is not None
        self.query = self._wanted = None
        return had

    def _unsubscribe(self) -> None:
        for query in (self.query, self._wanted):
            if query is not None:
                self._edge.network.registry.unwatch(query, self)
        self.query = self._wanted = None
