"""docs/operating/metrics.md says of each metric what running routers, stores, buses and receivers say of it, and has them
all. Other documents name only those.
"""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from chaos.live.ports import free_port
from scripts.tables import METRICS
from tests.cli.conftest import called, onceway
from tests.edges.bus.world import ROOT_KEY, BusProcess, Sink
from tests.edges.pipe.network import PipeNetwork
from tests.live import wait_until
from tests.running import module
from tests.spark.networks import Publishing, batch, bodies
from tests.spark.test_service import hosts

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operating" / "metrics.md").read_text()
NAME = re.compile(r"\bonceway_[a-z_]+\b")
OF_ROUTERS = ("metrics of a router", "metrics of the network", "metrics of addresses")
SELDOM = {"onceway_certificate_days", "onceway_file_differs", "onceway_subscription_lost_seconds"}
"""Those that have no samples in a network as it should be, without TLS."""
Told = dict[str, tuple[str, str, set[str]]]
"""Name -> kind, help, labels."""


def documented(table: str) -> Told:
    (rows,) = re.findall(rf"<!-- table: {table} -->\n(.*?)<!-- end of table -->", PAGE, re.DOTALL)
    found = re.findall(r"^\| `(onceway_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", rows, re.MULTILINE)
    return {name: (kind, text, set(re.findall(r"\w+", labels))) for name, kind, labels, text in found}


def told(page: str) -> Told:
    """What a page of /metrics says; the labels of the first sample, none where there is no sample."""
    found = {}
    for family in text_string_to_metric_families(page):
        if family.name.startswith("onceway_"):
            labels = set(family.samples[0].labels) - {"le"} if family.samples else set()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = (family.type, family.documentation, labels)
    return found


def compare(page: str, *tables: str) -> None:
    """The same names, kinds and labels; the documents begin with the help, and say more."""
    running, described = told(page), {name: row for table in tables for name, row in documented(table).items()}
    assert running.keys() == described.keys()
    for name, (kind, text, labels) in running.items():
        # the text format has no information: it is a gauge of 1
        assert described[name][0] == kind or (described[name][0], kind) == ("info", "gauge"), name
        assert described[name][1].startswith(text), name
        if labels or name not in SELDOM:
            assert described[name][2] == labels, name


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeNetwork]:
    directory = tmp_path_factory.mktemp("measured")
    with PipeNetwork(directory, ("a", "b"), {"jobs": ("s",)}, store_metrics={"s": free_port()}) as made:
        made.start()
        made.start_store("s")
        wait_until(
            lambda: called("pipe", "push", "jobs", "one", "--url", made.urls()).returncode == 0, "the pipe works"
        )
        yield made


def test_what_the_page_says_of_routers_is_what_one_says_itself(network: PipeNetwork) -> None:
    url = network.urls("a")
    with module("onceway", "subscribe", "lines", "--url", url) as subscriber:
        assert onceway("publish", "lines", "--url", url, stdin=b"one\n").returncode == 0
        assert subscriber.line() == "one"
        compare(network["a"].get("/metrics")[1].decode(), *OF_ROUTERS)


def test_what_the_page_says_of_stores_is_what_one_says_itself(network: PipeNetwork) -> None:
    (address,) = network.topology()["addresses"]
    compare(get(f"http://127.0.0.1:{address['store_metrics']['s']}/metrics"), "metrics of a store")


def test_what_the_page_says_of_the_bus_is_what_one_says_itself(network: PipeNetwork, tmp_path: Path) -> None:
    bus, sink = BusProcess(tmp_path, network.urls(), "a", (), False, None), Sink()
    bus.start()
    try:
        owner, reader = bus.client(), bus.client("reader")
        assert bus.push(owner, "orders") == 204
        bus.subscribe(reader, sink, "orders")
        bus.push(owner, "orders", 1)
        wait_until(lambda: bus.subscription(reader)["events"]["sent"] == 1, "it is taken")
        compare(bus.ask("GET", "/metrics", ROOT_KEY).body.decode(), "metrics of a bus")
    finally:
        bus.close()
        sink.close()


def test_what_the_page_says_of_receivers_is_what_one_says_itself(network: PipeNetwork, tmp_path: Path) -> None:
    port = free_port()
    with hosts(tmp_path, network.urls()) as lake:
        lake.start(metrics=f"127.0.0.1:{port}")
        wait_until(lambda: lake.receiver() > 0, "a receiver holds the lease")
        Publishing(network.urls(), "orders", bodies(10)).join()
        stream = lake.stream(reader="table")
        end, _ = batch(stream)
        stream.commit(end)
        compare(get(f"http://127.0.0.1:{port}/metrics"), "metrics of receivers")
        stream.stop()


def test_documents_name_only_metrics_that_exist() -> None:
    known = {metric.name for table in METRICS.values() for metric in table}
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for name in NAME.findall(page.read_text()):
            assert name in known, f"{page.relative_to(ROOT)} names {name}"
