"""Who is let in through TLS, and what who is not is told, judged by proton, rhea and our client.

Each failure is known on both sides within a second (more than a login takes), and disturbs nobody else. Proton knows SCRAM
where it was compiled with cyrus-sasl (Debian: libsasl2-dev); rhea does not know it. Nobody has OAUTHBEARER ready: rhea has
it from ten lines that are written from RFC 7628.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from proton import SASL, ConnectionException, SSLDomain
from proton.utils import BlockingConnection, LinkDetached

import onceway
from tests.guarded import PASSWORD, Guarded
from tests.onceway.test_authentication import undisturbed
from tests.onceway.test_tokens import AUDIENCE, ISSUER, Issuer
from tests.pki import Pki

LOGIN = Path(__file__).parent / "rhea" / "login.js"
WITHIN_S = 1.0
STALE_ROUTER = "c"  # its certificate has expired
CONNECTED = "connected to a"
SCRAM = ("SCRAM-SHA-512-PLUS", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-512", "SCRAM-SHA-256")
CYRUS = tuple(name for name in SCRAM[2:] if SASL.extended())


@dataclass(frozen=True)
class Case:
    """What a client comes with, and to which router. Files are named without .pem."""

    mechanism: str
    user: str = ""
    password: str = ""
    certificate: str = ""
    token: str = ""
    ca: str = "ca"
    servername: str = "localhost"
    router: str = "a"


@dataclass(frozen=True)
class Told:
    """What the client says, when it began (in seconds of the epoch), and how long that took."""

    said: str
    began: float
    took_s: float


RIGHT: dict[str, Any] = {"user": "alice", "password": PASSWORD}
REFUSED = r"Authentication failed|Failed to authenticate|the server refused \S+: code 1"
UNTRUSTED = "certificate verify failed|self-signed certificate|certificate is not accepted: self-signed"
ELSEWHERE = "certificate verify failed|does not match certificate|certificate is not accepted: Hostname mismatch"
STALE = "certificate verify failed|certificate has expired"
CLIENTS_FAULT = "no TLS with .*: (TLS failed: .*alert|the client has left without a word)"  # proton says why
# (what is wrong with TLS, what the client is told, what the router logs)
TLS_FAULTS: list[tuple[dict[str, str], str, str]] = [
    ({"ca": "stranger"}, UNTRUSTED, CLIENTS_FAULT),
    ({"servername": "elsewhere.example"}, ELSEWHERE, CLIENTS_FAULT),
    ({"router": STALE_ROUTER}, STALE, CLIENTS_FAULT),
    ({"certificate": "expired"}, "certificate expired", "no TLS .*: certificate has expired"),
    ({"certificate": "gone"}, "certificate revoked", "no TLS .*: certificate revoked"),
    ({"certificate": "foreign"}, "unknown ca", "no TLS .*: unable to get local issuer"),
]


def cases(mechanisms: Sequence[str], issuer: Issuer) -> list[tuple[Case, str, str]]:
    """(what comes, what the client is told, what the router logs), as patterns."""
    let_in = r"client alice\|.* connected"
    made: list[tuple[Case, str, str]] = []
    for mechanism in mechanisms:
        wrong: list[tuple[dict[str, str], str]]
        if mechanism == "EXTERNAL":
            right = {"certificate": "alice"}
            wrong = [({"certificate": "nobody"}, "EXTERNAL without a certificate that .* has a rule for")]
        elif mechanism == "OAUTHBEARER":
            right = {"token": issuer.token()}
            wrong = [
                ({"token": Issuer().token()}, "a token that does not count: Signature verification failed"),
                ({"token": issuer.token(lasts_s=-60)}, "a token that does not count: Signature has expired"),
                ({"token": issuer.token(aud="others")}, "a token that does not count: Audience doesn't match"),
                ({"token": issuer.token(sub="anonymous")}, "a token for 'anonymous', which can be nobody's name"),
            ]
        else:
            right = RIGHT
            wrong = [
                ({"user": user, "password": password}, f"refused: wrong user or password for '{user}'")
                for user, password in (("alice", "x"), ("bob", PASSWORD))
            ]
        made.append((Case(mechanism, **right), CONNECTED, let_in))
        made += [(Case(mechanism, **each), REFUSED, logs) for each, logs in wrong]
        if mechanism not in SCRAM or mechanism == next(each for each in mechanisms if each in SCRAM):  # TLS comes first
            made += [(Case(mechanism, **{**right, **fault}), says, logs) for fault, says, logs in TLS_FAULTS]
    return made


# --- the judges

Judge = Callable[[Guarded, list[Case]], Awaitable[list[Told]]]


async def proton(guarded: Guarded, tries: list[Case]) -> list[Told]:
    def login(case: Case) -> str:
        directory = guarded.pki.directory
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(directory / f"{case.ca}.pem"))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
        if case.certificate:
            pem = str(directory / f"{case.certificate}.pem")
            domain.set_credentials(pem, pem, None)
        who: dict[str, Any] = {"user": case.user, "password": case.password} if case.user else {}
        try:
            connection = BlockingConnection(
                at(guarded, case),
                timeout=5.0,
                ssl_domain=domain,
                reconnect=False,
                allowed_mechs=case.mechanism,
                virtual_host=case.servername,
                **who,
            )
        except (ConnectionException, LinkDetached) as error:
            return str(error)
        said = f"connected to {connection.conn.remote_container}"
        connection.close()
        return said

    return [await timed(asyncio.to_thread(login, case)) for case in tries]


async def ours(guarded: Guarded, tries: list[Case]) -> list[Told]:
    async def login(case: Case) -> str:
        directory = guarded.pki.directory
        certificate = directory / f"{case.certificate}.pem" if case.certificate else None
        lost: asyncio.Queue[str] = asyncio.Queue()
        connecting = onceway.connect(
            at(guarded, case).replace("127.0.0.1", "localhost" if case.servername == "localhost" else "127.1"),
            tls=onceway.tls_context(directory / f"{case.ca}.pem", certificate),
            credentials=onceway.Credentials(case.user, case.password, case.mechanism, case.token or None),
            on_report=lambda report: lost.put_nowait(report.reason) if isinstance(report, onceway.RouterLost) else None,
        )
        opened = asyncio.ensure_future(connecting.__aenter__())
        told = asyncio.ensure_future(lost.get())
        try:
            await asyncio.wait((opened, told), return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                return told.result()
            try:
                return f"connected to {opened.result().router}"
            except onceway.OncewayError as error:
                return " ".join(getattr(error, "reasons", {}).values()) or str(error)
        finally:
            told.cancel()
            opened.cancel()
            await asyncio.gather(opened, told, return_exceptions=True)
            await connecting.close(timeout_s=0)

    return [await timed(login(case)) for case in tries]


def at(guarded: Guarded, case: Case) -> str:
    return guarded.url["abc".index(case.router)]


async def timed(login: Awaitable[str]) -> Told:
    began, start = time.time(), time.monotonic()
    said = await login
    return Told(said, began, time.monotonic() - start)


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def guarded(tmp_path: Path, issuer: Issuer) -> Guarded:
    (tmp_path / "keys.json").write_bytes(issuer.jwks())
    tokens = {"keys": "keys.json", "issuer": ISSUER, "audience": AUDIENCE}
    guarded = Guarded(tmp_path, "abc", certificates=[{"from": "common_name", "match": "alice"}], tokens=tokens)
    pki = guarded.pki
    pki.certificate("stale", "127.0.0.1", "localhost", days=-1)
    for name in ("alice", "nobody", "gone"):
        pki.certificate(name)
    pki.certificate("expired", days=-1)
    (pki.directory / "foreign.pem").write_bytes(Pki(tmp_path / "other").certificate("alice").read_bytes())
    (pki.directory / "stranger.pem").write_bytes(Pki(tmp_path / "stranger").ca.read_bytes())
    lists = pki.revoked(pki.directory / "gone.pem")
    path = guarded.network.topology_path
    document = yaml.safe_load(path.read_text())
    document["tls"]["outside"]["revoked"] = str(lists)
    document["tls"]["stale"] = {**document["tls"]["outside"], "certificate": "pki/stale.pem"}
    document["routers"][STALE_ROUTER]["tls"] = "stale"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return guarded


@pytest.mark.parametrize("judge", ["proton", "rhea", "ours"])
def test_each_mechanism_and_each_reason_to_be_refused(
    judge: str, guarded: Guarded, issuer: Issuer, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in (
        "FREE",
        "MOST_OF_PAIR",
        "MOST_OF_KNOWN",
        "MOST_OF_USER",
        "MOST_OF_ADDRESS",
    ):  # guessing is late and then refused in other tests
        monkeypatch.setattr(f"onceway.access.guesses.{bound}", 1_000)

    async def rhea(guarded: Guarded, tries: list[Case]) -> list[Told]:
        installed = request.getfixturevalue("rhea")
        given: list[dict[str, Any]] = [
            {
                "port": int(at(guarded, case).rpartition(":")[2]),
                **{key: value for key, value in vars(case).items() if value},
                **{
                    key: str(guarded.pki.directory / f"{name}.pem")
                    for key in ("ca", "certificate")
                    if (name := getattr(case, key))
                },
            }
            for case in tries
        ]
        program = await asyncio.create_subprocess_exec(
            "node",
            str(LOGIN),
            json.dumps(given),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "NODE_PATH": str(installed / "node_modules")},
        )
        said, _ = await program.communicate()
        answers: list[dict[str, Any]] = [json.loads(line) for line in said.splitlines()]
        return [Told(each["said"], each["began"] / 1000, each["took"] / 1000) for each in answers]

    play, mechanisms = {
        "proton": (proton, ("EXTERNAL", "PLAIN", *CYRUS)),
        "rhea": (rhea, ("EXTERNAL", "PLAIN", "OAUTHBEARER")),
        "ours": (ours, ("EXTERNAL", "PLAIN", "OAUTHBEARER", *SCRAM)),
    }[judge]
    table = cases(mechanisms, issuer)

    async def story() -> None:
        async with undisturbed(*map(guarded.connect, guarded.url[:2])):
            told = await play(guarded, [case for case, _, _ in table])
        # On a busy machine a login that succeeds takes long, too.
        within_s = WITHIN_S + max(each.took_s for each in told if each.said == CONNECTED)
        logs_of = {name: guarded.log(name).splitlines() for name in ("a", STALE_ROUTER)}
        for (case, says, logs), each in zip(table, told, strict=True):
            assert re.search(says, each.said), f"{case}: {each}"
            assert each.took_s < within_s, f"{case}: {each}"
            # Lines come in the order of the cases: each is looked for behind the one before.
            log = logs_of[case.router]
            place = next((n for n, line in enumerate(log) if re.search(logs, line)), None)
            assert place is not None, f"{case}: no {logs} in the router's log in {log}"
            assert when(log[place]) - each.began < within_s, f"{case}: {each}: {log[place]}"
            del log[: place + 1]

    guarded.play(story)


def test_proton_is_told_what_no_policy_allows(guarded: Guarded) -> None:
    path = guarded.network.topology_path
    path.write_text(f"{path.read_text()}policies: [{{users: [alice], send: [orders]}}]\n")

    def judge() -> None:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(guarded.pki.ca))
        url = guarded.url[0].replace("127.0.0.1", "localhost")  # proton compares names only, no addresses
        connection = BlockingConnection(url, timeout=5.0, ssl_domain=domain, allowed_mechs="PLAIN", **RIGHT)
        try:
            connection.create_sender("orders").close()  # type: ignore[no-untyped-call]
            for attach in (connection.create_receiver, connection.create_sender):
                with pytest.raises(LinkDetached, match=r"user 'alice' may not .* 'prices': no policy allows it"):
                    attach("prices")
        finally:
            connection.close()

    guarded.play(lambda: asyncio.to_thread(judge))


def when(line: str) -> float:
    return datetime.fromisoformat(line.split(" ", 1)[0]).timestamp()
