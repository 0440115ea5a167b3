"""Deliberate defects: who holds what of a queue. Schedules: `scenarios/queues.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chaos.simulation.defects.taking import Patch, always
from router.core.directory import SubscriptionEntry
from router.core.feeding import Feeds
from router.core.intervals import IntervalSet, Range
from router.core.irregular import Irregular
from router.core.messages import Entries, Hold, SubscriptionName
from router.core.ports import BrowserPort
from router.core.publisher import Publisher
from router.core.queue.assigning import ConsumerGrant
from router.core.queue.browsing import Browsing
from router.core.queue.credit import Credit
from router.core.queue.departed import NOBODY, Departed
from router.core.queue.distribution import QueueDistribution
from router.core.queue.doubts import Doubt, Doubts
from router.core.queue.expiring import Expiring
from router.core.queue.free import FreeRecords, Groups, Stretch
from router.core.queue.reception import QueueReception
from router.core.subscriber import Subscriber


def everybody_is_heard(self: Doubts, publisher: Publisher, consumers: object) -> None:
    self.of[publisher] = Doubt(publisher.resending.tags, [], [])


def assign_what_it_has_not_named(
    self: QueueDistribution, publisher: Publisher, entry: SubscriptionEntry, named: IntervalSet
) -> None:
    for start, stop, message_format in self._owed_of(publisher, entry):
        entry.owed.remove(start, stop)
        self.assign(publisher, entry, start, stop, message_format)


def orphans_hold_nothing(self: QueueDistribution, entry: SubscriptionEntry) -> None:
    ORPHAN(self, entry)
    self._freed(entry.owed.take())
    self.records.owing.pop(entry, None)


ORPHAN = QueueDistribution.orphan


def free_what_was_sent(self: QueueDistribution, ranges: list[Range], **_: Any) -> None:
    FREED(self, ranges, tried=False)


def drop_at_once(self: Feeds, publisher: Publisher, **closed: bool) -> None:
    for feed in self.of.get(publisher, {}).values():
        feed.positions.clear()
    DROP(self, publisher, **closed)


def say_nothing(*arguments: Any, **named: Any) -> None:
    pass


def forget_declined(self: QueueReception, subscriber: Subscriber, delivery: Irregular, *bound: Any) -> None:
    self.deliveries.forget(subscriber, delivery)


def expire_what_is_held(self: Expiring, position: int) -> bool:
    return position in self.queue.undone


def nobody_waits_for_an_orphan(self: Groups, group: int) -> SubscriptionName | None:
    holder = HOLDER(self, group)
    entry = self.subscriptions.get(holder) if holder is not None else None
    return None if entry is not None and entry.home is None else holder


def newest_first(self: FreeRecords, *limits: Any) -> list[Stretch]:
    stretches = [(at, at + 1, kind.group) for kind, each in self.by_kind.items() for a, b in each for at in range(a, b)]
    return stretches[::-1]


def look_here_only(self: Browsing, port: BrowserPort, again: bool) -> None:
    self.browsers[port].left = [self.core.name] * again
    self.go_on(self.browsers[port])


def assign_as_if_sent_once(self: QueueDistribution, *arguments: Any, **named: Any) -> None:
    before = self.address.accepted.at
    ASSIGN(self, *arguments, **named)
    self.address.accepted.at = before


def tell_only_of_what_is_bound_to_nothing(self: Departed, consumer: Subscriber) -> list[bytes]:
    held = consumer.irregular.by_tag
    return [each for each in TAKE_OVER(self, consumer) if any(one.ingress is None for one in held[each].values())]


def hear_and_withdraw_nothing(self: QueueDistribution, publisher: Publisher, router: str) -> None:
    doubt = self.doubts.of.get(publisher)
    holders = {tag: [*each] for tag, each in doubt.holders.items()} if doubt is not None else {}
    HEARD_ALL(self, publisher, router)
    if doubt is not None:
        doubt.holders = holders


def hear_nothing_of_what_is_doubted(self: QueueDistribution, sender: str, message: Hold) -> None:
    doubted, self.doubted = self.doubted, IntervalSet()
    ON_HOLD(self, sender, message)
    doubted.add_all(self.doubted)
    self.doubted = doubted


def hear_nothing_of_what_is_done(self: QueueDistribution, sender: str, message: Hold) -> None:
    publisher = self.address.attached.claimed.get(message.publisher)
    records = self._by_tag(publisher) if publisher is not None and message.name != NOBODY else {}
    tags = [tag for tag in message.tags if tag not in records or records[tag][0] in self.undone]
    ON_HOLD(self, sender, replace(message, tags=tags))


def look_at_who_is_there(self: QueueDistribution, positions: list[int]) -> None:
    away = {entry.name: entry.term for entry in self.subscriptions.values() if entry.home is None}
    for position in positions:
        self.too_large[position].update(away)
    REJECT_TOO_LARGE(self, positions)


def never_look_again(self: QueueDistribution, ranges: list[Range]) -> None:
    too_large, self.too_large = self.too_large, {}
    CHECK(self, ranges)
    self.too_large = too_large


def take_the_next_link_for_the_former(
    self: QueueDistribution, publisher: Publisher, entry: SubscriptionEntry
) -> list[Entries]:
    for names in self.elsewhere.values():
        names.update({name: entry.term for name in names if name == entry.name})
    return ENTRIES_FOR(self, publisher, entry)


ASSIGN = QueueDistribution.assign
CHECK = QueueDistribution.check
ENTRIES_FOR = QueueDistribution.entries_for
REJECT_TOO_LARGE = QueueDistribution._reject_too_large
DROP = Feeds.drop
FREED = QueueDistribution._freed
ON_HOLD = QueueDistribution.on_hold
HEARD_ALL = QueueDistribution.heard_all
TAKE_OVER = Departed.take_over
HOLDER = Groups.holder

TAKEN: dict[str, tuple[list[Patch], str]] = {
    # The new ingress takes m0 for free.
    "queue_orphan_may_hold_it": ([(Doubts, "claimed", everybody_is_heard)], "G2"),
    "queue_holder_is_attached": ([(QueueReception, "send_hold", say_nothing)], "G2"),
    "queue_holder_expires": ([(QueueDistribution, "owe_nothing", say_nothing)], "G4"),
    "queue_holder_expires_and_begins_anew": ([(QueueReception, "held", lambda _, subscriber, entered: entered)], "G2"),
    "queue_holder_expires_where_nobody_knows_it": ([(QueueDistribution, "assign", assign_as_if_sent_once)], "G2"),
    "queue_holder_without_a_map": ([(QueueDistribution, "_let_go", say_nothing)], "G4"),
    "queue_settled_goes_to_one_consumer": ([(QueueDistribution, "_freed", free_what_was_sent)], "G2"),
    "queue_settled_waits_when_its_publisher_has_gone": ([(Feeds, "drop", drop_at_once)], "G4"),
    "queue_settled_waits_for_a_consumer_that_comes_back": ([(Feeds, "answer_later", say_nothing)], "G4"),
    "queue_given_back_while_its_router_is_dead": ([(QueueReception, "_return", say_nothing)], "G4"),
    "queue_two_consumers_fail": ([(QueueDistribution, "_count_failures", lambda _, entry, ranges: ranges)], "G4"),
    "queue_holder_is_away": ([(QueueDistribution, "orphan", orphans_hold_nothing)], "G2"),
    "queue_accepted_and_left": ([(Departed, "take_over", always([]))], "G2"),
    "queue_accepted_in_its_map_and_left": ([(Departed, "take_over", tell_only_of_what_is_bound_to_nothing)], "G2"),
    "queue_held_and_done_when_it_is_heard": ([(QueueDistribution, "on_hold", hear_nothing_of_what_is_done)], "G4"),
    "queue_held_and_settled_when_it_is_heard": ([(QueueDistribution, "_say_settled", say_nothing)], "G4"),
    "queue_attach_that_is_read_late": ([(Credit, "is_unproven", always(False))], "G2"),
    "queue_settled_where_a_consumer_has_gone": ([(QueueDistribution, "_reach", say_nothing)], "G4"),
    "queue_all_die_and_the_holder_is_late": ([(QueueDistribution, "may_assign", always(True))], "G2"),
    "queue_named_where_another_may_hold_it": ([(QueueDistribution, "on_hold", hear_nothing_of_what_is_doubted)], "G2"),
    "queue_given_back_and_assigned_again": ([(QueueDistribution, "_let_go", assign_what_it_has_not_named)], "G3"),
    "queue_named_on_a_link_that_is_gone": ([(Doubt, "is_heard", always(True))], "G3"),
    "queue_not_named_on_the_next_link": ([(Doubt, "withdraw", say_nothing)], "G3"),
    "queue_not_named_in_the_next_routers_answer": ([(QueueDistribution, "heard_all", hear_and_withdraw_nothing)], "G3"),
    "queue_new_before_the_consumer_is_heard": ([(QueueDistribution, "may_get", QueueDistribution.is_covered)], "G3"),
    "queue_undeliverable_at_a_link": ([(QueueReception, "_decline", forget_declined)], "G2"),
    "queue_too_large_for_the_nearest": (
        [(QueueReception, "_return_too_large", lambda _, consumer, sender, message, new: new)],
        "s0: detached",
    ),
    "queue_too_large_for_all": ([(QueueDistribution, "_reject_too_large", say_nothing)], "G4"),
    "queue_too_large_for_all_but_who_is_away": ([(QueueDistribution, "_reject_too_large", look_at_who_is_there)], "G1"),
    "queue_too_large_for_all_but_who_leaves": ([(QueueDistribution, "check", never_look_again)], "G4"),
    "queue_too_large_for_a_former_link": (
        [(QueueDistribution, "entries_for", take_the_next_link_for_the_former)],
        "G4",
    ),
    "queue_expires_where_nobody_has_credit": ([(Expiring, "_may_go", always(False))], "G4"),
    "queue_expired_in_a_consumers_hands": ([(Expiring, "_may_go", expire_what_is_held)], "G1"),
    "queue_group_waits_for_its_consumer": ([(Groups, "holder", always(None))], "G3"),
    "queue_group_of_an_orphan": ([(Groups, "holder", nobody_waits_for_an_orphan)], "G3"),
    "queue_group_moves_in_order": ([(FreeRecords, "in_order", newest_first)], "G3"),
    "queue_group_whose_router_died": ([(QueueReception, "_note_groups", say_nothing)], "G3"),
    "queue_group_that_somebody_may_hold": ([(Groups, "in_doubt", always(set()))], "G3"),
    "queue_group_given_to_two": ([(Groups, "noted", say_nothing)], "G3"),
    "queue_higher_priority_first": ([(FreeRecords, "note", say_nothing)], "G3"),
    "queue_browser_sees_what_waits": ([(Browsing, "look", look_here_only)], "G1"),
    "queue_browsed_router_dies": ([(Browsing, "router_down", say_nothing)], "G4"),
    "queue_idle_consumers_share": ([(ConsumerGrant, "pace", always(4))], "G4"),
    "queue_round_that_is_over": ([(QueueReception, "_end_round", say_nothing)], "G3"),
}
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {}
AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
