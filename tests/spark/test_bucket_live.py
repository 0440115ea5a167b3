"""The log in an object store, over HTTP: moto's server, its faults and its death."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count

import pytest

from onceway.spark.wal import Wal, WalSettings
from tests.spark.buckets import Server
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
