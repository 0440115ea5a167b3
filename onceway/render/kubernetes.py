"""The objects that run a network in a namespace of Kubernetes.

One StatefulSet holds all routers: the pod with ordinal n runs the file's n-th router. So a change of the image restarts
one router after another, each when the one before is ready; a set for each router would restart all at once, and the
network would forget what it knows. Pods start in parallel, because a router is not ready before it has a neighbour.

Routers find each other by the names that the headless Service gives to pods, ready or not. They store nothing: their
state directory is an emptyDir. Each store of the file is a StatefulSet of its own, of one pod with a volume.

Files that the topology file names come from Secrets that the operator makes; the head of the text has the commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onceway.render import STOP_GRACE_S, USER, WATCHDOG_S, memory_most, memory_request
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
    exposed,
    files_of_router,
    files_of_store,
    login,
    problem,
    status_of,
    stores_in_containers,
    token_port,
    variable,
)
from onceway.topology import ConfigError, RouterAddress, Topology
from onceway.topology.listeners import BY_KEY

DRAIN_S: Final = 30  # before the pod is stopped: clients that cannot resume get the outcomes of what they have sent
NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")  # of a Service; room for what is appended
NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_HEAD: Final = """\
# The network {network}. Apply it with: kubectl apply -f THIS-FILE
# Clients in the cluster reach it at {url}
# Ask for its state with: kubectl --namespace {namespace} exec {name}-0 -- onceway status{file}
"""
_SECRETS: Final = """\
# Before it, in the directory of the topology file; and again when one of these files has changed:
"""
_STORE: Final = "onceway.store"  # the label that stores have
_TMP: Final[dict[str, Any]] = {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}}
_RESTRICTED_POD: Final[dict[str, Any]] = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
_RESTRICTED: Final[dict[str, Any]] = {
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
    "volumeMounts": [
        {"name": "topology", "mountPath": DIRECTORY, "readOnly": True},
        {"name": "state", "mountPath": STATE},
        {"name": "tmp", "mountPath": "/tmp"},
    ],
}


@dataclass(frozen=True, slots=True)
class Target:
    """Where the objects go."""

    name: str
    namespace: str = "default"
    image: str = "onceway"
    cluster_domain: str = "cluster.local"
    monitoring: str | None = None  # the namespace of whoever reads /metrics
    storage: str = "10Gi"  # of a store's volume

    @property
    def routers(self) -> str:
        """The headless Service."""
        return f"{self.name}-routers"

    @property
    def domain(self) -> str:
        """Of the Services' names."""
        return f"{self.namespace}.svc.{self.cluster_domain}"


def kubernetes(topology: Topology, target: Target) -> str:
    check_containers(topology)
    first = _same_listeners(topology)
    found = stores_in_containers(topology)
    logins = {store: login(topology, store) for store in found}
    ordinals = {name: ordinal for ordinal, name in enumerate(topology.routers)}

    def host(name: str, key: str) -> str:
        # A pod's /etc/hosts has this name, so that the router can listen before DNS knows it.
        return f"{target.name}-{ordinals[name]}.{target.routers}.{target.domain}"

    # Who is in the cluster may leave out what his own resolver adds, as Prometheus and its relabelling do.
    names = [target.name, target.routers, *(f"{target.name}-{each}.{target.routers}" for each in ordinals.values())]
    zones = ("", f".{target.namespace}", f".{target.namespace}.svc", f".{target.domain}")
    file = placed(topology, host, lambda name: _host_of_store(target, f"store-{name}"), first=next(iter(ordinals)),
                  hosts=[f"{name}{zone}" for name in names for zone in zones])  # fmt: skip
    urls = {
        store: ",".join(
            f"{each.scheme}://{host(name, each.scheme)}:{first[each.scheme][1]}" for name in topology.routers
        )
        for store, each in logins.items()
    }
    files = check_files(topology, [each for name in topology.routers for each in files_of_router(topology, name)])
    secrets = {f"{target.name}-files": files}
    secrets |= {
        f"{target.name}-{store.service}-files": check_files(topology, files_of_store(topology, store, logins[store]))
        for store in found
    }
    documents = [
        _object("v1", "ConfigMap", f"{target.name}-topology", target, data={"topology.yaml": file}),
        _headless(target, first),
        _clients(target, first),
        _stateful_set(topology, target, first, files),
        _disruption_budget(target),
        _network_policy(topology, target, first, found),
    ]
    for store in found:
        own = secrets[f"{target.name}-{store.service}-files"]
        documents += _store(topology, target, store, logins[store], urls[store], own, first)
    scheme, (_, port) = next(iter((key, at) for key, at in first.for_clients().items() if key in exposed(first)))
    head = _HEAD.format(
        network=topology.network,
        name=target.name,
        namespace=target.namespace,
        url=f"{scheme}://{target.name}.{target.namespace}:{port}",
        file=status_of(topology),
    )
    for store in found:
        text = "# {name}-{service} (onceway {kind} serve) keeps its data in a volume of {storage}.\n"
        head += text.format(name=target.name, service=store.service, kind=store.kind, storage=target.storage)
    needed = {name: each for name, each in secrets.items() if each}
    named = variable(topology)
    if needed or named:
        head += _SECRETS + "".join(f"#   {line}\n" for line in creates(target, needed, named))
    return head + dump(*documents)


def creates(target: Target, secrets: dict[str, list[File]], named: str) -> list[str]:
    """The commands that make the Secrets which the objects mount, or make them anew."""
    start = ["kubectl", "--namespace", target.namespace, "create", "secret", "generic"]
    lines = [
        shlex.join([*start, name, *(f"--from-file={each.key}={each.source}" for each in files)])
        for name, files in secrets.items()
    ]
    if named:
        lines.append(f'{shlex.join([*start, f"{target.name}-environment"])} --from-literal={named}="${named}"')
    return [f"{line} --dry-run=client --output=yaml | kubectl apply --filename -" for line in lines]


def _same_listeners(topology: Topology) -> RouterAddress:
    """Pods of one set have the same ports: those of the first router."""
    name, first = next(iter(topology.routers.items()))
    problems = []
    for other, address in topology.routers.items():
        for key in sorted(exposed(first).keys() ^ exposed(address).keys()):
            has, lacks = (other, name) if key in exposed(address) else (name, other)
            what = f"{has} has {key} for others, and {lacks} has not: pods of one StatefulSet have the same listeners"
            problems.append(problem(topology, f"routers.{other}", what, "give both the same listeners"))
    if problems:
        raise ConfigError(problems)
    return first


def _selector(target: Target, store: str = "") -> dict[str, str]:
    if store:
        return {
            "app.kubernetes.io/name": "onceway",
            "app.kubernetes.io/instance": f"{target.name}-{store}",
            _STORE: store,
        }
    return {"app.kubernetes.io/name": "onceway", "app.kubernetes.io/instance": target.name}


def _object(version: str, kind: str, name: str, target: Target, store: str = "", **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": target.namespace, "labels": _selector(target, store)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _ports(ports: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "port": port, "targetPort": name} for name, port in ports.items()]


def _headless(target: Target, address: RouterAddress) -> dict[str, Any]:
    spec = {
        "clusterIP": "None",
        # Routers look for each other before they are ready.
        "publishNotReadyAddresses": True,
        "selector": _selector(target),
        "ports": _ports(exposed(address)),
    }
    return _object("v1", "Service", target.routers, target, spec=spec)


def _clients(target: Target, address: RouterAddress) -> dict[str, Any]:
    spec = {"selector": _selector(target), "ports": _ports(clients_ports(address))}
    return _object("v1", "Service", target.name, target, spec=spec)


def _disruption_budget(target: Target) -> dict[str, Any]:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": _selector(target)}}
    return _object("policy/v1", "PodDisruptionBudget", target.name, target, spec=spec)


def _stateful_set(topology: Topology, target: Target, address: RouterAddress, files: list[File]) -> dict[str, Any]:
    spec = {
        "serviceName": target.routers,
        "replicas": len(topology.routers),
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "selector": {"matchLabels": _selector(target)},
        "template": {"metadata": {"labels": _selector(target)}, "spec": _pod(topology, target, address, files)},
    }
    return _object("apps/v1", "StatefulSet", target.name, target, spec=spec)


def _pod(topology: Topology, target: Target, address: RouterAddress, files: list[File]) -> dict[str, Any]:
    def spread(key: str, weight: int) -> dict[str, Any]:
        term = {"labelSelector": {"matchLabels": _selector(target)}, "topologyKey": key}
        return {"weight": weight, "podAffinityTerm": term}

    return {
        "terminationGracePeriodSeconds": DRAIN_S + STOP_GRACE_S,
        **_RESTRICTED_POD,
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    spread("kubernetes.io/hostname", 100),
                    spread("topology.kubernetes.io/zone", 50),
                ]
            }
        },
        "containers": [_container(topology, target, address)],
        "volumes": [_etc(target, f"{target.name}-files", files), {"name": "state", "emptyDir": {}}, _TMP],
    }


def _etc(target: Target, secret: str, files: list[File]) -> dict[str, Any]:
    """The topology file and the files that it names, as one directory: the kubelet changes what is in it when they
    change, which it does not for a subPath."""
    topology = {"name": f"{target.name}-topology", "items": [{"key": "topology.yaml", "path": "topology.yaml"}]}
    sources: list[dict[str, Any]] = [{"configMap": topology}]
    if files:
        items = [{"key": file.key, "path": file.inside} for file in files]
        sources.append({"secret": {"name": secret, "items": items}})
    # fsGroup makes them the group's, so that the user reads them and nobody else does.
    return {"name": "topology", "projected": {"defaultMode": 0o440, "sources": sources}}


def _probes(topology: Topology) -> dict[str, Any]:
    row = BY_KEY["admin"]
    profile = topology.tls.get(topology.admin.tls)

    def probe(way: dict[str, Any], every_s: int, failures: int, timeout_s: int = 3) -> dict[str, Any]:
        return {**way, "periodSeconds": every_s, "timeoutSeconds": timeout_s, "failureThreshold": failures}

    def page(path: str) -> dict[str, Any]:
        http = {"path": path, "port": "admin"}
        return {"httpGet": {**http, "scheme": "HTTPS"} if profile is not None else http}

    if profile is not None and profile.clients == "required":  # and the kubelet has no certificate
        live = {"tcpSocket": {"port": "admin"}}
        ready = probe({"exec": {"command": ["onceway", "status"]}}, 10, 1, 15)
    else:
        live, ready = page(row.live), probe(page(row.ready), 2, 1)
    # An answer is a turn that has ended, and where others take the CPU it may be late: so it has as long as a watchdog.
    alive = probe(live, 5, 3, WATCHDOG_S)
    return {"startupProbe": probe(live, 1, 60), "livenessProbe": alive, "readinessProbe": ready}


def _container(topology: Topology, target: Target, address: RouterAddress) -> dict[str, Any]:
    drain = f'exec onceway drain "$1" --timeout {DRAIN_S}'
    env: list[dict[str, Any]] = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    if named := variable(topology):
        reference = {"name": f"{target.name}-environment", "key": named}
        env.append({"name": named, "valueFrom": {"secretKeyRef": reference}})
    return {
        "name": "router",
        "image": target.image,
        "command": ["sh", "-c", _as_router(topology, f'exec onceway router {FILE} "$1"')],
        "env": env,
        "ports": [{"name": name, "containerPort": port} for name, port in exposed(address).items()],
        # A failure of it does not matter: SIGTERM drains, too, but for a shorter time.
        "lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", _as_router(topology, drain)]}}},
        **_probes(topology),
        "resources": {
            "requests": {"cpu": "500m", "memory": f"{memory_request(topology) >> 20}Mi"},
            "limits": {"memory": f"{memory_most(topology) >> 20}Mi"},
        },
        **_RESTRICTED,
    }


def _as_router(topology: Topology, then: str) -> str:
    """A shell script that finds the router of this pod by its ordinal, as $1."""
    return f'set -- {" ".join(topology.routers)}; shift "${{POD_NAME##*-}}"; {then}'


def _port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"protocol": protocol, "port": number}


def _readers(target: Target) -> list[dict[str, Any]]:
    readers: list[dict[str, Any]] = [{"podSelector": {}}]  # of this namespace
    if target.monitoring is not None:
        readers.append({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": target.monitoring}}})
    return readers


_DNS: Final[dict[str, Any]] = {"ports": [_port(53, "UDP"), _port(53)]}


def _network_policy(topology: Topology, target: Target, address: RouterAddress, found: list[Store]) -> dict[str, Any]:
    routers = {"podSelector": {"matchLabels": _selector(target)}}
    ports = exposed(address)
    by_reach: dict[str, list[dict[str, Any]]] = {}
    for key, number in ports.items():
        by_reach.setdefault(BY_KEY[key].reach, []).append(_port(number))
    between = [*by_reach["neighbours"], *by_reach["operators"]]
    egress: list[dict[str, Any]] = [{"to": [routers], "ports": between}, _DNS]
    metrics = [_port(store.ports[name]) for store in found for name in store.ports]
    if metrics:  # `onceway status` in a pod asks them
        pods = [{"podSelector": {"matchLabels": _selector(target, store.service)}} for store in found if store.ports]
        egress.append({"to": pods, "ports": metrics})
    if (asked := token_port(topology)) is not None:
        egress.append({"ports": [_port(asked)]})
    spec = {
        "podSelector": {"matchLabels": _selector(target)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"ports": by_reach["clients"]},
            {"from": [routers], "ports": by_reach["neighbours"]},
            {"from": _readers(target), "ports": by_reach["operators"]},
        ],
        "egress": egress,
    }
    return _object("networking.k8s.io/v1", "NetworkPolicy", target.name, target, spec=spec)


# --- stores -------------------------------------------------------------------------------------------------------


def _host_of_store(target: Target, service: str) -> str:
    return f"{target.name}-{service}-0.{target.name}-{service}.{target.domain}"


def _store(
    topology: Topology, target: Target, store: Store, log: Login, urls: str, files: list[File], address: RouterAddress
) -> list[dict[str, Any]]:
    """A StatefulSet of one pod with a volume, the Service that gives the pod its name, and who reaches it."""
    name, labels = f"{target.name}-{store.service}", _selector(target, store.service)
    variables = {"ONCEWAY_URL": urls, **log.environment}
    container: dict[str, Any] = {
        "name": "store",
        "image": target.image,
        "command": ["onceway", *store.in_container, *log.options],
        "env": [{"name": key, "value": value} for key, value in variables.items()],
        **_RESTRICTED,
    }
    if store.ports:
        container["ports"] = [{"name": key, "containerPort": port} for key, port in store.ports.items()]
        container["readinessProbe"] = {"tcpSocket": {"port": "store"}, "periodSeconds": 10}
    pod = {
        "terminationGracePeriodSeconds": STOP_GRACE_S,
        **_RESTRICTED_POD,
        "containers": [container],
        "volumes": [_etc(target, f"{name}-files", files), _TMP],
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": target.storage}}}
    stateful = {
        "serviceName": name,
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
        "volumeClaimTemplates": [{"metadata": {"name": "state"}, "spec": claim}],
    }
    # Stores read from each other what one of them has missed.
    others = [_port(each.port) for each in stores_in_containers(topology) if each.port is not None]
    stored = {"podSelector": {"matchExpressions": [{"key": _STORE, "operator": "Exists"}]}}
    routers = {"podSelector": {"matchLabels": _selector(target)}}
    policy: dict[str, Any] = {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [_port(store.port)]}] if store.port is not None else [],
        "egress": [{"to": [routers], "ports": [_port(address[log.scheme][1])]}, _DNS],
    }
    if store.metrics is not None:
        policy["ingress"].append({"from": _readers(target), "ports": [_port(store.metrics)]})
    if others:
        policy["egress"].append({"to": [stored], "ports": others})
    if (asked := token_port(topology)) is not None:
        policy["egress"].append({"ports": [_port(asked)]})
    spec = {"clusterIP": "None", "selector": labels, **({"ports": _ports(store.ports)} if store.ports else {})}
    return [
        _object("v1", "Service", name, target, store.service, spec=spec),
        _object("apps/v1", "StatefulSet", name, target, store.service, spec=stateful),
        _object("networking.k8s.io/v1", "NetworkPolicy", name, target, store.service, spec=policy),
    ]
