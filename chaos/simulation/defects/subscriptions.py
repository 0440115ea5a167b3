"""Deliberate defects: who gets what, and who is waited for. Schedules: `scenarios/subscriptions.py`."""

from __future__ import annotations

from dataclasses import replace

from chaos.simulation.defects.taking import Patch, always
from router.core import messages as m
from router.core.deliveries import Deliveries
from router.core.directory import SubscriptionEntry
from router.core.egress import Egress
from router.core.intervals import IntervalSet
from router.core.irregular import Irregular
from router.core.ports import SubscriberAttach, SubscriberPort
from router.core.publisher import Publisher
from router.core.streams import Streams
from router.core.subscriber import Subscriber
from router.core.subscription_directory import SubscriptionDirectory
from router.core.topic.distribution import TopicDistribution
from router.core.traffic import Accept


def accept_by_tag(self: TopicDistribution, sender: str, message: Accept) -> None:
    """Whatever copy of a record that home was asked about, its ACCEPT is about all of them."""
    removed = []
    for start, stop, _ in message.ranges:
        if sender in self.records.awaited:
            removed += self.records.awaited[sender].remove(start, stop)
        for entry in self.address.known_subscriptions.values():
            if entry.home == sender:
                removed += entry.syncing.remove(start, stop)
    self.check(removed)


def waits_for_itself_only(self: Egress, port: SubscriberPort, attach: SubscriberAttach) -> None:
    EGRESS_ATTACH(self, port, attach)
    subscriber = self.kept.subscribers.get(port)
    if subscriber is not None:
        subscriber.handshake.missing = {self.core.name: None}


EGRESS_ATTACH = Egress.attach


def only_what_is_owed(self: TopicDistribution, publisher: Publisher, entry: SubscriptionEntry) -> list[m.Entries]:
    return [each for each in ENTRIES_FOR(self, publisher, entry) if each.owed]


ENTRIES_FOR = TopicDistribution.entries_for


def list_the_resolved(self: Egress, subscriber: Subscriber) -> list[Irregular]:
    return [delivery for delivery in LISTED(self, subscriber) if delivery.publisher_id in subscriber.synced]


LISTED = Egress._listed


def resumed_though_not_listed(self: Deliveries, subscriber: Subscriber, delivery: Irregular) -> None:
    resume = delivery.resume
    SETTLE_IRREGULAR(self, subscriber, delivery)
    if not subscriber.handshake.answered:
        delivery.resume = resume


SETTLE_IRREGULAR = Deliveries.settle_irregular


def resume_last(self: Subscriber, room: int) -> int:
    """What is new uses the credit first, in so far as there is any."""
    while room > 0 and self.irregular.sync_queue:
        room -= self._send_from_sync(room)
    return PUMP_IRREGULAR(self, room)


PUMP_IRREGULAR = Subscriber._pump_irregular


def announce_nothing_yet(self: Egress, announcement: m.Orphan | m.Leave) -> None:
    self.late = announcement  # type: ignore[attr-defined]


def release_then_announce(self: Egress, subscriber: Subscriber) -> None:
    RELEASE_ALL_TOKENS(self, subscriber)
    self.deliveries.reception.flush()
    self.core.post.broadcast(self.late)  # type: ignore[attr-defined]


RELEASE_ALL_TOKENS = Egress._release_all_tokens


def stays_covered(self: Streams, entry: SubscriptionEntry, history: bool) -> None:
    """What makes a home's coverage outlive a subscription's: where its name stands already, it is covered."""
    for publisher in list(self.address.attached.claimed.values()):
        if entry.name not in publisher.coverage.covered.get(entry.home or "", ()):
            publisher.coverage.uncovered[entry] = None
        publisher.questions.needed[entry.name] = publisher.questions.asked + 1
        self.ask(publisher)


def covered_with_its_neighbour(self: Streams, entry: SubscriptionEntry, history: bool) -> None:
    for publisher in list(self.address.attached.claimed.values()):
        if entry.home not in publisher.coverage.covered:
            publisher.coverage.uncovered[entry] = None
        publisher.questions.needed[entry.name] = publisher.questions.asked + 1
        self.ask(publisher)


def orphan_without_uncover(self: SubscriptionDirectory, sender: str, message: m.Orphan) -> None:
    streams = self.streams
    streams.uncover = always(None)  # type: ignore[method-assign]
    ON_ORPHAN(self, sender, message)
    del streams.uncover


ON_ORPHAN = SubscriptionDirectory.on_orphan


def router_down_without_uncover(self: SubscriptionDirectory, router: str) -> None:
    coverages = [publisher.coverage for publisher in self.address.attached.claimed.values()]
    before = {
        each: ({home: dict(names) for home, names in each.covered.items()}, each.destinations) for each in coverages
    }
    ROUTER_DOWN(self, router)
    for coverage, (covered, destinations) in before.items():
        coverage.covered, coverage.destinations = covered, destinations
        self.records.awaited.setdefault(router, IntervalSet())


ROUTER_DOWN = SubscriptionDirectory.router_down


def leaves_now(self: SubscriptionDirectory, sender: str, message: m.Leave) -> None:
    """Whatever term a LEAVE has, it is about the subscription that is there."""
    entry = self.entries.get(message.name)
    ON_LEAVE(self, sender, message if entry is None else replace(message, term=max(message.term, entry.term)))


ON_LEAVE = SubscriptionDirectory.on_leave


def filter_what_it_holds(
    self: Deliveries, subscriber: Subscriber, sender: str, position: int, token: bool, tag: bytes,
    payload: bytes | None, message_format: int,
) -> None:  # fmt: skip
    selecting = subscriber.selecting
    if token and payload is not None and selecting is not None and selecting.outcome_of(payload, message_format):
        self.accept_sync(sender, subscriber.name, subscriber.term, position, position + 1, 0)
        return
    DELIVER_ENTRY(self, subscriber, sender, position, token, tag, payload, message_format)


DELIVER_ENTRY = Deliveries.deliver_entry


def lost_but_synced(self: Egress, publisher_id: bytes) -> None:
    synced = {
        subscriber: subscriber.synced[publisher_id]
        for subscriber in self.subscribers.values()
        if publisher_id in subscriber.synced
    }
    INGRESS_LOST(self, publisher_id)
    for subscriber, stream in synced.items():
        subscriber.synced[publisher_id] = stream


INGRESS_LOST = Egress.ingress_lost


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 6.3: the ACCEPT of the shared copy (s1's) stands for the copy of its own that s0 was sent
    "accept_crosses_replay": ([(TopicDistribution, "on_accept", accept_by_tag)], "G1"),
    # protocol 6.4: B answers for m0, which S has in hand and has not accepted
    "filtered_what_it_holds": ([(Deliveries, "deliver_entry", filter_what_it_holds)], "G1"),
    # protocol 7.1: a process that knows nothing of S takes its place
    "begun_anew_without_its_memory": ([(Egress, "_is_older", always(False))], "S's place is taken"),
    # protocol 7.2: A goes on without S, whom B has confirmed
    "confirmed_before_everybody_knows": ([(Egress, "attach", waits_for_itself_only)], "G1"),
    # protocol 7.3: D's late JOIN takes the subscription away from E, which is not told
    "joins_reordered": (
        [
            (SubscriptionDirectory, "_join_is_stale", always(False)),
            (SubscriptionDirectory, "_tell_old_home", always(None)),
        ],
        "G4",
    ),
    # protocol 7.4: m0 is not part of S's stream, so P's repeat of it comes after m1
    "fresh_subscriber_and_ingress_failover": (
        [(TopicDistribution, "owe_all", always(None)), (TopicDistribution, "entries_for", only_what_is_owed)],
        "G3",
    ),
    # protocol 7.3: A hands on m1 to S, which is covered at B, and has not been sent m0
    "covered_elsewhere_before_its_router_knows": ([(SubscriptionDirectory, "_tell_old_home", always(None))], "G3"),
    # protocol 7.6: the client forgets what is not listed, and takes its repeat for new
    "unresolved_not_listed": ([(Egress, "_listed", list_the_resolved)], "G2"),
    # protocol 7.6, 10.1: what A has filled in is resumed after the answer that does not list it
    "settled_before_it_is_listed": ([(Deliveries, "settle_irregular", resumed_though_not_listed)], "s0: resumption"),
    # protocol 7.6: S is handed more than its window
    "resumptions_come_first_in_credit": ([(Subscriber, "_pump_irregular", resume_last)], "credit"),
    # protocol 8.1: A hears the accept of all that are left at B before it hears that s0 is to be waited for
    "aggregated_accept_without_the_lost_subscriber": (
        [(Egress, "_announce_lost", announce_nothing_yet), (Egress, "_release_all_tokens", release_then_announce)],
        "G1",
    ),
}

# protocol 11, below the table:
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # protocol 8.1: S, back at B, still counts as covered there
    "orphan_is_covered_nowhere": (
        [(SubscriptionDirectory, "on_orphan", orphan_without_uncover), (Streams, "synchronise", stays_covered)],
        "G1",
    ),
    # protocol 8.6: so does S when the session begins again
    "lost_router_covers_nothing": (
        [(SubscriptionDirectory, "router_down", router_down_without_uncover), (Streams, "synchronise", stays_covered)],
        "G1",
    ),
    # protocol 6.1: s1's accept is B's
    "covered_neighbour_does_not_cover": ([(Streams, "synchronise", covered_with_its_neighbour)], "G1"),
    # protocol 8.2: A forgets the subscription that C has just confirmed
    "leave_of_an_earlier_subscription": ([(SubscriptionDirectory, "on_leave", leaves_now)], "G1"),
    # protocol 10.3: S takes m1 from the stream that it was in before, and m0 comes with SYNC
    "stream_of_an_ended_session": (
        [(Egress, "ingress_lost", lost_but_synced), (Deliveries, "_check_not_synced", always(None))],
        "G3",
    ),
}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {
    # protocol 7.2: those who go on without S have not heard of it
    "confirms_before_everybody_knows": ([(Egress, "attach", waits_for_itself_only)], "modes", "G1"),
    # protocol 7.4: what was sent before a subscription was known is not part of its stream
    "owes_no_backlog": (
        [(TopicDistribution, "owe_all", always(None)), (TopicDistribution, "entries_for", only_what_is_owed)],
        "all-die",
        "G1",
    ),
}
