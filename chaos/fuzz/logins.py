"""Strangers who log in: bytes to a server that offers every mechanism of SASL, challenges to a client, and tokens.

What must hold: nothing is raised but the peer's error, nobody is let in, and the answer is AMQP in proportion. The
password and the key that would let somebody in are made anew in each process, so that no input can have them.
"""

from __future__ import annotations

import json
import random
import secrets
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from amqp10.connection import Connection
from amqp10.errors import RemoteProtocolError
from amqp10.sasl import BearerServer, ExternalServer, Failure, Pending, PlainServer, ServerMechanisms, Success
from amqp10.scram import END_POINT, HASHES, PLUS, Scram, ScramServer
from amqp10.settings import ConnectionSettings
from chaos.fuzz.targets import RATIO, ROOM, Broken, check_output, cut
from onceway.tokens import Holder, Tokens
from onceway.topology.sasl import TokenRules
from onceway.users import User, Users, with_password

USER: Final = "alice"
BINDINGS: Final = {END_POINT: b"end point"}


@cache
def users() -> Users:
    return Users({USER: User(with_password(secrets.token_urlsafe(24)))})


@cache
def tokens() -> Tokens:
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec

    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    key = {**jwt.algorithms.ECAlgorithm.to_jwk(public, as_dict=True), "kid": "1"}
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "keys.json").write_text(json.dumps({"keys": [key]}))
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
        if connection.user not in (None, "somebody whose certificate nobody has"):
            raise Broken(f"let in {connection.user!r}")


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
    found = tokens().verify(data.decode("latin-1"))
    if isinstance(found, Holder):
        raise Broken(f"a token that nobody has signed counts for {found.user!r}")
