"""The judge against the plainest reading of the rules: whole lists, sets, and a look at everything for every message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.judge.history import Event
from chaos.judge.judge import judge_events
from chaos.judge.ranges import Ranges

PUBLISHERS, SUBSCRIBERS, NUMBERS = ("p0", "p1"), ("s0", "s1"), range(6)
p, s, n = st.sampled_from(PUBLISHERS), st.sampled_from(SUBSCRIBERS), st.sampled_from(NUMBERS)


def step(op: str, **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"op": st.just(op), **fields})


OUTCOME = st.sampled_from(["accepted", "accepted", "accepted", "rejected"])
# fmt: off
STEPS = st.one_of(
    step("send", p=p, n=n), step("send", p=p, n=n),
    step("outcome", p=p, n=n, outcome=OUTCOME), step("outcome", p=p, n=n, outcome=OUTCOME),
    step("receive", s=s, p=p, n=n), step("receive", s=s, p=p, n=n), step("accept", s=s, p=p, n=n),
    step("ready", s=s), step("close", s=s), step("told", s=s, why=st.just("gap")), step("start", s=s),
    step("fault", kind=st.sampled_from(["kill", "latency"]), target=st.sampled_from(["router a", "client s0", "s1"])),
)
# fmt: on
WAIT_S = 4.0


def history(steps: list[dict[str, Any]]) -> list[Event]:
    declared = [{"name": name, "timeout_s": WAIT_S} for name in SUBSCRIBERS]
    run = {"op": "run", "publishers": [{"name": name} for name in PUBLISHERS], "subscribers": declared}
    rows = [run, *({"op": "send", "p": name, "n": 9} for name in PUBLISHERS), *steps, {"op": "end", "drained": True}]
    return [Event(float(t), "all.jsonl", t, str(row["op"]), row | {"t": t}) for t, row in enumerate(rows)]


class Reference:
    """Times are positions in the list of events."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events

    def times(self, op: str, **fields: Any) -> list[int]:
        return [
            at
            for at, event in enumerate(self.events)
            if event.op == op and all(event.fields.get(key) == value for key, value in fields.items())
        ]

    def lives(self, s: str) -> Iterator[tuple[int, int, str]]:
        """(from, to, how it ended)"""
        begun = None
        for at, event in enumerate(self.events):
            if event.fields.get("s") != s:
                continue
            if event.op == "ready" and begun is None:
                begun = at
            elif begun is not None and event.op == "close":
                yield begun, at, "closed"
                begun = None
            elif begun is not None and event.op == "told":
                cause = any(event.t - self.events[fault].t >= WAIT_S for fault in self.times("fault") if fault < at)
                yield begun, at, "told" if cause else "wrongly told"
                begun = None
        if begun is not None:
            yield begun, len(self.events), "open"

    def deaths(self, s: str) -> list[int]:
        kills = [at for target in (f"client {s}", s) for at in self.times("fault", kind="kill", target=target)]
        return sorted(kills + self.times("start", s=s))

    def pair(self, s: str, p: str) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {
            name: set()
            for name in ("lost", "silent", "early", "unwritten", "excused", "duplicated", "phantom", "reordered", "due")
        }
        for number in (*NUMBERS, 9):
            key = {"s": s, "p": p, "n": number}
            sends, receives, accepts = (
                self.times("send", p=p, n=number),
                self.times("receive", **key),
                self.times("accept", **key),
            )
            told = self.times("outcome", p=p, n=number, outcome="accepted")
            ends = [
                how
                for begun, end, how in self.lives(s)
                if sends and begun < sends[0] < end and told and (how != "closed" or told[0] < end)
            ]
            found["due"] |= {number} if ends else set()
            if ends and not accepts:
                (end,) = ends
                dropped = any(receive < death and not any(receive < close < death for close in self.times("close", s=s))
                              for receive in receives for death in self.deaths(s))  # fmt: skip
                if end.endswith("told"):
                    found["excused" if end == "told" else "lost"].add(number)
                elif not receives:
                    found["silent"].add(number)
                else:
                    found["unwritten" if dropped else "early"].add(number)
            for at in receives:
                if not any(send < at for send in sends):
                    found["phantom"].add(number)
                gone = [*self.deaths(s), *self.times("close", s=s)]
                held = any(other < at and not any(other < end < at for end in gone) for other in receives)
                if held or any(accept < at for accept in accepts):
                    found["duplicated"].add(number)
            later = [at for other in (*NUMBERS, 9) if other > number for at in self.times("receive", s=s, p=p, n=other)]
            if receives and any(at < receives[0] for at in later):
                found["reordered"].add(number)
        return found


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_the_judge_counts_what_the_plainest_reading_counts(steps: list[dict[str, Any]]) -> None:
    events = history(steps)
    reference = Reference(events)
    for pair in judge_events(events).pairs:
        expected = reference.pair(pair.subscriber, pair.publisher)
        assert pair.due == len(expected.pop("due")), pair
        for name, numbers in expected.items():
            some = getattr(pair, name)
            assert (some.count, some.examples) == (len(numbers), tuple(sorted(numbers)[:5])), (name, pair)


NUMBER_SETS = st.lists(st.integers(0, 30))


@settings(max_examples=300, deadline=None)
@given(NUMBER_SETS, NUMBER_SETS)
def test_ranges_are_sets(left: list[int], right: list[int]) -> None:
    a, b = Ranges(left), Ranges(right)
    assert list(a) == sorted(set(left))
    assert len(a) == len(set(left))
    for result, expected in (
        (a | b, set(left) | set(right)),
        (a & b, set(left) & set(right)),
        (a - b, set(left) - set(right)),
    ):
        assert result == Ranges(expected)
        assert list(result) == sorted(expected)
        assert all(end < start for (_, end), (start, _) in zip(result.pairs(), list(result.pairs())[1:], strict=False))
    assert all((number in a) == (number in set(left)) for number in range(32))
    assert a.first(3) == tuple(sorted(set(left))[:3])


def test_ranges_say_whether_a_number_was_new() -> None:
    ranges = Ranges()
    assert [ranges.add(number) for number in (3, 5, 4, 4, 1, 3)] == [True, True, True, False, True, False]
    assert list(ranges.pairs()) == [(1, 2), (3, 6)]


def test_what_is_numbered_one_by_one_takes_one_range() -> None:
    assert len(list(Ranges(range(100_000)).pairs())) == 1
