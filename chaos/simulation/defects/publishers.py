"""Deliberate defects: which word about a publisher counts. Schedules: `scenarios/publishers.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router import messages as m
from router.address import Address
from router.directory import PublisherEntry
from router.egress import Egress
from router.ingress import Ingress
from router.ports import Term
from router.publisher import Publisher
from router.subscriber import Subscriber


def unknown_is_empty(self: Ingress, link: Publisher) -> m.Expected:
    return list(link.expected)


def pub_is_stale_by_term(self: Address, known: PublisherEntry, sender: str, message: m.Pub) -> bool:
    return known.term > message.term or (known.term == message.term and known.home not in (None, sender))


def sync_is_stale_by_term(self: Egress, known: PublisherEntry, sender: str, message: m.Sync) -> bool:
    return known.term > message.term or (known.term == message.term and known.home != sender)


def overtaken_by_term(self: Ingress, link: Publisher, term: Term, incarnation: int) -> bool:
    return link.term < term


def learn_the_later_term(self: Address, publisher: bytes, term: Term, incarnation: int, real: bool) -> None:
    known = self.publishers.get(publisher)
    if known is None or known.term < term:
        self.learn(publisher, known.incarnation if known else 0, term, None, self.core.now, bool(known and known.real))


def hear_the_later_term(self: Address, news: m.PublisherNews) -> None:
    local = self.ingress.publishers.get(news.publisher)
    if local and local.term < news.term:
        self.ingress.drop(local, news.term[0])
    known = self.publishers.get(news.publisher)
    if known is None or known.term < news.term:
        self.learn(news.publisher, news.incarnation, news.term, None, self.core.now - news.age_s, True)


def told_the_term_only(self: Ingress, link: Publisher, epoch: int) -> None:
    known = self.address.publishers.get(link.publisher)
    DETACHED(self, link, known.term[0] if known else epoch)


DETACHED = Ingress._detach_stolen


def forget_at_once(self: Address, message: m.PubClose) -> None:
    self.egress.void(message.publisher)
    del self.publishers[message.publisher]


def synced_under_a_known_set(self: Egress, link: Subscriber, sender: str, message: m.Pub) -> bool:
    return sender in link.joined and isinstance(message.expected, list)


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # 5.4: S settles what P, who presents no map, is about to send again
    "no_map_is_not_an_empty_map": ([(Ingress, "_expected", unknown_is_empty)], "G2"),
    # 5.5, 6.2: A's SYNC makes D believe in A; B's copies are taken for a stranger's
    "stale_ingress_overtaken": (
        [
            (Address, "_pub_is_stale", always(False)),
            (Egress, "_sync_is_stale", always(False)),
            (Egress, "_check_not_synced", always(None)),
            (Egress, "_flows", always(True)),
        ],
        "G1",
    ),
    # 5.5, 5.6: the phantom incarnation has the later term
    "incarnation_never_goes_back": (
        [
            (Address, "_pub_is_stale", pub_is_stale_by_term),
            (Egress, "_sync_is_stale", sync_is_stale_by_term),
            (Ingress, "_is_overtaken", overtaken_by_term),
            (Address, "learn_from_stale", learn_the_later_term),
            (Address, "hear_of_publisher", hear_the_later_term),
        ],
        "G2",
    ),
    # 5.5: B's old expected set knows nothing of what S got through C
    "pub_overtaken_by_subscriber": ([(Egress, "_may_infer", always(True))], "G2"),
    # 1: the new m0 has the tag of the old one, which S holds as accepted
    "reused_tags_after_memory_loss": ([(Ingress, "_incarnation", always(0))], "G1"),
    # 8.4: A's late SYNC is that of a publisher nobody has heard of
    "closed_publisher_and_old_ingress": ([(Address, "_bury", forget_at_once)], "G2"),
    # 5.5, 7.5, 8.5: A's SYNC leaves out what a later life of P has sent through B, and settles it
    "earlier_life_knows_nothing_of_the_later": ([(Egress, "_speaks_for", always(True))], "G2"),
    # 5.3: P hears of term 0, and its next epoch is as much too low as this one
    "client_whose_last_life_is_known_by_a_map_only": ([(Ingress, "_detach_stolen", told_the_term_only)], "G4"),
}

# PROTOCOL 11, below the table:
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # 5.5: synced also under an unknown set. A sends the first message to B; B, where nobody is synced, accepts it
    "synced_under_an_unknown_set": ([(Egress, "_flows_from_pub", synced_under_a_known_set)], "G1"),
    # 8.4: C thinks that P is homeless, and drops what B sends
    "pubdown_of_an_earlier_ingress": ([(Address, "_is_its_home", always(True))], "G4"),
}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
