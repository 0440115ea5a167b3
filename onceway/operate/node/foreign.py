"""The names by which the tools of skupper-router and Qpid Dispatch ask: `skstat`, `skmanage`, `qdstat`, `qdmanage`.

Each of their types stands for one of ours. An attribute is one of ours, a function of our entity, or in `Fixed` what
holds for every Onceway router. What has no counterpart here is left out, or None where a tool insists on it; types
without a counterpart have no entities. docs/management.md has the table for readers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Final, NamedTuple

from onceway.operate.node.entities import Entity
from onceway.topology.listeners import SECURE

PREFIXES: Final = ("io.skupper.router.", "org.apache.qpid.dispatch.")


class Fixed(NamedTuple):
    """What holds for every router."""

    value: Any


Attribute = str | Fixed | Callable[[Entity], Any]


class Foreign(NamedTuple):
    """One of their types. `ours`: the type of ours that it stands for; empty: there are no entities."""

    ours: str
    attributes: Mapping[str, Attribute] = {}


def _owner(address: str) -> str:
    """With the letter that says what kind it is: `M` of clients, `L` of a dynamic node."""
    return f"{'L' if address.startswith('_dynamic/') else 'M'}{address}"


_NOTHING: Final = Fixed(None)
_ZERO: Final = Fixed(0)
_ROUTER: Final[Mapping[str, Attribute]] = {
    "id": "name",
    "name": "name",
    "mode": Fixed("interior"),
    "area": Fixed("0"),
    "version": lambda entity: f"onceway {version('onceway')}",
    "hostName": "name",
    "metadata": lambda entity: f"network {entity['network']}, {entity['state']}",
    "uptimeSeconds": lambda entity: int(entity["uptime_s"]),
    "connectionCount": "connections",
    "linkCount": lambda entity: entity["publishers"] + entity["subscribers"],
    "addrCount": "addresses_known",
    "nodeCount": lambda entity: len(entity["routers"]),
    "autoLinkCount": _ZERO,
    "linkRouteCount": _ZERO,
    "deliveriesIngress": "received",
    "deliveriesEgress": "delivered",
    "acceptedDeliveries": "accepted",
    "rejectedDeliveries": "rejected",
    "releasedDeliveries": "released",
    "defaultDistribution": Fixed("multicast"),
    **dict.fromkeys(
        (
            "helloIntervalSeconds", "helloMaxAgeSeconds", "raIntervalSeconds", "raIntervalFluxSeconds",
            "remoteLsMaxAgeSeconds", "debugDumpFile", "saslConfigDir", "saslConfigName", "timestampFormat",
            "dataConnectionCount", "workerThreads", "memoryUsage", "residentMemoryUsage",
        ),
        _NOTHING,
    ),
    "timestampsInUTC": Fixed(True),
}  # fmt: skip

TYPES: Final[Mapping[str, Foreign]] = {
    "router": Foreign("router", _ROUTER),
    "routerMetrics": Foreign("router", _ROUTER),
    "network": Foreign("router", {"networkId": "network", "tenantId": _NOTHING}),
    "listener": Foreign("listener", {"host": "host", "port": lambda entity: str(entity["port"]), "role": "scheme"}),
    "policy": Foreign(
        "router",
        {
            "maxConnections": "most_connections",
            "enableVhostPolicy": Fixed(False),
            "enableVhostNamePatterns": Fixed(False),
            "policyDir": Fixed(""),
            "defaultVhost": Fixed(""),
            "connectionsProcessed": _NOTHING,
            "connectionsDenied": lambda entity: entity["refused"].get("connections", 0),
            "connectionsCurrent": "connections",
            "linksDenied": lambda entity: entity["refused"].get("policies", 0),
            "totalDenials": lambda entity: sum(entity["refused"].values()),
        },
    ),
    "connector": Foreign(
        "neighbour",
        {
            "host": "host",
            "port": lambda entity: str(entity["port"]),
            "role": Fixed("inter-router"),
            "cost": "cost",
            "connectionStatus": lambda entity: "SUCCESS" if entity["up"] else "CONNECTING",
            "connectionMsg": "failure",
        },
    ),
    "connection": Foreign(
        "connection",
        {
            "host": "client",
            "container": "container",
            "role": Fixed("normal"),
            "protocol": "protocol",
            "dir": Fixed("in"),
            "isAuthenticated": lambda entity: entity["user"] != "anonymous",
            "user": "user",
            "sasl": lambda entity: "ANONYMOUS" if entity["user"] == "anonymous" else "",
            "isEncrypted": lambda entity: entity["scheme"] in SECURE,
            "sslProto": Fixed("TLS"),
            "sslCipher": _NOTHING,
            "ssl": lambda entity: entity["scheme"] in SECURE,
            "tenant": _NOTHING,
            "opened": Fixed(True),
            "active": Fixed(True),
            "adminStatus": Fixed("enabled"),
            "operStatus": Fixed("up"),
            "properties": "properties",
        },
    ),
    "router.link": Foreign(
        "link",
        {
            "linkType": Fixed("endpoint"),
            "linkDir": lambda entity: "in" if entity["role"] == "sender" else "out",
            "connectionId": "connection",
            "peer": _NOTHING,
            "linkName": "link",
            "owningAddr": lambda entity: _owner(entity["address"]),
            "capacity": "credit",
            "deliveryCount": "delivery_count",
            "unsettledCount": "under_way",
            **dict.fromkeys(
                (
                    "undeliveredCount", "presettledCount", "acceptedCount", "rejectedCount", "releasedCount",
                    "modifiedCount",
                ),
                _NOTHING,
            ),
            "adminStatus": Fixed("enabled"),
            "operStatus": Fixed("up"),
        },
    ),
    "router.node": Foreign(
        "node",
        {
            "id": "name",
            "nextHop": "next",
            "cost": "cost",
            "routerLink": _NOTHING,
            "protocolVersion": _NOTHING,
            "linkState": Fixed([]),
            "validOrigins": Fixed([]),
            "lastTopoChange": _NOTHING,
        },
    ),
    "router.address": Foreign(
        "address",
        {
            "name": lambda entity: _owner(entity["name"]),
            "key": lambda entity: _owner(entity["name"]),
            "distribution": lambda entity: "balanced" if entity["kind"] == "queue" else "multicast",
            "subscriberCount": "subscribers",
            "remoteCount": lambda entity: entity["subscriptions"] - entity["subscribers"],
            "deliveriesIngress": "received",
            "deliveriesEgress": "delivered",
            "deliveriesTransit": _NOTHING,
            # the router itself subscribes to nothing and publishes nothing
            **dict.fromkeys(("inProcess", "deliveriesToContainer", "deliveriesFromContainer"), Fixed(0)),
            "watch": Fixed(False),
        },
    ),
}  # fmt: skip
NONE: Final = (
    "allocator",
    "vhost",
    "vhostStats",
    "router.config.autoLink",
    "router.config.linkRoute",
    "router.config.address",
)
"""Their types of which we have no entities."""
