"""Secrets are planted, everything is used and misused, and nothing that a router or a command shows has one of them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import onceway
from chaos.live.ports import free_port
from mqtt import Connect, Will, encode
from onceway.access.users import load_users
from onceway.base.loop import run
from onceway.cli import cli
from onceway.errors import OncewayError
from tests import needs
from tests.guarded import BOUND_S, PASSWORD, Guarded

WRONG = "jabberwocky-guess"
TOKEN = "eyJhbGciOiJFUzI1NiJ9.jubjub-token.bandersnatch"
ROOT_KEY = "mome-rath-outgrabe-root"
DATABASE = "borogove-database"
AMQP = f"amqp://alice:{PASSWORD}@127.0.0.1:1"
MARKS = (PASSWORD, WRONG, TOKEN, ROOT_KEY, DATABASE)
SERVES_FOR_S = 30.0  # until a command that serves has said what it does about a router that refuses it


def command_line(pid: int) -> str:
    """Which others can read; no core dump of the process can be read by anybody."""
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 ", limits, re.MULTILINE), limits
    return Path(f"/proc/{pid}/cmdline").read_text()


def with_every_listener(guarded: Guarded) -> dict[str, int]:
    """Gives router a listeners for MQTT and WebSockets, and the network a pipe. Returns their ports."""
    names = ("mqtt", "mqtts", "ws", "wss", "pipe", "bus")
    ports = {name: free_port() for name in names}
    document = yaml.safe_load(guarded.network.topology_path.read_text())
    document["addresses"] = [{"match": "jobs", "type": "pipe", "user": "alice", "stores": {"s": ports["pipe"]}}]
    document["mqtt"] = {"topics": {"#": "telemetry"}}
    document["admin"] = {"act": {"groups": ["ops"]}}
    document["routers"]["a"] |= {name: ports[name] for name in names[:4]}
    guarded.network.topology_path.write_text(yaml.safe_dump(document, sort_keys=False))
    return ports


def mqtt_answers(guarded: Guarded, port: int, password: str, *, secure: bool) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_S) as plain:
        connection = guarded.tls().wrap_socket(plain, server_hostname="127.0.0.1") if secure else plain
        connect = Connect("c", 5, username="alice", password=password.encode(), will=Will("t", WRONG.encode()))
        connection.sendall(encode(connect, 5))
        return connection.recv(4_096)


def page_answers(port: int, authorization: str) -> bytes:
    """What a page is told that wants a WebSocket with a password in its request."""
    request = f"GET /{WRONG} HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nAuthorization: {authorization}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=BOUND_S) as connection:
        connection.sendall(request.encode())
        return b"".join(iter(lambda: connection.recv(4_096), b""))


def managements_answers(guarded: Guarded) -> list[str]:
    """All that the management node tells alice, by proton."""
    from proton import Message, SSLDomain
    from proton.utils import BlockingConnection, SyncRequestResponse

    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(guarded.pki.ca))
    url = guarded.url[0].replace("127.0.0.1", "localhost")
    connection = BlockingConnection(
        url, timeout=BOUND_S, ssl_domain=domain, user="alice", password=PASSWORD, allowed_mechs="PLAIN"
    )
    client = SyncRequestResponse(connection, "$management")
    asked = [{"operation": "QUERY"}, {"operation": "GET-LOG"}, {"operation": WRONG}, {"operation": "READ", "name": "x"}]
    answers = [client.call(Message(body={}, properties=each)) for each in asked]
    connection.close()
    return [
        f"{each.properties} {each.body}" for each in answers if each.properties["statusDescription"].find(WRONG) < 0
    ]


def serving_answers(*arguments: str, until: str, environment: Mapping[str, str]) -> str:
    """What a command has said by the time that it has been refused."""
    program = [sys.executable, "-m", "onceway", *arguments]
    process = subprocess.Popen(
        program, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **environment}
    )
    timer = threading.Timer(SERVES_FOR_S, process.kill)
    timer.start()
    said = ""
    assert process.stdout is not None
    for line in process.stdout:
        said += line
        if until in line:
            said += command_line(process.pid)
            process.terminate()
    process.wait()
    timer.cancel()
    assert until in said, said
    return said


def test_no_secret_is_shown_anywhere(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from jwt.algorithms import ECAlgorithm

    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    keys = {"keys": [{**ECAlgorithm.to_jwk(public, as_dict=True), "kid": "1"}]}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    tokens = {"keys": "keys.json", "issuer": "https://id.example.org", "audience": "onceway"}
    guarded = Guarded(tmp_path, tokens=tokens)
    guarded.network.options = ("--log-level", "debug")
    ports = with_every_listener(guarded)
    (tmp_path / "wrong").write_text(WRONG)
    (tmp_path / "lake.yaml").write_text(
        f"{{url: '{guarded.url[0]}', ca: {guarded.pki.ca}, user: alice, passwordFile: {tmp_path / 'wrong'}, "
        f"topic: orders, subscription: s, walLocation: {tmp_path / 'lake'}, walRetention: 24h}}\n"
    )
    key = (guarded.pki.directory / "router.pem").read_text().split("PRIVATE KEY-----")[1].split()[1]
    users = json.loads(guarded.users.read_text())
    verifiers = [part for text in users["users"]["alice"]["verifiers"] for part in text.split("$")[2].split(":")]
    planted = [*MARKS, key, users["secret"], *verifiers]
    shown: list[str] = []

    def command(*arguments: str) -> None:
        environment = {**os.environ, "ONCEWAY_PASSWORD": PASSWORD}
        program = [sys.executable, "-m", "onceway", *arguments]
        done = subprocess.run(program, capture_output=True, text=True, check=False, env=environment, timeout=60)
        shown.append(done.stdout + done.stderr)

    async def story() -> None:
        async with guarded.connect(guarded.url[0]) as alice:
            publisher = await alice.publisher("orders")
            assert publisher.guarantee == "exactly-once"
            for credentials in (
                onceway.Credentials("alice", WRONG),
                onceway.Credentials("alice", WRONG, "PLAIN"),
                onceway.Credentials(token=TOKEN),
            ):
                shown.append(repr(credentials))
                with pytest.raises(OncewayError) as caught:
                    await onceway.connect(
                        guarded.url[0], tls=guarded.tls(), credentials=credentials, connect_timeout_s=2.0
                    )
                shown.append(f"{caught.value!r} {caught.value} {getattr(caught.value, 'reasons', '')}")
            for secure, port in ((True, "mqtts"), (False, "mqtt")):
                for password in (WRONG, PASSWORD):
                    told = await asyncio.to_thread(mqtt_answers, guarded, ports[port], password, secure=secure)
                    shown.append(told.decode("latin-1"))
            for credentials in (onceway.Credentials("alice", WRONG), onceway.Credentials(token=TOKEN)):
                with pytest.raises(OncewayError) as caught:
                    await onceway.connect(
                        f"wss://127.0.0.1:{ports['wss']}",
                        tls=guarded.tls(),
                        credentials=credentials,
                        connect_timeout_s=2.0,
                    )
                shown.append(f"{caught.value!r} {getattr(caught.value, 'reasons', '')}")
            shown.append((await asyncio.to_thread(page_answers, ports["ws"], f"Bearer {TOKEN}")).decode("latin-1"))
            if needs.has_proton():
                shown.extend(await asyncio.to_thread(managements_answers, guarded))
            topology = str(guarded.network.topology_path)
            url = {"ONCEWAY_URL": guarded.plain[0].replace("://", f"://alice:{WRONG}@")}
            key = {**url, "ONCEWAY_BUS_ROOT_KEY": ROOT_KEY, "PGPASSWORD": DATABASE}
            bus = (
                "bus",
                "serve",
                "--data",
                str(tmp_path / "bus"),
                "--plain-http",
                "--listen",
                f"127.0.0.1:{ports['bus']}",
            )
            base = ("bus", "serve", "--store", "postgresql://alice@127.0.0.1:1/x", *bus[4:])
            pipe = ("pipe", "serve", topology, "--store", "s", "--data", str(tmp_path / "pipe"))
            said = await asyncio.gather(
                asyncio.to_thread(serving_answers, *bus, until="bus_again", environment=key),
                asyncio.to_thread(serving_answers, *base, until="127.0.0.1", environment=key),
                asyncio.to_thread(serving_answers, *pipe, until="pipe_again", environment=url),
                asyncio.to_thread(
                    serving_answers, "metadata", "serve", "--name", "x", until="refused", environment=url
                ),
                asyncio.to_thread(
                    serving_answers, "ingest", str(tmp_path / "lake.yaml"), until="unauthorized", environment={}
                ),
            )
            shown.extend(said)
            link = ("--url", guarded.url[0], "--ca", str(guarded.pki.ca), "--user", "alice")
            await asyncio.to_thread(command, "publish", "orders", "--count", "1", "--timeout", "0.5", *link)
            await asyncio.to_thread(command, "render", "systemd", topology)
            await asyncio.to_thread(command, "check", topology)
            text = guarded.network.topology_path.read_text()
            guarded.network.topology_path.write_text(f"{text}policies: [{{groups: [ops], send: ['*']}}]\n")
            await asyncio.to_thread(command, "reload", topology, "--state-dir", str(tmp_path / "state"))
            for page in ("/status?limit=1000", "/metrics", "/readyz", "/"):
                shown.append((await asyncio.to_thread(guarded.network["a"].get, page))[1].decode())
            shown.extend(map(command_line, [guarded.network[name].pid for name in "ab"]))
        shown.append(repr(load_users(guarded.users)))

    try:
        guarded.network.start()
        run(asyncio.wait_for(story(), BOUND_S))
    finally:
        guarded.network.close()
    logs = [(tmp_path / f"{name}.log").read_text() for name in "ab"]
    assert "client_refused" in logs[0]  # what was refused is there, and not with what
    for text in (*shown, *logs):
        for secret in planted:
            assert secret not in text
    assert all(shown)


@pytest.mark.parametrize(
    ("command", "url"),
    [
        ("publish orders --url", AMQP),
        ("subscribe orders --url", AMQP),
        ("metadata serve --name x --url", AMQP),
        ("pipe push jobs --url", AMQP),
        ("pipe pull jobs --store", AMQP),
        ("pipe serve jobs --data x --url", AMQP),
        ("pipe serve jobs --url amqp://127.0.0.1:1 --data", f"postgresql://alice:{PASSWORD}@127.0.0.1:1/x"),
        ("bus serve --plain-http --url", AMQP),
        ("bus serve --plain-http --store", f"postgresql://alice@127.0.0.1:1/x?password={PASSWORD}"),
        ("status", f"https://alice:{PASSWORD}@127.0.0.1:1"),
        ("trace", f"https://alice:{PASSWORD}@127.0.0.1:1"),
    ],
)
def test_a_password_in_a_url_of_the_command_line_is_refused(command: str, url: str) -> None:
    """Whoever is on the same host reads command lines."""
    done = CliRunner().invoke(cli, [*command.split(), url])
    assert done.exit_code == 2
    assert "others can read command lines" in done.output
    assert PASSWORD not in done.output
