"""Rows per second into Spark: publishers -> routers -> ingest's log -> Spark's batches, beside Spark's own rate source.

    python -m bench spark [--rows 1000000] [--size 100] [--routers 1,3] [--sinks noop,parquet] [--every "2 seconds"]
                          [--publishers 4] [--partitions 1] [--receivers N] [--window 1000]
                          [--log] [--bucket] [--latency SECONDS] [--conf NAME=VALUE ...] [--json FILE]

Every run is the whole way: publishers that count a message when it is settled, one router or three in line in the full
exactly-once protocol, `readStream.format("onceway")`, and a sink.  The clock runs from the start of the first publisher
to the end of the batch with the last row.  `rate` is Spark's `rate-micro-batch` with a column of as many bytes in the
same session: what Spark takes for itself.

CPU microseconds a row are by process, since they depend less on who else is running: rows per second on c idle cores
are at most c / their sum, which ends the line.  JVM: driver and executors, its compiling and planning included.

--log: without Spark: publishers, routers and `onceway ingest` only, and what they make of the rows: how many lie in a
group (a frame of the log), and how many the router's link brought at once (they have one time of receipt).  Beside them
a publisher waits for each outcome before it sends again.  --bucket: the log is in moto's server of the S3 API, whose
requests are counted.

--latency: in place of all that, how long a message of 200 a second is on its way until foreachBatch is called with its
batch, by a query without a pause between batches, and what a batch spends its time on.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onceway
from bench.processes import family
from onceway.spark.session import NoSpark, session
from onceway.spark.wal import Wal
from tests.live import LiveNetwork, wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

# What its command line holds, and what it is called here.  A process is the first that matches.
PARTS = {
    "onceway publish": "publishers",
    "onceway router": "routers",
    "onceway.spark.source.ingest": "ingest",
    "python_streaming_source_runner": "reader",
    "pyspark.daemon": "workers",
    "java": "JVM",
}
WARM_UP_ROWS = 100_000  # most of what the JVM does at first is compiling
BOUND_S = 600.0
RATE_BATCHES = 5


@dataclass(slots=True)
class Run:
    label: str
    rows: int
    seconds: float
    cpu_us: dict[str, float] = field(default_factory=dict)  # a row, by part

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def sum_us(self) -> float:
        return sum(self.cpu_us.values())


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes in a body")
    parser.add_argument("--routers", default="1,3", help="sizes of the networks, in line")
    parser.add_argument("--sinks", default="noop,parquet")
    parser.add_argument("--every", default="2 seconds", help="between batches; each costs the JVM 0.1 to 0.2 s of CPU")
    parser.add_argument(
        "--publishers", type=int, default=4, help="processes; each has up to --window messages under way"
    )
    parser.add_argument("--partitions", type=int, default=1, help="of the topic")
    parser.add_argument("--receivers", type=int, help="processes that receive them; as many as there are unless given")
    parser.add_argument("--window", type=int, default=1000, help="of the routers: window_messages of a publisher")
    parser.add_argument("--log", action="store_true", help="into the log only: no Spark")
    parser.add_argument("--bucket", action="store_true", help="with --log: in an object store")
    parser.add_argument("--latency", type=float, metavar="SECONDS", help="measure for so long how long messages take")
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    parser.add_argument("--json", metavar="FILE", help="write all figures there as well")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = options(argv)
    if args.log:
        for routers in map(int, args.routers.split(",")):
            print(line(into_log(routers, args)), flush=True)
        print(load())
        return 0
    try:
        # What it logs are the last batches of queries that are stopped; what goes wrong is raised here.
        given = dict(one.split("=", 1) for one in args.conf)
        spark = session("bench", log_level="OFF", **{"spark.sql.streaming.noDataProgressEventInterval": "200", **given})
    except NoSpark as error:
        print(error, file=sys.stderr)
        return 2
    runs: list[Run] = []
    try:
        if args.latency:
            latency(spark, args.latency, args.size)
            args.sinks = ""
        for sink in filter(None, args.sinks.split(",")):
            runs.append(rate(spark, sink, args.rows, args.size))
            print(line(runs[-1]), flush=True)
            for routers in map(int, args.routers.split(",")):
                runs.append(network(spark, sink, routers, args))
                print(line(runs[-1]), flush=True)
    finally:
        spark.stop()
    print(load())
    if args.json:
        Path(args.json).write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    return 0


def load() -> str:
    averages = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"(load averages {averages} on {os.cpu_count()} processors)"


def line(run: Run) -> str:
    parts = ", ".join(f"{name} {cost:.1f}" for name, cost in run.cpu_us.items() if cost >= 0.05)
    worst = max(run.cpu_us, key=lambda name: run.cpu_us[name])
    cores = os.cpu_count() or 1
    return (
        f"{run.label:24} {run.rows_per_s:>9,.0f} rows/s   CPU {run.sum_us:5.1f} us a row ({parts}): "
        f"at most {cores / run.sum_us * 1e6:,.0f} rows/s on {cores} cores; most in {worst}"
    )


def write(frame: DataFrame, sink: str, home: Path, every: str) -> StreamingQuery:
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(home / "checkpoint"))
    if sink != "noop":
        writer = writer.option("path", str(home / "out"))
    return writer.trigger(processingTime=every).start()


def rows_of(query: StreamingQuery) -> int:
    if (error := query.exception()) is not None:
        raise error
    return sum({one.batchId: one.numInputRows for one in query.recentProgress}.values())


def rate(spark: SparkSession, sink: str, rows: int, size: int) -> Run:
    """The same number of rows in RATE_BATCHES batches, after one to warm up."""
    batch = rows // RATE_BATCHES
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", batch).option("numPartitions", 1)
    frame = source.load().selectExpr("timestamp", "value AS offset", f"repeat('x', {size}) AS value")
    home = Path(tempfile.mkdtemp(prefix="onceway-bench-"))
    query = write(frame, sink, home, "0 seconds")  # its batches are as large as they are
    try:
        wait_until(lambda: rows_of(query) >= batch, "the first batch", BOUND_S)
        before, warm, began = cpu(), rows_of(query), time.monotonic()
        wait_until(lambda: rows_of(query) >= warm + batch * RATE_BATCHES, "the rate source", BOUND_S)
        seconds, counted = time.monotonic() - began, rows_of(query) - warm
        return Run(f"rate to {sink}", counted, seconds, per_row(before, cpu(), counted))
    finally:
        query.stop()
        shutil.rmtree(home, ignore_errors=True)


def network(spark: SparkSession, sink: str, routers: int, args: argparse.Namespace) -> Run:
    home = Path(tempfile.mkdtemp(prefix="onceway-bench-"))
    names, settings = [f"r{i}" for i in range(routers)], {"window_messages": args.window}
    with LiveNetwork(home, names, list(itertools.pairwise(names)), settings=settings) as live:
        live.start()
        frame = (
            spark.readStream.format("onceway")
            .option("url", live[names[-1]].url)
            .option("topic", "bench")
            .option("subscription", "bench")
            .option("walLocation", str(home / "log"))
            .option("partitions", args.partitions)
            .option("receivers", args.receivers or args.partitions)
            .load()
        )
        query = write(frame, sink, home, args.every)
        try:
            wait_until(lambda: attached(query), "the subscription", BOUND_S)
            publish(live[names[0]].url, WARM_UP_ROWS, args.size, ["warm-up"])
            wait_until(lambda: rows_of(query) >= WARM_UP_ROWS, "the warm-up", BOUND_S)
            before, began = cpu(), time.monotonic()
            spent = publish(live[names[0]].url, args.rows, args.size, spread(args.publishers, args.partitions))
            total = args.rows // args.publishers * args.publishers + WARM_UP_ROWS
            wait_until(lambda: rows_of(query) >= total, "the last row", BOUND_S)
            seconds, after = time.monotonic() - began, cpu()
            if (counted := rows_of(query)) != total:
                raise AssertionError(f"{counted} rows of {total} messages")
        finally:
            query.stop()
    shutil.rmtree(home, ignore_errors=True)  # the ingest may be about to end
    rows = total - WARM_UP_ROWS
    costs = {"publishers": spent / rows * 1e6, **per_row(before, after, rows)}
    parts = f", {args.partitions} partitions" if args.partitions > 1 else ""
    return Run(f"{routers} router{'s' * (routers > 1)} to {sink}{parts}", rows, seconds, costs)


def into_log(routers: int, args: argparse.Namespace) -> Run:
    home = Path(tempfile.mkdtemp(prefix="onceway-bench-"))
    names, settings = [f"r{i}" for i in range(routers)], {"window_messages": args.window}
    plan, log, bucket = home / "ingest.yaml", str(home / "log"), None
    if args.bucket:
        from tests.spark.buckets import Server  # moto is there for tests only

        log, bucket = "s3://logs/bench", Server()
        os.environ.update(bucket.environment)
    total = args.rows // args.publishers * args.publishers
    with LiveNetwork(home, names, list(itertools.pairwise(names)), settings=settings) as live:
        live.start()
        options = {"url": live[names[-1]].url, "topic": "bench", "subscription": "bench", "walLocation": log}
        spread_over = {"partitions": args.partitions, "receivers": args.receivers or args.partitions}
        plan.write_text(json.dumps({**options, **spread_over, "walRetention": "1h"}))
        ingest = subprocess.Popen([sys.executable, "-m", "onceway", "ingest", str(plan)], stderr=subprocess.PIPE)
        try:
            assert ingest.stderr is not None
            attached = 0
            while attached < args.partitions:  # every partition has said so
                attached += b" at router " in ingest.stderr.readline()
            threading.Thread(target=ingest.stderr.read, daemon=True).start()
            over, waits = threading.Event(), list[float]()
            asker = threading.Thread(target=lambda: asyncio.run(ask(live[names[0]].url, args.size, over, waits)))
            asker.start()
            asked = bucket.served.total() if bucket else 0
            before, began = cpu(), time.monotonic()
            spent = publish(live[names[0]].url, total, args.size, spread(args.publishers, args.partitions))
            seconds, after = time.monotonic() - began, cpu()
            asked = bucket.served.total() - asked if bucket else 0
            over.set()
            asker.join(BOUND_S)
        finally:
            ingest.terminate()
            ingest.wait(BOUND_S)
        wal = Wal.open(log)
        slots = [wal.slot(slot) for slot in range(args.partitions)]
        frames = [batch for slot in slots for _, batch in slot.stored(0, slot.end(fresh=True), batch_rows=1)]
    if (rows := sum(batch.num_rows for batch in frames)) != total + len(waits):
        raise AssertionError(f"{rows} rows of {total + len(waits)} messages")
    runs = sum(len(batch.column(2).unique()) for batch in frames)
    print(f"{rows / len(frames):,.0f} rows a group, {rows / runs:,.0f} a run; {len(frames) / seconds:,.0f} groups/s")
    cuts = statistics.quantiles(waits, n=100, method="inclusive")
    print(
        f"accepted after p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms, at most {max(waits):.0f} ms ({len(waits)} sent)"
    )
    if bucket:
        bucket.stop()
        print(f"{asked / seconds / args.partitions:.1f} requests/s a partition: {dict(bucket.served)}")
    shutil.rmtree(home, ignore_errors=True)
    costs = {"publishers": spent / rows * 1e6, **per_row(before, after, rows)}
    return Run(f"{routers} router{'s' * (routers > 1)}, {args.partitions} partitions", rows, seconds, costs)


def spread(publishers: int, partitions: int) -> list[str]:
    """Names of publishers of which each partition gets as many as the others (router/links/filters.py)."""
    names: list[str] = []
    full: Counter[int] = Counter()
    for number in itertools.count():
        name = f"bench-{number}"
        digest = blake2b(f"{name}\0{name}".encode(), digest_size=8).digest()
        partition = int.from_bytes(digest, "big") % partitions
        if full[partition] < -(-publishers // partitions):
            full[partition] += 1
            names.append(name)
        if len(names) == publishers:
            break
    return names


class Taker:
    """A foreachBatch that collects its rows, and what a batch spends its time on."""

    def __init__(self) -> None:
        self.times: dict[int, tuple[float, float]] = {}  # by batch: called, has its rows, ms
        self.values: dict[int, list[bytes]] = {}
        self._lock = threading.Lock()
        self._over = False

    def __call__(self, frame: DataFrame, batch: int) -> None:
        with self._lock:
            if not self._over:
                called = time.time() * 1000
                self.values[batch] = [bytes(row.value) for row in frame.select("value").collect()]
                self.times[batch] = called, time.time() * 1000

    def run(self, query: StreamingQuery, seconds: float) -> list[StreamingQueryProgress]:
        """The batches of so many seconds, after as many as the JVM needs to compile most of what it will."""
        time.sleep(max(20.0, seconds / 2))
        self.times.clear()
        self.values.clear()
        time.sleep(seconds)
        with self._lock:  # stopped within its job, Spark 4.2 prints a StackOverflowError (docs/spark.md)
            self._over = True
        return [one for one in query.recentProgress if one.batchId in self.times and one.numInputRows]

    def say(self, what: str, sent: Mapping[int, Sequence[float]], batches: Sequence[StreamingQueryProgress]) -> None:
        """sent: by batch, when its messages were sent, ms."""
        for until, place in (("foreachBatch is called", 0), ("its rows are there", 1)):
            waits = [self.times[batch][place] - at for batch, times in sent.items() for at in times]
            cuts = statistics.quantiles(waits, n=100)
            print(f"{what}: {len(waits)} messages, until {until}: p50 {cuts[49]:.0f} ms, p99 {cuts[98]:.0f} ms")
        phases = [one.durationMs for one in batches]
        means = {name: statistics.fmean(one.get(name, 0) for one in phases) for name in sorted(phases[0])}
        print(f"{what}: {len(phases)} batches, ms: {', '.join(f'{name} {value:.0f}' for name, value in means.items())}")


def latency(spark: SparkSession, seconds: float, size: int) -> None:
    home = Path(tempfile.mkdtemp(prefix="onceway-bench-"))
    with LiveNetwork(home, ("a",)) as live:
        live.start()
        source = spark.readStream.format("onceway").option("url", live["a"].url).option("topic", "bench")
        frame = source.option("subscription", "bench").option("walLocation", str(home / "log")).load()
        take = Taker()
        query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(home / "checkpoint")).start()
        over = threading.Event()
        publisher = threading.Thread(target=lambda: asyncio.run(tick(live["a"].url, size, over)))
        try:
            wait_until(lambda: attached(query), "the subscription", BOUND_S)
            publisher.start()
            batches = take.run(query, seconds)
            over.set()
            publisher.join(BOUND_S)
        finally:
            query.stop()
    sent = {batch: [float(value.split()[0]) for value in values] for batch, values in take.values.items()}
    take.say("onceway", sent, batches)
    shutil.rmtree(home, ignore_errors=True)
    spark_alone(spark, seconds, size)


def spark_alone(spark: SparkSession, seconds: float, size: int) -> None:
    """The same with Spark's own source, which has 50 rows for each batch at no cost: what a message would wait that is
    there as soon as it is published, one each 5 ms.  It is in the first batch that begins after it."""
    home = Path(tempfile.mkdtemp(prefix="onceway-bench-"))
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).option("numPartitions", 1)
    frame = source.load().selectExpr(f"CAST(repeat('x', {size}) AS BINARY) AS value")
    take = Taker()
    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(home / "checkpoint")).start()
    try:
        batches = take.run(query, seconds)
    finally:
        query.stop()
    shutil.rmtree(home, ignore_errors=True)
    begun = [datetime.fromisoformat(one.timestamp).timestamp() * 1000 for one in batches]
    sent = {
        one.batchId: [end - wait for wait in range(0, round(end - begin), 5)]
        for one, begin, end in zip(batches[1:], begun, begun[1:], strict=False)
    }
    take.say("Spark's own source", sent, batches)


async def tick(url: str, size: int, over: threading.Event) -> None:
    """200 messages a second that say when they were published."""
    async with onceway.connect(url) as connection:
        publisher = await connection.publisher("bench")
        while not over.is_set():
            await publisher.put((b"%.3f " % (time.time() * 1000)).ljust(size, b"."))
            await asyncio.sleep(0.005)
        await publisher.drain()


async def ask(url: str, size: int, over: threading.Event, waits: list[float]) -> None:
    """One message after another; how long each took to be accepted, ms."""
    async with onceway.connect(url) as connection:
        publisher = await connection.publisher("bench")
        while not over.is_set():
            began = time.monotonic()
            await publisher.send(b"." * size)
            waits.append((time.monotonic() - began) * 1000)


def attached(query: StreamingQuery) -> bool:
    if (error := query.exception()) is not None:
        raise error
    return any(
        json.loads(source.latestOffset or "{}").get("state") == "receiving"
        for progress in query.recentProgress[-1:]
        for source in progress.sources
    )


def publish(url: str, rows: int, size: int, names: Sequence[str]) -> float:
    """Returns when all is settled: CPU seconds."""
    argv = [sys.executable, "-m", "onceway", "publish", "bench", "--url", url]
    argv += ["--count", str(rows // len(names)), "--size", str(size)]
    before = os.times()
    children = [subprocess.Popen([*argv, "--name", name], stdout=subprocess.DEVNULL) for name in names]
    codes = [child.wait(BOUND_S) for child in children]
    if any(codes):
        raise RuntimeError("onceway publish failed: see above")
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def cpu() -> dict[str, float]:
    """CPU seconds so far of this process's descendants, by part; of those that ended only what their parent counts."""
    spent: dict[str, float] = {}
    for pid in family(os.getpid())[1:]:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        part = next((name for mark, name in PARTS.items() if mark in command), None)
        if part is not None:
            own = int(fields[11]) + int(fields[12])
            ended = int(fields[13]) + int(fields[14]) if part == "workers" else 0
            spent[part] = spent.get(part, 0.0) + (own + ended) / os.sysconf("SC_CLK_TCK")
    return spent


def per_row(before: Mapping[str, float], after: Mapping[str, Any], rows: int) -> dict[str, float]:
    # Of a worker that was given up in between, what it had spent before is missing from `after`.
    spent = {part: max(0.0, after[part] - before.get(part, 0.0)) for part in PARTS.values() if part in after}
    return {part: seconds / rows * 1e6 for part, seconds in spent.items()}
