"""Rows as AMQP messages, in files: by columns, and exactly what a Message of the same content would be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from amqp10.sections import Data, Message, Properties
from amqp10.types import Symbol, Timestamp
from onceway.spark import columns
from onceway.spark.columns import encoding
from onceway.spark.errors import OutboxError, SinkOptionError
from onceway.spark.sink import staging
from onceway.spark.sink.staging import Run, payloads_of, stage

TYPES: dict[str, Any] = {
    "value": pa.binary(),
    "key": pa.string(),
    "message_id": pa.string(),
    "correlation_id": pa.string(),
    "subject": pa.string(),
    "content_type": pa.string(),
    "reply_to": pa.string(),
    "group_id": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "headers": pa.map_(pa.string(), pa.string()),
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
text = st.none() | st.text(max_size=8) | st.text(min_size=250, max_size=300)
cells: dict[str, st.SearchStrategy[Any]] = {
    "value": st.none() | st.binary(max_size=12) | st.integers(250, 300).map(bytes),
    "content_type": st.none() | st.text(st.characters(max_codepoint=127), max_size=8),
    "timestamp": st.none() | st.integers(-(10**14), 10**16).map(lambda us: EPOCH + timedelta(microseconds=us)),
    "headers": st.none() | st.dictionaries(st.text(max_size=5), text, max_size=3),
}


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = ["value", *draw(st.lists(st.sampled_from(list(TYPES)[1:]), unique=True))]
    return draw(
        st.lists(st.fixed_dictionaries({name: cells.get(name, text) for name in names}), min_size=1, max_size=6)
    )


def as_batch(rows: list[dict[str, Any]]) -> Any:
    return pa.record_batch(
        [
            pa.array([_items(row[name]) if name == "headers" else row[name] for row in rows], TYPES[name])
            for name in rows[0]
        ],
        names=list(rows[0]),
    )


def _items(headers: dict[str, Any] | None) -> list[tuple[str, Any]] | None:
    return None if headers is None else list(headers.items())


def as_message(row: dict[str, Any]) -> Message:
    """What a client would make of the same row."""
    names = ("message_id", "correlation_id", "subject", "reply_to", "group_id")
    fields: dict[str, Any] = {name: row.get(name) for name in names}
    if row.get("content_type") is not None:
        fields["content_type"] = Symbol(row["content_type"])
    if row.get("timestamp") is not None:
        fields["creation_time"] = Timestamp((row["timestamp"] - EPOCH) // timedelta(milliseconds=1))
    key = row.get("key")
    return Message(
        None if row["value"] is None else Data(row["value"]),
        message_annotations=None if key is None else {Symbol(encoding.KEY): key},
        properties=Properties(**fields) if any(value is not None for value in fields.values()) else None,
        application_properties=row.get("headers") or None,
    )


@given(tables(), st.integers(0, 2))
@settings(max_examples=150)
def test_a_row_is_the_message_of_its_columns(rows: list[dict[str, Any]], skipped: int) -> None:
    payloads = encoding.payloads(as_batch(rows).slice(skipped)).to_pylist()
    assert [Message.decode(payload) for payload in payloads] == [as_message(row) for row in rows[skipped:]]


def test_what_the_source_reads_is_what_was_written() -> None:
    rows = [
        {name: value if number % 4 else None for name, value in cells.items()} | {"value": b"%d" % number}
        for number, cells in (
            (
                number,
                {
                    "value": b"",
                    **{name: f"{name} {number}" for name in TYPES if name not in ("value", "timestamp", "headers")},
                    "timestamp": EPOCH + timedelta(milliseconds=number),
                    "headers": {"a": str(number), "b": "x"},
                },
            )
            for number in range(200)
        )
    ]
    batch = as_batch(rows)
    payloads = encoding.payloads(batch).cast(pa.binary())
    received = pa.array(range(200), pa.int64())
    read = columns.decode(payloads, payloads, received, topic="orders", partition=0, first=0, columns=list(TYPES))
    for number, (row, again) in enumerate(zip(rows, read.to_pylist(), strict=True)):
        if row["timestamp"] is None:
            again["timestamp"] = None  # without a time of creation it is that of arrival
        # the key is shown among the headers too, and does not go there when it is written
        again["headers"] = {name: text for name, text in again["headers"] or () if name != encoding.KEY} or None
        assert again == row, number


def test_a_string_value_is_its_octets() -> None:
    (payload,) = encoding.payloads(pa.record_batch({"value": ["grün"]})).to_pylist()
    assert Message.decode(payload) == Message("grün".encode())


def test_headers_that_are_said_anew_stay_out() -> None:
    headers = [{"a": "1", "x-opt-onceway-publisher": "[shop, till]", "b": "2"}, None, {encoding.KEY: "k"}, {"c": None}]
    rows = [{"value": b"", "key": None, "headers": one} for one in headers]
    found = [Message.decode(payload) for payload in encoding.payloads(as_batch(rows)).to_pylist()]
    assert [message.application_properties for message in found] == [{"a": "1", "b": "2"}, None, None, {"c": None}]
    del rows[2]["key"]
    (payload,) = encoding.payloads(as_batch(rows[2:3])).to_pylist()
    assert Message.decode(payload).application_properties == {encoding.KEY: "k"}


def as_bytes(headers: list[list[tuple[str | None, bytes | None]] | None]) -> Any:
    cells = [row if row is None else [{"key": key, "value": value} for key, value in row] for row in headers]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.record_batch({"value": pa.array([b""] * len(cells), pa.binary()), "headers": pa.array(cells, kind)})


def test_headers_as_bytes_become_binary_properties_and_come_back() -> None:
    rows: list[Any] = [[("a", b"\xff"), ("b", b"x" * 300)], None, [], [("a", None)]]
    payloads = encoding.payloads(as_bytes([[("in", b"front")], *rows]).slice(1))
    found = [Message.decode(payload).application_properties for payload in payloads.to_pylist()]
    assert found == [{"a": b"\xff", "b": b"x" * 300}, None, None, {"a": None}]
    received = pa.array(range(4), pa.int64())
    payloads = payloads.cast(pa.binary())
    name = columns.fields.BINARY_HEADERS
    read = columns.decode(payloads, payloads, received, topic="t", partition=0, first=0, columns=[name])
    assert read.column(0).to_pylist() == [
        None if not row else [{"key": key, "value": value} for key, value in row] for row in rows
    ]


def test_headers_that_no_map_can_hold_are_refused() -> None:
    encoding.check_columns(
        [("value", "string"), ("headers", "array<struct<key:string,value:binary>>")], topic_given=True
    )
    with pytest.raises(SinkOptionError, match="a row has key 'a' twice; AMQP takes each key once"):
        encoding.payloads(as_bytes([[("a", b"1")], [("b", b""), ("a", b"1"), ("a", b"2")]]))
    with pytest.raises(SinkOptionError, match="a key is null"):
        encoding.payloads(as_bytes([[(None, b"1")]]))


def test_dictionaries_and_large_columns_are_taken_as_well() -> None:
    batch = pa.record_batch(
        {
            "value": pa.array(["a", "b"], pa.large_string()),
            "subject": pa.array(["s", None]).dictionary_encode(),
        }
    )
    first, second = (Message.decode(payload) for payload in encoding.payloads(batch).to_pylist())
    assert first == Message(b"a", properties=Properties(subject="s"))
    assert second == Message(b"b")


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(SinkOptionError, match="column content_type: 'grün' is not ASCII"):
        encoding.payloads(pa.record_batch({"value": ["a", "b"], "content_type": ["text/plain", "grün"]}))
    with pytest.raises(SinkOptionError, match=r"column topic: is null or empty \(row 1 of"):
        encoding.topics(pa.record_batch({"topic": ["a", None]}))


def test_a_frame_of_kafkas_source_is_taken_as_it_is() -> None:
    kafka = {
        "key": "binary", "value": "binary", "topic": "string", "partition": "int", "offset": "bigint",
        "timestamp": "timestamp", "timestampType": "int", "headers": "array<struct<key:string,value:binary>>",
    }  # fmt: skip
    encoding.check_columns(list(kafka.items()), topic_given=False)
    row = {"value": b"v", "key": "grün"}
    binary = as_batch([row]).set_column(1, "key", pa.array(["grün".encode()]))
    assert encoding.payloads(binary) == encoding.payloads(as_batch([row]))
    with pytest.raises(
        SinkOptionError, match=r"column key: b'\\xff' is not UTF-8, and key is a text; write hex\(key\)"
    ):
        encoding.payloads(pa.record_batch({"value": [b"a", b"b", b"c"], "key": [b"k", None, b"\xff"]}))


def test_columns_are_checked_all_at_once() -> None:
    encoding.check_columns([("value", "binary"), ("topic", "string"), ("offset", "bigint")], topic_given=False)
    encoding.check_columns([("value", "varchar(10)")], topic_given=True)
    with pytest.raises(SinkOptionError) as caught:
        encoding.check_columns(
            [("Value", "string"), ("amount", "int"), ("timestamp", "string"), ("headers", "map<string,int>")],
            topic_given=False,
        )
    assert str(caught.value).splitlines() == [
        "column Value: the sink does not know it; did you mean value?",
        "column amount: the sink does not know it; known are value, topic, key, headers, message_id, subject, "
        "reply_to, correlation_id, content_type, timestamp, group_id: put it into value or headers, or drop it",
        "column timestamp: is string; cast it to timestamp",
        "column headers: is map<string,int>; cast it to map<string,string>",
        'column value: is missing; add it, as in select(to_json(struct("*")).alias("value"))',
        'column topic: is missing; add it, or give the option, as in .option("topic", "orders")',
    ]


# -- files


def runs_of(directory: Path, file: staging.StagedFile, topic: str) -> list[Run]:
    runs, first = [], 100
    for index, (of, rows) in enumerate(file.runs):
        if of == topic:
            runs.append(Run(first, rows, directory / file.name, index))
            first += rows
    return runs


def test_a_file_keeps_each_topics_order_over_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_ROWS", 50)
    rows = [("ab"[number % 7 % 2], b"%d" % number) for number in range(1000)]
    batches = [
        pa.record_batch({"topic": [topic for topic, _ in some], "value": [value for _, value in some]})
        for some in (rows[at : at + 30] for at in range(0, 1000, 30))
    ]
    file = stage(tmp_path / "b", 3, 12, batches, None)
    assert file.name.startswith("3-12-")
    assert file.rows == 1000
    assert len(file.runs) > 15
    for topic in "ab":
        runs = runs_of(tmp_path / "b", file, topic)
        wanted = [Message(value).encode() for of, value in rows if of == topic]
        assert list(payloads_of(runs, 100, 100 + len(wanted))) == wanted
        assert list(payloads_of(runs, 160, 260)) == wanted[60:160]


def test_many_small_topics_do_not_gather_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_ALL_BYTES", 1000)
    batch = pa.record_batch({"topic": [f"t{number}" for number in range(100)], "value": [bytes(40)] * 100})
    file = stage(tmp_path, 0, 0, [batch, batch], None)
    assert file.rows == 200
    assert len(file.runs) > 100  # some topic was written before its second row came


def test_no_rows_make_no_file_and_a_failed_attempt_leaves_none(tmp_path: Path) -> None:
    empty = pa.record_batch({"value": pa.array([], pa.string())})
    assert stage(tmp_path / "b", 0, 0, [empty], "orders") is None
    bad = pa.record_batch({"value": ["a"], "content_type": ["ü"]})
    good = pa.record_batch({"value": ["a"] * 9000, "content_type": ["x"] * 9000})
    with pytest.raises(SinkOptionError):
        stage(tmp_path / "c", 0, 0, [good, bad], "orders")
    assert list((tmp_path / "c").iterdir()) == []


def test_two_attempts_of_the_same_numbers_do_not_meet(tmp_path: Path) -> None:
    batch = pa.record_batch({"value": ["a"]})
    names = {file.name for _ in range(3) if (file := stage(tmp_path, 0, 0, [batch], "orders")) is not None}
    assert len(names) == 3


def test_no_room_is_said_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staging, "sync_path", full)
    with pytest.raises(OutboxError, match="no room left in the outbox; make room and restart the query: nothing is"):
        stage(tmp_path / "b", 0, 0, [pa.record_batch({"value": ["a"]})], "orders")
    assert list((tmp_path / "b").iterdir()) == []


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    file = stage(tmp_path, 0, 0, [pa.record_batch({"value": ["a", "b"]})], "orders")
    run = Run(0, 3, tmp_path / file.name, 0)
    with pytest.raises(OutboxError, match="2 messages in record batch 0, the manifest says 3"):
        run.payloads()
    (tmp_path / file.name).write_bytes(b"rubbish")
    with pytest.raises(OutboxError, match="a staged file of an unfinished batch cannot be read"):
        run.payloads()


@pytest.mark.parametrize("micros", [-(1 << 63), -(1 << 63) + 1, -1_001, -1_000, -1, 0, 1, 999, 1_000, (1 << 63) - 1])
def test_a_time_of_any_microseconds_is_rounded_down(micros: int) -> None:
    cells = {"value": pa.array([b"x"]), "timestamp": pa.array([micros], pa.timestamp("us", "UTC"))}
    (payload,) = encoding.payloads(pa.record_batch(cells)).to_pylist()
    properties = Message.decode(payload).properties
    assert properties is not None
    assert properties.creation_time == micros // 1_000
