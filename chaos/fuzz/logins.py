"""Strangers who log in: bytes to a server that offers every mechanism of SASL, challenges to a client, and tokens.

What must hold: nothing is raised but the peer's error, nobody is let in, and the answer is AMQP in proportion. The
password and the key that would let somebody in are made anew in each process, so that no input can have them. What an
issuer may claim is tried, too: tokens are signed here where an input has the header and the claims of one.
"""

from __future__ import annotations

import base64
import json
import math
import random
import secrets
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from amqp10.connection import Connection
from amqp10.errors import RemoteProtocolError
from amqp10.sasl import (
    ANONYMOUS_IDENTITY,
    BearerServer,
    ExternalServer,
    Failure,
    Pending,
    PlainServer,
    ServerMechanisms,
    Success,
)
from amqp10.scram import END_POINT, HASHES, PLUS, Scram, ScramServer
from amqp10.settings import ConnectionSettings
from chaos.fuzz.targets import RATIO, ROOM, Broken, check_output, cut
from onceway.access.tokens import Tokens
from onceway.access.users import User, Users, with_password
from onceway.topology.sasl import TokenRules

USER: Final = "alice"
BINDINGS: Final = {END_POINT: b"end point"}


@cache
def users() -> Users:
    return Users({USER: User(with_password(secrets.token_urlsafe(24)))})


@cache
def key() -> Any:
    """The issuer's."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


@cache
def tokens() -> Tokens:
    import jwt

    public = {**jwt.algorithms.ECAlgorithm.to_jwk(key().public_key(), as_dict=True), "kid": "1"}
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "keys.json").write_text(json.dumps({"keys": [public]}))
        rules = TokenRules(keys="keys.json", issuer="https://id.example.org", audience="onceway")
        return Tokens(rules, Path(directory), "fuzz")


def _bearer(token: str) -> Success | Failure | Pending:
    found = tokens().verify(token)
    return found if isinstance(found, Failure) else Success(found.user)


def _server() -> Connection:
    mechanisms: dict[str, Any] = {
        "PLAIN": lambda: PlainServer(lambda name, password: users().matches(name, password)),
        "EXTERNAL": lambda: ExternalServer("somebody whose certificate nobody has"),
        "OAUTHBEARER": lambda: BearerServer(_bearer),
    }
    for name in HASHES:
        for suffix, bindings in ((PLUS, BINDINGS), ("", {})):

            def make(name: str = name, suffix: str = suffix, bindings: dict[str, bytes] = bindings) -> ScramServer:
                return ScramServer(name + suffix, lambda user: users().verifier(user, name), "nonce", bindings)

            mechanisms[name + suffix] = make
    settings = ConnectionSettings(container_id="server", sasl=ServerMechanisms(mechanisms), allow_no_sasl=False)
    return Connection(settings, server=True, now=0.0)


def run_server(data: bytes) -> None:
    """As a whole and in pieces."""
    for pieces in ([data], cut(data, random.Random(len(data)))):
        connection = _server()
        output = b""
        for piece in pieces:
            connection.receive_data(piece, 0.0)
            output += connection.data_to_send()
        check_output(output)
        if len(output) > ROOM + RATIO * len(data):
            raise Broken(f"{len(output)} bytes answer {len(data)}")
        # EXTERNAL is the one that needs no secret: TLS has checked the certificate before
        if connection.handshake.user not in (None, "somebody whose certificate nobody has"):
            raise Broken(f"let in {connection.handshake.user!r}")


def run_client(data: bytes) -> None:
    """What a server may say to a client of SCRAM; challenge and outcome are divided by a zero byte."""
    challenge, _, outcome = data.partition(b"\0")
    client = Scram("SCRAM-SHA-256", USER, "password", lambda: "nonce")
    client.start()
    try:
        client.step(challenge)
        client.finish(outcome)
    except RemoteProtocolError:
        return
    raise Broken("a client believes a server that does not know its password")


def run_token(data: bytes) -> None:
    """A token; or header and claims, divided by a zero byte, that the issuer signs."""
    header, signed, claims = data.partition(b"\0")
    found = tokens().verify(_signed(header, claims) if signed else data.decode("latin-1"))
    if isinstance(found, Failure):
        return
    if not signed:
        raise Broken(f"a token that nobody has signed counts for {found.user!r}")
    if not found.user or found.user == ANONYMOUS_IDENTITY or not 0 < found.lasts_s < math.inf:
        raise Broken(f"a token counts for {found}")


def _signed(header: bytes, claims: bytes) -> str:
    import jwt

    signer = jwt.algorithms.ECAlgorithm(jwt.algorithms.ECAlgorithm.SHA256)
    said = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in (header, claims))
    signature = base64.urlsafe_b64encode(signer.sign(said, key())).rstrip(b"=")
    return f"{said.decode()}.{signature.decode()}"
