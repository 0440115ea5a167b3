"""Lines of histories into columns, on Spark's workers.  Whoever imports this has pyspark and pyarrow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import arrow_udf

from chaos.judge.audit_queries import DRIVEN
from chaos.judge.history import HistoryError, parse

LINE = pa.struct(
    {
        "h": pa.string(),  # history: its directory
        "file": pa.string(),
        "block": pa.int64(),  # blocks of a file are read apart; in a block, ids rise
        "id": pa.int64(),
        "t": pa.float64(),
        "op": pa.string(),
        "p": pa.string(),
        "s": pa.string(),
        "n": pa.int64(),
        "outcome": pa.string(),
        "raw": pa.binary(),  # where the driver wants it whole
        "wrong": pa.string(),  # why it is no line of a history
        "backwards": pa.string(),
    }
)
SQL_LINE = (
    "struct<h string, file string, block bigint, id bigint, t double, op string, p string, s string, n bigint, "
    "outcome string, raw binary, wrong string, backwards string>"
)


def parse_lines(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
    """(path, block, id, raw) into LINE.  A partition's lines come in the order of their ids, file after file."""
    last: tuple[str, int, float] = "", 0, 0.0
    for batch in batches:
        rows: list[tuple[Any, ...]] = []
        for path, block, number, raw in zip(*(column.to_pylist() for column in batch), strict=True):
            directory, _, file = unquote(path).rpartition("/")
            key = re.sub(r"^file:/+", "/", directory)
            try:
                event = parse(raw, file, 0)
            except HistoryError as error:
                wrong = str(error).removeprefix(f"{file}:0: ")
                rows.append((key, file, block, number, *[None] * 7, wrong, None))
                continue
            fields, backwards = event.fields, None
            if last[:2] == (path, block) and event.t < last[2]:
                backwards = f"t runs backwards, from {last[2]:.6f} to {event.t:.6f}"
            last = path, block, event.t
            named = [fields[role] if isinstance(fields.get(role), str) else None for role in "ps"]
            kept = raw if event.op in DRIVEN else None
            n = fields["n"] if event.op in ("send", "outcome", "receive", "accept") else None
            outcome = fields["outcome"] if event.op == "outcome" else None
            rows.append((key, file, block, number, float(event.t), event.op, *named, n, outcome, kept, None, backwards))
        columns = zip(*rows, strict=True) if rows else [()] * len(LINE)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, LINE, strict=True)]
        yield pa.StructArray.from_arrays(arrays, fields=list(LINE))


def parsed(frame: DataFrame) -> DataFrame:
    """Of (path, block, id, raw).  mapInArrow does the same and wants pandas for it."""
    line = arrow_udf(parse_lines, SQL_LINE).asNondeterministic()  # its answer depends on the line before
    return frame.select(line(*frame.columns).alias("line")).select("line.*")
