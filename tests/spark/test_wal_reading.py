"""Ranges of rows: bounds for admission control, splits for partitions, batches for executors; and trimming."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceway.client.bodies import encode_body
from onceway.spark.errors import WalForeign, WalMissing
from onceway.spark.files import Disk
from onceway.spark.wal import Retention, SlotReader, Wal, WalSettings
from onceway.spark.wal.frames import FRAME_HEAD, SEGMENT_HEAD, segments
from onceway.spark.wal.reading import DirectoryReader
from tests.spark.slots import Life, log, numbered, rows_of, tag

SEGMENTS = WalSettings(group_rows=100, group_ms=0.0, segment_bytes=4000)
ROWS = 1000


@pytest.fixture(scope="module")
def wal(tmp_path_factory: pytest.TempPathFactory) -> Wal:
    """1000 rows in groups of 20, several to a segment; payload of row n has 10 + n % 7 bytes."""
    root = tmp_path_factory.mktemp("reading")
    life = Life(log(root), settings=SEGMENTS)
    for first in range(0, ROWS, 20):
        payloads = [encode_body(b"%03d" % row + b"." * (2 + row % 7)) for row in range(first, first + 20)]
        life.until(life.append([tag(row) for row in range(first, first + 20)], payloads))
    life.close()
    return life.wal


@pytest.fixture
def reader(wal: Wal) -> SlotReader:
    return wal.slot(0)


def octets(start: int, end: int) -> int:
    return sum(10 + row % 7 for row in range(start, end))


def offsets(reader: SlotReader, start: int, end: int) -> list[int]:
    return [row for batch in reader.read(start, end, ["offset"]) for row in batch.column(0).to_pylist()]


def test_any_range_is_read_exactly(reader: SlotReader) -> None:
    for start, end in [(0, ROWS), (0, 1), (19, 21), (37, 38), (40, 60), (399, 801), (999, 1000), (5, 5)]:
        assert offsets(reader, start, end) == list(range(start, end))
        values = rows_of(reader, start, end)
        assert [value[:3] for value in values] == [b"%03d" % row for row in range(start, end)]


def test_batches_are_joined_up_to_their_size(reader: SlotReader) -> None:
    assert [batch.num_rows for batch in reader.read(0, ROWS)] == [ROWS]
    assert [batch.num_rows for batch in reader.read(10, ROWS, batch_rows=300)] == [290, 300, 300, 100]
    assert all(batch.num_rows == 20 for batch in reader.read(0, ROWS, batch_rows=1))


def test_columns_are_those_asked_for(reader: SlotReader) -> None:
    batch = next(reader.read(20, 40, ["partition", "delivery_tag", "topic", "value"]))
    assert batch.schema.names == ["partition", "delivery_tag", "topic", "value"]
    assert batch.slice(0, 1).to_pylist() == [
        {"partition": 0, "delivery_tag": b"t20", "topic": "orders", "value": b"020........"}
    ]


def test_reader_is_picklable_and_small(reader: SlotReader) -> None:
    reader.bytes_between(0, ROWS)
    data = pickle.dumps(reader)
    assert len(data) < 1000
    assert offsets(pickle.loads(data), 500, 510) == list(range(500, 510))


def test_task_reads_nothing_of_what_is_before_its_rows(full: Life) -> None:
    """At 200 messages a second a segment has more than 100,000 groups when it is full, and each batch has tasks."""
    reader = full.wal.slot(0)
    task = pickle.loads(pickle.dumps(reader.for_task(30)))
    first = segments(reader.directory)[0]
    with open(f"{reader.directory}/{first.name}", "r+b") as file:
        file.seek(SEGMENT_HEAD)
        file.write(bytes(FRAME_HEAD))
    assert offsets(task, 30, 300) == list(range(30, 300))
    for start in (0, 10):
        with pytest.raises(WalMissing):
            offsets(task, start, 300)


def test_bounds_by_rows(reader: SlotReader) -> None:
    assert reader.bounds(0) == ROWS
    assert reader.bounds(100, max_rows=7) == 107
    assert reader.bounds(990, max_rows=100) == ROWS
    assert reader.bounds(ROWS) == ROWS
    assert reader.bounds(5, max_rows=0) == 6  # a batch makes progress


def test_bounds_by_bytes_come_near_and_do_not_exceed(reader: SlotReader) -> None:
    for start in (0, 13, 500):
        for limit in (40, 500, 3000, 6000):
            end = reader.bounds(start, max_bytes=limit)
            assert abs(octets(start, end) - limit) < 20  # in proportion inside a frame
    assert reader.bounds(0, max_bytes=1) == 1
    assert reader.bounds(0, max_bytes=1 << 40) == ROWS
    assert reader.bounds(0, max_rows=3, max_bytes=1 << 40) == 3


def test_bytes_between_is_exact_at_frames(reader: SlotReader) -> None:
    for start, end in [(0, ROWS), (0, 20), (40, 900), (60, 60)]:
        assert reader.bytes_between(start, end) == octets(start, end)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 50, 2000])
def test_split_covers_the_range_in_about_equal_parts(reader: SlotReader, parts: int) -> None:
    for start, end in [(0, ROWS), (15, 985), (3, 4), (100, 120)]:
        ranges = reader.split(start, end, parts)
        assert [low for low, _ in ranges] == [start, *(high for _, high in ranges[:-1])]
        assert ranges[-1][1] == end
        sizes = [high - low for low, high in ranges]
        assert len(ranges) == min(parts, end - start)
        assert max(sizes) <= 2 * max(1, (end - start) // len(ranges)) + 1
    assert reader.split(5, 5, parts) == []


def test_split_cuts_between_frames_where_that_is_near(reader: SlotReader) -> None:
    assert reader.split(15, 985, 3) == [(15, 340), (340, 660), (660, 985)]


def test_rows_beyond_the_end_are_an_error(reader: SlotReader) -> None:
    with pytest.raises(
        WalMissing, match="rows 1000 to 1004 are not in the log, which ends at row 1000; is it an older"
    ):
        list(reader.read(990, 1005))


def test_log_without_rows_has_none(tmp_path: Path) -> None:
    reader = log(tmp_path).slot(0)
    assert (reader.start(), reader.end(), reader.bounds(0), reader.split(0, 0, 4)) == (0, 0, 0, [])
    with pytest.raises(WalMissing):
        list(reader.read(0, 1))


def test_another_logs_segments_are_not_read(wal: Wal) -> None:
    other = DirectoryReader(wal.location, 0, "orders", "00000000-0000-0000-0000-000000000000")
    with pytest.raises(WalForeign, match="belongs to another log"):
        list(other.read(0, 10))


def test_index_grows_with_the_log(tmp_path: Path) -> None:
    wal = log(tmp_path)
    life = Life(wal, settings=SEGMENTS)
    reader = wal.slot(0)
    for _ in range(30):
        end = life.group(11)
        assert reader.end() == end
        assert reader.bytes_between(0, end) > 0
        assert rows_of(reader, end - 15 if end > 15 else 0, end) == numbered(end - 15 if end > 15 else 0, end)
    life.close()


# -- trimming


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Life]:
    """500 settled rows in several segments."""
    life = Life(log(tmp_path), settings=SEGMENTS)
    for _ in range(25):
        life.group(20)
    life.part.settle([tag(row) for row in range(500)])
    yield life
    life.close()


def trimmed(life: Life, up_to: int, retention: Retention | None = None) -> int:
    """The first row that is left."""
    life.writer.trim(up_to, retention)
    life.group(1)  # the thread has been at it before
    life.group(1)
    return life.wal.slot(0).start()


def test_whole_segments_of_committed_rows_are_removed(full: Life) -> None:
    before = segments(full.writer.place)
    start = trimmed(full, 300)
    after = segments(full.writer.place)
    assert 0 < start <= 300
    assert after[0].first == start
    assert set(after) >= {segment for segment in before if segment.first >= start}
    assert rows_of(full.wal.slot(0), start, 500) == numbered(start, 500)
    with pytest.raises(WalMissing, match=rf"rows 0 to 9 were trimmed, the log begins at row {start}; walRetention"):
        list(full.wal.slot(0).read(0, 10))


def test_where_the_log_begins_is_written_before_a_segment_is_removed(
    full: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins: list[int] = []
    remove = Disk.remove

    def removing(disk: Disk, path: str) -> None:
        begins.append(full.wal.slot(0).start())
        remove(disk, path)

    monkeypatch.setattr(Disk, "remove", removing)
    start = trimmed(full, 300)
    assert begins
    assert set(begins) == {start}


def test_what_is_not_committed_stays(full: Life) -> None:
    assert trimmed(full, 10) == 0


def test_rows_the_network_has_not_settled_stay(full: Life) -> None:
    full.part.accept([], b"\x00\x53\x24\x45")
    first = full.writer.end
    full.group(100)
    full.part.settle([tag(row) for row in range(first + 30, first + 100)])
    start = trimmed(full, full.writer.end)
    assert 0 < start <= first
    known = full.writer.unsettled
    assert known.lowest(0) == first


def test_retention_by_size_and_by_time_keeps_what_is_committed(full: Life) -> None:
    assert trimmed(full, 500, Retention(seconds=3600)) == 0
    assert trimmed(full, 500, Retention(size=1 << 30)) == 0
    size = sum(os.path.getsize(os.path.join(full.writer.place, s.name)) for s in segments(full.writer.place))
    start = trimmed(full, 500, Retention(size=size // 2))
    assert 100 < start < 400
    old = segments(full.writer.place)[0]
    os.utime(os.path.join(full.writer.place, old.name), (0, 0))
    later = trimmed(full, 500, Retention(seconds=3600))
    assert later == segments(full.writer.place)[0].first > start


def test_trimmed_log_goes_on_in_the_next_life(full: Life) -> None:
    start = trimmed(full, 400)
    full.close()
    life = Life(full.wal, epoch=20, settings=SEGMENTS)
    assert life.writer.start == start
    assert life.writer.end == 502
    life.group(3)
    assert rows_of(full.wal.slot(0)) == numbered(start, 505)
    life.close()


def test_everything_trimmed_leaves_the_numbers(full: Life) -> None:
    full.close()
    life = Life(full.wal, epoch=20, settings=SEGMENTS)
    life.writer.trim(500)
    life.group(1)
    life.group(1)
    life.part.settle(life.writer.unsettled.tags())
    life.die()
    life = Life(full.wal, epoch=30, settings=SEGMENTS)
    assert life.writer.start == 500
    life.part.settle(life.writer.unsettled.tags())
    life.writer.trim(502)
    life.sync()
    life.close()
    assert life.wal.slot(0).start() == 502
    assert segments(life.writer.place) == []
    life = Life(full.wal, epoch=40, settings=SEGMENTS)
    assert (life.writer.start, life.writer.end) == (502, 502)
    life.group(2)
    assert rows_of(full.wal.slot(0)) == numbered(502, 504)
    life.close()


def test_leftovers_of_a_trimming_that_was_cut_short_are_harmless_and_go(full: Life) -> None:
    directory = Path(full.writer.place)
    first = segments(full.writer.place)[0]
    kept = (directory / first.name).read_bytes()
    start = trimmed(full, 400)
    full.close()
    (directory / first.name).write_bytes(kept)
    reader = full.wal.slot(0)
    assert reader.start() == start
    assert rows_of(reader, start, 500) == numbered(start, 500)
    life = Life(full.wal, epoch=20, settings=SEGMENTS)
    assert not (directory / first.name).exists()
    life.close()
