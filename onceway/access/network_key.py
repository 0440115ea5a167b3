"""A key of the network, with which routers show each other that they belong to it, where they have no certificates.

It is a password of SCRAM (amqp10/scram.py): never sent, and shown by both sides. What is shown is the key together with
the name of the router that was dialled, so that nobody can pass the answers of one router off as another's, or those of
a router to itself. Whoever has the key can be any router. Nothing is encrypted: that is TLS's.
"""

from __future__ import annotations

import os
import secrets
from typing import Final

from amqp10.errors import EncodeError
from amqp10.sasl import ClientMechanism, Offer, ServerMechanisms
from amqp10.scram import LEAST_ITERATIONS, Scram, ScramServer, derive
from onceway.base.private import let_read
from onceway.errors import UsageError
from onceway.topology import Topology

MECHANISM: Final = "SCRAM-SHA-256"
LEAST: Final = 32  # characters: a key is drawn, not thought up, so that few iterations do
NONCE_BYTES: Final = 18


class TrunkKey:
    """Of router `name`. EncodeError if the key has characters that SASL does not allow."""

    def __init__(self, name: str, key: str) -> None:
        self._name = name
        self._key = key
        self._verifier = derive(MECHANISM, self._shown_to(name), secrets.token_bytes(16), LEAST_ITERATIONS)

    def sasl(self, dialled: str | None) -> Offer | ClientMechanism:
        """Of one connection: with the router that we have dialled, or, None, with one that has dialled us."""
        if dialled is not None:
            return Scram(MECHANISM, self._name, self._shown_to(dialled), lambda: secrets.token_urlsafe(NONCE_BYTES))
        return ServerMechanisms(
            {MECHANISM: lambda: ScramServer(MECHANISM, lambda _: self._verifier, secrets.token_urlsafe(NONCE_BYTES))}
        )

    def _shown_to(self, dialled: str) -> str:
        return f"{self._key}/{dialled}"


def read_trunk_key(topology: Topology, name: str) -> TrunkKey | None:
    """What router `name` needs, read now; None: the file names no key.

    Raises:
        UsageError: It cannot be used; names the file or variable, and not what is in it.
    """
    source = topology.trunk_key
    if not source:
        return None
    place = f"{topology.path}: trunks.key"
    if source.startswith("$"):
        key = os.environ.get(source[1:], "")
        if not key:
            raise UsageError(f"{place}: the environment has no {source[1:]}")
    else:
        path = topology.directory / source
        try:
            key = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(f"{place}: {path} cannot be read: {error.strerror}{let_read(error)}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"{place}: {path} is no text; openssl rand -hex 32 makes a key") from error
    if len(key) < LEAST:
        raise UsageError(f"{place}: a key of {len(key)} characters can be guessed; openssl rand -hex 32 makes one")
    try:
        return TrunkKey(name, key)
    except EncodeError as error:
        raise UsageError(f"{place}: {error}; openssl rand -hex 32 makes a key") from error
