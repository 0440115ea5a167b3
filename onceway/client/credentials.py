"""Who a client says it is, and by which mechanism of SASL.

Preferred are the mechanisms that show the least: a certificate, then SCRAM bound to this TLS connection, then SCRAM. A
password in plain text is sent only through TLS, to this machine, or where the application says so.
"""

from __future__ import annotations

import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypedDict

from amqp10.errors import EncodeError
from amqp10.sasl import Anonymous, Bearer, ClientChoice, ClientMechanism, External, Plain
from amqp10.scram import HASHES, PLUS, Scram
from onceway.base.values import is_loopback
from onceway.client.urls import RouterUrl
from onceway.errors import UsageError

NONCE_BYTES: Final = 18
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
BEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (EXTERNAL, BEARER, *(name + PLUS for name in HASHES), *HASHES, PLAIN)
_HINTS: Final = {
    PLAIN: "PLAIN would show the password to whoever listens: use amqps://, or name the mechanism PLAIN",
    EXTERNAL: "EXTERNAL needs a certificate: name the mechanism EXTERNAL, with a certificate in tls",
    BEARER: "OAUTHBEARER needs a token",
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password, a token, or that TLS shows a certificate.

    Attributes:
        user: Who it is; empty: the certificate says it.
        password: The user's.
        mechanism: The only one to use, such as `SCRAM-SHA-256`, `PLAIN` or `EXTERNAL`. None: the best that the router
            offers.
        token: A token of OAuth, which says who it is, or what gives one for each connection: tokens are valid for a
            while. It is sent through TLS only.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    mechanism: str | None = None
    token: str | Callable[[], str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.mechanism is not None and self.mechanism not in MECHANISMS:
            raise UsageError(f"mechanism {self.mechanism!r}: one of {', '.join(MECHANISMS)}")
        if self.token is not None or self.mechanism == BEARER:
            if self.token is None or self.user or self.password or self.mechanism not in (None, BEARER):
                raise UsageError("credentials with a token need no user, no password, and no other mechanism")
        elif self.mechanism == EXTERNAL:
            if self.password:
                raise UsageError("a password for EXTERNAL: the certificate says who it is")
        elif not self.user or not self.password:
            raise UsageError("credentials need user and password, a token, or the mechanism EXTERNAL")


class Who(TypedDict, total=False):
    """What routers and stores are shown, as of `onceway.connect`."""

    tls: ssl.SSLContext | None
    credentials: Credentials | None


class Login:
    """Makes what each connection of a client needs. None: the client says that it is anonymous."""

    def __init__(self, credentials: Credentials | None) -> None:
        self.credentials = credentials
        self._made: dict[tuple[bool, bytes | None], ClientMechanism | ClientChoice] = {}

    def sasl(self, host: str, *, secure: bool, end_point: bytes | None) -> ClientMechanism | ClientChoice:
        """What to use with this router.

        Args:
            host: As in its URL.
            secure: There is TLS.
            end_point: The channel binding of the router's certificate; None: there is none.
        """
        if self.credentials is None:
            return Anonymous()
        plain = secure or is_loopback(host)
        key = plain, end_point
        if key not in self._made:
            self._made.clear()  # one router's certificate after the other
            self._made[key] = _choice(self.credentials, plain, end_point)
        return self._made[key]


def login_for(url: RouterUrl, credentials: Credentials | None = None) -> Login:
    """With the user and password of the URL, if it has them."""
    return Login(Credentials(url.user, url.password or "") if url.user is not None else credentials)


def _choice(credentials: Credentials, plain: bool, end_point: bytes | None) -> ClientChoice:
    user, password, only = credentials.user, credentials.password, credentials.mechanism
    token = credentials.token
    if token is not None:
        if not plain:
            raise UsageError("a token is sent through TLS only: use amqps://")
        return ClientChoice([Bearer(token if callable(token) else lambda: token)])
    if only == EXTERNAL:
        return ClientChoice([External()])
    mechanisms: list[ClientMechanism] = []
    try:
        for suffix in (PLUS, "") if end_point is not None else ("",):
            for name in HASHES:
                if only in (None, name + suffix):
                    binding = end_point if suffix else None
                    could_bind = end_point is not None and not suffix and only is None
                    made = Scram(name + suffix, user, password, _nonce, binding=binding, could_bind=could_bind)
                    mechanisms.append(made)
        if only == PLAIN or (only is None and plain):
            mechanisms.append(Plain(user, password))
    except EncodeError as error:
        raise UsageError(f"user or password cannot be used: {error}") from error
    return ClientChoice(mechanisms, {} if only else _HINTS)


def _nonce() -> str:
    return secrets.token_urlsafe(NONCE_BYTES)
