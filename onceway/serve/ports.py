"""Checks that a topology's ports are free before anything starts, so that all that are in use are named at once."""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Iterable
from typing import Final

from onceway.base import waits
from onceway.base.values import is_unspecified
from onceway.topology import ConfigError, HostPort, Problem, Topology, format_host_port

PATIENCE_S: Final = 2.0  # routers of a process that was killed end a moment after it
LOOK_S: Final = 0.05


def check_free(topology: Topology, names: Iterable[str], patience_s: float = 0.0) -> None:
    """Raises ConfigError with every listener that cannot be bound; what is in use is asked for so long again."""
    latest = time.monotonic() + patience_s
    problems = []
    for name in names:
        for kind, address in topology.routers[name].listeners.items():
            while (error := try_listen(address)) is not None and error.errno == errno.EADDRINUSE:
                if time.monotonic() >= latest:
                    break
                waits.PAUSE(time.sleep)(LOOK_S)
            if error is not None:
                problems.append(problem(topology, name, kind, address, error))
    if problems:
        raise ConfigError(problems)


def try_listen(address: HostPort) -> OSError | None:
    """Binds and listens for a moment; returns the error, or None."""
    host, port = address
    try:
        family, kind, protocol, _, place = waits.RESOLVER(socket.getaddrinfo)(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            trial.bind(place)
            trial.listen(1)
    except OSError as error:
        return error
    return None


def problem(topology: Topology, name: str, kind: str, address: HostPort, error: OSError) -> Problem:
    place = f"routers.{name}.{kind}"
    shown = format_host_port(address)
    if error.errno == errno.EADDRINUSE:
        what, remedy = f"port {shown} is in use", "stop the process that listens there, or choose another port"
    elif error.errno == errno.EACCES:
        what, remedy = f"port {shown} needs privileges", "choose a port from 1024 on"
    elif isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        what, remedy = (
            f"{shown} is no address of this machine",
            "run this router on its own host (--only), or change it",
        )
    else:
        what, remedy = f"cannot listen on {shown}: {error.strerror or error}", "choose another port"
    return Problem(str(topology.path), 0, place, what, remedy)


def free_ports(count: int, rng: random.Random) -> list[int]:
    """Ports that are free now, all different.

    They lie below the range from which systems take the local ports of outgoing connections, so that a restarted router
    does not find such a connection on its port.
    """
    found: list[int] = []
    while len(found) < count:
        port = rng.randrange(20_000, 32_000)
        if port not in found and try_listen(("127.0.0.1", port)) is None:
            found.append(port)
    return found


def admin_url(topology: Topology, name: str) -> str:
    scheme = "https" if topology.admin.tls else "http"
    place = reachable(topology.routers[name]["admin"])
    return f"{scheme}://{format_host_port(place)}"


def store_urls(topology: Topology) -> dict[str, str]:
    """Where the stores of its pipes answer Prometheus, of those that do."""
    scheme = "https" if topology.admin.tls else "http"
    places = {name: place for pipe in topology.pipes.values() for name, place in pipe.metrics.items()}
    return {name: f"{scheme}://{format_host_port(reachable(place))}" for name, place in places.items()}


def reachable(address: HostPort) -> HostPort:
    """The loopback address in place of an address that means every interface."""
    host, port = address
    if not is_unspecified(host):
        return address
    return ("::1" if ":" in host else "127.0.0.1"), port
