"""`/metrics`: the status document and its sums as Prometheus metrics, made for each scrape."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import copy
from itertools import accumulate, islice
from typing import Any, Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from onceway.overview import Measured
from onceway.status import Document, Sums
from router.core.counters import BOUNDS_S, Counters, Histogram
from router.links.limits import COUNTED as LIMIT_NAMES

END_OF_OPENMETRICS: Final = b"# EOF\n"
PART: Final = 64  # samples that are encoded at once; messages wait so long
STATES = ("starting", "recovering", "isolated", "ready", "draining", "drained", "stopping")


# Name without _total, help, label beside `address` (or none), value of the label -> attribute of `Counters`.
COUNTED: Final[tuple[tuple[str, str, str, Mapping[str, str]], ...]] = (
    (
        "onceway_received_messages",
        "Messages that publishers attached here have sent",
        "settled",
        {"false": "received", "true": "received_settled"},
    ),
    ("onceway_received_bytes", "Their payload", "", {"": "received_bytes"}),
    (
        "onceway_delivered_messages",
        "Messages sent to subscribers attached here",
        "settled",
        {"false": "delivered", "true": "delivered_settled"},
    ),
    ("onceway_delivered_bytes", "The same in bytes on the wire", "", {"": "delivered_bytes"}),
    (
        "onceway_publisher_outcomes",
        "Outcomes that publishers attached here were told",
        "outcome",
        {"accepted": "accepted", "rejected": "rejected", "released": "released"},
    ),
    (
        "onceway_subscriber_outcomes",
        "Outcomes that subscribers attached here have sent",
        "outcome",
        {
            "accepted": "subscriber_accepted",
            "rejected": "subscriber_rejected",
            "released": "subscriber_released",
        },
    ),
    (
        "onceway_redelivered_messages",
        "Transfers to subscribers of what they had been sent before",
        "",
        {"": "redelivered"},
    ),
    (
        "onceway_settled_messages",
        "Deliveries settled by publishers attached here, and to subscribers attached here",
        "link",
        {"publisher": "settled", "subscriber": "subscriber_settled"},
    ),
    (
        "onceway_dropped_messages",
        "Messages that this router dropped: pre-settled ones for which there was no room, and those of publishers whose"
        " link was lost, which send them again; and those whose time was over, for each subscription",
        "reason",
        {"presettled_queue": "presettled_dropped", "publisher_lost": "abandoned", "expired": "expired"},
    ),
    (
        "onceway_recoveries",
        "Attaches that resumed: publishers with unsettled deliveries, subscriptions that were known",
        "link",
        {"publisher": "publishers_resumed", "subscriber": "subscriptions_resumed"},
    ),
)
HISTOGRAMS: Final = (
    ("onceway_acceptance_seconds", "From a publisher's transfer to its outcome", "acceptance"),
    ("onceway_settlement_seconds", "From a publisher's transfer to its settlement", "settlement"),
)


class Metrics:
    """What `/metrics` answers; the process's own CPU, memory and files come with it."""

    def __init__(self) -> None:
        process = CollectorRegistry()
        ProcessCollector(registry=process)
        PlatformCollector(registry=process)
        GCCollector(registry=process)
        self._process = process

    def render(
        self, document: Document, sums: Sums, measured: Measured, accept: str, body: list[bytes]
    ) -> Generator[None, None, str]:
        """Appends to `body`, in pieces; returns the content type for these values of the header Accept."""
        encode, content_type = choose_encoder(accept)
        before = ""
        for family in self._families(document, sums, measured):
            # OpenMetrics ends with a line of its own, once
            text = encode(_Only(family)).removesuffix(END_OF_OPENMETRICS)
            while family.name == before and text.startswith(b"#"):  # its first part has said what it is
                text = text.partition(b"\n")[2]
            before = family.name
            body.append(text)
            yield
        if content_type.startswith("application/openmetrics"):
            body.append(END_OF_OPENMETRICS)
        return content_type

    def _families(self, document: Document, sums: Sums, measured: Measured) -> Iterator[Metric]:
        yield from _of_the_router(document)
        yield from _of_the_network(document)
        yield from _of_addresses(sums)
        yield from _counted([*measured.counters.values()])
        lag = HistogramMetricFamily(
            "onceway_event_loop_lag_seconds", "How late the event loop was for a timer that fires four times a second"
        )
        lag.add_metric([], _buckets(measured.loop_lag), measured.loop_lag.sum_s)
        yield lag
        yield from self._process.collect()


class _Only(CollectorRegistry):
    """A registry of one metric, so that encoding can pause behind each."""

    def __init__(self, family: Metric) -> None:
        super().__init__()
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value=value)


def _of_the_router(document: Document) -> Iterator[Metric]:
    identity = {key: str(document.get(key, "")) for key in ("name", "network", "incarnation")}
    yield InfoMetricFamily("onceway_router", "Which router this is, and which start of it", value=identity)
    state = GaugeMetricFamily("onceway_state", "1 for the state the router is in", labels=["state"])
    for name in STATES:
        state.add_metric([name], float(document.get("state") == name))
    yield state
    yield _gauge(
        "onceway_recovering_seconds", "Time until it is established at the latest", document["recovering_s"] or 0
    )
    yield _gauge("onceway_uptime_seconds", "Since this router started", document.get("uptime_s", 0))
    yield _gauge("onceway_connections", "Client connections", document.get("connections", 0))
    yield _gauge("onceway_payload_bytes", "Payload kept in this router", document.get("payload_bytes", 0))
    yield _gauge(
        "onceway_sessions_closed_for_memory",
        "Client sessions whose incoming window is closed at the memory limit",
        document.get("sessions_closed_for_memory", 0),
    )
    yield from _of_the_limits(document)
    days = GaugeMetricFamily(
        "onceway_certificate_days",
        "Until a certificate that this router shows expires; below zero: since then",
        labels=["file"],
    )
    for one in document.get("certificates", ()):
        days.add_metric([one["file"]], one["days"])
    yield days
    yield _gauge(
        "onceway_oldest_in_doubt_seconds",
        "Age of the oldest delivery in doubt, 0 where none is",
        document["oldest_in_doubt_s"] or 0,
    )


def _of_the_limits(document: Document) -> Iterator[Metric]:
    yield _gauge(
        "onceway_incomplete_bytes", "Bytes of incomplete messages and frames", document.get("incomplete_bytes", 0)
    )
    yield _gauge("onceway_unread_bytes", "Output that clients have not read", document.get("unread_bytes", 0))
    yield _gauge("onceway_entries", "Names known, and deliveries found by tag", document.get("entries", 0))
    yield _gauge(
        "onceway_clients_waiting", "Clients whose input waits for its turn", document.get("clients_waiting", 0)
    )
    limits = document.get("limits", {})
    yield _gauge("onceway_half_open", "Connections before open", limits.get("half_open", 0))
    users = GaugeMetricFamily("onceway_user_connections", "Opened client connections", labels=["user"])
    for user, number in limits.get("connections", {}).items():
        users.add_metric([user], number)
    yield users
    reached = CounterMetricFamily("onceway_limit_reached", "How often a limit was reached", labels=["limit"])
    for limit in LIMIT_NAMES:
        reached.add_metric([limit], limits.get("refused", {}).get(limit, 0))
    yield reached
    yield authentication_failures("onceway", document.get("authentication", {}))


def authentication_failures(prefix: str, counts: Mapping[str, int], **labels: str) -> CounterMetricFamily:
    """What `Guesses` has counted."""
    failures = CounterMetricFamily(
        f"{prefix}_authentication_failures",
        "Clients that were not let in, answers to them that were delayed, and those at whom nothing was looked",
        labels=["what", *labels],
    )
    for what in ("failed", "delayed", "refused"):
        failures.add_metric([what, *labels.values()], counts.get(what, 0))
    return failures


def _of_the_network(document: Document) -> Iterator[Metric]:
    up = GaugeMetricFamily("onceway_neighbour_up", "1 while the link to this neighbour is up", labels=["neighbour"])
    for name, neighbour in document.get("neighbours", {}).items():
        up.add_metric([name], float(bool(neighbour.get("up"))))
    yield up
    cost = GaugeMetricFamily("onceway_path_cost", "Cost of the best path to a router", labels=["router", "via"])
    for name, path in document.get("paths", {}).items():
        cost.add_metric([name, str(path.get("next", ""))], path.get("cost", 0))
    yield cost
    differs = GaugeMetricFamily(
        "onceway_file_differs",
        "1 for each router in session whose topology file differs from this router's in what it says of `what`",
        labels=["router", "what", "ours", "theirs"],
    )
    for one in document.get("file_differences", ()):
        differs.add_metric([one["router"], one["what"], one["ours"], one["theirs"]], 1.0)
    yield differs
    yield _gauge(
        "onceway_file_broken",
        "1 while the topology file has errors and the one last checked is used in its place",
        float(bool(document.get("broken_file"))),
    )


def _of_addresses(sums: Sums) -> Iterator[Metric]:
    rows = sums.rows.items()
    counts = GaugeMetricFamily(
        "onceway_records",
        "Deliveries that are not settled yet, by their state in this router",
        labels=["address", "state"],
    )
    yield from _in_parts(counts, (([label, key], value) for label, row in rows for key, value in row.records.items()))
    attached = GaugeMetricFamily("onceway_links", "Links attached here", labels=["address", "role"])
    links = (([label, role], getattr(row, f"{role}s")) for label, row in rows for role in ("publisher", "subscriber"))
    yield from _in_parts(attached, links)
    known = GaugeMetricFamily("onceway_subscriptions", "Subscriptions known in the network", labels=["address", "home"])
    yield from _in_parts(known, (([label, home], number) for label, row in rows for home, number in row.homes.items()))
    starved = GaugeMetricFamily(
        "onceway_publishers_without_credit", "Publishers attached here that get no credit now", labels=["address"]
    )
    yield from _in_parts(starved, (([label], row.without_credit) for label, row in rows))
    longest = GaugeMetricFamily(
        "onceway_longest_without_credit_seconds", "The longest of them without a pause", labels=["address"]
    )
    yield from _in_parts(longest, (([label], row.longest_without_credit_s) for label, row in rows))
    names = ["address", "container", "name"]
    lag = GaugeMetricFamily(
        "onceway_subscription_lag_messages",
        "What a subscription has not accepted of what this router has for it",
        labels=names,
    )
    yield from _in_parts(lag, ((key, one.messages) for key, one in sums.lags.items()))
    oldest = GaugeMetricFamily(
        "onceway_subscription_oldest_seconds", "Since when the oldest of these messages has been here", labels=names
    )
    yield from _in_parts(oldest, ((key, one.oldest_s) for key, one in sums.lags.items()))


def _counted(counters: Sequence[Counters]) -> Iterator[Metric]:
    for name, help_text, label, values in COUNTED:
        family = CounterMetricFamily(name, help_text, labels=["address", label] if label else ["address"])
        rows: Iterator[Any] = (
            ([each.label, value] if label else [each.label], getattr(each, attribute))
            for each in counters
            for value, attribute in values.items()
        )
        yield from _in_parts(family, rows)
    for name, help_text, attribute in HISTOGRAMS:
        histogram = HistogramMetricFamily(name, help_text, labels=["address"])
        found = ((each.label, getattr(each, attribute)) for each in counters)
        yield from _in_parts(histogram, (([label], _buckets(one), one.sum_s) for label, one in found), PART // 16)


def _in_parts(family: Any, rows: Iterator[tuple[Any, ...]], size: int = PART) -> Iterator[Metric]:
    """The family several times, each with some of these rows: one of all addresses would take 25 ms to encode."""
    some = [*islice(rows, size)]
    while True:
        part = copy(family)
        part.samples = []
        for row in some:
            part.add_metric(*row)
        yield part
        some = [*islice(rows, size)]
        if not some:
            return


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(floatToGoString, BOUNDS_S), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))
