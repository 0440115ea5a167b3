"""The sink's options: what each is called, its default, and everything that is wrong with what was given.

As `onceway.spark.options` for the source: Spark hands all keys over in lower case and all values as text; `OPTIONS` is
the one list of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from onceway.client.urls import parse_urls
from onceway.errors import UsageError
from onceway.spark.options import closest, local_path
from onceway.spark.publishing import OnMissing, OnReject, OnUndecided, Terms
from onceway.spark.sink_errors import SinkOptionError
from onceway.topology.values import read_duration


@dataclass(frozen=True, slots=True)
class Option:
    """One option as people write it; `default` in the same form (None: there is none)."""

    name: str
    default: str | None
    meaning: str
    words: tuple[str, ...] = ()  # the only values
    example: str = ""


OPTIONS: Final = (
    Option("url", None, "routers, separated by commas", example="amqp://127.0.0.1:5671,127.0.0.1:5672"),
    Option("outboxLocation", None, "directory of the outbox, shared by driver and executors", example="/data/outbox"),
    Option("topic", None, "topic of all rows; without it the column topic says it", example="orders"),
    Option("name", None, "container-id of the publisher; onceway-outbox-UUID where it is not given", example="till"),
    Option("publishTimeout", "5m", "how long a batch may go without any outcome before the query fails"),
    Option("lockTimeout", "30s", "how long to wait for another process to let go of the outbox"),
    Option("outboxRetention", "1h", "how long the manifest of a finished batch is kept"),
    Option("onReject", "fail", "where rows were not accepted: fail, or ignore", ("fail", "ignore")),
    Option("onUndecided", "fail", "where rows may or may not have arrived: fail, resend, skip",
           ("fail", "resend", "skip")),
    Option("onMissingBatches", "fail", "where the outbox has not published the batches before: fail, or ignore",
           ("fail", "ignore")),
    Option("writeId", None, "of a batch write: its identity, published once", example="2026-11-21"),
)  # fmt: skip
_BY_KEY: Final = {option.name.lower(): option for option in OPTIONS}
_OTHERS_WORDS: Final = {
    "kafka.bootstrap.servers": "url", "servers": "url", "host": "url", "urls": "url", "address": "topic",
    "topics": "topic", "container": "name", "outbox": "outboxLocation", "location": "outboxLocation",
    "walretention": "outboxRetention", "txnversion": "writeId", "batchid": "writeId",
}  # fmt: skip
_WRITE_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}(?<!\.json)(?<!\.done)")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The same as values; picklable."""

    location: str
    topic: str | None
    terms: Terms
    write_id: str | None


def sink_options(options: Mapping[str, str], use: Literal["stream", "batch"]) -> SinkOptions:
    """Raises SinkOptionError with all problems, one a line."""
    problems: list[str] = []
    values: dict[str, Any] = {}
    checkpoint = None
    for key, text in options.items():
        if key.lower() == "checkpointlocation":  # writeStream's own, handed over with the others
            checkpoint = text
            continue
        # .save("/data/outbox") and .start("/data/outbox") call it path
        option = _BY_KEY.get("outboxlocation" if key.lower() == "path" else key.lower())
        if option is None:
            meant = closest(key.lower(), [known.name for known in OPTIONS], _OTHERS_WORDS)
            problems.append(f"option {key}: is unknown; {meant}")
            continue
        try:
            values[option.name] = _value(option, text.strip())
        except UsageError as error:
            problems.append(f"option {option.name}: {error}")
        except ValueError as error:
            problems.append(f"option {option.name}: {'; '.join(map(str, error.args))}")
    for name in ("url", "outboxLocation"):
        if name not in values and not any(problem.startswith(f"option {name}:") for problem in problems):
            example = _BY_KEY[name.lower()].example
            problems.append(f'option {name}: is missing; give it, as in .option("{name}", "{example}")')
    if use == "stream" and "writeId" in values:
        problems.append("option writeId: has no meaning in a stream, whose batches have numbers; leave it out")
    if use == "batch" and "onMissingBatches" in values:
        problems.append("option onMissingBatches: has no meaning in a batch write, which has no number; leave it out")
    if problems:
        raise SinkOptionError("\n".join(problems))

    def given(name: str) -> Any:
        default = _BY_KEY[name.lower()].default
        return values[name] if name in values else _value(_BY_KEY[name.lower()], default) if default else None

    on_reject: OnReject = given("onReject")
    on_undecided: OnUndecided = given("onUndecided")
    on_missing: OnMissing = given("onMissingBatches")
    return SinkOptions(
        location=values["outboxLocation"],
        topic=given("topic"),
        terms=Terms(
            url=values["url"],
            name=given("name"),
            timeout_s=given("publishTimeout"),
            on_reject=on_reject,
            on_undecided=on_undecided,
            on_missing=on_missing,
            checkpoint=checkpoint,
            lock_timeout_s=given("lockTimeout"),
            retention_s=given("outboxRetention"),
        ),
        write_id=given("writeId"),
    )


def _value(option: Option, text: str) -> Any:
    if not text:
        raise ValueError(f"is empty; write for example {option.example or option.default}")
    if option.words:
        if text.lower() not in option.words:
            raise ValueError(f'"{text}" is none of {", ".join(option.words)}; write one of them')
        return text.lower()
    if option.name in ("publishTimeout", "lockTimeout", "outboxRetention"):
        return read_duration(text)
    if option.name == "url":
        parse_urls(text)
    elif option.name == "outboxLocation":
        return _location(text)
    elif option.name == "topic" and "," in text:
        raise ValueError(f'"{text}" names several topics; write one, or give each row its own in the column topic')
    elif option.name == "writeId" and not _WRITE_ID.fullmatch(text):
        raise ValueError(f'"{text}" cannot be a file name; write letters, digits, ".", "_" and "-", at most 100')
    return text


def _location(text: str) -> str:
    """An absolute path: executors work elsewhere."""
    path = local_path(text)
    if path is None:
        raise ValueError(
            f'"{text}" is no directory of this machine; the outbox is written by fsync: give a local path, or one on a '
            "shared POSIX file system"
        )
    return path
