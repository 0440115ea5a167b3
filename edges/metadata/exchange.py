"""What edges say to each other, on one address of the network: exactly once, and each edge's words in their order.

An edge announces its publishers, passes their messages on, and says which have gone. Every edge hears all of it, its
own included, and so knows all publishers. An edge that begins says `JOINED`; every other one then says all its
publishers again and accepts that message when all have heard them. So the new edge's `JOINED` is accepted when it knows
everything, and then it takes clients (docs/decisions/metadata.md).

A message is MessagePack: the edge's name, which process of it, then items, each a list that begins with its kind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

import msgpack

from edges.metadata.registry import SEARCH, Diffs, Query, Registry
from edges.metadata.wire import Changes, changes_of, is_value
from router.links.predicate import Metadata, Value

ALIVE_S: Final = 2.0  # an edge with nothing to say says so
SILENCE_S: Final = 12.0  # after which an edge's publishers have gone
FORGET_S: Final = 600.0  # after which nothing is known of a silent edge
MOST_KEYS: Final = 1024  # of one publisher
MESSAGE_BYTES: Final = 8 << 10  # of items in one message, about
PART: Final = SEARCH  # steps that are taken in one turn
SHARE_OF_FREE: Final = 8  # one account may have an eighth of the free memory, as at routers (protocol 6.8)
PUBLISHER_OCTETS: Final = 1_200  # that a publisher without metadata takes, here and among all of the network
KEY_OCTETS: Final = 100  # that a key takes beside its text and its value's
CONNECTION_OCTETS: Final = 100  # that a publisher takes at one connection

# Kinds of items.
SAID: Final = 0  # [uuid, changes, value]: a publisher's message
BORN: Final = 1  # [uuid, born, metadata]: a publisher, new or told again
GONE: Final = 2  # [uuid]
JOINED: Final = 3  # []: this process has begun and wants to know all publishers
TELLS: Final = 4  # []: all publishers of this edge follow
ALIVE: Final = 5  # []
LEFT: Final = 6  # []: this edge ends, and its publishers with it

_pack: Final = msgpack.Packer().pack
_HEADERS: Final = {kind: _pack([kind]) for kind in (JOINED, TELLS, ALIVE, LEFT)}


class TooManyKeys(Exception):
    """A publisher would have more metadata than an edge keeps of one."""


class TooMuch(Exception):
    """Whoever publishes takes more of this edge's memory than one may, or of a message of the network."""


class Account:
    """What the publishers of one connection take, or those of one user. octets: estimated."""

    __slots__ = ("__weakref__", "octets")

    def __init__(self) -> None:
        self.octets = 0


class _Own:
    """A publisher of this edge, as its connections have told."""

    __slots__ = ("account", "born", "connections", "metadata", "octets")

    def __init__(self, born: int, account: Account) -> None:
        self.born = born
        self.account = account  # of who was its first connection
        self.connections = 0
        self.metadata: dict[str, Value] = {}
        self.octets = 0  # of these


class Outgoing(NamedTuple):
    """A message to publish.

    Attributes:
        joins: It asks for all publishers; once it is accepted, this edge knows them.
        told: Who asked for all publishers and has them when this is accepted: what was given to `tell`.
    """

    body: bytes
    joins: bool
    told: list[Any]


class LocalPublishers:
    """The publishers of this edge's clients, and what it says of them.

    Args:
        name: The edge's.
        process: Which process of it: greater than any before.
        clock: Nanoseconds since 1970, for which of two edges met a publisher last.
        memory_limit: Octets that all publishers of this edge may take; one account may take an eighth of what is free.
        most: See there.

    Attributes:
        most: Octets of the metadata of one publisher, estimated: they are told to other edges in one message.
        waiting_bytes: How much is to be published.
        octets: What publishers take, estimated.
    """

    def __init__(
        self, name: str, process: int, clock: Callable[[], int], memory_limit: int = 512 << 20, most: int = 1 << 20
    ) -> None:
        self.most = most
        self.waiting_bytes = 0
        self.octets = 0
        self._memory_limit = memory_limit
        self._gone: deque[dict[str, None]] = deque()  # of connections that have ended, and not told yet
        self._header = _pack(name) + _pack(process)
        self._clock = clock
        self._own: dict[str, _Own] = {}
        self._items: deque[bytes] = deque()
        self._said = 0  # items that were ever added, and
        self._taken = 0  # that are in messages
        self._said_at = float("-inf")
        self._asked: list[Any] = []
        self._answering: list[Any] = []
        self._untold: Iterator[str] | None = None
        self._join_at: int | None = None
        self._ended = False
        self.join()

    def __len__(self) -> int:
        return len(self._own)

    def publish(
        self, known: dict[str, None], uuid: str, changes: Changes, value: bytes, account: Account | None = None
    ) -> None:
        """A publisher's message.

        Args:
            known: The publishers of the connection that it came from. A new one is added.
            account: Of that connection, or of its user.

        Raises:
            TooManyKeys: Nothing was published.
            TooMuch: Nothing was published.
        """
        for gone in self._gone:
            if uuid in gone:  # else it would be the same as before, with the metadata that it had
                del gone[uuid]
                self._leave(uuid)
        own = self._own.get(uuid)
        if changes and len(changes) + (len(own.metadata) if own else 0) > MOST_KEYS:
            metadata = dict(own.metadata) if own else {}
            _merge(metadata, changes)
            if len(metadata) > MOST_KEYS:
                raise TooManyKeys(f"publisher {uuid} would have {len(metadata)} keys of metadata, {MOST_KEYS} at most")
        account = own.account if own is not None else account or Account()
        grown = self._growth(own, changes)
        if grown > 0 and grown + (own.octets if own is not None else 0) > self.most:
            raise TooMuch(f"publisher {uuid} would have more than {self.most} octets of metadata, as they are counted")
        more = grown + (PUBLISHER_OCTETS if own is None else 0) + (0 if uuid in known else CONNECTION_OCTETS)
        if more > 0 and account.octets + more > (self._memory_limit - self.octets) // SHARE_OF_FREE:
            raise TooMuch(f"publisher {uuid}: this edge has no more memory for the publishers of one client")
        account.octets += more
        self.octets += more
        if own is None:
            own = self._own[uuid] = _Own(self._clock(), account)
            self._say(_pack([BORN, uuid, own.born, {}]))
        own.octets += grown
        if uuid not in known:
            known[uuid] = None
            own.connections += 1
        if changes:
            _merge(own.metadata, changes)
        self._say(_pack([SAID, uuid, changes, value]))

    def disconnected(self, known: dict[str, None]) -> None:
        """A connection has ended. Publishers that have no other one have gone, which `message` says in parts."""
        if known:
            self._gone.append(known)

    @property
    def waits(self) -> bool:
        """Whether there is something to be said, such as of somebody that he has gone."""
        return bool(self.waiting_bytes or self._gone)

    def _say_gone(self) -> None:
        most = self.waiting_bytes + MESSAGE_BYTES // 2
        while self._gone and self.waiting_bytes < most:
            known = self._gone[0]
            if not known:
                self._gone.popleft()
                continue
            self._leave(known.popitem()[0])

    def _leave(self, uuid: str) -> None:
        """One connection fewer publishes for it."""
        own = self._own[uuid]
        own.connections -= 1
        less = CONNECTION_OCTETS
        if not own.connections:
            less += PUBLISHER_OCTETS + own.octets
            del self._own[uuid]
            self._say(_pack([GONE, uuid]))
        own.account.octets -= less
        self.octets -= less

    def _growth(self, own: _Own | None, changes: Changes) -> int:
        """How many octets more its metadata take with these changes."""
        more = 0
        for key, value in changes.items():
            former = own.metadata.get(key) if own is not None else None
            if former is not None:
                more -= _octets(key, former)
            if value is not None:
                more += _octets(key, value)
        return more

    def join(self) -> None:
        """Asks every edge for its publishers: at the beginning, and after messages were missed."""
        self._join_at = self._said
        self._say(_HEADERS[JOINED])

    def tell(self, asker: Any) -> None:
        """Some edge asks for all publishers."""
        self._asked.append(asker)

    @property
    def telling(self) -> bool:
        """Whether somebody asked who is not among `told` yet."""
        return bool(self._asked or self._answering) and not self._ended

    def leave(self) -> None:
        """This edge ends. Nothing is said behind that: it would come from an edge that nobody knows (`Lost`)."""
        self._say(_HEADERS[LEFT])
        self._ended = True

    def message(self, now: float) -> Outgoing | None:
        """The next message to publish. None: there is nothing to say yet; at the latest `ALIVE_S` from now there is."""
        self._say_gone()
        self._tell()
        if not self._items:
            if self._ended or (now - self._said_at < ALIVE_S and not self._answering):
                return None
            self._say(_HEADERS[ALIVE])
        self._said_at = now
        parts = [self._header]
        size = 0
        while self._items and size < MESSAGE_BYTES:
            size += len(self._items[0])
            parts.append(self._items.popleft())
        self._taken += len(parts) - 1
        self.waiting_bytes -= size
        joins = self._join_at is not None and self._join_at < self._taken
        if joins:
            self._join_at = None
        told: list[Any] = []
        if self._untold is None and not self._items:
            told, self._answering = self._answering, told
        return Outgoing(b"".join(parts), joins, told)

    def _say(self, item: bytes) -> None:
        if self._ended:
            return
        self._items.append(item)
        self._said += 1
        self.waiting_bytes += len(item)

    def _tell(self) -> None:
        """Adds some publishers behind what waits, so that each is told as it is at that place."""
        if self._untold is None:
            if not self._asked or self._answering:
                return
            self._answering, self._asked = self._asked, []
            self._untold = iter(list(self._own))
            self._say(_HEADERS[TELLS])
        most = self.waiting_bytes + MESSAGE_BYTES // 2
        for uuid in self._untold:
            own = self._own.get(uuid)
            if own is not None:
                self._say(_pack([BORN, uuid, own.born, own.metadata]))
            if self.waiting_bytes > most:
                return
        self._untold = None


def _said(uuid: Any, changes: Any, value: Any) -> bool:
    return isinstance(uuid, str) and changes_of(changes) is changes and is_value(value)


def _born(uuid: Any, born: Any, metadata: Any) -> bool:
    known = changes_of(metadata) is metadata and None not in metadata.values()
    return isinstance(uuid, str) and type(born) is int and known


_FORMS: Final[dict[int, Callable[..., bool]]] = {
    SAID: _said,
    BORN: _born,
    GONE: lambda uuid: isinstance(uuid, str),
    **dict.fromkeys((JOINED, TELLS, ALIVE, LEFT), lambda: True),
}
"""By kind: whether these can be an item's values; TypeError where their number is another, or ValueError."""


Said = tuple[str, int, list[list[Any]]]
"""The edge, which process of it, and the items of a message."""


def read(body: Any) -> Said:
    """The edge, which process of it, and the items of a message. Nothing else reads it.

    Raises:
        ValueError: It is nothing that an edge says.
    """
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    try:
        unpacker.feed(body)
        name, process, *items = unpacker
        whole = unpacker.tell() == len(body)
        if whole and isinstance(name, str) and type(process) is int and all(_FORMS[k](*item) for k, *item in items):
            return name, process, items
    except (TypeError, LookupError, ValueError, msgpack.UnpackException) as error:
        raise ValueError(f"nothing that an edge says: {error!r:.200}") from error
    raise ValueError("nothing that an edge says")


class Deliver(NamedTuple):
    """A message for the watchers of these queries."""

    queries: Iterable[Query]
    uuid: str
    changes: Changes
    value: bytes


class Asked:
    """Another edge has joined: tell it all publishers, and accept its message when all have heard them."""


class Lost:
    """An edge was heard that had been forgotten: this one has to join again."""


Output = Diffs | Deliver | Asked | Lost


class _Session:
    """A publisher at an edge."""

    __slots__ = ("born", "edge", "metadata")

    def __init__(self, edge: str, born: int, metadata: dict[str, Value]) -> None:
        self.edge = edge
        self.born = born
        self.metadata = metadata


class _Edge:
    __slots__ = ("heard_at", "name", "present", "process", "sessions")

    def __init__(self, name: str, process: int, now: float) -> None:
        self.name = name
        self.process = process
        self.heard_at = now
        self.present = True
        self.sessions: dict[str, _Session] = {}


class NetworkPublishers:
    """All publishers of all edges, as this one has heard of them.

    Where two edges have the same publisher, the one that met it last counts, everywhere.

    Attributes:
        joined: Every other edge has told its publishers. Set by whoever publishes what `LocalPublishers` says.
    """

    def __init__(self, name: str, process: int, now: float) -> None:
        self.registry = Registry()
        self.joined = False
        self._own = _Edge(name, process, now)
        self._edges: dict[str, _Edge] = {name: self._own}
        self._current: dict[str, _Session] = {}

    @property
    def edges(self) -> tuple[str, ...]:
        """The names of the edges that are there."""
        return tuple(sorted(edge.name for edge in self._edges.values() if edge.present))

    def receive(self, body: Any, now: float) -> list[Output]:
        """All of `hear` at once."""
        return list(chain.from_iterable(self.hear(read(body), now)))

    def hear(self, said: Said, now: float) -> Iterator[list[Output]]:
        """What an edge said, step by step: between two of them somebody else may have a turn, who may watch and not
        watch.

        Raises:
            ValueError: It is nothing that an edge says.
        """
        name, process, items = said
        edge = self._edges.get(name)
        if edge is not None and process < edge.process:
            return  # of a process that has ended
        for kind, *item in items:
            if edge is None or edge.process < process:
                if kind not in (JOINED, TELLS):
                    if self.joined:
                        yield [Lost()]
                        return
                    continue  # it will tell everything
                diffs: Diffs = {}
                if edge is not None:
                    yield from _told(self._withdraw(edge, diffs), diffs)
                edge = self._edges[name] = _Edge(name, process, now)
            elif not edge.present:
                edge.present, diffs = True, {}
                returned = (self._introduce(uuid, session, diffs) for uuid, session in edge.sessions.items())
                yield from _told(chain.from_iterable(returned), diffs)
            edge.heard_at = now
            yield from self._take(edge, kind, item)

    def population(self) -> tuple[int, int]:
        """How many publishers there are, and how many have gone."""
        return len(self.registry), self.registry.gone

    def tick(self, now: float) -> Iterator[list[Output]]:
        """Edges that are silent for too long have gone, with their publishers, until they are heard again. In steps, as
        `hear`."""
        for edge in list(self._edges.values()):
            silent_s = now - edge.heard_at
            if edge is self._own or silent_s < SILENCE_S:
                continue
            if edge.present:
                diffs: Diffs = {}
                yield from _told(self._withdraw(edge, diffs), diffs)
                edge.present = False
            if silent_s >= FORGET_S:
                del self._edges[edge.name]

    def _take(self, edge: _Edge, kind: int, item: list[Any]) -> Iterator[list[Output]]:
        diffs: Diffs = {}
        if kind == SAID:
            uuid, changes, value = item
            session = edge.sessions.get(uuid)
            if session is None:
                if self.joined:
                    raise ValueError(f"edge {edge.name} speaks for publisher {uuid!r:.60}, which it has not announced")
                return  # what it says of itself is still to come
            if changes:
                yield from _told(self._change(uuid, session, changes, diffs), diffs)
            queries = tuple(self.registry.queries_of(uuid)) if uuid in self._current else ()
            yield [Deliver(queries, uuid, changes, value)] if queries else []
        elif kind == BORN:
            uuid, born, metadata = item
            session = edge.sessions.get(uuid)
            if session is None or session.born != born:
                edge.sessions[uuid] = session = _Session(edge.name, born, metadata)
                yield from _told(self._introduce(uuid, session, diffs), diffs)
        elif kind == GONE:
            (uuid,) = item
            session = edge.sessions.pop(uuid, None)
            if session is not None:
                yield from _told(self._withdraw_session(uuid, session, diffs), diffs)
        elif kind == LEFT:
            yield from _told(self._withdraw(edge, diffs), diffs)
            edge.sessions.clear()
            if edge is not self._own:
                del self._edges[edge.name]
        elif kind == JOINED:
            yield [Asked()]

    # These yield steps, as `Registry.put`.

    def _change(self, uuid: str, session: _Session, changes: Changes, diffs: Diffs) -> Iterator[int]:
        changed = _merge(session.metadata, changes)
        if changed and self._current.get(uuid) is session:
            yield from self.registry.put(uuid, session.metadata, changed, diffs)

    def _introduce(self, uuid: str, session: _Session, diffs: Diffs) -> Iterator[int]:
        current = self._current.get(uuid)
        if current is None or (current.born, current.edge) <= (session.born, session.edge):
            yield from self._show(uuid, session, {} if current is None else current.metadata, diffs)

    def _show(self, uuid: str, session: _Session, old: Metadata, diffs: Diffs) -> Iterator[int]:
        self._current[uuid] = session
        new = session.metadata
        changed = [key for key in old.keys() | new.keys() if old.get(key) != new.get(key)]
        yield from self.registry.put(uuid, new, changed, diffs)

    def _withdraw(self, edge: _Edge, diffs: Diffs) -> Iterator[int]:
        edge.present = False
        for uuid, session in edge.sessions.items():
            yield from self._withdraw_session(uuid, session, diffs)
        edge.present = True

    def _withdraw_session(self, uuid: str, session: _Session, diffs: Diffs) -> Iterator[int]:
        yield 1
        if self._current.get(uuid) is not session:
            return
        others = [
            edge.sessions[uuid]
            for edge in self._edges.values()
            if edge.present and uuid in edge.sessions and edge.sessions[uuid] is not session
        ]
        if others:
            newest = max(others, key=lambda other: (other.born, other.edge))
            yield from self._show(uuid, newest, session.metadata, diffs)
        else:
            del self._current[uuid]
            self.registry.remove(uuid, diffs)


def _told(steps: Iterable[int], diffs: Diffs) -> Iterator[list[Output]]:
    """What the steps add to `diffs`: all of it before somebody else may have a turn, who may begin to watch."""
    taken = 0
    for more in steps:
        taken += more
        if taken > PART:
            yield [dict(diffs)] if diffs else []
            diffs.clear()
            taken = more
    if diffs:
        yield [diffs]


def _octets(key: str, value: Value) -> int:
    return KEY_OCTETS + _size(key) + (_size(value) if isinstance(value, str) else 0)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _merge(metadata: dict[str, Value], changes: Changes) -> list[str]:
    """Changes metadata in place; the keys that differ now."""
    changed = []
    for key, value in changes.items():
        if value is None:
            if metadata.pop(key, None) is not None:
                changed.append(key)
        elif metadata.get(key) != value or type(metadata[key]) is not type(value):
            metadata[key] = value
            changed.append(key)
    return changed
