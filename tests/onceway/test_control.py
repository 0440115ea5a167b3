"""The control sockets: who may connect, what is served there, and what becomes of the file."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from onceway.operate import control
from onceway.operate.control import ControlError, ControlSocket, NotRunning, call, socket_path
from onceway.topology import ConfigError


async def double(arguments: Mapping[str, Any]) -> Any:
    if "n" not in arguments:
        raise ControlError("say n", 400)
    return {"n": 2 * arguments["n"]}


def served(path: Path, ask: Callable[[ControlSocket], Awaitable[None]]) -> None:
    async def go() -> None:
        async def hello(request: web.Request) -> web.Response:
            return web.json_response({"hello": "world"})

        server = ControlSocket(path, [web.get("/hello", hello)])
        server.add_action("/double", double)
        await server.start()
        try:
            await ask(server)
        finally:
            await server.stop()

    asyncio.run(go())


def test_pages_and_actions_are_served_and_the_socket_goes_at_the_end(tmp_path: Path) -> None:
    path = socket_path(tmp_path / "state", "a")

    async def ask(server: ControlSocket) -> None:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
        assert await call(path, "GET", "/hello") == {"hello": "world"}
        assert await call(path, "POST", "/double", {"n": 4}) == {"n": 8}
        with pytest.raises(ControlError, match="say n") as refused:
            await call(path, "POST", "/double")
        assert refused.value.status == 400
        with pytest.raises(ControlError) as refused:
            await call(path, "GET", "/double", {})
        assert refused.value.status == 405

    served(path, ask)
    assert not path.exists()


def test_a_path_of_any_length_will_do(tmp_path: Path) -> None:
    path = socket_path(tmp_path / ("x" * 120) / ("y" * 120), "z" * 64)

    async def ask(server: ControlSocket) -> None:
        assert path.is_socket()
        assert await call(path, "POST", "/double", {"n": 1}) == {"n": 2}

    served(path, ask)
    assert not path.exists()


def test_what_a_dead_process_has_left_is_replaced(tmp_path: Path) -> None:
    path = socket_path(tmp_path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()

    async def ask(server: ControlSocket) -> None:
        assert await call(path, "GET", "/hello") == {"hello": "world"}

    served(path, ask)


def test_the_socket_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    path = socket_path(tmp_path)
    with socket.socket(socket.AF_UNIX) as living:
        living.bind(str(path))
        living.listen()
        with pytest.raises(ConfigError, match=f"process {os.getpid()} runs under this name and listens here; stop it"):
            asyncio.run(ControlSocket(path).start())
    path.unlink()
    path.write_text("kept")
    with pytest.raises(ConfigError, match="is no socket; remove it"):
        asyncio.run(ControlSocket(path).start())
    assert path.read_text() == "kept"


def test_a_socket_that_another_process_has_made_since_is_not_removed(tmp_path: Path) -> None:
    path = socket_path(tmp_path)

    async def ask(server: ControlSocket) -> None:
        path.unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(path))

    served(path, ask)
    assert path.is_socket()


def test_other_users_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = socket_path(tmp_path)
    monkeypatch.setattr(control, "_peer", lambda request: 4711)

    async def ask(server: ControlSocket) -> None:
        with pytest.raises(ControlError, match="user 4711 may not control this process") as refused:
            await call(path, "POST", "/double", {"n": 1})
        assert refused.value.status == 403

    served(path, ask)


def test_the_peer_is_whoever_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = socket_path(tmp_path)
    seen: list[int | None] = []
    peer = control._peer
    monkeypatch.setattr(control, "_peer", lambda request: seen.append(peer(request)) or seen[-1])

    async def ask(server: ControlSocket) -> None:
        await call(path, "GET", "/hello")

    served(path, ask)
    assert seen == [os.getuid()]


def test_nobody_there_and_no_answer_are_named(tmp_path: Path) -> None:
    async def nobody(path: Path) -> None:
        with pytest.raises(NotRunning, match="nobody listens there; is it running on this host"):
            await call(path, "GET", "/hello")

    asyncio.run(nobody(tmp_path / "none" / "a.sock"))
    asyncio.run(nobody(tmp_path / "a.sock"))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "b.sock"))
        silent.listen()

        async def wait() -> None:
            with pytest.raises(NotRunning, match=r"no answer within 0\.05 s"):
                await call(tmp_path / "b.sock", "GET", "/hello", timeout_s=0.05)

        asyncio.run(wait())
