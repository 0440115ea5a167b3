"""A store that another process keeps: `StoreService` answers for it on WebSockets, `RemoteStore` is a `Store` there.

A message is a JSON array of requests [number, method, arguments] or of answers [number, kind, value]; octets travel as
Latin-1 text. What was asked on a connection that is lost is asked again on the next one. Commits are done once all the
same: each has a number, which the commit writes into one of RING keys of its client, so that also a process that has
just started knows which ones were done.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Any, Final

import aiohttp
from aiohttp import web

from edges.store import Batch, Bounds, Committed, Conflict, Record, Retention, Store, StoreError, StoreFull
from onceway.base import waits
from onceway.base.logs import logger
from onceway.client.driver import why_failed
from router.json_text import write_json

DONE: Final = "remote/"  # keys with the numbers of commits that were done: DONE client / life / number modulo RING
RING: Final = 64  # commits of a client that may be without an answer
PAUSES_S: Final = (0.05, 0.1, 0.2, 0.5)
REFUSALS: Final = {
    400: "that process has another version",
    401: "the key is refused; processes that share a store need the same",
    404: "that process does not share a store",
}
FORMAT: Final = "1"


class _Life:
    """What a service knows of one life of a client."""

    def __init__(self, done: Iterable[int]) -> None:
        self.done = set(done)  # commits, before this service was started
        self.last = max(self.done, default=0)
        self.commits: dict[int, asyncio.Future[Committed]] = {}


class StoreService:
    """Answers for a store of this process; `serve` is the handler of an aiohttp route."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lives: dict[str, _Life] = {}
        self._sockets: set[web.WebSocketResponse] = set()
        self._closed = False

    async def serve(self, request: web.Request) -> web.StreamResponse:
        client, life = request.query.get("client", ""), request.query.get("life", "")
        if request.query.get("format") != FORMAT or not client or not life:
            raise web.HTTPBadRequest(text=f"format {FORMAT}, client and life are needed\n")
        prefix = f"{DONE}{client}/{life}/"
        known = self._lives.get(prefix) or await self._recall(f"{DONE}{client}/", prefix)
        socket = web.WebSocketResponse(heartbeat=waits.STORE_HEARTBEAT.s, max_msg_size=0)
        await waits.STORE_HEARTBEAT(socket.prepare(request))
        self._sockets.add(socket)
        if self._closed:
            await _leave(socket)
        answers: asyncio.Queue[list[Any] | None] = waits.IDLE(asyncio.Queue())
        tasks = {asyncio.create_task(_send(socket, answers))}
        try:
            async for message in waits.STORE_HEARTBEAT(socket):
                if message.type is not aiohttp.WSMsgType.TEXT:
                    break  # the connection is lost
                for number, method, arguments in json.loads(message.data):
                    work: asyncio.Future[Any]
                    if method == "commit":
                        work = self._commit(known, prefix, *arguments)
                    else:
                        work = asyncio.ensure_future(self._ask(method, arguments))
                        tasks.add(work)
                        work.add_done_callback(tasks.discard)
                    work.add_done_callback(partial(_answer, answers, number))
        finally:
            self._sockets.discard(socket)
            for task in list(tasks):
                task.cancel()
        return socket

    async def close(self) -> None:
        """Ends the connections: the clients ask again when the store is served again."""
        self._closed = True
        closing = [asyncio.create_task(_leave(each)) for each in self._sockets]
        if closing:
            _, late = await asyncio.wait(closing, timeout=waits.STORE_GOODBYE.s)
            for task in late:
                task.cancel()

    async def _recall(self, client: str, prefix: str) -> _Life:
        """The keys of earlier lives of the client go."""
        rows = await self._store.scan(client)
        batch = Batch()
        for key, _ in rows:
            if not key.startswith(prefix):
                batch.delete(key)
        if batch.values:
            await self._store.commit(batch)
        return self._lives.setdefault(prefix, _Life(int(value) for key, value in rows if key.startswith(prefix)))

    def _commit(self, life: _Life, prefix: str, number: int, *packed: Any) -> asyncio.Future[Committed]:
        batch = _unpacked(*packed)
        if (found := life.commits.get(number)) is not None:
            return found
        answer: asyncio.Future[Committed]
        if number <= life.last:
            # Asked before this process was started: it was done, or refused and a later one was done.
            answer = waits.STORE(asyncio.get_running_loop().create_future())
            if number in life.done:
                answer.set_result(Committed({}, {}))
            elif batch.expected:
                answer.set_exception(Conflict(next(iter(batch.expected))))
            else:
                answer.set_exception(StoreFull("the disk was full"))
        else:
            batch.put(f"{prefix}{number % RING}", b"%d" % number)
            answer = asyncio.ensure_future(self._store.commit(batch))
        life.commits[number] = answer
        life.commits.pop(number - RING, None)
        return answer

    async def _ask(self, method: str, arguments: list[Any]) -> Any:
        store = self._store
        match method:
            case "read":
                stream, first, records, octets = arguments
                found = await store.read(stream, first, records=records, octets=octets)
                return [(position, time_us, payload.decode("latin-1")) for position, time_us, payload in found]
            case "get":
                value = await store.get(*arguments)
                return None if value is None else value.decode("latin-1")
            case "scan":
                rows = await store.scan(*arguments)
                return [(key, value.decode("latin-1")) for key, value in rows if not key.startswith(DONE)]
            case "surplus":
                stream, retention = arguments
                return await store.surplus(stream, Retention(*retention))
            case "bounds" | "position_at" | "grown" | "streams" | "used":
                return await waits.STORE(getattr(store, method)(*arguments))
        raise AssertionError(method)


async def _leave(socket: web.WebSocketResponse) -> None:
    await waits.STORE_HEARTBEAT(socket.close(code=aiohttp.WSCloseCode.GOING_AWAY))


async def _send(socket: web.WebSocketResponse, answers: asyncio.Queue[list[Any] | None]) -> None:
    while True:
        batch = [await waits.IDLE(answers.get())]
        while not answers.empty():
            batch.append(answers.get_nowait())
        if None in batch:
            await _leave(socket)
            return
        try:
            await waits.STORE_HEARTBEAT(socket.send_str(write_json(batch, ascii_only=False)))
        except ConnectionError:
            return  # the reader ends, too


def _answer(answers: asyncio.Queue[list[Any] | None], number: int, work: asyncio.Future[Any]) -> None:
    error = None if work.cancelled() else work.exception()
    match error:
        case None if work.cancelled():
            pass
        case None:
            value = work.result()
            if isinstance(value, Committed):
                value = [{name: [span.start, span.stop] for name, span in value.positions.items()}, value.removed]
            answers.put_nowait([number, "done", value])
        case Conflict():
            answers.put_nowait([number, "conflict", error.key])
        case StoreFull():
            answers.put_nowait([number, "full", str(error)])
        case StoreError():  # the store stops; who asks again finds it when it is back
            answers.put_nowait(None)
        case _:
            raise error


class RemoteStore:
    """A `Store` that the process at this URL serves. What is asked while that process is away waits for it.

    A commit that was done and whose answer was lost with that process says nothing of positions.

    Args:
        url: Of the service: `https://...`.
        key: The user name for HTTP Basic.
        client: The name of this process; no other client of the store has it at the same time.
        context: How the service's certificate is checked; None: as the system does.
    """

    def __init__(self, url: str, *, key: str = "", client: str = "", context: ssl.SSLContext | None = None) -> None:
        self.place = url
        self._key = key
        self._client = client or secrets.token_hex(8)
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._log = logger("store")
        self._failure: StoreError | None = None
        self._asked: dict[
            int, tuple[str, int, asyncio.Future[Any]]
        ] = {}  # without an answer: (request, commit, answer)
        self._unsent: deque[int] = deque()
        self._open: dict[int, int] = {}  # of these, the commits that were sent
        self._numbers = 0
        self._commits = 0
        self._changed = waits.IDLE(asyncio.Event())
        self._runner = asyncio.create_task(self._run())

    # --- the store's methods

    def commit(self, batch: Batch, *, with_next: bool = False) -> asyncio.Future[Committed]:
        self._commits += 1
        return self._ask("commit", self._commits, *_packed(batch), commit=self._commits)

    def hurry(self) -> None:
        """Nothing waits here."""

    async def read(self, stream: str, first: int, *, records: int = 1000, octets: int = 1 << 20) -> list[Record]:
        found = await self._ask("read", stream, first, records, octets)
        return [Record(position, time_us, payload.encode("latin-1")) for position, time_us, payload in found]

    async def bounds(self, stream: str) -> Bounds:
        return Bounds(*await self._ask("bounds", stream))

    async def position_at(self, stream: str, time_us: int) -> int:
        return int(await self._ask("position_at", stream, time_us))

    async def surplus(self, stream: str, retention: Retention) -> int:
        return int(await self._ask("surplus", stream, retention))

    async def grown(self, stream: str, position: int) -> None:
        await self._ask("grown", stream, position)

    async def get(self, key: str) -> bytes | None:
        value = await self._ask("get", key)
        return None if value is None else value.encode("latin-1")

    async def scan(self, prefix: str) -> list[tuple[str, bytes]]:
        return [(key, value.encode("latin-1")) for key, value in await self._ask("scan", prefix)]

    async def streams(self, prefix: str = "") -> list[str]:
        return list(await self._ask("streams", prefix))

    async def used(self) -> int:
        return int(await self._ask("used"))

    def free(self) -> None:
        return None

    async def close(self) -> None:
        """What has no answer after STORE_GOODBYE may or may not be done."""
        commits = [answer for _, commit, answer in self._asked.values() if commit]
        if commits:
            await asyncio.wait(commits, timeout=waits.STORE_GOODBYE.s)
        self._runner.cancel()
        await asyncio.gather(self._runner, return_exceptions=True)
        self._fail(StoreError(f"{self.place}: the store is closed"))

    # --- the connection

    def _ask(self, method: str, *arguments: Any, commit: int = 0) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = waits.STORE_ANSWER(self._loop.create_future())
        if self._failure is not None:
            answer.set_exception(self._failure)
            return answer
        self._numbers += 1
        request = write_json([self._numbers, method, arguments], ascii_only=False)
        self._asked[self._numbers] = request, commit, answer
        self._unsent.append(self._numbers)
        self._changed.set()
        return answer

    async def _run(self) -> None:
        params = {"format": FORMAT, "client": self._client, "life": secrets.token_hex(8)}
        user = b64encode(f"{self._key}:".encode()).decode()
        pauses = chain(PAUSES_S, repeat(PAUSES_S[-1]))
        away = ""  # why, as it was said last
        within = aiohttp.ClientTimeout(total=waits.STORE_CONNECT.s)
        headers = {"Authorization": f"Basic {user}"}
        async with waits.STORE_CONNECT(aiohttp.ClientSession(headers=headers, timeout=within)) as session:
            while self._failure is None:
                try:
                    beat_s, tls = waits.STORE_HEARTBEAT.s, self._context or True
                    async with waits.STORE_CONNECT(session.ws_connect)(
                        self.place, params=params, heartbeat=beat_s, max_msg_size=0, ssl=tls
                    ) as socket:
                        pauses = chain(PAUSES_S, repeat(PAUSES_S[-1]))
                        if away:
                            self._log.info("store_back", "{place}: the store answers", place=self.place)
                        away = ""
                        await self._speak(socket)
                        why = "the connection was lost"
                except aiohttp.WSServerHandshakeError as error:
                    if error.status in REFUSALS:
                        self._fail(StoreError(f"{self.place}: {REFUSALS[error.status]}"))
                    why = f"HTTP {error.status}"
                except aiohttp.ClientConnectorError as error:
                    why = why_failed(error.os_error)
                except TimeoutError:
                    why = f"no answer within {waits.STORE_CONNECT.s:g} s"
                except (aiohttp.ClientError, OSError) as error:
                    why = str(error)
                if why != away and self._failure is None:
                    self._log.warning(
                        "store_away", "{place}: waits for the store: {reason}", place=self.place, reason=why
                    )
                    away = why
                await asyncio.sleep(next(pauses))

    async def _speak(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        """Asks on this connection, as long as it holds."""
        self._open.clear()
        for number, (_, commit, answer) in list(self._asked.items()):
            if answer.cancelled() and not commit:
                del self._asked[number]  # nobody waits for it
        self._unsent = deque(self._asked)
        self._changed.set()
        writer = asyncio.create_task(self._write(socket))
        try:
            async for message in waits.STORE_HEARTBEAT(socket):
                if message.type is not aiohttp.WSMsgType.TEXT:
                    break  # the connection is lost
                for number, kind, value in json.loads(message.data):
                    self._answered(number, kind, value)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def _write(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            requests = []
            while self._unsent:
                number = self._unsent[0]
                request, commit, _ = self._asked[number]
                if commit:
                    if self._open and commit - next(iter(self._open.values())) >= RING:
                        break
                    self._open[number] = commit
                self._unsent.popleft()
                requests.append(request)
            if requests:
                await waits.STORE_HEARTBEAT(socket.send_str(f"[{','.join(requests)}]"))
                continue
            self._changed.clear()
            await self._changed.wait()

    def _answered(self, number: int, kind: str, value: Any) -> None:
        found = self._asked.pop(number, None)
        if found is None:
            return
        _, commit, answer = found
        if self._open.pop(number, None) is not None:
            self._changed.set()
        if answer.done():  # cancelled
            return
        if kind == "conflict":
            answer.set_exception(Conflict(value))
        elif kind == "full":
            answer.set_exception(StoreFull(value))
        elif commit:
            positions, removed = value
            answer.set_result(Committed({name: range(*span) for name, span in positions.items()}, removed))
        else:
            answer.set_result(value)

    def _fail(self, error: StoreError) -> None:
        self._failure = error
        asked, self._asked = self._asked, {}
        self._unsent.clear()
        for _, _, answer in asked.values():
            if not answer.done():
                answer.set_exception(error)


# --- batches as JSON


def _packed(batch: Batch) -> tuple[Any, ...]:
    return (
        _values(batch.expected, lambda value: value.decode("latin-1")),
        _values(batch.values, lambda value: value.decode("latin-1")),
        {stream: [payload.decode("latin-1") for payload in payloads] for stream, payloads in batch.appended.items()},
        batch.trimmed,
        batch.kept,
    )


def _unpacked(expected: Any, values: Any, appended: Any, trimmed: Any, kept: Any) -> Batch:
    return Batch(
        _values(expected, lambda value: value.encode("latin-1")),
        _values(values, lambda value: value.encode("latin-1")),
        {stream: [payload.encode("latin-1") for payload in payloads] for stream, payloads in appended.items()},
        trimmed,
        {stream: Retention(*retention) for stream, retention in kept.items()},
    )


def _values(found: Mapping[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    return {key: None if value is None else convert(value) for key, value in found.items()}
