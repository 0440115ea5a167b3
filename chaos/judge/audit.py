"""The judge's verdict from a PySpark job, for histories that are too large for one machine, or for many at once.

    onceway chaos audit DIRECTORY... [--json]     exit 0 ok, 1 violated, 3 unknown (the worst of all), 2 no history

It counts in SQL, apart from judge.py, which counts message by message: two who count by themselves and agree show more
than one.
Every line is parsed by history.py, on whichever machine holds it; audit_queries.py counts; the few rows that come back,
a handful per pair of publisher and subscriber, go to the same verdict.py as the judge's.  Needs pyspark and Java; where
`spark-submit` names no master, all cores of this machine.  On a cluster the workers need this package.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.judge import audit_queries
from chaos.judge.history import GLOB, Event, HistoryError, parse
from chaos.judge.judge import killed_client, lasting_faults
from chaos.judge.verdict import (
    EXAMPLES,
    EXIT_CODES,
    Judgement,
    PairTally,
    PublisherTally,
    RunFacts,
    Some,
    SubscriberTally,
    Verdict,
    conclude,
    declared,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

PLACE = "struct<t: double, file: string, block: bigint, id: bigint>"


def audit(spark: SparkSession, directories: Sequence[str | Path]) -> dict[str, Judgement | HistoryError]:
    """By directory as given.  A directory may be anything that Spark reads."""
    names = {_key(str(directory)): str(directory) for directory in directories}
    found = _Audit(spark, list(names)).judgements()
    return {name: found[key] for key, name in names.items()}


def _key(directory: str) -> str:
    return directory.rstrip("/") if "://" in directory else str(Path(directory).resolve())


def _escaped(path: str) -> str:
    """For whom it would be a pattern."""
    return re.sub(r"([][{}*?\\])", r"\\\1", path)


@dataclass(slots=True)
class _Driven:
    """Of one history, what the driver holds."""

    run: Event | None = None
    end: Event | None = None
    faults: list[tuple[Event, Row]] = field(default_factory=list)
    error: HistoryError | None = None


class _Audit:
    def __init__(self, spark: SparkSession, keys: list[str]) -> None:
        self.spark = spark
        self.keys = keys
        self.histories = {key: _Driven() for key in keys}

    def judgements(self) -> dict[str, Judgement | HistoryError]:
        present = [key for key in self.keys if self._exists(key)]
        for key in set(self.keys) - set(present):
            self.histories[key].error = HistoryError(f"{key}: no {GLOB} in it, so no history")
        for key in [key for key in present if "://" not in key and ":" in key]:
            present.remove(key)
            self.histories[key].error = HistoryError(f"{key}: Hadoop reads no path with a colon; rename the directory")
        if not present:
            return self._without_any()
        lines = self._lines(present).persist()
        try:
            self._find_errors(lines)
            self._drive(lines)
            return self._count(lines)
        finally:
            lines.unpersist()

    def _without_any(self) -> dict[str, Judgement | HistoryError]:
        return {key: one.error for key, one in self.histories.items() if one.error is not None}

    def _exists(self, key: str) -> bool:
        if "://" not in key:
            return any(Path(key).glob(GLOB))
        jvm: Any = self.spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"{key}/{GLOB}")
        files = path.getFileSystem(self.spark.sparkContext._jsc.hadoopConfiguration()).globStatus(path)
        return files is not None and len(files) > 0

    # lines
    def _lines(self, keys: Sequence[str]) -> DataFrame:
        from chaos.judge import audit_lines  # needs pyarrow

        paths = [key if "://" in key else _escaped(key) for key in keys]
        text = self.spark.read.text(paths, lineSep="\n", pathGlobFilter=GLOB)
        placed = text.selectExpr(
            "_metadata.file_path AS path",
            "_metadata.file_block_start AS block",
            "monotonically_increasing_id() AS id",
            "cast(value AS binary) AS raw",
        )
        return audit_lines.parsed(placed)

    def _find_errors(self, lines: DataFrame) -> None:
        """Malformed lines but a file's last one, which was torn; time that runs backwards; two lines of the run."""
        lines.createOrReplaceTempView("lines")
        rows = self.spark.sql(
            """
            WITH lasts AS (SELECT h, file, max(struct(block, id)) AS last FROM lines GROUP BY h, file),
                 wrongs AS (
                    SELECT h, file, min(struct(block, id, wrong, backwards)) AS it
                    FROM lines JOIN lasts USING (h, file)
                    WHERE backwards IS NOT NULL OR (wrong IS NOT NULL AND struct(block, id) < last) GROUP BY h, file)
            SELECT h, file, any_value(coalesce(it.wrong, it.backwards)) AS text, count(*) AS number
            FROM wrongs JOIN lines USING (h, file)
            WHERE struct(block, id) <= struct(it.block, it.id) GROUP BY h, file ORDER BY h, file"""
        )
        for row in rows.toLocalIterator():
            self._failed(row.h, f"{row.file}:{row.number}: {row.text}")
        blocks = self.spark.sql(
            "SELECT h, file, block, min(t) AS first, max(t) AS last FROM lines WHERE t IS NOT NULL "
            "GROUP BY h, file, block ORDER BY h, file, block"
        )
        before = None
        for row in blocks.toLocalIterator():
            if before is not None and (before.h, before.file) == (row.h, row.file) and row.first < before.last:
                self._failed(row.h, f"{row.file}: t runs backwards, from {before.last:.6f} to {row.first:.6f}")
            before = row

    def _failed(self, key: str, text: str) -> None:
        self.histories[key].error = self.histories[key].error or HistoryError(text)

    def _drive(self, lines: DataFrame) -> None:
        rows = lines.where(lines.op.isin(*audit_queries.DRIVEN)).select("h", "file", "block", "id", "t", "op", "raw")
        for row in sorted(rows.toLocalIterator(), key=lambda row: (row.h, row.t, row.file, row.block, row.id)):
            history, event = self.histories[row.h], parse(bytes(row.raw), row.file, 0)
            if row.op == "fault":
                history.faults.append((event, row))
            elif row.op == "run":
                if history.run is not None:
                    self._failed(row.h, f"{row.file}: a second line of the run")
                history.run = event
            else:
                if history.end is not None:
                    self._failed(row.h, f"{row.file}: a second end")
                history.end = event

    # counting
    def _count(self, lines: DataFrame) -> dict[str, Judgement | HistoryError]:
        spark = self.spark
        lines.where(lines.op.isNotNull()).selectExpr(
            "h", "struct(t, file, block, id) AS at", "op", "p", "s", "n", "outcome"
        ).createOrReplaceTempView("events")
        self._small_views()
        for name, query in audit_queries.VIEWS.items():
            spark.sql(query).createOrReplaceTempView(name)
        messages = spark.table("messages").persist()
        messages.createOrReplaceTempView("messages")
        spark.sql(audit_queries.FAULTY).createOrReplaceTempView("faulty")
        try:
            return self._conclude()
        finally:
            messages.unpersist()

    def _small_views(self) -> None:
        firsts, deaths, waits = [], [], []
        for key, history in self.histories.items():
            for index, (fault, row) in enumerate(history.faults):
                at = (row.t, row.file, row.block, row.id)
                if index == 0:
                    firsts.append((key, at))
                name = killed_client(fault.fields)
                if name is not None:
                    deaths.append((key, name, at))
            for role, clients in zip("ps", declared(history.run.fields if history.run else None), strict=True):
                waits += [(key, role, name, client.timeout_s) for name, client in clients.items()]
        for view, rows, schema in (
            ("first_faults", firsts, f"h string, at {PLACE}"),
            ("deaths", deaths, f"h string, s string, at {PLACE}"),
            ("waits", waits, "h string, role string, name string, timeout_s double"),
        ):
            self.spark.createDataFrame(rows, schema).createOrReplaceTempView(view)

    def _rows(self, query: str) -> Iterator[Row]:
        yield from self.spark.sql(query).toLocalIterator()

    def _conclude(self) -> dict[str, Judgement | HistoryError]:
        some: dict[tuple[str, str | None, str], dict[str, Some]] = defaultdict(dict)
        for row in self._rows(audit_queries.EXAMPLES.format(examples=EXAMPLES)):
            kinds = some[row.h, row.s, row.p]
            before = kinds.get(row.kind, Some())
            kinds[row.kind] = Some(row["count"], tuple(sorted((*before.examples, row.n))))
        pairs: dict[str, list[PairTally]] = defaultdict(list)
        for row in self._rows(audit_queries.PAIRS):
            tally = PairTally(row.s, row.p, row.due, row.received, row.accepted, **some[row.h, row.s, row.p])
            pairs[row.h].append(tally)
        publishers: dict[tuple[str, str], PublisherTally] = {}
        for row in self._rows(audit_queries.PUBLISHERS):
            publishers[row.h, row.p] = PublisherTally(
                row.p, True, closed=row.closed, told=row.told, told_without_cause=row.told_without_cause
            )
        for row in self._rows(audit_queries.PUBLISHED):
            one, kinds = publishers[row.h, row.p], some[row.h, None, row.p]
            one.sent, one.accepted = row.sent, row.accepted
            one.unresolved, one.unsent = kinds.get("unresolved", Some()), kinds.get("unsent", Some())
        subscribers: dict[str, list[SubscriberTally]] = defaultdict(list)
        for row in self._rows(audit_queries.SUBSCRIBERS):
            subscribers[row.h].append(SubscriberTally(row.s, True, row.lives, row.told, row.told_without_cause))
        spans = {row.h: row.last - row.first for row in self._rows(audit_queries.SPANS)}
        judgements: dict[str, Judgement | HistoryError] = {}
        for key, history in self.histories.items():
            judgements[key] = history.error or conclude(
                self._facts(history, spans.get(key, 0.0)),
                [one for (h, _), one in publishers.items() if h == key],
                subscribers[key],
                pairs[key],
            )
        return judgements

    def _facts(self, history: _Driven, seconds: float) -> RunFacts:
        faults = [fault.fields for fault, _ in history.faults]
        run, end = (event and event.fields for event in (history.run, history.end))
        return RunFacts(run, end, lasting_faults(faults, end), len(faults), seconds)


def audit_and_say(spark: SparkSession, directories: Sequence[str], *, as_json: bool) -> int:
    found = audit(spark, directories)
    judgements = {name: one for name, one in found.items() if isinstance(one, Judgement)}
    if as_json:
        shown = {name: one.as_dict() for name, one in judgements.items()}
        print(json.dumps(shown if len(found) > 1 else next(iter(shown.values()), {}), indent=2))
    for name, one in found.items():
        if isinstance(one, HistoryError):
            print(one, file=sys.stderr)
        elif not as_json:
            print(f"{name}: {one}" if len(found) > 1 else one)
    if len(judgements) < len(found):
        return 2
    verdicts = {one.verdict for one in judgements.values()}
    return EXIT_CODES[next(one for one in (Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.OK) if one in verdicts)]
