"""Deliberate defects: routers that start, and whose word counts as knowledge. Schedules: `scenarios/membership.py`."""

from __future__ import annotations

from math import inf

from chaos.simulation.defects.taking import Patch, always
from interrouter.dialing import Dialing, Step
from interrouter.session import Sessions
from router.core import messages as m
from router.core.base import BaseAddress
from router.core.core import Core
from router.core.egress import Egress
from router.core.intervals import IntervalSet
from router.core.membership import Membership
from router.core.ports import Term
from router.core.startup import Startup
from router.core.subscription_directory import SubscriptionDirectory
from router.links.addresses import Names


def opens_only(self: Sessions, now: float) -> None:
    for session in self.by_peer.values():
        if not session.up:
            self._queue_open(session)


def learn_without_backlog(self: SubscriptionDirectory, sender: str, news: m.SubscriptionNews) -> None:
    LEARN(self, sender, news)
    entry = self.entries[news.name]
    if entry.home is None:
        entry.owed.remove(0, self.records.log.end)


LEARN = SubscriptionDirectory.learn_of_hello


def told_to_everybody(self: BaseAddress, name: m.SubscriptionName, term: Term) -> None:
    self.core.post.broadcast(m.Told(self.name, name, term))


def wait_for_the_kernel(self: Dialing, now: float) -> Step | None:
    if self._under_way and now >= self.at:
        self.at = inf
        return None
    return LOOK(self, now)


LOOK = Dialing.look


def whoever_goes_is_not_waited_for(self: Membership, peer: str, now: float) -> None:
    for said in self._hellos.values():
        said.up = tuple(each for each in said.up if each[0] != peer)
    WENT(self, peer, now)


WENT = Membership.session_ended


def whatever_others_know(self: Startup) -> None:
    self.recover(self.times.pending)


def heard_by_name(self: Membership, router: str, incarnation: int) -> bool:
    return router == self._name or router in self._hellos


def answered_before_it_is_heard(self: Egress, sender: str, message: m.Joined) -> None:
    ON_JOINED(self, sender, message)
    subscriber = self.subscribers.get(message.name)
    if subscriber is not None and subscriber.term == message.term and message.result is m.JoinResult.UNHEARD:
        subscriber.handshake.missing.pop(sender, None)
        self.check_answered(subscriber)


ON_JOINED = Egress.on_joined


def take_it_whole(self: Names, said: str, *_: object, **named: object) -> str:
    return said


def known_as_it_is_said(self: Names, container: str, link: str, address: str, sends: bool) -> Term | None:
    return TERM(self, container, link, address, sends) if address.startswith("/") else None


TERM = Names._term

TAKEN: dict[str, tuple[list[Patch], str]] = {
    "address_said_in_several_ways": ([(Names, "meant", take_it_whole)], "G4"),
    "address_said_beside_a_router_that_takes_it_whole": ([(Names, "_beside_others", always(False))], "G2"),
    "address_said_to_a_router_that_takes_it_whole": ([(Names, "_term", always(None))], "G2"),
    "address_said_when_a_router_goes_back": ([(Names, "_term", known_as_it_is_said)], "G2"),
    # protocol 3.2: A keeps its session with C, and waits for C's word
    "no_acknowledgement_though_there_is_a_path": ([(Sessions, "heartbeat", opens_only)], "G4"),
    # protocol 3.2: C would take it for an error of B, and end their session
    # protocol 7.6: what a home of version 4 says of an attach that was answered counts as a map that was presented
    "gap_is_told_behind_a_home_of_the_version_before": (
        [(SubscriptionDirectory, "_shows_that_a_gap_was_read", always(True))],
        "G5",
    ),
    "told_beside_a_router_of_the_version_before": (
        [(BaseAddress, "tell_read", told_to_everybody)],
        "('A', 'C') do not all know Told",
    ),
    # protocol 4.3: A, restarted, does not know that it has to wait for S
    "restarted_router_does_not_know_orphans": ([(SubscriptionDirectory, "news", always([]))], "G1"),
    # protocol 6.10: A holds it for whoever comes next
    "accepted_by_one_who_has_left": ([(IntervalSet, "among", lambda ranges, these: [])], "G4"),
    # protocol 4.4: nobody knows of S, so nobody waits
    "all_routers_at_once": ([(Core, "may_accept", always(True))], "G1"),
    # protocol 4.4: C knows nothing of S, whom B has been told of after its HELLO, and lets P's message be accepted
    "who_was_to_be_waited_for_is_gone": ([(Membership, "session_ended", whoever_goes_is_not_waited_for)], "G1"),
    # protocol 4.4: nor does A, in the life in which it says HELLO to C
    "who_was_to_be_waited_for_has_started_again": ([(Membership, "has_said_hello", heard_by_name)], "G1"),
    # protocol 4.4: C goes by its option
    "started_fresh_beside_others": ([(Startup, "_recover_fresh", whatever_others_know)], "G1"),
    # protocol 7.2: A counts as reachable whom it has a session with, and C has none to hear of S in
    "answered_before_those_who_start_have_met": ([(Egress, "_awaits_others", always(False))], "G1"),
    # protocol 7.3: B knows S when it hears of it again, and says nothing of what it let be accepted before it did
    "known_from_a_session_that_was_over": ([(SubscriptionDirectory, "_is_in_time", always(True))], "G5"),
    # protocol 7.3: S has been answered; B knows it, but not that it was in time, breaks it, and waits no longer
    "router_dies_when_it_has_asked_everybody": ([(Egress, "on_joined", answered_before_it_is_heard)], "G1"),
    # protocol 7.3: B's mark is the one that C has given
    "mark_of_another_router_hides_no_gap": ([(SubscriptionDirectory, "_is_in_time", always(True))], "G5"),
}

# protocol 11, below the table:
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # protocol 4.3: the record that was there before A knew of S is not owed to it
    "taken_before_the_subscription_was_known": (
        [(SubscriptionDirectory, "learn_of_hello", learn_without_backlog)],
        "G1",
    ),
}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {
    # name: what is taken away, the family of schedules, how the violation begins
    # protocol 4.4: nobody knows who is to be waited for, and A accepts
    "accepts_before_it_knows_anything": ([(Core, "may_accept", always(True))], "all-die", "G1"),
    # docs/wire-routers.md, Trunks: long after the network is whole there is no session, as the kernel asks again late
    "dials_without_a_bound": ([(Dialing, "look", wait_for_the_kernel)], "dials", "G4"),
}
