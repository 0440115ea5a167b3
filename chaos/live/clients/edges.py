"""Clients of edges, and of MQTT: a process is a client together with its edge, so that only routers die under it.

A publisher hands a message over and waits for what its edge promises: that all other edges, readers, members, or
subscribers have it. A subscriber receives until it is told to stop and nothing has come for `QUIET_S`: what routers
have delivered to its edge may still be on its way to the application. None of them survives its own death.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from chaos.judge.history import Writer
from chaos.live.clients.options import body, read_body, say, shown
from chaos.live.ports import free_port
from onceway.base.logs import Options, configure
from onceway.base.loop import run as run_loop
from onceway.host.parent import die_with

if TYPE_CHECKING:
    from edges.queue import Member
    from onceway.serve.guard import Guard

QUIET_S: Final = 2.0
LOOK_S: Final = 0.01
MEMBERS: Final = 3  # of a shared queue, in a process that dequeues: each has another router first
WITHIN_S: Final = 60.0
ROUTER: Final = "a"  # whose certificate edges show: it names this machine, too
PROFILE: Final = "clients"
_BUS_KEY: Final = "chaos"

Put = Callable[[int], Awaitable[Awaitable[None]]]
"""Hands a message over; what it returns is done when the message has arrived everywhere."""
Got = Callable[[bytes | str], None]


def run(args: SimpleNamespace, history: Writer) -> None:
    configure(Options())
    run_loop(publish(args, history) if args.what == "publish" else subscribe(args, history))


async def publish(args: SimpleNamespace, history: Writer) -> None:
    under_way: asyncio.Queue[tuple[int, Awaitable[None]] | None] = asyncio.Queue()

    async def collect() -> None:
        while (one := await under_way.get()) is not None:
            number, arrived = one
            await arrived
            history.outcome(args.name, number, "accepted")

    enough = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, enough.set)
    async with PUBLISHERS[args.client](args) as put:
        say("READY")
        collector = asyncio.create_task(collect())
        began, number = time.monotonic(), 0
        until = args.until or (began + args.duration if args.duration else None)
        while not enough.is_set() and (args.count is None or number < args.count):
            await asyncio.sleep(max(0.0, number / args.rate - (time.monotonic() - began)))
            if until is not None and time.monotonic() >= until:
                break
            history.send(args.name, number)
            under_way.put_nowait((number, await put(number)))
            number += 1
        under_way.put_nowait(None)
        await collector
        history.write("close", p=args.name)
    say("DONE")


async def subscribe(args: SimpleNamespace, history: Writer) -> None:
    last = time.monotonic()

    def got(data: bytes | str) -> None:
        nonlocal last
        last = time.monotonic()
        delivery = read_body(data.encode() if isinstance(data, str) else data)
        history.receive(args.name, delivery)
        history.accept(args.name, delivery)

    def ready() -> None:
        history.write("ready", s=args.name)
        say("READY")

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    receiving = asyncio.ensure_future(SUBSCRIBERS[args.client](args, got, ready))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
    while not receiving.done() and (left := last + QUIET_S - time.monotonic()) > 0:
        await asyncio.wait([receiving], timeout=left)
    if receiving.done():
        receiving.result()
        sys.exit("the subscriber has ended under its reader")
    history.write("close", s=args.name)
    receiving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await receiving


async def _until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 what it waits for has no event
        await asyncio.sleep(LOOK_S)


def _topology(args: SimpleNamespace) -> str:
    return str(Path(args.history).parent / "topology.yaml")


def _guard(args: SimpleNamespace) -> Guard | None:
    """Of an edge's listener: as a router's."""
    from onceway.base.logs import logger
    from onceway.serve.guard import Guard

    return Guard(ROUTER, logger("metadata"), _topology(args), lambda _: PROFILE) if args.ca else None


# -- subscriptions by metadata


@asynccontextmanager
async def _publish_metadata(args: SimpleNamespace) -> AsyncIterator[Put]:
    """A publisher whose metadata change with every tenth message. Its edge knows whether all edges have heard."""
    from edges.metadata.client import Client, Message
    from edges.metadata.serve import Edge

    edge = Edge(args.urls, args.address, args.name, port=0, guard=_guard(args), **shown(args))
    await edge.start()
    uuid, heard = str(uuid4()), -1
    try:
        at, tls = f"127.0.0.1:{edge.port}", shown(args)["tls"]
        async with Client(at, tls) as client, Client(at, tls) as own:

            async def listen() -> None:
                nonlocal heard
                async for event in own.watch(f'Publisher = "{args.name}"'):
                    if isinstance(event, Message):
                        heard = read_body(event.value)[1]

            async def put(number: int) -> Awaitable[None]:
                metadata = {"Publisher": args.name, "Number": number} if number % 10 == 0 else {}
                await client.publish(uuid, body(args.name, number, args.size), metadata)
                return _until(lambda: heard >= number and not edge.unheard)

            listening = asyncio.create_task(listen())
            yield put
            listening.cancel()
    finally:
        await edge.stop()


async def _watch_metadata(args: SimpleNamespace, got: Got, ready: Callable[[], None]) -> None:
    from edges.metadata.client import Change, Client
    from edges.metadata.serve import Edge

    edge = Edge(args.urls, args.address, args.name, port=0, guard=_guard(args), **shown(args))
    await edge.start()
    there: set[str] | None = None
    try:
        async with Client(f"127.0.0.1:{edge.port}", shown(args)["tls"]) as client:
            async for event in client.watch("has Publisher"):
                if isinstance(event, Change):
                    if there is None:
                        there = set()
                        ready()
                    there = (there | set(event.new)) - set(event.gone)
                else:
                    assert there is not None
                    assert event.uuid in there, "a message before the SubscribeDiff that names its publisher"
                    got(event.value)
    finally:
        await edge.stop()


# -- QoS caches


@asynccontextmanager
async def _write_samples(args: SimpleNamespace) -> AsyncIterator[Put]:
    from edges.caches import Writer as SampleWriter

    async with SampleWriter(args.urls, args.address, args.name, **shown(args)) as writer:

        async def put(number: int) -> Awaitable[None]:
            await writer.write(args.name, body(args.name, number, args.size))
            return _until(lambda: writer.everywhere > number)

        yield put


async def _take_samples(args: SimpleNamespace, got: Got, ready: Callable[[], None]) -> None:
    from edges.caches import Reader

    async with Reader(args.urls, args.address, args.name, depth=None, **shown(args)) as reader:
        ready()
        while True:
            await reader.wait()
            assert not reader.missed, "samples may have been missed"
            for sample in reader.take():
                got(sample.value)


# -- the shared queue


def _member(args: SimpleNamespace, name: str, turn: int = 0) -> Member:
    from edges.queue import Member

    urls = args.urls.split(",")
    turn %= len(urls)
    directory = Path(f"{args.journal}.queue")
    directory.mkdir(exist_ok=True)
    members = [*args.publishers, *(f"{each}-{number}" for each in args.subscribers for number in range(MEMBERS))]
    return Member(urls[turn:] + urls[:turn], args.address, name, members, directory=directory, **shown(args))


@asynccontextmanager
async def _enqueue(args: SimpleNamespace) -> AsyncIterator[Put]:
    async with _member(args, args.name) as member:

        async def put(number: int) -> Awaitable[None]:
            return asyncio.create_task(member.enqueue(body(args.name, number, args.size)))

        yield put


async def _dequeue(args: SimpleNamespace, got: Got, ready: Callable[[], None]) -> None:
    """Members that compete: each element is to be dequeued by one of them, once."""
    async with AsyncExitStack() as stack:
        members = [_member(args, f"{args.name}-{number}", number) for number in range(MEMBERS)]
        for member in members:
            await stack.enter_async_context(member)

        async def work(member: Member) -> None:
            while True:
                got(await member.sdequeue())

        await members[0].wait_for_view_size(MEMBERS)
        ready()
        async with asyncio.TaskGroup() as group:
            for member in members:
                group.create_task(work(member))


# -- a pipe, and the event bus, whose edges are processes


@asynccontextmanager
async def _process(args: SimpleNamespace, *words: str) -> AsyncIterator[None]:
    """`onceway WORDS`, with what we show to routers, which dies with us."""
    files = {"--ca": args.ca, "--certificate": args.certificate, "--password-file": args.password_file}
    words += tuple(word for name, file in files.items() if file is not None for word in (name, file))
    words += ("--user", args.name) if args.password_file is not None else ()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "onceway", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=sys.stderr,  # the client's log
        env={**os.environ, "ONCEWAY_BUS_ROOT_KEY": _BUS_KEY},
        preexec_fn=partial(die_with, os.getpid()),
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


async def _pull(args: SimpleNamespace, got: Got, ready: Callable[[], None]) -> None:
    """A store and a reader of it. Whoever publishes to the address pushes."""
    from edges.pipe import Reader

    at, data = f"127.0.0.1:{free_port()}", f"{args.journal}.store"
    scheme, secure = ("amqps", ("--topology", _topology(args), "--tls", PROFILE)) if args.ca else ("amqp", ())
    serve = ("pipe", "serve", args.address, "--url", args.urls, "--data", data, "--listen", at, *secure)
    reading = Reader(args.address, stores=f"{scheme}://{at}", timeout_s=WITHIN_S, **shown(args))
    async with _process(args, *serve), reading as reader:
        ready()
        async for batch in reader.batches():
            for each in batch:
                got(each.body)


def _bus_file(args: SimpleNamespace) -> Path:
    return Path(args.history).parent / "bus.json"


@asynccontextmanager
async def _push_events(args: SimpleNamespace) -> AsyncIterator[Put]:
    import aiohttp

    bus = json.loads(_bus_file(args).read_text())
    auth = aiohttp.BasicAuth(bus["owner"], "")
    async with aiohttp.ClientSession(bus["url"], auth=auth) as session:

        async def put(number: int) -> Awaitable[None]:
            data = body(args.name, number, args.size).decode()
            event = {"type": "noop", "url": f"https://chaos/{number}", "data": data}
            async with session.post(f"/topics/{args.address}", json=event) as answer:
                assert answer.status == 204, await answer.text()
            return asyncio.sleep(0)

        yield put


async def _be_called_back(args: SimpleNamespace, got: Got, ready: Callable[[], None]) -> None:
    import aiohttp
    from aiohttp import web

    async def events(request: web.Request) -> web.Response:
        for event in await request.json():
            got(event["data"])
        return web.Response()

    here, at = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    application = web.Application()
    application.router.add_post("/events", events)
    runner = web.AppRunner(application)
    await runner.setup()
    host, port = here.split(":")
    await web.TCPSite(runner, host, int(port)).start()
    serve = (
        "bus",
        "serve",
        "--url",
        args.urls,
        "--data",
        f"{args.journal}.bus",
        "--listen",
        at,
        "--address",
        f"{args.address}/bus",
    )
    async with (
        _process(args, *serve, "--plain-http", "--http-callbacks", "--callback-allow", "localhost"),
        aiohttp.ClientSession(f"http://{at}") as bus,
    ):

        async def ask(method: str, path: str, user: str, **json_body: Any) -> Any:
            auth = aiohttp.BasicAuth(user, "")
            async with bus.request(method, path, auth=auth, json=json_body or None) as answer:
                assert answer.status < 300, await answer.text()
                return await answer.json() if answer.status == 200 else None

        async def works() -> bool:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with bus.get("/pulse", auth=aiohttp.BasicAuth(_BUS_KEY, "")) as answer:
                    return answer.status == 204
            return False

        async with asyncio.timeout(WITHIN_S):
            while not await works():  # noqa: ASYNC110 another process
                await asyncio.sleep(LOOK_S)
        for name in ("owner", "reader"):
            await ask("POST", "/api_tokens", _BUS_KEY, name=name)
        tokens = {each["name"]: each["token"] for each in await ask("GET", "/api_tokens", _BUS_KEY)}
        owner = tokens["owner"]
        await ask("POST", f"/topics/{args.address}", owner, type="create", url="https://chaos/first")
        wanted = {"topics": [args.address], "callback": f"http://{here}/events", "uuid": "chaos", "timeout": 50}
        await ask("POST", "/subscription", tokens["reader"], **wanted)
        _bus_file(args).write_text(json.dumps({"url": f"http://{at}", "owner": owner}))
        ready()
        await asyncio.Event().wait()


# -- MQTT: paho, QoS 2, with a session that goes on at the next router


class _Roamer:
    """Connects to the next router when its connection is lost. `up` and `subscribed` happen once."""

    def __init__(self, args: SimpleNamespace, got: Got | None = None) -> None:
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        self._loop = asyncio.get_running_loop()
        self._topic = f"{args.address}/chaos"
        self._ports = [int(url.rpartition(":")[2]) for url in args.urls.split(",")]
        self._got = got
        self._completed: dict[int, asyncio.Future[None]] = {}  # by packet identifier
        self._again = False  # the connection was lost
        self.up, self.subscribed = asyncio.Event(), asyncio.Event()
        client = paho.Client(CallbackAPIVersion.VERSION2, args.name, clean_session=False, protocol=paho.MQTTv311)
        client.max_inflight_messages_set(100)
        client.reconnect_delay_set(1, 1)
        client.on_connect = self._connected
        client.on_subscribe = self._subscribed
        client.on_message = self._came
        client.on_publish = self._published
        client.on_disconnect = self._lost
        if args.ca is not None:
            client.tls_set(args.ca, args.certificate, args.certificate)
        if args.password_file is not None:
            client.username_pw_set(args.name, Path(args.password_file).read_text().strip())
        client.connect("127.0.0.1", self._ports[0])
        client.loop_start()
        self.client = client

    async def publish(self, data: bytes) -> Awaitable[None]:
        """After a loss it waits until what was in flight is over: on a connection without CONNACK yet, paho would send
        the new message before it sends the older ones again."""
        while self._again:
            await self.up.wait()
            self._again = False
            await _until(lambda: self._again or not self._completed)
        completed = self._completed[self.client.publish(self._topic, data, 2).mid] = self._loop.create_future()
        return completed

    def subscribe(self) -> None:
        self.client.subscribe(self._topic, 2)

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    # In paho's thread:

    def _connected(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self.up.set)

    def _subscribed(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self.subscribed.set)

    def _published(self, _client: object, _data: object, mid: int, *_: object) -> None:
        self._loop.call_soon_threadsafe(lambda: self._completed.pop(mid).set_result(None))

    def _came(self, _client: object, _data: object, message: Any) -> None:
        assert self._got is not None
        self._loop.call_soon_threadsafe(self._got, message.payload)

    def _begin_again(self) -> None:
        self._again = True
        self.up.clear()

    def _lost(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._begin_again)
        self._ports.append(self._ports.pop(0))
        self.client.connect_async("127.0.0.1", self._ports[0])


@asynccontextmanager
async def _publish_mqtt(args: SimpleNamespace) -> AsyncIterator[Put]:
    roamer = _Roamer(args)
    await roamer.up.wait()

    async def put(number: int) -> Awaitable[None]:
        return await roamer.publish(body(args.name, number, args.size))

    yield put
    roamer.close()


async def _subscribe_mqtt(args: SimpleNamespace, got: Got, ready: Callable[[], None]) -> None:
    roamer = _Roamer(args, got)
    await roamer.up.wait()
    roamer.subscribe()
    await roamer.subscribed.wait()
    ready()
    try:
        await asyncio.Event().wait()
    finally:
        roamer.close()


PUBLISHERS: Final[dict[str, Callable[[SimpleNamespace], contextlib.AbstractAsyncContextManager[Put]]]] = {
    "metadata": _publish_metadata,
    "caches": _write_samples,
    "queue": _enqueue,
    "bus": _push_events,
    "mqtt": _publish_mqtt,
}
SUBSCRIBERS: Final[dict[str, Callable[[SimpleNamespace, Got, Callable[[], None]], Awaitable[None]]]] = {
    "metadata": _watch_metadata,
    "caches": _take_samples,
    "queue": _dequeue,
    "pipe": _pull,
    "bus": _be_called_back,
    "mqtt": _subscribe_mqtt,
}
