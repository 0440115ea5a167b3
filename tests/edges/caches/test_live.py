"""Writers and readers on routers that are processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import onceway
from edges.caches import Reader, Sample, Writer
from onceway.errors import UsageError
from tests.edges.conftest import BOUND_S
from tests.live import LiveNetwork


async def until(reader: Reader, condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await reader.wait()


def values(samples: list[Sample]) -> list[Any]:
    return [sample.value for sample in samples]


async def test_each_reader_keeps_what_its_history_says(network: LiveNetwork) -> None:
    async with (
        Reader(network.urls("a"), "histories", "last") as last,
        Reader(network.urls("b"), "histories", "three", depth=3) as three,
        Reader(network.urls("b"), "histories", "all", depth=None) as whole,
        Writer(network.urls("a"), "histories", "w") as writer,
    ):
        for number in range(10):
            assert await writer.write("even" if number % 2 == 0 else "odd", number) == number + 1
        await writer.flush()
        assert writer.everywhere == writer.written == 10
        assert values(last.read()) == [8, 9]
        assert values(three.read("odd")) == [5, 7, 9]
        assert values(whole.take("even")) == [0, 2, 4, 6, 8]
        assert values(whole.read()) == [1, 3, 5, 7, 9]
        assert values(last.take()) == [8, 9]
        assert last.read() == []
        with pytest.raises(TimeoutError):
            await last.wait(0.01)
        await writer.write("odd", "new")
        await last.wait(BOUND_S)
        assert values(last.read()) == ["new"]


async def test_who_is_not_reliable_holds_nobody_up_and_is_not_held_up(network: LiveNetwork) -> None:
    async with (
        Reader(network.urls("b"), "loose", "full", reliable=False, depth=None, most=2) as full,
        Reader(network.urls("b"), "loose", "good") as good,
        Writer(network.urls("a"), "loose", "reliable") as reliable,
        Writer(network.urls("b"), "loose", "best-effort", reliable=False) as loose,
    ):
        for number in range(5):
            await reliable.write("k", number)
        await reliable.flush()
        await until(full, lambda: full.missed == 3)
        assert values(full.read()) == [0, 1]
        assert full.read() == []  # only new values
        assert values(good.read()) == [4]
        full.take()
        count = 0
        while not values(full.take("free")):  # some may get lost, and never is one awaited
            count += 1
            assert await loose.write("free", count) == count
            with suppress(TimeoutError):
                await full.wait(0.05)
        assert loose.written == count


async def test_a_reader_that_keeps_all_and_is_full_holds_writers_up(network: LiveNetwork) -> None:
    async with (
        Reader(network.urls("b"), "full", "r", depth=None, most=10) as reader,
        Writer(network.urls("a"), "full", "w") as writer,
    ):
        for number in range(30):
            await writer.write("k", number)
        got: list[Any] = []
        while len(got) < 30:
            await reader.wait(BOUND_S)
            await asyncio.sleep(0)
            got += (taken := values(reader.take()))
            assert len(taken) <= 10
        assert got == list(range(30))
        await writer.flush()
        assert reader.missed == 0


async def test_the_last_samples_of_a_writer_that_is_killed_reach_all_readers(network: LiveNetwork) -> None:
    """The network is made to lose them: a crash in the middle of a send, seen from one reader."""
    async with (
        Reader(network.urls("a"), "crash", "luckless", depth=None) as luckless,
        Reader(network.urls("b"), "crash", "lucky") as lucky,
        Reader(network.urls("b"), "crash", "other", depth=None) as other,
    ):
        take_in = luckless._take_in
        luckless._take_in = lambda *said: None if said[0] == "sample" else take_in(*said)  # type: ignore[method-assign]
        code = (
            "import asyncio, sys\nfrom edges.caches import Writer\nasync def main():\n"
            "    async with Writer(sys.argv[1], 'crash', 'w') as writer:\n"
            "        await asyncio.gather(*(writer.write('k', number) for number in range(5)))\n"
            "        print('written', flush=True)\n        await asyncio.Event().wait()\nasyncio.run(main())\n"
        )
        held = lucky._take_in, other._take_in  # as a writer that dies before it can say what all have
        for reader, take in zip((lucky, other), held, strict=True):
            reader._take_in = lambda *said, take=take: None if said[0] == "alive" else take(*said)  # type: ignore[method-assign, misc]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, network.urls("a"), stdout=asyncio.subprocess.PIPE
        )
        assert await process.stdout.readline() == b"written\n"
        await until(lucky, lambda: values(lucky.take()) == [4])
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        assert luckless.read() == []
        got: list[Any] = []
        while len(got) < 5:
            await luckless.wait(BOUND_S)
            got += values(luckless.take())
        assert got == [0, 1, 2, 3, 4]
        assert values(other.take()) == [0, 1, 2, 3, 4]
        assert lucky.take() == []


async def test_no_sample_is_lost_or_repeated_when_a_router_is_killed(network: LiveNetwork) -> None:
    async with (
        Reader(network.urls("b", "a"), "killed", "r", depth=None) as reader,
        Writer(network.urls("b", "a"), "killed", "w") as writer,
    ):
        got: list[Any] = []
        for number in range(200):
            if number == 100:
                network.kill("b")
            await writer.write("k", number)
            got += values(reader.take())
        await writer.flush()
        got += values(reader.take())
        assert got == list(range(200))
        assert reader.missed == 0
    network.start("b", fresh=False)


async def test_a_reader_that_comes_late_gets_what_follows_and_counts_what_the_network_says_it_missed(
    network: LiveNetwork,
) -> None:
    async with (
        Reader(network.urls("b"), "late", "there", depth=None) as there,
        Writer(network.urls("b"), "late", "w") as writer,
    ):
        await writer.write("k", 0)
        await writer.flush()
        async with Reader(network.urls("a"), "late", "late", depth=None) as late:
            await writer.write("k", 1)
            await writer.flush()
            assert (values(there.take()), values(late.take())) == ([0, 1], [1])
            late._on_gap(None)  # what the client calls: tests/onceway/client/test_breaking.py
            assert late.missed == 1


async def test_what_is_none_of_ours_is_refused_and_disturbs_nobody(network: LiveNetwork) -> None:
    async with (
        Reader(network.urls("a"), "foreign", "r") as reader,
        Writer(network.urls("a"), "foreign", "w") as writer,
        onceway.connect(network.urls("a"), container="stranger") as connection,
    ):
        publisher = await connection.publisher("foreign")
        for body in (b"bytes", onceway.Message(onceway.AmqpValue(["sample", 1, 2])), b""):
            with pytest.raises(onceway.DeliveryRejected):
                await publisher.send(body)
        await writer.write("k", 1)
        await writer.flush()
        assert values(reader.read()) == [1]


def test_a_depth_below_one_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one sample of each key"):
        Reader("amqp://127.0.0.1:1", "a", "r", depth=0)
