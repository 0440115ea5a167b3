"""Receivers apart from Spark: `onceway ingest FILE`, and what there is to see of a log (`onceway ingest status`).

The same processes as a query's own (`ingests`), one for each slot, without a query.  Who holds a slot's lease fills it;
the others wait.  So any number of hosts may run the same file, and each slot goes on at another one when its host dies
or stands still.  What is kept is a matter of time and bytes (`walRetention`), not of who has read it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import yaml
from prometheus_client import CollectorRegistry, start_http_server

from onceway.base import waits
from onceway.base.metrics import Collector, Metric, Row
from onceway.errors import UsageError
from onceway.spark.errors import OptionError
from onceway.spark.options import PATTERN, SourceOptions, source_options
from onceway.spark.source.ingests import Ingests, say
from onceway.spark.source.progress import Progress
from onceway.spark.source.topics import Topics, matching
from onceway.spark.wal import SlotReader, Wal

LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A file, read."""

    options: SourceOptions
    slots: tuple[int, ...] | None = None  # None: all
    metrics: tuple[str, int] | None = None  # host, port


def read_plan(path: str) -> Plan:
    """Raises OptionError with all problems; UsageError where it is no YAML mapping."""
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.safe_load(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{path}: is no mapping of options; write for example 'topic: orders'")
    problems: list[str] = []
    slots, metrics = content.pop("slots", None), content.pop("metrics", None)
    if slots is not None and not (isinstance(slots, list) and slots and all(type(each) is int for each in slots)):
        problems.append(f"slots: {slots!r} is no list of numbers; write for example [0, 1], or leave it out for all")
    place = _place(metrics, problems)
    given = {str(key): _text(value) for key, value in content.items()}
    if "walRetention" not in content:
        problems.append(
            "walRetention: is missing; say how long rows are kept, as in 24h, since no query holds them back"
        )
    if given.pop("ingest", "apart") != "apart":
        problems.append("ingest: is apart here; leave it out")
    if slots is not None and PATTERN in given:
        problems.append(f"slots: new topics have new slots; leave it out, or name the topics in place of {PATTERN}")
    try:
        options = source_options(given, "stream")
    except OptionError as error:
        problems += str(error).splitlines()
    if problems:
        raise OptionError("\n".join(f"{path}: {problem}" for problem in problems))
    # a process that waits for its lease waits for as long as it takes
    options = replace(options, ingest="apart", lock_timeout_s=1e9)
    return Plan(options, None if slots is None else tuple(slots), place)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _place(text: Any, problems: list[str]) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = str(text).rpartition(":")
    if not host or not port.isdecimal():
        problems.append(f"metrics: {text!r} is no host:port; write for example 127.0.0.1:9464")
        return None
    return host.strip("[]"), int(port)


class Service:
    """The receivers of one host."""

    def __init__(self, plan: Plan) -> None:
        options = self._options = plan.options
        self.wal = Wal.open_or_create(
            options.location, options.subscription, options.topics, partitions=options.partitions
        )
        unknown = [slot for slot in plan.slots or () if slot not in self.wal.slots]
        if unknown:
            raise OptionError(f"slots: {unknown[0]} is none of this log's, which are 0 to {max(self.wal.slots)}")
        self._topics: Topics | None = None
        if options.topic_pattern is not None:
            self._topics = Topics(options)
            options = replace(options, topics=tuple(matching(options.topic_pattern, set(self.wal.slots.values()))))
        self._received = {slot for topic in options.topics for slot in self.wal.slots_of(topic)}
        self.ingests = Ingests(options, self.wal, plan.slots)
        self._metrics = plan.metrics
        self._stop = threading.Event()

    def run(self) -> None:
        """Until `stop`.  Raises IngestFailed where a receiver dies again and again; OSError where a port is taken."""
        server = None
        if self._metrics is not None:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(Collector(METRICS, lambda: _slots_of(self.wal)))
            server, _ = start_http_server(self._metrics[1], self._metrics[0], registry)
        self.ingests.begin()
        if self._topics is not None:
            self._topics.begin()
        try:
            while not waits.PAUSE(self._stop).wait(LOOK_S):
                self.ingests.check()
                if self._topics is not None:
                    self._take_up(self._topics.found())
        finally:
            if self._topics is not None:
                self._topics.stop()
            self.ingests.stop()
            if server is not None:
                server.shutdown()
                server.server_close()

    def _take_up(self, topics: Sequence[str]) -> None:
        """Those that are new, here or at another host: all hosts find the same, and each slot has one lease."""
        known = {self.wal.slots[slot] for slot in self._received}
        if new := [topic for topic in topics if topic not in known]:
            options = self._options
            self.wal = Wal.open_or_create(options.location, options.subscription, new, partitions=options.partitions)
            slots = [slot for topic in new for slot in self.wal.slots_of(topic)]
            self._received.update(slots)
            self.ingests.add(self.wal, slots)
            say(f"topics that match {options.topic_pattern}: {', '.join(new)} added")

    def stop(self) -> None:
        self._stop.set()


# -- what there is to see


def status_of(wal: Wal) -> dict[str, Any]:
    """The log's slots and its readers' lag.  A reader's position is the end of its last batch, where it waits for rows,
    else that of the one before (Spark commits a batch when it plans the next); `batch` has what runs now, where that
    takes long."""
    readers = {name: Progress(wal, name) for name in wal.readers()}
    slots = [_slot_status(wal, wal.slot(number), readers) for number in wal.slots]
    return {"log": wal.location, "subscription": wal.subscription, "partitions": wal.partitions, "slots": slots}


def _slot_status(wal: Wal, reader: SlotReader, readers: dict[str, Progress]) -> dict[str, Any]:
    number, start, end = reader.number, reader.start(), reader.end()
    lags: dict[str, dict[str, Any]] = {}
    for name, progress in readers.items():
        at = min(max((progress.waits or progress.committed or {}).get(number, start), start), end)
        lags[name] = {"position": at, "rows": end - at, "bytes": reader.bytes_between(at, end)}
        if progress.planned is not None:
            ends, since = progress.planned
            lags[name]["batch"] = {"rows": max(0, ends.get(number, at) - at), "since": since}
    return {
        "slot": number,
        "topic": wal.slots[number],
        "partition": wal.partition_of(number) if number not in wal.before else wal.link_of(number),
        "holder": wal.holder(number) or wal.locked_by(number),
        "start": start,
        "end": end,
        "bytes": reader.bytes_between(start, end),
        "readers": lags,
    }


Slots = list[tuple[Sequence[str], dict[str, Any]]]
"""Topic and partition of each slot, and its status."""


def _slots_of(wal: Wal) -> Slots:
    """With `received` where somebody is to receive it: not of slots from before the topic had as many partitions."""
    return [
        ([slot["topic"], str(slot["partition"])], {**slot, "received": slot["slot"] not in wal.before})
        for slot in status_of(wal)["slots"]
    ]


def _of_slots(read: Callable[[dict[str, Any]], float]) -> Callable[[Slots], Iterable[Row]]:
    return lambda slots: ((of, (read(slot),)) for of, slot in slots)


def _of_readers(read: Callable[[dict[str, Any]], float]) -> Callable[[Slots], Iterable[Row]]:
    return lambda slots: (
        ((*of, name), (read(reader),)) for of, slot in slots for name, reader in slot["readers"].items()
    )


OF_SLOT: Final = ("topic", "partition")
OF_READER: Final = (*OF_SLOT, "reader")
METRICS: Final[tuple[Metric[Slots], ...]] = (
    Metric("onceway_ingest_held", "gauge", "1 while a receiver holds this partition's lease",
           lambda slots: ((of, (float(bool(slot["holder"])),)) for of, slot in slots if slot["received"]), OF_SLOT),
    Metric("onceway_ingest_rows", "gauge", "Rows received since the log began", _of_slots(lambda slot: slot["end"]),
           OF_SLOT),
    Metric("onceway_ingest_log_bytes", "gauge", "Payload in the log", _of_slots(lambda slot: slot["bytes"]), OF_SLOT),
    Metric("onceway_ingest_reader_lag_rows", "gauge", "Rows that a query has not committed",
           _of_readers(lambda reader: reader["rows"]), OF_READER),
    Metric("onceway_ingest_reader_lag_bytes", "gauge", "Payload of these rows",
           _of_readers(lambda reader: reader["bytes"]), OF_READER),
    Metric("onceway_ingest_reader_batch_rows", "gauge", "Rows of a batch that runs for some seconds",
           _of_readers(lambda reader: reader["batch"]["rows"] if "batch" in reader else 0), OF_READER),
)  # fmt: skip


def table_of(status: dict[str, Any], now: float) -> Sequence[str]:
    """Lines for people."""
    lines = [f"{status['log']}  subscription {status['subscription']}"]
    for slot in status["slots"]:
        alone = status["partitions"] == 1 and slot["partition"] == 0
        name = slot["topic"] if alone else f"{slot['topic']}[{slot['partition']}]"
        holder = slot["holder"] or "nobody"
        lines.append(f"  {name}  rows {slot['start']} to {slot['end']}, {slot['bytes']} bytes, received by {holder}")
        for reader, lag in slot["readers"].items():
            line = f"    {reader}  at {lag['position']}, {lag['rows']} rows and {lag['bytes']} bytes behind"
            if batch := lag.get("batch"):
                line += f"; a batch with {batch['rows']} of them began {now - batch['since']:.0f} s ago"
            lines.append(line)
    return lines
