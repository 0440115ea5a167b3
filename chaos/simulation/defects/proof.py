"""Deliberate defects: who is really there. Schedules: `scenarios/proof.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router.ingress import Ingress
from router.ports import PublisherAttach, PublisherPort, Term
from router.proof import Proof
from router.publisher import Publisher


def attach_is_the_claim(self: Ingress, port: PublisherPort, attach: PublisherAttach) -> None:
    ATTACH(self, port, attach)
    link = self.core.publishers.get(port)
    if link is not None:
        self.proved(link)


ATTACH = Ingress.attach


def term_of_the_proof(self: Ingress, link: Publisher) -> Term:
    if not link.epoch_brought:
        known = self.address.publishers.get(link.publisher)
        link.term = (max(self.core.clock_us(), known.term[0] + 1 if known else 0), self.core.name)
    return link.term


def any_transfer(self: Proof, delivery_count: int) -> bool:
    return self._close(True)


def any_frame(self: Proof, now: float, proof_after_s: float) -> bool:
    return self._close(True)


def flush_unproved(self: Ingress, link: Publisher) -> None:
    link.flush_at = None
    if link.unknown or link.expected:
        self._flush(link)


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # 8.4: what P sends again was settled at S while P was asked for a sign of life
    "publisher_that_a_map_tells_of_may_come_too_late": ([(Ingress, "may_go_on", always(None))], "G2"),
    # 5.7, 7.4: without a question, the ghost at A synchronises S: it replays what B had settled ...
    "zombie_ingress_replays_to_crossing_subscriber": ([(Ingress, "_needs_proof", always(False))], "G2"),
    # ... or leaves out, and so declares settled, what it has never seen
    "zombie_ingress_declares_settled": ([(Ingress, "_needs_proof", always(False))], "G2"),
    # 5.1, 5.2: the abandoned connection's attach claims P, with a new incarnation: what S holds counts as another's
    "attach_read_late_plain": ([(Ingress, "attach", attach_is_the_claim)], "G2"),
    # 5.1: the late proof gets a late term, which beats B's; A takes it though it has heard of B's since
    "sign_of_life_read_late_plain": (
        [(Ingress, "_term_at_claim", term_of_the_proof), (Ingress, "_may_be_older", always(False))],
        "G2",
    ),
    # 5.1: A's term is the earlier one, and the greater
    "sign_of_life_where_the_clock_is_ahead": ([(Ingress, "_may_be_older", always(False))], "G2"),
    # 5.2: the late detach claims P, to close it
    "attach_and_detach_read_late": ([(Ingress, "_detach_claims", always(True))], "G2"),
    # 5.7: the transfer was sent before P went to B
    "transfer_sent_before_the_question": ([(Proof, "transfer", any_transfer)], "G2"),
    # 5.7: so was the flow, which shows no limit but how much had been sent
    "flow_without_credit_before_the_question": ([(Proof, "_shows_limit", always(True))], "G2"),
    # 5.7: so was the heartbeat
    "heartbeat_sent_before_the_question": ([(Proof, "frame", any_frame)], "G2"),
    # 8.5: P could not send again what it has in doubt, and B says that it will not
    "expected_of_a_publisher_that_got_no_credit": ([(Ingress, "_is_barred", always(False))], "G2"),
    # 8.5: P had used the credit that it was given for the first of them
    "sent_again_while_nobody_accepts": ([(Ingress, "_sends_again", always(False))], "G2"),
    # 8.5: the abandoned ingress settles at S what P is about to send again elsewhere
    "flush_by_an_abandoned_ingress": ([(Ingress, "flush_due", flush_unproved)], "G2"),
}

# PROTOCOL 11, below the table:
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # 5.2, 5.7: what P said before S came lets A claim it, and send what S has accepted at B
    "sign_of_life_older_than_the_subscription": ([(Ingress, "_is_stale", always(False))], "G2"),
    # 5.7: what P said before S crossed over lets A replay what B has settled
    "answer_to_an_earlier_question": ([(Ingress, "_serves", always(True))], "G2"),
}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {
    # 5.7: whoever crosses over is synchronised by an abandoned connection
    "asks_no_proof": ([(Ingress, "_needs_proof", always(False))], "crossing", "G2"),
}
