"""What `onceway` offers to applications beside its calls: names, reprs, the log, and what a timeout means."""

from __future__ import annotations

import ast
import asyncio
import logging
import subprocess
import sys
from pathlib import Path

import pytest

import onceway
from onceway.client.urls import parse_urls
from tests.onceway.client.scenes import eventually, messages, playing, take


def test_every_name_that_is_offered_is_there_and_documented() -> None:
    for name in onceway.__all__:
        assert getattr(onceway, name).__doc__ or name in ("Guarantee", "Symbol"), name
    assert set(onceway.__all__) <= set(dir(onceway))


def test_every_error_is_offered() -> None:
    import onceway.errors

    assert {
        name for name, value in vars(onceway.errors).items() if isinstance(value, type) and issubclass(value, Exception)
    } <= set(onceway.__all__)


def test_type_checkers_and_the_interpreter_find_the_same_names() -> None:
    assert onceway.__file__ is not None
    tree = ast.parse(Path(onceway.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    seen = {
        alias.name: node.module
        for node in imports
        for alias in node.names
        if node.module not in ("__future__", "importlib", "typing")
    }
    assert seen == {**onceway._HOMES, "sync": "onceway"}
    assert set(seen) == set(onceway.__all__)


def test_an_unknown_name_says_so() -> None:
    with pytest.raises(AttributeError, match="'onceway' has no attribute 'Konnection'"):
        onceway.Konnection  # noqa: B018


def test_importing_it_is_quick() -> None:
    """No asyncio before something is used: command lines begin with `import onceway`."""
    code = "import sys, onceway; assert 'asyncio' not in sys.modules and 'sqlite3' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# -- reprs


async def test_reprs_show_names_states_and_counts() -> None:
    async with playing() as network:
        connection = onceway.connect(network.url(), container="shop")
        assert "not opened yet" in repr(connection)
        async with connection:
            subscriber = await connection.subscriber("orders", name="billing")
            publisher = await connection.publisher("orders", name="till")
            publication = await publisher.put(b"x")
            assert repr(publication) == "<Publication 0 of publisher 'till', under way>"
            delivery = await subscriber.receive()
            assert "for subscriber 'billing' of 'orders', undecided" in repr(delivery)
            assert repr(subscriber) == (
                "<Subscriber 'billing' of 'orders', exactly-once, attached; waiting: 0, undecided: 1, accepted: 0>"
            )
            await delivery.accept()
            await publication
            assert repr(publication) == "<Publication 0 of publisher 'till', accepted>"
            assert "accepted: 1, rejected: 0, unsettled: 0" in repr(publisher)
            many = await publisher.put_many(messages(3))
            assert "1 to 3 of publisher 'till'" in repr(many)
            batch = await anext(subscriber.batches(max_messages=3, max_wait=5.0))
            assert repr(batch) == "<Batch of 3 deliveries for subscriber 'billing' of 'orders', 3 undecided>"
            await batch[0].accept()
            assert "2 undecided" in repr(batch)
            await batch.accept()
            assert repr(connection).startswith("<Connection of container 'shop', connected to router 'r0' at amqp://")
            assert repr(connection).endswith("publishers: 1, subscribers: 1>")
        assert "closed" in repr(connection)
        assert "closed" in repr(publisher)
        assert "closed" in repr(subscriber)


def test_no_password_is_shown() -> None:
    (url,) = parse_urls("amqp://me:secret@127.0.0.1:1")
    assert "secret" not in repr(url) + str(url)
    connection = onceway.connect("amqp://me:secret@127.0.0.1:1")
    assert "secret" not in repr(connection)


def test_a_long_body_is_shown_shortened() -> None:
    assert len(repr(onceway.Message(bytes(1_000_000)))) < 200


# -- the log


async def test_the_log_tells_of_connections_and_links(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="onceway")
    async with playing() as network, onceway.connect(network.url(), container="shop") as connection:
        publisher = await connection.publisher("orders", name="till")
        network.routers[0].drop()
        await publisher.send(b"x")
    log = "\n".join(record.getMessage() for record in caplog.records if record.name == "onceway")
    assert "connected to router 'r0' at amqp://127.0.0.1:" in log
    assert "publisher 'till' of 'orders' attached at router 'r0', exactly-once" in log
    assert "publisher 'till' of 'orders' detached: the connection was lost" in log
    assert "next try in 0." in log
    assert "publisher 'till' of 'orders' resumed at router 'r0', exactly-once" in log
    assert "publisher 'till' of 'orders' closed" in log


def test_the_library_is_silent_unless_logging_is_configured() -> None:
    code = "import onceway, asyncio\nasync def main():\n  await onceway.connect('127.0.0.1:1', connect_timeout_s=0.2)\n"
    code += "try: asyncio.run(main())\nexcept onceway.ConnectionFailed: pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


# -- timeouts


async def test_a_send_that_times_out_stays_published_and_its_outcome_can_be_awaited() -> None:
    async with playing() as network:
        network.hold_outcomes = True
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            with pytest.raises(
                onceway.SendTimeout, match="stays published: sending it again would duplicate"
            ) as timeout:
                await publisher.send(b"x", timeout_s=0.05)
            assert isinstance(timeout.value, TimeoutError)
            publication = timeout.value.publication
            assert not publication.done
            network.release_outcomes()
            network.routers[0].flush()
            await publication
            assert len(network.published) == 1


async def test_a_send_that_got_no_credit_was_not_published() -> None:
    async with playing() as network:
        network.hold_outcomes = True
        async with onceway.connect(network.url(), close_timeout_s=0.0) as connection:
            publisher = await connection.publisher("orders")
            while publisher.room:
                publisher.put_nowait(b"x")
            taken = publisher.sequence
            with pytest.raises(onceway.SendTimeout, match=r"no credit .* was not published") as timeout:
                await publisher.send(b"y", timeout_s=0.05)
            assert timeout.value.publication is None
            assert publisher.sequence == taken
            network.release_outcomes()
            network.routers[0].flush()
            await publisher.drain()


async def test_a_cancelled_send_goes_on() -> None:
    async with playing() as network:
        network.hold_outcomes = True
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            sending = asyncio.create_task(publisher.send(b"x"))
            assert await eventually(lambda: network.published)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert publisher.unsettled == 1
            network.release_outcomes()
            network.routers[0].flush()
            await publisher.drain()
            assert publisher.accepted == 1


# -- leaving


async def test_leaving_is_bounded_and_says_what_is_undecided(caplog: pytest.LogCaptureFixture) -> None:
    async with playing() as network:
        network.hold_outcomes = True
        reports: list[onceway.Report] = []
        with pytest.raises(onceway.UndecidedPublications, match="has undecided publications") as left:
            async with onceway.connect(network.url(), close_timeout_s=0.05, on_report=reports.append) as connection:
                publisher = await connection.publisher("orders")
                await publisher.put(b"x")
        assert [number for number, _ in left.value.publications] == [0]
        assert any(isinstance(report, onceway.PublicationsUndecided) for report in reports)
    assert "has undecided publications (1): the connection was closed before they had an outcome" in caplog.text


async def test_what_is_undecided_on_leaving_stays_in_the_journal(tmp_path: Path) -> None:
    async with playing() as network:
        network.hold_outcomes = True
        connection = await onceway.connect(network.url(), journal=tmp_path / "journal")
        publisher = await connection.publisher("orders")
        await publisher.put(b"x")
        assert await eventually(lambda: network.published)
        (undecided,) = await connection.close(timeout_s=0.05)
        assert "the next process sends them again" in undecided.reason
        network.hold_outcomes = False
        async with onceway.connect(network.url(), journal=tmp_path / "journal") as connection:
            publisher = await connection.publisher("orders")
            (recovered,) = publisher.recovered
            await recovered


async def test_leaving_a_network_that_is_gone_is_bounded() -> None:
    async with playing() as network, onceway.connect(network.url(), close_timeout_s=0.1) as connection:
        publisher = await connection.publisher("orders")
        subscriber = await connection.subscriber("orders")
        await publisher.put(b"x")
        assert await take(subscriber, 1) == [b"x"]
        await publisher.drain()
        await network.stop()
