"""The processes of a run: routers and clients, started, killed, suspended and resumed, started again under their names.

Knows the command line and the admin listener of a router, and what clients say on stdout.  Nothing here waits: the run
looks at everything again and again (`Network.look`) and hears of changes through a callback.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Literal

from chaos.live.reloading import Reloading
from chaos.live.schedule import EDGES, Publisher, Subscriber
from onceway.demo.secure import Secure
from onceway.errors import UsageError

_HERE = Path(__file__).resolve().parent
SCRIPTS = {"rhea": "rhea.js", "rhea-exactly-once": "rhea_exactly_once.js"}
"""Clients that run in node."""
EXAMPLE = _HERE.parent.parent / "examples" / "rhea-exactly-once"
NO_RHEA = "the schedule has a rhea client: it needs node, and rhea where NODE_PATH says (make test)"
State = Literal["dead", "starting", "ready"]
ASK_WITHIN_S = 1.0
GONE_WITHIN_S = 60.0  # after SIGKILL


class Process:
    """A program that may be started again and again.  A process group of its own: Ctrl-C is the run's to hear."""

    process: subprocess.Popen[str] | None = None
    stopped = False  # by SIGSTOP
    starts = 0

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self, command: Sequence[str], environment: Mapping[str, str], **streams: Any) -> subprocess.Popen[str]:
        self.starts += 1
        self.stopped = False
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, text=True, start_new_session=True, env={**os.environ, **environment},
            **streams,
        )  # fmt: skip
        return self.process

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait(GONE_WITHIN_S)

    def terminate(self) -> None:
        self.signal(signal.SIGTERM)

    def stop(self) -> None:
        self.signal(signal.SIGSTOP)
        self.stopped = True

    def cont(self) -> None:
        if self.stopped and self.running:
            self.signal(signal.SIGCONT)
        self.stopped = False


@dataclass
class Router(Process):
    name: str
    host: str
    amqp: int
    interrouter: int
    admin: int
    mqtt: int = 0  # where the schedule has clients of it
    prefix: tuple[str, ...] = ()  # of its command line
    state: State = "dead"
    ending: bool = False  # by our SIGTERM

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
        self._logs: dict[str, IO[str]] = {}

    @cached_property
    def reloading(self) -> Reloading:
        return Reloading(self._topology, self._directory / "state")

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
            self._logs[name] = (self._directory / f"router-{name}.log").open("a")
        command = [sys.executable, "-m", "onceway", "router", str(self._topology), name, "--parent", str(os.getpid())]
        command += ["--state-dir", str(self._directory / "state")]
        command = [*router.prefix, *command, *(["--fresh"] if fresh else [])]
        router.launch(command, {}, stdout=self._logs[name], stderr=subprocess.STDOUT)
        router.state, router.ending = "starting", False
        self._changed(router, "started")

    def kill(self, name: str) -> None:
        self.routers[name].kill()
        self._gone(self.routers[name], "gone")

    def terminate(self, name: str) -> None:
        """SIGTERM; it is gone when `look` says so."""
        self.routers[name].ending = True
        self.routers[name].terminate()

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
                router.kill()
                router.process = None
        for log in self._logs.values():
            log.close()

    def _gone(self, router: Router, how: str) -> None:
        assert router.process is not None
        code = router.process.returncode
        router.process, router.state, router.stopped, router.ending = None, "dead", False, False
        self._changed(router, how if how == "gone" else f"died, exit code {code}")


class Client(Process):
    """One publisher or subscriber.  `said` holds the words READY and DONE as they come."""

    def __init__(
        self,
        what: Publisher | Subscriber,
        directory: Path,
        urls: str,
        address: str,
        timeout_s: float,
        secure: Secure | None = None,
    ) -> None:
        self.what = what
        self.name = what.name
        self.publishes = isinstance(what, Publisher)
        self.said: list[str] = []
        self.until: float | None = None  # when a publisher is over, once that is known
        self.abandoned = False  # killed for good
        self._directory = directory
        self._urls, self._address, self._timeout_s = urls, address, timeout_s
        self._secure = secure
        self.everybody: dict[str, list[str]] = {}  # publishers and subscribers of the schedule
        self._log: IO[str] | None = None

    @property
    def ready(self) -> bool:
        return "READY" in self.said

    @property
    def done(self) -> bool:
        return "DONE" in self.said or self.abandoned

    @property
    def is_endless(self) -> bool:
        """A publisher that publishes until it is told that it is enough."""
        return isinstance(self.what, Publisher) and self.what.count is None and self.what.duration_s is None

    def start(self) -> None:
        said = self.said = []
        if self._log is None:
            self._log = (self._directory / f"client-{self.name}.log").open("a")
        process = self.launch(*self._command(), stdout=subprocess.PIPE, stderr=self._log)

        def listen() -> None:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    said.append(line.strip())

        threading.Thread(target=listen, daemon=True).start()

    def _command(self) -> tuple[list[str], dict[str, str]]:
        """And what it adds to the environment."""
        what = self.what
        options: dict[str, Any] = {
            "client": what.client,
            "urls": self._urls,
            "address": self._address,
            "name": self.name,
            "history": str(self._directory / f"client-{self.name}.jsonl"),
            "journal": str(self._directory / f"{self.name}.journal"),
            "settle": what.settle,
            "timeout": self._timeout_s,
            **self.everybody,
        }
        if (secure := self._secure) is not None:
            options["ca"] = str(secure.ca)
            if (certificate := secure.certificate(self.name)) is not None:
                options |= {"certificate": str(certificate), "password_file": str(secure.password_file(self.name))}
        if isinstance(what, Publisher):
            timing = {"duration": what.duration_s} if self.until is None else {"until": self.until}
            options |= {"rate": what.rate, "size": what.size, "count": what.count, **timing}
        else:
            options |= {"credit": what.credit, "pause": what.pause_s}
        verb = "publish" if self.publishes else "subscribe"
        if what.client not in SCRIPTS:
            arguments = json.dumps({**options, "parent": os.getpid()})
            return [sys.executable, "-m", "chaos.live.clients", verb, arguments], {}
        node, modules = shutil.which("node"), rhea_modules()
        if node is None or modules is None:
            raise UsageError(NO_RHEA)
        setpriv = shutil.which("setpriv")  # the kernel ends it when we die
        prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        script = str(_HERE / "clients" / SCRIPTS[what.client])
        return [*prefix, node, script, verb, json.dumps({"count": None, **options})], {"NODE_PATH": str(modules)}

    def close(self) -> None:
        if self.running:
            self.kill()
        if self._log is not None:
            self._log.close()


def rhea_modules() -> Path | None:
    """The node_modules that rhea is in: NODE_PATH's, or what `make test` installed."""
    given = [Path(part) for part in os.environ.get("NODE_PATH", "").split(os.pathsep) if part]
    for folder in (*given, _HERE.parent.parent / "tests" / "interop" / "node_modules"):
        if (folder / "rhea" / "package.json").exists():
            return folder
    return None


def check_clients(clients: Sequence[Publisher | Subscriber]) -> None:
    """UsageError naming what is not installed."""
    used = {one.client for one in clients}
    if "proton" in used and find_spec("proton") is None:
        raise UsageError("the schedule has a proton client: install python-qpid-proton")
    if not used.isdisjoint(SCRIPTS) and (shutil.which("node") is None or rhea_modules() is None):
        raise UsageError(NO_RHEA)
    for client, library, extra in (("mqtt", "paho", "check"), ("metadata", "msgpack", "metadata")):
        if client in used and find_spec(library) is None:
            raise UsageError(f"the schedule has a client of {client}: pip install 'onceway[{extra}]'")
    if any(one.client in EDGES and one.settle != "second" for one in clients):
        raise UsageError("the schedule has a client of an edge with another settle than second, which it cannot do")
    if any(one.client == "rhea-exactly-once" and one.settle != "second" for one in clients):
        raise UsageError(
            "the schedule has a rhea-exactly-once client with another settle than second, which it cannot do"
        )
    if "rhea-exactly-once" in used and not EXAMPLE.is_dir():
        raise UsageError(f"the schedule has a rhea-exactly-once client, which is in a checkout only: no {EXAMPLE}")
