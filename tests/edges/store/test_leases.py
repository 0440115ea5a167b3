"""Leases on every form of the store, in their own time."""

from __future__ import annotations

import asyncio

import pytest

from edges.store import Batch, Bounds, Conflict, Store
from edges.store.leases import Lease, LeaseLost
from tests.edges.store.conftest import With


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def fenced(lease: Lease) -> Batch:
    batch = Batch()
    lease.fence(batch)
    batch.append("a", [b"1"])
    return batch


def test_one_of_many_that_ask_at_once_gets_the_lease(with_store: With) -> None:
    async def test(store: Store) -> None:
        leases = [Lease(store, "x", f"edge-{number}") for number in range(8)]
        assert sorted(await asyncio.gather(*(lease.acquire() for lease in leases))) == [False] * 7 + [True]
        (holder,) = (lease for lease in leases if lease.held)
        assert holder.epoch == 1
        assert await holder.acquire()
        await Lease(store, "y", "edge-0").acquire()  # another lease
        await holder.renew()

    with_store(test)


def test_a_holder_that_renews_keeps_it_and_one_that_does_not_loses_it_after_its_time(with_store: With) -> None:
    async def test(store: Store) -> None:
        clock = Clock()
        old = Lease(store, "x", "old")
        new = Lease(store, "x", "new", 5.0, clock=clock)
        assert await old.acquire()
        for _ in range(10):
            assert not await new.acquire()
            clock.now += 4.9
            assert not await new.acquire()
            await old.renew()
        await store.commit(fenced(old))
        assert not await new.acquire()
        clock.now += 5.0
        assert await new.acquire()
        assert new.epoch == 2
        with pytest.raises(Conflict):
            await store.commit(fenced(old))
        await store.commit(fenced(new))
        assert await store.bounds("a") == Bounds(0, 2)
        with pytest.raises(LeaseLost, match="lease/x: another process has taken the lease"):
            await old.renew()
        with pytest.raises(LeaseLost):
            old.fence(Batch())
        await old.release()
        await new.renew()

    with_store(test)


def test_a_lease_that_was_released_is_free_at_once_and_its_epoch_goes_on(with_store: With) -> None:
    async def test(store: Store) -> None:
        first, second = (Lease(store, "x", name, clock=Clock()) for name in ("first", "second"))
        assert await first.acquire()
        late = fenced(first)
        await first.release()
        with pytest.raises(Conflict):
            await store.commit(late)
        assert await second.acquire()
        assert second.epoch == 2
        assert not await first.acquire()
        await second.release()
        assert await first.acquire()
        assert first.epoch == 3

    with_store(test)


def test_a_fence_outlives_renewals_that_happen_before_the_batch_is_written(with_store: With) -> None:
    async def test(store: Store) -> None:
        lease = Lease(store, "x", "me")
        await lease.acquire()
        batch = fenced(lease)
        await lease.renew()
        await store.commit(batch)
        assert await store.bounds("a") == Bounds(0, 1)

    with_store(test)


def test_a_process_that_was_started_again_under_its_name_is_another_holder(with_store: With) -> None:
    async def test(store: Store) -> None:
        await Lease(store, "x", "me").acquire()
        clock = Clock()
        again = Lease(store, "x", "me", clock=clock)
        assert not await again.acquire()
        clock.now += 5.0
        assert await again.acquire()
        assert again.epoch == 2

    with_store(test)
