"""The asyncio client against fake routers that break connections where it hurts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import onceway
from amqp10.events import Dispositions, Event, LinkAttaching, Transfers
from amqp10.frames import SASL_HEADER
from amqp10.outcomes import ACCEPTED, Error, Rejected
from amqp10.sections import Message, Properties
from onceway.client.clock import now_s
from onceway.client.connection import Connection
from onceway.client.protocol.publishing import PublisherLink
from onceway.client.reports import LinkAttached, PublicationsUndecided, Report, RouterConnected, RouterLost
from onceway.errors import (
    AttachTimeout,
    AuthenticationFailed,
    ConnectionClosed,
    ConnectionFailed,
    DeliveryRejected,
    DeliveryUndecided,
    InternalError,
    JournalFull,
    JournalLocked,
    LinkRefused,
    LinkStolen,
    PublisherFull,
    SubscriptionBroken,
    UndecidedPublications,
    UsageError,
)
from tests.onceway.client.fake_network import FakeNetwork

T = TypeVar("T")
BOUND_S = 30.0


def play(scene: Callable[[FakeNetwork], Awaitable[T]], routers: int = 1, **options: Any) -> T:
    """Run a scene against a network of so many routers, within a bound."""

    async def run() -> T:
        network = FakeNetwork()
        for number in range(routers):
            await network.router(f"r{number}", **options)
        try:
            async with asyncio.timeout(BOUND_S):
                return await scene(network)
        finally:
            await network.stop()

    return asyncio.run(run())


def messages(count: int, start: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(start, start + count)]


async def take(subscriber: onceway.Subscriber, count: int) -> list[Any]:
    """Take and accept so many."""
    bodies = []
    async for delivery in subscriber:
        bodies.append(delivery.body)
        await delivery.accept()
        if len(bodies) == count:
            break
    return bodies


async def settled(publisher: onceway.Publisher) -> None:
    await publisher.drain()
    assert publisher.unsettled == 0


# -- the ordinary way


def test_what_is_published_is_delivered_accepted_and_settled() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            publications = [await publisher.put(body) for body in messages(10)]
            assert await take(subscriber, 10) == messages(10)
            for publication in publications:
                await publication
            assert publisher.accepted == 10
            assert publisher.unsettled == 0
        assert network.faults == []
        assert not network.subscriptions  # closed: nobody waits for it

    play(scene)


def test_send_returns_when_it_is_accepted_and_settled() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            await publisher.send(b"x")
            assert network.published
            assert publisher.unsettled == 0
            assert network.publishers["orders"].records == {} or await _eventually(
                lambda: not network.publishers["orders"].records
            )

    play(scene)


async def _eventually(condition: Callable[[], object]) -> bool:
    for _ in range(2000):
        if condition():
            return True
        await asyncio.sleep(0.001)
    return False


def test_bodies_of_all_kinds_arrive_as_they_were() -> None:
    bodies: list[Any] = [b"", b"short", bytes(70_000), "text", Message({"a": 1}, properties=Properties(subject="s"))]

    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            for body in bodies:
                await publisher.put(body)
            deliveries = [await subscriber.receive() for _ in bodies]
            assert [delivery.body for delivery in deliveries] == [*bodies[:4], {"a": 1}]
            assert deliveries[4].message.properties is not None
            assert deliveries[4].message.properties.subject == "s"
            for delivery in deliveries:
                await delivery.accept()

    play(scene)


def test_batches_are_columns_and_are_accepted_as_ranges() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            publications = await publisher.put_many(messages(400))
            bodies: list[Any] = []
            async for batch in subscriber.batches(max_messages=150, max_wait=0.05):
                assert len(batch) == len(batch.tags) == len(batch.bodies) <= 150
                bodies += batch.bodies
                await batch.accept()
                if len(bodies) == 400:
                    break
            assert bodies == messages(400)
            await publications
            assert len(publications) == 400
            assert publisher.accepted == subscriber.accepted == 400

    play(scene)


def test_encoded_messages_are_sent_as_they_are() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            payloads = [Message("text", properties=Properties(subject="s")).encode(), Message(b"octets").encode()]
            await (await publisher.put_payloads(payloads))
            assert network.published == payloads

    play(scene)


def test_a_batch_holds_about_the_octets_it_may_and_one_message_at_least() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            await publisher.put_many([bytes(1000)] * 10 + [bytes(9000)])
            assert await _eventually(lambda: subscriber._waiting == 11)
            sizes = []
            async for batch in subscriber.batches(max_bytes=3500):
                sizes.append(len(batch))
                await batch.accept()
                if sum(sizes) == 11:
                    break
            assert sizes == [3, 3, 3, 1, 1]

    play(scene)


def test_single_verdicts_and_the_rest_of_a_batch_go_together() -> None:
    async def scene(network: FakeNetwork) -> None:
        network.state_of = lambda body: Rejected(Error("x")) if b"2" in body else ACCEPTED
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            await publisher.put_many(messages(5))
            assert await _eventually(lambda: subscriber._waiting == 5)
            batch = await anext(subscriber.batches())
            await batch[2].reject()
            assert batch[2].decided
            await batch.accept()
            await publisher.drain()
            assert (publisher.accepted, publisher.rejected) == (4, 1)

    play(scene)


def test_a_released_delivery_comes_again() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            publication = await publisher.put(b"x")
            first = await subscriber.receive()
            await first.release()
            second = await subscriber.receive()
            assert second.tag == first.tag
            await second.accept()
            await publication

    play(scene)


def test_a_second_verdict_on_one_delivery_is_the_callers_mistake() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            await publisher.put(b"x")
            delivery = await subscriber.receive()
            await delivery.accept()
            with pytest.raises(UsageError, match="verdict already"):
                await delivery.release()

    play(scene)


def test_a_rejected_publication_raises_with_its_state() -> None:
    async def scene(network: FakeNetwork) -> None:
        network.state_of = lambda body: Rejected(Error("onceway:rejected", "by one", {"onceway:rejected": 1}))
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            with pytest.raises(DeliveryRejected, match="by one") as caught:
                await publisher.send(b"x")
            assert caught.value.rejected == 1
            many = await publisher.put_many([b"y", b"z"])
            with pytest.raises(DeliveryRejected):
                await many
            assert publisher.rejected == 3

    play(scene)


def test_puts_wait_for_credit_and_no_longer() -> None:
    async def scene(network: FakeNetwork) -> None:
        network.hold_outcomes = True
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            assert await _eventually(lambda: publisher.room == 500)
            for body in messages(500):
                publisher.put_nowait(body)
            with pytest.raises(PublisherFull):
                publisher.put_nowait(b"one more")
            waiting = asyncio.create_task(publisher.put(b"one more"))
            await asyncio.sleep(0)
            assert not waiting.done()
            network.release_outcomes()
            network.routers[0].flush()
            await (await waiting)
            assert publisher.accepted == 501
            assert publisher.sequence == 501

    play(scene)


def test_at_most_once_is_over_when_it_is_written() -> None:
    async def scene(network: FakeNetwork) -> None:
        network.hold_outcomes = True
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders", guarantee="at-most-once")
            assert publisher.guarantee == "at-most-once"
            await publisher.send(b"x")
        assert len(network.published) == 1

    play(scene)


def test_at_least_once_is_settled_by_the_router() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders", guarantee="at-least-once")
            assert publisher.guarantee == "at-least-once"
            await publisher.send(b"x")
            assert publisher.unsettled == 0

    play(scene)


def test_reports_say_what_the_connection_does() -> None:
    async def scene(network: FakeNetwork) -> list[Report]:
        told: list[Report] = []
        async with onceway.connect(network.url(), on_report=told.append) as connection:
            publisher = await connection.publisher("orders", name="p")
            await publisher.send(b"x")
            network.routers[0].drop()
            await publisher.send(b"y")
        return told

    told = play(scene)
    assert [type(report) for report in told] == [
        RouterConnected,
        LinkAttached,
        RouterLost,
        RouterConnected,
        LinkAttached,
    ]
    assert isinstance(told[1], LinkAttached)
    assert not told[1].resumed
    assert isinstance(told[4], LinkAttached)
    assert told[4].resumed


# -- failures


async def exchange(network: FakeNetwork, count: int, journal: str | None = None) -> None:
    """Publish and receive so many through whatever happens; nothing lost, twice or out of order."""
    received: list[Any] = []
    async with (
        onceway.connect(network.url(), container="publisher") as sending,
        onceway.connect(network.url(), container="subscriber", journal=journal) as receiving,
    ):
        subscriber = await receiving.subscriber("orders", on_gap=received.append)
        publisher = await sending.publisher("orders")

        async def publish() -> None:
            for body in messages(count):
                await publisher.put(body)
                if publisher.sequence % 50 == 0:
                    await asyncio.sleep(0)

        async def receive() -> None:
            async for batch in subscriber.batches(max_messages=37):
                received.extend(batch.bodies)
                await batch.accept()
                if len(received) >= count:
                    return

        await asyncio.gather(publish(), receive())
        await settled(publisher)
        assert publisher.accepted == count
    assert received == messages(count)
    assert [body[5:] for body in network.published] == messages(count)
    assert network.faults == []
    # None is used twice. (Their order is that of arrival: one of a connection given up may be read after its successor.)
    assert len(set(network.attaches)) == len(network.attaches)


def every(number: int, kind: type[Event], seed: int) -> Callable[[Event], bool]:
    """True at one in so many events of a kind."""
    rng = random.Random(seed)
    return lambda event: isinstance(event, kind) and rng.randrange(number) == 0


@pytest.mark.parametrize("kind", [Transfers, Dispositions, LinkAttaching], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("where", ["drop_when", "drop_unsent"])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_twice_when_connections_break(kind: type[Event], where: str, seed: int) -> None:
    async def scene(network: FakeNetwork) -> None:
        setattr(network, where, every(3 if kind is LinkAttaching else 6, kind, seed))
        task = asyncio.create_task(_stop_dropping(network))
        await exchange(network, 600)
        task.cancel()

    play(scene, routers=2)


async def _stop_dropping(network: FakeNetwork) -> None:
    await asyncio.sleep(5)
    network.drop_when = network.drop_unsent = None


def test_with_a_journal_nothing_is_lost_or_twice_either(tmp_path: Path) -> None:
    async def scene(network: FakeNetwork) -> None:
        network.drop_unsent = every(5, Dispositions, 1)
        task = asyncio.create_task(_stop_dropping(network))
        await exchange(network, 600, str(tmp_path / "journal"))
        task.cancel()

    play(scene, routers=2)


def test_a_router_that_is_gone_for_good_is_left_for_the_next() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url(), ordered=True) as connection:
            publisher = await connection.publisher("orders")
            await publisher.send(b"x")
            assert connection.router == "r0"
            await network.routers[0].stop()
            network.routers.pop(0)
            await publisher.send(b"y")
            assert connection.router == "r1"
        assert len(network.published) == 2

    play(scene, routers=2)


def test_ordered_begins_with_the_first_and_random_with_any() -> None:
    async def scene(network: FakeNetwork) -> None:
        firsts = set()
        for _ in range(30):
            async with onceway.connect(network.url()) as connection:
                firsts.add(connection.router)
        assert firsts == {"r0", "r1"}
        for _ in range(5):
            async with onceway.connect(network.url(), ordered=True) as connection:
                assert connection.router == "r0"

    play(scene, routers=2)


def test_nobody_there_is_an_error_with_the_reason_of_each_url() -> None:
    async def scene(network: FakeNetwork) -> None:
        url = network.url()
        await network.routers.pop().stop()
        with pytest.raises(ConnectionFailed, match="no router reached within") as caught:
            await onceway.connect(url, connect_timeout_s=0.3)
        assert list(caught.value.reasons) == [url]
        assert "refused" in caught.value.reasons[url].lower()

    play(scene)


def test_a_password_is_checked() -> None:
    async def scene(network: FakeNetwork) -> None:
        port = network.routers[0].port
        async with onceway.connect(f"amqp://ann:secret@127.0.0.1:{port}") as connection:
            assert connection.router == "r0"
        with pytest.raises(AuthenticationFailed, match="does not accept"):
            await onceway.connect(f"amqp://ann:wrong@127.0.0.1:{port}")
        with pytest.raises(AuthenticationFailed):
            await onceway.connect(f"amqp://127.0.0.1:{port}")

    play(scene, verify=lambda user, password: (user, password) == ("ann", "secret"))


def test_a_refused_address_raises_its_condition() -> None:
    async def scene(network: FakeNetwork) -> None:
        network.refuse_with = "amqp:not-found"
        async with onceway.connect(network.url()) as connection:
            with pytest.raises(LinkRefused, match="amqp:not-found"):
                await connection.publisher("nowhere")
            network.refuse_with = None
            await connection.publisher("nowhere")

    play(scene)


def test_an_attach_that_is_never_answered_times_out_and_leaves_nothing() -> None:
    async def scene(network: FakeNetwork) -> None:
        network.attach = lambda link: None  # type: ignore[method-assign]
        async with onceway.connect(network.url()) as connection:
            with pytest.raises(AttachTimeout, match="may be recovering"):
                await connection.subscriber("orders", timeout_s=0.1)
            del network.attach
            assert connection._driver.owners == {}
            await connection.subscriber("orders")

    play(scene)


def test_a_stolen_link_is_an_error_in_the_older_process_only() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with (
            onceway.connect(network.url(), container="twin") as older,
            onceway.connect(network.url(), container="twin") as newer,
        ):
            first = await older.subscriber("orders")
            second = await newer.subscriber("orders")
            with pytest.raises(LinkStolen, match="another process"):
                await first.receive()
            publisher = await newer.publisher("orders")
            await publisher.put(b"x")
            assert await take(second, 1) == [b"x"]

    play(scene)


def test_a_broken_subscription_raises_once_and_goes_on() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")
            publisher = await connection.publisher("orders")
            network.subscriptions["orders"].born = 1  # the network has forgotten it
            network.routers[0].drop()
            with pytest.raises(SubscriptionBroken, match="missed messages"):
                await anext(subscriber.batches())
            await publisher.put(b"x")
            assert await take(subscriber, 1) == [b"x"]

    play(scene)


def test_a_gap_is_told_to_who_wants_to_know() -> None:
    async def scene(network: FakeNetwork) -> None:
        gaps: list[onceway.SubscriptionGap] = []
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders", on_gap=gaps.append)
            publisher = await connection.publisher("orders")
            network.subscriptions["orders"].born = 1
            network.routers[0].drop()
            assert await _eventually(lambda: gaps)
            await publisher.put(b"x")
            assert await take(subscriber, 1) == [b"x"]
            assert gaps[0].name == "orders"

    play(scene)


# -- closing


def test_close_waits_for_the_outcomes_under_way() -> None:
    async def scene(network: FakeNetwork) -> None:
        network.hold_outcomes = True
        connection = await onceway.connect(network.url())
        publisher = await connection.publisher("orders")
        publications = await publisher.put_many(messages(20))
        closing = asyncio.create_task(connection.close())
        assert await _eventually(lambda: len(network.published) == 20)
        assert not closing.done()
        network.release_outcomes()
        network.routers[0].flush()
        await closing
        await publications
        assert publisher.accepted == 20

    play(scene)


def test_close_that_may_not_wait_says_what_is_undecided() -> None:
    async def scene(network: FakeNetwork) -> None:
        network.hold_outcomes = True
        connection = await onceway.connect(network.url())
        publisher = await connection.publisher("orders")
        publication = await publisher.put(b"x")
        await connection.close(timeout_s=0.05)
        with pytest.raises(DeliveryUndecided):
            await publication
        with pytest.raises(ConnectionClosed):
            await publisher.put(b"y")

    play(scene)


def test_an_error_inside_the_block_comes_out_at_once() -> None:
    async def scene(network: FakeNetwork) -> None:
        network.hold_outcomes = True
        with pytest.raises(ZeroDivisionError):
            async with onceway.connect(network.url()) as connection:
                publisher = await connection.publisher("orders")
                await publisher.put(b"x")
                raise ZeroDivisionError

    play(scene)


def test_a_closed_subscriber_ends_its_iteration() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            subscriber = await connection.subscriber("orders")

            async def iterate() -> int:
                return len([delivery async for delivery in subscriber])

            task = asyncio.create_task(iterate())
            await asyncio.sleep(0)
            await subscriber.close()
            assert await task == 0
            assert not network.subscriptions
            with pytest.raises(ConnectionClosed):
                await subscriber.receive()
            await connection.subscriber("orders")  # the name is free again

    play(scene)


def test_a_detached_subscriber_finds_what_came_meanwhile() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            async with onceway.connect(network.url(), container="s") as other:
                subscriber = await other.subscriber("orders")
                await subscriber.detach()
            await publisher.put(b"x")
            assert await _eventually(lambda: network.published)
            async with onceway.connect(network.url(), container="s") as other:
                assert await take(await other.subscriber("orders"), 1) == [b"x"]

    play(scene)


def test_a_name_is_used_once_at_a_time() -> None:
    async def scene(network: FakeNetwork) -> None:
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            with pytest.raises(UsageError, match="already"):
                await connection.publisher("orders")
            await publisher.close()
            await connection.publisher("orders")

    play(scene)


def test_a_closed_connection_says_so() -> None:
    async def scene(network: FakeNetwork) -> None:
        connection = await onceway.connect(network.url())
        await connection.close()
        with pytest.raises(ConnectionClosed):
            await connection.publisher("orders")

    play(scene)


# -- with a journal


def test_a_new_process_goes_on_where_the_old_one_was_cut_off(tmp_path: Path) -> None:
    async def scene(network: FakeNetwork) -> None:
        network.hold_outcomes = True
        path = tmp_path / "journal"
        connection = await onceway.connect(network.url(), container="c", journal=path)
        publisher = await connection.publisher("orders")
        await publisher.put_many(messages(5))
        assert await _eventually(lambda: len(network.published) == 5)
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

    play(scene)


def test_publications_that_are_too_old_are_raised_and_not_sent_again(tmp_path: Path) -> None:
    async def scene(network: FakeNetwork) -> None:
        network.hold_outcomes = True
        path = tmp_path / "journal"
        connection = await onceway.connect(network.url(), container="c", journal=path)
        publisher = await connection.publisher("orders")
        await publisher.put_many(messages(2))
        assert await _eventually(lambda: len(network.published) == 2)
        publisher._link._part.contact(1, 120.0)
        await connection.close(timeout_s=0)
        async with onceway.connect(network.url(), container="c", journal=path) as connection:
            with pytest.raises(UndecidedPublications) as caught:
                await connection.publisher("orders")
            assert [number for number, _ in caught.value.publications] == [0, 1]
            publisher = await connection.publisher("orders")
            assert publisher.recovered == []
            assert publisher.sequence == 2

    play(scene)


def test_the_time_that_the_machine_slept_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop's clock knows nothing of it."""
    slept_s = 0.0
    for module in ("connection", "driver"):
        monkeypatch.setattr(f"onceway.client.{module}.now_s", lambda: now_s() + slept_s)

    async def scene(network: FakeNetwork) -> None:
        nonlocal slept_s
        network.hold_outcomes = True
        told: list[PublicationsUndecided] = []
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders", on_undecided=told.append)
            publications = await publisher.put_many(messages(2))
            assert await _eventually(lambda: len(network.published) == 2)
            slept_s = 130.0
            network.routers[0].drop()
            assert await _eventually(lambda: told)
            assert [number for number, _ in told[0].publications] == [0, 1]
            assert "130 s" in told[0].reason
            with pytest.raises(DeliveryUndecided):
                await publications
        assert len(network.published) == 2

    play(scene)


@pytest.mark.parametrize("product", ["onceway", "other"])
def test_the_handshake_is_said_at_once_where_routers_are_known_to_be_ours(product: str) -> None:
    async def scene(network: FakeNetwork) -> None:
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

    play(scene)


def test_a_handshake_that_is_not_taken_at_once_is_said_in_turn_the_next_time() -> None:
    async def scene(network: FakeNetwork) -> None:
        (router,) = network.routers
        async with onceway.connect(network.url()) as connection:
            publisher = await connection.publisher("orders")
            router.longest_first_read = len(SASL_HEADER)
            router.drop()
            await publisher.send(b"x")
        assert [octets > len(SASL_HEADER) for octets in router.first_reads] == [False, True, False]

    play(scene)


def test_a_password_is_told_to_nobody_who_has_not_asked_for_it() -> None:
    async def scene(network: FakeNetwork) -> None:
        (router,) = network.routers
        url = network.url().replace("//", "//ann:secret@")
        async with onceway.connect(url) as connection:
            publisher = await connection.publisher("orders")
            router.drop()
            await publisher.send(b"x")
        assert router.first_reads == [len(SASL_HEADER)] * 2

    play(scene, verify=lambda user, password: (user, password) == ("ann", "secret"))


def test_the_clock_goes_on() -> None:
    before = now_s()
    assert before <= now_s() < before + 60
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is not None:
        assert abs(time.clock_gettime(clock) - now_s()) < 60


def test_one_journal_serves_one_process(tmp_path: Path) -> None:
    async def scene(network: FakeNetwork) -> None:
        path = tmp_path / "journal"
        async with onceway.connect(network.url(), journal=path):
            with pytest.raises(JournalLocked, match="another process"):
                await onceway.connect(network.url(), journal=path)

    play(scene)


def test_a_journal_names_its_container(tmp_path: Path) -> None:
    async def scene(network: FakeNetwork) -> tuple[str, str]:
        names = []
        for _ in range(2):
            async with onceway.connect(network.url(), journal=tmp_path / "journal") as connection:
                names.append(connection.container)
        return names[0], names[1]

    first, second = play(scene)
    assert first == second


def test_a_full_disk_is_an_error_for_everything_under_way_and_nothing_is_sent_unwritten(tmp_path: Path) -> None:
    async def scene(network: FakeNetwork) -> None:
        journal = onceway.SqliteJournal(tmp_path / "journal")
        connection = await onceway.connect(network.url(), container="c", journal=journal)
        publisher = await connection.publisher("orders")
        await publisher.send(b"fits")
        assert journal._database is not None
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

    play(scene)


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


def test_a_subscriber_killed_at_any_moment_processes_nothing_accepted_again_and_misses_nothing(tmp_path: Path) -> None:
    """What it printed had been accepted durably before, so over all lives nothing may come twice; a kill between
    accept and print may leave out up to one batch (which it had accepted)."""

    async def scene(network: FakeNetwork) -> None:
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
                assert child.stdout is not None
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

    play(scene)


# -- house keeping


def test_a_defect_of_ours_stops_the_connection_and_tells_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(network: FakeNetwork) -> None:
        network.hold_outcomes = True
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        connection = await onceway.connect(network.url())
        publisher = await connection.publisher("orders")
        subscriber = await connection.subscriber("orders")
        publication = await publisher.put(b"x")
        monkeypatch.setattr(PublisherLink, "disposed", _fails)
        network.subscriptions.clear()
        assert await _eventually(lambda: network.published)
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

    play(scene)


def _fails(*arguments: object) -> None:
    raise AssertionError("for a test")


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
