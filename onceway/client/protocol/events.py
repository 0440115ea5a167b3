"""What a link of the client tells its owner, in order.  Runs and ranges: one event for many messages."""

from __future__ import annotations

from dataclasses import dataclass

from onceway.errors import OncewayError


@dataclass(slots=True)
class Attached:
    """The network has answered the attach.  resumed: an earlier attachment goes on."""

    resumed: bool
    guarantee: str
    timeout_s: float


@dataclass(slots=True)
class Lost:
    """The link is not attached any more; it will be attached again by itself."""

    reason: str


@dataclass(slots=True)
class Decided:
    """Publications first .. last have this outcome (an amqp10 delivery state; None: settled without one)."""

    first: int
    last: int
    state: object


@dataclass(slots=True)
class Undecided:
    """Publications that can neither be resumed nor be sent again (PROTOCOL 15): (sequence, payload) each."""

    reason: str
    publications: list[tuple[int, bytes]]


@dataclass(slots=True)
class Arrived:
    """New deliveries at positions position, position + 1, ...

    settled: at most once, no verdict is wanted.  A position is this client's own number of a delivery: the verdicts
    name it, however often the link is attached again.
    """

    position: int
    tags: list[bytes]
    payloads: list[bytes]
    settled: bool
    message_format: int


@dataclass(slots=True)
class Gap:
    """The subscription may have missed messages; `dropped` unaccepted deliveries were forgotten with it."""

    reason: str
    dropped: int


@dataclass(slots=True)
class Drained:
    """What `drain` asked for has come.  empty: the router had nothing more; if not, the credit was used up."""

    empty: bool


@dataclass(slots=True)
class Failed:
    """It is over: nothing is tried again."""

    error: OncewayError


@dataclass(slots=True)
class Detached:
    """What close() or detach() asked for is done."""

    closed: bool


LinkEvent = Attached | Lost | Decided | Undecided | Arrived | Gap | Drained | Failed | Detached
