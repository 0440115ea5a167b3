"""Deliberate defects: who holds what of a queue. Schedules: `scenarios/queues.py`."""

from __future__ import annotations

from typing import Any, cast

from chaos.simulation.defects.taking import Patch, always
from router.core.directory import SubscriptionEntry
from router.core.irregular import Irregular
from router.core.publisher import Publisher
from router.core.queue.consumer import Consumer, Nobody
from router.core.queue.deliveries import QueueDeliveries
from router.core.queue.expiring import Expiring
from router.core.queue.records import Doubt, QueueRecords
from router.core.subscriber import Subscriber


def everybody_is_heard(self: QueueRecords, publisher: Publisher) -> None:
    self.doubts[publisher] = Doubt(list(publisher.expected), [])


def orphans_hold_nothing(self: QueueRecords, entry: SubscriptionEntry) -> None:
    ORPHAN(self, entry)
    self._freed(entry.owed.take())
    self.owing.pop(entry, None)


ORPHAN = QueueRecords.orphan


def say_nothing(*arguments: Any, **named: Any) -> None:
    pass


def forget_declined(self: QueueDeliveries, subscriber: Subscriber, delivery: Irregular, *bound: Any) -> None:
    self._forget(subscriber, delivery)


def expire_what_is_held(self: Expiring, position: int) -> bool:
    return position in self.records.undone


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # The new ingress takes m0 for free.
    "queue_orphan_may_hold_it": ([(QueueRecords, "note_claim", everybody_is_heard)], "G2"),
    "queue_holder_is_attached": ([(QueueDeliveries, "send_hold", say_nothing)], "G2"),
    "queue_holder_is_away": ([(QueueRecords, "orphan", orphans_hold_nothing)], "G2"),
    "queue_accepted_and_left": ([(Nobody, "take_over", always([]))], "G2"),
    "queue_attach_that_is_read_late": ([(Consumer, "unproven", cast("Any", property(always(False))))], "G2"),
    "queue_settled_where_a_consumer_has_gone": ([(QueueRecords, "_reach", say_nothing)], "G4"),
    "queue_all_die_and_the_holder_is_late": ([(QueueRecords, "_may_assign", always(True))], "G2"),
    "queue_undeliverable_at_a_link": ([(QueueDeliveries, "_decline", forget_declined)], "G2"),
    "queue_expires_where_nobody_has_credit": ([(Expiring, "_may_go", always(False))], "G4"),
    "queue_expired_in_a_consumers_hands": ([(Expiring, "_may_go", expire_what_is_held)], "G1"),
    "queue_round_that_is_over": ([(QueueDeliveries, "_end_round", say_nothing)], "G3"),
}
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {}
AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
