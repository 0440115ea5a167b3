"""What a run's numbers mean: from counts per publisher, subscriber and pair of them to findings and one verdict.

The counting is done elsewhere, twice: message by message in judge.py, in joins over any number of machines in audit.py.
Both come here with the same tallies, so the same run gets the same reasons.  The tallies are plain: they don't know
what a client was promised.  That is judged here: G1 to G5 of the reliable topic, by each client's guarantee.

    lost          G1  the publisher was told accepted; the subscriber never accepted it and was told of a gap although
                      nothing had kept it away for as long as its subscription lasts
    silently lost G1 and G5  the same, and the subscriber was never told
    early         G1  the subscriber had been handed it, but had not accepted it when all was over
    duplicated    G2  handed again as new: to the same process, or after it had accepted it
    phantom       G2  handed before, or without ever, having been sent
    reordered     G3  first handed after a later one of the same publisher
    stuck         G4  the run did not drain although no fault lasted, or a publisher that closed was never answered
    interrupted   G5  a client was told of a gap without a cause
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

EXAMPLES = 5


class Verdict(StrEnum):
    OK = "ok"
    VIOLATED = "violated"
    UNKNOWN = "unknown"


EXIT_CODES = {Verdict.OK: 0, Verdict.VIOLATED: 1, Verdict.UNKNOWN: 3}


@dataclass(frozen=True, slots=True)
class Some:
    """How many, and the lowest message numbers among them."""

    count: int = 0
    examples: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        if not self.count:
            return "0"
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{self.count:,} ({', '.join(map(str, self.examples))}{more})"


NONE = Some()


@dataclass(frozen=True, slots=True)
class Client:
    """A publisher or subscriber as the run declares it."""

    name: str
    client: str = "?"
    guarantee: str = "exactly-once"
    deduplicates: bool = True
    ordered: bool = True
    timeout_s: float = 0.0
    """Away for less than that, it must not be told of a gap."""
    declared: bool = True

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Client:
        return cls(
            entry["name"],
            str(entry.get("client", "?")),
            str(entry.get("guarantee", "exactly-once")),
            bool(entry.get("deduplicates", True)),
            bool(entry.get("ordered", True)),
            float(entry.get("timeout_s", 0.0)),
        )


@dataclass(slots=True)
class PublisherTally:
    name: str
    seen: bool = False
    sent: int = 0
    accepted: int = 0
    unresolved: Some = NONE
    """Sent, without any outcome."""
    unsent: Some = NONE
    """With an outcome, but not sent."""
    closed: bool = False
    told: int = 0
    told_without_cause: int = 0


@dataclass(slots=True)
class SubscriberTally:
    name: str
    seen: bool = False
    lives: int = 0
    told: int = 0
    told_without_cause: int = 0


@dataclass(slots=True)
class PairTally:
    """One publisher's messages at one subscriber.  Of each message that the subscriber had to get (it was ready before
    it was sent, and the publisher was told accepted), at most one of lost, silent, early, unwritten, excused counts."""

    subscriber: str
    publisher: str
    due: int = 0
    received: int = 0
    accepted: int = 0
    lost: Some = NONE
    silent: Some = NONE
    early: Some = NONE
    unwritten: Some = NONE
    """Like early, but the process that held it was killed, perhaps between the accept and the line about it."""
    excused: Some = NONE
    """Missed, and rightly told so."""
    duplicated: Some = NONE
    phantom: Some = NONE
    reordered: Some = NONE
    unreceived: Some = NONE
    """Accepted, but never received: the history has a hole."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    run: Mapping[str, Any] | None
    """The line of the run, None where there is none."""
    end: Mapping[str, Any] | None
    lasting_faults: tuple[str, ...] = ()
    """Still there at the end."""
    faults: int = 0
    seconds: float = 0.0

    @property
    def drained(self) -> bool:
        return self.end is not None and bool(self.end["drained"])

    @property
    def cut(self) -> bool:
        return self.end is None or bool(self.end.get("cut", False))


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    kind: str
    guarantee: str
    text: str
    subscriber: str | None = None
    publisher: str | None = None
    count: int = 0
    examples: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.guarantee + ' ' if self.guarantee else ''}{self.kind}: {self.text}"


@dataclass(slots=True)
class Judgement:
    verdict: Verdict
    findings: list[Finding]
    clients: dict[str, Client] = field(default_factory=dict)
    publishers: list[PublisherTally] = field(default_factory=list)
    subscribers: list[SubscriberTally] = field(default_factory=list)
    pairs: list[PairTally] = field(default_factory=list)
    facts: RunFacts = RunFacts(None, None)

    @property
    def reasons(self) -> list[str]:
        return [str(finding) for finding in self.findings]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        facts = self.facts
        rows = [
            f"{self.verdict}: {sum(one.sent for one in self.publishers):,} sent, "
            f"{sum(one.accepted for one in self.publishers):,} accepted, "
            f"{sum(one.received for one in self.pairs):,} received by {len(self.subscribers)} subscribers, "
            f"{facts.faults:,} faults in {facts.seconds:,.1f} s"
        ]
        rows += [f"  {finding}" for finding in self.findings]
        return "\n".join(rows)


def declared(run: Mapping[str, Any] | None) -> tuple[dict[str, Client], dict[str, Client]]:
    if run is None:
        return {}, {}
    publishers, subscribers = ([Client.of(entry) for entry in run[role]] for role in ("publishers", "subscribers"))
    return {one.name: one for one in publishers}, {one.name: one for one in subscribers}


def undeclared(name: str) -> Client:
    return Client(name, declared=False)


def conclude(
    facts: RunFacts,
    publishers: Iterable[PublisherTally],
    subscribers: Iterable[SubscriberTally],
    pairs: Iterable[PairTally],
) -> Judgement:
    """Tallies come in any order, for whoever was declared or seen; missing ones of the declared are filled in."""
    publishing, subscribing = declared(facts.run)
    senders = {one.name: one for one in publishers}
    receivers = {one.name: one for one in subscribers}
    for name in publishing:
        senders.setdefault(name, PublisherTally(name))
    for name in subscribing:
        receivers.setdefault(name, SubscriberTally(name))
    by_pair = {(one.subscriber, one.publisher): one for one in pairs}
    court = _Court(facts)
    for name in sorted(senders):
        court.publisher(publishing.get(name) or undeclared(name), senders[name])
    for name in sorted(receivers):
        court.subscriber(subscribing.get(name) or undeclared(name), receivers[name])
    table = []
    for s in sorted(receivers):
        for p in sorted(senders):
            table.append(by_pair.get((s, p)) or PairTally(s, p))
            court.pair(
                subscribing.get(s) or undeclared(s), publishing.get(p) or undeclared(p), table[-1], senders[p].seen
            )
    court.run(senders.values())
    findings = sorted(court.findings, key=lambda one: one.verdict is Verdict.UNKNOWN)
    verdict = findings[0].verdict if findings else Verdict.OK
    return Judgement(
        verdict,
        findings,
        {f"p:{name}": one for name, one in publishing.items()}
        | {f"s:{name}": one for name, one in subscribing.items()},
        [senders[name] for name in sorted(senders)],
        [receivers[name] for name in sorted(receivers)],
        table,
        facts,
    )


class _Court:
    def __init__(self, facts: RunFacts) -> None:
        self.facts = facts
        self.findings: list[Finding] = []

    def violated(self, guarantee: str, kind: str, text: str, some: Some = NONE, **who: str) -> None:
        verdict = Verdict.VIOLATED if guarantee else Verdict.UNKNOWN
        subscriber, publisher = who.get("subscriber"), who.get("publisher")
        found = Finding(verdict, kind, guarantee, text, subscriber, publisher, some.count, some.examples)
        self.findings.append(found)

    def unknown(self, kind: str, text: str, some: Some = NONE, **who: str) -> None:
        self.violated("", kind, text, some, **who)

    def publisher(self, client: Client, tally: PublisherTally) -> None:
        name = client.name
        if not client.declared:
            self.unknown("undeclared", f"publisher {name} is not in the run's line", publisher=name)
        if not tally.seen:
            self.unknown("missing", f"no history of publisher {name}", publisher=name)
        if tally.told_without_cause:
            self._interrupted("publisher", client, tally.told_without_cause, publisher=name)
        if tally.unsent:
            text = f"publisher {name} was told outcomes of what it had not sent: {tally.unsent}"
            self.unknown("incomplete", text, tally.unsent, publisher=name)
        if tally.unresolved and client.guarantee != "at-most-once":
            left = f"publisher {name} never got an outcome of {tally.unresolved}"
            if tally.closed and not tally.told and not self._excuse():
                self.violated("G4", "stuck", f"{left} although it closed", tally.unresolved, publisher=name)
            else:
                self.unknown("unresolved", left, tally.unresolved, publisher=name)

    def subscriber(self, client: Client, tally: SubscriberTally) -> None:
        name = client.name
        if not client.declared:
            self.unknown("undeclared", f"subscriber {name} is not in the run's line", subscriber=name)
        if not tally.seen:
            self.unknown("missing", f"no history of subscriber {name}", subscriber=name)
        elif not tally.lives:
            self.unknown("never ready", f"subscriber {name}'s attach was never answered", subscriber=name)
        if tally.told_without_cause:
            self._interrupted("subscriber", client, tally.told_without_cause, subscriber=name)

    def _interrupted(self, role: str, client: Client, count: int, **who: str) -> None:
        age = f" as long as its {client.timeout_s:g} s ago" if client.timeout_s else ""
        text = f"{role} {client.name} was told of a gap {count} times although no fault had begun{age}"
        self.violated("G5", "interrupted", text, Some(count), **who)

    def pair(self, subscriber: Client, publisher: Client, tally: PairTally, sender_seen: bool) -> None:
        who = {"subscriber": subscriber.name, "publisher": publisher.name}
        where = f"at {subscriber.name} from {publisher.name}"
        guarantees = {subscriber.guarantee, publisher.guarantee}
        may_miss = "at-most-once" in guarantees
        may_repeat = "at-least-once" in guarantees or not subscriber.deduplicates
        drained = self.facts.drained
        for some, excused, guarantee, kind, text in (
            (tally.silent, may_miss, "G1 G5", "silently lost", ": accepted, never handed, and nobody told it"),
            (tally.lost, may_miss, "G1", "lost", ": accepted, never accepted there, and it was told without cause"),
            (tally.early, may_miss or not drained, "G1", "early",
             ": the publisher was told accepted, the subscriber never accepted it"),
            (tally.early, may_miss or drained, "", "unwritten", " were handed and not accepted when the run was cut"),
            (tally.unwritten, may_miss, "", "unwritten",
             " were in hand when the subscriber was killed; nothing says accepted"),
            (tally.duplicated, may_repeat, "G2", "duplicated", ""),
            (tally.phantom, not sender_seen, "G2", "phantom", ": not sent before"),
            (tally.reordered, not subscriber.ordered, "G3", "reordered", ": first handed after a later one"),
            (tally.unreceived, False, "", "incomplete", " were accepted without having been received"),
        ):  # fmt: skip
            if some and not excused:
                self.violated(guarantee, kind, f"{some} {where}{text}", some, **who)

    def pre_settled(self, publisher: str) -> bool:
        client = declared(self.facts.run)[0].get(publisher)
        return client is not None and client.guarantee == "at-most-once"

    def run(self, publishers: Iterable[PublisherTally]) -> None:
        facts = self.facts
        if facts.run is None:
            self.unknown("missing", "no line of the run: nobody says who took part")
        if facts.cut:
            self.unknown("cut", "the run was cut before it had drained")
        elif not facts.drained and facts.end is not None:
            left = "; ".join(map(str, facts.end.get("left", ()))) or "nobody says what was left"
            if facts.lasting_faults:
                self.unknown("cut", f"not drained, with faults to the end ({', '.join(facts.lasting_faults)}): {left}")
            else:
                self.violated("G4", "stuck", f"not drained after the faults: {left}")
        if not any(one.accepted or (one.sent and self.pre_settled(one.name)) for one in publishers):
            self.unknown("nothing", "nothing was accepted: the run shows nothing")

    def _excuse(self) -> bool:
        """Whether something other than the network may have kept an outcome back."""
        return self.facts.cut or (not self.facts.drained and bool(self.facts.lasting_faults))
