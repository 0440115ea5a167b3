"""The options of source and sink: their names, defaults and bounds, and every problem with the given ones.

Spark passes all keys in lower case and all values as text.  `OPTIONS` (of the source) and `SINK_OPTIONS` are the only
lists of them; docs/spark.md explains each, and is tested against both.  Durations and sizes are written as in a
topology file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from onceway.base.values import NO_PATTERN, format_duration, read_count, read_duration, read_size
from onceway.client.urls import parse_urls
from onceway.errors import UsageError
from onceway.spark import kafka
from onceway.spark.access import NO_ACCESS, Access, take_access
from onceway.spark.errors import OffsetError, OptionError, SinkOptionError
from onceway.spark.files import is_bucket, local_path

Form = Literal["text", "pattern", "file", "url", "topics", "topic", "path", "log", "count", "size", "duration",
               "retention", "word", "boolean", "offsets", "time", "write id", "ids"]  # fmt: skip
MIB: Final = 1 << 20
MOST_S: Final = 10 * 365 * 86_400.0  # threads and event loops wait no longer than some hundred years
_EXAMPLE: Final = 'an offset such as {"p":{"0":12345},"v":1,"wal":"..."}'
_ROUTERS: Final = "amqp://127.0.0.1:5672,127.0.0.1:5673"
_BUCKET: Final = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^/?#]+)+/?")
_WRITE_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}(?<!\.json)(?<!\.done)")


@dataclass(frozen=True, slots=True)
class Option:
    """One option as people write it; `default` in the same form (None: there is none)."""

    name: str
    field: str  # of SourceOptions, SinkOptions or Terms
    form: Form
    default: str | None
    least: float = 0
    most: float = 1 << 60
    example: str = ""
    words: tuple[str, ...] = ()  # the only values


# -- what Spark adds

CHECKPOINT: Final = "checkpointlocation"
_OF_SPARK: Final = frozenset(  # to the options that a user gives; tests/spark/test_what_spark_passes.py collects them
    (CHECKPOINT, "queryname", "location", "provider", "owner", "comment", "collation", "external",
     "is_managed_location")
)  # fmt: skip
_OF_TABLE: Final = "option."  # each option of a table once more, with this before its name


_AT_EACH_USE: Final = (
    "Spark does not tell those who read and write a table the options that it was created with.  Create it without "
    "(CREATE TABLE t USING onceway), and give them at each use, as in SELECT * FROM STREAM t WITH (topic = 'orders', "
    '...), spark.readStream.options(...).table("t"), df.writeStream.options(...).toTable("t")'
)


def adds(key: str) -> bool:
    """Whether Spark adds an option of this name by itself."""
    return key.lower() in _OF_SPARK or key.lower().startswith(_OF_TABLE)


def of_new_table(options: Mapping[str, str]) -> bool:
    """Whether these are what Spark passes at CREATE TABLE.  Raises OptionError where the user gives some there."""
    keys = {key.lower() for key in options}
    if "provider" not in keys:
        return False
    given = sorted(key.removeprefix(_OF_TABLE) for key in keys if key.startswith(_OF_TABLE))
    if "location" in keys and "is_managed_location" not in keys and "path" not in given:
        given.append("LOCATION")
    if given:
        raise OptionError(f"CREATE TABLE with options ({', '.join(given)}): {_AT_EACH_USE}")
    return True


# -- source and sink

_ACCESS: Final = (
    Option("ca", "ca", "file", None, example="/etc/onceway/ca.pem"),
    Option("certificate", "certificate", "file", None, example="/etc/onceway/spark.pem"),
    Option("key", "key", "file", None, example="/etc/onceway/spark.key"),
    Option("user", "user", "text", None, example="spark"),
    Option("passwordFile", "password_file", "file", None, example="/etc/onceway/spark.password"),
    Option("tokenFile", "token_file", "file", None, example="/run/onceway/token"),
    Option("mechanism", "mechanism", "text", None, example="EXTERNAL"),
)

# -- the source

OPTIONS: Final = (
    Option("url", "url", "url", None, example=_ROUTERS),
    Option("topic", "topics", "topics", None, example="orders"),
    Option("subscription", "subscription", "text", None, example="billing"),
    Option("walLocation", "location", "log", None, example="/data/billing-wal"),
    Option("topicPattern", "topic_pattern", "pattern", None, example=r"orders\..*"),
    Option("partitions", "partitions", "count", "1", 1, 1024),
    Option("changePartitions", "change_partitions", "boolean", "false"),
    Option("receivers", "receivers", "count", None, 1),
    Option("credit", "credit", "count", "20000", 1, (1 << 31) - 1),
    Option("groupRows", "group_rows", "count", "5000", 1),
    Option("groupMs", "group_ms", "count", "50"),
    Option("segmentBytes", "segment_bytes", "size", "64MiB", 64 << 10),
    Option("maxRowsPerTrigger", "max_rows", "count", None, 1),
    Option("maxBytesPerTrigger", "max_bytes", "size", None, 1),
    Option("minRowsPerTrigger", "min_rows", "count", None, 1),
    Option("maxTriggerDelay", "max_delay_s", "duration", "15m"),
    Option("minPartitions", "min_partitions", "count", None, 1),
    Option("maxTaskBytes", "max_task", "size", "8MiB", 64 << 10),
    Option("maxBacklogBytes", "max_backlog", "size", "4GiB", MIB),
    Option("walRetention", "retention", "retention", "10m"),
    Option("adopt", "adopt", "boolean", "false"),
    Option("onNewCheckpoint", "on_new_checkpoint", "word", "fail", words=("fail", "accept")),
    Option("failOnDataLoss", "fail_on_data_loss", "boolean", "true"),
    Option("acknowledgeLoss", "acknowledge_loss", "ids", None, example="3f2a9c1b"),
    Option("includeHeaders", "include_headers", "word", "false", words=("false", "true", "binary")),
    Option("transport", "transport", "word", "file", words=("file", "inline")),
    Option("lockTimeout", "lock_timeout_s", "duration", "10s"),
    Option("leaseTimeout", "lease_s", "duration", "10s", 1),
    Option("ingest", "ingest", "word", "driver", words=("driver", "apart")),
    Option("reader", "reader", "write id", "query"),
    Option("drainTimeout", "drain_timeout_s", "duration", "60s"),
    Option("startingOffsets", "starting", "offsets", "earliest", words=("earliest", "latest")),
    Option("startingTimestamp", "starting_us", "time", None, example="2026-11-25T06:00:00Z"),
    Option("endingOffsets", "ending", "offsets", "latest", words=("latest",)),
    *_ACCESS,
)
REQUIRED: Final = {"stream": ("url", "topic", "subscription", "walLocation"), "batch": ("walLocation",)}
PATTERN: Final = "topicPattern"  # in place of topic
_OTHER_NAMES: Final = {"servers": "url", "host": "url", "urls": "url", "topics": "topic", "address": "topic"}
_OTHER_SOURCE_NAMES: Final = {  # besides Kafka's (`kafka`)
    **_OTHER_NAMES, "name": "subscription", "wal": "walLocation", "paths": "walLocation",
    "numpartitions": "minPartitions",
    "startoffset": "startingOffsets", "endoffset": "endingOffsets",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The source's options as values: seconds, bytes, counts.  Pickled for workers, JSON for ingests."""

    location: str
    url: str = ""
    topics: tuple[str, ...] = ()
    subscription: str = ""
    partitions: int = 1
    change_partitions: bool = False
    receivers: int | None = None  # None: as many as partitions
    credit: int = 20_000
    group_rows: int = 5_000
    group_ms: int = 50
    segment_bytes: int = 64 * MIB
    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_s: float = 900.0
    min_partitions: int | None = None
    max_task: int = 8 * MIB
    max_backlog: int = 4096 * MIB
    retention: tuple[float, int] = (600.0, 0)  # seconds, bytes: kept while either asks for it
    adopt: bool = False
    on_new_checkpoint: Literal["fail", "accept"] = "fail"
    fail_on_data_loss: bool = True
    acknowledge_loss: tuple[str, ...] = ()
    include_headers: Literal["false", "true", "binary"] = "false"
    transport: Literal["file", "inline"] = "file"
    lock_timeout_s: float = 10.0
    lease_s: float = 10.0
    ingest: Literal["driver", "apart"] = "driver"
    reader: str = "query"
    drain_timeout_s: float = 60.0
    starting: str = "earliest"
    starting_us: int | None = None  # since 1970
    ending: str = "latest"
    topic_pattern: str | None = None
    access: Access = NO_ACCESS


def source_options(options: Mapping[str, str], use: Literal["stream", "batch", "either"]) -> SourceOptions:
    """Of a stream, of a batch read, or of what may become either (then nothing is required).

    Raises OptionError with all problems.
    """
    reading = _Reading("source", OPTIONS, "walLocation", _OTHER_SOURCE_NAMES)
    for key, text in options.items():
        if key.lower() == CHECKPOINT:  # which Spark does not give to a source
            reading.problems.append(f"option {key}: is unknown; it belongs to writeStream")
        else:
            reading.read(key, text)
    reading.require(tuple(name for name in REQUIRED.get(use, ()) if name != "topic" or PATTERN not in reading.given))
    if use == "batch":
        for name in ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger"):
            reading.refuse(name, "has no meaning in a batch read", "use startingOffsets and endingOffsets")
    if use == "stream":
        reading.refuse("endingOffsets", "has no meaning in a stream", "use it with spark.read")
    _check_together(reading)
    if reading.problems:
        raise OptionError("\n".join(reading.problems))
    values = reading.values
    values.setdefault("location", "")
    defaults = SourceOptions("")
    if is_bucket(values["location"]):
        # a group is a request and takes as long as the store's answer: fewer and larger ones
        values.setdefault("group_ms", 250)
        if "credit" not in values and "group_rows" not in values:
            values["credit"], values["group_rows"] = 100_000, 50_000
    if "credit" in values and "group_rows" not in values:
        values["group_rows"] = min(defaults.group_rows, values["credit"])
    if "group_rows" in values and "credit" not in values:
        values["credit"] = max(defaults.credit, values["group_rows"])
    values["access"] = take_access(values)
    return SourceOptions(**values)


def _check_together(reading: _Reading) -> None:
    """Options that are valid by themselves, but not with another."""
    values = reading.values
    if "startingOffsets" in reading.given:
        reading.refuse("startingTimestamp", "says where to begin, as startingOffsets does", "give one of them")

    if "topic" in reading.given:
        reading.refuse(PATTERN, "names topics, as topic does", "give one of them")

    def both(*fields: str) -> bool:
        return all(values.get(field) is not None for field in fields)

    if both("min_rows", "max_rows") and values["min_rows"] > values["max_rows"]:
        reading.problem(
            "minRowsPerTrigger",
            f"{values['min_rows']} is more than maxRowsPerTrigger {values['max_rows']}: no batch could ever be planned",
            "lower it",
        )
    if "minRowsPerTrigger" not in reading.given:
        reading.refuse("maxTriggerDelay", "waits for minRowsPerTrigger, which is not given", "give it, or neither")
    if both("group_rows", "credit") and values["group_rows"] > values["credit"]:
        reading.problem(
            "groupRows",
            f"{values['group_rows']} is more than credit {values['credit']}: no group could ever fill",
            "raise credit, best to several times groupRows",
        )
    backlog = values.get("max_backlog", SourceOptions("").max_backlog)
    if both("max_bytes") and values["max_bytes"] > backlog:
        reading.problem(
            "maxBytesPerTrigger",
            f"is more than maxBacklogBytes ({backlog} bytes), at which receiving stops",
            "raise maxBacklogBytes",
        )


# -- the sink

SINK_OPTIONS: Final = (
    Option("url", "url", "url", None, example=_ROUTERS),
    Option("outboxLocation", "location", "path", None, example="/data/outbox"),
    Option("topic", "topic", "topic", None, example="orders"),
    Option("name", "name", "text", None, example="till"),
    Option("publishTimeout", "timeout_s", "duration", "5m"),
    Option("lockTimeout", "lock_timeout_s", "duration", "30s"),
    Option("outboxRetention", "retention_s", "duration", "1h"),
    Option("onReject", "on_reject", "word", "fail", words=("fail", "ignore")),
    Option("onUndecided", "on_undecided", "word", "fail", words=("fail", "resend", "skip")),
    Option("onMissingBatches", "on_missing", "word", "fail", words=("fail", "ignore")),
    Option("writeId", "write_id", "write id", None, example="2026-11-21"),
    *_ACCESS,
)
_OTHER_SINK_NAMES: Final = {
    **_OTHER_NAMES, "container": "name", "outbox": "outboxLocation",
    "walretention": "outboxRetention", "txnversion": "writeId", "batchid": "writeId",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Terms:
    """How batches are published."""

    url: str
    name: str | None = None  # container-id; None: from the outbox's uuid
    timeout_s: float = 300.0  # without an outcome
    on_reject: Literal["fail", "ignore"] = "fail"
    on_undecided: Literal["fail", "resend", "skip"] = "fail"
    lock_timeout_s: float = 30.0
    retention_s: float = 3600.0
    on_missing: Literal["fail", "ignore"] = "fail"  # where the outbox does not know batches before this one
    checkpoint: str | None = None  # the query's, for messages
    access: Access = NO_ACCESS


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The sink's options as values; picklable."""

    location: str
    topic: str | None
    terms: Terms
    write_id: str | None


def sink_options(options: Mapping[str, str], use: Literal["stream", "batch"]) -> SinkOptions:
    """Raises SinkOptionError with all problems, one a line."""
    reading = _Reading("sink", SINK_OPTIONS, "outboxLocation", _OTHER_SINK_NAMES)
    for key, text in options.items():
        reading.read(key, text)
    reading.require(("url", "outboxLocation"))
    if use == "stream":
        reading.refuse("writeId", "has no meaning in a stream, whose batches have numbers", "leave it out")
    else:
        reading.refuse("onMissingBatches", "has no meaning in a batch write, which has no number", "leave it out")
    if reading.problems:
        raise SinkOptionError("\n".join(reading.problems))
    values = reading.values
    location, topic, write_id = (values.pop(name, None) for name in ("location", "topic", "write_id"))
    access = take_access(values)
    checkpoint = next((text for key, text in options.items() if key.lower() == CHECKPOINT), None)
    return SinkOptions(location, topic, Terms(**values, checkpoint=checkpoint, access=access), write_id)


# -- reading


@dataclass(slots=True)
class _Reading:
    """The options read so far, and every problem with them."""

    kind: kafka.Use
    options: tuple[Option, ...]
    path: str  # the option that load(), save() and start() call `path`
    other_names: Mapping[str, str]  # in lower case
    values: dict[str, Any] = field(default_factory=dict)  # by field
    given: dict[str, str] = field(default_factory=dict)  # by name
    problems: list[str] = field(default_factory=list)

    def problem(self, name: str, what: str, remedy: str) -> None:
        self.problems.append(f"option {name}: {what}; {remedy}")

    def refuse(self, name: str, what: str, remedy: str) -> None:
        """A problem where the option is given, and valid by itself."""
        if name in self.given and not any(problem.startswith(f"option {name}:") for problem in self.problems):
            self.problem(name, what, remedy)

    def require(self, names: tuple[str, ...]) -> None:
        if names and not self.given:
            self.problems.append(f"no option is given.  If this is a table: {_AT_EACH_USE}")
        for option in self.options:
            if option.name in names and option.name not in self.given:
                remedy = f'give it, as in .option("{option.name}", "{option.example}")'
                self.problem(option.name, "is missing", remedy)

    def read(self, key: str, text: str) -> None:
        by_key = {option.name.lower(): option for option in self.options}
        option = by_key.get(self.path.lower() if key.lower() == "path" else key.lower())
        if option is None and adds(key):
            return
        if option is None:
            self.problem(key, "is unknown", self._meant(key.lower()))
            return
        if self.given.get(option.name, text) != text:
            self.problem(option.name, "is given twice, as an option and as a path", "leave one out")
            return
        self.given[option.name] = text
        try:
            self.values[option.field] = _value(option, text.strip())
        except UsageError as error:
            self.problems.append(f"option {option.name}: {error}")
        except ValueError as error:
            self.problems.append(f"option {option.name}: {'; '.join(map(str, error.args))}")

    def _meant(self, key: str) -> str:
        """The remedy for an unknown key: the likely name, or all names."""
        if (of_kafka := kafka.counterpart(key)) is not None:
            return of_kafka.answer(self.kind)
        by_key = {option.name.lower(): option.name for option in self.options}
        name = self.other_names.get(key)
        if name is None:
            close = difflib.get_close_matches(key, by_key, 1, 0.6)
            name = by_key[close[0]] if close else None
        return f'did you mean "{name}"?' if name is not None else f"known are {', '.join(by_key.values())}"


def _value(option: Option, text: str) -> Any:
    """Raises UsageError, or ValueError with what is wrong and a remedy."""
    if not text:
        raise ValueError("is empty", f"write for example {option.example or option.default or '1000'}")
    if "\0" in text:
        raise ValueError("has the character NUL", "leave it out")
    match option.form:
        case "word" | "boolean":
            words = option.words or ("true", "false")
            if text.lower() not in words:
                raise ValueError(f'"{text}" is none of {", ".join(words)}', "write one of them")
            return text.lower() == "true" if option.form == "boolean" else text.lower()
        case "count" | "size" | "duration":
            return _quantity(option, text)
        case "retention":
            return _retention(text)
        case "offsets":
            return _offsets(option, text)
        case "time":
            return _time(text)
        case "log" if is_bucket(text):
            if not _BUCKET.fullmatch(text):
                raise ValueError(f'"{text}" names no place in a bucket', "write it as in s3://logs/orders")
            return text.rstrip("/")
        case "file":
            return str(Path(text).absolute())
        case "path" | "log":
            return _location(text)
        case "topics":
            return _topics(text)
        case "ids":
            return tuple(part.strip() for part in text.split(","))
        case "url":
            parse_urls(text)
        case "pattern":
            try:
                re.compile(text)
            except NO_PATTERN as error:
                raise ValueError(f'"{text}" is no regular expression ({error})', r"write it as in orders\..*") from None
        case "topic" if "," in text:
            remedy = "write one, or give each row its own in the column topic"
            raise ValueError(f'"{text}" names several topics', remedy)
        case "write id" if not _WRITE_ID.fullmatch(text):
            remedy = 'write letters, digits, ".", "_" and "-", at most 100'
            raise ValueError(f'"{text}" cannot be a file name', remedy)
    return text


def _quantity(option: Option, text: str) -> float | int:
    value: float | int
    if option.form == "duration":
        value = read_duration(text)
    elif option.form == "size" and not text.isdecimal():
        value = read_size(text)
    else:
        value = read_count(text)  # also a size: the option is called ...Bytes, so a plain number needs no unit
    if value < option.least:
        least = format_duration(option.least) if option.form == "duration" else f"{option.least:.0f}"
        raise ValueError(f'"{text}" is too little', f"write at least {least}")
    most = min(option.most, MOST_S) if option.form == "duration" else option.most
    if value > most:
        most_text = format_duration(most) if option.form == "duration" else f"{most:.0f}"
        raise ValueError(f'"{text}" is too much', f"write at most {most_text}")
    return value


def _retention(text: str) -> tuple[float, int]:
    parts = [part.strip() for part in text.split(",")]
    sizes = [read_size(part) for part in parts if part.endswith("B")]
    durations = [read_duration(part) for part in parts if not part.endswith("B")]
    if len(sizes) > 1 or len(durations) > 1:
        raise ValueError(f'"{text}" says the same twice', "write a duration, a size, or one of each as in 10m,1GiB")
    return sum(durations), sum(sizes)


def _time(text: str) -> int:
    """Microseconds since 1970, of ISO 8601 (UTC unless it names a zone) or milliseconds."""
    if text.isdecimal():
        return int(text) * 1000
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        remedy = "write it as in 2026-11-25T06:00:00Z, or in milliseconds since 1970"
        raise ValueError(f'"{text}" is no time', remedy) from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1e6)


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(part.strip() for part in text.split(","))
    if not all(topics):
        raise ValueError(f'"{text}" names an empty topic', "write topics separated by single commas")
    twice = [topic for at, topic in enumerate(topics) if topic in topics[:at]]
    if twice:
        raise ValueError(f'"{twice[0]}" is there twice', "name each topic once")
    return topics


def _location(text: str) -> str:
    """An absolute path: ingests and executors have other working directories."""
    path = local_path(text)
    if path is None:
        raise ValueError(
            f'"{text}" is no directory of this machine',
            "it is written with fsync: give a local path, or one on a shared POSIX file system (a log "
            "may be at s3://bucket/prefix, too, an outbox may not)",
        )
    return path


def _offsets(option: Option, text: str) -> str:
    if text.lower() in option.words:
        return text.lower()
    if not text.startswith("{"):
        raise ValueError(f'"{text}" is no position', f"write {' or '.join(option.words)}, or {_EXAMPLE}")
    from onceway.spark.source.stream import by_topics, offset_of  # not above: Spark's search for formats imports this

    try:
        if by_topics(text) is None:
            offset_of(text)
    except OffsetError as error:
        raise ValueError(str(error).partition(";")[0], f"write {_EXAMPLE}") from error
    return text
