"""What one session publishes to one address: the core's CompletionPort, with packet identifiers in place of tags.

QoS 2 of a session that may go on at another router has the tag (incarnation of the session, packet identifier): a
repeat is recognised wherever the client sends it, and PUBCOMP waits until nobody holds that tag (protocol 6.11). QoS 1
has a tag of its own for each PUBLISH; its repeat is a new delivery. QoS 0 is a settled transfer. What outcomes mean to
the client is in `router.mqtt.incoming`, which has the identifiers. A port lives on when its client has gone, until all
that it has taken has an outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mqtt import Publish
from router.core.ports import UNIQUE_TAGS, Outcome, PublisherAttach, Term, Waiting

if TYPE_CHECKING:
    from router.mqtt.incoming import Incoming, IncomingMessages

LINK: Final = "mqtt"
"""The link name of the subscriptions of MQTT sessions, and of the publisher in messages. The container-id is the client
identifier."""


MOST_UNACKNOWLEDGED: Final = 1_000
"""Messages of a session that wait to be retained, above which its QoS 0 is dropped."""


def name_of(incarnation: int) -> str:
    """Returns the link name of a session's publishers."""
    return f"{LINK}-{incarnation}"


def name_of_will(incarnation: int, epoch: int) -> str:
    """Returns the link name of what publishes the will of a session that has gone on elsewhere: there its publishers
    have the name that they had here."""
    return f"{LINK}-{incarnation}-will-{epoch}"


class MqttPublisher:
    """One address's."""

    __slots__ = (
        "asked", "attach", "completing", "detached", "incoming", "messages", "next_id", "session", "settled", "retains",
    )  # fmt: skip

    def __init__(self, messages: IncomingMessages, address: str, name: str = "") -> None:
        """name: of a link that no other router goes on with; without one it is the session's."""
        self.messages = messages
        session = self.session = messages.session
        # Each session is a publisher of its own: what an earlier one has left is over when that one is, whether or not
        # its client publishes again.
        self.attach = PublisherAttach(
            session.container,
            name or name_of(session.incarnation),
            address,
            unsettled=UNIQUE_TAGS,
            wants_completion=session.persists and not name,
        )
        topics = session.service.topics
        self.retains = address == topics.retained
        self.next_id = 0
        self.incoming: dict[int, Incoming] = {}  # by delivery-id
        self.completing: dict[int, Incoming] = {}  # settled, with a tag that may come again; by delivery-id
        self.settled: list[tuple[int, int]] = []  # delivery-ids that the core is to be told of
        self.detached = False
        self.asked = False  # the core wants evidence that the publisher is here

    # --- for the session

    def publish(self, packets: list[Publish], payloads: list[bytes], now: float) -> None:
        """Sends application messages of one address, all of QoS 0 or none; those with an identifier are entered in the
        session. payloads: of the transfers that stand for them."""
        session = self.session
        if self.retains and packets[0].qos == 0:  # nothing comes settled there: it is bounded here
            room = max(MOST_UNACKNOWLEDGED - len(self.incoming), 0)
            packets, payloads = packets[:room], payloads[:room]
            if not packets:
                return
        first_id, settled = self.next_id, packets[0].qos == 0 and not self.retains
        self.next_id += len(packets)
        tags: list[bytes] = []
        for i, each in enumerate(packets):
            tags.append(self.messages.tag_of(each))
            if not settled:
                self.incoming[first_id + i] = self.messages.enter(self, first_id + i, each)
        session.core.transfers(self, first_id, tags, payloads, settled, 0, now)

    def settle(self, one: Incoming) -> None:
        """The client gives it up. `completed` follows where its tag may come again."""
        self.incoming.pop(one.delivery_id, None)
        if one.qos == 2 and one.packet_id and self.attach.wants_completion:
            self.completing[one.delivery_id] = one
        settled = self.settled
        if settled and settled[-1][1] == one.delivery_id - 1:
            settled[-1] = settled[-1][0], one.delivery_id
        else:
            settled.append((one.delivery_id, one.delivery_id))
        self.session.service.to_flush(self)

    def flush(self, now: float) -> None:
        """Tells the core what is settled."""
        settled, self.settled = self.settled, []
        if self.detached:
            return
        for first, last in settled:
            self.session.core.publisher_settled(self, first, last, now)
        if self.asked and not self.attach.wants_completion:  # no other router ever has a publisher of this name
            self.answered(now)

    def answered(self, now: float) -> None:
        """The client has answered the question."""
        if self.asked and not self.detached:
            self.asked = False
            self.session.core.question_answered(self, now)

    def leave(self, now: float, *, closed: bool = True) -> None:
        """Detaches; closed: nothing of it goes on elsewhere."""
        if not self.detached:
            self.flush(now)
            self.detached = True
            self.session.core.detach_publisher(self, closed, now)

    @property
    def undecided(self) -> bool:
        return not all(one.decided for one in self.incoming.values())

    # --- CompletionPort: what the core says

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None:
        """What the client publishes is its sign of life: the port attaches when there is something."""

    def ready(self) -> None:
        """MQTT has no credit; what came before is held by the core."""

    def set_window(self, messages: int, size: int, reason: str) -> int:
        """The receive maximum bounds what comes of QoS 1 and 2, and the memory limit ends who goes beyond it."""
        return 0

    def waiting(self, waiting: Waiting | None) -> None:
        """MQTT has no way to say it."""

    def ask(self) -> None:
        self.asked = True
        if self.attach.wants_completion:
            self.messages.ask()
        else:
            self.session.service.to_flush(self)

    def completed(self, first_id: int, last_id: int) -> None:
        for delivery_id in range(first_id, last_id + 1):
            one = self.completing.pop(delivery_id, None)
            if one is not None:
                self.messages.complete(one)

    def tag_completed(self, tag: bytes) -> None:
        self.messages.tag_complete(tag, self.attach.address)

    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None:
        for delivery_id in range(first_id, last_id + 1):
            one = self.incoming.get(delivery_id)
            if one is not None and not one.decided:
                self.messages.published(one, outcome, rejected, why)

    def answer_map_part(self) -> None:
        raise AssertionError("there are no maps in parts here")

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None:
        self.detach(condition, description, info, True)

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None:
        self.detached = True
        self.session.publisher_lost(self, condition, description)
