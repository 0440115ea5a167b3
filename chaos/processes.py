"""The clients of a run as processes, started again under their names with their journals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from chaos.network import GONE_WITHIN_S
from chaos.schedule import Publisher, Subscriber
from onceway.errors import UsageError

_HERE = Path(__file__).resolve().parent


class Client:
    """One publisher or subscriber.  `said` holds the words READY and DONE as they come."""

    def __init__(
        self, what: Publisher | Subscriber, directory: Path, urls: str, address: str, timeout_s: float
    ) -> None:
        self.what = what
        self.name = what.name
        self.publishes = isinstance(what, Publisher)
        self.said: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self.stopped = False
        self.starts = 0
        self.until: float | None = None  # when a publisher is over, once that is known
        self.abandoned = False  # killed for good
        self._directory = directory
        self._urls, self._address, self._timeout_s = urls, address, timeout_s
        self._log: IO[str] | None = None

    @property
    def ready(self) -> bool:
        return "READY" in self.said

    @property
    def done(self) -> bool:
        return "DONE" in self.said or self.abandoned

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_endless(self) -> bool:
        """A publisher that goes on until it is told that it is enough."""
        return isinstance(self.what, Publisher) and self.what.count is None and self.what.duration_s is None

    def start(self) -> None:
        self.starts += 1
        self.stopped = False
        self.said = []
        if self._log is None:
            self._log = (self._directory / f"client-{self.name}.log").open("a")
        command, environment = _node(self._options()) if self.what.client == "rhea" else _python(self._options())
        self.process = subprocess.Popen(
            [command[0], *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env={**os.environ, **environment},
        )
        threading.Thread(target=_listen, args=(self.process, self.said), daemon=True).start()

    def _options(self) -> dict[str, str | int | float | None]:
        what = self.what
        options: dict[str, str | int | float | None] = {
            "what": "publish" if self.publishes else "subscribe",
            "client": what.client,
            "urls": self._urls,
            "address": self._address,
            "name": self.name,
            "history": str(self._directory / f"client-{self.name}.jsonl"),
            "journal": str(self._directory / f"{self.name}.journal"),
            "settle": what.settle,
            "timeout": self._timeout_s,
        }
        if isinstance(what, Publisher):
            timing = {"duration": what.duration_s, "until": None} if self.until is None else {"until": self.until}
            return {**options, "rate": what.rate, "size": what.size, "count": what.count, **timing}
        return {**options, "credit": what.credit, "pause": what.pause_s}

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(GONE_WITHIN_S)

    def terminate(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        self.stopped = True

    def cont(self) -> None:
        if self.stopped and self.running:
            assert self.process is not None
            self.process.send_signal(signal.SIGCONT)
        self.stopped = False

    def close(self) -> None:
        if self.running:
            self.kill()
        if self._log is not None:
            self._log.close()


def _listen(process: subprocess.Popen[str], said: list[str]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            said.append(line.strip())


def _python(options: dict[str, str | int | float | None]) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "chaos.clients", str(options.pop("what")), "--parent", str(os.getpid())]
    for key, value in options.items():
        if value is not None:
            command += [f"--{key}", str(value)]
    return command, {}


def _node(options: dict[str, str | int | float | None]) -> tuple[list[str], dict[str, str]]:
    node, modules = shutil.which("node"), rhea_modules()
    if node is None or modules is None:
        raise UsageError("the schedule has a rhea client: it needs node, and rhea where NODE_PATH says (make test)")
    what = str(options.pop("what"))
    arguments = {"count": None, **options}
    command = [node, str(_HERE / "clients" / "rhea.js"), what, json.dumps(arguments)]
    setpriv = shutil.which("setpriv")  # the kernel ends it when we die
    return ([setpriv, "--pdeathsig", "KILL", *command] if setpriv else command), {"NODE_PATH": str(modules)}


def rhea_modules() -> Path | None:
    """The node_modules that rhea is in: NODE_PATH's, or what `make test` installed."""
    given = [Path(part) for part in os.environ.get("NODE_PATH", "").split(os.pathsep) if part]
    for folder in (*given, _HERE.parent / "tests" / "interop" / "node_modules"):
        if (folder / "rhea" / "package.json").exists():
            return folder
    return None


def check_clients(clients: Sequence[Publisher | Subscriber]) -> None:
    """UsageError naming what is not installed."""
    used = {one.client for one in clients}
    if "proton" in used:
        from importlib.util import find_spec

        if find_spec("proton") is None:
            raise UsageError("the schedule has a proton client: install python-qpid-proton")
    if "rhea" in used and (shutil.which("node") is None or rhea_modules() is None):
        raise UsageError("the schedule has a rhea client: it needs node, and rhea where NODE_PATH says (make test)")
