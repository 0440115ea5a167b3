"""Routers in network namespaces of their own, joined by real interfaces that a fault can take down.

The run itself is started again inside a fresh namespace (`unshare --net`), so that nothing of the machine's network is
touched and every address here is the run's own.  In it is a bridge for clients and admin listeners; each router has a
namespace that lives as long as a process that holds it, with an interface to the bridge and one more for each trunk.
A trunk is a pair of interfaces of its own: the router that dials has a route over it to the other one's address, and
cutting it takes the other end down, so that the route stays and leads nowhere, as over a pulled cable.

Needs root, or whatever else lets `unshare`, `nsenter` and `ip` do this; `reason_against` says what is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import Final

from onceway.errors import OncewayError

TOOLS: Final = ("ip", "unshare", "nsenter", "sleep")
BRIDGE: Final = "lan"
NETWORK: Final = "10.77"  # known only in namespaces of the run
INSIDE: Final = "ONCEWAY_CHAOS_NAMESPACE"  # set for the run that was started again
MADE_WITHIN_S: Final = 60.0


class NoNamespaces(OncewayError):
    """A command of the system did not do what it should."""


def reason_against() -> str | None:
    """Why there can be no namespaces here; None where there can."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found (Debian: iproute2, util-linux)"
    for trial in (["true"], ["ip", "link", "add", "x", "type", "veth", "peer", "name", "y"]):
        tried = subprocess.run(
            ["unshare", "--net", *trial], capture_output=True, text=True, timeout=MADE_WITHIN_S, check=False
        )
        if tried.returncode != 0:
            return f"no network namespaces for us: {tried.stderr.strip() or 'unshare failed'}"
    return None


def command_inside(command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """(command, environment) that runs this in a fresh network namespace."""
    return ["unshare", "--net", *command], {**os.environ, INSIDE: str(os.getpid())}


def is_inside() -> bool:
    return INSIDE in os.environ


class Namespaces:
    """`host` and `prefix` of each router; `cut` and `heal` of trunks and routers."""

    def __init__(self, routers: Sequence[str], trunks: Iterable[tuple[str, str]]) -> None:
        """`trunks`: (who dials, whom)."""
        assert is_inside(), "interfaces are made only in a namespace of our own"
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._numbers = {name: i for i, name in enumerate(routers, 1)}
        self._trunks: dict[frozenset[str], tuple[str, str]] = {}  # -> whose end goes down, and its interface
        self._cuts: dict[tuple[str, str], int] = {}  # interfaces that are down -> how many faults hold them there
        try:
            self._make(routers, trunks)
        except BaseException:
            self.close()
            raise

    def host(self, name: str) -> str:
        return f"{NETWORK}.0.{self._numbers[name]}"

    def prefix(self, name: str) -> tuple[str, ...]:
        return "nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net"

    def cut(self, *names: str) -> None:
        """A trunk by its two ends, or a router from everybody, clients included."""
        for interface in self._interfaces(names):
            self._cuts[interface] = self._cuts.get(interface, 0) + 1
            if self._cuts[interface] == 1:
                self._set(interface, "down")

    def heal(self, *names: str) -> None:
        for interface in self._interfaces(names):
            self._cuts[interface] -= 1
            if not self._cuts[interface]:
                self._set(interface, "up")

    def close(self) -> None:
        """The namespaces end with the processes that hold them."""
        for holder in self._holders.values():
            holder.kill()
            holder.wait(MADE_WITHIN_S)
        self._holders.clear()

    def _make(self, routers: Sequence[str], trunks: Iterable[tuple[str, str]]) -> None:
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{NETWORK}.0.254/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        for name in routers:
            self._make_router(name)
        for number, (dialler, dialled) in enumerate(trunks, 1):
            self._make_trunk(number, dialler, dialled)

    def _make_router(self, name: str) -> None:
        setpriv = shutil.which("setpriv")  # they must not outlive us
        prefix = [setpriv, "--pdeathsig", "KILL"] if setpriv else []
        holder = subprocess.Popen([*prefix, "unshare", "--net", "sleep", "infinity"], start_new_session=True)
        self._holders[name] = holder
        ours, end = os.readlink("/proc/self/ns/net"), time.monotonic() + MADE_WITHIN_S
        while os.readlink(f"/proc/{holder.pid}/ns/net") == ours:
            if holder.poll() is not None or time.monotonic() > end:
                raise NoNamespaces(f"no namespace for router {name}: unshare ended with {holder.poll()}")
            time.sleep(0.005)
        port = self._port(name)
        _run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "link", "set", port, "master", BRIDGE, "up")
        self._inside(name, "ip", "link", "set", "lo", "up")
        self._inside(name, "ip", "address", "add", f"{self.host(name)}/24", "dev", "eth0")
        self._inside(name, "ip", "link", "set", "eth0", "up")

    def _make_trunk(self, number: int, dialler: str, dialled: str) -> None:
        interface = f"trunk{number}"
        pids = {name: str(self._holders[name].pid) for name in (dialler, dialled)}
        peer = ("peer", "name", interface, "netns", pids[dialled])
        _run("ip", "link", "add", interface, "netns", pids[dialler], "type", "veth", *peer)
        for end, name in enumerate((dialler, dialled), 1):
            self._inside(name, "ip", "address", "add", f"{NETWORK}.{number}.{end}/24", "dev", interface)
            self._inside(name, "ip", "link", "set", interface, "up")
        # It has an address in both: from here on packets to the neighbour's go this way, and answers come back on it.
        way = ("via", f"{NETWORK}.{number}.2", "dev", interface)
        self._inside(dialler, "ip", "route", "add", f"{self.host(dialled)}/32", *way)
        self._trunks[frozenset((dialler, dialled))] = dialled, interface

    def _port(self, name: str) -> str:
        return f"port{self._numbers[name]}"

    def _interfaces(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """(namespace, interface); the bridge's side of a router has an empty namespace."""
        if len(names) == 2:
            return [self._trunks[frozenset(names)]]
        trunks = [where for pair, where in self._trunks.items() if names[0] in pair]
        return [("", self._port(names[0])), *trunks]

    def _set(self, interface: tuple[str, str], state: str) -> None:
        name, device = interface
        command = ("ip", "link", "set", device, state)
        if name:
            self._inside(name, *command)
        else:
            _run(*command)

    def _inside(self, name: str, *command: str) -> None:
        _run(*self.prefix(name), *command)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=MADE_WITHIN_S, check=False)
    if done.returncode != 0:
        raise NoNamespaces(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
