"""One router's view of the network and its streams to all other routers (protocol 3). Sans-IO.

    network = Network(Hello("triangle", "a", incarnation), {"b": 1, "c": 2}, rng=rng, now=now)
    trunk = network.connect(now, neighbour="b")                    # one per transport, either side
    trunk.receive_data(data, now); ...                             # and receive_eof, handle_timer, next_deadline
    network.send(peers, message)
    network.flush(now)                                             # once per turn of the owner's loop
    for trunk in network.work.take_dirty(): transport.write(trunk.data_to_send())
    for event in network.take_events(): ...                        # PeerUp, PeerMessage, PeerDown; a part of them
    if network.more: ...                                           # in the next turn

An open trunk adds the neighbour to our link state, which is flooded. Paths follow from all link states, and sessions
from paths. The content of messages is not known here. The parts are neighbours.py,
routes.py, heartbeats.py, linkstate.py, session.py, work.py. Read trunk.py next.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from amqp10.errors import CONNECTION_FORCED
from interrouter.amqp_trunk import AmqpTrunk
from interrouter.events import NetworkEvent, PeerDown, PeerMessage, PeerUp
from interrouter.heartbeats import LEADS, Heartbeats
from interrouter.linkstate import LinkState, LinkStateDatabase
from interrouter.neighbours import Neighbours
from interrouter.packets import (
    ACK,
    HEARTBEAT,
    LINK_STATE,
    OPEN,
    STREAM,
    OpenPacket,
    PacketError,
    decode_link_state,
    encode_open,
    split,
)
from interrouter.routes import Routes
from interrouter.session import USUAL, Sessions, Timers
from interrouter.stream import Parts
from interrouter.trunk import Hello, Login, Refused, Trunk
from interrouter.work import Work
from router.reporting import NO_LOG, Log

__all__ = ["Hello", "Network", "NetworkEvent", "PeerDown", "PeerMessage", "PeerUp", "Refused", "Timers"]

REFRESH_HEARTBEATS: Final = 60  # from one repetition of our link state to the next
MAX_AGE_HEARTBEATS: Final = 200  # after which a link state that is not repeated is forgotten
BACKLOG: Final = 1024 * 1024
"""Octets of messages that the owner has not taken, above which neighbours get credit for urgent packets only."""


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
        assert 0 < hello.incarnation < 1 << 64
        self.hello = hello
        self.login: Login | None = None
        """Of trunks that are connected from now on. None: the other end need not show that it is of the network."""
        self.work = Work()
        self.neighbours = Neighbours(hello, costs, log)
        self.heartbeats = Heartbeats(timers.heartbeat_s, timers.dead_after_s, rng, now)
        self.database = LinkStateDatabase(
            hello.name,
            hello.incarnation,
            now,
            refresh_s=REFRESH_HEARTBEATS * timers.heartbeat_s,
            max_age_s=MAX_AGE_HEARTBEATS * timers.heartbeat_s,
        )
        self.sessions = Sessions(hello.incarnation, hello.versions, self._send_open, self.work.schedule, timers)
        self.send: Callable[[tuple[str, ...], Parts], None] = self.sessions.send
        """Send to each of these peers whose PeerUp has been taken; others miss it. Written at the next `flush`, one
        copy per branch of the paths."""
        self.routes = Routes(hello, self.sessions, self.work)
        self.more: Collection[object] = ()
        """As `flush` and `take_events` have left it: what waits for one of them. Not empty: call both again."""
        self.resumed_at = now
        """When this process last resumed after a pause: what is known of sessions may be as old as that pause."""
        self.looked_at = now
        """The time, as it was last noted: a pause is looked for where more than `heartbeats.pause_s` has gone since."""

    # Trunks ------------------------------------------------------------------------------------------------------

    def connect(self, now: float, *, neighbour: str | None) -> Trunk:
        """A new transport: to a neighbour that we dialled, or, None, one that was dialled to us."""
        trunk = AmqpTrunk(self, dialled=neighbour, now=now)
        self.work.touch(trunk)
        return trunk

    # The topology file -------------------------------------------------------------------------------------------

    def set_neighbours(self, costs: Mapping[str, int], now: float) -> None:
        """The links have changed. A trunk that is no longer wanted closes once nobody is reached by it alone, so that
        added links are up first, and after `dead_after_s` at the latest."""
        self.look(now)
        self.neighbours.set_costs(costs, now + self.heartbeats.dead_after_s)
        self.database.changed = True

    def set_timers(self, heartbeat_s: float, dead_after_s: float, now: float) -> None:
        self.look(now)
        self.heartbeats.set_times(heartbeat_s, dead_after_s, now)
        self.database.set_ages(REFRESH_HEARTBEATS * heartbeat_s, MAX_AGE_HEARTBEATS * heartbeat_s)
        self.sessions.set_timers(heartbeat_s, dead_after_s)

    # Messages ----------------------------------------------------------------------------------------------------

    def take_events(self) -> list[NetworkEvent]:
        """Events in order. Handle the list, `send` what follows from it, and only then take more: a list never
        has events of two sessions of one peer. It is one part, by router in turns, where many messages have come
        (`more`). Call again until it is empty."""
        events = self.sessions.take_events()
        if self.work.withheld and self.sessions.backlog <= BACKLOG:
            self.work.renew_credit()
        self.more = self.work.unread or self.sessions.waiting.by_peer or self.sessions.events
        return events

    def peer_reset(self, peer: str, now: float) -> None:
        """The peer's message was malformed: end this session and begin the next. The owner must skip events of it that
        it has taken already, up to the PeerDown."""
        self.look(now)
        self.sessions.reset(peer, now)

    # Time --------------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Notes the time. A pause of this process shows before anything is read that came meanwhile."""
        pause_s = self.heartbeats.pause_s
        if now - self.looked_at > pause_s and self.heartbeats.missed(now):
            # This process has paused, and what others sent meanwhile is unread: they get half of dead_after anew.
            heard = now - pause_s
            self.sessions.process_resumed(heard)
            self.resumed_at = now
            for trunk in self.neighbours.trunks.values():
                trunk.excuse(heard)
        self.looked_at = now

    def flush(self, now: float) -> bool:
        """Once per read or per turn of the loop: handle one more part of what a trunk has received, process link
        changes, then send all that may be sent. True: there may be events or trunks to take."""
        if now != self.looked_at:
            self.look(now)
        work = self.work
        if work.unread:
            next(iter(work.unread)).go_on(now)
        if self.heartbeats.heard and self.heartbeats.follow(now):
            self._send_heartbeats(now, 1.0)
        if self.neighbours.changed or self.database.changed:
            self._follow_links(now)
        if work.sending:
            work.pump(now)
        self.more = work.unread or self.sessions.waiting.by_peer or self.sessions.events
        return bool(work.dirty or self.more)

    def next_deadline(self) -> float:
        """When to call `tick`; trunks have deadlines of their own."""
        deadline, session = self.heartbeats.deadline, self.sessions.next_deadline()
        return deadline if session is None or session > deadline else session

    def tick(self, now: float) -> None:
        """Heartbeats, silent neighbours, probes, acknowledgements. Call `flush` afterwards."""
        self.look(now)
        if now >= self.heartbeats.deadline:
            self._send_heartbeats(now, LEADS)
        self.sessions.tick(now)

    # What people see ---------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        hello, database = self.hello, self.database
        return {
            "name": hello.name,
            "incarnation": f"{hello.incarnation:016x}",
            "network": hello.network,
            "versions": hello.versions._asdict(),
            "routers": sorted({state.name for state in database.others.values()} | {hello.name}),
            "neighbours": self.neighbours.status(),
            "paths": self.routes.status(),
            "sessions": self.sessions.status(),
            "sessions_reset": self.sessions.resets,
            "unroutable": self.routes.unroutable,
            "two_of_this_name": database.conflict,
        }

    # For trunks --------------------------------------------------------------------------------------------------

    def trunk_opened(self, trunk: Trunk, hello: Hello, now: float) -> None:
        """The other end has identified itself. Raises Refused if it may not be our neighbour."""
        self.look(now)
        version = self.neighbours.version_with(trunk, hello, self.database)
        old = self.neighbours.trunks.get(hello.name)
        if old is not None:
            self.fail(old, CONNECTION_FORCED, "replaced by a newer connection", now)
        trunk.accepted(hello, version, now)
        self.neighbours.opened(trunk, now)
        for state in (self.database.own, *self.database.others.values()):
            trunk.outgoing.queue_link_state(state)
        self.work.schedule(trunk)

    def trunk_lost(self, trunk: Trunk, reason: str, now: float) -> None:
        """The trunk's transport or connection has ended."""
        self.look(now)
        self._trunk_down(trunk, reason, now)

    def fail(self, trunk: Trunk, condition: str, description: str, now: float) -> None:
        """Close a trunk with an error."""
        self._trunk_down(trunk, description, now)
        trunk.close(condition, description)

    def transfers(self, trunk: Trunk, payloads: list[bytes], now: float) -> None:
        """Process transfers of an open trunk. Raises PacketError if one is not a row of packets."""
        if now != self.looked_at:
            self.look(now)
        for payload in payloads:
            for start, end in split(payload):
                kind = payload[start]
                if kind in (STREAM, ACK):
                    self.routes.stream_received(trunk, kind, payload, start, end, now)
                elif kind == LINK_STATE:
                    self._link_state(trunk, payload, start, end, now)
                elif kind == OPEN:
                    self.routes.open_received(payload, start, end, now)
                elif kind == HEARTBEAT:
                    self.heartbeats.hear()
                else:
                    raise PacketError(f"a packet of kind {kind}")

    def admits(self, trunk: Trunk) -> bool:
        """Whether the neighbour may send more messages. If not, its credit is renewed once the owner has taken enough
        of those that have come."""
        if self.sessions.backlog <= BACKLOG:
            return True
        self.work.withhold(trunk)
        return False

    def check_invariants(self) -> None:
        """What must hold between any two calls; used by the simulator and by tests."""
        self.neighbours.check_invariants()
        if not (self.neighbours.changed or self.database.changed):
            self.routes.check_invariants()
        self.sessions.check_invariants()

    # Helpers -----------------------------------------------------------------------------------------------------

    def _trunk_down(self, trunk: Trunk, reason: str, now: float) -> None:
        self.work.closed(trunk)
        self.database.changed = self.database.changed or trunk.up
        self.neighbours.lost(trunk, reason, now)

    def _flood(self, state: LinkState, source: Trunk | None) -> None:
        for trunk in self.neighbours.trunks.values():
            if trunk is not source:
                trunk.outgoing.queue_link_state(state)
                self.work.schedule(trunk)

    def _link_state(self, trunk: Trunk, payload: bytes, start: int, end: int, now: float) -> None:
        packet = decode_link_state(payload, start, end)
        state = LinkState.received(packet, now)
        for news in self.database.receive(state, now):
            self._flood(news, trunk if news is state else None)
            if news is state:
                self.neighbours.heard_of(state.name)
        if packet.former:
            for neighbour in list(self.neighbours.trunks.values()):
                if self.database.is_former(neighbour.incarnation):
                    self.fail(neighbour, CONNECTION_FORCED, "a newer process of this router is known", now)

    def _follow_links(self, now: float) -> None:
        """Trunks opened or closed, or a link state changed: flood our own, find new paths."""
        if self.neighbours.changed and self.database.originate(self.neighbours.links(), now):
            self._flood(self.database.own, None)
        if self.database.changed:
            self.routes.find(self.database, self.neighbours.first_hops(), now)
            self._close_removed(now)

    def _close_removed(self, now: float) -> None:
        """Closes the trunks of removed links, all that can be spared or whose time is over."""
        trunk = self.neighbours.spared(self.database, now)
        if trunk is not None:
            self.fail(trunk, CONNECTION_FORCED, "this link is not in the topology file any more", now)
            self._follow_links(now)

    def _send_open(self, packet: OpenPacket) -> None:
        self.routes.forward_open((packet.source, packet.destination), encode_open(packet))

    def _send_heartbeats(self, now: float, pause: float) -> None:
        """pause: heartbeats until the next."""
        heartbeats, trunks = self.heartbeats, self.neighbours.trunks
        heartbeats.begin(now, pause)
        self.routes.forget_opens()
        for trunk in list(trunks.values()):
            if heartbeats.is_silent(trunk, now):
                self.fail(trunk, CONNECTION_FORCED, f"nothing received for {heartbeats.dead_after_s:g} s", now)
            elif heartbeats.is_due(trunk, now):
                trunk.outgoing.queue_heartbeat()
                self.work.schedule(trunk)
        if self.database.tick(now):
            self._flood(self.database.own, None)
        self._close_removed(now)
        self._follow_links(now)  # before silence is judged: a session without a path ends for that reason
        self.sessions.heartbeat(now)
        heartbeats.watch(trunks.values(), self.sessions.next_silence())
