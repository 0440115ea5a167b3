"""The metrics of a router: rows that read its status document, the sums over its addresses, and what it counts.

A new metric is a row here, apart from the code that counts (CONTRIBUTING.md). `scripts/tables.py` writes
docs/operating/metrics.md from the rows. `onceway.base.metrics` says what a row has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from onceway.base.metrics import Metric, Row, number
from onceway.base.waits import COUNTED, ENDED, METRIC
from onceway.operate.status import RECORDS, ROLES, STATES, Document, Sums
from onceway.operate.status import Row as AddressRow
from router.border import CLIENT, MESSAGE
from router.core.counters import BOUNDS_S, BROKEN, EXPIRED, Counters, Histogram, Measured
from router.links.limits import COUNTED as LIMIT_NAMES

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

S = TypeVar("S")


class Scrape(NamedTuple):
    """What a router says to one reader.

    Attributes:
        document: Of `onceway.operate.status`, without addresses.
        sums: Over the addresses.
        measured: What it counts.
        asked_s: When it was asked, in seconds since 1970 by its own clock.
    """

    document: Document
    sums: Sums
    measured: Measured
    asked_s: float


Rows = Callable[[Scrape], Iterable[Row]]
IDENTITY: Final = ("name", "network", "incarnation")
FILES: Final = ("router", "what", "ours", "theirs")
LOST: Final = {
    EXPIRED: "it was away for longer than its timeout, and this router has forgotten it",
    BROKEN: "it was told here that deliveries may have been accepted without it",
}


def _said(*keys: str) -> Rows:
    """What stands at this place of the document; 0 where nothing does."""

    def rows(scrape: Scrape) -> list[Row]:
        return number(float(_at(scrape.document, keys) or 0))

    return rows


def _at(document: Mapping[str, Any], keys: Sequence[str]) -> Any:
    for key in keys[:-1]:
        document = document.get(key, {})
    return document.get(keys[-1])


def _each(row: Callable[[str, Any], Row], *keys: str) -> Rows:
    """A row for each entry of the mapping at this place of the document."""

    def rows(scrape: Scrape) -> Iterable[Row]:
        return (row(key, value) for key, value in (_at(scrape.document, keys) or {}).items())

    return rows


def _counts(values: Iterable[str], *keys: str) -> Rows:
    """How often each of these was counted, in a mapping of the document."""
    names = tuple(values)

    def rows(scrape: Scrape) -> list[Row]:
        counted = _at(scrape.document, keys) or {}
        return [((), [counted.get(name, 0) for name in names])]

    return rows


def _counted(*attributes: str) -> Rows:
    """These attributes of the `Counters` of each address."""
    read: list[Callable[[Counters], float]] = [attrgetter(name) for name in attributes]

    def rows(scrape: Scrape) -> Iterable[Row]:
        counters = [*scrape.measured.counters.values()]
        return (((each.label,), [get(each) for get in read]) for each in counters)

    return rows


def _summed(read: Callable[[AddressRow], Sequence[float]]) -> Rows:
    """This of the sums of each address."""
    return lambda scrape: (((label,), read(row)) for label, row in scrape.sums.rows.items())


BUCKETS: Final = dict.fromkeys((*(str(float(bound)) for bound in BOUNDS_S), "+Inf"), "")


def _histogram(histogram: Histogram) -> Sequence[float]:
    counts = [*accumulate(histogram.counts)]
    return [*counts, counts[-1], histogram.sum_s]


def _histograms(attribute: str) -> Rows:
    return lambda scrape: (
        ((each.label,), _histogram(getattr(each, attribute))) for each in [*scrape.measured.counters.values()]
    )


INPUT_ERRORS: Final = {
    CLIENT: "the connection that it came from",
    MESSAGE: "a message: a subscription has rejected it",
}
FAILURES: Final = {
    "failed": "clients that were not let in",
    "delayed": "answers to them that were delayed",
    "refused": "clients at whose login nothing was looked, because of [earlier failures](../security.md#guessing)",
}


def authentication_failures(prefix: str, rows: Callable[[S], Iterable[Row]], keys: tuple[str, ...] = ()) -> Metric[S]:
    """What `onceway.access.guesses` has counted; a number for each of `FAILURES`."""
    name = f"{prefix}_authentication_failures_total"
    return Metric(name, "counter", "Logins that failed, and what followed", rows, keys, "what", FAILURES)


ROUTER: Final[tuple[Metric[Scrape], ...]] = (
    Metric("onceway_router_info", "info", "1; which router this is, and which start of it",
           lambda scrape: [([str(scrape.document.get(key, "")) for key in IDENTITY], (1,))],
           IDENTITY),
    Metric("onceway_state", "gauge", "1 for the state that the router is in",
           lambda scrape: [((), [float(scrape.document.get("state") == state) for state in STATES])], label="state",
           values=STATES),
    Metric("onceway_uptime_seconds", "gauge", "Since this router started", _said("uptime_s")),
    Metric("onceway_clock_seconds", "gauge", "Since 1970, by this router's clock, when it was asked",
           lambda scrape: number(scrape.asked_s),
           more="Its difference from Prometheus' own `timestamp()` shows whose clock is wrong"),
    Metric("onceway_recovering_seconds", "gauge", "Until it is established at the latest, while it is recovering",
           _said("recovering_s")),
    Metric("onceway_event_loop_lag_seconds", "histogram",
           "How late the event loop was for a timer that fires four times a second",
           lambda scrape: [((), _histogram(scrape.measured.loop_lag))], label="le", values=BUCKETS),
    Metric("onceway_turn_seconds", "histogram",
           "How long the event loop did nothing but one thing: a client's or a neighbour's input, timers, or output",
           lambda scrape: [((), _histogram(scrape.measured.turns))], label="le", values=BUCKETS,
           more="The router's rule is 10 ms; above 100 ms the log says `turn_long`, and for whom"),
    Metric("onceway_connections", "gauge", "Client connections", _said("connections")),
    Metric("onceway_user_connections", "gauge", "Opened client connections",
           _each(lambda user, count: ((user,), (count,)), "limits", "connections"),
           ("user",)),
    Metric("onceway_half_open", "gauge", "Connections before their open", _said("limits", "half_open")),
    Metric("onceway_clients_waiting", "gauge", "Clients whose input waits for its turn", _said("clients_waiting"),
           more="If it is always above zero, the core is saturated"),
    Metric("onceway_limit_reached_total", "counter", "How often a limit was reached",
           _counts(LIMIT_NAMES, "limits", "refused"), label="limit", values=dict.fromkeys(LIMIT_NAMES, ""),
           more="See [limits](../topology.md#limits-and-users)"),
    Metric("onceway_input_errors_total", "counter", "What met an error that nobody expects while input was read",
           _counts(INPUT_ERRORS, "input_errors"), label="ended", values=INPUT_ERRORS,
           more="Each is a fault of Onceway, told in the log: see [the border](../architecture.md#the-border)"),
    Metric("onceway_input_refused_total", "counter", "Input that was refused, as it has ended a router",
           _said("input_refused"), more="The log says whose it was"),
    Metric("onceway_filter_failures_total", "counter", "Messages that passed a subscription by, as its filters failed",
           _said("unread_by_filters"),
           more="The message has more properties, or longer ones, than are read, or the filter would take too many "
                "steps: then the subscription is detached. The log says which (`filter_failed`)"),
    Metric("onceway_idle_timeouts_total", "counter", "Clients that were disconnected, as nothing was heard of them",
           _said("limits", "silent"),
           more="By `idle_timeout`, or by the keep alive of MQTT: their link, machine or process has failed"),
    Metric(METRIC, "counter", "Waits that have ended by their bound, and not by what was waited for",
           lambda scrape: [((), [ENDED[row.name] for row in COUNTED])],
           label="wait", values={row.name: row.what for row in COUNTED}, more="All waits: [waits](waits.md)"),
    authentication_failures("onceway", _counts(FAILURES, "authentication")),
    Metric("onceway_payload_bytes", "gauge", "Payload that is kept, bounded by memory_limit", _said("payload_bytes")),
    Metric("onceway_incomplete_bytes", "gauge", "Incomplete messages and frames", _said("incomplete_bytes")),
    Metric("onceway_unread_bytes", "gauge", "Output that clients have not read", _said("unread_bytes")),
    Metric(
        "onceway_held_bytes",
        "gauge",
        "What clients have made, from connections and links to names and addresses, bounded by memory_limit",
        _said("held_bytes"),
    ),
    Metric("onceway_entries", "gauge", "Names known, and deliveries found by tag", _said("entries")),
    Metric("onceway_sessions_closed_for_memory", "gauge",
           "Client sessions whose incoming window is closed at the memory limit", _said("sessions_closed_for_memory")),
    Metric("onceway_certificate_days", "gauge",
           "Until a certificate that this router shows expires; below zero: since then",
           lambda scrape: (((each["file"],), (each["days"],)) for each in scrape.document.get("certificates", ())),
           ("file",), more="How to [change it](../security.md#change-certificates)"),
    Metric("onceway_oldest_in_doubt_seconds", "gauge", "Age of the oldest delivery in doubt, 0 where none is",
           _said("oldest_in_doubt_s")),
)  # fmt: skip

NETWORK: Final[tuple[Metric[Scrape], ...]] = (
    Metric("onceway_neighbour_up", "gauge", "Links that are up: 1 for each neighbour of the file, else 0",
           _each(lambda name, each: ((name,), (int(each["up"]),)), "neighbours"),
           ("neighbour",)),
    Metric("onceway_path_cost", "gauge", "Cost of the best path to a router",
           _each(lambda name, path: ((name, path["next"]), (path["cost"],)), "paths"),
           ("router", "via")),
    Metric("onceway_file_broken", "gauge",
           "1 while the topology file has errors and the one last checked is used, because routers have died",
           _said("broken_file")),
    Metric("onceway_file_differs", "gauge",
           "1 for each router in session whose topology file differs from this router's in what it says of `what`",
           lambda scrape: (([one[key] for key in FILES], (1,)) for one in scrape.document.get("file_differences", ())),
           FILES,
           more="`what`: declarations, settings or topology; `ours` and `theirs` are the digests"),
)  # fmt: skip

ADDRESSES: Final[tuple[Metric[Scrape], ...]] = (
    Metric("onceway_received_messages_total", "counter", "Messages that publishers attached here have sent",
           _counted("received", "received_settled"), ("address",), "settled",
           {"false": "exactly once", "true": "pre-settled: at most once"}),
    Metric("onceway_received_bytes_total", "counter", "Their payload", _counted("received_bytes"), ("address",)),
    Metric("onceway_publisher_outcomes_total", "counter", "Outcomes that publishers attached here were told",
           _counted("accepted", "rejected", "released"), ("address",), "outcome",
           dict.fromkeys(("accepted", "rejected", "released"), "")),
    Metric("onceway_acceptance_seconds", "histogram", "From a publisher's transfer to its outcome",
           _histograms("acceptance"), ("address",), "le", BUCKETS),
    Metric("onceway_settlement_seconds", "histogram", "From a publisher's transfer to its settlement",
           _histograms("settlement"), ("address",), "le", BUCKETS),
    Metric("onceway_delivered_messages_total", "counter", "Messages sent to subscribers attached here",
           _counted("subscriptions.delivered", "subscriptions.delivered_settled"), ("address",), "settled",
           {"false": "exactly once", "true": "pre-settled: at most once"}),
    Metric("onceway_delivered_bytes_total", "counter", "The same in bytes on the wire",
           _counted("subscriptions.delivered_bytes"), ("address",)),
    Metric("onceway_subscriber_outcomes_total", "counter", "Outcomes that subscribers attached here have sent",
           _counted("subscriptions.accepted", "subscriptions.rejected", "subscriptions.released"), ("address",),
           "outcome", dict.fromkeys(("accepted", "rejected", "released"), "")),
    Metric("onceway_redelivered_messages_total", "counter",
           "Transfers to subscribers of what they had been sent before: after a release, or resumed",
           _counted("subscriptions.redelivered"), ("address",)),
    Metric("onceway_settled_messages_total", "counter", "Deliveries that were settled",
           _counted("settled", "subscriptions.settled"), ("address",), "link",
           {"publisher": "by publishers attached here", "subscriber": "to subscribers attached here"}),
    Metric("onceway_dropped_messages_total", "counter", "Messages that this router dropped",
           _counted("subscriptions.presettled_dropped", "abandoned", "expired"), ("address",), "reason",
           {"presettled_queue": "pre-settled ones for which there was no room, or no consumer in time",
            "publisher_lost": "forgotten because their publisher's link was lost; it sends them again",
            "expired": "not sent to a subscription, or to no consumer of a queue, as their time was over"}),
    Metric("onceway_recoveries_total", "counter", "Attaches that resumed",
           _counted("publishers_resumed", "subscriptions.resumed"), ("address",), "link",
           {"publisher": "of publishers with unsettled deliveries", "subscriber": "of subscriptions that were known"}),
    Metric("onceway_records", "gauge", "Deliveries that are not settled, by their state in this router",
           _summed(lambda row: [*row.records.values()]), ("address",), "state", RECORDS,
           more="See [states](monitor.md#states-of-deliveries)"),
    Metric("onceway_links", "gauge", "Links attached here", _summed(lambda row: (row.publishers, row.subscribers)),
           ("address",), "role", ROLES),
    Metric("onceway_subscriptions", "gauge",
           "Subscriptions known in the network, by the router that they are attached to, or `away`",
           lambda scrape: (
               ((label, home), (count,)) for label, row in scrape.sums.rows.items() for home, count in row.homes.items()
           ),
           ("address", "home")),
    Metric("onceway_publishers_without_credit", "gauge",
           "Publishers attached here that get no credit now; a busy one has none for moments",
           _summed(lambda row: (row.without_credit,)), ("address",)),
    Metric("onceway_longest_without_credit_seconds", "gauge", "The longest of them without a pause",
           _summed(lambda row: (row.longest_without_credit_s,)), ("address",)),
    Metric("onceway_lost_subscriptions_total", "counter", "Subscriptions that lost, or may have lost, what others got",
           _counted("subscriptions.timed_out", "subscriptions.broken"), ("address",), "reason", LOST,
           more="Every router counts one that expired; only the one that told it counts one that is broken"),
    Metric("onceway_subscription_lost_seconds", "gauge", "How long ago a subscription was lost, of the last 100",
           lambda scrape: ((key, (ago_s,)) for key, ago_s in scrape.measured.lost_s.items()),
           ("address", "container", "name", "reason"),
           more="`reason` as above. `onceway:subscription-broken` in [when deliveries stand still]"
           "(monitor.md#when-deliveries-stand-still)"),
    Metric("onceway_subscription_lag_messages", "gauge",
           "What a subscription has not accepted of what this router has for it",
           lambda scrape: ((key, (lag.messages,)) for key, lag in scrape.sums.lags.items()),
           ("address", "container", "name"), more="The sum over all routers is its lag"),
    Metric("onceway_subscription_oldest_seconds", "gauge", "Since when the oldest of these messages has been here",
           lambda scrape: ((key, (lag.oldest_s,)) for key, lag in scrape.sums.lags.items()),
           ("address", "container", "name")),
)  # fmt: skip

TABLE: Final = (*ROUTER, *NETWORK, *ADDRESSES)


class Process:
    """The process's own CPU, memory and files, which stand beside every table."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def collect(self) -> list[Family]:
        """For a thread of its own: the system takes 8 ms to list 10,000 open sockets."""
        return list(self._registry.collect())
