"""One router's view of the network, and its streams to all others (PROTOCOL 3). Sans-IO.

    network = Network("a", incarnation, {"b": 1, "c": 2}, network="triangle", rng=rng, now=now)
    trunk = network.connect(now, server=False, neighbour="b")      # one per transport, either side
    trunk.receive_data(data, now); ...                             # and receive_eof, handle_timer, next_deadline
    network.flush(now)                                             # once per turn of the owner's loop
    for trunk in network.take_dirty(): transport.write(trunk.data_to_send())
    for event in network.take_events(): ...                        # PeerUp, PeerMessage, PeerDown

A trunk that opens makes the neighbour part of our link state, which is flooded; paths follow from everybody's link
states, and sessions from paths. A packet for somebody else goes to the next hop with its body untouched. Neighbours
hear from each other every `heartbeat_s`, and count as lost after `dead_after_s` of silence, or when the socket closes.

Of two neighbours the one whose name sorts first should dial (`dials`); if both do, that connection is kept. A second
connection with the same neighbour replaces the first, else. Doesn't know what the messages are. Read trunk.py,
linkstate.py, session.py.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final

from interrouter.amqp_trunk import AmqpTrunk
from interrouter.events import NetworkEvent, PeerDown, PeerMessage, PeerUp
from interrouter.linkstate import LinkState, LinkStateDatabase
from interrouter.packets import (
    ACK,
    HEARTBEAT,
    LINK_STATE,
    OPEN,
    STREAM,
    OpenPacket,
    PacketError,
    branch,
    decode_link_state,
    decode_open,
    destinations,
    encode_open,
    entry_at,
    passed_on,
    split,
)
from interrouter.paths import Path, shortest_paths
from interrouter.session import Sessions
from interrouter.trunk import Hello, Refused, Trunk

__all__ = ["Hello", "Network", "NetworkEvent", "PeerDown", "PeerMessage", "PeerUp", "Refused", "dials"]

WINDOW: Final = 4 * 1024 * 1024
REFRESHES: Final = 60  # heartbeats from one repetition of our link state to the next
AGES: Final = 200  # heartbeats after which a link state that is not repeated is forgotten
PARKED: Final = 1024


def dials(name: str, neighbour: str) -> bool:
    """Whether the router `name` is the one that connects to this neighbour."""
    return name < neighbour


class Network:
    """costs: of the links to our neighbours, by name; others are refused. Times in seconds."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        costs: Mapping[str, int],
        *,
        network: str,
        rng: random.Random,
        now: float,
        heartbeat_s: float = 0.5,
        dead_after_s: float = 3.0,
        probe_after_s: float | None = None,
        window: int = WINDOW,
    ) -> None:
        """probe_after_s: how long after a packet its sender asks what has come; None: before the next heartbeat."""
        assert 0 < incarnation < 1 << 64
        assert all(cost > 0 for cost in costs.values())
        assert name not in costs
        self.hello = Hello(network, name, incarnation)
        self.name = name
        self.incarnation = incarnation
        self.costs = dict(costs)
        self.heartbeat_s = heartbeat_s
        self.dead_after_s = dead_after_s
        self._pause_s = dead_after_s / 2
        self.database = LinkStateDatabase(
            name, incarnation, now, refresh_s=REFRESHES * heartbeat_s, max_age_s=AGES * heartbeat_s
        )
        self.sessions = Sessions(
            incarnation,
            self._send_open,
            self._wake,
            window=window,
            heartbeat_s=heartbeat_s,
            dead_after_s=dead_after_s,
            probe_after_s=0.4 * heartbeat_s if probe_after_s is None else probe_after_s,
            ack_delay_s=0.1 * heartbeat_s,
        )
        self.failures: dict[str, str] = {}
        """Neighbour, or "?" -> why the last trunk with it was lost or refused."""
        self.unroutable = 0
        self._trunks: dict[str, Trunk] = {}  # neighbour -> its open trunk
        self._routes: dict[int, Trunk] = {}  # incarnation -> the trunk of the first hop
        self._paths: dict[str, tuple[int, Path, Trunk]] = {}
        self._links_changed = False
        self._pumpable: dict[Trunk, None] = {}
        self._dirty: dict[Trunk, None] = {}
        self._parked: dict[tuple[int, int], bytes] = {}  # opens on their way that no path is known for yet
        self.went_on = now
        """When we last ran again after standing still: what we believe of sessions may be as old as that pause."""
        self._now = now
        # Not all routers of a host should speak in the same instant.
        self._next_beat = now + heartbeat_s * (0.5 + rng.random() / 2)
        self._next_death: float | None = None

    # Trunks ------------------------------------------------------------------------------------------------------

    def connect(self, now: float, *, server: bool, neighbour: str | None) -> Trunk:
        """A transport to a neighbour that we dialled, or one (server) that somebody dialled to us."""
        trunk = AmqpTrunk(self, server=server, dialled=neighbour, now=now)
        self._dirty[trunk] = None
        return trunk

    def take_dirty(self) -> list[Trunk]:
        """Trunks that may have output, or have closed; each once."""
        dirty, self._dirty = self._dirty, {}
        return [*dirty]

    def neighbour_up(self, name: str) -> bool:
        return name in self._trunks

    # Messages ----------------------------------------------------------------------------------------------------

    def send(self, peers: tuple[str, ...], message: bytes) -> None:
        """To each of these that is up, as one copy per branch; written at the next `flush`. For the others it is lost,
        as for those whose PeerUp has not been taken yet."""
        self.sessions.send(peers, message, self._now)

    def take_events(self) -> list[NetworkEvent]:
        """What happened, in order. Handle the list, hand what follows from it to `send`, and only then take more: it
        ends before a PeerUp if it has events of that peer's last session (so call again until it is empty)."""
        return self.sessions.take_events()

    def peer_reset(self, peer: str, now: float) -> None:
        """Its message could not be read: this session is over, the next one begins. Events of it that have been taken
        already must be skipped by the owner, up to its PeerDown."""
        self._enter(now)
        self.sessions.reset(peer, now)

    # Time --------------------------------------------------------------------------------------------------------

    def flush(self, now: float) -> bool:
        """Once per read, or per turn of the loop: link states, paths, sessions, then all that may be sent. True: there
        may be something to take."""
        if now - self._now > self._pause_s:
            self._enter(now)
        self._now = now
        if self._links_changed or self.database.changed:
            self._follow_links(now)
        while self._pumpable:
            pumpable, self._pumpable = self._pumpable, {}
            for trunk in pumpable:
                if trunk.up:
                    trunk.pump(now)
                    self._dirty[trunk] = None
        return bool(self._dirty or self.sessions.events)

    def next_deadline(self) -> float:
        """When `tick` wants to be called; trunks have deadlines of their own."""
        deadline = self._next_beat
        if self._next_death is not None and self._next_death < deadline:
            deadline = self._next_death
        session = self.sessions.next_deadline()
        return deadline if session is None or session > deadline else session

    def tick(self, now: float) -> None:
        """Heartbeats, silence, questions, acknowledgements. `flush` afterwards."""
        self._enter(now)
        if now >= self._next_beat or (self._next_death is not None and now >= self._next_death):
            self._beat(now)
        self.sessions.tick(now)

    # What people see ---------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "incarnation": self.incarnation,
            "network": self.hello.network,
            "routers": sorted({state.name for state in self.database.others.values()} | {self.name}),
            "neighbours": {
                name: {
                    "cost": cost,
                    "up": name in self._trunks,
                    **({"trunk": self._trunks[name].status()} if name in self._trunks else {}),
                    **({"failure": self.failures[name]} if name in self.failures else {}),
                }
                for name, cost in sorted(self.costs.items())
            },
            "paths": {
                name: {"next": trunk.neighbour, "cost": path.cost, "hops": path.hops}
                for name, (_, path, trunk) in sorted(self._paths.items())
            },
            "sessions": self.sessions.status(),
            "sessions_reset": self.sessions.resets,
            "unroutable": self.unroutable,
            "two_of_this_name": self.database.conflict,
        }

    # For trunks --------------------------------------------------------------------------------------------------

    def trunk_opened(self, trunk: Trunk, hello: Hello, now: float) -> None:
        """The other end has said who it is. Raises Refused where it should not be."""
        self._enter(now)
        try:
            self._check(trunk, hello)
        except Refused as refusal:
            self._note_failure(trunk.dialled or (hello.name if hello.name in self.costs else "?"), str(refusal.args[1]))
            raise
        old = self._trunks.get(hello.name)
        if old is not None:
            self.fail(old, "amqp:connection:forced", "replaced by a newer connection", now)
        trunk.neighbour, trunk.incarnation = hello.name, hello.incarnation
        trunk.up = True
        trunk.heard = now
        self._trunks[hello.name] = trunk
        self.failures.pop(hello.name, None)
        self._links_changed = True
        for state in (self.database.own, *self.database.others.values()):
            trunk.queue_link_state(state)
        self._wake(trunk)

    def trunk_lost(self, trunk: Trunk, reason: str, now: float) -> None:
        """Its transport or connection is over."""
        self._enter(now)
        self._forget(trunk, reason)

    def fail(self, trunk: Trunk, condition: str, description: str, now: float) -> None:
        """Close it, for a reason of ours."""
        self._forget(trunk, description)
        trunk.close(condition, description)

    def transfers(self, trunk: Trunk, payloads: list[bytes], now: float) -> None:
        """What came over a trunk whose other end is known. PacketError if it is no row of packets."""
        self._enter(now)
        trunk.heard = now
        trunk.transfers_received += len(payloads)
        for payload in payloads:
            for start, end in split(payload):
                kind = payload[start]
                if kind in (STREAM, ACK):
                    self._stream(trunk, kind, payload, start, end, now)
                elif kind == LINK_STATE:
                    self._link_state(trunk, payload, start, end, now)
                elif kind == OPEN:
                    self._open(payload, start, end, now)
                elif kind != HEARTBEAT:
                    raise PacketError(f"a packet of kind {kind}")

    def credit_came(self, trunk: Trunk) -> None:
        if trunk.up:
            self._wake(trunk)

    def touch(self, trunk: Trunk) -> None:
        """It may have output."""
        self._dirty[trunk] = None

    # Helpers -----------------------------------------------------------------------------------------------------

    def _enter(self, now: float) -> None:
        pause_s = self._pause_s
        if now - self._now > pause_s and now > self._next_beat + pause_s:
            # We have not run for so long: what others said meanwhile is still unread, so they are given half the time.
            heard = now - pause_s
            self.sessions.stalled(heard)
            self.went_on = now
            for trunk in self._trunks.values():
                trunk.heard = max(trunk.heard, heard)
        self._now = now

    def _check(self, trunk: Trunk, hello: Hello) -> None:
        ours = self.hello
        if hello.network != ours.network:
            raise Refused("amqp:not-allowed", f"this is a router of network {ours.network!r}, not {hello.network!r}")
        if hello.name == ours.name:
            raise Refused("amqp:not-allowed", f"this is router {ours.name!r} itself, or another one of that name")
        if trunk.dialled is not None and hello.name != trunk.dialled:
            raise Refused("amqp:not-allowed", f"router {trunk.dialled!r} was meant, not {hello.name!r}")
        if hello.name not in self.costs:
            raise Refused("amqp:not-found", f"router {ours.name!r} has no neighbour {hello.name!r} in its topology")
        if self.database.is_former(hello.incarnation):
            raise Refused("amqp:not-allowed", f"router {hello.name!r} has been started again since")
        old = self._trunks.get(hello.name)
        if old is not None and old.incarnation == hello.incarnation:
            ours_to_dial = dials(ours.name, hello.name)
            if old.server != ours_to_dial and trunk.server == ours_to_dial:
                raise Refused("amqp:not-allowed", f"router {hello.name!r} is connected already, from its proper side")

    def _forget(self, trunk: Trunk, reason: str) -> None:
        trunk.failure = trunk.failure or reason
        self._dirty[trunk] = None
        if trunk.up:
            trunk.up = False
            assert trunk.neighbour is not None
            self._note_failure(trunk.neighbour, reason)
            if self._trunks.get(trunk.neighbour) is trunk:
                del self._trunks[trunk.neighbour]
                self._links_changed = True
                self.database.changed = True
        elif trunk.neighbour is None and trunk.dialled is not None:
            self._note_failure(trunk.dialled, reason)

    def _note_failure(self, neighbour: str, reason: str) -> None:
        self.failures[neighbour] = reason

    def _wake(self, trunk: Trunk) -> None:
        self._pumpable[trunk] = None

    def _flood(self, state: LinkState, source: Trunk | None) -> None:
        for trunk in self._trunks.values():
            if trunk is not source:
                trunk.queue_link_state(state)
                self._wake(trunk)

    def _link_state(self, trunk: Trunk, payload: bytes, start: int, end: int, now: float) -> None:
        packet = decode_link_state(payload, start, end)
        state = LinkState(
            packet.name,
            packet.incarnation,
            packet.sequence,
            packet.links,
            packet.former,
            now - packet.age_ms / 1000,
        )
        for news in self.database.receive(state, now):
            self._flood(news, trunk if news is state else None)
        if packet.former:
            for neighbour in list(self._trunks.values()):
                if self.database.is_former(neighbour.incarnation):
                    self.fail(neighbour, "amqp:connection:forced", "this router has been started again since", now)

    def _follow_links(self, now: float) -> None:
        """Trunks came or went, or somebody's link state changed: tell it, and find new paths."""
        if self._links_changed:
            self._links_changed = False
            links = {trunk.incarnation: self.costs[name] for name, trunk in self._trunks.items()}
            if self.database.originate(links, now):
                self._flood(self.database.own, None)
        if self.database.changed:
            self._find_paths(now)

    def _find_paths(self, now: float) -> None:
        """Dijkstra, then routes, then sessions."""
        database = self.database
        database.changed = False
        names = database.names()
        first_hops = {trunk.incarnation: trunk for trunk in self._trunks.values()}
        graph = database.graph()
        # our side of a link is what we see, not what we last told
        graph[self.incarnation] = {n: c for n, c in graph[self.incarnation].items() if n in first_hops}
        paths = shortest_paths(self.incarnation, graph, names)
        self._routes = {node: first_hops[path.first_hop] for node, path in paths.items()}
        best: dict[str, tuple[tuple[bool, int], int]] = {}
        for node in paths:  # of two incarnations of a name (one is dead, and not everybody has noticed) the newer one
            name = names[node]
            if name == self.name:
                continue
            state = database.others[node]
            rank = (node in first_hops, state.order)
            if name not in best or rank > best[name][0]:
                best[name] = (rank, node)
        self._paths = {name: (node, paths[node], self._routes[node]) for name, (_, node) in sorted(best.items())}
        self.sessions.reachable(self._paths, now)
        if self._parked:
            parked, self._parked = self._parked, {}
            for key, packet in parked.items():
                self._pass_open(key, packet)

    def _send_open(self, packet: OpenPacket) -> None:
        self._pass_open((packet.source, packet.destination), encode_open(packet))

    def _open(self, payload: bytes, start: int, end: int, now: float) -> None:
        packet = decode_open(payload, start, end)
        if packet.destination == self.incarnation:
            self.sessions.open_received(packet, now)
            return
        further = passed_on(payload, start, end)
        if further is not None:
            self._pass_open((packet.source, packet.destination), further)

    def _pass_open(self, key: tuple[int, int], packet: bytes) -> None:
        trunk = self._routes.get(key[1])
        if trunk is not None and trunk.up:
            trunk.queue_open(key, packet)
            self._wake(trunk)
        elif len(self._parked) < PARKED or key in self._parked:
            self._parked[key] = packet

    def _stream(self, trunk: Trunk, kind: int, payload: bytes, start: int, end: int, now: float) -> None:
        nodes, body = destinations(payload, start, end)
        mine = self.incarnation
        if len(nodes) == 1:
            if nodes[0] == mine:
                self.sessions.received(entry_at(payload, start, 0), kind, payload, body, end, now)
                return
            out = self._routes.get(nodes[0])
            if out is None or out is trunk or not out.up:
                self.unroutable += 1
                return
            self._pass_on(out, kind, passed_on(payload, start, end))
            return
        branches: dict[Trunk, list[int]] = {}
        for index, node in enumerate(nodes):
            if node == mine:
                self.sessions.received(entry_at(payload, start, index), kind, payload, body, end, now)
                continue
            out = self._routes.get(node)
            if out is None or out is trunk or not out.up:
                self.unroutable += 1
            elif out in branches:
                branches[out].append(index)
            else:
                branches[out] = [index]
        for out, indices in branches.items():
            if len(indices) == len(nodes):
                self._pass_on(out, kind, passed_on(payload, start, end))
            else:
                self._pass_on(out, kind, branch(payload, start, end, body, indices))

    def _pass_on(self, out: Trunk, kind: int, packet: bytes | None) -> None:
        if packet is None:
            self.unroutable += 1
            return
        if kind == STREAM:
            out.queue_transit(packet)
        else:
            out.queue_urgent(packet)
        self._pumpable[out] = None

    def _beat(self, now: float) -> None:
        self._next_beat = now + self.heartbeat_s
        self._parked.clear()
        for trunk in list(self._trunks.values()):
            if now >= trunk.heard + self.dead_after_s:
                self.fail(trunk, "amqp:connection:forced", f"nothing heard from it for {self.dead_after_s:g} s", now)
            elif now - trunk.spoke >= 0.9 * self.heartbeat_s:
                trunk.queue_heartbeat()
                self._wake(trunk)
        if self.database.tick(now):
            self._flood(self.database.own, None)
        self._follow_links(now)  # a session without a path is not merely silent
        self.sessions.beat(now)
        deaths = [trunk.heard + self.dead_after_s for trunk in self._trunks.values()]
        session = self.sessions.earliest_death()
        if session is not None:
            deaths.append(session)
        self._next_death = min(deaths, default=None)
