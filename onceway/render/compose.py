"""A Compose file: the whole network on one Docker host, a service for each router.

Two networks: `routers` for what routers say to each other and for their admin listeners, which nobody else reaches;
`clients` for clients, in containers or through published ports.
"""

from __future__ import annotations

from math import ceil
from typing import Any, Final

from onceway.render import STOP_GRACE_S, memory_most, memory_request, open_files
from onceway.render.placed import FILE, STATE, check_ports, dump, placed
from onceway.topology import ConfigError, Problem, RouterAddress, Topology

_HEAD: Final = """\
# The network {network} on one Docker host. Start it with: docker compose up --detach --wait
# Clients reach it at {urls}
# Ask for its state with: docker compose exec {first} onceway status {file}
"""


def compose(topology: Topology, *, image: str, publish: str | None) -> str:
    """publish: the address of the Docker host at which clients reach the routers; None: only from containers."""
    check_ports(topology)
    if publish is not None:
        _check_published(topology)

    def place(name: str) -> RouterAddress:
        address = topology.routers[name]
        inside = _inside(name)
        hosts = {"amqp": name, "interrouter": inside, "admin": inside}
        return RouterAddress({key: (host, address[key][1]) for key, host in hosts.items()})

    # Compose takes $ for the beginning of a variable.
    file = placed(topology, place).replace("$", "$$")
    document = {
        "name": topology.network.lower().replace(".", "-"),
        "services": {name: _service(topology, name, image, publish) for name in topology.routers},
        "networks": {"routers": {"internal": True}, "clients": {}},
        "volumes": {f"{name}-state": {} for name in topology.routers},
        "configs": {"topology": {"content": file}},
    }
    host = f"[{publish}]" if publish and ":" in publish else publish
    urls = ",".join(f"amqp://{host or name}:{topology.routers[name]['amqp'][1]}" for name in topology.routers)
    head = _HEAD.format(network=topology.network, urls=urls, first=next(iter(topology.routers)), file=FILE)
    return head + dump(document)


def _inside(name: str) -> str:
    return f"{name}.routers"


def _service(topology: Topology, name: str, image: str, publish: str | None) -> dict[str, Any]:
    address = topology.routers[name]
    files = open_files(topology, [name])
    service: dict[str, Any] = {
        "image": image,
        "command": ["router", FILE, name],
        "hostname": name,
        "networks": {"routers": {"aliases": [_inside(name)]}, "clients": {}},
        "configs": [{"source": "topology", "target": FILE}],
        "volumes": [{"type": "volume", "source": f"{name}-state", "target": STATE}],
        "healthcheck": {
            "test": ["CMD", "onceway", "status", f"http://{_inside(name)}:{address['admin'][1]}"],
            "interval": "10s",
            "timeout": "15s",
            # A network that starts after the death of all its routers may wait so long before it is ready.
            "start_period": f"{60 + ceil(topology.settings.recovery_s)}s",
            "start_interval": "2s",
        },
        "restart": "unless-stopped",
        "stop_grace_period": f"{STOP_GRACE_S}s",
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "ulimits": {"nofile": {"soft": files, "hard": files}},
        "deploy": {
            "resources": {
                "limits": {"memory": f"{memory_most(topology) >> 20}M"},
                "reservations": {"memory": f"{memory_request(topology) >> 20}M"},
            }
        },
    }
    if publish is not None:
        port = address["amqp"][1]
        service["ports"] = [{"target": port, "published": str(port), "host_ip": publish, "protocol": "tcp"}]
    return service


def _check_published(topology: Topology) -> None:
    """The routers of a file may have hosts of their own and the same port; on one Docker host they clash."""
    first: dict[int, str] = {}
    problems = []
    for name, address in topology.routers.items():
        port = address["amqp"][1]
        other = first.setdefault(port, name)
        if other != name:
            what = f"port {port} is that of router {other}, and one Docker host would publish both"
            remedy = "give each amqp listener a port of its own, or publish none (--no-publish)"
            problems.append(Problem(str(topology.path), 0, f"routers.{name}.amqp", what, remedy))
    if problems:
        raise ConfigError(problems)
