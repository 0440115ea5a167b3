"""A connection of the asyncio client: its handshake, its clock, its defects, its names."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from typing import Any

import pytest

import onceway
from amqp10.frames import SASL_HEADER
from chaos.live.ports import free_port
from onceway.client.clock import now_s
from onceway.client.connection import Connection
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.reports import PublicationsUndecided, RouterLost
from onceway.client.urls import RouterUrl
from onceway.errors import ConnectionFailed, DeliveryUndecided, InternalError
from tests.onceway.client.fake_network import FakeNetwork
from tests.onceway.client.scenes import BOUND_S, eventually, messages, playing


async def test_the_time_that_the_machine_slept_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop's clock knows nothing of it."""
    slept_s = 0.0
    for module in ("connection", "driver"):
        monkeypatch.setattr(f"onceway.client.{module}.now_s", lambda: now_s() + slept_s)
    async with playing() as network:
        network.hold_outcomes = True
        told: list[PublicationsUndecided] = []
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders", on_undecided=told.append)
            publications = await publisher.put_many(messages(2))
            assert await eventually(lambda: len(network.published) == 2)
            slept_s = 130.0
            network.routers[0].drop()
            assert await eventually(lambda: told)
            assert [number for number, _ in told[0].publications] == [0, 1]
            (away,) = re.findall(r"no contact for (\d+) s", told[0].reason)
            assert 130 <= int(away) < 130 + BOUND_S
            with pytest.raises(DeliveryUndecided):
                await publications
        assert len(network.published) == 2


@pytest.mark.parametrize("product", ["onceway", "other"])
async def test_the_handshake_is_said_at_once_where_routers_are_known_to_be_ours(product: str) -> None:
    async with playing() as network:
        (router,) = network.routers
        router.product = product
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            for number in range(3):
                await publisher.send(b"%d" % number)
                router.drop()
            await publisher.send(b"3")
        assert len(network.published) == 4
        first, *later = router.first_reads
        assert first == len(SASL_HEADER)
        assert [octets > first for octets in later] == [product == "onceway"] * 3


async def test_a_handshake_that_is_not_taken_at_once_is_said_in_turn_the_next_time() -> None:
    async with playing() as network:
        (router,) = network.routers
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            router.longest_first_read = len(SASL_HEADER)
            router.drop()
            await publisher.send(b"x")
        assert [octets > len(SASL_HEADER) for octets in router.first_reads] == [False, True, False]


async def test_a_password_is_told_to_nobody_who_has_not_asked_for_it() -> None:
    async with playing(verify=lambda user, password: (user, password) == ("ann", "secret")) as network:
        (router,) = network.routers
        url = network.url().replace("//", "//ann:secret@")
        async with onceway.connect(url) as connection:
            publisher = await connection.publisher("orders")
            router.drop()
            await publisher.send(b"x")
        assert router.first_reads == [len(SASL_HEADER)] * 2


def test_the_clock_goes_on() -> None:
    before = now_s()
    assert before <= now_s() < before + 60
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is not None:
        assert abs(time.clock_gettime(clock) - now_s()) < 60


async def test_a_defect_of_ours_stops_the_connection_and_tells_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing() as network:
        network.hold_outcomes = True
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        connection = await onceway.connect(network.url())
        publisher = await connection.publisher("orders")
        subscriber = await connection.subscriber("orders")
        publication = await publisher.put(b"x")
        monkeypatch.setattr(PublisherLink, "disposed", _fails)
        network.subscriptions.clear()
        assert await eventually(lambda: network.published)
        for record in network.publishers["orders"].records.values():
            record.awaits.clear()
        network.release_outcomes()
        network.routers[0].flush()
        with pytest.raises(InternalError, match="for a test"):
            await publication
        with pytest.raises(InternalError):
            await subscriber.receive()
        with pytest.raises(InternalError):
            await connection.publisher("other")
        await connection.close()


async def test_a_defect_of_what_connects_tells_everybody_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async with playing() as network:
        connection = await onceway.connect(network.url())
        subscriber = await connection.subscriber("orders")
        monkeypatch.setattr(Connection, "_next", _fails)
        network.routers[0].drop()
        with pytest.raises(InternalError, match="for a test"):
            await subscriber.receive()
        await connection.close()


def _fails(*arguments: object) -> None:
    raise AssertionError("for a test")


@pytest.mark.parametrize("place", [("a..b", 5672), ("127.0.0.1", 70_000), ("x" * 300, 1), ("a\0b", 1)])
async def test_a_router_that_names_no_place_is_left_for_those_of_the_list(place: tuple[str, int]) -> None:
    async with playing() as network, onceway.connect(network.url()) as connection:
        publisher = await connection.publisher("orders")
        network.routers[0].send_away(*place)
        await publisher.send(b"one")


@pytest.mark.parametrize("url", ["amqp://a..b", "amqp://" + "x" * 64 + ".example.org"])
async def test_a_host_that_nobody_can_have_is_the_reason_that_is_told(url: str) -> None:
    with pytest.raises(ConnectionFailed, match="label"):
        await onceway.connect(url, connect_timeout_s=0.2).__aenter__()


def test_importing_onceway_loads_no_engine() -> None:
    program = "import sys, onceway; print('amqp10' in sys.modules or 'asyncio' in sys.modules); onceway.connect"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_every_public_name_is_there() -> None:
    for name in onceway.__all__:
        assert getattr(onceway, name) is not None
    assert isinstance(onceway.connect("amqp://127.0.0.1"), Connection)
    with pytest.raises(AttributeError):
        _ = onceway.disconnect


def test_a_deadline_that_has_come_is_armed_for_an_earlier_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop's handle for a time within half a millisecond is a plain one: it cannot say when."""
    uvloop = pytest.importorskip("uvloop")

    async def scene() -> None:
        network = FakeNetwork()
        await network.router("r0")
        async with onceway.connect(network.url(), container="c") as connection:
            now = asyncio.get_running_loop().time()
            for deadline in (now, now - 1.0, now + 0.0002):
                monkeypatch.setattr(connection._driver.endpoint, "next_deadline", lambda deadline=deadline: deadline)
                connection._driver._arm(now)
            monkeypatch.undo()
        await network.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scene(), BOUND_S))


async def test_a_router_that_is_drained_says_where_to_go_and_that_is_no_failure() -> None:
    network = FakeNetwork()
    for name in ("a", "b", "c"):
        await network.router(name)
    a, _, c = network.routers
    reports: list[Any] = []
    urls = network.url().split(",")
    async with onceway.connect(urls[:2], ordered=True, on_report=reports.append) as connection:
        publisher = await connection.publisher("orders")
        a.send_away("127.0.0.1", c.port)  # which is not in the list
        await publisher.send(b"one")
        assert connection.router == "c"
        assert await eventually(lambda: any(isinstance(report, RouterLost) for report in reports))
        (lost,) = [report for report in reports if isinstance(report, RouterLost)]
        assert (lost.url, lost.retry_in_s) == (urls[0], 0.0)
        c.send_away("127.0.0.1", a.port)  # so soon that all may be stopping: with a back-off
        await publisher.send(b"two")
        assert connection.router == "a"
        assert [report.retry_in_s > 0 for report in reports if isinstance(report, RouterLost)] == [False, True]
    await network.stop()


async def test_pauses_grow_with_each_round_through_the_list() -> None:
    reports: list[Any] = []
    urls = [f"amqp://127.0.0.1:{port}" for port in (free_port(), free_port(), free_port())]
    connection = onceway.connect(urls, connect_timeout_s=BOUND_S, on_report=reports.append)
    opening = asyncio.create_task(connection.__aenter__())
    assert await eventually(lambda: len(reports) >= 7)
    opening.cancel()
    assert [report.url for report in reports[:3]] == [report.url for report in reports[3:6]]
    pauses = [report.retry_in_s for report in reports]
    assert pauses[:3] == [0.05, 0.05, 0.05]
    assert all(0.05 <= pause <= 0.1 for pause in pauses[3:6])
    assert 0.1 <= pauses[6] <= 0.2
    with pytest.raises(asyncio.CancelledError):
        await opening


def test_user_and_password_go_only_to_routers_of_the_list() -> None:
    plain, listed = RouterUrl("h", 1), RouterUrl("h", 1, "u", "p")
    for url, place, named in (
        (plain, ("other", 2), RouterUrl("other", 2)),
        (listed, ("other", 2), None),
        (listed, ("h2", 2), RouterUrl("h2", 2, "u", "p")),
        (plain, None, None),
    ):
        connection = onceway.connect(["amqp://h:1", "amqp://u:p@h2:2"])
        connection._driver.sent_to = place
        assert connection._named(url) == named
