"""What a store says of itself to Prometheus."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from chaos.live.ports import free_port
from tests.cli.conftest import COMMAND, called, onceway
from tests.edges.pipe.network import PipeNetwork
from tests.live import wait_until
from tests.running import Program, module

OF_MEASURED: Final = {"store": "m", "pipe": "measured"}


def scraped(port: int, labels: Mapping[str, str] = OF_MEASURED) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    return {
        sample.name.removeprefix("onceway_pipe_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels == labels
    }


def test_a_store_answers_with_its_metrics(network: PipeNetwork, tmp_path: Path) -> None:
    listen, metrics = free_port(), free_port()
    arguments = ("measured", "--store", "m", "--url", network.urls(), "--data", tmp_path, "--listen", listen)
    with module("onceway", "pipe", "serve", *arguments, "--metrics", f"127.0.0.1:{metrics}") as store:
        wait_until(lambda: "event=pipe_primary" in store.errors, "the store subscribes")
        assert onceway("pipe", "push", "measured", "--url", network.urls(), stdin=b"a\nb\nc\n").returncode == 0
        of_store = ("--store", f"127.0.0.1:{listen}")
        with module("onceway", "pipe", "pull", "measured", *of_store, "--follow") as reader:
            assert [reader.line() for _ in range(3)] == ["a", "b", "c"]
            assert scraped(metrics) == {
                "start_position": 0,
                "next_position": 3,
                "visible_position": 3,
                "waiting_records": 0,
                "waiting_seconds": 0,
                "epoch": 1,
                "incomplete": 0,
                "readers": 1,
                "slowest_reader_records": 0,
                "primary": 1,
                "pushes_total": 3,
            }
        assert called("pipe", "reset", "measured", "--url", network.urls(), *of_store).stdout == "3\n"
        wait_until(lambda: scraped(metrics)["readers"] == 0, "the reader has gone")
        assert scraped(metrics)["start_position"] == 4


def test_the_file_says_where_stores_answer_and_the_primary_tells_how_long_it_waits_for_another(tmp_path: Path) -> None:
    ports = {"s": free_port(), "t": free_port()}
    network = PipeNetwork(tmp_path, ("a",), {"jobs": ("s", "t")}, store_metrics=ports)

    def told(store: str) -> dict[str, float]:
        return scraped(ports[store], {"store": store, "pipe": "jobs"})

    with Program([*COMMAND, "up", str(network.topology_path), "--state-dir", str(tmp_path / "state")]) as up:
        wait_until(lambda: "event=pipe_primary" in up.errors, f"the store subscribes\n{up.errors}")
        assert called("pipe", "push", "jobs", "one", "--url", network.urls()).returncode == 0
        assert [(told(store)["next_position"], told(store)["primary"]) for store in "st"] == [(1, 1), (1, 0)]
        assert told("s")["waiting_seconds"] == 0
        pid = int(re.findall(r"started, pid (\d+)  .*event=store_started store=t", up.errors)[0])
        os.kill(pid, signal.SIGSTOP)
        with module("onceway", "pipe", "push", "jobs", "two", "--url", network.urls()) as pushing:
            wait_until(lambda: told("s")["waiting_seconds"] > 0, "the primary waits")
            wait_until(lambda: told("s")["waiting_records"] == 1, "readers do not see it")
            os.kill(pid, signal.SIGCONT)
            pushing.rest()
        assert (told("s")["waiting_seconds"], told("s")["waiting_records"]) == (0, 0)


def test_a_place_for_metrics_that_is_taken_is_named(network: PipeNetwork, tmp_path: Path) -> None:
    taken = network.ports["s"]
    arguments = ("x", "--url", network.urls(), "--data", tmp_path, "--listen", free_port())
    done = onceway("pipe", "serve", *arguments, "--metrics", f"127.0.0.1:{taken}")
    assert done.returncode == 2
    assert f"127.0.0.1:{taken}: " in done.stderr
