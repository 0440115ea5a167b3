"""Deliberate defects: large deliveries. Schedules: `scenarios/large.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router.core.directory import SubscriptionEntry
from router.core.held import Batch
from router.core.ingress import Ingress
from router.core.irregular import Irregular
from router.core.large import AnotherMessage, Body, Partial
from router.core.passage import Passage
from router.core.publisher import Publisher
from router.core.records import Records
from router.core.streams import Streams
from router.core.subscriber import Subscriber
from router.core.topic.reception import TopicReception
from router.core.turns import Turns
from router.core.windows import Windows
from router.links.subscriber_link import SubscriberLink


def ended_in_place_of_aborted(self: SubscriberLink) -> None:
    self.add(b"", more=False)


def only_what_is_unfinished(self: Records, publisher: Publisher, entry: SubscriptionEntry) -> bool:
    return publisher.sent.unfinished is not None


def only_what_is_finished(self: Records, publisher: Publisher, entry: SubscriptionEntry) -> bool:
    return publisher.sent.unfinished is None and LACKS(self, publisher, entry)


LACKS = Records.lacks_payload


def released_and_not_asked_for(self: TopicReception, subscriber: Subscriber, delivery: Irregular, failed: bool) -> None:
    subscriber.irregular.release(delivery, failed)


def taken_for_sent(self: Passage, publisher_id: bytes) -> bool:
    if self.partial is not None and self.partial.tag[:8] == publisher_id:
        self.partial = None
    return False


def aborted_though_resumed(self: Passage, publisher_id: bytes) -> bool:
    if self.partial is not None:
        self.partial.resumes = False
    return LOSES(self, publisher_id)


def detached_at_once(self: Passage, publisher_id: bytes) -> bool:
    loses = LOSES(self, publisher_id)
    if self.open is not None:
        self.give_up(self.open, "")
    return loses


LOSES = Passage.lose


def from_its_beginning(self: Partial) -> bool:
    return True


def whatever_it_is(self: Partial) -> bool:
    try:
        return SKIPS(self)
    except AnotherMessage:
        self._seen = None
        return True


SKIPS = Partial.skip


def taken_when_it_goes_out(self: Passage, position: int, body: Body) -> int:
    return 0 if self.partial is not None and self.partial._seen is not None else TAKES(self, position, body)


TAKES = Passage.taken


def passes_by_and_is_passed_over(self: Passage, position: int) -> bool:
    passes = PASSES_BY(self, position)
    if passes:
        self.subscriber.irregular.skip.add(position, position + 1)
    return passes


PASSES_BY = Passage.pass_by


def begins_at_once(self: Turns, publisher: Publisher) -> None:
    self.waiting.append(publisher)
    self._given()


def overtaking(self: Ingress, publisher: Publisher, batch: Batch) -> None:
    parts, publisher.held.parts = publisher.held.parts, []
    TRANSFERS(self, publisher, batch)
    publisher.held.parts = parts


TRANSFERS = Ingress.transfers


def held_back_with_credit(self: Windows, publisher: Publisher, reason: str) -> bool:
    return bool(reason) and WITHHELD(self, publisher, reason)


WITHHELD = Windows._is_credit_withheld


def flushes_at_once(self: Streams, publisher: Publisher) -> None:
    parts, publisher.held.parts = publisher.held.parts, []
    FLUSH(self, publisher)
    publisher.held.parts = parts


FLUSH = Streams._flush


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 6.12.6: S takes the half of it that it has for all of it
    "large_publisher_aborts": ([(SubscriberLink, "abort", ended_in_place_of_aborted)], "a message"),
    # protocol 6.12.6: B takes what S has half of for sent
    "large_publisher_dies": ([(Passage, "lose", taken_for_sent)], "G4"),
    # protocol 6.12.12: S forgets what it has in hand, or has accepted
    "large_resumed_and_its_publisher_lost": ([(Passage, "lose", aborted_though_resumed)], "G2"),
    "large_resumed_and_another_joins": ([(Passage, "lose", aborted_though_resumed)], "G2"),
    "large_resumed_and_its_router_dies": ([(Passage, "lose", aborted_though_resumed)], "G2"),
    # protocol 6.12.12: each attach ends the other's link
    "large_resumed_two_attach_in_turn": ([(Passage, "lose", detached_at_once)], "each interrupts"),
    # protocol 6.12.12: its router's annotation counts as the publisher's
    "large_resumed_and_annotated_again": ([(SubscriberLink, "bare_at", always(0))], "s0 was detached"),
    # protocol 6.12.13: S gets its beginning twice
    "large_resumed_goes_on_where_it_stopped": ([(Partial, "skip", from_its_beginning)], "a message"),
    # protocol 6.12.13: S gets the end of another message
    "large_resumed_and_another_message": ([(Partial, "skip", whatever_it_is)], "a message"),
    # protocol 6.12.14: P1 waits for S, S for P0, and P0 for its turn
    "large_resumed_and_another_has_the_turn": ([(Passage, "pass_by", always(False))], "p0 and p1 wait"),
    # protocol 6.12.14: each of two links waits for what the other one holds up
    "large_resumed_each_in_the_middle_of_another": ([(Passage, "pass_by", always(False))], "they wait"),
    # protocol 6.12.15: others wait for ever
    "large_resumed_and_nobody_goes_on": ([(TopicReception, "_open", always(()))], "p1's waits for ever"),
    # protocol 6.12.15: S attaches, and P1 has to begin again
    "large_resumed_and_another_has_the_turn_for_long": (
        [(TopicReception, "_goes_before", always(None))],
        "s0 was detached",
    ),
    # protocol 6.12.7: S gets an empty message
    "large_owed_to_an_orphan": ([(Records, "lacks_payload", only_what_is_unfinished)], "a message"),
    # protocol 6.12.7: S gets its end without its beginning
    "large_joins_in_mid_message": ([(Records, "lacks_payload", only_what_is_finished)], "a message"),
    # protocol 6.12.8: S waits for a payload that nobody has
    "large_released": ([(TopicReception, "_release", released_and_not_asked_for)], "G4"),
    # protocol 6.12.10: s0 is in the middle of the one, s1 in the middle of the other
    "large_two_at_a_time": ([(Turns, "want", begins_at_once)], "both wait"),
    # protocol 6.12.10: p0's second message is taken before its first, which has the lower delivery-id
    "large_waits_with_others_behind_it": ([(Ingress, "transfers", overtaking)], "key"),
    # protocol 8.5.2: what p0 could not send is settled while its session is held back
    "large_sent_again_waits_for_its_turn": ([(Windows, "_is_credit_withheld", held_back_with_credit)], "G2"),
    # protocol 8.5.5: what waits for its turn is settled
    "large_sent_again_before_the_answer": ([(Streams, "_flush", flushes_at_once)], "G2"),
}
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # protocol 6.12.13: P is held back, as if nobody had taken what S has
    "large_resumed_goes_on_where_it_stopped": ([(Passage, "taken", taken_when_it_goes_out)], "it does not go on"),
    # protocol 6.12.14: what P1 has sent behind what passed by overtakes it
    "large_resumed_and_another_has_the_turn": (
        [(Passage, "pass_by", passes_by_and_is_passed_over), (Passage, "limit", lambda self, end: end)],
        "G3",
    ),
    # protocol 8.5.5: nothing is ever settled
    "large_sent_again_before_the_answer": ([(Streams, "flush_after_turn", always(None))], "G4"),
}
AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
