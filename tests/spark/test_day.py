"""A day of load in simulated time: what a log takes is bounded by its retention, in a directory and in a bucket, and no
object of Python is left behind, neither by the writer nor by a reader that lives as long."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from onceway.spark.wal import Retention, WalSettings, bucket
from tests.spark.slots import Life, log, tag
from tests.spark.test_wal_bucket import World

HOUR = 3600.0
EVERY_S = 120.0  # a group
ROWS = 20
SEGMENT = 64 << 10


class Clock:
    """The wall clock of storages and writers; all other waiting is real."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        module = SimpleNamespace(
            time=lambda: self.now, time_ns=lambda: int(self.now * 1e9), monotonic=time.monotonic, sleep=time.sleep
        )
        for name in ("bucket", "storage", "writing"):
            patch.setattr(f"onceway.spark.wal.{name}.time", module)
        patch.setattr("onceway.spark.source.journal.SETTLED_EVERY_S", 0.0)


def a_day(life: Life, clock: Clock, size: Callable[[], int], retention: Retention, kept: float) -> list[int]:
    """Sizes at each full hour; from the second one on rows of at least `kept` seconds are there."""
    sizes = []
    objects: list[int] = []
    reader = life.wal.slot(0)
    starts: list[tuple[float, int]] = []  # when each group came, and its first row
    for hour in range(24):
        for _ in range(int(HOUR / EVERY_S)):
            clock.now += EVERY_S
            first = life.writer.end
            starts.append((clock.now, first))
            life.writer.trim(first, retention)
            end = life.group(ROWS)
            life.part.settle([tag(row) for row in range(first, end)])
            assert sum(batch.num_rows for batch in reader.read(first, reader.end(fresh=True))) == ROWS
        sizes.append(size())
        gc.collect()
        objects.append(len(gc.get_objects()))
        if hour:
            oldest = next(first for at, first in starts if at >= clock.now - kept)
            assert life.wal.slot(0).start() <= oldest
    assert max(objects[12:]) < max(objects[2:12]) + 100, f"objects of Python are left behind: {objects}"
    return sizes


@pytest.mark.parametrize(
    ("retention", "kept"),
    [(Retention(HOUR, 0), HOUR - EVERY_S), (Retention(0.0, 4 * SEGMENT), 0.0)],
    ids=["time", "size"],
)
def test_a_directory_stays_as_small_as_its_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retention: Retention, kept: float
) -> None:
    clock = Clock(monkeypatch)
    life = Life(log(tmp_path), settings=WalSettings(group_rows=1000, group_ms=0.0, segment_bytes=SEGMENT // 8))
    slot = tmp_path / "wal" / "0"
    group = life.group

    def grouped(rows: int) -> int:
        end = group(rows)
        newest = max(slot.glob("seg-*"))
        os.utime(newest, (clock.now, clock.now))  # a file is as old as its last group
        return end

    def size() -> int:
        total = 0
        for file in slot.iterdir():
            with contextlib.suppress(FileNotFoundError):  # the writer's thread removes what retention lets go
                total += file.stat().st_size
        return total

    monkeypatch.setattr(life, "group", grouped)
    sizes = a_day(life, clock, size, retention, kept)
    assert max(sizes[12:]) <= min(sizes[12:]) + 2 * SEGMENT // 8, sizes  # whole segments are removed
    assert len(os.listdir(slot)) < 60
    life.close()


def test_a_bucket_stays_as_small_as_its_retention(monkeypatch: pytest.MonkeyPatch) -> None:
    world, clock = World(monkeypatch), Clock(monkeypatch)
    life = Life(world.wal())
    sizes = a_day(life, clock, lambda: len(world.contents), Retention(HOUR, 0), HOUR - EVERY_S)
    assert max(sizes[12:]) <= 2 * bucket.BLOCK + HOUR / EVERY_S + 10, sizes  # whole blocks are removed
    life.close()
