"""Is a network well? The alerts (`onceway.operate.alerts`), judged here and now by what its processes say.

A `Judge` is told what each process answers at /metrics, again and again. What an alert compares over a time comes from
what it has been told. Beyond that it knows that a counter was 0 when its router started, so that most are known at
once. An alert

- is *firing* where its condition has held for as long as Prometheus wants it to hold;
- is *pending* where it holds, and not for so long yet;
- is *unknown* where it does not hold as far as is known, and something is missing, which is named;
- is *well* otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Literal, NamedTuple

from onceway.base.values import format_duration
from onceway.operate.alerts import ALERTS, ASKED, PLACE, Alert, Asked
from onceway.operate.conditions import Labels, Past, Value, words
from router.core.reports import at_once

State = Literal["firing", "pending", "unknown", "well"]
JOB: Final[dict[Asked, str]] = {"router": "onceway", "store": "pipe", "bus": "bus", "receiver": "ingest"}
NOBODY: Final[dict[Asked, str]] = {
    "router": "no router is asked",
    "store": "no store of a pipe is asked: `onceway console FILE` asks those that have `store_metrics` in the file",
    "bus": "a bus is asked by Prometheus alone",
    "receiver": "receivers for Spark are asked by Prometheus alone",
}
GAP_S: Final = 60.0  # two judgements that are further apart say nothing of what was in between
PARTS: Final = 20  # of the time that a condition looks back: so many samples are kept
SHOWN: Final = 20  # values of one alert
LINES: Final = 20  # at once
UPTIME: Final = "onceway_uptime_seconds"
_OF_HISTOGRAM: Final = re.compile(r"_(bucket|count|sum)\Z")
PAST_S: Final = {name: max(alert.of.over_s for alert in ALERTS if name in alert.of.names) for name in sorted(ASKED)}
NEEDED: Final = frozenset(_OF_HISTOGRAM.sub("", name) for name in (*PAST_S, UPTIME))
"""The metrics that processes have to say."""
_SAMPLE: Final = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


class Told(NamedTuple):
    """What one process has answered.

    Attributes:
        who, name: The process.
        at: When it was asked, in seconds since 1970 by the clock of who asks.
        text: Its metrics, in Prometheus' text format. None: it has not answered.
        why: Why not.
    """

    who: Asked
    name: str
    at: float
    text: str | None
    why: str = ""


class Finding(NamedTuple):
    """A value for which the condition of an alert holds."""

    state: State
    value: Value
    since_s: float


class Verdict(NamedTuple):
    """Of one alert. why: what is missing."""

    alert: Alert
    state: State
    findings: list[Finding]
    why: list[str]

    def document(self) -> dict[str, Any]:
        """For the console's page, in words."""
        alert = self.alert
        return {
            "name": alert.name,
            "state": self.state,
            "severity": alert.severity,
            "means": alert.means_text,
            "remedy": alert.remedy_text,
            "docs": PLACE,
            "condition": alert.expression,
            "threshold": alert.threshold,
            "why": self.why,
            "findings": [self._shown(finding) for finding in self.findings[:SHOWN]],
            "more": max(0, len(self.findings) - SHOWN),
        }

    def _shown(self, finding: Finding) -> dict[str, Any]:
        return {
            "state": finding.state,
            "summary": self.alert.says(finding.value),
            "value": words(finding.value.number, self.alert.of.form),
            "places": finding.value.places,
            "held": words(round(finding.since_s), "duration"),
        }


@dataclass(slots=True)
class _Series:
    labels: Labels
    points: list[tuple[float, float]]
    past_s: float

    def add(self, at: float, value: float) -> None:
        points = self.points
        if len(points) > 1 and (not self.past_s or at - points[-2][0] < self.past_s / PARTS):
            points.pop()
        points.append((at, value))
        while len(points) > 1 and points[1][0] <= at - self.past_s:
            del points[0]


@dataclass(slots=True)
class _Process:
    told: Told
    says: frozenset[str] = frozenset()  # its metrics, also those without samples
    answered_at: float = -inf
    born: float = inf
    series: dict[str, dict[str, _Series]] = field(default_factory=lambda: {name: {} for name in PAST_S})


class Judge:
    """Remembers what it was told as long as conditions look back. It is a `Moment` of the last judgement."""

    def __init__(self) -> None:
        self._processes: dict[tuple[Asked, str], _Process] = {}
        self._at = -inf
        self._since: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def judge(self, told: Sequence[Told]) -> Generator[None, None, list[Verdict]]:
        """In pieces: for those who have other work. told: of all processes, one each."""
        before, self._at = self._at, max(one.at for one in told)
        for one in told:
            yield from self._take(one)
        if self._at - before > GAP_S:
            self._since = {}
        since, verdicts = dict[tuple[str, tuple[tuple[str, str], ...]], float](), []
        for alert in ALERTS:
            findings = []
            values = alert.of.values(self)
            for value in values:
                if alert.holds(value):
                    key = alert.name, tuple(sorted(value.labels.items()))
                    since[key] = self._since.get(key, self._at)
                    held_s = self._at - since[key]
                    findings.append(Finding("firing" if held_s >= alert.for_s else "pending", value, held_s))
            why = self._lacking(alert, values)
            state: State = "unknown" if why else "well"
            if findings:
                state = "firing" if any(each.state == "firing" for each in findings) else "pending"
            verdicts.append(Verdict(alert, state, findings, why))
            yield
        self._since = since
        return verdicts

    def judged(self, told: Sequence[Told]) -> list[Verdict]:
        """Without pauses."""
        return at_once(self.judge(told))

    def _lacking(self, alert: Alert, values: list[Value]) -> list[str]:
        asked = [process for process in self._processes.values() if process.told.who == alert.asked]
        if not asked:
            return [NOBODY[alert.asked]]
        found = []
        for process in asked:
            name = f"{alert.asked} {process.told.name}"
            if process.told.text is None:
                if alert.of.names != ("up",):
                    found.append(f"{name} {process.told.why}")
                continue
            missing = {_OF_HISTOGRAM.sub("", each) for each in alert.of.names} - process.says - {"up"}
            found += [f"{name} does not say {each}" for each in sorted(missing)]
        lacks = dict.fromkeys(value.lacks for value in values if value.lacks and not alert.holds(value))
        return [*found, *list(lacks)[:1]]

    def _take(self, told: Told) -> Generator[None, None, None]:
        process = self._processes.setdefault((told.who, told.name), _Process(told))
        process.told = told
        lines = (told.text or "").splitlines()
        samples, says = [("up", "", 0.0 if told.text is None else 1.0)], set[str]()
        for index, line in enumerate(lines):
            if index % LINES == 0:
                yield
            if line.startswith("# TYPE "):
                says.add(line.split(" ", 3)[2])
            elif (sample := _SAMPLE.match(line)) is not None and (sample[1] in ASKED or sample[1] == UPTIME):
                samples.append((sample[1], sample[2] or "", float(sample[3])))
        process.says = frozenset({_OF_HISTOGRAM.sub("", each) for each in says})
        uptimes = [value for name, _, value in samples if name == UPTIME]
        process.born = told.at - uptimes[0] if uptimes else inf
        for index, (name, labels, value) in enumerate(samples):
            if index % LINES == 0:
                yield
            if name != UPTIME:
                self._add(process, name, labels, value)
        for known in process.series.values():
            for labels, series in [*known.items()]:
                if series.points[-1][0] < told.at - series.past_s:
                    del known[labels]
        if told.text is not None:
            process.answered_at = told.at

    def _add(self, process: _Process, name: str, labels: str, value: float) -> None:
        at, born = process.told.at, process.born
        series = process.series[name].get(labels)
        if series is None:
            said = {label: _ESCAPED.sub(_unescaped, text) for label, text in _LABEL.findall(labels)}
            own = {"job": JOB[process.told.who], "instance": process.told.name}
            series = process.series[name][labels] = _Series({**own, **said}, [], PAST_S[name])
            if series.past_s and born <= at:  # only counters are looked at for a time: they begin at 0
                known = process.answered_at if process.answered_at >= born else -inf  # it was not there then
                if value == 0 or known > born or at - born < series.past_s:
                    series.points += [(each, 0.0) for each in (born, known) if each >= born]
        series.add(at, value)

    # --- as a Moment

    def now(self, name: str, where: Labels) -> Iterator[tuple[Labels, float, float]]:
        for process in self._processes.values():
            for series in self._of(process, name, where):
                at, value = series.points[-1]
                if at == process.told.at:
                    yield series.labels, value, at

    def past(self, name: str, where: Labels, over_s: float) -> Iterator[Past]:
        start = self._at - over_s
        for process in self._processes.values():
            for series in self._of(process, name, where):
                points = series.points
                if len(points) > 1 and points[0][0] < start - over_s / PARTS and points[0][1] != points[1][1]:
                    points = points[1:]  # nobody has looked for a while: when it has changed is not known
                lacks = ""
                if points[0][0] > start:
                    has = words(max(0.0, self._at - points[0][0]), "duration")
                    lacks = f"needs {format_duration(over_s)} of history, and has {has}"
                yield Past(series.labels, points, lacks)

    def _of(self, process: _Process, name: str, where: Labels) -> Iterator[_Series]:
        for series in process.series[name].values():
            if all(series.labels.get(label) == value for label, value in where.items()):
                yield series


def _unescaped(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]
