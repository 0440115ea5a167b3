"""What routers say to each other about topics (PROTOCOL 3 to 8): one class for each message.

Their bytes are in `router.wire`.  A message to oneself is handed over as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

from router.intervals import Range
from router.ports import Term

SubscriptionName = tuple[str, str]
"""Container-id and link name; the address stands beside it."""

Rejection = tuple[int, int, int]
"""A range, and how many subscriptions rejected what is in it."""


class PeerProtocolError(Exception):
    """A peer's message breaks the protocol between routers.  Its session must be reset."""


class JoinKind(IntEnum):
    """PROTOCOL 7.1."""

    FRESH = 0
    RESUME = 1
    EITHER = 2


class JoinResult(IntEnum):
    """PROTOCOL 7.3."""

    OK = 0
    BROKEN = 1
    STALE = 2
    UNHEARD = 3  # OK, once we have been told that this has been heard


class Unknown(IntEnum):
    """In place of the expected tags: nothing may be inferred from their absence (PROTOCOL 2, 5.4)."""

    UNKNOWN = 1


UNKNOWN: Final = Unknown.UNKNOWN
Expected = list[bytes] | Literal[Unknown.UNKNOWN]


@dataclass(slots=True)
class PublisherNews:
    """A publisher in a HELLO: address, publisher, incarnation, term, seconds since it has no home (0: it has one)."""

    address: str
    publisher: bytes
    incarnation: int
    term: Term
    age_s: float


@dataclass(slots=True)
class SubscriptionNews:
    """A subscription in a HELLO."""

    address: str
    name: SubscriptionName
    born: Term | None
    term: Term
    timeout_s: float
    age_s: float


@dataclass(slots=True)
class Hello:  # 4.2; incarnation: the sender's; up: who is up with it, each with its incarnation, 0 before its HELLO
    incarnation: int
    established: bool
    up: tuple[tuple[str, int], ...]
    publishers: list[PublisherNews]
    subscriptions: list[SubscriptionNews]


@dataclass(slots=True)
class Pub:  # 5.4; expected None: said again after a session came up (4.2)
    address: str
    publisher: bytes
    incarnation: int
    term: Term
    expected: Expected | None


@dataclass(slots=True)
class PubAck:  # 5.5; stale: the known term, the known incarnation, real
    address: str
    publisher: bytes
    term: Term
    stale: tuple[Term, int, bool] | None


@dataclass(slots=True)
class PubDown:  # 8.4
    address: str
    publisher: bytes
    term: Term


@dataclass(slots=True)
class PubClose:  # 8.4
    address: str
    publisher: bytes
    incarnation: int
    term: Term


@dataclass(slots=True)
class Flush:  # 8.5
    address: str
    publisher: bytes
    incarnation: int
    term: Term


@dataclass(slots=True)
class Join:  # 7.2; heard: said again, because the answer has been heard, and the attach not been answered before
    address: str
    name: SubscriptionName
    born: Term | None
    term: Term
    kind: JoinKind
    history: bool
    timeout_s: float
    heard: bool


@dataclass(slots=True)
class Joined:  # 7.3; known and mark answer EITHER; other: the known term where the attach is stale
    address: str
    name: SubscriptionName
    term: Term
    result: JoinResult
    known: bool
    mark: Term | None
    other: Term | None


@dataclass(slots=True)
class Orphan:  # 8.1; how long it is waited for from now (8.3)
    address: str
    name: SubscriptionName
    term: Term
    timeout_s: float


@dataclass(slots=True)
class Leave:  # 8.2; broken: it is refused, and has to be told so whenever it comes again (7.3)
    address: str
    name: SubscriptionName
    term: Term
    broken: bool = False


@dataclass(slots=True)
class Entries:
    """Consecutive records in a SYNC; `owed`: positions that carry a token."""

    position: int
    message_format: int
    tags: list[bytes]
    payloads: list[bytes | None]  # None: freed early (9)
    owed: list[Range]


@dataclass(slots=True)
class Sync:  # 7.5
    address: str
    publisher: bytes
    incarnation: int
    term: Term
    name: SubscriptionName
    subscription_term: Term
    entries: list[Entries]
    expected: Expected


@dataclass(slots=True)
class Data:  # 6.1; settled: without token (6.9)
    address: str
    publisher: bytes
    term: Term
    position: int
    message_format: int
    settled: bool
    tags: list[bytes]
    payloads: list[bytes]


@dataclass(slots=True)
class Accept:  # 6.3: tokens of shared copies
    address: str
    ranges: list[Rejection]


@dataclass(slots=True)
class AcceptSync:  # 6.3: tokens of SYNC entries
    address: str
    name: SubscriptionName
    term: Term
    ranges: list[Rejection]


@dataclass(slots=True)
class Settle:  # 6.6
    address: str
    ranges: list[Range]


@dataclass(slots=True)
class SettleTags:  # 6.6: expected tags that will not come again
    address: str
    publisher: bytes
    term: Term
    tags: list[bytes]


AddressMessage = (
    Pub
    | PubAck
    | PubDown
    | PubClose
    | Flush
    | Join
    | Joined
    | Orphan
    | Leave
    | Sync
    | Data
    | Accept
    | AcceptSync
    | Settle
    | SettleTags
)
Message = Hello | AddressMessage
