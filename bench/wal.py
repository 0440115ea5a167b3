"""`python -m bench wal`: what the Spark source's write-ahead log costs, without Spark and without a network.

Rows are what a router delivers: a body with the publisher's identity in front.  Appending is what the ingest does
with a batch; reading is what executors do, for the value alone and for all columns.  CPU seconds are those of the
process, all threads; the rates depend on who else uses machine and disk.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence

from amqp10.annotations import with_message_annotations
from amqp10.codec import encode_value
from amqp10.sections import Message, Properties
from amqp10.types import Symbol, UInt
from onceway.client.bodies import encode_body
from onceway.spark.source.journal import WalJournal
from onceway.spark.wal import SlotReader, Wal, WalSettings
from router.names import PUBLISHER_ANNOTATION

MADE = 500_000
IDENTITY = encode_value(["publisher-1", "orders"])


def plain(first: int, rows: int, size: int) -> list[bytes]:
    """Bodies of this size, and nothing else."""
    return with_message_annotations(
        [encode_body(b"%0*d" % (size, number)) for number in range(first, first + rows)], PUBLISHER_ANNOTATION, IDENTITY
    )


def identified(first: int, rows: int, size: int) -> list[bytes]:
    """With a message-id and a time of creation each."""
    return with_message_annotations(
        [
            Message(
                b"%0*d" % (size, number),
                properties=Properties(message_id=f"order-{number}", creation_time=1_700_000_000_000 + number),
            ).encode()
            for number in range(first, first + rows)
        ],
        PUBLISHER_ANNOTATION,
        IDENTITY,
    )


def described(first: int, rows: int, size: int) -> list[bytes]:
    """With a key, an id, a time of creation, and three application properties of which two differ."""
    payloads = [
        Message(
            b"%0*d" % (size, number),
            message_annotations={Symbol("x-opt-partition-key"): f"customer-{number * 7919 % 100_003}"},
            properties=Properties(
                message_id=uuid.UUID(int=number << 64 | 0x4000_8000_0000_0000_0000),
                content_type=Symbol("application/json"),
                creation_time=1_700_000_000_000 + number,
            ),
            application_properties={
                "trace": f"{number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF:x}",
                "attempt": UInt(number % 300),
                "region": ("eu-west", "us-east", "ap-south-2")[number % 3],
            },
        ).encode()
        for number in range(first, first + rows)
    ]
    return with_message_annotations(payloads, PUBLISHER_ANNOTATION, IDENTITY)


def append(location: str, kind: Callable[[int, int, int], list[bytes]], options: argparse.Namespace) -> SlotReader:
    """Appends all rows, batch by batch as a link would bring them, each accepted and settled when it is durable."""
    wal = Wal.open_or_create(location, "bench", ["orders"])
    moved = threading.Condition()

    def wake(*_: object) -> None:
        with moved:
            moved.notify_all()

    journal = WalJournal(wal, None, WalSettings(group_rows=options.group), wake)
    journal.open(None, wake)
    writer = journal.writer(0)
    part = journal.subscriber("orders", "bench")
    part.attach(1, 1)
    part.attached(1)
    batch = options.batch
    made = max(1, min(options.rows, MADE) // batch)  # their payloads come again and again
    batches = [kind(first * batch, batch, options.size) for first in range(made)]
    waiting: list[tuple[int, list[bytes]]] = []
    wall, cpu = time.perf_counter(), time.process_time()
    for first in range(0, options.rows, batch):
        payloads, tags = batches[first // batch % made], [b"%08d" % number for number in range(first, first + batch)]
        with moved:
            while writer.end - writer.durable + batch > options.credit:
                moved.wait()
        waiting.append((writer.append(payloads, tags), tags))
        while waiting and waiting[0][0] <= writer.durable:
            part.settle(waiting.pop(0)[1])
    writer.drain()
    _report(f"append, {kind.__name__}", options.rows, time.perf_counter() - wall, time.process_time() - cpu)
    journal.close()
    return wal.slot(0)


def recover(location: str, rows: int) -> None:
    """As a process does that begins after a kill -9: finds the log's end and what it has to present to the network."""
    wal = Wal.open(location)
    wall, cpu = time.perf_counter(), time.process_time()
    journal = WalJournal(wal, None, WalSettings(), lambda writer: None)
    journal.open(None, lambda: None)
    part = journal.subscriber("orders", "bench")
    part.attach(2, part.record.born)
    part.attached(2)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert journal.writer(0).end == rows
    print(f"{'recover':40} {rows:12,} rows in {wall:.3f} s, {cpu:.3f} s CPU, {len(part.record.unsettled)} to present")
    journal.close()


def read(reader: SlotReader, name: str, columns: Sequence[str] | None) -> None:
    end = reader.end()
    wall, cpu = time.perf_counter(), time.process_time()
    rows = sum(batch.num_rows for batch in reader.read(0, end, columns))
    assert rows == end
    _report(f"read, {name}, {'all columns' if columns is None else ', '.join(columns)}", rows,
            time.perf_counter() - wall, time.process_time() - cpu)  # fmt: skip


def _report(what: str, rows: int, wall_s: float, cpu_s: float) -> None:
    print(f"{what:40} {rows / wall_s:12,.0f} rows/s {cpu_s / rows * 1e6:8.2f} us CPU a row")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench wal", description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--batch", type=int, default=500, help="rows that a link brings at a time")
    parser.add_argument("--group", type=int, default=WalSettings().group_rows, help="rows to an fdatasync, at most")
    parser.add_argument("--credit", type=int, default=20_000, help="rows appended and not durable, at most")
    parser.add_argument("--kinds", type=int, default=3, help="of messages: plain ones, with an id, with more")
    parser.add_argument("--directory", help="where to write; on the disk to be measured")
    options = parser.parse_args(arguments)
    print(f"{options.rows:,} rows of {options.size} bytes, groups of {options.group:,}, on {os.cpu_count()} cores")
    for kind in (plain, identified, described)[: options.kinds]:
        with tempfile.TemporaryDirectory(dir=options.directory) as directory:
            reader = append(os.path.join(directory, "wal"), kind, options)
            recover(os.path.join(directory, "wal"), options.rows)
            read(reader, kind.__name__, ["value"])
            read(reader, kind.__name__, None)
    return 0
