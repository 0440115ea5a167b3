"""One router's trunks as sockets: its listener for neighbours, and what keeps it connected to those that it dials.

Of two neighbours one dials (`interrouter.network.dials`). Which router is at the other end, and whether it may be a
neighbour, is decided by `interrouter.network`; when it dials and for how long, by `interrouter.dialing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from socket import SOCK_STREAM
from typing import TYPE_CHECKING, Final, TypeVar, cast

from interrouter.dialing import Dialing, Step
from interrouter.neighbours import dials
from interrouter.trunk import Trunk
from onceway.access.trunks import certified_names
from onceway.base import waits
from onceway.base.descriptors import most_strangers
from onceway.serve.transport import Carrier
from router.links.crowd import Crowd

if TYPE_CHECKING:
    import ssl

    from onceway.access.trunks import TrunkTls
    from onceway.serve.server import RouterServer

_TLS_RECORDS: Final = (b"\x15", b"\x16")  # the first byte of an alert and of a handshake; AMQP's is A
MOST_STRANGERS: Final = 100  # accepted connections that have not shown who they are
T = TypeVar("T")
RESOLVER: Final = 0.25  # of an attempt: how long the resolver is waited for where addresses are known from before


class Neighbours:
    """`await listen()` and `dial()`, then `dial()` whenever the links have changed, until `await stop()`."""

    def __init__(self, server: RouterServer) -> None:
        self._server = server
        self.tls: TrunkTls | None = None  # of trunks that are connected from now on
        self._dialers: dict[str, Dialer] = {}  # neighbour -> what keeps us connected to it
        self._strangers: Crowd[NeighbourCarrier] = Crowd()
        self._held: dict[NeighbourCarrier, None] = {}  # those that are not read before a later turn

    async def listen(self) -> asyncio.Server:
        """OSError if the port cannot be bound."""
        server = self._server
        host, port = server.topology.routers[server.name]["interrouter"]

        def accept() -> NeighbourCarrier:
            return NeighbourCarrier(server, None, self.tls.listens if self.tls is not None else None)

        return await waits.LISTEN(asyncio.get_running_loop().create_server(accept, host, port))

    def accepted(self, carrier: NeighbourCarrier) -> None:
        """Somebody has connected, and has not shown who it is."""
        self._strangers.add(carrier, carrier.peer)
        if len(self._strangers) > most_strangers(MOST_STRANGERS):
            one = self._strangers.next_to_go
            self._strangers.remove(one)
            one.abort()

    def no_stranger(self, carrier: NeighbourCarrier) -> None:
        """It has shown which neighbour it is, or has gone."""
        self._strangers.remove(carrier)

    def read_later(self, carrier: NeighbourCarrier) -> None:
        """It has read more than one turn handles, or as much as one read takes: libuv would read it up to 32 times
        before anybody else."""
        if not self._held:
            self._server.call_soon(self._read_on)
        self._held[carrier] = None

    def _read_on(self) -> None:
        held, self._held = self._held, {}
        for carrier in held:
            if carrier.has_more:
                self.read_later(carrier)
            else:
                carrier.read_on()

    def dial(self) -> None:
        """Follows the links of the topology file."""
        server = self._server
        wanted = [neighbour for neighbour in server.topology.neighbours(server.name) if dials(server.name, neighbour)]
        for neighbour in [neighbour for neighbour in self._dialers if neighbour not in wanted]:
            self._dialers.pop(neighbour).cancel()
        for neighbour in sorted(wanted):
            if neighbour not in self._dialers:
                self._dialers[neighbour] = Dialer(server, neighbour)
            self._dialers[neighbour].dialing.dead_after_s = server.router.config.dead_after_s

    def sign(self) -> None:
        """Something shows that the network is there: who is not connected is dialled now."""
        for dialer in self._dialers.values():
            dialer.sign()

    async def stop(self) -> None:
        dialers, self._dialers = list(self._dialers.values()), {}
        for dialer in dialers:
            dialer.cancel()
        await asyncio.gather(*[dialer.task for dialer in dialers], return_exceptions=True)


class Dialer:
    """Keeps one trunk to a neighbour connected, in a task, until that is cancelled."""

    def __init__(self, server: RouterServer, neighbour: str) -> None:
        self._server = server
        self._neighbour = neighbour
        self.dialing = Dialing(
            server.time(), dead_after_s=server.router.config.dead_after_s, spread=lambda: server.rng.uniform(0.5, 1.0)
        )
        self._limit: asyncio.Timeout | None = None  # of what is waited for now
        self._told: set[str] = set()  # why it cannot be reached
        self._place = ("", 0)
        self._resolving: asyncio.Task[list[str]] | None = None
        self._addresses: list[str] = []  # by the resolver's last answer
        self._first = 0  # of them is dialled first: those before it have not answered
        self.task = asyncio.get_running_loop().create_task(self._keep_connected())

    def sign(self) -> None:
        self.dialing.sign(self._server.time())
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(self._due())

    def cancel(self) -> None:
        self.task.cancel()
        if self._resolving is not None:
            self._resolving.cancel()

    async def _keep_connected(self) -> None:
        server, dialing = self._server, self.dialing
        while True:
            while dialing.look(began := server.time()) is not Step.DIAL:
                await self._until_due(waits.PAUSE(asyncio.get_running_loop().create_future()))
            try:
                carrier = await self._until_due(self._connect())
            except OSError as error:
                dialing.failed(server.time())
                self._tell(error.strerror or str(error))
                continue
            if carrier is None:
                now = max(server.time(), dialing.at)  # the loop's clock is coarser
                dialing.look(now)
                self._first += 1
                if now - began >= dialing.attempt_s:  # no sign has ended it
                    waits.TRUNK_DIAL.ended()
                    self._tell(f"no answer within {dialing.attempt_s:.3g} s")
                continue
            dialing.answered(server.time())
            await waits.TRUNK(carrier.gone).wait()
            if carrier.was_up:
                self._told.clear()
            dialing.lost(server.time())

    async def _until_due(self, work: Awaitable[T]) -> T | None:
        """What comes of it; None if `dialing` is due before it has ended."""
        limit = self._limit = waits.TRUNK_DIAL(asyncio.timeout_at(self._due()))
        try:
            async with limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise  # the kernel's
            return None
        finally:
            self._limit = None

    def _due(self) -> float:
        """On the loop's clock."""
        return asyncio.get_running_loop().time() + max(0.0, self.dialing.at - self._server.time())

    async def _connect(self) -> NeighbourCarrier:
        """To the first of the neighbour's addresses that answers."""
        server, loop = self._server, asyncio.get_running_loop()
        host, port = server.topology.dialled(server.name, self._neighbour)
        addresses = await self._resolve(host, port)
        failure = OSError(f"{host} has no address")
        for n in range(len(addresses)):
            tls = server.neighbours.tls
            carrier = NeighbourCarrier(server, self._neighbour, tls.dials if tls is not None else None)
            address = addresses[(self._first + n) % len(addresses)]
            try:
                await waits.TRUNK_DIAL(loop.create_connection(lambda c=carrier: c, address, port))  # type: ignore[misc]
            except OSError as error:
                failure = error
            except asyncio.CancelledError:
                carrier.given_up()
                raise
            else:
                return carrier
        raise failure

    async def _resolve(self, host: str, port: int) -> list[str]:
        """The resolver is asked for each attempt, and once at a time. While it does not answer, its last answer holds:
        it may be out of reach for as long as the neighbour, and then says so after many seconds."""
        if self._place != (host, port):
            self._place, self._addresses, self._resolving = (host, port), [], None
        if self._resolving is None:
            self._resolving = asyncio.get_running_loop().create_task(_addresses_of(host, port))
        within_s = RESOLVER * self.dialing.attempt_s
        await waits.RESOLVER(asyncio.wait)((self._resolving,), timeout=within_s if self._addresses else None)
        if self._resolving.done():
            answer, self._resolving = self._resolving, None
            self._addresses = answer.result()
        return self._addresses

    def _tell(self, reason: str) -> None:
        """Each reason once, until the neighbour was reached."""
        if reason not in self._told:
            self._told.add(reason)
            text = "neighbour {neighbour} cannot be reached: {reason}; trying again"
            self._server.log.warning("neighbour_unreachable", text, neighbour=self._neighbour, reason=reason)


async def _addresses_of(host: str, port: int) -> list[str]:
    found = await waits.RESOLVER(asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM))
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


class NeighbourCarrier(Carrier):
    """The socket of one trunk."""

    __slots__ = ("_first", "_held", "gone", "neighbour")

    def __init__(self, server: RouterServer, neighbour: str | None, tls: ssl.SSLContext | None) -> None:
        super().__init__(server, tls, dials=neighbour is not None)
        self.neighbour = neighbour  # the neighbour we connected to; None: its open will name it
        self._first = True  # nothing was received yet
        self._held = False  # it is not read before a later turn
        self.gone = asyncio.Event()
        """The trunk is over. Its socket may linger: the other side may have no time, or no way, to read the close."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self.carried is not None:
            self._trunk.claimed = self.peer
        if self.stranger:
            cast("RouterServer", self._server).neighbours.accepted(self)

    def handle(self, data: bytes) -> None:
        super().handle(data)
        if not self._held and (self._full or self.has_more):
            self._held = True
            self.pause()
            cast("RouterServer", self._server).neighbours.read_later(self)

    @property
    def has_more(self) -> bool:
        """It has received what is not handled."""
        return self.carried is not None and self._trunk.more

    def read_on(self) -> None:
        self._held = False
        self._resume()

    def _resume(self) -> None:
        if not self._held:
            super()._resume()

    @property
    def known(self) -> bool:
        return self.is_up

    def _look_who(self) -> None:
        super()._look_who()
        if not self.stranger:
            cast("RouterServer", self._server).neighbours.no_stranger(self)

    @property
    def origin(self) -> str:
        return f"trunk {self.peer}"  # a flood of clients from there holds it up by one step

    def took(self, seconds: float, what: str) -> None:
        cast("RouterServer", self._server).turn_times.ended(seconds, what, self.who)

    def who(self) -> dict[str, object]:
        """What the log says of it."""
        return {"neighbour": (self.carried and self._trunk.neighbour) or self.neighbour or self.peer}

    def refused(self, reason: str) -> None:
        cast("RouterServer", self._server).stranger_refused(self.peer, reason)

    def received(self, data: bytes) -> bytes:
        if self._first and self.tls is None and data[:1] in _TLS_RECORDS and self.carried is not None:
            self._refused("the other side has TLS on its trunks, and this router has not; see trunks in its file")
        data = super().received(data)
        if self._first and data and self.carried is not None:
            self._first = False
            if self.tls is not None:
                self._trunk.certified = certified_names(self.tls.certificate())
        return data

    def failed(self, kind: str, reason: str) -> None:
        self._refused(reason)

    def _refused(self, reason: str) -> None:
        trunk, server = self._trunk, cast("RouterServer", self._server)
        if self.neighbour is None and not trunk.up:
            trunk.ended(reason)  # it is told here, with the address
            server.handshake_failed(self.peer, "TLS", reason)
        else:
            server.network.trunk_lost(trunk, reason, server.time())

    def _end(self) -> None:
        if self.stranger and not self._octets and self.carried is not None and self._trunk.failure is None:
            self._trunk.ended("it has left without a word")  # a probe: told here, and no warning
            text = "a connection from {peer} ended before it said which router it is"
            cast("RouterServer", self._server).log.debug("trunk_left", text, peer=self.peer)
        super()._end()

    @property
    def was_up(self) -> bool:
        """The other side has been our neighbour."""
        return self.carried is not None and self._trunk.neighbour is not None

    @property
    def is_up(self) -> bool:
        """The other side has shown which neighbour it is."""
        return self.carried is not None and self._trunk.up

    @property
    def _trunk(self) -> Trunk:
        return cast(Trunk, self.carried)

    def write(self) -> None:
        super().write()
        if self.carried is not None and self._trunk.failure is not None:
            self.gone.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.gone.set()
        cast("RouterServer", self._server).neighbours.no_stranger(self)
