"""Whatever moment a life ends at: the rows that were durable are there, in order, and nothing twice."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onceway.spark.errors import WalDamaged, WalError, WalFull, WalMissing
from onceway.spark.wal import Wal, WalSettings
from onceway.spark.wal.fencing import read_epochs
from onceway.spark.wal.storage import find_tail
from tests.spark.disks import Failing, Recorded, Step, after_kill, after_power_cut
from tests.spark.slots import Life, log, message, numbered, rows_of, tag

SMALL_SEGMENTS = WalSettings(group_rows=1000, group_ms=0.0, lock_timeout_s=0.2, segment_bytes=2000)
GROUPS = (3, 1, 4, 2)
EDGES = (0, 3, 4, 8, 10)


@pytest.fixture(autouse=True, scope="module")
def no_note_by_itself() -> Iterator[None]:
    """What is settled is noted when a life ends in good order, not after two seconds: a test may take its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onceway.spark.source.journal.SETTLED_EVERY_S", 3600.0)
        yield


def recorded(root: Path, settings: WalSettings = SMALL_SEGMENTS) -> list[Step]:
    """The steps of a life with a few groups in several segments, in which some rows are settled and some trimmed."""
    disk = Recorded(root)
    life = Life(log(root), settings=settings, disk=disk)
    for rows in GROUPS:
        life.group(rows)
        if life.writer.end == 8:
            life.part.settle([tag(row) for row in range(5)])
    life.close()
    return disk.steps


def reborn(root: Path, steps: list[Step], epoch: int) -> tuple[Life, int]:
    """(the next life on what is left, how many rows were durable for sure)."""
    shutil.copy(root.parent / "origin" / "wal" / "wal.json", root / "wal" / "wal.json")
    wal = Wal.open(str(root / "wal"))
    told = wal.slot(0).end()
    life = Life(wal, epoch=epoch, settings=SMALL_SEGMENTS)
    sure = max((step.row for step in steps if step.kind == "durable"), default=0)
    assert sure <= life.writer.durable
    assert told <= life.writer.durable
    return life, sure


def check(root: Path, steps: list[Step]) -> None:
    life, sure = reborn(root, steps, epoch=20)
    end = life.writer.end
    assert end in EDGES  # whole groups
    reader = life.wal.slot(0)
    assert rows_of(reader, 0, end) == numbered(0, end)
    known = {**life.part.record.unsettled, **life.meanwhile}
    settled_first = 5 if sure >= 8 else 0
    assert set(map(tag, range(settled_first, end))) <= set(known)
    # the rest comes again, and goes on behind it
    life.group(7)
    assert rows_of(reader) == numbered(0, end + 7)
    life.close()
    again = Life(life.wal, epoch=30, settings=SMALL_SEGMENTS)
    assert again.writer.end == end + 7
    again.close()


def test_killed_at_any_octet_of_any_step(tmp_path: Path) -> None:
    steps = recorded(tmp_path / "origin")
    rng = random.Random(1)
    for count in range(1, len(steps) + 1):
        last = steps[count - 1]
        size = len(last.data) if last.kind == "write" else 0
        # every cut of what is short, a few of what is long
        cuts = [None] if size == 0 else sorted({0, 1, size - 1, *(rng.randrange(size) for _ in range(6))})
        for cut in cuts:
            root = tmp_path / "copy"
            after_kill(steps[:count], cut, root)
            (root / "wal").mkdir(exist_ok=True)
            check(root, steps[: count - 1])
            shutil.rmtree(root)


def test_last_group_torn_at_every_octet(tmp_path: Path) -> None:
    root = tmp_path / "origin"
    wal = log(root)
    life = Life(wal)
    life.group(3)
    before = life.writer.end
    path = next((root / "wal" / "0").glob("seg-*"))
    good = path.stat().st_size
    life.group(2)
    life.close()
    whole = path.read_bytes()
    # as the disk may have it after a power cut: the mark of the last group had not come there
    (root / "wal" / "0" / "end-00000000000000000010").unlink()
    directory = str(root / "wal" / "0")
    for size in range(good, len(whole)):
        path.write_bytes(whole[:size])
        tail = find_tail(directory, read_epochs(directory), 0, bytes.fromhex(wal.uuid.replace("-", "")))
        assert (tail.end, tail.offset, tail.torn) == (before, good, size - good)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_power_cut_at_any_step_keeps_what_was_durable(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = tmp_path_factory.mktemp("cut")
    steps = recorded(base / "origin")
    count = data.draw(st.integers(0, len(steps)))
    seed = data.draw(st.integers(0, 1 << 32))
    root = base / "copy"
    (root / "wal").mkdir(parents=True)
    after_power_cut(steps[:count], random.Random(seed), root)
    check(root, steps[:count])
    shutil.rmtree(base)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_many_lives_with_power_cuts_make_one_log(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each life adds groups and is cut off anywhere; rows once durable are never changed, lost or repeated."""
    base = tmp_path_factory.mktemp("lives")
    root = base / "0"
    wal = log(root)
    manifest = (root / "wal" / "wal.json").read_bytes()
    durable: list[bytes] = []
    history: list[Step] = [Step("directory", "wal")]
    for number in range(1, data.draw(st.integers(2, 4)) + 1):
        disk = Recorded(root)
        life = Life(wal, epoch=10 * number, settings=SMALL_SEGMENTS, disk=disk)
        kept = rows_of(wal.slot(0))
        assert kept[: len(durable)] == durable
        written = list(kept)
        for rows in data.draw(st.lists(st.integers(1, 5), max_size=4)):
            first = life.writer.end
            # what is redelivered may come in another order, so every life writes rows of its own
            payloads = [message(1000 * number + first + n) for n in range(rows)]
            life.until(life.writer.append(payloads, [b"%d/%d" % (number, first + n) for n in range(rows)]))
            written += [b"row %d" % (1000 * number + first + n) for n in range(rows)]
        life.die()
        cut = data.draw(st.integers(0, len(disk.steps)))
        sure = max([len(kept) if cut else 0, *(s.row for s in disk.steps[:cut] if s.kind == "durable")])
        durable = written[: max(sure, len(durable))]
        history += disk.steps[:cut]
        root = base / str(number)
        after_power_cut(history, random.Random(data.draw(st.integers(0, 1 << 32))), root)
        (root / "wal" / "wal.json").write_bytes(manifest)
        # the next life starts from what lies there now, all of it on the disk
        history = _as_found(root)
        wal = Wal.open(str(root / "wal"))
    life = Life(wal, epoch=1000, settings=SMALL_SEGMENTS)
    assert rows_of(wal.slot(0))[: len(durable)] == durable
    life.close()
    shutil.rmtree(base)


def _as_found(root: Path) -> list[Step]:
    steps = [Step("directory", "wal")]
    if (root / "wal" / "0").exists():
        steps.append(Step("directory", "wal/0"))
        for file in sorted((root / "wal" / "0").iterdir()):
            if file.name != "lock":
                name = f"wal/0/{file.name}"
                steps += [Step("open", name), Step("write", name, file.read_bytes()), Step("sync", name)]
        steps.append(Step("sync_directory", "wal/0"))
    return steps


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, WalFull), (errno.EIO, WalError)])
def test_disk_that_fails_at_any_step_loses_nothing_and_says_so(
    number: int, kind: type[WalError], tmp_path: Path
) -> None:
    good = 0
    while True:
        wal = log(tmp_path / str(good))
        disk = Failing(good, number)
        accepted, failure = _work(wal, disk)
        if failure is None:
            break
        assert isinstance(failure, kind)
        assert wal.location in str(failure)
        assert wal.slot(0).end() <= accepted
        life = Life(wal, epoch=20, settings=SMALL_SEGMENTS)
        end = life.writer.end
        assert end in EDGES
        assert end >= accepted
        assert rows_of(wal.slot(0)) == numbered(0, end)
        life.group(1)
        assert rows_of(wal.slot(0)) == numbered(0, end + 1)
        life.close()
        good += 1
    assert good > 30  # it did fail at many a step


def _work(wal: Wal, disk: Failing) -> tuple[int, WalError | None]:
    """(rows accepted, what went wrong)."""
    accepted = 0
    life = None
    try:
        life = Life(wal, settings=SMALL_SEGMENTS, disk=disk)
        for rows in GROUPS:
            accepted = life.group(rows)
        life.part.settle([tag(0)])
        life.close()
    except WalError as error:
        if life is not None:
            assert life.writer.durable == accepted
            if life.journal.failure is not None:
                with pytest.raises(WalError):
                    life.append([b"more"])
            life.die()
        return accepted, error
    return accepted, None


def test_group_whose_sync_failed_is_written_once_more_before_it_counts(tmp_path: Path) -> None:
    """It can be read back from memory, which takes it for clean: that does not make it durable."""
    disk = Recorded(tmp_path / "origin")
    wal = log(tmp_path / "origin")
    life = Life(wal, disk=disk)
    life.group(2)
    disk.syncs_fail = True
    with pytest.raises(WalError, match="the disk failed"):
        life.group(3)
    life.die()
    disk.syncs_fail, disk.alive = False, True
    life = Life(wal, epoch=20, disk=disk)
    assert life.writer.durable == 5  # and may be accepted
    for seed in range(10):
        root = tmp_path / str(seed)
        after_power_cut(disk.steps, random.Random(seed), root)
        shutil.copy(tmp_path / "origin" / "wal" / "wal.json", root / "wal" / "wal.json")
        assert rows_of(Wal.open(str(root / "wal")).slot(0), 0, 5) == numbered(0, 5)
    life.close()


def test_octets_changed_in_front_of_a_good_frame_are_an_error_with_place_and_remedy(tmp_path: Path) -> None:
    wal = log(tmp_path)
    life = Life(wal)
    life.group(3)
    offset = life.writer.storage.files.offset
    life.group(2)
    life.die()
    path = next((tmp_path / "wal" / "0").glob("seg-*"))
    _flip(path, offset - 70)
    with pytest.raises(WalDamaged, match=rf"{path}: offset \d+: row 0 should follow here.*restore the file"):
        Life(wal, epoch=20)


def test_last_group_changed_though_it_was_durable_is_an_error(tmp_path: Path) -> None:
    wal = log(tmp_path)
    life = Life(wal)
    life.group(3)
    life.die()
    path = next((tmp_path / "wal" / "0").glob("seg-*"))
    _flip(path, path.stat().st_size - 70)
    with pytest.raises(WalDamaged, match=r"rows 0 to 2 were durable and are not there.*restore"):
        Life(wal, epoch=20)


def test_reader_finds_damage_of_any_octet_of_a_frame(tmp_path: Path) -> None:
    wal = log(tmp_path)
    life = Life(wal)
    life.group(3)
    begin = life.writer.storage.files.offset
    life.group(3)
    life.close()
    path = next((tmp_path / "wal" / "0").glob("seg-*"))
    whole = path.read_bytes()
    for at in range(begin, len(whole), 5):
        if begin + 52 <= at < begin + 64:
            continue  # padding of the head, which says nothing
        _flip(path, at)
        with pytest.raises(WalError, match=str(path) if at >= begin + 64 else str(tmp_path)):
            rows_of(wal.slot(0), 0, 6)
        path.write_bytes(whole)
    assert rows_of(wal.slot(0), 0, 6) == numbered(0, 6)


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x40
    path.write_bytes(bytes(data))


def test_segment_that_was_removed_is_an_error(tmp_path: Path) -> None:
    wal = log(tmp_path)
    life = Life(wal, settings=SMALL_SEGMENTS)
    for rows in GROUPS * 3:
        life.group(rows)
    end = life.writer.end
    life.die()
    first, second, *_ = sorted((tmp_path / "wal" / "0").glob("seg-*"))
    kept = second.read_bytes()
    second.unlink()
    with pytest.raises(WalDamaged, match=r"no good frame is there.*a later segment was removed"):
        rows_of(wal.slot(0), 0, end)
    second.write_bytes(kept)
    first.unlink()
    with pytest.raises(WalDamaged, match="rows 0 to 7 are missing: the segment before"):
        Life(wal, epoch=20)
    for rest in (tmp_path / "wal" / "0").glob("seg-*"):
        rest.unlink()
    with pytest.raises(WalMissing, match=f"rows 0 to {end - 1} are not in the log, which ends at row 0"):
        rows_of(wal.slot(0), 0, end)
