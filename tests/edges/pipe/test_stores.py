"""Several stores of one pipe: replicas, readers that move, promotion."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from edges.pipe import Reader, pull, push, reset
from edges.pipe.log import open_log
from edges.store import open_store
from onceway.base.logs import logger
from onceway.errors import DeliveryRejected
from tests.cli.conftest import onceway
from tests.edges.pipe.conftest import PipeNetworks
from tests.edges.pipe.network import PipeNetwork


async def everything(network: PipeNetwork, *stores: str) -> list[tuple[int, object]]:
    return [(each.position, each.body) async for each in pull("jobs", stores=network.store_url(*stores))]


async def test_what_is_pushed_is_at_every_store_when_push_returns(pipe_network: PipeNetworks) -> None:
    network = pipe_network("a", "b", jobs=("s", "t", "u"))
    for number in range(20):
        await push(network.urls("b"), "jobs", b"%d" % number)
        assert len(await everything(network, "t")) == number + 1
    assert await everything(network, "s") == await everything(network, "t") == await everything(network, "u")
    assert await reset(network.urls(), "jobs") == 20
    await push(network.urls(), "jobs", b"new")
    for store in "stu":
        assert await everything(network, store) == [(21, b"new")]


async def test_a_message_that_one_store_cannot_tell_another_is_rejected_and_the_next_one_is_stored(
    pipe_network: PipeNetworks,
) -> None:
    most = 256 << 10
    network = pipe_network("a", jobs=("s", "t"), settings={"max_message_size": "256KiB"})
    with pytest.raises(DeliveryRejected, match=f"they tell each other {most} at most"):
        await push(network.urls(), "jobs", bytes(most - 20))
    await push(network.urls(), "jobs", bytes(most - 200))
    await push(network.urls(), "jobs", b"behind")
    assert [len(body) for _, body in await everything(network, "t")] == [most - 200, 6]  # type: ignore[arg-type]


async def test_while_the_primary_is_down_pushes_wait_and_a_reader_goes_on_elsewhere(pipe_network: PipeNetworks) -> None:
    network = pipe_network("a", jobs=("s", "t"))
    bodies = [b"%d" % number for number in range(30_000)]
    await push(network.urls(), "jobs", bodies)
    async with Reader("jobs", stores=network.store_url("s", "t")) as reader:
        batches = reader.batches()
        seen = [each.body for each in await anext(batches)]
        network.kill_store("s")
        pushing = asyncio.create_task(push(network.urls(), "jobs", b"late"))
        while len(seen) < len(bodies):
            seen += [each.body for each in await anext(batches)]
        assert seen == bodies
        assert not pushing.done()
        await asyncio.to_thread(network.start_store, "s")
        assert [each.body for each in await anext(batches)] == [b"late"]
        await pushing


def promote(network: PipeNetwork, store: str) -> str:
    done = onceway("pipe", "promote", network.topology_path, "jobs", store)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("form", ["embedded", pytest.param("postgresql", marks=pytest.mark.long)])
async def test_the_promoted_store_is_the_primary_and_the_old_one_follows(
    pipe_network: PipeNetworks, form: str, request: pytest.FixtureRequest
) -> None:
    if form == "postgresql":
        pipe_network.data = {"t": request.getfixturevalue("database")}
    network = pipe_network("a", "b", jobs=("s", "t"))
    await push(network.urls(), "jobs", [b"0", b"1"])
    said = await asyncio.to_thread(promote, network, "t")
    assert said == "[s] takes nothing of an epoch before 2\n[t] primary of jobs, epoch 2\n"
    await push(network.urls(), "jobs", [b"2", b"3"])
    assert await everything(network, "s") == [(0, b"0"), (1, b"1"), (3, b"2"), (4, b"3")]
    assert await everything(network, "t") == await everything(network, "s")
    assert await reset(network.urls(), "jobs") == 4
    await asyncio.to_thread(promote, network, "s")
    await push(network.urls(), "jobs", b"4")
    assert [body for _, body in await everything(network, "t")] == [b"4"]


async def test_an_old_primary_that_comes_back_follows_and_nothing_is_lost(pipe_network: PipeNetworks) -> None:
    network = pipe_network("a", jobs=("s", "t"))
    await push(network.urls(), "jobs", b"0")
    network.kill_store("s")
    pushing = asyncio.create_task(push(network.urls(), "jobs", [b"1", b"2"]))
    said = await asyncio.to_thread(promote, network, "t")
    assert "[s] not reached" in said
    await asyncio.to_thread(network.start_store, "s")
    await pushing
    assert [body for _, body in await everything(network, "s")] == [b"0", b"1", b"2"]
    assert await everything(network, "t") == await everything(network, "s")
    log = (network.directory / "store-t.log").read_text()
    assert "jobs: primary, epoch 2" in log


async def test_an_old_primary_that_was_cut_off_makes_no_push_return(pipe_network: PipeNetworks) -> None:
    network = pipe_network("a", jobs=("s", "t"))
    await push(network.urls(), "jobs", b"0")
    os.kill(network.store_pid("s"), signal.SIGSTOP)
    pushing = asyncio.create_task(push(network.urls(), "jobs", [b"1", b"2"]))
    await asyncio.to_thread(promote, network, "t")
    assert not pushing.done()
    os.kill(network.store_pid("s"), signal.SIGCONT)
    await pushing
    bodies = [body for _, body in await everything(network, "t")]
    assert bodies == [b"0", b"1", b"2"]
    assert await everything(network, "s") == await everything(network, "t")


async def test_a_store_that_joins_with_nothing_reads_what_it_lacks(pipe_network: PipeNetworks) -> None:
    network = pipe_network("a", jobs=("s", "t"))
    await push(network.urls(), "jobs", [b"%d" % number for number in range(3000)])
    assert await reset(network.urls(), "jobs") == 3000
    await push(network.urls(), "jobs", [b"a", b"b"])
    network.kill_store("t")
    for file in (network.directory / "data-t").glob("store*"):
        file.unlink()
    await asyncio.to_thread(network.start_store, "t")
    await push(network.urls(), "jobs", b"c")
    expected = [(3001, b"a"), (3002, b"b"), (3003, b"c")]
    assert await everything(network, "t") == expected
    assert await everything(network, "s") == expected
    assert await reset(network.urls(), "jobs") == 3
    await asyncio.to_thread(promote, network, "t")
    await push(network.urls(), "jobs", b"d")
    assert [body for _, body in await everything(network, "s")] == [b"d"]


def test_a_second_store_is_added_to_a_pipe_whose_one_store_has_removed_records(pipe_network: PipeNetworks) -> None:
    network = pipe_network("a", jobs=("s",))

    async def before() -> None:
        await push(network.urls(), "jobs", [b"1", b"2"])
        assert await reset(network.urls(), "jobs") == 2

    async def after() -> None:
        await push(network.urls(), "jobs", b"3", timeout_s=30)
        assert await everything(network, "s") == await everything(network, "t") == [(3, b"3")]

    asyncio.run(before())
    network.kill_store("s")
    network.kill("a")
    network.add_store("jobs", "t")
    network.start("a")
    for store in ("s", "t"):
        network.start_store(store)
    asyncio.run(asyncio.wait_for(after(), 60))


async def test_a_store_recognises_deliveries_of_the_records_that_it_has_read_from_another(
    pipe_network: PipeNetworks,
) -> None:
    network = pipe_network("a", jobs=("s", "t"))

    async def deliveries(store: str) -> dict[int, tuple[bytes, int]]:
        network.kill_store(store)
        files = open_store(str(network.directory / f"data-{store}" / "store"))
        try:
            return (await open_log(files, "jobs", store, "s", logger("test"))).deliveries
        finally:
            await files.close()

    await push(network.urls(), "jobs", [b"%d" % number for number in range(300)])
    network.kill_store("t")
    for file in (network.directory / "data-t").glob("store*"):
        file.unlink()
    await asyncio.to_thread(network.start_store, "t")
    await push(network.urls(), "jobs", b"300")
    at_t = await deliveries("t")
    assert list(at_t) == list(range(301))
    assert at_t == await deliveries("s")
