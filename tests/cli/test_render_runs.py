"""What `onceway render` writes is run: each container in namespaces of its own, and clients with TLS and a user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.live.netns import command_inside, reason_against
from onceway.access.users import User, Users, store_users, with_password
from tests.cli.conftest import onceway
from tests.live import ROOT
from tests.pki import Pki

FILE = """\
network: shop
settings: {subscription_timeout: 1s, publisher_timeout: 60s}
tls:
  routers: {certificate: "pki/${router}.pem", ca: pki/ca.pem}
  clients: {certificate: "pki/${router}.pem", ca: pki/ca.pem}
trunks: {tls: routers}
sasl: {users: users.json}
admin: {tls: clients, groups: [ops]}
policies: [{users: ["*"], send: ["*"], receive: ["*"], dynamic: true}]
mqtt: {topics: {"#": telemetry}}
addresses:
  - {match: telemetry, no_subscribers: accept}
  - {match: jobs, type: pipe, user: store, stores: {s: "s.example:5981"}, store_tls: clients, store_data: {s: /srv/s}}
routers:
  a: {host: 10.0.0.1, amqp: "127.0.0.1:5672", amqps: 5671, wss: 8443, mqtts: 8883, tls: clients, interrouter: 7671, admin: 8671}
  b: {host: 10.0.0.2, amqp: "127.0.0.1:5673", amqps: 5671, wss: 8443, mqtts: 8883, tls: clients, interrouter: 7671, admin: 8671}
links: [a - b]
"""


def reason() -> str | None:
    return "namespaces of containers need root" if os.geteuid() != 0 else reason_against()


def made(directory: Path) -> Path:
    """The file with certificates and users, as an operator has them: for root alone."""
    pki = Pki(directory / "pki")
    of_kubernetes = [f"*.{name}.default.svc.cluster.local" for name in ("shop-routers", "shop-store-s")]
    for name in ("a", "b", "s"):
        pki.certificate(name, name, f"store-{name}", *of_kubernetes)
    everyone = {name: User(with_password("secret")) for name in ("alice", "store")}
    store_users(directory / "users.json", Users(dict(everyone)))
    store_users(directory / "more-users.json", Users({**everyone, "bob": User(with_password("secret"))}))
    password = directory / "store.password"
    password.touch(0o600)
    password.write_text("secret\n")
    file = directory / "shop.yaml"
    file.write_text(FILE)
    return file


@pytest.mark.skipif(reason() is not None, reason=str(reason()))
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kubernetes", "compose"])
def test_clients_use_every_listener_of_what_is_rendered(tmp_path: Path, kind: str) -> None:
    file = made(tmp_path)
    done = onceway("render", kind, file, "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    tmp_path.chmod(0o755)
    command, environment = command_inside([sys.executable, "-m", "tests.cli.containers", kind, str(tmp_path)])
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    logs = "\n".join(f"{path.name}:\n{path.read_text()[-3000:]}" for path in tmp_path.glob("*.log"))
    assert ran.returncode == 0, f"{ran.stderr}\n{logs}"
    seen: dict[str, Any] = json.loads(ran.stdout)
    heard = json.dumps([["by AMQP", "by MQTT", "by WebSocket"]] * 3)
    assert seen["talk"] == heard, logs
    assert (seen["push"], seen["pull"], seen["kept"]) == ("", "one", True), logs
    assert seen["reached"] == {
        "amqps": True,
        "amqp": False,  # the file keeps it at 127.0.0.1
        "interrouter": False,
        "admin": kind == "kubernetes",  # pods of the namespace may; login is asked for there
    }
    assert seen["before"].startswith("failed: "), "bob is no user yet"
    assert seen["after"].startswith("published 1, accepted 1, "), logs
