"""The objects that run a network in a namespace of Kubernetes.

One StatefulSet holds all routers: the pod with ordinal n runs the file's n-th router. So a change of the image restarts
one router after another, each when the one before is ready; a set for each router would restart all at once, and the
network would forget what it knows. Pods start in parallel, because a router is not ready before it has a neighbour.

Routers find each other by the names that the headless Service gives to pods, ready or not. Nothing is stored: the state
directory is an emptyDir.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from onceway.render import STOP_GRACE_S, memory_most, memory_request
from onceway.render.placed import FILE, STATE, check_ports, dump, placed
from onceway.topology import RouterAddress, Topology

USER: Final = 10001  # the image's
DRAIN_S: Final = 30  # before the pod is stopped: clients that cannot resume get the outcomes of what they have sent
NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")  # of a Service; room for what is appended
NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_HEAD: Final = """\
# The network {network}. Apply it with: kubectl apply -f THIS-FILE
# Clients in the cluster reach it at amqp://{name}.{namespace}:{port}
# Ask for its state with: kubectl --namespace {namespace} exec {name}-0 -- onceway status {file}
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Where the objects go."""

    name: str
    namespace: str = "default"
    image: str = "onceway"
    cluster_domain: str = "cluster.local"
    monitoring: str | None = None  # the namespace of whoever reads /metrics

    @property
    def routers(self) -> str:
        """The headless Service."""
        return f"{self.name}-routers"


def kubernetes(topology: Topology, target: Target) -> str:
    check_ports(topology)
    ordinals = {name: ordinal for ordinal, name in enumerate(topology.routers)}
    # Pods of one set have the same ports: those of the first router.
    first = next(iter(topology.routers.values()))

    def place(name: str) -> RouterAddress:
        # A pod's /etc/hosts has this name, so that the router can listen before DNS knows it.
        host = f"{target.name}-{ordinals[name]}.{target.routers}.{target.namespace}.svc.{target.cluster_domain}"
        return RouterAddress({key: (host, first[key][1]) for key in ("amqp", "interrouter", "admin")})

    documents = [
        _object("v1", "ConfigMap", f"{target.name}-topology", target, data={"topology.yaml": placed(topology, place)}),
        _headless(target, first),
        _clients(target, first),
        _stateful_set(topology, target, first),
        _object(
            "policy/v1",
            "PodDisruptionBudget",
            target.name,
            target,
            spec={"maxUnavailable": 1, "selector": {"matchLabels": _selector(target)}},
        ),
        _network_policy(target, first),
    ]
    head = _HEAD.format(
        network=topology.network, name=target.name, namespace=target.namespace, port=first["amqp"][1], file=FILE
    )
    return head + dump(*documents)


def _selector(target: Target) -> dict[str, str]:
    return {"app.kubernetes.io/name": "onceway", "app.kubernetes.io/instance": target.name}


def _object(version: str, kind: str, name: str, target: Target, **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": target.namespace, "labels": _selector(target)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _ports(address: RouterAddress, *names: str) -> list[dict[str, Any]]:
    return [{"name": name, "port": address[name][1], "targetPort": name} for name in names]


def _headless(target: Target, address: RouterAddress) -> dict[str, Any]:
    spec = {
        "clusterIP": "None",
        # Routers look for each other before they are ready.
        "publishNotReadyAddresses": True,
        "selector": _selector(target),
        "ports": _ports(address, "amqp", "interrouter", "admin"),
    }
    return _object("v1", "Service", target.routers, target, spec=spec)


def _clients(target: Target, address: RouterAddress) -> dict[str, Any]:
    spec = {"selector": _selector(target), "ports": _ports(address, "amqp")}
    return _object("v1", "Service", target.name, target, spec=spec)


def _stateful_set(topology: Topology, target: Target, address: RouterAddress) -> dict[str, Any]:
    spec = {
        "serviceName": target.routers,
        "replicas": len(topology.routers),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "selector": {"matchLabels": _selector(target)},
        "template": {"metadata": {"labels": _selector(target)}, "spec": _pod(topology, target, address)},
    }
    return _object("apps/v1", "StatefulSet", target.name, target, spec=spec)


def _pod(topology: Topology, target: Target, address: RouterAddress) -> dict[str, Any]:
    def spread(key: str, weight: int) -> dict[str, Any]:
        term = {"labelSelector": {"matchLabels": _selector(target)}, "topologyKey": key}
        return {"weight": weight, "podAffinityTerm": term}

    return {
        "terminationGracePeriodSeconds": DRAIN_S + STOP_GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    spread("kubernetes.io/hostname", 100),
                    spread("topology.kubernetes.io/zone", 50),
                ]
            }
        },
        "containers": [_container(topology, target, address)],
        "volumes": [
            {"name": "topology", "configMap": {"name": f"{target.name}-topology"}},
            {"name": "state", "emptyDir": {}},
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        ],
    }


def _container(topology: Topology, target: Target, address: RouterAddress) -> dict[str, Any]:
    def probe(page: str, every_s: int, failures: int) -> dict[str, Any]:
        http = {"path": page, "port": "admin"}
        return {"httpGet": http, "periodSeconds": every_s, "timeoutSeconds": 3, "failureThreshold": failures}

    drain = f'exec onceway drain "$1" --timeout {DRAIN_S}'
    return {
        "name": "router",
        "image": target.image,
        "command": ["sh", "-c", _as_router(topology, f'exec onceway router {FILE} "$1"')],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "ports": [{"name": name, "containerPort": address[name][1]} for name in ("amqp", "interrouter", "admin")],
        # A failure of it does not matter: SIGTERM drains, too, but for a shorter time.
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _as_router(topology, drain)]}}},
        "startupProbe": probe("/healthz", 1, 60),
        "livenessProbe": probe("/healthz", 5, 3),
        "readinessProbe": probe("/readyz", 2, 1),
        "resources": {
            "requests": {"cpu": "500m", "memory": f"{memory_request(topology) >> 20}Mi"},
            "limits": {"memory": f"{memory_most(topology) >> 20}Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "topology", "mountPath": FILE.rpartition("/")[0], "readOnly": True},
            {"name": "state", "mountPath": STATE},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    }


def _as_router(topology: Topology, then: str) -> str:
    """A shell script that finds the router of this pod by its ordinal, as $1."""
    return f'set -- {" ".join(topology.routers)}; shift "${{POD_NAME##*-}}"; {then}'


def _network_policy(target: Target, address: RouterAddress) -> dict[str, Any]:
    def port(number: int, protocol: str = "TCP") -> dict[str, Any]:
        return {"protocol": protocol, "port": number}

    routers = {"podSelector": {"matchLabels": _selector(target)}}
    between, admin = port(address["interrouter"][1]), port(address["admin"][1])
    readers: list[dict[str, Any]] = [{"podSelector": {}}]  # of this namespace
    if target.monitoring is not None:
        readers.append({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": target.monitoring}}})
    spec = {
        "podSelector": {"matchLabels": _selector(target)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"ports": [port(address["amqp"][1])]},
            {"from": [routers], "ports": [between]},
            {"from": readers, "ports": [admin]},
        ],
        "egress": [
            {"to": [routers], "ports": [between, admin]},
            {"ports": [port(53, "UDP"), port(53)]},
        ],
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", target.name, target, spec=spec)
