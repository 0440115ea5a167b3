"""Deliberate defects that make a router's state impossible: an invariant fails before anybody is lost or told anything.

Each family of invariants (`check_invariants` in `router/core/`, `interrouter/` and `amqp10/`) has a defect that it must
notice at the step of the corruption. Most of these would break a guarantee in the end, some only when a timer or
another router comes in.
"""

from __future__ import annotations

from amqp10.incoming import Incoming
from amqp10.link import Link
from amqp10.sender import SenderLink
from chaos.simulation.defects.taking import Patch, always
from interrouter.session import Session, Sessions
from interrouter.stream import OutgoingStream
from interrouter.trunk import Trunk
from router.core import messages as m
from router.core.arrivals import ArrivalRun, Arrivals
from router.core.coverage import Coverage
from router.core.directory import SubscriptionEntry
from router.core.egress import Egress
from router.core.held import Batch, Held
from router.core.irregular import Irregular, Irregulars
from router.core.log import BITS, Segments
from router.core.membership import Membership
from router.core.presettled import PreSettledQueue
from router.core.publisher_directory import PublisherDirectory
from router.core.subscription_directory import SubscriptionDirectory
from router.core.topic.distribution import TopicDistribution


def keep_one_byte(self: Segments, start: int, stop: int) -> int:
    self._memory.payload_bytes += 1
    return FORGET(self, start, stop)


FORGET = Segments.forget


def forget_and_keep(self: Segments, start: int, stop: int) -> int:
    size = FORGET(self, start, stop)
    segment = self.blocks.get(start >> BITS)
    if segment is not None and (stop - 1) >> BITS == start >> BITS:
        segment.live += stop - start
    return size


def owe_without_noting_to_whom(self: TopicDistribution, entry: SubscriptionEntry) -> None:
    OWE_ALL(self, entry)
    self.records.owing.pop(entry, None)


OWE_ALL = TopicDistribution.owe_all


def unawait_nowhere(self: TopicDistribution, start: int, stop: int) -> None:
    self.undone.remove(start, stop)


def cover_nothing_else(self: Coverage, entry: SubscriptionEntry) -> None:
    """Its name stays among those who are covered where it was."""
    self.uncovered.pop(entry, None)


def answer_nothing(self: Arrivals, run: ArrivalRun, start: int, stop: int) -> None:
    """The tokens of what is settled count as open."""
    before = self.open.overlap(start, stop)
    ARRIVALS_FORGET(self, run, start, stop)
    self.open.add_all(before)


ARRIVALS_FORGET = Arrivals.forget


def synced_for_ever(self: Egress, publisher_id: bytes) -> None:
    before = {each: each.synced[publisher_id] for each in self.subscribers.values() if publisher_id in each.synced}
    INGRESS_LOST(self, publisher_id)
    for each, stream in before.items():
        each.synced[publisher_id] = stream


INGRESS_LOST = Egress.ingress_lost


def keep_its_delivery_id(self: Irregulars, delivery: Irregular) -> None:
    delivery.delivery_id = -1


def end_a_session_and_keep_its_hello(self: Membership, peer: str, now: float) -> None:
    hello = self._hellos.get(peer)
    SESSION_ENDED(self, peer, now)
    if hello is not None:
        self._hellos[peer] = hello


SESSION_ENDED = Membership.session_ended


def closed_and_at_home(self: PublisherDirectory, message: m.PubClose) -> None:
    entry = self.entries[message.publisher]
    ENTER_CLOSED(self, message)
    entry.real = True


ENTER_CLOSED = PublisherDirectory._enter_closed


def hold_uncounted(self: Held, batch: Batch) -> None:
    self.batches.append(batch)


def count_no_bytes(self: PreSettledQueue, count: int, size: int) -> None:
    self.count += count


def count_acknowledged_bytes(self: OutgoingStream, upto: int) -> bool:
    before = self.sent_bytes
    progress = ACKNOWLEDGED(self, upto)
    self.sent_bytes = before
    return progress


ACKNOWLEDGED = OutgoingStream.acknowledged


def keep_to_be_acknowledged(self: Sessions, session: Session, trunk: Trunk | None) -> None:
    """Its time comes again, though the acknowledgement has been queued."""
    ACKNOWLEDGE(self, session, trunk)
    self._acks[session] = None


ACKNOWLEDGE = Sessions._acknowledge


def grant_one_frame_more(self: Incoming) -> int:
    self.left = self.most + 1
    return self.left


def count_what_comes(self: SubscriptionDirectory, name: m.SubscriptionName, more: int) -> None:
    COUNT(self, name, max(more, 0))


COUNT = SubscriptionDirectory._count


def keep_credit(self: SenderLink) -> None:
    self.session.outgoing.drop(self)


# Name: what is done instead, and the family of random schedules that runs into it.
STATES: dict[str, tuple[list[Patch], str]] = {
    # a byte of payload is counted that nobody keeps: the memory limit comes nearer with each message
    "state_counts_a_byte_too_many": ([(Segments, "forget", keep_one_byte)], "together"),
    # a link that has gone counts for its connection: it may have fewer and fewer
    "state_counts_links_that_have_gone": ([(Link, "_left", always(None))], "together"),
    # a subscription that is forgotten counts for its user for ever
    "state_counts_names_that_have_gone": ([(SubscriptionDirectory, "_count", count_what_comes)], "expiry"),
    # a log counts forgotten positions as live, and never gives their segment back
    "state_keeps_what_it_forgets": ([(Segments, "forget", forget_and_keep)], "together"),
    # a record is owed to a subscription that nobody will ask before it is done
    "state_owes_to_nobody_known": ([(TopicDistribution, "owe_all", owe_without_noting_to_whom)], "together"),
    # a record that has gone with its publisher is awaited
    "state_awaits_what_is_gone": ([(TopicDistribution, "unawait", unawait_nowhere)], "together"),
    # a subscription is covered at a home where it is not
    "state_covers_who_has_gone": ([(Coverage, "forget", cover_nothing_else)], "crossing"),
    # a publisher's home is a router that is down
    "state_has_a_home_that_is_down": ([(PublisherDirectory, "router_down", always(None))], "together"),
    # a subscription's home is a router where it is not attached
    "state_has_a_home_without_it": ([(TopicDistribution, "orphan", always(None))], "together"),
    # a publisher's held transfers do not count against its window
    "state_holds_what_it_does_not_count": ([(Held, "hold", hold_uncounted)], "crossing"),
    # a closed publisher counts as real
    "state_closed_and_real": ([(PublisherDirectory, "_enter_closed", closed_and_at_home)], "together"),
    # a token is open that nobody owes
    "state_open_and_owed_by_nobody": ([(Arrivals, "forget", answer_nothing)], "together"),
    # a subscription is synced with an ingress that is none any more
    "state_synced_with_nobody": ([(Egress, "ingress_lost", synced_for_ever)], "crossing"),
    # a delivery-id leads to a delivery that has it no more
    "state_delivery_id_of_another": ([(Irregulars, "clear_delivery_id", keep_its_delivery_id)], "released"),
    # a router is known by the HELLO of a session that is over
    "state_hello_of_an_ended_session": ([(Membership, "session_ended", end_a_session_and_keep_its_hello)], "together"),
    # pre-settled messages wait, and their bytes are not counted
    "state_presettled_bytes_of_nobody": ([(PreSettledQueue, "_add", count_no_bytes)], "modes"),
    # what is acknowledged between routers still counts as under way: the window closes after some megabytes
    "state_acknowledged_and_under_way": ([(OutgoingStream, "acknowledged", count_acknowledged_bytes)], "together"),
    # a session between routers has an acknowledgement due that nobody is waiting for
    "state_acknowledgement_of_nothing": ([(Sessions, "_acknowledge", keep_to_be_acknowledged)], "together"),
    # a client's session is granted a frame more than the most
    "state_window_wider_than_granted": ([(Incoming, "renew", grant_one_frame_more)], "together"),
    # a link that is detached has credit
    "state_credit_after_detach": ([(SenderLink, "_stop", keep_credit)], "crossing"),
}
