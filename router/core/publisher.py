"""One publisher attached here: what its ingress keeps of it (protocol 2.3). The rules are in `router.core.ingress`.

Whoever has a publisher asks its ingress and its records by what is declared of them here: `BaseIngress`, `BaseRecords`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.core.coverage import Coverage, Resending
from router.core.directory import SubscriptionEntry
from router.core.held import Batch, Held
from router.core.intervals import IntervalSet, Range
from router.core.log import Run, RunList, Segments
from router.core.memory import Memory
from router.core.messages import Entries, Handlers, SubscriptionName
from router.core.naming import PREFIX
from router.core.ports import Outcome, Part, PublisherAttach, PublisherPort, Term, UniqueTags, Waiting
from router.core.publisher_handshake import DROPPED, FORWARDING, READY, Handshake, Input
from router.core.repeated_tags import UsedTags

NO_SUBSCRIBERS: Final = "no subscribers"
FLUSH: Final = None
"""Stands in `Questions.needed` for the flush (protocol 8.5), beside the names of subscriptions."""


class IngressRun(Run):
    """Positions of one publisher whose delivery-ids rise with them."""

    __slots__ = ("first_id", "message_format", "publisher")

    def __init__(self, start: int, stop: int, publisher: Publisher, first_id: int, message_format: int) -> None:
        super().__init__(start, stop)
        self.publisher = publisher
        self.first_id = first_id
        self.message_format = message_format


class Distribution:
    """To whom the records of one address go, and when they are done: what topics (`router.core.topic.distribution`) and
    queues (`router.core.queue.distribution`) do each in its own way."""

    def handlers(self) -> Handlers:
        raise NotImplementedError

    def entries_for(self, publisher: Publisher, entry: SubscriptionEntry) -> list[Entries]:
        raise NotImplementedError

    def data_of(self, entry: SubscriptionEntry, data: bytes) -> bytes:
        raise NotImplementedError

    def spread(self, publisher: Publisher, start: int, stop: int, batch: Batch) -> None: ...
    def check(self, ranges: list[Range]) -> None: ...
    def unawait(self, start: int, stop: int) -> None: ...
    def owe_all(self, entry: SubscriptionEntry) -> None: ...
    def replaced(self, entry: SubscriptionEntry) -> None: ...
    def orphan(self, entry: SubscriptionEntry) -> None: ...
    def owe_nothing(self, entry: SubscriptionEntry) -> None: ...
    def router_down(self, router: str, orphans: list[SubscriptionEntry]) -> None: ...
    def check_invariants(self) -> None: ...


class BaseRecords:
    """The records of one address (`router.core.records`), as lower modules know them."""

    distribution: Distribution

    def __init__(self, memory: Memory, first_position: int) -> None:
        self.log = Segments(memory, first_position)
        self.undone = IntervalSet()

    def publisher_settled(self, publisher: Publisher, first: int, last: int) -> None: ...
    def note_rejected(self, ranges: list[Range], rejected: int, why: bytes) -> None: ...


class BaseWindows:
    """The windows of one address (`router.core.windows`), as lower modules know them."""

    def tell(self, publisher: Publisher) -> None: ...


class BaseIngress:
    """The ingress of one address (`router.core.ingress`), as lower modules know it."""

    def __init__(self, subscriptions: dict[SubscriptionName, SubscriptionEntry], windows: BaseWindows) -> None:
        self.subscriptions = subscriptions  # known in the network
        self.windows = windows

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
    def detach(self, publisher: Publisher, closed: bool) -> None: ...


class BaseFeed:
    """A feed (`router.core.feeding`), as lower modules know it."""

    __slots__ = ("early_tags", "publisher")

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher  # of the topic
        self.early_tags: list[bytes] = []  # settled by tag before it attached

    def answered(self) -> None: ...


class Brought:
    """What its attach has brought, which does not change."""

    __slots__ = (
        "connection", "container", "epoch", "incarnation", "map", "mode_first", "most_unsettled", "name", "resumes",
        "unique_tags", "wants_completion",
    )  # fmt: skip

    def __init__(self, attach: PublisherAttach, *, resumes: bool) -> None:
        self.container = attach.container
        self.name = attach.name
        self.incarnation = attach.incarnation
        self.unique_tags = isinstance(attach.unsettled, UniqueTags)
        self.map = attach.unsettled is not None and not self.unique_tags
        self.resumes = resumes
        self.epoch = attach.epoch is not None
        self.connection = attach.connection
        self.mode_first = attach.mode_first
        self.wants_completion = attach.wants_completion
        self.most_unsettled = attach.unsettled_window or 0  # 0: the network's

    @property
    def may_resend(self) -> bool:
        """Says whether it may send again what it has sent before, without knowing how long it has been away
        (protocol 5.4)."""
        return self.incarnation is None and (self.unique_tags or self.resumes)


class Questions:
    """Proofs that it is asked for, one at a time, and what each of them serves (protocol 5.7, 5.9)."""

    __slots__ = ("answered", "asked", "calls", "needed")

    def __init__(self) -> None:
        self.asked = 0
        self.answered = 0
        # subscription (None: the flush), or a feed (protocol 16.12) -> number of the first question that serves it
        self.needed: dict[SubscriptionName | BaseFeed | None, int] = {}
        self.calls: dict[SubscriptionName, int] = {}  # subscription -> number of the first roll call that serves it

    @property
    def is_open(self) -> bool:
        return self.asked != self.answered

    def need(self, name: SubscriptionName | BaseFeed | None) -> None:
        """The next question serves this, too."""
        self.needed[name] = self.asked + 1

    def forget(self, name: SubscriptionName) -> None:
        self.needed.pop(name, None)
        self.calls.pop(name, None)

    def check_invariants(self) -> None:
        assert 0 <= self.asked - self.answered <= 1
        assert all(question <= self.asked + 1 for question in self.needed.values())


class Sent:
    """Its records here: what it has sent and not settled (`router.core.records`)."""

    __slots__ = (
        "live", "repeats", "runs", "tags", "undone", "undone_bytes", "unfinished", "unsettled", "used_tags",
    )  # fmt: skip

    def __init__(self) -> None:
        self.runs: RunList[IngressRun] = RunList()  # by delivery-id
        self.live = IntervalSet()  # delivery-ids not settled
        self.tags: set[bytes] | None = None  # with unique tags: those of the records
        self.used_tags = UsedTags()
        self.repeats: dict[int, list[int]] = {}  # position -> delivery-ids of its repeats
        self.undone = 0
        self.undone_bytes = 0
        self.unsettled = 0  # done and not settled
        self.unfinished: int | None = None  # position of its large delivery whose last part has not come

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


class Window:
    """What its link was told that may come (protocol 6.8): its ingress decides it."""

    __slots__ = ("held_back", "most_unsettled", "reason", "since", "slack")

    def __init__(self, most_unsettled: int) -> None:
        self.most_unsettled = most_unsettled
        self.slack = 0  # how many messages may come before its link is told its window again
        self.reason = ""  # why it has no credit
        self.since = 0.0
        self.held_back = False  # it is too far ahead (protocol 6.12)


class Publisher:
    """A publisher's attachment at this router: its parts, each of which one module changes."""

    __slots__ = (
        "brought", "connection", "coverage", "handshake", "held", "incarnation", "ingress", "port", "prefix",
        "publisher_id", "questions", "records", "resending", "sent", "term", "timeout_s", "window",
    )  # fmt: skip

    def __init__(
        self,
        ingress: BaseIngress,
        records: BaseRecords,
        port: PublisherPort,
        brought: Brought,
        publisher_id: bytes,
        term: Term,
    ) -> None:
        self.ingress = ingress
        self.records = records
        self.port = port
        self.brought = brought
        self.connection = brought.connection
        self.publisher_id = publisher_id
        self.term = term
        self.timeout_s = 0.0  # as it is told (protocol 12.7)
        self.incarnation = 0
        self.prefix = b""
        self.handshake = Handshake(brought_epoch=brought.epoch)
        self.held = Held()
        self.resending = Resending()
        self.coverage = Coverage()
        self.questions = Questions()
        self.sent = Sent()
        self.window = Window(brought.most_unsettled)

    @property
    def ready(self) -> bool:
        """Says whether all routers know of its claim."""
        return self.handshake.state is READY or self.handshake.state is FORWARDING

    @property
    def dropped(self) -> bool:
        return self.handshake.state is DROPPED

    def check_invariants(self) -> None:
        for part in (self.held, self.coverage, self.questions, self.sent):
            part.check_invariants()
        assert self.sent.unfinished is None or self.ready
        if self.handshake.is_proving:
            assert not self.coverage.covered, "covered before its claim"
            assert not self.handshake.missing
            assert not self.sent.live
        if self.ready:
            assert not self.handshake.missing, "ready while PUBACKs are missing"
            assert not self.held.batches


class Sending:
    """A large record at its ingress. `taken`: home -> bytes that its subscriptions have been sent."""

    __slots__ = ("homes", "publisher", "sent", "taken")

    def __init__(self, publisher: Publisher, sent: int) -> None:
        self.publisher = publisher
        self.homes = publisher.coverage.destinations  # that DATA went to
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
