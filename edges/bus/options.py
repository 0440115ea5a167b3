"""How an edge is run."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edges.bus.places import Places

if TYPE_CHECKING:
    from onceway import Credentials


@dataclass(frozen=True, slots=True)
class BusOptions:
    """How an edge is run.

    Attributes:
        place: Of its store: a path, a database, or the URL of another edge. Edges that have the same store are one bus.
        routers: URLs.
        name: Of this edge, unique in the network.
        address: Of the bus in the network.
        keep_s: How long events stay for replay after everybody has taken them.
        max_octets: How large the store may become; None: as large as the disk.
        min_free: Autodrop begins when less than this is free of `max_octets`; 0: never.
        check_every_s: How often storage is looked at.
        callback_schemes: Of the call-backs that are taken.
        callback_context: How their certificates, and that of the other edge, are checked.
        places: Where call-backs may go.
        share: Serve the store to other edges.
        hostnames: By which requests come, beside the host that it listens at; in small letters.
        root_key: The user name of who may do everything; the other edge asks for it.
        tls, credentials: As of `onceway.connect`.
    """

    place: str
    routers: str
    name: str = "a"
    address: str = "bus"
    keep_s: float = 86_400.0
    max_octets: int | None = None
    min_free: int = 0
    check_every_s: float = 1.0
    callback_schemes: tuple[str, ...] = ("https",)
    callback_context: ssl.SSLContext | None = None
    places: Places = field(default_factory=Places)
    share: bool = False
    hostnames: frozenset[str] = frozenset()
    root_key: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None

    @property
    def shared(self) -> bool:
        """Several edges have the store."""
        return self.share or "://" in self.place
