"""The omniscient observer of a simulated network: what the guarantees G1 to G6 mean, in terms of what applications see.

It knows nothing of routers. Clients tell it what they sent, were told, were handed and accepted; it raises `Violation`
with the guarantee's name the moment one is broken. A *subscription* here is the life of a subscriber from the answer
to its attach until it is closed or told that it was interrupted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

Mid = tuple[str, int]  # (publisher, sequence number)


class Violation(AssertionError):
    """A guarantee does not hold; the text starts with its name."""


@dataclass
class Life:
    subscriber: str
    ended: str | None = None  # None | "closed" | "told"
    accepted: set[Mid] = field(default_factory=set)
    answered: int = 0  # routers that had started again when its attach was last answered
    waited_for_until: float = math.inf  # nobody gives it up before, counted from then
    gaps: list[int] = field(default_factory=list)  # `answered` before each absence in which it may have been given up


@dataclass
class Checker:
    """strict: no fault of this schedule excuses a loss, not even a loud one."""

    strict: bool = True
    lives: list[Life] = field(default_factory=list)
    current: dict[str, Life] = field(default_factory=dict)
    required: dict[Mid, list[Life]] = field(default_factory=dict)
    missed: list[tuple[Life, Mid, tuple[str, int], int]] = field(default_factory=list)
    """Who missed what, the router that said it was accepted, how many routers had died by then."""
    ever_accepted: dict[str, set[Mid]] = field(default_factory=dict)
    in_hand: dict[str, set[Mid]] = field(default_factory=dict)
    seen: dict[str, set[Mid]] = field(default_factory=dict)
    highest: dict[tuple[str, str], int] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    """Publishers who may be told that they are not known: who knew them is dead."""
    at_least_once: set[str] = field(default_factory=set)
    """Publishers and subscribers in mode first: what they send or get may come again."""
    without_memory: set[str] = field(default_factory=set)
    """Subscribers that present no map: no question is asked before they are synchronised, so that where routers may be
    apart a former ingress may bring them late what its publisher has abandoned."""
    abandoned: set[Mid] = field(default_factory=set)
    """Undecided when its publisher's process lost its memory: nobody sends them again before what comes next."""
    overtaken: set[Mid] = field(default_factory=set)
    """Undecided at a process of whose publisher another process has begun a later life: where all who know of that are
    dead or cut off, they may come again."""
    rejections: dict[Mid, dict[str, bool]] = field(default_factory=dict)
    """Who has rejected it, and whether that is still the last word."""
    presettled: dict[Mid, int] = field(default_factory=dict)  # at most once -> the connection that it was sent on
    holes: int = 0
    may_have_holes: bool = True
    """Routers may be apart, so that only one that dies knows what somebody missed (PROTOCOL 14, H1)."""
    began: dict[tuple[str, int], int] = field(default_factory=dict)
    """Routers that have started again, with their incarnations: the how manieth. Others were there from the start."""
    deaths: list[tuple[str, int]] = field(default_factory=list)

    # what a publisher's application knows
    def sent(self, mid: Mid) -> None:
        self.required[mid] = [life for life in self.current.values() if life.ended is None]

    def sent_settled(self, mid: Mid, connection: int) -> None:
        """At most once: nobody is promised to get it, but nobody gets it twice."""
        self.presettled[mid] = connection

    def told_accepted(self, mid: Mid, at: tuple[str, int]) -> None:
        """`at`: router and incarnation that said so."""
        for life in self.required[mid] if self.strict else ():
            if life.ended is None and self.rejections.get(mid, {}).get(life.subscriber):
                raise Violation(f"G1 {mid} is accepted but {life.subscriber} has rejected it")
        self._told(mid, at)

    def told_rejected(self, mid: Mid, at: tuple[str, int]) -> None:
        if mid not in self.rejections:
            raise Violation(f"G1 {mid} is rejected but nobody has rejected it")
        self._told(mid, at)

    def told_released(self, mid: Mid) -> None:
        """Of an address that says so: nobody was subscribed."""
        for life in self.required[mid]:
            if life.ended is None and mid not in life.accepted and self.strict:
                raise Violation(f"G1 {mid} is released but {life.subscriber} is subscribed")

    def _told(self, mid: Mid, at: tuple[str, int]) -> None:
        for life in self.required[mid]:
            if life.ended is None and mid not in life.accepted:
                if self.strict:
                    raise Violation(f"G1 {mid} is accepted but {life.subscriber} has not accepted it")
                self.missed.append((life, mid, at, len(self.deaths)))

    def publisher_told(self, name: str, why: str, cause: bool = False) -> None:
        self.told.append((name, why))
        if self.strict and not cause and name not in self.excused:
            raise Violation(f"G5 publisher {name} was told {why} without cause")

    def started(self, router: tuple[str, int]) -> None:
        self.began[router] = len(self.began) + 1

    def died(self, router: tuple[str, int]) -> None:
        self.deaths.append(router)

    # what a subscriber's application knows
    def attached(self, name: str, now: float, granted_s: float) -> None:
        """Its attach was answered: it is waited for so long when it goes."""
        life = self.current[name]
        if now > life.waited_for_until:
            life.gaps.append(life.answered)
        life.answered, life.waited_for_until = len(self.began), now + granted_s

    def confirmed(self, name: str) -> None:
        life = Life(name)
        self.lives.append(life)
        self.current[name] = life

    def closed(self, name: str) -> None:
        self._end(name, "closed")

    def subscriber_told(self, name: str) -> None:
        """Its subscription was interrupted (broken, or an unseen mark)."""
        self._end(name, "told")
        self.told.append((name, "interrupted"))
        if self.strict:
            raise Violation(f"G6 {name} was told of an interruption without cause")

    def began_anew(self, name: str) -> None:
        """A process that knew of no subscription was answered, and told that its own is a new one: the life of the one
        before is over. Where no fault excuses a loss it goes on nevertheless: the new one gets all that is unsettled.
        """
        if not self.strict:
            self._end(name, "told")

    def _end(self, name: str, how: str) -> None:
        life = self.current.pop(name, None)
        if life is not None:
            life.ended = how

    def let_go(self, name: str) -> None:
        """What the application had in hand, unaccepted, is gone and will rightly come again."""
        self.in_hand.pop(name, None)

    def forgot(self, name: str) -> None:
        """The application has lost its memory: it knows of nothing that it has been handed."""
        self.closed(name)
        self.in_hand.pop(name, None)
        self.seen.pop(name, None)
        self.ever_accepted.pop(name, None)
        for key in [key for key in self.highest if key[0] == name]:
            del self.highest[key]

    def gave_back(self, name: str, mid: Mid, last: bool = False) -> None:
        """Released: it will rightly come again. last: or no more, as it has come too often (contract 14)."""
        self.in_hand.get(name, set()).discard(mid)
        if last:
            self.rejected(name, mid)
            life = self.current.get(name)
            if life is not None:
                life.accepted.add(mid)

    def rejected(self, name: str, mid: Mid) -> None:
        """Beside `accepted`, which says that this was its last word. Of a subscriber in mode first that has accepted it
        before, it is not: its first word may have been passed on."""
        life = self.current.get(name)
        before = name in self.at_least_once and life is not None and mid in life.accepted
        self.rejections.setdefault(mid, {})[name] = not before

    def handed(self, name: str, mid: Mid) -> None:
        if mid in self.presettled:
            self._handed_at_most_once(name, mid)
            return
        if name in self.rejections.get(mid, ()):  # given back too often, which was not read everywhere
            self.rejections[mid][name] = False
        if self._may_come_again(name, mid):
            self.ever_accepted.get(name, set()).discard(mid)
            self.in_hand.get(name, set()).discard(mid)
        if mid in self.ever_accepted.get(name, ()):
            raise Violation(f"G2 {name} gets {mid} again as new after accepting it")
        if mid in self.in_hand.setdefault(name, set()):
            raise Violation(f"G2 {name} gets {mid} twice as new")
        seen = self.seen.setdefault(name, set())
        if mid not in seen:
            key = (name, mid[0])
            if self.highest.get(key, -1) < mid[1]:
                self.highest[key] = mid[1]
            elif self._is_out_of_order(name, mid):
                raise Violation(f"G3 {name} first sees {mid} after {self.highest[key]}")
        seen.add(mid)
        self.in_hand[name].add(mid)

    def _may_come_again(self, name: str, mid: Mid) -> bool:
        at_least_once = name in self.at_least_once or mid[0] in self.at_least_once
        return at_least_once or (mid in self.overtaken and not self.strict)

    def _is_out_of_order(self, name: str, mid: Mid) -> bool:
        if mid[0] in self.at_least_once and (
            mid in self.rejections or self._has_accepted(name, mid) or self._was_for_others(name, mid)
        ):
            return False  # everybody was through with it; sent again, as its publisher had lost the outcome
        if self.strict or name not in self.without_memory:
            return True
        return mid not in self.abandoned and self._is_owed(name, mid)

    def _has_accepted(self, name: str, mid: Mid) -> bool:
        """In one of its lives: the one that goes on may have begun without memory of it."""
        return any(life.subscriber == name and mid in life.accepted for life in self.lives)

    def _was_for_others(self, name: str, mid: Mid) -> bool:
        """It was sent before this one subscribed, and whoever had subscribed then has accepted it: perhaps nobody."""
        return all(life.ended or (life.subscriber != name and mid in life.accepted) for life in self.required[mid])

    def _is_owed(self, name: str, mid: Mid) -> bool:
        """Sent in the life that goes on: else a former ingress may bring it late, as what was before the gap."""
        return any(life.subscriber == name and life.ended is None for life in self.required[mid])

    def _handed_at_most_once(self, name: str, mid: Mid) -> None:
        seen = self.seen.setdefault(name, set())
        if mid in seen:
            raise Violation(f"G2 {name} gets {mid} twice, which was sent settled")
        seen.add(mid)
        key = (name, f"{mid[0]} {self.presettled[mid]}")  # over another connection it may come another way
        if self.highest.get(key, -1) >= mid[1]:
            raise Violation(f"G3 {name} first sees {mid} after {self.highest[key]}")
        self.highest[key] = mid[1]

    def accepted(self, name: str, mid: Mid) -> None:
        ever = self.ever_accepted.setdefault(name, set())
        if mid in ever and not self._may_come_again(name, mid):
            raise Violation(f"G2 {name} processed {mid} twice")
        ever.add(mid)
        self.in_hand.get(name, set()).discard(mid)
        life = self.current.get(name)
        if life is not None:
            life.accepted.add(mid)

    # at the end
    def quiescent(self, alive: set[tuple[str, int]]) -> None:
        """`alive`: routers with their incarnations. G5: whoever missed something was told, unless the only router
        that knew is dead (PROTOCOL 14, H1), or all that have seen it expire."""
        for life, mid, at, deaths in self.missed:
            if life.ended is None and mid not in life.accepted:
                if at in alive or not (self.may_have_holes or self._expired_unseen(life, at, deaths, alive)):
                    raise Violation(f"G5 {life.subscriber} missed {mid} silently")
                self.holes += 1

    def _expired_unseen(self, life: Life, at: tuple[str, int], deaths: int, alive: set[tuple[str, int]]) -> bool:
        """It was away for longer than anybody waited, and no router is left that was there when it went; or another
        than `at` was dead meanwhile, which who is left may have taken for one that it is attached to."""
        return any(
            all(self.began.get(router, 0) > began for router in alive)
            or any(router != at for router in self.deaths[began:deaths])  # as many have come back
            for began in life.gaps
        )
