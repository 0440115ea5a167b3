"""What can be managed, by type: the entities of one router, made when they are asked for.

Each function is a generator that yields between pieces, so that `onceway.operate.overview.Pace` keeps readers to their
share of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final
from urllib.parse import quote

from amqp10.decoder import decode_value
from onceway.operate.overview import in_order
from onceway.operate.status import publishers, records, state_of, subscribers
from onceway.serve.server import RouterServer
from router.core.reports import in_doubt
from router.links.client_connection import ClientConnection
from router.links.publisher_link import PublisherLink
from router.names import publisher_text

Entity = dict[str, Any]
Steps = Generator[None, None, list[Entity]]

PREFIX: Final = "onceway."
ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "router": (
        "network", "state", "reason", "pid", "incarnation", "uptime_s", "routers", "paths", "connections", "publishers",
        "subscribers", "addresses_known", "payload_bytes", "received", "delivered", "accepted", "rejected", "released",
        "refused", "most_connections",
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


def named(*names: str) -> str:
    """Names, percent-encoded, with slashes between them."""
    return "/".join(quote(name, safe="") for name in names)


def connections_of(server: RouterServer) -> Iterator[tuple[str, ClientConnection]]:
    """Connections of AMQP with their identities: the addresses of the clients, as the log has them."""
    for connection in list(server.router.connections):
        if connection.user is not None and not connection.connection.closing:
            yield connection.log.address, connection


class Entities:
    """Of the router of `server`."""

    def __init__(self, server: RouterServer) -> None:
        self._server = server
        self._kinds: dict[str, Callable[[], Steps]] = {
            "router": self._routers,
            "listener": self._listeners,
            "neighbour": self._neighbours,
            "connection": self._connections,
            "session": self._sessions,
            "link": self._links,
            "address": self._addresses,
            "subscription": self._subscriptions,
            "publisher": self._publishers,
            "delivery-in-doubt": self._in_doubt,
        }

    def of(self, kind: str) -> Steps:
        """All of a type, in the order of their identities where others may come and go."""
        return self._kinds[kind]()

    def _routers(self) -> Steps:
        yield
        raw = self._server.summary()
        state, reason = state_of(raw)
        counters = list(self._server.measured().counters.values())
        kept = {key: raw[key] for key in ATTRIBUTES["router"] if key in raw}
        counted = ("received", "delivered", "accepted", "rejected", "released")
        sums = {key: sum(getattr(each, key) for each in counters) for key in counted}
        more = {"refused": raw["limits"]["refused"], "most_connections": self._server.config.limits.connections}
        name = self._server.name
        return [{"identity": name, "name": name, **kept, "state": state, "reason": reason, **sums, **more}]

    def _listeners(self) -> Steps:
        yield
        topology, name = self._server.in_force, self._server.name
        return [
            {"identity": key, "name": key, "scheme": key, "host": host, "port": port,
             "tls": bool(topology.listener_profile(name, key))}
            for key, (host, port) in topology.routers[name].listeners.items()
        ]  # fmt: skip

    def _neighbours(self) -> Steps:
        yield
        topology, found = self._server.topology, []
        for name, said in self._server.network.status()["neighbours"].items():
            host, port = topology.routers[name]["interrouter"] if name in topology.routers else (None, None)
            empty = {"trunk": None, "failure": None}
            found.append({"identity": name, "name": name, "host": host, "port": port, **empty, **said})
        return found

    def _connections(self) -> Steps:
        found = []
        for identity, one in connections_of(self._server):
            found.append(
                {
                    "identity": identity,
                    "name": identity,
                    "container": one.container,
                    "user": one.user,
                    "client": identity,
                    "scheme": one.scheme,
                    "protocol": "amqp",
                    "sessions": len(one.connection.sessions),
                    "links": len(one.ports),
                    "unread_bytes": one.unread_bytes,
                    "max_frame_size": one.connection.remote_max_frame_size,
                    "properties": decode_value(one.properties)[0],
                }
            )
            yield
        for client in list(self._server.router.mqtt.connections):
            if client.user is None:
                continue
            found.append(
                {
                    "identity": client.address,
                    "name": client.address,
                    "container": client.session.container if client.session is not None else "",
                    "user": client.user,
                    "client": client.address,
                    "scheme": "mqtts" if client.secure else "mqtt",
                    "protocol": "mqtt",
                    "sessions": 0,
                    "links": 0,
                    "unread_bytes": client.unread_bytes,
                    "max_frame_size": None,
                    "properties": {},
                }
            )
            yield
        return (yield from _sorted(found))

    def _sessions(self) -> Steps:
        found = []
        for connection, one in connections_of(self._server):
            for session in list(one.connection.sessions):
                identity = f"{connection}/{session.channel}"
                found.append(
                    {
                        "identity": identity,
                        "name": identity,
                        "connection": connection,
                        "channel": session.channel,
                        "remote_channel": session.remote_channel,
                        "links": len(session.links),
                        "incoming_window": session.incoming.left,
                        "outgoing_window": session.outgoing.window,
                    }
                )
                yield
        return (yield from _sorted(found))

    def _links(self) -> Steps:
        found = []
        for connection, one in connections_of(self._server):
            for port in list(one.ports):
                link = port.link
                local = link.local_attach
                session = f"{connection}/{link.session.channel}"
                sends = isinstance(port, PublisherLink)
                found.append(
                    {
                        "identity": f"{session}/{'in' if sends else 'out'}/{named(link.name)}",
                        "name": link.name,
                        "connection": connection,
                        "session": session,
                        "link": link.name,
                        "role": "sender" if sends else "receiver",  # of the client
                        "address": port.attach.address,
                        "container": port.attach.container,
                        "credit": link.credit,
                        "delivery_count": link.delivery_count,
                        "snd_settle_mode": local.snd_settle_mode if local is not None else None,
                        "rcv_settle_mode": local.rcv_settle_mode if local is not None else None,
                        "max_message_size": local.max_message_size if local is not None else None,
                        "under_way": port.under_way,
                    }
                )
                yield
        return (yield from _sorted(found))

    def _reports(self, add: Callable[[str, Entity], None]) -> Generator[None, None, None]:
        """Hands over the report of each address: all of them together may take more memory than there is."""
        for name in (yield from in_order(self._server.address_names(), str)):
            report = yield from self._server.report(name)
            if report is not None:
                add(name, report)
            yield

    def _addresses(self) -> Steps:
        found: list[Entity] = []
        counters = self._server.measured().counters

        def add(name: str, report: Entity) -> None:
            counted = counters.get(name)
            found.append(
                {
                    "identity": named(name),
                    "name": name,
                    "kind": report["type"],
                    "established": report["established"],
                    "publishers": len(publishers(report)),
                    "subscribers": len(subscribers(report)),
                    "subscriptions": len(report["subscriptions"]),
                    "publishers_known": report["publishers_known"],
                    "oldest_in_doubt_s": report["oldest_in_doubt_s"],
                    "received": counted.received if counted is not None else None,
                    "delivered": counted.delivered if counted is not None else None,
                    **records(report),
                }
            )

        yield from self._reports(add)
        return found

    def _subscriptions(self) -> Steps:
        found: list[Entity] = []
        nothing = dict.fromkeys(("queued", "unsettled", "in_doubt", "not_accepted"))

        def add(address: str, report: Entity) -> None:
            here = {(one["container"], one["name"]): one for one in subscribers(report)}
            for one in report["subscriptions"]:
                container, link = one["container"], one["name"]
                attached = here.get((container, link), {})
                parts = {key: attached.get(key) for key in nothing}
                said = {key: one[key] for key in ("home", "away_s", "declared", "timeout_s", "owed", "oldest_s")}
                found.append({**_link(address, container, link), **said, **parts})

        yield from self._reports(add)
        return (yield from _sorted(found))

    def _publishers(self) -> Steps:
        found: list[Entity] = []
        keys = ("state", "undone", "unsettled", "waits_for", "no_credit", "no_credit_s")

        def add(address: str, report: Entity) -> None:
            for one in publishers(report):
                found.append({**_link(address, one["container"], one["name"]), **{key: one.get(key) for key in keys}})

        yield from self._reports(add)
        return (yield from _sorted(found))

    def _in_doubt(self) -> Steps:
        found = []
        for name in (yield from in_order(self._server.address_names(), str)):
            address = self._server.router.core.addresses.get(name)
            if address is None:
                continue
            for one in (yield from in_doubt(address)):
                link = _link(name, one["container"], one["name"])
                identity = f"{link['identity']}/{one['tag']}"
                found.append({**link, **one, "identity": identity, "name": identity, "link": one["name"]})
                yield
            yield
        return (yield from _sorted(found))


def _link(address: str, container: str, link: str) -> Entity:
    identity = f"{named(address)}/{publisher_text(container, link)}"
    return {"identity": identity, "name": identity, "address": address, "container": container, "link": link}


def _sorted(found: list[Entity]) -> Steps:
    """Pages of a query that are asked for one after the other fit together as far as nobody comes or goes."""
    return in_order(found, lambda entity: str(entity["identity"]))
