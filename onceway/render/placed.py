"""A topology file for containers: the same file with other listeners, because containers have names of their own.

The document is edited as YAML nodes, so that everything else in it stays as it was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from onceway.topology import ConfigError, Problem, RouterAddress, Topology, format_host_port

FILE: Final = "/etc/onceway/topology.yaml"  # in every container
STATE: Final = "/var/lib/onceway"  # the image's ONCEWAY_STATE_DIR
_LISTENERS: Final = ("amqp", "interrouter", "admin")
_PRIVILEGED: Final = 1024
_MAPPING: Final = "tag:yaml.org,2002:map"


def placed(topology: Topology, place: Callable[[str], RouterAddress]) -> str:
    """The text of the topology's file, in which each router listens where `place` says. ConfigError if it cannot."""
    _check_links(topology)
    root = yaml.compose(Path(topology.path).read_bytes(), Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # it has been read before
    entries: list[tuple[yaml.ScalarNode, yaml.Node]] = []
    for key, value in root.value:
        if key.value == "defaults":  # the host of ports that name none: all name one now
            continue
        if key.value == "routers":
            routers = [(name, _router(place(name.value), node)) for name, node in value.value]
            value = yaml.MappingNode(value.tag, routers, flow_style=False)
        entries.append((key, value))
    if topology.trunk_tls is None:  # the network of the containers lets nobody else reach the port
        entries.append((_text("trunks"), yaml.MappingNode(_MAPPING, [(_text("tls"), _text("off"))], flow_style=True)))
    root.value = entries
    text: str = yaml.serialize(root, Dumper=yaml.SafeDumper, width=120, allow_unicode=True)
    return text


def _router(address: RouterAddress, node: yaml.MappingNode) -> yaml.MappingNode:
    kept = [(key, value) for key, value in node.value if key.value not in (*_LISTENERS, "host")]
    places = {key: address[key] for key in _LISTENERS}
    hosts = {host for host, _ in places.values()}
    if len(hosts) == 1:
        listeners = [
            (_text("host"), _text(*hosts)),
            *((_text(key), _number(port)) for key, (_, port) in places.items()),
        ]
    else:
        listeners = [(_text(key), _text(format_host_port(place))) for key, place in places.items()]
    return yaml.MappingNode(node.tag, [*listeners, *kept], flow_style=True)


def _text(value: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", value)


def _number(value: int) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:int", str(value))


def _check_links(topology: Topology) -> None:
    def problem(pair: frozenset[str]) -> Problem:
        one, other = sorted(pair)
        what = (
            f"{one} - {other} goes via {format_host_port(topology.via[pair])}, which containers cannot be sure to reach"
        )
        return Problem(str(topology.path), 0, "links", what, "leave via out: containers reach each other by name")

    if topology.via:
        raise ConfigError(map(problem, topology.via))


def check_ports(topology: Topology) -> None:
    """A container has one address, and no privileges. ConfigError names every router that needs more."""
    problems = []
    for name, address in topology.routers.items():
        ports = {key: address[key][1] for key in _LISTENERS}
        place = f"routers.{name}"
        for port, count in Counter(ports.values()).items():
            if count > 1:
                what = f"{' and '.join(key for key in ports if ports[key] == port)} have port {port}"
                remedy = "give each listener a port of its own: a container has one address"
                problems.append(Problem(str(topology.path), 0, place, what, remedy))
            if port < _PRIVILEGED:
                what = f"port {port} needs privileges, which the container does not have"
                problems.append(Problem(str(topology.path), 0, place, what, "choose a port from 1024 on"))
    if problems:
        raise ConfigError(problems)


class _Dumper(yaml.SafeDumper):
    """Text of several lines stays readable; a value that is there twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)
)


def dump(*documents: dict[str, Any]) -> str:
    """As YAML, keys in their order."""
    text: str = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
    return text
