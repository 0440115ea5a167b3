"""What can be managed, by type: the entities of one router, made when they are asked for, and only those.

A page is chosen first, by what there is: links of connections, subscriptions of addresses. What lies before it is
counted, owner by owner, and not made. The order is that in which they came, so pages that are asked for one after the
other fit together as far as nobody comes or goes.

Each function is a generator that yields between pieces, so that `onceway.operate.overview.Pace` keeps readers to their
share of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from amqp10.decoder import decode_value
from onceway.operate.status import publishers, records, state_of, subscribers
from onceway.serve.server import RouterServer
from router.core.reports import in_doubt, of_doubt, of_publisher, of_subscriber
from router.links.client_connection import ClientConnection
from router.links.publisher_link import PublisherLink
from router.mqtt.connection import MqttConnection
from router.names import publisher_text

if TYPE_CHECKING:
    from amqp10.session import Session
    from router.core.address import Address
    from router.core.directory import SubscriptionEntry
    from router.core.irregular import Irregular
    from router.core.publisher import Publisher
    from router.core.subscriber import Subscriber

Entity = dict[str, Any]
Making = Generator[None, None, Entity | None]
"""An entity, in pieces; None: it is not there any more."""
Owner = Any
Part = Any
Chosen = list[tuple[Owner, list[Part]]]

NEXT_S: Final = 10.0  # a page is asked for as the next one
PAUSE: Final = 64  # owners, or parts, that are looked at in a piece

PREFIX: Final = "onceway."
ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "router": (
        "network", "state", "reason", "program", "pid", "incarnation", "uptime_s", "routers", "paths", "connections",
        "publishers", "subscribers", "addresses_known", "payload_bytes", "received", "delivered", "accepted",
        "rejected", "released", "refused", "most_connections",
    ),
    "listener": ("scheme", "host", "port", "tls"),
    "neighbour": ("cost", "up", "host", "port", "trunk", "failure"),
    "connection": (
        "container", "user", "client", "scheme", "protocol", "sessions", "links", "unread_bytes", "max_frame_size",
        "properties",
    ),
    "session": ("connection", "channel", "remote_channel", "links", "incoming_window", "outgoing_window"),
    "link": (
        "connection", "session", "link", "role", "address", "container", "credit", "delivery_count",
        "snd_settle_mode", "rcv_settle_mode", "max_message_size", "under_way",
    ),
    "address": (
        "kind", "established", "publishers", "subscribers", "subscriptions", "publishers_known", "oldest_in_doubt_s",
        "received", "delivered", *("undone", "unsettled", "queued", "held", "in_doubt", "placeholders", "owed", "free"),
    ),
    "subscription": (
        "address", "container", "link", "home", "away_s", "declared", "timeout_s", "owed", "oldest_s", "queued",
        "unsettled", "in_doubt", "not_accepted",
    ),
    "publisher": (
        "address", "container", "link", "state", "undone", "unsettled", "waits_for", "no_credit", "no_credit_s",
    ),
    "delivery-in-doubt": (
        "address", "container", "link", "tag", "publisher", "state", "redeliveries", "away_s", "timeout_s",
    ),
}  # fmt: skip
"""By type: what an entity has beside `identity`, `name` and `type`."""
DELETED: Final = ("connection", "link", "subscription", "publisher")
"""Types whose entities can be deleted."""


class Kind:
    """How the entities of one type are found and made: each is a part of an owner, by default of the router itself.

    Where `owners` or `parts` yield None there may be a pause.
    """

    def __init__(self, server: RouterServer) -> None:
        self.server = server

    def owners(self) -> Iterable[Owner]:
        """All, in the order in which they came."""
        return (self.server,)

    def owners_of(self, identity: str) -> Iterable[Owner]:
        """Those that may have the entity of this identity."""
        return self.owners()

    def number(self, owner: Owner) -> int | None:
        """How many parts it has; None: all have to be looked at."""
        return None

    def parts(self, owner: Owner) -> Iterable[Part]:
        """All, in order. Where `number` says how many they are there is no pause, and they may change behind it."""
        raise NotImplementedError

    def identity(self, owner: Owner, part: Part) -> str:
        raise NotImplementedError

    def name(self, owner: Owner, part: Part) -> str:
        return self.identity(owner, part)

    def identity_of(self, name: str) -> str | None:
        """That of the entity with this name; None: any may have it."""
        return name

    def make(self, owner: Owner, part: Part) -> Making:
        """What it has beside identity and name."""
        raise NotImplementedError


class _Few(Kind):
    """Of which there are as many as the file has."""

    def __init__(self, server: RouterServer, made: Callable[[RouterServer], dict[str, Entity]]) -> None:
        super().__init__(server)
        self._made = made

    def parts(self, owner: RouterServer) -> Iterable[tuple[str, Entity]]:
        return self._made(owner).items()

    def identity(self, owner: RouterServer, part: tuple[str, Entity]) -> str:
        return part[0]

    def make(self, owner: RouterServer, part: tuple[str, Entity]) -> Making:
        yield
        return part[1]


def _router(server: RouterServer) -> dict[str, Entity]:
    raw = server.summary()
    state, reason = state_of(raw)
    counters = list(server.measured().counters.values())
    kept = {key: raw[key] for key in ATTRIBUTES["router"] if key in raw}
    counted = ("received", "accepted", "rejected", "released")
    sums = {key: sum(getattr(each, key) for each in counters) for key in counted}
    sums["delivered"] = sum(each.subscriptions.delivered for each in counters)
    more = {"refused": raw["limits"]["refused"], "most_connections": server.router.config.limits.connections}
    return {server.name: {**kept, "state": state, "reason": reason, **sums, **more}}


def _listeners(server: RouterServer) -> dict[str, Entity]:
    topology, name = server.in_force, server.name
    return {
        key: {"scheme": key, "host": host, "port": port, "tls": bool(topology.listener_profile(name, key))}
        for key, (host, port) in topology.routers[name].listeners.items()
    }


def _neighbours(server: RouterServer) -> dict[str, Entity]:
    topology, found = server.topology, {}
    for name, said in server.network.status()["neighbours"].items():
        host, port = topology.routers[name]["interrouter"] if name in topology.routers else (None, None)
        found[name] = {"host": host, "port": port, "trunk": None, "failure": None, **said}
    return found


def _nodes(server: RouterServer) -> dict[str, Entity]:
    """The routers of the network, with the paths to them."""
    raw = server.summary()
    return {name: raw["paths"].get(name, {"next": None, "cost": None}) for name in raw["routers"]}


class _Connections(Kind):
    def parts(self, owner: RouterServer) -> Iterator[ClientConnection | MqttConnection | None]:
        yield from connections_of(owner)
        for number, client in enumerate(list(owner.router.mqtt.connections)):
            if not number % PAUSE:
                yield None
            if client.user is not None:
                yield client

    def identity(self, owner: RouterServer, part: ClientConnection | MqttConnection) -> str:
        return part.log.address if isinstance(part, ClientConnection) else part.address

    def make(self, owner: RouterServer, part: ClientConnection | MqttConnection) -> Making:
        yield
        said = {"user": part.user, "client": self.identity(owner, part), "unread_bytes": part.buffered.unread_bytes}
        if isinstance(part, ClientConnection):
            return {
                **said,
                "container": part.container,
                "scheme": part.scheme,
                "protocol": "amqp",
                "sessions": len(part.connection.channels.sessions),
                "links": len(part.ports),
                "max_frame_size": part.connection.remote_max_frame_size,
                "properties": decode_value(part.properties)[0],
            }
        return {
            **said,
            "container": part.session.container if part.session is not None else "",
            "scheme": "mqtts" if part.secure else "mqtt",
            "protocol": "mqtt",
            "sessions": 0,
            "links": 0,
            "max_frame_size": None,
            "properties": {},
        }


class _OfConnections(Kind):
    """What connections of AMQP have. The identity begins with that of the connection."""

    def owners(self) -> Iterable[ClientConnection | None]:
        return connections_of(self.server)

    def owners_of(self, identity: str) -> Iterator[ClientConnection | None]:
        for one in connections_of(self.server):
            if one is None or identity.startswith(f"{one.log.address}/"):
                yield one


class _Sessions(_OfConnections):
    def number(self, owner: ClientConnection) -> int:
        return len(owner.connection.channels.sessions)

    def parts(self, owner: ClientConnection) -> Iterable[Session]:
        return owner.connection.channels.sessions

    def identity(self, owner: ClientConnection, part: Session) -> str:
        return f"{owner.log.address}/{part.channel}"

    def make(self, owner: ClientConnection, part: Session) -> Making:
        yield
        return {
            "connection": owner.log.address,
            "channel": part.channel,
            "remote_channel": part.remote_channel,
            "links": len(part.links),
            "incoming_window": part.incoming.left,
            "outgoing_window": part.outgoing.window,
        }


class _Links(_OfConnections):
    def number(self, owner: ClientConnection) -> int:
        return len(owner.ports)

    def parts(self, owner: ClientConnection) -> Iterable[Any]:
        return owner.ports

    def identity(self, owner: ClientConnection, part: Any) -> str:
        way = "in" if isinstance(part, PublisherLink) else "out"
        return f"{owner.log.address}/{part.link.session.channel}/{way}/{named(part.link.name)}"

    def name(self, owner: ClientConnection, part: Any) -> str:
        return str(part.link.name)

    def identity_of(self, name: str) -> None:
        return None

    def make(self, owner: ClientConnection, part: Any) -> Making:
        yield
        link = part.link
        local = link.local_attach
        return {
            "connection": owner.log.address,
            "session": f"{owner.log.address}/{link.session.channel}",
            "link": link.name,
            "role": "sender" if isinstance(part, PublisherLink) else "receiver",  # of the client
            "address": part.attach.address,
            "container": part.attach.container,
            "credit": link.credit,
            "delivery_count": link.delivery_count,
            "snd_settle_mode": local.snd_settle_mode if local is not None else None,
            "rcv_settle_mode": local.rcv_settle_mode if local is not None else None,
            "max_message_size": local.max_message_size if local is not None else None,
            "under_way": part.under_way,
        }


class _Addresses(Kind):
    """Of all of them the owner is their list."""

    def owners(self) -> Iterable[list[str]]:
        return (self.server.address_names(),)

    def owners_of(self, identity: str) -> Iterable[list[str]]:
        return ([unquote(identity)],)

    def number(self, owner: list[str]) -> int:
        return len(owner)

    def parts(self, owner: list[str]) -> Iterable[str]:
        return owner

    def identity(self, owner: list[str], part: str) -> str:
        return named(part)

    def name(self, owner: list[str], part: str) -> str:
        return part

    def identity_of(self, name: str) -> str:
        return named(name)

    def make(self, owner: list[str], part: str) -> Making:
        report = yield from self.server.report(part)
        if report is None:
            return None
        counted = self.server.measured().counters.get(part)
        return {
            "kind": report["type"],
            "established": report["established"],
            "publishers": len(publishers(report)),
            "subscribers": len(subscribers(report)),
            "subscriptions": len(report["subscriptions"]),
            "publishers_known": report["publishers_known"],
            "oldest_in_doubt_s": report["oldest_in_doubt_s"],
            "received": counted.received if counted is not None else None,
            "delivered": counted.subscriptions.delivered if counted is not None else None,
            **records(report),
        }


class _OfAddresses(Kind):
    """What addresses have: owners are their names. The identity begins with that of the address."""

    def owners(self) -> Iterable[str]:
        return self.server.address_names()

    def owners_of(self, identity: str) -> Iterable[str]:
        return (unquote(identity.partition("/")[0]),)

    def _address(self, owner: str) -> Address | None:
        return self.server.router.core.addresses.get(owner)


class _Subscriptions(_OfAddresses):
    def number(self, owner: str) -> int:
        return len(self._entries(owner))

    def parts(self, owner: str) -> Iterable[tuple[str, str]]:
        return self._entries(owner)

    def identity(self, owner: str, part: tuple[str, str]) -> str:
        return _linked(owner, *part)

    def make(self, owner: str, part: tuple[str, str]) -> Making:
        address, entry = self._address(owner), self._entries(owner).get(part)
        if address is None or entry is None:
            return None
        known, here = address.subscriptions.status_of(entry), address.deliveries.subscribers.get(part)
        attached = {} if here is None else (yield from of_subscriber(here))
        return {
            "address": owner,
            "container": part[0],
            "link": part[1],
            **{key: known[key] for key in ("home", "away_s", "declared", "timeout_s", "owed", "oldest_s")},
            **{key: attached.get(key) for key in ("queued", "unsettled", "in_doubt", "not_accepted")},
        }

    def _entries(self, owner: str) -> Mapping[tuple[str, str], SubscriptionEntry]:
        address = self._address(owner)
        return {} if address is None else address.subscriptions.entries


class _Publishers(_OfAddresses):
    def number(self, owner: str) -> int:
        return len(self.parts(owner))

    def parts(self, owner: str) -> list[Publisher]:
        address = self._address(owner)
        return [] if address is None else address.attached.all()

    def identity(self, owner: str, part: Publisher) -> str:
        return _linked(owner, part.brought.container, part.brought.name)

    def make(self, owner: str, part: Publisher) -> Making:
        yield
        address = self._address(owner)
        if address is None:
            return None
        said = of_publisher(address, part)
        keys = ("state", "undone", "unsettled", "waits_for", "no_credit", "no_credit_s")
        brought = part.brought
        told = {"address": owner, "container": brought.container, "link": brought.name}
        return {**told, **{key: said[key] for key in keys}}


class _InDoubt(_OfAddresses):
    def parts(self, owner: str) -> Iterator[tuple[Subscriber, Irregular] | None]:
        address = self._address(owner)
        if address is not None:
            yield from in_doubt(address)

    def identity(self, owner: str, part: tuple[Subscriber, Irregular]) -> str:
        subscriber, delivery = part
        return f"{_linked(owner, *subscriber.name)}/{delivery.tag.hex()}"

    def make(self, owner: str, part: tuple[Subscriber, Irregular]) -> Making:
        yield
        address = self._address(owner)
        if address is None:
            return None
        said = of_doubt(address, *part)
        return {"address": owner, "link": said.pop("name"), **said}


_KINDS: Final[dict[str, Callable[[RouterServer], Kind]]] = {
    "router": lambda server: _Few(server, _router),
    "listener": lambda server: _Few(server, _listeners),
    "neighbour": lambda server: _Few(server, _neighbours),
    "node": lambda server: _Few(server, _nodes),
    "connection": _Connections,
    "session": _Sessions,
    "link": _Links,
    "address": _Addresses,
    "subscription": _Subscriptions,
    "publisher": _Publishers,
    "delivery-in-doubt": _InDoubt,
}
"""Those that have attributes (`ATTRIBUTES`), and what only other routers' tools ask for."""


class _Page:
    """The last one that was asked for: where its last owner is, so that the next page does not look through those
    before it."""

    def __init__(self, kind: str, stop: int | None, owners: list[Owner], at: float, place: int, before: int) -> None:
        """before: how many entities the owners before it have."""
        self.kind = kind
        self.stop = stop
        self.owners = owners
        self.at = at
        self.place = place
        self.before = before

    def is_before(self, kind: str, start: int, owners: Iterable[Owner], now: float) -> bool:
        return (self.kind, self.stop, self.owners) == (kind, start, owners) and now - self.at < NEXT_S


class Entities:
    """Of the router of `server`."""

    def __init__(self, server: RouterServer) -> None:
        self._server = server
        self._kinds = {kind: make(server) for kind, make in _KINDS.items()}
        self._last: _Page | None = None

    def choose(self, kind: str, start: int, stop: int | None) -> Generator[None, None, tuple[Chosen, int]]:
        """What those of a type from `start` to `stop` are parts of, and how many there are up to `stop`."""
        of, chosen, last = self._kinds[kind], Chosen(), self._last
        owners, now = of.owners(), self._server.clock()
        place = before = before_owner = 0
        if last is not None and last.is_before(kind, start, owners, now):
            place, before = last.place, last.before
        for number, owner in enumerate(islice(owners, place, None), place):
            if stop is not None and before >= stop:
                break
            if not number % PAUSE or owner is None:
                yield
            if owner is None:
                continue
            place, before_owner = number, before
            low, high = max(start - before, 0), None if stop is None else stop - before
            many = of.number(owner)
            if many is None:
                parts = yield from _all(of.parts(owner), high)
                many, parts = len(parts), parts[low:]
            else:
                parts = list(islice(of.parts(owner), low, high)) if many > low else []
            if parts:
                chosen.append((owner, parts))
            before += many
        if isinstance(owners, list):
            self._last = _Page(kind, stop, owners, now, place, before_owner)
        return chosen, before

    def make(self, kind: str, owner: Owner, part: Part) -> Making:
        of = self._kinds[kind]
        said = yield from of.make(owner, part)
        return None if said is None else {"identity": of.identity(owner, part), "name": of.name(owner, part), **said}

    def find(self, kind: str, key: str, value: str) -> Making:
        """The first whose identity or name is this."""
        of = self._kinds[kind]
        identity, say = (value, of.identity) if key == "identity" else (of.identity_of(value), of.name)
        for owner in of.owners() if identity is None else of.owners_of(identity):
            yield
            for part in (yield from _all(of.parts(owner))) if owner is not None else ():
                if say(owner, part) == value:
                    return (yield from self.make(kind, owner, part))
                yield
        return None


def _all(parts: Iterable[Part], most: int | None = None) -> Generator[None, None, list[Part]]:
    """As many as there are, or at most."""
    if not isinstance(parts, Iterator):
        return list(parts)
    found: list[Part] = []
    for part in parts:
        if part is None:
            yield
        else:
            found.append(part)
            if len(found) == most:
                break
    return found


def connections_of(server: RouterServer) -> Iterator[ClientConnection | None]:
    """Connections of AMQP, with pauses."""
    for number, connection in enumerate(list(server.router.connections)):
        if not number % PAUSE:
            yield None
        if connection.user is not None and not connection.connection.closing:
            yield connection


def named(*names: str) -> str:
    """Names, percent-encoded, with slashes between them."""
    return "/".join(quote(name, safe="") for name in names)


def _linked(address: str, container: str, link: str) -> str:
    return f"{named(address)}/{publisher_text(container, link)}"
