"""What an event bus costs: events pushed over HTTP at a fixed rate, and called back over HTTP.

    python -m bench bus [rates] [hanging] [queued]

rates    one subscriber with timeout 0, beside Redis streams: XADD with every write on the disk, and a worker that posts
         what it reads to the same subscriber
hanging  1,000 subscribers, of which 10 stop answering every other two seconds: how long the others wait. Neighbouring
         spells see the same machine, so their ratio says more than two medians
queued   a million queued events: the edge's memory, and how long it takes to start

Router, edge, Redis and its worker are processes of their own; publisher and subscribers share this one, so that one
clock dates both. Where this machine cannot keep a rate up, the line says which it kept. CPU is in microseconds for each
event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web

import onceway
from bench.processes import cpu_seconds, resident_mb
from chaos.live.ports import free_port
from onceway.base.loop import run
from tests.edges.bus.world import BusNetwork
from tests.live import dying_with_us

CONNECTIONS = 256  # of the publisher
MOST = 1000  # events in a batch
SUBSCRIBERS, HANGING = 1000, 10
SPELL_S = 2.0
NOT_COUNTED = 1 << 40

Push = Callable[[int], Awaitable[None]]


class Sink:
    """The subscribers' server: when each event came."""

    def __init__(self, count: int, call_backs: int = 0) -> None:
        self.pushed = [0.0] * count
        self.came: list[list[float]] = [[] for _ in range(count)]
        self._left = call_backs or count
        self.done = asyncio.Event()
        self._let_go: asyncio.Event | None = None

    def hang(self, hangs: bool) -> None:
        """Whether the subscribers at /hang answer."""
        if self._let_go is not None:
            self._let_go.set()
        self._let_go = asyncio.Event() if hangs else None

    def waits(self, numbers: range) -> list[float]:
        """How long these events were under way, to each subscriber."""
        return [came - self.pushed[number] for number in numbers for came in self.came[number]]

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        application = web.Application(client_max_size=1 << 26)
        application.router.add_post("/", self._take)
        application.router.add_post("/hang", self._hang)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
        self.hang(False)
        await runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        now = time.perf_counter()
        for event in await request.json():
            number = int(event["url"].rpartition("/")[2])
            if number < len(self.came):
                self.came[number].append(now)
                self._left -= 1
        if self._left <= 0:
            self.done.set()
        return web.Response(status=204)

    async def _hang(self, request: web.Request) -> web.Response:
        if self._let_go is None:
            return web.Response(status=204)
        await self._let_go.wait()
        return web.Response(status=503)


async def drive(sink: Sink, push: Push, rate: float, processes: Mapping[str, int]) -> str:
    """Pushes at this rate, until the last event has come."""
    count = len(sink.came)
    answered = [0.0] * count

    async def one(number: int) -> None:
        sink.pushed[number] = time.perf_counter()
        await push(number)
        answered[number] = time.perf_counter()

    processes = {**processes, "publisher and subscriber": os.getpid()}
    before = {name: cpu_seconds([pid]) for name, pid in processes.items()}
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            wait = began + number / rate - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            tasks.create_task(one(number))
    took = time.perf_counter() - began
    await sink.done.wait()
    used = {name: (cpu_seconds([pid]) - before[name]) / count * 1e6 for name, pid in processes.items()}
    waits = sink.waits(range(count))
    answers = [end - begin for end, begin in zip(answered, sink.pushed, strict=True)]
    return (
        f"{rate:g}/s asked, {count / took:,.0f}/s kept; call-back {_shown(waits)}; answer {_shown(answers)}; "
        f"us of CPU each: {', '.join(f'{name} {each:.0f}' for name, each in used.items())}"
    )


def _shown(waits: list[float]) -> str:
    """Median and 99th percentile."""
    waits.sort()
    return f"{statistics.median(waits) * 1e3:.1f} ms, p99 {waits[len(waits) * 99 // 100] * 1e3:.1f} ms"


def _spread(medians: list[float]) -> str:
    low, middle, high = statistics.quantiles(medians, n=4)
    return f"{middle * 1e3:.1f} ms ({low * 1e3:.1f} to {high * 1e3:.1f})"


class Bus:
    """An edge with its router, for one client."""

    def __init__(self, directory: Path) -> None:
        self.network = BusNetwork(directory, arguments=("--http-callbacks",), tls=False)
        self.network.start_all()
        self._token = self.network.bus.client("bench")

    @property
    def processes(self) -> dict[str, int]:
        return {"router": self.network["a"].pid, "edge": self.network.bus.pid}

    @asynccontextmanager
    async def speaking(self, token: str = "") -> AsyncIterator[Callable[[str, object], Awaitable[None]]]:
        headers = {"Authorization": f"Basic {_basic(token or self._token)}"}
        connector = aiohttp.TCPConnector(limit=CONNECTIONS)
        url = f"http://127.0.0.1:{self.network.bus.port}"
        async with aiohttp.ClientSession(url, headers=headers, connector=connector) as session:

            async def post(path: str, body: object) -> None:
                async with session.post(path, json=body) as response:
                    assert response.status == 204, (response.status, await response.text())

            yield post

    async def rate(self, topic: str, rate: int, seconds: float) -> str:
        sink = Sink(int(rate * seconds))
        async with self.speaking() as post, sink.serving() as callback:
            await post(f"/topics/{topic}", event(NOT_COUNTED))
            wish = {"topics": [topic], "callback": callback, "uuid": "u", "timeout": 0, "max": MOST}
            await post("/subscription", wish)
            head = f"POST /topics/{topic} HTTP/1.1\r\nHost: bus\r\nAuthorization: Basic {_basic(self._token)}\r\n"
            idle = await pool(Http, self.network.bus.port)

            async def push(number: int) -> None:
                connection = await idle.get()
                await connection.post(head, json.dumps(event(number)).encode())
                idle.put_nowait(connection)

            return await drive(sink, push, rate, self.processes)

    async def subscribe(self, token: str, topic: str, callback: str) -> None:
        async with self.speaking(token) as post:
            wish = {"topics": [topic], "callback": callback, "uuid": "u", "timeout": 0}
            await post("/subscription", wish)

    async def hanging(self, rate: int, pairs: int) -> AsyncIterator[str]:
        topics = ["many_" + "x" * number for number in range(10)]
        tokens = [self.network.bus.client(f"s{number}") for number in range(SUBSCRIBERS)]
        spell = int(rate * SPELL_S)
        count = 2 * pairs * spell
        of_topic = Counter(topics[number % len(topics)] for number in range(HANGING, SUBSCRIBERS))
        sink = Sink(count, sum(of_topic[topics[number % len(topics)]] for number in range(count)))
        async with self.speaking() as post, sink.serving() as callback:

            async def push(number: int) -> None:
                if number % spell == 0:
                    sink.hang(number // spell % 4 in (1, 2))  # without, with, with, without: a slope cancels, too
                await post(f"/topics/{topics[number % len(topics)]}", event(number))

            for topic in topics:
                await post(f"/topics/{topic}", event(NOT_COUNTED))
            for number, token in enumerate(tokens):
                await self.subscribe(token, topics[number % len(topics)], callback + "hang" * (number < HANGING))
            yield f"{SUBSCRIBERS} subscribers, of which {HANGING} hang every other time: " + await drive(
                sink, push, rate, self.processes
            )
        medians = [statistics.median(sink.waits(range(at, at + spell))) for at in range(0, count, spell)]
        well = [each for at, each in enumerate(medians) if at % 4 in (0, 3)]
        hung = [each for at, each in enumerate(medians) if at % 4 in (1, 2)]
        ratios = [one / other for one, other in zip(hung, well, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        yield (
            f"medians of {len(well)} spells of {SPELL_S:g} s each: {_spread(well)} without, {_spread(hung)} with; "
            f"with / without, by pairs: median {middle:.3f}, half of them {low:.3f} to {high:.3f}"
        )

    async def queued(self, count: int) -> AsyncIterator[str]:
        """Events for one subscriber that takes none, published by an AMQP client."""
        bus = self.network.bus
        async with self.speaking() as post:
            await post("/topics/queue", event(NOT_COUNTED))
        await self.subscribe(self._token, "queue", "http://127.0.0.1:9/")
        bodies = [
            json.dumps({"topic": "queue", **event(number), "t": 0}, separators=(",", ":")).encode()
            for number in range(1000)
        ]
        async with onceway.connect(self.network.urls(), close_timeout_s=None) as connection:
            publisher = await connection.publisher("bus")
            for part in range(4):
                for _ in range(count // 4000):
                    await publisher.put_many(bodies)
                await publisher.drain()
                yield f"{(part + 1) * count // 4:,} events queued: the edge has {resident_mb([bus.pid]):.0f} MB"
        bus.stop()
        began = time.perf_counter()
        bus.start()
        took = time.perf_counter() - began
        cpu = cpu_seconds([bus.pid])
        yield f"started in {took:.2f} s, {cpu:.2f} s of CPU, with {resident_mb([bus.pid]):.0f} MB"


# --- Redis


class Redis:
    """redis-server with every write on the disk, and a worker that calls back."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(directory)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self._server = subprocess.Popen(dying_with_us(command), stdout=subprocess.DEVNULL)

    async def rate(self, stream: str, rate: int, seconds: float) -> str:
        sink = Sink(int(rate * seconds))
        async with sink.serving() as callback:
            idle = await pool(Resp, self.port)
            first = await idle.get()
            await first.ask("XGROUP", "CREATE", stream, "g", "$", "MKSTREAM")
            idle.put_nowait(first)
            worker = multiprocessing.get_context("spawn").Process(target=work, args=(self.port, stream, callback))
            worker.start()

            async def push(number: int) -> None:
                connection = await idle.get()
                await connection.ask("XADD", stream, "*", "e", json.dumps(event(number)))
                idle.put_nowait(connection)

            assert worker.pid is not None
            try:
                return await drive(sink, push, rate, {"server": self._server.pid, "worker": worker.pid})
            finally:
                worker.terminate()
                worker.join()

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()


class Connection:
    """To a server, for one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        while True:
            try:
                return cls(*await asyncio.open_connection("127.0.0.1", port))
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)


C = TypeVar("C", bound=Connection)


async def pool(kind: type[C], port: int) -> asyncio.LifoQueue[C]:
    idle = asyncio.LifoQueue[C]()
    for _ in range(CONNECTIONS):
        idle.put_nowait(await kind.connect(port))
    return idle


class Http(Connection):
    """As little of HTTP as can be, so that the edge is measured and not its client."""

    async def post(self, head: str, body: bytes) -> None:
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 204 "), answer


class Resp(Connection):
    """Redis' own protocol."""

    async def ask(self, *words: str | bytes) -> Any:
        parts = [word.encode() if isinstance(word, str) else word for word in words]
        self._writer.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in parts))
        return await self._answer()

    async def _answer(self) -> Any:
        line = (await self._reader.readline()).rstrip()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return [await self._answer() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else (await self._reader.readexactly(int(rest) + 2))[:-2]
        assert kind != b"-", rest
        return rest


def work(port: int, stream: str, callback: str) -> None:
    """Posts what it reads, and acknowledges it."""

    async def go() -> None:
        redis = await Resp.connect(port)
        async with aiohttp.ClientSession() as session:
            while True:
                found = await redis.ask(
                    "XREADGROUP", "GROUP", "g", "w", "COUNT", str(MOST), "BLOCK", "0", "STREAMS", stream, ">"
                )
                records = found[0][1]
                body = b"[" + b",".join(values[1] for _, values in records) + b"]"
                async with session.post(callback, data=body) as response:
                    assert response.status == 204
                await redis.ask("XACK", stream, "g", *(position for position, _ in records))

    run(go())


def _basic(token: str) -> str:
    return b64encode(f"{token}:".encode()).decode()


def event(number: int) -> dict[str, str]:
    return {"type": "update", "url": f"https://example.com/{number}"}


async def report(bus: Bus, redis: Redis | None, options: argparse.Namespace) -> None:
    what = options.what or ["rates", "hanging", "queued"]
    if "rates" in what:
        for index, rate in enumerate(map(int, options.rates.split(","))):
            topic = "bench_" + "x" * index
            print(f"bus    {await bus.rate(topic, rate, options.seconds)}", flush=True)
            if redis is not None:
                print(f"redis  {await redis.rate(topic, rate, options.seconds)}", flush=True)
    if "hanging" in what:
        async for line in bus.hanging(options.pushes, options.pairs):
            print(line, flush=True)
    if "queued" in what:
        async for line in bus.queued(options.queued):
            print(line, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help="rates, hanging, queued; all of them without it")
    parser.add_argument("--rates", default="500,5000")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--pushes", type=int, default=5, help="a second, each for 100 subscribers")
    parser.add_argument("--pairs", type=int, default=20, help="of spells without and with subscribers that hang")
    parser.add_argument("--queued", type=int, default=1_000_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        redis = None
        if shutil.which("redis-server"):
            redis = Redis(Path(directory))
        else:
            print("redis-server is missing: apt-get install redis-server", file=sys.stderr)
        bus = Bus(Path(directory))
        try:
            run(report(bus, redis, options))
        finally:
            bus.network.close()
            if redis is not None:
                redis.close()
    return 0
