"""The omniscient observer of a simulated network: what the guarantees G1 to G6 mean, in terms of what applications see.

It knows nothing of routers. Clients tell it what they sent, were told, were handed and accepted; it raises `Violation`
with the guarantee's name the moment one is broken. A *subscription* here is the life of a subscriber from the answer
to its attach until it is closed or told that it was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Mid = tuple[str, int]  # (publisher, sequence number)


class Violation(AssertionError):
    """A guarantee does not hold; the text starts with its name."""


@dataclass
class Life:
    subscriber: str
    ended: str | None = None  # None | "closed" | "told"
    accepted: set[Mid] = field(default_factory=set)


@dataclass
class Checker:
    """strict: no fault of this schedule excuses a loss, not even a loud one."""

    strict: bool = True
    lives: list[Life] = field(default_factory=list)
    current: dict[str, Life] = field(default_factory=dict)
    required: dict[Mid, list[Life]] = field(default_factory=dict)
    missed: list[tuple[Life, Mid, tuple[str, int]]] = field(default_factory=list)
    ever_accepted: dict[str, set[Mid]] = field(default_factory=dict)
    in_hand: dict[str, set[Mid]] = field(default_factory=dict)
    seen: dict[str, set[Mid]] = field(default_factory=dict)
    highest: dict[tuple[str, str], int] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    """Publishers who may be told that they are not known: who knew them is dead."""
    holes: int = 0

    # what a publisher's application knows
    def sent(self, mid: Mid) -> None:
        self.required[mid] = [life for life in self.current.values() if life.ended is None]

    def told_accepted(self, mid: Mid, at: tuple[str, int]) -> None:
        """`at`: router and incarnation that said so."""
        for life in self.required[mid]:
            if life.ended is None and mid not in life.accepted:
                if self.strict:
                    raise Violation(f"G1 {mid} is accepted but {life.subscriber} has not accepted it")
                self.missed.append((life, mid, at))

    def publisher_told(self, name: str, why: str, cause: bool = False) -> None:
        self.told.append((name, why))
        if self.strict and not cause and name not in self.excused:
            raise Violation(f"G5 publisher {name} was told {why} without cause")

    # what a subscriber's application knows
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

    def gave_back(self, name: str, mid: Mid) -> None:
        """Released: it will rightly come again."""
        self.in_hand[name].discard(mid)

    def handed(self, name: str, mid: Mid) -> None:
        if mid in self.ever_accepted.get(name, ()):
            raise Violation(f"G2 {name} gets {mid} again as new after accepting it")
        if mid in self.in_hand.setdefault(name, set()):
            raise Violation(f"G2 {name} gets {mid} twice as new")
        seen = self.seen.setdefault(name, set())
        if mid not in seen:
            key = (name, mid[0])
            if self.highest.get(key, -1) >= mid[1]:
                raise Violation(f"G3 {name} first sees {mid} after {self.highest[key]}")
            self.highest[key] = mid[1]
        seen.add(mid)
        self.in_hand[name].add(mid)

    def accepted(self, name: str, mid: Mid) -> None:
        ever = self.ever_accepted.setdefault(name, set())
        if mid in ever:
            raise Violation(f"G2 {name} processed {mid} twice")
        ever.add(mid)
        self.in_hand.get(name, set()).discard(mid)
        life = self.current.get(name)
        if life is not None:
            life.accepted.add(mid)

    # at the end
    def quiescent(self, alive: set[tuple[str, int]]) -> None:
        """`alive`: routers with their incarnations. G5: whoever missed something was told, unless the only router
        that knew is dead (PROTOCOL 14, H1)."""
        for life, mid, at in self.missed:
            if life.ended is None and mid not in life.accepted:
                if at in alive:
                    raise Violation(f"G5 {life.subscriber} missed {mid} silently")
                self.holes += 1
