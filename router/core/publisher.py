"""One publisher attached here: what its ingress keeps of it (protocol 2.3). The rules are in `router.core.ingress`.

Whoever has a publisher asks its ingress and its records by what is declared of them here: `BaseIngress`, `BaseRecords`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.core.directory import SubscriptionEntry
from router.core.intervals import IntervalSet, Range
from router.core.log import Run, RunList, Segments
from router.core.messages import SubscriptionName
from router.core.naming import PREFIX
from router.core.ports import Outcome, Part, PublisherAttach, PublisherPort, Term, UniqueTags, Waiting
from router.core.publisher_handshake import DROPPED, FORWARDING, READY, Handshake, Input
from router.core.repeated_tags import UsedTags

NO_SUBSCRIBERS: Final = "no subscribers"
FLUSH: Final = None
"""Stands in `Publisher.needs_question` for the flush (protocol 8.5), beside the names of subscriptions."""


class IngressRun(Run):
    """Positions of one publisher whose delivery-ids rise with them."""

    __slots__ = ("first_id", "message_format", "publisher")

    def __init__(self, start: int, stop: int, publisher: Publisher, first_id: int, message_format: int) -> None:
        super().__init__(start, stop)
        self.publisher = publisher
        self.first_id = first_id
        self.message_format = message_format


class Batch:
    """Complete deliveries with consecutive ids (protocol 6.1), or the first part of a large one (protocol 6.12)."""

    __slots__ = ("begins", "first_id", "message_format", "payloads", "settled", "tags")

    def __init__(
        self,
        first_id: int,
        tags: list[bytes],
        payloads: list[bytes],
        settled: bool,
        message_format: int,
        begins: bool = False,
    ) -> None:
        self.first_id = first_id
        self.tags = tags  # the publisher's own; `Records.take` puts the outgoing ones here
        self.payloads = payloads
        self.settled = settled
        self.message_format = message_format
        self.begins = begins

    def without(self, first: int, last: int) -> list[Batch]:
        """What is left of it without these deliveries; all of it if it is pre-settled."""
        low, high = max(first - self.first_id, 0), min(last + 1 - self.first_id, len(self.tags))
        if self.settled or low >= high:
            return [self]
        return [
            Batch(self.first_id + a, self.tags[a:b], self.payloads[a:b], False, self.message_format)
            for a, b in ((0, low), (high, len(self.tags)))
            if a < b
        ]


class BaseRecords:
    """The records of one address (`router.core.records`), as lower modules know them."""

    def __init__(self, first_position: int) -> None:
        self.log = Segments(first_position)
        self.undone = IntervalSet()

    def publisher_settled(self, publisher: Publisher, first: int, last: int) -> None: ...
    def completed(self, publisher: Publisher, tags: list[bytes]) -> None: ...
    def check(self, ranges: list[Range]) -> None: ...
    def note_rejected(self, ranges: list[Range], rejected: int, why: bytes) -> None: ...


class BaseIngress:
    """The ingress of one address (`router.core.ingress`), as lower modules know it."""

    def __init__(self, subscriptions: dict[SubscriptionName, SubscriptionEntry]) -> None:
        self.subscriptions = subscriptions  # known in the network

    def receive(self, publisher: Publisher, what: Input) -> None: ...
    def ask_again(self, publisher: Publisher) -> None: ...
    def wants_proof(self, publisher: Publisher) -> None: ...
    def take_turn(self, publisher: Publisher) -> None: ...
    def drop(self, publisher: Publisher, epoch: int) -> None: ...
    def forget(self, publisher_id: bytes, incarnation: int) -> None: ...
    def proved(self, publisher: Publisher) -> None: ...
    def ask(self, publisher: Publisher) -> None: ...
    def question_answered(self, publisher: Publisher) -> None: ...
    def called(self, publisher: Publisher, number: int) -> None: ...
    def vouching_changed(self, publisher: Publisher) -> None: ...
    def transfers(self, publisher: Publisher, batch: Batch) -> None: ...
    def part(self, publisher: Publisher, part: Part) -> None: ...
    def settled_tag(self, publisher: Publisher, tag: bytes) -> None: ...
    def tell_window(self, publisher: Publisher) -> None: ...
    def detach(self, publisher: Publisher, closed: bool) -> None: ...


class BaseFeed:
    """A feed (`router.core.feeding`), as lower modules know it."""

    __slots__ = ("early_tags", "publisher")

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher  # of the topic
        self.early_tags: list[bytes] = []  # settled by tag before it attached

    def answered(self) -> None: ...


class Publisher:
    """A publisher's attachment at this router."""

    __slots__ = (
        "brought_incarnation", "brought_map", "connection", "container", "covered", "credit_withheld", "destinations",
        "expected", "flush_at", "handshake", "held", "held_back", "held_bytes", "held_count", "held_parts",
        "incarnation", "ingress", "live", "mode_first", "name", "needs_call", "needs_question", "no_credit_reason",
        "no_credit_since", "port", "prefix", "publisher_id", "questions_answered", "questions_asked", "records",
        "repeats", "resumes", "runs", "sent_new", "slack", "tags", "term", "timeout_s", "uncovered", "undone",
        "undone_bytes", "unfinished", "unique", "unknown", "unsettled", "unsettled_window", "used_tags",
        "wants_completion",
    )  # fmt: skip

    def __init__(
        self,
        ingress: BaseIngress,
        records: BaseRecords,
        port: PublisherPort,
        attach: PublisherAttach,
        publisher_id: bytes,
        term: Term,
    ) -> None:
        self.ingress = ingress
        self.records = records
        self.port = port
        self.container = attach.container
        self.name = attach.name
        self.brought_incarnation = attach.incarnation
        self.unique = isinstance(attach.unsettled, UniqueTags)
        self.resumes = False
        self.brought_map = attach.unsettled is not None and not self.unique
        self.mode_first = attach.mode_first
        self.wants_completion = attach.wants_completion
        self.connection = attach.connection
        self.unsettled_window = attach.unsettled_window or 0  # 0: the network's
        self.publisher_id = publisher_id
        self.term = term
        self.timeout_s = 0.0  # as it is told (protocol 12.7)
        self.handshake = Handshake(brought_epoch=attach.epoch is not None)
        self.incarnation = 0
        self.prefix = b""
        self.held: list[Batch] = []
        self.held_count = 0
        self.held_bytes = 0
        # of a large delivery, which began before the link was ready or waits for its turn, and what came behind it
        self.held_parts: list[Part | Batch] = []
        self.unfinished: int | None = None  # position of its large delivery whose last part has not come
        self.held_back = False  # it is too far ahead (protocol 6.12)
        # tags that it may still send again
        self.expected: dict[bytes, None] = {}
        self.unknown = False  # the expected tags are not known
        self.flush_at: float | None = None
        self.sent_new = False  # it has sent something new while there was something to send again
        self.credit_withheld = False  # no credit, and not because of anything new that it has sent
        # home -> subscriptions that get its stream; and attached subscriptions that do not get it
        self.covered: dict[str, dict[SubscriptionName, None]] = {}
        self.destinations: tuple[str, ...] = ()
        self.uncovered: dict[SubscriptionEntry, None] = {}
        # subscription (None: the flush), or a feed (protocol 16.12) -> number of the first question that serves it
        # (protocol 5.7)
        self.needs_question: dict[SubscriptionName | BaseFeed | None, int] = {}
        # subscription -> number of the first roll call that serves it instead (protocol 5.9)
        self.needs_call: dict[SubscriptionName, int] = {}
        self.questions_asked = 0
        self.questions_answered = 0
        # records
        self.runs: RunList[IngressRun] = RunList()  # by delivery-id
        self.live = IntervalSet()  # delivery-ids not settled
        self.tags: set[bytes] | None = None  # with unique tags: those of the records
        self.used_tags = UsedTags()
        self.repeats: dict[int, list[int]] = {}  # position -> delivery-ids of its repeats
        self.undone = 0
        self.undone_bytes = 0
        self.unsettled = 0  # done and not settled
        self.slack = 0  # how many messages may come before its link is told its window again
        self.no_credit_reason = ""
        self.no_credit_since = 0.0

    @property
    def may_resend(self) -> bool:
        """Says whether it may send again what it has sent before, without knowing how long it has been away
        (protocol 5.4)."""
        return self.brought_incarnation is None and (self.unique or self.resumes)

    @property
    def ready(self) -> bool:
        """Says whether all routers know of its claim."""
        return self.handshake.state is READY or self.handshake.state is FORWARDING

    @property
    def dropped(self) -> bool:
        return self.handshake.state is DROPPED

    def cover(self, entry: SubscriptionEntry) -> None:
        assert entry.home is not None
        self.uncovered.pop(entry, None)
        self.covered.setdefault(entry.home, {})[entry.name] = None
        if entry.home not in self.destinations:
            self.destinations = tuple(sorted(self.covered))

    def uncover(self, entry: SubscriptionEntry) -> None:
        if entry.home is None:
            return
        covered = self.covered.get(entry.home)
        if covered is not None:
            covered.pop(entry.name, None)
            if not covered:
                self.uncover_home(entry.home)

    def uncover_home(self, home: str) -> None:
        if self.covered.pop(home, None) is not None:
            self.destinations = tuple(sorted(self.covered))

    def hold(self, held: Batch) -> None:
        self.held.append(held)
        self.held_count += len(held.tags)
        self.held_bytes += sum(map(len, held.payloads))

    def forget_held(self, first: int, last: int) -> None:
        """Forgets held transfers that the publisher has settled before they could be taken (protocol 5.1)."""
        if self.held:
            self._keep([left for held in self.held for left in held.without(first, last)])
        parts, self.held_parts = self.held_parts, []
        for held in parts:
            if isinstance(held, Batch):
                self.held_parts += held.without(first, last)
            elif not first <= held.delivery_id <= last:
                self.held_parts.append(held)

    def keep_presettled(self) -> bool:
        """Drops all held transfers but pre-settled ones, which are forwarded when the barrier completes even if the
        link has gone (protocol 6.9). Says whether there are any."""
        behind = [each for each in self.held_parts if isinstance(each, Batch)]
        self._keep([held for held in (*self.held, *behind) if held.settled])
        self.held_parts = []
        return bool(self.held)

    def _keep(self, held: list[Batch]) -> None:
        self.held = held
        self.held_count = sum(len(each.tags) for each in held)
        self.held_bytes = sum(sum(map(len, each.payloads)) for each in held)

    def forget_tags(self, tags: list[bytes]) -> None:
        if self.tags is not None:
            self.tags.difference_update(tags)

    def positions(self, first: int, stop: int) -> list[tuple[int, int, int]]:
        """Returns the stretches of positions of the delivery-ids first..stop-1, with their message format."""
        return [
            (run.start + low, run.start + high, run.message_format) for run, low, high in self.runs.pieces(first, stop)
        ]

    def unsettled_tags(self, log: Segments) -> list[bytes]:
        """Returns the tags of its unsettled deliveries, as they end the outgoing ones (protocol 1.7)."""
        return [
            tag[PREFIX:]
            for first, last in self.live
            for start, stop, _ in self.positions(first, last)
            for tag in log.tags(start, stop)
        ]

    def check_invariants(self) -> None:
        for each in (self.live, self.runs):
            each.check_invariants()
        assert self.live.size == self.undone + self.unsettled
        assert sum(run.live for run in self.runs.runs) == self.live.size
        assert self.held_count == sum(len(each.tags) for each in self.held)
        assert self.held_bytes == sum(sum(map(len, each.payloads)) for each in self.held)
        assert self.destinations == tuple(sorted(self.covered))
        assert all(self.covered.values()), "a home is covered without a subscription"
        assert 0 <= self.questions_asked - self.questions_answered <= 1
        assert all(question <= self.questions_asked + 1 for question in self.needs_question.values())
        assert self.unfinished is None or self.ready
        if self.handshake.is_proving:
            assert not self.covered, "covered before its claim"
            assert not self.handshake.missing
            assert not self.live
        if self.ready:
            assert not self.handshake.missing, "ready while PUBACKs are missing"
            assert not self.held


class Sending:
    """A large record at its ingress. `taken`: home -> bytes that its subscriptions have been sent."""

    __slots__ = ("homes", "publisher", "sent", "taken")

    def __init__(self, publisher: Publisher, sent: int) -> None:
        self.publisher = publisher
        self.homes = publisher.destinations  # that DATA went to
        self.taken = dict.fromkeys(self.homes, 0)
        self.sent = sent


class _DetachedPort:
    """The port of a publisher whose link went before its pre-settled transfers could be forwarded (protocol 6.9)."""

    __slots__ = ()

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None: ...
    def ready(self) -> None: ...

    def set_window(self, messages: int, size: int, reason: str) -> int:
        return 0

    def waiting(self, waiting: Waiting | None) -> None: ...
    def ask(self) -> None: ...
    def hold_back(self, held: bool) -> None: ...
    def outcome(
        self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool, why: bytes = b""
    ) -> None: ...
    def answer_map_part(self) -> None: ...
    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None: ...
    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None: ...


DETACHED_PORT: Final = _DetachedPort()
