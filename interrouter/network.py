"""One router's view of the network and its streams to all other routers (protocol 3). Sans-IO.

    network = Network(Hello("triangle", "a", incarnation), {"b": 1, "c": 2}, rng=rng, now=now)
    trunk = network.connect(now, server=False, neighbour="b")      # one per transport, either side
    trunk.receive_data(data, now); ...                             # and receive_eof, handle_timer, next_deadline
    network.flush(now)                                             # once per turn of the owner's loop
    for trunk in network.take_dirty(): transport.write(trunk.data_to_send())
    for event in network.take_events(): ...                        # PeerUp, PeerMessage, PeerDown; a part of them
    if network.more: ...                                           # in the next turn

An open trunk adds the neighbour to our link state, which is flooded. Paths follow from all link states, and sessions
from paths. A packet for another router is forwarded to the next hop with its body untouched. Neighbours send something
every `heartbeat_s`; a neighbour is lost after `dead_after_s` of silence or when its socket closes. A wake-up of an idle
process costs more than a heartbeat, so a neighbour's brings ours forward.

Of two neighbours the one whose name sorts first dials (`dials`); if both do, its connection is kept. Otherwise a newer
connection with the same neighbour replaces the older. The content of messages is not known here. Read trunk.py,
linkstate.py, session.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from math import inf
from typing import Any, Final

from amqp10.errors import CONNECTION_FORCED, NOT_ALLOWED, NOT_FOUND
from interrouter.amqp_trunk import AmqpTrunk
from interrouter.events import NetworkEvent, PeerDown, PeerMessage, PeerUp
from interrouter.linkstate import LinkState, LinkStateDatabase, Path
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
    forwarded,
    split,
)
from interrouter.session import USUAL, Sessions, Timers
from interrouter.stream import Parts
from interrouter.trunk import Hello, Login, Refused, Trunk
from router.reporting import NO_LOG, Log

__all__ = ["Hello", "Network", "NetworkEvent", "PeerDown", "PeerMessage", "PeerUp", "Refused", "Timers", "dials"]

REFRESH_HEARTBEATS: Final = 60  # from one repetition of our link state to the next
MAX_AGE_HEARTBEATS: Final = 200  # after which a link state that is not repeated is forgotten
MAX_PENDING_OPENS: Final = 1024
BACKLOG: Final = 1024 * 1024
"""Octets of messages that the owner has not taken, above which neighbours get credit for urgent packets only."""
FOLLOWS: Final = 0.5  # heartbeats: ours that is due within this time goes when a neighbour's comes
LEADS: Final = 0.98  # heartbeats to our next one when none came: those who follow are not woken by their own timers


def dials(name: str, neighbour: str) -> bool:
    """Whether the router `name` is the one that connects to this neighbour."""
    return name < neighbour


class Network:
    """costs: of the links to our neighbours, by name; others are refused. Times in seconds."""

    def __init__(
        self,
        hello: Hello,
        costs: Mapping[str, int],
        *,
        rng: random.Random,
        now: float,
        timers: Timers = USUAL,
        log: Log = NO_LOG,
    ) -> None:
        """hello: which router this one is."""
        name, incarnation = hello.name, hello.incarnation
        heartbeat_s, dead_after_s = timers.heartbeat_s, timers.dead_after_s
        assert 0 < incarnation < 1 << 64
        assert all(cost > 0 for cost in costs.values())
        assert name not in costs
        self.hello = hello
        self._log = log
        self.name = name
        self.incarnation = incarnation
        self.costs = dict(costs)
        self.heartbeat_s = heartbeat_s
        self.dead_after_s = dead_after_s
        self.pause_s = dead_after_s / 2
        self.database = LinkStateDatabase(
            name,
            incarnation,
            now,
            refresh_s=REFRESH_HEARTBEATS * heartbeat_s,
            max_age_s=MAX_AGE_HEARTBEATS * heartbeat_s,
        )
        self.sessions = Sessions(incarnation, hello.versions, self._send_open, self._schedule, timers)
        self.send: Callable[[tuple[str, ...], Parts], None] = self.sessions.send
        """Send to each of these peers whose PeerUp has been taken; others miss it. Written at the next `flush`, one
        copy per branch of the paths."""
        self.failures: dict[str, str] = {}
        """Neighbour, "?" if unknown -> why the last trunk with it was lost or refused."""
        self.login: Login | None = None
        """Of trunks that are connected from now on. None: the other end need not show that it is of the network."""
        self.unroutable = 0
        self._trunks: dict[str, Trunk] = {}  # neighbour -> its open trunk
        self._routes: dict[int, Trunk] = {}  # incarnation -> the trunk of the first hop
        self._paths: dict[str, tuple[int, Path, Trunk]] = {}
        self._links_changed = False
        self._removed: dict[str, float] = {}  # neighbour that has left the topology file -> when its trunk closes
        self._pumpable: dict[Trunk, None] = {}
        self._dirty: dict[Trunk, None] = {}
        self._unread: dict[Trunk, None] = {}  # those that have received more than they have handled, next one first
        self._withheld: dict[Trunk, None] = {}  # those whose neighbours wait for credit
        self.more: Collection[object] = ()
        """As `flush` and `take_events` have left it: what waits for one of them. Not empty: call both again."""
        self._pending_opens: dict[tuple[int, int], bytes] = {}  # to destinations without a known path
        self.resumed_at = now
        """When this process last resumed after a pause: what is known of sessions may be as old as that pause."""
        self.looked_at = now
        """The time, as it was last noted: a pause is looked for where more than `pause_s` has gone since."""
        # Spread the heartbeats of routers that start together.
        self._next_heartbeat = now + heartbeat_s * (0.5 + rng.random() / 2)
        self._heard_heartbeat = False  # since the last flush
        self.followed = False
        """Our heartbeat was brought forward: a timer that was set for it is of no use. The owner resets it."""
        self._next_silence: float | None = None
        self._lost_at: dict[str, float] = {}  # neighbour -> when its trunk was
        self.sign = False
        """A trunk has opened, or a neighbour without one has said something over others: the network is there, and who
        dials does so now. The owner resets it."""

    # Trunks ------------------------------------------------------------------------------------------------------

    def connect(self, now: float, *, server: bool, neighbour: str | None) -> Trunk:
        """A new transport: to a neighbour that we dialled, or (server) one that was dialled to us."""
        trunk = AmqpTrunk(self, server=server, dialled=neighbour, now=now)
        self._dirty[trunk] = None
        return trunk

    def take_dirty(self) -> list[Trunk]:
        """Trunks that may have output, or have closed; each once."""
        dirty, self._dirty = self._dirty, {}
        return list(dirty)

    # The topology file -------------------------------------------------------------------------------------------

    def set_neighbours(self, costs: Mapping[str, int], now: float) -> None:
        """The links have changed. A trunk that is no longer wanted closes once nobody is reached by it alone, so that
        added links are up first, and after `dead_after_s` at the latest."""
        self.look(now)
        removed = [name for name in self.costs if name not in costs]
        self._removed = {name: self._removed.get(name, now + self.dead_after_s) for name in removed}
        self._removed = {name: at for name, at in self._removed.items() if name in self._trunks}
        for name in removed:
            self.failures.pop(name, None)
            self._lost_at.pop(name, None)
        self.costs = {**{name: self.costs[name] for name in self._removed}, **costs}
        self._links_changed = self.database.changed = True

    def set_timers(self, heartbeat_s: float, dead_after_s: float, now: float) -> None:
        self.look(now)
        self.heartbeat_s, self.dead_after_s = heartbeat_s, dead_after_s
        self.pause_s = dead_after_s / 2
        self.database.set_ages(REFRESH_HEARTBEATS * heartbeat_s, MAX_AGE_HEARTBEATS * heartbeat_s)
        self.sessions.set_timers(heartbeat_s, dead_after_s)
        self._next_heartbeat = min(self._next_heartbeat, now + heartbeat_s)

    # Messages ----------------------------------------------------------------------------------------------------

    def take_events(self) -> list[NetworkEvent]:
        """Events in order. Handle the list, `send` what follows from it, and only then take more: a list never has
        events of two sessions of one peer. It is one part, by router in turns, where many messages have come (`more`).
        Call again until it is empty."""
        events = self.sessions.take_events()
        if self._withheld and self.sessions.backlog <= BACKLOG:
            withheld, self._withheld = self._withheld, {}
            for trunk in withheld:
                trunk.renew_credit()
        self.more = self._unread or self.sessions.waiting.by_peer or self.sessions.events
        return events

    def peer_reset(self, peer: str, now: float) -> None:
        """The peer's message was malformed: end this session and begin the next. The owner must skip events of it that
        it has taken already, up to the PeerDown."""
        self.look(now)
        self.sessions.reset(peer, now)

    # Time --------------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Notes the time. A pause of this process shows before anything is read that came meanwhile."""
        pause_s = self.pause_s
        if now - self.looked_at > pause_s and now > self._next_heartbeat + pause_s:
            # This process has paused, and what others sent meanwhile is unread: they get half of dead_after anew.
            heard = now - pause_s
            self.sessions.process_resumed(heard)
            self.resumed_at = now
            for trunk in self._trunks.values():
                trunk.last_received = max(trunk.last_received, heard)
        self.looked_at = now

    def flush(self, now: float) -> bool:
        """Once per read or per turn of the loop: handle one more part of what a trunk has received, process link
        changes, then send all that may be sent. True: there may be events or trunks to take."""
        if now != self.looked_at:
            self.look(now)
        if self._unread:
            next(iter(self._unread)).go_on(now)
        if self._heard_heartbeat:
            self._heard_heartbeat = False
            if self._next_heartbeat - now < FOLLOWS * self.heartbeat_s:
                self._send_heartbeats(now, 1.0)
                self.followed = True
        if self._links_changed or self.database.changed:
            self._follow_links(now)
        while self._pumpable:
            pumpable, self._pumpable = self._pumpable, {}
            for trunk in pumpable:
                if trunk.up:
                    trunk.pump(now)
                    self._dirty[trunk] = None
        self.more = self._unread or self.sessions.waiting.by_peer or self.sessions.events
        return bool(self._dirty or self.more)

    def next_deadline(self) -> float:
        """When to call `tick`; trunks have deadlines of their own."""
        deadline = self._next_heartbeat
        if self._next_silence is not None and self._next_silence < deadline:
            deadline = self._next_silence
        session = self.sessions.next_deadline()
        return deadline if session is None or session > deadline else session

    def tick(self, now: float) -> None:
        """Heartbeats, silent neighbours, probes, acknowledgements. Call `flush` afterwards."""
        self.look(now)
        if now >= self._next_heartbeat or (self._next_silence is not None and now >= self._next_silence):
            self._send_heartbeats(now, LEADS)
        self.sessions.tick(now)

    # What people see ---------------------------------------------------------------------------------------------

    def cost(self, router: str) -> float:
        """Returns the cost of the path to a router: 0 for this one, infinite where there is none."""
        return self._paths[router][1].cost if router in self._paths else 0.0 if router == self.name else inf

    def status(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "incarnation": f"{self.incarnation:016x}",
            "network": self.hello.network,
            "versions": self.hello.versions._asdict(),
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
        """The other end has identified itself. Raises Refused if it may not be our neighbour."""
        self.look(now)
        try:
            trunk.version = self._check(trunk, hello)
        except Refused:
            if trunk.dialled is None and hello.name in self.costs:
                trunk.claimed = hello.name
            raise
        old = self._trunks.get(hello.name)
        if old is not None:
            self.fail(old, CONNECTION_FORCED, "replaced by a newer connection", now)
        trunk.neighbour, trunk.incarnation = hello.name, hello.incarnation
        trunk.up = True
        trunk.last_received = now
        self._trunks[hello.name] = trunk
        self.sign = True
        text = "neighbour {neighbour} connected"
        known = {"incarnation": f"{hello.incarnation:016x}", "version": trunk.version}
        lost_at = self._lost_at.pop(hello.name, None)
        if lost_at is not None and old is None:
            text += " again after {away_s} s"
            known["away_s"] = round(now - lost_at, 1)
        self._log.info("neighbour_connected", text, neighbour=hello.name, **known)
        self.failures.pop(hello.name, None)
        self._links_changed = True
        for state in (self.database.own, *self.database.others.values()):
            trunk.queue_link_state(state)
        self._schedule(trunk)

    def trunk_lost(self, trunk: Trunk, reason: str, now: float) -> None:
        """The trunk's transport or connection has ended."""
        self.look(now)
        self._trunk_down(trunk, reason)

    def fail(self, trunk: Trunk, condition: str, description: str, now: float) -> None:
        """Close a trunk with an error."""
        self._trunk_down(trunk, description)
        trunk.close(condition, description)

    def transfers(self, trunk: Trunk, payloads: list[bytes], now: float) -> None:
        """Process transfers of an open trunk. Raises PacketError if one is not a row of packets."""
        if now != self.looked_at:
            self.look(now)
        trunk.last_received = now
        trunk.transfers_received += len(payloads)
        for payload in payloads:
            for start, end in split(payload):
                kind = payload[start]
                if kind in (STREAM, ACK):
                    self._stream_received(trunk, kind, payload, start, end, now)
                elif kind == LINK_STATE:
                    self._link_state(trunk, payload, start, end, now)
                elif kind == OPEN:
                    self._open(payload, start, end, now)
                elif kind == HEARTBEAT:
                    self._heard_heartbeat = True
                else:
                    raise PacketError(f"a packet of kind {kind}")

    def credit_granted(self, trunk: Trunk) -> None:
        if trunk.up:
            self._schedule(trunk)

    def admits(self, trunk: Trunk) -> bool:
        """Whether the neighbour may send more messages. If not, its credit is renewed once the owner has taken enough
        of those that have come."""
        if self.sessions.backlog <= BACKLOG:
            return True
        self._withheld[trunk] = None
        return False

    def unread(self, trunk: Trunk, left: bool) -> None:
        """The trunk has handled a part of what it has received. left: there is another one, in its turn."""
        self._unread.pop(trunk, None)
        if left:
            self._unread[trunk] = None

    def touch(self, trunk: Trunk) -> None:
        """The trunk may have output."""
        self._dirty[trunk] = None

    def check_invariants(self) -> None:
        """What must hold between any two calls; used by the simulator and by tests."""
        for name, trunk in self._trunks.items():
            assert trunk.up, f"trunk to {name} is registered and not up"
            assert trunk.neighbour == name, f"trunk to {trunk.neighbour} is registered for {name}"
            trunk.check_invariants()
        if not (self._links_changed or self.database.changed):
            for trunk in self._routes.values():
                assert trunk.up, "a route over a trunk that is down"
        self.sessions.check_invariants()

    # Helpers -----------------------------------------------------------------------------------------------------

    def _check(self, trunk: Trunk, hello: Hello) -> int:
        """Returns the version that both speak. Raises Refused."""
        ours = self.hello
        if hello.network != ours.network:
            raise Refused(NOT_ALLOWED, f"this router belongs to network {ours.network!r}, not {hello.network!r}")
        version = ours.versions.common(hello.versions)
        if version is None:
            text = f"router {hello.name!r} speaks version {hello.versions} of the wire between routers"
            raise Refused(NOT_ALLOWED, f"{text}, and router {ours.name!r} {ours.versions}")
        if hello.name == ours.name:
            raise Refused(NOT_ALLOWED, f"this is router {ours.name!r} itself, or another process of that name")
        if trunk.dialled is not None and hello.name != trunk.dialled:
            raise Refused(NOT_ALLOWED, f"router {trunk.dialled!r} was dialled, but router {hello.name!r} answers")
        if hello.name not in self.costs or hello.name in self._removed:
            raise Refused(NOT_FOUND, f"router {ours.name!r} has no neighbour {hello.name!r} in its topology file")
        if self.database.is_former(hello.incarnation):
            raise Refused(NOT_ALLOWED, f"a newer process of router {hello.name!r} is known")
        old = self._trunks.get(hello.name)
        if old is not None and old.incarnation == hello.incarnation:
            ours_to_dial = dials(ours.name, hello.name)
            if old.server != ours_to_dial and trunk.server == ours_to_dial:
                raise Refused(NOT_ALLOWED, f"router {hello.name!r} is connected already")
        return version

    def _trunk_down(self, trunk: Trunk, reason: str) -> None:
        told = trunk.failure is not None
        trunk.failure = trunk.failure or reason
        self._dirty[trunk] = None
        self._withheld.pop(trunk, None)
        if trunk.up:
            trunk.up = False
            assert trunk.neighbour is not None
            self.failures[trunk.neighbour] = reason
            self._lost_at[trunk.neighbour] = self.looked_at
            text = "neighbour {neighbour} lost: {reason}"
            self._log.warning("neighbour_lost", text, neighbour=trunk.neighbour, reason=reason)
            if self._trunks.get(trunk.neighbour) is trunk:
                del self._trunks[trunk.neighbour]
                if self._removed.pop(trunk.neighbour, None) is not None:
                    del self.costs[trunk.neighbour], self.failures[trunk.neighbour], self._lost_at[trunk.neighbour]
                self._links_changed = True
                self.database.changed = True
        elif trunk.neighbour is None and not told:
            name = trunk.dialled or trunk.claimed or "?"
            if name != "?" and self.failures.get(name) == reason:
                return  # it is dialled again and again: a reason is told when it changes
            self.failures[name] = reason
            text = "connection with neighbour {neighbour} refused or failed: {reason}"
            self._log.warning("neighbour_refused", text, neighbour=name, reason=reason)

    def _schedule(self, trunk: Trunk) -> None:
        self._pumpable[trunk] = None

    def _flood(self, state: LinkState, source: Trunk | None) -> None:
        for trunk in self._trunks.values():
            if trunk is not source:
                trunk.queue_link_state(state)
                self._schedule(trunk)

    def _link_state(self, trunk: Trunk, payload: bytes, start: int, end: int, now: float) -> None:
        packet = decode_link_state(payload, start, end)
        state = LinkState.received(packet, now)
        for news in self.database.receive(state, now):
            self._flood(news, trunk if news is state else None)
            if news is state and state.name in self.costs and state.name not in self._trunks:
                self.sign = True
        if packet.former:
            for neighbour in list(self._trunks.values()):
                if self.database.is_former(neighbour.incarnation):
                    self.fail(neighbour, CONNECTION_FORCED, "a newer process of this router is known", now)

    def _follow_links(self, now: float) -> None:
        """Trunks opened or closed, or a link state changed: flood our own, find new paths."""
        if self._links_changed:
            self._links_changed = False
            links = {trunk.incarnation: self.costs[name] for name, trunk in self._trunks.items()}
            if self.database.originate(links, now):
                self._flood(self.database.own, None)
        if self.database.changed:
            self._find_paths(now)
            self._close_removed(now)

    def _close_removed(self, now: float) -> None:
        """Closes the trunks of removed links, all that can be spared or whose time is over."""
        for name, at in list(self._removed.items()):
            trunk = self._trunks[name]
            if now >= at or self.database.reaches_all_without(trunk.incarnation):
                self.fail(trunk, CONNECTION_FORCED, "this link is not in the topology file any more", now)
                self._follow_links(now)
                return

    def _find_paths(self, now: float) -> None:
        """Shortest paths, then the trunk for each destination, then sessions."""
        database = self.database
        database.changed = False
        first_hops = {trunk.incarnation: trunk for trunk in self._trunks.values()}
        paths = database.paths(first_hops)
        self._routes = {node: first_hops[path.first_hop] for node, path in paths.items()}
        nodes = database.latest(paths, first_hops)
        self._paths = {name: (node, paths[node], self._routes[node]) for name, node in nodes.items()}
        self.sessions.reachable(self._paths, now)
        if self._pending_opens:
            pending, self._pending_opens = self._pending_opens, {}
            for key, packet in pending.items():
                self._forward_open(key, packet)

    def _send_open(self, packet: OpenPacket) -> None:
        self._forward_open((packet.source, packet.destination), encode_open(packet))

    def _open(self, payload: bytes, start: int, end: int, now: float) -> None:
        packet = decode_open(payload, start, end)
        if packet.destination == self.incarnation:
            self.sessions.open_received(packet, now)
            return
        forwarded_packet = forwarded(payload, start, end)
        if forwarded_packet is not None:
            self._forward_open((packet.source, packet.destination), forwarded_packet)

    def _forward_open(self, key: tuple[int, int], packet: bytes) -> None:
        trunk = self._routes.get(key[1])
        if trunk is not None and trunk.up:
            trunk.queue_open(key, packet)
            self._schedule(trunk)
        elif len(self._pending_opens) < MAX_PENDING_OPENS or key in self._pending_opens:
            self._pending_opens[key] = packet

    def _stream_received(self, trunk: Trunk, kind: int, payload: bytes, start: int, end: int, now: float) -> None:
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
            self._forward(out, kind, forwarded(payload, start, end))
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
                self._forward(out, kind, forwarded(payload, start, end))
            else:
                self._forward(out, kind, branch(payload, start, end, body, indices))

    def _forward(self, out: Trunk, kind: int, packet: bytes | None) -> None:
        if packet is None:
            self.unroutable += 1
            return
        if kind == STREAM:
            out.queue_transit(packet)
        else:
            out.queue_urgent(packet)
        self._pumpable[out] = None

    def _send_heartbeats(self, now: float, pause: float) -> None:
        """pause: heartbeats until the next."""
        self._next_heartbeat = now + pause * self.heartbeat_s
        self._pending_opens.clear()
        for trunk in list(self._trunks.values()):
            if now >= trunk.last_received + self.dead_after_s:
                self.fail(trunk, CONNECTION_FORCED, f"nothing received for {self.dead_after_s:g} s", now)
            elif now - trunk.last_sent >= 0.9 * FOLLOWS * self.heartbeat_s:
                trunk.queue_heartbeat()
                self._schedule(trunk)
        if self.database.tick(now):
            self._flood(self.database.own, None)
        self._close_removed(now)
        self._follow_links(now)  # before silence is judged: a session without a path ends for that reason
        self.sessions.heartbeat(now)
        deadlines = [trunk.last_received + self.dead_after_s for trunk in self._trunks.values()]
        session = self.sessions.next_silence()
        if session is not None:
            deadlines.append(session)
        self._next_silence = min(deadlines, default=None)
