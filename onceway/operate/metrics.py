"""`/metrics`: the status document and its sums as Prometheus metrics, made for each scrape.

What grows with the addresses, thousands of lines, is filled into lines that are there already: prometheus_client's own
encoder takes twenty times as long for a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, repeat
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

from onceway.operate.status import RECORDS, Document, Row, Sums
from router.core.counters import BOUNDS_S, Counters, Histogram, Measured
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
# Name, help, label beside `address` (or none), its values -> what they are of a row.
GAUGES: Final[tuple[tuple[str, str, str, Sequence[str], Callable[[Row], Iterable[float]]], ...]] = (
    (
        "onceway_records",
        "Deliveries that are not settled yet, by their state in this router",
        "state",
        RECORDS,
        lambda row: row.records.values(),
    ),
    (
        "onceway_links",
        "Links attached here",
        "role",
        ("publisher", "subscriber"),
        lambda row: (row.publishers, row.subscribers),
    ),
    (
        "onceway_publishers_without_credit",
        "Publishers attached here that get no credit now",
        "",
        ("",),
        lambda row: (row.without_credit,),
    ),
    (
        "onceway_longest_without_credit_seconds",
        "The longest of them without a pause",
        "",
        ("",),
        lambda row: (row.longest_without_credit_s,),
    ),
)
BUCKETS: Final = (*map(floatToGoString, BOUNDS_S), "+Inf")
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

    def of_the_process(self) -> list[Metric]:
        """For a thread of its own: the system takes 8 ms to list 10,000 open sockets."""
        return list(self._process.collect())

    def render(
        self,
        document: Document,
        sums: Sums,
        measured: Measured,
        process: Iterable[Metric],
        accept: str,
        body: list[str],
    ) -> Generator[None, None, str]:
        """Appends to `body`, in pieces; returns the content type for these values of the header Accept."""
        encode, content_type = choose_encoder(accept)
        own = chain(_of_the_router(document), _of_the_network(document), [_lag(measured.loop_lag)], process)
        of_addresses = chain(_of_addresses(sums), _counted([*measured.counters.values()]))
        for family, rows in chain(zip(own, repeat(())), of_addresses):
            # OpenMetrics ends with a line of its own, once
            body.append(encode(_Only(family)).removesuffix(END_OF_OPENMETRICS).decode())
            yield
            for row in rows:
                body.append(row)
                yield
        if content_type.startswith("application/openmetrics"):
            body.append(END_OF_OPENMETRICS.decode())
        return content_type


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


def _lag(loop_lag: Histogram) -> Metric:
    family = HistogramMetricFamily(
        "onceway_event_loop_lag_seconds", "How late the event loop was for a timer that fires four times a second"
    )
    family.add_metric([], list(zip(BUCKETS, accumulate(loop_lag.counts), strict=True)), loop_lag.sum_s)
    return family


def _of_addresses(sums: Sums) -> Iterator[tuple[Metric, Iterator[str]]]:
    """Families of which the samples of each address come as text, since there are thousands of them."""
    for name, help_text, label, values, numbers in GAUGES:
        lines = _lines(name, label, values)
        rows = (_filled(lines, [label], numbers(row)) for label, row in sums.rows.items())
        yield GaugeMetricFamily(name, help_text), rows
    known = GaugeMetricFamily("onceway_subscriptions", "Subscriptions known in the network")
    line = _line(known.name, ["address", "home"])
    homes = ((label, home, number) for label, row in sums.rows.items() for home, number in row.homes.items())
    yield known, (_filled(line, [label, home], [number]) for label, home, number in homes)
    lag = GaugeMetricFamily(
        "onceway_subscription_lag_messages", "What a subscription has not accepted of what this router has for it"
    )
    oldest = GaugeMetricFamily(
        "onceway_subscription_oldest_seconds", "Since when the oldest of these messages has been here"
    )
    names = ["address", "container", "name"]
    messages, seconds = _line(lag.name, names), _line(oldest.name, names)
    yield lag, (_filled(messages, key, [one.messages]) for key, one in sums.lags.items())
    yield oldest, (_filled(seconds, key, [one.oldest_s]) for key, one in sums.lags.items())


def _counted(counters: Sequence[Counters]) -> Iterator[tuple[Metric, Iterator[str]]]:
    for name, help_text, label, values in COUNTED:
        lines = _lines(f"{name}_total", label, values)
        yield (
            CounterMetricFamily(name, help_text),
            (_filled(lines, [each.label], [getattr(each, one) for one in values.values()]) for each in counters),
        )
    for name, help_text, attribute in HISTOGRAMS:
        lines = _lines(f"{name}_bucket", "le", BUCKETS) + _lines(f"{name}_count") + _lines(f"{name}_sum")
        found = ((each.label, getattr(each, attribute)) for each in counters)
        rows = ((label, [*accumulate(one.counts)], one.sum_s) for label, one in found)
        yield (
            HistogramMetricFamily(name, help_text),
            (_filled(lines, [label], [*counts, counts[-1], sum_s]) for label, counts, sum_s in rows),
        )


def _lines(name: str, label: str = "", values: Iterable[str] = ("",)) -> str:
    """For `_filled`: the lines of one address, one for each of these values of a label (or one without)."""
    return "".join(_line(name, ["address"], f',{label}="{value}"' if label else "") for value in values)


def _line(name: str, labels: Sequence[str], more: str = "") -> str:
    return name + "{" + ",".join([f'{label}="%s"' for label in labels]) + more + "} %s\n"


def _filled(lines: str, key: Sequence[str], numbers: Iterable[float]) -> str:
    """key: what each of the lines has for the labels left open in it."""
    key = [one.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for one in key]
    return lines % tuple([part for number in numbers for part in (*key, number)])
