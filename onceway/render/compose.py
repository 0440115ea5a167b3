"""A Compose file: the whole network on one Docker host, a service for each router and each store.

Two networks: `routers` for what routers say to each other and for their admin listeners, which nobody else reaches;
`clients` for clients, in containers or through published ports, and for stores.

What a service reads is a directory beside the Compose file, `network/SERVICE`, mounted as a whole: a file that is
replaced is seen by a reload. Compose's own configs and secrets are copied when the container is made, and cannot be
where its root is read-only (docker/compose issue 12031).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from math import ceil
from typing import Any, Final

from onceway.render import STOP_GRACE_S, USER, memory_most, memory_request, open_files
from onceway.render.placed import dump, placed
from onceway.render.plan import (
    DIRECTORY,
    FILE,
    STATE,
    File,
    Login,
    Store,
    check_containers,
    check_files,
    clients_ports,
    files_of_router,
    files_of_store,
    login,
    status_of,
    stores_in_containers,
    variable,
)
from onceway.topology import Topology
from onceway.topology.listeners import BY_KEY

ETC: Final = "network"  # beside the Compose file: a directory for each service

_HEAD: Final = """\
# The network {network} on one Docker host. Start it with: docker compose up --detach --wait
# Clients reach it at {urls}
# Ask for its state with: docker compose exec {first} onceway status{file}
# The topology file of each service is in {etc}/SERVICE: onceway render compose FILE --output DIR writes it there.
# When it has changed: docker compose kill --signal HUP SERVICE
"""
_NAMELESS: Final = """\
# WebSockets are opened for an address or localhost only: to use a name of this host, render with --host NAME.
"""
_FILES: Final = """\
# Before it starts, as root, in the directory of the topology file, with DIR for that of this file; and again when one
# of these files has changed:
"""


def compose(topology: Topology, *, image: str, publish: str | None, hosts: Sequence[str] = ()) -> dict[str, str]:
    """The files by their paths, the Compose file first.

    publish: the address of the Docker host at which clients reach the routers; None: only from containers. hosts: names
    of the Docker host by which they come.
    """
    check_containers(topology)
    found = stores_in_containers(topology)
    published = _published(topology, found, publish)

    def host(name: str, key: str) -> str:
        return name if BY_KEY[key].for_clients else _inside(name)

    file = placed(topology, host, lambda name: f"store-{name}", hosts=hosts)
    services: dict[str, Any] = {}
    files: dict[str, list[File]] = {}
    for name in topology.routers:
        services[name] = _router(topology, name, image)
        files[name] = check_files(topology, files_of_router(topology, name))
    for store in found:
        log = login(topology, store)
        services[store.service] = _store(topology, store, log, image)
        files[store.service] = check_files(topology, files_of_store(topology, store, log))
    for name, ports in published.items():
        services[name]["ports"] = [
            {"target": port, **({"published": there} if there else {}), "host_ip": publish, "protocol": "tcp"}
            for port, there in ports.items()
        ]
    document = {
        "name": topology.network.lower().replace(".", "-"),
        "services": services,
        "networks": {"routers": {"internal": True}, "clients": {}},
        "volumes": {f"{name}-state": {} for name in services},
    }
    at = f"[{publish}]" if publish and ":" in publish else publish
    urls = ",".join(
        f"{key}://{at or name}:{port}"
        for name, address in topology.routers.items()
        for key, port in clients_ports(address).items()
        if publish is None or published[name][port]
    )
    head = _HEAD.format(
        network=topology.network, urls=urls, first=next(iter(topology.routers)), file=status_of(topology), etc=ETC
    )
    pages = any({"ws", "wss"} & clients_ports(address).keys() for address in topology.routers.values())
    if publish is not None and pages and not (hosts or topology.http_hosts):
        head += _NAMELESS
    for name, ports in published.items():
        for port in (port for port, there in ports.items() if not there):
            head += (
                f"# Docker chooses a port for {port} of {name}, which another has: docker compose port {name} {port}\n"
            )
    for store in found:
        head += f"# {store.service} (onceway {store.kind} serve) keeps its data in the volume {store.service}-state.\n"
    if any(files.values()):
        head += _FILES + "".join(f"#   {line}\n" for line in installs(files))
    return {"compose.yaml": head + dump(document), **{f"{ETC}/{name}/topology.yaml": file for name in services}}


def installs(files: dict[str, list[File]]) -> list[str]:
    """The commands that put files where services read them, as the only one who may."""
    lines = []
    for name, needed in files.items():
        for file in needed:
            target = f"DIR/{ETC}/{name}/{file.inside}"
            lines.append(shlex.join(["install", "-D", "-o", str(USER), "-m", "0400", file.source, target]))
    return lines


def _inside(name: str) -> str:
    return f"{name}.routers"


def _router(topology: Topology, name: str, image: str) -> dict[str, Any]:
    files = open_files(topology, [name])
    service = _service(name, image, ["router", FILE, name])
    service["networks"] = {"routers": {"aliases": [_inside(name)]}, "clients": {}}
    service["healthcheck"] = {
        # By the control socket: the admin listener may ask for certificates and passwords.
        "test": ["CMD", "onceway", "status"],
        "interval": "10s",
        "timeout": "15s",
        # A network that starts after the death of all its routers may wait so long before it is ready.
        "start_period": f"{60 + ceil(topology.settings.recovery_s)}s",
        "start_interval": "2s",
    }
    if named := variable(topology):
        service["environment"] = [named]
    service["ulimits"] = {"nofile": {"soft": files, "hard": files}}
    service["deploy"] = {
        "resources": {
            "limits": {"memory": f"{memory_most(topology) >> 20}M"},
            "reservations": {"memory": f"{memory_request(topology) >> 20}M"},
        }
    }
    return service


def _store(topology: Topology, store: Store, log: Login, image: str) -> dict[str, Any]:
    service = _service(store.service, image, [*store.in_container, *log.options])
    # In the network of the routers, too, it would reach their admin listeners.
    service["networks"] = {"clients": {}}
    urls = ",".join(
        f"{log.scheme}://{name}:{clients_ports(address)[log.scheme]}" for name, address in topology.routers.items()
    )
    variables = {"ONCEWAY_URL": urls, **log.environment}
    service["environment"] = {key: value.replace("$", "$$") for key, value in variables.items()}
    return service


def _service(name: str, image: str, command: list[str]) -> dict[str, Any]:
    return {
        "image": image,
        "command": [word.replace("$", "$$") for word in command],
        "hostname": name,
        "user": f"{USER}:{USER}",
        "volumes": [
            {"type": "bind", "source": f"./{ETC}/{name}", "target": DIRECTORY, "read_only": True},
            {"type": "volume", "source": f"{name}-state", "target": STATE},
        ],
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_GRACE_S}s",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
    }


def _published(topology: Topology, found: list[Store], at: str | None) -> dict[str, dict[int, str]]:
    """By service, the ports of the Docker host by those of the container. Routers of several hosts may have the same
    port, which one Docker host has once: the first gets it, and Docker chooses one for each other (empty)."""
    wanted = {name: clients_ports(address) for name, address in topology.routers.items()}
    wanted |= {store.service: {"store": store.port} for store in found if store.port is not None}
    taken: set[int] = set()
    published: dict[str, dict[int, str]] = {}
    for name, ports in wanted.items() if at is not None else ():
        published[name] = {port: "" if port in taken else str(port) for port in ports.values()}
        taken.update(ports.values())
    return published
