"""Stores of one pipe die, are cut off, full, and promoted at random: their logs stay one log.

The stores are real, with their listeners; the network between them is played: it delivers until an outcome is known.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from amqp10.sections import Message
from chaos.live.ports import free_port
from edges.pipe.listener import Listener
from edges.pipe.log import PipeLog, open_log
from edges.pipe.messages import CONTROL, RESET, decode_entry, read_control
from edges.pipe.promote import promote
from edges.pipe.serve import PipePlan, StoredPipe
from edges.store import Batch as StoreBatch
from edges.store import Committed, Retention, Store, StoreFull, open_store
from onceway.base.logs import logger
from onceway.base.waits import PIPE_ASK, PIPE_FILL
from onceway.client.bodies import encode_body, read_body
from onceway.client.signals import Changes
from onceway.errors import DeliveryRejected, OncewayError

LOG = logger("pipe")
STORES = ("s", "t", "u")
FULL = 0.1  # of all commits are refused


class Publication:
    """A payload of a topic, until each subscription has an outcome for it."""

    def __init__(self, tag: bytes, payload: bytes, subscriptions: Iterable[str]) -> None:
        self.tag = tag
        self.payload = payload
        self.waits = set(subscriptions)
        self.outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()  # False: rejected
        self.rejected = False

    def decide(self, subscription: str, rejected: bool) -> None:
        self.waits.discard(subscription)
        self.rejected |= rejected
        if not self.waits and not self.outcome.done():
            self.outcome.set_result(not self.rejected)


class Batch:
    def __init__(self, topic: Topic, subscription: str, publications: list[Publication]) -> None:
        self.tags = [each.tag for each in publications]
        self.payloads = [each.payload for each in publications]
        self.other_formats: dict[int, int] = {}
        self._of = (topic, subscription, publications)
        self._rejected: set[int] = set()

    def __getitem__(self, index: int) -> Batch:
        topic, subscription, publications = self._of
        part = Batch(topic, subscription, [publications[index]])
        part._rejected = self._rejected
        part._index = index
        return part

    _index = 0

    def reject(self, *why: str) -> None:
        self._rejected.add(self._index)

    async def accept(self) -> None:
        topic, subscription, publications = self._of
        for index, each in enumerate(publications):
            each.decide(subscription, index in self._rejected)
        topic.queues[subscription] = deque(each for each in topic.queues[subscription] if subscription in each.waits)


class Topic:
    """Publications of each publisher come in order, and come again to whoever attaches next."""

    def __init__(self, *subscriptions: str) -> None:
        self.queues: dict[str, deque[Publication]] = {name: deque() for name in subscriptions}
        self.holder: dict[str, object] = {}
        self.changes = Changes()

    def publish(self, tag: bytes, payload: bytes) -> Publication:
        publication = Publication(tag, payload, self.queues)
        for queue in self.queues.values():
            queue.append(publication)
        self.changes.notify()
        return publication

    async def batches(self, subscription: str, connection: Connection) -> AsyncIterator[Batch]:
        me = self.holder[subscription] = object()
        handed: set[Publication] = set()

        def new() -> list[Publication]:
            return [each for each in self.queues[subscription] if each not in handed]

        while True:
            await self.changes.until(
                lambda: self.holder[subscription] is not me or (not connection.cut() and bool(new()))
            )
            if self.holder[subscription] is not me:
                raise OncewayError("stolen")
            some = new()[: connection.world.rng.randrange(1, 50)]
            handed.update(some)
            yield Batch(self, subscription, some)


class Connection:
    """What a store sees of the network."""

    max_message_bytes = None

    def __init__(self, world: World, store: str) -> None:
        self.world = world
        self._store = store

    def cut(self) -> bool:
        return self._store in self.world.cut

    async def __aenter__(self) -> Connection:
        await self.world.input.changes.until(lambda: not self.cut())
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def publisher(self, topic: str, **options: Any) -> Connection:
        return self

    async def put_payloads(self, payloads: Iterable[bytes]) -> Awaitable[None]:
        await self.world.input.changes.until(lambda: not self.cut())
        publications = [self.world.log.publish(b"", payload) for payload in payloads]
        for each in publications:
            self.world.note(each)

        async def outcomes() -> None:
            for each in publications:
                if not await each.outcome:
                    raise DeliveryRejected("rejected")
                self.world.agree(each)

        return outcomes()

    async def subscriber(self, topic: str, **options: Any) -> Subscriber:
        return Subscriber(self, topic)


class Subscriber:
    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic

    def batches(self, **limits: int) -> AsyncIterator[Batch]:
        world = self._connection.world
        if self._topic == "jobs":
            return world.input.batches("jobs", self._connection)
        return world.log.batches(self._connection._store, self._connection)


class Process:
    """A store that runs."""

    def __init__(self, world: World, name: str, store: Store, log: PipeLog) -> None:
        self.log = log
        self.store = store
        self.listener = Listener(name, {"jobs": log}, self.command, LOG)
        self.pipe = StoredPipe(name, world.plan, log, "", self.listener, LOG)
        self.pipe._connect = lambda container: connected(Connection(world, name))  # type: ignore[assignment, return-value, method-assign]
        self.tasks: list[asyncio.Task[None]] = []

    async def command(self, name: str, text: str) -> None:
        await self.pipe.command(text)


async def connected(connection: Connection) -> Connection:
    return connection


class World:
    def __init__(self, directory: Path, seed: int, retention: Retention) -> None:
        self.rng = random.Random(seed)
        self.disks = random.Random(seed)
        self.directory = directory
        self.ports = {name: free_port() for name in STORES}
        places = tuple((name, f"amqp://127.0.0.1:{port}") for name, port in self.ports.items())
        self.plan = PipePlan("jobs", places, retention)
        self.input = Topic("jobs")
        self.log = Topic(*STORES)
        self.log.changes = self.input.changes
        self.cut: set[str] = set()
        self.running: dict[str, Process] = {}
        self.pushed: list[Publication] = []
        self.agreed: dict[int, bytes] = {}  # what all stores had
        self.published: dict[int, set[bytes]] = {}  # what a primary has published at a position
        self.said: list[str] = []

    async def start(self, name: str) -> None:
        store = open_store(str(self.directory / name))
        commit = store.commit

        def commit_if_there_is_room(batch: StoreBatch, **options: Any) -> Awaitable[Committed]:
            if self.disks.random() < FULL:
                raise StoreFull("the disk is full")
            return commit(batch, **options)

        store.commit = commit_if_there_is_room  # type: ignore[method-assign]
        log = await open_log(store, "jobs", name, STORES[0], LOG)
        process = self.running[name] = Process(self, name, store, log)
        await process.listener.start("127.0.0.1", self.ports[name])
        process.tasks = [asyncio.create_task(work) for work in process.pipe.tasks()]

    async def kill(self, name: str) -> None:
        process = self.running.pop(name)
        for task in process.tasks:
            task.cancel()
        for found in await asyncio.gather(*process.tasks, return_exceptions=True):
            assert isinstance(found, asyncio.CancelledError), found
        await process.listener.stop()
        await process.log.close()
        await process.store.close()

    async def promote(self, name: str) -> None:
        places = dict(self.plan.stores)
        with suppress(OncewayError):  # refused, or nobody there: the next promotion is another
            await asyncio.wait_for(promote("jobs", name, places, self.said.append), 20)

    def push(self) -> None:
        number = len(self.pushed)
        self.pushed.append(self.input.publish(b"%d" % number, encode_body(b"%d" % number)))

    def note(self, publication: Publication) -> None:
        _, position, entry = decode_entry(publication.payload)
        if read_control(entry.record) is None:
            self.published.setdefault(position, set()).add(read_body(entry.record))

    def agree(self, publication: Publication) -> None:
        """What all stores have taken stays at its position for ever."""
        _, position, entry = decode_entry(publication.payload)
        if "epochs" not in (read_control(entry.record) or {}):
            assert self.agreed.setdefault(position, entry.record) == entry.record, f"position {position} has changed"

    async def step(self) -> None:
        for _ in range(self.rng.randrange(8)):
            self.push()
        if self.plan.retention.octets and self.rng.random() < 0.03:
            self.input.publish(b"reset %d" % len(self.pushed), a_reset(len(self.pushed)))
        name = self.rng.choice(STORES)
        match self.rng.randrange(8):
            case 0 if name in self.running and len(self.running) > 1:
                await self.kill(name)
            case 1 | 2 if name not in self.running:
                await self.start(name)
            case 3:
                await self.promote(name)
            case 4:
                self.cut.add(name)
            case 5 | 6:
                self.cut.discard(name)
        self.input.changes.notify()
        for _ in range(self.rng.randrange(1, 40)):
            await asyncio.sleep(0)


def a_reset(number: int) -> bytes:
    return Message(b"", application_properties={RESET: str(number)}).encode()


async def contents(log: PipeLog) -> dict[int, bytes]:
    """By position, from where the content begins."""
    found: dict[int, bytes] = {}
    position = log.state.start
    while some := await log.store.read(log.stream, position - log.state.base):
        found |= {each.position + log.state.base: each.payload for each in some}
        position = max(found) + 1
    return found


def is_quiet(logs: list[PipeLog]) -> bool:
    """All stores have and show the same; a drop that has begun has got to all."""
    return len({(log.next, log.visible, log.state.start) for log in logs}) == 1 and logs[0].next == logs[0].visible


async def play(directory: Path, seed: int, retention: Retention) -> int:
    """Returns how many messages retention has dropped."""
    world = World(directory, seed, retention)
    for name in STORES:
        await world.start(name)
    for _ in range(60):
        await world.step()
    world.cut.clear()
    world.input.changes.notify()
    for name in STORES:
        if name not in world.running:
            await world.start(name)
    while True:  # two promotions that were made apart may have fenced each other
        world.push()
        await asyncio.wait([each.outcome for each in world.pushed], timeout=1)
        if all(each.outcome.done() for each in world.pushed):
            break
        await world.promote(world.rng.choice(STORES))
    logs = [process.log for process in world.running.values()]
    while True:
        while not is_quiet(logs):
            await logs[0].changes.until(lambda: is_quiet(logs), 0.05)
        start, end = logs[0].state.start, logs[0].next
        all_found = [{at: record for at, record in (await contents(log)).items() if at < end} for log in logs]
        if is_quiet(logs) and (logs[0].state.start, logs[0].next) == (start, end):
            break
    controls = [log.state.controls for log in logs]
    for name in STORES:
        await world.kill(name)
    found = all_found[0]
    assert all_found == [found] * 3
    assert list(found) == list(range(start, end))
    assert controls == [[at for at, record in found.items() if read_control(record) is not None]] * 3
    assert {at: record for at, record in world.agreed.items() if at >= start}.items() <= found.items()
    bodies = [read_body(record) for at, record in found.items() if at not in controls[0]]
    pushed = {b"%d" % number for number in range(len(world.pushed))}
    assert len(set(bodies)) == len(bodies)
    dropped = {body for at, some in world.published.items() if at < start for body in some}
    assert set(bodies) <= pushed <= {*bodies, *dropped}
    return len(pushed) - len(bodies)


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edges.pipe.serve.AGAIN_S", 0.01)
    monkeypatch.setattr("edges.pipe.serve.PIPE_FILL", replace(PIPE_FILL, bound=0.2))
    monkeypatch.setattr("edges.pipe.serve.DROP_EVERY_S", 0.01)
    monkeypatch.setattr("edges.pipe.promote.PIPE_ASK", replace(PIPE_ASK, bound=0.2))
    for module in ("log", "serve"):
        monkeypatch.setattr(f"edges.pipe.{module}.FULL_RETRY_S", 0.01)


@pytest.mark.parametrize("seed", range(6))
def test_stores_agree_whatever_dies_or_is_promoted(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)
    assert asyncio.run(asyncio.wait_for(play(tmp_path, seed, Retention()), 120)) == 0


@pytest.mark.parametrize("seed", range(6, 12))
def test_stores_drop_the_same_whatever_dies_or_is_promoted(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    assert asyncio.run(asyncio.wait_for(play(tmp_path, seed, Retention(octets=2000)), 120)) > 0


async def test_what_only_stores_say_is_rejected_from_clients(tmp_path: Path) -> None:
    """Routers do not name the publisher of a message of another format than AMQP's; in NAME.log only stores publish."""
    world = World(tmp_path, 0, Retention())
    for name in STORES:
        await world.start(name)
    claims = Message(b"", application_properties={CONTROL: '{"reset": "x", "removed": 7}'}).encode()
    record = b"\x01" + b'{"reset": "x", "removed": 7, "epoch": 1}'
    forged = [world.input.publish(b"forged %d" % n, each) for n, each in enumerate((claims, record))]
    junk = [encode_body("text"), encode_body(b"short"), encode_body(bytes(20) + b"\xff"), b"no message"]
    forged += [world.log.publish(b"", each) for each in junk]
    assert await asyncio.gather(*(each.outcome for each in forged)) == [False] * len(forged)
    world.push()
    assert await world.pushed[0].outcome
    logs = [process.log for process in world.running.values()]
    found = [[record for record in (await contents(log)).values() if record[:1] != b"\x01"] for log in logs]
    assert [[read_body(record) for record in records] for records in found] == [[b"0"]] * 3
    for name in STORES:
        await world.kill(name)
