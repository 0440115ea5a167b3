"""The driver's side of a stream, on logs that the test writes, with nobody at the network."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onceway.cli.spark import command
from onceway.spark.errors import CheckpointIsNew, DataLoss, IngestFailed, OptionError, WalForeign
from onceway.spark.options import SourceOptions, source_options
from onceway.spark.source import progress
from onceway.spark.source.journal import Gap
from onceway.spark.source.service import status_of, table_of
from onceway.spark.source.stream import Offset, Stream, batch_ranges
from onceway.spark.wal import Retention, Wal
from tests.live import wait_until
from tests.spark.logs import Log, gap_file, rows


class Nobody:
    """Ingests that receive nothing and remember what they are told."""

    def __init__(self) -> None:
        self.failure: str | None = None
        self.recovered_at: int | None = None
        self.is_recovered = True
        self.done: dict[int, int] = {}
        self.trimmed: list[Mapping[int, int]] = []
        self.drained: dict[int, int] = {}

    def __call__(self, options: SourceOptions, wal: Wal) -> Nobody:
        self.wal = wal
        return self

    def begin(self) -> None:
        pass

    def recovered(self, slot: int) -> int | None:
        if not self.is_recovered:
            return None
        return self.wal.slot(slot).end() if self.recovered_at is None else self.recovered_at

    def check(self) -> None:
        if self.failure is not None:
            raise IngestFailed(self.failure)

    def drain(self, timeout_s: float) -> dict[int, int]:
        return self.drained

    def processed(self, positions: Mapping[int, int]) -> None:
        self.done.update(positions)

    def trim(self, positions: Mapping[int, int]) -> None:
        self.trimmed.append(dict(positions))

    def state(self) -> dict[str, Any]:
        return {"state": "receiving"}

    def stop(self) -> None:
        pass


class Rig:
    """A log, and streams on it."""

    def __init__(self, location: Path) -> None:
        self.location = location
        self.ingests = Nobody()
        self.now = 0.0

    def stream(self, topic: str = "orders", **options: str) -> Stream:
        needed = {"url": "amqp://nowhere", "topic": topic, "subscription": "billing", "walLocation": str(self.location)}
        return Stream(source_options({**needed, **options}, "stream"), self.ingests, lambda: self.now)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "wal")


def test_a_new_query_begins_with_what_the_log_has_or_with_what_comes(rig: Rig) -> None:
    with Log(rig.location) as log:
        log.append(5)
        uuid = log.wal.uuid
        assert rig.stream().initial() == Offset(uuid, {0: 0})
        latest = rig.stream(startingOffsets="latest")
        assert latest.initial() == Offset(uuid, {0: 5})
        log.append(1)
        assert latest.initial() == Offset(uuid, {0: 5})
        assert rig.stream(startingOffsets=f'{{"v":1,"wal":"{uuid}","p":{{"0":3}}}}').initial() == Offset(uuid, {0: 3})


def test_without_limits_a_batch_is_all_there_is_and_without_rows_there_is_none(rig: Rig) -> None:
    with Log(rig.location) as log:
        stream = rig.stream()
        start = stream.initial()
        assert stream.latest(start, limited=False) is start
        log.append(250)
        end = stream.latest(start, limited=False)
        assert end == Offset(log.wal.uuid, {0: 250})
        assert rows(stream.ranges(start, end)) == [b"orders %d" % number for number in range(250)]
        assert stream.latest(end, limited=False) is end
        assert stream.ranges(end, end) == []


def test_a_topic_that_is_added_begins_at_its_start_and_one_that_is_removed_keeps_its_rows(rig: Rig) -> None:
    with Log(rig.location, "orders") as log:
        log.append(3)
        start = rig.stream().latest(rig.stream().initial(), limited=False)
        log.append(2)
    with Log(rig.location, "returns") as log:
        log.append(4, "returns")
        stream = rig.stream("returns")
        end = stream.latest(start, limited=False)
        assert end.positions == {0: 5, 1: 4}
        assert rows(stream.ranges(start, end)) == [b"orders 3", b"orders 4"] + [b"returns %d" % n for n in range(4)]


def test_rows_are_limited_exactly_and_shared_by_what_there_is(rig: Rig) -> None:
    with Log(rig.location, "orders", "returns") as log:
        log.append(900, "orders")
        log.append(100, "returns")
        stream = rig.stream("orders,returns", maxRowsPerTrigger="100")
        at = stream.initial()
        end = stream.latest(at, limited=True)
        assert end.positions == {0: 90, 1: 10}
        assert stream.latest(at, limited=False).positions == {0: 900, 1: 100}
        read: list[bytes] = []
        for _ in range(10):
            end = stream.latest(at, limited=True)
            assert sum(end.positions.values()) - sum(at.positions.values()) == 100
            read += rows(stream.ranges(at, end))
            at = end
        assert stream.latest(at, limited=True) is at
        assert len(set(read)) == len(read) == 1000


def test_bytes_are_limited_and_a_batch_has_a_row_at_least(rig: Rig) -> None:
    with Log(rig.location) as log:
        log.append(1000, size=1000)
        stream = rig.stream(maxBytesPerTrigger="100000")
        end = stream.latest(stream.initial(), limited=True)
        assert 90 <= end.positions[0] <= 100
        tiny = rig.stream(maxBytesPerTrigger="10")
        assert tiny.latest(tiny.initial(), limited=True).positions == {0: 1}


def test_inline_rows_are_limited_even_where_spark_asks_for_all(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceway.spark.source.stream.INLINE_BYTES", 100_000)
    with Log(rig.location) as log:
        log.append(1000, size=1000)
        stream = rig.stream(transport="inline")
        assert stream.latest(stream.initial(), limited=False).positions[0] <= 100


def test_a_batch_waits_for_enough_rows_or_for_long_enough(rig: Rig) -> None:
    with Log(rig.location) as log:
        stream = rig.stream(minRowsPerTrigger="10", maxTriggerDelay="60s")
        start = stream.initial()
        log.append(9)
        assert stream.latest(start, limited=True) is start
        log.append(1)
        at = stream.latest(start, limited=True)
        assert at.positions == {0: 10}
        log.append(1)
        rig.now = 59.0
        assert stream.latest(at, limited=True) is at
        rig.now = 60.0
        assert stream.latest(at, limited=True).positions == {0: 11}


def test_available_now_ends_where_the_network_had_no_more_and_waits_for_nothing(rig: Rig) -> None:
    with Log(rig.location) as log:
        stream = rig.stream(minRowsPerTrigger="1000", maxRowsPerTrigger="2000")
        log.append(7)
        rig.ingests.drained = {0: 7}
        stream.freeze()
        log.append(5)
        end = stream.latest(stream.initial(), limited=True)
        assert end.positions == {0: 7}
        assert stream.latest(end, limited=True) is end


def test_trimming_lags_one_batch_behind_what_is_committed(rig: Rig) -> None:
    with Log(rig.location) as log:
        stream = rig.stream()
        uuid = log.wal.uuid
        stream.commit(Offset(uuid, {0: 10}))
        assert rig.ingests.trimmed == []
        stream.commit(Offset(uuid, {0: 20}))
        stream.commit(Offset(uuid, {0: 30}))
        assert rig.ingests.trimmed == [{0: 10}, {0: 20}]
        assert rig.ingests.done == {0: 30}


def test_runs_of_a_single_batch_each_trim_what_the_run_before_had_committed(rig: Rig) -> None:
    with Log(rig.location) as log:
        uuid = log.wal.uuid
        for position in (10, 10, 20, 5, 7):  # told twice, and rolled back
            rig.stream().commit(Offset(uuid, {0: position}))
        assert rig.ingests.trimmed == [{0: 10}, {0: 5}]
    (rig.location / "reader-query.json").write_text("{torn")
    rig.stream().commit(Offset(uuid, {0: 9}))
    rig.stream().commit(Offset("another", {0: 99}))
    rig.stream().commit(Offset(uuid, {0: 11}))
    assert rig.ingests.trimmed[2:] == [{0: 9}]


def test_after_a_restart_a_batch_under_way_is_read_again_as_it_was(rig: Rig) -> None:
    with Log(rig.location) as log:
        first = rig.stream()
        start = first.initial()
        log.append(30)
        end = first.latest(start, limited=False)
        planned = rows(first.ranges(start, end), "offset", "value")
        log.append(30)
    again = rig.stream()
    rig.ingests.is_recovered = False
    assert rows(again.ranges(start, end), "offset", "value") == planned
    assert len(planned) == 30


def test_a_batch_is_cut_into_as_many_tasks_as_are_wanted(rig: Rig) -> None:
    with Log(rig.location, "orders", "returns") as log:
        log.append(900, "orders")
        log.append(100, "returns")
        stream = rig.stream("orders,returns", minPartitions="10")
        start = stream.initial()
        tasks = stream.ranges(start, stream.latest(start, limited=False))
        assert len(tasks) == 10
        assert [task.slot for task in tasks] == [0] * 9 + [1]
        assert len(set(rows(tasks))) == 1000


def test_a_large_batch_is_cut_by_its_bytes(rig: Rig) -> None:
    with Log(rig.location) as log:
        log.append(1000, size=1000)
        stream = rig.stream(maxTaskBytes="200KiB")
        start = stream.initial()
        made = stream.ranges(start, stream.latest(start, limited=False))
        assert 5 <= len(made) <= 6
        assert rows(made, "offset") == list(range(1000))


def test_positions_may_be_given_by_topics_as_kafkas_are(rig: Rig) -> None:
    with Log(rig.location, "orders", "returns") as log:
        log.append(10, "orders")
        log.append(5, "returns")
        both = "orders,returns"
        assert rig.stream(both, startingOffsets='{"orders":{"0":3}}').initial().positions == {0: 3, 1: 0}
        text = '{"orders":{"0":-2},"returns":{"1":-1}}'
        assert rig.stream(both, startingOffsets=text).initial().positions == {0: 0, 1: 5}
        part = {"startingOffsets": '{"returns":{"1":4}}', "endingOffsets": '{"orders":{"0":1},"returns":{"1":-1}}'}
        ranges = batch_ranges(source_options({"path": str(rig.location), **part}, "batch"))
        assert rows(ranges) == [b"orders 0", b"returns 4"]
        said = "option startingOffsets: .* has no partition 0 of topic 'returns', of which it has partitions 1"
        with pytest.raises(OptionError, match=said):
            rig.stream(both, startingOffsets='{"returns":{"0":4}}').initial()
        with pytest.raises(OptionError, match="has no partition 0 of topic 'bills', of which it has nothing"):
            rig.stream(both, startingOffsets='{"bills":{"0":4}}').initial()


def test_a_query_begins_at_a_time(rig: Rig) -> None:
    with Log(rig.location, "orders", "returns", group_rows=4) as log:
        for number in range(10):
            log.writer().append([b"x"], [b"%d" % number], received_us=1_000_000 * number)
        log.writer().drain()
        stream = rig.stream("orders,returns", startingTimestamp="1970-01-01T00:00:05.5Z")
        assert stream.initial().positions == {0: 6, 1: 0}
        assert rig.stream(startingTimestamp="9000").initial().positions == {0: 9, 1: 0}
        assert rig.stream(startingTimestamp="10000").initial().positions == {0: 10, 1: 0}


# -- what may be missing


def test_a_checkpoint_of_another_log_fails_unless_loss_is_allowed(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    with Log(rig.location) as log:
        log.append(5)
        old = rig.stream().latest(rig.stream().initial(), limited=False)
    shutil.rmtree(rig.location)
    with Log(rig.location) as log:
        log.append(2)
        with pytest.raises(DataLoss, match=r"the log was lost or replaced.*restore the directory, or give the query"):
            rig.stream().latest(old, limited=False)
        with pytest.raises(DataLoss, match=old.wal):
            rig.stream().ranges(old, old)
        going_on = rig.stream(failOnDataLoss="false")
        assert going_on.ranges(Offset(old.wal, {0: 0}), old) == []
        start = going_on.latest(old, limited=False)
        assert start == Offset(log.wal.uuid, {0: 0})
        assert going_on.ranges(old, start) == []
        end = going_on.latest(start, limited=False)
        assert rows(going_on.ranges(start, end)) == [b"orders 0", b"orders 1"]
    assert capsys.readouterr().err.count("warning: the checkpoint continues in the log") == 1


def test_an_empty_log_in_place_of_the_old_one_is_found_out_as_well(rig: Rig) -> None:
    old = Offset("another", {0: 5})
    with pytest.raises(DataLoss):
        rig.stream().latest(old, limited=False)
    end = rig.stream(failOnDataLoss="false").latest(old, limited=False)
    assert end.positions == {0: 0}
    assert end.wal != "another"


def test_rows_that_were_trimmed_fail_unless_loss_is_allowed(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    with Log(rig.location, group_rows=10, segment_bytes=1 << 16) as log:
        for _ in range(30):
            log.append(100, size=100)
        log.writer().trim(2000, Retention())
        log.close()
        stream = rig.stream()
        begin = stream.initial().positions[0]
        assert 0 < begin <= 2000
        start = Offset(log.wal.uuid, {0: 0})
        with pytest.raises(DataLoss, match=f"rows 0 to {begin - 1} of slot 0 .orders.*were trimmed.*walRetention"):
            stream.latest(start, limited=False)
        allowed = rig.stream(failOnDataLoss="false")
        assert len(rows(allowed.ranges(start, Offset(log.wal.uuid, {0: 3000})))) == 3000 - begin
        at = allowed.latest(start, limited=False)
        assert at.positions == {0: begin}
        assert allowed.latest(at, limited=False).positions == {0: 3000}
    assert "were trimmed" in capsys.readouterr().err


def test_a_log_that_is_older_than_the_checkpoint_fails_once_it_is_recovered(rig: Rig) -> None:
    with Log(rig.location) as log:
        log.append(5)
        ahead = Offset(log.wal.uuid, {0: 9})
        stream = rig.stream()
        rig.ingests.is_recovered = False
        assert stream.latest(ahead, limited=False) is ahead
        rig.ingests.is_recovered = True
        with pytest.raises(DataLoss, match=r"at row 9 of slot 0 .orders., but the log in .* ends at 5"):
            stream.latest(ahead, limited=False)
        allowed = rig.stream(failOnDataLoss="false")
        back = allowed.latest(ahead, limited=False)
        assert back.positions == {0: 5}
        log.append(10)
        assert rows(allowed.ranges(ahead, back)) == []
        end = allowed.latest(back, limited=False)
        assert rows(allowed.ranges(back, end)) == [b"orders %d" % number for number in range(5, 15)]


def loss_of(stream: Stream, at: Offset) -> str:
    """The id of the loss that keeps the stream from this position on."""
    with pytest.raises(DataLoss) as said:
        stream.latest(at, limited=False)
    return re.search(r"^loss ([0-9a-f]{8}): .* acknowledgeLoss=\1 .* spark acknowledge-loss \S+ \1", str(said.value))[1]


def test_a_gap_fails_every_start_until_somebody_has_acknowledged_it(rig: Rig) -> None:
    with Log(rig.location) as log:
        log.append(10)
        gap_file(rig.location).write(7, [Gap(10, "away for 90 s", dropped=2)])
        log.append(10)
        stream = rig.stream()
        at = stream.latest(stream.initial(), limited=False)
        assert at.positions == {0: 10}
        with pytest.raises(
            DataLoss,
            match=r"topic orders may be missing before row 10 of slot 0 .away for 90 s., and 2 rows before it may",
        ):
            stream.latest(at, limited=False)
        loss = loss_of(rig.stream(), at)
        assert loss_of(rig.stream(acknowledgeLoss="00000000"), at) == loss
        assert rig.stream(acknowledgeLoss=f"{loss}, 00000000").latest(at, limited=False).positions == {0: 20}
        assert rig.stream().latest(at, limited=False).positions == {0: 20}
        gap_file(rig.location).write(8, [Gap(10, "away for 90 s", dropped=2), Gap.now(10, "away again")])
        assert loss_of(rig.stream(), at) != loss


def test_the_gaps_of_one_absence_are_one_loss_and_a_command_acknowledges_it(rig: Rig) -> None:
    with Log(rig.location, "orders", "returns") as log:
        at = Offset(log.wal.uuid, {0: 0, 1: 0})
        for slot, topic in log.wal.slots.items():
            gap_file(rig.location, slot).write(7, [Gap.now(slot, "away for 90 s")])
            log.append(5, topic)

        def said(*words: str) -> tuple[int, str]:
            done = CliRunner().invoke(command, ["acknowledge-loss", str(rig.location), *words])
            return done.exit_code, done.output

        assert said() == (0, "")
        reader = {"reader": "table", "topic": "orders,returns"}
        loss = loss_of(rig.stream(**reader), at)
        assert said() == (0, "")  # of the reader "query"
        code, text = said("--reader", "table")
        assert code == 0
        assert re.fullmatch(
            rf"{loss}  .* messages of topic orders may be missing before row 0 of slot 0 .*, messages of topic returns "
            r"may be missing before row 1 of slot 1 .away for 90 s.\n",
            text,
        )
        code, text = said("--reader", "table", "00000000")
        assert code == 2
        assert f"no loss 00000000 of reader 'table'; there is {loss}" in text
        assert loss_of(rig.stream(**reader), at) == loss
        assert said("--reader", "table", loss) == said("--reader", "table", loss) == (0, f"acknowledged {loss}\n")
        assert rig.stream(**reader).latest(at, limited=False).positions == {0: 5, 1: 5}
        assert said("--reader", "table") == (0, "")


def test_who_allows_losses_has_decided(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    with Log(rig.location) as log:
        at = Offset(log.wal.uuid, {0: 10})
        log.append(10)
        gap_file(rig.location).write(8, [Gap.now(10, "away"), Gap.now(10, "and again")])
        log.append(10)
        allowed = rig.stream(failOnDataLoss="false")
        assert allowed.latest(at, limited=False) == allowed.latest(at, limited=False) == Offset(log.wal.uuid, {0: 20})
        assert rig.stream().latest(at, limited=False).positions == {0: 20}
    assert capsys.readouterr().err.count("may be missing before row 10 of slot 0 (away; and again)") == 1


def test_rows_that_were_trimmed_are_a_loss_however_much_is_trimmed_since(rig: Rig) -> None:
    with Log(rig.location, group_rows=10, segment_bytes=1 << 16) as log:
        for _ in range(30):
            log.append(100, size=100)
        log.writer().trim(1000, Retention())
        wait_until(lambda: log.wal.slot(0).start() > 0, "some rows are removed")
        at = Offset(log.wal.uuid, {0: 0})
        loss = loss_of(rig.stream(), at)
        log.writer().trim(2000, Retention())
        wait_until(lambda: log.wal.slot(0).start() > 1000, "more rows are removed")
        begin = log.wal.slot(0).start()
        going_on = rig.stream(acknowledgeLoss=loss)
        back = going_on.latest(at, limited=False)
        assert back.positions == {0: begin}
        assert rows(going_on.ranges(at, back)) == []
        assert going_on.latest(back, limited=False).positions == {0: 3000}
        assert loss_of(rig.stream(), at) == loss  # a checkpoint that is rolled back once more is another matter


def test_a_log_that_went_back_is_a_loss_also_when_it_has_grown_beyond_the_checkpoint(rig: Rig) -> None:
    with Log(rig.location) as log:
        log.append(5)
        ahead, further = Offset(log.wal.uuid, {0: 9}), Offset(log.wal.uuid, {0: 12})
        loss = loss_of(rig.stream(), ahead)
        log.append(10)
        assert loss_of(rig.stream(), ahead) == loss
        with pytest.raises(DataLoss, match=f"loss {loss}: .* ends at 5"):
            rig.stream().ranges(ahead, ahead)
        going_on = rig.stream(acknowledgeLoss=loss)
        back = going_on.latest(ahead, limited=False)
        assert back.positions == {0: 5}
        assert rows(going_on.ranges(ahead, back)) == []
        end = going_on.latest(back, limited=False)
        assert rows(going_on.ranges(back, end)) == [b"orders %d" % number for number in range(5, 15)]
        assert rig.stream().latest(ahead, limited=False) == end  # these are the new rows
        assert rig.stream().latest(further, limited=False) == end


def test_a_log_that_has_grown_beyond_the_checkpoint_before_spark_asks_is_found_out(rig: Rig) -> None:
    with Log(rig.location) as log:
        log.append(5)
        ahead = Offset(log.wal.uuid, {0: 9})
        stream = rig.stream()
        rig.ingests.is_recovered, rig.ingests.recovered_at = False, 5
        log.append(10)  # by its ingest, of which nothing has been heard yet
        assert stream.latest(ahead, limited=False) is ahead
        rig.ingests.is_recovered = True
        with pytest.raises(DataLoss, match=r"at row 9 of slot 0 .orders., but the log in .* ends at 5"):
            stream.latest(ahead, limited=False)
        again = rig.stream(reader="again")
        with pytest.raises(DataLoss, match="ends at 5"):
            again.ranges(Offset(log.wal.uuid, {0: 3}), ahead)


def test_a_query_without_checkpoint_on_a_log_that_was_read_is_refused_until_it_is_allowed(rig: Rig) -> None:
    with Log(rig.location) as log:
        first = rig.stream()
        start = first.initial()
        log.append(5)
        assert rig.stream().initial() == start  # nothing has been handed out: it may have died before its first batch
        end = first.latest(start, limited=False)
        first.ranges(start, end)
        again = rig.stream(startingOffsets="latest")  # it died in its batch 0, which its checkpoint has
        assert len(rows(again.ranges(again.initial(), end))) == 5
        assert again.latest(end, limited=False) == end
        refused = rig.stream()
        with pytest.raises(CheckpointIsNew, match=r"has no checkpoint.*start it once with onNewCheckpoint=accept"):
            refused.latest(refused.initial(), limited=False)
        assert rig.stream().latest(end, limited=False) == end
        assert rig.stream(onNewCheckpoint="accept").initial() == start


def test_the_first_batch_of_an_accepted_query_is_repeated_as_it_was(rig: Rig) -> None:
    """Spark asks a query that died in its batch 0, and one with a new checkpoint, for the initial offset alike."""
    with Log(rig.location) as log:
        log.append(4)
        first = rig.stream()
        first.ranges(first.initial(), first.latest(first.initial(), limited=False))
        accepted = {"onNewCheckpoint": "accept", "startingOffsets": "latest"}
        stream = rig.stream(**accepted)
        start = stream.initial()
        log.append(2)
        end = stream.latest(start, limited=False)
        assert rows(stream.ranges(start, end)) == [b"orders 4", b"orders 5"]
        stream = rig.stream(**accepted)  # the driver has died in batch 0
        for _ in range(2):  # Spark may plan a batch twice
            assert rows(stream.ranges(stream.initial(), end)) == [b"orders 4", b"orders 5"]
        assert stream.latest(end, limited=False) == end
        log.append(3)
        later = stream.latest(end, limited=False)
        assert rows(stream.ranges(end, later)) == [b"orders 6", b"orders 7", b"orders 8"]


def test_an_ingest_that_cannot_go_on_fails_the_query(rig: Rig) -> None:
    stream = rig.stream()
    rig.ingests.failure = "WalFull: no room"
    with pytest.raises(IngestFailed, match="WalFull: no room"):
        stream.latest(stream.initial(), limited=False)


def test_progress_says_how_far_behind_spark_is(rig: Rig) -> None:
    with Log(rig.location) as log:
        log.append(10, size=100)
        stream = rig.stream(maxRowsPerTrigger="4")
        stream.latest(stream.initial(), limited=True)
        report = stream.report()
        assert report["p"] == {"0": 10}
        assert report["lagRows"] == 6
        assert report["accepted"] == 0  # by those who wrote this log before
        log.append(5)
        assert stream.report()["accepted"] == 5
        assert 600 <= report["backlogBytes"] < 700
        assert report["state"] == "receiving"


def test_progress_says_how_many_rows_wait_and_for_how_long(rig: Rig) -> None:
    with Log(rig.location, "orders", "returns") as log:
        for topic, age_s in (("orders", 100), ("returns", 1000)):
            received_us = (time.time_ns() // 1000) - age_s * 1_000_000
            log.writer(topic).append([b"x"], [b"%d" % age_s], received_us=received_us)
            log.writer(topic).drain()
        stream = rig.stream("orders,returns", maxRowsPerTrigger="1")
        at = stream.initial()
        ages = []
        for lag in (1, 0):
            at = stream.latest(at, limited=True)
            report = stream.report()
            assert report["lagRows"] == lag
            ages.append(report["lagSeconds"])
        assert ages[1] == 0
        assert ages[0] >= 100


def test_a_long_batch_is_known_outside_spark_while_it_runs(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LONG_S", 0.01)

    def batch(log: Log) -> dict[str, Any] | None:
        readers = status_of(log.wal)["slots"][0]["readers"]
        found: dict[str, Any] | None = readers["query"].get("batch") if readers else None
        return found

    with Log(rig.location) as log:
        log.append(10)
        stream = rig.stream()
        end = stream.latest(stream.initial(), limited=True)
        stream.ranges(stream.initial(), end)
        wait_until(lambda: batch(log), "the batch is written down")
        found = batch(log)
        assert found["rows"] == 10
        assert table_of(status_of(log.wal), found["since"] + 95)[-1].endswith(" a batch with 10 of them began 95 s ago")
        assert stream.latest(end, limited=True) == end  # Spark asks, so the batch is over
        assert batch(log) is None
        query = progress.Progress(log.wal)
        assert (query.waits, query.committed) == ({0: 10}, None)  # Spark commits a batch when it plans the next
        assert status_of(log.wal)["slots"][0]["readers"]["query"]["rows"] == 0
        log.append(1)
        last = stream.latest(end, limited=True)
        stream.commit(end)
        assert status_of(log.wal)["slots"][0]["readers"]["query"]["rows"] == 1
        stream.ranges(end, last)
        wait_until(lambda: batch(log), "the next one is written down")
        stream.stop()
        assert batch(log) is None


def test_a_query_is_told_that_the_process_that_served_it_before_was_killed(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> Stream:
        stream = rig.stream()
        stream.latest(stream.initial(), limited=False)
        return stream

    with Log(rig.location) as log:
        log.append(10)
        rig.ingests.is_recovered = False
        run()  # has never had the log
        rig.ingests.is_recovered = True
        killed = run()
        assert "killedBefore" not in killed.report()
        again = run()
        assert again.report()["killedBefore"].startswith(f"process {os.getpid()} on ")
        assert "which served this query before, was killed, or its machine went down" in capsys.readouterr().err
        early = rig.stream()  # made while the one before is about to end
        again.stop()
        early.latest(early.initial(), limited=False)
        assert "killedBefore" not in early.report()
        early.stop()
        assert "killedBefore" not in run().report()
    assert capsys.readouterr().err == ""


def test_a_signal_may_end_a_query_while_it_writes_down_how_far_it_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    with Log(rig.location) as log:
        log.append(10)
        query = progress.Progress(log.wal)
        query.serve()
        write = query._document.write
        monkeypatch.setattr(query._document, "write", lambda content: (query.end(), write(content)))
        query.commit({0: 10})
        assert progress.Progress(log.wal).committed == {0: 10}


# -- batch reads


def test_a_batch_read_takes_the_whole_log_or_a_part_of_it(rig: Rig) -> None:
    with Log(rig.location, "orders", "returns") as log:
        log.append(10, "orders")
        log.append(3, "returns")
        uuid = log.wal.uuid

        def read(**options: str) -> list[bytes]:
            return rows(batch_ranges(source_options({"path": str(rig.location), **options}, "batch")))

        assert len(read()) == 13
        part = read(
            startingOffsets=f'{{"v":1,"wal":"{uuid}","p":{{"0":8}}}}',
            endingOffsets=f'{{"v":1,"wal":"{uuid}","p":{{"1":2}}}}',
        )
        assert part == [b"orders 8", b"orders 9", b"returns 0", b"returns 1"]
        assert len(batch_ranges(source_options({"path": str(rig.location), "minPartitions": "4"}, "batch"))) >= 4
        with pytest.raises(DataLoss, match="slot 0 ends at 10, before endingOffsets' 11"):
            read(endingOffsets=f'{{"v":1,"wal":"{uuid}","p":{{"0":11}}}}')
        assert read(startingOffsets="latest") == []
        with pytest.raises(OptionError, match=r"endingOffsets: row 7 of slot 0 is before the first one, 8 .*raise it"):
            read(
                startingOffsets=f'{{"v":1,"wal":"{uuid}","p":{{"0":8}}}}',
                endingOffsets=f'{{"v":1,"wal":"{uuid}","p":{{"0":7}}}}',
            )
        assert read(topic="returns") == [b"returns 0", b"returns 1", b"returns 2"]
        assert len(read(topic="returns,orders")) == 13
        with pytest.raises(WalForeign, match="no slot for topic 'bills'; it has orders, returns"):
            read(topic="bills,orders")
