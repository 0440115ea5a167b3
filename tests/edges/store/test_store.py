"""What every form of the store does."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from edges.store import NAME_OCTETS, Batch, Bounds, Conflict, Retention, Store, StoreError, embedded, open_store
from tests.edges.store.conftest import Opened, append


async def test_positions_go_up_from_0_in_each_stream(opened_store: Opened) -> None:
    async with opened_store() as store:
        assert (await append(store, "a", b"1", b"2")).positions == {"a": range(2)}
        assert (await append(store, "b", b"x")).positions == {"b": range(1)}
        assert (await append(store, "a", b"3")).positions == {"a": range(2, 3)}
        assert await store.bounds("a") == Bounds(0, 3)
        assert await store.bounds("none") == Bounds(0, 0)
        assert await store.streams() == ["a", "b"]
        assert [(record.position, record.payload) for record in await store.read("a", 0)] == [
            (0, b"1"),
            (1, b"2"),
            (2, b"3"),
        ]
        assert await store.read("none", 0) == []
        assert await store.read("a", 3) == []


async def test_what_was_committed_is_there_when_it_is_opened_again(opened_store: Opened) -> None:
    async with opened_store() as store:
        batch = Batch()
        batch.append("a", [b"1", b"", b"3"])
        batch.put("key", b"value")
        await store.commit(batch)
    async with opened_store() as store:
        assert [record.payload for record in await store.read("a", 0)] == [b"1", b"", b"3"]
        assert await store.get("key") == b"value"
        assert (await append(store, "a", b"4")).positions == {"a": range(3, 4)}


async def test_a_batch_with_another_value_than_expected_changes_nothing(opened_store: Opened) -> None:
    async with opened_store() as store:
        batch = Batch()
        batch.expect("leader", None)
        batch.put("leader", b"me")
        await store.commit(batch)
        with pytest.raises(Conflict) as caught:
            batch.append("a", [b"1"])
            await store.commit(batch)
        assert caught.value.key == "leader"
        assert await store.bounds("a") == Bounds(0, 0)
        batch = Batch()
        batch.expect("leader", b"me")
        batch.delete("leader")
        batch.append("a", [b"1"])
        await store.commit(batch)
        assert await store.get("leader") is None
        assert await store.bounds("a") == Bounds(0, 1)


async def test_commits_that_are_not_awaited_happen_in_order_and_a_conflict_spoils_no_other(
    opened_store: Opened,
) -> None:
    async with opened_store() as store:
        answers = []
        for number in range(500):
            batch = Batch()
            if number % 7 == 3:
                batch.expect("missing", b"something")
            batch.append("a", [b"%d" % number])
            answers.append(asyncio.ensure_future(store.commit(batch)))
        results = await asyncio.gather(*answers, return_exceptions=True)
        good = [number for number in range(500) if number % 7 != 3]
        assert [number for number, result in enumerate(results) if not isinstance(result, Conflict)] == good
        assert [int(record.payload) for record in await store.read("a", 0, records=10_000)] == good
        assert [result.positions["a"] for result in results if not isinstance(result, BaseException)] == [
            range(at, at + 1) for at in range(len(good))
        ]


async def test_a_commit_that_has_time_is_written_before_the_next_one_or_when_somebody_hurries(
    opened_store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "WITH_NEXT_S", 3600.0)
    async with opened_store() as store:
        async with asyncio.timeout(30):
            batch = Batch()
            batch.append("a", [b"1"])
            first = asyncio.ensure_future(store.commit(batch, with_next=True))
            await append(store, "a", b"2")
            assert (await first).positions == {"a": range(1)}
            batch = Batch()
            batch.append("a", [b"3"])
            third = asyncio.ensure_future(store.commit(batch, with_next=True))
            store.hurry()
            assert (await third).positions == {"a": range(2, 3)}
            batch = Batch()
            batch.append("a", [b"4"])
            last = asyncio.ensure_future(store.commit(batch, with_next=True))
            await store.close()
            assert (await last).positions == {"a": range(3, 4)}


async def test_reads_end_where_their_bounds_are_and_give_one_record_at_least(opened_store: Opened) -> None:
    async with opened_store() as store:
        await append(store, "a", *(b"%04d" % number for number in range(2500)))
        await append(store, "a", b"x" * 5000, b"y")
        assert [record.position for record in await store.read("a", 999, records=3)] == [999, 1000, 1001]
        assert len(await store.read("a", 10, octets=20)) == 5
        assert len(await store.read("a", 10, octets=1)) == 1
        assert [len(record.payload) for record in await store.read("a", 2500, octets=100)] == [5000]
        assert [record.position for record in await store.read("a", 1, records=5000)] == list(range(1, 2502))


async def test_a_trim_says_how_much_it_removed_and_positions_go_on(opened_store: Opened) -> None:
    async with opened_store() as store:
        await append(store, "a", *(b"%d" % number for number in range(1500)))
        batch = Batch()
        batch.trim("a", 1200)
        assert (await store.commit(batch)).removed == {"a": 1200}
        assert (await store.commit(batch)).removed == {"a": 0}
        assert await store.bounds("a") == Bounds(1200, 1500)
        assert (await store.read("a", 0, records=1))[0].position == 1200
        batch = Batch()
        batch.append("a", [b"new"])
        batch.trim("a")
        assert (await store.commit(batch)).removed == {"a": 300}
        assert [tuple(record[::2]) for record in await store.read("a", 0)] == [(1500, b"new")]
        batch = Batch()
        batch.trim("none")
        assert (await store.commit(batch)).removed == {"none": 0}
    async with opened_store() as store:
        assert await store.bounds("a") == Bounds(1500, 1501)


async def test_keys_are_found_by_their_prefix_in_order(opened_store: Opened) -> None:
    async with opened_store() as store:
        batch = Batch()
        for key in ("b/2", "a", "b/10", "b%", "b", "c", "b/é"):
            batch.put(key, key.encode())
        await store.commit(batch)
        assert [key for key, _ in await store.scan("b/")] == ["b/10", "b/2", "b/é"]
        assert [key for key, _ in await store.scan("b%")] == ["b%"]
        assert len(await store.scan("")) == 7
        assert await store.scan("d") == []


async def test_values_and_records_are_any_octets_and_names_are_long_text(opened_store: Opened) -> None:
    octets = bytes(range(256)) * 3
    name = "é\ud7ff😀" + "'%?\\\n" * 150
    name += "n" * (NAME_OCTETS - len(name.encode()))
    async with opened_store() as store:
        batch = Batch()
        for key in (name, "", "empty"):
            batch.put(key, octets if key else b"")
            batch.append(key, [octets, b"", b"\0"])
        await store.commit(batch)
    async with opened_store() as store:
        for key in (name, "", "empty"):
            assert await store.get(key) == (octets if key else b"")
            assert [record.payload for record in await store.read(key, 0)] == [octets, b"", b"\0"]
        assert [key for key, _ in await store.scan(name[:500])] == [name]
        assert await store.streams() == ["", "empty", name]


@pytest.mark.parametrize("name", ["a\0b", "n" * (NAME_OCTETS + 1), "é" * 501, "\ud800"])
def test_a_name_that_not_every_store_can_keep_is_refused_where_it_is_given(name: str) -> None:
    batch = Batch()
    for change in (
        lambda: batch.put(name, b""),
        lambda: batch.delete(name),
        lambda: batch.expect(name, None),
        lambda: batch.append(name, [b""]),
        lambda: batch.trim(name),
        lambda: batch.keep(name, Retention()),
    ):
        with pytest.raises(ValueError, match=r"a name is text without NUL|surrogates not allowed"):
            change()
    assert batch == Batch()


async def test_who_waits_for_a_position_is_woken_when_it_is_there(opened_store: Opened) -> None:
    async with opened_store() as store:
        early = asyncio.ensure_future(store.grown("a", 0))
        late = asyncio.ensure_future(store.grown("a", 2))
        await append(store, "a", b"1", b"2")
        await asyncio.wait_for(early, 60)
        assert not late.done()
        await append(store, "a", b"3")
        await asyncio.wait_for(late, 60)
        await asyncio.wait_for(store.grown("a", 1), 60)
        gone = asyncio.ensure_future(store.grown("a", 99))
        await asyncio.sleep(0)
        gone.cancel()
        await append(store, "a", b"4")


async def test_a_position_is_found_by_time(opened_store: Opened) -> None:
    async with opened_store() as store:
        await append(store, "a", b"1", b"2")
        await append(store, "a", b"3")
        records = await store.read("a", 0)
        times = [record.time_us for record in records]
        assert times == sorted(times)
        assert await store.position_at("a", 0) == 0
        assert await store.position_at("a", times[2]) == (2 if times[2] > times[0] else 0)
        assert await store.position_at("a", times[2] + 1) == 3
        assert await store.position_at("none", 0) == 0


async def test_a_stream_is_held_to_its_size(opened_store: Opened) -> None:
    async with opened_store() as store:
        batch = Batch()
        batch.keep("a", Retention(octets=300_000))
        await store.commit(batch)
        for number in range(100):
            await append(store, "a", b"%05d" % number * 2000)
        bounds = await store.bounds("a")
        assert bounds.next == 100
        assert 70 < bounds.first < 72
        assert [record.position for record in await store.read("a", 0)] == list(range(bounds.first, 100))


async def test_much_that_is_more_than_the_size_is_removed_in_steps(
    opened_store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edges.store.embedded.HELD_OCTETS", 50_000)
    async with opened_store() as store:
        for _ in range(50):
            await append(store, "a", bytes(10_000))
        batch = Batch()
        batch.keep("a", Retention(octets=100_000))
        await store.commit(batch)
        firsts = [(await store.bounds("a")).first]
        while firsts[-1] < 40:
            await append(store, "a", b"")
            firsts.append((await store.bounds("a")).first)
        assert all(later - first in (5, 6) for first, later in pairwise(firsts[:-1]))
        assert len(firsts) > 5
        assert await store.surplus("a", Retention(octets=10_000)) >= 49  # a question has no such bound


async def test_a_stream_is_held_to_its_age(opened_store: Opened) -> None:
    async with opened_store() as store:
        batch = Batch()
        batch.append("a", [b"1", b"2"])
        batch.keep("a", Retention(age_s=0.0))
        await store.commit(batch)
        while (await store.bounds("a")).first < 2:  # noqa: ASYNC110 the store has no event for it
            await asyncio.sleep(0.05)  # the background looks once in a second; the test's time limit is the bound
        assert await store.read("a", 0) == []
        assert (await append(store, "a", b"3")).positions == {"a": range(2, 3)}


async def test_room_is_used_again(opened_store: Opened) -> None:
    async with opened_store() as store:
        most = 0
        for _ in range(30):
            await append(store, "a", *[b"x" * 10_000] * 20)
            batch = Batch()
            batch.trim("a")
            await store.commit(batch)
            most = max(most, await store.used())
        assert most < 3_000_000


async def test_nothing_works_after_it_is_closed(opened_store: Opened) -> None:
    kept: list[Store] = []
    async with opened_store() as store:
        kept.append(store)
        waiting = asyncio.ensure_future(store.grown("a", 0))
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await waiting
        with pytest.raises(StoreError, match="closed"):
            await store.commit(Batch())
        with pytest.raises(StoreError, match="closed"):
            await store.get("key")


def test_a_store_of_a_kind_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(StoreError, match="redis://host/: there is no store of the kind 'redis'; give a path"):
        open_store("redis://host/")
