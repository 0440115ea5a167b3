"""SCRAM (RFC 5802, RFC 7677), both sides, with channel bindings (RFC 5929); verifiers in place of passwords.

A server keeps `Verifier`s, from which no password can be read back. Where they are kept, and where nonces come from, is
not known here. Next: sasl.py for the other mechanisms, handshake.py for the exchange.
"""

from __future__ import annotations

import hmac
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from typing import Final

from amqp10.errors import UNAUTHORIZED_ACCESS, EncodeError, RemoteProtocolError
from amqp10.sasl import Challenge, Failure, Step, Success

HASHES: Final = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256"}
"""Mechanism -> hash function, preferred ones first. Each has a -PLUS variant."""
PLUS: Final = "-PLUS"
LEAST_ITERATIONS: Final = 4096  # RFC 7677
MOST_ITERATIONS: Final = 1_000_000  # what a client lets a server make it compute
MOST_NAME: Final = 255
"""Bytes of UTF-8 that a user's name may have (RFC 4616, 2: as many as every server has to take)."""
MOST_PASSWORD: Final = 1024
"""Bytes of UTF-8 that a password may have."""
END_POINT: Final = "tls-server-end-point"


@dataclass(frozen=True, slots=True)
class Verifier:
    """What a server keeps of a password (RFC 5802, 3). As text it is in PostgreSQL's form."""

    mechanism: str  # without -PLUS
    iterations: int
    salt: bytes
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def matches(self, password: str) -> bool:
        """Whether this is the password. It takes as long as the iterations say, whatever the answer."""
        try:
            derived = derive(self.mechanism, password, self.salt, self.iterations)
        except EncodeError:
            return False
        return hmac.compare_digest(derived.stored_key, self.stored_key)

    def __str__(self) -> str:
        salt, stored, server = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"{self.mechanism}${self.iterations}:{salt}${stored}:{server}"


def derive(mechanism: str, password: str, salt: bytes, iterations: int) -> Verifier:
    """The verifier of a password. EncodeError if it is too long, or has characters that SASL does not allow."""
    salted = _salted(HASHES[mechanism], password, salt, iterations)
    return _verifier(mechanism, salted, salt, iterations)


def parse_verifier(text: str) -> Verifier:
    """ValueError if it is none."""
    try:
        mechanism, first, second = text.split("$")
        iterations, salt = first.split(":")
        stored, server = second.split(":")
        verifier = Verifier(mechanism, int(iterations), _decode(salt), _decode(stored), _decode(server))
    except ValueError as error:
        raise ValueError("no verifier of SCRAM") from error
    if mechanism not in HASHES:
        raise ValueError(f"no mechanism {mechanism:.40}")
    size = new_hash(HASHES[mechanism]).digest_size
    if not LEAST_ITERATIONS <= verifier.iterations <= MOST_ITERATIONS or not verifier.salt:
        raise ValueError(f"a verifier needs a salt, and {LEAST_ITERATIONS} to {MOST_ITERATIONS} iterations")
    if len(verifier.stored_key) != size or len(verifier.server_key) != size:
        raise ValueError(f"a verifier of {mechanism} has keys of {size} bytes")
    return verifier


def prepare(text: str, most: int = MOST_NAME) -> str:
    """SASLprep (RFC 4013): what looks the same is the same.

    Args:
        text: A user's name, or a password.
        most: Bytes of UTF-8 that it may have, before and after. To normalize costs the square of what combines, and a
            character may become 18: so both are looked at before more is done.

    Raises:
        EncodeError: It is longer, or has characters that are not allowed.
    """
    _bound(text, most)
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    result = unicodedata.normalize("NFKC", mapped)
    _bound(result, most)
    right_to_left = [stringprep.in_table_d1(char) for char in result]
    if (
        not result
        or any(forbidden(char) for char in result for forbidden in _FORBIDDEN)
        or (any(right_to_left) and not (right_to_left[0] and right_to_left[-1]))
        or (any(right_to_left) and any(stringprep.in_table_d2(char) for char in result))
    ):
        raise EncodeError("it is empty, or has characters that SASL does not allow (RFC 4013)")
    return result


def _bound(text: str, most: int) -> None:
    if len(text) > most or len(text.encode(errors="surrogatepass")) > most:
        raise EncodeError(f"it has more than {most} bytes; choose a shorter one")


class ScramServer:
    """One exchange.

    Args:
        mechanism: The one that the client has chosen, with -PLUS if it has that.
        lookup: The verifier of a user. For users that do not exist it must return one too, always the same for the
            same name, which nothing matches: else names could be found out.
        nonce: Printable, without comma, not to be guessed, never used twice.
        bindings: Data of this TLS connection by type of channel binding; empty if -PLUS is not offered.
    """

    __slots__ = (
        "_bare",
        "_bindings",
        "_first",
        "_gs2",
        "_lookup",
        "_mechanism",
        "_nonce",
        "_plus",
        "_user",
        "_verifier",
    )

    def __init__(
        self,
        mechanism: str,
        lookup: Callable[[str], Verifier],
        nonce: str,
        bindings: Mapping[str, bytes] | None = None,
    ) -> None:
        self._plus = mechanism.endswith(PLUS)
        self._mechanism = mechanism.removesuffix(PLUS)
        self._lookup = lookup
        self._nonce = nonce
        self._bindings = bindings or {}
        self._verifier: Verifier | None = None
        self._user = ""
        self._gs2 = self._bare = self._first = b""

    def step(self, data: bytes | None) -> Step:
        if data is None:
            return Challenge(b"") if self._verifier is None else Failure("no client-final-message of SCRAM")
        try:
            return self._receive_first(data) if self._verifier is None else self._receive_final(data, self._verifier)
        except (ValueError, EncodeError) as error:
            return Failure(f"malformed message of SCRAM: {error}")

    def _receive_first(self, data: bytes) -> Step:
        flag, authorization, bare = data.split(b",", 2)
        self._gs2, self._bare = data[: len(data) - len(bare)], bare
        if flag.startswith(b"p="):
            if not self._plus:
                return Failure("a channel binding without -PLUS")
            if flag[2:].decode() not in self._bindings:
                return Failure(f"no channel binding of type {flag[2:]!r:.60} here")
        elif self._plus or flag not in (b"n", b"y"):
            return Failure("no channel binding in a mechanism that needs one" if self._plus else "malformed GS2 header")
        elif flag == b"y" and self._bindings:
            return Failure("the client believes that -PLUS is not offered: somebody has changed what it was told")
        fields = bare.split(b",")
        if len(fields) < 2:
            raise ValueError("no user or no nonce")
        self._user = prepare(_name(_value(fields[0], b"n")))
        if authorization and _name(_value(authorization, b"a")) != self._user:
            return Failure(f"user {self._user!r:.60} may not act as another")
        nonce = _value(fields[1], b"r")
        if not nonce or not nonce.isascii() or not nonce.decode().isprintable():
            raise ValueError("a nonce that is not printable")
        self._nonce = nonce.decode() + self._nonce
        verifier = self._verifier = self._lookup(self._user)
        assert verifier.mechanism == self._mechanism
        salt = b64encode(verifier.salt).decode()
        self._first = f"r={self._nonce},s={salt},i={verifier.iterations}".encode()
        return Challenge(self._first)

    def _receive_final(self, data: bytes, verifier: Verifier) -> Step:
        without_proof, _, proof_field = data.rpartition(b",")
        fields = without_proof.split(b",")
        if len(fields) < 2:
            raise ValueError("no channel binding or no nonce")
        binding, nonce = _decode(_value(fields[0], b"c")), _value(fields[1], b"r")
        proof = _decode(_value(proof_field, b"p"))
        if not hmac.compare_digest(nonce, self._nonce.encode()):
            return Failure("a nonce that is not of this exchange")
        expected = self._gs2
        if self._plus:
            expected += self._bindings[self._gs2.split(b",")[0][2:].decode()]
        if not hmac.compare_digest(binding, expected):
            return Failure("the channel binding is not of this TLS connection: somebody may be in between")
        message = b",".join((self._bare, self._first, without_proof))
        hash_name = HASHES[verifier.mechanism]
        signature = hmac.digest(verifier.stored_key, message, hash_name)
        if len(proof) != len(signature):
            raise ValueError("a proof of the wrong size")
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(new_hash(hash_name, client_key).digest(), verifier.stored_key):
            return Failure(f"wrong user or password for {self._user!r:.60}")
        answer = b64encode(hmac.digest(verifier.server_key, message, hash_name))
        return Success(self._user, b"v=" + answer)


class Scram:
    """Client side.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512, with -PLUS or without.
        username: Who it is.
        password: Kept for further connections.
        nonce: Makes a new one for each exchange.
        binding: With -PLUS, the data of tls-server-end-point.
        could_bind: Without -PLUS: the client would bind to TLS, if the server offered that.
    """

    __slots__ = ("_bare", "_gs2", "_hash", "_known", "_make_nonce", "_nonce", "_password", "_signature", "name")

    def __init__(
        self,
        mechanism: str,
        username: str,
        password: str,
        nonce: Callable[[], str],
        *,
        binding: bytes | None = None,
        could_bind: bool = False,
    ) -> None:
        self.name = mechanism
        plus = mechanism.endswith(PLUS)
        assert plus == (binding is not None)
        self._hash = HASHES[mechanism.removesuffix(PLUS)]
        self._password = prepare(password, MOST_PASSWORD)
        self._make_nonce = nonce
        self._nonce = ""
        flag = f"p={END_POINT}" if plus else "y" if could_bind else "n"
        self._gs2 = (f"{flag},,".encode(), binding or b"")
        self._bare = f"n={prepare(username).replace('=', '=3D').replace(',', '=2C')},r="
        self._signature: bytes | None = None
        self._known: dict[tuple[bytes, int], bytes] = {}  # the salted password, so that later connections are quick

    def start(self) -> bytes | None:
        self._nonce = self._make_nonce()
        self._signature = None
        return self._gs2[0] + self._bare.encode() + self._nonce.encode()

    def step(self, challenge: bytes) -> bytes:
        if self._signature is not None:  # some servers send the last message as a challenge
            self.finish(challenge)
            return b""
        try:
            fields = challenge.split(b",")
            nonce, salt = _value(fields[0], b"r"), _decode(_value(fields[1], b"s"))
            iterations = int(_value(fields[2], b"i"))
        except (ValueError, IndexError) as error:
            raise RemoteProtocolError(UNAUTHORIZED_ACCESS, "the server's message of SCRAM is malformed") from error
        if not nonce.startswith(self._nonce.encode()) or len(nonce) == len(self._nonce):
            raise RemoteProtocolError(UNAUTHORIZED_ACCESS, "the server's nonce is not of this exchange")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS or not salt:
            raise RemoteProtocolError(
                UNAUTHORIZED_ACCESS,
                f"the server asks for {iterations} iterations; {LEAST_ITERATIONS} to {MOST_ITERATIONS} are accepted",
            )
        salted = self._known.get((salt, iterations))
        if salted is None:
            self._known.clear()
            salted = self._known[salt, iterations] = _salted(self._hash, self._password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = new_hash(self._hash, client_key).digest()
        final = b"c=" + b64encode(b"".join(self._gs2)) + b",r=" + nonce
        message = b",".join((self._bare.encode() + self._nonce.encode(), challenge, final))
        proof = _xor(client_key, hmac.digest(stored_key, message, self._hash))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), message, self._hash)
        return final + b",p=" + b64encode(proof)

    def finish(self, data: bytes | None) -> None:
        """The server must show that it knows the verifier: else it is not the one that has it."""
        if data is None and self._signature == b"":
            return  # it was shown in a challenge
        try:
            shown = _decode(_value((data or b"").split(b",")[0], b"v"))
        except ValueError:
            shown = b""
        if not self._signature or not hmac.compare_digest(shown, self._signature):
            raise RemoteProtocolError(UNAUTHORIZED_ACCESS, "the server does not show that it knows this user")
        self._signature = b""


_FORBIDDEN: Final = (
    stringprep.in_table_a1,  # unassigned in Unicode 3.2
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def _salted(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    return pbkdf2_hmac(hash_name, prepare(password, MOST_PASSWORD).encode(), salt, iterations)


def _verifier(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Verifier:
    hash_name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = new_hash(hash_name, client_key).digest()
    return Verifier(mechanism, iterations, salt, stored_key, hmac.digest(salted, b"Server Key", hash_name))


def _value(part: bytes, key: bytes) -> bytes:
    if not part.startswith(key + b"="):
        raise ValueError(f"no {key.decode()}= where it belongs")
    return part[2:]


def _name(value: bytes) -> str:
    """RFC 5802, 5.1: = and , are =3D and =2C."""
    text = value.decode()
    if text.count("=") != text.count("=3D") + text.count("=2C"):
        raise ValueError("a = in a name")
    return text.replace("=2C", ",").replace("=3D", "=")


def _decode(text: bytes | str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error as error:
        raise ValueError("no base64") from error


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")
