"""What one listener, one user and one connection may take of a router, and what counts towards it.

`Limits` are values. `Admission` counts connections, checks attaches, and says which limit has been reached, by its name
in the configuration. `Bookkeeping` estimates what names and unsettled maps take. Limits that are AMQP's own (sessions,
frame size, idle time) are told to the client in open and begin and enforced by the engine; the others are checked by
`router.links.client_connection`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from amqp10.errors import RESOURCE_LIMIT_EXCEEDED, RemoteProtocolError
from router.config import Limits, UserLimits
from router.links.crowd import Crowd
from router.links.filters import MOST_TOGETHER, Selection

if TYPE_CHECKING:
    from amqp10.performatives import Error
    from router.core.address import Address
    from router.core.core import Core
    from router.core.ports import Needs, SubscriberAttach

# The names under which refusals are counted.
HALF_OPEN: Final = "half_open"
LINKS: Final = "links"
CONNECTIONS: Final = "connections"
DESCRIPTORS: Final = "descriptors"
MEMORY: Final = "memory_limit"
UNREAD: Final = "unread_output"
MAP: Final = "unsettled_map"
MESSAGE_SIZE: Final = "max_message_size"
POLICIES: Final = "policies"
FILTERS: Final = "filters"
COUNTED: Final = (
    HALF_OPEN,
    "handshake_timeout",
    CONNECTIONS,
    DESCRIPTORS,
    "sessions",
    LINKS,
    MAP,
    MESSAGE_SIZE,
    "max_frame_size",
    UNREAD,
    MEMORY,
    POLICIES,
    FILTERS,
)
ENGINE_LIMITS: Final = {
    "handshake-timeout": "handshake_timeout",
    "channel-max": "sessions",
    "handle-max": "links",
    "max-frame-size": "max_frame_size",
    "max-message-size": MESSAGE_SIZE,
}
"""The name of a limit in the engine's error texts -> in the configuration."""
IDLE: Final = "nothing heard"  # how the engine's error text of a client that was silent for too long begins
NO_LIMITS: Final = UserLimits()

CONNECTION: Final = 6 << 10  # octets of a connection without sessions, about
PORT: Final = 4 << 10  # of a link beside what the engine has, with what the core keeps while it is attached

ENTRY_COST: Final = 1024  # bytes that a known name, or an entry of a map with its delivery, takes at most
ADDRESS_COST: Final = 8  # entries
BOOKKEEPING_SHARE: Final = 2  # the part of memory_limit for entries: one half
RECOUNT_S: Final = 1.0
RECOUNT_EACH_S: Final = 1e-4  # and as much for each address: looking at one takes 3 us
RECOUNT_AFTER: Final = 4096  # entries


class Counted(Protocol):
    """A client's connection, of AMQP or MQTT."""

    def receive_eof(self, now: float) -> None: ...


class Room(Protocol):
    """Whether the process may open files for more connections. Some are left for others than clients, so these are
    refused before there are none."""

    def crowded(self) -> bool:
        """Clients are refused, and told why."""

    def full(self) -> bool:
        """Nor is there room for those that are to be told."""


class _Always:
    def crowded(self) -> bool:
        return False

    def full(self) -> bool:
        return False


class Asked:
    """Bytes of the filters of one address at one router.

    Attributes:
        together: The most that one message can ask.
    """

    __slots__ = ("_of", "together")

    def __init__(self) -> None:
        self.together = 0
        self._of: dict[str | None, dict[str | bytes, int]] = {}  # property -> value -> bytes for who needs that

    def would_be(self, needs: Needs | None, asked: int) -> int:
        """`together`, with so many more."""
        name, value = (None, b"") if needs is None else needs
        of = self._of.get(name, {})
        return self.together + max(0, of.get(value, 0) + asked - max(of.values(), default=0))

    def add(self, needs: Needs | None, asked: int) -> None:
        """So many more, or (negative) fewer."""
        name, value = (None, b"") if needs is None else needs
        of = self._of.setdefault(name, {})
        before = max(of.values(), default=0)
        of[value] = of.get(value, 0) + asked
        if not of[value]:
            del of[value]
        if not of:
            del self._of[name]
        self.together += max(of.values(), default=0) - before


class Admission:
    """The connections of one router, counted by user, and refusals, counted by limit."""

    def __init__(self, limits: Limits, users: Mapping[str, UserLimits]) -> None:
        self.limits = limits
        self.users = users
        self.half_open: Crowd[Counted] = Crowd()
        self.opened: dict[str, int] = {}  # user -> connections
        self.total = 0
        self.refused: dict[str, int] = {}  # limit -> how often it was reached
        self.asked: dict[str, Asked] = {}  # by address
        self.silent = 0  # clients that were disconnected, as nothing was heard of them
        self.room: Room = _Always()  # its owner sets it

    def count_refusal(self, limit: str) -> None:
        """For status and metrics."""
        self.refused[limit] = self.refused.get(limit, 0) + 1

    def count_silence(self) -> None:
        """A client was disconnected, as nothing was heard of it: it has failed, and no limit was reached."""
        self.silent += 1

    def count_engine_error(self, error: Error | None) -> None:
        """The engine has ended something with this error: count it if the reason is a limit, or silence."""
        text = error.description if error is not None else None
        if text and text.startswith(IDLE):
            self.count_silence()
            return
        for name, limit in ENGINE_LIMITS.items():
            if text and name in text:
                self.count_refusal(limit)
                return

    def connected(self, connection: Counted, now: float, address: str) -> None:
        """A transport from this host:port is open, open or CONNECT is to come. Beyond the limit one half-open
        connection is dropped in its favour."""
        if self.room.full():
            self.count_refusal(DESCRIPTORS)
            connection.receive_eof(now)
            return
        self.half_open.add(connection, address)
        if len(self.half_open) > self.limits.half_open:
            oldest = self.half_open.next_to_go
            self.half_open.remove(oldest)
            self.count_refusal(HALF_OPEN)
            oldest.receive_eof(now)

    def end_half_open(self, now: float) -> None:
        """Others come in from now on: who has begun to say who it is begins anew. Else a user that is removed while it
        logs in would be let in by what no longer holds."""
        for each in list(self.half_open):
            self.half_open.remove(each)
            each.receive_eof(now)

    def admit(self, connection: Counted, user: str) -> str | None:
        """Its open or CONNECT has arrived. Returns None if it is admitted, else the reason to tell it."""
        self.half_open.remove(connection)
        of_user = self.users.get(user, NO_LIMITS).connections
        if self.room.crowded():
            self.count_refusal(DESCRIPTORS)
            return "limit descriptors: this router may open no more files for clients, try another one, or later"
        if self.total >= self.limits.connections:
            reason = f"limit connections: this router takes {self.limits.connections}"
        elif of_user is not None and self.opened.get(user, 0) >= of_user:
            reason = f"limit connections: user {user!r:.60} may have {of_user}"
        else:
            self.opened[user] = self.opened.get(user, 0) + 1
            self.total += 1
            return None
        self.count_refusal(CONNECTIONS)
        return reason

    def check_filters(self, attach: SubscriberAttach, selection: Selection) -> None:
        """Raises RemoteProtocolError if the filters of this subscription are too much for the messages of its address,
        beside those of others."""
        if not selection.asked:
            return
        together = self.asked.get(attach.address, Asked()).would_be(selection.needs, selection.asked)
        if together > MOST_TOGETHER:
            self.count_refusal(FILTERS)
            text = f"limit filters: one message of {attach.address!r:.60} would ask filters of {together} bytes here"
            remedy = f"at most {MOST_TOGETHER}; short conditions, name = 'value', alone or with AND, do not count"
            raise RemoteProtocolError(RESOURCE_LIMIT_EXCEEDED, f"{text}, {remedy}")

    def filters_attached(self, address: str, selection: Selection, *, attached: bool) -> None:
        """They are asked from now on, or no more."""
        if selection.asked:
            of = self.asked.setdefault(address, Asked())
            of.add(selection.needs, selection.asked if attached else -selection.asked)
            if not of.together:
                del self.asked[address]

    def disconnected(self, connection: Counted, user: str | None) -> None:
        """user: the one under which it was admitted; None if it was not."""
        self.half_open.remove(connection)
        if user is not None:
            self.total -= 1
            left = self.opened[user] - 1
            if left:
                self.opened[user] = left
            else:
                del self.opened[user]

    def limits_of(self, user: str) -> Limits:
        """The limits of this user's connections."""
        own = self.users.get(user)
        return self.limits if own is None else own.over(self.limits)

    def status(self) -> dict[str, object]:
        return {
            "half_open": len(self.half_open),
            "connections": dict(self.opened),
            "refused": dict(self.refused),
            "silent": self.silent,
        }


class Bookkeeping:
    """What one router keeps beside payload: names and entries of clients' maps, estimated now and then.

    A name stays known for minutes after its client has gone (protocol 8.3, 8.4), so without a limit a client that keeps
    attaching under new names would make the directory grow for ever.
    """

    __slots__ = ("_counted_at", "_core", "_counted", "_added", "limit")

    def __init__(self, core: Core, memory_limit: int) -> None:
        self._core = core
        self._counted = 0
        self._added = 0
        self._counted_at = -RECOUNT_S
        self.set_limit(memory_limit)

    def set_limit(self, memory_limit: int) -> None:
        self.limit = max(memory_limit // BOOKKEEPING_SHARE // ENTRY_COST, 1)

    def entries(self, now: float) -> int:
        """The last count, which is a second old at most where addresses are few, and what has been added since."""
        pause_s = max(RECOUNT_S, len(self._core.addresses) * RECOUNT_EACH_S)
        if now - self._counted_at >= pause_s or self._added >= max(RECOUNT_AFTER, self._counted >> 3):
            self._counted_at = now
            self._counted = self._count()
            self._added = 0
        return self.last_count

    @property
    def last_count(self) -> int:
        """The last count, however old, and what has been added since: for those who may not cause another."""
        return self._counted + self._added

    def add(self, entries: int, now: float) -> bool:
        """Whether so many entries of an attach fit; if so they count from now on."""
        if self.entries(now) + entries > self.limit:
            return False
        self._added += entries
        return True

    def _count(self) -> int:
        """Known names, and deliveries that are found by tag."""
        core = self._core
        found = core.memory.map_parts.entries() + core.recovery.deferred
        for address in core.addresses.values():
            found += entries_of(address)
        return found


def entries_of(address: Address) -> int:
    """What the bookkeeping counts of one address."""
    found = ADDRESS_COST + len(address.publishers.entries) + len(address.subscriptions.entries)
    for publisher in address.attached.all():
        found += 1 + len(publisher.handshake.presented) + len(publisher.resending.tags)
    for subscriber in address.deliveries.subscribers.values():
        found += 1 + sum(map(len, subscriber.irregular.by_tag.values()))
    return found
