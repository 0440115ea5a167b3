"""One router without its sockets: input from clients, messages from peers and time come in; output goes out.

`Router` joins the protocol core to the clients' connections and collects output: connections with bytes to write,
messages for peers. It does not know how peers are reached (`interrouter`) nor what a transport is
(`onceway.serve.server`, the simulator). One handler runs at a time. The owner calls `flush` once per read or once per
turn of its loop; `flush` writes what the handlers have left: credit, outcomes, settlements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from math import inf
from typing import Any, Final

from amqp10.encoder import encode_value
from amqp10.errors import RESOURCE_LIMIT_EXCEEDED
from amqp10.link import LinkSession
from amqp10.sasl import Offer, ServerMechanisms, server_mechanisms
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol, UShort
from router.border import TOLD, Border
from router.config import Life, Limits, RouterConfig
from router.core import messages as m
from router.core.core import Core
from router.core.holding import NETWORK, Holding
from router.core.messages import Message
from router.core.queue.free import Kind
from router.core.reports import of_address, of_all, of_core
from router.core.tracing import trace
from router.core.traffic import Settle
from router.links.anonymous import AddressPort
from router.links.base import OUTPUT_DELAY_S, BaseRouter
from router.links.client_connection import SMALL_FRAME, ClientConnection
from router.links.draining import Drain, Place
from router.links.expiry import ends_at
from router.links.kinds import kinds_of
from router.links.limits import CONNECTIONS, FILTERS, MEMORY, UNREAD, Admission, Bookkeeping, entries_of
from router.links.management import ManagementNodes
from router.links.negotiation import RESERVED, Unauthorized, check_allowed
from router.links.proof import STALL
from router.links.publisher_link import PublisherLink
from router.links.subscriber_link import SubscriberLink
from router.mqtt.connection import Authenticate, MqttConnection
from router.mqtt.retained import INTERNAL
from router.mqtt.service import Mqtt
from router.peers.wire import LATER, Encoded, decode, encode_parts
from router.policies import ANONYMOUS, Identity, owner_of
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
        self.incarnation = life.incarnation
        self.core = Core(config, life, self._send, wall_us, log)
        self.border = Border(self.core, log)
        self._ended_by: Suspect | None = None  # this router's last life
        self.core.suspects = self._suspects
        self.core.suspected = self._suspected
        self.core.ends_at = partial(self.border.ask, None, ends_at)
        self.core.kinds_of = partial(self.border.ask, NO_KINDS, kinds_of)
        self.connections: dict[ClientConnection, None] = {}
        self.drain: Drain | None = None
        self._settings = ConnectionSettings(
            container_id=config.name,
            handshake_timeout_s=config.limits.handshake_timeout_s,
            offered_capabilities=("ANONYMOUS-RELAY",),
            properties={Symbol("product"): "onceway", Symbol("router"): config.name},
            sasl=sasl or server_mechanisms(),  # by default everybody, as ANONYMOUS or without a SASL layer
        )
        self.admission = Admission(config.limits, dict(config.users))
        self.bookkeeping = Bookkeeping(self.core, config.memory_limit)
        self.unread_bytes = 0  # output in the buffers of paused transports
        self.connected = 0  # connections so far
        self.sessions_ended = 0  # those of connections that have ended are not counted
        self._limits: dict[str, Limits] = {}  # by user; "" for all users without limits of their own
        self._by_user: dict[tuple[str, str], ConnectionSettings] = {}  # by scheme and user, as above
        self._places: list[Place] = []  # of other routers
        self.incomplete_limit = _incomplete_limit(config)
        self.incomplete = Holding(self.incomplete_limit)  # messages and frames whose end has not arrived
        self._messages: list[tuple[tuple[str, ...], Encoded]] = []
        self.must_send = False
        """Whether one of these is waited for. A SETTLE is not: it goes with the next of others, or a little later."""
        self._writable: dict[ClientConnection, None] = {}
        self.windows_closed = False  # the payload held here has reached memory_limit
        self._paused: dict[LinkSession, None] = {}  # whose incoming windows are not renewed
        # Connections and ports enter themselves; `flush` and `take_dirty` empty these.
        self.dirty: dict[ClientConnection, None] = {}
        self.deferred_output: dict[ClientConnection, float] = {}  # and since when, in this order
        self.output_due: float | None = None  # when the oldest of it is written
        self.watching: dict[ClientConnection, None] = {}
        self.credits: dict[PublisherLink | AddressPort, None] = {}
        self.draining: dict[SubscriberLink, None] = {}
        self.failed: dict[ClientConnection, None] = {}
        self.too_dear: dict[SubscriberLink, str] = {}  # whose filters take too many steps, and what is said of it
        self.unread_by_filters = 0  # messages that were passed by, as filters could not be asked
        self.nodes = ManagementNodes(self.core, life.incarnation)
        self.core.asked = self.nodes.on_message
        self.mqtt = Mqtt(self)
        self.core.connections_hold = self._connections_hold

    # --- the topology file

    def regroup(self, groups: Mapping[str, tuple[str, ...]], keep: Collection[object]) -> None:
        """The groups of users have changed; call `reconfigure` then. Users that are not there keep theirs, as do the
        connections to keep."""
        for connection in self.connections:
            if connection not in keep and (user := connection.identity.user) in groups:
                connection.connection.groups = groups[user]
        self.mqtt.regroup(groups, keep)

    def reconfigure(self, config: RouterConfig, now: float) -> None:
        """The topology file has changed. What a client was told in an open or attach holds as long as that connection
        or link."""
        self.enter(now)
        self.config = config
        self._settings = replace(self._settings, handshake_timeout_s=config.limits.handshake_timeout_s)
        self.admission.limits, self.admission.users = config.limits, dict(config.users)
        self.bookkeeping.set_limit(config.memory_limit)
        self.incomplete_limit = _incomplete_limit(config)
        self._limits.clear()
        self._by_user.clear()
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

    def set_failover(self, places: Sequence[Place]) -> None:
        """The open of every connection from now on names these listeners, as far as it has room for them."""
        self._places = list(places)
        self._by_user.clear()

    def _failover(self, scheme: str) -> list[dict[Symbol, object]]:
        """What clients of a listener with this scheme are told: those without WebSocket of the others without, with
        their schemes; those with one of the same kind."""
        schemes = ("amqp", "amqps") if scheme in ("amqp", "amqps") else (scheme,)
        entries: list[dict[Symbol, object]] = []
        for each in schemes:
            for place in self._places:
                if each not in place.listeners:
                    continue
                host, port = place.listeners[each]
                entry: dict[Symbol, object] = {Symbol("network-host"): host, Symbol("port"): UShort(port)}
                if each == "amqps":
                    entry[Symbol("scheme")] = Symbol(each)
                if len(encode_value([*entries, entry])) > FAILOVER_BYTES:
                    return entries
                entries.append(entry)
        return entries

    # --- what has ended a router

    def was_ended_by(self, digest: bytes, user: str | None, address: str, now: float) -> None:
        """This input has ended this router's last life: it is refused for a minute, also at the routers in session,
        from when they are. digest: `router.suspects.digest_of` its octets. user: None: whoever sent it had not come in;
        address: host:port."""
        self._ended_by = Suspect(digest, sender_of(user, address))
        self.border.suspects.add(self._ended_by, now + REFUSED_S)

    def _suspects(self) -> list[m.Suspected]:
        one = self._ended_by
        left_s = self.border.suspects.until.get(one, 0.0) - self.now if one is not None else 0.0
        return [m.Suspected(one.digest, one.sender, left_s)] if one is not None and left_s > 0 else []

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
        settings = replace(self._settings, per_user=partial(self.settings_of, scheme))
        if sasl is not None:
            settings = replace(settings, sasl=sasl, allow_no_sasl=anonymous)
        self.connected += 1
        connection = ClientConnection(self, settings, now, address)
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
        self.connected += 1
        connection = self.mqtt.connect(now, address, secure=secure, authenticate=authenticate)
        self.admission.connected(connection, now, address)
        limits = self.config.limits
        if len(self.mqtt.connections) > limits.connections + 2 * limits.half_open:
            self.admission.count_refusal(CONNECTIONS)
            connection.receive_eof(now)
        return connection

    def count_unread(self, connection: MqttConnection, size: int) -> None:
        """The transport of a client of MQTT holds so many bytes of output."""
        self.unread_bytes += size - connection.unread_bytes
        if size > connection.limits.unread_output >= connection.unread_bytes:
            self.admission.count_refusal(UNREAD)
        connection.unread_bytes = size
        if size and self.unread_bytes > self.config.memory_limit:
            self.disconnect_slowest_reader()

    def may_hold_incomplete(self, connection: MqttConnection, size: int) -> bool:
        """A client of MQTT has sent so many bytes of a packet that is not complete. Returns whether there is room."""
        self.count_incomplete(connection, size)
        if size <= SMALL_FRAME or not self.has_too_much_incomplete(connection, self.now):
            return True
        self.admission.count_refusal(MEMORY)
        return False

    def count_incomplete(self, connection: ClientConnection | MqttConnection, size: int) -> None:
        """This connection has so many bytes of what is not complete."""
        user = connection.user or NETWORK
        if user != connection.incomplete_of:
            self.incomplete.count(connection.incomplete_of, -connection.incomplete_bytes)
            connection.incomplete_of, connection.incomplete_bytes = user, 0
        self.incomplete.count(user, size - connection.incomplete_bytes)
        connection.incomplete_bytes = size

    def has_too_much_incomplete(self, connection: ClientConnection | MqttConnection, now: float) -> bool:
        """Says whether what is not complete exceeds the limit, and its user has as much of it as any: what users have
        that have more goes first."""
        incomplete, user = self.incomplete, connection.incomplete_of
        while incomplete.total > self.incomplete_limit:
            most = max(incomplete.by_user, key=lambda each: incomplete.by_user[each])
            if incomplete.by_user[most] <= incomplete.by_user.get(user, 0):
                return True
            clients: list[ClientConnection | MqttConnection] = [*self.connections, *self.mqtt.connections]
            theirs = [each for each in clients if each.incomplete_of == most]
            before = incomplete.total
            self.admission.count_refusal(MEMORY)
            max(theirs, key=lambda each: each.incomplete_bytes).drop_incomplete(now)
            if incomplete.total == before:  # many small frames
                return True
        return False

    def disconnect_slowest_reader(self) -> None:
        """Unread output has filled the memory limit: of the user with the most of it, drop the connection that has
        most, without an error, as the client would not read it."""
        self.admission.count_refusal(MEMORY)
        everybody: list[ClientConnection | MqttConnection] = [*self.connections, *self.mqtt.connections]
        by_user: dict[str, list[ClientConnection | MqttConnection]] = {}
        for each in everybody:
            by_user.setdefault(each.user or NETWORK, []).append(each)
        clients = max(by_user.values(), key=lambda theirs: sum(each.unread_bytes for each in theirs))
        most = max(clients, key=lambda connection: connection.unread_bytes)
        most.reads_too_slowly()
        most.receive_eof(self.now)

    def limits_of(self, user: str | None) -> Limits:
        """The limits of this user's connections, with the network's settings where the listener has none."""
        name = self._limited_as(user)
        limits = self._limits.get(name)
        if limits is None:
            limits, config = self.admission.limits_of(user or ANONYMOUS), self.config
            limits = self._limits[name] = replace(
                limits,
                max_frame_size=limits.max_frame_size or config.max_frame_size,
                max_message_size=limits.max_message_size or config.max_message_size,
                unsettled_window=limits.unsettled_window or config.unsettled_window,
                idle_timeout_s=limits.idle_timeout_s or config.idle_timeout_s,
            )
        return limits

    def settings_of(self, scheme: str, user: str | None) -> ConnectionSettings:
        """The settings of this user's connections; the engine asks when the SASL exchange is complete."""
        key = scheme, self._limited_as(user)
        settings = self._by_user.get(key)
        if settings is None:
            limits = self.limits_of(user)
            assert limits.max_frame_size is not None
            assert limits.max_message_size is not None
            bounded = self.admission.limits_of(user or ANONYMOUS).max_message_size is not None  # protocol 6.12.1
            properties = {**(self._settings.properties or {}), Symbol("failover-server-list"): self._failover(scheme)}
            settings = self._by_user[key] = replace(
                self._settings,
                properties=properties,
                channel_max=limits.sessions - 1,
                handle_max=limits.links - 1,
                max_frame_size=limits.max_frame_size,
                max_message_size=limits.max_message_size,
                window_bytes=self.config.stream_share if self.config.stream_above and not bounded else 0,
                idle_timeout_s=limits.idle_timeout_s,
            )
        return settings

    def take_dirty(self) -> list[ClientConnection | MqttConnection]:
        """Connections that may have output, each once. Closed connections are forgotten here."""
        dirty, self.dirty = self.dirty, {}
        for connection in dirty:
            if connection.connection.closed:
                self.connections.pop(connection, None)
                connection.release()  # also where its end has met an error
        return [*dirty, *self.mqtt.take_dirty()]

    # --- peers

    def peer_up(self, peer: str, now: float, began: float = -inf, version: int = SPOKEN.newest) -> None:
        """began: the peer has sent nothing in this session before. version: of the wire between routers."""
        self.enter(now)
        self.core.peer_up(peer, now, began, version)

    def peer_down(self, peer: str, now: float) -> None:
        self.enter(now)
        self.must_send = True  # what waited dies with the session, and does not see the next (protocol 9.3)
        self.core.peer_down(peer, now)
        self.nodes.session_ended(peer)

    def peer_message(self, peer: str, data: bytes | Sequence[bytes | memoryview], now: float) -> None:
        """Process a peer's message. Raises PeerProtocolError if it is malformed; the owner then resets that session."""
        if now != self.now:
            self.enter(now)
        if peer in self.core.up:
            self.core.peer_message(peer, decode(data, self.core.members.speaks[peer]), now)

    def take_messages(self) -> list[tuple[tuple[str, ...], Encoded]]:
        """(peers, message) in the order in which they were sent."""
        messages, self._messages = self._messages, []
        self.must_send = False
        return messages

    # --- time

    def flush(self, now: float) -> bool:
        """Write what the handlers have left. True: call `flush` again in the next turn, without a new event."""
        self.enter(now)
        core = self.core
        if self._writable:
            roomy, self._writable = self._writable, {}
            for connection in roomy:
                connection.output_drained(now)
        if self.mqtt.wants_flush or self.mqtt.deferred:
            self.mqtt.flush(now)
        if self.too_dear:
            dear, self.too_dear = self.too_dear, {}
            for subscriber, why in dear.items():
                if not subscriber.detached:
                    subscriber.connection.end_link(subscriber, RESOURCE_LIMIT_EXCEEDED, f"limit filters: {why}", now)
        core.flush(now)
        if self.failed:
            failed, self.failed = self.failed, {}
            for connection in failed:
                connection.lost(now)
        if self.credits:
            ports, self.credits = self.credits, {}
            for port in ports:
                port.grant()
        if self.draining:
            self.draining = {port: None for port in self.draining if not port.drained()}
        if self.drain is not None:
            self.drain.step(now)
        if not self.windows_closed:
            if core.payload_bytes >= self.config.memory_limit:
                self._close_windows()
        elif core.payload_bytes < self.config.memory_limit * REOPEN_AT:
            self._open_windows()
        return self.wants_flush

    @property
    def wants_flush(self) -> bool:
        """Whether `flush` has something to do without a new event."""
        return bool(self._writable or self.failed or self.credits or self.too_dear or self.mqtt.wants_flush)

    def process_resumed(self, since: float) -> None:
        """The process has run without a pause since this time. Call it before `tick`: some timers must not expire in a
        process that has been suspended meanwhile (protocol 12)."""
        self.core.process_resumed(since)

    def tick(self, now: float) -> None:
        """The core's timers, and deferred output. Each connection has a `handle_timer` of its own."""
        self.enter(now)
        self.core.tick(now)
        self.mqtt.tick(now)
        if self.output_due is not None and now >= self.output_due:
            self.must_send = True
            self._write_deferred(now)

    def _write_deferred(self, now: float) -> None:
        """Of the output that can wait, write what has waited for half of its time: fewer ticks, and the rest may still
        go with the next message."""
        deferred, self.output_due = self.deferred_output, None
        for connection, since in list(deferred.items()):
            if since > now - OUTPUT_DELAY_S / 2:
                self.output_due = since + OUTPUT_DELAY_S
                return
            del deferred[connection]
            self.dirty[connection] = None

    def next_deadline(self) -> float | None:
        """When to call `tick`; connections have deadlines of their own."""
        deadline = self.core.next_deadline()
        for other in (self.output_due, self.mqtt.next_deadline()):
            if other is not None and (deadline is None or other < deadline):
                deadline = other
        if self.drain is not None:
            step = self.drain.next_deadline()
            if step is not None and (deadline is None or step < deadline):
                deadline = step
        if self.watching:
            proof = self.now + self.config.proof_after_s * PROOF_TICK
            return proof if deadline is None else min(proof, deadline)
        return deadline

    def enter(self, now: float) -> None:
        """Note the time; every call from outside begins with it."""
        # protocol 12: a frame read after a pause of this process may have waited in a buffer, and proves nothing
        if self.watching and now - self.now > self.config.proof_after_s * STALL:
            for connection in self.watching:
                connection.delayed(self.now, now)
        self.now = now

    @property
    def incomplete_bytes(self) -> int:
        """Messages and frames whose end has not arrived."""
        return self.incomplete.total

    @property
    def held_bytes(self) -> int:
        """Payload, incomplete messages and output of clients that are kept now."""
        core = self.core
        remembered = self.mqtt.octets
        return core.payload_bytes + core.presettled_bytes + self.incomplete_bytes + self.unread_bytes + remembered

    def check_invariants(self) -> None:
        """Raises AssertionError where the state is impossible between two inputs (for simulations and tests)."""
        self.core.check_invariants()
        for connection in self.connections:
            connection.check_invariants()
        clients: list[ClientConnection | MqttConnection] = [*self.connections, *self.mqtt.connections]
        incomplete: Counter[str] = Counter()
        for each in clients:
            incomplete[each.incomplete_of] += each.incomplete_bytes
        assert self.incomplete.by_user == +incomplete
        assert self.incomplete.total == incomplete.total()

    def _connections_hold(self) -> Counter[str]:
        held = self.mqtt.octets_by_user()
        for connection in self.connections:
            held[connection.identity.user] += connection.held
        return held

    def population(self) -> tuple[int, int]:
        """How many connections, links and addresses there are, and how many of these and of sessions are gone. What is
        gone has referred to itself, so that only a collection of Python's finds it."""
        core = self.core
        there = len(self.connections) + len(self.mqtt.connections)
        there += len(core.publishers) + len(core.subscribers) + len(core.addresses)
        return there, self.connected + core.attached + core.begun - there + self.sessions_ended

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
            "sessions_closed_for_memory": len(self._paused) if self.windows_closed else 0,
            "incomplete_bytes": self.incomplete_bytes,
            "unread_bytes": self.unread_bytes,
            "entries": self.bookkeeping.last_count,
            "held_bytes": core.holding.total,
            "limits": self.admission.status(),
            "input_errors": dict(self.border.failed),
            "suspects": len(self.border.suspects.until),
            "input_refused": self.border.suspects.refused,
            "unread_by_filters": self.unread_by_filters,
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

    def windows_changed(self, session: LinkSession) -> None:
        """The incoming window of a session that has a publisher is renewed no more, or again: it is not while the
        router is at its memory limit, or one of its large deliveries is ahead (protocol 6.8, 6.12)."""
        ports = [link.context for link in session.links]
        closed = self.windows_closed or any(isinstance(port, PublisherLink) and port.held_back for port in ports)
        if closed and session not in self._paused and not session.ended:
            session.pause_incoming()
            self._paused[session] = None
        elif not closed and session in self._paused:
            del self._paused[session]
            if not session.ended:
                session.resume_incoming()
                connection = session.connection.context
                if isinstance(connection, ClientConnection):
                    connection.output_ready()

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

    def output_has_drained(self, connection: ClientConnection) -> None:
        self._writable[connection] = None

    def passed_by_unread(self, port: SubscriberLink, why: str, own: bool) -> None:
        """A subscription has not got a message, as its filters could not be asked about it. own: they are at fault, and
        the subscription is told; else the message is, and only the log and a metric say so."""
        self.unread_by_filters += 1
        if own:
            self.admission.count_refusal(FILTERS)
            self.too_dear[port] = why
        if self.unread_by_filters <= TOLD:
            text = "{address}: a message passes {container}/{link} by, unread by its filters: {description}"
            attach = port.attach
            said = {"address": attach.address, "container": attach.container, "link": attach.name, "description": why}
            self.log.warning("filter_failed", text, **said)

    # --- helpers

    def _limited_as(self, user: str | None) -> str:
        name = user or ANONYMOUS
        return name if name in self.admission.users else ""

    def _send(self, peers: tuple[str, ...], message: Message) -> None:
        since = LATER.get(message.__class__)
        if since is not None:
            assert all(self.core.speaks(peer) >= since for peer in peers), f"{peers} do not all know {message!r:.80}"
        self._messages.append((peers, encode_parts(message)))
        if message.__class__ is not Settle or self.drain is not None:
            self.must_send = True
        elif self.output_due is None:
            self.output_due = self.now + OUTPUT_DELAY_S

    def _close_windows(self) -> None:
        # protocol 6.8: at the memory limit the sessions' incoming windows close
        self.windows_closed = True
        text = "memory_limit reached: {payload_bytes} bytes of payload; publishers wait"
        self.log.warning("memory_limit_reached", text, payload_bytes=self.core.payload_bytes)
        for connection in self.connections:
            for port in connection.ports:
                if isinstance(port, PublisherLink):
                    self.windows_changed(port.link.session)

    def _open_windows(self) -> None:
        self.windows_closed = False
        text = "below memory_limit again: {payload_bytes} bytes of payload"
        self.log.info("memory_limit_over", text, payload_bytes=self.core.payload_bytes)
        for session in list(self._paused):
            self.windows_changed(session)


def _incomplete_limit(config: RouterConfig) -> int:
    return max(config.memory_limit, config.max_message_size * 5 // 4)  # one message always fits
