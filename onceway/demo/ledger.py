"""The judge: what publishers and subscribers saw, and nothing else.

Each application notes what it does as it does it, in its own words: a publisher the numbers it published and those it
was told were accepted, a subscriber the (publisher, number) of every message it was handed.  Numbers of one publisher
run 0, 1, 2 ...
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Message = tuple[str, int]
"""Publisher and number."""


@dataclass(slots=True)
class PublisherNotes:
    name: str
    published: int = 0  # numbers 0 to published - 1
    accepted: int = 0


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

    @property
    def clean(self) -> bool:
        return self.accepted == self.published and all(
            line.clean and line.delivered == self.published for line in self.lines
        )


def judge(publishers: Iterable[PublisherNotes], subscribers: Iterable[SubscriberNotes]) -> Ledger:
    published = {notes.name: notes.published for notes in publishers}
    accepted = sum(notes.accepted for notes in publishers)
    return Ledger(sum(published.values()), accepted, tuple(_judge(published, notes) for notes in subscribers))


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
