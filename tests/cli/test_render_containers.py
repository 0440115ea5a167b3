"""`onceway render compose` and `kubernetes`: documents that their schemas allow, around a topology that can be run."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from onceway.render.kubernetes import DRAIN_S
from onceway.render.placed import FILE
from onceway.topology import RouterAddress, Topology, load, loads, shipped
from tests.cli.conftest import onceway

TRIANGLE = shipped("triangle")
SHIPPED = ["single", "triangle", "mesh5"]
THREE_HOSTS = """\
# a file for three hosts
network: Three.Hosts
defaults: {host: 10.0.0.1}
settings: {memory_limit: 64MiB}
addresses:
  - {match: "price $$ {x}"}
routers:
  no: {amqp: 5672, interrouter: 7671, admin: "127.0.0.1:8671", limits: {connections: 7}}
  b: {host: 10.0.0.2, amqp: 5672, interrouter: 7671, admin: 8671}
  c: {host: 10.0.0.3, amqp: 5672, interrouter: 7671, admin: 8671}
links: [no - b, {between: [b, c], cost: 2}]
trunks: {tls: off}
"""


def rendered(kind: str, *arguments: object) -> str:
    done = onceway("render", kind, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(kind: str, *arguments: object) -> str:
    done = onceway("render", kind, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    return done.stderr


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "n.yaml"
    path.write_text(text)
    return path


@cache
def compose_schema() -> Any:
    pytest.importorskip("check_jsonschema", reason="needs onceway[check]")
    return json.loads((files("check_jsonschema") / "builtin_schemas" / "vendor" / "compose-spec.json").read_bytes())


def check_compose(text: str) -> Any:
    """The document, which the Compose specification's own schema allows."""
    schema = compose_schema()
    jsonschema = pytest.importorskip("jsonschema", reason="needs onceway[check]")
    document = yaml.safe_load(text)
    jsonschema.validate(document, schema)
    return document


def check_kubernetes(text: str) -> dict[str, Any]:
    """The objects by kind, and by kind and name; the schemas of an old and of the latest Kubernetes allow each."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="needs onceway[check]")
    found = {}
    for item in yaml.safe_load_all(text):
        for version in ("1.28", kubernetes_validate.latest_version()):
            kubernetes_validate.validate(item, version, strict=True)
        found[item["kind"]] = found[f"{item['kind']} {item['metadata']['name']}"] = item
    return found


def without_places(topology: Topology) -> Any:
    """All of a topology but where its routers listen."""
    return topology.network, list(topology.routers), topology.links, topology.settings, topology.limits


# --- the checks themselves ----------------------------------------------------------------------------------------


def test_the_schemas_refuse_what_is_wrong() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs onceway[check]")
    wrong = rendered("compose", TRIANGLE).replace("stop_grace_period", "stop_graceperiod")
    with pytest.raises(jsonschema.ValidationError):
        check_compose(wrong)
    objects = rendered("kubernetes", TRIANGLE)
    for right, not_right in (("podManagementPolicy", "podManagement"), ("replicas: 3", "replicas: three")):
        with pytest.raises(jsonschema.ValidationError):
            check_kubernetes(objects.replace(right, not_right))


# --- compose ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_the_schema_of_compose_allows_the_file(name: str) -> None:
    document = check_compose(rendered("compose", shipped(name)))
    assert list(document["services"]) == list(load(shipped(name)).routers)


def test_routers_in_compose_reach_each_other_by_name_in_a_network_of_their_own() -> None:
    document = yaml.safe_load(rendered("compose", TRIANGLE))
    inside = loads(document["configs"]["topology"]["content"])
    assert without_places(inside) == without_places(load(TRIANGLE))
    assert inside.routers["b"] == RouterAddress(
        {"amqp": ("b", 5673), "interrouter": ("b.routers", 7672), "admin": ("b.routers", 8672)}
    )
    assert document["networks"]["routers"]["internal"] is True
    service = document["services"]["b"]
    assert service["command"] == ["router", FILE, "b"]
    assert service["networks"]["routers"]["aliases"] == ["b.routers"]
    published = {(port["target"], port["published"], port["host_ip"]) for port in service["ports"]}
    assert published == {(5673, "5673", "127.0.0.1")}


def test_compose_takes_an_image_an_address_or_no_ports(tmp_path: Path) -> None:
    image = "registry.example:5000/mq/onceway@sha256:0123"
    there = yaml.safe_load(rendered("compose", TRIANGLE, "--image", image, "--publish", "::"))["services"]["a"]
    assert there["image"] == image
    assert there["ports"][0]["host_ip"] == "::"
    path = written(tmp_path, THREE_HOSTS)
    document = check_compose(rendered("compose", path, "--no-publish"))
    assert all("ports" not in service for service in document["services"].values())
    inside = loads(document["configs"]["topology"]["content"].replace("$$", "$"))
    assert without_places(inside) == without_places(load(path))
    assert document["services"]["no"]["ulimits"]["nofile"]["soft"] < 4096


def test_one_docker_host_cannot_publish_a_port_twice(tmp_path: Path) -> None:
    path = written(tmp_path, THREE_HOSTS)
    said = refused("compose", path).splitlines()
    assert said[0] == (
        f"{path}: routers.b.amqp: port 5672 is that of router no, and one Docker host would publish both; "
        "give each amqp listener a port of its own, or publish none (--no-publish)"
    )
    assert len(said) == 2


# --- Kubernetes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_the_schemas_of_kubernetes_allow_the_objects(name: str) -> None:
    found = check_kubernetes(rendered("kubernetes", shipped(name), "--monitoring-namespace", "monitoring"))
    assert found["StatefulSet"]["spec"]["replicas"] == len(load(shipped(name)).routers)


def test_pods_reach_each_other_by_the_names_of_the_headless_service(tmp_path: Path) -> None:
    path = written(tmp_path, THREE_HOSTS)
    found = check_kubernetes(rendered("kubernetes", path, "--name", "mq", "-n", "prod", "--cluster-domain", "k8s.lan"))
    inside = loads(found["ConfigMap"]["data"]["topology.yaml"])
    assert without_places(inside) == without_places(load(path))
    host = "mq-1.mq-routers.prod.svc.k8s.lan"
    assert inside.routers["b"] == RouterAddress(
        {"amqp": (host, 5672), "interrouter": (host, 7671), "admin": (host, 8671)}
    )
    headless = found["Service mq-routers"]["spec"]
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)
    assert found["StatefulSet"]["spec"]["serviceName"] == "mq-routers"
    assert {item["metadata"]["namespace"] for item in found.values()} == {"prod"}


@pytest.mark.parametrize(("pod", "router"), [("mq-0", "no"), ("mq-1", "b"), ("mq-2", "c")])
def test_a_pod_runs_the_router_of_its_ordinal(tmp_path: Path, pod: str, router: str) -> None:
    found = check_kubernetes(rendered("kubernetes", written(tmp_path, THREE_HOSTS), "--name", "mq"))
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    stand_in = tmp_path / "onceway"
    stand_in.write_text('#!/bin/sh\necho "$@"\n')
    stand_in.chmod(0o755)

    def does(command: list[str]) -> str:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "POD_NAME": pod}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert does(container["command"]) == f"router {FILE} {router}\n"
    assert does(container["lifecycle"]["preStop"]["exec"]["command"]) == f"drain {router} --timeout {DRAIN_S}\n"


def test_pods_are_probed_on_the_admin_port_and_get_memory_by_memory_limit(tmp_path: Path) -> None:
    found = check_kubernetes(rendered("kubernetes", written(tmp_path, THREE_HOSTS), "--name", "mq"))
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    pages = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert pages == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
    assert {"name": "admin", "containerPort": 8671} in container["ports"]
    assert container["resources"]["requests"]["memory"] == "192Mi"
    assert container["resources"]["limits"]["memory"] == "416Mi"


def test_only_routers_reach_the_port_between_routers() -> None:
    found = check_kubernetes(rendered("kubernetes", TRIANGLE, "--monitoring-namespace", "watch"))
    spec = found["NetworkPolicy"]["spec"]
    ingress = {rule["ports"][0]["port"]: rule.get("from") for rule in spec["ingress"]}
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert ingress == {
        5672: None,
        7671: [{"podSelector": {"matchLabels": labels}}],
        8671: [
            {"podSelector": {}},
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "watch"}}},
        ],
    }
    assert spec["podSelector"]["matchLabels"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


# --- both ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("routers: {}", "routers: there are no routers"),
        (
            "routers: {a: {amqp: 5672, interrouter: '10.0.0.1:5672', admin: 443}}",
            "routers.a: amqp and interrouter have port 5672; give each listener a port of its own: "
            "a container has one address\n"
            "{path}: routers.a: port 443 needs privileges, which the container does not have; "
            "choose a port from 1024 on\n",
        ),
        (
            "links: [{between: [a, b], via: 'h:1'}]\nrouters:\n  a: {amqp: 5672, interrouter: 7671, admin: 8671}\n"
            "  b: {amqp: 5673, interrouter: 7672, admin: 8672}",
            "links: a - b goes via h:1, which containers cannot be sure to reach; "
            "leave via out: containers reach each other by name\n",
        ),
        ("routers: {a: {amqp: 5672, interrouter: 7671, admin: 0}}", '"0" is no port; ports are 1 to 65535'),
    ],
    ids=["none", "ports", "via", "port 0"],
)
def test_a_file_that_containers_cannot_run_is_refused(tmp_path: Path, kind: str, text: str, said: str) -> None:
    path = written(tmp_path, f"network: n\n{text}\n")
    assert said.replace("{path}", str(path)) in refused(kind, path)


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
def test_the_number_of_pods_is_the_number_of_routers(kind: str) -> None:
    said = refused(kind, TRIANGLE, "--replicas", "3")
    assert "each router has a name and links of its own, so the file says how many there are" in " ".join(said.split())


@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        ("compose", ["--image", "a b"], '"a b" is no image'),
        ("compose", ["--publish", "here"], '"here" is no IP address; write for example 0.0.0.0'),
        ("kubernetes", ["--namespace", "A"], '"A" is no name of a namespace; use a-z, 0-9 and -'),
        ("kubernetes", ["--cluster-domain", "a b"], '"a b" is no domain'),
        ("kubernetes", ["--name", "1st"], '"1st" is no name of a Service of Kubernetes; give another with --name'),
    ],
)
def test_bad_options_are_named(kind: str, arguments: list[str], said: str) -> None:
    assert said in " ".join(refused(kind, TRIANGLE, *arguments).split())


@pytest.mark.parametrize(("kind", "name"), [("compose", "compose.yaml"), ("kubernetes", "kubernetes.yaml")])
def test_output_is_a_file(tmp_path: Path, kind: str, name: str) -> None:
    assert rendered(kind, TRIANGLE, "--output", tmp_path) == f"{tmp_path / name}\n"
    assert (tmp_path / name).read_text() == rendered(kind, TRIANGLE)


def test_the_topology_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(TRIANGLE.read_text())
    said = " ".join(refused("compose", path, "--output", tmp_path).split())
    assert "is the topology file itself; give another directory" in said
    assert path.read_text() == TRIANGLE.read_text()
