"""`format("onceway")` as a sink of real queries: repeated batches, repeated writes, and tasks killed in between."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

import onceway
from onceway.spark.executors import publisher
from tests.live import ROOT, wait_until
from tests.live_fixture import LiveNetworks, live_network, pytest_runtest_makereport
from tests.spark.networks import PATIENT, WITHIN_S, bodies, left_waiting

__all__ = ["live_network", "pytest_runtest_makereport"]

BOUND_S = 120.0
FIELDS = "topic string, key string, value string, headers map<string, string>"


class Audience:
    """A durable subscription to some topics in a thread of its own; accepts as many messages as it may."""

    def __init__(self, url: str, *topics: str) -> None:
        self.messages: list[tuple[str, Any]] = []  # (topic, Message)
        self.limit = 1 << 60  # how many are accepted before somebody calls go_on
        self.more = asyncio.Event()
        self._ready = threading.Barrier(2)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(url, topics),))
        self._thread.start()
        self._ready.wait(BOUND_S)

    async def _run(self, url: str, topics: tuple[str, ...]) -> None:
        async with onceway.connect(url, container="audience") as connection:
            tasks = [
                asyncio.create_task(self._listen(topic, await connection.subscriber(topic, credit=100)))
                for topic in topics
            ]
            self._ready.wait(BOUND_S)
            await self._stop.wait()
            for task in tasks:
                task.cancel()

    async def _listen(self, topic: str, subscriber: onceway.Subscriber) -> None:
        async for batch in subscriber.batches(max_messages=20):
            if len(self.messages) + len(batch) > self.limit:
                await self.more.wait()
            self.messages += [(topic, delivery.message) for delivery in batch]
            await batch.accept()

    def go_on(self) -> None:
        self._loop.call_soon_threadsafe(self.more.set)

    def close(self) -> None:
        self.go_on()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(BOUND_S)
        self._loop.close()

    def values(self, topic: str) -> list[str]:
        return [message.value.decode() for of, message in self.messages if of == topic]


@pytest.fixture
def network(live_network: LiveNetworks) -> Any:
    return live_network("a", "b", links=[("a", "b")])


@pytest.fixture
def audience(network: Any) -> Iterator[Audience]:
    made = Audience(network.urls("b"), "orders", "returns")
    yield made
    made.close()


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "topic": ("orders", "returns")[number % 3 == 0],
            "key": f"k{number}",
            "value": f"{number}",
            "headers": {"n": str(number)},
        }
        for number in range(first, first + count)
    ]


def put(directory: Path, number: int, some: list[dict[str, Any]]) -> None:
    """One more file for the stream to read."""
    directory.mkdir(exist_ok=True)
    hidden = directory / f".{number}"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in some))
    os.utime(hidden, (number, number))  # the stream reads files by age
    hidden.rename(directory / f"{number}.json")


def run(spark: Any, base: Path, url: str, **options: str) -> None:
    """Everything there is."""
    query = start(spark, base, url, **options)
    try:
        assert query.awaitTermination(BOUND_S)
    finally:
        query.stop()


def start(spark: Any, base: Path, url: str, **options: str) -> Any:
    """A query over everything there is, in batches of one file each."""
    stream = spark.readStream.schema(FIELDS).option("maxFilesPerTrigger", 1).json(str(base / "in"))
    writer = stream.writeStream.format("onceway").trigger(availableNow=True)
    for name, value in {"url": url, "outboxLocation": str(base / "outbox"), **options}.items():
        writer = writer.option(name, value)
    return writer.option("checkpointLocation", str(base / "checkpoint")).start()


def check(audience: Audience, count: int) -> None:
    """Each of the first `count` rows once, in the order of its topic."""
    wait_until(lambda: len(audience.messages) >= count, f"{count} messages", WITHIN_S)
    every = rows(0, count)
    for topic in ("orders", "returns"):
        assert audience.values(topic) == [row["value"] for row in every if row["topic"] == topic]
    for _, message in audience.messages:
        number = message.value.decode()
        assert message.message_annotations["x-opt-partition-key"] == f"k{number}"
        assert message.application_properties == {"n": number}


def test_a_batch_that_spark_repeats_is_published_once(
    spark: Any, network: Any, audience: Audience, tmp_path: Path
) -> None:
    for number in range(2):
        put(tmp_path / "in", number, rows(number * 50, 50))
    run(spark, tmp_path, network.urls())
    check(audience, 100)
    # Spark died between the sink's commit and its own
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    put(tmp_path / "in", 2, rows(100, 50))
    run(spark, tmp_path, network.urls())
    check(audience, 150)
    outbox = sorted(path.name for path in (tmp_path / "outbox").glob("batch-*"))
    assert outbox == [f"batch-{number}.{suffix}" for number in range(3) for suffix in ("done", "json")]


def publishing(outbox: Path) -> int:
    """The process of a task that is not done: it holds the lock of its share."""
    for name in ("lock-1", "lock-2"):
        with (outbox / name).open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(json.load(lock)["pid"])
    raise AssertionError("no task publishes")


def test_tasks_that_publish_may_be_killed_and_each_row_is_published_once_in_its_order(
    spark: Any, network: Any, audience: Audience, tmp_path: Path
) -> None:
    def begun() -> Any:
        stream = spark.readStream.schema(FIELDS).option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        parted = stream.repartition(4, (stream.value.cast("int") % 4))
        sink = publisher({"url": network.urls(), "outboxLocation": str(tmp_path / "outbox")}, 2)
        writer = parted.writeStream.foreachBatch(sink).trigger(availableNow=True)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    for number in range(2):
        put(tmp_path / "in", number, rows(number * 600, 600))
    audience.limit = 900  # in the middle of the second batch
    query = begun()
    wait_until(lambda: len(audience.messages) > 850 or not query.isActive, "a batch half published", BOUND_S)
    assert query.isActive, str(query.exception())
    os.kill(publishing(tmp_path / "outbox"), signal.SIGKILL)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(BOUND_S)
    assert (tmp_path / "outbox" / "batch-1.json").exists()
    assert not (tmp_path / "outbox" / "batch-1.done").exists()
    audience.go_on()
    assert begun().awaitTermination(BOUND_S)
    wait_until(lambda: len(audience.messages) >= 1200, "all messages", WITHIN_S)
    assert sorted(int(message.value) for _, message in audience.messages) == list(range(1200))
    for topic in ("orders", "returns"):
        for rest in range(4):
            found = [value for value in map(int, audience.values(topic)) if value % 4 == rest]
            assert found == sorted(found)


def test_a_query_that_is_stopped_publishes_the_batch_that_it_has_begun(
    spark: Any, network: Any, audience: Audience, tmp_path: Path
) -> None:
    put(tmp_path / "in", 0, rows(0, 1500))
    audience.limit = 500
    query = start(spark, tmp_path, network.urls(), publishTimeout="60s")
    wait_until(lambda: len(audience.messages) > 450, "a batch half published", BOUND_S)
    stopping = threading.Thread(target=query.stop)  # Spark 4.3 does not interrupt a commit
    stopping.start()
    audience.go_on()
    stopping.join(BOUND_S)
    assert not stopping.is_alive()
    assert (tmp_path / "outbox" / "batch-0.done").exists()
    check(audience, 1500)


def test_a_batch_without_rows_is_known_and_a_new_outbox_behind_it_is_refused(
    spark: Any, live_network: LiveNetworks, tmp_path: Path
) -> None:
    network = live_network("a", settings=PATIENT)

    def forward() -> None:
        source = spark.readStream.format("onceway").option("url", network.urls()).option("topic", "quiet")
        stream = source.option("subscription", "s").option("walLocation", str(tmp_path / "wal")).load()
        writer = stream.writeStream.format("onceway").trigger(availableNow=True).option("url", network.urls())
        writer = writer.option("topic", "forwarded").option("outboxLocation", str(tmp_path / "outbox"))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(BOUND_S)

    forward()
    assert (tmp_path / "outbox" / "batch-0.done").exists()
    (tmp_path / "outbox").rename(tmp_path / "gone")
    publishing = left_waiting(network["a"], "quiet", bodies(10))
    checkpoint = re.escape(str(tmp_path / "checkpoint"))
    said = f"^[^\n]*outbox: this outbox has published nothing yet, and the query is at batch 1, by its checkpoint {checkpoint}"
    with pytest.raises(Exception, match=said):
        forward()
    publishing.join()


def test_what_spark_says_of_options_and_columns_is_what_we_say(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"^[^\n]*SinkOptionError: column amount: the sink does not know it"):
        spark.range(1).selectExpr("'x' AS value", "id AS amount").write.format("onceway").mode("append").option(
            "url", "amqp://127.0.0.1"
        ).option("topic", "orders").save(str(tmp_path))
    put(tmp_path / "in", 0, rows(0, 1))
    with pytest.raises(Exception, match=r"^[^\n]*option onReject: .*never.* is none of fail, ignore"):
        run(spark, tmp_path, "amqp://127.0.0.1", onReject="never")


def test_a_write_with_an_identity_is_published_once(
    spark: Any, network: Any, audience: Audience, tmp_path: Path
) -> None:
    frame = spark.createDataFrame([(f"{number}",) for number in range(100)], "value string").coalesce(1)
    for _ in range(2):
        writer = frame.write.format("onceway").mode("append").option("url", network.urls()).option("topic", "orders")
        writer.option("writeId", "2026-11-21").save(str(tmp_path / "outbox"))
    writer = frame.write.format("onceway").mode("append").option("url", network.urls()).option("topic", "returns")
    writer.save(str(tmp_path / "outbox"))
    wait_until(lambda: len(audience.values("returns")) == 100, "the second write", WITHIN_S)
    assert audience.values("orders") == audience.values("returns") == [f"{number}" for number in range(100)]


def test_the_notebook_runs_from_top_to_bottom(
    spark: Any, network: Any, audience: Audience, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = json.loads((ROOT / "examples" / "spark" / "topic.ipynb").read_text())
    code = "\n".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code")
    monkeypatch.setattr("onceway.spark.session.session", lambda app: spark)
    for written, ours in (
        ("amqp://127.0.0.1:5672", network.urls()), ("/tmp/onceway-notebook", str(tmp_path)), ("greetings", "returns"),
    ):  # fmt: skip
        assert written in code
        code = code.replace(f'"{written}"', f'"{ours}"')
    for _ in range(2):  # one that reads it may run a cell again
        exec(compile(code, "topic.ipynb", "exec"), {})
    wait_until(lambda: audience.values("returns") == ["hello", "world"], "the greetings", WITHIN_S)
