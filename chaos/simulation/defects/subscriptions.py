"""Deliberate defects: who gets what, and who is waited for. Schedules: `scenarios/subscriptions.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router import messages as m
from router.address import Address
from router.deliveries import Deliveries
from router.directory import SubscriptionEntry
from router.egress import Egress
from router.ingress import Ingress
from router.intervals import IntervalSet
from router.irregular import Irregular
from router.publisher import Publisher
from router.subscriber import Subscriber


def accept_by_tag(self: Ingress, sender: str, message: m.Accept) -> None:
    """Whatever copy of a record that home was asked about, its ACCEPT is about all of them."""
    removed = []
    for start, stop, _ in message.ranges:
        if sender in self.awaited:
            removed += self.awaited[sender].remove(start, stop)
        for entry in self.address.subscriptions.values():
            if entry.home == sender:
                removed += entry.syncing.remove(start, stop)
    self.check(removed)


def own_word(self: Egress) -> dict[str, None]:
    return {self.core.name: None}


def only_what_is_owed(self: Ingress, link: Publisher, entry: SubscriptionEntry) -> list[m.Entries]:
    return [each for each in ENTRIES(self, link, entry) if each.owed]


ENTRIES = Ingress._entries


def list_the_resolved(self: Egress, link: Subscriber) -> list[Irregular]:
    return [delivery for delivery in LISTED(self, link) if delivery.publisher in link.synced]


LISTED = Egress._listed


def resume_last(self: Subscriber, room: int) -> int:
    """What is new uses the credit first, in so far as there is any."""
    while room > 0 and self.line:
        room -= self._send_line(room)
    return PUMP_SINGLE(self, room)


PUMP_SINGLE = Subscriber._pump_single


def announce_nothing_yet(self: Egress, announcement: m.Orphan | m.Leave) -> None:
    self.late = announcement  # type: ignore[attr-defined]


def release_then_announce(self: Egress, link: Subscriber) -> None:
    RELEASE_ALL(self, link)
    self.flush()
    self.core.broadcast(self.late)  # type: ignore[attr-defined]


RELEASE_ALL = Egress._release_all


def stays_covered(self: Ingress, entry: SubscriptionEntry, history: bool) -> None:
    """What makes a home's coverage outlive a subscription's: where its name stands already, it is covered."""
    for link in list(self.publishers.values()):
        if entry.name not in link.covered.get(entry.home or "", ()):
            link.uncovered[entry] = None
        link.need[entry.name] = link.asked + 1
        self.ask(link)


def covered_with_its_neighbour(self: Ingress, entry: SubscriptionEntry, history: bool) -> None:
    for link in list(self.publishers.values()):
        if entry.home not in link.covered:
            link.uncovered[entry] = None
        link.need[entry.name] = link.asked + 1
        self.ask(link)


def orphan_without_uncover(self: Address, sender: str, message: m.Orphan) -> None:
    self.ingress.uncover = always(None)  # type: ignore[method-assign]
    ON_ORPHAN(self, sender, message)
    del self.ingress.uncover


ON_ORPHAN = Address.on_orphan


def router_down_without_uncover(self: Ingress, router: str, orphans: list[SubscriptionEntry]) -> None:
    before = {
        link: ({home: dict(names) for home, names in link.covered.items()}, link.destinations)
        for link in self.publishers.values()
    }
    ROUTER_DOWN(self, router, orphans)
    for link, (covered, destinations) in before.items():
        link.covered, link.destinations = covered, destinations
        self.awaited.setdefault(router, IntervalSet())


ROUTER_DOWN = Ingress.router_down


def void_but_synced(self: Egress, publisher: bytes) -> None:
    synced = {link: link.synced[publisher] for link in self.subscribers.values() if publisher in link.synced}
    VOID(self, publisher)
    for link, stream in synced.items():
        link.synced[publisher] = stream


VOID = Egress.void


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # 6.3: the ACCEPT of the shared copy (s1's) stands for the copy of its own that s0 was sent
    "accept_crosses_replay": ([(Ingress, "on_accept", accept_by_tag)], "G1"),
    # 7.2: A goes on without S, whom B has confirmed
    "confirmed_before_everybody_knows": ([(Egress, "_barrier", own_word)], "G1"),
    # 7.3: D's late JOIN takes the subscription away from E, which is not told
    "joins_reordered": (
        [(Address, "_join_is_stale", always(False)), (Address, "_tell_where_it_was", always(None))],
        "G4",
    ),
    # 7.4: m0 is not part of S's stream, so P's repeat of it comes after m1
    "fresh_subscriber_and_ingress_failover": (
        [(Address, "_owe_backlog", always(None)), (Ingress, "_entries", only_what_is_owed)],
        "G3",
    ),
    # 7.3: A hands on m1 to S, which is covered at B, and has not been sent m0
    "covered_elsewhere_before_its_router_knows": ([(Address, "_tell_where_it_was", always(None))], "G3"),
    # 7.6: the client forgets what is not listed, and takes its repeat for new
    "unresolved_not_listed": ([(Egress, "_listed", list_the_resolved)], "G2"),
    # 7.6, 10.1: what A has filled in is resumed after the answer that does not list it
    "settled_before_it_is_listed": ([(Deliveries, "_leave_out", always(None))], "s0: resumption"),
    # 7.6: S is handed more than its window
    "resumptions_come_first_in_credit": ([(Subscriber, "_pump_single", resume_last)], "credit"),
    # 8.1: A hears the accept of all that are left at B before it hears that s0 is to be waited for
    "aggregated_accept_without_the_lost_subscriber": (
        [(Egress, "_announce_lost", announce_nothing_yet), (Egress, "_release_all", release_then_announce)],
        "G1",
    ),
}

# PROTOCOL 11, below the table:
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # 8.1: S, back at B, still counts as covered there
    "orphan_is_covered_nowhere": (
        [(Address, "on_orphan", orphan_without_uncover), (Ingress, "synchronise", stays_covered)],
        "G1",
    ),
    # 8.6: so does S when the session begins again
    "lost_router_covers_nothing": (
        [(Ingress, "router_down", router_down_without_uncover), (Ingress, "synchronise", stays_covered)],
        "G1",
    ),
    # 6.1: s1's accept is B's
    "covered_neighbour_does_not_cover": ([(Ingress, "synchronise", covered_with_its_neighbour)], "G1"),
    # 8.2: A forgets the subscription that C has just confirmed
    "leave_of_an_earlier_subscription": ([(Address, "_leave_is_stale", always(False))], "G1"),
    # 10.3: S takes m1 from the stream that it was in before, and m0 comes with SYNC
    "stream_of_an_ended_session": (
        [(Egress, "void", void_but_synced), (Egress, "_check_not_synced", always(None))],
        "G3",
    ),
}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {
    # 7.2: those who go on without S have not heard of it
    "confirms_before_everybody_knows": ([(Egress, "_barrier", own_word)], "modes", "G1"),
    # 7.4: what was sent before a subscription was known is not part of its stream
    "owes_no_backlog": (
        [(Address, "_owe_backlog", always(None)), (Ingress, "_entries", only_what_is_owed)],
        "all-die",
        "G1",
    ),
}
