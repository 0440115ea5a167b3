"""A run's figures over time, from its history: deliveries a second, latency, pauses, and recovery after each fault.

Latency runs from `send` to `receive`, so it holds the time that a message waited for credit.  Percentiles come from
histograms whose steps are 5 % apart.  Memory: a float per message sent, a histogram per stretch of time and subscriber.
Judges nothing (verdict.py), draws nothing (drawing.py).
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos.judge.history import Event
from chaos.judge.judge import DEATHS, PASSING

STRETCHES = 400
STEP = math.log(1.05)
AFTERWARDS_S = 10.0
NUMBERED_TO = 50_000_000
"""Send times of higher numbers are not kept: 400 MB per publisher."""


class Latencies:
    """A histogram; times in seconds."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.most = 0.0

    def add(self, seconds: float) -> None:
        self._counts[round(math.log(max(seconds, 1e-6)) / STEP)] += 1
        self.count += 1
        self.most = max(self.most, seconds)

    def percentile(self, percent: float) -> float:
        """0.0 where there are none."""
        if percent >= 100:
            return self.most
        wanted = self.count * percent / 100
        for step in sorted(self._counts):
            wanted -= self._counts[step]
            if wanted <= 0:
                return min(math.exp(step * STEP), self.most)
        return self.most


@dataclass(slots=True)
class Stretch:
    """A piece of the run, of the timeline's `step_s`."""

    received: int = 0
    accepted: int = 0
    latencies: Latencies = field(default_factory=Latencies)


@dataclass(slots=True)
class Fault:
    """`at` and `until` in seconds since the run began; until None: to the end; `at` again: it passes at once."""

    kind: str
    target: str
    at: float
    until: float | None
    recovered: dict[str, float] = field(default_factory=dict)
    """By affected subscriber: seconds until its next delivery; of a killed router's own, until its first one at the
    router it went to."""
    pauses: dict[str, float] = field(default_factory=dict)
    """By affected subscriber: its longest time without a delivery, from the fault until it has been over for
    AFTERWARDS_S, or the next one comes."""
    waiting: dict[str, bool] = field(default_factory=dict)
    """Affected subscribers without a delivery since; whether they have to attach elsewhere first."""


@dataclass(slots=True)
class Watch:
    """One subscriber."""

    latencies: Latencies = field(default_factory=Latencies)
    router: str | None = None
    last: float | None = None
    """Its last delivery, or its ready; None while it has no subscription."""
    pause_s: float = 0.0
    received: int = 0


@dataclass(slots=True)
class Timeline:
    seconds: float
    step_s: float
    stretches: list[Stretch]
    faults: list[Fault]
    downs: list[tuple[str, float, float | None]]
    """(router, gone at, ready again at)"""
    subscribers: dict[str, Watch]
    latencies: Latencies


def nice_step(seconds: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, so that `count` of them cover the time."""
    rough = max(seconds, 1e-3) / count
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


@dataclass(slots=True)
class _Recent:
    """A fault, and until when a pause that begins is its own."""

    fault: Fault
    until: float
    followed: bool = False

    def cut(self, at: float) -> None:
        """Another fault came: the pause is this one's up to there, unless it still lasts."""
        if self.fault.until is not None and self.fault.until <= at < self.until:
            self.until, self.followed = at, True


class Watcher:
    """`seconds`: how long the run was, as the judge knows; then every event by time."""

    def __init__(self, seconds: float) -> None:
        step = nice_step(seconds, STRETCHES)
        stretches = [Stretch() for _ in range(int(seconds / step) + 1)]
        self.timeline = Timeline(seconds, step, stretches, [], [], {}, Latencies())
        self._began: float | None = None
        self._sent: dict[str, array[float]] = {}
        self._waiting: dict[str, list[Fault]] = {}
        self._recent: list[_Recent] = []

    def watch(self, events: Iterable[Event]) -> Iterator[Event]:
        """Takes them in passing."""
        for event in events:
            self.take(event)
            yield event

    def take(self, event: Event) -> None:
        if self._began is None:
            self._began = event.t
        at, fields = event.t - self._began, event.fields
        match event.op:
            case "send":
                self._send(fields["p"], fields["n"], at)
            case "outcome" if fields["outcome"] == "accepted":
                self._stretch(at).accepted += 1
            case "receive":
                self._receive(fields["s"], fields["p"], fields["n"], at)
            case "ready":
                self._watch(fields["s"]).last = at
            case "attached" if "s" in fields:
                self._attached(fields["s"], fields["router"])
            case "close" | "told" if "s" in fields:
                self._watch(fields["s"]).last = None
            case "fault":
                self._fault(fields, at)
            case "router":
                self._router(fields["name"], fields["state"], at)

    def _stretch(self, at: float) -> Stretch:
        stretches = self.timeline.stretches
        return stretches[min(int(at / self.timeline.step_s), len(stretches) - 1)]

    def _watch(self, name: str) -> Watch:
        return self.timeline.subscribers.setdefault(name, Watch())

    def _send(self, publisher: str, n: int, at: float) -> None:
        times = self._sent.setdefault(publisher, array("d"))
        if n >= NUMBERED_TO:
            return
        if n >= len(times):
            times.extend([math.nan] * (n + 1 - len(times)))
        if math.isnan(times[n]):
            times[n] = at

    def _receive(self, subscriber: str, publisher: str, n: int, at: float) -> None:
        stretch, watch = self._stretch(at), self._watch(subscriber)
        stretch.received += 1
        watch.received += 1
        if watch.last is not None:
            watch.pause_s = max(watch.pause_s, at - watch.last)
            self._pause(subscriber, watch.last, at)
            watch.last = at
        times = self._sent.get(publisher)
        if times is not None and n < len(times) and not math.isnan(times[n]):
            for latencies in (stretch.latencies, watch.latencies, self.timeline.latencies):
                latencies.add(at - times[n])
        for fault in self._waiting.get(subscriber, ()):
            if not fault.waiting[subscriber]:
                del fault.waiting[subscriber]
                fault.recovered[subscriber] = at - fault.at
        if subscriber in self._waiting:
            self._waiting[subscriber] = [fault for fault in self._waiting[subscriber] if subscriber in fault.waiting]

    def _pause(self, subscriber: str, last: float, at: float) -> None:
        for one in self._recent:
            pauses = one.fault.pauses
            if last < one.until and subscriber in pauses:
                end = min(at, one.until) if one.followed else at
                pauses[subscriber] = max(pauses[subscriber], end - max(last, one.fault.at))

    def _attached(self, subscriber: str, router: str) -> None:
        self._watch(subscriber).router = router
        for fault in self._waiting.get(subscriber, ()):
            fault.waiting[subscriber] = False

    def _fault(self, fields: Mapping[str, Any], at: float) -> None:
        assert self._began is not None
        kind, target, until = fields["kind"], fields["target"], fields.get("until")
        if kind in DEATHS or (kind in PASSING and until is None):
            end: float | None = at
        else:
            end = None if until is None else max(at, until - self._began)
        fault = Fault(kind, target, at, end)
        self.timeline.faults.append(fault)
        here = {name: watch for name, watch in self.timeline.subscribers.items() if watch.last is not None}
        own = {name: watch for name, watch in here.items() if target in (f"router {watch.router}", f"client {name}")}
        over = self.timeline.seconds if end is None else end
        for one in self._recent:
            one.cut(at)
        self._recent = [one for one in self._recent if one.until > at - AFTERWARDS_S]
        self._recent.append(_Recent(fault, over + AFTERWARDS_S))
        for name in own or here:
            fault.pauses[name] = 0.0
            fault.waiting[name] = name in own and kind in DEATHS
            self._waiting.setdefault(name, []).append(fault)
            if fault.waiting[name]:
                self._watch(name).router = None

    def _router(self, name: str, state: str, at: float) -> None:
        downs = self.timeline.downs
        if state == "gone":
            downs.append((name, at, None))
        for index, (router, gone, back) in enumerate(downs):
            if state == "ready" and router == name and back is None:
                downs[index] = (router, gone, at)
