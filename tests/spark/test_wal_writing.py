"""How rows become groups: by number, by size, by time; and what a writer says of itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from onceway.spark.wal import WalSettings
from onceway.spark.wal.frames import segments
from onceway.spark.wal.reading import SegmentIndex
from onceway.spark.wal.writing import Gathering, Run
from tests.spark.slots import Life, log, numbered, rows_of, tag


def run(*sizes: int) -> Run:
    payloads = [b"x" * size for size in sizes]
    return Run(payloads, [b"t"] * len(sizes), 1, sum(sizes))


def sizes(group: Sequence[Run]) -> list[list[int]]:
    assert all(part.size == sum(map(len, part.payloads)) for part in group)
    return [[len(payload) for payload in part.payloads] for part in group]


def test_group_is_due_when_the_first_row_has_waited_long_enough() -> None:
    gathering = Gathering(WalSettings(group_ms=1000))
    assert gathering.wait_s(0.0) is None
    gathering.add(run(1, 2), 10.0)
    gathering.add(run(3), 10.995)
    assert gathering.wait_s(10.995) == pytest.approx(0.005)
    assert gathering.wait_s(11.0) == pytest.approx(0.0)
    assert sizes(gathering.take(11.0)) == [[1, 2], [3]]
    assert gathering.wait_s(11.0) is None


def test_group_is_due_when_no_more_rows_come() -> None:
    """A publisher at the end of its window waits for us: to wait for more from it would be a window per groupMs."""
    gathering = Gathering(WalSettings(group_ms=1000))
    gathering.add(run(1, 2), 10.0)
    assert gathering.wait_s(10.0) == pytest.approx(0.02)
    gathering.add(run(3), 10.01)
    assert gathering.wait_s(10.01) == pytest.approx(0.02)
    assert gathering.wait_s(10.03) == pytest.approx(0.0)
    assert sizes(gathering.take(10.03)) == [[1, 2], [3]]


def test_groups_that_are_not_full_are_a_tenth_of_the_time_apart() -> None:
    """A trickle of single rows does not make an fdatasync for each."""
    gathering = Gathering(WalSettings(group_ms=1000, group_rows=3))
    gathering.add(run(1), 10.0)
    gathering.take(10.02)
    gathering.add(run(1), 10.03)
    assert gathering.wait_s(10.03) == pytest.approx(0.09)
    gathering.add(run(1), 10.05)
    assert gathering.wait_s(10.05) == pytest.approx(0.07)
    gathering.add(run(1), 10.06)
    assert gathering.wait_s(10.06) == 0.0  # full


def test_group_is_due_at_once_when_it_is_full_or_flushed() -> None:
    gathering = Gathering(WalSettings(group_rows=3, group_bytes=100, group_ms=1000))
    gathering.add(run(1, 1), 0.0)
    assert gathering.wait_s(0.0) == 0.02
    gathering.add(run(1), 0.0)
    assert gathering.wait_s(0.0) == 0.0
    gathering.take(0.0)
    gathering.add(run(100), 0.0)
    assert gathering.wait_s(0.0) == 0.0
    gathering.take(0.0)
    gathering.add(run(1), 0.0)
    gathering.flush()
    gathering.add(run(1), 0.0)
    assert gathering.wait_s(0.0) == 0.0
    assert sizes(gathering.take(0.0)) == [[1], [1]]
    gathering.add(run(1), 0.0)
    assert gathering.wait_s(0.0) == 0.1  # what came after the flush waits as ever


def test_runs_are_cut_where_a_group_is_full() -> None:
    gathering = Gathering(WalSettings(group_rows=4))
    gathering.add(run(1, 2, 3), 0.0)
    gathering.add(run(4, 5, 6, 7, 8, 9), 0.0)
    taken = [sizes(gathering.take(0.0)) for _ in range(3)]
    assert taken == [[[1, 2, 3], [4]], [[5, 6, 7, 8]], [[9]]]
    assert (gathering.rows, gathering.size) == (0, 0)


def test_group_keeps_within_its_octets_and_a_larger_row_is_a_group_of_its_own() -> None:
    gathering = Gathering(WalSettings(group_bytes=10))
    gathering.add(run(4, 4), 0.0)
    gathering.add(run(50), 0.0)
    gathering.add(run(50, 3, 7, 1), 0.0)
    taken = []
    while gathering.rows:
        taken.append(sizes(gathering.take(0.0)))
    assert taken == [[[4, 4]], [[50]], [[50]], [[3, 7]], [[1]]]
    assert gathering.size == 0


def test_writer_counts_what_is_on_its_way(tmp_path: Path) -> None:
    life = Life(log(tmp_path), settings=WalSettings(group_ms=1e9))
    life.append([tag(0), tag(1)], [b"a" * 10, b"b" * 20])
    assert (life.writer.end, life.writer.durable, life.writer.pending_bytes) == (2, 0, 30)
    life.writer.drain()
    assert (life.writer.end, life.writer.durable, life.writer.pending_bytes) == (2, 2, 0)
    assert life.append([], []) == 2
    life.close()


def test_what_is_appended_before_a_close_is_durable(tmp_path: Path) -> None:
    life = Life(log(tmp_path), settings=WalSettings(group_rows=4, group_ms=1e9))
    life.append([tag(row) for row in range(11)])
    life.close()
    assert rows_of(life.wal.slot(0)) == numbered(0, 11)


def test_settled_deliveries_are_stored_and_not_kept_in_mind(tmp_path: Path) -> None:
    life = Life(log(tmp_path))
    life.until(life.writer.append([b"a"], [b"t"], settled=True))
    assert life.writer.unsettled.tags() == []
    assert life.wal.slot(0).end() == 1
    life.close()


def test_segment_holds_frames_up_to_its_size_and_at_least_one(tmp_path: Path) -> None:
    life = Life(log(tmp_path), settings=WalSettings(group_ms=0.0, segment_bytes=3000))
    for _ in range(6):
        life.group(5)
    life.until(life.append([b"large"], [b"x" * 10_000]))
    life.group(1)
    life.close()
    uuid = bytes.fromhex(life.wal.uuid.replace("-", ""))
    shapes = []
    for segment in segments(life.writer.place):
        index = SegmentIndex(life.writer.place, segment, uuid)
        index.extend(1 << 40)
        size = (Path(life.writer.place) / segment.name).stat().st_size
        assert size == index.stop
        assert size <= 3000 or len(index) == 1
        shapes.append(index.end - segment.first)
    assert sum(shapes) == 32
    assert len(shapes) > 3
