"""Secrets are planted, everything is used and misused, and nothing that a router or a command shows has one of them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import onceway
from onceway.errors import OncewayError
from onceway.loop import run
from onceway.users import load_users
from tests.guarded import BOUND_S, PASSWORD, Guarded
from tests.live import ROOT

WRONG = "jabberwocky-guess"
TOKEN = "eyJhbGciOiJFUzI1NiJ9.jubjub-token.bandersnatch"
MARKS = (PASSWORD, WRONG, TOKEN)


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_no_secret_is_shown_anywhere(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from jwt.algorithms import ECAlgorithm

    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    keys = {"keys": [{**ECAlgorithm.to_jwk(public, as_dict=True), "kid": "1"}]}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    tokens = {"keys": "keys.json", "issuer": "https://id.example.org", "audience": "onceway"}
    guarded = Guarded(tmp_path, tokens=tokens)
    guarded.network.options = ("--log-level", "debug")
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
            topology = str(guarded.network.topology_path)
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
    "command", [("publish", "orders"), ("subscribe", "orders"), ("metadata", "serve", "--name", "x")]
)
def test_a_password_in_a_url_of_the_command_line_is_refused(command: tuple[str, ...]) -> None:
    """Whoever is on the same host reads command lines."""
    program = [sys.executable, "-m", "onceway", *command, "--url", f"amqp://alice:{PASSWORD}@127.0.0.1:1"]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert done.returncode == 2
    assert "others can read command lines" in done.stderr
    assert PASSWORD not in done.stderr
