"""The source in Spark: what comes out is what was published, each once, whatever is killed and repeated."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from amqp10.sections import Message, Properties
from onceway.spark.files import Lock
from onceway.spark.wal import Wal
from tests.live import LiveNetwork, wait_until
from tests.live_fixture import LiveNetworks
from tests.running import Program
from tests.spark.driver import command as driver_command
from tests.spark.driver import lake, start
from tests.spark.logs import Log
from tests.spark.networks import PATIENT, WITHIN_S, Publishing, bodies, ends, left_waiting

ROWS = 20_000  # more than is published before a driver is killed
DRIVER_WITHIN_S = 300.0  # ten seconds on a machine that has nothing else to do


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    with LiveNetwork(tmp_path_factory.mktemp("network"), ("a",), settings=PATIENT) as network:
        yield network.start()


class Query:
    """A query that collects its batches; every `run` is a driver of its own on one checkpoint."""

    def __init__(self, spark: Any, directory: Path, urls: str, topic: str, **options: str) -> None:
        self.checkpoint = directory / "checkpoint"
        self.batches: dict[int, list[Any]] = {}
        self.progress: list[dict[str, Any]] = []
        self._spark = spark
        self.options = {
            "url": urls,
            "topic": topic,
            "subscription": "s",
            "walLocation": str(directory / "wal"),
            "lockTimeout": "60s",  # the ingest of the run before may be there yet
        } | options

    def run(self, schema: str | None = None, **trigger: Any) -> dict[int, list[Any]]:
        """Everything that is there now; the batches of this run."""
        self.batches = {}
        reader = self._spark.readStream.format("onceway").options(**self.options)
        frame = (reader.schema(schema) if schema else reader).load()
        query = (
            frame.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            self.progress = [json.loads(one.json) for one in query.recentProgress]
        return self.batches

    def _take(self, frame: Any, batch: int) -> None:
        self.batches[batch] = frame.collect()

    def forget(self, what: str, batch: int) -> None:
        """As if the driver had died before it wrote that down."""
        (self.checkpoint / what / str(batch)).unlink()
        (self.checkpoint / what / f".{batch}.crc").unlink(missing_ok=True)


def test_messages_become_rows_with_their_properties_in_batches_as_large_as_is_wanted(
    spark: Any, network: LiveNetwork, tmp_path: Path
) -> None:
    query = Query(spark, tmp_path, network.urls(), "typed", maxRowsPerTrigger="2", includeHeaders="true")
    assert query.run() == {0: []}
    properties = Properties(
        message_id="m1", correlation_id="c1", subject="s1", content_type="text/plain", reply_to="r1"
    )
    messages = [
        Message(
            b"whole",
            properties=properties,
            application_properties={"key": "k1", "colour": "red", "size": 3, "raw": b"\xff\0"},
        ),
        *bodies(4),
    ]
    publishing = left_waiting(network["a"], "typed", messages)
    batches = query.run()
    publishing.join()
    assert {batch: len(rows) for batch, rows in batches.items()} == {1: 2, 2: 2, 3: 1}
    rows = [row for batch in batches.values() for row in batch]
    assert [bytes(row.value) for row in rows] == [b"whole", *bodies(4)]
    assert [(row.topic, row.partition, row.offset) for row in rows] == [("typed", 0, number) for number in range(5)]
    whole = rows[0]
    assert (whole.message_id, whole.correlation_id, whole.subject, whole.reply_to) == ("m1", "c1", "s1", "r1")
    assert whole.content_type == "text/plain"
    assert whole.headers["colour"] == "red"
    assert whole.headers["size"] == "3"
    assert rows[1].message_id is None
    assert len({bytes(row.delivery_tag) for row in rows}) == 5
    assert all(row.received_at.year >= 2020 for row in rows)
    reports = [one["sources"][0]["latestOffset"] for one in query.progress]
    assert [one["lagRows"] for one in reports[:3]] == [3, 1, 0]
    assert reports[0]["backlogBytes"] > 0
    assert reports[0]["state"] == "receiving"
    described = f"typed from {network.urls()} by subscription s, log {tmp_path / 'wal'}"
    assert reports[0]["source"].replace(", amqp", ",amqp") == described
    log = spark.read.format("onceway").option("includeHeaders", "binary").load(str(tmp_path / "wal"))
    headers = {one.key: bytes(one.value) for one in log.where("offset = 0").select("headers").collect()[0].headers}
    assert {name: headers[name] for name in ("colour", "size", "raw")} == {
        "colour": b"red",
        "size": b"3",
        "raw": b"\xff\0",
    }


def test_a_run_once_takes_in_one_batch_what_the_network_holds(spark: Any, network: LiveNetwork, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, network.urls(), "once", maxRowsPerTrigger="2")
    query.run(once=True)
    publishing = left_waiting(network["a"], "once", bodies(5))
    (batch,) = query.run(once=True).values()
    publishing.join()
    assert [bytes(row.value) for row in batch] == bodies(5)
    assert query.progress[-1]["sources"][0]["latestOffset"]["accepted"] == 5


def test_a_delta_table_has_each_message_once_though_its_last_batch_is_repeated(
    spark: Any, network: LiveNetwork, tmp_path: Path
) -> None:
    deltalake = pytest.importorskip("deltalake", reason="pip install deltalake")

    def run() -> list[bytes]:
        start(spark, network.urls(), "delta", tmp_path, 100, form="deltalake", availableNow=True).awaitTermination()
        table = deltalake.DeltaTable(tmp_path / "lake")
        rows = [
            (row["offset"], row["value"])
            for batch in table.to_pyarrow_table().to_batches()
            for row in batch.to_pylist()
        ]
        assert [offset for offset, _ in sorted(rows)] == list(range(len(rows)))
        return [value for _, value in sorted(rows)]

    assert run() == []
    publishing = left_waiting(network["a"], "delta", bodies(250))
    assert run() == bodies(250)
    publishing.join()
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()  # as if the driver had died when the table was written
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    assert run() == bodies(250)


def test_a_batch_that_was_not_finished_is_repeated_as_it_was(spark: Any, network: LiveNetwork, tmp_path: Path) -> None:
    """The windows between latestOffset and the source's commit (docs/spark.md), inline and with fewer columns."""
    query = Query(spark, tmp_path, network.urls(), "repeated", maxRowsPerTrigger="100", transport="inline")
    schema = "`offset` bigint, value binary"
    query.run(schema)
    publishing = left_waiting(network["a"], "repeated", bodies(250))
    first = query.run(schema)
    publishing.join()
    assert [(row.offset, bytes(row.value)) for batch in first.values() for row in batch] == list(enumerate(bodies(250)))
    query.forget("commits", 3)  # sink done, commit log missing
    assert query.run(schema) == {3: first[3]}
    for batch in (2, 3):  # after latestOffset, before the offset log; by more than a batch, within walRetention
        query.forget("commits", batch)
        query.forget("offsets", batch)
    assert query.run(schema) == {2: first[2], 3: first[3]}
    for batch in range(4):  # a driver that died in its batch 0: Spark asks for the initial offset again
        query.forget("commits", batch)
        if batch:
            query.forget("offsets", batch)
    assert query.run(schema) == {0: [], **first}


def test_a_query_whose_reader_is_killed_fails_and_goes_on_when_it_is_started_again(
    spark: Any, network: LiveNetwork, tmp_path: Path
) -> None:
    """The process in which Spark calls the source: its ingest dies with it."""
    from pyspark.errors import StreamingQueryException

    query = start(spark, network.urls(), "reader", tmp_path, processingTime="0 seconds")
    try:
        wait_until((tmp_path / "wal" / "0" / "epoch").exists, "the query is attached", WITHIN_S)
        publishing = Publishing(network.urls(), "reader", bodies(2000), pace_s=0.1)
        log = Wal.open(str(tmp_path / "wal")).slot(0)
        wait_until(lambda: log.end() > 500, "500 rows are in the log", WITHIN_S)
        ingest = json.loads((tmp_path / "wal" / "0" / "lock").read_text())["pid"]
        reader = re.search(r"^PPid:\s*(\d+)$", Path(f"/proc/{ingest}/status").read_text(), re.MULTILINE)
        with ends(ingest):
            os.kill(int(reader[1]), signal.SIGKILL)
        with pytest.raises(StreamingQueryException):
            query.awaitTermination(int(WITHIN_S))
    finally:
        query.stop()
    values: list[bytes] = []
    while len(values) < 2000:
        everything = publishing.over  # a run begins by receiving what waits; more may come to the log before it ends
        start(spark, network.urls(), "reader", tmp_path, availableNow=True).awaitTermination()
        values = [bytes(row.value) for row in spark.read.parquet(str(tmp_path / "lake")).select("value").collect()]
        assert not everything or len(values) == 2000
    publishing.join()
    assert sorted(values) == sorted(bodies(2000))


def test_errors_reach_the_user_in_clear_words(spark: Any, network: LiveNetwork, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, network.urls(), "errors", maxRowsPerTriger="2", credit="none")
    with pytest.raises(
        Exception, match=r'^[^\n]*OptionError: option maxrowspertriger: is unknown; did you mean "maxRowsPerTrigger"'
    ) as said:
        query.run()
    assert 'option credit: "none" is no whole number' in str(said.value)
    query.options = {name: value for name, value in query.options.items() if name not in ("maxRowsPerTriger", "credit")}
    with pytest.raises(Exception, match=r"^[^\n]*column 'value' is binary, not string; read it so and cast it"):
        query.run("value string")
    for form in ("delta", "iceberg"):  # their jars do not come with PySpark
        with pytest.raises(Exception, match=rf"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: {form}"):
            lake.start(spark, query.options, str(tmp_path / form), form, availableNow=True)
    query.run()
    Lock(str(tmp_path / "wal" / "0" / "lock"), DRIVER_WITHIN_S).release()  # the query's ingest may be writing yet
    shutil.rmtree(tmp_path / "wal")
    with pytest.raises(
        Exception, match=r"^[^\n]*SubscriptionExists: subscription 's' of topic 'errors' has another log"
    ):
        query.run()


def test_a_log_is_read_in_a_batch_without_a_network(spark: Any, tmp_path: Path) -> None:
    with Log(tmp_path / "wal", "orders", "returns") as log:
        log.append(300, "orders")
        log.append(20, "returns")
        frame = spark.read.format("onceway").load(str(tmp_path / "wal"))
        assert frame.count() == 320
        assert {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()} == {
            "orders": 300,
            "returns": 20,
        }
        ending = json.dumps({"v": 1, "wal": log.wal.uuid, "p": {"0": 2, "1": 1}})
        some = spark.read.format("onceway").option("endingOffsets", ending).load(str(tmp_path / "wal"))
        values = [row.value for row in some.selectExpr("cast(value as string) value").collect()]
        assert sorted(values) == ["orders 0", "orders 1", "returns 0"]


def kill(driver: Program) -> None:
    """-9 for the driver's Java, whose Python then ends by itself, as does what they had started."""
    driver.process.kill()
    driver.process.wait(WITHIN_S)


def batches(driver: Program, count: int) -> None:
    """Full ones, or with what has been published: Spark may be the quicker one."""
    for _ in range(count):
        found = re.fullmatch(r"batch \d+: (\d+) rows(, \d+ behind)?", driver.line(DRIVER_WITHIN_S))
        assert 0 < int(found[1]) <= 500


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("deaths", [1, pytest.param(3, marks=pytest.mark.long)])
def test_drivers_and_a_router_are_killed_and_every_message_is_in_the_lake_once(
    spark: Any, live_network: LiveNetworks, tmp_path: Path, deaths: int
) -> None:
    network = live_network("a", "b", links=[("a", "b")], settings=PATIENT)
    command = driver_command(network.urls(), "orders", str(tmp_path))
    for death in range(deaths):  # the next driver begins at once: the ingest of the one before may be alive
        with Program(command) as driver:
            if death == 0:
                wait_until((tmp_path / "wal" / "0" / "epoch").exists, "the query is attached", DRIVER_WITHIN_S, 0.2)
                publishing = Publishing(network.urls(), "orders", bodies(ROWS), pace_s=0.05)
            batches(driver, 2)
            kill(driver)
    network.kill("a")
    network.start("a")
    wal = tmp_path / "wal"
    values: list[bytes] = []
    while len(values) < ROWS:
        everything = publishing.over
        start(spark, network.urls(), "orders", tmp_path, rows=ROWS, availableNow=True).awaitTermination()
        values = [bytes(row.value) for row in spark.read.parquet(str(tmp_path / "lake")).select("value").collect()]
        assert not everything or len(values) == ROWS, f"{len(values)} of {ROWS} rows, the log is {wal}"
    publishing.join()
    assert sorted(values) == sorted(bodies(ROWS))
