"""What the protocol core and the links say to each other: the ports, and what an attach brings.

A port is one attached (or attaching) link as the core sees it. The links (`router.links.publisher_link`,
`router.links.subscriber_link`) implement it over the AMQP engine, tests over lists. The core calls a port only inside a
handler that the links, a peer's message, `tick` or `flush` have called, and never after it has refused or detached it,
or has been told that it is detached. A port is its own identity: it is compared with `is`, and hashed by `id`.

The links know AMQP: modes, credit, echo, maps on the wire, conditions of their own. The core knows publishers,
subscriptions, terms and tags. Delivery-ids are the engine's unwrapped ones. A tag is the client's own towards a
publisher, and the outgoing tag towards a subscriber (protocol 1.7). Read `router.core.core` next.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Literal, NamedTuple, Protocol

from router.core.irregular import Entered
from router.names import FAILED_TOO_OFTEN, MESSAGE_SIZE_EXCEEDED, WaitingReason

Term = tuple[int, str]
"""Orders attachments: (microseconds or a client's epoch, router name or ""), on the wire [ulong, string]
(protocol 1.4)."""

ExpiryPolicy = Literal["link-detach", "session-end", "connection-close", "never"]


MOST_DATA: Final = 0xFFFF
"""Bytes of `SubscriberAttach.data`."""

NEVER_EXPIRES_S: Final = float(0xFFFFFFFF)
"""The timeout that a declared subscription is granted: the largest that AMQP can say (protocol 7.8)."""


class Outcome(IntEnum):
    """A delivery's terminal state, as far as the protocol tells states apart (protocol 6.4)."""

    ACCEPTED = 1
    REJECTED = 2  # also modified with undeliverable-here
    RELEASED = 3  # also modified without delivery-failed and undeliverable-here
    FAILED = 4  # modified with delivery-failed, without undeliverable-here: counts towards max_redeliveries
    ELSEWHERE = 5  # of a queue: modified with undeliverable-here
    FAILED_ELSEWHERE = 6  # of a queue: modified with both


# An Enum of Python 3.11 looks a member up by several calls.
ACCEPTED: Final = Outcome.ACCEPTED
REJECTED: Final = Outcome.REJECTED
RELEASED: Final = Outcome.RELEASED
FAILED: Final = Outcome.FAILED


@dataclass(frozen=True)
class Refusal:
    """A router rejects a delivery in a subscription's stead, and why: as an error of AMQP (protocol 6.4.9)."""

    condition: str
    description: str


class MapState(IntEnum):
    """What a subscriber's unsettled map says of one delivery (protocol 7.2, 7.6, 15)."""

    UNDECIDED = 0  # null: complete, and no outcome yet
    RECEIVED = 1  # received: payload is needed
    ACCEPTED = 2
    REJECTED = 3
    RELEASED = 4  # also modified: delivered again as new


class UniqueTags:
    """In place of an unsettled map: `onceway:unique-tags` = true."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNIQUE_TAGS"


UNIQUE_TAGS: Final = UniqueTags()


@dataclass(slots=True)
class PublisherAttach:
    """A sending client's attach, taken apart.

    `unsettled` is its map (tag -> the outcome that it has been told, if any), None, or unique tags. `incomplete`: it is
    a part of a map (protocol 7.7).
    """

    container: str
    name: str
    address: str
    epoch: int | None = None
    incarnation: int | None = None
    unsettled: Mapping[bytes, Outcome | None] | UniqueTags | None = None
    incomplete: bool = False
    mode_first: bool = False  # rcv-settle-mode first was negotiated
    unsettled_window: int | None = None  # of its user; None: the network's
    wants_completion: bool = False  # the port is a CompletionPort
    term: Term | None = None  # of a feed: its publisher's (protocol 16.12)
    makes_node: bool = False  # the address is a dynamic target's, just made
    connection: int | None = None  # where it was read: the number of its connection, in the order of their beginnings


@dataclass(slots=True)
class SubscriberAttach:
    """A receiving client's attach, taken apart."""

    container: str
    name: str
    address: str
    epoch: int | None = None
    born: int | None = None
    only_new: int | None = None  # refused where there is a subscription of this name that is older
    only_in_time: bool = False  # its client is told when its wait was over, whether or not it has missed anything
    unsettled: Mapping[bytes, MapState] | None = None
    entered: Entered | None = None  # the same, as it is entered; None: that is not made yet
    incomplete: bool = False
    timeout_s: float = 0.0  # of the source; the core grants min(it, subscription_timeout)
    expiry_policy: ExpiryPolicy = "session-end"
    mode_first: bool = False  # rcv-settle-mode first was negotiated
    settled_mode: bool = False  # snd-settle-mode settled was negotiated
    selection: Selection | None = None  # None: everything
    most_bytes: int = 0  # of a large delivery, or of a message of a queue; 0: any size
    data: bytes = b""  # of whoever attaches it, at most MOST_DATA; all routers know it (protocol 7.10)
    browses: bool = False  # it only sees what waits in a queue: it is no subscription
    takes_parts: bool = False  # the port is a PartsPort
    keeps_map: bool = False  # routers keep its unsettled map, as its client presents none; the port is a KeptMapPort


@dataclass(slots=True)
class SubscriberAnswer:
    """What the answering attach of a subscription says (protocol 7.6)."""

    term: Term
    listing: dict[bytes, MapState] | None  # None: no map was presented, ours is null; else in order of resumption
    resumed: bool  # onceway:resumed
    marks: list[Term] = field(default_factory=list)  # onceway:marks, sorted
    timeout_s: float = 0.0  # granted
    expiry_policy: ExpiryPolicy = "session-end"
    identifiers: dict[int, tuple[bytes, bool]] = field(default_factory=dict)  # of a map that routers keep


class Part(NamedTuple):
    """One part of a large delivery, as its publisher sends it (protocol 6.12)."""

    delivery_id: int
    tag: bytes
    payload: bytes
    first: bool
    last: bool
    aborted: bool


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a publisher has no credit, or no outcome.

    Attributes:
        reason: One of `router.names.WaitingReason`.
        count: How many subscriptions hold what it has sent.
        subscriptions: The first of them: container-id, link name, router ("" while it is away).
        seconds: How long it may take at most, where that is known.
        setting: The setting that these seconds come from.
    """

    reason: WaitingReason
    count: int = 0
    subscriptions: tuple[tuple[str, str, str], ...] = ()
    seconds: float | None = None
    setting: str = ""

    def is_like(self, other: Waiting | None) -> bool:
        """Says whether only the time has gone on."""
        return other is not None and (self.reason, self.subscriptions, self.setting) == (
            other.reason,
            other.subscriptions,
            other.setting,
        )

    def status(self) -> dict[str, object]:
        return {
            "reason": self.reason,
            "count": self.count,
            "subscriptions": [list(each) for each in self.subscriptions],
            "seconds": self.seconds,
            "setting": self.setting,
        }


class KnownSubscription(NamedTuple):
    """What any router knows of a subscription (protocol 2.2). `home`: None while it is an orphan."""

    address: str
    name: str
    data: bytes
    born: Term | None
    home: str | None


class KeptMapPort(Protocol):
    """The link of a subscription whose unsettled map routers keep: MQTT with QoS 2 (protocol 7.9).

    Its deliveries are named by their outgoing tags. The port gives each an identifier, which the router that keeps the
    map knows before the client sees it. So a successor sends it under the same one, and knows which ones are taken.
    The port says `core.received` at PUBREC, and `core.released` at PUBCOMP.
    """

    def capacity(self) -> int:
        """Returns how many deliveries may be given identifiers now: those that are sent later count already."""

    def link_credit(self) -> int:
        """Returns how many deliveries of a queue the client may be assigned, with those that wait for it here."""

    def answer(self, answer: SubscriberAnswer) -> int:
        """Answers the attach. `answer.identifiers` are in use: of each, the tag and whether it is accepted. Those that
        are get PUBREL now; the others come again by `publish`, repeated, or by `release`. Returns how many there
        are."""

    def identify(self, tags: list[bytes], payloads: list[bytes], message_format: int) -> list[int]:
        """Gives each delivery a free identifier, which is in use from now on; 0: it needs none (QoS 0 and 1, or the
        client does not get it). They are sent by `publish`, in this order, or are forgotten."""

    def publish(self, tags: list[bytes], payloads: list[bytes], message_format: int, repeated: bool) -> None:
        """Sends deliveries. repeated: under the identifier of `answer`, with DUP."""

    def publish_settled(self, payloads: list[bytes], message_format: int) -> None:
        """Sends messages that were published settled: without identifiers, and nothing is said of them (QoS 0)."""

    def release(self, tag: bytes) -> None:
        """What the client has received is on record: sends PUBREL, or notes that none is needed (QoS 0 and 1, or after
        a PUBREC with an error)."""

    def forget(self, tag: bytes) -> None:
        """This delivery is not sent after all: its identifier is free."""

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        """As for a SubscriberPort."""

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        """As for a SubscriberPort."""


Unwanted = tuple[int, int, Literal[Outcome.ACCEPTED] | Refusal]
"""From an index to the one behind the last, and what counts as its outcome for each."""


def too_large(most: int) -> Refusal:
    """most: octets."""
    return Refusal(MESSAGE_SIZE_EXCEEDED, f"larger than the {most:,} octets that the subscription takes")


def too_large_for_all(size: int) -> Refusal:
    """size: octets of the message, as consumers would get it."""
    return Refusal(MESSAGE_SIZE_EXCEEDED, f"no consumer of the queue takes its {size:,} octets")


def failed_too_often(most: int) -> Refusal:
    return Refusal(FAILED_TOO_OFTEN, f"the subscription has failed with it once more than max_redeliveries = {most}")


class Needs(NamedTuple):
    """A property, and the value that a message must have of it to be wanted."""

    name: str
    value: str | bytes


Places = dict[Needs, list[int]]
"""A value of a property -> the indexes of the messages that have it, ascending."""


class Selection(Protocol):
    """What a subscription gets of an address, by its filters and the size that it can take (protocol 6.4.5, 6.4.7)."""

    needs: Needs | None
    """Holds of messages of format 0. None: any message may be wanted."""

    def places(self, payloads: Sequence[bytes], names: Container[str]) -> Places | None:
        """Returns which values these messages of format 0 have of these properties. It is the same of all selections:
        one call finds who may want a message, of any number of subscriptions. None: it cannot be said."""

    def unwanted(self, payloads: Sequence[bytes], message_format: int) -> list[Unwanted]:
        """Returns the indexes of those that it does not get, ascending. The same message has the same answer for as
        long as the subscription is attached."""


class BrowserPort(Protocol):
    """A link that sees what waits in a queue, from the core's side (protocol 16.11)."""

    def room(self) -> int:
        """Returns how many messages it can be shown now."""

    def show(self, tags: list[bytes], payloads: list[bytes], message_format: int) -> None:
        """Shows messages, no more than there was room for."""

    def send_waiting(self) -> None:
        """There may be room again."""

    def seen_all(self) -> None:
        """All routers have shown what waits."""


class PublisherPort(Protocol):
    """A publisher's link, from the core's side (the router receives)."""

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        """Answers the attach, with an empty map and `onceway:incarnation` where it is given (protocol 5.1).

        `set_window` follows. With credit False the link sends a flow with echo and without credit, whatever the window,
        until `ready`. From here on it watches for the sign of life (protocol 5.2) and calls `core.proved` once.
        """

    def ready(self) -> None:
        """The claim is complete (protocol 5.4): there is credit by the window from now on, also where it was
        withheld."""

    def set_window(self, messages: int, size: int, reason: str) -> int:
        """Says what may still come from now on: messages, and bytes of payload (protocol 6.8).

        0 messages: no credit; `reason` says why for the status page ("" when there is room). The link turns it into
        credit, and returns how many messages that lets come; 0: it wants to be told of each change.
        """

    def waiting(self, waiting: Waiting | None) -> None:
        """Says why there has been no credit for some seconds; None: there is again, after it was told."""

    def ask(self) -> None:
        """Asks a question: one more credit, whatever the window, with echo (protocol 5.7).

        When the link sees the answer it calls `core.question_answered`. No other question is asked before that.
        """

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        """Tells the outcome of the deliveries first..last (protocol 6.5).

        REJECTED: `rejected` is how many subscriptions did, for the error's info map, and `why` what the last has said.
        settled: they are forgotten here already, as the link is in rcv-settle-mode first.
        """

    def answer_map_part(self) -> None:
        """Answers this part of a map with an empty one, then detaches, closed false (protocol 7.7). The port is gone
        then."""

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        """Attaches with a null target, then detaches closed with the error (protocol 5.3). The port is gone then."""

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        """Detaches an answered link with the error (protocol 5.3). The port is gone then."""


class CompletionPort(PublisherPort, Protocol):
    """A publisher's link that uses a delivery-tag again for another message: MQTT with QoS 2 (protocol 6.11)."""

    def completed(self, first_id: int, last_id: int) -> None:
        """Nobody holds the tags of these deliveries any more, which it has settled: they may be used again."""

    def tag_completed(self, tag: bytes) -> None:
        """The same of a tag that was settled by `core.publisher_settled_tag`."""


class SendingPartsPort(PublisherPort, Protocol):
    """A publisher's link that hands on large deliveries in parts, by `core.part` (protocol 6.12)."""

    def hold_back(self, held: bool) -> None:
        """Renews the session's incoming window no more, or again."""


class SubscriberPort(Protocol):
    """A subscription's link, from the core's side (the router sends)."""

    def capacity(self) -> int:
        """Returns how many transfers can be written now: the least of credit and the session's window."""

    def link_credit(self) -> int:
        """Returns the link's credit, whatever the session's window."""

    def answer(self, answer: SubscriberAnswer) -> int:
        """Answers the attach (protocol 7.6). Returns how many entries of the listing were told.

        Fewer than all: the answer is flagged incomplete (protocol 7.7), and the core resumes these, and sends nothing
        new while the rest has no outcome.
        """

    def send(
        self,
        tags: list[bytes],
        payloads: list[bytes],
        message_format: int,
        settled: bool,
        position: int,
        cache: dict[object, object],
    ) -> int:
        """Sends new deliveries, at most `capacity()` of them. Returns the first delivery-id; the others follow it.

        `position` is that of the first in this address's arrival log. Equal lists at equal positions come for every
        subscriber of one batch with one `cache`, in which encodings can be shared.
        """

    def resume(self, tag: bytes, state: MapState, payload: bytes | None, message_format: int, settled: bool) -> int:
        """Sends a transfer with resume = true: without payload, or with the one that was missing (protocol 7.6).
        Returns its delivery-id."""

    def redeliver(self, tag: bytes, payload: bytes, message_format: int, delivery_count: int) -> int:
        """Sends a delivery again after a release, as an ordinary transfer with `delivery_count` added to its header's
        (protocol 6.4). The old one has been settled by `settle`. Returns its delivery-id."""

    def expired(self, payloads: list[bytes], message_format: int) -> list[int]:
        """Returns the indexes of those whose time is over. It is asked where the address says `expire` (protocol
        6.4)."""

    def settle(self, first_id: int, last_id: int, at_once: bool = False) -> None:
        """Sends a disposition with settled = true for these deliveries (protocol 10.1). at_once: it is written before
        anything else, as their tags may come again."""

    def answer_map_part(self) -> None:
        """Answers this part of a map, then detaches, closed false (protocol 7.7). The port is gone then."""

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        """Attaches with a null source, then detaches closed with the error (protocol 5.3). The port is gone then."""

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        """Detaches an answered link with the error (protocol 5.3). The port is gone then."""


class PartsPort(SubscriberPort, Protocol):
    """A subscription's link that takes a large delivery in parts (protocol 6.12)."""

    def bare_at(self, payload: bytes) -> int:
        """Returns where in it the bare message begins, which is the publisher's own (AMQP 3.2)."""

    def begin(
        self, tag: bytes, head: bytes, message_format: int, settled: bool, state: MapState | None, failures: int
    ) -> tuple[int, int]:
        """Begins a delivery, where there is capacity: with resume = true if there is a state. failures: as
        `redeliver`'s delivery_count. Returns its delivery-id, and how much of the head it has written, or put another
        header in the place of. Until `add` ends it, or `abort`, `capacity` is 0."""

    def part_capacity(self) -> int:
        """Returns how many bytes of it can be written now."""

    def add(self, payload: bytes, *, more: bool) -> None:
        """Writes its next bytes, at most `part_capacity()` of them; without more its last ones, and maybe none."""

    def abort(self) -> None:
        """It is void, and settled at both sides (AMQP 2.6.14)."""
