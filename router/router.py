"""One router without its sockets: input from clients, messages from peers and time come in; output goes out.

`Router` joins the protocol core to the clients' connections and collects output: connections with bytes to write,
messages for peers. It does not know how peers are reached (`interrouter`) nor what a transport is
(`onceway.serve.server`, the simulator). One handler runs at a time. The owner calls `flush` once per read or once per
turn of its loop; `flush` writes what the handlers have left: credit, outcomes, settlements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import partial
from itertools import count
from math import inf
from typing import Any, Final

from amqp10.sasl import Offer, ServerMechanisms
from router.border import Border
from router.config import RESERVED, Life, RouterConfig
from router.core import messages as m
from router.core.core import Core
from router.core.messages import Message
from router.core.queue.free import Kind
from router.core.reports import of_address, of_all, of_core
from router.core.tracing import trace
from router.core.traffic import Settle
from router.links.base import BaseRouter
from router.links.buffers import Buffers
from router.links.client_connection import ClientConnection
from router.links.draining import Drain
from router.links.expiry import ends_at
from router.links.incoming_windows import IncomingWindows
from router.links.kinds import kinds_of
from router.links.limits import CONNECTIONS, Admission, Bookkeeping, entries_of
from router.links.management import ManagementNodes
from router.links.negotiation import Unauthorized, check_allowed
from router.links.offers import Offers, Place
from router.links.passed_by import PassedBy
from router.links.proof import STALL
from router.links.turn import Turn
from router.mqtt.connection import Authenticate, MqttConnection
from router.mqtt.retained import INTERNAL
from router.mqtt.service import Mqtt
from router.peers.wire import LATER, Encoded, decode, encode_parts
from router.policies import Identity, owner_of
from router.reasons import reason_of_refusal
from router.reporting import NO_LOG, Log
from router.suspects import REFUSED_S, Suspect, sender_of
from router.versions import SPOKEN

PROOF_TICK: Final = 0.125  # of proof_after: how often `tick` is wanted while a proof is open
NO_KINDS: Final[dict[int, Kind]] = {}  # what cannot be read is plain
FAILOVER_BYTES: Final = 300  # of open, which may have 512 before the client has said more (AMQP 2.4.1)
REOPEN_AT: Final = 0.875  # times memory_limit: below it the incoming windows of sessions open again


class Router(BaseRouter):
    """One router.  Every method takes `now`, monotonic seconds of the owner's clock."""

    def __init__(
        self,
        config: RouterConfig,
        life: Life,
        *,
        wall_us: Callable[[], int],
        sasl: ServerMechanisms | None = None,
        log: Log = NO_LOG,
        token: Callable[[], str] | None = None,
    ) -> None:
        """token: makes what nobody can guess, for the addresses of dynamic nodes; None: there are none."""
        self.config = config
        self.token = token
        self.numbers = count()  # of connections, and of attaches without an address
        self.log = log
        self.now = life.now
        self.core = Core(config, life, self._send, wall_us, log)
        self.border = Border(self.core, log)
        self.core.owner.reason_of = reason_of_refusal
        self.core.owner.suspects = self._suspects
        self.core.owner.suspected = self._suspected
        self.core.owner.ends_at = partial(self.border.ask, None, ends_at)
        self.core.owner.kinds_of = partial(self.border.ask, NO_KINDS, kinds_of)
        self.connections: dict[ClientConnection, None] = {}
        self.drain: Drain | None = None
        self.admission = Admission(config.limits, dict(config.users))
        self.bookkeeping = Bookkeeping(self.core, config.memory_limit)
        self.offers = Offers(config, self.admission, sasl)
        self.buffers = Buffers(config, self.admission, self._clients)
        self.windows = IncomingWindows(self.core.memory, log)
        self.passed_by = PassedBy(self.admission, log)
        self.turn = Turn()
        self.made = 0  # connections so far, and sessions that have ended before their connections
        self._messages: list[tuple[tuple[str, ...], Encoded]] = []
        self.nodes = ManagementNodes(self.core, life.incarnation)
        self.core.owner.asked = self.nodes.on_message
        self.mqtt = Mqtt(self)
        self.core.owner.connections_hold = self._connections_hold

    # --- the topology file

    def regroup(self, groups: Mapping[str, tuple[str, ...]], keep: Collection[object]) -> None:
        """The groups of users have changed; call `reconfigure` then. Users that are not there keep theirs, as do the
        connections to keep."""
        for connection in self.connections:
            if connection not in keep and (user := connection.identity.user) in groups:
                connection.connection.handshake.regroup(groups[user])
        self.mqtt.regroup(groups, keep)

    def reconfigure(self, config: RouterConfig, now: float) -> None:
        """The topology file has changed. What a client was told in an open or attach holds as long as that connection
        or link."""
        self.enter(now)
        self.config = config
        self.offers.reconfigure(config)
        self.buffers.set_limits(config)
        self.admission.limits, self.admission.users = config.limits, dict(config.users)
        self.bookkeeping.set_limit(config.memory_limit)
        for connection in self.connections:
            connection.reconfigured()
        self.core.reconfigure(config, now)
        for connection in self.connections:
            connection.enforce(now)
        self.mqtt.reconfigure(now)

    def revoke(
        self, removed: Collection[str], groups_of: Callable[[str], tuple[str, ...]], keep: Collection[object]
    ) -> None:
        """Drops the subscriptions that are away, and whose users are removed or may not receive from their addresses
        any more: nobody waits for them (protocol 8.2.6). Call it after `reconfigure`, which detaches those that are
        here. groups_of: those of a user who is away. keep: connections that stay."""
        self.mqtt.revoke(removed, keep, self.now)
        for name, address in list(self.core.addresses.items()):
            directory = address.subscriptions
            for entry in list(directory.entries.values()):
                if entry.home is not None or not directory.may_be_dropped(entry):
                    continue
                container, link = entry.name
                user = owner_of(container)
                reason = f"user {user!r:.60} was removed" if user in removed else ""
                if not reason and not name.startswith(RESERVED) and not container.startswith(INTERNAL):
                    reason = self._may_not_receive(Identity(user, groups_of(user)), name)
                if reason:
                    text = "{address}: subscription {container}/{link} is dropped: {reason}"
                    said = {"address": name, "container": container, "link": link, "reason": reason}
                    self.log.warning("subscription_dropped", text, **said)
                    directory.drop(entry)

    def _may_not_receive(self, who: Identity, address: str) -> str:
        """Why the policies do not let this client receive from the address; empty if they do."""
        try:
            check_allowed(self.config, who, "receive", address)
        except Unauthorized as error:
            return error.description
        return ""

    # --- what has ended a router

    def was_ended_by(self, digest: bytes, user: str | None, address: str, now: float) -> None:
        """This input has ended this router's last life: it is refused for a minute, also at the routers in session,
        from when they are. digest: `router.suspects.digest_of` its octets. user: None: whoever sent it had not come in;
        address: host:port."""
        self.border.suspects.add_own(Suspect(digest, sender_of(user, address)), now)

    def _suspects(self) -> list[m.Suspected]:
        own = self.border.suspects.own(self.now)
        return [m.Suspected(own[0].digest, own[0].sender, own[1])] if own is not None else []

    def _suspected(self, told: m.Suspected) -> None:
        text = "{sender} has sent what has ended another router: it is refused for {left_s} s"
        self.log.warning("input_suspected", text, sender=told.sender, digest=told.digest.hex(), left_s=told.left_s)
        until = self.now + min(told.left_s, REFUSED_S)
        self.border.suspects.add(Suspect(told.digest, told.sender), until)

    # --- clients

    def connect(
        self,
        now: float,
        address: str = "",
        *,
        scheme: str = "amqp",
        sasl: Offer | None = None,
        anonymous: bool = True,
    ) -> ClientConnection:
        """A client has opened a transport.

        Args:
            now: The time.
            address: Its host:port, for the log.
            scheme: Of the listener's URL: amqp, amqps, ws, wss.
            sasl: What it is offered; None: what the router was made with.
            anonymous: It need not begin with SASL.
        """
        self.enter(now)
        self.made += 1
        connection = ClientConnection(self, self.offers.settings(scheme, sasl, anonymous), now, address)
        connection.scheme = scheme
        self.connections[connection] = None
        if self.drain is not None:
            connection.receive_eof(now)
            return connection
        self.admission.connected(connection, now, address)
        limits = self.config.limits
        if len(self.connections) > limits.connections + 2 * limits.half_open:  # refused ones that have not closed yet
            self.admission.count_refusal(CONNECTIONS)
            connection.receive_eof(now)
        return connection

    def connect_mqtt(self, now: float, address: str, *, secure: bool, authenticate: Authenticate) -> MqttConnection:
        """A client has opened a transport to the listener for MQTT. authenticate: says who it is."""
        self.enter(now)
        self.made += 1
        connection = self.mqtt.connect(now, address, secure=secure, authenticate=authenticate)
        self.admission.connected(connection, now, address)
        limits = self.config.limits
        if len(self.mqtt.connections) > limits.connections + 2 * limits.half_open:
            self.admission.count_refusal(CONNECTIONS)
            connection.receive_eof(now)
        return connection

    def take_dirty(self) -> list[ClientConnection | MqttConnection]:
        """Connections that may have output, each once. Closed connections are forgotten here."""
        dirty = self.turn.take_dirty()
        for connection in dirty:
            if connection.connection.closed:
                self.connections.pop(connection, None)
                connection.release()  # also where its end has met an error
        return [*dirty, *self.mqtt.take_dirty()] if self.mqtt.turn.with_output else [*dirty]

    # --- peers

    def peer_up(self, peer: str, now: float, began: float = -inf, version: int = SPOKEN.newest) -> None:
        """began: the peer has sent nothing in this session before. version: of the wire between routers."""
        self.enter(now)
        self.core.peer_up(peer, now, began, version)

    def peer_down(self, peer: str, now: float) -> None:
        self.enter(now)
        self.turn.must_send = True  # what waited dies with the session, and does not see the next (protocol 9.3)
        self.core.peer_down(peer, now)
        self.nodes.session_ended(peer)

    def peer_message(self, peer: str, data: bytes | Sequence[bytes | memoryview], now: float) -> None:
        """Process a peer's message. Raises PeerProtocolError if it is malformed; the owner then resets that session."""
        if now != self.now:
            self.enter(now)
        if peer in self.core.members.up:
            self.core.peer_message(peer, decode(data, self.core.members.speaks[peer]), now)

    def take_messages(self) -> list[tuple[tuple[str, ...], Encoded]]:
        """(peers, message) in the order in which they were sent."""
        messages, self._messages = self._messages, []
        self.turn.must_send = False
        return messages

    # --- time

    def flush(self, now: float) -> bool:
        """Write what the handlers have left. True: call `flush` again in the next turn, without a new event."""
        self.enter(now)
        core, turn = self.core, self.turn
        if turn.writable:
            turn.write(now)
        if self.mqtt.wants_flush or self.mqtt.deferred:
            self.mqtt.flush(now)
        if self.passed_by.too_dear:
            self.passed_by.end_links(now)
        core.flush(now)
        if turn.failed:
            turn.end_failed(now)
        if turn.credits:
            turn.grant()
        if turn.draining:
            turn.drain()
        if self.drain is not None:
            self.drain.step(now)
        if self.windows.closed or core.memory.payload_bytes >= self.config.memory_limit:
            self.windows.look(self.config.memory_limit, self.connections)
        return self.wants_flush

    @property
    def wants_flush(self) -> bool:
        """Whether `flush` has something to do without a new event."""
        turn = self.turn
        return bool(turn.writable or turn.failed or turn.credits or self.passed_by.too_dear or self.mqtt.wants_flush)

    def process_resumed(self, since: float) -> None:
        """The process has run without a pause since this time. Call it before `tick`: some timers must not expire in a
        process that has been suspended meanwhile (protocol 12)."""
        self.core.process_resumed(since)

    def tick(self, now: float) -> None:
        """The core's timers, and deferred output. Each connection has a `handle_timer` of its own."""
        self.enter(now)
        self.core.tick(now)
        self.mqtt.tick(now)
        if self.turn.output_due is not None and now >= self.turn.output_due:
            self.turn.write_deferred(now)

    def next_deadline(self) -> float | None:
        """When to call `tick`; connections have deadlines of their own."""
        deadline = self.core.agenda.deadline
        for other in (self.turn.output_due, self.mqtt.next_deadline()):
            if other is not None and other < deadline:
                deadline = other
        if self.drain is not None:
            step = self.drain.next_deadline()
            if step is not None and step < deadline:
                deadline = step
        if self.turn.watching:
            return min(self.now + self.config.proof_after_s * PROOF_TICK, deadline)
        return deadline if deadline < inf else None

    def enter(self, now: float) -> None:
        """Note the time; every call from outside begins with it."""
        # protocol 12: a frame read after a pause of this process may have waited in a buffer, and proves nothing
        if self.turn.watching and now - self.now > self.config.proof_after_s * STALL:
            self.turn.delayed(self.now, now)
        self.now = now

    @property
    def held_bytes(self) -> int:
        """Payload, incomplete messages and output of clients that are kept now."""
        memory, buffers = self.core.memory, self.buffers
        payload = memory.payload_bytes + memory.presettled_bytes + self.mqtt.octets
        return payload + buffers.incomplete_bytes + buffers.unread_bytes

    def _clients(self) -> list[ClientConnection | MqttConnection]:
        return [*self.connections, *self.mqtt.connections]

    def check_invariants(self) -> None:
        """Raises AssertionError where the state is impossible between two inputs (for simulations and tests)."""
        self.core.check_invariants()
        for connection in self.connections:
            connection.check_invariants()
        self.buffers.check_invariants()

    def _connections_hold(self) -> Counter[str]:
        held = self.mqtt.octets_by_user()
        for connection in self.connections:
            held[connection.identity.user] += connection.held.octets
        return held

    def population(self) -> tuple[int, int]:
        """How many connections, links and addresses there are, and how many of these and of sessions are gone. What is
        gone has referred to itself, so that only a collection of Python's finds it."""
        core = self.core
        there = len(self.connections) + len(self.mqtt.connections)
        there += len(core.publishers) + len(core.subscribers) + len(core.addresses)
        return there, self.made + core.memory.made - there

    # --- the end

    def start_drain(self, elsewhere: Sequence[Place], now: float, within_s: float) -> None:
        """Refuse new links and connections, and send the clients to these other routers, one after the other. It is
        over when `drain.done`, which takes little longer than `within_s`."""
        self.enter(now)
        self.core.draining(True, now)
        self.mqtt.drain(now)
        self.drain = Drain(self, elsewhere, now, within_s)

    def undo_drain(self, now: float) -> None:
        """Take clients again. Those that are still there stay."""
        self.enter(now)
        drain, self.drain = self.drain, None
        self.mqtt.draining = False
        if drain is not None:
            self.core.draining(False, now)
            drain.undo()

    # --- what people see

    def summary(self) -> dict[str, Any]:
        """All of `status` but the addresses; it takes no longer where there are many."""
        core = self.core
        return {
            **of_core(core),
            "publishers": len(core.publishers),
            "subscribers": len(core.subscribers),
            "addresses_known": len(core.addresses),
            "drain": None if self.drain is None else self.drain.status(self.now),
            "connections": len(self.connections),
            "mqtt": self.mqtt.status(),
            "sessions_closed_for_memory": self.windows.closed_for_memory,
            "incomplete_bytes": self.buffers.incomplete_bytes,
            "unread_bytes": self.buffers.unread_bytes,
            "entries": self.bookkeeping.last_count,
            "held_bytes": core.memory.holding.total,
            "limits": self.admission.status(),
            "input_errors": dict(self.border.failed),
            "suspects": len(self.border.suspects.until),
            "input_refused": self.border.suspects.refused,
            "unread_by_filters": self.passed_by.unread,
        }

    def report(self, address: str) -> Generator[None, None, dict[str, Any] | None]:
        """What `status` says of one address, in pieces (`router.core.reports`); None if it is not known here."""
        known = self.core.addresses.get(address)
        if known is None:
            return None
        report = yield from of_address(known)
        return {**report, "label": known.counters.label, "entries": entries_of(known)}

    def trace(self, address: str, container: str, name: str, tag: bytes) -> dict[str, Any]:
        """Where one delivery is (`router.core.tracing`)."""
        return trace(self.core, address, container, name, tag)

    def status(self) -> dict[str, Any]:
        self.bookkeeping.entries(self.now)
        return {**self.summary(), **of_all(self.core)}

    # --- for the connections

    @property
    def sends_away(self) -> bool:
        """Whether it is being drained: no connection may open, and none attach a link."""
        return self.drain is not None

    def leave(self, connection: ClientConnection) -> None:
        assert self.drain is not None
        self.drain.leave(connection, self.now)

    def dismiss(self, connection: ClientConnection) -> None:
        assert self.drain is not None
        self.drain.dismiss(connection)

    # --- helpers

    def _send(self, peers: tuple[str, ...], message: Message) -> None:
        since = LATER.get(message.__class__)
        if since is not None:
            assert all(self.core.speaks(peer) >= since for peer in peers), f"{peers} do not all know {message!r:.80}"
        self._messages.append((peers, encode_parts(message)))
        if message.__class__ is not Settle or self.drain is not None:
            self.turn.must_send = True
        else:
            self.turn.send_later(self.now)
