"""Receivers apart from Spark: any number of hosts run one file, and each slot is received by one of them."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from amqp10.sections import Message
from chaos.live.ports import free_port
from onceway.spark.errors import OptionError, WalForeign
from onceway.spark.options import source_options
from onceway.spark.source.service import read_plan
from onceway.spark.source.stream import Stream
from onceway.spark.wal import Wal
from tests.live import LiveNetwork, wait_until
from tests.spark.networks import PATIENT, WITHIN_S, Publishing, batch, bodies


def test_a_file_says_all_that_is_wrong_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    path.write_text("url: amqp://a\ntopic: orders\nsubscription: lake\nslots: all\nmetrics: here\ncredits: 5\n")
    with pytest.raises(OptionError) as said:
        read_plan(str(path))
    lines = str(said.value).splitlines()
    assert [line.removeprefix(f"{path}: ").partition(":")[0] for line in lines] == [
        "slots", "metrics", "walRetention", "option credits", "option walLocation",
    ]  # fmt: skip
    path.write_text(
        f"url: amqp://a\ntopic: [a, b]\nsubscription: s\nwalLocation: {tmp_path}\nwalRetention: 1h\nadopt: yes\n"
    )
    plan = read_plan(str(path))
    assert (plan.options.topics, plan.options.adopt, plan.options.ingest) == (("a", "b"), True, "apart")


class Hosts:
    """Processes of `onceway ingest` on one log."""

    def __init__(self, directory: Path, url: str, **options: Any) -> None:
        self.log = str(directory / "wal")
        self.file = directory / "lake.yaml"
        self._settings = {
            "url": url, "topic": "orders", "subscription": "lake", "walLocation": self.log, "walRetention": "1h",
            "groupRows": 100, "leaseTimeout": "2s", **options,
        }  # fmt: skip
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, **options: Any) -> subprocess.Popen[bytes]:
        settings = {**self._settings, **options}
        self.file.write_text(yaml.safe_dump({name: value for name, value in settings.items() if value is not None}))
        host = subprocess.Popen([sys.executable, "-m", "onceway", "ingest", str(self.file)], start_new_session=True)
        self.running.append(host)
        return host

    def status(self) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "onceway", "ingest", "status", self.log, "--json"], capture_output=True, check=False
        )
        slots: list[dict[str, Any]] = json.loads(done.stdout)["slots"] if done.returncode == 0 else []
        return slots

    def receiver(self, slot: int = 0) -> int:
        """The process that holds the slot's lease; 0: nobody."""
        holder = Wal.open(self.log).holder(slot) if Path(self.log, "wal.json").exists() else ""
        return int(holder.rpartition(":")[2] or 0)

    def stream(self, **options: str | None) -> Stream:
        given = self._settings | {"ingest": "apart"} | options
        texts = {name: str(value) for name, value in given.items() if value is not None}
        stream = Stream(source_options(texts, "stream"))
        stream.begin()
        return stream


@contextmanager
def hosts(directory: Path, url: str, **options: Any) -> Iterator[Hosts]:
    made = Hosts(directory, url, **options)
    try:
        yield made
    finally:
        for host in made.running:
            host.terminate()
        for host in made.running:
            host.wait(WITHIN_S)


def test_another_host_goes_on_and_several_queries_read_one_log(tmp_path: Path) -> None:
    port = free_port()
    with LiveNetwork(tmp_path, ("a",), settings=PATIENT) as network, hosts(tmp_path, network.start().urls()) as lake:
        first = lake.start(metrics=f"127.0.0.1:{port}")
        wait_until(lambda: network["a"].status()["addresses"].get("orders", {}).get("subscriptions"), "it is attached")
        lake.start()
        publishing = Publishing(network.urls(), "orders", bodies(5000), pace_s=0.02)
        wait_until(lambda: lake.stream().wal.slot(0).end() > 500, "some rows are there")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b'onceway_ingest_held{partition="0",topic="orders"} 1.0' in answer.read()
        dead = lake.receiver()
        first.kill()  # and its receiver dies with it
        first.wait()
        wait_until(lambda: lake.receiver() not in (0, dead), "the other host receives", WITHIN_S)
        publishing.join()
        streams = {name: lake.stream(reader=name) for name in ("table", "alarms")}
        ends = {}
        for name, stream in streams.items():
            ends[name], values = batch(stream)
            assert values == bodies(5000)
        streams["table"].commit(ends["table"])
        (slot,) = lake.status()
        assert slot["readers"]["table"]["rows"] == 0
        assert (slot["start"], slot["end"]) == (0, 5000)
        assert streams["alarms"].report()["state"] == "received apart"


def test_hosts_take_up_new_topics_of_a_pattern_and_queries_what_is_new_in_the_log(tmp_path: Path) -> None:
    with LiveNetwork(tmp_path, ("a",), settings=PATIENT) as network, hosts(tmp_path, network.start().urls()) as lake:
        pattern = {"topic": None, "topicPattern": r"shop\..*"}
        for _ in range(2):
            lake.start(**pattern)
        publishing = Publishing(network.urls(), "shop.a", bodies(100))
        publishing.join()
        stream = lake.stream(**pattern)
        first, values = batch(stream)
        assert values == bodies(100)
        publishing = Publishing(network.urls(), "shop.b", bodies(200))
        publishing.join()  # accepted: it is in the log
        wait_until(lambda: stream.latest(first, limited=False) != first, "the query knows the second topic")
        assert batch(stream, first)[1] == bodies(200)
        assert [slot["topic"] for slot in lake.status()] == ["shop.a", "shop.b"]


def test_a_query_changes_the_number_of_partitions_between_two_lives_of_the_receivers(tmp_path: Path) -> None:
    with LiveNetwork(tmp_path, ("a",), settings=PATIENT) as network:
        with hosts(tmp_path, network.start().urls(), partitions=2) as lake:
            lake.start()
            wait_until(lambda: lake.receiver(0) and lake.receiver(1), "both partitions are received", WITHIN_S)
            subscriptions = lambda: network["a"].status()["addresses"].get("orders", {}).get("subscriptions", [])  # noqa: E731
            wait_until(lambda: len(subscriptions()) == 2, "attached")
            publishing = Publishing(network.urls(), "orders", _keyed(6000), pace_s=0.02)
            wait_until(lambda: Wal.open(lake.log).slot(0).end() > 100, "some rows are there")
        with pytest.raises(WalForeign, match=r"changePartitions=true \(and ingest=driver"):
            lake.stream(partitions="3", changePartitions="true")
        lake.stream(partitions="3", changePartitions="true", ingest="driver").stop()
        with hosts(tmp_path, network.urls(), partitions=3) as lake:
            lake.start()
            publishing.join()
            found = list(_by_slot(lake.stream()))
    assert len(found) == 5
    numbers = [int(value) for values in found for value in values]  # the old partitions first
    assert sorted(numbers) == list(range(6000))
    for key in range(7):
        ordered = [number for number in numbers if number % 7 == key]
        assert ordered == sorted(ordered)


def _keyed(count: int) -> list[Message]:
    return [
        Message(b"%d" % number, message_annotations={"x-opt-partition-key": f"k{number % 7}"})
        for number in range(count)
    ]


def _by_slot(stream: Stream) -> Iterator[list[bytes]]:
    for number in stream.wal.slots:
        reader = stream.wal.slot(number)
        yield [value for one in reader.read(0, reader.end(), ["value"]) for value in one.column(0).to_pylist()]
