"""The observer of a queue: what protocol 16 promises, in terms of what applications see.

Each delivery is accepted by one consumer, and while a consumer that keeps its unsettled map holds it, no other is
handed it. What a publisher was told is true. With one consumer, what nobody has been handed before comes in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from chaos.simulation.world.checker import Checker, Life, Mid, Violation

FORMERLY = ", formerly"  # an earlier process of that name


@dataclass
class QueueChecker(Checker):
    """`at_least_once` and `without_memory` name consumers whose deliveries may come again, to others, too."""

    competing: ClassVar[bool] = True
    consumers: int = 1
    ordered: bool = True  # priorities do not count
    most: int = 5  # max_redeliveries
    holders: dict[Mid, dict[str, Life | None]] = field(default_factory=dict)
    """Message -> consumers that have it in hand, undecided."""
    acceptors: dict[Mid, dict[str, Life | None]] = field(default_factory=dict)
    group_at: dict[str, tuple[str, Life | None]] = field(default_factory=dict)
    """Group -> the consumer that was handed the last message of it, and its life."""
    groups_stay: bool = False
    """Groups stay with their consumers, as no two routers give one to two of these at one moment (protocol 16.9)."""
    late: dict[Mid, None] = field(default_factory=dict)
    """Accepted by a consumer that was told before that it holds this no more: its router may take that, or not."""
    given_back: dict[Mid, int] = field(default_factory=dict)
    ever: dict[Mid, None] = field(default_factory=dict)  # handed to anybody
    highest: dict[tuple[str, str], int] = field(default_factory=dict)
    twice: list[tuple[Mid, str, Life | None, str, Life | None, int]] = field(default_factory=list)
    """(message, consumer and its life, another, how many routers had died): held or accepted by both."""

    declines: dict[str, dict[Mid, None]] = field(default_factory=dict)
    """Consumer -> what it has declined on its present link."""

    # what a publisher's application knows
    def sent(self, mid: Mid, group: str | None = None) -> None:
        self.required[mid] = []
        if group is not None:
            self.group_of[mid] = group

    def told_accepted(self, mid: Mid, at: tuple[str, int]) -> None:
        if mid in self.may_expire and not (self.strict and self.holders.get(mid)):
            return
        if mid not in self.acceptors and mid not in self.late:
            raise Violation(f"G1 {mid} is accepted but nobody has accepted it")

    def told_rejected(self, mid: Mid, at: tuple[str, int]) -> None:
        if mid not in self.rejections and self.given_back.get(mid, 0) <= self.most:
            raise Violation(f"G1 {mid} is rejected but nobody has rejected it")

    def told_released(self, mid: Mid) -> None:
        if mid in self.acceptors and self.strict and not self._repeats(*self.acceptors[mid]):
            raise Violation(f"G1 {mid} is released but {[*self.acceptors[mid]]} accepted it")

    # what a consumer's application knows
    def handed(self, name: str, mid: Mid) -> None:
        if mid in self.presettled and mid in self.ever:
            raise Violation(f"G2 {name} gets {mid}, which was sent settled, and has been handed out before")
        if name in self.holders.get(mid, ()):
            raise Violation(f"G2 {name} gets {mid} twice as new")
        if name in self.acceptors.get(mid, ()) and not self._may_repeat(name, mid):
            raise Violation(f"G2 {name} gets {mid} again as new after accepting it")
        if mid in self.declines.get(name, ()) and self.strict and not self._may_come_again(name, mid):
            raise Violation(f"G2 {name} gets {mid} again on the link on which it has declined it")
        self._only_one(name, mid)
        self.holders.setdefault(mid, {})[name] = self.current.get(name)
        plain = mid not in self.group_of and mid not in self.presettled
        if self.consumers == 1 and self.ordered and mid not in self.ever and plain:
            highest = self.highest.get((name, mid[0]), -1)
            if mid[1] < highest and not (name in self.without_memory and self._may_be_late(mid)):
                raise Violation(f"G3 {name} first sees {mid} after {highest}")
            self.highest[name, mid[0]] = max(highest, mid[1])
        if mid not in self.ever:
            self._check_group(name, mid)
        self.ever[mid] = None

    def _check_group(self, name: str, mid: Mid) -> None:
        """Nobody has been handed it before: it is behind what the publisher has sent to its group before, and where the
        group has been before, if somebody is still there."""
        group = self.group_of.get(mid)
        if group is None or not self.ordered:
            return
        highest = self.highest.get((group, mid[0]), -1)
        former, life = self.group_at.get(group, (name, None))
        if mid[1] < highest and mid in self.abandoned and former != name:
            return  # unread when it was settled and the group went on to another one
        if mid[1] < highest and not self._may_be_late(mid):
            raise Violation(f"G3 {name} first sees {mid} of {group} after {highest}")
        self.highest[group, mid[0]] = max(highest, mid[1])
        if self.groups_stay and former != name and life is not None and not life.ended:
            raise Violation(f"G3 {name} gets {mid} of {group}, which {former} has")
        self.group_at[group] = (name, self.current.get(name))

    def _may_be_late(self, mid: Mid) -> bool:
        """Where routers were apart, a former ingress may bring late what its publisher does not know any more."""
        return mid in self.abandoned and not self.strict

    def _repeats(self, *names: str) -> bool:
        """Whether one of these keeps no map, has lost it, or settles when it accepts: it is at least once."""
        return any(n.endswith(FORMERLY) or n in self.at_least_once or n in self.without_memory for n in names)

    def _may_repeat(self, name: str, mid: Mid) -> bool:
        return self._may_come_again(name, mid) or self._repeats(name)

    def _only_one(self, name: str, mid: Mid) -> None:
        """Nobody else holds it, nor has accepted it."""
        for what, others in (("holds", self.holders), ("accepted", self.acceptors)):
            for other, life in others.get(mid, {}).items():
                if other == name or self._repeats(name, other) or self._may_come_again(name, mid):
                    continue
                if self.strict:
                    raise Violation(f"G2 {name} gets {mid}, which {other} {what}")
                self.twice.append((mid, name, self.current.get(name), other, life, len(self.deaths)))

    def subscriber_told(self, name: str, unsure: Iterable[Mid] = (), counted: float | None = None) -> None:
        super().subscriber_told(name, unsure, counted)
        self.let_go(name)

    def accepted(self, name: str, mid: Mid) -> None:
        holders = self.holders.get(mid, {})
        if name not in holders and not self.strict:
            self.late[mid] = None
            return
        holders.pop(name, None)
        if name in self.acceptors.get(mid, ()) and not self._may_repeat(name, mid):
            raise Violation(f"G2 {name} processed {mid} twice")
        self._only_one(name, mid)
        self.acceptors.setdefault(mid, {})[name] = self.current.get(name)

    def rejected(self, name: str, mid: Mid) -> None:
        self.rejections.setdefault(mid, {})[name] = True

    def gave_back(self, name: str, mid: Mid, last: bool = False) -> None:
        self.holders.get(mid, {}).pop(name, None)
        self.given_back[mid] = self.given_back.get(mid, 0) + 1
        self._not_tried(mid)

    def declined(self, name: str, mid: Mid) -> None:
        self.holders.get(mid, {}).pop(name, None)
        self.declines.setdefault(name, {})[mid] = None
        self._not_tried(mid)

    def _not_tried(self, mid: Mid) -> None:
        """The consumer gives it back: what was sent settled may be another's, too."""
        if mid in self.presettled:
            self.ever.pop(mid, None)

    def declined_by(self, name: str) -> bool:
        return bool(self.declines.get(name))

    def new_link(self, name: str) -> None:
        super().new_link(name)
        self.declines.pop(name, None)

    def let_go(self, name: str, but: object = ()) -> None:
        for held in self.holders.values():
            held.pop(name, None)

    def forgot(self, name: str) -> None:
        self.closed(name)
        self.let_go(name)
        self.went(name)

    def went(self, name: str) -> None:
        """Nobody may be left who knows what it has accepted (protocol 16.7.4)."""
        for accepted in self.acceptors.values():
            if name in accepted:  # another process of that name
                accepted[name + FORMERLY] = accepted.pop(name)

    def closed(self, name: str) -> None:
        super().closed(name)
        self.let_go(name)

    def accepted_by(self, name: str) -> set[Mid]:
        return {mid for mid, names in self.acceptors.items() if name in names}

    # at the end
    def quiescent(self, alive: set[tuple[str, int]]) -> None:
        """Where routers were apart, or a consumer was away for too long, two may have had one message. One of them was
        told, or nobody is left that knew."""
        for mid, name, life, other, before, deaths in self.twice:
            lives = [each for each in (life, before) if each is not None]
            if any(each.ended for each in lives) or len(lives) < 2:
                continue
            unseen = any(self._expired_unseen(each, ("", 0), deaths, alive) for each in lives)
            if not (self.may_have_holes or unseen):
                raise Violation(f"G5 {name} and {other} had {mid}, and neither was told")
            self.holes += 1
