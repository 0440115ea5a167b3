"""The condition of an alert as data: what it asks of metrics, as Prometheus reads it, and its values here and now.

Each kind of condition says both: `str` of it is PromQL, and `values` are what Prometheus would compute of the same
samples. `monitoring/alerts_test.yaml` holds the two to each other: promtool judges the rules by it, and
tests/onceway/test_well.py what this module makes of the same series.

A value may come from less than the condition asks for. Then `lacks` says what is missing: a condition that is true of
a part of the time is true, and one that is not yet true of a part is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, nan
from typing import Final, Literal, NamedTuple, Protocol

from onceway.base.values import format_duration

Labels = Mapping[str, str]
Form = Literal["", "duration", "percentage", "days"]
NO_LABELS: Final[Labels] = {}


class Value(NamedTuple):
    """One value of a condition.

    Attributes:
        labels: As Prometheus would have them.
        number: The value.
        places: The instances whose samples it comes from; of a maximum only those that have it.
        lacks: What it would need and does not have; empty: nothing.
    """

    labels: Labels
    number: float
    places: tuple[str, ...]
    lacks: str = ""


class Past(NamedTuple):
    """What a series was within a time: (when, value), in order; and what is not known of that time."""

    labels: Labels
    points: Sequence[tuple[float, float]]
    lacks: str


class Moment(Protocol):
    """What is known of metrics at one time (`onceway.operate.well`)."""

    def now(self, name: str, where: Labels) -> Iterator[tuple[Labels, float, float]]:
        """Labels, value and when it was said, of each series that is said now."""

    def past(self, name: str, where: Labels, over_s: float) -> Iterator[Past]:
        """Of each series that was said within these seconds."""


class Condition(Protocol):
    """What an alert compares with its threshold."""

    @property
    def names(self) -> tuple[str, ...]:
        """The metrics that it asks for, as they are said."""

    @property
    def over_s(self) -> float:
        """How long a past it needs."""

    @property
    def form(self) -> Form:
        """How people read its values."""

    def values(self, moment: Moment) -> list[Value]: ...


@dataclass(frozen=True, slots=True)
class Said:
    """A metric as it is."""

    name: str
    where: Labels = field(default_factory=dict)
    over_s: float = 0.0

    def __str__(self) -> str:
        return _selector(self.name, self.where)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def form(self) -> Form:
        unit = self.name.rpartition("_")[2]
        return "duration" if unit == "seconds" else "days" if unit == "days" else ""

    def values(self, moment: Moment) -> list[Value]:
        return [Value(labels, number, _place(labels)) for labels, number, _ in moment.now(self.name, self.where)]


@dataclass(frozen=True, slots=True)
class Increase:
    """How much a counter has grown, whatever was started anew meanwhile."""

    name: str
    over_s: float
    where: Labels = field(default_factory=dict)
    form: Form = ""

    def __str__(self) -> str:
        return f"increase({_selector(self.name, self.where)}[{format_duration(self.over_s)}])"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def values(self, moment: Moment) -> list[Value]:
        return [
            Value(past.labels, _grown(past.points), _place(past.labels), past.lacks)
            for past in moment.past(self.name, self.where, self.over_s)
        ]


@dataclass(frozen=True, slots=True)
class Over:
    """The highest, the lowest or the sum of what has the same labels."""

    how: Literal["max", "min", "sum"]
    by: tuple[str, ...]
    of: Said | Increase

    def __str__(self) -> str:
        return f"{self.how} by ({', '.join(self.by)}) ({self.of})"

    @property
    def names(self) -> tuple[str, ...]:
        return self.of.names

    @property
    def over_s(self) -> float:
        return self.of.over_s

    @property
    def form(self) -> Form:
        return self.of.form

    def values(self, moment: Moment) -> list[Value]:
        groups: dict[tuple[str, ...], list[Value]] = {}
        for value in self.of.values(moment):
            groups.setdefault(tuple(value.labels.get(label, "") for label in self.by), []).append(value)
        return [self._one(dict(zip(self.by, key, strict=True)), values) for key, values in groups.items()]

    def _one(self, labels: Labels, values: list[Value]) -> Value:
        numbers = [value.number for value in values]
        number = max(numbers) if self.how == "max" else min(numbers) if self.how == "min" else sum(numbers)
        having = [value for value in values if (value.number if self.how == "sum" else value.number == number)]
        places = sorted({place for value in having or values for place in value.places})
        return Value(labels, number, tuple(places), next(filter(None, (value.lacks for value in values)), ""))


@dataclass(frozen=True, slots=True)
class Pair:
    """Two conditions' values with the same labels, one less the other or as a part of it."""

    left: Condition
    sign: Literal["-", "/"]
    right: Condition

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.left.names, *self.right.names)

    @property
    def over_s(self) -> float:
        return max(self.left.over_s, self.right.over_s)

    @property
    def form(self) -> Form:
        return "percentage" if self.sign == "/" else self.left.form

    def values(self, moment: Moment) -> list[Value]:
        right = {_key(value.labels): value for value in self.right.values(moment)}
        found = []
        for one in self.left.values(moment):
            other = right.get(_key(one.labels))
            if other is not None:
                number = one.number - other.number if self.sign == "-" else _ratio(one.number, other.number)
                found.append(Value(one.labels, number, one.places, one.lacks or other.lacks))
        return found


@dataclass(frozen=True, slots=True)
class Quantile:
    """Of what a histogram has counted meanwhile."""

    quantile: float
    by: tuple[str, ...]
    histogram: str
    over_s: float

    def __str__(self) -> str:
        rate = f"rate({self.histogram}_bucket[{format_duration(self.over_s)}])"
        return f"histogram_quantile({self.quantile:g}, sum by ({', '.join((*self.by, 'le'))}) ({rate}))"

    @property
    def names(self) -> tuple[str, ...]:
        return (f"{self.histogram}_bucket",)

    @property
    def form(self) -> Form:
        return Said(self.histogram).form

    def values(self, moment: Moment) -> list[Value]:
        counted = Over("sum", (*self.by, "le"), Increase(f"{self.histogram}_bucket", self.over_s))
        groups: dict[tuple[str, ...], list[Value]] = {}
        for bucket in counted.values(moment):
            groups.setdefault(tuple(bucket.labels[label] for label in self.by), []).append(bucket)
        found = []
        for key, buckets in groups.items():
            counts = sorted((float(bucket.labels["le"]), bucket.number) for bucket in buckets)
            places = sorted({place for bucket in buckets for place in bucket.places})
            lacks = next(filter(None, (bucket.lacks for bucket in buckets)), "")
            labels = dict(zip(self.by, key, strict=True))
            found.append(Value(labels, _quantile(self.quantile, counts), tuple(places), lacks))
        return found


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far a process's clock is ahead of the one that is furthest back."""

    name: str
    over_s: float = 0.0
    form: Form = "duration"

    def __str__(self) -> str:
        drift = f"{self.name} - timestamp({self.name})"
        return f"({drift}) - on () group_left () min({drift})"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def values(self, moment: Moment) -> list[Value]:
        drifts = [(labels, number - at) for labels, number, at in moment.now(self.name, NO_LABELS)]
        others = any(True for _ in moment.now("onceway_neighbour_up", NO_LABELS))
        lacks = "needs the clocks of two routers at least" if len(drifts) < 2 and others else ""
        least = min((drift for _, drift in drifts), default=0.0)
        return [Value(labels, drift - least, _place(labels), lacks) for labels, drift in drifts]


@dataclass(frozen=True, slots=True)
class UntilFull:
    """The seconds until nothing is left, as fast as it has become less; none where it has not."""

    name: str
    over_s: float
    form: Form = "duration"

    def __str__(self) -> str:
        return f"{self.name} / -deriv({self.name}[{format_duration(self.over_s)}]) > 0"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def values(self, moment: Moment) -> list[Value]:
        found = []
        for past in moment.past(self.name, NO_LABELS, self.over_s):
            at, left = past.points[-1]
            left_s = _ratio(left, -_slope([each for each in past.points if each[0] >= at - self.over_s]))
            found.append(Value(past.labels, left_s if left_s > 0 else nan, _place(past.labels), past.lacks))
        return found


def words(number: float, form: str) -> str:
    """A value as Prometheus' templates write it: humanizeDuration, humanizePercentage."""
    if form == "percentage":
        return f"{number * 100:.4g}%"
    if form == "days":
        return f"{number:.4g} days"
    if form != "duration":
        return f"{number:.4g}"
    if abs(number) < 60:
        prefix = ""
        for smaller in ("m", "u", "n"):
            if abs(number) >= 1 or number == 0:
                break
            number, prefix = number * 1000, smaller
        return f"{number:.4g}{prefix}s"
    left, parts = int(abs(number)), list[str]()
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts or size == 1:
            parts.append(f"{count}{unit}")
    return ("-" if number < 0 else "") + " ".join(parts)


def _selector(name: str, where: Labels) -> str:
    asked = ", ".join(f'{label}="{value}"' for label, value in where.items())
    return f"{name}{{{asked}}}" if asked else name


def _place(labels: Labels) -> tuple[str, ...]:
    return (labels["instance"],) if "instance" in labels else ()


def _key(labels: Labels) -> tuple[tuple[str, str], ...]:
    """What Prometheus matches two series by: all but their names, and the bounds of buckets."""
    return tuple(sorted(labels.items()))


def _ratio(one: float, other: float) -> float:
    return one / other if other else nan if not one else inf


def _grown(points: Sequence[tuple[float, float]]) -> float:
    return sum(new - old if new >= old else new for (_, old), (_, new) in pairwise(points))


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """A second, by the least squares."""
    count = len(points)
    mean_at, mean = sum(at for at, _ in points) / count, sum(value for _, value in points) / count
    squares = sum((at - mean_at) ** 2 for at, _ in points)
    return sum((at - mean_at) * (value - mean) for at, value in points) / squares if squares else 0.0


def _quantile(quantile: float, counts: Sequence[tuple[float, float]]) -> float:
    """Of cumulative counts by upper bound, the last of which is infinite; within a bucket all are spread evenly."""
    total = counts[-1][1]
    if not total:
        return nan
    rank, below, bound = quantile * total, 0.0, 0.0
    for upper, count in counts:
        if count >= rank:
            return bound if upper == inf else bound + (upper - bound) * (rank - below) / (count - below)
        below, bound = count, upper
    return bound
