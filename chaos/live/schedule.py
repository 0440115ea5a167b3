"""What a run does: a network, a workload on it, and faults over time, as plain values.

`schedule_files` makes them from YAML; what comes of them is `run`'s.  For people: docs/chaos.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from onceway.errors import UsageError
from onceway.topology import Link

EDGES: Final = ("metadata", "caches", "queue", "pipe", "bus", "mqtt")
"""Clients of edges, each with an edge of its own, and of the listener mqtt."""
CLIENTS: Final = ("onceway", "proton", "rhea", "rhea-exactly-once", *EDGES)
WITH_JOURNAL: Final = ("onceway", "rhea-exactly-once")
"""These survive their own death."""
SETTLE: Final = {"second": "exactly-once", "first": "at-least-once", "presettled": "at-most-once"}
"""settle -> the guarantee that comes with it (protocol 6.5)."""

What = Literal["router", "trunk", "link", "client"]
Pick = Literal["named", "any", "every", "next"]
_PROCESSES: Final = ("router", "client")
_CONNECTIONS: Final = ("trunk", "link", "router")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: what it may hit, and the attributes it has (key -> form), the first `required` of them."""

    on: tuple[str, ...]
    keys: dict[str, str] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    @property
    def on_connections(self) -> bool:
        """It is a toxic, or something else that a proxy does."""
        return "link" in self.on


KINDS: Final[dict[str, Kind]] = {
    "kill": Kind(_PROCESSES, {"back": "duration"}),
    "stop": Kind(_PROCESSES, {"for": "duration"}, ("for",)),
    "restart": Kind(_PROCESSES, {"back": "duration", "kill": "duration"}),
    "garbage": Kind(("router",), {"connections": "count"}),
    "reload": Kind(("router",)),
    "cut": Kind(("trunk", "router"), {"for": "duration"}, ("for",)),
    "partition": Kind(_CONNECTIONS),
    "down": Kind(_CONNECTIONS),
    "latency": Kind(_CONNECTIONS, {"latency": "duration", "jitter": "duration"}, ("latency",)),
    "bandwidth": Kind(_CONNECTIONS, {"rate": "size"}, ("rate",)),
    "slow_close": Kind(_CONNECTIONS, {"delay": "duration"}, ("delay",)),
    "reset": Kind(_CONNECTIONS, {"after": "duration"}),
    "timeout": Kind(_CONNECTIONS, {"after": "duration"}, ("after",)),
    "limit": Kind(_CONNECTIONS, {"bytes": "size"}, ("bytes",)),
    "slicer": Kind(
        _CONNECTIONS, {"average_size": "size", "size_variation": "size", "delay": "duration"}, ("average_size",)
    ),
}


@dataclass(frozen=True, slots=True)
class Target:
    """`router a`, `trunk a - b`, `link s1` (to whichever router), `link s1 - a`, `client p1`; or any, every, next."""

    what: What
    pick: Pick
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.what} {' - '.join(self.names)}" if self.pick == "named" else f"{self.pick} {self.what}"


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    on: tuple[Target, ...]
    at_s: float  # since the clients were ready
    for_s: float | None = None  # None: to the end of the faults
    every_s: float | None = None
    times: int = 1
    wait: bool = False  # for all routers to be ready, each time
    stream: str = "both"
    toxicity: float = 1.0
    values: dict[str, float] = field(default_factory=dict)  # seconds, bytes, counts

    @property
    def last_s(self) -> float:
        """When it strikes for the last time, if nothing holds it up."""
        return self.at_s + (self.times - 1) * (self.every_s or 0.0)


@dataclass(frozen=True, slots=True)
class Publisher:
    name: str
    client: str
    at: str
    settle: str
    rate: float
    size: int
    count: int | None  # one of these two at most; none: until the faults are over
    duration_s: float | None
    within_s: float | None = None  # every outcome comes so soon after its message was given to the library


@dataclass(frozen=True, slots=True)
class Subscriber:
    name: str
    client: str
    at: str
    settle: str
    pause_s: float  # of the application, at each delivery
    credit: int


@dataclass(frozen=True, slots=True)
class Schedule:
    path: Path
    shows: str
    routers: tuple[str, ...]
    links: tuple[Link, ...]
    settings: Any  # as in a topology file, to be written into one
    addresses: Any
    address: str
    drain_s: float
    publishers: tuple[Publisher, ...]
    subscribers: tuple[Subscriber, ...]
    faults: tuple[Fault, ...]
    long: bool = False  # left out where all are run

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def clients(self) -> tuple[Publisher | Subscriber, ...]:
        return (*self.publishers, *self.subscribers)

    def with_clients(self, client: str) -> Schedule:
        """The same with clients of one kind, which has to survive what the schedule does.  UsageError."""
        if client not in WITH_JOURNAL:
            raise UsageError(f'no client "{client}" with a journal; clients are {", ".join(WITH_JOURNAL)}')
        publishers = tuple(replace(one, client=client) for one in self.publishers)
        return replace(
            self, publishers=publishers, subscribers=tuple(replace(one, client=client) for one in self.subscribers)
        )

    @property
    def has_edges(self) -> bool:
        return any(client.client in EDGES for client in self.clients)

    @property
    def length_s(self) -> float:
        """About how long it takes."""
        work = [p.duration_s or (p.count or 0) / p.rate for p in self.publishers]
        return max(work + [fault.last_s + (fault.for_s or 0) for fault in self.faults])

    @property
    def needs_namespaces(self) -> bool:
        """Its routers have real interfaces between them, which can be cut."""
        return any(fault.kind == "cut" for fault in self.faults)
