"""Where commands reach routers, at admin listeners and at the control sockets of this host, and how errors end."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click

from onceway import state
from onceway.access.secrets import read_secret
from onceway.base import waits
from onceway.cli.options import TLS_FILES, Tls, group, password_option, say, state_dir_option, user_option
from onceway.errors import UsageError
from onceway.operate.control import SUPERVISOR, socket_path
from onceway.operate.probe import LOCAL, Probe
from onceway.serve.ports import admin_url
from onceway.topology import Topology
from onceway.topology.document import suggest

F = TypeVar("F", bound=Callable[..., Any])

network_option: Final = click.option(
    "--network", metavar="NAME", help="The network. Needed only if routers of several networks run on this host."
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def socket_options(function: F) -> F:
    for option in (state_dir_option, network_option, json_option):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Reading:
    """What `reading_options` say: how admin listeners are read, and control sockets in their place."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    user: str | None = None
    password_file: str | None = None
    state_dir: Path | None = None

    def probe(self, within_s: float, sockets: Mapping[str, Path] | None = None) -> Probe:
        """The password is asked for here, where it is nowhere else."""
        tls = Tls(self.ca, self.certificate, self.key).context()
        return waits.PROBE_ALL(Probe)(within_s, sockets, tls=tls, login=self._login())

    def _login(self) -> str | None:
        """What admin listeners are told (RFC 7617)."""
        if self.user is None:
            return None
        password = os.environ.get("ONCEWAY_PASSWORD") if self.password_file is None else None
        secret = password or read_secret(f"Password of {self.user}: ", self.password_file)
        return f"Basic {b64encode(f'{self.user}:{secret}'.encode()).decode()}"


reading_options: Final = group("reading", Reading, *TLS_FILES, user_option, password_option, state_dir_option)


def places_of(
    read: Topology | None, network: str | None, state_dir: Path | None
) -> tuple[dict[str, str], dict[str, Path]]:
    """The URLs of a file's routers, without a file of this host's, by name; and by URL their control sockets on this
    host. UsageError."""
    if read is not None:
        return {name: admin_url(read, name) for name in read.routers}, sockets_by_url(read, state_dir)
    sockets = routers_here(network, state_dir)
    return {name: LOCAL + name for name in sockets}, {LOCAL + name: path for name, path in sockets.items()}


def routers_here(network: str | None, state_dir: Path | None, router: str | None = None) -> dict[str, Path]:
    """The control sockets of this host's routers, by name; only that of `router` if it is given. UsageError."""
    base = state.state_dir("-", state_dir).parent
    found = {each.name: _sockets(each) for each in sorted(base.glob("*/")) if network in (None, each.name)}
    found = {name: sockets for name, sockets in found.items() if sockets}
    if not found:
        which = "no router" if network is None else f'no router of network "{network}"'
        raise UsageError(
            f"{base}: {which} runs on this host with this state directory; "
            "run this on the router's host and as its user, or give --state-dir"
        )
    having = {name: sockets for name, sockets in found.items() if router in (None, *sockets)}
    if not having:
        known = sorted({name for sockets in found.values() for name in sockets})
        raise UsageError(f'no router "{router}" runs on this host; {suggest(str(router), known, "routers are")}')
    if len(having) > 1:
        raise UsageError(f"several networks run on this host: give --network, one of {', '.join(having)}")
    (sockets,) = having.values()
    return sockets if router is None else {router: sockets[router]}


def sockets_by_url(network: Topology, state_dir: Path | None) -> dict[str, Path]:
    """The control sockets that its routers have if they run on this host, by the URL of the admin listener."""
    directory = state.state_dir(network.network, state_dir)
    return {admin_url(network, name): socket_path(directory, name) for name in network.routers}


def _sockets(directory: Path) -> dict[str, Path]:
    """Those of routers, which are not named like a supervisor's."""
    names = sorted(path for path in directory.glob("*.sock") if path.stem.split("-")[0] != SUPERVISOR)
    return {path.stem: path for path in names if path.is_socket()}


def run_action(main: Coroutine[Any, Any, int]) -> NoReturn:
    """Runs `main` and exits with its result: 2 for arguments that a router refuses, 1 for other errors."""
    from onceway.base.loop import run
    from onceway.operate.control import ControlError

    try:
        sys.exit(run(main))
    except ControlError as error:
        say(str(error))
        sys.exit(2 if error.status in (400, 404) else 1)
