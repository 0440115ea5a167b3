"""`onceway.sync`: the client for threads, against a fake router."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import onceway
import onceway.sync
from tests.onceway.client.scenes import BOUND_S, messages, playing


def run(script: Callable[[str], None]) -> None:
    """The script in a thread of its own; the fake network in this one."""

    async def scene() -> None:
        async with playing() as network:
            before = set(threading.enumerate())
            await asyncio.to_thread(script, network.url())
            assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "onceway"]

    asyncio.run(scene())


def test_what_is_sent_is_received_and_accepted(tmp_path: Path) -> None:
    def script(url: str) -> None:
        with onceway.sync.connect(url, journal=tmp_path / "journal") as connection:
            subscriber = connection.subscriber("orders")
            publisher = connection.publisher("orders")
            publication = publisher.put(b"x")
            delivery = subscriber.receive(timeout_s=BOUND_S)
            assert delivery.body == b"x"
            assert delivery.message.value == b"x"
            delivery.accept()
            publication.wait(BOUND_S)
            assert publication.done
            sending = threading.Thread(target=publisher.send_many, args=(messages(10),))
            sending.start()
            bodies = []
            for batch in subscriber.batches(max_messages=4):
                bodies += batch.bodies
                batch.accept()
                if len(bodies) == 10:
                    break
            assert bodies == messages(10)
            sending.join()
            assert publisher.sequence == 11
            publisher.drain(timeout_s=BOUND_S)
            assert "publishers: 1, subscribers: 1" in repr(connection)

    run(script)


def test_nothing_comes_in_time_and_nothing_is_lost() -> None:
    def script(url: str) -> None:
        with onceway.sync.connect(url) as connection:
            subscriber = connection.subscriber("orders")
            with pytest.raises(TimeoutError):
                subscriber.receive(timeout_s=0.05)
            connection.publisher("orders").put(b"x")
            delivery = subscriber.receive(timeout_s=BOUND_S)
            assert delivery.body == b"x"
            delivery.accept()

    run(script)


def test_many_threads_share_a_publisher_and_a_subscriber() -> None:
    def script(url: str) -> None:
        received: list[bytes] = []
        with onceway.sync.connect(url) as connection:
            subscriber = connection.subscriber("orders")
            publisher = connection.publisher("orders")

            def receive() -> None:
                for delivery in subscriber:
                    received.append(delivery.body)
                    delivery.accept()

            def send(start: int) -> None:
                for body in messages(20, start):
                    publisher.send(body, timeout_s=BOUND_S)

            receivers = [threading.Thread(target=receive) for _ in range(2)]
            senders = [threading.Thread(target=send, args=(start,)) for start in (0, 20, 40)]
            for thread in receivers + senders:
                thread.start()
            for thread in senders:
                thread.join()
            while len(received) < 60:
                time.sleep(0.001)
            subscriber.close()  # ends the iterations
            for thread in receivers:
                thread.join()
        assert sorted(received) == sorted(messages(60))

    run(script)


def test_a_call_under_way_is_told_when_the_connection_is_closed() -> None:
    def script(url: str) -> None:
        connection = onceway.sync.connect(url)
        subscriber = connection.subscriber("orders")
        told: list[str] = []

        def receive() -> None:
            with pytest.raises(onceway.ConnectionClosed):
                subscriber.receive()
            told.append("closed")

        thread = threading.Thread(target=receive)
        thread.start()
        connection.close()
        connection.close()  # again is harmless
        thread.join(BOUND_S)
        assert told == ["closed"]
        with pytest.raises(onceway.ConnectionClosed):
            connection.publisher("orders")
        assert list(subscriber) == []

    run(script)


def test_errors_are_those_of_the_asyncio_client() -> None:
    with pytest.raises(onceway.ConnectionFailed, match=r"no router reached within 0\.2 s"):
        onceway.sync.connect("127.0.0.1:1", connect_timeout_s=0.2)
    with pytest.raises(onceway.UsageError, match="scheme must be amqp"):
        onceway.sync.connect("http://127.0.0.1:1")

    def script(url: str) -> None:
        with onceway.sync.connect(url) as connection:
            publisher = connection.publisher("orders")
            with pytest.raises(onceway.UsageError, match="wrap it: Message"):
                publisher.send({"a": 1})  # type: ignore[arg-type]

    run(script)


async def test_asyncio_code_is_sent_to_the_asyncio_client() -> None:
    with pytest.raises(onceway.UsageError, match=r"use onceway\.connect in asyncio code"):
        onceway.sync.connect("127.0.0.1:1")
