"""The log in an object store, over HTTP: moto's server, its faults and its death; the ingest as a process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from onceway.spark.wal import Wal, WalSettings
from tests.live import LiveNetwork, wait_until
from tests.spark.buckets import Server
from tests.spark.networks import PATIENT, Publishing, Source, batch, bodies
from tests.spark.slots import SUBSCRIPTION, TOPIC, Life, numbered, rows_of


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("onceway.spark.wal.objects.ANSWER_S", 2.0)
    yield server
    server.stop()


def test_faults_of_the_store_lose_and_double_nothing_and_requests_stay_few(server: Server) -> None:
    numbers = count()
    wal = Wal.open_or_create("s3://logs/faults", SUBSCRIPTION, [TOPIC])

    def fault(method: str, path: str) -> str:
        number = next(numbers) if method == "PUT" else 0
        return "silent" if number == 8 else {2: "slow", 3: "lost", 5: "reset", 6: "slow"}.get(number % 7, "")

    server.fault = fault
    life = Life(wal, 10, WalSettings(group_rows=1000, group_ms=1.0, lock_timeout_s=0.2))
    for _ in range(12):
        life.group(3)
    server.stop()
    end = life.append([b"while it is away"], None)
    server.start()
    life.until(end)
    server.fault = lambda method, path: ""
    assert min(server.faults[fault] for fault in ("slow", "lost", "reset")) >= 3
    assert server.faults["silent"] == 1
    assert rows_of(wal.slot(0)) == numbered(0, 37)
    before, began = server.served.total(), time.monotonic()
    for _ in range(12):
        life.group(1)
    assert (server.served.total() - before) / (time.monotonic() - began) < 5.0
    life.close()
    again = Life(wal, 20)
    assert again.writer.end == 49
    again.close()


def test_an_ingest_that_is_killed_and_started_again_receives_every_row_once_into_a_bucket(
    server: Server, tmp_path: Path
) -> None:
    with LiveNetwork(tmp_path, ("a",), settings=PATIENT) as network:
        network.start()
        orders = Source(network.urls(), "orders", Path(), walLocation="s3://logs/orders", groupRows="50000")
        stream = orders.start()
        try:
            wait_until(lambda: stream.report()["attached"] == 1, "it is attached")
            publishing = Publishing(network.urls(), "orders", bodies(10_000), pace_s=0.01)
            wait_until(lambda: stream.wal.slot(0).end() > 2000, "some rows are in the bucket")
            os.kill(stream._ingests._ingests[0]._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
            publishing.join()
            end, values = batch(stream)
            assert values == bodies(10_000)
            stream.commit(end)
        finally:
            orders.close()
        again = orders.start()  # another driver
        try:
            assert batch(again, end) == (end, [])
        finally:
            orders.close()
