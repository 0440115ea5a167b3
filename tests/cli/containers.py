"""Runs what `onceway render` has written, without an engine: each container in namespaces of its own.

A container sees the interpreter, this tree, and what its manifest mounts; it runs as the manifest's user without
capabilities, on a root that is read-only; the network lets pass what the policies, or the networks of Compose, allow.
Names are in its /etc/hosts, as a pod's own name is, and as DNS would give the others.

`python -m tests.cli.containers kubernetes|compose DIRECTORY`, in a network namespace of its own
(`chaos.live.netns.command_inside`), runs the file that is there and prints what clients have seen, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from chaos.live.netns import NETWORK, Namespaces
from tests.live import ROOT, wait_until

CLIENT = "client"
OUTSIDE = f"{NETWORK}.0.254"  # the machine: a kubelet, which no policy keeps out
USER = 10001
BOUND_S = 90.0


@dataclass
class Container:
    name: str  # its host name
    command: list[str]
    environment: dict[str, str]
    mounts: dict[str, Path]  # by the place inside
    writable: tuple[str, ...]  # of the mounts
    tmpfs: tuple[str, ...]
    labels: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # by which others reach it
    second: list[str] = field(default_factory=list)  # names at its address in the network of the routers
    probe: dict[str, Any] = field(default_factory=dict)  # of readiness
    check: list[str] = field(default_factory=list)  # of health
    process: subprocess.Popen[bytes] | None = None


# --- what is written, read as an engine does ------------------------------------------------------------------------


def secrets(text: str, directory: Path) -> dict[str, dict[str, bytes]]:
    """What the commands in the head of the objects make."""
    found: dict[str, dict[str, bytes]] = {}
    for line in text.splitlines():
        if line.startswith("#   kubectl"):
            words = shlex.split(line.removeprefix("#   ").partition(" --dry-run")[0])
            pairs = [word.removeprefix("--from-file=").split("=") for word in words if word.startswith("--from-file=")]
            found[words[6]] = {key: (directory / path).read_bytes() for key, path in pairs}
    return found


def project(volume: Path, sources: Sequence[Mapping[str, Any]], data: Mapping[str, Mapping[str, bytes]]) -> None:
    """As a kubelet does: the files are in a directory with a number, and a link that is replaced leads there."""
    volume.mkdir(exist_ok=True)
    number = sum(1 for each in volume.iterdir() if each.name.startswith("..2"))
    made = volume / f"..2026_{number}"
    for source in sources:
        (said,) = source.values()
        for item in said["items"]:
            path = made / item["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data[said["name"]][item["key"]])
            path.chmod(0o440)
            os.chown(path, 0, USER)  # fsGroup
    new = volume / "..new"
    new.symlink_to(made.name)
    new.rename(volume / "..data")
    for top in {
        item["path"].partition("/")[0] for source in sources for each in source.values() for item in each["items"]
    }:
        with contextlib.suppress(FileExistsError):
            (volume / top).symlink_to(f"..data/{top}")


def pods(text: str, directory: Path) -> tuple[list[Container], list[dict[str, Any]]]:
    """The pods of all StatefulSets, and the policies."""
    objects = list(yaml.safe_load_all(text))
    data = {
        each["metadata"]["name"]: {k: v.encode() for k, v in each["data"].items()} for each in objects if "data" in each
    }
    data |= secrets(text, directory)
    found = []
    for each in (each for each in objects if each["kind"] == "StatefulSet"):
        spec, name = each["spec"], each["metadata"]["name"]
        template = spec["template"]["spec"]
        (container,) = template["containers"]
        assert template["securityContext"]["runAsUser"] == template["securityContext"]["fsGroup"] == USER
        for ordinal in range(spec["replicas"]):
            pod = f"{name}-{ordinal}"
            volumes: dict[str, Path | None] = {}
            for volume in template["volumes"]:
                place = directory / "volumes" / f"{pod}-{volume['name']}"
                if "projected" in volume:
                    place.parent.mkdir(exist_ok=True)
                    project(place, volume["projected"]["sources"], data)
                volumes[volume["name"]] = None if volume.get("emptyDir", {}).get("medium") else place
            for claim in spec.get("volumeClaimTemplates", ()):
                volumes[claim["metadata"]["name"]] = directory / "volumes" / f"{pod}-{claim['metadata']['name']}"
            mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
            writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
            for path in writable:
                if (place := mounts[path]) is not None:
                    place.mkdir(parents=True, exist_ok=True)
                    os.chown(place, 0, USER)
                    place.chmod(0o2770)
            found.append(
                Container(
                    pod,
                    container["command"],
                    {e["name"]: e.get("value", pod) for e in container.get("env", ())},
                    {path: place for path, place in mounts.items() if place is not None},
                    tuple(writable),
                    tuple(path for path, place in mounts.items() if place is None),
                    spec["template"]["metadata"]["labels"],
                    [f"{pod}.{spec['serviceName']}.default.svc.cluster.local"],
                    probe=container.get("readinessProbe", {}),
                )
            )
    return found, [each["spec"] for each in objects if each["kind"] == "NetworkPolicy"]


def services(text: str, directory: Path) -> list[Container]:
    """The services of a Compose file in `directory`, once the commands in its head are done."""
    for line in text.splitlines():
        if line.startswith("#   install"):
            command = shlex.split(line.removeprefix("#   ").replace("DIR/", f"{directory}/"))
            subprocess.run(command, cwd=directory, check=True)
    found = []
    for name, service in yaml.safe_load(text)["services"].items():
        assert service["user"] == f"{USER}:{USER}"
        mounts = {}
        for mount in service["volumes"]:
            place = directory / mount["source"] if mount["type"] == "bind" else directory / "volumes" / mount["source"]
            if mount["type"] == "volume":  # it begins as the image's directory
                place.mkdir(parents=True)
                os.chown(place, USER, USER)
                place.chmod(0o700)
            mounts[mount["target"]] = place
        inside = service["networks"].get("routers")
        found.append(
            Container(
                name,
                ["onceway", *service["command"]],
                dict(service.get("environment", {})),
                mounts,
                tuple(mount["target"] for mount in service["volumes"] if not mount.get("read_only")),
                tuple(service["tmpfs"]),
                names=[service["hostname"]],
                check=service.get("healthcheck", {"test": [""]})["test"][1:],
                second=inside["aliases"] if inside else [],
            )
        )
    return found


# --- running it -----------------------------------------------------------------------------------------------------

PYTHON = "/opt/venv/bin/python"  # inside
MOUNT = """
set -e
mount --make-rprivate /
root=$1; shift
mount -t tmpfs -o mode=755 root "$root"
for place in usr "${PYTHON_HOME#/}"; do
    mkdir -p "$root/$place"; mount --rbind "/$place" "$root/$place"
done
for link in bin lib lib64 sbin; do ln -s "usr/$link" "$root/$link"; done
mkdir -p "$root/proc" "$root/dev" "$root/etc" "$root/opt/onceway/bin" "$root/opt/tree" "$root/opt/venv"
mount --bind "$TREE" "$root/opt/tree"; mount --bind "$VENV" "$root/opt/venv"
mount --rbind /proc "$root/proc"; mount --rbind /dev "$root/dev"
cp "$HOSTS" "$root/etc/hosts"
printf '#!/bin/sh\\nexec /opt/venv/bin/python -m onceway "$@"\\n' > "$root/opt/onceway/bin/onceway"
chmod 755 "$root/opt/onceway/bin/onceway"
while [ "$1" != -- ]; do
    case $1 in
        tmpfs) mkdir -p "$root$2"; mount -t tmpfs -o mode=1777 tmpfs "$root$2" ;;
        *) mkdir -p "$root$2"; mount --bind "$3" "$root$2"; mount -o "remount,bind,$1" "$root$2" ;;
    esac
    shift 3
done
shift
mount -o remount,ro "$root"
# --pdeathsig again: changing the user clears it
exec chroot "$root" setpriv --reuid $USER_ID --regid $USER_ID --groups $USER_ID --pdeathsig KILL --no-new-privs \\
    --inh-caps=-all --bounding-set=-all env -i "$@"
"""


class Containers:
    def __init__(self, containers: list[Container], policies: list[dict[str, Any]], directory: Path) -> None:
        self._containers = {each.name: each for each in containers}
        self._directory = directory
        client = Container(CLIENT, [], {}, {"/pki": directory / "pki"}, (), ("/tmp",))
        self._containers[CLIENT] = client
        self.namespaces = Namespaces(list(self._containers), [])
        self._hosts = directory / "hosts"
        lines = ["127.0.0.1 localhost"]
        for number, each in enumerate(self._containers.values(), 1):
            lines += [f"{self.address(each.name)} {name}" for name in each.names]
            if each.second:
                lines += [f"{NETWORK}.1.{number} {name}" for name in each.second]
                self._ip(each.name, "address", "add", f"{NETWORK}.1.{number}/24", "dev", "eth0")
        self._hosts.write_text("\n".join(lines) + "\n")
        for each in self._containers.values() if policies else ():
            self._allow(each, policies)

    def address(self, name: str) -> str:
        return self.namespaces.host(name)

    def _ip(self, name: str, *words: str) -> None:
        subprocess.run([*self.namespaces.prefix(name), "ip", *words], check=True, timeout=BOUND_S)

    def _allow(self, container: Container, policies: Sequence[Mapping[str, Any]]) -> None:
        """A packet leaves where a policy lets it: to a port that this pod may reach, or as the answer of a port where
        the other may come in."""
        own = [policy for policy in policies if matches(policy["podSelector"], container.labels)]
        if not own:
            return
        for policy in own:
            for way, rules, key in (("dport", policy["egress"], "to"), ("sport", policy["ingress"], "from")):
                for rule in rules:
                    for other in self._containers.values():
                        peers = rule.get(key)
                        if peers is None or any(matches(peer.get("podSelector"), other.labels) for peer in peers):
                            for port in rule["ports"]:
                                to = (self.address(other.name), way, str(port["port"]))
                                self._rule(container.name, 100, port["protocol"], *to)
            for port in {port["port"] for rule in policy["ingress"] for port in rule["ports"]}:
                self._rule(container.name, 100, "TCP", OUTSIDE, "sport", str(port))
        self._ip(container.name, "rule", "add", "pref", "200", "to", f"{NETWORK}.0.0/16", "prohibit")

    def _rule(self, name: str, pref: int, protocol: str, to: str, way: str, port: str) -> None:
        words = ("rule", "add", "pref", str(pref), "to", to, "ipproto", protocol.lower(), way, port, "lookup", "main")
        subprocess.run([*self.namespaces.prefix(name), "ip", *words], check=False, capture_output=True, timeout=BOUND_S)

    def command(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        each = self._containers[name]
        root = self._directory / "roots" / name
        root.mkdir(parents=True, exist_ok=True)
        mounts = [
            word
            for inside, place in each.mounts.items()
            for word in ("rw" if inside in each.writable else "ro", inside, str(place))
        ]
        for inside in each.tmpfs:
            mounts += ["tmpfs", inside, "-"]
        variables = {
            "PATH": "/opt/onceway/bin:/usr/bin:/bin",
            "PYTHONPATH": "/opt/tree",
            "PYTHONDONTWRITEBYTECODE": "1",
            "ONCEWAY_STATE_DIR": "/var/lib/onceway",
            **environment,
        }
        given = [f"{key}={value}" for key, value in variables.items()]
        start = ["setpriv", "--pdeathsig", "KILL", *self.namespaces.prefix(name), "unshare", "--mount"]
        return [*start, "sh", "-c", MOUNT, "sh", str(root), *mounts, "--", *given, *command]

    def environment(self) -> dict[str, str]:
        places = {"PYTHON_HOME": sys.base_prefix, "VENV": sys.prefix, "TREE": str(ROOT), "HOSTS": str(self._hosts)}
        return {**os.environ, **places, "USER_ID": str(USER)}

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        started = [each for each in self._containers.values() if each.command]
        try:
            for each in started:
                with (self._directory / f"{each.name}.log").open("wb") as log:
                    command = self.command(each.name, each.command, each.environment)
                    each.process = subprocess.Popen(command, env=self.environment(), stdout=log, stderr=log)
            yield
        finally:
            for each in started:
                if each.process is not None:
                    each.process.kill()
                    each.process.wait()
            self.namespaces.close()

    def does(self, name: str, *command: str, stdin: str = "", **environment: str) -> str:
        done = subprocess.run(
            self.command(name, command, environment),
            env=self.environment(), input=stdin, capture_output=True, text=True, timeout=BOUND_S, check=False,
        )  # fmt: skip
        return done.stdout.strip() if done.returncode == 0 else f"failed: {done.stderr.strip()[-400:]}"

    def ready(self, name: str) -> bool:
        """What the readiness probe of a pod says, or the health check of a service."""
        each = self._containers[name]
        assert each.process.poll() is None, (self._directory / f"{name}.log").read_text()[-2000:]
        if each.check:
            return not self.does(name, *each.check).startswith("failed: ")
        page = each.probe["httpGet"]
        port = {"admin": 8671}[page["port"]]
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        url = f"{page.get('scheme', 'HTTP').lower()}://{self.address(name)}:{port}{page['path']}"
        try:
            with urllib.request.urlopen(url, timeout=3, context=context if url.startswith("https") else None) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def hang_up(self) -> None:
        """SIGHUP to the routers, as an operator's `onceway reload` or `docker compose kill --signal HUP`."""
        for each in self._containers.values():
            if each.process is not None and "pipe" not in each.command and "retained" not in each.command:
                each.process.send_signal(signal.SIGHUP)

    def pods_see(self, text: str) -> None:
        """Secrets that have changed are projected again."""
        for name in [name for name in self._containers if name != CLIENT]:
            objects = {
                each["metadata"]["name"]: each for each in yaml.safe_load_all(text) if each["kind"] == "StatefulSet"
            }
            volumes = objects[name.rpartition("-")[0]]["spec"]["template"]["spec"]["volumes"]
            data = {
                each["metadata"]["name"]: {key: value.encode() for key, value in each["data"].items()}
                for each in yaml.safe_load_all(text)
                if "data" in each
            }
            place = self._directory / "volumes" / f"{name}-topology"
            project(place, volumes[0]["projected"]["sources"], {**data, **secrets(text, self._directory)})


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a podSelector of this namespace has these pods; an empty one has all."""
    if selector is None:
        return False
    exist = [each["key"] for each in selector.get("matchExpressions", ())]
    return selector.get("matchLabels", {}).items() <= labels.items() and all(key in labels for key in exist)


# --- clients --------------------------------------------------------------------------------------------------------

TALK = """
import asyncio, json, ssl, sys, threading
import onceway
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

host, user = sys.argv[1:]
tls = onceway.tls_context("/pki/ca.pem")
credentials = onceway.Credentials(user, "secret")

async def go():
    heard, attached, got = [], threading.Event(), threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, "m", protocol=paho.MQTTv5)
    client.username_pw_set(user, "secret")
    client.tls_set_context(ssl.create_default_context(cafile="/pki/ca.pem"))
    client.on_subscribe = lambda *_: attached.set()
    client.on_message = lambda c, u, message: (heard.append(message.payload.decode()), len(heard) == 3 and got.set())
    client.connect(host, 8883)
    client.loop_start()
    client.subscribe("x", 2)
    assert await asyncio.to_thread(attached.wait, 60), "MQTT attached"
    seen = []
    async with (onceway.connect(f"amqps://{host}:5671", tls=tls, credentials=credentials) as amqp,
                onceway.connect(f"wss://{host}:8443", tls=tls, credentials=credentials) as web):
        subscribers = [await each.subscriber("telemetry", name=name) for each, name in ((amqp, "q"), (web, "w"))]
        for each, body in ((amqp, b"by AMQP"), (web, b"by WebSocket")):
            message = onceway.Message(body, properties=onceway.Properties(subject="x"))
            await (await each.publisher("telemetry")).put(message)
        client.publish("x", "by MQTT", 2)
        for subscriber in subscribers:
            bodies = []
            async for delivery in subscriber:
                bodies.append(bytes(delivery.body).decode())
                await delivery.accept()
                if len(bodies) == 3:
                    break
            seen.append(sorted(bodies))
    assert await asyncio.to_thread(got.wait, 60), heard
    client.disconnect()
    return [*seen, sorted(heard)]

print(json.dumps(asyncio.run(asyncio.wait_for(go(), 80))))
"""


def reaches(containers: Containers, host: str, port: int) -> bool:
    program = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)"
    return containers.does(CLIENT, PYTHON, "-c", program, host, str(port)) == ""


def main(kind: str, directory: Path) -> dict[str, Any]:
    file = directory / f"{kind}.yaml"
    text = file.read_text()
    policies: list[dict[str, Any]] = []
    if kind == "kubernetes":
        made, policies = pods(text, directory)
        host, store = "shop-0.shop-routers.default.svc.cluster.local", "shop-store-s-0"
        admin, between, routers = host, host, ["shop-0", "shop-1"]
    else:
        made = services(text, directory)
        host, store, routers = "a", "store-s", ["a", "b"]
        admin = between = "a.routers"
    containers = Containers(made, policies, directory)
    seen: dict[str, Any] = {}
    with containers.running():
        for name in routers:
            wait_until(lambda name=name: containers.ready(name), f"{name} to be ready", BOUND_S, 0.2)
        seen["talk"] = containers.does(CLIENT, PYTHON, "-c", TALK, host, "alice")
        login = {"ONCEWAY_CA": "/pki/ca.pem", "ONCEWAY_USER": "store", "ONCEWAY_PASSWORD": "secret"}
        url = ("--url", f"amqps://{host}:5671")
        seen["push"] = containers.does(CLIENT, "onceway", "pipe", "push", "jobs", "one", *url, **login)
        seen["pull"] = containers.does(CLIENT, "onceway", "pipe", "pull", "jobs", *url, **login)
        seen["kept"] = bool(list((directory / "volumes" / f"{store}-state").rglob("*")))
        seen["reached"] = {
            name: reaches(containers, at, port)
            for name, at, port in (
                ("amqps", host, 5671), ("amqp", host, 5672), ("interrouter", between, 7671), ("admin", admin, 8671),
            )
        }  # fmt: skip
        as_bob = ("onceway", "publish", "telemetry", "--count", "1", "--user", "bob", "--connect-timeout", "5", *url)
        bob = {"ONCEWAY_CA": "/pki/ca.pem", "ONCEWAY_PASSWORD": "secret"}
        seen["before"] = containers.does(CLIENT, *as_bob, **bob)
        shutil.copy(directory / "more-users.json", directory / "users.json")
        if kind == "kubernetes":
            containers.pods_see(text)
        else:
            services_again(text, directory)
        logs = [directory / f"{name}.log" for name in routers]
        containers.hang_up()
        wait_until(lambda: all("reloaded" in log.read_text() for log in logs), "the routers to reload", BOUND_S)
        seen["after"] = containers.does(CLIENT, *as_bob, **bob)
    return seen


def services_again(text: str, directory: Path) -> None:
    for line in text.splitlines():
        if line.startswith("#   install"):
            command = shlex.split(line.removeprefix("#   ").replace("DIR/", f"{directory}/"))
            subprocess.run(command, cwd=directory, check=True)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
