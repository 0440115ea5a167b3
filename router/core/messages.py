"""What routers say to each other about topics (protocol 3.4): one class for each message.

Their bytes are in `router.peers.wire`. A message to oneself is handed over as it is. One that routers of an earlier
version do not know says so: `since: ClassVar[int] = 5` in its class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any, ClassVar, Final, Literal, NamedTuple

from router.config import QueueTable
from router.core.intervals import Range
from router.core.ports import Term
from router.core.traffic import Accept, Data, Rejection, Settle
from router.versions import FIRST

SubscriptionName = tuple[str, str]
"""Container-id and link name; the address stands beside it."""


class PeerProtocolError(Exception):
    """A peer's message breaks the protocol between routers. Its session must be reset."""


class JoinKind(IntEnum):
    """What a subscription attaches as (protocol 7.1)."""

    FRESH = 0
    RESUME = 1
    EITHER = 2
    STAYED = 3  # version 5: resume, of one whose attach has been answered (protocol 4.2)


class JoinResult(IntEnum):
    """What a router says of a JOIN (protocol 7.3)."""

    OK = 0
    BROKEN = 1
    STALE = 2
    UNHEARD = 3  # OK, if a second JOIN confirms that this answer was received


class Unknown(IntEnum):
    """In place of the expected tags: nothing may be inferred from their absence (protocol 5.4)."""

    UNKNOWN = 1


UNKNOWN: Final = Unknown.UNKNOWN
Expected = list[bytes] | Literal[Unknown.UNKNOWN]


@dataclass(slots=True)
class PublisherNews:
    """A publisher in a HELLO: address, publisher, incarnation, term, how long it is remembered, seconds since it has no
    home (0: it has one)."""

    address: str
    publisher: bytes
    incarnation: int
    term: Term
    timeout_s: float
    age_s: float


@dataclass(slots=True)
class SubscriptionNews:
    """A subscription in a HELLO. `untold`: its client has not read that it has a gap (protocol 7.6); always false
    before version 5. One that is untold has a born."""

    address: str
    name: SubscriptionName
    born: Term | None
    term: Term
    timeout_s: float
    age_s: float
    data: bytes = b""
    untold: bool = False


class DeclaredAddress(NamedTuple):
    """What a topology file declares of one address: its subscriptions, in order; closed: it takes no others."""

    address: str
    closed: bool
    subscriptions: tuple[SubscriptionName, ...]


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a router's file declares (protocol 4.5). A later one of the same router has a greater version."""

    router: str
    version: int
    addresses: tuple[DeclaredAddress, ...]


@dataclass(slots=True)
class Hello:
    """What a router knows (protocol 4.2). `all_recovered`: every address is recovered at the sender; else `recovered`
    are the entries of its file whose addresses are. `up`: the routers in session with the sender, each with the
    incarnation of its HELLO, or 0 before its HELLO. `declarations`: the sender's own first.
    `routers`: those of its topology file."""

    incarnation: int
    all_recovered: bool
    recovered: tuple[str, ...]
    settings_digest: int
    topology_digest: int
    declarations: list[Declaration]
    routers: tuple[str, ...]
    up: tuple[tuple[str, int], ...]
    publishers: list[PublisherNews]
    subscriptions: list[SubscriptionNews]


@dataclass(slots=True)
class Queues:
    """What is a queue in the sender's file, if anything is, or was in this session. It counts from the HELLO behind it
    (protocol 16.13). `entries`: match, and whether that is a queue, up to the last queue."""

    since: ClassVar[int] = 5
    entries: QueueTable


@dataclass(slots=True)
class Suspected:
    """Input that has ended this router's last life (protocol 3.4.6): a digest of the octets, who had sent it, and for
    how long that is refused."""

    since: ClassVar[int] = 5
    digest: bytes
    sender: str
    left_s: float


@dataclass(slots=True)
class Clock:
    """The sender's wall clock, in microseconds (protocol 3.4.7)."""

    since: ClassVar[int] = 5
    now_us: int


@dataclass(slots=True)
class Draining:
    """The sender sends its clients away, or takes clients again (protocol 8.8)."""

    draining: bool


@dataclass(slots=True)
class Call:
    """Asks a router whether it is in session (protocol 5.9). `proofs`: it answers when its publishers have proved
    themselves (protocol 8.8)."""

    number: int
    proofs: bool


@dataclass(slots=True)
class Called:
    """Answers a CALL."""

    number: int
    proofs: bool


@dataclass(slots=True)
class Pub:
    """A publisher works at the sender (protocol 5.4). `timeout_s`: the publisher_timeout that it was told. `expected`:
    None when this is repeated for a new session (protocol 4.2)."""

    address: str
    publisher: bytes
    incarnation: int
    term: Term
    timeout_s: float
    expected: Expected | None


@dataclass(slots=True)
class PubAck:
    """The claim is noted (protocol 5.5). `stale`: a later claim is known, with this term and incarnation, real or
    not."""

    address: str
    publisher: bytes
    term: Term
    stale: tuple[Term, int, bool] | None


@dataclass(slots=True)
class PubDown:
    """The publisher no longer works at the sender (protocol 8.4)."""

    address: str
    publisher: bytes
    term: Term


@dataclass(slots=True)
class PubClose:
    """The publisher has closed for good, or an operator says that it will not come back: `forgotten` (protocol 8.4)."""

    address: str
    publisher: bytes
    incarnation: int
    term: Term
    forgotten: bool = False


@dataclass(slots=True)
class Flush:
    """The publisher will not send anything again (protocol 8.5)."""

    address: str
    publisher: bytes
    incarnation: int
    term: Term


@dataclass(slots=True)
class Join:
    """A subscription is attached at the sender (protocol 7.2). `heard`: the answer to an earlier JOIN was received
    before the attach was answered (protocol 7.3). `life_s`: the subscription was created no longer ago. `data`: of
    whoever attached it (protocol 7.10)."""

    address: str
    name: SubscriptionName
    born: Term | None
    term: Term
    kind: JoinKind
    history: bool
    timeout_s: float
    heard: bool
    life_s: float
    data: bytes = b""


@dataclass(slots=True)
class Joined:
    """The subscription is noted, or the reason why not (protocol 7.3). `known` and `mark` answer EITHER; `other` is the
    known term if the attach is stale."""

    address: str
    name: SubscriptionName
    term: Term
    result: JoinResult
    known: bool
    mark: Term | None
    other: Term | None


@dataclass(slots=True)
class Orphan:
    """The subscription's link is lost (protocol 8.1). `timeout_s`: its timeout, from now on (protocol 8.3)."""

    address: str
    name: SubscriptionName
    term: Term
    timeout_s: float


@dataclass(slots=True)
class Told:
    """The subscription's client has read the answer to the attach of this term (protocol 7.6)."""

    since: ClassVar[int] = 5
    address: str
    name: SubscriptionName
    term: Term


@dataclass(slots=True)
class Leave:
    """The subscription has gone for good (protocol 8.2). `broken`: every later attach is told so, too
    (protocol 7.3)."""

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
    payloads: list[bytes | None]  # None: freed early (protocol 9.6)
    owed: list[Range]


@dataclass(slots=True)
class Sync:
    """What a subscription has to get before the publisher's stream (protocol 7.5)."""

    address: str
    publisher: bytes
    incarnation: int
    term: Term
    name: SubscriptionName
    subscription_term: Term
    entries: list[Entries]
    expected: Expected


@dataclass(slots=True)
class Part:
    """The next bytes of the large delivery at this position (protocol 6.12)."""

    address: str
    position: int
    last: bool
    payload: bytes


@dataclass(slots=True)
class Taken:
    """So many bytes of it have been sent to all subscriptions here that have to accept it (protocol 6.12)."""

    address: str
    position: int
    size: int


@dataclass(slots=True)
class Again:
    """A subscription needs a large delivery again, of which no router has the payload (protocol 6.12)."""

    address: str
    publisher: bytes
    term: Term


@dataclass(slots=True)
class Turn:
    """A router wants to send a large delivery to the address, or has come to its end; given: it is its turn
    (protocol 6.12)."""

    address: str
    wanted: bool
    given: bool


@dataclass(slots=True)
class AcceptSync:
    """Tokens of one subscription's SYNC entries are answered (protocol 6.3)."""

    address: str
    name: SubscriptionName
    term: Term
    ranges: list[Rejection]


@dataclass(slots=True)
class SettleTags:
    """The publisher will not send these expected tags again (protocol 6.6)."""

    address: str
    publisher: bytes
    term: Term
    tags: list[bytes]


@dataclass(slots=True)
class Note:
    """The data of a subscription that is attached at the sender has changed (protocol 7.10)."""

    address: str
    name: SubscriptionName
    term: Term
    data: bytes


@dataclass(slots=True)
class Finish:
    """Asks for an answer once everything before it has been done (protocol 6.11, 7.10). `settled`: and what it settled
    has been forgotten by the clients, too, whose maps routers keep."""

    address: str
    number: int
    settled: bool


@dataclass(slots=True)
class Finished:
    """Answers a FINISH."""

    address: str
    number: int
    settled: bool


KeptItem = tuple[bytes, int, int]
"""A delivery in a map that routers keep: tag, MapState, identifier (0: the client holds none)."""


@dataclass(slots=True)
class Recall:
    """Asks for the map that is kept for a subscription, which attaches at the sender (protocol 7.9)."""

    address: str
    name: SubscriptionName
    term: Term


@dataclass(slots=True)
class Recalled:
    """Answers a RECALL. `kept_term`: of the latest KEEP, with its number; None: nothing is kept."""

    address: str
    name: SubscriptionName
    term: Term
    kept_term: Term | None
    number: int
    items: list[KeptItem]


@dataclass(slots=True)
class Keep:
    """What has changed in the map of a client of the sender. `whole`: all of it, nothing from before counts
    (protocol 7.9)."""

    address: str
    name: SubscriptionName
    term: Term
    number: int
    whole: bool
    items: list[KeptItem]
    gone: list[bytes]


@dataclass(slots=True)
class Kept:
    """Answers a KEEP."""

    address: str
    name: SubscriptionName
    term: Term
    number: int


class Why(IntFlag):
    """Why a consumer of a queue gives a delivery back (protocol 16.5)."""

    RELEASED = 0
    FAILED = 1  # counts towards max_redeliveries
    ELSEWHERE = 2  # the same consumer does not get it again
    UNSENT = 4  # it had no credit left: the round is over
    TOO_LARGE = 8  # with ELSEWHERE: for its link


@dataclass(slots=True)
class Credit:
    """A consumer of a queue takes so many deliveries from the receiving ingress, in all since the round began
    (protocol 16.3)."""

    address: str
    name: SubscriptionName
    term: Term
    round: int
    limit: int


@dataclass(slots=True)
class Stopped:
    """The ingress has read that a round is over: it assigns nothing to the consumer before the next one
    (protocol 16.3)."""

    address: str
    name: SubscriptionName
    term: Term
    round: int


@dataclass(slots=True)
class Assign:
    """These deliveries are one consumer's (protocol 16.3). `held`: only if it holds them already. `failures`: how many
    consumers have failed with them. The fields that DATA has mean the same."""

    address: str
    publisher: bytes
    term: Term
    name: SubscriptionName
    subscription_term: Term
    round: int
    held: bool
    failures: int
    position: int
    message_format: int
    tags: list[bytes]
    payloads: list[bytes]


@dataclass(slots=True)
class Return:
    """A consumer gives deliveries back: positions and `Why` (protocol 16.5). `round`: with UNSENT, the one that is
    over."""

    address: str
    name: SubscriptionName
    term: Term
    round: int
    ranges: list[Rejection]


@dataclass(slots=True)
class Hold:
    """A consumer holds these deliveries of a publisher, and no others unless it is unproven, and does not take those
    that it has declined (protocol 16.4, 16.8)."""

    address: str
    publisher: bytes
    term: Term
    name: SubscriptionName
    subscription_term: Term
    tags: list[bytes]
    declined: list[bytes]
    unproven: bool


MOST_REASON: Final = 1024
"""Bytes of a REASON."""


@dataclass(slots=True)
class Reason:
    """Why a subscription does not take these: read by links only (protocol 6.4.9)."""

    address: str
    ranges: list[Range]
    why: bytes


@dataclass(slots=True)
class Browse:
    """A browser attached at the sender wants to see what waits here, from that position on (protocol 16.11)."""

    address: str
    number: int
    position: int
    most: int


@dataclass(slots=True)
class Browsed:
    """Answers a BROWSE. `position`: from where to go on. `last`: nothing more waits."""

    address: str
    number: int
    position: int
    last: bool
    message_format: int
    tags: list[bytes]
    payloads: list[bytes]


@dataclass(slots=True)
class Ask:
    """What a client of the sender asks the management node here: an encoded AMQP message (protocol 3.4.5)."""

    number: int
    user: str
    groups: list[str]
    request: bytes


@dataclass(slots=True)
class Answer:
    """Answers an ASK, with an encoded AMQP message."""

    number: int
    answer: bytes


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
    | Note
    | Finish
    | Finished
    | Recall
    | Recalled
    | Keep
    | Kept
    | Credit
    | Stopped
    | Assign
    | Return
    | Hold
    | Reason
    | Browse
    | Browsed
    | Part
    | Taken
    | Again
    | Turn
    | Told
)
RouterMessage = Draining | Call | Called
Message = Hello | Queues | Suspected | Clock | RouterMessage | Ask | Answer | AddressMessage


def since(cls: type[Message]) -> int:
    """Returns the version of the wire between routers that has this message first (docs/wire-routers.md, Versions)."""
    version: int = getattr(cls, "since", FIRST)
    return version


Handlers = dict[type[AddressMessage], Callable[[str, Any], None]]
"""What each part of an address does on a message: sender and message."""
