"""What a topology file says, as plain values.  Already checked: `sections` makes it, everybody else only reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from onceway.topology.document import Problem
from onceway.topology.values import format_host_port
from router.config import AddressConfig, RouterConfig
from router.limits import Limits

HostPort = tuple[str, int]
Link = tuple[str, str, int]  # two routers and the cost between them
OnPartition = Literal["continue"]  # `stop` (PROTOCOL 14) will be the other one


@dataclass(frozen=True, slots=True)
class RouterAddress:
    """Where one router listens."""

    amqp: HostPort  # clients
    interrouter: HostPort  # its neighbours
    admin: HostPort  # /status, /metrics, /healthz, /readyz


@dataclass(frozen=True, slots=True)
class Topology:
    network: str
    path: Path  # the file it was read from
    routers: dict[str, RouterAddress]  # in the file's order
    links: tuple[Link, ...]
    settings: RouterConfig  # timers, sizes and addresses; its name is empty
    on_partition: OnPartition = "continue"
    via: Mapping[frozenset[str], HostPort] = field(default_factory=dict)  # links that are dialled elsewhere
    limits: Mapping[str, Limits] = field(default_factory=dict)  # of routers that have limits of their own
    warnings: tuple[Problem, ...] = ()  # what was told to whoever checks or starts it

    @property
    def addresses(self) -> tuple[AddressConfig, ...]:
        return self.settings.addresses

    def router_config(self, name: str) -> RouterConfig:
        """What router `name` is told.  KeyError if the file has no such router."""
        if name not in self.routers:
            raise KeyError(name)
        return replace(self.settings, name=name, limits=self.limits.get(name, self.settings.limits))

    def neighbours(self, name: str) -> dict[str, int]:
        """The routers that `name` has a link to, and what the link costs."""
        found = {}
        for one, other, cost in self.links:
            if one == name:
                found[other] = cost
            elif other == name:
                found[one] = cost
        return found

    def dialled(self, name: str, neighbour: str) -> HostPort:
        """Where `name` connects to, to reach its neighbour: what listens there, or leads there."""
        return self.via.get(frozenset((name, neighbour)), self.routers[neighbour].interrouter)

    def urls(self, names: Iterable[str] | None = None) -> str:
        """The URL list of these routers (all, unless named): amqp://h:p,amqp://h:p."""
        return ",".join(
            "amqp://" + format_host_port(self.routers[name].amqp) for name in (self.routers if names is None else names)
        )
