"""Deliberate defects: large deliveries. Schedules: `scenarios/large.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router.core.deliveries import Deliveries
from router.core.directory import SubscriptionEntry
from router.core.egress import Egress
from router.core.ingress import Ingress
from router.core.irregular import Irregular
from router.core.publisher import Batch, Publisher
from router.core.records import Records
from router.core.streams import Streams
from router.core.subscriber import Subscriber
from router.core.turns import Turns
from router.links.subscriber_link import SubscriberLink


def ended_in_place_of_aborted(self: SubscriberLink) -> None:
    self.add(b"", more=False)


def only_what_is_unfinished(self: Records, publisher: Publisher, entry: SubscriptionEntry) -> bool:
    return publisher.unfinished is not None


def only_what_is_finished(self: Records, publisher: Publisher, entry: SubscriptionEntry) -> bool:
    return publisher.unfinished is None and LACKS(self, publisher, entry)


LACKS = Records.lacks_payload


def released_and_not_asked_for(self: Deliveries, subscriber: Subscriber, delivery: Irregular, failed: bool) -> None:
    subscriber.release(delivery, failed)


def taken_for_sent(self: Egress, publisher_id: bytes) -> list[Subscriber]:
    for subscriber in self.subscribers.values():
        subscriber.partial = None
    return []


def begins_at_once(self: Turns, publisher: Publisher) -> None:
    self.waiting.append(publisher)
    self._given()


def overtaking(self: Ingress, publisher: Publisher, batch: Batch) -> None:
    parts, publisher.held_parts = publisher.held_parts, []
    TRANSFERS(self, publisher, batch)
    publisher.held_parts = parts


TRANSFERS = Ingress.transfers


def held_back_with_credit(self: Ingress, publisher: Publisher, reason: str) -> bool:
    return bool(reason) and WITHHELD(self, publisher, reason)


WITHHELD = Ingress._is_credit_withheld


def flushes_at_once(self: Streams, publisher: Publisher) -> None:
    parts, publisher.held_parts = publisher.held_parts, []
    FLUSH(self, publisher)
    publisher.held_parts = parts


FLUSH = Streams._flush


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 6.12.6: S takes the half of it that it has for all of it
    "large_publisher_aborts": ([(SubscriberLink, "abort", ended_in_place_of_aborted)], "a message"),
    # protocol 6.12.6: B takes what S has half of for sent
    "large_publisher_dies": ([(Egress, "_abort_large", taken_for_sent)], "G4"),
    # protocol 6.12.7: S gets an empty message
    "large_owed_to_an_orphan": ([(Records, "lacks_payload", only_what_is_unfinished)], "a message"),
    # protocol 6.12.7: S gets its end without its beginning
    "large_joins_in_mid_message": ([(Records, "lacks_payload", only_what_is_finished)], "a message"),
    # protocol 6.12.8: S waits for a payload that nobody has
    "large_released": ([(Deliveries, "_release", released_and_not_asked_for)], "G4"),
    # protocol 6.12.10: s0 is in the middle of the one, s1 in the middle of the other
    "large_two_at_a_time": ([(Turns, "want", begins_at_once)], "both wait"),
    # protocol 6.12.10: p0's second message is taken before its first, which has the lower delivery-id
    "large_waits_with_others_behind_it": ([(Ingress, "transfers", overtaking)], "key"),
    # protocol 8.5.2: what p0 could not send is settled while its session is held back
    "large_sent_again_waits_for_its_turn": ([(Ingress, "_is_credit_withheld", held_back_with_credit)], "G2"),
    # protocol 8.5.5: what waits for its turn is settled
    "large_sent_again_before_the_answer": ([(Streams, "_flush", flushes_at_once)], "G2"),
}
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # protocol 8.5.5: nothing is ever settled
    "large_sent_again_before_the_answer": ([(Streams, "flush_after_turn", always(None))], "G4"),
}
AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
