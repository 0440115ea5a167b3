"""The routers of a run as processes: started, killed, stopped, continued, asked how they are.

Knows the command line and the admin listener of a router.  Nothing here waits: the run looks at everything again and
again (`look`) and hears of changes through a callback.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

State = Literal["dead", "starting", "ready"]
ASK_WITHIN_S = 1.0
GONE_WITHIN_S = 60.0  # after SIGKILL


@dataclass(slots=True)
class Router:
    name: str
    host: str
    amqp: int
    interrouter: int
    admin: int
    prefix: tuple[str, ...] = ()  # of its command line
    state: State = "dead"
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False  # by SIGSTOP
    ending: bool = False  # by our SIGTERM
    starts: int = 0

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def get(self, path: str) -> tuple[int, bytes]:
        """(HTTP status, body) of the admin listener; (0, b"") while nobody answers."""
        url = f"http://{self.host}:{self.admin}{path}"
        try:
            with urllib.request.urlopen(url, timeout=ASK_WITHIN_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (urllib.error.URLError, OSError, http.client.HTTPException):
            return 0, b""

    def status(self) -> dict[str, Any] | None:
        code, body = self.get("/status")
        document: dict[str, Any] | None = json.loads(body) if code == 200 else None
        return document


Changed = Callable[[Router, str], None]
"""Hears "started", "ready", "gone" (at our hand) and "died" (by itself)."""


class Network:
    def __init__(self, directory: Path, topology: Path, routers: Sequence[Router], changed: Changed) -> None:
        self.routers = {router.name: router for router in routers}
        self._directory = directory
        self._topology = topology
        self._changed = changed
        self._logs: dict[str, IO[bytes]] = {}

    def __getitem__(self, name: str) -> Router:
        return self.routers[name]

    @property
    def running(self) -> list[Router]:
        return [router for router in self.routers.values() if router.process is not None and not router.ending]

    @property
    def all_ready(self) -> bool:
        return all(router.state == "ready" for router in self.routers.values())

    def start(self, name: str, *, fresh: bool) -> None:
        router = self.routers[name]
        assert router.process is None, f"router {name} runs already"
        if name not in self._logs:
            self._logs[name] = (self._directory / f"router-{name}.log").open("ab")
        command = [sys.executable, "-m", "onceway", "router", str(self._topology), name, "--parent", str(os.getpid())]
        router.process = subprocess.Popen(
            [*router.prefix, *command, *(["--fresh"] if fresh else [])],
            stdin=subprocess.DEVNULL,
            stdout=self._logs[name],
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours to hear
        )
        router.starts += 1
        router.state, router.stopped, router.ending = "starting", False, False
        self._changed(router, "started")

    def kill(self, name: str) -> None:
        router = self.routers[name]
        assert router.process is not None
        router.process.kill()
        router.process.wait(GONE_WITHIN_S)
        self._gone(router, "gone")

    def terminate(self, name: str) -> None:
        """SIGTERM; it is gone when `look` says so."""
        router = self.routers[name]
        assert router.process is not None
        router.ending = True
        router.process.terminate()

    def stop(self, name: str) -> None:
        os.kill(self.routers[name].pid, signal.SIGSTOP)
        self.routers[name].stopped = True

    def cont(self, name: str) -> None:
        router = self.routers[name]
        if router.process is not None and router.stopped:
            os.kill(router.pid, signal.SIGCONT)
            router.stopped = False

    def look(self) -> None:
        for router in self.routers.values():
            if router.process is None:
                continue
            if router.process.poll() is not None:
                self._gone(router, "gone" if router.ending else "died")
            elif router.state == "starting" and not router.stopped and router.get("/readyz")[0] == 200:
                router.state = "ready"
                self._changed(router, "ready")

    def leftovers(self) -> list[str]:
        """What is not over yet, by what the routers themselves count."""
        left = []
        for router in self.running:
            status = router.status()
            if status is None:
                left.append(f"router {router.name} does not answer")
                continue
            if router.state != "ready":  # its own word counts when `look` has heard it, and said so
                left.append(f"router {router.name} is not ready")
            left += [f"router {router.name}: {count} {what}" for what, count in status["records"].items() if count]
        return left

    def close(self) -> None:
        for router in self.routers.values():
            if router.process is not None:
                router.process.kill()
                router.process.wait(GONE_WITHIN_S)
                router.process = None
        for log in self._logs.values():
            log.close()

    def _gone(self, router: Router, how: str) -> None:
        assert router.process is not None
        code = router.process.returncode
        router.process, router.state, router.stopped, router.ending = None, "dead", False, False
        self._changed(router, how if how == "gone" else f"died, exit code {code}")
