"""The asyncio client with its embedded journal: the next process, one process at a time, a full disk, kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import onceway
from onceway.client import clock
from onceway.errors import JournalFull, JournalLocked, UndecidedPublications
from tests.onceway.client.fake_network import FakeNetwork
from tests.onceway.client.scenes import eventually, messages, playing


async def published_without_outcome(
    network: FakeNetwork, path: Path, count: int
) -> tuple[onceway.Connection, onceway.Publisher]:
    """A connection that has sent this many messages, of which the network tells no outcome."""
    network.hold_outcomes = True
    connection = await onceway.connect(network.url(), container="c", journal=path)
    publisher = await connection.publisher("orders")
    await publisher.put_many(messages(count))
    assert await eventually(lambda: len(network.published) == count)
    return connection, publisher


async def test_a_new_process_goes_on_where_the_old_one_was_cut_off(tmp_path: Path) -> None:
    async with playing() as network:
        path = tmp_path / "journal"
        connection, _ = await published_without_outcome(network, path, 5)
        await connection.close(timeout_s=0)
        network.release_outcomes()
        async with onceway.connect(network.url(), container="c", journal=path) as connection:
            publisher = await connection.publisher("orders")
            assert publisher.sequence == 5
            assert [publication.sequence for publication in publisher.recovered] == [0, 1, 2, 3, 4]
            for publication in publisher.recovered:
                await publication
            await publisher.send(b"message 5")
        assert [body[5:] for body in network.published] == messages(6)
        assert network.faults == []


async def test_a_publisher_that_is_not_journalled_leaves_nothing_to_the_next_process(tmp_path: Path) -> None:
    async with playing() as network:
        path = tmp_path / "journal"
        network.hold_outcomes = True
        with pytest.raises(UndecidedPublications) as caught:
            async with onceway.connect(network.url(), container="c", journal=path, close_timeout_s=0) as connection:
                kept = await connection.publisher("orders")
                other = await connection.publisher("orders", name="other", journalled=False)
                assert (kept.journalled, other.journalled) == (True, False)
                await kept.put(b"kept")
                await other.put(b"not kept")
                assert await eventually(lambda: len(network.published) == 2)
        assert [body[5:] for _, body in caught.value.publications] == [b"not kept"]
        network.release_outcomes()
        async with onceway.connect(network.url(), container="c", journal=path) as connection:
            assert len((await connection.publisher("orders")).recovered) == 1
            other = await connection.publisher("orders", name="other", journalled=True)
            assert (other.recovered, other.sequence) == ([], 0)


async def test_publications_that_are_too_old_are_raised_and_not_sent_again(tmp_path: Path) -> None:
    async with playing() as network:
        path = tmp_path / "journal"
        connection, publisher = await published_without_outcome(network, path, 2)
        publisher._link._part.contact(1, 120.0)
        await connection.close(timeout_s=0)
        async with onceway.connect(network.url(), container="c", journal=path) as connection:
            with pytest.raises(UndecidedPublications) as caught:
                await connection.publisher("orders")
            assert [number for number, _ in caught.value.publications] == [0, 1]
            publisher = await connection.publisher("orders")
            assert publisher.recovered == []
            assert publisher.sequence == 2


async def test_one_journal_serves_one_process(tmp_path: Path) -> None:
    async with playing() as network:
        path = tmp_path / "journal"
        async with onceway.connect(network.url(), journal=path):
            with pytest.raises(JournalLocked, match="another process"):
                await onceway.connect(network.url(), journal=path)


async def test_a_journal_names_its_container(tmp_path: Path) -> None:
    names = []
    async with playing() as network:
        for _ in range(2):
            async with onceway.connect(network.url(), journal=tmp_path / "journal") as connection:
                names.append(connection.container)
    assert names[0] == names[1]


async def test_a_full_disk_is_an_error_for_everything_under_way_and_nothing_is_sent_unwritten(tmp_path: Path) -> None:
    async with playing() as network:
        journal = onceway.SqliteJournal(tmp_path / "journal")
        connection = await onceway.connect(network.url(), container="c", journal=journal)
        publisher = await connection.publisher("orders")
        await publisher.send(b"fits")
        (pages,) = journal._database.execute("PRAGMA page_count").fetchone()
        journal._database.execute(f"PRAGMA max_page_count = {pages + 2}")
        publication = await publisher.put(bytes(1_000_000))
        with pytest.raises(JournalFull):
            await publication
        with pytest.raises(JournalFull):
            await publisher.put(b"y")
        assert len(network.published) == 1
        with pytest.raises(JournalFull):
            await connection.publisher("other")
        await connection.close()


_SUBSCRIBER = """
import asyncio, sys
import onceway
async def main():
    async with onceway.connect(sys.argv[1], container="victim", journal=sys.argv[2]) as connection:
        subscriber = await connection.subscriber("orders")
        print("ready", flush=True)
        async for batch in subscriber.batches(max_messages=20):
            numbers = [body.decode() for body in batch.bodies]
            await batch.accept()
            for number in numbers:
                print(number, flush=True)
asyncio.run(main())
"""


async def test_a_subscriber_killed_at_any_moment_processes_nothing_accepted_again_and_misses_nothing(
    tmp_path: Path,
) -> None:
    """What it printed had been accepted durably before, so over all lives nothing may come twice; a kill between
    accept and print may leave out up to one batch (which it had accepted)."""
    async with playing() as network:
        printed: list[str] = []
        loop = asyncio.get_running_loop()
        async with onceway.connect(network.url(), container="publisher") as connection:
            sending: asyncio.Task[onceway.Publications] | None = None
            for life in range(4):
                child = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    _SUBSCRIBER,
                    network.url(),
                    str(tmp_path / "journal"),
                    stdout=subprocess.PIPE,
                    cwd=os.getcwd(),
                )
                assert await child.stdout.readline() == b"ready\n"
                if sending is None:
                    publisher = await connection.publisher("orders")
                    sending = loop.create_task(publisher.put_many(messages(1200)))
                for _ in range(120 if life < 3 else 10_000):
                    printed.append((await child.stdout.readline()).decode().strip())
                    if life == 3 and printed[-1] == "message 1199":
                        break
                os.kill(child.pid, signal.SIGKILL)
                rest = await child.stdout.read()
                printed += [line.decode() for line in rest.splitlines() if line.startswith(b"message")]
                await child.wait()
            await connection.close(timeout_s=0)  # the last accepts may have died with their process
        numbers = [int(line.split()[1]) for line in printed]
        assert numbers == sorted(set(numbers))
        missing = set(range(1200)) - set(numbers)
        assert len(missing) <= 3 * 21
        assert network.faults == []


HOURS_US = 26_475 * 1_000_000


async def test_a_wall_clock_that_is_set_between_two_processes_makes_no_absence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing() as network:
        path = tmp_path / "journal"
        connection, _ = await published_without_outcome(network, path, 2)
        await connection.close(timeout_s=0)
        wall_us = clock.wall_us
        for jump in (HOURS_US, -HOURS_US):
            monkeypatch.setattr(clock, "wall_us", lambda jump=jump: wall_us() + jump)
            connection = await onceway.connect(network.url(), container="c", journal=path)
            publisher = await connection.publisher("orders")
            assert [publication.sequence for publication in publisher.recovered] == [0, 1]
            await connection.close(timeout_s=0)
        assert network.faults == []


async def test_a_message_put_in_the_turn_in_which_the_connection_is_lost_is_in_the_journal(tmp_path: Path) -> None:
    async with playing() as network:
        path = tmp_path / "journal"
        connection = await onceway.connect(network.url(), container="c", journal=path)
        publisher = await connection.publisher("orders")
        wire = connection._driver._wire
        assert wire is not None
        assert await eventually(lambda: not connection._driver._scheduled)
        connection._driver.wire_lost(wire, None)
        publisher.put_nowait(b"kept")
        await network.routers[0].stop()
        assert await eventually(lambda: publisher._link.undecided)
        await connection.close(timeout_s=0)
        journal = onceway.SqliteJournal(path)
        journal.open("c", lambda: None)
        assert [number for number, _ in journal.publisher("orders", "orders").record.undecided] == [0]
        journal.close()
