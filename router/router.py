"""The whole router, without its sockets: clients' connections, peers' messages and time in, the same out.

`Router` ties the protocol core to the clients' connections and gathers what has to go out: connections with output,
messages for peers.  It knows neither how peers are reached (`interrouter`) nor what a transport is (`onceway.server`,
simulators).  One handler runs at a time; `flush` once per read, or once per turn of the owner's loop (ENGINE.md rule
6), writes what the handlers left behind: credit, outcomes, settlements.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from amqp10.errors import CONNECTION_FORCED
from amqp10.performatives import Error
from amqp10.sasl import ServerMechanisms, server_mechanisms
from amqp10.session import Session
from amqp10.settings import ConnectionSettings
from amqp10.types import Symbol
from router.client_connection import ClientConnection
from router.config import RouterConfig
from router.core import Core
from router.limits import ANONYMOUS, CONNECTIONS, MEMORY, Admission, Limits
from router.memory import Bookkeeping
from router.proof import STALL
from router.publisher_link import PublisherLink
from router.subscriber_link import SubscriberLink

TICK_OF_PROOF: Final = 0.125  # while proofs are open, time is wanted this often
LAZY_S: Final = 0.01  # how long settlements may wait for something urgent to travel with
HARD_LIMIT: Final = 2  # memory limits, at which publishers who bring more are detached
REOPEN: Final = 0.875  # of the memory limit: below it sessions' windows open again


class Router:
    """One router.  Every method takes `now`, monotonic seconds of the owner's clock."""

    def __init__(
        self,
        config: RouterConfig,
        *,
        incarnation: int,
        now: float,
        wall_us: Callable[[], int],
        fresh: bool,
        sasl: ServerMechanisms | None = None,
    ) -> None:
        self.config = config
        self.now = now
        self.incarnation = incarnation
        self.core = Core(config, config.name, incarnation, self._send, now, wall_us, fresh)
        self.connections: dict[ClientConnection, None] = {}
        self.stopping = False
        self._settings = ConnectionSettings(
            container_id=config.name,
            handshake_timeout_s=config.limits.handshake_timeout_s,
            per_user=self.settings_of,
            properties={Symbol("product"): "onceway", Symbol("router"): config.name},
            sasl=sasl or server_mechanisms(),  # by itself: everybody, as ANONYMOUS or without a SASL layer
        )
        self.admission = Admission(config.limits, dict(config.users))
        self.bookkeeping = Bookkeeping(self.core, config.memory_limit)
        self.unread = 0  # octets that paused transports hold
        self._limits: dict[str, Limits] = {}  # by user; of all who have none of their own under ""
        self._by_user: dict[str, ConnectionSettings] = {}
        self.held = 0  # octets of messages of which frames are still to come
        self.held_limit = max(config.memory_limit, config.max_message_size * 5 // 4)  # one always has room
        self._messages: list[tuple[tuple[str, ...], bytes]] = []
        self._roomy: dict[ClientConnection, None] = {}
        self.windows_closed = False  # for want of memory
        self._paused: dict[Session, None] = {}
        # filled by the connections and their ports, emptied by `flush` and `take_dirty`
        self.dirty: dict[ClientConnection, None] = {}
        self.lazy: dict[ClientConnection, None] = {}
        self._lazy_at: float | None = None
        self.watching: dict[ClientConnection, None] = {}
        self.credits: dict[PublisherLink, None] = {}
        self.draining: dict[SubscriberLink, None] = {}
        self.failed: dict[ClientConnection, None] = {}

    # --- clients

    def connect(self, now: float) -> ClientConnection:
        """A client's transport has come."""
        self.enter(now)
        connection = ClientConnection(self, self._settings, now)
        self.connections[connection] = None
        dropped = self.admission.came(connection)
        if dropped is not None:
            dropped.receive_eof(now)
        limits = self.config.limits
        if len(self.connections) > limits.connections + 2 * limits.half_open:  # many that were refused linger
            self.admission.exceeded(CONNECTIONS)
            connection.receive_eof(now)
        return connection

    def shed(self) -> None:
        """What clients do not read fills the memory that there is: the one that lets most lie has to come again. It
        would not read why."""
        self.admission.exceeded(MEMORY)
        most = max(self.connections, key=lambda connection: connection.unread)
        most.receive_eof(self.now)

    def limits_of(self, user: str | None) -> Limits:
        """With every value in place."""
        name = self._limited_as(user)
        limits = self._limits.get(name)
        if limits is None:
            limits, config = self.admission.of(user or ANONYMOUS), self.config
            limits = self._limits[name] = replace(
                limits,
                max_frame_size=limits.max_frame_size or config.max_frame_size,
                max_message_size=limits.max_message_size or config.max_message_size,
                unsettled_window=limits.unsettled_window or config.unsettled_window,
                idle_timeout_s=limits.idle_timeout_s or config.idle_timeout_s,
            )
        return limits

    def settings_of(self, user: str | None) -> ConnectionSettings:
        """What a connection of this user is told: called when its SASL layer is done."""
        name = self._limited_as(user)
        settings = self._by_user.get(name)
        if settings is None:
            limits = self.limits_of(user)
            assert limits.max_frame_size is not None
            assert limits.max_message_size is not None
            settings = self._by_user[name] = replace(
                self._settings,
                channel_max=limits.sessions - 1,
                handle_max=limits.links - 1,
                max_frame_size=limits.max_frame_size,
                max_message_size=limits.max_message_size,
                idle_timeout_s=limits.idle_timeout_s,
            )
        return settings

    def take_dirty(self) -> list[ClientConnection]:
        """Connections that may have output, each once; those that are over are forgotten here."""
        dirty, self.dirty = self.dirty, {}
        for connection in dirty:
            if connection.connection.closed:
                self.connections.pop(connection, None)
        return list(dirty)

    # --- peers

    def peer_up(self, peer: str, now: float) -> None:
        self.enter(now)
        self.core.peer_up(peer, now)

    def peer_down(self, peer: str, now: float) -> None:
        self.enter(now)
        self.core.peer_down(peer, now)

    def peer_message(self, peer: str, data: bytes, now: float) -> None:
        """PeerProtocolError if it cannot be read: the owner resets that session."""
        self.enter(now)
        self.core.peer_message(peer, data, now)

    def take_messages(self) -> list[tuple[tuple[str, ...], bytes]]:
        """(peers, message) in order."""
        messages, self._messages = self._messages, []
        return messages

    # --- time

    def flush(self, now: float) -> bool:
        """True: something is left to be done without a new event, so flush again in the next turn of the loop."""
        self.enter(now)
        core = self.core
        if self._roomy:
            roomy, self._roomy = self._roomy, {}
            for connection in roomy:
                connection.output_has_room(now)
        core.flush(now)
        if self.failed:
            failed, self.failed = self.failed, {}
            for connection in failed:
                connection.lost(now)
        if self.credits:
            ports, self.credits = self.credits, {}
            if not self.stopping:
                for port in ports:
                    port.grant()
        if self.draining:
            self.draining = {port: None for port in self.draining if not port.drained()}
        if not self.windows_closed:
            if core.meter >= self.config.memory_limit:
                self._close_windows()
        elif core.meter < self.config.memory_limit * REOPEN:
            self._open_windows()
        return self.wants_flush

    @property
    def wants_flush(self) -> bool:
        """The same, at any time."""
        return bool(self._roomy or self.failed or self.credits)

    def went_on(self, since: float) -> None:
        """Since when this process has not stood still.  To be said before `tick`: timers must not do what only holds
        for who has been there."""
        self.core.members.went_on(since)

    def tick(self, now: float) -> None:
        """The core's time; a connection's own timers are its `handle_timer`."""
        self.enter(now)
        self.core.tick(now)
        if self._lazy_at is not None and now >= self._lazy_at:
            self._lazy_at = None
            self.dirty.update(self.lazy)
            self.lazy.clear()

    def next_deadline(self) -> float | None:
        """When `tick` wants to be called; connections have deadlines of their own."""
        deadline = self.core.next_deadline()
        if self._lazy_at is not None and (deadline is None or self._lazy_at < deadline):
            deadline = self._lazy_at
        if self.watching:
            proof = self.now + self.config.proof_after_s * TICK_OF_PROOF
            return proof if deadline is None else min(proof, deadline)
        return deadline

    def enter(self, now: float) -> None:
        """Every call from outside begins here."""
        # PROTOCOL 12: a frame read after a pause of ours may have waited for us, and proves nothing
        if self.watching and now - self.now > self.config.proof_after_s * STALL:
            for connection in self.watching:
                connection.delayed(self.now, now)
        self.now = now

    @property
    def overfull(self) -> bool:
        """Far beyond the memory limit: what clients may still have had on its way when their windows closed is in."""
        return self.core.meter >= HARD_LIMIT * self.config.memory_limit

    # --- the end

    def stop(self, now: float) -> None:
        """SIGTERM: no attach is taken from now on and no credit given; what is under way goes on until `drained`."""
        self.enter(now)
        self.stopping = True
        for connection in self.connections:
            for port in connection.ports:
                if isinstance(port, PublisherLink):
                    port.stop_credit()

    def drained(self) -> bool:
        """Nothing taken from publishers here is still waited for."""
        return not any(link.undone or link.held_count for link in self.core.publishers.values())

    def close_connections(self, now: float) -> None:
        """After `stop`: tell every client that it is over."""
        self.enter(now)
        for connection in self.connections:
            connection.close(Error(Symbol(CONNECTION_FORCED), "this router is being stopped"))

    # --- what people see

    def status(self) -> dict[str, Any]:
        return {
            **self.core.status(),
            "stopping": self.stopping,
            "connections": len(self.connections),
            "sessions_closed_for_memory": len(self._paused),
            "incomplete_bytes": self.held,
            "unread_bytes": self.unread,
            "entries": self.bookkeeping.entries(self.now),
            "limits": self.admission.status(),
        }

    # --- for the connections

    def close_window(self, session: Session) -> None:
        """Of a session with a publisher on it, while windows are closed."""
        if session not in self._paused and not session.ended:
            session.pause_incoming()
            self._paused[session] = None

    def has_room(self, connection: ClientConnection) -> None:
        self._roomy[connection] = None

    def output_later(self, connection: ClientConnection) -> None:
        self.lazy[connection] = None
        if self._lazy_at is None:
            self._lazy_at = self.now + LAZY_S

    # --- helpers

    def _limited_as(self, user: str | None) -> str:
        name = user or ANONYMOUS
        return name if name in self.admission.users else ""

    def _send(self, peers: tuple[str, ...], data: bytes) -> None:
        self._messages.append((peers, data))

    def _close_windows(self) -> None:
        # PROTOCOL 6.8: at the memory limit the sessions' incoming windows close
        self.windows_closed = True
        for connection in self.connections:
            for port in connection.ports:
                if isinstance(port, PublisherLink):
                    self.close_window(port.link.session)

    def _open_windows(self) -> None:
        self.windows_closed = False
        for session in self._paused:
            if not session.ended:
                session.resume_incoming()
                connection = session.connection.context
                if isinstance(connection, ClientConnection):
                    connection.touch()
        self._paused.clear()
