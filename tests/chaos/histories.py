"""Histories made up for the tests of those who read them: a small language for runs, and a run of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.judge.history import Writer
from chaos.judge.verdict import Verdict

STEP_S = 0.001


class History:
    """Every call writes lines, a millisecond apart; p0 publishes and s0 subscribes unless it says otherwise."""

    def __init__(
        self,
        directory: Path,
        publishers: Iterable[str | dict[str, Any]] = ("p0",),
        subscribers: Iterable[str | dict[str, Any]] = ("s0",),
        *,
        declare: bool = True,
    ) -> None:
        self.directory = directory
        self.now = 100.0
        self._writers: dict[str, Writer] = {}
        self.publishers = [_client(one) for one in publishers]
        self.subscribers = [_client(one, deduplicates=True) for one in subscribers]
        if declare:
            self.run()

    def write(self, file: str, op: str, **fields: Any) -> History:
        self.now += STEP_S
        if file not in self._writers:
            self._writers[file] = Writer(self.directory / f"{file}.jsonl", clock=lambda: self.now)
        self._writers[file].write(op, **fields)
        return self

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def later(self, seconds: float) -> History:
        self.now += seconds
        return self

    def run(self) -> History:
        return self.write(
            "run", "run", schedule="made up", seed=1, commit="0", topology="pair",
            publishers=self.publishers, subscribers=self.subscribers,
        )  # fmt: skip

    def send(self, start: int, stop: int | None = None, p: str = "p0") -> History:
        for n in _numbers(start, stop):
            self.write(p, "send", p=p, n=n)
        return self

    def outcome(self, start: int, stop: int | None = None, p: str = "p0", outcome: str = "accepted") -> History:
        for n in _numbers(start, stop):
            self.write(p, "outcome", p=p, n=n, outcome=outcome)
        return self

    def receive(self, start: int, stop: int | None = None, s: str = "s0", p: str = "p0") -> History:
        for n in _numbers(start, stop):
            self.write(s, "receive", s=s, p=p, n=n)
        return self

    def accept(self, start: int, stop: int | None = None, s: str = "s0", p: str = "p0") -> History:
        for n in _numbers(start, stop):
            self.write(s, "accept", s=s, p=p, n=n)
        return self

    def take(self, start: int, stop: int | None = None, s: str = "s0", p: str = "p0") -> History:
        return self.receive(start, stop, s, p).accept(start, stop, s, p)

    def deliver(self, start: int, stop: int | None = None, p: str = "p0", to: Iterable[str] = ("s0",)) -> History:
        """Sent, received, accepted, and told so."""
        self.send(start, stop, p)
        for s in to:
            self.take(start, stop, s, p)
        return self.outcome(start, stop, p)

    def ready(self, s: str = "s0") -> History:
        return self.write(s, "ready", s=s)

    def told(self, s: str = "s0") -> History:
        return self.write(s, "told", s=s, why="gap")

    def start(self, s: str = "s0") -> History:
        return self.write(s, "start", s=s, pid=7)

    def attached(self, s: str = "s0", router: str = "b") -> History:
        return self.write(s, "attached", s=s, router=router)

    def leave(self, s: str = "s0") -> History:
        return self.write(s, "close", s=s)

    def finish(self, p: str = "p0") -> History:
        return self.write(p, "close", p=p)

    def fault(self, kind: str = "kill", target: str = "router a", until: float | None = None) -> History:
        return self.write("run", "fault", kind=kind, target=target, until=until)

    def end(self, drained: bool = True, *left: str, **fields: Any) -> History:
        return self.write("run", "end", drained=drained, left=list(left), **fields)


def _client(one: str | dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "client": "onceway",
        "guarantee": "exactly-once",
        **more,
        **({"name": one} if isinstance(one, str) else one),
    }


def _numbers(start: int, stop: int | None) -> range:
    return range(start, start + 1 if stop is None else stop)


@dataclass(frozen=True)
class Case:
    name: str
    verdict: Verdict
    kinds: tuple[tuple[str, str], ...]
    """(guarantee, kind) of each reason."""
    write: Callable[[History], object]
    publishers: tuple[str | dict[str, Any], ...] = ("p0",)
    subscribers: tuple[str | dict[str, Any], ...] = ("s0",)
    declare: bool = True

    def build(self, directory: Path) -> Path:
        history = History(directory, self.publishers, self.subscribers, declare=self.declare)
        self.write(history)
        history.close()
        return directory


def ok(name: str, write: Callable[[History], object], **options: Any) -> Case:
    return Case(name, Verdict.OK, (), write, **options)


def violated(name: str, kind: str, write: Callable[[History], object], **options: Any) -> Case:
    words = kind.split()
    guarantees = [word for word in words if word.startswith("G")]
    reason = (" ".join(guarantees), " ".join(words[len(guarantees) :]))
    return Case(name, Verdict.VIOLATED, (reason,), write, **options)


def unknown(name: str, kind: str, write: Callable[[History], object], **options: Any) -> Case:
    return Case(name, Verdict.UNKNOWN, (("", kind),), write, **options)


def _died_holding(history: History) -> History:
    return history.ready().deliver(0, 5).send(5).receive(5).fault("kill", "client s0").start().attached()


ALO = {"name": "p0", "guarantee": "at-least-once"}
AMO = {"name": "s0", "guarantee": "at-most-once"}
RAW = {"name": "s0", "client": "proton", "deduplicates": False}
WAITED_FOR = {"name": "s0", "timeout_s": 30.0}

CASES = [
    ok("all is well", lambda h: h.ready().deliver(0, 20).leave().finish().end()),
    ok("sent before the subscriber was ready", lambda h: h.deliver(0, 5, to=()).ready().deliver(5, 9).end()),
    ok("accepted after the subscriber closed", lambda h: h.ready().deliver(0, 5).send(5).leave().outcome(5).end()),
    ok("the line about an accept comes late", lambda h: h.ready().send(0).receive(0).outcome(0).accept(0).end()),
    ok("away between two lives", lambda h: h.ready().deliver(0, 3).leave().deliver(3, 6, to=()).ready().deliver(6).end()),
    ok("rejected and undecided", lambda h: h.ready().deliver(0).send(1, 3).outcome(1, outcome="rejected")
       .outcome(2, outcome="undecided").end()),
    ok("told of a gap after a fault", lambda h: h.ready().deliver(0, 3).fault().deliver(3, 6, to=()).told().ready()
       .deliver(6, 9).end()),
    ok("told of a gap when it was no longer waited for", lambda h: h.ready().deliver(0, 3).fault().later(31.0)
       .deliver(3, 6, to=()).told().ready().deliver(6, 9).end(), subscribers=(WAITED_FOR,)),
    ok("told of a gap before its first answer", lambda h: h.told().ready().deliver(0, 3).end()),
    ok("what a killed subscriber had in hand comes again", lambda h: _died_holding(h).take(5).outcome(5).end()),
    ok("a send that its publisher wrote twice", lambda h: h.ready().send(0).deliver(0, 3).end()),
    ok("repeats for a subscriber that does not drop them", lambda h: h.ready().deliver(0, 3).receive(1).end(),
       subscribers=(RAW,)),
    ok("repeats of a publisher that may repeat", lambda h: h.ready().deliver(0, 3).receive(1).end(), publishers=(ALO,)),
    ok("a subscriber that may miss", lambda h: h.ready().deliver(0, 3).deliver(3, 5, to=()).send(5).receive(5)
       .outcome(5).end(), subscribers=(AMO,)),
    ok("a publisher that is told nothing", lambda h: h.ready().send(0, 3).take(0, 2).finish().end(),
       publishers=({"name": "p0", "guarantee": "at-most-once"},)),
    ok("another order, for a subscriber that is promised none", lambda h: h.ready().send(0, 2).take(1).take(0)
       .outcome(0).outcome(1).end(), subscribers=({"name": "s0", "ordered": False},)),
    ok("several of each", lambda h: h.ready("s0").ready("s1").deliver(0, 4, "p0", ("s0", "s1"))
       .deliver(0, 4, "p1", ("s1", "s0")).end(), publishers=("p0", "p1"), subscribers=("s0", "s1")),
    violated("silently lost", "G1 G5 silently lost", lambda h: h.ready().deliver(0, 3).deliver(3, 5, to=()).deliver(5).end()),
    violated("silently lost, then closed", "G1 G5 silently lost",
             lambda h: h.ready().deliver(0, 3).deliver(3, 5, to=()).leave().end()),
    violated("silently lost at one of two", "G1 G5 silently lost",
             lambda h: h.ready("s0").ready("s1").deliver(0, 3, to=("s0", "s1")).deliver(3, to=("s1",)).end(),
             subscribers=("s0", "s1")),
    violated("silently lost with an at-least-once publisher", "G1 G5 silently lost",
             lambda h: h.ready().deliver(0, 3).deliver(3, to=()).end(), publishers=(ALO,)),
    Case("lost and told, but it had not been away for long enough", Verdict.VIOLATED, (("G1", "lost"), ("G5", "interrupted")),
         lambda h: h.ready().deliver(0, 3).fault().later(2.0).deliver(3, 6, to=()).told().ready().deliver(6).end(),
         subscribers=(WAITED_FOR,)),
    violated("told of a gap without any fault", "G5 interrupted", lambda h: h.ready().deliver(0, 3).told().ready()
             .deliver(3).end()),
    violated("a publisher told without any fault", "G5 interrupted",
             lambda h: h.ready().deliver(0, 3).write("p0", "told", p="p0", why="undecided").end()),
    violated("accepted in the name of a subscriber that has it in hand", "G1 early",
             lambda h: h.ready().deliver(0, 3).send(3).receive(3).outcome(3).end()),
    violated("handed twice while in hand", "G2 duplicated",
             lambda h: h.ready().send(0).receive(0).receive(0).accept(0).outcome(0).end()),
    violated("handed again after its accept", "G2 duplicated", lambda h: h.ready().deliver(0, 3).receive(1).end()),
    violated("handed again to a new process after its accept", "G2 duplicated",
             lambda h: h.ready().deliver(0, 3).fault("kill", "client s0").start().receive(1).end()),
    violated("repeats and one of them reordered", "G3 reordered",
             lambda h: h.ready().send(0, 4).take(0).take(2).receive(2).take(1).take(3).outcome(0, 4).end(),
             subscribers=(RAW,)),
    violated("an older one after a newer one", "G3 reordered",
             lambda h: h.ready().send(0, 4).take(0).take(2).take(1).take(3).outcome(0, 4).end()),
    violated("handed what nobody sent", "G2 phantom", lambda h: h.ready().deliver(0, 3).take(7).end()),
    violated("handed before it was sent", "G2 phantom", lambda h: h.ready().take(0).send(0).outcome(0).deliver(1, 3).end()),
    violated("not drained", "G4 stuck", lambda h: h.ready().deliver(0, 3).fault().end(False, "a: 3 records")),
    violated("not drained after a partition that was over", "G4 stuck",
             lambda h: h.ready().deliver(0, 3).fault("partition", "trunk a b", until=100.0).later(3).end(False, "a: 1 record")),
    violated("a publisher that closed without an outcome", "G4 stuck",
             lambda h: h.ready().deliver(0, 3).send(3).take(3).finish().end()),
    unknown("no end", "cut", lambda h: h.ready().deliver(0, 3)),
    unknown("cut", "cut", lambda h: h.ready().deliver(0, 3).end(False, cut=True)),
    unknown("a fault to the end", "cut", lambda h: h.ready().deliver(0, 3).fault("partition", "trunk a b")
            .end(False, "a: 3 records")),
    unknown("no outcome of the last", "unresolved", lambda h: h.ready().deliver(0, 3).send(3).take(3).end()),
    unknown("a subscriber without history", "missing", lambda h: h.ready().deliver(0, 3).end(), subscribers=("s0", "s1")),
    unknown("a publisher without history", "missing", lambda h: h.ready().deliver(0, 3).end(), publishers=("p0", "p1")),
    unknown("received from a publisher without history", "missing",
            lambda h: h.ready().deliver(0, 3).take(0, 3, p="p1").end(), publishers=("p0", "p1")),
    Case("no line of the run", Verdict.UNKNOWN, (("", "missing"), ("", "undeclared")),
         lambda h: h.ready().deliver(0, 3).end(), declare=False),
    unknown("a subscriber that nobody declared", "undeclared",
            lambda h: h.ready().ready("s1").deliver(0, 3, to=("s0", "s1")).end()),
    unknown("a subscriber that was never answered", "never ready",
            lambda h: h.start("s1").ready().deliver(0, 3).end(), subscribers=("s0", "s1")),
    unknown("killed between the accept and its line", "unwritten", lambda h: _died_holding(h).outcome(5).end()),
    unknown("accepts without receives", "incomplete", lambda h: h.ready().deliver(0, 3).send(3).accept(3).outcome(3).end()),
    unknown("outcomes without sends", "incomplete", lambda h: h.ready().deliver(0, 3).outcome(3).end()),
    unknown("nothing was accepted", "nothing", lambda h: h.ready().send(0).take(0).outcome(0, outcome="undecided").end()),
    Case("violated weighs more than unknown", Verdict.VIOLATED, (("", "cut"), ("G1 G5", "silently lost")),
         lambda h: h.ready().deliver(0, 3).deliver(3, to=())),
    Case("cut with something in hand", Verdict.UNKNOWN, (("", "cut"), ("", "unwritten")),
         lambda h: h.ready().deliver(0, 3).send(3).receive(3).outcome(3)),
    Case("several faults at once", Verdict.VIOLATED,
         (("G2", "duplicated"), ("G3", "reordered"), ("G4", "stuck"), ("G1 G5", "silently lost")),
         lambda h: h.ready().deliver(0, 3).send(3, 9).take(5).take(4).receive(5).outcome(3, 9).end(False, "b: 1 record")),
]  # fmt: skip
