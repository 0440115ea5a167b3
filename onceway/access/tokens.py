"""Tokens of OAUTHBEARER: JSON web tokens (RFC 7519), signed with a key of a JWKS file or URL (RFC 7517).

A token counts if one of the keys has signed it, and its issuer, its audience and its time are right. Only signatures
that need a private key count: with a shared secret, whoever can check a token could make one. PyJWT does the checking.
"""

from __future__ import annotations

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Final, NamedTuple

from amqp10.errors import EncodeError
from amqp10.sasl import Failure
from amqp10.scram import prepare
from onceway.access.certificates import Content
from onceway.access.users import NOBODYS
from onceway.base import waits
from onceway.base.private import let_read
from onceway.errors import UsageError
from onceway.topology.sasl import TokenRules

LEEWAY_S: Final = 30.0  # that clocks may differ
FETCH_AGAIN_S: Final = 600.0  # so that keys that are withdrawn are forgotten
LEAST_PAUSE_S: Final = 10.0  # between fetches, whatever keys strangers name
MOST_BYTES: Final = 1 << 20  # of a set of keys
_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}


class Holder(NamedTuple):
    """Whose token it is."""

    user: str
    groups: tuple[str, ...]
    lasts_s: float


class Tokens:
    """What one router knows of keys. `verify` and `wants_keys` wait for nothing; `fetch` does, in a thread.

    Args:
        rules: What the topology file says.
        directory: What a path of keys is relative to.
        place: Where the file is named, for errors.

    Raises:
        UsageError: PyJWT is missing, or the file of keys cannot be used.
    """

    def __init__(self, rules: TokenRules, directory: Path, place: str) -> None:
        self.rules = rules
        self._keys: dict[str, Any] = {}  # by id
        self._fetched_at: float | None = None  # tried to, by time.monotonic
        self._why = ""  # there are no newer keys
        try:
            import jwt
        except ImportError as error:
            raise UsageError(f"{place}: tokens need PyJWT: pip install 'onceway[oauth]'") from error
        self._jwt = jwt
        self.content: Content | None = None  # of the file of keys
        if not rules.remote:
            path = directory / rules.keys
            try:
                self._keys = self._read(path.read_bytes())
                self.content = Content.of(path, f"keys {', '.join(name or 'without a name' for name in self._keys)}")
            except OSError as error:
                raise UsageError(f"{place}: {path} cannot be read: {error.strerror}{let_read(error)}") from error
            except ValueError as error:
                raise UsageError(f"{place}: {path}: {error}") from error

    def wants_keys(self, token: str, now: float) -> bool:
        """Whether `fetch` may bring the key that this token needs."""
        if not self.rules.remote or (self._fetched_at is not None and now - self._fetched_at < LEAST_PAUSE_S):
            return False
        return self._fetched_at is None or now - self._fetched_at > FETCH_AGAIN_S or self._key(token) is None

    def fetch(self) -> None:
        """Gets the keys from their URL. The old ones stay where that fails; then `verify` says why."""
        self._fetched_at = time.monotonic()
        within = _Within(waits.TOKEN_KEYS.s)
        opener = urllib.request.build_opener(_NoRedirect, within)
        try:
            with opener.open(self.rules.keys, timeout=waits.TOKEN_KEYS.s) as response:
                self._keys = self._read(response.read(MOST_BYTES + 1))
            self._why = ""
        except (OSError, ValueError, HTTPException) as error:  # URLError and HTTPError are OSErrors
            late = time.monotonic() - self._fetched_at >= waits.TOKEN_KEYS.s
            if late:
                waits.TOKEN_KEYS.ended()
            why = f"no answer within {waits.TOKEN_KEYS.s:g} s" if late else error
            self._why = f"; {self.rules.keys}: {why}"
        finally:
            within.over()

    def verify(self, token: str) -> Holder | Failure:
        key = self._key(token)
        if key is None:
            return Failure(f"a token that none of the known keys has signed{self._why}")
        rules = self.rules
        wanted = ["exp", "iss", "aud", rules.user]
        try:
            said: Mapping[str, Any] = self._jwt.decode(
                token,
                key.key,
                algorithms=_algorithms(key),
                audience=rules.audience,
                issuer=rules.issuer,
                leeway=LEEWAY_S,
                options={"require": wanted},
            )
            ends_at = float(said["exp"])
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
            return Failure(f"a token that does not count: {error}")
        return self._holder(said, ends_at)

    def _holder(self, said: Mapping[str, Any], ends_at: float) -> Holder | Failure:
        named, groups = said[self.rules.user], said.get(self.rules.groups, []) if self.rules.groups else []
        groups = [groups] if isinstance(groups, str) else groups
        if (
            not isinstance(named, str)
            or not isinstance(groups, list)
            or not all(isinstance(one, str) for one in groups)
        ):
            return Failure("a token whose user or groups are no text")
        try:
            user = prepare(named)
        except EncodeError as error:
            return Failure(f"a token for {named!r:.60}: {error}")
        if user in NOBODYS:
            return Failure(f"a token for {named!r:.60}, which can be nobody's name")
        return Holder(user, tuple(groups), ends_at + LEEWAY_S - time.time())

    def _key(self, token: str) -> Any:
        """The key that the token names. Without a name it is the only one there is."""
        try:
            kid = self._jwt.get_unverified_header(token).get("kid")
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if isinstance(kid, str) else None

    def _read(self, data: bytes) -> dict[str, Any]:
        if len(data) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES} bytes; a set of keys is smaller")
        try:
            document = json.loads(data)
            found = self._jwt.PyJWKSet.from_dict(document).keys
        except (self._jwt.PyJWTError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"no set of JSON web keys: {error}") from error
        keys = {
            each.key_id or "": each for each in found if each.key_type in _ALGORITHMS and each.public_key_use != "enc"
        }
        if not keys:
            raise ValueError(f"no key of the kinds {', '.join(_ALGORITHMS)} in it")
        return keys


def _algorithms(key: Any) -> list[str]:
    """Those that the key is for."""
    fit = _ALGORITHMS[key.key_type]
    said = key._jwk_data.get("alg")  # PyJWT makes one up where the key names none
    return [said] if said in fit else [] if said is not None else list(fit)


class _Within(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Ends what takes longer in all. The timeout of urllib is that of each read: a server that says an octet now and
    then would be waited for without end."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._sockets: list[socket.socket] = []  # beside TLS, which has the same connections
        self._timer = threading.Timer(seconds, self._end)
        self._timer.start()

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(partial(self._connection, HTTPConnection), req)

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(partial(self._connection, HTTPSConnection), req)

    def over(self) -> None:
        self._timer.cancel()
        for each in self._sockets:
            each.close()

    def _connection(self, kind: type[HTTPConnection], host: str, **given: Any) -> HTTPConnection:
        made = kind(host, **given)
        setattr(made, "_create_connection", self._connect)  # noqa: B010  (http.client's own hook)
        return made

    def _connect(self, *given: Any, **more: Any) -> socket.socket:
        made = waits.TOKEN_KEYS(socket.create_connection)(*given, **more)
        self._sockets.append(made.dup())
        return made

    def _end(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The file says where keys are, nobody else."""

    def redirect_request(self, *_: Any) -> None:
        return None
