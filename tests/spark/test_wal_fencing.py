"""Two writers of one log: locks, epochs, and what readers are told while one takes over from the other."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from onceway.spark.errors import WalFenced, WalLocked
from onceway.spark.source.progress import Progress
from onceway.spark.wal import SlotReader, SlotWriter, Wal, WalSettings
from onceway.spark.wal import storage as storage_module
from onceway.spark.wal.fencing import Epochs, Mark, mark_path, read_epochs, write_epochs
from onceway.spark.wal.frames import Segment
from tests.spark.disks import Quick
from tests.spark.slots import GROUPS, WITHIN_S, Life, log, message, numbered, rows_of


class _NoLock:
    """A file system whose locks do not reach other hosts."""

    def __init__(self, path: str, timeout_s: float) -> None:
        pass

    def release(self) -> None:
        pass


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_module, "take_lock", _NoLock)


@pytest.fixture
def unaware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers that do not see they were fenced off: they looked just before, and were stopped in between."""
    monkeypatch.setattr(SlotWriter, "check_ours", lambda self: None)


class Interrupted(Quick):
    """Something happens before each of its steps."""

    def __init__(self, before: Callable[[], object]) -> None:
        self.before: Callable[[], object] = before

    def step(self) -> None:
        super().step()
        self.before()

    def stop(self) -> None:
        self.before = lambda: None


# -- locks


def test_second_query_on_a_log_is_told_who_has_it_and_what_to_do(tmp_path: Path) -> None:
    wal = log(tmp_path)
    life = Life(wal)
    with pytest.raises(WalLocked) as caught:
        Life(wal)
    text = str(caught.value)
    assert os.path.join(wal.location, "0", "lock") in text
    assert f"two readers of one log: process {os.getpid()} on " in text
    assert "one frame that two queries are started with reads it twice, and so do two loads in one query" in text
    assert "Give each a walLocation and subscription of its own; or receive once, by `onceway ingest run`" in text
    assert "0.2 s (lockTimeout)" in text
    life.close()
    Life(wal, epoch=20).close()


HOLDER = """
import sys
from onceway.spark.files import Lock
lock = Lock(sys.argv[1], 0)
print("held", flush=True)
sys.stdin.read()
"""


def test_lock_of_a_process_that_dies_is_waited_for(tmp_path: Path) -> None:
    wal = log(tmp_path)
    Life(wal).close()
    path = os.path.join(wal.location, "0", "lock")
    zombie = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert zombie.stdout.readline() == b"held\n"
    with pytest.raises(WalLocked, match=f"process {zombie.pid} on"):
        Life(wal, epoch=20)
    zombie.stdin.close()  # it ends, sooner or later
    life = Life(wal, epoch=20, settings=WalSettings(group_ms=0, lock_timeout_s=30.0))
    zombie.wait()
    zombie.stdout.close()
    life.close()


# -- fencing, where locks do not help


@pytest.mark.usefixtures("without_locks", "unaware")
def test_rows_a_zombie_adds_after_the_fence_do_not_exist(tmp_path: Path) -> None:
    wal = log(tmp_path)
    old_reader = wal.slot(0)
    zombie = Life(wal, epoch=10)
    zombie.group(3)
    assert rows_of(old_reader) == numbered(0, 3)  # it knows the segment that the zombie goes on with
    life = Life(wal, epoch=20)
    zombie.group(4)  # it believes in them, and the router does not take its accepts: the link was stolen
    assert old_reader.end() == wal.slot(0).end() == 3
    life.until(life.append([b"a", b"b"], [message(100), message(101)]))
    zombie.group(4)
    expected = [*numbered(0, 3), b"row 100", b"row 101"]
    assert rows_of(old_reader) == rows_of(wal.slot(0)) == expected
    life.close()
    zombie.die()
    later = Life(wal, epoch=30)
    assert later.writer.end == 5
    assert [*later.part.record.unsettled] == [b"t0", b"t1", b"t2", b"a", b"b"]
    assert rows_of(wal.slot(0)) == expected
    later.close()


@pytest.mark.usefixtures("without_locks", "unaware")
def test_segment_a_zombie_begins_after_the_fence_does_not_exist(tmp_path: Path) -> None:
    wal = log(tmp_path)
    small = WalSettings(group_rows=1000, group_ms=0, segment_bytes=1)  # a segment for each group
    zombie = Life(wal, epoch=10, settings=small)
    zombie.group(2)
    life = Life(wal, epoch=20, settings=small)
    zombie.group(2)
    life.until(life.append([b"x"], [message(50)]))
    zombie.group(2)
    zombie.die()
    assert rows_of(wal.slot(0)) == [*numbered(0, 2), b"row 50"]
    life.close()
    last = Life(wal, epoch=30, settings=small)
    assert last.writer.end == 3
    last.group(1)
    last.group(1)
    last.part.settle(last.writer.unsettled.tags())
    last.writer.trim(4)
    last.close()
    assert wal.slot(0).start() == 4
    left = sorted(file.name for file in (tmp_path / "wal" / "0").glob("seg-*"))
    # what the zombie began at row 4 stays until rows behind it are trimmed; nobody counts it
    assert [name[-8:-4] for name in left] == ["0004", "0004"]
    assert rows_of(wal.slot(0)) == [b"row 4"]


@pytest.mark.usefixtures("without_locks")
def test_zombie_finds_out_that_it_was_fenced_off(tmp_path: Path) -> None:
    wal = log(tmp_path)
    zombie = Life(wal, epoch=10)
    zombie.group(3)
    life = Life(wal, epoch=20)
    with pytest.raises(WalFenced, match="a later process has taken this log over"):
        zombie.group(1)
    assert zombie.journal.failure is not None
    assert zombie.writer.durable == 3
    assert zombie.part.attached(30) == {}
    assert zombie.journal.sync() > zombie.journal.durable  # no credit for it
    life.close()
    zombie.die()


class Frozen(Quick):
    """Stands still before it renames a document, until it is thawed."""

    def __init__(self) -> None:
        self.at = ""  # the document
        self.stands = threading.Event()
        self.thawed = threading.Event()

    def rename(self, old: str, new: str) -> None:
        if self.at and new.endswith(self.at):
            self.stands.set()
            assert self.thawed.wait(WITHIN_S)
        super().rename(old, new)


@pytest.mark.usefixtures("without_locks")
def test_zombie_that_was_frozen_before_it_renamed_a_document_neither_puts_it_back_nor_disturbs(tmp_path: Path) -> None:
    wal = log(tmp_path)
    disk = Frozen()
    zombie = Life(wal, epoch=10, disk=disk)
    zombie.group(3)
    disk.at = "link.json"
    zombie.part.contact(1, 2.0)
    zombie.journal.sync()
    assert disk.stands.wait(WITHIN_S)
    life = Life(wal, epoch=20)
    link = Path(wal.location, "0", "link.json").read_bytes()
    disk.thawed.set()
    with pytest.raises(WalFenced, match="a later process has taken this log over"):
        zombie.sync()
    assert Path(wal.location, "0", "link.json").read_bytes() == link
    life.group(2)
    life.close()
    zombie.die()


def test_what_a_killed_writer_had_not_renamed_is_removed(tmp_path: Path) -> None:
    wal = log(tmp_path)
    Life(wal, epoch=10).close()
    names = ["wal.json.1a2b3c4d.new", "reader-a.json.1a2b3c4d.new", "0/link.json.1a2b3c4d.new", "0/epoch.5e6f7a8b.new"]
    for name in [*names, "reader-b.json.1a2b3c4d.new"]:
        Path(wal.location, name).write_text("{")
    Progress(log(tmp_path), "a").begin()
    Life(wal, epoch=20).close()
    wal.take_change()  # writes the manifest
    # another query may be about to rename its own
    assert [path.name for path in Path(wal.location).rglob("*.new")] == ["reader-b.json.1a2b3c4d.new"]


@pytest.mark.usefixtures("without_locks", "unaware")
@pytest.mark.parametrize("rows", [1, 2])
def test_whatever_a_zombie_writes_during_the_takeover_readers_are_told_nothing_that_is_taken_back(
    rows: int, tmp_path: Path
) -> None:
    """Before every step of the takeover the zombie commits a group and a reader asks."""
    wal = log(tmp_path)
    zombie = Life(wal, epoch=10)
    zombie.group(1)
    told: dict[int, list[bytes]] = {}
    reader = wal.slot(0)

    def meanwhile() -> None:
        zombie.group(rows)
        for asked in (reader, wal.slot(0)):
            end = asked.end()
            told[end] = rows_of(asked, 0, end)

    disk = Interrupted(meanwhile)
    life = Life(wal, epoch=20, disk=disk)
    disk.stop()
    fenced = life.writer.durable
    assert max(told) <= fenced
    final = rows_of(wal.slot(0), 0, fenced)
    assert all(final[:end] == seen for end, seen in told.items())
    assert fenced > 1  # it did come in between
    assert reader.end() == fenced
    assert len(life.part.record.unsettled) == fenced
    assert life.meanwhile  # and what it added before the fence is known
    zombie.die()
    life.close()


@pytest.mark.usefixtures("without_locks", "unaware")
def test_what_a_zombie_added_between_recovery_and_fence_is_known_and_not_appended_again(tmp_path: Path) -> None:
    wal = log(tmp_path)
    zombie = Life(wal, epoch=10)
    zombie.group(2)
    added: list[int] = []
    life = Life(wal, epoch=20, disk=Interrupted(lambda: added or added.append(zombie.group(3))))
    known = {**life.part.record.unsettled, **life.meanwhile}
    assert list(known) == [b"t%d" % row for row in range(5)]
    assert life.writer.end == 5
    zombie.die()
    life.close()


# -- what readers believe


def _state(wal: Wal, epochs: Epochs, *marks: Mark) -> SlotReader:
    directory = os.path.join(wal.location, "0")
    os.makedirs(directory, exist_ok=True)
    write_epochs(Quick(), directory, epochs)
    for mark in marks:
        Path(mark_path(directory, mark.epoch)).write_bytes(mark.encode())
    return wal.slot(0)


def test_mark_of_an_epoch_that_is_claimed_is_not_believed(tmp_path: Path) -> None:
    wal = log(tmp_path)
    mark = Mark(10, 7, Segment(0, 10), 1)
    reader = _state(wal, Epochs(10, 10), mark)
    assert reader.end() == 7
    fresh = _state(wal, Epochs(20, 10), mark)
    assert fresh.end() == 0
    assert reader.end() == 7  # and what it was told before stays
    fresh = _state(wal, Epochs(20, 20, {10: 9}), mark)
    assert fresh.end() == reader.end() == 9


def _told_during_takeover(wal: Wal, epoch: int) -> tuple[set[int], Life]:
    """What one is told who begins to read before any step of it."""
    told: list[int] = []
    disk = Interrupted(lambda: told.append(wal.slot(0).end()))
    life = Life(wal, epoch=epoch, disk=disk)
    disk.stop()
    assert len(told) > 10
    return set(told), life


def test_who_begins_to_read_during_a_takeover_finds_what_was_there_before_it(tmp_path: Path) -> None:
    wal = log(tmp_path)
    for epoch, before in ((10, 0), (20, 3), (30, 6)):
        told, life = _told_during_takeover(wal, epoch)
        assert told == {before}
        life.group(3)
        life.die()


def test_a_takeover_from_one_that_died_in_its_own_tells_readers_no_less(tmp_path: Path) -> None:
    wal = log(tmp_path)
    life = Life(wal, epoch=10)
    life.group(3)
    life.die()
    write_epochs(Quick(), os.path.join(wal.location, "0"), Epochs(20, 10, {}, readers_end=3))
    told, life = _told_during_takeover(wal, 30)
    assert told == {3}
    life.close()


def test_mark_that_cannot_be_read_counts_for_nothing(tmp_path: Path) -> None:
    wal = log(tmp_path)
    mark = Mark(20, 12, Segment(5, 20), 1)
    reader = _state(wal, Epochs(20, 20, {10: 5}), mark)
    path = Path(mark_path(os.path.join(wal.location, "0"), 20))
    whole = path.read_bytes()
    for at in range(len(whole)):
        data = bytearray(whole)
        data[at] ^= 1
        path.write_bytes(bytes(data))
        assert wal.slot(0).end() == 5
    path.write_bytes(whole)
    assert reader.end() == 12


def test_ends_of_epochs_without_rows_are_not_kept(tmp_path: Path) -> None:
    wal = log(tmp_path)
    for epoch in range(10, 60, 10):
        Life(wal, epoch=epoch).close()
    life = Life(wal, epoch=60)
    life.group(2)
    life.close()
    Life(wal, epoch=70).close()
    epochs = read_epochs(os.path.join(wal.location, "0"))
    assert epochs == Epochs(70, 70, {60: 2})


def test_epoch_of_the_log_grows_though_the_link_brings_an_older_one(tmp_path: Path) -> None:
    wal = log(tmp_path)
    Life(wal, epoch=100, settings=GROUPS).close()
    life = Life(wal, epoch=50)
    life.group(1)
    assert read_epochs(life.writer.place) == Epochs(101, 101)
    assert rows_of(wal.slot(0)) == numbered(0, 1)
    life.close()
