"""What one router has for all its addresses, and an address for all its parts, as the parts know it.

Names go in one direction. A part of an address knows a `BaseCore`, a `BaseAddress` and the parts below it, which
`router.core.address` hands to it. That module knows the parts, and `router.core.core` knows addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from router.config import Life, RouterConfig
from router.core import messages as m
from router.core.agenda import Agenda
from router.core.counters import CountersByAddress
from router.core.declarations import settings_digest
from router.core.directory import PublisherEntry, SubscriptionEntry
from router.core.holding import NETWORK
from router.core.intervals import OPEN
from router.core.kinds import Kinds
from router.core.membership import Membership
from router.core.memory import Memory
from router.core.owner import Owner
from router.core.ports import (
    Outcome,
    PublisherAttach,
    PublisherPort,
    Refusal,
    SubscriberAttach,
    SubscriberPort,
    Term,
)
from router.core.post import Post, Send
from router.core.publisher import Publisher
from router.core.queue.doubts import Doubts
from router.core.queue.free import GROUPS_SIZE
from router.core.recovery import Recovering
from router.core.roll_call import RollCall
from router.reporting import Log
from router.versions import SPOKEN


class BaseCore:
    """The core of one router, as its addresses know it."""

    def __init__(self, config: RouterConfig, life: Life, send: Send, wall_us: Callable[[], int], log: Log) -> None:
        self.config = config
        self.name = name = config.name
        self.incarnation = life.incarnation
        self.clock_us = wall_us
        self.now = now = life.now
        self.entered: float | None = now  # at the last call from outside; None: not since the border said so
        self.addresses: dict[str, Any] = {}
        self.counters = CountersByAddress()
        self.publishers: dict[PublisherPort, Publisher] = {}
        self.agenda = Agenda()
        self.memory = Memory(config, self.agenda.due)
        self.members = Membership(name, config.routers, settings_digest(config), now)
        self.recovery = Recovering(config, life, self.members, wall_us)
        self.owner = Owner(name, log)
        self.kinds = Kinds(self)
        self.members.apart = self.kinds.apart
        self.post = Post(name, self.members, self.kinds, send)
        self.roll_call = RollCall(self.members, self.publishers, self.post.send)

    def speaks(self, router: str) -> int:
        """Returns the version of the wire between routers in the session with this router: one that has no message of
        a later version (`router.core.messages.since`)."""
        return SPOKEN.newest if router == self.name else self.members.speaks[router]

    def choose_number(self, known: int) -> int:
        """Returns the number of a term that is chosen here, above that of the known one (protocol 1.4)."""
        return max(self.clock_us(), known + 1, self.members.chosen + 1)

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
        outcome: Outcome | Refusal,
        settled: bool,
        now: float,
        why: bytes = b"",
    ) -> None: ...

    def detach_subscriber(self, port: SubscriberPort, closed: bool, now: float, expiring: bool = True) -> Term | None:
        raise NotImplementedError

    def send_hello(self, peer: str) -> None: ...

    def may_accept(self, address: BaseAddress) -> bool:
        """Says whether publishers may be told accepted: only where the address is established (protocol 4.4)."""
        return address.established


class Accepted:
    """When a publisher was last told accepted at an address, or before that was forgotten, and up to which position
    (protocol 7.3)."""

    __slots__ = ("at", "stop")

    def __init__(self, at: float | None, stop: int) -> None:
        self.at = at
        self.stop = stop

    def note(self, now: float, stop: int = OPEN) -> None:
        """A publisher is told accepted of a position below `stop`."""
        self.at = now
        self.stop = max(self.stop, stop)


class AttachedPublishers:
    """Those of one address at this router."""

    __slots__ = ("_proving", "claimed")

    def __init__(self) -> None:
        self.claimed: dict[bytes, Publisher] = {}
        self._proving: dict[bytes, list[Publisher]] = {}  # without a sign of life yet

    def __bool__(self) -> bool:
        return bool(self.claimed or self._proving)

    def all(self) -> list[Publisher]:
        return [*self.claimed.values(), *self.proving()]

    def proving(self) -> Iterator[Publisher]:
        return chain.from_iterable(self._proving.values())

    def proving_as(self, publisher_id: bytes) -> list[Publisher]:
        return self._proving.get(publisher_id, [])

    def begin_proving(self, publisher: Publisher) -> None:
        self._proving.setdefault(publisher.publisher_id, []).append(publisher)

    def stop_proving(self, publisher: Publisher) -> None:
        proving = self._proving[publisher.publisher_id]
        proving.remove(publisher)
        if not proving:
            del self._proving[publisher.publisher_id]

    def check_invariants(self) -> None:
        for publisher_id, publisher in self.claimed.items():
            assert publisher.publisher_id == publisher_id
            assert publisher.ready or publisher.handshake.claims
            publisher.check_invariants()
        for publisher_id, proving in self._proving.items():
            assert proving
            for publisher in proving:
                assert publisher.publisher_id == publisher_id
                assert publisher.handshake.is_proving
                publisher.check_invariants()


class BaseAddress:
    """One address at this router, as its parts know it."""

    def __init__(self, core: BaseCore, name: str) -> None:
        self.core = core
        self.name = name
        self.config = core.config.address(name)
        self.counters = core.counters.of(name)
        self.known_publishers: dict[bytes, PublisherEntry] = {}
        self.known_subscriptions: dict[m.SubscriptionName, SubscriptionEntry] = {}
        self.attached = AttachedPublishers()
        self.doubts = Doubts() if self.config.is_queue else None
        self.made_by = NETWORK  # whose memory it counts as (`router.core.holding`)
        self.handlers: m.Handlers = {}  # those of the messages that have come: all of them take 2.5 kB
        self.established = core.recovery.is_established(name)  # publishers may be told accepted (protocol 4.4)
        self.accepted = Accepted(*core.memory.former.addresses.accepted(self.config.match))

    def tell_read(self, name: m.SubscriptionName, term: Term) -> None:
        """The client of a subscription that is attached here has read that it has missed something (protocol 7.6)."""
        core, told = self.core, m.Told(self.name, name, term)
        for router in core.kinds.everybody(self.name):
            if core.speaks(router) >= m.since(m.Told):
                core.post.send_to(router, told)

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
