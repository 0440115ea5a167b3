"""Gaps are written down before a row that came after them, whatever dies in between."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from onceway.client.journal import SubscriberRecord
from onceway.client.reports import SubscriptionGap
from onceway.spark.errors import SparkSourceError, WalError, explain
from onceway.spark.source.journal import GAPS, Gap, GapFile, Gaps, Watch
from onceway.spark.wal.documents import FileDocument
from tests.spark.disks import Failing
from tests.spark.logs import gap_file


class Part:
    """The log's part of the journal, as far as a watch uses it."""

    def __init__(self, born: int = 0) -> None:
        self.record = SubscriberRecord(born=born)
        self.calls: list[str] = []

    def attach(self, epoch: int, born: int) -> None:
        self.calls.append(f"attach {epoch} {born}")

    def attached(self, epoch: int) -> Mapping[bytes, bytes | None]:
        self.calls.append(f"attached {epoch}")
        return {b"tag": None}

    def contact(self, wall_us: int, timeout_s: float) -> None:
        self.calls.append("contact")

    def accept(self, tags: Sequence[bytes], outcome: bytes) -> None:
        self.calls.append("accept")

    def settle(self, tags: Sequence[bytes]) -> None:
        self.calls.append("settle")

    def close(self) -> None:
        self.calls.append("close")


class Writer:
    def __init__(self, end: int) -> None:
        self.end = end
        self.failure: WalError | None = None

    def fail(self, error: WalError) -> None:
        self.failure = error

    def fail_on(self, error: OSError, doing: str) -> None:
        self.fail(explain(error, "", doing))


@pytest.fixture
def file(tmp_path: Path) -> GapFile:
    (tmp_path / "0").mkdir()
    return gap_file(tmp_path)


def watch(file: GapFile, *, born: int = 0, end: int = 0) -> Watch:
    return Watch(Part(born), Writer(end), file)  # type: ignore[arg-type]


def attach(watch: Watch, epoch: int, born: int) -> None:
    watch.attach(epoch, born)
    assert watch.attached(epoch) == {b"tag": None}


def again(file: GapFile) -> Gaps:
    """What another process reads."""
    return GapFile(FileDocument(file.document.path, GAPS)).read()


def test_a_subscription_that_goes_on_has_no_gap(file: GapFile) -> None:
    one = watch(file)
    attach(one, 5, 5)
    attach(one, 6, 5)
    attach(watch(file, born=5, end=100), 7, 5)
    assert again(file) == Gaps(5, ())


def test_one_that_was_created_again_has_a_gap_where_the_log_ends(file: GapFile) -> None:
    attach(watch(file), 5, 5)
    attach(watch(file, born=5, end=100), 9, 9)
    (gap,) = again(file).known
    assert gap.at == 100
    assert "created again" in gap.reason
    assert again(file).born == 9


def test_what_the_client_knows_of_a_gap_is_added_to_it(file: GapFile) -> None:
    one = watch(file, end=100)
    attach(one, 5, 5)
    attach(one, 9, 9)
    one.note_gap(SubscriptionGap("orders", "s", "no contact for 90 s", 3))
    assert again(file) == Gaps(9, (Gap(100, "no contact for 90 s", 3),))


def test_a_gap_that_is_not_of_another_birth_is_written_down_too(file: GapFile) -> None:
    one = watch(file, end=70)
    attach(one, 5, 5)
    one.note_gap(SubscriptionGap("orders", "s", "a router knows it only since then", 0))
    assert again(file).known == (Gap(70, "a router knows it only since then"),)


def test_a_crash_between_joining_again_and_writing_it_down_is_found_at_the_next_attach(file: GapFile) -> None:
    attach(watch(file), 5, 5)
    # the journal of the process that died knows the new birth, the file the old one
    attach(watch(file, born=9, end=40), 10, 9)
    assert [gap.at for gap in again(file).known] == [40]
    attach(watch(file, born=9, end=50), 11, 9)
    assert [gap.at for gap in again(file).known] == [40]


def test_gaps_between_rows_that_were_trimmed_go(file: GapFile) -> None:
    file.write(9, [Gap(10, "x"), Gap(20, "y"), Gap(30, "z")])
    one = watch(file, born=9, end=40)
    one.trimmed(10)
    assert [gap.at for gap in again(file).known] == [10, 20, 30]
    one.trimmed(20)  # the gap that lies before the first row is still in front of it
    assert again(file) == Gaps(9, (Gap(20, "y"), Gap(30, "z")))
    Path(file.document.path).unlink()
    one.trimmed(20)


def test_a_gap_that_was_trimmed_before_the_client_said_more_of_it_is_written_again(file: GapFile) -> None:
    one = watch(file, end=100)
    attach(one, 5, 5)
    attach(one, 9, 9)
    one.trimmed(101)
    one.note_gap(SubscriptionGap("orders", "s", "no contact for 90 s", 3))
    assert again(file) == Gaps(9, (Gap(100, "no contact for 90 s", 3),))


def test_trimming_while_a_link_joins_again_hides_no_gap(file: GapFile) -> None:
    file.write(5, [Gap(10, "x")])
    one = watch(file, born=5, end=40)
    one.attach(9, 9)
    one.trimmed(20)
    one.attached(9)
    assert [gap.at for gap in again(file).known] == [40]


def test_a_gap_that_cannot_be_taken_out_stays_and_harms_nobody(file: GapFile) -> None:
    file.write(9, [Gap(10, "x")])
    one = watch(file, born=9, end=40)
    one._file = GapFile(FileDocument(file.document.path, GAPS, Failing(0, errno.ENOSPC)))
    one.trimmed(20)
    assert again(file).known == (Gap(10, "x"),)


def test_everything_else_goes_to_the_log(file: GapFile) -> None:
    part = Part()
    one = Watch(part, Writer(0), file)  # type: ignore[arg-type]
    one.contact(1, 2.0)
    one.accept([b"t"], b"o")
    one.settle([b"t"])
    one.close()
    assert part.calls == ["contact", "accept", "settle", "close"]


def test_a_gap_that_cannot_be_written_down_stops_the_ingest(tmp_path: Path) -> None:
    writer = Writer(0)
    one = Watch(Part(), writer, gap_file(tmp_path / "gone"))  # type: ignore[arg-type]
    attach(one, 5, 5)
    assert re.search(r"gaps.json\.\w+\.new: No such file or directory writing a gap", str(writer.failure))


def test_which_gaps_lie_between_positions() -> None:
    gaps = Gaps(1, (Gap(10, "x"), Gap(20, "y")))
    assert [gap.at for gap in gaps.between(0, 10)] == []
    assert [gap.at for gap in gaps.between(0, 11)] == [10]
    assert [gap.at for gap in gaps.between(10, 10)] == [10]
    assert [gap.at for gap in gaps.between(10, 30)] == [10, 20]
    assert [gap.at for gap in gaps.between(11, 20)] == []


def test_a_damaged_file_is_named(file: GapFile) -> None:
    Path(file.document.path).write_text("{")
    with pytest.raises(SparkSourceError, match=r"gaps.json: damaged, .*; restore it, or remove it if no messages"):
        file.read()
