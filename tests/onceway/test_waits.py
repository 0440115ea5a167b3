"""Every wait of the product belongs to a row of `onceway.base.waits`, which says what ends it."""

from __future__ import annotations

import ast
import asyncio
import fcntl
import inspect
import os
import re
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiohttp.test_utils import make_mocked_request

from amqp10.sasl import Failure
from onceway.access.tokens import Tokens
from onceway.base import locks, waits
from onceway.console import Console, View
from onceway.host.forks import Forks
from onceway.operate import waits as core
from onceway.operate.control import ControlSocket, socket_path
from onceway.topology.reference import by_title
from onceway.topology.sasl import TokenRules
from router.core import messages
from scripts.tables import METRICS
from scripts.waits import ROOT, Module, Walk, by_row, walk, without_a_row

CODE = [path for at in ("router", "interrouter", "onceway", "edges") for path in (ROOT / at).rglob("*.py")]


def test_each_wait_has_a_row() -> None:
    assert [*without_a_row(walk().found)] == []


def test_each_row_is_waited_for_somewhere() -> None:
    assert [name for name, where in by_row().items() if not where] == []


@pytest.mark.parametrize("row", [*waits.TABLE, *core.TABLE], ids=lambda row: row.name)
def test_a_row_says_what_ends_it_and_by_which_key(row: waits.Wait) -> None:
    assert row.what
    assert row.bound
    assert row.told or row.bound == waits.NOTHING or "caller" in str(row.bound) or row is waits.MUTEX
    settings = {each.key for section in by_title().values() for each in section.rows}
    options = "".join(path.read_text() for at in ("onceway/cli", "edges") for path in (ROOT / at).rglob("*.py"))
    for key in row.keys:
        name = key.rpartition(" ")[2]
        assert name in settings or f'"{name}"' in options, key


def test_metrics_and_events_that_tell_of_waits_exist() -> None:
    known = {metric.name for table in METRICS.values() for metric in table}
    events = set(re.findall(r'"([a-z]+_[a-z_]+)"', "".join(path.read_text() for path in CODE)))
    for row in (*waits.TABLE, *core.TABLE):
        for name in re.findall(r"`([a-z]+_[a-z_]+)\b", row.told) + re.findall(r"\bonceway_[a-z_]+", row.told):
            assert name in (known if name.startswith("onceway_") else events), f"{row.name}: {name}"


def test_each_timer_of_the_cores_has_a_row_or_is_no_wait() -> None:
    constants = {
        f"{path.relative_to(ROOT)} {name}"
        for package in ("amqp10", "mqtt", "router", "interrouter")
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"^_?([A-Z_]+_S)\b.*=", path.read_text(), re.MULTILINE)
    }
    assert constants == core.TIMERS.keys() | core.PACES
    assert not core.TIMERS.keys() & core.PACES
    assert set(core.TIMERS.values()) | set(core.QUESTIONS.values()) <= {*waits.TABLE, *core.TABLE}
    timers = {"heartbeat", "dead_after", "discovery", "proof_after", "subscription_timeout", "publisher_timeout"}
    assert timers <= {key for row in core.TABLE for key in row.keys}


def test_each_question_to_another_router_has_a_row() -> None:
    found = inspect.getmembers(messages, inspect.isclass)
    answers = [re.match(r"Answers an? ([A-Z]+)\.|Answers an? ([A-Z]+)", kind.__doc__ or "") for _, kind in found]
    asked = {match[1] or match[2] for match in answers if match}
    asked |= {name.upper() for name, _ in found for end in ("Ack", "ed") if hasattr(messages, name + end)}
    assert asked == {name.upper() for name in core.QUESTIONS}


def found(text: str) -> list[tuple[str, frozenset[str]]]:
    place = Walk([Module("some.py", ast.parse(text))]).found
    return [(each.text, each.rows) for each in place]


HEAD = "import asyncio, socket, subprocess, threading, fcntl\nfrom onceway.base import waits\n"
WAITS = {
    "a queue": "queue = asyncio.Queue()\nasync def f():\n    await queue.get()",
    "an event": "class A:\n    def __init__(self): self.e = asyncio.Event()\n    async def f(self): await self.e.wait()",
    "a future": "async def f(loop):\n    done = loop.create_future()",
    "what a library does": "async def f(stream):\n    await stream.readline()",
    "a lock": "lock = asyncio.Lock()\nasync def f():\n    async with lock: pass",
    "a lock of threads": "lock = threading.Lock()\ndef f():\n    with lock: pass",
    "a bound in figures": "async def f():\n    async with asyncio.timeout(5.0): await g()\nasync def g(): pass",
    "a socket": "def f():\n    one = socket.socket()\n    one.connect(('a', 1))",
    "a process": "def f():\n    subprocess.run(['a'])",
    "a thread": "one = threading.Thread()\ndef f():\n    one.join()",
    "a file's lock": "def f(n):\n    fcntl.flock(n, fcntl.LOCK_EX)",
    "one of several": "async def f(x):\n    await asyncio.gather(x.read(), g())\nasync def g(): pass",
    "what a caller wants": "@waits.CALLER\nasync def f(x): pass\nasync def g():\n    await f(1)",
}  # fmt: skip


@pytest.mark.parametrize("text", WAITS.values(), ids=WAITS)
def test_the_program_finds(text: str) -> None:
    assert [rows for _, rows in found(HEAD + text)] == [frozenset()]


OTHERS = {
    "our own coroutine": "async def f(): pass\nasync def g():\n    await f()",
    "a pause": "async def f():\n    await asyncio.sleep(1.0)",
    "an attempt": "def f(n):\n    fcntl.flock(n, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "words": "def f(words):\n    return ', '.join(words)",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_it_is_no_wait(text: str) -> None:
    assert found(HEAD + text) == []


NAMED = {
    "in the expression": "async def f(x):\n    await waits.DISK(x.read())",
    "around it": "async def f(x):\n    async with asyncio.timeout(waits.DISK.s): await x.read()",
    "where it was made": "event = waits.DISK(asyncio.Event())\nasync def f():\n    await event.wait()",
    "at the function": "@waits.DISK\nasync def f(x):\n    await x.read()",
}


@pytest.mark.parametrize("text", NAMED.values(), ids=NAMED)
def test_a_row_is_named(text: str) -> None:
    rows = [rows for _, rows in found(HEAD + text)]
    assert rows
    assert all(each == {"DISK"} for each in rows)


def test_a_row_around_a_function_is_not_that_of_another_one_within_it() -> None:
    text = "@waits.DISK\nasync def f(x):\n    async def g():\n        await x.read()"
    assert [rows for _, rows in found(HEAD + text)] == [frozenset()]


def test_a_lock_that_another_process_has_is_waited_for_so_long_and_its_owner_is_named(tmp_path: Path) -> None:
    ours, theirs = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    fcntl.flock(theirs, fcntl.LOCK_EX)
    row = replace(waits.USERS_LOCK, bound=0.0)
    with pytest.raises(TimeoutError, match=re.escape(f"{tmp_path}: process {os.getpid()} has had the lock")):
        locks.take(ours, row, tmp_path)
    os.close(theirs)
    locks.take(ours, row, tmp_path)
    os.close(ours)


# --- waits that had no bound


def shorter(monkeypatch: pytest.MonkeyPatch, name: str, seconds: float) -> None:
    row = replace(getattr(waits, name), bound=seconds)
    object.__setattr__(row, "name", name.lower())
    monkeypatch.setattr(waits, name, row)


HANGS = "import signal, sys; sys.stdin.close(); [signal.sigwait([signal.SIGUSR1]) for _ in range(9)]"


async def test_a_process_that_does_not_fork_is_not_waited_for_and_is_killed_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FORK", "FORKS_END"):
        shorter(monkeypatch, name, 0.05)
    forks = Forks([sys.executable, "-c", HANGS])
    for _ in range(2):  # the second is not held up by the first
        with pytest.raises(OSError, match=r"has not answered for 0\.05 s"):
            await forks.start([])
    await forks.stop()


def test_keys_of_tokens_that_come_by_drops_are_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shorter(monkeypatch, "TOKEN_KEYS", 0.3)
    before = waits.ENDED["token_keys"]
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            accepted, _ = listener.accept()
            with accepted, suppress(OSError):
                accepted.sendall(b"HTTP/1.1 200 OK\r\n")
                while not over.wait(0.02):
                    accepted.sendall(b"X-Drop: 1\r\n"[:1])

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/keys"
        tokens = Tokens(TokenRules(url, "i", "a"), tmp_path, "t")
        tokens.fetch()
        over.set()
        thread.join()
    failure = tokens.verify("x")
    assert isinstance(failure, Failure)
    assert failure.reason.endswith(f"; {url}: no answer within 0.3 s")
    assert waits.ENDED["token_keys"] == before + 1


async def test_a_request_whose_rest_does_not_come_is_answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shorter(monkeypatch, "HTTP_BODY", 0.05)
    path = socket_path(tmp_path, "a")
    server = ControlSocket(path, [])
    server.add_action("/act", lambda arguments: pytest.fail(f"{arguments}"))
    await server.start()
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"POST /act HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
    assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
    writer.close()
    await server.stop()


async def test_a_console_that_is_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    shorter(monkeypatch, "HTTP_ANSWER", 0.05)

    async def view() -> Any:
        return View("n", "", [], {})

    async def taken(_: bytes) -> None:
        await asyncio.Event().wait()

    writer = Mock(write=taken, write_headers=AsyncMock(), length=0)
    transport = Mock(get_extra_info=lambda *_: None)
    request = make_mocked_request("GET", "/console/events", writer=writer, transport=transport)
    console = Console(view, AsyncMock(), None)
    await console._events(request)
    transport.abort.assert_called_once_with()
    assert console._streams == 0
