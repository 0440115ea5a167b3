"""A journal that has lost its log, or a part of it, is refused: an older state would send and deliver twice."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from onceway.client.sqlite_journal import SqliteJournal
from onceway.errors import JournalCorrupt, JournalError
from tests.onceway.client.test_journal import PROCESS

ACCEPTED = b"\x00\x53\x24\x45"

_LIFE = (
    PROCESS
    + """import os
for at in range(0, int(sys.argv[2]), 10):
    publisher.publish(at, [b"m%d" % n for n in range(at, at + 10)])
    subscriber.accept([b"t%d" % n for n in range(at, at + 10)], b"\\x00\\x53\\x24\\x45")
    number = journal.sync()
    with moved:
        moved.wait_for(lambda: journal.durable >= number)
os._exit(0)
"""
)


class Killed(NamedTuple):
    """What a killed process has left: the database and its log."""

    main: Path
    log: Path
    messages: int

    def copy(self, directory: Path, *, log: bool = True) -> Path:
        path = directory / "orders.journal"
        for old in directory.glob("orders.journal*"):
            old.unlink()
        shutil.copy(self.main, path)
        if log:
            shutil.copy(self.log, f"{path}-wal")
        return path


def killed(directory: Path, count: int) -> Killed:
    path = directory / "killed.journal"
    subprocess.run([sys.executable, "-c", _LIFE, str(path), str(count)], check=True)
    return Killed(path, Path(f"{path}-wal"), count)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return killed(tmp_path_factory.mktemp("killed"), 500)


def whole(path: Path, count: int) -> None:
    """Opens it, and finds everything that was confirmed."""
    journal = SqliteJournal(path)
    journal.open("c", lambda: None)
    try:
        record = journal.publisher("orders", "p").record
        assert record.undecided == [(number, b"m%d" % number) for number in range(count)]
        assert record.sequence == count
        accepted = journal.subscriber("orders", "s").record.unsettled
        assert accepted == {b"t%d" % number: ACCEPTED for number in range(count)}
    finally:
        journal.close()


def test_both_files_of_a_killed_process_are_its_journal(left: Killed, tmp_path: Path) -> None:
    whole(left.copy(tmp_path), left.messages)


def test_a_journal_copied_without_its_log_is_refused(left: Killed, tmp_path: Path) -> None:
    path = left.copy(tmp_path, log=False)
    for _ in range(2):
        with pytest.raises(JournalCorrupt, match=r"orders\.journal: .*orders\.journal-wal is missing or damaged"):
            whole(path, left.messages)


def test_a_journal_with_an_older_log_is_refused(left: Killed, tmp_path: Path) -> None:
    path = left.copy(tmp_path)
    log = Path(f"{path}-wal")
    data = log.read_bytes()
    for cut in (0, 32, 5000, len(data) // 2):
        path = left.copy(tmp_path)
        log.write_bytes(data[:cut])
        with pytest.raises(JournalCorrupt, match="missing or damaged"):
            whole(path, left.messages)


def test_whatever_byte_of_the_log_is_damaged_it_is_refused_or_whole(left: Killed, tmp_path: Path) -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(60):
        path = left.copy(tmp_path)
        log = Path(f"{path}-wal")
        data = bytearray(log.read_bytes())
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        log.write_bytes(data)
        try:
            whole(path, left.messages)
        except JournalCorrupt:
            refused += 1
    assert refused > 40


def test_whatever_byte_of_the_file_is_damaged_it_is_refused_or_whole(left: Killed, tmp_path: Path) -> None:
    path = left.copy(tmp_path)
    whole(path, left.messages)
    image = path.read_bytes()
    rng = random.Random(2)
    refused = []
    for _ in range(300):
        data = bytearray(image)
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            whole(path, left.messages)
        except JournalCorrupt as error:
            refused.append(str(error))
    assert len(refused) > 50
    assert all(str(path) in said for said in refused)


def test_a_log_that_is_lost_while_it_is_copied_into_the_file_is_missed(
    left: Killed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some pages have been copied and others not, the newest number among the first."""
    path = left.copy(tmp_path)

    def die(self: SqliteJournal, database: sqlite3.Connection) -> None:
        self._mark.write(self._commits, copying=True)
        raise _Died

    with monkeypatch.context() as patch:
        patch.setattr(SqliteJournal, "_copy_log", die)
        journal = SqliteJournal(path)
        with pytest.raises(_Died):
            journal.open("c", lambda: None)
    # SQLite has copied everything on closing, which here stands for a part: the log is not there to be compared with
    assert not Path(f"{path}-wal").exists()
    with pytest.raises(JournalCorrupt, match="missing or damaged"):
        whole(path, left.messages)


class _Died(JournalError):
    pass


def test_a_clean_close_leaves_one_file_that_may_be_copied(tmp_path: Path) -> None:
    path = tmp_path / "orders.journal"
    for _ in range(2):
        journal = SqliteJournal(path)
        journal.open("c", lambda: None)
        publisher = journal.publisher("orders", "p")
        publisher.publish(publisher.record.sequence, [b"x" * 10_000] * 5)
        journal.close()
        assert [each.name for each in tmp_path.iterdir()] == [path.name]
    copied = tmp_path / "copied.journal"
    shutil.copy(path, copied)
    journal = SqliteJournal(copied)
    journal.open("c", lambda: None)
    assert len(journal.publisher("orders", "p").record.undecided) == 10
    journal.close()


def test_the_log_is_copied_into_the_file_before_it_grows_large(tmp_path: Path) -> None:
    path = tmp_path / "orders.journal"
    journal = SqliteJournal(path)
    journal.open("c", lambda: None)
    publisher = journal.publisher("orders", "p")
    largest = 0
    for number in range(200):
        publisher.publish(number, [b"x" * 500_000])
        publisher.forget(0, number - 1)
        journal._settle_down()
        largest = max(largest, Path(f"{path}-wal").stat().st_size)
    journal.close()
    assert 4_000_000 < largest < 24_000_000


def edit(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE link SET sequence = 3 WHERE role = 'publisher'",
        "UPDATE link SET epoch = epoch + 1",
        "UPDATE link SET name = 'other'",
        "UPDATE publications SET link = 9",
        "UPDATE publications SET first = first + 1000",
        "UPDATE accepted SET link = 9",
        "UPDATE accepted SET outcome = x'00'",
        "UPDATE meta SET value = 'other' WHERE key = 'container'",
        "DELETE FROM link WHERE id > 0",
        "DELETE FROM link WHERE id = 0",
    ],
)
def test_rows_that_were_changed_are_damage(left: Killed, tmp_path: Path, statement: str) -> None:
    path = left.copy(tmp_path)
    whole(path, left.messages)
    edit(path, statement)
    journal = SqliteJournal(path)

    def read() -> None:
        journal.open(None, lambda: None)
        try:
            journal.publisher("orders", "p")
            journal.subscriber("orders", "s")
        finally:
            journal.close()

    with pytest.raises(JournalCorrupt, match="damaged"):
        read()


def test_a_journal_that_sqlite_has_rearranged_is_refused(left: Killed, tmp_path: Path) -> None:
    path = left.copy(tmp_path)
    whole(path, left.messages)
    edit(path, "DELETE FROM publications")
    with closing(sqlite3.connect(path)) as database:
        database.execute("VACUUM")
    with pytest.raises(JournalCorrupt, match="damaged"):
        whole(path, left.messages)


def broken(journal: SqliteJournal) -> None:
    journal._database.execute("DROP TABLE link")


@pytest.mark.parametrize(
    "use",
    [
        lambda journal: journal.publisher("orders", "p"),
        lambda journal: journal.subscriber("orders", "s"),
        lambda journal: journal._rows("SELECT nothing"),
    ],
)
def test_every_error_of_sqlite_is_the_journals_own(tmp_path: Path, use: Callable[[SqliteJournal], None]) -> None:
    journal = SqliteJournal(tmp_path / "orders.journal")
    journal.open("c", lambda: None)
    broken(journal)
    with pytest.raises(JournalError, match=r"orders\.journal: not a journal, or damaged"):
        use(journal)
    journal.close()
