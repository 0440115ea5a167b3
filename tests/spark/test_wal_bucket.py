"""The log in an object store: every request fails before or after it took effect, and two writers never both count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event

import pytest

from onceway.spark.errors import WalDamaged, WalError, WalFenced, WalLocked, WalMissing
from onceway.spark.source.journal import WalJournal
from onceway.spark.wal import Retention, Wal, bucket
from onceway.spark.wal.leases import Lease
from onceway.spark.wal.objects import objects_at
from tests.spark.memory import Died, MemoryObjects
from tests.spark.slots import GROUPS, SUBSCRIPTION, TOPIC, Life, message, numbered, rows_of, tag

PLACE = "s3://logs/orders"


def test_a_store_is_that_of_the_environment_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("obstore")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    first = objects_at(PLACE)
    assert objects_at(PLACE) is first
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")
    assert objects_at(PLACE) is not first
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert objects_at(PLACE) is not first


class World:
    """The store's contents, and each process's way to it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.contents: dict[str, bytes] = {}
        self.lasts_s = 1e-6
        self.objects = MemoryObjects(self.contents)  # of the process that is started next
        for module in ("onceway.spark.wal.bucket", "onceway.spark.wal"):
            patch.setattr(f"{module}.objects_at", lambda location: self.objects)
        patch.setattr("onceway.spark.wal.bucket.LOOK_S", 0.0)
        # whoever comes takes the lease: what counts is the fence
        patch.setattr(
            "onceway.spark.wal.bucket.Lease", lambda *args: Lease(*args[:3], self.lasts_s or args[3], *args[4:])
        )
        patch.setattr("onceway.spark.wal.leases.RENEWALS", 1e-9)
        patch.setattr("onceway.spark.wal.bucket.BucketStorage.apart_s", 0.0)
        patch.setattr("onceway.spark.source.journal.SETTLED_EVERY_S", 3600.0)

    def process(self) -> MemoryObjects:
        self.objects = MemoryObjects(self.contents)
        return self.objects

    def wal(self) -> Wal:
        return Wal.open_or_create(PLACE, SUBSCRIPTION, [TOPIC])


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def kill(objects: MemoryObjects) -> None:
    def dead() -> None:
        raise Died("dead")

    objects.before = dead


def dies_at(objects: MemoryObjects, number: int, *, late: bool) -> None:
    """At its request of this number; late: the request takes effect, and nobody reads the answer."""
    count = 0

    def step(*, late: bool) -> None:
        nonlocal count
        count += not late
        if count > number or (count == number and late is is_late):
            kill(objects)
            raise Died("dead")

    is_late = late
    objects.before, objects.after_it = partial(step, late=False), partial(step, late=True)


def a_life(wal: Wal, epoch: int, groups: tuple[int, ...], told: list[int]) -> None:
    life = Life(wal, epoch)
    for rows in groups:
        told.append(life.group(rows))
        if life.writer.end == 8:
            life.part.settle([tag(row) for row in range(5)])
    life.writer.trim(3, Retention())
    life.close()


@pytest.mark.parametrize("late", [False, True])
def test_dead_at_any_request_what_was_durable_is_there_once_and_in_order(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.spark.wal.bucket.BLOCK", 2)
    number = 0
    while True:
        number += 1
        with pytest.MonkeyPatch.context() as patch:
            world, told = World(patch), [0]
            dies_at(world.process(), number, late=late)
            died = False
            try:
                a_life(world.wal(), 10, (3, 1, 4, 2), told)
            except WalError:
                died = True
            kill(world.objects)
            world.process()
            wal = world.wal()
            life = Life(wal, epoch=20)
            end = life.writer.end
            assert end in (0, 3, 4, 8, 10)
            assert end >= told[-1]
            start = wal.slot(0).start()
            assert rows_of(wal.slot(0)) == numbered(start, end)
            known = {**life.part.record.unsettled, **life.meanwhile}
            assert set(map(tag, range(5 if end >= 8 else 0, end))) <= set(known)
            life.group(7)
            life.close()
            assert rows_of(wal.slot(0)) == numbered(start, end + 7)
        if not died:
            assert number > 10
            return


def test_an_answer_that_is_lost_is_no_second_group(world: World) -> None:
    """The store did it, the client repeats it and is told that it is there."""
    objects = world.process()
    put = objects.put
    objects.put = lambda key, data, version: put(key, data, version) and put(key, data, version)  # type: ignore[method-assign]
    life = Life(world.wal(), 10)
    for rows in (3, 1, 4):
        life.group(rows)
    life.close()
    again = Life(world.wal(), 20)
    assert rows_of(world.wal().slot(0)) == numbered(0, 8)
    again.close()


def test_a_writer_that_was_frozen_adds_nothing_once_another_has_taken_over(world: World) -> None:
    world.process()
    wal = world.wal()
    frozen = Life(wal, 10)
    frozen.group(3)
    reader = wal.slot(0)
    assert rows_of(reader) == numbered(0, 3)
    world.process()
    life = Life(wal, 20)
    with pytest.raises(WalFenced, match="a later process has taken this log over"):
        frozen.group(4)
    life.until(life.append([b"a", b"b"], [message(100), message(101)]))
    assert rows_of(reader) == rows_of(wal.slot(0)) == [*numbered(0, 3), b"row 100", b"row 101"]
    frozen.die()
    life.close()


def test_whatever_the_older_writer_adds_while_it_is_taken_over_from_is_known(world: World) -> None:
    world.process()
    wal = world.wal()
    older = Life(wal, 10)
    older.group(1)
    reader, told = wal.slot(0), dict[int, list[bytes]]()

    def meanwhile() -> None:
        if older.writer.failure is None and older.writer.end < 9:  # as long as it is quicker, the other tries again
            try:
                older.group(2)
            except WalFenced:
                return
        for asked in (reader, wal.slot(0)):
            end = asked.end(fresh=True)
            told[end] = rows_of(asked, 0, end)

    world.process().before = meanwhile
    life = Life(wal, 20)
    world.objects.before = lambda: None
    fenced = life.writer.durable
    assert fenced > 1
    assert max(told) <= fenced
    final = rows_of(wal.slot(0), 0, fenced)
    assert final == numbered(0, fenced)
    assert all(final[:end] == seen for end, seen in told.items())
    assert len({**life.part.record.unsettled, **life.meanwhile}) == fenced
    older.die()
    life.close()


def test_a_second_writer_is_told_who_holds_the_lease_and_a_silent_one_is_followed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.spark.wal.leases.RENEWALS", 10)
    world.lasts_s = 0.5
    frozen = world.process()
    wal = world.wal()
    life = Life(wal, 10, GROUPS)
    world.process()
    with pytest.raises(
        WalLocked,
        match=r"holds the lease of this log .the ingest of a query. and renews it.  Stop that one; one frame that two queries",
    ):
        WalJournal(wal, None, GROUPS).open(None, lambda: None)
    kill(frozen)  # it renews no more
    after = Life(wal, 20, GROUPS)
    after.group(1)
    after.close()
    with pytest.raises(WalError):
        life.group(1)
    life.die()


def test_a_renewal_that_fails_is_repeated_until_the_lease_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceway.spark.wal.leases.RENEWALS", 1000)
    monkeypatch.setattr("onceway.spark.wal.leases.LOOKS", 1000)
    objects = MemoryObjects()
    failures, lost = iter((False, True, True, False, False)), Event()
    over = Event()

    def fail() -> None:
        """Answers of the second and the third write are lost; the fifth is the end."""
        failure = next(failures, None)
        if failure is None:
            over.set()
        elif failure:
            raise WalError("no answer")

    objects.after_it = fail
    lease = Lease(bucket.ObjectDocument(objects, PLACE, "lease", bucket.DOCUMENTS), PLACE, lost.set, 30.0)
    lease.take(0.0)
    assert over.wait(30.0)
    assert lease.held
    lease.release()
    assert not lost.is_set()
    short = Lease(bucket.ObjectDocument(objects, PLACE, "lease", bucket.DOCUMENTS), PLACE, lost.set, 0.05)
    short.take(0.0)
    kill(objects)
    assert lost.wait(30.0)
    assert not short.held


def test_old_blocks_are_removed_and_readers_begin_behind_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onceway.spark.wal.bucket.BLOCK", 4)
    world.process()
    wal = world.wal()
    life = Life(wal, 10)
    for _ in range(10):
        life.group(2)
    life.part.settle([tag(row) for row in range(20)])
    early = wal.slot(0)
    assert early.end() == 20
    life.writer.trim(15, Retention(seconds=3600.0))
    life.writer.trim(15)
    life.group(1)
    life.close()
    reader = wal.slot(0)
    start = reader.start()
    assert start == 14  # a fence and seven groups are two blocks
    assert len([key for key in world.contents if "/g/" in key]) == 4
    assert rows_of(reader) == numbered(start, 21)
    assert rows_of(reader.for_task(17), 17, 21) == numbered(17, 21)
    assert rows_of(early, 18, 20) == numbered(18, 20)
    with pytest.raises(WalMissing, match="trimmed"):
        rows_of(early, 0, 2)
    with pytest.raises(WalMissing, match=r"rows 0 to 1 are not there; the log has rows 14 to 20"):
        rows_of(reader, 0, 2)
    Life(wal, 20).close()


def test_damage_is_an_error_with_its_place(world: World) -> None:
    world.process()
    wal = world.wal()
    life = Life(wal, 10)
    life.group(3)
    life.close()
    key = "0/g/00000000000000000001"
    good = world.contents[key]
    checks: dict[int, Callable[[], object]] = {
        20: lambda: wal.slot(0).end(),
        len(good) - 70: lambda: rows_of(wal.slot(0), 0, 3),
    }
    for at, check in checks.items():
        world.contents[key] = good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :]
        with pytest.raises(WalDamaged, match=rf"{PLACE}/{key}: .*checksum"):
            check()
    world.contents[key] = good
    assert bucket.head_size(255) == 8256
    assert rows_of(wal.slot(0)) == numbered(0, 3)
