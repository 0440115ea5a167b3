"""`/metrics`: the status document and its sums as Prometheus metrics, made for each scrape."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

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
        for family in self._families(document, sums, measured):
            # OpenMetrics ends with a line of its own, once
            body.append(encode(_Only(family)).removesuffix(END_OF_OPENMETRICS))
            yield
        if content_type.startswith("application/openmetrics"):
            body.append(END_OF_OPENMETRICS)
        return content_type

    def _families(self, document: Document, sums: Sums, measured: Measured) -> Iterator[Metric]:
        yield from _of_the_router(document)
        yield from _of_the_network(document)
        yield from _of_addresses(sums)
        yield from _counted(measured.counters.values())
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
    counts = GaugeMetricFamily(
        "onceway_records",
        "Deliveries that are not settled yet, by their state in this router",
        labels=["address", "state"],
    )
    attached = GaugeMetricFamily("onceway_links", "Links attached here", labels=["address", "role"])
    known = GaugeMetricFamily("onceway_subscriptions", "Subscriptions known in the network", labels=["address", "home"])
    for label, row in sums.rows.items():
        for state, number in row.records.items():
            counts.add_metric([label, state], number)
        attached.add_metric([label, "publisher"], row.publishers)
        attached.add_metric([label, "subscriber"], row.subscribers)
        for home, number in row.homes.items():
            known.add_metric([label, home], number)
    yield counts
    yield attached
    yield known
    starved = GaugeMetricFamily(
        "onceway_publishers_without_credit", "Publishers attached here that get no credit now", labels=["address"]
    )
    longest = GaugeMetricFamily(
        "onceway_longest_without_credit_seconds", "The longest of them without a pause", labels=["address"]
    )
    for label, row in sums.rows.items():
        starved.add_metric([label], row.without_credit)
        longest.add_metric([label], row.longest_without_credit_s)
    yield starved
    yield longest
    names = ["address", "container", "name"]
    lag = GaugeMetricFamily(
        "onceway_subscription_lag_messages",
        "What a subscription has not accepted of what this router has for it",
        labels=names,
    )
    oldest = GaugeMetricFamily(
        "onceway_subscription_oldest_seconds", "Since when the oldest of these messages has been here", labels=names
    )
    for key, one in sums.lags.items():
        lag.add_metric(key, one.messages)
        oldest.add_metric(key, one.oldest_s)
    yield lag
    yield oldest


def _counted(counters: Iterable[Counters]) -> Iterator[Metric]:
    for name, help_text, label, values in COUNTED:
        family = CounterMetricFamily(name, help_text, labels=["address", label] if label else ["address"])
        for each in counters:
            for value, attribute in values.items():
                family.add_metric([each.label, value] if label else [each.label], getattr(each, attribute))
        yield family
    for name, help_text, attribute in HISTOGRAMS:
        histogram = HistogramMetricFamily(name, help_text, labels=["address"])
        for each in counters:
            found: Histogram = getattr(each, attribute)
            histogram.add_metric([each.label], _buckets(found), found.sum_s)
        yield histogram


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(floatToGoString, BOUNDS_S), "+Inf"]
    return list(zip(bounds, accumulate(histogram.counts), strict=True))
