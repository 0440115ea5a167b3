"""One publisher attached here: what its ingress keeps of it (PROTOCOL 2).  The rules are in `router.ingress`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from router.directory import SubscriptionEntry
from router.intervals import IntervalSet
from router.log import Run, RunList
from router.messages import SubscriptionName
from router.ports import Outcome, PublisherAttach, PublisherPort, Term

if TYPE_CHECKING:
    from router.ingress import Ingress

NO_SUBSCRIBERS: Final = "no subscribers"
FLUSH: Final = None
"""Stands in `Publisher.need` for the flush (8.5), beside the names of subscriptions."""


class Phase(Enum):
    PROVING = "waits for a sign of life"  # 5.1
    CLAIMING = "waits for the other routers"  # 5.4
    READY = "ready"
    DROPPED = "gone"


class IngressRun(Run):
    """Positions of one publisher whose delivery-ids run along."""

    __slots__ = ("first_id", "message_format", "publisher")

    def __init__(self, start: int, stop: int, publisher: Publisher, first_id: int, message_format: int) -> None:
        super().__init__(start, stop)
        self.publisher = publisher
        self.first_id = first_id
        self.message_format = message_format


class Held:
    """Transfers that wait for the barrier."""

    __slots__ = ("first_id", "message_format", "payloads", "settled", "tags")

    def __init__(
        self, first_id: int, tags: list[bytes], payloads: list[bytes], settled: bool, message_format: int
    ) -> None:
        self.first_id = first_id
        self.tags = tags
        self.payloads = payloads
        self.settled = settled
        self.message_format = message_format


class Publisher:
    """A publisher's attachment at this router."""

    __slots__ = (
        "address",
        "answered",
        "asked",
        "asking",
        "barred",
        "brought",
        "container",
        "covered",
        "destinations",
        "epoch_brought",
        "expected",
        "goes_on",
        "flush_at",
        "held",
        "held_bytes",
        "held_count",
        "incarnation",
        "ingress",
        "leaving",
        "live",
        "map_brought",
        "mode_first",
        "moved_on",
        "name",
        "need",
        "phase",
        "port",
        "prefix",
        "presented",
        "publisher",
        "reason",
        "repeats",
        "resumes",
        "runs",
        "settled_tags",
        "stale",
        "tags",
        "term",
        "uncovered",
        "undone",
        "undone_bytes",
        "unique",
        "unknown",
        "unsettled",
        "unsettled_window",
        "waiting",
    )

    def __init__(
        self,
        ingress: Ingress,
        port: PublisherPort,
        attach: PublisherAttach,
        publisher: bytes,
        unique: bool,
        term: Term,
    ) -> None:
        self.ingress = ingress
        self.port = port
        self.address = attach.address
        self.container = attach.container
        self.name = attach.name
        self.brought = attach.incarnation
        self.epoch_brought = attach.epoch is not None
        self.map_brought = attach.unsettled is not None and not unique
        self.mode_first = attach.mode_first
        self.unsettled_window = attach.unsettled_window or ingress.core.config.unsettled_window
        self.publisher = publisher
        self.unique = unique
        self.term = term
        self.phase = Phase.PROVING
        self.leaving: bool | None = None  # 6.9: its link has gone (True: closed) while pre-settled ones were held
        # attaching
        self.resumes = False
        self.goes_on = False  # known to have been here before: it may send again what it has sent then
        self.presented: Mapping[bytes, Outcome | None] = {}
        self.incarnation = 0
        self.prefix = b""
        self.waiting: dict[str, None] = {}
        # a subscription, or an attachment elsewhere, has become known since it was told what its sign of life answers
        self.stale = False
        self.asking = False  # therefore it has been asked again
        self.settled_tags: list[bytes] = []  # expected ones, settled while it waits
        self.held: list[Held] = []
        self.held_count = 0
        self.held_bytes = 0
        # what it may still send again
        self.expected: dict[bytes, None] = {}
        self.unknown = False
        self.flush_at: float | None = None
        self.moved_on = False  # it has sent something new while there was something to send again
        self.barred = False  # no credit, and not because of anything new that it has sent
        # who gets its stream: home -> subscriptions; and those with a home that do not
        self.covered: dict[str, dict[SubscriptionName, None]] = {}
        self.destinations: tuple[str, ...] = ()
        self.uncovered: dict[SubscriptionEntry, None] = {}
        # questions (5.7)
        self.need: dict[SubscriptionName | None, int] = {}
        self.asked = 0
        self.answered = 0
        # records
        self.runs: RunList[IngressRun] = RunList()  # by delivery-id
        self.live = IntervalSet()  # delivery-ids not settled
        self.tags: set[bytes] | None = None  # with unique tags: those of the records
        self.repeats: dict[int, list[int]] = {}  # position -> delivery-ids of its repeats
        self.undone = 0
        self.undone_bytes = 0
        self.unsettled = 0  # done and not settled
        self.reason = ""

    @property
    def may_go_on(self) -> bool:
        """It may send again what it has sent before, and does not know by itself how long it has been away (15)."""
        return self.brought is None and (self.unique or self.resumes)

    @property
    def ready(self) -> bool:
        return self.phase is Phase.READY

    @property
    def dropped(self) -> bool:
        return self.phase is Phase.DROPPED

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

    def hold(self, held: Held) -> None:
        self.held.append(held)
        self.held_count += len(held.tags)
        self.held_bytes += sum(map(len, held.payloads))

    def forget_held(self, first: int, last: int) -> None:
        """Held transfers that the publisher has settled before they could be taken."""
        left: list[Held] = []
        for held in self.held:
            low, high = max(first - held.first_id, 0), min(last + 1 - held.first_id, len(held.tags))
            if held.settled or low >= high:
                left.append(held)
                continue
            for a, b in ((0, low), (high, len(held.tags))):
                if a < b:
                    part = Held(held.first_id + a, held.tags[a:b], held.payloads[a:b], False, held.message_format)
                    left.append(part)
        self._keep(left)

    def keep_presettled(self) -> bool:
        """6.9: forwarded when the barrier completes even if the link has gone.  Says whether there are any."""
        self._keep([held for held in self.held if held.settled])
        return bool(self.held)

    def _keep(self, held: list[Held]) -> None:
        self.held = held
        self.held_count = sum(len(each.tags) for each in held)
        self.held_bytes = sum(sum(map(len, each.payloads)) for each in held)

    def forget_tags(self, tags: list[bytes]) -> None:
        if self.tags is not None:
            self.tags.difference_update(tags)

    def positions(self, first: int, stop: int) -> list[tuple[int, int, int]]:
        """Stretches of positions of the delivery-ids first..stop-1, with their message format."""
        return [
            (run.start + low, run.start + high, run.message_format) for run, low, high in self.runs.pieces(first, stop)
        ]

    def status(self) -> dict[str, object]:
        return {
            "container": self.container,
            "name": self.name,
            "term": list(self.term),
            "state": self.phase.value,
            "undone": self.undone,
            "unsettled": self.unsettled,
            "expected": "unknown" if self.unknown else len(self.expected),
            "waits_for": sorted(self.waiting),
            "no_credit": self.reason,
        }


class _Gone:
    """The port of a publisher whose link has gone before its pre-settled transfers could be forwarded (6.9)."""

    __slots__ = ()

    def answer(self, incarnation: int | None, term: Term, *, credit: bool) -> None: ...

    def ready(self) -> None: ...

    def set_window(self, messages: int, size: int, reason: str) -> None: ...

    def ask(self) -> None: ...

    def outcome(self, first_id: int, last_id: int, outcome: Outcome, rejected: int, settled: bool) -> None: ...

    def part(self) -> None: ...

    def refuse(self, condition: str, description: str, info: Mapping[str, int]) -> None: ...

    def detach(self, condition: str, description: str, info: Mapping[str, int], closed: bool) -> None: ...


GONE: Final = _Gone()
