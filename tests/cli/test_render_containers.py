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

from onceway.base.hosts import is_own
from onceway.render.kubernetes import DRAIN_S
from onceway.render.plan import DIRECTORY, FILE
from onceway.topology import RouterAddress, Topology, load, loads, shipped
from tests.cli.conftest import called

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
    done = called("render", kind, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(kind: str, *arguments: object) -> str:
    done = called("render", kind, *arguments)
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


def test_a_name_of_the_docker_host_is_one_option_and_the_file_says_so(tmp_path: Path) -> None:
    file = tmp_path / "net.yaml"
    file.write_text(
        "network: n\nrouters:\n  a: {host: 10.0.0.1, amqp: 5672, ws: 8080, interrouter: 7671, admin: 8671}\n"
    )
    _, nameless = composed(tmp_path, file)
    assert not nameless.http_hosts
    assert "--host NAME" in rendered("compose", file)
    _, named = composed(tmp_path, file, "--host", "MQ.example.org", "--host", "mq")
    assert named.http_hosts == ("mq.example.org", "mq")
    assert is_own(["mq.example.org:8080"], named.http_hosts)
    assert "--host NAME" not in rendered("compose", file, "--host", "mq")
    assert "write for example mq.example.org" in refused("compose", file, "--host", "http://mq")


def composed(tmp_path: Path, *arguments: object) -> tuple[Any, Topology]:
    """The Compose file, and what each service mounts: the same topology."""
    written = [Path(line) for line in rendered("compose", *arguments, "--output", tmp_path / "out").split()]
    document = check_compose(written[0].read_text())
    assert [path.parent for path in written[1:]] == [
        tmp_path / "out" / "network" / each for each in document["services"]
    ]
    (text,) = {path.read_text() for path in written[1:]}
    for name, service in document["services"].items():
        assert {"type": "bind", "source": f"./network/{name}", "target": DIRECTORY, "read_only": True} in service[
            "volumes"
        ]
    return document, loads(text)


def test_routers_in_compose_reach_each_other_by_name_in_a_network_of_their_own(tmp_path: Path) -> None:
    document, inside = composed(tmp_path, TRIANGLE)
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
    document, inside = composed(tmp_path, path, "--no-publish")
    assert all("ports" not in service for service in document["services"].values())
    assert without_places(inside) == without_places(load(path))
    assert document["services"]["no"]["ulimits"]["nofile"]["soft"] < 4096


def test_docker_chooses_the_port_that_another_service_has(tmp_path: Path) -> None:
    text = rendered("compose", written(tmp_path, THREE_HOSTS))
    assert "# Docker chooses a port for 5672 of b, which another has: docker compose port b 5672\n" in text
    ports = [service["ports"] for service in check_compose(text)["services"].values()]
    assert [[port.get("published") for port in each] for each in ports] == [["5672"], [None], [None]]


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


# --- every listener, file and store -------------------------------------------------------------------------------

EVERYTHING = """\
network: shop
tls:
  routers: {certificate: "pki/${router}.pem", ca: /srv/pki/ca.pem}
  clients: {certificate: "pki/${router}.pem", ca: pki/ca.pem, names: {x.example: {certificate: ../x.pem}}}
  unused: {certificate: nowhere.pem}
trunks: {tls: routers, key: $NETWORK_KEY}
hostnames: [mq.example]
sasl: {users: users.json, tokens: {keys: "https://id.example:8443/jwks", issuer: i, audience: o}}
admin: {tls: clients, groups: [ops]}
mqtt: {topics: {"#": telemetry}, retained: {address: kept, stores: [r], user: store}}
addresses:
  - {match: telemetry, no_subscribers: accept}
  - {match: jobs, type: pipe, user: store, stores: {s: "s.example:5981", t: "t.example:5982"}, store_tls: clients,
     store_metrics: {s: "s.example:9981"}, store_data: {s: /srv/s}}
routers:
  a: {host: 10.0.0.1, amqp: "127.0.0.1:5672", amqps: 5671, ws: "127.0.0.1:8080", wss: 8443, mqtt: "127.0.0.1:1883",
      mqtts: 8883, tls: clients, interrouter: 7671, admin: 8671}
  b: {host: 10.0.0.2, amqp: "127.0.0.1:6672", amqps: 5671, ws: "127.0.0.1:6080", wss: 8443, mqtt: "127.0.0.1:2883",
      mqtts: 8883, tls: clients, interrouter: 7671, admin: 8671}
links: [a - b]
"""
OTHERS = {"amqps": 5671, "wss": 8443, "mqtts": 8883}


def test_what_the_file_keeps_at_its_own_machine_is_not_reached_in_kubernetes(tmp_path: Path) -> None:
    found = check_kubernetes(rendered("kubernetes", written(tmp_path, EVERYTHING)))
    inside = loads(found["ConfigMap"]["data"]["topology.yaml"])
    assert {key: inside.routers["b"][key][0] for key in ("amqp", "ws", "mqtt")} == dict.fromkeys(
        ("amqp", "ws", "mqtt"), "127.0.0.1"
    )
    (container,) = found["StatefulSet shop"]["spec"]["template"]["spec"]["containers"]
    reached = {**OTHERS, "interrouter": 7671, "admin": 8671}
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == reached
    assert {port["name"]: port["port"] for port in found["Service shop-routers"]["spec"]["ports"]} == reached
    assert {port["name"]: port["port"] for port in found["Service shop"]["spec"]["ports"]} == OTHERS
    everybody, *_ = found["NetworkPolicy shop"]["spec"]["ingress"]
    assert everybody == {"ports": [{"protocol": "TCP", "port": port} for port in OTHERS.values()]}
    assert {"ports": [{"protocol": "TCP", "port": 8443}]} in found["NetworkPolicy shop"]["spec"]["egress"]  # the JWKS
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "admin", "scheme": "HTTPS"}


def test_every_file_is_a_key_of_a_secret_and_each_container_has_what_it_reads(tmp_path: Path) -> None:
    text = rendered("kubernetes", written(tmp_path, EVERYTHING))
    found = check_kubernetes(text)
    made = {
        line.split()[7]: dict(word.removeprefix("--from-file=").split("=") for word in line.split() if "-file=" in word)
        for line in text.splitlines()
        if line.startswith("#   kubectl")
    }
    shared = {"srv.pki.ca.pem": "/srv/pki/ca.pem", "users.json": "users.json"}
    of_clients = {"pki.ca.pem": "pki/ca.pem", "x.pem": "../x.pem"}
    assert made == {
        "shop-files": {**shared, **of_clients, "pki.a.pem": "pki/a.pem", "pki.b.pem": "pki/b.pem"},
        "shop-store-s-files": {
            "users.json": "users.json",
            **of_clients,
            "pki.s.pem": "pki/s.pem",
            "password": "store.password",
        },
        "shop-store-t-files": {
            "users.json": "users.json",
            **of_clients,
            "pki.t.pem": "pki/t.pem",
            "password": "store.password",
        },
        "shop-retained-r-files": {"pki.ca.pem": "pki/ca.pem", "password": "store.password"},
        "shop-environment": {},
    }
    for name in ("shop", "shop-store-s", "shop-retained-r"):
        pod = found[f"StatefulSet {name}"]["spec"]["template"]["spec"]
        (etc,) = [volume["projected"] for volume in pod["volumes"] if volume["name"] == "topology"]
        secret = etc["sources"][1]["secret"]
        assert {item["key"] for item in secret["items"]} == made[secret["name"]].keys()
        assert etc["defaultMode"] == 0o440
        assert not any("subPath" in mount for mount in pod["containers"][0]["volumeMounts"])
    inside = loads(found["ConfigMap"]["data"]["topology.yaml"], directory=DIRECTORY)
    pods = [f"shop-{i}.shop-routers.default.svc.cluster.local" for i in range(2)]
    zones = ("", ".default", ".default.svc", ".default.svc.cluster.local")
    names = [f"{name}{zone}" for name in ("shop", "shop-routers", "shop-0.shop-routers") for zone in zones]
    assert set(inside.http_hosts) >= {*names, *pods}
    assert {"mq.example", *names, *pods} <= set(inside.settings.hostnames)
    profile = inside.tls_profile("clients", "a")
    assert (str(profile.certificate), str(profile.ca)) == (
        f"{DIRECTORY}/files/pki/a.pem",
        f"{DIRECTORY}/files/pki/ca.pem",
    )
    (variable,) = [each for each in _container(found, "shop")["env"] if each["name"] == "NETWORK_KEY"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "shop-environment", "key": "NETWORK_KEY"}}


def _container(found: dict[str, Any], name: str) -> Any:
    return found[f"StatefulSet {name}"]["spec"]["template"]["spec"]["containers"][0]


def test_a_file_that_is_named_by_an_anchor_is_one_file(tmp_path: Path) -> None:
    text = EVERYTHING.replace("ca: /srv/pki/ca.pem", "ca: &ca pki/ca.pem").replace("ca: pki/ca.pem", "ca: *ca")
    found = check_kubernetes(rendered("kubernetes", written(tmp_path, text)))
    inside = loads(found["ConfigMap"]["data"]["topology.yaml"])
    assert [str(inside.tls[name].ca) for name in ("routers", "clients")] == ["files/pki/ca.pem"] * 2


def test_a_store_has_a_volume_a_name_and_a_login(tmp_path: Path) -> None:
    found = check_kubernetes(rendered("kubernetes", written(tmp_path, EVERYTHING), "--storage", "5Gi"))
    store = found["StatefulSet shop-store-s"]["spec"]
    (claim,) = store["volumeClaimTemplates"]
    assert claim["spec"]["resources"] == {"requests": {"storage": "5Gi"}}
    command = ["onceway", "pipe", "serve", FILE, "--store", "s", "--data", "/var/lib/onceway/s"]
    assert _container(found, "shop-store-s")["command"] == command
    variables = {each["name"]: each["value"] for each in _container(found, "shop-store-s")["env"]}
    urls = [f"amqps://shop-{i}.shop-routers.default.svc.cluster.local:5671" for i in range(2)]
    assert variables == {
        "ONCEWAY_URL": ",".join(urls),
        "ONCEWAY_CA": f"{DIRECTORY}/files/pki/ca.pem",
        "ONCEWAY_USER": "store",
        "ONCEWAY_PASSWORD_FILE": f"{DIRECTORY}/files/password",
    }
    inside = loads(found["ConfigMap"]["data"]["topology.yaml"])
    pipe = inside.pipes["jobs"]
    host = "shop-store-s-0.shop-store-s.default.svc.cluster.local"
    assert (pipe.stores["s"], pipe.metrics, pipe.data) == ((host, 5981), {"s": (host, 9981)}, {})
    policy = found["NetworkPolicy shop-store-s"]["spec"]
    assert policy["ingress"][0] == {"ports": [{"protocol": "TCP", "port": 5981}]}
    assert found["StatefulSet shop-retained-r"]["spec"]["volumeClaimTemplates"]


def test_services_of_compose_read_files_that_only_they_may_read(tmp_path: Path) -> None:
    text = rendered("compose", written(tmp_path, EVERYTHING))
    document = check_compose(text)
    assert list(document["services"]) == ["a", "b", "store-s", "store-t", "retained-r"]
    commands = [line for line in text.splitlines() if line.startswith("#   install")]
    own = [line.split()[-2:] for line in commands if "/network/b/" in line]
    assert ["pki/b.pem", "DIR/network/b/files/pki/b.pem"] in own
    assert all("-o 10001 -m 0400" in line for line in commands)
    assert not any("pki/a.pem" in line[0] for line in own)
    for service in document["services"].values():
        assert service["user"] == "10001:10001"
    assert [port["target"] for port in document["services"]["a"]["ports"]] == list(OTHERS.values())
    assert document["services"]["a"]["environment"] == ["NETWORK_KEY"]
    assert document["services"]["store-s"]["networks"] == {"clients": {}}


# --- both ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["compose", "kubernetes"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("routers: {}", "routers: there are no routers"),
        (
            "addresses: [{match: p, type: pipe, stores: {s: 5981}, store_data: {s: 'postgresql://h/d'}}]\n"
            "routers: {a: {amqp: 5672, interrouter: 7671, admin: 8671}}",
            "addresses: p: store_data.s: a PostgreSQL database, whose password and network no container is given; "
            "leave it out for a volume, or run onceway pipe serve --store s elsewhere",
        ),
        (
            "addresses: [{match: p, type: pipe, stores: {My_Store: 5981}}]\n"
            "routers: {a: {amqp: 5672, interrouter: 7671, admin: 8671}}",
            'addresses: p: stores.My_Store: no container can have the name "My_Store"; name it with a-z, 0-9 and -',
        ),
        (
            "sasl: {users: my users.json}\nrouters: {a: {amqp: 5672, interrouter: 7671, admin: 8671}}",
            "my users.json has a character that no key of a Secret can have; rename it with letters",
        ),
        (
            "addresses: [{match: p, type: pipe, stores: {s: 5981}}]\nmqtt: {topics: {'#': t}}\n"
            "routers: {a: {mqtt: 1883, interrouter: 7671, admin: 8671}}",
            "addresses: p: stores.s: routers have no listener in common that it could connect to (amqp, amqps, ws, wss)",
        ),
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
    ids=["none", "database", "name", "key", "no AMQP", "ports", "via", "port 0"],
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
    assert rendered(kind, TRIANGLE, "--output", tmp_path).splitlines()[0] == str(tmp_path / name)
    assert (tmp_path / name).read_text() == rendered(kind, TRIANGLE)


def test_the_topology_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(TRIANGLE.read_text())
    said = " ".join(refused("compose", path, "--output", tmp_path).split())
    assert "is the topology file itself; give another directory" in said
    assert path.read_text() == TRIANGLE.read_text()
