"""The source's options: what each is called, its default, its bounds, and everything that is wrong with what was given.

Spark hands all keys over in lower case and all values as text.  `OPTIONS` is the one list of them (docs/spark.md is
tested against it); durations and sizes are written as in a topology file.  The sink has options of its own.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from onceway.client.urls import parse_urls
from onceway.errors import UsageError
from onceway.spark.errors import OptionError
from onceway.spark.offsets import OffsetError, offset_of
from onceway.topology.values import format_duration, read_count, read_duration, read_size

Form = Literal["text", "count", "size", "duration", "retention", "boolean", "offsets", "transport"]
Transport = Literal["file", "inline"]
MIB: Final = 1 << 20
_EXAMPLE: Final = 'an offset such as {"p":{"0":12345},"v":1,"wal":"..."}'
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?=/)")


@dataclass(frozen=True, slots=True)
class Option:
    """One option as people write it; `default` in the same form (None: there is none)."""

    name: str
    form: Form
    default: str | None
    meaning: str
    least: float = 0
    most: float = 1 << 60
    example: str = ""  # for those that must be given
    field: str = ""  # of SourceOptions


OPTIONS: Final = (
    Option(
        "url", "text", None, "routers, separated by commas", example="amqp://127.0.0.1:5671,127.0.0.1:5672", field="url"
    ),
    Option("topic", "text", None, "topics, separated by commas", example="orders", field="topics"),
    Option("subscription", "text", None, "name of the subscription", example="billing", field="subscription"),
    Option(
        "walLocation", "text", None, "directory of the write-ahead log", example="/data/billing-wal", field="location"
    ),
    Option("receivers", "count", "1", "receiving processes at most; topics are spread over them", 1, field="receivers"),
    Option("credit", "count", "20000", "messages of a topic under way to the log at most", 1, (1 << 31) - 1,
           field="credit"),
    Option("groupRows", "count", "5000", "rows in one group commit at most", 1, field="group_rows"),
    Option("groupMs", "count", "50", "milliseconds that a group waits to fill at most", 0, field="group_ms"),
    Option("segmentBytes", "size", "64MiB", "size of the log's files", 64 << 10, field="segment_bytes"),
    Option("maxRowsPerTrigger", "count", None, "rows in a batch at most", 1, field="max_rows"),
    Option("maxBytesPerTrigger", "size", None, "bytes of the log in a batch at most", 1, field="max_bytes"),
    Option("minRowsPerTrigger", "count", None, "rows to wait for before a batch", 1, field="min_rows"),
    Option("maxTriggerDelay", "duration", "15m", "how long to wait for them", 0, field="max_delay_s"),
    Option("minPartitions", "count", None, "partitions of a batch at least", 1, field="min_partitions"),
    Option("maxBacklogBytes", "size", "4GiB", "unprocessed log at which no more is received", MIB, field="max_backlog"),
    Option("walRetention", "retention", "10m", "processed rows kept: a duration, a size, or both as in 10m,1GiB",
           field="retention"),
    Option("failOnDataLoss", "boolean", "true", "fail where messages may be missing", field="fail_on_data_loss"),
    Option("includeHeaders", "boolean", "false", "a column with the application properties", field="include_headers"),
    Option("transport", "transport", "file", "file, or inline where executors cannot read walLocation",
           field="transport"),
    Option("lockTimeout", "duration", "10s", "how long to wait for another query to let go of the log", 0,
           field="lock_timeout_s"),
    Option("drainTimeout", "duration", "60s", "how long Trigger.AvailableNow receives at most", 0,
           field="drain_timeout_s"),
    Option("startingOffsets", "offsets", "earliest", "earliest, latest, or an offset as JSON", field="starting"),
    Option("endingOffsets", "offsets", "latest", "of a batch read: latest, or an offset as JSON", field="ending"),
)  # fmt: skip
REQUIRED: Final = {"stream": ("url", "topic", "subscription", "walLocation"), "batch": ("walLocation",)}
_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}
_OTHERS_WORDS: Final = {
    "kafka.bootstrap.servers": "url", "servers": "url", "host": "url", "urls": "url",
    "subscribe": "topic", "topics": "topic", "address": "topic", "group.id": "subscription", "name": "subscription",
    "maxoffsetspertrigger": "maxRowsPerTrigger", "minoffsetspertrigger": "minRowsPerTrigger",
    "wal": "walLocation", "numpartitions": "minPartitions",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The same as values: seconds, bytes, counts.  Picklable: it goes to workers and, as JSON, to the ingest."""

    location: str
    url: str = ""
    topics: tuple[str, ...] = ()
    subscription: str = ""
    receivers: int = 1
    credit: int = 20_000
    group_rows: int = 5_000
    group_ms: int = 50
    segment_bytes: int = 64 * MIB
    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    max_delay_s: float = 900.0
    min_partitions: int | None = None
    max_backlog: int = 4096 * MIB
    retention: tuple[float, int] = (600.0, 0)  # seconds, octets: kept while either asks for it
    fail_on_data_loss: bool = True
    include_headers: bool = False
    transport: Transport = "file"
    lock_timeout_s: float = 10.0
    drain_timeout_s: float = 60.0
    starting: str = "earliest"
    ending: str = "latest"

    @property
    def limited(self) -> bool:
        """Some batch may be smaller than what there is."""
        return self.max_rows is not None or self.max_bytes is not None or self.min_rows is not None


@dataclass(slots=True)
class _Reading:
    """What has been read so far, and every problem with it."""

    values: dict[str, Any] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)  # name -> text
    problems: list[str] = field(default_factory=list)

    def problem(self, name: str, what: str, remedy: str) -> None:
        self.problems.append(f"option {name}: {what}; {remedy}")

    def has(self, *names: str) -> bool:
        return all(name in self.given for name in names)


def source_options(options: Mapping[str, str], use: Literal["stream", "batch", "either"]) -> SourceOptions:
    """Of a stream, of a batch read, or of what may become either (then nothing has to be there).

    Raises OptionError with all problems.
    """
    reading = _Reading()
    for key, text in options.items():
        _read(reading, key, text)
    for name in REQUIRED.get(use, ()):
        if name not in reading.given:
            example = _BY_KEY[name.lower()].example
            reading.problem(name, "is missing", f'give it, as in .option("{name}", "{example}")')
    if use == "batch":
        for name in ("maxRowsPerTrigger", "maxBytesPerTrigger", "minRowsPerTrigger"):
            if reading.has(name):
                reading.problem(name, "has no meaning in a batch read", "use startingOffsets and endingOffsets")
    if use == "stream" and reading.has("endingOffsets"):
        reading.problem("endingOffsets", "has no meaning in a stream", "use it with spark.read")
    _check_together(reading)
    if reading.problems:
        raise OptionError("\n".join(reading.problems))
    values = reading.values
    values.setdefault("location", "")
    if "credit" in values and "group_rows" not in values:
        values["group_rows"] = min(SourceOptions("").group_rows, values["credit"])
    if "group_rows" in values and "credit" not in values:
        values["credit"] = max(SourceOptions("").credit, values["group_rows"])
    return SourceOptions(**values)


def _read(reading: _Reading, key: str, text: str) -> None:
    key = "wallocation" if key.lower() == "path" else key.lower()  # .load("/data/billing-wal")
    option = _BY_KEY.get(key)
    if option is None:
        reading.problem(key, "is unknown", _meant(key))
        return
    if option.name in reading.given and reading.given[option.name] != text:
        reading.problem(option.name, "is given twice, as an option and as the path of load()", "leave one out")
        return
    reading.given[option.name] = text
    try:
        reading.values[option.field] = _value(option, text.strip())
    except UsageError as error:
        reading.problems.append(f"option {option.name}: {error}")
    except ValueError as error:
        reading.problem(option.name, *map(str, error.args))


def _meant(key: str) -> str:
    if key == "checkpointlocation":
        return "it belongs to writeStream"
    if key == "endoffset" or key == "startoffset":
        return f'did you mean "{key[:-6]}ingOffsets"?'
    return closest(key, [option.name for option in OPTIONS], _OTHERS_WORDS)


def closest(key: str, names: Sequence[str], others_words: Mapping[str, str]) -> str:
    """What to say of an unknown key in lower case: the name that was meant, or all there are."""
    by_key = {name.lower(): name for name in names}
    other = others_words.get(key)
    if other is None:
        close = difflib.get_close_matches(key, by_key, 1, 0.6)
        other = by_key[close[0]] if close else None
    if other is not None:
        return f'did you mean "{other}"?'
    return "known are " + ", ".join(names)


def _value(option: Option, text: str) -> Any:
    if not text:
        raise ValueError("is empty", f"write for example {option.example or option.default or '1000'}")
    value: Any
    if option.form == "boolean":
        value = _boolean(text)
    elif option.form == "transport":
        if text.lower() not in ("file", "inline"):
            raise ValueError(f'"{text}" is no transport', "write file or inline")
        value = text.lower()
    elif option.form == "offsets":
        value = _offsets(option, text)
    elif option.form == "retention":
        value = _retention(text)
    elif option.form == "text":
        value = _text(option, text)
    else:
        value = _quantity(option, text)
    return value


def _quantity(option: Option, text: str) -> float | int:
    value: float | int
    if option.form == "duration":
        value = read_duration(text)
    elif option.form == "size":
        # the option is called ...Bytes: a plain number can only mean those
        value = read_count(text) if text.isdecimal() else read_size(text)
    else:
        value = read_count(text)
    if value < option.least:
        least = format_duration(option.least) if option.form == "duration" else f"{option.least:.0f}"
        raise ValueError(f'"{text}" is too little', f"write at least {least}")
    if value > option.most:
        raise ValueError(f'"{text}" is too much', f"write at most {option.most:.0f}")
    return value


def _retention(text: str) -> tuple[float, int]:
    parts = [part.strip() for part in text.split(",")]
    sizes = [read_size(part) for part in parts if part.endswith("B")]
    durations = [read_duration(part) for part in parts if not part.endswith("B")]
    if len(sizes) > 1 or len(durations) > 1:
        raise ValueError(f'"{text}" says the same twice', "write a duration, a size, or one of each as in 10m,1GiB")
    return sum(durations), sum(sizes)


def _text(option: Option, text: str) -> Any:
    if option.name == "url":
        parse_urls(text)
        return text
    if option.name == "topic":
        return _topics(text)
    if option.name == "walLocation":
        return _location(text)
    return text


def _topics(text: str) -> tuple[str, ...]:
    topics = tuple(part.strip() for part in text.split(","))
    if not all(topics):
        raise ValueError(f'"{text}" names an empty topic', "write topics separated by single commas")
    twice = [topic for at, topic in enumerate(topics) if topic in topics[:at]]
    if twice:
        raise ValueError(f'"{twice[0]}" is there twice', "name each topic once")
    return topics


def _location(text: str) -> str:
    """An absolute path, wherever this process works: the ingest and executors work elsewhere."""
    path = local_path(text)
    if path is None:
        raise ValueError(
            f'"{text}" is no directory of this machine',
            "the log is written by fsync: give a local path, or one on a shared POSIX file system",
        )
    return path


def local_path(text: str) -> str | None:
    """Of a path, or a file: URL; None for s3a://bucket, dbfs:/mnt and the like, which are no directories here."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return os.path.abspath(text)
    return os.path.abspath(unquote(urlsplit(text).path)) if scheme[0].lower() == "file:" else None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f'"{text}" is neither true nor false', "write true or false")
    return text.lower() == "true"


def _offsets(option: Option, text: str) -> str:
    words = ("earliest", "latest") if option.name == "startingOffsets" else ("latest",)
    if text.lower() in words:
        return text.lower()
    if not text.startswith("{"):
        raise ValueError(
            f'"{text}" is no position',
            f"write {' or '.join(words)}, or {_EXAMPLE}",
        )
    try:
        offset_of(text)
    except OffsetError as error:
        raise ValueError(str(error).partition(";")[0], f"write {_EXAMPLE}") from error
    return text


def _check_together(reading: _Reading) -> None:
    """Each fine by itself, but not with another."""
    values = reading.values

    def both(*fields: str) -> bool:
        return all(values.get(field) is not None for field in fields)

    if both("min_rows", "max_rows") and values["min_rows"] > values["max_rows"]:
        reading.problem(
            "minRowsPerTrigger",
            f"{values['min_rows']} is more than maxRowsPerTrigger {values['max_rows']}: no batch could ever be planned",
            "lower it",
        )
    if reading.has("maxTriggerDelay") and not reading.has("minRowsPerTrigger"):
        reading.problem(
            "maxTriggerDelay", "waits for minRowsPerTrigger, which is not given", "give it, or leave both out"
        )
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
