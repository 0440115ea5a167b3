"""The embedded journal: what is durable, what a crash leaves, what a second process is told."""

from __future__ import annotations

import os
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from onceway.client import clock
from onceway.client.journal import MemoryJournal, PublisherRecord, SubscriberRecord
from onceway.client.sqlite_journal import SqliteJournal
from onceway.errors import JournalCorrupt, JournalError, JournalFull, JournalLocked

ACCEPTED = b"\x00\x53\x24\x45"


class Opened:
    """A journal and a way to wait for it."""

    def __init__(self, path: Path, container: str | None = "c") -> None:
        self._moved = threading.Condition()
        self.journal = SqliteJournal(path)
        self.container = self.journal.open(container, self._wake)

    def _wake(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def sync(self) -> None:
        number = self.journal.sync()
        with self._moved:
            assert self._moved.wait_for(lambda: self.journal.durable >= number or self.journal.failure, timeout=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.journal"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[], Opened]]:
    """Opens the journal, closing the one before: a new life of the same client."""
    lives: list[Opened] = []

    def open_again() -> Opened:
        if lives and lives[-1].journal.failure is None:
            lives[-1].journal.close()
        lives.append(Opened(path))
        return lives[-1]

    yield open_again
    if lives and lives[-1].journal.failure is None:
        lives[-1].journal.close()


def test_publications_come_back_with_their_numbers_until_they_are_forgotten(opened: Callable[[], Opened]) -> None:
    life = opened()
    publisher = life.journal.publisher("orders", "p")
    assert publisher.record.epoch == 0
    assert publisher.record.undecided == []
    publisher.attach(77, 70)
    publisher.publish(0, [b"a", b"", b"ccc"])
    publisher.publish(3, [b"d"])
    life.sync()
    publisher.forget(1, 1)
    publisher.forget(3, 3)
    life.sync()
    record = opened().journal.publisher("orders", "p").record
    assert (record.epoch, record.incarnation, record.sequence) == (77, 70, 4)
    assert record.undecided == [(0, b"a"), (2, b"ccc")]


def test_a_number_is_never_used_again_though_everything_was_forgotten(opened: Callable[[], Opened]) -> None:
    life = opened()
    publisher = life.journal.publisher("orders", "p")
    publisher.publish(0, [b"a"] * 10)
    life.sync()
    publisher.forget(0, 9)
    life.sync()
    record = opened().journal.publisher("orders", "p").record
    assert record.sequence == 10
    assert record.undecided == []


def test_runs_that_are_forgotten_whole_leave_no_row(opened: Callable[[], Opened], path: Path) -> None:
    life = opened()
    publisher = life.journal.publisher("orders", "p")
    for first in range(0, 50, 5):
        publisher.publish(first, [b"x"] * 5)
        life.sync()
    publisher.forget(0, 22)
    publisher.forget(23, 49)
    life.journal.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM publications").fetchone() == (0,)


def test_accepted_tags_come_back_in_order_until_they_are_settled(opened: Callable[[], Opened]) -> None:
    life = opened()
    subscriber = life.journal.subscriber("orders", "s")
    subscriber.attach(5, 5)
    subscriber.attached(5)
    subscriber.accept([b"t1", b"t2"], ACCEPTED)
    subscriber.accept([b"t3"], b"other")
    life.sync()
    subscriber.settle([b"t1", b"t2"])
    life.sync()
    record = opened().journal.subscriber("orders", "s").record
    assert (record.epoch, record.born) == (5, 5)
    assert record.unsettled == {b"t3": b"other"}


def test_a_subscription_that_was_never_answered_has_no_born(opened: Callable[[], Opened]) -> None:
    life = opened()
    subscriber = life.journal.subscriber("orders", "s")
    subscriber.attach(5, 5)
    life.sync()
    record = opened().journal.subscriber("orders", "s").record
    assert (record.epoch, record.born) == (5, 0)


def test_settled_tags_of_a_run_that_is_not_empty_may_come_back_and_never_vanish_early(
    opened: Callable[[], Opened],
) -> None:
    life = opened()
    subscriber = life.journal.subscriber("orders", "s")
    subscriber.accept([b"t1", b"t2"], ACCEPTED)
    life.sync()
    subscriber.settle([b"t1"])
    life.sync()
    life = opened()
    subscriber = life.journal.subscriber("orders", "s")
    assert b"t2" in subscriber.record.unsettled
    subscriber.settle(list(subscriber.record.unsettled))
    life.sync()
    assert opened().journal.subscriber("orders", "s").record.unsettled == {}


def test_links_of_equal_names_are_kept_apart_by_role_and_address(opened: Callable[[], Opened]) -> None:
    life = opened()
    life.journal.publisher("a", "n").attach(1, 1)
    life.journal.publisher("b", "n").attach(2, 2)
    life.journal.subscriber("a", "n").attach(3, 3)
    life.sync()
    life = opened()
    assert life.journal.publisher("a", "n").record.epoch == 1
    assert life.journal.publisher("b", "n").record.epoch == 2
    assert life.journal.subscriber("a", "n").record.epoch == 3


def test_a_link_opened_again_in_one_life_finds_what_it_wrote(opened: Callable[[], Opened]) -> None:
    life = opened()
    publisher = life.journal.publisher("orders", "p")
    publisher.publish(0, [b"a"])
    assert life.journal.publisher("orders", "p").record.undecided == [(0, b"a")]


def test_a_closed_link_is_forgotten_but_for_its_numbers(opened: Callable[[], Opened]) -> None:
    life = opened()
    publisher = life.journal.publisher("orders", "p")
    publisher.attach(9, 8)
    publisher.publish(0, [b"a"])
    publisher.close()
    record = opened().journal.publisher("orders", "p").record
    assert (record.epoch, record.incarnation, record.sequence, record.undecided) == (9, 0, 1, [])


def test_contact_is_remembered(opened: Callable[[], Opened]) -> None:
    opened().journal.publisher("orders", "p").contact(123_456, 90.0)
    record = opened().journal.publisher("orders", "p").record
    assert (record.contact_us, record.timeout_s) == (pytest.approx(123_456, abs=100_000), 90.0)


def test_many_writes_share_one_commit(opened: Callable[[], Opened]) -> None:
    life = opened()
    publisher = life.journal.publisher("orders", "p")
    before = life.journal.durable
    for number in range(10_000):
        publisher.publish(number, [b"x" * 100])
        life.journal.sync()
    life.sync()
    assert life.journal.durable - before < 5_000


def test_nothing_written_is_durable_without_waiting(opened: Callable[[], Opened]) -> None:
    life = opened()
    assert life.journal.sync() <= life.journal.durable


def test_a_journal_without_a_container_gives_itself_one_and_keeps_it(path: Path) -> None:
    first = Opened(path, None)
    first.journal.close()
    again = Opened(path, None)
    again.journal.close()
    assert first.container == again.container
    assert first.container.startswith("onceway-")


def test_another_containers_journal_is_refused_by_name(path: Path) -> None:
    Opened(path, "mine").journal.close()
    with pytest.raises(JournalCorrupt, match=r"belongs to container 'mine', not 'yours'"):
        Opened(path, "yours")


def test_a_second_process_is_told_that_the_journal_is_open(path: Path) -> None:
    life = Opened(path)
    program = (
        "import sys\n"
        "from onceway import SqliteJournal\n"
        "from onceway.errors import JournalLocked\n"
        "try:\n"
        "    SqliteJournal(sys.argv[1]).open('c', lambda: None)\n"
        "except JournalLocked as error:\n"
        "    print(error)\n"
    )
    with pytest.raises(JournalLocked):  # which must not drop the lock of this process
        Opened(path)
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert "another process has this journal open" in done.stdout
    life.journal.close()


def test_a_file_that_is_no_database_is_refused_with_a_remedy(path: Path) -> None:
    path.write_bytes(b"dear diary, " * 1000)
    with pytest.raises(JournalCorrupt, match=r"not a journal, or damaged.*move it away"):
        Opened(path)
    assert path.read_bytes().startswith(b"dear diary")


def test_a_database_of_another_program_is_refused_untouched(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(JournalCorrupt, match="another program"):
        Opened(path)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_a_journal_of_a_later_format_is_refused(path: Path) -> None:
    Opened(path).journal.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(JournalCorrupt, match="format 99"):
        Opened(path)


_FORMAT_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE link (
    id INTEGER PRIMARY KEY, role TEXT NOT NULL, address TEXT NOT NULL, name TEXT NOT NULL,
    epoch INTEGER NOT NULL DEFAULT 0, identity INTEGER NOT NULL DEFAULT 0, sequence INTEGER NOT NULL DEFAULT 0,
    contact_us INTEGER NOT NULL DEFAULT 0, timeout_s REAL NOT NULL DEFAULT 0,
    UNIQUE (role, address, name));
CREATE TABLE publications (
    link INTEGER NOT NULL, first INTEGER NOT NULL, lengths BLOB NOT NULL, payloads BLOB NOT NULL,
    crc INTEGER NOT NULL, live BLOB, PRIMARY KEY (link, first)) WITHOUT ROWID;
CREATE TABLE accepted (
    id INTEGER PRIMARY KEY, link INTEGER NOT NULL, outcome BLOB NOT NULL, lengths BLOB NOT NULL, tags BLOB NOT NULL,
    crc INTEGER NOT NULL);
PRAGMA application_id = 0x4F6E6365;
PRAGMA user_version = 1;
"""


def test_a_journal_of_format_1_is_converted(path: Path) -> None:
    lengths = array("I", [1, 1, 1]).tobytes()
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(_FORMAT_1)
        run = database.execute
        run("INSERT INTO meta VALUES ('container', 'c')")
        run("INSERT INTO link VALUES (1, 'publisher', 'orders', 'p', 77, 70, 8, 5000, 60)")
        run("INSERT INTO link VALUES (2, 'subscriber', 'orders', 's', 78, 71, 0, 5000, 60)")
        crc = zlib.crc32(b"abc", zlib.crc32(lengths))
        live = struct.pack(">QQ", 6, 7)
        run("INSERT INTO publications VALUES (1, 5, ?, ?, ?, ?)", (lengths, b"abc", crc, live))
        run(
            "INSERT INTO accepted VALUES (4, 2, ?, ?, ?, ?)",
            (ACCEPTED, lengths, b"tuv", zlib.crc32(b"tuv", zlib.crc32(lengths))),
        )
    for _ in range(2):
        life = Opened(path)
        record = life.journal.publisher("orders", "p").record
        assert record == PublisherRecord(77, 70, 8, 5000, 60.0, [(6, b"b"), (7, b"c")])
        accepted = life.journal.subscriber("orders", "s").record
        assert accepted == SubscriberRecord(78, 71, 5000, 60.0, dict.fromkeys([b"t", b"u", b"v"], ACCEPTED))
        life.journal.close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (2,)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="nowhere"):
        Opened(tmp_path / "nowhere" / "orders.journal")


def test_a_flipped_bit_in_a_message_is_found(opened: Callable[[], Opened], path: Path) -> None:
    life = opened()
    life.journal.publisher("orders", "p").publish(0, [b"needle" * 20])
    life.journal.close()
    data = path.read_bytes()
    at = data.index(b"needleneedle")
    path.write_bytes(data[:at] + b"N" + data[at + 1 :])
    again = Opened(path)
    with pytest.raises(JournalCorrupt, match="messages from 0 on is damaged"):
        again.journal.publisher("orders", "p")
    again.journal.close()


def test_a_torn_write_costs_only_what_was_not_confirmed(path: Path) -> None:
    life = Opened(path)
    publisher = life.journal.publisher("orders", "p")
    publisher.publish(0, [b"first" * 200])
    life.sync()
    log = Path(f"{path}-wal")
    confirmed = log.stat().st_size
    image = path.read_bytes()
    publisher.publish(1, [b"second" * 2000])
    life.sync()
    torn = log.read_bytes()
    life.journal.close()
    for cut in (confirmed + 1, (confirmed + len(torn)) // 2, len(torn) - 1):
        path.write_bytes(image)
        log.write_bytes(torn[:cut])
        again = Opened(path)
        record = again.journal.publisher("orders", "p").record
        assert [number for number, _ in record.undecided] == [0]
        again.journal.close()


def test_a_full_disk_stops_the_journal_and_loses_nothing_confirmed(path: Path) -> None:
    life = Opened(path)
    publisher = life.journal.publisher("orders", "p")
    publisher.publish(0, [b"x" * 1000])
    life.sync()
    (pages,) = life.journal._database.execute("PRAGMA page_count").fetchone()
    life.journal._database.execute(f"PRAGMA max_page_count = {pages + 2}")
    confirmed = life.journal.durable
    publisher.publish(1, [b"y" * 1_000_000])
    life.sync()
    assert isinstance(life.journal.failure, JournalFull)
    assert "make room" in str(life.journal.failure)
    assert life.journal.durable == confirmed
    with pytest.raises(JournalFull):
        life.journal.close()
    again = Opened(path)
    record = again.journal.publisher("orders", "p").record
    assert [number for number, _ in record.undecided] == [0]
    assert record.sequence == 1
    again.journal.close()


PROCESS = """
import sys, threading
from onceway import SqliteJournal
journal = SqliteJournal(sys.argv[1])
moved = threading.Condition()
def wake():
    with moved:
        moved.notify_all()
journal.open("c", wake)
publisher = journal.publisher("orders", "p")
subscriber = journal.subscriber("orders", "s")
"""
"""A process of its own begins like this: `moved` is notified when commits are durable."""

_WRITER = (
    PROCESS
    + """at = 0
while True:
    publisher.publish(at, [b"m%d" % n for n in range(at, at + 100)])
    subscriber.accept([b"t%d" % n for n in range(at, at + 100)], b"\\x00\\x53\\x24\\x45")
    number = journal.sync()
    with moved:
        moved.wait_for(lambda: journal.durable >= number)
    at += 100
    print(at, flush=True)
"""
)


def test_a_process_killed_while_committing_leaves_all_that_it_was_told_is_durable(path: Path) -> None:
    for life in range(3):
        target = path.with_suffix(f".{life}")
        child = subprocess.Popen([sys.executable, "-c", _WRITER, str(target)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        for _ in range(7 * (life + 1)):
            line = child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read()
        child.wait()
        told = int((rest.split() or [line])[-1])
        again = Opened(target)
        record = again.journal.publisher("orders", "p").record
        accepted = again.journal.subscriber("orders", "s").record.unsettled
        count = len(record.undecided)
        assert count >= told
        assert count % 100 == 0  # whole transactions only
        assert record.undecided == [(number, b"m%d" % number) for number in range(count)]
        assert list(accepted) == [b"t%d" % number for number in range(count)]
        assert record.sequence == count
        again.journal.close()


def test_the_journal_in_memory_counts_everything_as_durable() -> None:
    journal = MemoryJournal()
    assert journal.open("c", lambda: None) == "c"
    journal.publisher("orders", "p").publish(0, [b"a"])
    assert journal.sync() <= journal.durable
    assert journal.publisher("orders", "p").record.undecided == []


def contact_after(path: Path, monkeypatch: pytest.MonkeyPatch, **later: object) -> float:
    """Seconds since a contact that was 10 s ago, as the next process sees it, whose clocks show what `later` says."""
    life = Opened(path)
    life.journal.publisher("orders", "p").contact(clock.wall_us() - 10_000_000, 120.0)
    life.journal.close()
    for name, value in later.items():
        monkeypatch.setattr(clock, name, value)
    life = Opened(path)
    contact_us = life.journal.publisher("orders", "p").record.contact_us
    life.journal.close()
    return (clock.wall_us() - contact_us) / 1e6


def test_the_time_since_contact_does_not_depend_on_the_wall_clock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wall_us = clock.wall_us
    assert contact_after(path, monkeypatch, wall_us=lambda: wall_us() + 10**11) == pytest.approx(10, abs=5)


def test_after_a_restart_of_the_machine_only_the_wall_clock_knows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later: dict[str, object] = {"boot_id": lambda: "another boot", "wall_us": lambda: 1_000_000_000}
    wall_us = clock.wall_us
    later["wall_us"] = lambda: wall_us() + 60_000_000
    later["boot_us"] = lambda: 5_000_000
    assert contact_after(path, monkeypatch, **later) == pytest.approx(70, abs=5)


def test_a_machine_that_was_set_back_to_a_snapshot_has_been_away_for_an_unknown_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_us = clock.boot_us
    assert contact_after(path, monkeypatch, boot_us=lambda: boot_us() - 600_000_000) < -500


def test_without_a_clock_of_the_boot_the_wall_clock_has_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "boot_id", lambda: "")
    wall_us = clock.wall_us
    assert contact_after(path, monkeypatch, wall_us=lambda: wall_us() + 60_000_000) == pytest.approx(70, abs=5)
