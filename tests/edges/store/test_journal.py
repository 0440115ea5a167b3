"""The client's journal in a store: what every journal does, and one commit for an acceptance and its record."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import onceway
from edges.store import Batch, Store, open_store
from edges.store.journal import StoreJournal
from onceway.client.bodies import decode_body
from onceway.client.journal import SubscriberRecord
from onceway.errors import JournalCorrupt, JournalFull, JournalLocked
from tests.live import ROOT, LiveNetwork, dying_with_us, wait_until
from tests.live_fixture import live_network, pytest_runtest_makereport
from tests.onceway.client.test_journal import (
    ACCEPTED,
    test_a_closed_link_is_forgotten_but_for_its_numbers,
    test_a_link_opened_again_in_one_life_finds_what_it_wrote,
    test_a_number_is_never_used_again_though_everything_was_forgotten,
    test_a_subscription_that_was_never_answered_has_no_born,
    test_accepted_tags_come_back_in_order_until_they_are_settled,
    test_contact_is_remembered,
    test_links_of_equal_names_are_kept_apart_by_role_and_address,
    test_publications_come_back_with_their_numbers_until_they_are_forgotten,
    test_settled_tags_of_a_run_that_is_not_empty_may_come_back_and_never_vanish_early,
)

__all__ = [
    "live_network",
    "pytest_runtest_makereport",
    "test_a_closed_link_is_forgotten_but_for_its_numbers",
    "test_a_link_opened_again_in_one_life_finds_what_it_wrote",
    "test_a_number_is_never_used_again_though_everything_was_forgotten",
    "test_a_subscription_that_was_never_answered_has_no_born",
    "test_accepted_tags_come_back_in_order_until_they_are_settled",
    "test_contact_is_remembered",
    "test_links_of_equal_names_are_kept_apart_by_role_and_address",
    "test_publications_come_back_with_their_numbers_until_they_are_forgotten",
    "test_settled_tags_of_a_run_that_is_not_empty_may_come_back_and_never_vanish_early",
]

T = TypeVar("T")


class Loop:
    """A loop in a thread, for tests that speak to a journal from outside."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work: Awaitable[T]) -> T:
        async def go() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(go(), self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class Opened:
    """A life of a client: its store, its journal, and a way to wait for it."""

    def __init__(self, loop: Loop, path: Path) -> None:
        self._loop = loop
        self._moved = threading.Condition()

        async def go() -> tuple[Store, StoreJournal]:
            store = open_store(str(path))
            return store, await StoreJournal.of(store)

        self.store, self.journal = loop.run(go())
        self.container = self.journal.open("c", self._wake)

    def _wake(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def sync(self) -> None:
        async def ask() -> int:
            return self.journal.sync()

        number = self._loop.run(ask())
        with self._moved:
            assert self._moved.wait_for(lambda: self.journal.durable >= number or self.journal.failure, timeout=60)

    def close(self) -> None:
        self.journal.close()
        self._loop.run(self.store.close())


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Opened]]:
    loop = Loop()
    lives: list[Opened] = []

    def open_again() -> Opened:
        if lives:
            lives.pop().close()
        lives.append(Opened(loop, tmp_path / "edge.store"))
        return lives[-1]

    yield open_again
    lives.pop().close()
    loop.close()


def run(test: Callable[[Store], Awaitable[None]], path: Path, **options: Any) -> None:
    async def go() -> None:
        store = open_store(str(path), **options)
        try:
            await test(store)
        finally:
            await store.close()

    asyncio.run(go())


async def flush(journal: StoreJournal) -> None:
    await asyncio.to_thread(journal.close)


def test_a_process_that_takes_the_journal_over_ends_the_older_one_before_it_changes_anything(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        old = await StoreJournal.of(store)
        old.open("c", lambda: None)
        subscriber = old.subscriber("a", "s")
        subscriber.attach(1, 1)
        subscriber.attached(1)
        await flush(old)
        new = await StoreJournal.of(store)
        new.open("c", lambda: None)
        subscriber.accept([b"tag"], ACCEPTED)
        old.batch.append("stream", [b"record"])
        with pytest.raises(JournalLocked, match="journal: another process has taken this journal over"):
            await flush(old)
        assert new.subscriber("a", "s").record == SubscriberRecord(epoch=1, born=1)
        assert await store.read("stream", 0) == []
        await flush(new)

    run(test, tmp_path / "s")


def test_another_containers_journal_and_damage_are_refused_by_name(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        journal = await StoreJournal.of(store)
        journal.open("c", lambda: None)
        journal.publisher("a", "p").publish(0, [b"one", b"two"])
        await flush(journal)
        with pytest.raises(JournalCorrupt, match="belongs to container 'c', not 'd'; connect as 'c'"):
            (await StoreJournal.of(store)).open("d", lambda: None)
        ((key, value),) = await store.scan("journal/publications/")
        batch = Batch()
        batch.put(key, value.replace(b"one", b"own"))
        await store.commit(batch)
        journal = await StoreJournal.of(store)
        journal.open(None, lambda: None)
        with pytest.raises(JournalCorrupt, match="the row of messages from 0 on is damaged"):
            journal.publisher("a", "p")

    run(test, tmp_path / "s")


def test_a_full_store_stops_the_journal(tmp_path: Path) -> None:
    async def test(store: Store) -> None:
        journal = await StoreJournal.of(store)
        journal.open("c", lambda: None)
        journal.publisher("a", "p").publish(0, [bytes(500_000)])
        with pytest.raises(JournalFull, match="nothing confirmed is lost"):
            await flush(journal)

    run(test, tmp_path / "s", limit_octets=300_000)


EDGE = """
import asyncio, sys
import onceway
from edges.store import open_store
from edges.store.journal import StoreJournal

async def go(path, url):
    store = open_store(path)
    journal = await StoreJournal.of(store)
    async with onceway.connect(url, container="edge", journal=journal) as connection:
        subscriber = await connection.subscriber("orders", name="s")
        print("attached", flush=True)
        async for batch in subscriber.batches():
            await journal.accept(batch, "kept")
            print(len(batch), flush=True)

asyncio.run(go(*sys.argv[1:]))
"""


@pytest.mark.slow
def test_an_edge_that_is_killed_again_and_again_keeps_each_message_once_and_in_order(
    live_network: Callable[..., LiveNetwork], tmp_path: Path
) -> None:
    network = live_network("a", "b", links=[("a", "b")])
    rng = random.Random(5)
    path = tmp_path / "edge.store"
    ended = threading.Event()
    sent = 0

    async def publish() -> int:
        async with onceway.connect(network["b"].url) as connection:
            publisher = await connection.publisher("orders")
            for number in itertools.count():
                await publisher.put(b"%d" % number)
                if ended.is_set():
                    return number + 1  # closing waits for the outcomes
        raise AssertionError

    def edge() -> subprocess.Popen[bytes]:
        command = dying_with_us([sys.executable, "-c", EDGE, str(path), network.urls("a", "b")])
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"attached\n"
        return process

    def kill(process: subprocess.Popen[bytes], after: int) -> None:
        assert process.stdout is not None
        for _ in range(after):
            assert process.stdout.readline()
        process.kill()
        process.stdout.read()
        process.stdout.close()
        process.wait()

    def work() -> None:
        nonlocal sent
        sent = asyncio.run(publish())

    first = edge()
    publishing = threading.Thread(target=work)
    publishing.start()
    kill(first, 5)
    for _ in range(20):
        kill(edge(), rng.randrange(0, 8))
    last = edge()
    ended.set()
    publishing.join(120)
    assert not publishing.is_alive()
    kill(last, 0)

    async def look(store: Store) -> None:
        end = (await store.bounds("kept")).next
        assert end == sent > 100
        position = 0
        while position < end:
            for record in await store.read("kept", position):
                assert decode_body(record.payload) == b"%d" % record.position
                position += 1

    run(look, path)
    wait_until(lambda: all(not router.leftovers() for router in network), "nothing left behind")
