"""The omniscient observer of a simulated network: what the guarantees G1 to G6 mean, in terms of what applications see.

It knows nothing of routers. Clients tell it what they sent, were told, were handed and accepted; it raises `Violation`
with the guarantee's name the moment one is broken. A *subscription* here is the life of a subscriber from the answer
to its attach until it is closed or told that it was interrupted.

`Deliveries` says what is a repeat and what comes late, for this checker as for the judge of live runs (chaos/judge).
Losses are judged by each of them, because they know different things. The checker sees all events in order: a publisher
must not be told accepted before every subscriber has accepted, and the checker knows which faults excuse what. The
judge reads lines of several processes, some of them written late or by a process that was killed. It concludes at the
end, in ranges, for millions of messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from chaos.judge.ranges import Deliveries
from chaos.simulation.world.dials import DEAD_AFTER_S

DRIFT = 2e-3  # ... by clocks of which two drift apart less (protocol 7.3)
Mid = tuple[str, int]  # (publisher, sequence number)


class Violation(AssertionError):
    """A guarantee does not hold; the text starts with its name."""


def always(*_: object) -> bool:
    return True


def never() -> float:
    """The time, where nobody asks."""
    return 0.0


@dataclass
class Life:
    subscriber: str
    ended: str | None = None  # None | "closed" | "told"
    accepted: set[Mid] = field(default_factory=set)
    unheard: set[Mid] = field(default_factory=set)
    """What it has accepted while a router was out of sight, which may have accepted it before that."""
    moved: bool = False
    """Its first attach was answered while a router was out of sight, and it has attached again since: no router that it
    has come to since can tell the others how old it is (protocol 7.3)."""
    answered: int = 0  # how many routers had restarted when its attach was last answered
    waited_for_until: float = math.inf  # it does not expire before, counted from then
    gaps: list[int] = field(default_factory=list)  # `answered` before each absence that may have exceeded its timeout
    deaths: int = 0  # of routers, before it began
    since: float = -math.inf  # when the life before this one ended
    whole: bool = True  # all routers were together when it began


@dataclass
class Checker:
    """strict: no fault of this schedule excuses a loss, not even a loud one."""

    competing: ClassVar[bool] = False  # what one subscriber gives back, another may get
    strict: bool = True
    lives: list[Life] = field(default_factory=list)
    current: dict[str, Life] = field(default_factory=dict)
    required: dict[Mid, list[Life]] = field(default_factory=dict)
    clock: Callable[[], float] = never
    decided: dict[Mid, float] = field(default_factory=dict)  # message -> when its outcome was told
    ended: dict[str, float] = field(default_factory=dict)  # subscriber -> when its latest life ended
    without_born: set[str] = field(default_factory=set)
    """Subscribers that bring no born: routers do not know when they began, cannot tell their lives apart, and may tell
    them of one gap again."""
    partings: int = 0  # sessions between routers that have ended
    links: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """Subscriber whose attach is not answered -> how many had ended then, and whether its router was in session with
    all."""
    unanswered: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """Subscriber whose attach was never answered -> the same of it. Where a router was out of sight until
    others had read of that attach, they remember that it may have accepted without it (protocol 2.8), and tell later.
    """
    returned_late: dict[str, int] = field(default_factory=dict)
    """Subscriber that has been away for longer than it is waited for -> how many had ended when it went."""
    before: dict[str, int] = field(default_factory=dict)  # subscriber -> how many routers had died when it attached
    again: set[Mid] = field(default_factory=set)
    """Sent on more than one connection: a router may have told an outcome on one of the former."""
    missed: list[tuple[Life, Mid, tuple[str, int], int]] = field(default_factory=list)
    """(life, missed message, router that told accepted, how many routers had died by then)."""
    deliveries: dict[str, dict[str, Deliveries]] = field(default_factory=dict)
    """Subscriber -> publisher -> deliveries; for messages sent settled, publisher and connection."""
    told: list[tuple[str, str]] = field(default_factory=list)
    excused: set[str] = field(default_factory=set)
    """Publishers that may be told that they are unknown: the routers that knew them are dead."""
    at_least_once: set[str] = field(default_factory=set)
    """Publishers and subscribers in mode first: what they send or get may come again."""
    without_memory: set[str] = field(default_factory=set)
    """Subscribers that present no map. Publishers are synchronised to these without a question, so where routers may be
    apart a former ingress may bring them late what its publisher has abandoned."""
    abandoned: set[Mid] = field(default_factory=set)
    """Undecided when the publisher's process lost its memory: not sent again before the publisher's next messages."""
    overtaken: set[Mid] = field(default_factory=set)
    """Undecided in a process whose publisher has begun a later life in another process. They may come again where all
    routers that know of that life are dead or cut off."""
    rejections: dict[Mid, dict[str, bool]] = field(default_factory=dict)
    """Message -> subscriber that has rejected it -> whether that is still its last word."""
    group_of: dict[Mid, str] = field(default_factory=dict)  # messages with a group-id
    may_expire: dict[Mid, None] = field(default_factory=dict)  # messages with a ttl
    presettled: dict[Mid, int] = field(default_factory=dict)  # at most once -> the connection that it was sent on
    holes: int = 0
    may_have_holes: bool = True
    """Routers may be apart: the only router that knows what a subscriber missed may die (protocol 14, H1)."""
    began: dict[tuple[str, int], int] = field(default_factory=dict)
    """Routers that have restarted, with their incarnations, numbered in order. Others were there from the start."""
    deaths: list[tuple[str, int]] = field(default_factory=list)
    unread: list[set[str]] = field(default_factory=list)
    """For each death, the routers that are still to read that their session with that router is over."""
    hears_of_deaths: bool = True
    beside_old: bool = False
    """Some routers are of the version before: these do not say which subscriptions have stayed (protocol 4.2)."""
    within_bounds: bool = False
    """No fault of this schedule lasts as long as a subscription is waited for: who subscribed when all routers were
    together misses nothing, and is told nothing."""
    lag_s: float = 0.1
    """Routers count a subscription's age from earlier than it began: from the beginning of a session. The longest that
    one has taken to be up."""
    dead_after_s: float = DEAD_AFTER_S
    together: Callable[[], bool] = always
    """Whether every router is there, and in session with every other."""
    sees_all: Callable[[str], bool] = always
    """Whether the router at which this subscriber is attached has the HELLO of every other: until then one that comes
    back is gone (protocol 2.9)."""
    may_be_decided: Callable[[Mid], bool] = always
    """Whether a router may have told the outcome of a message which its publisher has not read."""
    dropped: set[str] = field(default_factory=set)
    """Subscribers whose subscription an operator has dropped, or taken out of a file: that is told as a gap."""
    declared: set[str] = field(default_factory=set)
    """Subscribers that all topology files declare: these miss nothing, whatever happens, and are told nothing.
    Each has one life, from then on, whether it has attached or not."""

    added: dict[str, frozenset[Mid]] = field(default_factory=dict)
    """Those of them that were declared later, with what had been sent before: a router may have accepted that, and they
    may be told of the gap."""

    forgetful: set[str] = field(default_factory=set)
    """Those of them that have since forgotten all, as their process restarted, or as they read that a file had removed
    them. They know of no gap."""

    def declare(self, *names: str, later: bool = False) -> None:
        """All files declare these now, and no others."""
        self.forgetful.intersection_update(self.declared)
        for name in self.declared - {*names}:
            self.declared.discard(name)
            self.added.pop(name, None)
            self._end(name, "closed")
        for name in names:
            if name not in self.declared and later:
                self.added[name] = frozenset(self.required)
            self.declared.add(name)
            self.current.setdefault(name, Life(name))

    # what a publisher's application knows
    def sent(self, mid: Mid, group: str | None = None) -> None:
        self.required[mid] = [life for life in self.current.values() if life.ended is None]

    def sent_again(self, *mids: Mid) -> None:
        """Its publisher attaches, and has no outcome for these."""
        self.again.update(mids)

    def sent_settled(self, mid: Mid, connection: int) -> None:
        """At most once: the message may be lost, but must not be delivered twice."""
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
        """For an address that releases without subscribers: nobody was subscribed."""
        for life in self.required[mid]:
            if life.ended is None and mid not in life.accepted and self.strict:
                raise Violation(f"G1 {mid} is released but {life.subscriber} is subscribed")

    def _told(self, mid: Mid, at: tuple[str, int]) -> None:
        self.decided[mid] = self.clock()
        for life in self.required[mid]:
            if life.ended is None and mid not in life.accepted:
                name = life.subscriber
                protected = name in self.declared and mid not in self.added.get(name, ())
                if self.strict or (self.within_bounds and life.whole) or protected:
                    raise Violation(f"G1 {mid} is accepted but {name} has not accepted it")
                if name not in self.forgetful:
                    self.missed.append((life, mid, at, len(self.deaths)))

    def publisher_told(self, name: str, why: str, cause: bool = False) -> None:
        self.told.append((name, why))
        if self.strict and not cause and name not in self.excused:
            raise Violation(f"G5 publisher {name} was told {why} without cause")

    def started(self, router: tuple[str, int]) -> None:
        self.began[router] = len(self.began) + 1

    def died(self, router: tuple[str, int], unread: Iterable[str] = ()) -> None:
        """unread: the routers that count it among those that are there."""
        for others in self.unread:
            others.discard(router[0])
        self.deaths.append(router)
        self.unread.append(set(unread))

    def parted(self, router: str, peer: str) -> None:
        """`router` has read that its session with `peer` is over."""
        self.partings += 1
        for (name, _), others in zip(self.deaths, self.unread, strict=True):
            if name == peer:
                others.discard(router)

    def read(self) -> int:
        """How many of the deaths no router is still to read of: the others come later for a subscription that begins
        now, as far as routers can know."""
        return next((count for count, others in enumerate(self.unread) if others), len(self.deaths))

    def was_up(self, after_s: float) -> None:
        """A session between routers is up, so long after it was begun: no longer than peers stay silent."""
        self.lag_s = max(self.lag_s, min(after_s, self.dead_after_s))

    # what a subscriber's application knows
    def attached(self, name: str, now: float, granted_s: float) -> None:
        """Its attach was answered, and it was granted this timeout."""
        self.links.pop(name, None)
        life = self.current.get(name)
        if life is None:  # it was declared; nobody has said yet what becomes of it
            return
        if now > life.waited_for_until:
            life.gaps.append(life.answered)
        life.moved = life.moved or not (life.whole or life.waited_for_until == math.inf)
        life.answered, life.waited_for_until = len(self.began), now + granted_s

    def confirmed(self, name: str) -> None:
        if name in self.declared and name in self.current:
            return
        since = -math.inf if name in self.without_born else self.ended.get(name, -math.inf)
        life = Life(name, deaths=self.before.get(name, self.read()), since=since)
        _, saw_all = self.links.get(name, (0, True))
        life.whole = saw_all and self.together()
        if name not in self.without_born:
            self.unanswered.pop(name, None)
        self.lives.append(life)
        self.current[name] = life

    def closed(self, name: str) -> None:
        self._end(name, "closed")

    def subscriber_told(self, name: str, unsure: Iterable[Mid] = (), counted: float | None = None) -> None:
        """Its subscription was interrupted (broken, or an unseen mark). unsure: what it has accepted, while routers may
        not know that. counted: its own client says so, as it was away for too long, and no router may know that; it has
        connected then, and routers count the next subscription from its attach."""
        life = self.current.get(name)
        cause = life is None or counted is not None or name in self.declared or self._has_cause(life, {*unsure})
        self._end(name, "told")
        if counted is not None:
            self.ended[name] = min(counted, self.ended.get(name, counted))
        self.unanswered.pop(name, None)
        self.told.append((name, "interrupted"))
        bounded = self.within_bounds and life is not None and life.whole
        if self.strict or bounded or name in self.declared - self.added.keys():
            raise Violation(f"G6 {name} was told of an interruption without cause")
        if not cause:
            raise Violation(f"G5 {name} was told of a gap, and nothing was accepted without it")

    def unknown(self, name: str, waited_for: bool, unsure: Iterable[Mid] = (), again: bool = False) -> bool:
        """It presents no map and brings no epoch, and no router knew its subscription: that is all that it is told of a
        gap. waited_for: it was not away for longer than it was granted. again: no router can know that it has read the
        same in its last answer (protocol 7.6). Returns whether its life is over."""
        life = self.current.get(name)
        if name in self.declared:
            self._end(name, "told")
            return False
        if life is None:
            return False
        died = not self.hears_of_deaths or len(self.deaths) > life.deaths  # and with it what knew of the subscription
        if self.strict and (died or again):
            return False  # its life goes on: the new subscription gets all that is unsettled
        if self.strict or (waited_for and not died and not again):
            self.subscriber_told(name, unsure)
        self._end(name, "told")
        return True

    def _has_cause(self, life: Life, unsure: set[Mid]) -> bool:
        """Says whether something may have been accepted without this subscription, as far as routers can know."""
        if self.competing or self.beside_old or life.subscriber in self.dropped:
            return True
        if self.unanswered.get(life.subscriber, (self.partings, True)) != (self.partings, True):
            return True
        earlier: list[Life] = []  # that routers can't tell from this one
        if life.subscriber in self.without_born:
            earlier = [each for each in self.lives if each.subscriber == life.subscriber and each is not life]
        # what a router accepted died with it
        if len(self.deaths) > min(each.deaths for each in [life, *earlier[-1:]]):
            return True
        # a router was out of sight when nobody waited for the subscriber (protocol 2.9)
        if self.returned_late.get(life.subscriber, self.partings) != self.partings:
            return True
        asked = self.links.get(life.subscriber, (self.partings, True)) == (self.partings, True)
        if not (asked and self.sees_all(life.subscriber)):  # another may have accepted, and cannot be asked
            return True
        if any(each.ended == "told" for each in earlier):
            return True
        since = -math.inf if life.moved else life.since - self.lag_s - DRIFT * (self.clock() - life.since)
        doubtful = unsure | life.unheard | self.again
        for mid in self.required:
            if mid in life.accepted and mid not in doubtful:
                continue
            decided = self.decided.get(mid)
            if self.may_be_decided(mid) if decided is None else decided >= since:
                return True
        return False

    def began_anew(self, name: str) -> None:
        """A process that knew of no subscription was answered, and told that its subscription is new: the life of the
        earlier subscription is over. Where no fault excuses a loss the life continues nevertheless, as the new
        subscription gets all that is unsettled."""
        if not self.strict:
            self._end(name, "told")

    def _end(self, name: str, how: str) -> None:
        if name in self.declared:
            if how == "told":  # of what was accepted before it was declared; its life goes on
                self.missed = [each for each in self.missed if each[0].subscriber != name]
            return
        life = self.current.pop(name, None)
        if life is not None:
            life.ended = how
            self.returned_late.pop(name, None)
            self.ended[name] = self.clock()

    def of(self, name: str, publisher: str) -> Deliveries:
        pairs = self.deliveries.setdefault(name, {})
        found = pairs.get(publisher)
        if found is None:
            found = pairs[publisher] = Deliveries()
        return found

    def accepted_by(self, name: str) -> set[Mid]:
        return {(p, number) for p, pair in self.deliveries.get(name, {}).items() for number in pair.accepted}

    def received_by(self, name: str) -> set[Mid]:
        return {(p, number) for p, pair in self.deliveries.get(name, {}).items() for number in pair.received}

    def let_go(self, name: str, but: Iterable[Mid] = ()) -> None:
        """The application has lost what it had in hand, unaccepted: that may come again."""
        for pair in self.deliveries.get(name, {}).values():
            pair.in_hand.clear()
        for publisher, number in but:
            self.of(name, publisher).in_hand.add(number)

    def forgot(self, name: str) -> None:
        """The application has lost its memory: it knows of nothing that it has been handed."""
        self.closed(name)
        self.deliveries.pop(name, None)
        if name in self.added:
            self.forgetful.add(name)
            self._end(name, "told")

    def gave_back(self, name: str, mid: Mid, last: bool = False) -> None:
        """The application has released it: it may come again, unless it has come too often (last; protocol 6.4)."""
        self.of(name, mid[0]).in_hand.discard(mid[1])
        if last:
            self.rejected(name, mid)
            life = self.current.get(name)
            if life is not None:
                life.accepted.add(mid)

    def declined(self, name: str, mid: Mid) -> None:
        """Modified with undeliverable-here, at a queue: others may get it."""

    def declined_by(self, name: str) -> bool:
        """Whether it has done so on its present link."""
        return False

    def new_link(self, name: str) -> None:
        """It attaches, on another link than before."""
        if name in self.links:
            self.unanswered.setdefault(name, self.links[name])
        self.links[name] = (self.partings, self.sees_all(name))
        self.before[name] = self.read()

    def returns_late(self, name: str, partings: int) -> None:
        """It attaches, and has been away for longer than it is waited for. partings: as it went."""
        self.returned_late.setdefault(name, partings)

    def rejected(self, name: str, mid: Mid) -> None:
        """Called beside `accepted`, which notes the subscriber's last word. A rejection after an acceptance is not the
        last word in mode first, and for a declared subscription whose earlier process accepted: the acceptance may have
        been passed on."""
        life = self.current.get(name)
        lenient = name in self.at_least_once or name in self.declared
        before = lenient and life is not None and mid in life.accepted
        self.rejections.setdefault(mid, {})[name] = not before

    def handed(self, name: str, mid: Mid) -> None:
        if mid in self.presettled:
            self._handed_at_most_once(name, mid)
            return
        if name in self.rejections.get(mid, ()):  # released too often, which not every router has read
            self.rejections[mid][name] = False
        pair = self.of(name, mid[0])
        if self._may_come_again(name, mid):
            pair.may_come_again(mid[1])
        highest = pair.highest
        repeats, late = pair.hand(mid[1])
        if repeats:
            again = "again as new after accepting it" if repeats == "accepted" else "twice as new"
            raise Violation(f"G2 {name} gets {mid} {again}")
        if late and self._is_out_of_order(name, mid):
            raise Violation(f"G3 {name} first sees {mid} after {highest}")

    def _may_come_again(self, name: str, mid: Mid) -> bool:
        at_least_once = name in self.at_least_once or mid[0] in self.at_least_once
        return at_least_once or (mid in self.overtaken and not self.strict)

    def _is_out_of_order(self, name: str, mid: Mid) -> bool:
        if mid[0] in self.at_least_once and (
            mid in self.rejections or self._has_accepted(name, mid) or self._was_for_others(name, mid)
        ):
            return False  # every subscriber had accepted it; it is sent again because its publisher lost the outcome
        if self.strict or name not in self.without_memory:
            return True
        return mid not in self.abandoned and self._is_owed(name, mid)

    def _has_accepted(self, name: str, mid: Mid) -> bool:
        """Says whether it was accepted in one of its lives. The present one may have begun without memory of that."""
        return any(life.subscriber == name and mid in life.accepted for life in self.lives)

    def _was_for_others(self, name: str, mid: Mid) -> bool:
        """Whether it was sent before this subscriber subscribed, and all subscribers of that time have accepted it."""
        return all(life.ended or (life.subscriber != name and mid in life.accepted) for life in self.required[mid])

    def _is_owed(self, name: str, mid: Mid) -> bool:
        """Whether it was sent in its present life. A former ingress may bring earlier messages late."""
        return any(life.subscriber == name and life.ended is None for life in self.required[mid])

    def _handed_at_most_once(self, name: str, mid: Mid) -> None:
        pair = self.of(name, f"{mid[0]} {self.presettled[mid]}")  # over another connection it may come another way
        if mid[1] in pair.received:
            raise Violation(f"G2 {name} gets {mid} twice, which was sent settled")
        if pair.highest >= mid[1]:
            raise Violation(f"G3 {name} first sees {mid} after {pair.highest}")
        pair.received.add(mid[1])
        pair.highest = mid[1]

    def accepted(self, name: str, mid: Mid) -> None:
        if not self.of(name, mid[0]).accept(mid[1]) and not self._may_come_again(name, mid):
            raise Violation(f"G2 {name} processed {mid} twice")
        life = self.current.get(name)
        if life is not None:
            life.accepted.add(mid)
            if not self.sees_all(name):
                life.unheard.add(mid)

    # at the end
    def quiescent(self, alive: set[tuple[str, int]]) -> None:
        """Checks G5: every subscriber that missed something was told, unless the only router that knew is dead
        (protocol 14, H1), or all that have seen it expire. `alive`: routers with their incarnations."""
        for life, mid, at, deaths in self.missed:
            if life.ended is None and mid not in life.accepted:
                if at in alive or not (self.may_have_holes or self._expired_unseen(life, at, deaths, alive)):
                    raise Violation(f"G5 {life.subscriber} missed {mid} silently")
                self.holes += 1

    def _expired_unseen(self, life: Life, at: tuple[str, int], deaths: int, alive: set[tuple[str, int]]) -> bool:
        """Says whether it was away for longer than its timeout, and no router is left that was there when it went; or
        whether a router other than `at` was dead meanwhile, at which the others may have taken it to be attached."""
        return any(
            all(self.began.get(router, 0) > began for router in alive)
            or any(router != at for router in self.deaths[began:deaths])  # as many have come back
            for began in life.gaps
        )
