"""The client's journal in a store: what every journal does, and one commit for an acceptance and its record."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import onceway
from edges.store import Batch, Store, StoreFull, open_store
from edges.store.embedded import EmbeddedStore
from edges.store.journal import StoreJournal
from onceway.client.bodies import read_body
from onceway.client.journal import SubscriberRecord
from onceway.errors import JournalCorrupt, JournalFull, JournalLocked
from tests.edges.store.conftest import Opened
from tests.edges.store.postgres import Server
from tests.edges.store.served import Loop
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


class Life:
    """A life of a client: its store, its journal, and a way to wait for it."""

    def __init__(self, loop: Loop, place: str) -> None:
        self._loop = loop
        self._moved = threading.Condition()

        async def go() -> tuple[Store, StoreJournal]:
            store = open_store(place)
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
def opened(place: str) -> Iterator[Callable[[], Life]]:
    loop = Loop()
    lives: list[Life] = []

    def open_again() -> Life:
        if lives:
            lives.pop().close()
        lives.append(Life(loop, place))
        return lives[-1]

    yield open_again
    lives.pop().close()
    loop.close()


async def flush(journal: StoreJournal) -> None:
    await asyncio.to_thread(journal.close)


async def test_a_process_that_takes_the_journal_over_ends_the_older_one_before_it_changes_anything(
    opened_store: Opened,
) -> None:
    async with opened_store() as store:
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


async def test_another_containers_journal_and_damage_are_refused_by_name(opened_store: Opened) -> None:
    async with opened_store() as store:
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


async def test_a_full_store_stops_the_journal_and_has_nothing_of_what_it_refused(
    opened_store: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(store: EmbeddedStore, batch: Batch) -> None:
        raise StoreFull("full")

    async with opened_store() as store:
        journal = await StoreJournal.of(store)
        journal.open("c", lambda: None)
        publisher = journal.publisher("a", "p")
        publisher.publish(0, [b"kept"])
        await flush(journal)
        with monkeypatch.context() as patch:
            patch.setattr(EmbeddedStore, "_apply", refuse)
            publisher.publish(1, [b"refused"])
            with pytest.raises(JournalFull, match="full; nothing confirmed is lost"):
                await flush(journal)
        assert len(await store.scan("journal/publications/")) == 1


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
    live_network: Callable[..., LiveNetwork],
    place: str,
    opened_store: Opened,
    request: pytest.FixtureRequest,
) -> None:
    database: Server | None = request.getfixturevalue("postgres") if place.startswith("postgresql:") else None
    network = live_network("a", "b", links=[("a", "b")])
    rng = random.Random(5)
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
        command = dying_with_us([sys.executable, "-c", EDGE, place, network.urls("a", "b")])
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout.readline() == b"attached\n"
        return process

    def kill(process: subprocess.Popen[bytes], after: int) -> None:
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
    for number in range(4):
        process = edge()
        if database is not None and number == 1:
            database.kill_at_once()
            database.start()
        kill(process, rng.randrange(0, 8))
    last = edge()
    ended.set()
    publishing.join(120)
    assert not publishing.is_alive()
    kill(last, 0)

    async def look() -> None:
        async with opened_store() as store:
            end = (await store.bounds("kept")).next
            assert end == sent > 100
            position = 0
            while position < end:
                for record in await store.read("kept", position):
                    assert read_body(record.payload) == b"%d" % record.position
                    position += 1

    asyncio.run(look())
    wait_until(lambda: all(not router.leftovers() for router in network), "nothing left behind")
