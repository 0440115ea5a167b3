"""Deliberate defects: rules of PROTOCOL taken away from the real router, which the simulator must notice.

A rule is taken away by putting another body in the place of one small method (rarely two or three, where a rule is
checked in as many places). With the rule its schedule passes; without it the checker must find exactly the failure that
the page names, or the rule, or the schedule, is not what we think it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from chaos.simulation.client_defects import CLIENT, CLIENT_AT_RANDOM
from chaos.simulation.exhaustive import Search
from chaos.simulation.explore import explore
from chaos.simulation.membership_defects import MEMBERSHIP
from chaos.simulation.scenarios import SCENARIOS
from chaos.simulation.smallest import WORLDS
from chaos.simulation.world import World
from router import messages as m
from router.address import Address
from router.directory import PublisherEntry, SubscriptionEntry
from router.egress import Egress
from router.ingress import Ingress
from router.intervals import IntervalSet
from router.irregular import Irregular
from router.membership import Membership
from router.ports import PublisherAttach, PublisherPort, Term
from router.proof import Proof
from router.publisher import Publisher
from router.subscriber import Subscriber

Body = Callable[..., Any]
Patch = tuple[type, str, Body]


def always(value: Any) -> Body:
    """A condition that is not looked at."""
    return lambda *arguments, **named: value


# ---------------------------------------------------------------------- publishers: 5
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
        self.ingress.drop(local, news.term)
    known = self.publishers.get(news.publisher)
    if known is None or known.term < news.term:
        self.learn(news.publisher, news.incarnation, news.term, None, self.core.now - news.age_s, True)


def any_transfer(self: Proof, delivery_count: int) -> bool:
    return self._close(True)


def any_frame(self: Proof, now: float, proof_after_s: float) -> bool:
    return self._close(True)


def flush_unproved(self: Ingress, link: Publisher) -> None:
    link.flush_at = None
    if link.unknown or link.expected:
        self._flush(link)


# ---------------------------------------------------------------------- deliveries: 6
def accept_by_tag(self: Ingress, sender: str, message: m.Accept) -> None:
    """Whatever copy of a record that home was asked about, its ACCEPT is about all of them."""
    removed = []
    for start, stop, _ in message.ranges:
        if sender in self.awaited:
            removed += self.awaited[sender].remove(start, stop)
        for entry in self.address.subscriptions.values():
            if entry.home == sender:
                removed += entry.syncing.remove(start, stop)
    self.check(removed)


# ---------------------------------------------------------------------- subscriptions: 7, 8
def own_word(self: Egress) -> dict[str, None]:
    return {self.core.name: None}


def only_what_is_owed(self: Ingress, link: Publisher, entry: SubscriptionEntry) -> list[m.Entries]:
    return [each for each in ENTRIES(self, link, entry) if each.owed]


ENTRIES = Ingress._entries


def list_the_resolved(self: Egress, link: Subscriber) -> list[Irregular]:
    return [delivery for delivery in LISTED(self, link) if delivery.publisher in link.synced]


LISTED = Egress._listed


def resume_last(self: Subscriber, room: int) -> int:
    """What is new uses the credit first, in so far as there is any."""
    while room > 0 and self.line:
        room -= self._send_line(room)
    return PUMP_SINGLE(self, room)


PUMP_SINGLE = Subscriber._pump_single


def announce_nothing_yet(self: Egress, announcement: m.Orphan | m.Leave) -> None:
    self.late = announcement  # type: ignore[attr-defined]


def release_then_announce(self: Egress, link: Subscriber) -> None:
    RELEASE_ALL(self, link)
    self.flush()
    self.core.broadcast(self.late)  # type: ignore[attr-defined]


RELEASE_ALL = Egress._release_all


def forget_at_once(self: Address, message: m.PubClose) -> None:
    self.egress.void(message.publisher)
    del self.publishers[message.publisher]


def publishers_only(self: Address) -> tuple[list[m.PublisherNews], list[m.SubscriptionNews]]:
    return NEWS(self)[0], []


NEWS = Address.news


def forget_at_the_timeout(self: Address, entry: SubscriptionEntry) -> float:
    return entry.timeout_s


# What is taken away, and how the violation begins. The comment says why it must come.
TAKEN: dict[str, tuple[list[Patch], str]] = {
    # 5.7, 7.4: without a question, the ghost at A synchronises S: it replays what B had settled ...
    "zombie_ingress_replays_to_crossing_subscriber": ([(Ingress, "_needs_proof", always(False))], "G2"),
    # ... or leaves out, and so declares settled, what it has never seen
    "zombie_ingress_declares_settled": ([(Ingress, "_needs_proof", always(False))], "G2"),
    # 5.1, 5.2: the abandoned connection's attach claims P, with a new incarnation: what S holds counts as another's
    "attach_read_late_plain": ([(Ingress, "attach", attach_is_the_claim)], "G2"),
    # 5.1: the late proof gets a late term, which beats B's
    "sign_of_life_read_late_plain": ([(Ingress, "_term_at_claim", term_of_the_proof)], "G2"),
    # 5.2: the late detach claims P, to close it
    "attach_and_detach_read_late": ([(Ingress, "_detach_claims", always(True))], "G2"),
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
    # 5.7: the transfer was sent before P went to B
    "transfer_sent_before_the_question": ([(Proof, "transfer", any_transfer)], "G2"),
    # 5.7: so was the flow, which shows no limit but how much had been sent
    "flow_without_credit_before_the_question": ([(Proof, "_shows_limit", always(True))], "G2"),
    # 5.7: so was the heartbeat
    "heartbeat_sent_before_the_question": ([(Proof, "frame", any_frame)], "G2"),
    # 1: the new m0 has the tag of the old one, which S holds as accepted
    "reused_tags_after_memory_loss": ([(Ingress, "_incarnation", always(0))], "G1"),
    # 6.3: the ACCEPT of the shared copy (s1's) stands for the copy of its own that s0 was sent
    "accept_crosses_replay": ([(Ingress, "on_accept", accept_by_tag)], "G1"),
    # 7.2: A goes on without S, whom B has confirmed
    "confirmed_before_everybody_knows": ([(Egress, "_barrier", own_word)], "G1"),
    # 7.3: D's late JOIN takes the subscription away from E
    "joins_reordered": ([(Address, "_join_is_stale", always(False))], "G4"),
    # 7.3: the entry of the stale attach passes for knowledge of the subscription that B has confirmed
    "entry_of_a_stale_attach_is_no_knowledge": ([(Address, "_is_the_same", always(True))], "G5"),
    # 7.3: A takes S in as if nothing had been accepted without it
    "subscribed_during_partition": ([(Address, "_may_have_missed", always(False))], "G5"),
    # 7.3: "known" is all that the second answer says
    "answer_says_since_when": ([(Address, "_mark", always(None))], "G5"),
    # 7.3: B has answered without A's mark, and takes no notice of it
    "mark_that_came_after_the_answer": ([(Egress, "_comes_late", always(False))], "G5"),
    # 7.4: m0 is not part of S's stream, so P's repeat of it comes after m1
    "fresh_subscriber_and_ingress_failover": (
        [(Address, "_owe_backlog", always(None)), (Ingress, "_entries", only_what_is_owed)],
        "G3",
    ),
    # 7.6: the client forgets what is not listed, and takes its repeat for new
    "unresolved_not_listed": ([(Egress, "_listed", list_the_resolved)], "G2"),
    # 7.6: S is handed more than its window
    "resumptions_come_first_in_credit": ([(Subscriber, "_pump_single", resume_last)], "credit"),
    # 8.1: A hears the accept of all that are left at B before it hears that s0 is to be waited for
    "aggregated_accept_without_the_lost_subscriber": (
        [(Egress, "_announce_lost", announce_nothing_yet), (Egress, "_release_all", release_then_announce)],
        "G1",
    ),
    # 4.3: A, restarted, does not know that it has to wait for S
    "restarted_router_does_not_know_orphans": ([(Address, "news", publishers_only)], "G1"),
    # 4.4: nobody knows of S, so nobody waits
    "all_routers_at_once": ([(Ingress, "_may_accept", always(True))], "G1"),
    # 8.3: A accepts without S at T; B, whose clock began later, still takes it in
    "expiry_seen_differently": ([(Address, "_forgotten_after", forget_at_the_timeout)], "hole"),
    # 8.4: B settles at S0 what P has not been told of at A
    "publisher_works_at_the_other_side": ([(Address, "_may_be_elsewhere", always(False))], "G2"),
    "publisher_back_at_the_other_side": ([(Address, "_may_be_elsewhere", always(False))], "G2"),
    # 8.4: B has seen nobody for as long, but not itself either
    "router_that_stood_still_has_seen_nobody": ([(Membership, "went_on", always(None))], "G2"),
    # 8.4: B settles at S0 what P sent long after B had lost it
    "map_of_a_publisher_that_was_elsewhere": ([(Address, "_may_be_elsewhere", always(False))], "G2"),
    # 8.4: A's late SYNC is that of a publisher nobody has heard of
    "closed_publisher_and_old_ingress": ([(Address, "_bury", forget_at_once)], "G2"),
    # 5.5, 7.5, 8.5: A's SYNC leaves out what a later life of P has sent through B, and settles it
    "earlier_life_knows_nothing_of_the_later": ([(Egress, "_speaks_for", always(True))], "G2"),
    # 8.5: the abandoned ingress settles at S what P is about to send again elsewhere
    "flush_by_an_abandoned_ingress": ([(Ingress, "flush_due", flush_unproved)], "G2"),
    **MEMBERSHIP,
}


# ---------------------------------------------------------------------- conditions that are easy to lose
def synced_under_a_known_set(self: Egress, link: Subscriber, sender: str, message: m.Pub) -> bool:
    return sender in link.joined and isinstance(message.expected, list)


def stays_covered(self: Ingress, entry: SubscriptionEntry, history: bool) -> None:
    """What makes a home's coverage outlive a subscription's: where its name stands already, it is covered."""
    for link in list(self.publishers.values()):
        if entry.name not in link.covered.get(entry.home or "", ()):
            link.uncovered[entry] = None
        link.need[entry.name] = link.asked + 1
        self.ask(link)


def covered_with_its_neighbour(self: Ingress, entry: SubscriptionEntry, history: bool) -> None:
    for link in list(self.publishers.values()):
        if entry.home not in link.covered:
            link.uncovered[entry] = None
        link.need[entry.name] = link.asked + 1
        self.ask(link)


def orphan_without_uncover(self: Address, sender: str, message: m.Orphan) -> None:
    self.ingress.uncover = always(None)  # type: ignore[method-assign]
    ON_ORPHAN(self, sender, message)
    del self.ingress.uncover


ON_ORPHAN = Address.on_orphan


def router_down_without_uncover(self: Ingress, router: str, orphans: list[SubscriptionEntry]) -> None:
    before = {
        link: ({home: dict(names) for home, names in link.covered.items()}, link.destinations)
        for link in self.publishers.values()
    }
    ROUTER_DOWN(self, router, orphans)
    for link, (covered, destinations) in before.items():
        link.covered, link.destinations = covered, destinations
        self.awaited.setdefault(router, IntervalSet())


ROUTER_DOWN = Ingress.router_down


def as_it_attached(self: Egress, link: Subscriber) -> tuple[m.JoinKind, bool]:
    return link.kind, link.history


def void_but_synced(self: Egress, publisher: bytes) -> None:
    synced = {link: link.synced[publisher] for link in self.subscribers.values() if publisher in link.synced}
    VOID(self, publisher)
    for link, stream in synced.items():
        link.synced[publisher] = stream


VOID = Egress.void


EASY_TO_LOSE: dict[str, tuple[list[Patch], str]] = {
    # 5.5: synced also under an unknown set. A sends the first message to B; B, where nobody is synced, accepts it
    "synced_under_an_unknown_set": ([(Egress, "_flows_from_pub", synced_under_a_known_set)], "G1"),
    # 8.1: S, back at B, still counts as covered there
    "orphan_is_covered_nowhere": (
        [(Address, "on_orphan", orphan_without_uncover), (Ingress, "synchronise", stays_covered)],
        "G1",
    ),
    # 8.6: so does S when the session begins again
    "lost_router_covers_nothing": (
        [(Ingress, "router_down", router_down_without_uncover), (Ingress, "synchronise", stays_covered)],
        "G1",
    ),
    # 6.1: s1's accept is B's
    "covered_neighbour_does_not_cover": ([(Ingress, "synchronise", covered_with_its_neighbour)], "G1"),
    # 8.2: A forgets the subscription that C has just confirmed
    "leave_of_an_earlier_subscription": ([(Address, "_leave_is_stale", always(False))], "G1"),
    # 8.4: C thinks that P is homeless, and drops what B sends
    "pubdown_of_an_earlier_ingress": ([(Address, "_is_its_home", always(True))], "G4"),
    # 4.2: A takes S for a new subscription, which has missed nothing
    "subscribed_during_partition": ([(Egress, "_how_to_join", as_it_attached)], "G5"),
    # 5.2, 5.7: what P said before S came lets A claim it, and send what S has accepted at B
    "sign_of_life_older_than_the_subscription": ([(Ingress, "_is_stale", always(False))], "G2"),
    # 5.7: what P said before S crossed over lets A replay what B has settled
    "answer_to_an_earlier_question": ([(Ingress, "_serves", always(True))], "G2"),
    # 4.3: the record that was there before A knew of S is not owed to it
    "taken_before_the_subscription_was_known": ([(Address, "_owe_news", always(None))], "G1"),
    # 10.3: S takes m1 from the stream that it was in before, and m0 comes with SYNC
    "stream_of_an_ended_session": (
        [(Egress, "void", void_but_synced), (Egress, "_check_not_synced", always(None))],
        "G3",
    ),
}


# ---------------------------------------------------------------------- defects that any random schedule may run into
AT_RANDOM: dict[str, tuple[list[Patch], str, str]] = {
    # name: what is taken away, the family of schedules, how the violation begins
    # 4.4: nobody knows who is to be waited for, and A accepts
    "accepts_before_it_knows_anything": ([(Ingress, "_may_accept", always(True))], "all-die", "G1"),
    # 7.2: those who go on without S have not heard of it
    "confirms_before_everybody_knows": ([(Egress, "_barrier", own_word)], "modes", "G1"),
    # 7.4: what was sent before a subscription was known is not part of its stream
    "owes_no_backlog": (
        [(Address, "_owe_backlog", always(None)), (Ingress, "_entries", only_what_is_owed)],
        "all-die",
        "G1",
    ),
    # 8.4: P works at the other side, where what this one has settled is undecided
    "gives_up_who_may_be_out_of_sight": ([(Address, "_may_be_elsewhere", always(False))], "long-apart", "G2"),
    # 5.7: whoever crosses over is synchronised by an abandoned connection
    "asks_no_proof": ([(Ingress, "_needs_proof", always(False))], "crossing", "G2"),
}


# ---------------------------------------------------------------------- trying them
@dataclass(frozen=True)
class Mutation:
    name: str
    patches: tuple[Patch, ...]
    expected: str
    schedule: str | None = None  # the named one that finds it
    family: str | None = None  # or random ones of this family


MUTATIONS: dict[str, Mutation] = {}
for _each in (
    *(Mutation(name, tuple(p), expected, schedule=name) for name, (p, expected) in TAKEN.items()),
    *(Mutation(f"condition_{name}", tuple(p), expected, schedule=name) for name, (p, expected) in EASY_TO_LOSE.items()),
    *(Mutation(name, tuple(p), expected, family=family) for name, (p, family, expected) in AT_RANDOM.items()),
    *(Mutation(name, tuple(p), expected, schedule=schedule) for name, (p, schedule, expected) in CLIENT.items()),
    *(Mutation(name, tuple(p), expected, family=family) for name, (p, family, expected) in CLIENT_AT_RANDOM.items()),
):
    assert _each.name not in MUTATIONS, _each.name
    MUTATIONS[_each.name] = _each
SEEDS = range(400)

ENOUGH_S = 20.0  # of CPU, in one of the smallest worlds
LEGIBLE = 200  # characters of what was left over

# Those with a schedule of their own that random ones were seen to run into: (family, seed). Whichever guarantee is
# violated there, the same seed holds without the defect. What a seed draws changes with the simulator; where it no
# longer finds the defect, the schedule does.
BY_SEED: dict[str, tuple[str, int]] = {
    "accept_crosses_replay": ("modes", 4),
    "aggregated_accept_without_the_lost_subscriber": ("together", 3),
    "asks_no_proof": ("crossing", 152),
    "client_accepts_before_it_has_written": ("ours", 0),
    "client_attaches_with_the_same_epoch": ("ours", 0),
    "client_does_not_ask_what_another_has_accepted": ("ours-apart", 4),
    "client_does_not_tell_a_gap": ("ours-apart", 33),
    "client_does_not_repeat_its_verdict": ("ours", 390),
    "client_forgets_a_tag_when_it_accepts": ("ours", 14),
    "client_leaves_the_undecided_out": ("ours", 2),
    "client_sends_again_in_another_order": ("ours", 4),
    "closed_publisher_and_old_ingress": ("all-die", 9),
    "condition_pubdown_of_an_earlier_ingress": ("crossing", 2),
    "condition_synced_under_an_unknown_set": ("together", 1),
    "confirms_before_everybody_knows": ("modes", 73),
    "fresh_subscriber_and_ingress_failover": ("together", 6),
    "gives_up_who_may_be_out_of_sight": ("long-apart", 101),
    "joins_reordered": ("expiry", 1),
    "no_map_is_not_an_empty_map": ("apart", 3),
    "reused_tags_after_memory_loss": ("released", 8),
    "subscribed_during_partition": ("apart", 11),
    "unresolved_not_listed": ("all-die", 0),
}
# ... and those that are found in a few seconds by going through one of the smallest worlds.
BY_WORLD: dict[str, str] = {
    "condition_lost_router_covers_nothing": "crash-1-one",
    "condition_orphan_is_covered_nowhere": "restart-1-one",
}
assert MUTATIONS.keys() >= BY_SEED.keys() | BY_WORLD.keys()


@contextmanager
def defective(patches: Iterable[Patch]) -> Iterator[None]:
    """The product with these methods' bodies replaced."""
    before: list[tuple[type, str, Any]] = []
    try:
        for owner, method, body in patches:
            if not hasattr(owner, method):
                raise LookupError(
                    f"{owner.__name__}.{method} is no more: mend its defect in chaos/simulation/mutations.py"
                )
            before.append((owner, method, vars(owner).get(method, INHERITED)))
            setattr(owner, method, body)
        yield
    finally:
        for owner, method, body in reversed(before):
            if body is INHERITED:
                delattr(owner, method)
            else:
                setattr(owner, method, body)


INHERITED: Any = object()


def caught(mutation: Mutation, seeds: Iterable[int] = SEEDS) -> str | None:
    """Where, and the first line of the violation."""
    with defective(mutation.patches):
        if mutation.name in BY_SEED:
            family, seed = BY_SEED[mutation.name]
            _, failure = explore(seed, family)
            if isinstance(failure, AssertionError) and first_line(failure).startswith("G"):
                return f"seed {seed}: {first_line(failure)} (--family {family})"
        if mutation.name in BY_WORLD:
            world = BY_WORLD[mutation.name]
            finding = Search(WORLDS[world], seconds=ENOUGH_S).run().finding
            if finding is not None and finding.text.startswith("G"):
                return f"world {world}: {finding.text.splitlines()[0]}"
        if mutation.schedule is not None:
            try:
                SCENARIOS[mutation.schedule](World)
            except AssertionError as violation:
                text = first_line(violation)
                return f"schedule {mutation.schedule}: {text}" if text.startswith(mutation.expected) else None
            return None
        for seed in seeds:
            _, failure = explore(seed, mutation.family)
            if failure is not None and first_line(failure).startswith(mutation.expected):
                return f"seed {seed}: {first_line(failure)}"
    return None


def first_line(failure: BaseException) -> str:
    return str(failure).split("\n", 1)[0][:LEGIBLE]
