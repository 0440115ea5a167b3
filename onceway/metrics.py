"""`/metrics`: the status document in Prometheus' words, made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from onceway.status import Document, oldest_in_doubt, publishers, records, subscribers
from router.limits import COUNTED as LIMIT_NAMES

STATES = ("starting", "recovering", "ready", "stopping")


class StatusCollector(Collector):
    """Takes a fresh document for each scrape: there is no second bookkeeping that could disagree with it."""

    def __init__(self, status: Callable[[], Document]) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        document = self._status()
        yield from _of_the_router(document)
        yield from _of_the_network(document)
        yield from _of_addresses(document)


class Metrics:
    """`render(accept)` gives the body and its content type; the process's own CPU, memory and files come with it."""

    def __init__(self, status: Callable[[], Document]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(StatusCollector(status))
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


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
    age = oldest_in_doubt(document)
    yield _gauge("onceway_oldest_in_doubt_seconds", "Age of the oldest delivery in doubt, 0 where none is", age or 0)


def _of_the_limits(document: Document) -> Iterator[Metric]:
    yield _gauge(
        "onceway_incomplete_bytes", "Held of messages and frames not complete", document.get("incomplete_bytes", 0)
    )
    yield _gauge("onceway_unread_bytes", "Waiting for clients that do not read", document.get("unread_bytes", 0))
    yield _gauge("onceway_entries", "Names known, and deliveries found by tag", document.get("entries", 0))
    yield _gauge(
        "onceway_clients_waiting", "Clients whose octets wait for their turn", document.get("clients_waiting", 0)
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


def _of_the_network(document: Document) -> Iterator[Metric]:
    up = GaugeMetricFamily("onceway_neighbour_up", "1 while the link to this neighbour is up", labels=["neighbour"])
    for name, neighbour in document.get("neighbours", {}).items():
        up.add_metric([name], float(bool(neighbour.get("up"))))
    yield up
    cost = GaugeMetricFamily("onceway_path_cost", "Cost of the best path to a router", labels=["router", "via"])
    for name, path in document.get("paths", {}).items():
        cost.add_metric([name, str(path.get("next", ""))], path.get("cost", 0))
    yield cost


def _of_addresses(document: Document) -> Iterator[Metric]:
    counts = GaugeMetricFamily(
        "onceway_records", "Deliveries that are not over yet, by their state here", labels=["address", "state"]
    )
    attached = GaugeMetricFamily("onceway_links", "Links attached here", labels=["address", "role"])
    known = GaugeMetricFamily("onceway_subscriptions", "Subscriptions known in the network", labels=["address", "home"])
    for name, address in document.get("addresses", {}).items():
        for state, number in records(address).items():
            counts.add_metric([name, state], number)
        attached.add_metric([name, "publisher"], len(publishers(address)))
        attached.add_metric([name, "subscriber"], len(subscribers(address)))
        homes: dict[str, int] = {}
        for subscription in address.get("subscriptions", ()):
            home = subscription.get("home") or "away"
            homes[home] = homes.get(home, 0) + 1
        for home, number in homes.items():
            known.add_metric([name, home], number)
    yield counts
    yield attached
    yield known
