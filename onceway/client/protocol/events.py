"""What a link of the client tells its owner, in order; one event for a run of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onceway.errors import OncewayError


@dataclass(slots=True)
class Attached:
    """The network has answered the attach.  resumed: it continues an earlier attachment."""

    resumed: bool
    guarantee: str
    timeout_s: float


@dataclass(slots=True)
class Lost:
    """The link is detached; it will attach again by itself."""

    reason: str


@dataclass(slots=True)
class Decided:
    """Publications first .. last have this outcome (an amqp10 delivery state; None: settled without one)."""

    first: int
    last: int
    state: object


@dataclass(slots=True)
class Undecided:
    """Publications that can neither be resumed nor be sent again (protocol 15): (sequence, payload) each."""

    reason: str
    publications: list[tuple[int, bytes]]


@dataclass(slots=True)
class Waits:
    """The router says why a publisher has no credit: the map of `onceway:waiting`; None: it has some again."""

    waiting: Mapping[str, Any] | None


@dataclass(slots=True)
class Arrived:
    """New deliveries at positions position, position + 1, ...

    settled: at most once, no outcome is needed.  A position is this client's own number of a delivery, by which
    outcomes name it however often the link attaches again.
    """

    position: int
    tags: list[bytes]
    payloads: list[bytes]
    settled: bool
    message_format: int


@dataclass(slots=True)
class Settled:
    """Deliveries at positions first .. last are settled: the network knows their outcomes, or needs none."""

    first: int
    last: int


@dataclass(slots=True)
class Gap:
    """The subscription may have missed messages; `dropped` deliveries without outcome were forgotten with it."""

    reason: str
    dropped: int


@dataclass(slots=True)
class Drained:
    """What `drain` asked for has arrived.  empty: the router had nothing more; otherwise the credit was used up."""

    empty: bool


@dataclass(slots=True)
class Failed:
    """The link has ended; nothing is tried again."""

    error: OncewayError


@dataclass(slots=True)
class Detached:
    """What close() or detach() asked for is done."""

    closed: bool


LinkEvent = Attached | Lost | Decided | Undecided | Waits | Arrived | Settled | Gap | Drained | Failed | Detached
