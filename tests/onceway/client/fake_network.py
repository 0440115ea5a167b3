"""A network of fake routers: one brain, any number of listeners, connections that break where a test wants it.

It does at one address what the protocol asks of the routers towards recovering clients, without any of their distribution:
epochs are compared, maps are believed, records wait for every subscription, outcomes are repeated.  Violations by the
client (a duplicate transfer under a new tag cannot be seen here; a settled tag sent again can) are kept in `faults`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from amqp10.connection import Connection
from amqp10.events import ConnectionClosed, Event, LinkAttaching, LinkDetached, SessionEnded
from amqp10.link import Link
from amqp10.outcomes import ACCEPTED, DeliveryState, Error, Released
from amqp10.receiver import ReceiverLink
from amqp10.runs import Dispositions, LinkFlow, Transfers
from amqp10.sasl import server_mechanisms
from amqp10.sender import SenderLink
from amqp10.settings import ConnectionSettings
from amqp10.termini import COPY, MOVE, Source, Target
from amqp10.types import Symbol, UInt, ULong
from onceway.client.transport import Wire

WINDOW = 500


@dataclass
class Record:
    """A message of a publisher, from its first transfer to its settlement."""

    publisher: PublisherState
    tag: bytes
    payload: bytes
    awaits: set[str]  # subscriptions that have not accepted
    state: DeliveryState | None = None


@dataclass
class PublisherState:
    name: str
    epoch: int = 0
    incarnation: int = 0
    link: ReceiverLink | None = None
    records: dict[bytes, Record] = field(default_factory=dict)  # not settled by the publisher
    ids: dict[int, Record] = field(default_factory=dict)  # on this link
    settled: set[bytes] = field(default_factory=set)  # of this incarnation
    outstanding: int = 0


@dataclass
class SubscriptionState:
    name: str
    epoch: int = 0
    born: int = 0
    link: SenderLink | None = None
    queue: list[Record] = field(default_factory=list)  # to be sent
    sent: dict[bytes, Record] = field(default_factory=dict)  # outgoing tag -> record
    accepted: set[bytes] = field(default_factory=set)
    ids: dict[int, bytes] = field(default_factory=dict)


class FakeNetwork:
    def __init__(self) -> None:
        self.publishers: dict[str, PublisherState] = {}
        self.subscriptions: dict[str, SubscriptionState] = {}
        self.published: list[bytes] = []  # payloads, once for each new tag
        self.faults: list[str] = []
        self.attaches: list[tuple[str, int]] = []  # (link name, epoch)
        self.drop_when: Callable[[Event], bool] | None = None  # True: break the connection instead of handling it
        self.drop_unsent: Callable[[Event], bool] | None = None  # True: handle it, then break before answering
        self.hold_outcomes = False
        self.queue = False  # the address is one
        self.refuse_with: str | None = None  # condition for every attach
        self.state_of: Callable[[bytes], DeliveryState] = lambda payload: ACCEPTED  # the outcome a publisher gets
        self.timeout_s = 60
        self.window = WINDOW
        self.routers: list[FakeRouter] = []

    async def router(self, name: str = "r", verify: Callable[[str, str], bool] | None = None) -> FakeRouter:
        router = FakeRouter(self, name, verify)
        await router.start()
        self.routers.append(router)
        return router

    async def stop(self) -> None:
        for router in self.routers:
            await router.stop()

    def url(self) -> str:
        return ",".join(f"amqp://127.0.0.1:{router.port}" for router in self.routers)

    # -- attaching

    def attach(self, link: Link) -> None:
        attach = link.remote_attach
        assert attach is not None
        properties = attach.properties or {}
        epoch = int(properties["onceway:epoch"])
        self.attaches.append((link.name, epoch))
        if self.refuse_with is not None:
            link.refuse(self.refuse_with, "as the test wants it")
        elif isinstance(link, ReceiverLink):
            self._attach_publisher(link, epoch, int(properties["onceway:incarnation"]))
        else:
            assert isinstance(link, SenderLink)
            self._attach_subscriber(link, epoch, int(properties["onceway:born"]))

    def _attach_publisher(self, link: ReceiverLink, epoch: int, incarnation: int) -> None:
        state = self.publishers.setdefault(link.name, PublisherState(link.name))
        attach = link.remote_attach
        assert attach is not None
        if epoch <= state.epoch:
            link.refuse("amqp:link:stolen", "an older epoch", {"onceway:epoch": ULong(state.epoch)})
            return
        self._steal(state.link)
        if incarnation != state.incarnation:
            for record in list(state.records.values()):
                self._settle(record)
            state.incarnation = incarnation
            state.settled = set()
        elif not attach.incomplete_unsettled:
            for tag, record in list(state.records.items()):
                if tag not in (attach.unsettled or {}):
                    self._settle(record)
        state.epoch, state.link, state.ids, state.outstanding = epoch, link, {}, 0
        link.context = state
        link.attach(
            source=attach.source,
            target=Target(address=self._address(attach.target), timeout=120),
            unsettled={},
            properties={Symbol("onceway:incarnation"): ULong(incarnation)},
        )
        link.grant(self.window)

    def _attach_subscriber(self, link: SenderLink, epoch: int, born: int) -> None:
        state = self.subscriptions.setdefault(link.name, SubscriptionState(link.name))
        attach = link.remote_attach
        assert attach is not None
        if epoch <= state.epoch:
            link.refuse("amqp:link:stolen", "an older epoch", {"onceway:epoch": ULong(state.epoch)})
            return
        if born != epoch and born != state.born:
            link.refuse("onceway:subscription-broken", "not known here")
            return
        self._steal(state.link)
        state.epoch, state.born, state.link, state.ids = epoch, born, link, {}
        link.context = state
        listing: dict[bytes, DeliveryState | None] | None = None
        if attach.unsettled is not None:
            listing = {tag: told for tag, told in attach.unsettled.items() if tag in state.sent}
        for tag, record in list(state.sent.items()):
            if listing is None or tag not in listing:
                del state.sent[tag]
                state.queue.insert(0, record)  # what it does not hold comes again as new
        link.attach(
            source=Source(
                address=self._address(attach.source),
                timeout=self.timeout_s,
                expiry_policy="never",
                distribution_mode=MOVE if self.queue else COPY,
            ),
            target=attach.target,
            unsettled=listing,
            properties={Symbol("onceway:resumed"): born != epoch},
        )
        state.queue.sort(key=lambda record: self.published.index(record.payload))

    @staticmethod
    def _address(terminus: object) -> str | None:
        assert isinstance(terminus, Source | Target)
        return terminus.address

    @staticmethod
    def _steal(link: Link | None) -> None:
        if link is not None and not link.detached:
            link.detach(Error("amqp:link:stolen", "attached again"), closed=True)

    # -- publishing

    def transfers(self, event: Transfers) -> None:
        state = event.link.context
        for at, (tag, payload) in enumerate(zip(event.tags, event.payloads, strict=True)):
            if tag in state.settled:
                self.faults.append(f"{state.name} sends {tag.hex()} again, which it has settled")
            record = state.records.get(tag)
            if record is None:
                self.published.append(payload)
                record = Record(state, tag, payload, set(self.subscriptions))
                if not event.settled:
                    state.records[tag] = record
                for subscription in self.subscriptions.values():
                    subscription.queue.append(record)
            state.ids[event.first_id + at] = record
            state.outstanding += 1
            self._check(record)
        event.link.grant(max(0, self.window - state.outstanding))

    def tell_waiting(self, waiting: Mapping[Symbol, object] | None) -> None:
        """Tells every publisher why it has no credit; with None it has some again."""
        for state in self.publishers.values():
            if state.link is not None:
                state.link.flow_properties = {Symbol("onceway:waiting"): waiting}
                state.link.grant(self.window)
        self.routers[0].flush()

    def _check(self, record: Record) -> None:
        if record.awaits or self.hold_outcomes:
            return
        record.state = self.state_of(record.payload)
        state = record.publisher
        if state.link is None or state.link.detached:
            return
        for delivery_id, known in state.ids.items():
            if known is record:
                state.link.dispose(delivery_id, delivery_id, record.state, state.link.rcv_settle_mode == 0)
                if state.link.rcv_settle_mode == 0:
                    self._settle(record)

    def release_outcomes(self) -> None:
        self.hold_outcomes = False
        for state in self.publishers.values():
            for record in list(state.records.values()):
                self._check(record)

    def _settle(self, record: Record) -> None:
        state = record.publisher
        if state.records.pop(record.tag, None) is None:
            return
        state.settled.add(record.tag)
        state.outstanding -= 1
        if state.link is not None and not state.link.detached:
            state.link.grant(WINDOW - state.outstanding)
        tag = self._outgoing(record)
        for subscription in self.subscriptions.values():
            if subscription.sent.pop(tag, None) is not None:
                subscription.accepted.discard(tag)
                for delivery_id, known in list(subscription.ids.items()):
                    if known == tag:
                        del subscription.ids[delivery_id]
                        if subscription.link is not None and not subscription.link.detached:
                            subscription.link.settle(delivery_id, delivery_id)

    @staticmethod
    def _outgoing(record: Record) -> bytes:
        return record.publisher.incarnation.to_bytes(8, "big") + record.publisher.name.encode()[:8] + record.tag

    # -- subscribing

    def pump(self) -> None:
        for state in self.subscriptions.values():
            link = state.link
            if link is None or link.detached or not link.attached:
                continue
            for tag in (link.local_attach and link.local_attach.unsettled) or {}:
                if tag in state.sent and tag not in state.ids.values() and link.capacity():
                    state.ids[link.resume(tag)] = tag
            waiting = [record for record in state.queue if record.publisher.records.get(record.tag) is record]
            while waiting and (capacity := link.capacity()) > 0:
                run, waiting = waiting[:capacity], waiting[capacity:]
                tags = [self._outgoing(record) for record in run]
                first = link.send(tags, [record.payload for record in run])
                for at, (tag, record) in enumerate(zip(tags, run, strict=True)):
                    state.sent[tag] = record
                    state.ids[first + at] = tag
            state.queue = waiting

    def disposed(self, event: Dispositions) -> None:
        state = event.link.context
        if isinstance(state, PublisherState):
            if event.settled:
                for delivery_id in range(event.first_id, event.last_id + 1):
                    if delivery_id in state.ids:
                        self._settle(state.ids.pop(delivery_id))
            return
        assert isinstance(state, SubscriptionState)
        for delivery_id in range(event.first_id, event.last_id + 1):
            tag = state.ids.get(delivery_id)
            record = state.sent.get(tag) if tag is not None else None
            if tag is None or record is None:
                continue
            assert isinstance(event.link, SenderLink)
            if isinstance(event.state, Released):
                del state.sent[tag], state.ids[delivery_id]
                event.link.settle(delivery_id, delivery_id)
                state.queue.insert(0, record)
                continue
            state.accepted.add(tag)
            record.awaits.discard(state.name)
            self._check(record)

    def detached(self, link: Link, closed: bool) -> None:
        state = link.context
        if isinstance(state, SubscriptionState) and state.link is link:
            state.link = None
            if closed:
                del self.subscriptions[state.name]
                for publisher in self.publishers.values():
                    for record in list(publisher.records.values()):
                        record.awaits.discard(state.name)
                        self._check(record)
        elif isinstance(state, PublisherState) and state.link is link:
            state.link = None


class FakeRouter:
    """A listener; every connection has an engine of its own, all share the network's brain."""

    def __init__(self, network: FakeNetwork, name: str, verify: Callable[[str, str], bool] | None) -> None:
        self.network = network
        self.name = name
        self.port = 0
        self.product = "onceway"
        self.first_reads: list[int] = []  # bytes of the first read of each connection
        self.longest_first_read = 1 << 20  # a connection that says more at once is broken
        self._verify = verify
        self._server: asyncio.Server | None = None
        self._peers: dict[Wire, Connection] = {}

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Accepted(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As if the process were killed."""
        self._server.close()
        for wire in list(self._peers):
            wire.abort()
        await self._server.wait_closed()

    def drop(self) -> None:
        for wire in list(self._peers):
            wire.abort()
            self._gone(wire)

    def send_away(self, host: str, port: int) -> None:
        """Closes every connection as a router does that is being drained."""
        for wire, connection in list(self._peers.items()):
            info = {Symbol("network-host"): host, Symbol("hostname"): host, Symbol("port"): UInt(port)}
            connection.close(Error(Symbol("amqp:connection:forced"), "being drained", info))
            wire.write(connection.data_to_send())

    def flush(self) -> None:
        for router in self.network.routers:
            for wire, connection in list(router._peers.items()):
                wire.write(connection.data_to_send())
                if connection.closed:
                    wire.close()

    # -- called by Wire

    def wire_made(self, wire: Wire) -> None:
        sasl = server_mechanisms(anonymous=self._verify is None, verify=self._verify)
        settings = ConnectionSettings(container_id=self.name, sasl=sasl, properties={Symbol("product"): self.product})
        self._peers[wire] = Connection(settings, server=True, now=0.0)

    def wire_received(self, wire: Wire, data: bytes) -> None:
        connection = self._peers.get(wire)
        if connection is None:
            return
        network = self.network
        if connection.times.last_read == 0.0:
            self.first_reads.append(len(data))
            if len(data) > self.longest_first_read:
                wire.abort()
                return
        for event in connection.receive_data(data, asyncio.get_running_loop().time()):
            if network.drop_when is not None and network.drop_when(event):
                self.drop()
                return
            if isinstance(event, LinkAttaching):
                network.attach(event.link)
            elif isinstance(event, Transfers):
                network.transfers(event)
            elif isinstance(event, Dispositions):
                network.disposed(event)
            elif isinstance(event, LinkDetached):
                network.detached(event.link, event.closed)
            elif isinstance(event, SessionEnded):
                for link in event.session.links:
                    network.detached(link, False)
            elif isinstance(event, ConnectionClosed):
                self._gone(wire, connection)
            if network.drop_unsent is not None and network.drop_unsent(event):
                self.drop()
                return
        network.pump()
        self.flush()

    def wire_ended(self, wire: Wire) -> None:
        self._gone(wire)

    def wire_lost(self, wire: Wire, error: Exception | None) -> None:
        self._gone(wire)

    def _gone(self, wire: Wire, connection: Connection | None = None) -> None:
        if connection is None:
            connection = self._peers.pop(wire, None)
        if connection is not None:
            for session in connection.channels.sessions:
                for link in session.links:
                    self.network.detached(link, False)


class _Accepted(Wire):
    def __init__(self, router: FakeRouter) -> None:
        super().__init__(router)
        self._router = router

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._router.wire_made(self)


__all__ = ["FakeNetwork", "FakeRouter", "LinkFlow"]
