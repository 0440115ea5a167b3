"""The connections of a run that faults are to hit, each through a proxy of Toxiproxy, and the toxics on them.

Faults are set with the `toxiproxy-python` client.  TOXIPROXY_URL names a server to use; otherwise chaos.toxiproxy runs
as a process of its own for as long as the run does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import urlsplit

from toxiproxy import Proxy, Toxiproxy
from toxiproxy.exceptions import NotFound

from chaos.live.ports import free_port
from chaos.live.schedule import Fault
from onceway.errors import UsageError

KB: Final = 1000
CLOSE_WITHIN_S: Final = 60.0
RESET_FOR_S: Final = 1.0  # a reset is over after this long, unless the schedule says otherwise


def toxic(fault: Fault) -> tuple[str, dict[str, int]]:
    """Type and attributes, in the API's units."""

    def ms(key: str) -> int:
        return round(fault.values.get(key, 0.0) * 1000)

    def count(key: str) -> int:
        return int(fault.values.get(key, 0))

    match fault.kind:
        case "partition":
            return "timeout", {"timeout": 0}  # everything is dropped; the connections end with the partition
        case "latency":
            return "latency", {"latency": ms("latency"), "jitter": ms("jitter")}
        case "bandwidth":
            return "bandwidth", {"rate": max(1, count("rate") // KB)}
        case "slow_close":
            return "slow_close", {"delay": ms("delay")}
        case "reset":
            return "reset_peer", {"timeout": ms("after")}
        case "timeout":
            return "timeout", {"timeout": ms("after")}
        case "limit":
            return "limit_data", {"bytes": count("bytes")}
        case "slicer":
            delay = round(fault.values.get("delay", 0.0) * 1_000_000)
            sizes = {key: count(key) for key in ("average_size", "size_variation")}
            return "slicer", {**sizes, "delay": delay}
    raise AssertionError(f"{fault.kind} is no fault of connections")


class Connections:
    """`proxy(name, upstream)` gives host:port to connect to instead; `strike` and `lift` go by these names."""

    def __init__(self, seed: int) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._proxies: dict[str, Proxy] = {}
        self._down: dict[str, int] = {}  # by how many faults at once
        self._prefix = f"onceway-{os.getpid()}-"
        url = os.environ.get("TOXIPROXY_URL") or self._own_server(seed)
        try:
            where = urlsplit(url if "://" in url else f"http://{url}")
            port = where.port or 8474
        except ValueError as error:
            raise UsageError(f"TOXIPROXY_URL {url}: {error}; write it as http://127.0.0.1:8474") from error
        self._host = where.hostname or "127.0.0.1"
        self._server = Toxiproxy()
        self._server.update_api_consumer(self._host, port)
        if not self._server.running():
            raise UsageError(f"no Toxiproxy answers at {url}; start it, or unset TOXIPROXY_URL to use our own")
        self.server = f"{url}, {self._server.version().decode().strip()}"

    def _own_server(self, seed: int) -> str:
        command = [sys.executable, "-m", "chaos.toxiproxy", "--port", "0", "--seed", str(seed)]
        self._process = subprocess.Popen(
            [*command, "--parent", str(os.getpid())], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("listening on "):
            raise UsageError("chaos.toxiproxy did not start; the reason is above")
        return "http://" + line.removeprefix("listening on ").strip()

    def proxy(self, name: str, upstream: str) -> str:
        # One of ours: while the proxy is down no outgoing connection may get its port.
        port = 0 if self._process is None else free_port()
        made = self._server.create(upstream=upstream, name=self._prefix + name, listen=f"{self._host}:{port}")
        self._proxies[name] = made
        return str(made.listen)

    def strike(self, fault: Fault, mark: str, names: Iterable[str]) -> None:
        """`mark` tells this strike's toxics from others'."""
        for name in names:
            proxy = self._proxies[name]
            if fault.kind == "down":
                self._down[name] = self._down.get(name, 0) + 1
                proxy.disable()
                continue
            kind, attributes = toxic(fault)
            for stream in ("upstream", "downstream") if fault.stream == "both" else (fault.stream,):
                wanted: dict[str, Any] = {"type": kind, "stream": stream, "name": f"{mark}-{stream}"}
                proxy.add_toxic(**wanted, attributes=attributes, toxicity=fault.toxicity)

    def lift(self, fault: Fault, mark: str, names: Iterable[str]) -> None:
        for name in names:
            proxy = self._proxies[name]
            if fault.kind == "down":
                self._down[name] -= 1
                if not self._down[name]:
                    proxy.enable()
                continue
            for stream in ("upstream", "downstream"):
                try:
                    proxy.destroy_toxic(f"{mark}-{stream}")
                except NotFound:  # only one way was struck
                    pass

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(CLOSE_WITHIN_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            return
        for proxy in self._proxies.values():  # a server that is there for others too
            proxy.destroy()
