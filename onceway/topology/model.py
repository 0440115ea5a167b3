"""A topology as plain values, already checked. `sections` makes it, the rest only reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from onceway.base.values import format_host_port
from onceway.topology.addresses import Address
from onceway.topology.admin import AdminRules
from onceway.topology.document import Problem
from onceway.topology.links import Link
from onceway.topology.listeners import BY_KEY, HostPort, RouterAddress
from onceway.topology.mqtt import Mqtt
from onceway.topology.pipes import Pipe
from onceway.topology.sasl import Sasl
from onceway.topology.tls import TlsProfile
from router.config import AddressConfig, Limits, RouterConfig

_BEFORE: Final = ("amqp", "interrouter", "admin", "amqps", "ws", "wss", "mqtt", "mqtts")
"""What a router has in the digest of a file, whether it is there or not."""


def _as_before(router: RouterAddress) -> str:
    keys = dict.fromkeys((*_BEFORE, *router.listeners))
    return f"RouterAddress({', '.join(f'{key}={router.listeners.get(key)!r}' for key in keys)}, tls={router.tls!r})"


@dataclass(frozen=True, slots=True)
class Topology:
    network: str
    path: Path  # the file it was read from
    routers: dict[str, RouterAddress]  # in the file's order
    links: tuple[Link, ...]
    settings: RouterConfig  # timers, sizes and addresses; its name is empty
    given: tuple[Address, ...] = ()  # the addresses as the file has them: routers are told more
    mqtt: Mqtt | None = None  # None: the file has no such section
    via: Mapping[frozenset[str], HostPort] = field(default_factory=dict)  # links that are dialled elsewhere
    limits: Mapping[str, Limits] = field(default_factory=dict)  # of routers that have limits of their own
    tls: Mapping[str, TlsProfile] = field(default_factory=dict)  # by name
    sasl: Sasl | None = None  # None: clients need not say who they are
    trunk_tls: str | None = None  # the profile of the connections between routers; empty: off; None: it is not said
    trunk_key: str = ""  # the file of the network's key, or $ and a variable; empty: routers need not show one
    origins: tuple[str, ...] = ()  # of the web pages that may open WebSockets
    http_hosts: tuple[str, ...] = ()  # that requests of HTTP may name besides those of the file
    admin: AdminRules = field(default_factory=AdminRules)  # who may read the admin listeners
    warnings: tuple[Problem, ...] = ()  # for whoever checks or starts it
    file_digest: str = ""  # of all that it says (`onceway.topology.said`)
    text: str = field(default="", repr=False, compare=False)  # the file's content
    directory: Path = field(default=Path(), compare=False)  # what the file's paths are relative to

    @property
    def addresses(self) -> tuple[AddressConfig, ...]:
        return self.settings.addresses

    @property
    def pipes(self) -> dict[str, Pipe]:
        """What the stores of each pipe are told, by its address."""
        return {each.config.match: each.pipe for each in self.given if each.pipe is not None}

    @property
    def hosts(self) -> frozenset[str]:
        """The names of hosts that the file has, in small letters: by these requests may come to its listeners."""
        places = [place for router in self.routers.values() for place in router.listeners.values()]
        places += self.via.values()
        for pipe in self.pipes.values():
            places += (*pipe.stores.values(), *pipe.metrics.values())
        return frozenset((*self.http_hosts, *self.settings.hostnames, *(host.lower() for host, _ in places)))

    @property
    def trunk_profile(self) -> str:
        """The profile of the connections between routers; empty: they have no TLS."""
        return self.trunk_tls or ""

    def router_config(self, name: str) -> RouterConfig:
        """The configuration of router `name`. KeyError if the file has no such router."""
        if name not in self.routers:
            raise KeyError(name)
        limits = self.limits.get(name, self.settings.limits)
        return replace(self.settings, name=name, limits=limits, topology_digest=self.digest)

    @property
    def digest(self) -> int:
        """A number that differs where routers or links do. `via` may: a file for one host may go around a proxy.

        Routers compare it (protocol 4.5), those of the version before, too: of the same file 0.9.0 makes the same text.
        """
        links = sorted((*sorted((one, other)), cost) for one, other, cost in self.links)
        routers = ", ".join(f"({name!r}, {_as_before(at)})" for name, at in sorted(self.routers.items()))
        return int.from_bytes(blake2b(f"([{routers}], {links!r})".encode(), digest_size=8).digest(), "big")

    def neighbours(self, name: str) -> dict[str, int]:
        """The routers that `name` has a link to, and what the link costs."""
        found = {}
        for one, other, cost in self.links:
            if one == name:
                found[other] = cost
            elif other == name:
                found[one] = cost
        return found

    def tls_profile(self, profile: str, router: str) -> TlsProfile:
        """What router `router` takes this profile for: paths that it can open."""
        return self.tls[profile].at(self.directory, router)

    def listener_profile(self, router: str, key: str) -> str:
        """The TLS profile of this listener; empty: it has no TLS."""
        if BY_KEY[key].secure:
            return self.routers[router].tls
        return {"neighbours": self.trunk_tls or "", "operators": self.admin.tls}.get(BY_KEY[key].reach, "")

    def dialled(self, name: str, neighbour: str) -> HostPort:
        """The address that `name` connects to for this neighbour: its listener, or `via`."""
        return self.via.get(frozenset((name, neighbour)), self.routers[neighbour]["interrouter"])

    def urls(self, names: Iterable[str] | None = None) -> str:
        """The URL list of these routers (all, unless named), as our clients take it: amqp://h:p,amqp://h:p. Routers
        that speak no AMQP with clients are not in it."""
        chosen = self.routers if names is None else names
        places = [place for name in chosen if (place := self.routers[name].url_place()) is not None]
        return ",".join(f"{scheme}://{format_host_port(at)}" for scheme, at in places)
