"""Deliberate defects: who is really there. Schedules: `scenarios/proof.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router.core.directory import SubscriptionEntry
from router.core.ingress import Ingress
from router.core.ports import PublisherAttach, PublisherPort, Term
from router.core.publisher import Publisher
from router.core.publisher_directory import PublisherDirectory
from router.core.publisher_handshake import State
from router.core.roll_call import RollCall
from router.core.streams import Streams
from router.core.windows import Windows
from router.links.proof import Proof


def term_of_the_clock(self: Ingress, attach: PublisherAttach, publisher_id: bytes, known: Term | None) -> Term:
    return (max(self.core.clock_us(), known[0] + 1 if known else 0), self.core.name)


def attach_is_the_claim(self: Ingress, port: PublisherPort, attach: PublisherAttach) -> None:
    ATTACH(self, port, attach)
    publisher = self.core.publishers.get(port)
    if publisher is not None:
        self.proved(publisher)


ATTACH = Ingress.attach


def claim_in_the_term_of_the_proof(self: Ingress, publisher: Publisher) -> None:
    if not publisher.handshake.brought_epoch:
        known = self.address.known_publishers.get(publisher.publisher_id)
        publisher.term = (max(self.core.clock_us(), known.term[0] + 1 if known else 0), self.core.name)
    CLAIM(self, publisher)


CLAIM = Ingress._claim


def proved_by_anything(self: Ingress, publisher: Publisher) -> None:
    now = publisher.handshake.state.name
    publisher.handshake.state = State[now.removesuffix("_OUTDATED").removesuffix("_OVERTAKEN")]
    if publisher.handshake.state in (State.OUTDATED, State.OVERTAKEN):
        publisher.handshake.state = State.PROVING
    PROVED(self, publisher)


PROVED = Ingress.proved


def answer_serves_all(self: Streams, publisher: Publisher) -> None:
    publisher.questions.needed = dict.fromkeys(publisher.questions.needed, 0)
    QUESTION_ANSWERED(self, publisher)


QUESTION_ANSWERED = Streams.question_answered


def synchronise_at_once(self: Streams, entry: SubscriptionEntry, history: bool) -> None:
    SYNCHRONISE(self, entry, False)


SYNCHRONISE = Streams.synchronise


def any_transfer(self: Proof, delivery_count: int) -> bool:
    return self._close(True)


def any_frame(self: Proof, now: float, proof_after_s: float) -> bool:
    return self._close(True)


def flush_unproved(self: Streams, publisher: Publisher) -> None:
    publisher.resending.flush_at = None
    if publisher.resending.unknown or publisher.resending.tags:
        self._flush(publisher)


def called_by_nobody(self: RollCall) -> None:
    BEGIN(self)
    self._missing.clear()
    self._check_complete()


BEGIN = RollCall._begin


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 8.4: what P sends again was settled at S while P was asked for a sign of life
    "publisher_that_a_map_tells_of_may_come_too_late": ([(PublisherDirectory, "_note_known", always(None))], "G2"),
    # protocol 5.7, 7.4: without a question, the ghost at A synchronises S: it replays what B had settled ...
    "zombie_ingress_replays_to_crossing_subscriber": ([(Streams, "synchronise", synchronise_at_once)], "G2"),
    # ... or leaves out, and so declares settled, what it has never seen
    "zombie_ingress_declares_settled": ([(Streams, "synchronise", synchronise_at_once)], "G2"),
    # protocol 5.9: B does not answer; and what A knew of P is from before P could go to B unseen
    "called_where_a_session_is_over": ([(RollCall, "_begin", called_by_nobody)], "G2"),
    "proof_from_before_all_were_together": ([(RollCall, "session_ended", always(None))], "G2"),
    # protocol 5.1, 5.2: the abandoned connection's attach claims P, with a new incarnation: S holds another's
    "attach_read_late_plain": ([(Ingress, "attach", attach_is_the_claim)], "G2"),
    # protocol 5.1: the router takes the order of reading for that of writing
    "attach_read_late_steals_nothing": ([(Ingress, "_is_surely_later", always(True))], "G4"),
    # protocol 5.1: the late proof gets a late term, which beats B's; A takes it though it has heard of B's since
    "sign_of_life_read_late_plain": (
        [(Ingress, "_claim", claim_in_the_term_of_the_proof), (PublisherDirectory, "_overtaken_by_news", always(None))],
        "G2",
    ),
    # protocol 5.1: A's term is the earlier one, and the greater
    "sign_of_life_where_the_clock_is_ahead": ([(PublisherDirectory, "_overtaken_by_news", always(None))], "G2"),
    # protocol 1.4: what the old link sends gets the later term
    "sign_of_life_from_before_the_clock_was_set_back": ([(Ingress, "_choose_term", term_of_the_clock)], "G2"),
    # protocol 5.2: the late detach claims P, to close it
    "attach_and_detach_read_late": ([(Ingress, "_detach_claims", always(True))], "G2"),
    # protocol 5.7: the transfer was sent before P went to B
    "transfer_sent_before_the_question": ([(Proof, "transfer", any_transfer)], "G2"),
    # protocol 5.7: so was the flow, which shows no limit but how much had been sent
    "flow_without_credit_before_the_question": ([(Proof, "_shows_limit", always(True))], "G2"),
    # protocol 5.7: so was the heartbeat
    "heartbeat_sent_before_the_question": ([(Proof, "frame", any_frame)], "G2"),
    # protocol 8.5: P could not send again what it has in doubt, and B says that it will not
    "expected_of_a_publisher_that_got_no_credit": ([(Windows, "_is_credit_withheld", always(False))], "G2"),
    # protocol 8.5: P had used the credit that it was given for the first of them
    "sent_again_while_nobody_accepts": ([(Windows, "_is_resending", always(False))], "G2"),
    # protocol 8.5: the abandoned ingress settles at S what P is about to send again elsewhere
    "flush_by_an_abandoned_ingress": ([(Streams, "flush_due", flush_unproved)], "G2"),
}

# protocol 11, below the table:
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # protocol 5.2, 5.7: what P said before S came lets A claim it, and send what S has accepted at B
    "sign_of_life_older_than_the_subscription": ([(Ingress, "proved", proved_by_anything)], "G2"),
    # protocol 5.7: what P said before S crossed over lets A replay what B has settled
    "answer_to_an_earlier_question": ([(Streams, "question_answered", answer_serves_all)], "G2"),
}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {
    # protocol 5.7: whoever crosses over is synchronised by an abandoned connection
    "asks_no_proof": ([(Streams, "synchronise", synchronise_at_once)], "crossing", "G2"),
}
