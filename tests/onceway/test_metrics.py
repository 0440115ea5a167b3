"""What a router counts, it tells; and what is told of lost subscriptions and silent clients is what happened."""

from __future__ import annotations

import pytest

from onceway.base.metrics import Metric, exposition
from onceway.operate.metrics import TABLE, Scrape
from onceway.operate.status import Sums, summarize
from router.core.counters import EXPIRED, Counters, CountersByAddress, Histogram, Measured


def lines(counters: CountersByAddress, accept: str = "") -> list[str]:
    measured = Measured(
        counters.by_label, Histogram(), Histogram(), {key: 100.0 - at for key, at in counters.lost.items()}
    )
    scrape = Scrape(summarize({"name": "a"}, Sums(), None), Sums(), measured, 1_700_000_000.25)
    return "".join(exposition(TABLE, scrape, accept)[1]).splitlines()


def test_everything_that_is_counted_is_told() -> None:
    counters = CountersByAddress()
    counted: Counters = counters.of("orders")
    numbers = {name: 1000 + i for i, (name, value) in enumerate(vars(counted).items()) if isinstance(value, int)}
    for name, number in numbers.items():
        setattr(counted, name, number)
    told = {line.rpartition(" ")[2] for line in lines(counters) if 'address="orders"' in line}
    assert {name for name, number in numbers.items() if str(number) not in told} == set()


def test_subscriptions_that_were_lost_are_named_with_their_age() -> None:
    counters = CountersByAddress()
    counters.note_lost(counters.of("orders"), 'bil"ling', "in", EXPIRED, 40.0)
    told = lines(counters)
    labels = 'address="orders",container="bil\\"ling",name="in",reason="expired"'
    assert f"onceway_subscription_lost_seconds{{{labels}}} 60.0" in told
    assert 'onceway_lost_subscriptions_total{address="orders",reason="expired"} 1' in told
    assert 'onceway_lost_subscriptions_total{address="orders",reason="broken"} 0' in told


def test_units_are_told_to_those_who_understand_them() -> None:
    told = lines(CountersByAddress(), "application/openmetrics-text; version=1.0.0")
    assert "# UNIT onceway_clock_seconds seconds" in told
    assert "# UNIT onceway_received_bytes bytes" in told
    assert "onceway_clock_seconds 1700000000.25" in told
    assert told[-1] == "# EOF"


@pytest.mark.parametrize("version", ["x", "1.0.", "", "1.0.0\udcff", "9" * 5000, "1.0.0.0", "\u00b2.0.0"])
def test_a_version_that_there_is_not_is_none(version: str) -> None:
    assert lines(CountersByAddress(), f"application/openmetrics-text; version={version};q=1")[-1] == "# EOF"
    assert lines(CountersByAddress(), f"text/plain;version={version}, */*")[-1] != "# EOF"


def test_a_metric_of_a_kind_has_the_suffix_of_that_kind() -> None:
    names = [metric.name for metric in TABLE]
    assert len(names) == len(set(names))
    for kind, suffix in (("counter", "_total"), ("info", "_info")):
        assert all(metric.name.endswith(suffix) == (metric.kind == kind) for metric in TABLE)
    values = {"1.0": "", "+Inf": ""}
    histogram: Metric[None] = Metric("x_seconds", "histogram", "", lambda _: (), ("a",), "le", values)
    assert histogram.filled((("v",), (1, 2, 2, 1.5))).splitlines() == [
        'x_seconds_bucket{a="v",le="1.0"} 1',
        'x_seconds_bucket{a="v",le="+Inf"} 2',
        'x_seconds_count{a="v"} 2',
        'x_seconds_sum{a="v"} 1.5',
    ]
