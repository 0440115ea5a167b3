"""One router as a process's worth of asyncio: sockets, timers, one turn of the loop at a time.

The server carries bytes and time into `router.Router` and `interrouter.Network`, messages between the two, and bytes
out. It decides nothing. After every read, or after some where many sockets are busy, it flushes the pending output of
all handlers and writes it in one go. Read `onceway.serve.transport` for one socket's side.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from amqp10.errors import RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS
from amqp10.performatives import Error
from amqp10.types import Symbol
from interrouter.events import NetworkEvent, PeerMessage, PeerUp
from interrouter.network import Hello, Network, Timers
from mqtt import Reason
from onceway.access.authentication import Authentication, groups_of, logins_of, rights_of, users_gone
from onceway.access.network_key import read_trunk_key
from onceway.base import waits
from onceway.base.descriptors import Descriptors
from onceway.base.program import program
from onceway.serve.clients import ClientCarrier
from onceway.serve.listening import Listening
from onceway.serve.neighbours import NeighbourCarrier, Neighbours
from onceway.serve.strangers import Strangers
from onceway.serve.sweeping import Sweep
from onceway.serve.transport import Carried, Carrier
from onceway.serve.turn_times import TurnTimes
from onceway.topology import Topology
from onceway.topology.said import configuration, in_force
from router.config import Life
from router.core.counters import Measured
from router.core.messages import PeerProtocolError
from router.links.offers import Place
from router.mqtt.connection import MqttConnection
from router.reporting import NO_LOG, Log
from router.router import Router

if TYPE_CHECKING:
    from onceway.access.certificates import Validity
    from onceway.access.tls import ListenerContext
    from onceway.access.trunks import TrunkTls
    from router.links.client_connection import ClientConnection

T = TypeVar("T")

FEW_SOCKETS: Final = 8  # up to so many sockets each read is flushed at once, for latency
MOST_READS: Final = 16  # of more sockets so many reads: what the first of them has brought does not wait for all others
DRAIN_S: Final = 10.0  # how long a stopping router waits for acceptances of what it has taken
ROUNDS: Final = 16  # exchanges between router and network in one turn
NEIGHBOURS_S: Final = 0.005  # of a turn, after which what is left of other routers' input waits for the next


class RouterServer:
    """`await start()`, then it runs until `await stop()`; `status()` at any time."""

    def __init__(
        self,
        topology: Topology,
        name: str,
        *,
        fresh: bool = False,
        recover_age_s: float | None = None,
        log: Log = NO_LOG,
    ) -> None:
        self.topology = self.started_with = topology
        self.name = name
        self.in_hand: dict[str, object] | None = None  # when its last life ended
        self.broken_file = ""  # what is wrong with the topology file that is there in place of the one followed
        self.rng = random.Random(os.urandom(16))
        self.log = log
        self.clock = time.monotonic
        self.started = now = self.clock()
        config, incarnation = topology.router_config(name), self.rng.getrandbits(64) or 1
        self.router = Router(
            config,
            Life(incarnation, now, fresh, recover_age_s),
            wall_us=_wall_us,
            log=log,
            token=lambda: secrets.token_hex(16),
        )
        self._descriptors = self.router.admission.room = Descriptors(log)
        self.router.offers.set_failover(self._places())
        costs = topology.neighbours(name)
        self.network = Network(
            Hello(topology.network, name, incarnation),
            costs,
            rng=self.rng,
            now=now,
            log=log,
            timers=Timers(heartbeat_s=config.heartbeat_s, dead_after_s=config.dead_after_s),
        )
        self.router.core.owner.cost = self.network.routes.cost
        self._resumed_at = now
        self._reset: dict[str, None] = {}  # peers whose session we have reset, until their PeerDown
        self._listeners: list[asyncio.Server] = []
        self.admin_tls: ListenerContext | None = None  # as its listener has it
        self.listening = Listening(self)
        self.neighbours = Neighbours(self)
        self.carriers: dict[Carried, Carrier] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn_due = False
        self._turn_asked = False  # the loop will call _turn_if_due
        self._reads = 0  # since the last turn
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self.sweep = Sweep(self)
        self.strangers = Strangers(self.call_soon, self.clock)
        self.stopping = False
        self.stopped = False
        self._changed = asyncio.Event()
        self.turn_times = TurnTimes(log)

    # --- life

    async def start(
        self,
        tls: ListenerContext | None = None,
        authentication: Authentication | None = None,
        trunk_tls: TrunkTls | None = None,
    ) -> None:
        """Listens for clients and neighbours, and connects to neighbours. OSError if a port cannot be bound, UsageError
        if the network's key cannot be read. tls: of
        the listeners `amqps` and `wss`. authentication: None: clients need not say who they are. trunk_tls: None:
        trunks have no TLS."""
        self._descriptors.check(self.router.config.limits.connections)
        self.listening.tls, self.listening.authentication = tls, authentication
        self._loop = asyncio.get_running_loop()
        self.neighbours.tls = trunk_tls
        self.network.login = read_trunk_key(self.topology, self.name)
        self._listeners.append(await self.neighbours.listen())
        self._listeners += await self.listening.listen()
        self.neighbours.dial()
        self.turn()
        self.sweep.look()

    @property
    def hosts(self) -> frozenset[str]:
        """By which requests of HTTP come: those of the file that is followed, and of the one that says where it has
        listened since its start."""
        return self.topology.hosts | self.started_with.hosts

    def reload(
        self,
        topology: Topology,
        tls: ListenerContext | None = None,
        authentication: Authentication | None = None,
        trunk_tls: TrunkTls | None = None,
    ) -> None:
        """Follows a changed topology file of the same network that has this router. The listeners stay where they
        are. tls, authentication, trunk_tls: as in `start`; connections that are there stay, but those of users that
        are gone, and those that have begun to log in where others may now. Nobody waits for what users that are gone
        have subscribed to, nor for what users may not receive any more."""
        listening = self.listening
        listening.tls = tls or listening.tls
        self.neighbours.tls = trunk_tls or self.neighbours.tls
        before, listening.authentication = listening.authentication, authentication
        policies, gone = self.router.config.policies, users_gone(before, authentication)
        carriers = self.carriers.values()
        with_token = {each.carried for each in carriers if each.login is not None and each.login.has_token}
        clients: list[ClientConnection | MqttConnection] = [*self.router.connections, *self.router.mqtt.connections]
        for connection in [each for each in clients if each.user in gone and each not in with_token]:
            self.close_client(connection, f"user {connection.user!r:.60} was removed")
        if logins_of(before) != logins_of(authentication):
            self.router.admission.end_half_open(self.time())
        if authentication is not None:
            users = authentication.users
            self.router.regroup({name: users.groups(name) for name in users.by_name}, with_token)
        self.topology = topology
        config = topology.router_config(self.name)
        now = self.time()
        self.network.set_timers(config.heartbeat_s, config.dead_after_s, now)
        self.network.set_neighbours(topology.neighbours(self.name), now)
        self.router.reconfigure(config, now)
        if rights_of(before, policies) != rights_of(authentication, config.policies):
            self.router.revoke(gone, partial(groups_of, authentication, config), with_token)
        self.router.offers.set_failover(self._places())
        self.neighbours.dial()
        self.turn()

    async def stop(self, drain_s: float = DRAIN_S) -> None:
        """Drains, unless no client is left, and ends. The connections to other routers are closed last."""
        self.stopping = True
        self._listeners.pop().close()
        if self.router.drain is None or not self.router.drain.done:
            self.drain(drain_s)
            await self.until_drained(drain_s)
        drain = self.router.drain
        if drain is not None:
            await self._until(lambda: drain.handed_over, waits.HANDOVER)
        await self._until(lambda: not self.router.connections and self._all_acknowledged(), waits.GOODBYE)
        self.stopped = True
        for listener in self._listeners:
            listener.close()
        await self.neighbours.stop()
        self.sweep.stop()
        if self._timer is not None:
            self._timer.cancel()
        for carrier in list(self.carriers.values()):
            carrier.abort()
        # one turn in which the transports write their last bytes
        await asyncio.sleep(0)

    def drain(self, within_s: float = DRAIN_S) -> None:
        """Sends the clients to the other routers that are up, one after the other, and takes no new ones."""
        peers = self.router.core.members.peers
        places = [place for place in self._places() if place.router in peers]
        self.rng.shuffle(places)
        count = len(self.router.connections)
        self.log.info("drain_begins", "draining: {connections} connections", connections=count, within_s=within_s)
        self.router.start_drain(places, self.time(), within_s)
        self.turn()

    def _places(self) -> list[Place]:
        """The other routers' listeners, as far as clients that are here get there."""
        routers = self.topology.routers
        return [Place(name, at.told_at(routers[self.name])) for name, at in routers.items() if name != self.name]

    def operate(self, action: Callable[[Router], T]) -> T:
        """Does what an operator asks for, as one handler."""
        now = self.time()
        self.router.enter(now)
        self.router.core.now = self.router.core.entered = now
        result = action(self.router)
        self.turn()
        self.turn_times.ended(self.clock() - now, "what an operator has asked for")
        return result

    def close_client(self, connection: ClientConnection | MqttConnection, why: str) -> None:
        """Sends away who may not be here any more."""

        def close(router: Router) -> None:
            if isinstance(connection, MqttConnection):
                connection.close(Reason.NOT_AUTHORIZED, why)
                return
            connection.close_at_once(Error(Symbol(UNAUTHORIZED_ACCESS), why))

        self.operate(close)

    def undo_drain(self) -> None:
        self.log.info("drain_undone", "takes clients again")
        self.router.undo_drain(self.time())
        self.turn()

    async def until_drained(self, within_s: float) -> None:
        """After `drain`: returns when no client is left, the time is over, or the drain is undone."""
        drain, began = self.router.drain, self.time()
        assert drain is not None
        await self._until(lambda: drain.done or self.router.drain is not drain, waits.DRAIN, within_s + waits.GOODBYE.s)
        for cut in drain.cut:
            text = "{address}: {role} {container}/{name} was closed with deliveries without outcome: {deliveries}"
            self.log.warning(
                "drain_cut",
                text,
                address=cut.address,
                role=cut.role,
                container=cut.container,
                name=cut.name,
                deliveries=cut.deliveries,
            )
        if self.router.drain is drain:
            seconds = round(self.time() - began, 2)
            self.log.info(
                "drain_ends", "drained in {seconds} s", seconds=seconds, connections=len(self.router.connections)
            )

    # What `onceway.operate.overview` reads.

    def summary(self) -> dict[str, Any]:
        core, own = self.router.core, self.listening.authentication
        return {
            **self.network.status(),
            **self.router.summary(),
            "clients_waiting": self.listening.waiting,
            "name": self.name,
            "network": self.topology.network,
            "file": self.topology.file_digest,
            "broken_file": self.broken_file,
            "in_hand": self.in_hand,
            "certificates": self._certificates(),
            "authentication": dict(own.guesses.counts) if own is not None else {},
            "program": program(),
            "pid": os.getpid(),
            "incarnation": f"{core.incarnation:016x}",
            "uptime_s": round(time.monotonic() - self.started, 3),
            "started_fresh": core.startup.fresh,
            "ready_when_isolated": self.router.config.ready_when_isolated,
        }

    @property
    def in_force(self) -> Topology:
        """The file that is followed, but for what needs a restart."""
        return in_force(self.topology, self.started_with, self.name)

    def configuration(self) -> dict[str, str]:
        """What holds here, key by key: of settings, limits, users, policies and addresses what the core heeds, and of
        what needs a restart what this router was started with."""
        heeded, topology = self.router.core.config, self.topology
        by_match = {each.match: each for each in heeded.addresses}
        own = {self.name: heeded.limits} if self.name in topology.limits else {}
        followed = replace(
            topology,
            settings=replace(heeded, limits=topology.settings.limits) if own else heeded,
            limits={**topology.limits, **own},
            given=tuple(replace(each, config=by_match[each.config.match]) for each in topology.given),
        )
        return configuration(followed, self.started_with, self.name)

    def _certificates(self) -> list[dict[str, Any]]:
        """Those that this router shows, and how many days they are valid."""
        found = {each.file: each for each in self.certificates}
        now = time.time()
        return [{"file": str(file), "days": round(each.days_left(now), 3)} for file, each in found.items()]

    @property
    def certificates(self) -> list[Validity]:
        """Those that this router shows, to clients, readers of its admin listener, and routers."""
        return [each for context in self.contexts if context is not None for each in context.validities]

    @property
    def contexts(self) -> tuple[ListenerContext | None, ...]:
        """Of its listeners: for clients, readers of its admin listener, and routers."""
        trunks = self.neighbours.tls
        return self.listening.tls, self.admin_tls, trunks.listens if trunks is not None else None

    def address_names(self) -> list[str]:
        return list(self.router.core.addresses)

    def report(self, address: str) -> Generator[None, None, dict[str, Any] | None]:
        return self.router.report(address)

    def trace(self, address: str, container: str, name: str, tag: bytes) -> dict[str, Any]:
        return {"name": self.name, **self.router.trace(address, container, name, tag)}

    def measured(self) -> Measured:
        counters, now = self.router.core.counters, self.clock()
        lost_s = {key: now - at for key, at in counters.lost.items()}
        return Measured(counters.by_label, self.sweep.loop_lag, self.turn_times.histogram, lost_s)

    def status(self) -> dict[str, Any]:
        """All of it at once: for tests, and routers with few addresses."""
        return {**self.summary(), **self.router.status()}

    # --- for the carriers

    def time(self) -> float:
        """The time of what is read next. That this process was suspended is noted before anything that came meanwhile
        is read."""
        now = time.monotonic()
        network = self.network
        if now - network.looked_at > network.heartbeats.pause_s:
            network.look(now)
            if network.resumed_at > self._resumed_at:
                self._resumed_at = network.resumed_at
                self.router.process_resumed(self._resumed_at)
        return now

    def after_read(self) -> None:
        self._reads += 1
        if self._loop is None:
            return
        if len(self.carriers) <= FEW_SOCKETS or self._reads >= MOST_READS:
            self.turn()
        elif not self._turn_due:
            self._turn_soon()

    def connection_made(self, carrier: Carrier) -> Carried | None:
        if self.stopped:
            return None
        carried: Carried
        if isinstance(carrier, NeighbourCarrier):
            trunk = self.network.connect(self.time(), neighbour=carrier.neighbour)
            if carrier.tls is not None:
                trunk.certified = frozenset()
            carried = trunk
        else:
            carried = self.listening.connect(cast(ClientCarrier, carrier))
            self.sweep.client_came(self.time())
        self.carriers[carried] = carrier
        self._turn_soon()
        return carried

    def speaks_mqtt(self, carrier: ClientCarrier) -> None:
        """The client of a WebSocket has asked for MQTT."""
        if carrier.carried is not None:
            del self.carriers[carrier.carried]
            carrier.carried.receive_eof(self.time())
            carrier.carried = self.listening.connect_mqtt(carrier)
            self.carriers[carrier.carried] = carrier

    def connection_lost(self, carrier: Carrier) -> None:
        if carrier.carried is not None:
            self.carriers.pop(carrier.carried, None)
        self._changed.set()

    def stranger_refused(self, peer: str, reason: str) -> None:
        text = "client at {client} refused: {description}"
        self.log.warning("client_refused", text, condition=RESOURCE_LIMIT_EXCEEDED, description=reason, client=peer)

    def handshake_failed(self, peer: str, kind: str, reason: str) -> None:
        if kind == "TLS":
            self.log.warning("tls_failed", "no TLS with {peer}: {reason}", peer=peer, reason=reason)
        else:
            self.log.warning("websocket_failed", "no WebSocket with {peer}: {reason}", peer=peer, reason=reason)

    # --- turns

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(callback)

    def _turn_soon(self) -> None:
        if not self._turn_due and self._loop is not None and not self.stopped:
            self._turn_due = True
            if not self._turn_asked:
                self._turn_asked = True
                self._loop.call_soon(self._turn_if_due)

    def _turn_if_due(self) -> None:
        self._turn_asked = False
        if self._turn_due:
            began = self.clock()
            self.turn()
            self.turn_times.ended(self.clock() - began, "what all have caused was written")

    def turn(self) -> None:
        """Flushes the pending output of all handlers, then writes the sockets."""
        self._turn_due, self._reads = False, 0
        router, network, carriers = self.router, self.network, self.carriers
        now = self.time()
        for done in range(ROUNDS):
            router.flush(now)
            if router.turn.must_send:
                for peers, message in router.take_messages():
                    network.send(peers, message)
            if not network.flush(now):
                break
            if done and network.more and self.clock() - now >= NEIGHBOURS_S:  # one part at least
                self._turn_soon()
                break
            events = network.take_events()
            if not (events or network.more):
                break
            self._peer_events(events, now)
        else:
            self._turn_soon()
        for connection in router.take_dirty():
            carrier = carriers.get(connection)
            if carrier is not None:
                carrier.write()
        for trunk in network.work.take_dirty():
            carrier = carriers.get(trunk)
            if carrier is not None:
                carrier.write()
        if network.neighbours.sign:
            network.neighbours.sign_seen()
            self.neighbours.sign()
        if router.wants_flush:
            self._turn_soon()
        self._set_timer(now)
        self._changed.set()

    def _peer_events(self, events: list[NetworkEvent], now: float) -> None:
        for event in events:
            if isinstance(event, PeerMessage):
                if event.peer in self._reset:
                    continue
                try:
                    self.router.peer_message(event.peer, event.data, now)
                except PeerProtocolError as error:
                    text = "session with router {peer} reset: {reason}"
                    self.log.warning("session_reset", text, peer=event.peer, reason=str(error))
                    self._reset[event.peer] = None
                    self.network.peer_reset(event.peer, now)
            elif isinstance(event, PeerUp):
                known = {"incarnation": f"{event.incarnation:016x}", "version": event.version}
                self.log.info("session_up", "session with router {peer} up", peer=event.peer, **known)
                self.router.peer_up(event.peer, now, event.began, event.version)
            else:
                self._reset.pop(event.peer, None)
                self.log.warning(
                    "session_down", "session with router {peer} down", peer=event.peer, reachable=event.reachable
                )
                self.router.peer_down(event.peer, now)

    # --- time

    def _set_timer(self, now: float) -> None:
        assert self._loop is not None
        deadline = self.network.next_deadline()
        router = self.router.next_deadline()
        if router is not None and router < deadline:
            deadline = router
        heartbeats = self.network.heartbeats
        if self.stopped or (self._timer_at <= deadline and not heartbeats.followed):
            return  # the timer compares again when it fires: most deadlines move before they are due
        if heartbeats.followed:
            heartbeats.timer_set()
            self.sweep.awake(now)
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - now), self._tick)

    def _tick(self) -> None:
        self._timer_at = inf
        now = self.time()
        self.network.tick(now)
        self.router.tick(now)
        self.turn()
        self.turn_times.ended(self.clock() - now, "timers of the network and of addresses")

    def _all_acknowledged(self) -> bool:
        """The peers have acknowledged every message, the last ones included."""
        sessions = self.network.sessions.status().values()
        return not any(session["unacknowledged_messages"] or session["waiting_messages"] for session in sessions)

    async def _until(self, condition: Callable[[], bool], row: waits.Wait, most_s: float | None = None) -> None:
        """Waits for the condition: within the row's bound, or that of the caller."""
        most_s = row.s if most_s is None else most_s
        end = self.time() + most_s
        while not condition():
            left = end - self.time()
            if left <= 0:
                row.ended()
                self.log.info("wait_ended", "{what}: not within {within_s} s", what=row.what, within_s=most_s)
                return
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await waits.CALLER(asyncio.wait_for)(self._changed.wait(), left)


def _wall_us() -> int:
    return time.time_ns() // 1000
