"""The table of listeners says what a running router does, and a row is all that a new listener takes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from chaos.live.ports import free_port
from mqtt import encode
from mqtt.packets import Connect
from onceway.client.urls import DEFAULT_PORTS
from onceway.serve.server import RouterServer
from onceway.topology import ConfigError, loads, reference
from onceway.topology.listeners import BY_KEY, LISTENERS, Listener
from router.links.draining import Place
from tests.live import ROOT, dying_with_us, wait_until
from tests.pki import Pki
from tests.serving import serving

BOUND_S = 60.0
AMQP = b"AMQP\x00\x01\x00\x00"


def asked(row: Listener) -> tuple[bytes, bytes]:
    """What a client sends there, and how the answer begins."""
    if row.protocol == "HTTP":
        return f"GET {row.live} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(), b"HTTP/1.1 200"
    if row.websocket:
        head = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp"
        return f"GET / HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{key}\r\n\r\n".encode(), b"HTTP/1.1 101"
    return (encode(Connect("c", 5), 5), b" ") if row.protocol == "MQTT" else (AMQP, AMQP)


@pytest.mark.parametrize("with_tls", [False, True], ids=["the least", "all that the file can ask for"])
async def test_each_listener_of_a_running_router_speaks_what_its_row_says(tmp_path: Path, with_tls: bool) -> None:
    pki = Pki(tmp_path)
    pki.certificate("a", "127.0.0.1")
    places: dict[str, Any] = {row.key: free_port() for row in LISTENERS}
    document: dict[str, Any] = {
        "network": "n",
        "mqtt": {"topics": {"#": "t"}},
        "tls": {"p": {"certificate": "a.pem", "ca": "ca.pem"}},
        "routers": {"a": {**places, "tls": "p"}},
        **({"trunks": {"tls": "p"}, "admin": {"tls": "p"}} if with_tls else {}),
    }
    path = tmp_path / "n.yaml"
    path.write_text(yaml.safe_dump(document))
    context = ssl.create_default_context(cafile=pki.ca)
    context.load_cert_chain(tmp_path / "a.pem")
    async with serving(path) as routers:
        for row in LISTENERS:
            secure = row.secure or (with_tls and bool(row.tls))
            assert bool(routers["a"].server.topology.listener_profile("a", row.key)) == secure
            sent, begins = asked(row)
            async with asyncio.timeout(BOUND_S):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", places[row.key], ssl=context if secure else None
                )
                writer.write(sent)
                assert (await reader.readexactly(len(begins))) == begins, row.key
            writer.close()


def test_the_image_exposes_the_usual_ports() -> None:
    ports = " ".join(map(str, sorted(row.port for row in LISTENERS)))
    assert f"\nEXPOSE {ports}\n" in (ROOT / "Dockerfile").read_text()


def test_our_clients_know_the_usual_ports_of_amqp() -> None:
    assert {key: DEFAULT_PORTS[key] for key in ("amqp", "amqps")} == {
        key: BY_KEY[key].port for key in ("amqp", "amqps")
    }


def test_a_router_needs_one_listener_for_clients_and_no_certain_one() -> None:
    loaded = loads("network: n\nmqtt: {topics: {'#': t}}\nrouters: {a: {mqtt: 1883, interrouter: 7671, admin: 8671}}")
    assert list(loaded.routers["a"].for_clients()) == ["mqtt"]
    assert (loaded.urls(), loaded.routers["a"].first) == ("", "mqtt://127.0.0.1:1883")
    assert loads("network: n\nrouters: {a: {ws: 80, interrouter: 7671, admin: 8671}}").urls() == "ws://127.0.0.1:80"
    without = "network: n\nrouters: {a: {interrouter: 7671, admin: 8671}}"
    with pytest.raises(ConfigError, match=r"routers\.a: amqp is missing; add amqp"):
        loads(without)
    with pytest.raises(jsonschema.ValidationError, match=r"not valid under any of the given schemas"):
        jsonschema.validate(yaml.safe_load(without), reference.schema())


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("b.example", {"amqps": ("b.example", 5671)}),
        ("127.0.0.1", {"amqp": ("127.0.0.1", 6672), "amqps": ("127.0.0.1", 5671)}),
    ],
)
def test_no_client_is_sent_where_it_would_not_find_the_router(host: str, told: dict[str, tuple[str, int]]) -> None:
    """`ws` means every interface, and `amqp` the machine that the client is at."""
    rest = "interrouter: 7671, admin: 8671}\n"
    loaded = loads(
        "network: n\nlinks: [a - b]\ntrunks: {tls: off}\ntls: {x: {certificate: x.pem}}\nrouters:\n"
        f"  a: {{host: a.example, amqp: '127.0.0.1:5672', {rest}"
        f"  b: {{host: {host}, tls: x, amqps: 5671, amqp: '127.0.0.1:6672', ws: '0.0.0.0:8080', {rest}"
    )
    assert RouterServer(loaded, "a", fresh=True)._places() == [Place("b", told)]


def test_a_row_is_all_that_a_new_listener_takes(tmp_path: Path) -> None:
    for name in ("amqp10", "mqtt", "router", "interrouter", "onceway", "chaos", "edges", "scripts", "monitoring"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "security.md", tmp_path / "docs")
    table_of_the_copy = tmp_path / "onceway" / "topology" / "listeners.py"
    row = '    Listener("bulk", 5999, "AMQP", "clients", "where bulk comes", since="1.0"),\n'
    text = table_of_the_copy.read_text()
    table_of_the_copy.write_text(text.replace("    Listener(\n", f"{row}    Listener(\n", 1))
    places = {key: free_port() for key in ("amqp", "bulk", "interrouter", "admin")}
    file = tmp_path / "n.yaml"
    file.write_text(yaml.safe_dump({"network": "n", "routers": {"a": places}}))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ONCEWAY_STATE_DIR": str(tmp_path / "state")}

    def does(*words: str) -> str:
        command = [sys.executable, *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=BOUND_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    does("scripts/tables.py")
    assert "| `bulk` | 5999 | AMQP 1.0 | never | clients | 1.0 |" in (tmp_path / "docs" / "security.md").read_text()
    assert f"containerPort: {places['bulk']}" in does("-m", "onceway", "render", "kubernetes", str(file))
    start = dying_with_us([sys.executable, "-m", "onceway", "router", str(file), "a", "--fresh"])
    log = tmp_path / "log"
    with log.open("wb") as out:
        router = subprocess.Popen(start, cwd=tmp_path, env=environment, stderr=out)
    try:
        wait_until(lambda: f"bulk 127.0.0.1:{places['bulk']}" in log.read_text(), "the router to say that it listens")
        with socket.create_connection(("127.0.0.1", places["bulk"]), timeout=BOUND_S) as client:
            client.sendall(AMQP)
            assert client.recv(len(AMQP), socket.MSG_WAITALL) == AMQP
        wait_until(
            lambda: json.loads(does("-m", "onceway", "status", "--json", str(file)))["a"]["state"] == "ready", "it"
        )
        file.write_text(file.read_text().replace(str(places["bulk"]), str(free_port())))
        said = does("-m", "onceway", "reload", "--dry-run", str(file))
        assert "router a: changed bulk 127.0.0.1:" in said
        assert "needs a restart" in said
    finally:
        router.kill()
        router.wait()
