"""Routers forked from one process that has imported what they need: imports are most of the CPU of a start.

`Forks` is the supervisor's side, `serve` that process's. On the socket between them go JSON documents: the arguments of
a router with the descriptor for its output, answered with its pid, or why there is none; a signal for it; and its exit
code when it has ended. Only the process that can still wait for a router sends it signals, so none reaches another that
got its pid.

A router dies with the process that it was forked from, and that one with the supervisor (`onceway.host.parent`).
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import gc
import json
import os
import select
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from onceway.base import waits
from onceway.base.loop import STOP_SIGNALS
from onceway.host.parent import own_command
from router.json_text import write_json

_MOST: Final = 1 << 16  # bytes of a document


class Fork:
    """What a supervisor needs of `asyncio.subprocess.Process`, of a forked process."""

    def __init__(self, forks: Forks) -> None:
        loop = asyncio.get_running_loop()
        self.pid = 0
        self.stdout = asyncio.StreamReader()
        self.started: asyncio.Future[None] = waits.FORK(loop.create_future())
        self.ended: asyncio.Future[int] = waits.CHILD(loop.create_future())
        self._forks = forks

    @property
    def returncode(self) -> int | None:
        return self.ended.result() if self.ended.done() else None

    async def wait(self) -> int:
        return await asyncio.shield(self.ended)

    def send_signal(self, number: signal.Signals) -> None:
        self._forks.tell({"pid": self.pid, "signal": number})


class Forks:
    """`await start(...)` for each process, `await stop()` at the end."""

    def __init__(self, command: Sequence[str]) -> None:
        """command: of a process that calls `serve` with the descriptor whose number is appended."""
        self._command = command
        self._lock = waits.FORK(asyncio.Lock())  # one is started at a time
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._starting: deque[Fork] = deque()  # the process answers in order
        self._running: dict[int, Fork] = {}

    async def start(self, arguments: Sequence[str]) -> Fork:
        """OSError if no process can be made."""
        async with self._lock:
            if self._socket is None:
                await self._begin()
            read, write = os.pipe()
            fork = Fork(self)
            self._starting.append(fork)
            self.tell({"arguments": list(arguments)}, write)
            os.close(write)
            pipe = os.fdopen(read, "rb", 0)
            loop = asyncio.get_running_loop()
            await waits.SPAWN(loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(fork.stdout), pipe))
            try:
                async with asyncio.timeout(waits.FORK.s):
                    await fork.started
            except TimeoutError:
                text = f"the process that forks routers has not answered for {waits.FORK.s:g} s"
                raise OSError(errno.ETIMEDOUT, text) from None
            return fork

    async def stop(self) -> None:
        """Ends the process, and with it all that still run."""
        self._over()
        if self._process is None:
            return
        try:
            async with asyncio.timeout(waits.FORKS_END.s):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await waits.KILLED(self._process.wait())

    def tell(self, document: dict[str, Any], *descriptors: int) -> None:
        if self._socket is not None:
            try:
                socket.send_fds(self._socket, [write_json(document).encode()], descriptors)
            except BrokenPipeError:
                pass  # it has ended, which is read soon, and the routers with it

    async def _begin(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = await waits.SPAWN(asyncio.create_subprocess_exec)(
                *self._command,
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._readable)

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            data = waits.SPAWN(self._socket).recv(_MOST)  # it is readable
        except ConnectionResetError:
            data = b""
        if not data:
            self._over()
            return
        document = json.loads(data)
        if "code" in document:
            self._running.pop(document["pid"]).ended.set_result(document["code"])
        elif "error" in document:
            fork = self._starting.popleft()
            if not fork.started.done():
                fork.started.set_exception(OSError(document["error"], os.strerror(document["error"])))
        else:
            self._started(document["pid"])

    def _started(self, pid: int) -> None:
        fork = self._starting.popleft()
        fork.pid = pid
        self._running[pid] = fork
        if fork.started.done():  # nobody waits for it any more
            fork.send_signal(signal.SIGKILL)
        else:
            fork.started.set_result(None)

    def _over(self) -> None:
        """The process has ended, or will, and what was forked dies with it."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket = None
        while self._starting:
            assert self._process is not None
            self._started(self._process.pid)
        for fork in self._running.values():
            fork.ended.set_result(-signal.SIGKILL)
        self._running.clear()


def can_serve() -> bool:
    """Whether this system has what `serve` needs: Linux since 2019, where nothing forbids pidfd_open(2)."""
    if sys.platform != "linux":
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def serve(descriptor: int) -> list[str] | None:
    """Forks when asked to on this socket. Returns in each forked process, with its arguments; and here, with None, when
    the supervisor has gone."""
    for number in STOP_SIGNALS:  # the supervisor ends us, after its routers
        signal.signal(number, signal.SIG_IGN)
    gc.collect()
    gc.freeze()  # pages that no collection writes to stay shared
    own, pids = os.getpid(), dict[int, int]()  # of what runs, by a descriptor that is readable when it has ended
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    link = socket.socket(fileno=descriptor)
    while True:
        for ready, _ in waits.IDLE(poll).poll():
            if ready != descriptor:
                poll.unregister(ready)
                os.close(ready)
                pid, status = waits.KILLED(os.waitpid)(pids.pop(ready), 0)  # it has ended
                link.send(write_json({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())
                continue
            data, outputs, _, _ = socket.recv_fds(link, _MOST, 1)
            if not data:
                return None
            document = json.loads(data)
            if "signal" in document:
                if document["pid"] in pids.values():
                    os.kill(document["pid"], document["signal"])
                continue
            try:
                if not outputs:  # the kernel leaves out what this process has no room for
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                pid = os.fork()
            except OSError as error:
                for output in outputs:
                    os.close(output)
                link.send(write_json({"error": error.errno}).encode())
                continue
            (output,) = outputs
            if not pid:
                link.close()
                for other in pids:
                    os.close(other)
                _become(document["arguments"], output)
                return [*document["arguments"], "--parent", str(own)]
            os.close(output)
            ended = os.pidfd_open(pid)
            pids[ended] = pid
            poll.register(ended, select.POLLIN)
            link.send(write_json({"pid": pid}).encode())


def _become(arguments: list[str], output: int) -> None:
    """Makes this process one of its own: its session, signals and output, and what `ps` shows of it."""
    os.setsid()
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    # proc(5): arg_start and arg_end, where the kernel reads the command line; the supervisor's command left room.
    begin, end = map(int, Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:47])
    shown = b"\0".join(os.fsencode(each) for each in [*own_command(), *arguments])[: end - begin - 1]
    ctypes.memmove(begin, shown.ljust(end - begin, b"\0"), end - begin)
