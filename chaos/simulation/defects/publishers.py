"""Deliberate defects: which word about a publisher counts. Schedules: `scenarios/publishers.py`."""

from __future__ import annotations

from chaos.simulation.defects.taking import Patch, always
from router.core import messages as m
from router.core.deliveries import Deliveries
from router.core.directory import PublisherEntry
from router.core.egress import Egress
from router.core.ingress import Ingress
from router.core.irregular import Irregular
from router.core.naming import NO_TERM
from router.core.ports import Term
from router.core.publisher import Publisher
from router.core.publisher_directory import PublisherDirectory
from router.core.streams import Streams
from router.core.subscriber import Subscriber


def unknown_is_empty(self: Streams, publisher: Publisher) -> m.Expected:
    return list(publisher.resending.tags)


def pub_is_stale_by_term(self: PublisherDirectory, known: PublisherEntry, sender: str, message: m.Pub) -> bool:
    return known.term > message.term or (known.term == message.term and known.home not in (None, sender))


def sync_is_stale_by_term(self: Deliveries, known: PublisherEntry, sender: str, message: m.Sync) -> bool:
    return known.term > message.term or (known.term == message.term and known.home != sender)


def overtaken_by_term(self: Ingress, publisher: Publisher, term: Term, incarnation: int) -> bool:
    return publisher.term < term


def learn_the_later_term(
    self: PublisherDirectory, publisher_id: bytes, term: Term, incarnation: int, real: bool
) -> None:
    known = self.entries.get(publisher_id)
    if known is None or known.term < term:
        known_incarnation = known.incarnation if known else 0
        self.learn(publisher_id, known_incarnation, term, None, self.core.now, bool(known and known.real))


def hear_the_later_term(self: PublisherDirectory, news: m.PublisherNews) -> None:
    local = self.attached.get(news.publisher)
    if local and local.term < news.term:
        local.ingress.drop(local, news.term[0])
    known = self.entries.get(news.publisher)
    if known is None or known.term < news.term:
        self.learn(news.publisher, news.incarnation, news.term, None, self.core.now - news.age_s, True)


def learn_a_life_from_a_map(self: PublisherDirectory, publisher_id: bytes, incarnation: int) -> PublisherEntry:
    entry = LEARN_FROM_MAP(self, publisher_id, incarnation)
    if entry.term == NO_TERM:
        entry.incarnation = max(entry.incarnation, incarnation)
    return entry


LEARN_FROM_MAP = PublisherDirectory.learn_from_map


def forget_at_once(self: PublisherDirectory, message: m.PubClose) -> None:
    self.egress.ingress_lost(message.publisher)
    del self.entries[message.publisher]


def over_while_somebody_subscribes(self: PublisherDirectory, entry: PublisherEntry, since: float) -> float:
    return max(since, self._over_since) + self.address.config.margin_s


def has_no_home_now(self: PublisherDirectory, sender: str, message: m.PubDown) -> None:
    """Whatever term a PUBDOWN has, and whoever sends it, it is about the publisher's home."""
    known = self.entries.get(message.publisher)
    if known is not None:
        self._lose_home(known)


def synced_under_a_known_set(self: Egress, subscriber: Subscriber, sender: str, message: m.Pub) -> bool:
    return sender in subscriber.handshake.joined and isinstance(message.expected, list)


TAKEN: dict[str, tuple[list[Patch], str]] = {
    # protocol 5.4: S settles what P, who presents no map, is about to send again
    "no_map_is_not_an_empty_map": ([(Streams, "expected", unknown_is_empty)], "G2"),
    # protocol 5.5, 6.2: A's SYNC makes D believe in A; B's copies are taken for a stranger's
    "stale_ingress_overtaken": (
        [
            (PublisherDirectory, "_pub_is_stale", always(False)),
            (Deliveries, "_sync_is_stale", always(False)),
            (Deliveries, "_check_not_synced", always(None)),
            (Deliveries, "is_present_ingress", always(True)),
        ],
        "G1",
    ),
    # protocol 5.5, 5.6: the phantom incarnation has the later term
    "incarnation_never_goes_back": (
        [
            (PublisherDirectory, "_pub_is_stale", pub_is_stale_by_term),
            (Deliveries, "_sync_is_stale", sync_is_stale_by_term),
            (Ingress, "_is_overtaken", overtaken_by_term),
            (PublisherDirectory, "learn_from_stale", learn_the_later_term),
            (PublisherDirectory, "learn_of_hello", hear_the_later_term),
        ],
        "G2",
    ),
    # protocol 5.5: B's old expected set knows nothing of what S got through C
    "pub_overtaken_by_subscriber": ([(Egress, "_may_infer", always(True))], "G2"),
    # protocol 1: the new m0 has the tag of the old one, which S holds as accepted
    "reused_tags_after_memory_loss": ([(Ingress, "_incarnation", always(0))], "G1"),
    # protocol 8.4: A's late SYNC is that of a publisher nobody has heard of
    "closed_publisher_and_old_ingress": ([(PublisherDirectory, "_enter_closed", forget_at_once)], "G2"),
    # protocol 5.5, 7.5, 8.5: A's SYNC leaves out what a later life of P has sent through B, and settles it
    "earlier_life_knows_nothing_of_the_later": ([(Irregular, "within", always(True))], "G2"),
    # protocol 7.2: B takes P's claim for that of an earlier life
    "life_that_a_map_has_made_up": ([(PublisherDirectory, "learn_from_map", learn_a_life_from_a_map)], "G4"),
}

# protocol 11, below the table:
EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # protocol 5.5: synced also under an unknown set. A sends the first message to B; B, where nobody is synced, accepts
    # it
    "synced_under_an_unknown_set": ([(Egress, "_synced_by_pub", synced_under_a_known_set)], "G1"),
    # protocol 8.4: C thinks that P is homeless, and drops what B sends
    "pubdown_of_an_earlier_ingress": ([(PublisherDirectory, "on_pubdown", has_no_home_now)], "G4"),
    # protocol 8.4: S has forgotten m0 when P sends it again
    "publisher_away_from_a_dynamic_node": (
        [(PublisherDirectory, "_forgotten_at", over_while_somebody_subscribes)],
        "G2",
    ),
}

AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {}
