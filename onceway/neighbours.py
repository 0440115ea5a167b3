"""One router's trunks as sockets: its listener for neighbours, and what keeps it connected to those that it dials.

Of two neighbours one dials (`interrouter.network.dials`). Which router is at the other end, and whether it may be a
neighbour, is decided by `interrouter.network`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from interrouter.network import dials
from interrouter.trunk import Trunk
from onceway.transport import VIEW, Carrier
from onceway.trunk_tls import certified_names

if TYPE_CHECKING:
    import ssl

    from onceway.server import RouterServer
    from onceway.trunk_tls import TrunkTls

_TLS_RECORDS: Final = (0x15, 0x16)  # the first byte of an alert and of a handshake; AMQP's is A
MOST_STRANGERS: Final = 100  # accepted connections, above which the oldest is closed if it has not shown who it is
DIAL_FIRST_S: Final = 0.05
DIAL_MOST_S: Final = 1.0
DIAL_EAGERLY_S: Final = 3.0  # after the loss: routers that are started together listen within that time


class Neighbours:
    """`await listen()` and `dial()`, then `dial()` whenever the links have changed, until `await stop()`."""

    def __init__(self, server: RouterServer) -> None:
        self._server = server
        self.tls: TrunkTls | None = None  # of trunks that are connected from now on
        self._dialers: dict[str, asyncio.Task[None]] = {}  # neighbour -> what keeps us connected to it
        self._accepted: dict[NeighbourCarrier, None] = {}  # in order of arrival

    async def listen(self) -> asyncio.Server:
        """OSError if the port cannot be bound."""
        server = self._server
        host, port = server.topology.routers[server.name].interrouter

        def accept() -> NeighbourCarrier:
            carrier = NeighbourCarrier(server, None, self.tls.listens if self.tls is not None else None)
            self._accepted[carrier] = None
            if len(self._accepted) > MOST_STRANGERS:  # the newest are the most likely to complete their handshake
                oldest = next(iter(self._accepted))
                del self._accepted[oldest]
                if not oldest.is_up:
                    oldest.abort()
            return carrier

        return await asyncio.get_running_loop().create_server(accept, host, port)

    def ended(self, carrier: NeighbourCarrier) -> None:
        self._accepted.pop(carrier, None)

    def dial(self) -> None:
        """Follows the links of the topology file."""
        server = self._server
        wanted = [neighbour for neighbour in server.topology.neighbours(server.name) if dials(server.name, neighbour)]
        for neighbour in [neighbour for neighbour in self._dialers if neighbour not in wanted]:
            self._dialers.pop(neighbour).cancel()
        for neighbour in sorted(wanted):
            if neighbour not in self._dialers:
                self._dialers[neighbour] = asyncio.get_running_loop().create_task(self._keep_connected(neighbour))

    async def stop(self) -> None:
        for task in self._dialers.values():
            task.cancel()
        await asyncio.gather(*self._dialers.values(), return_exceptions=True)

    async def _keep_connected(self, neighbour: str) -> None:
        """Keeps one trunk to a neighbour connected: tries again until the router stops, after a while less often."""
        server = self._server
        loop = asyncio.get_running_loop()
        pause = DIAL_FIRST_S
        lost_at = server.time()
        told = ""  # why it cannot be reached
        while True:
            host, port = server.topology.dialled(server.name, neighbour)
            carrier = NeighbourCarrier(server, neighbour, self.tls.dials if self.tls is not None else None)
            try:
                await loop.create_connection(lambda c=carrier: c, host, port)  # type: ignore[misc]
            except OSError as error:
                reason = error.strerror or str(error)
                if reason != told:
                    told = reason
                    text = "neighbour {neighbour} cannot be reached: {reason}; trying again"
                    server.log.warning("neighbour_unreachable", text, neighbour=neighbour, reason=reason)
            else:
                told = ""
                began = server.time()
                await carrier.gone.wait()
                if server.time() - began > server.config.dead_after_s:
                    pause = DIAL_FIRST_S
                    lost_at = server.time()
            await asyncio.sleep(pause * server.rng.uniform(0.5, 1.0))
            if server.time() - lost_at > DIAL_EAGERLY_S:
                pause = min(pause * 2, DIAL_MOST_S)


class NeighbourCarrier(Carrier):
    """The socket of one trunk."""

    __slots__ = ("_first", "gone", "neighbour")

    def __init__(self, server: RouterServer, neighbour: str | None, tls: ssl.SSLContext | None) -> None:
        super().__init__(server, tls, dials=neighbour is not None)
        self.neighbour = neighbour  # the neighbour we connected to; None: its open will name it
        self._first = True  # nothing was received yet
        self.gone = asyncio.Event()

    def received(self, nbytes: int) -> bytes:
        if self._first and self.tls is None and VIEW[0] in _TLS_RECORDS and self.carried is not None:
            self._refused("the other side has TLS on its trunks, and this router has not; see trunks in its file")
        data = super().received(nbytes)
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
            trunk.failure = reason  # it is told here, with the address
            server.handshake_failed(self.peer, "TLS", reason)
        else:
            server.network.trunk_lost(trunk, reason, server.time())

    @property
    def is_up(self) -> bool:
        """The other side has shown which neighbour it is."""
        return self.carried is not None and self._trunk.up

    @property
    def _trunk(self) -> Trunk:
        return cast(Trunk, self.carried)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.gone.set()
        cast("RouterServer", self._server).neighbours.ended(self)
