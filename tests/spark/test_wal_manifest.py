"""wal.json: made once, read by all, and clear words for what is none."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path

import pytest

from onceway.spark.errors import WalDamaged, WalError, WalFenced, WalForeign
from onceway.spark.files import Disk
from onceway.spark.wal import Step, Wal
from onceway.spark.wal.documents import FileDocument
from onceway.spark.wal.fencing import DOCUMENTS
from tests.spark.memory import MemoryObjects


def test_slots_are_given_once_and_for_ever(tmp_path: Path) -> None:
    location = str(tmp_path / "new" / "wal")
    first = Wal.open_or_create(location, "s", ["b", "a"])
    assert first.slots == {0: "b", 1: "a"}
    again = Wal.open_or_create(location, "s", ["a", "c"])
    assert again.slots == {0: "b", 1: "a", 2: "c"}
    assert again.uuid == first.uuid
    assert Wal.open(location) == again
    assert again.slots_of("a") == [1]
    assert pickle.loads(pickle.dumps(again)) == again


def test_partitions_have_slots_and_names_of_their_own_and_keep_their_number(tmp_path: Path) -> None:
    location = str(tmp_path / "wal")
    Wal.open_or_create(location, "s", ["a"], partitions=3)
    wal = Wal.open_or_create(location, "s", ["a", "b"], partitions=3)
    assert wal.slots_of("b") == [3, 4, 5]
    assert [wal.link_of(slot) for slot in (0, 2, 4)] == ["s.0-of-3", "s.2-of-3", "s.1-of-3"]
    assert Wal.open(location) == wal
    with pytest.raises(WalForeign, match=r"the log has partitions=3, not 4.*Keep the number"):
        Wal.open_or_create(location, "s", ["a"], partitions=4)


class Scheduled(Disk):
    """Takes each step of a swap when it is its turn."""

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns = turns
        self._number = number

    def _write_whole(self, path: str, data: bytes) -> None:
        self._turns.take(self._number)
        super()._write_whole(path, data)

    def _remove_others(self, path: str, fresh: str) -> None:
        self._turns.take(self._number)
        super()._remove_others(path, fresh)

    def _read(self, path: str) -> bytes | None:
        self._turns.take(self._number)
        return super()._read(path)

    def rename(self, old: str, new: str) -> None:
        self._turns.take(self._number)
        super().rename(old, new)


class Turns:
    def __init__(self, order: Sequence[int]) -> None:
        self._left = list(order)
        self._changed = threading.Condition()

    def take(self, number: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._left[0] == number, 10.0)
            self._left.pop(0)
            self._changed.notify_all()

    def skip(self, number: int) -> None:
        """It has ended: it takes none of those that are left for it."""
        with self._changed:
            self._left = [*(one for one in self._left if one != number), -1]
            self._changed.notify_all()


@pytest.mark.parametrize("new", [False, True])
def test_of_two_that_replace_what_they_have_read_one_succeeds_at_most_in_whatever_order_they_step(
    tmp_path: Path, new: bool
) -> None:
    orders = [[int(step in first) for step in range(8)] for first in combinations(range(8), 4)]
    with ThreadPoolExecutor(2) as threads:
        for at, order in enumerate(orders):
            path, turns = tmp_path / str(at) / "wal.json", Turns(order)
            path.parent.mkdir()
            if not new:
                DOCUMENTS.write(path, {"by": 2})
            documents = [FileDocument(str(path), DOCUMENTS, Scheduled(turns, number)) for number in (0, 1)]

            def swap(number: int, documents: list[FileDocument] = documents, turns: Turns = turns) -> bool:
                done = documents[number].swap({"by": number})
                turns.skip(number)
                return done

            for document in documents:
                document.read()
            done = list(threads.map(swap, (0, 1)))
            assert done != [True, True], order
            expected = None if new and not any(done) else {"by": done.index(True) if any(done) else 2}
            assert DOCUMENTS.read(path) == expected, order
            assert any(done) or order not in (sorted(order), sorted(order, reverse=True))
            assert len(list(path.parent.iterdir())) <= 1


@pytest.mark.parametrize("location", ["directory", "s3://logs/orders"])
@pytest.mark.parametrize("step", list(Step)[1:])
def test_who_has_lost_a_change_of_partitions_writes_nothing_of_it_however_it_was_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, step: Step
) -> None:
    store = MemoryObjects()
    for module in ("onceway.spark.wal", "onceway.spark.wal.bucket"):
        monkeypatch.setattr(f"{module}.objects_at", lambda place: store)
    place = location if location.startswith("s3:") else str(tmp_path / location)
    Wal.open_or_create(place, "s", ["t"], partitions=2)
    for slot in "01" if place != location else "":
        Path(place, slot).mkdir()
    frozen = Wal.open_or_create(place, "s", ["t"], partitions=3, change=True).take_change()
    later: list[Wal] = []
    rename = Disk.rename

    def follow() -> None:
        """When it has looked, and is about to write."""
        store.before = lambda: None
        monkeypatch.setattr(Disk, "rename", rename)
        later.append(Wal.open(place).take_change())

    def late(disk: Disk, old: str, new: str) -> None:
        follow()
        rename(disk, old, new)

    store.before = follow
    monkeypatch.setattr(Disk, "rename", late)
    with pytest.raises(WalFenced, match=r"wal.json: a later process"):
        frozen.change_to(step)
    assert Wal.open(place) == later[0]
    assert later[0].in_change(Step.DRAINING)
    assert not later[0].change_to(Step.DRAINED).change_to(Step.ENDED).in_change()


def test_file_url_is_a_path_and_others_are_refused(tmp_path: Path) -> None:
    wal = Wal.open_or_create(f"file://{tmp_path}/wal", "s", ["t"])
    assert wal.location == f"{tmp_path}/wal"
    with pytest.raises(WalError, match="not a path; it has to be a directory on a file system"):
        Wal.open_or_create("hdfs://there/wal", "s", ["t"])


def test_log_of_another_subscription_is_refused(tmp_path: Path) -> None:
    location = str(tmp_path / "wal")
    Wal.open_or_create(location, "s", ["t"])
    with pytest.raises(WalForeign, match="the log of subscription 's', not of 'other'"):
        Wal.open_or_create(location, "other", ["t"])


def test_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(WalForeign, match=r"holds 'thesis.txt' and no wal.json; give a new or empty place"):
        Wal.open_or_create(str(tmp_path), "s", ["t"])


def test_where_there_is_no_log_reading_says_so(tmp_path: Path) -> None:
    with pytest.raises(WalForeign, match=r"no write-ahead log \(there is no wal.json\)"):
        Wal.open(str(tmp_path / "nothing"))


def test_damaged_manifest_is_an_error_with_place_and_remedy(tmp_path: Path) -> None:
    location = tmp_path / "wal"
    Wal.open_or_create(str(location), "s", ["t"])
    manifest = location / "wal.json"
    manifest.write_text(manifest.read_text().replace('"t"', '"u"'))
    for attempt in (lambda: Wal.open(str(location)), lambda: Wal.open_or_create(str(location), "s", ["t"])):
        with pytest.raises(WalDamaged, match=rf"{manifest}: damaged, or edited by hand.*restore the file"):
            attempt()
    manifest.write_bytes(b"")
    with pytest.raises(WalDamaged):
        Wal.open(str(location))


def test_another_format_or_program_is_refused(tmp_path: Path) -> None:
    location = tmp_path / "wal"
    Wal.open_or_create(str(location), "s", ["t"])
    manifest = location / "wal.json"
    content = json.loads(manifest.read_text())
    del content["crc32"]
    manifest.write_bytes(DOCUMENTS.dump({**content, "format": 3}))
    with pytest.raises(WalForeign, match="a log of format 3, this onceway reads 2"):
        Wal.open(str(location))
    manifest.write_bytes(DOCUMENTS.dump({"program": "another"}))
    with pytest.raises(WalForeign, match="another program's file"):
        Wal.open(str(location))


def test_location_that_is_a_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WalError, match=str(tmp_path / "file")):
        Wal.open_or_create(str(tmp_path / "file" / "wal"), "s", ["t"])
