"""The contract (docs/contracts/metadata-pubsub.md) over TCP, with clients that were written from it alone."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Self
from uuid import uuid4

import pytest

import onceway
from edges.metadata import serve
from edges.metadata.serve import Edge
from tests.edges.conftest import BOUND_S, play
from tests.edges.metadata.conftest import Raw, edge
from tests.live import LiveNetwork

EACH = pytest.mark.parametrize(
    ("dialect", "library"), [("a", "msgpack"), ("b", "msgpack"), ("a", "second"), ("b", "second")]
)


def test_the_port_is_4444_by_default() -> None:
    assert inspect.signature(Edge).parameters["port"].default == 4444


@EACH
async def test_a_subscription_follows_the_publishers_that_match(
    network: LiveNetwork, dialect: str, library: str
) -> None:
    p, q = str(uuid4()), str(uuid4())
    async with (
        edge(network, "e") as served,
        Raw(served.port, dialect, library) as publisher,
        Raw(served.port, "b" if dialect == "a" else "a", library) as other,
        Raw(served.port, dialect, library) as subscriber,
    ):
        publisher.publish(p, {"Metadata/System": "HVAC", "Properties/UnitofTime": "s"}, 1)
        other.publish(q, {"Metadata/System": "light"}, 2)
        await known(served, 2)
        subscriber.subscribe('has Metadata/System and Properties/UnitofTime = "s"')
        assert await subscriber.receive() == ("diff", {p}, set())  # first: all that match now
        publisher.publish(p, {}, 3)
        other.publish(q, {}, "not for this subscriber")
        assert await subscriber.receive() == ("message", p, {}, 3)
        other.publish(q, {"Properties/UnitofTime": "s"}, {"v": [4]})  # only what has changed
        assert await subscriber.receive() == ("diff", {q}, set())  # before the message that it affects
        assert await subscriber.receive() == ("message", q, {"Properties/UnitofTime": "s"}, {"v": [4]})
        publisher.publish(p, {"Metadata/System": None}, "after nil has deleted the key")
        assert await subscriber.receive() == ("diff", set(), {p})
        other.publish(q, {"Metadata/System": "heat", "more": 1}, 5)  # the set stays: no diff
        assert await subscriber.receive() == ("message", q, {"Metadata/System": "heat", "more": 1}, 5)
        other.writer.close()
        assert await subscriber.receive() == ("diff", set(), {q})  # a publisher that goes away


@EACH
async def test_a_predicate_that_cannot_be_read_is_answered_with_its_place(
    network: LiveNetwork, dialect: str, library: str
) -> None:
    async with edge(network, "e") as served, Raw(served.port, dialect, library) as client:
        client.subscribe("has Room and\nhas")
        kind, text, line, column = await client.receive()
        assert (kind, line, column) == ("error", 2, 4)
        assert "expected a key" in text
        client.subscribe("has Room")  # the connection is usable
        assert await client.receive() == ("diff", set(), set())
        client.publish("no uuid", {}, 1)
        kind, text, line, column = await client.receive()
        assert (kind, line, column) == ("error", None, None)
        assert "UUID" in text
        client.publish(p := str(uuid4()), {"Room": 1}, 1)
        assert await client.receive() == ("diff", {p}, set())


async def test_every_operator_selects_publishers_over_tcp(network: LiveNetwork) -> None:
    """What a predicate means is in tests/router/test_predicate.py; here are each operator and form of a key once."""
    one, other = str(uuid4()), str(uuid4())
    both, neither = {one, other}, set[str]()
    async with edge(network, "e") as served, Raw(served.port, "a", "msgpack") as client:
        client.publish(one, {"~a/b%_-1": 'quo"te', "n": 5, "on": True, "Room": "410"}, 0)
        client.publish(other, {"$a": "back\\slash", "n": 0.5, "_": "x"}, 0)
        await known(served, 2)
        for predicate, matching in (
            (r'~a/b%_-1 = "quo\"te"', {one}),
            (r"$a = 'back\\slash'", {other}),
            ("n = '5' or n = '0.5'", both),
            ("on != 'true'", {other}),
            ("Room like '^4'", {one}),
            ("Room like '1'", {one}),
            ("n in ('4', '5')", {one}),
            ("has _ and not has Room", {other}),
            ("has _ or has Room and has absent", {other}),
            ("(has _ or has Room) and has absent", neither),
            ("not has absent", both),
        ):
            client.subscribe(predicate)
            assert await client.receive() == ("diff", matching, set()), predicate


@EACH
async def test_what_an_edge_cannot_take_is_answered_and_the_connection_goes_on(
    network: LiveNetwork, dialect: str, library: str
) -> None:
    p = str(uuid4())
    async with edge(network, "e") as served, Raw(served.port, dialect, library) as client:
        client.subscribe("has a")
        assert (await client.receive())[0] == "diff"
        for metadata, said in (
            ({"a": ["list"]}, "a string, a number, a boolean, or nil"),
            ({f"k{number}": number for number in range(1025)}, "1024 at most"),
        ):
            client.publish(p, metadata, 1)
            kind, text, *_ = await client.receive()
            assert kind == "error"
            assert said in text
        client.publish(p, {"a": "1"}, 2)
        assert await client.receive() == ("diff", {p}, set())
        assert await client.receive() == ("message", p, {"a": "1"}, 2)


def test_clients_say_no_more_at_once_than_the_routers_take(tmp_path: Path) -> None:
    async def story() -> None:
        async with edge(network, "e") as served, Raw(served.port, "a", "msgpack") as client:
            assert served.max_message_bytes < 256 << 10
            client.publish(str(uuid4()), {"a": "1"}, bytes(300_000))
            kind, text, *_ = await client.receive()
            assert (kind, text) == (
                "error",
                f"a message has at most {served.max_message_bytes} bytes here (--max-message)",
            )
            async with Raw(served.port, "a", "msgpack") as other:
                other.subscribe("has a")
                assert (await other.receive())[0] == "diff"
                other.publish(p := str(uuid4()), {"a": "1"}, bytes(served.max_message_bytes - 100))
                assert await other.receive() == ("diff", {p}, set())
                assert (await other.receive())[0] == "message"

    with LiveNetwork(tmp_path, settings={"max_message_size": "256KiB"}) as network:
        network.start()
        play(story())


async def test_a_publisher_is_there_as_long_as_one_connection_is(network: LiveNetwork) -> None:
    p = str(uuid4())
    async with (
        edge(network, "e") as served,
        Raw(served.port, "b", "msgpack") as subscriber,
        Raw(served.port, "a", "msgpack") as first,
        Raw(served.port, "b", "second") as second,
    ):
        subscriber.subscribe("has a")
        await subscriber.receive()
        first.publish(p, {"a": "1"}, 1)
        assert [(await subscriber.receive())[0] for _ in range(2)] == ["diff", "message"]
        second.publish(p, {}, 2)
        assert await subscriber.receive() == ("message", p, {}, 2)
        first.writer.close()
        second.publish(p, {}, 3)
        assert await subscriber.receive() == ("message", p, {}, 3)  # no Del: it is there
        second.writer.close()
        assert await subscriber.receive() == ("diff", set(), {p})
        async with Raw(served.port, "a", "msgpack") as again:
            again.publish(p, {"b": "1"}, 4)  # of `a` nothing is left
            await known(served, 1)
            again.publish(p, {"a": "2"}, 5)
            assert await subscriber.receive() == ("diff", {p}, set())
            assert await subscriber.receive() == ("message", p, {"a": "2"}, 5)


async def test_a_second_subscription_replaces_the_first(network: LiveNetwork) -> None:
    async with edge(network, "e") as served, Raw(served.port, "a", "msgpack") as client:
        client.publish(p := str(uuid4()), {"a": "1", "b": "1"}, 0)
        await known(served, 1)
        client.subscribe("has a")
        assert await client.receive() == ("diff", {p}, set())
        client.subscribe("has b")
        assert await client.receive() == ("diff", {p}, set())
        client.publish(p, {"a": None}, 1)
        assert await client.receive() == ("message", p, {"a": None}, 1)


async def test_bytes_that_are_no_messagepack_end_their_connection_and_no_other(network: LiveNetwork) -> None:
    async with (
        edge(network, "e", max_message_bytes=1000) as served,
        Raw(served.port, "a", "msgpack") as good,
    ):
        good.subscribe("has a")
        assert (await good.receive())[0] == "diff"
        for data, said in (
            (b"GET / HTTP/1.1\r\n\r\n", "begins with"),
            (b"\xda\x10\x00" + b"x" * 2000, "at most 1000"),
        ):
            async with Raw(served.port, "a", "msgpack") as bad:
                bad.writer.write(data)
                kind, text, *_ = await bad.receive()
                assert kind == "error"
                assert said in text
                assert await bad.closed()
        good.publish(p := str(uuid4()), {"a": "1"}, 1)
        assert await good.receive() == ("diff", {p}, set())


async def test_all_edges_know_all_publishers(network: LiveNetwork) -> None:
    p, q = str(uuid4()), str(uuid4())
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(edge(network, "first", "a"))
        publisher = await stack.enter_async_context(Raw(first.port, "a", "msgpack"))
        publisher.publish(p, {"Room": "410"}, 0)
        await known(first, 1)
        second = await stack.enter_async_context(edge(network, "second", "b"))  # one that joins later
        subscriber = await stack.enter_async_context(Raw(second.port, "b", "second"))
        subscriber.subscribe("Room = '410'")
        assert await subscriber.receive() == ("diff", {p}, set())
        numbers = range(500)
        for number in numbers:
            publisher.publish(p, {}, number)
        assert [await subscriber.receive() for _ in numbers] == [("message", p, {}, number) for number in numbers]
        publisher.publish(q, {"Room": "410"}, "q")
        assert [await subscriber.receive() for _ in range(2)] == [
            ("diff", {q}, set()),
            ("message", q, {"Room": "410"}, "q"),
        ]
        await first.stop()  # an edge takes its publishers along
        assert await subscriber.receive() == ("diff", set(), {p, q})


async def test_a_subscriber_that_does_not_read_holds_publishers_up_and_loses_nothing(network: LiveNetwork) -> None:
    p, count = str(uuid4()), 60_000
    async with (
        edge(network, "e", stall_s=BOUND_S) as served,
        Raw(served.port, "a", "msgpack") as publisher,
        Raw(served.port, "a", "msgpack") as slow,
    ):
        slow.subscribe("has a")
        await slow.receive()
        publisher.publish(p, {"a": "1"}, -1)
        assert (await slow.receive())[0] == "diff"
        assert (await slow.receive())[3] == -1
        slow.writer.transport.pause_reading()

        async def publish() -> None:
            for number in range(count):
                publisher.publish(p, {}, [number, "x" * 1000])
                await publisher.writer.drain()

        publishing = asyncio.create_task(publish())
        (client,) = (each for each in served.clients if each.query is not None)
        await until(lambda: client.stuck and client in served.clients)
        await until(lambda: served.local.waiting_bytes > serve.LOW_BYTES)
        assert not publishing.done()
        slow.writer.transport.resume_reading()
        for number in range(count):
            assert (await slow.receive())[3][0] == number
        await publishing


async def test_a_subscriber_that_is_stuck_for_too_long_is_disconnected(network: LiveNetwork) -> None:
    p = str(uuid4())
    async with (
        edge(network, "e", stall_s=0.2) as served,
        Raw(served.port, "a", "msgpack") as publisher,
        Raw(served.port, "a", "msgpack") as stuck,
        Raw(served.port, "a", "msgpack") as reading,
    ):
        for each in (stuck, reading):
            each.subscribe("has a")
            await each.receive()
        stuck.writer.transport.pause_reading()
        publisher.publish(p, {"a": "1"}, -1)
        assert (await reading.receive())[0] == "diff"
        assert (await reading.receive())[3] == -1
        for number in range(400):
            publisher.publish(p, {}, [number, "x" * 100_000])
            assert (await reading.receive())[3][0] == number  # nothing of the others' is lost
        await until(lambda: len(served.clients) == 2)


async def test_subscribers_hear_that_messages_may_have_been_missed(
    network: LiveNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edge is cut off from its router for longer than the network waits for it."""
    monkeypatch.setattr(serve, "SUBSCRIPTION_TIMEOUT_S", 0.2)
    p, q = str(uuid4()), str(uuid4())
    async with (
        Way(network.routers["a"].amqp_port) as way,
        edge(network, "far", "b") as far,
        edge(network, "near", url=way.url) as near,
        Raw(near.port, "a", "msgpack") as client,
        Raw(near.port, "a", "msgpack") as publisher,
        Raw(far.port, "a", "msgpack") as other,
    ):
        publisher.publish(p, {"a": "1"}, 0)
        await known(near, 1)
        client.subscribe("has a")
        assert await client.receive() == ("diff", {p}, set())
        await way.cut()
        other.publish(q, {"a": "1"}, "missed")
        await known(far, 2)
        await until(lambda: not far.unheard)
        await way.mend()
        kind, text, *_ = await client.receive()
        assert kind == "error"
        assert "may have missed messages" in text
        assert await client.closed()
        async with Raw(near.port, "a", "msgpack") as client:
            client.subscribe("has a")  # is read when the edge knows everything again
            assert await client.receive() == ("diff", {p, q}, set())
            publisher.publish(p, {}, "publishers have stayed")
            assert await client.receive() == ("message", p, {}, "publishers have stayed")


def test_an_amqp_link_with_a_predicate_gets_what_matches_once_and_in_order_when_its_router_is_killed(
    network: LiveNetwork,
) -> None:
    async def story() -> None:
        predicate = "has Metadata/System and Room like '^4' and not Unit in ('F')"
        async with (
            onceway.connect(network.urls("a"), container="amqp-out") as there,
            onceway.connect(network.urls("b", "a"), container="amqp-in") as here,
        ):
            with pytest.raises(onceway.LinkRefused, match="line 1, column 13: expected") as refused:
                await here.subscriber("rooms", name="wrong", filters={"onceway:predicate": "has Room and"})
            assert refused.value.condition == "amqp:invalid-field"
            subscriber = await here.subscriber("rooms", filters={"onceway:predicate": predicate})
            publisher = await there.publisher("rooms")
            got: list[bytes] = []

            async def read() -> None:
                async for delivery in subscriber:
                    got.append(delivery.body)
                    delivery.accept()

            reading = asyncio.create_task(read())
            for number in range(400):
                if number == 200:
                    await until(lambda: got)
                    await asyncio.to_thread(network.kill, "b")
                metadata = {"Metadata/System": "HVAC", "Room": 400 + number % 2 * 100, "Unit": "FC"[number % 4 // 2]}
                await publisher.put(onceway.Message(b"%d" % number, application_properties=metadata))
            await publisher.drain()
            wanted = [b"%d" % number for number in range(400) if number % 4 == 2]
            await until(lambda: len(got) >= len(wanted))
            assert got == wanted
            reading.cancel()

    play(story())
    network.start("b")


async def test_nothing_is_lost_or_repeated_when_the_router_of_an_edge_is_killed(network: LiveNetwork) -> None:
    sent = {str(uuid4()): 0 for _ in range(4)}
    got: dict[str, list[int]] = {uuid: [] for uuid in sent}
    killed = asyncio.Event()
    async with (
        edge(network, "first") as first,
        edge(network, "second") as second,
        Raw(second.port, "b", "msgpack") as subscriber,
    ):
        subscriber.subscribe("has a")
        assert await subscriber.receive() == ("diff", set(), set())

        async def publish(uuid: str) -> None:
            async with Raw(first.port, "a", "msgpack") as publisher:
                while not killed.is_set():
                    number = sent[uuid]
                    publisher.publish(uuid, {"a": number} if number % 7 == 0 else {}, number)
                    sent[uuid] += 1
                    await publisher.writer.drain()
                    await until(lambda: sent[uuid] - len(got[uuid]) < 200)
                await until(lambda: len(got[uuid]) == sent[uuid])

        async def read() -> None:
            there: set[str] = set()
            while not killed.is_set() or there:
                what, *rest = await subscriber.receive()
                if what == "diff":
                    assert not there & rest[0]
                    there.update(rest[0])
                    there.difference_update(rest[1])
                else:
                    assert rest[0] in there
                    got[rest[0]].append(rest[2])

        async def kill() -> None:
            for router in ("a", "b", "a"):
                seen = sum(map(len, got.values()))
                await until(lambda seen=seen: sum(map(len, got.values())) > seen + 1000)  # type: ignore[misc]
                await asyncio.to_thread(network.kill, router)
                await asyncio.to_thread(network.start, router)
            killed.set()

        await asyncio.gather(read(), kill(), *map(publish, sent))
        assert got == {uuid: list(range(count)) for uuid, count in sent.items()}


class Way:
    """Between an edge and its router."""

    def __init__(self, port: int) -> None:
        self._router = port
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._through, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"amqp://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def cut(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._through, "127.0.0.1", self.port)

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, on = await asyncio.open_connection("127.0.0.1", self._router)
        self._writers += [writer, on]
        await asyncio.gather(_copy(reader, on), _copy(back, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def known(served: Edge, count: int) -> None:
    """Waits until the edge knows so many publishers."""
    await until(lambda: len(served.network.registry) == count)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 what it waits for has no event
            await asyncio.sleep(0.005)
