"""A driver that a test kills: `spark-submit ... driver.py URLS TOPIC DIRECTORY` runs examples/spark/lake.py.

Says a line for each batch that is done.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyspark

from onceway.spark.session import session
from tests.running import ROOT

QUICK = {  # for sessions that live for a minute: compiling costs more than it saves
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


MASTER = "local[1]"


def _example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lake", ROOT / "examples" / "spark" / "lake.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lake = _example()


def start(spark: Any, urls: str, topic: str, directory: Path, rows: int = 500, **trigger: Any) -> Any:
    """The query from `directory`'s log and checkpoint into `directory`/lake, in batches of as many."""
    return lake.start(spark, _options(urls, topic, directory, rows), str(directory), **trigger)


def _options(urls: str, topic: str, directory: Path, rows: int) -> dict[str, str]:
    return {
        "url": urls,
        "topic": topic,
        "subscription": "billing",
        "walLocation": str(directory / "wal"),
        "maxRowsPerTrigger": str(rows),
        "lockTimeout": "60s",  # the ingest of a query that was killed takes its time
    }


def command(*arguments: str) -> list[str]:
    settings = {**QUICK, "spark.master": MASTER, "spark.driver.memory": "512m"}
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *given, __file__, *arguments]


def main(urls: str, topic: str, directory: str) -> None:
    assert session("driver").sparkContext.master == MASTER  # as spark-submit has it
    file = Path(directory, "lake.yaml")
    file.write_text(json.dumps(_options(urls, topic, Path(directory), 500)))  # JSON is YAML
    sys.argv = ["lake.py", str(file), directory, "--every", "0 seconds"]
    lake.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
