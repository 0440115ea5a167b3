"""A session of MQTT, its connection and their service, as what is below them knows them.

Names go in one direction: the ports on the core and what is retained know a `BaseSession`, its `BaseConnection` and
their `BaseMqtt`. `router.mqtt.session` knows the ports, `router.mqtt.connection` knows sessions, and
`router.mqtt.service` knows all of them. What sessions and connections ask of the service is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from mqtt import Acknowledgement, Connect, Packet, Pubcomp, Publish, Pubrel, Reason, Suback, Unsuback
from mqtt.reader import LARGEST
from router.config import SHARED, Limits, RouterConfig
from router.core.ports import Outcome
from router.mqtt.absence import Absence
from router.mqtt.filters import Filter, FilterIndex, Filters
from router.mqtt.messages import Messages
from router.mqtt.outgoing import Identifiers, Outgoing, State
from router.mqtt.topic_map import TopicMap
from router.mqtt.turn import Timers, Turn
from router.policies import Direction, Identity

if TYPE_CHECKING:
    from router.border import Border
    from router.core.core import Core
    from router.mqtt.conversion import Stamp
    from router.reporting import Log

ORPHAN_S: Final = 60.0  # how long what a client has published waits for outcomes when its session is over
LONGEST_NAME: Final = 1_024  # bytes of a client identifier, as of a container-id
DETACHED_AT: Final = 2  # times memory_limit: a client that publishes beyond it is disconnected
REMEMBERED: Final = 64
"""The part of memory_limit for answers of one kind that are kept so that they need not be found again."""
REFUSED: Final = {Reason.NOT_AUTHORIZED: "policies", Reason.QUOTA_EXCEEDED: "memory_limit"}
SESSIONS: Final = "_mqtt/sessions"
"""The address of the leases (`router.mqtt.lease`)."""
IN_FLIGHT: Final = 1_000
"""The most PUBLISH of QoS 1 and 2 that a client has unacknowledged; 3.1.1 has no words for less."""


class Host(Protocol):
    """What it needs of the router that it is part of."""

    config: RouterConfig
    core: Core
    border: Border
    log: Log
    now: float
    token: Callable[[], str] | None

    @property
    def admission(self) -> Counting: ...
    def enter(self, now: float) -> None: ...

    @property
    def buffers(self) -> Buffering: ...
    @property
    def offers(self) -> Offering: ...


class Buffering(Protocol):
    """What of its clients' input and output waits."""

    def count_unread(self, connection: Any, size: int, now: float) -> None: ...
    def may_hold_incomplete(self, connection: Any, size: int, now: float) -> bool: ...


class Offering(Protocol):
    """What it grants its clients."""

    def limits_of(self, user: str | None) -> Limits: ...


class Counting(Protocol):
    """The router's admission."""

    def admit(self, connection: Any, user: str) -> str | None: ...
    def disconnected(self, connection: Any, user: str | None) -> None: ...
    def count_refusal(self, limit: str) -> None: ...
    def count_silence(self) -> None: ...


class BaseConnection:
    """A client's connection, as its session knows it: what is said to the client."""

    __slots__ = ("is_bridge", "user")

    def __init__(self) -> None:
        self.user: str | None = None  # under which it is counted, once admitted
        self.is_bridge = False  # another broker's, in 3.1.1; in 5 it says all that it needs in its filters

    @property
    def full(self) -> bool:
        raise NotImplementedError

    @property
    def may_publish(self) -> bool:
        raise NotImplementedError

    @property
    def receive_maximum(self) -> int:
        raise NotImplementedError

    def publish(self, one: Outgoing, again: bool) -> bool:
        raise NotImplementedError

    def publish_once(self, publish: Publish) -> None: ...
    def send(self, packet: Packet) -> None: ...
    def acknowledge(self, kind: type[Acknowledgement], packet_id: int) -> None: ...
    def wait_for_output(self) -> None: ...
    def session_ready(self, session: Any) -> None: ...
    def close(self, reason: Reason, why: str = "") -> None: ...


class BaseSession:
    """A session, as its ports on the core know it, with what it sends its client.

    Attributes:
        container: The client identifier, with the user's name in front (protocol 1.12).
        absence: How long it lives without a connection, as granted; 0 s: it ends with its connection.
        persists: Whether it may go on at another router.
        connection: None while the client is away.
    """

    service: BaseMqtt
    core: Core
    container: str
    incarnation: int
    absence: Absence
    persists: bool
    version: int
    connection: BaseConnection | None
    filters: Filters
    identifiers: Identifiers
    ended: bool

    def end(self, now: float) -> None: ...
    def leased(self, lease: Any) -> None: ...
    def lease_lost(self, lease: Any, condition: str, description: str) -> None: ...
    def publisher_lost(self, publisher: Any, condition: str, description: str) -> None: ...
    def subscription_lost(self, subscriber: Any, condition: str, description: str) -> None: ...
    def filters_told(self, subscriber: Any, number: int) -> None: ...

    def data_of(self, address: str) -> bytes:
        raise NotImplementedError

    # --- the client gets messages

    @property
    def room(self) -> int:
        """How many more PUBLISH of QoS 1 and 2 the client takes now."""
        connection = self.connection
        most = IN_FLIGHT if connection is None else min(IN_FLIGHT, connection.receive_maximum)
        return max(most - len(self.identifiers.in_flight), 0)

    def takes_retained(self) -> bool:
        """Whether the client is there, with room for a message; else it is told of when there is."""
        connection = self.connection
        if connection is None or self.identifiers.waiting or not self.room:
            return False
        if connection.full:
            connection.wait_for_output()
            return False
        return True

    def send(self, one: Outgoing) -> None:
        """Sends a delivery of QoS 1 or 2, or lets it wait."""
        self.identifiers.waiting.append(one)
        self.send_waiting()

    def send_waiting(self) -> None:
        """Sends what waits, in order, as far as it can be sent now."""
        waiting, connection = self.identifiers.waiting, self.connection
        while waiting and connection is not None and connection.may_publish:
            one = waiting.popleft()
            if one.state is not State.SENT:  # it has been settled meanwhile, and the client is told to forget it
                continue
            self.identifiers.take(one)
            again, one.repeated = one.repeated, True
            if not connection.publish(one, again):  # larger than the client takes [MQTT-3.1.2-25]
                self.identifiers.free(one)
                one.subscriber.finished(one, Outcome.ACCEPTED)

    def send_unacknowledged(self, publish: Publish) -> None:
        if self.connection is not None:
            self.connection.publish_once(publish)

    def release(self, one: Outgoing) -> None:
        """The client may forget it."""
        one.state = State.RELEASED
        if self.connection is not None:
            self.connection.acknowledge(Pubrel, one.packet_id)

    @property
    def is_bridge(self) -> bool:
        return self.connection is not None and self.connection.is_bridge

    @property
    def unknown(self) -> Reason:
        """Of an answer about an identifier that is not in use."""
        return Reason.PACKET_IDENTIFIER_NOT_FOUND if self.version == 5 else Reason.SUCCESS

    def send_packet(self, packet: Pubcomp | Pubrel | Suback | Unsuback) -> None:
        """If the client is there."""
        if self.connection is not None:
            self.connection.send(packet)


class BaseMqtt:
    """All MQTT of one router, as sessions, their ports and their connections know it."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.border = host.border
        self.core = host.core
        self.topics = topics_of(host.config)
        self.filters = FilterIndex(self.room)
        self.messages = Messages(self.topics, host.border, self.room, host.core.name)
        self.sessions: dict[str, Any] = {}
        self.draining = False
        self.longest_name = LONGEST_NAME
        self.receive_maximum = IN_FLIGHT
        self.turn = Turn()
        self._orphans: dict[Any, float] = {}  # until when they wait, in this order
        self._timers = Timers()
        self._last_epoch = 0

    # --- the host's

    @property
    def room(self) -> int:
        """Octets of remembered answers of one kind."""
        return self.config.memory_limit // REMEMBERED

    @property
    def config(self) -> RouterConfig:
        return self.host.config

    @property
    def log(self) -> Log:
        return self.host.log

    @property
    def now(self) -> float:
        return self.host.now

    @property
    def max_packet_size(self) -> int:
        return min(LARGEST, self.config.limits.max_message_size or self.config.max_message_size)

    @property
    def longest_session_s(self) -> float:
        """How long a session may live without a connection."""
        return self.config.address(SESSIONS).subscription_timeout_s

    @property
    def is_far_over_memory_limit(self) -> bool:
        return self.core.memory.payload_bytes >= DETACHED_AT * self.config.memory_limit

    # --- for connections

    def dirty(self, connection: BaseConnection) -> None:
        self.turn.with_output[connection] = None

    def connection_ended(self, connection: BaseConnection) -> None:
        self.host.admission.disconnected(connection, connection.user)
        connection.user = None
        self.host.buffers.count_unread(connection, 0, self.now)
        self.host.buffers.may_hold_incomplete(connection, 0, self.now)

    def count_refusal(self, reason: Reason) -> None:
        if reason in REFUSED:
            self.host.admission.count_refusal(REFUSED[reason])

    def may(self, who: Identity, direction: Direction, address: str) -> bool:
        topics = self.topics.topics_of(address) if address.startswith(SHARED) else [address]
        return all(self.config.allows(who, direction, each) for each in topics)

    def open_session(self, connection: Any, connect: Connect, now: float) -> None: ...

    def has_room_to_retain(self, topic: str) -> bool:
        raise NotImplementedError

    # --- for sessions

    def begin_anew(self, session: BaseSession) -> None:
        """What another router has left of the session has expired, or may have missed something: the client gets a new
        one, without anything of it."""
        self.turn.anew[session] = None

    def session_moved(self, session: BaseSession) -> None:
        """The client has connected at another router now. Whether this session goes on there is known when that attach
        has been entered."""
        if session.connection is not None:
            session.connection.close(Reason.SESSION_TAKEN_OVER, "the client has connected elsewhere")
        self.turn.moved[session] = None

    def session_disturbed(self, session: BaseSession) -> None:
        """A router at which its client was before has attached a subscription of it, as it did not know yet that the
        session is here. It goes on when the client connects again."""
        if session.connection is not None:
            session.connection.close(Reason.SERVER_BUSY, "routers disagree where the session is: connect again")
        self.turn.moved[session] = None

    def session_refused(self, session: BaseSession, condition: str, description: str) -> None:
        """The network has no place for it, or none any more. The client may connect again."""
        if session.connection is not None:
            session.connection.close(Reason.ADMINISTRATIVE_ACTION, description)
        session.end(self.now)

    def schedule(self, session: BaseSession) -> None:
        """Its `tick` is called when it is due."""
        at = session.absence.next_deadline()
        if at is None or session.ended or (session.absence.timer is not None and session.absence.timer <= at):
            return
        self._timers.set(session, at, len(self.sessions))
        self.core.agenda.due(at)

    def forget(self, session: BaseSession) -> None: ...
    def send_retained(self, session: Any, one: Filter) -> None: ...

    def entered(self) -> int:
        """Returns how many messages have been entered as retained."""
        raise NotImplementedError

    def is_covered(self, topic: str, stamp: Stamp, filters: Filters) -> bool:
        """Returns whether a session gets the message of this stamp as what is retained, and not once more."""
        raise NotImplementedError

    def to_flush(self, port: Any) -> None:
        self.turn.to_flush[port] = None

    def to_leave(self, publisher: Any) -> None:
        self.turn.leaving[publisher] = None

    def has_room(self, session: BaseSession) -> None:
        """Its client may take more."""
        self.turn.roomy[session] = None

    def orphaned(self, publisher: Any) -> None:
        """Its session is over, and not all that it has taken has an outcome."""
        self._orphans[publisher] = self.now + ORPHAN_S

    def epoch(self, above: int = 0) -> int:
        """A number for an attach that is above all that this router has given, and above what is known."""
        self._last_epoch = max(self.core.clock_us(), self._last_epoch + 1, above + 1)
        return self._last_epoch

    def time_ms(self, router: str = "") -> int:
        """Returns what the clock of a router says now, as far as that is known; else what ours says."""
        return (self.core.clock_us() + self.core.members.clocks.get(router, 0)) // 1000

    def stamp(self) -> Stamp:
        """Returns what tells which of two messages of a topic is retained: the later one."""
        return (self.epoch(), self.core.name)


def topics_of(config: RouterConfig) -> TopicMap:
    room = config.memory_limit // REMEMBERED
    return TopicMap(dict(config.mqtt_topics), dict(config.mqtt_shared), config.mqtt_retained, room)
