"""The demo's judge: it knows what publishers and subscribers saw, and nothing else.

Each application notes what it does: a publisher the numbers it published and those accepted, a subscriber the
(publisher, number) of every message it was handed. The numbers of one publisher run 0, 1, 2 ... The lake's subscriber
is judged by what is in the lake, and its totals by what was published. The ledger shares no code with the judge of
chaos runs: it is short enough to be read whole by whoever doubts the demo.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from onceway.demo.lake_audit import Audit, Sums

Message = tuple[str, int]
"""Publisher and number."""
LAKE = "lake (Spark)"


@dataclass(slots=True)
class PublisherNotes:
    name: str
    published: int = 0  # numbers 0 to published - 1
    accepted: int = 0
    late: int = 0  # of those published
    cents: int = 0


@dataclass(slots=True)
class SubscriberNotes:
    name: str
    handed: list[Message] = field(default_factory=list)  # as the application got them


@dataclass(frozen=True, slots=True)
class Line:
    """One subscriber's line of the ledger."""

    name: str
    delivered: int  # different messages
    lost: int  # accepted for their publisher, and never handed to this one
    duplicate: int  # handed again
    out_of_order: int  # handed after a later one of the same publisher
    unknown: int  # never published

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicate or self.out_of_order or self.unknown)


@dataclass(frozen=True, slots=True)
class Ledger:
    published: int
    accepted: int
    lines: tuple[Line, ...]
    sums: Mapping[str, Sums] = field(default_factory=dict)  # the same orders, added up in several places

    @property
    def clean(self) -> bool:
        return (
            self.accepted == self.published
            and all(line.clean and line.delivered == self.published for line in self.lines)
            and len(set(self.sums.values())) <= 1
        )


def judge(
    publishers: Collection[PublisherNotes], subscribers: Iterable[SubscriberNotes], lake: Audit | None = None
) -> Ledger:
    published = {notes.name: notes.published for notes in publishers}
    accepted = sum(notes.accepted for notes in publishers)
    lines = [_judge(published, notes) for notes in subscribers]
    sums = {}
    if lake is not None:
        lines.append(_judge_lake(published, lake))
        late, cents = sum(notes.late for notes in publishers), sum(notes.cents for notes in publishers)
        sums = {"published": Sums(sum(published.values()), late, cents), "lake": lake.lake, "totals": lake.totals}
    return Ledger(sum(published.values()), accepted, tuple(lines), sums)


def _judge(published: Mapping[str, int], notes: SubscriberNotes) -> Line:
    seen: dict[Message, None] = {}
    latest: dict[str, int] = {}
    duplicate = out_of_order = unknown = 0
    for message in notes.handed:
        publisher, number = message
        if not 0 <= number < published.get(publisher, 0):
            unknown += 1
        elif message in seen:
            duplicate += 1
        else:
            seen[message] = None
            if number < latest.get(publisher, -1):
                out_of_order += 1
            latest[publisher] = max(number, latest.get(publisher, -1))
    lost = sum(published.values()) - len(seen)
    return Line(notes.name, len(seen), lost, duplicate, out_of_order, unknown)


def _judge_lake(published: Mapping[str, int], lake: Audit) -> Line:
    found = {one.name: one for one in lake.publishers}
    known = [found[name] for name in published if name in found]
    delivered = sum(one.messages - one.duplicate for one in known)
    return Line(
        LAKE,
        delivered,
        lost=sum(published.values()) - delivered,
        duplicate=sum(one.duplicate for one in known) + lake.repeated,
        out_of_order=sum(one.out_of_order for one in known),
        unknown=lake.messages - sum(one.messages for one in known),
    )
