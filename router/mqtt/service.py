"""All MQTT of one router: connections, sessions by client identifier, time (docs/mqtt.md).

The router's owner passes bytes and time to connections; `flush` tells the core what packets have meant, once per turn.
Read `router.mqtt.session` for one session, `router.mqtt.lease` for how a session is at one router only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from mqtt import Connect, Reason
from router.mqtt.base import REFUSED, SESSIONS, BaseMqtt, BaseSession, Host, topics_of
from router.mqtt.connection import Authenticate, MqttConnection
from router.mqtt.conversion import Stamp
from router.mqtt.filters import Filter, Filters
from router.mqtt.holding import SESSION, octets_of_will
from router.mqtt.lease import NAME
from router.mqtt.messages import Messages
from router.mqtt.retained import RetainedFeed, RetainedMessages
from router.mqtt.session import Session
from router.mqtt.sharing import Sharing
from router.mqtt.turn import AT_ONCE, take
from router.policies import Identity, owned

if TYPE_CHECKING:
    from router.mqtt.publisher import MqttPublisher
    from router.mqtt.subscriber import MqttSubscriber


class Mqtt(BaseMqtt):
    """One router's."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.core.owner.shares = Sharing(self.core, self.topics, self.messages, self.border, self.room)
        self.connections: dict[MqttConnection, None] = {}
        self.deferred: dict[MqttConnection, Connect] = {}  # until the network is known
        self.retained = RetainedMessages(self)

    @property
    def octets(self) -> int:
        """What is remembered of messages and topics, so that it need not be found again."""
        return self.messages.octets + self.filters.remembered.octets + self.topics.octets

    def octets_by_user(self) -> Counter[str]:
        """What sessions take."""
        held: Counter[str] = Counter()
        for session in self.sessions.values():
            held[session.identity.user] += session.held
        return held

    # --- for the router

    def connect(self, now: float, address: str, *, secure: bool, authenticate: Authenticate) -> MqttConnection:
        """A client has opened a transport to the MQTT listener."""
        connection = MqttConnection(self, now, address, secure, authenticate)
        self.connections[connection] = None
        return connection

    def regroup(self, groups: Mapping[str, tuple[str, ...]], keep: Collection[object]) -> None:
        """The groups of users have changed: of clients, and of sessions whose client is away."""
        known: list[MqttConnection | Session] = [*self.connections, *self.sessions.values()]
        for each in known:
            client = each.connection if isinstance(each, Session) else each
            if client not in keep and each.identity.user in groups:
                each.identity = Identity(each.identity.user, groups[each.identity.user])

    def revoke(self, removed: Collection[str], keep: Collection[object], now: float) -> None:
        """These users are there no more, and neither are their sessions, but on connections to keep."""
        for session in list(self.sessions.values()):
            if session.identity.user in removed and session.connection not in keep:
                session.end(now)

    def reconfigure(self, now: float) -> None:
        """The topology file has changed: clients that may no longer do what they do are disconnected."""
        before, self.topics = self.topics, topics_of(self.config)
        self.messages = Messages(self.topics, self.border, self.room, self.core.name)
        self.core.owner.shares = Sharing(self.core, self.topics, self.messages, self.border, self.room)
        for address in list(self.core.addresses.values()):
            address.records.feeds.reconfigured()
        if before.retained != self.topics.retained:
            self.retained.end(now)
            self.retained = RetainedMessages(self)
        changed = any(getattr(before, key) != getattr(self.topics, key) for key in ("prefixes", "shared", "retained"))
        for session in list(self.sessions.values()):
            session.rights.changed()
            allowed = all(self.may(session.identity, "receive", address) for address in session.subscribers)
            if changed or not allowed:
                if session.connection is not None:
                    session.connection.close(
                        Reason.ADMINISTRATIVE_ACTION if changed else Reason.NOT_AUTHORIZED,
                        "the topology file has changed",
                    )
                session.end(now)

    def drain(self, now: float) -> None:
        """Clients are sent away. Their sessions go on at other routers, where they persist."""
        self.draining = True
        for connection in list(self.connections):
            connection.close(Reason.SERVER_SHUTTING_DOWN, "this router is being drained")
        for session in list(self.sessions.values()):
            session.leave(now) if session.persists else session.end(now)

    def take_dirty(self) -> list[MqttConnection]:
        """Connections that may have output, each once. Closed ones are forgotten here."""
        dirty: dict[MqttConnection, None] = take(self.turn.with_output)
        for connection in dirty:
            if connection.closed:
                self.connections.pop(connection, None)
        return list(dirty)

    def flush(self, now: float) -> None:
        """Tells the core what packets have meant, before the core's own flush."""
        self._replace_sessions(now)
        for connection in take(self.turn.early):
            connection.handle_early(now)
        for session in self.turn.take_busy():
            if isinstance(session.connection, MqttConnection):
                self.border.input(session.connection, self._go_on, session, now)
            else:
                session.go_on()
        self.retained.begin(now)
        for session in list(islice(self.retained.due, AT_ONCE)):
            self.retained.due.pop(session, None)
            self.retained.go_on(session)
        while self.turn.for_ports:
            ports: dict[MqttPublisher | MqttSubscriber | RetainedFeed, None] = take(self.turn.to_flush)
            for port in ports:
                port.flush(now)
            leaving: dict[MqttPublisher, None] = take(self.turn.leaving)
            for publisher in leaving:
                self._orphans.pop(publisher, None)
                publisher.leave(now)
            roomy: dict[Session, None] = take(self.turn.roomy)
            for session in roomy:
                session.send_waiting()
                session.leave_what_is_done(now)
                if session in self.retained.searches:
                    self.retained.go_on(session)
                for subscriber in list(session.subscribers.values()):
                    subscriber.credit(now)

    def _go_on(self, session: Session, now: float) -> None:
        session.go_on()

    @property
    def wants_flush(self) -> bool:
        """Whether `flush` has something to do without a new event."""
        turn = self.turn
        if turn.to_flush or turn.leaving or turn.roomy or turn.moved or turn.anew or turn.early:
            return True
        return bool(turn.busy or self.retained.due) or (self.retained.address != "" and self.retained.wants_to_begin)

    def next_deadline(self) -> float | None:
        first = self._timers.first
        for until in self._orphans.values():
            return until if first is None else min(first, until)
        return first

    def tick(self, now: float) -> None:
        while (session := self._timers.take_due(now)) is not None:
            if session.connection is None and not session.ended:
                session.tick(now)
                self.schedule(session)
        for publisher, until in self._orphans.items():
            if now < until:
                break
            self.to_leave(publisher)

    def status(self) -> dict[str, int]:
        present = sum(session.connection is not None for session in self.sessions.values())
        return {
            "connections": len(self.connections),
            "sessions": len(self.sessions),
            "present": present,
            "session_bytes": self.octets_by_user().total(),
            "retained_bytes": self.retained.table.octets,
            "remembered_bytes": self.octets,
        }

    def open_session(self, connection: MqttConnection, connect: Connect, now: float) -> None:
        """The session of a client that has connected, here or taken over from another router. `session_ready` of the
        connection follows."""
        if not connect.clean_start and self._may_learn_of_sessions:
            self.deferred[connection] = connect
            return
        client_id = connect.client_id or f"auto-{self.host.token() if self.host.token is not None else self.epoch()}"
        container = owned(connection.identity.user, client_id)
        asked = connect.properties.session_expiry_s or 0
        if connect.version == 4:
            asked = 0 if connect.clean_start else 0xFFFFFFFF
        expiry_s = min(float(asked), self.longest_session_s)
        session = self.sessions.get(container)
        octets = octets_of_will(connect.will) + (SESSION if session is None else -octets_of_will(session.absence.will))
        if not self.core.memory.holding.has_room(connection.identity.user, octets):
            self.host.admission.count_refusal(REFUSED[Reason.QUOTA_EXCEEDED])
            connection.close(Reason.QUOTA_EXCEEDED, "limit memory_limit: sessions of this user take too much")
            return
        if session is not None and session.connection is not None:
            session.connection.close(Reason.SESSION_TAKEN_OVER, "the client has connected again")
            session = self.sessions.get(container)
        if session is not None and connect.clean_start:
            session.end(now)
            session = None
        elif session is not None and session.subscribers and session.absence.expiry_s != expiry_s:
            session.leave(now)  # it goes on as at another router, with subscriptions that are waited for as long
            session = None
        known = self._known(container)
        if session is not None:
            session.present, session.absence.expiry_s, session.version = True, expiry_s, connect.version
        else:
            goes_on = known is not None and not connect.clean_start
            incarnation = known[1] if known is not None and goes_on else self.epoch(known[0] if known else 0)
            session = Session(self, container, incarnation, expiry_s, connect.version, goes_on=goes_on)
            self.sessions[container] = session
            session.client_id = client_id
        session.identity = connection.identity
        session.recount()
        session.connection = connection
        connection.session = session
        epoch = self.epoch(known[0] if known is not None else 0) if session.present else session.incarnation
        session.take_lease(epoch, session.incarnation, now)

    def _begin_anew(self, former: Session, now: float) -> None:
        connection = former.connection
        former.connection = None
        former.end(now)
        if not isinstance(connection, MqttConnection):
            return
        incarnation = self.epoch(former.incarnation)
        session = Session(self, former.container, incarnation, former.absence.expiry_s, former.version, goes_on=False)
        self.sessions[session.container] = session
        session.client_id, session.identity = former.client_id, former.identity
        session.recount()
        session.connection, connection.session = connection, session
        session.take_lease(incarnation, incarnation, now)

    @property
    def _may_learn_of_sessions(self) -> bool:
        """Whether others may know sessions, and have not said so yet (protocol 4.4)."""
        core = self.core
        return not core.recovery.is_recovered(SESSIONS) and (
            not core.members.all_said_hello() or bool(core.recovery.awaited(SESSIONS))
        )

    def _known(self, container: str) -> tuple[int, int] | None:
        """The term and birth of the session, as far as this router knows."""
        address = self.core.addresses.get(SESSIONS)
        entry = address.subscriptions.entries.get((container, NAME)) if address is not None else None
        if entry is None or entry.born is None:
            return None
        return entry.term[0], entry.born[0]

    def _replace_sessions(self, now: float) -> None:
        deferred, self.deferred = self.deferred, {}
        for connection, connect in deferred.items():
            if not connection.closed:
                connection.open_session(connect, now)
        for session in take(self.turn.anew):
            self._begin_anew(session, now)
        for session in take(self.turn.moved):
            known = self._known(session.container)
            if session.persists and known is not None and known[1] == session.incarnation:
                session.leave(now)
            else:
                session.end(now)

    # --- for connections and sessions

    def has_room_to_retain(self, topic: str) -> bool:
        return self.retained.has_room(topic)

    def send_retained(self, session: Session, one: Filter) -> None:
        self.retained.send(session, one)

    def entered(self) -> int:
        return self.retained.entered

    def is_covered(self, topic: str, stamp: Stamp, filters: Filters) -> bool:
        return self.retained.covers(topic, stamp, filters)

    def forget(self, session: BaseSession) -> None:
        self.retained.forget(session)
        self.turn.busy.pop(session, None)
        if self.sessions.get(session.container) is session:
            del self.sessions[session.container]
