"""Control sockets: HTTP over a unix socket in the state directory, for what only the operator of this host may ask.

Each router process listens on `<state directory>/<router>.sock`, the supervisor on `supervisor.sock`. A router serves
the pages of its admin listener there, too (`onceway.operate.pages`). Actions are POST requests with a JSON object for
arguments. They exist on these sockets only, never on TCP. Who may connect: the user that the process runs as, and root.

`exchange` and `call` are the client.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import aiohttp
from aiohttp import web

from onceway.access.accepting import application, body_of
from onceway.base import locks, waits
from onceway.base.private import make_directory
from onceway.errors import OncewayError
from onceway.serve.answers import json_response
from onceway.topology import ConfigError, Problem
from router.json_text import write_json

SUPERVISOR: Final = "supervisor"
CONTROL: Final = "control"  # the name by which its requests come
_PEER: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid

Action = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Takes the request's JSON object and returns what the answer says. Raises `ControlError` where it cannot be done."""


class ControlError(OncewayError):
    """An action was refused. `status` is the HTTP status: 400 for arguments, 404 for an unknown name, 409 where the
    state does not allow it, 403 for another user."""

    def __init__(self, message: str, status: int = 409) -> None:
        super().__init__(message)
        self.status = status


class NotRunning(ControlError):
    """Nobody answers on the socket."""


def socket_path(state: Path, name: str = SUPERVISOR) -> Path:
    """The control socket of router `name`, or of the supervisor, in the state directory of its network."""
    return state / f"{name}.sock"


class ControlSocket:
    """Serves `routes` and actions on one unix socket, mode 0600."""

    def __init__(self, path: Path, routes: Iterable[web.AbstractRouteDef] = ()) -> None:
        self.path = path
        self._routes = list(routes)
        self._runner: web.AppRunner | None = None
        self._inode = 0

    def add_action(self, path: str, action: Action) -> None:
        """POST `path`; call it before `start`."""

        async def handle(request: web.Request) -> web.Response:
            try:
                arguments = json.loads(await body_of(request) or b"{}")
            except ValueError as error:
                raise ControlError(f"the request's body is no JSON: {error}", 400) from error
            if not isinstance(arguments, dict):
                raise ControlError("the request's body is no JSON object", 400)
            return _answer(await action(arguments))

        self._routes.append(web.post(path, handle))

    async def start(self) -> None:
        """Listens. ConfigError if another process does already, OSError if the socket cannot be made."""
        pages = application(lambda: (CONTROL, self.path.stem), _checked)
        pages.add_routes(self._routes)
        listener, self._inode = _bind(self.path)
        self._runner = web.AppRunner(pages, access_log=None, shutdown_timeout=waits.HTTP_STOP.s)
        await waits.LISTEN(self._runner.setup())
        await web.SockSite(self._runner, listener).start()

    async def stop(self) -> None:
        """Removes the socket, unless another process has put its own in its place."""
        if self._runner is None:
            return
        try:
            if os.lstat(self.path).st_ino == self._inode:  # which nobody else can have while our listener is open
                os.unlink(self.path)
        except FileNotFoundError:
            pass
        await waits.HTTP_STOP(self._runner.cleanup())


@waits.CALLER
async def exchange(
    path: Path, method: str, page: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = waits.CONTROL.s
) -> tuple[int, bytes]:
    """One request to the control socket at `path`; returns HTTP status and body.

    Raises:
        NotRunning: if nobody listens there, or nobody has answered after `timeout_s` seconds.
        ControlError: if this user may not ask.
    """
    try:
        with _reachable(path) as reachable:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(reachable), timeout=aiohttp.ClientTimeout(total=timeout_s)
                ) as session,
                session.request(method, f"http://{CONTROL}{page}", json=arguments) as response,
            ):
                return response.status, await response.read()
    except TimeoutError as error:
        raise NotRunning(f"{path}: no answer within {timeout_s:g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise _failed(path, error) from error


@waits.CALLER
async def call(
    path: Path, method: str, page: str, arguments: Mapping[str, Any] | None = None, timeout_s: float = waits.CONTROL.s
) -> Any:
    """The same; returns what the answer's JSON says, and raises ControlError also if the answer is an error."""
    status, body = await exchange(path, method, page, arguments, timeout_s)
    try:
        answer = json.loads(body)
    except ValueError as error:
        raise ControlError(f"{path}: {page} is answered with HTTP {status}: {body[:200]!r}", status) from error
    if status >= 400:
        message = answer.get("error", answer) if isinstance(answer, dict) else answer
        raise ControlError(str(message), status)
    return answer


def _failed(path: Path, error: Exception) -> ControlError:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, PermissionError):
        return ControlError(f"{path}: {cause.strerror}; run this as the user of the routers, or as root", 403)
    if isinstance(cause, FileNotFoundError | NotADirectoryError | ConnectionRefusedError):
        return NotRunning(f"{path}: nobody listens there; is it running on this host, and as this user?")
    return NotRunning(f"{path}: {cause}")


def _answer(what: Any, status: int = 200) -> web.Response:
    return json_response(what, status=status, dumps=lambda document: write_json(document) + "\n")


@web.middleware
async def _checked(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> Any:
    """Refuses other users, and turns a ControlError into an answer."""
    uid = _peer(request)
    if uid is not None and uid not in (0, os.geteuid()):
        return _answer({"error": f"user {uid} may not control this process, only user {os.geteuid()} and root"}, 403)
    try:
        return await handler(request)
    except ControlError as error:
        return _answer({"error": str(error)}, error.status)


def _peer(request: web.Request) -> int | None:
    """The uid of whoever asks; None where the system cannot tell, and the socket's mode alone decides."""
    if not hasattr(socket, "SO_PEERCRED") or request.transport is None:
        return None
    credentials = request.transport.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size
    )
    return cast("int", _PEER.unpack(credentials)[1])


# --- the socket's file


def _bind(path: Path) -> tuple[socket.socket, int]:
    """A listening socket at `path`, and its inode. One that a dead process has left is replaced."""
    make_directory(path.parent)
    with _reachable(path, lock=True) as reachable:
        _remove_if_dead(path, reachable)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)  # the socket has mode 0600 from its first moment
        try:
            listener.bind(reachable)
            listener.listen()
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(mask)
        return listener, os.lstat(reachable).st_ino


def _remove_if_dead(path: Path, reachable: str) -> None:
    try:
        mode = os.lstat(reachable).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError([Problem(str(path), 0, "", "is no socket", "remove it, or choose another state directory")])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        trial.setblocking(False)  # a process that is stopped, or too busy to accept, is alive
        try:
            waits.LISTEN(trial).connect(reachable)  # it waits for nobody
        except ConnectionRefusedError:
            os.unlink(reachable)
            return
        except BlockingIOError:
            who = "another process"
        else:
            who = f"process {_listener_pid(trial)}" if hasattr(socket, "SO_PEERCRED") else "another process"
    what = f"{who} runs under this name and listens here"
    raise ConfigError([Problem(str(path), 0, "", what, "stop it first, or choose another state directory")])


def _listener_pid(connected: socket.socket) -> int:
    return cast("int", _PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0])


@contextmanager
def _reachable(path: Path, *, lock: bool = False) -> Iterator[str]:
    """The path for bind and connect while the context lasts. A unix socket's path has at most 107 bytes: on Linux a
    longer one is reached through a descriptor of its directory. With `lock` one process at a time is inside."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if lock:
            locks.take(descriptor, waits.CONTROL_LOCK, path.parent)
        if len(os.fsencode(path)) > 100 and os.path.isdir("/proc/self/fd"):
            yield f"/proc/self/fd/{descriptor}/{path.name}"
        else:
            yield str(path)
    finally:
        os.close(descriptor)
