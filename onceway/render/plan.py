"""What the containers of a topology file need: listeners that others reach, files, stores, what these log in with.

Everything is derived from the file; what no container can have is a `ConfigError` that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from onceway.base.values import is_loopback
from onceway.topology import ConfigError, Problem, RouterAddress, Topology
from onceway.topology.listeners import BY_KEY, FOR_OUR_CLIENTS
from onceway.topology.named import named_files
from onceway.topology.tls import ROUTER
from router.policies import ANONYMOUS

DIRECTORY: Final = "/etc/onceway"  # in every container
FILE: Final = f"{DIRECTORY}/topology.yaml"
STATE: Final = "/var/lib/onceway"  # the image's ONCEWAY_STATE_DIR
FILES: Final = "files"  # below DIRECTORY
PASSWORD: Final = "password"  # below FILES: of the user as whom a store logs in
_PRIVILEGED: Final = 1024


class File(NamedTuple):
    """A file that a container reads."""

    source: str  # as the topology file names it, so relative to that; of a password what the operator has to make
    inside: str  # below DIRECTORY

    @property
    def key(self) -> str:
        """In a Secret, whose keys have no slash."""
        return self.inside.removeprefix(f"{FILES}/").replace("/", ".")


@dataclass(frozen=True, slots=True)
class Store:
    """A store of pipes, or of MQTT's retained messages, with a container of its own."""

    kind: str  # pipe or retained: the command
    name: str
    user: str  # as whom it logs in; empty: nobody
    place: str  # what the file says of it
    port: int | None = None  # where readers come; None: it has no listener
    metrics: int | None = None  # the port for operators
    profile: str = ""  # of its listener

    @property
    def service(self) -> str:
        return f"{'store' if self.kind == 'pipe' else 'retained'}-{self.name}"

    @property
    def ports(self) -> dict[str, int]:
        found = {"store": self.port, "metrics": self.metrics}
        return {name: port for name, port in found.items() if port is not None}

    @property
    def data(self) -> str:
        """The name of its directory, or of its file."""
        return self.name if self.kind == "pipe" else f"{self.name}.db"

    def command(self, file: str, data: str) -> list[str]:
        return [self.kind, "serve", file, "--store", self.name, "--data", data]

    @property
    def in_container(self) -> list[str]:
        return self.command(FILE, f"{STATE}/{self.data}")


def problem(topology: Topology, place: str, what: str, remedy: str) -> Problem:
    return Problem(str(topology.path), 0, place, what, remedy)


def exposed(address: RouterAddress) -> dict[str, int]:
    """The ports that others reach, by their listeners. What the file keeps at 127.0.0.1 beside a listener for clients
    that others reach stays there; a file for one machine has all at 127.0.0.1, and means all."""
    clients = address.for_clients()
    private = {key for key, (host, _) in clients.items() if is_loopback(host)}
    if len(private) == len(clients):
        private = set()
    return {key: port for key, (_, port) in address.listeners.items() if key not in private}


def clients_ports(address: RouterAddress) -> dict[str, int]:
    return {key: port for key, port in exposed(address).items() if BY_KEY[key].for_clients}


def check_containers(topology: Topology) -> None:
    """A container has one address, and no privileges. ConfigError names every router that needs more."""
    problems = []
    for name, address in topology.routers.items():
        ports: dict[int, list[str]] = {}
        for key, (_, port) in address.listeners.items():
            ports.setdefault(port, []).append(key)
        place = f"routers.{name}"
        for port, keys in ports.items():
            if len(keys) > 1:
                what = f"{' and '.join(keys)} have port {port}"
                remedy = "give each listener a port of its own: a container has one address"
                problems.append(problem(topology, place, what, remedy))
            if port < _PRIVILEGED:
                what = f"port {port} needs privileges, which the container does not have"
                problems.append(problem(topology, place, what, "choose a port from 1024 on"))
    if problems:
        raise ConfigError(problems)


def status_of(topology: Topology) -> str:
    """What `onceway status` is told in a container: where admin listeners have TLS, it asks its own router's socket."""
    return "" if topology.admin.tls else f" {FILE}"


def variable(topology: Topology) -> str:
    """The environment variable with the network's key; empty: it is in no variable."""
    return topology.trunk_key.removeprefix("$") if topology.trunk_key.startswith("$") else ""


def token_port(topology: Topology) -> int | None:
    """Where routers ask for the keys of tokens."""
    tokens = topology.sasl.tokens if topology.sasl is not None else None
    if tokens is None or not tokens.remote:
        return None
    found = re.fullmatch(r"(https?)://[^/]*?(?::([0-9]+))?(?:/.*)?", tokens.keys)
    assert found is not None  # the file was read
    return int(found[2] or (443 if found[1] == "https" else 80))


# --- stores -------------------------------------------------------------------------------------------------------


def stores(topology: Topology) -> list[Store]:
    """Those of the file. ConfigError where one process cannot be what the file says of a store."""
    found: dict[str, Store] = {}
    problems: list[Problem] = []
    metrics = {name: port for pipe in topology.pipes.values() for name, (_, port) in pipe.metrics.items()}
    for match, pipe in topology.pipes.items():
        for name, (_, port) in pipe.stores.items():
            place = f"addresses: {match}: stores.{name}"
            made = Store("pipe", name, _named(pipe.user), place, port, metrics.get(name), pipe.tls)
            other = found.setdefault(made.service, made)
            if (other.user, other.port, other.profile) != (made.user, made.port, made.profile):
                what = "its pipes have different users, ports or store_tls, and it is one process"
                problems.append(problem(topology, place, what, "give each pipe a store of its own"))
    retained = topology.mqtt.retained if topology.mqtt is not None else None
    if retained is not None:
        for name in retained.stores:
            made = Store("retained", name, _named(retained.user), f"mqtt.retained.stores: {name}")
            found[made.service] = made
    if problems:
        raise ConfigError(problems)
    return list(found.values())


def stores_in_containers(topology: Topology) -> list[Store]:
    """The same. ConfigError where a container cannot run one."""
    found, problems = stores(topology), []
    for match, pipe in topology.pipes.items():
        for name, kept in pipe.data.items():
            if "://" in kept:
                what = "a PostgreSQL database, whose password and network no container is given"
                remedy = f"leave it out for a volume, or run onceway pipe serve --store {name} elsewhere"
                problems.append(problem(topology, f"addresses: {match}: store_data.{name}", what, remedy))
    for store in found:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", store.name):
            remedy = "name it with a-z, 0-9 and -, at most 22 characters"
            problems.append(problem(topology, store.place, f'no container can have the name "{store.name}"', remedy))
        if store.service in topology.routers:
            what = f"router {store.service} has the name of its container"
            problems.append(problem(topology, store.place, what, "rename one of them"))
        if store.port is not None and store.port < _PRIVILEGED:
            what = f"port {store.port} needs privileges, which the container does not have"
            problems.append(problem(topology, store.place, what, "choose a port from 1024 on"))
    if problems:
        raise ConfigError(problems)
    return found


def _named(user: str) -> str:
    return "" if user == ANONYMOUS else user


@dataclass(frozen=True, slots=True)
class Login:
    """How a store reaches the routers."""

    scheme: str
    environment: dict[str, str]
    files: tuple[File, ...]
    options: tuple[str, ...] = ()


def in_container(file: File) -> str:
    return f"{DIRECTORY}/{file.inside}"


def login(topology: Topology, store: Store, where: Callable[[File], str] = in_container) -> Login:
    """By the first listener that all routers have for it, and with what that asks for. ConfigError if there is none.

    where: The path at which the store finds a file.
    """

    def refuse(what: str, remedy: str) -> ConfigError:
        return ConfigError([problem(topology, store.place, what, remedy)])

    offered = [clients_ports(address) for address in topology.routers.values()]
    scheme = next((key for key in FOR_OUR_CLIENTS if all(key in ports for ports in offered)), None)
    if scheme is None:
        text = f"routers have no listener in common that it could connect to ({', '.join(FOR_OUR_CLIENTS)})"
        raise refuse(text, "give all routers one that is not at 127.0.0.1 alone")
    environment: dict[str, str] = {}
    files: list[File] = []
    options: tuple[str, ...] = ()
    certified = False
    if BY_KEY[scheme].secure:
        name = next(iter(topology.routers.values())).tls
        profile = topology.tls[name]
        if profile.ca is not None:
            files.append(File(str(profile.ca), inside(str(profile.ca))))
            environment["ONCEWAY_CA"] = where(files[-1])
        if profile.clients == "required":
            own = topology.tls.get(store.profile)
            if own is None:
                what = f"tls.{name} asks clients for a certificate, and it has none"
                raise refuse(what, "give it store_tls, or let tls.clients be optional")
            certified = True
            for key, path in (("CERTIFICATE", own.certificate), ("KEY", own.key)):
                files.append(_of(store.name, str(path)))
                environment[f"ONCEWAY_{key}"] = where(files[-1])
    if store.user and topology.sasl is not None:
        if topology.sasl.users is not None:
            environment["ONCEWAY_USER"] = store.user
            files.append(File(f"{store.user}.password", f"{FILES}/{PASSWORD}"))
            environment["ONCEWAY_PASSWORD_FILE"] = where(files[-1])
        elif certified:
            options = ("--mechanism", "EXTERNAL")
        else:
            raise refuse(f"it has no way to log in as {store.user}", "name a file of users in sasl")
    return Login(scheme, environment, tuple(dict.fromkeys(files)), options)


# --- files --------------------------------------------------------------------------------------------------------


def inside(written: str) -> str:
    """Where the file that the topology file names so is in a container, below DIRECTORY."""
    return "/".join((FILES, *(part for part in Path(written).parts if part not in ("/", ".", ".."))))


def files_of_router(topology: Topology, name: str) -> list[File]:
    profiles = {topology.listener_profile(name, key) for key in topology.routers[name].listeners}
    return _files(topology, profiles, name, trunks=True)


def files_of_store(topology: Topology, store: Store, login: Login) -> list[File]:
    """A store of pipes lets readers in as a router does; one of retained messages has no listener."""
    if store.kind != "pipe":
        return list(login.files)
    found = _files(topology, {store.profile, topology.admin.tls}, store.name, trunks=False)
    return list(dict.fromkeys([*found, *login.files]))


def _files(topology: Topology, profiles: set[str], name: str, *, trunks: bool) -> list[File]:
    found: dict[File, None] = {}
    for place, node, _ in named_files(topology.text):
        if place[0] == "tls" and place[1] not in profiles:
            continue
        if place[0] == "trunks" and not trunks:
            continue
        found[_of(name, node.value)] = None
    return list(found)


def _of(name: str, written: str) -> File:
    """The file of a router or store, which `${router}` stands for."""
    source = written.replace(ROUTER, name)
    return File(source, inside(source))


def check_files(topology: Topology, files: Sequence[File]) -> list[File]:
    """Each file once. ConfigError where two would be one, or one cannot be a key."""
    found = list(dict.fromkeys(files))
    taken: dict[str, File] = {}
    for file in found:
        if not re.fullmatch(r"[-._A-Za-z0-9]+", file.key):
            what = f"{file.source} has a character that no key of a Secret can have"
            raise ConfigError([problem(topology, "", what, "rename it with letters, digits, -, _ and .")])
        other = taken.setdefault(file.key, file)
        if other != file:
            what = f"{file.source} and {other.source} would be the same file in a container"
            raise ConfigError([problem(topology, "", what, "rename one of them")])
    return found
