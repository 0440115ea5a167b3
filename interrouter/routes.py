"""The way to each router, and what passes through this one on its way to another. Read network.py.

A packet for another router is forwarded to the next hop with its body untouched. An OPEN to a router that no path is
known to yet waits here until the next heartbeat.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from interrouter.linkstate import LinkStateDatabase, Path
from interrouter.packets import STREAM, branch, decode_open, destinations, entry_at, forwarded
from interrouter.session import Sessions
from interrouter.trunk import Hello, Trunk
from interrouter.work import Work

MAX_PENDING_OPENS: Final = 1024


class Routes:
    def __init__(self, hello: Hello, sessions: Sessions, work: Work) -> None:
        self.unroutable = 0
        """Packets for routers that no path was known to."""
        self._name = hello.name
        self._incarnation = hello.incarnation
        self._sessions = sessions
        self._work = work
        self._first_hops: dict[int, Trunk] = {}  # incarnation -> the trunk of the first hop
        self._paths: dict[str, tuple[int, Path, Trunk]] = {}
        self._pending_opens: dict[tuple[int, int], bytes] = {}  # to destinations without a known path

    def find(self, database: LinkStateDatabase, trunks: Mapping[int, Trunk], now: float) -> None:
        """Shortest paths, then the trunk for each destination, then sessions. trunks: by neighbour's incarnation."""
        database.changed = False
        paths = database.paths(trunks)
        self._first_hops = {node: trunks[path.first_hop] for node, path in paths.items()}
        nodes = database.latest(paths, trunks)
        self._paths = {name: (node, paths[node], self._first_hops[node]) for name, node in nodes.items()}
        self._sessions.reachable(self._paths, now)
        if self._pending_opens:
            pending, self._pending_opens = self._pending_opens, {}
            for key, packet in pending.items():
                self.forward_open(key, packet)

    def cost(self, router: str) -> float:
        """Returns the cost of the path to a router: 0 for this one, infinite where there is none."""
        return self._paths[router][1].cost if router in self._paths else 0.0 if router == self._name else inf

    def status(self) -> dict[str, Any]:
        return {
            name: {"next": trunk.neighbour, "cost": path.cost, "hops": path.hops}
            for name, (_, path, trunk) in sorted(self._paths.items())
        }

    def check_invariants(self) -> None:
        """Between a `find` and the next change of trunks or link states."""
        for trunk in self._first_hops.values():
            assert trunk.up, "a route over a trunk that is down"

    # Packets -----------------------------------------------------------------------------------------------------

    def open_received(self, payload: bytes, start: int, end: int, now: float) -> None:
        packet = decode_open(payload, start, end)
        if packet.destination == self._incarnation:
            self._sessions.open_received(packet, now)
            return
        forwarded_packet = forwarded(payload, start, end)
        if forwarded_packet is not None:
            self.forward_open((packet.source, packet.destination), forwarded_packet)

    def forward_open(self, key: tuple[int, int], packet: bytes) -> None:
        trunk = self._first_hops.get(key[1])
        if trunk is not None and trunk.up:
            trunk.outgoing.queue_open(key, packet)
            self._work.schedule(trunk)
        elif len(self._pending_opens) < MAX_PENDING_OPENS or key in self._pending_opens:
            self._pending_opens[key] = packet

    def stream_received(self, trunk: Trunk, kind: int, payload: bytes, start: int, end: int, now: float) -> None:
        nodes, body = destinations(payload, start, end)
        mine = self._incarnation
        if len(nodes) == 1 and nodes[0] == mine:
            self._sessions.received(entry_at(payload, start, 0), kind, payload, body, end, now)
            return
        branches: dict[Trunk, list[int]] = {}
        for index, node in enumerate(nodes):
            if node == mine:
                self._sessions.received(entry_at(payload, start, index), kind, payload, body, end, now)
                continue
            out = self._first_hops.get(node)
            if out is None or out is trunk or not out.up:
                self.unroutable += 1
            elif out in branches:
                branches[out].append(index)
            else:
                branches[out] = [index]
        for out, indices in branches.items():
            whole = len(indices) == len(nodes)
            packet = forwarded(payload, start, end) if whole else branch(payload, start, end, body, indices)
            if packet is None:
                self.unroutable += 1
                continue
            if kind == STREAM:
                out.outgoing.queue_transit(packet)
            else:
                out.outgoing.queue_urgent(packet)
            self._work.schedule(out)

    def forget_opens(self) -> None:
        """Heartbeats repeat them."""
        self._pending_opens.clear()
