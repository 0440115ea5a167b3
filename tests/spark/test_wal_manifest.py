"""wal.json: made once, read by all, and clear words for what is none."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from onceway.spark.errors import WalDamaged, WalError, WalForeign
from onceway.spark.wal import Wal
from onceway.spark.wal.fencing import DOCUMENTS


def test_slots_are_given_once_and_for_ever(tmp_path: Path) -> None:
    location = str(tmp_path / "new" / "wal")
    first = Wal.open_or_create(location, "s", ["b", "a"])
    assert first.slots == {0: "b", 1: "a"}
    again = Wal.open_or_create(location, "s", ["a", "c"])
    assert again.slots == {0: "b", 1: "a", 2: "c"}
    assert again.uuid == first.uuid
    assert Wal.open(location) == again
    assert again.slots_of("a") == [1]
    assert again.container == "s"
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


def test_file_url_is_a_path_and_others_are_refused(tmp_path: Path) -> None:
    wal = Wal.open_or_create(f"file://{tmp_path}/wal", "s", ["t"])
    assert wal.location == f"{tmp_path}/wal"
    with pytest.raises(WalError, match="not a path; it has to be a directory on a file system"):
        Wal.open_or_create("hdfs://there/wal", "s", ["t"])


def test_log_of_another_subscription_or_container_is_refused(tmp_path: Path) -> None:
    location = str(tmp_path / "wal")
    Wal.open_or_create(location, "s", ["t"], container="c")
    with pytest.raises(WalForeign, match="the log of subscription 's', not of 'other'"):
        Wal.open_or_create(location, "other", ["t"])
    with pytest.raises(WalForeign, match="the log of container 'c', not of 'd'"):
        Wal.open_or_create(location, "s", ["t"], container="d")


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
