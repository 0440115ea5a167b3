"""SASL mechanisms (AMQP 5.3), without frames.

Knows ANONYMOUS (RFC 4505), PLAIN (RFC 4616), EXTERNAL (RFC 4422, A) and OAUTHBEARER (RFC 7628), both sides. Another
mechanism is a class with the same methods and an entry in a table. Where passwords are kept is not known here. Next:
scram.py for SCRAM, handshake.py for the exchange, performatives.py for the frames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from amqp10.errors import UNAUTHORIZED_ACCESS, EncodeError, RemoteProtocolError
from amqp10.frames import MIN_MAX_FRAME_SIZE
from amqp10.types import Symbol

ANONYMOUS_IDENTITY = "anonymous"


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client has to answer this."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Success:
    """The client's identity is established. additional_data is sent with the outcome (AMQP 5.3.3.5)."""

    identity: str
    additional_data: bytes | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """The client is refused. The reason is for our log: the client is told only sasl-code auth."""

    reason: str


@dataclass(frozen=True, slots=True)
class Pending:
    """The step takes time: its result is passed to `Connection.authenticated`. Until then nothing is read."""


Step: TypeAlias = Challenge | Success | Failure | Pending


class ServerMechanism(Protocol):
    """One exchange with one client."""

    def step(self, data: bytes | None) -> Step:
        """Called first with the initial response (None if there is none), then with each response."""


class ClientMechanism(Protocol):
    """One way for a client to authenticate. The same object serves all connections of a client."""

    @property
    def name(self) -> str:
        """As in sasl-mechanisms."""

    def start(self) -> bytes | None:
        """A new exchange; its initial response."""

    def step(self, challenge: bytes) -> bytes:
        """The response to a challenge. RemoteProtocolError if the challenge is wrong."""

    def finish(self, data: bytes | None) -> None:
        """The server has accepted. RemoteProtocolError if the data of its outcome do not show what they must."""


class ClientChoice:
    """Mechanisms of a client, preferred ones first; it takes the first one that the server offers. hints: why it takes
    none of these, for errors."""

    __slots__ = ("_hints", "_mechanisms")

    def __init__(self, mechanisms: Sequence[ClientMechanism], hints: Mapping[str, str] | None = None) -> None:
        self._mechanisms = mechanisms
        self._hints = hints or {}

    def choose(self, offered: Sequence[str]) -> ClientMechanism | None:
        """None: none of them will do."""
        return next((each for each in self._mechanisms if each.name in offered), None)

    def why_none(self, offered: Sequence[str]) -> str:
        """What to say when none of them will do."""
        known = [self._hints[name] for name in offered if name in self._hints]
        return "; ".join([f"the server offers {', '.join(offered) or 'none'}: none will do", *known])


class Offer(Protocol):
    """What a server offers to one client; asked when the SASL header arrives."""

    @property
    def largest_frame(self) -> int:
        """Bytes that a SASL frame may have. AMQP 5.3.1 says 512; tokens may need more."""

    @property
    def names(self) -> tuple[Symbol, ...]:
        """Preferred ones first."""

    def begin(self, name: str) -> ServerMechanism | None:
        """A new exchange; None if the mechanism is not offered."""


class ServerMechanisms:
    """The mechanisms that a server offers, preferred ones first: {name: function that makes a ServerMechanism}."""

    __slots__ = ("_mechanisms",)
    largest_frame = MIN_MAX_FRAME_SIZE

    def __init__(self, mechanisms: Mapping[str, Callable[[], ServerMechanism]]) -> None:
        if not mechanisms:
            raise EncodeError("a server must offer one SASL mechanism at least")
        self._mechanisms = dict(mechanisms)

    @property
    def names(self) -> tuple[Symbol, ...]:
        return tuple(Symbol(name) for name in self._mechanisms)

    def begin(self, name: str) -> ServerMechanism | None:
        """A new exchange; None if the mechanism is not offered."""
        make = self._mechanisms.get(name)
        return None if make is None else make()


class AnonymousServer:
    """Accepts every client; the trace information that it may send does not identify it."""

    __slots__ = ()

    def step(self, data: bytes | None) -> Step:
        return Success(ANONYMOUS_IDENTITY)


class PlainServer:
    """`verify(username, password)` returns whether the password is right, or that this is pending."""

    __slots__ = ("_verify",)

    def __init__(self, verify: Callable[[str, str], bool | Pending]) -> None:
        self._verify = verify

    def step(self, data: bytes | None) -> Step:
        if data is None:
            return Challenge(b"")
        parts = data.split(b"\x00")
        if len(parts) != 3:
            return Failure("malformed PLAIN response")
        try:
            authorization, username, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            return Failure("PLAIN response is not UTF-8")
        if not username or not password:
            return Failure("PLAIN response without user or password")
        if authorization and authorization != username:
            return Failure(f"user {username!r:.60} may not act as {authorization!r:.60}")
        right = self._verify(username, password)
        if isinstance(right, Pending):
            return right
        if not right:
            return Failure(f"wrong user or password for {username!r:.60}")
        return Success(username)


class ExternalServer:
    """Something below, such as TLS, has established who the client is."""

    __slots__ = ("_user",)

    def __init__(self, user: str) -> None:
        self._user = user

    def step(self, data: bytes | None) -> Step:
        if data is None:
            return Challenge(b"")
        if data and data != self._user.encode():
            return Failure(f"user {self._user!r} may not act as {data!r:.60}")
        return Success(self._user)


class BearerServer:
    """OAUTHBEARER: `verify(token)` says whose token it is, or that this is pending."""

    __slots__ = ("_failure", "_verify")

    def __init__(self, verify: Callable[[str], Success | Failure | Pending]) -> None:
        self._verify = verify
        self._failure: Failure | None = None

    def step(self, data: bytes | None) -> Step:
        if self._failure is not None:  # the client has read why
            return self._failure
        if data is None:
            return Challenge(b"")
        header, _, rest = data.partition(b"\x01")
        fields = dict(pair.partition(b"=")[::2] for pair in rest.split(b"\x01") if pair)
        scheme, _, token = fields.get(b"auth", b"").partition(b" ")
        flag, _, authorization = header.rstrip(b",").partition(b",")
        if flag not in (b"n", b"y") or not data.endswith(b"\x01\x01") or scheme.lower() != b"bearer" or not token:
            return Failure("malformed OAUTHBEARER response")
        try:
            result = self._verify(token.decode("ascii"))
        except UnicodeDecodeError:
            return Failure("a token that is not ASCII")
        if isinstance(result, Success) and authorization and authorization != b"a=" + result.identity.encode():
            result = Failure(f"user {result.identity!r} may not act as {authorization!r:.60}")
        if isinstance(result, Failure):  # RFC 7628, 3.2.2
            self._failure = result
            return Challenge(b'{"status":"invalid_token"}')
        return result


def server_mechanisms(*, anonymous: bool = True, verify: Callable[[str, str], bool] | None = None) -> ServerMechanisms:
    """The usual mechanisms: PLAIN if `verify` is given, then ANONYMOUS if it is allowed."""
    table: dict[str, Callable[[], ServerMechanism]] = {}
    if verify is not None:
        check = verify
        table["PLAIN"] = lambda: PlainServer(check)
    if anonymous:
        table["ANONYMOUS"] = AnonymousServer
    return ServerMechanisms(table)


class Anonymous:
    """Client side; `trace` is free text about the client."""

    __slots__ = ("_trace",)
    name = "ANONYMOUS"

    def __init__(self, trace: str = "anonymous") -> None:
        self._trace = trace.encode()

    def start(self) -> bytes | None:
        return self._trace

    def step(self, challenge: bytes) -> bytes:
        raise RemoteProtocolError(UNAUTHORIZED_ACCESS, "ANONYMOUS has no challenges")

    def finish(self, data: bytes | None) -> None:
        """Nothing is shown."""


class Plain:
    """Client side."""

    __slots__ = ("_response",)
    name = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        if not username or not password or "\x00" in username + password:
            raise EncodeError("PLAIN needs a user and a password, without NUL")
        self._response = b"\x00" + username.encode() + b"\x00" + password.encode()

    def start(self) -> bytes | None:
        return self._response

    def step(self, challenge: bytes) -> bytes:
        if challenge:
            raise RemoteProtocolError(UNAUTHORIZED_ACCESS, "PLAIN has no challenges")
        return self._response  # a server that hasn't read the initial response asks with an empty challenge

    def finish(self, data: bytes | None) -> None:
        """Nothing is shown."""


class External:
    """Client side: TLS has shown a certificate."""

    __slots__ = ()
    name = "EXTERNAL"

    def start(self) -> bytes | None:
        return b""

    def step(self, challenge: bytes) -> bytes:
        if challenge:
            raise RemoteProtocolError(UNAUTHORIZED_ACCESS, "EXTERNAL has no challenges")
        return b""

    def finish(self, data: bytes | None) -> None:
        """Nothing is shown."""


class Bearer:
    """Client side of OAUTHBEARER; `token` is read anew for each connection."""

    __slots__ = ("_token",)
    name = "OAUTHBEARER"

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def start(self) -> bytes | None:
        return b"n,,\x01auth=Bearer " + self._token().encode() + b"\x01\x01"

    def step(self, challenge: bytes) -> bytes:
        return b"\x01"  # it says why the token is refused; the outcome follows

    def finish(self, data: bytes | None) -> None:
        """Nothing is shown."""
