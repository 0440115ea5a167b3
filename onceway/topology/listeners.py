"""The listeners of a router: a row of `LISTENERS` for each.

Which keys a router has in the file, what listens, what `check`, `up`, `render`, the management node and the pages of
docs say of listeners is made from these rows. A new listener is a row here, and the code that speaks its protocol
(`onceway.serve.server` chooses it by `protocol` and `websocket`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from onceway.base.values import format_host_port, is_loopback, is_unspecified

HostPort = tuple[str, int]

Reach = Literal["clients", "neighbours", "operators"]
FIRST: Final = "0.9.0"
"""The version from which on it is said which one a key came with."""


@dataclass(frozen=True, slots=True)
class Listener:
    key: str  # in the file; of a listener for clients also the scheme of its URLs
    port: int  # the usual one
    protocol: Literal["AMQP", "MQTT", "onceway", "HTTP"]
    reach: Reach  # who connects, and must be able to
    help: str  # what the file's key means
    tls: str = ""  # the place in the file that names its TLS profile; empty: it never has TLS
    secure: bool = False  # it always has TLS; where `tls` is named and this is not: if the file says so
    websocket: bool = False
    needs: str = ""  # the section without which the file cannot have it
    live: str = ""  # the page that answers 200 while the router lives; empty: who probes connects, and sees it listen
    ready: str = ""  # the page that answers 200 while clients can work
    since: str = FIRST

    @property
    def for_clients(self) -> bool:
        return self.reach == "clients"

    @property
    def name(self) -> str:
        """What is spoken, in words."""
        spoken = {"AMQP": "AMQP 1.0", "onceway": "the routers' protocol"}.get(self.protocol, self.protocol)
        if self.websocket:
            spoken = f"{spoken} or MQTT in a WebSocket"
        return spoken


LISTENERS: Final[tuple[Listener, ...]] = (
    Listener("amqp", 5672, "AMQP", "clients", 'where clients connect: a port, or `host:port` (`"[::1]:5672"`)'),
    Listener(
        "amqps", 5671, "AMQP", "clients", "where clients connect through TLS; needs `tls`",
        tls="routers.NAME.tls", secure=True,
    ),
    Listener(
        "ws", 8080, "AMQP", "clients", "where clients connect in a [WebSocket](clients.md#websocket)", websocket=True,
    ),
    Listener(
        "wss", 8443, "AMQP", "clients", "the same through TLS; needs `tls`",
        tls="routers.NAME.tls", secure=True, websocket=True,
    ),
    Listener(
        "mqtt", 1883, "MQTT", "clients", "where clients of [MQTT](mqtt.md) connect; needs the section `mqtt`",
        needs="mqtt",
    ),
    Listener(
        "mqtts", 8883, "MQTT", "clients", "the same through TLS; needs `tls`, too",
        tls="routers.NAME.tls", secure=True, needs="mqtt",
    ),
    Listener(
        "interrouter", 7671, "onceway", "neighbours",
        "where neighbours connect; they must be able to reach this host", tls="trunks.tls",
    ),
    Listener(
        "admin", 8671, "HTTP", "operators", "HTTP: status, readiness, metrics", tls="admin.tls",
        live="/healthz", ready="/readyz",
    ),
)  # fmt: skip

BY_KEY: Final[Mapping[str, Listener]] = {row.key: row for row in LISTENERS}
FOR_CLIENTS: Final = tuple(row.key for row in LISTENERS if row.for_clients)
"""Their keys. A router has one of them at least, and every other listener."""
SECURE: Final = frozenset(row.key for row in LISTENERS if row.secure)
FOR_OUR_CLIENTS: Final = tuple(row.key for row in LISTENERS if row.for_clients and row.protocol == "AMQP")
"""Those that `onceway.connect` knows, the first one first."""


@dataclass(frozen=True, slots=True)
class RouterAddress:
    """Where one router listens: `address["amqp"]`. KeyError for a listener that it does not have."""

    listeners: Mapping[str, HostPort] = field(default_factory=dict)  # by key, in the order of LISTENERS
    tls: str = ""  # the profile of those that are for clients and have TLS

    def __getitem__(self, key: str) -> HostPort:
        return self.listeners[key]

    def __contains__(self, key: str) -> bool:
        return key in self.listeners

    @property
    def secure(self) -> bool:
        """One of its listeners for clients has TLS."""
        return not SECURE.isdisjoint(self.listeners)

    def for_clients(self) -> dict[str, HostPort]:
        """By the scheme of their URLs."""
        return {key: place for key, place in self.listeners.items() if BY_KEY[key].for_clients}

    def told_at(self, other: RouterAddress) -> dict[str, HostPort]:
        """The same, as far as clients of the other router get here: not by what means every interface, nor by a
        loopback address of another machine."""
        machine = self["interrouter"][0]
        together = is_loopback(machine) or machine == other["interrouter"][0]
        return {
            key: (host, port)
            for key, (host, port) in self.for_clients().items()
            if not is_unspecified(host) and (together or not is_loopback(host))
        }

    @property
    def first(self) -> str:
        """Where clients come, as a URL, for those who want one place only."""
        key, place = next(iter(self.for_clients().items()))
        return f"{key}://{format_host_port(place)}"

    def url_place(self) -> tuple[str, HostPort] | None:
        """Scheme and place by which our own clients reach it; None: it speaks no AMQP with clients."""
        return next(((key, self.listeners[key]) for key in FOR_OUR_CLIENTS if key in self.listeners), None)
