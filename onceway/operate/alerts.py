"""The alerts: for each its condition as data, the words of it, and what to do.

Everything else is made from the rows: Prometheus' rules (`monitoring/alerts.yaml`), the table of
docs/operating/monitor.md (both by `scripts/tables.py`), the console's page "Is my network well?" and
`onceway status --well`, which judge them here and now (`onceway.operate.well`). A new alert is a row here, and a case
in `monitoring/alerts_test.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import eq, gt, lt, ne
from posixpath import join, normpath
from string import Formatter
from typing import Final, Literal

from onceway.base.values import format_duration
from onceway.operate.conditions import (
    Ahead,
    Condition,
    Increase,
    Over,
    Pair,
    Quantile,
    Said,
    UntilFull,
    Value,
    words,
)
from router.json_text import write_json

Asked = Literal["router", "store", "bus", "receiver"]
PAGE: Final = "docs/operating/monitor.md"
PLACE: Final = f"{PAGE}#dashboard-and-alerts"
COMPARED: Final = {">": gt, "<": lt, "!=": ne, "==": eq}
MINUTE_S: Final = 60.0
SOME_S: Final = 300.0  # of which counters are looked at
DAY_S: Final = 86_400.0
_TEMPLATES: Final = {"duration": " | humanizeDuration", "percentage": " | humanizePercentage", "number": " | humanize"}
_LINK: Final = re.compile(r"\[([^]]*)\]\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Alert:
    """One row.

    Attributes:
        name: Prometheus'.
        of, sign, than: The condition and its threshold.
        summary: What has happened, with `{label}` and `{value}`, or `{value:duration}`, `{value:percentage}` and
            `{value:number}`.
        means: What it stands for, to those who have not met it, in Markdown.
        remedy: What to do, in Markdown with links from docs/operating.
        for_s: So long the condition has to hold.
        severity: `critical` where deliveries stand still, or may soon.
    """

    name: str
    of: Condition
    sign: Literal[">", "<", "!=", "=="]
    than: float
    summary: str
    means: str
    remedy: str
    for_s: float = 0.0
    severity: Literal["warning", "critical"] = "warning"

    @property
    def expression(self) -> str:
        """In PromQL."""
        return f"{self.of} {self.sign} {self.than:g}"

    @property
    def asked(self) -> Asked:
        """Who says these metrics."""
        for prefix, who in _OTHERS.items():
            if self.of.names[0].startswith(prefix):
                return who
        return "router"

    @property
    def threshold(self) -> str:
        held = f" for {format_duration(self.for_s)}" if self.for_s else ""
        return f"{self.sign} {words(self.than, self.of.form)}{held}"

    @property
    def remedy_text(self) -> str:
        """The remedy without Markdown: pages of the documents are named."""
        return _LINK.sub(_named, self.remedy).replace("`", "")

    @property
    def means_text(self) -> str:
        return _LINK.sub(r"\1", self.means).replace("`", "")

    def holds(self, value: Value) -> bool:
        return bool(COMPARED[self.sign](value.number, self.than))

    def says(self, value: Value) -> str:
        """The summary of this value."""
        return self._filled(lambda form: words(value.number, form), value.labels.__getitem__)

    def template(self) -> str:
        """The summary as Prometheus takes it."""
        return self._filled(
            lambda form: f"{{{{ $value{_TEMPLATES.get(form, '')} }}}}", lambda label: f"{{{{ $labels.{label} }}}}"
        )

    def _filled(self, value: Callable[[str], str], label: Callable[[str], str]) -> str:
        parts = []
        for text, name, form, _ in Formatter().parse(self.summary):
            filled = "" if name is None else value(form or "") if name == "value" else label(name)
            parts.append(text + filled)
        return "".join(parts)


def _named(link: re.Match[str]) -> str:
    page, _, part = link[2].partition("#")
    path = normpath(join("docs/operating", page)) if page else PAGE
    return f"{link[1]} ({path}{'#' if part else ''}{part})"


def rules() -> Iterator[str]:
    """The file of rules for Prometheus, line by line."""
    yield f"# Alert rules for Prometheus. They expect the job name `onceway`. {PAGE} says what to do about each."
    yield "# Made by scripts/tables.py from onceway/operate/alerts.py."
    yield "groups:"
    yield "  - name: onceway"
    yield "    rules:"
    for alert in ALERTS:
        yield f"      - alert: {alert.name}"
        yield f"        expr: {alert.expression}"
        if alert.for_s:
            yield f"        for: {format_duration(alert.for_s)}"
        yield f"        labels: {{severity: {alert.severity}}}"
        yield "        annotations:"
        yield f"          summary: {write_json(alert.template())}"


def table() -> Iterator[str]:
    """That of the documents."""
    yield "| alert | means | what to do |"
    yield "| --- | --- | --- |"
    yield from (f"| `{alert.name}` | {alert.means} | {alert.remedy} |" for alert in ALERTS)


_OTHERS: Final[Mapping[str, Asked]] = {
    "onceway_pipe_": "store",
    "onceway_bus_": "bus",
    "onceway_ingest_": "receiver",
}
_OF_JOB: Final = {"job": "onceway"}
_OF_SUBSCRIPTION: Final = ("address", "container", "name")


def _turns(part: str, **where: str) -> Condition:
    return Over("sum", ("instance",), Increase(f"onceway_turn_seconds_{part}", SOME_S, where))


def _new(name: str, *by: str, **where: str) -> Condition:
    return Over("sum", by, Increase(name, SOME_S, where))


ALERTS: Final[tuple[Alert, ...]] = (
    Alert(
        "OncewayRouterDown", Said("up", _OF_JOB), "==", 0,
        "Router {instance} does not answer",
        "the router's admin listener does not answer",
        "look at its process and its log; other routers go on without it",
        for_s=MINUTE_S, severity="critical",
    ),
    Alert(
        "OncewayRouterNotReady", Said("onceway_state", {"state": "ready"}), "==", 0,
        "Router {instance} has not been ready for 2 minutes: /readyz says why",
        "it starts, recovers or stops for more than two minutes",
        "`/readyz` names what it waits for",
        for_s=2 * MINUTE_S, severity="critical",
    ),
    Alert(
        "OncewayLinkDown", Said("onceway_neighbour_up"), "==", 0,
        "Router {instance} has no link to {neighbour}",
        "two neighbours have no link",
        "look at the network between them; traffic takes another path where there is one",
        for_s=MINUTE_S,
    ),
    Alert(
        "OncewayFilesDiffer", Over("max", ("instance", "router", "what"), Said("onceway_file_differs")), ">", 0,
        "The topology files of {instance} and of router {router} differ in {what}",
        "routers run with different topology files for ten minutes",
        "finish the [change](change.md), or take it back",
        for_s=10 * MINUTE_S,
    ),
    Alert(
        "OncewayClocksDiffer", Ahead("onceway_clock_seconds"), ">", 1,
        "The clock of router {instance} is {value:duration} ahead of another router's",
        "a router's clock is more than a second ahead of another's; terms of clients without epochs, retained messages "
        "of MQTT and `expire` go by these clocks. It compares with the clock of who asks, as routers do not tell each "
        "other the time",
        "look at NTP on both hosts",
        for_s=MINUTE_S,
    ),
    Alert(
        "OncewayCertificateExpires", Said("onceway_certificate_days"), "<", 14,
        "{file} at {instance} expires in {value} days",
        "a certificate that a router shows expires in less than 14 days",
        "put [a new one](../security.md#change-certificates) in its place and run `onceway reload`",
    ),
    Alert(
        "OncewayFileBroken", Over("max", ("instance",), Said("onceway_file_broken")), ">", 0,
        "The topology file of {instance} has errors: the one last checked is used",
        "routers have died and started again while their topology file had errors; they use [the one last "
        "checked](change.md#a-changed-topology-file)",
        "correct the file and run `onceway reload`",
    ),
    Alert(
        "OncewaySubscriptionAway", Over("max", ("address",), Said("onceway_subscriptions", {"home": "away"})), ">", 0,
        "{value} subscriptions of {address} are away, and publishers wait for them",
        "subscriptions have had no link for five minutes, and publishers wait for them",
        "start the subscriber; `onceway status` names it",
        for_s=5 * MINUTE_S,
    ),
    Alert(
        "OncewaySubscriptionLost",
        Over("min", (*_OF_SUBSCRIPTION, "reason"), Said("onceway_subscription_lost_seconds")), "<", 600,
        "Subscription {container}/{name} of {address} was lost ({reason}): the network waits for it no more",
        "a subscription was away for longer than its timeout (`expired`), or was told that it may have missed "
        "something (`broken`)",
        "look at its client: what it gets from now on begins anew; [declare](../topology.md#declared-subscriptions) "
        "one that must never be given up",
    ),
    Alert(
        "OncewaySubscriptionBehind",
        Over("max", _OF_SUBSCRIPTION, Said("onceway_subscription_oldest_seconds")), ">", 60,
        "Subscription {container}/{name} of {address} has not accepted a message for {value:duration}",
        "a subscription does not accept: its oldest message is older than a minute",
        "look at the subscriber; it may be slow, or have no credit",
        for_s=5 * MINUTE_S,
    ),
    Alert(
        "OncewayPublisherWithoutCredit", Said("onceway_longest_without_credit_seconds"), ">", 30,
        "A publisher of {address} at {instance} has had no credit for {value:duration}: `onceway status` says why",
        "a publisher may not send for 30 s",
        "`onceway status` says why: [when deliveries stand still](#when-deliveries-stand-still)",
        for_s=MINUTE_S,
    ),
    Alert(
        "OncewayDeliveriesInDoubt", Said("onceway_oldest_in_doubt_seconds"), ">", 600,
        "Deliveries at {instance} have been in doubt for {value:duration}: their publisher has no link",
        "deliveries are held whose publisher has been away for ten minutes",
        "start the publisher again; otherwise `publisher_timeout` settles them",
        for_s=MINUTE_S,
    ),
    Alert(
        "OncewayMessagesRejected", _new("onceway_publisher_outcomes_total", "address", outcome="rejected"), ">", 0,
        "Subscribers have rejected messages of {address}",
        "subscribers reject messages",
        "the publisher sees it, too: look at both",
    ),
    Alert(
        "OncewayInputError", _new("onceway_input_errors_total", "instance", "ended"), ">", 0,
        "Router {instance} met an error that nobody expects in what a client sent, and ended the {ended}",
        "what a client sent met an error of Onceway, which ended the client's connection or rejected the message ([the "
        "border](../architecture.md#the-border))",
        "report the traceback from the log; find the client by its address, user and container there",
    ),
    Alert(
        "OncewayMessagesDropped", _new("onceway_dropped_messages_total", "address", reason="presettled_queue"), ">", 0,
        "Pre-settled messages of {address} were dropped: their subscribers are too slow",
        "at-most-once messages did not fit into `presettled_queue`",
        "make the subscriber faster, or publish unsettled",
    ),
    Alert(
        "OncewayLimitReached", _new("onceway_limit_reached_total", "instance", "limit"), ">", 0,
        "Router {instance} has refused clients at the limit {limit}",
        "clients are refused at a limit",
        "find the client in the log, or raise [the limit](../topology.md#limits-and-users)",
    ),
    Alert(
        "OncewayDescriptorsLow",
        Pair(Said("process_open_fds", _OF_JOB), "/", Said("process_max_fds", _OF_JOB)), ">", 0.8,
        "{instance} has opened {value:percentage} of the files that it may: clients are refused",
        "a process has open four fifths of the files that it may: [clients are "
        "refused](../topology.md#limits-and-users)",
        "raise the limit (`LimitNOFILE`, `ulimit -n`), or spread clients over more routers",
    ),
    Alert(
        "OncewayMemoryLimit", Said("onceway_sessions_closed_for_memory"), ">", 0,
        "Router {instance} is at its memory limit, and takes nothing from publishers",
        "the router is at `memory_limit`",
        "find the subscription that is behind",
        for_s=MINUTE_S,
    ),
    Alert(
        "OncewayPipeWaits", Over("max", ("pipe",), Said("onceway_pipe_waiting_seconds")), ">", 60,
        "Pushes to {pipe} have waited for a store for {value:duration}",
        "pushes to a pipe wait for one of its stores; [stores answer Prometheus](../pipe.md#metrics) where the file "
        "says",
        "the store with the lowest `onceway_pipe_next_position`, or that does not answer, is the one: start it, or "
        "[take it out](../pipe.md#what-is-promised)",
        severity="critical",
    ),
    Alert(
        "OncewayPipePrimary", Over("sum", ("pipe",), Said("onceway_pipe_primary")), "!=", 1,
        "Pipe {pipe} has {value} primaries among the stores that answer",
        "no store that answers is the pipe's primary, or two are, for two minutes",
        "start the primary, or [promote another](../pipe.md#another-primary)",
        for_s=2 * MINUTE_S, severity="critical",
    ),
    Alert(
        "OncewayPipeDiskFills", UntilFull("onceway_pipe_storage_free_bytes", DAY_S / 4), "<", DAY_S,
        "The disk of store {store} will be full in {value:duration}, and pushes will wait",
        "as fast as it has filled for six hours, the disk of a store will be full within a day",
        "make room, or give the pipe a [retention](../pipe.md#retention)",
        for_s=30 * MINUTE_S,
    ),
    Alert(
        "OncewayBusDiskFills", UntilFull("onceway_bus_storage_free_bytes", DAY_S / 4), "<", DAY_S,
        "The storage of the bus at {instance} will be full in {value:duration}: then pushes are refused, or events "
        "dropped",
        "the same of a bus, for its disk or its `--max-storage`",
        "make room, or look at the subscribers with the longest queues",
        for_s=30 * MINUTE_S,
    ),
    Alert(
        "OncewayIngestNobody", Over("max", ("topic", "partition"), Said("onceway_ingest_held")), "==", 0,
        "Nobody receives partition {partition} of {topic} for Spark",
        "no receiver holds the lease of a partition for two minutes; [receivers answer "
        "Prometheus](../spark.md#receivers-apart-from-spark) where their file says",
        "start `onceway ingest` on some host, or look at its log",
        for_s=2 * MINUTE_S, severity="critical",
    ),
    Alert(
        "OncewayTurnsLong", Pair(_turns("count"), "-", _turns("bucket", le="0.1")), ">", 10,
        "Router {instance} has done nothing but one thing for 0.1 s and more, {value:number} times in 5 minutes: "
        "turn_long in its log says for whom",
        "a client's input, or something else, has held up all others for 0.1 s, more than ten times in five minutes",
        "`turn_long` [in the log](logs.md) names the client; if it names many, the machine is busy",
    ),
    Alert(
        "OncewayEventLoopSlow", Quantile(0.9, ("instance",), "onceway_event_loop_lag_seconds", SOME_S), ">", 0.25,
        "The event loop of router {instance} is {value:duration} late: spread its clients over more routers",
        "the router is saturated",
        "spread its clients over more routers",
        for_s=5 * MINUTE_S,
    ),
)  # fmt: skip

ASKED: Final = frozenset(name for alert in ALERTS for name in alert.of.names)
"""The metrics that alerts ask for, as they are said; of histograms with `_bucket` and `_count`."""
