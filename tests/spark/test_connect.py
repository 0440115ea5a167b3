"""Spark Connect: a client without a JVM reads and writes topics through a server.

The server is the suite's own JVM; the client is a process with what `pyspark[connect]` asks for, which is kept apart
(`make interop` installs it): pandas would make each of Spark's Python processes slower (docs/decisions/dependencies.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.live.ports import free_port
from tests.live_fixture import LiveNetworks, live_network, pytest_runtest_makereport
from tests.running import ROOT
from tests.spark.networks import PATIENT, WITHIN_S, Publishing, bodies
from tests.spark.test_sink import Audience

__all__ = ["live_network", "pytest_runtest_makereport"]

PACKAGES = Path(os.environ.get("INTEROP", ""), "connect")
CLIENT = """
import json, sys
from pyspark.sql import SparkSession
import onceway.spark

place, url, home = sys.argv[1:]
spark = SparkSession.builder.remote(place).getOrCreate()
format = {"url": url, "topic": "orders", "subscription": "lake", "walLocation": home + "/log"}
for _ in range(2):  # the first run attaches
    orders = spark.readStream.format("onceway").options(**format).load()
    writer = orders.select("value").writeStream.format("onceway").trigger(availableNow=True)
    options = {"url": url, "topic": "copies", "outboxLocation": home + "/outbox", "checkpointLocation": home + "/query"}
    query = writer.options(**options).start()
    query.awaitTermination()
    print("ran", flush=True)
    sys.stdin.readline()
log = spark.read.format("onceway").load(home + "/log")
print(json.dumps(sorted(bytes(row.value).decode() for row in log.select("value").collect())))
batch = spark.range(3).selectExpr("CAST(id AS string) AS value").coalesce(1).write.format("onceway").mode("append")
batch.options(url=url, topic="batch").save(home + "/batch")
try:
    spark.readStream.format("onceway").options(**format, credit="none").load().schema
except Exception as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.skipif(not (PACKAGES / "grpc").is_dir(), reason="make interop installs the client of Spark Connect")
def test_a_client_of_spark_connect_reads_and_writes_streams_and_batches(
    spark: Any, live_network: LiveNetworks, tmp_path: Path
) -> None:
    network = live_network("a", settings=PATIENT)
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc.sc()
    place = f"127.0.0.1:{free_port()}"
    for part, value in zip(("address", "port"), place.split(":"), strict=True):
        context.conf().set(f"spark.connect.grpc.binding.{part}", value)
    service = jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(context)
    audience = Audience(network.urls(), "copies", "batch")
    try:
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, f"sc://{place}", network.urls(), str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, PACKAGES)))},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert client.stdout.readline() == "ran\n"
        publishing = Publishing(network.urls(), "orders", bodies(50))
        said, _ = client.communicate("\n\n", WITHIN_S)
        publishing.join()
    finally:
        audience.close()
        service.stop(jvm.scala.Option.empty(), jvm.scala.Option.empty())
    ran, log, error = said.splitlines()
    assert client.returncode == 0
    assert ran == "ran"
    published = sorted(body.decode() for body in bodies(50))
    assert json.loads(log) == published
    assert sorted(audience.values("copies")) == published
    assert audience.values("batch") == ["0", "1", "2"]
    assert 'OptionError: option credit: "none" is no whole number' in error
