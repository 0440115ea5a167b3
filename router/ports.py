"""What the protocol core and the links say to each other: the ports, and what an attach brings.

A port is one attached (or attaching) link as the core sees it.  The links (`router.publisher_link`,
`router.subscriber_link`) implement it over the AMQP engine, tests over lists.  The core calls a port only inside a
handler that the links (or a peer's message, or `tick` and `flush`) have called, and never after it has refused or
detached it, or has been told that it is detached.  A port is its own identity: it is compared with `is`, and hashed
by `id`.

The adapter knows AMQP: modes, credit, echo, maps on the wire, conditions of its own.  The core knows publishers,
subscriptions, terms and tags.  Delivery-ids are the engine's unwrapped ones; a tag is the client's own towards a
publisher, the outgoing tag (PROTOCOL 1) towards a subscriber.  Read `router.core` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal, Protocol

Term = tuple[int, str]
"""PROTOCOL 1: orders attachments; (microseconds or a client's epoch, router name or ""). Wire: [ulong, string]."""

ExpiryPolicy = Literal["link-detach", "session-end", "connection-close", "never"]


class Outcome(IntEnum):
    """A delivery's terminal state, as far as the protocol tells states apart (PROTOCOL 6.4)."""

    ACCEPTED = 1
    REJECTED = 2  # also modified with undeliverable-here
    RELEASED = 3  # also modified without undeliverable-here


class MapState(IntEnum):
    """What a subscriber's unsettled map says of one delivery (PROTOCOL 7.2, 7.6, 15)."""

    UNDECIDED = 0  # null: complete, and no outcome yet
    RECEIVED = 1  # received: payload is needed
    ACCEPTED = 2
    REJECTED = 3
    RELEASED = 4  # also modified: comes again as new


class UniqueTags:
    """In place of an unsettled map: `onceway:unique-tags` = true."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNIQUE_TAGS"


UNIQUE_TAGS: Final = UniqueTags()

# Conditions of the detaches and refusals that the core asks for.
STOLEN: Final = "amqp:link:stolen"
PUBLISHER_UNKNOWN: Final = "onceway:publisher-unknown"
PUBLISHER_EXPIRED: Final = "onceway:publisher-expired"
ATTACH_AGAIN: Final = "amqp:link:detach-forced"
SUBSCRIPTION_BROKEN: Final = "onceway:subscription-broken"
TAG_REPEATED: Final = "amqp:not-allowed"
NOT_RESUMABLE: Final = "amqp:invalid-field"

EPOCH: Final = "onceway:epoch"  # key of the info map of STOLEN: what the next epoch has to be above


@dataclass(slots=True)
class PublisherAttach:
    """A sending client's attach, taken apart.  `unsettled`: its map (tag -> has it an outcome already), None, or unique
    tags.  `incomplete`: a part of a map, PROTOCOL 7.7 (only with an epoch; the adapter refuses others)."""

    container: str
    name: str
    address: str
    epoch: int | None = None
    incarnation: int | None = None
    unsettled: Mapping[bytes, Outcome | None] | UniqueTags | None = None
    incomplete: bool = False
    mode_first: bool = False  # rcv-settle-mode negotiated: first
    unsettled_window: int | None = None  # of its user; None: the network's


@dataclass(slots=True)
class SubscriberAttach:
    """A receiving client's attach, taken apart."""

    container: str
    name: str
    address: str
    epoch: int | None = None
    born: int | None = None
    unsettled: Mapping[bytes, MapState] | None = None
    incomplete: bool = False
    timeout_s: float = 0.0  # of the source; the core grants min(it, subscription_timeout)
    expiry_policy: ExpiryPolicy = "session-end"
    mode_first: bool = False  # rcv-settle-mode negotiated: first
    settled_mode: bool = False  # snd-settle-mode negotiated: settled


@dataclass(slots=True)
class SubscriberAnswer:
    """What the answering attach of a subscription says (PROTOCOL 7.6)."""

    term: Term
    listing: dict[bytes, MapState] | None  # None: no map was presented, ours is null; else in order of resumption
    resumed: bool  # onceway:resumed
    marks: list[Term] = field(default_factory=list)  # onceway:marks, sorted
    timeout_s: float = 0.0  # granted
    expiry_policy: ExpiryPolicy = "session-end"


class PublisherPort(Protocol):
    """A publisher's link, from the core's side (the router receives)."""

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        """Phase one (PROTOCOL 5.1): answer the attach, with an empty map and `onceway:incarnation` where it is given.
        `set_window` follows.  With credit False: a flow with echo and without credit, whatever the window, until
        `ready`.  From here on the adapter watches for the sign of life (5.2) and calls `core.proved` once."""

    def ready(self) -> None:
        """Phase two is complete (5.4): credit by the window from now on, also where it was withheld."""

    def set_window(self, messages: int, size: int, reason: str) -> None:
        """What may still come from now on: messages, and bytes of payload (6.8); 0 messages: no credit, `reason` says
        why for the status page ("" when there is room).  The adapter turns it into credit.  Called when it changed."""

    def ask(self) -> None:
        """The question of PROTOCOL 5.7: one more credit (nothing less, whatever the window), with echo.  When the
        adapter sees its answer it calls `core.answered`.  Never asked again before that."""

    def outcome(self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool) -> None:
        """The outcome of the deliveries first..last.  REJECTED: `rejected` is how many subscriptions did, for the
        error's info map.  settled: forgotten here already (mode first)."""

    def part(self) -> None:
        """PROTOCOL 7.7: answer this part of a map (empty map), then detach, closed false.  The port is gone then."""

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        """Attach with a null target, then detach closed with the error (5.3).  The port is gone then."""

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        """Detach an answered link with the error.  The port is gone then."""


class SubscriberPort(Protocol):
    """A subscription's link, from the core's side (the router sends)."""

    def capacity(self) -> int:
        """How many transfers can be written now: min(credit, the session's window)."""

    def answer(self, answer: SubscriberAnswer) -> int:
        """Answer the attach (7.6).  Returns how many entries of the listing were told: fewer than all means that the
        answer is flagged incomplete (7.7); the core resumes these, and nothing new while the rest needs a verdict."""

    def send(
        self,
        tags: list[bytes],
        payloads: list[bytes],
        message_format: int,
        settled: bool,
        position: int,
        cache: dict[object, object],
    ) -> int:
        """New deliveries, at most `capacity()` of them.  Returns the first delivery-id; the others follow it.
        `position`: of the first in this address's arrival log; equal lists at equal positions come for every subscriber
        of one batch with one `cache` (an id hint, and the key for shared encodings)."""

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        """A transfer with resume = true (7.6): no payload, or the one that was missing.  Returns its delivery-id."""

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        """The same delivery again after a release (6.4), as an ordinary transfer with `delivery_count` in its header;
        the old one has been settled by `settle`.  Returns its delivery-id."""

    def settle(self, first_id: int, last_id: int) -> None:
        """A disposition with settled = true for these deliveries."""

    def part(self) -> None:
        """PROTOCOL 7.7: answer this part of a map, then detach, closed false.  The port is gone then."""

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        """Attach with a null source, then detach closed with the error (5.3).  The port is gone then."""

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        """Detach an answered link with the error.  The port is gone then."""
