"""proton and rhea say who they are, through TLS. proton's wheel has no SCRAM: that needs a build with cyrus-sasl."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from proton import ConnectionException, SSLDomain
from proton.utils import BlockingConnection, LinkDetached

from tests.guarded import PASSWORD, Guarded
from tests.pki import Pki
from tests.running import Program

RHEA = Path(__file__).parent / "rhea"
WITHIN_S = 5.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("users"), certificates=[{"from": "common_name"}])
    guarded.pki.certificate("alice")
    guarded.pki.certificate("expired", days=-1)
    guarded.network.start()
    try:
        yield guarded
    finally:
        guarded.network.close()


def proton(guarded: Guarded, ca: Path, certificate: Path | None = None, **login: str) -> BlockingConnection:
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(str(ca))
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if certificate is not None:
        domain.set_credentials(str(certificate), str(certificate), None)
    url = guarded.url[0].replace("127.0.0.1", "localhost")  # proton compares names only, no addresses
    return BlockingConnection(url, timeout=WITHIN_S, ssl_domain=domain, reconnect=False, **login)


def test_proton_comes_in_with_plain_and_with_a_certificate(guarded: Guarded) -> None:
    ways = (
        {"user": "alice", "password": PASSWORD, "allowed_mechs": "PLAIN"},
        {"certificate": guarded.pki.directory / "alice.pem", "allowed_mechs": "EXTERNAL"},
    )
    for way in ways:
        connection = proton(guarded, guarded.pki.ca, **way)  # type: ignore[arg-type]
        try:
            assert connection.conn.remote_container == "a"
        finally:
            connection.close()


def test_proton_is_told_why_it_is_not_let_in(guarded: Guarded, tmp_path: Path) -> None:
    stranger = Pki(tmp_path)
    plain = {"user": "alice", "password": PASSWORD, "allowed_mechs": "PLAIN"}
    cases = (
        (guarded.pki.ca, {**plain, "password": "x"}, "Authentication failed"),
        (guarded.pki.ca, {**plain, "user": "bob"}, "Authentication failed"),
        (guarded.pki.ca, {"allowed_mechs": "ANONYMOUS"}, r"Authentication failed \[mech=none\]"),
        (guarded.pki.ca, {"allowed_mechs": "EXTERNAL"}, "Authentication failed"),
        (stranger.ca, plain, "certificate verify failed"),
        (guarded.pki.ca, {"certificate": guarded.pki.directory / "expired.pem"}, "certificate"),
    )
    for ca, login, said in cases:
        with pytest.raises((ConnectionException, LinkDetached), match=said):
            proton(guarded, ca, **login)  # type: ignore[arg-type]


def rhea_says(guarded: Guarded, rhea: Path, *arguments: object) -> str:
    port = guarded.url[0].rpartition(":")[2]
    environment = {**os.environ, "NODE_PATH": str(rhea / "node_modules")}
    command = ["node", str(RHEA / "login.js"), "127.0.0.1", port, *map(str, arguments)]
    with Program(command, environment) as program:
        line = program.line()
        assert line is not None
        return line


def test_rhea_comes_in_with_plain_and_with_a_certificate(guarded: Guarded, rhea: Path) -> None:
    assert rhea_says(guarded, rhea, guarded.pki.ca, "alice", PASSWORD) == "connected to a"
    assert rhea_says(guarded, rhea, guarded.pki.ca, guarded.pki.directory / "alice.pem") == "connected to a"


def test_rhea_is_told_why_it_is_not_let_in(guarded: Guarded, rhea: Path, tmp_path: Path) -> None:
    assert "Failed to authenticate" in rhea_says(guarded, rhea, guarded.pki.ca, "alice", "x")
    assert "Failed to authenticate" in rhea_says(guarded, rhea, guarded.pki.ca, "bob", PASSWORD)
    assert "self-signed certificate" in rhea_says(guarded, rhea, Pki(tmp_path).ca, "alice", PASSWORD)
    assert "certificate expired" in rhea_says(guarded, rhea, guarded.pki.ca, guarded.pki.directory / "expired.pem")


def test_proton_is_told_what_no_policy_allows(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    guarded.network.topology_path.write_text(
        f"{guarded.network.topology_path.read_text()}policies: [{{users: [alice], send: [orders]}}]\n"
    )
    guarded.network.start()
    try:
        connection = proton(guarded, guarded.pki.ca, user="alice", password=PASSWORD, allowed_mechs="PLAIN")
        try:
            connection.create_sender("orders").close()
            for attach in (connection.create_receiver, connection.create_sender):
                with pytest.raises(LinkDetached, match=r"user 'alice' may not .* 'prices': no policy allows it"):
                    attach("prices")
        finally:
            connection.close()
    finally:
        guarded.network.close()
