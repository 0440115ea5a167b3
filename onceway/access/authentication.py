"""Who a client is: the mechanisms that a listener offers to it, its certificate, and the file of users.

`Authentication` is one router's, made anew on every reload; `ClientSasl` is one connection's. What takes time, a
password in plain text and the late answer to a wrong one, is `Pending` and comes back through `resolve`.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from amqp10.errors import EncodeError
from amqp10.frames import MIN_MAX_FRAME_SIZE
from amqp10.sasl import (
    AnonymousServer,
    BearerServer,
    ExternalServer,
    Failure,
    Pending,
    PlainServer,
    ServerMechanism,
    Step,
    Success,
)
from amqp10.scram import END_POINT, HASHES, PLUS, ScramServer, Verifier, prepare
from amqp10.types import Symbol
from onceway.access.fair import ByAddress
from onceway.access.guesses import Guesses
from onceway.access.tls import Tls
from onceway.access.tokens import Holder, Tokens
from onceway.access.users import NOBODYS, Users, load_users
from onceway.base import waits
from onceway.topology import Topology
from onceway.topology.named import named_files
from onceway.topology.sasl import ANONYMOUS, BEARER, EXTERNAL, PLAIN, CertificateRule, Sasl
from router.config import RouterConfig
from router.policies import NOBODY, Policy

NONCE_BYTES: Final = 18
CHECKS_AT_ONCE: Final = 2  # passwords in plain text; each takes some 5 ms of one core
MOST_TOKEN: Final = 16 << 10  # bytes of a SASL frame where it may have a token
_FIELDS: Final = {"dns": "DNS", "email": "email", "uri": "URI"}


@dataclass(eq=False, slots=True)
class _Check:
    found: asyncio.Future[bool]
    look: Callable[[], bool]


class Checks:
    """Comparisons of passwords in plain text, in threads. Addresses are served by turns: a flood from one holds up a
    client of another by one comparison, and not by all that wait. Nobody's password is compared who is gone."""

    def __init__(self) -> None:
        self._waiting: ByAddress[_Check] = ByAddress()
        self._running = 0

    def start(self, address: str, look: Callable[[], bool]) -> asyncio.Future[bool]:
        """address: the client's host:port. Cancel what is returned when the client is gone."""
        check = _Check(waits.PASSWORD(asyncio.get_running_loop().create_future()), look)
        check.found.add_done_callback(lambda _: self._waiting.remove(address, check))
        self._waiting.put(address, check)
        self._go_on()
        return check.found

    def _go_on(self) -> None:
        while self._running < CHECKS_AT_ONCE and self._waiting:
            check = self._waiting.take()
            self._running += 1
            running = asyncio.get_running_loop().run_in_executor(_workers(), check.look)
            running.add_done_callback(partial(self._checked, check.found))

    def _checked(self, found: asyncio.Future[bool], running: asyncio.Future[bool]) -> None:
        self._running -= 1
        if running.cancelled():
            found.cancel()
        elif not found.cancelled():
            found.set_result(running.result())
        self._go_on()


@dataclass(slots=True)
class Authentication:
    """How the clients of one router say who they are, as the topology file has it now."""

    sasl: Sasl
    users: Users
    tokens: Tokens | None = None
    guesses: Guesses = field(default_factory=Guesses)
    checks: Checks = field(default_factory=Checks)

    @property
    def anonymous(self) -> bool:
        """Whether clients need not say who they are."""
        return ANONYMOUS in self.sasl.mechanisms


def users_gone(before: Authentication | None, after: Authentication | None) -> set[str]:
    """The users that are not there any more."""
    if before is None or after is None:
        return set()
    return set(before.users.by_name) - set(after.users.by_name)


def logins_of(own: Authentication | None) -> tuple[object, ...]:
    """What says who comes in; equal where nobody does otherwise."""
    return () if own is None else (own.sasl, own.users, own.tokens.content if own.tokens is not None else None)


def rights_of(own: Authentication | None, policies: tuple[Policy, ...] | None) -> tuple[object, ...]:
    """What says who may do what; equal where nobody's rights have changed."""
    groups = {} if own is None else {name: user.groups for name, user in own.users.by_name.items()}
    return groups, policies


def groups_of(own: Authentication | None, config: RouterConfig, user: str) -> tuple[str, ...]:
    """The groups of a user who is away. Whose groups a token says may come back with any of them."""
    if own is None:
        return ()
    if own.tokens is None or user in own.users.by_name:
        return own.users.groups(user)
    return tuple(group for policy in config.policies or () for group in policy.groups)


def secret_files(topology: Topology) -> list[Path]:
    """Those that the file names, but for the keys of certificates, which their contexts name."""
    found = [each for each in named_files(topology.text) if each.secret and each.place[0] != "tls"]
    return [topology.directory / each.node.value for each in found]


def load(topology: Topology, before: Authentication | None = None) -> Authentication | None:
    """Reads the files that `sasl` names; None if the topology has no such section. It goes on with what `before` has
    learned.

    Raises:
        UsageError: A file cannot be used.
    """
    sasl = topology.sasl
    if sasl is None:
        return None
    users = Users()
    if sasl.users is not None:
        users = load_users(topology.directory / sasl.users, f"{topology.path}: sasl.users")
    tokens = before.tokens if before is not None else None
    if sasl.tokens is None:
        tokens = None
    elif tokens is None or tokens.rules != sasl.tokens or not sasl.tokens.remote:
        tokens = Tokens(sasl.tokens, topology.directory, f"{topology.path}: sasl.tokens")
    if before is None:
        return Authentication(sasl, users, tokens)
    return Authentication(sasl, users, tokens, before.guesses, before.checks)


def everybody(username: str | None, password: bytes | None) -> Step:
    """Lets every client in without a name: the file has no users."""
    return Success(NOBODY.user)


class ClientSasl:
    """What is offered to one client (`amqp10.sasl.Offer`).

    Args:
        own: The router's.
        address: The client's host:port.
        tls: Its TLS, whose handshake is over when it speaks of SASL.
        later: Takes the result of a step that was pending.
        ends: Takes the seconds after which what the client has shown does not hold any more.
    """

    def __init__(
        self,
        own: Authentication,
        address: str,
        tls: Tls | None,
        later: Callable[[Step], None],
        ends: Callable[[float], None],
    ) -> None:
        self._own = own
        self._address = address
        self._tls = tls
        self._later = later
        self._ends = ends
        self._holder: Holder | None = None  # of the token that it has shown
        self._claimed = ""  # who the client says it is
        self._refused = False  # without a look at what it has shown
        self._checking: asyncio.Future[bool] | None = None  # its password

    @property
    def has_token(self) -> bool:
        """Whether a token has said who it is, and which its groups are."""
        return self._holder is not None

    def gone(self) -> None:
        """The connection is over: nobody waits for an answer."""
        if self._checking is not None:
            self._checking.cancel()

    @property
    def largest_frame(self) -> int:
        return MOST_TOKEN if BEARER in self.names else MIN_MAX_FRAME_SIZE

    @property
    def names(self) -> tuple[Symbol, ...]:
        offered: list[str] = []
        plus = self._end_point() is not None
        for name in self._own.sasl.mechanisms:
            if name in HASHES and plus:
                offered.append(name + PLUS)
        for name in self._own.sasl.mechanisms:
            if (name in (EXTERNAL, BEARER) and self._tls is None) or (
                name == PLAIN and self._tls is None and not self._own.sasl.plain_without_tls
            ):
                continue
            offered.append(name)
        return tuple(Symbol(name) for name in offered)

    def begin(self, name: str) -> ServerMechanism | None:
        if name not in self.names:
            return None
        mechanism: ServerMechanism
        if name == ANONYMOUS:
            return AnonymousServer()
        if name == EXTERNAL:
            mechanism = _External(self._user_of_certificate())
        elif name == BEARER:
            mechanism = BearerServer(self._check_token)
        elif name == PLAIN:
            mechanism = PlainServer(self._check_password)
        else:
            end_point = self._end_point()
            bindings = {END_POINT: end_point} if end_point is not None else {}
            nonce = secrets.token_urlsafe(NONCE_BYTES)
            mechanism = ScramServer(name, lambda user: self._verifier(user, name), nonce, bindings)
        return _Watched(mechanism, self)

    def by_password(self, username: str | None, password: bytes | None) -> Step:
        """Says who a client is that has brought a user name and password in plain text, or neither, as MQTT has them:
        as PLAIN would; without a name as EXTERNAL, where its certificate says who it is, or ANONYMOUS."""
        names = [EXTERNAL, ANONYMOUS] if username is None else [PLAIN]
        data = b"" if username is None else b"\0" + username.encode() + b"\0" + (password or b"")
        for name in names:
            if name == EXTERNAL and self._user_of_certificate() is None:
                continue
            mechanism = self.begin(name)
            if mechanism is not None:
                return mechanism.step(data)
        if username is None:
            return Failure("a user name is needed")
        return Failure("passwords are not taken here: sasl.mechanisms has no PLAIN, or the connection has no TLS")

    def result(self, step: Step) -> Step:
        """What a mechanism has found, with the user's groups, and late if it is a failure among many."""
        own, now = self._own, time.monotonic()
        if isinstance(step, Success):
            if step.identity != NOBODY.user:
                own.guesses.succeeded(self._address, step.identity)
            if self._holder is not None:
                self._ends(self._holder.lasts_s)
                return replace(step, groups=self._holder.groups)
            return replace(step, groups=own.users.groups(step.identity))
        if not isinstance(step, Failure):
            return step
        if self._refused:
            own.guesses.counts["refused"] += 1
            return Failure(f"{step.reason}: too many failures before, so nothing is looked at for a while")
        delay_s = own.guesses.failed(self._address, self._claimed, now)
        if delay_s <= 0:
            return step
        asyncio.get_running_loop().call_later(delay_s, self._later, step)
        return Pending()

    def _user_of_certificate(self) -> str | None:
        shown = self._tls.certificate() if self._tls is not None else {}
        return user_of(shown, self._own.sasl.certificates) if shown else None

    def _end_point(self) -> bytes | None:
        return self._tls.end_point if self._tls is not None else None

    def _refuses(self, user: str) -> bool:
        self._claimed = user
        self._refused = self._own.guesses.refuses(self._address, user, time.monotonic())
        return self._refused

    def _verifier(self, user: str, mechanism: str) -> Verifier:
        verifier = self._own.users.verifier(user, mechanism.removesuffix(PLUS))
        if self._refuses(user):  # what the client sees is as always
            return replace(verifier, stored_key=secrets.token_bytes(len(verifier.stored_key)))
        return verifier

    def _check_token(self, token: str) -> Success | Failure | Pending:
        tokens = self._own.tokens
        assert tokens is not None
        if not tokens.wants_keys(token, time.monotonic()):
            return self._whose(tokens, token)
        fetching = asyncio.get_running_loop().run_in_executor(_fetcher(), tokens.fetch)

        def fetched(future: asyncio.Future[None]) -> None:
            if not future.cancelled():
                future.result()
                step = self.result(self._whose(tokens, token))
                if not isinstance(step, Pending):
                    self._later(step)

        fetching.add_done_callback(fetched)
        return Pending()

    def _whose(self, tokens: Tokens, token: str) -> Success | Failure:
        found = tokens.verify(token)
        if isinstance(found, Failure):
            return found
        self._holder = found
        return Success(found.user)

    def _check_password(self, username: str, password: str) -> bool | Pending:
        try:
            user = prepare(username)
        except EncodeError:
            return False
        if self._refuses(user):
            return False
        self._checking = self._own.checks.start(self._address, partial(self._own.users.matches, user, password))

        def checked(future: asyncio.Future[bool]) -> None:
            if not future.cancelled():
                found = Success(user) if future.result() else Failure(f"wrong user or password for {user!r:.60}")
                step = self.result(found)
                if not isinstance(step, Pending):
                    self._later(step)

        self._checking.add_done_callback(checked)
        return Pending()


class _Watched:
    """A mechanism whose failures are counted."""

    __slots__ = ("_client", "_mechanism")

    def __init__(self, mechanism: ServerMechanism, client: ClientSasl) -> None:
        self._mechanism = mechanism
        self._client = client

    def step(self, data: bytes | None) -> Step:
        return self._client.result(self._mechanism.step(data))


class _External:
    """EXTERNAL, for whom no rule may say who it is."""

    __slots__ = ("_mechanism",)

    def __init__(self, user: str | None) -> None:
        self._mechanism = ExternalServer(user) if user is not None else None

    def step(self, data: bytes | None) -> Step:
        if self._mechanism is None:
            return Failure("EXTERNAL without a certificate that sasl.certificates has a rule for")
        return self._mechanism.step(data)


def user_of(certificate: Mapping[str, Any], rules: Sequence[CertificateRule]) -> str | None:
    """Whose certificate it is, as `ssl` shows it; None if no rule says so."""
    for rule in rules:
        for name in _names(certificate, rule.source):
            match = re.fullmatch(rule.match, name)
            if match is None:
                continue
            try:
                user = prepare(match.expand(rule.user))
            except EncodeError:
                continue
            if user not in NOBODYS:
                return user
    return None


def _names(certificate: Mapping[str, Any], source: str) -> list[str]:
    if source == "common_name":
        parts = [part for parts in certificate.get("subject", ()) for part in parts]
        return [value for key, value in parts if key == "commonName"]
    return [value for key, value in certificate.get("subjectAltName", ()) if key == _FIELDS[source]]


async def fetch(tokens: Tokens) -> None:
    """Gets the keys of tokens from their URL, beside all else."""
    await waits.TOKEN_KEYS(asyncio.get_running_loop().run_in_executor(_fetcher(), tokens.fetch))


@cache
def _workers() -> ThreadPoolExecutor:
    """Threads are the process's, however many routers it has."""
    return ThreadPoolExecutor(CHECKS_AT_ONCE, "passwords")


@cache
def _fetcher() -> ThreadPoolExecutor:
    """Its own: a server of keys that hangs holds up no passwords."""
    return ThreadPoolExecutor(1, "keys")
