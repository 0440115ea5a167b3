"""What one router has for all its addresses, and an address for all its parts, as the parts know it.

Names go in one direction. A part of an address knows a `BaseCore`, a `BaseAddress` and the parts below it, which
`router.core.address` hands to it. That module knows the parts, and `router.core.core` knows addresses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from router.config import SHARED, RouterConfig, is_dynamic
from router.core import messages as m
from router.core.counters import CountersByAddress
from router.core.declarations import Declarations, settings_digest
from router.core.directory import PublisherEntry, SubscriptionEntry
from router.core.former import FormerSubscriptions
from router.core.holding import NETWORK, Holding
from router.core.intervals import OPEN
from router.core.map_parts import MapParts
from router.core.membership import Membership
from router.core.ports import Outcome, PublisherAttach, PublisherPort, SubscriberAttach, SubscriberPort, Term
from router.core.publisher import Publisher
from router.core.queue.doubts import Doubts
from router.core.queue.free import GROUPS_SIZE, Kind
from router.core.recovery import Recovery, RecoveryTimes
from router.core.roll_call import RollCall
from router.reporting import Log
from router.versions import SPOKEN

if TYPE_CHECKING:
    from router.core.kinds import Kinds

INF: Final = float("inf")
SHARE_OF_FREE: Final = 8  # one publisher or subscriber may have an eighth of the free memory (protocol 6.8)


class Send(Protocol):
    """Sends a message to several routers in session, in reliable ordered streams (protocol 3.1)."""

    def __call__(self, peers: tuple[str, ...], message: m.Message) -> None: ...


class Shares:
    """Which queues topics may feed (protocol 16.12); here, no topic feeds a queue."""

    def queues_of(self, topic: str) -> Collection[str]:
        """Returns the queues that a topic may feed, as far as this router knows them."""
        return ()

    def topics_of(self, queue: str) -> list[str]:
        """Returns the topics that may feed a queue."""
        return []

    def is_declared(self, queue: str) -> bool:
        """Says whether the file names the queue: it is fed without consumers, too."""
        return False

    def queues_for(self, topic: str, payload: bytes, message_format: int) -> Collection[str]:
        """Returns the queues that a message of the topic goes to, if they are fed."""
        return ()

    def created(self, address: str) -> None: ...
    def dropped(self, address: str) -> None: ...


class BaseCore:
    """The core of one router, as its addresses know it."""

    kinds: Kinds
    times: RecoveryTimes

    def __init__(
        self, config: RouterConfig, name: str, send: Send, now: float, wall_us: Callable[[], int], log: Log
    ) -> None:
        self.config = config
        self.log = log
        self.name = name
        self.clock_us = wall_us
        self.now = now
        self.entered: float | None = now  # at the last call from outside; None: not since the border said so
        self._send = send
        self.known: Mapping[str, BaseAddress] = {}  # the addresses
        self.counters = CountersByAddress()
        self.publishers: dict[PublisherPort, Publisher] = {}
        self.holding = Holding(config.memory_limit)
        self.map_parts = MapParts(self.due, self.holding)
        digest = settings_digest(config)
        self.members = Membership(name, config.routers, digest, now)
        self.up = self.members.up
        self.roll_call = RollCall(self.members, self.publishers, self.send)
        self.declarations = Declarations(config, digest, wall_us)
        self.keeper = Keeper(self)
        self.booted = False
        self.deferred_publishers: dict[PublisherPort, PublisherAttach] = {}  # until it is, or until they are recovered
        self.deferred_subscribers: dict[SubscriberPort, SubscriberAttach] = {}
        # entry of the configuration -> when a forgotten address of it last told a publisher accepted, and up to which
        # position (protocol 7.3)
        self.accepted: dict[str, tuple[float, int]] = {}
        self.former = FormerSubscriptions(config.memory_limit)
        self.cost: Callable[[str], float] = self._as_if_adjacent  # of the path to a router in session
        # when the time of a message is over, in ms of the wall clock; None: never (protocol 16.3)
        self.ends_at: Callable[[bytes], int | None] = _never
        # what messages say of who gets them; with their priority, if that counts (protocol 16.9, 16.10)
        self.kinds_of: Callable[[list[bytes], bool], dict[int, Kind]] = _all_plain
        self.shares = Shares()
        self.payload_bytes = 0  # kept in records and arrival logs
        self.presettled_bytes = 0  # of pre-settled transfers that wait for subscribers
        self.feeding = topics_of(config)
        self.done_bytes = done_bytes(config)
        self._messages_to_self: deque[m.AddressMessage] = deque()
        self._touched: dict[Any, None] = {}  # addresses
        self._windows: dict[Publisher, None] = {}
        self._deadline = INF
        self._due: dict[Any, float] = {}  # when addresses are to be looked at

    def _as_if_adjacent(self, router: str) -> float:
        return router != self.name

    # ------------------------------------------------------------------------------------------------ messages and time

    def due(self, when: float, address: BaseAddress | None = None) -> None:
        """Schedules a `tick` at this time at the latest; address: which has something to do then."""
        self._deadline = min(self._deadline, when)
        if address is not None and when < self._due.get(address, INF):
            self._due[address] = when

    def broadcast(self, message: m.AddressMessage) -> None:
        """Sends to all that are in session, and to this router itself (protocol 3.3)."""
        peers = self.kinds.peers(message.address)
        if peers:
            self._send(peers, message)
        self._messages_to_self.append(message)

    def send(self, peer: str, message: m.Message) -> None:
        """Sends to a router in session."""
        self._send((peer,), message)

    def send_to(self, router: str, message: m.AddressMessage) -> None:
        if router == self.name:
            self._messages_to_self.append(message)
        elif router in self.up and not (self.kinds.differ and router in self.kinds.apart(message.address)):
            self._send((router,), message)

    def multicast(self, routers: tuple[str, ...], message: m.AddressMessage) -> None:
        if self.name in routers:
            self._messages_to_self.append(message)
            if len(routers) == 1:
                return
        peers = tuple(filter(self.up.__contains__, routers))
        if self.kinds.differ:
            apart = self.kinds.apart(message.address)
            peers = tuple([router for router in peers if router not in apart])
        if peers:
            self._send(peers, message)

    def speaks(self, router: str) -> int:
        """Returns the version of the wire between routers in the session with this router: one that has no message of
        a later version (`router.core.messages.since`)."""
        return SPOKEN.newest if router == self.name else self.members.speaks[router]

    def touch(self, address: BaseAddress) -> None:
        """Notes that the address has something to flush."""
        self._touched[address] = None

    def window_changed(self, publisher: Publisher) -> None:
        self._windows[publisher] = None

    def drain(self) -> None: ...

    def address(self, name: str, user: str = NETWORK) -> BaseAddress:
        raise NotImplementedError

    def forget(self, address: BaseAddress) -> None: ...
    def attach_subscriber(self, port: SubscriberPort, attach: SubscriberAttach, now: float) -> None: ...
    def subscriber_credit(self, port: SubscriberPort, now: float) -> None: ...

    def subscriber_disposition(
        self,
        port: SubscriberPort,
        first_id: int,
        last_id: int,
        outcome: Outcome,
        settled: bool,
        now: float,
        why: bytes = b"",
    ) -> None: ...

    def detach_subscriber(self, port: SubscriberPort, closed: bool, now: float, expiring: bool = True) -> Term | None:
        raise NotImplementedError

    def send_hello(self, peer: str) -> None: ...

    # ------------------------------------------------------------------------------------------------------- recovering

    def is_recovered(self, address: str) -> bool:
        """Says whether this router knows what others know of an address, or has waited long enough (protocol 4.4).
        The subscription of a dynamic node ends with its link, so there is none from before to wait for."""
        if is_dynamic(address):
            return self.booted
        return self.config.address(address).match in self.times.recovered

    def is_established(self, address: str) -> bool:
        """Says whether publishers may be told accepted (protocol 4.4)."""
        known = self.is_recovered(address) or (self.booted and self.declarations.is_closed(address))
        return known and (address not in self.feeding or self.is_recovered(SHARED))

    def awaited(self, address: str) -> list[str]:
        """Returns the routers whose HELLO is still missing; none once the address is recovered (protocol 4.4)."""
        if self.is_recovered(address):
            return []
        return self.members.awaited(self.config.address(address).match)

    def recovery(self, address: str) -> Recovery | None:
        """Returns why an address is not established yet, or None if it is."""
        if self.is_established(address):
            return None
        entry = self.config.address(address)
        left_s = 0.0 if not self.booted else max(0.0, self.times.at(entry) - self.now)
        return Recovery(address, left_s, entry.subscription_timeout_s)

    def may_accept(self, address: BaseAddress) -> bool:
        """Says whether publishers may be told accepted: only where the address is established (protocol 4.4)."""
        return address.established

    # ----------------------------------------------------------------------------------------------------------- memory

    def fair_share(self, taken: int) -> int:
        """Returns how much memory one publisher or subscriber may take (protocol 6.8): a part of what is free, so that
        early ones cannot take all of it (Choudhury and Hahne, Dynamic Queue Length Thresholds, 1998)."""
        share = (self.config.memory_limit - taken) // SHARE_OF_FREE
        return share if share < self.config.window_bytes else self.config.window_bytes

    def free_share(self, taken: int) -> int:
        return (self.config.memory_limit - taken) // SHARE_OF_FREE


class Keeper:
    """The other router that keeps all maps of this one (protocol 7.9.4)."""

    def __init__(self, core: BaseCore) -> None:
        self.core = core
        self.name: str | None = None

    def look(self) -> None:
        """A session has begun, or has ended."""
        peers = self.core.members.peers
        if self.name in peers:
            return
        former, later = self.name, [peer for peer in peers if peer > self.core.name]
        self.name = next(iter(later or peers), None)
        if self.name != former:
            for address in self.core.known.values():
                address.keeper_changed()

    def of(self, address: str) -> str | None:
        """Returns its name, if it keeps the maps of this address, too (protocol 16.13)."""
        return None if self.name in self.core.kinds.apart(address) else self.name


class BaseAddress:
    """One address at this router, as its parts know it."""

    def __init__(self, core: BaseCore, name: str) -> None:
        self.core = core
        self.name = name
        self.config = core.config.address(name)
        self.counters = core.counters.of(name)
        self.known_publishers: dict[bytes, PublisherEntry] = {}
        self.known_subscriptions: dict[m.SubscriptionName, SubscriptionEntry] = {}
        self.attached_publishers: dict[bytes, Publisher] = {}  # those that have claimed
        self.proving: dict[bytes, list[Publisher]] = {}  # attached, without a sign of life yet
        self.doubts = Doubts() if self.config.is_queue else None
        self.made_by = NETWORK  # whose memory it counts as (`router.core.holding`)
        self.handlers: m.Handlers = {}  # those of the messages that have come: all of them take 2.5 kB
        self.established = core.is_established(name)  # publishers may be told accepted (protocol 4.4)
        # when a publisher was last told accepted here, or before the address was forgotten, and up to which position
        # (protocol 7.3)
        self.accepted_at: float | None = None
        self.accepted_stop = 0
        if self.config.match in core.accepted:
            self.accepted_at, self.accepted_stop = core.accepted[self.config.match]

    def note_accepted(self, stop: int = OPEN) -> None:
        """A publisher is told accepted of a position below `stop` (protocol 7.3)."""
        self.accepted_at = self.core.now
        self.accepted_stop = max(self.accepted_stop, stop)

    def tell_read(self, name: m.SubscriptionName, term: Term) -> None:
        """The client of a subscription that is attached here has read that it has missed something (protocol 7.6)."""
        core, told = self.core, m.Told(self.name, name, term)
        for router in core.kinds.everybody(self.name):
            if core.speaks(router) >= m.since(m.Told):
                core.send_to(router, told)

    def data_on_the_wire(self, data: bytes) -> bytes:
        """Returns the data of a subscription as messages have them: at a queue behind its groups (protocol 7.10,
        16.9.2)."""
        return bytes(GROUPS_SIZE) + data if data and self.config.is_queue else data

    def data_of_its_owner(self, data: bytes) -> bytes:
        """Returns of the data of an entry what its owner has given."""
        return data[GROUPS_SIZE:] if self.config.is_queue else data

    def attach_publisher(self, port: PublisherPort, attach: PublisherAttach) -> None: ...
    def attach_subscriber(self, port: SubscriberPort, attach: SubscriberAttach) -> None: ...
    def router_up(self, router: str) -> None: ...
    def router_down(self, router: str) -> None: ...
    def keeper_changed(self) -> None: ...
    def feed_late(self, queue: str) -> None: ...
    def feed_learnt(self, queue: str) -> None: ...

    def holders(self) -> Iterator[SubscriptionEntry]:
        raise NotImplementedError

    def use(self) -> str:
        raise NotImplementedError


def _all_plain(payloads: list[bytes], priority: bool) -> dict[int, Kind]:
    return {}


def _never(payload: bytes) -> int | None:
    return None


def topics_of(config: RouterConfig) -> dict[str, None]:
    """The topics that may feed queues (protocol 16.12)."""
    return dict.fromkeys(address for _, address in config.mqtt_topics)


def done_bytes(config: RouterConfig) -> int:
    return min(config.done_bytes, config.memory_limit // 4)  # done payload must leave room for the rest
