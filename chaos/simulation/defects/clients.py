"""Deliberate defects of the library's client: rules of protocol 15 taken away, which schedules must notice.

Their schedules are those of `scenarios/clients.py`, and the random ones of `ours` and `ours-apart`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amqp10.link import Link
from amqp10.outcomes import ACCEPTED, DeliveryState, Outcome
from amqp10.performatives import Attach
from amqp10.sender import SenderLink
from chaos.simulation.defects.taking import Patch
from onceway.client.journal_links import SETTLED, SubscriberRows
from onceway.client.protocol.events import Decided
from onceway.client.protocol.holdings import Holdings
from onceway.client.protocol.link import JOURNALLING, ClientLink
from onceway.client.protocol.publishing import PublisherLink, _runs
from onceway.client.protocol.subscribing import SubscriberLink


def nothing(*arguments: Any, **named: Any) -> None:
    pass


# ---------------------------------------------------------------------- publishers
def settle_then_forget(
    self: PublisherLink, link: SenderLink, begin: int, end: int, offset: int, state: object, settled: bool, now: float
) -> None:
    for number in range(begin, end):
        del self._payloads[number]
    if not settled:
        link.settle(begin + offset, end - 1 + offset)
    self._part.forget(begin, end - 1, state)
    self._journal.sync()
    self.events.append(Decided(begin, end - 1, state))


def send_then_write(self: PublisherLink, payloads: list[bytes], now: float) -> int:
    first, end = self.sequence, self.sequence + len(payloads)
    self.sequence = end
    self._held += end - first
    self._payloads.update(zip(range(first, end), payloads, strict=True))
    self._part.publish(first, payloads)
    self._journal.sync()
    self._release(now, first, end)
    return first


def sent_again_backwards(self: PublisherLink, link: Link, answer: Attach, now: float) -> None:
    """The undecided are sent again in the wrong order."""
    PUBLISHER_ANSWERED(self, link, answer, now)
    self._resend = _runs([])
    self._resend.extend((number, number + 1) for number in sorted(self._payloads, reverse=True))


PUBLISHER_ANSWERED = PublisherLink._answered


def map_without_the_undecided(self: PublisherLink) -> Mapping[bytes, DeliveryState | None] | None:
    return {} if self.resumed else None


# ---------------------------------------------------------------------- subscribers
def accept_then_write(self: SubscriberLink, first: int, last: int, state: Outcome, now: float) -> int:
    self._window.outstanding -= last - first + 1
    for low, high in self.holdings.not_settled(first, last):
        tags = self.holdings.tags(low, high)
        self._deciding += high - low + 1
        self._decided(now, low, high, state)
        self._part.accept(tags, b"\x00\x53\x24\x45")
    return self._journal.sync()


def forget_when_accepted(self: SubscriberLink, now: float, first: int, last: int, state: Outcome) -> None:
    DECIDED(self, now, first, last, state)
    if state == ACCEPTED:
        self._forget(first, last)


DECIDED = SubscriberLink._decided


def needed_is_accepted(self: Holdings) -> dict[bytes, DeliveryState | None]:
    positions, wanted = self.positions, self.wanted
    return MAP(self) | {tag: ACCEPTED for tag, position in positions.items() if position in wanted}


MAP = Holdings.unsettled_map


def broken_and_silent(self: SubscriberLink, reason: str, now: float) -> None:
    EXPIRED(self, reason, now)
    self._gap = None


EXPIRED = SubscriberLink._expired


def drop_a_row_with_its_first_tag(self: SubscriberRows, row: int) -> None:
    """The others of its tags are handed on again by the process that comes next."""
    if self._counts.pop(row, 0):
        self._open = None
        self._journal._pending.append((SETTLED, (row, self._id)))


# ---------------------------------------------------------------------- both
def contact_when_it_is_read(self: ClientLink, asked_at: float, now: float) -> None:
    ANSWERED(self, now, now)


ANSWERED = ClientLink.answered


def yes(*arguments: Any, **named: Any) -> bool:
    return True


def the_same_epoch(self: ClientLink, now: float) -> None:
    assert self._session is not None
    if self._session.ended:
        return
    self._check_absence(now)
    self._epoch = self._epoch or self._wall_us()
    self.state = JOURNALLING
    self._prepare(self._epoch)
    self._when_durable(now, self._attach, self._epoch, self._session)


# Named by their schedule, which fails so without the rule:
TAKEN: dict[str, tuple[list[Patch], str, str]] = {
    # forgotten durably, then settled: else it comes back from the journal when nobody knows it any more
    "client_settles_before_it_has_forgotten": (
        [(PublisherLink, "_decide", settle_then_forget)], "client_killed_before_it_has_forgotten", "G2",
    ),
    # written, then sent: else another message gets its number after a crash
    "client_sends_before_it_has_written": (
        [(PublisherLink, "put", send_then_write)], "client_killed_before_it_has_written", "G1",
    ),
    # the undecided in order
    "client_sends_again_in_another_order": (
        [(PublisherLink, "_answered", sent_again_backwards)], "client_sends_again_in_order", "sent out of order",
    ),
    # what is left out of the map is settled
    "client_leaves_the_undecided_out": (
        [(PublisherLink, "_map", map_without_the_undecided)], "client_sends_again_what_it_does_not_know", "G2",
    ),
    # away for too long: nobody knows any more what it sends again
    "client_sends_again_after_it_has_expired": (
        [(PublisherLink, "_check_absence", nothing), (PublisherLink, "_late", nothing)],
        "client_away_for_too_long_with_something_undecided", "G2",
    ),
    "client_sends_again_after_a_late_answer": (
        [(PublisherLink, "_answered_late", nothing)], "client_whose_attach_is_read_too_late", "G2",
    ),
    # what is read may have been written before it stood still
    "client_takes_what_it_reads_for_new": (
        [(ClientLink, "answered", contact_when_it_is_read)], "client_that_stood_still_for_too_long", "G2",
    ),
    # protocol 5.1: who answers an attach claims nothing
    "client_takes_the_answer_for_a_claim": (
        [(PublisherLink, "_known_by_answer", yes)], "client_that_is_attached_again_and_not_known", "G2",
    ),
    # a lower incarnation is refused whatever its epoch
    "client_keeps_a_refused_incarnation": (
        [(PublisherLink, "_overtaken", nothing)], "client_whose_last_life_was_ahead", "G4",
    ),
    # accepted durably, then told
    "client_accepts_before_it_has_written": (
        [(SubscriberLink, "decide", accept_then_write)], "client_killed_before_it_has_accepted", "G1",
    ),
    # a tag is held until the network has settled it
    "client_forgets_a_tag_when_it_accepts": (
        [(SubscriberLink, "_decided", forget_when_accepted)], "client_knows_what_it_has_accepted", "G2",
    ),
    # without its payload nothing has been accepted
    "client_takes_what_it_needs_for_accepted": (
        [(Holdings, "unsettled_map", needed_is_accepted)], "client_needs_a_payload", "G1",
    ),
    # an interruption is told
    "client_does_not_tell_a_gap": (
        [(SubscriberLink, "_expired", broken_and_silent)], "client_away_for_too_long_from_its_subscription", "G5",
    ),
    # what another process has accepted is not handed on
    "client_does_not_ask_what_another_has_accepted": (
        [(Holdings, "load", nothing)], "client_and_its_twin", "G2",
    ),
    # every attach has an epoch above the last
    "client_attaches_with_the_same_epoch": ([(ClientLink, "_begin", the_same_epoch)], "client_comes_back", "the epoch"),
}  # fmt: skip

# Named by the family of random schedules that runs into it:
AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {
    # what comes again is answered as before
    "client_does_not_repeat_its_verdict": ([(SubscriberLink, "_answer", nothing)], "ours", "G4"),
    # what is accepted is in the journal until it is settled; the process would have to be killed just then
    "journal_drops_a_row_with_its_first_tag": (
        [(SubscriberRows, "_drop", drop_a_row_with_its_first_tag)],
        "ours",
        "the journal counts",
    ),
}
