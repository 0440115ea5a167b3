"""Routers as real processes on loopback, for the tests that need real sockets and real deaths.

A `LiveNetwork` writes a topology file, starts `onceway router FILE NAME` for each router, waits on its `/readyz`,
kills and restarts them by process id, and keeps their logs for a failed test to show.  It knows the command line and
the admin listener and nothing else of Onceway; used by tests/interop, tests/chaos and bench.

Ports lie below the kernel's ephemeral range, so that no client's outgoing connection can sit on the port of a router
that is about to be restarted.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import yaml

from chaos.live.ports import free_port

ROOT = Path(__file__).resolve().parent.parent
READY_S = 90.0  # five processes at once on a busy machine
ANSWER_S = 30.0  # of an admin listener: where nobody listens, that is known at once
GONE_S = 60.0  # after SIGKILL
# For tests that are not about routers that stand still: one that is not let run for seconds is not to be given up for
# dead, and what nobody is to wait for not with it.
PATIENT = {"dead_after": "30s"}


class NotReady(AssertionError):
    """A router, or a condition of a test, did not come within its bound; the message carries the logs' ends."""


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = 60.0, every_s: float = 0.02) -> Any:
    """The first true value of `condition()`, looked at again and again until the bound."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise NotReady(f"not within {timeout_s:g} s: {what}")
        time.sleep(every_s)


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The command, killed by the kernel when the process that started it dies (where util-linux has setpriv)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", *command] if setpriv else list(command)


@dataclass(slots=True)
class LiveRouter:
    name: str
    amqp_port: int
    interrouter_port: int
    admin_port: int
    log_path: Path
    process: subprocess.Popen[bytes] | None = None
    log: IO[bytes] | None = None
    starts: int = 0

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self.amqp_port}"

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.amqp_port}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def get(self, path: str, timeout_s: float = ANSWER_S) -> tuple[int, bytes]:
        """(HTTP status, body) of the admin listener; (0, b"") while nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}{path}", timeout=timeout_s) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except (urllib.error.URLError, OSError, http.client.HTTPException):
            return 0, b""

    def status(self, addresses: int = 1000) -> dict[str, Any]:
        """The document with the first so many addresses. A router that is busy makes it in small parts."""
        code, body = self.get(f"/status?limit={addresses}")
        if code != 200:
            raise NotReady(f"router {self.name}: /status answered {code} {body[:200]!r}")
        answer: dict[str, Any] = json.loads(body)
        return answer

    def leftovers(self) -> dict[str, int]:
        """Of what /status counts: the deliveries that are not over, by state; empty when all is settled."""
        return {state: count for state, count in self.status()["records"].items() if count}

    def directory_entries(self) -> dict[str, int]:
        """Publishers and subscriptions that this router knows, by address."""
        addresses = self.status()["addresses"]
        known = {name: len(one["subscriptions"]) + one["publishers_known"] for name, one in addresses.items()}
        return {name: count for name, count in known.items() if count}

    def ready(self) -> bool:
        return self.get("/readyz", 1.0)[0] == 200

    def log_tail(self, lines: int = 40) -> str:
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


@dataclass(slots=True)
class LiveNetwork:
    """`links` are pairs, (a, b, cost), or as in the topology file; `addresses` and `settings` are those of the topology file."""

    directory: Path
    names: Sequence[str] = ("a",)
    links: Sequence[tuple[str, str] | tuple[str, str, int] | Mapping[str, Any]] = ()
    addresses: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    routers: dict[str, LiveRouter] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()  # of `onceway router`
    trees: dict[str, Path] = field(default_factory=dict)  # of routers that are to run another release

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for name in self.names:
            log_path = self.directory / f"{name}.log"
            self.routers[name] = LiveRouter(name, free_port(), free_port(), free_port(), log_path)
        self.topology_path.write_text(yaml.safe_dump(self.topology(), sort_keys=False))

    def serve_mqtt(self, **section: Any) -> dict[str, int]:
        """Before the start: each router listens for MQTT, too, at the port that is returned. section: `mqtt` of the file."""
        document, ports = self.topology(), {name: free_port() for name in self.names}
        document["mqtt"] = section
        for name, port in ports.items():
            document["routers"][name]["mqtt"] = port
        self.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
        return ports

    @property
    def topology_path(self) -> Path:
        return self.directory / "topology.yaml"

    def topology(self) -> dict[str, Any]:
        links: list[Any] = []
        for link in self.links:
            if isinstance(link, Mapping):
                links.append(dict(link))
            elif len(link) == 2:
                links.append(f"{link[0]} - {link[1]}")
            else:
                links.append({"between": [link[0], link[1]], "cost": link[2]})
        document: dict[str, Any] = {"network": "live", "defaults": {"host": "127.0.0.1"}}
        # Tests start and kill routers one by one, and most do not ask whether one reaches the others.
        document["settings"] = {"ready_when_isolated": True, **self.settings}
        if self.addresses:
            document["addresses"] = [dict(address) for address in self.addresses]
        document["routers"] = {
            r.name: {"amqp": r.amqp_port, "interrouter": r.interrouter_port, "admin": r.admin_port}
            for r in self.routers.values()
        }
        if links:
            document["links"] = links
        return document

    def __getitem__(self, name: str) -> LiveRouter:
        return self.routers[name]

    def __iter__(self) -> Iterator[LiveRouter]:
        return iter(self.routers.values())

    def urls(self, *names: str) -> str:
        """The failover list of these routers: amqp://h:p,amqp://h:p; all of them when none is named."""
        return ",".join(self.routers[name].url for name in (names or self.routers))

    # --- life and death

    def spawn(self, name: str, *, fresh: bool = True) -> LiveRouter:
        """Start one router's process without waiting for it."""
        router = self.routers[name]
        assert not router.running, f"router {name} runs already"
        if router.starts and any(other.running for other in self):
            fresh = False  # a fresh start beside routers that have been up for a while is refused
        router.log = router.log_path.open("ab")
        tree = self.trees.get(name)
        command = [sys.executable, "-m", "onceway", "router", str(self.topology_path), name, *self.options]
        router.process = subprocess.Popen(
            dying_with_us([*command, "--fresh"] if fresh else command),
            cwd=tree or ROOT,
            stdin=subprocess.DEVNULL,
            stdout=router.log,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PYTHONUNBUFFERED": "1",
                "ONCEWAY_STATE_DIR": str(self.directory / "state"),
                **({} if tree is None else {"PYTHONPATH": str(tree)}),
                **self.environment,
            },
        )
        router.starts += 1
        return router

    def start(self, *names: str, fresh: bool = True, timeout_s: float = READY_S) -> LiveNetwork:
        for name in names or self.routers:
            self.spawn(name, fresh=fresh)
        self.wait_ready(*names, timeout_s=timeout_s)
        return self

    def wait_ready(self, *names: str, timeout_s: float = READY_S) -> None:
        """Until each answers /readyz with 200; a process that has ended fails at once."""
        end = time.monotonic() + timeout_s
        for name in names or self.routers:
            router = self.routers[name]
            while not router.ready():
                if not router.running:
                    code = None if router.process is None else router.process.returncode
                    raise NotReady(f"router {name} ended with {code}\n{router.log_tail()}")
                if time.monotonic() > end:
                    raise NotReady(f"router {name} not ready within {timeout_s:g} s\n{router.log_tail()}")
                time.sleep(0.02)

    def kill(self, *names: str) -> None:
        """SIGKILL, all of them before the first is waited for."""
        processes = [self.routers[name].process for name in names]
        for process in processes:
            assert process is not None
            process.kill()
        for process in processes:
            assert process is not None
            process.wait(GONE_S)

    def pause(self, name: str) -> None:
        os.kill(self.routers[name].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        os.kill(self.routers[name].pid, signal.SIGCONT)

    def stop(self, *names: str, timeout_s: float = 60.0) -> None:
        """SIGTERM and wait; a router that does not go in time is killed and reported."""
        chosen = [self.routers[name] for name in names] if names else list(self)
        stubborn = []
        running = [router for router in chosen if router.running]
        for router in running:
            assert router.process is not None
            router.process.terminate()
        for router in running:
            assert router.process is not None
            try:
                router.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                router.process.kill()
                router.process.wait(GONE_S)
                stubborn.append(f"router {router.name} ignored SIGTERM for {timeout_s:g} s\n{router.log_tail()}")
        assert not stubborn, "\n".join(stubborn)

    def close(self) -> None:
        """Kill what still runs; for fixtures and `with`."""
        for router in self:
            if router.process is not None and router.process.poll() is None:
                router.process.kill()
                router.process.wait(GONE_S)
            if router.log is not None:
                router.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def logs(self, lines: int = 40) -> str:
        return "\n".join(f"--- router {r.name} (started {r.starts} times)\n{r.log_tail(lines)}" for r in self)

    # --- what the routers say of themselves

    def statuses(self) -> dict[str, dict[str, Any]]:
        return {router.name: router.status() for router in self if router.running}

    @property
    def pids(self) -> list[int]:
        return [router.pid for router in self if router.running]
