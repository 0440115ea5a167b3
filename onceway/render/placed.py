"""A topology file for containers: the same file with other places, because containers have names of their own.

The document is edited as YAML nodes, so that everything else in it stays as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import yaml

from onceway.render.plan import exposed, inside, problem
from onceway.topology import ConfigError, HostPort, Topology, format_host_port
from onceway.topology.document import Problems, compose
from onceway.topology.listeners import BY_KEY
from onceway.topology.named import named

_MAPPING: Final = "tag:yaml.org,2002:map"
_LIST: Final = "tag:yaml.org,2002:seq"


def placed(
    topology: Topology,
    host: Callable[[str, str], str],
    store_host: Callable[[str], str],
    *,
    first: str | None = None,
    hosts: Sequence[str] = (),
) -> str:
    """The text of the topology's file, as the containers read it.

    Args:
        host: Of a router's listener, by the names of both. What stays in the container is at its loopback address.
        store_host: Of a store of pipes, by its name.
        first: The router whose ports all have where others reach them; None: each has its own.
        hosts: By which clients reach routers beside those of `host`.

    Raises:
        ConfigError: The file says something that containers cannot do.
    """
    _check_links(topology)
    document = compose(topology.text, Problems(""))
    assert document is not None  # it has been read before
    root = document.node
    assert isinstance(root, yaml.MappingNode)
    for node in {id(each.node): each.node for each in named(root)}.values():
        node.value = inside(node.value)
    entries: list[tuple[yaml.ScalarNode, yaml.Node]] = []
    for key, value in root.value:
        if key.value == "defaults":  # the host of ports that name none: all name one now
            continue
        if key.value == "routers":
            routers = [(name, _router(topology, name.value, node, host, first)) for name, node in value.value]
            value = yaml.MappingNode(value.tag, routers, flow_style=False)
        if key.value == "addresses":
            for address in value.value:
                _place_stores(address, store_host)
        if key.value == "hostnames":  # clients come by other names
            own = [host(name, row) for name, at in topology.routers.items() for row in at.for_clients()]
            others = [name for name in dict.fromkeys((*own, *hosts)) if name not in topology.settings.hostnames]
            value.value += map(_text, others)
        if key.value == "http_hosts":  # written anew
            continue
        entries.append((key, value))
    if asked := dict.fromkeys((*topology.http_hosts, *hosts)):
        names = yaml.SequenceNode(_LIST, [_text(name) for name in asked], flow_style=True)
        entries.append((_text("http_hosts"), names))
    if topology.trunk_tls is None:  # the network of the containers lets nobody else reach the port
        entries.append((_text("trunks"), yaml.MappingNode(_MAPPING, [(_text("tls"), _text("off"))], flow_style=True)))
    root.value = entries
    text: str = yaml.serialize(root, Dumper=yaml.SafeDumper, width=120, allow_unicode=True)
    return text


def _router(
    topology: Topology, name: str, node: yaml.MappingNode, host: Callable[[str, str], str], first: str | None
) -> yaml.MappingNode:
    address = topology.routers[name]
    seen = exposed(topology.routers[first or name])
    places = {
        key: (host(name, key), seen[key]) if key in seen else ("127.0.0.1", port)
        for key, (_, port) in address.listeners.items()
    }
    kept = [(key, value) for key, value in node.value if key.value not in (*BY_KEY, "host")]
    hosts = {host for host, _ in places.values()}
    if len(hosts) == 1:
        listeners = [
            (_text("host"), _text(*hosts)),
            *((_text(key), _number(port)) for key, (_, port) in places.items()),
        ]
    else:
        listeners = [(_text(key), _text(format_host_port(place))) for key, place in places.items()]
    return yaml.MappingNode(node.tag, [*listeners, *kept], flow_style=True)


def _place_stores(address: yaml.MappingNode, store_host: Callable[[str], str]) -> None:
    """Stores are where their containers are, and keep their data in a volume there."""
    address.value = [(key, value) for key, value in address.value if key.value != "store_data"]
    for key, places in address.value:
        if key.value in ("stores", "store_metrics"):
            for i, (name, place) in enumerate(places.value):
                at: HostPort = (store_host(name.value), int(place.value.rpartition(":")[2]))
                places.value[i] = (name, _text(format_host_port(at)))


def _text(value: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", value)


def _number(value: int) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:int", str(value))


def _check_links(topology: Topology) -> None:
    problems = []
    for pair, place in topology.via.items():
        one, other = sorted(pair)
        what = f"{one} - {other} goes via {format_host_port(place)}, which containers cannot be sure to reach"
        remedy = "leave via out: containers reach each other by name"
        problems.append(problem(topology, "links", what, remedy))
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
