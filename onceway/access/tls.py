"""TLS of a router: what its listeners and trunks show and ask for, and one connection's TLS without its socket."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from onceway.access.certificates import Content, Validity, dns_names, end_point, first_certificate, validity
from onceway.access.contexts import load_authorities, load_chain, reason
from onceway.base.private import check_private
from onceway.errors import UsageError
from onceway.topology import Topology
from onceway.topology.tls import TlsProfile
from router.reporting import Log

WARN_DAYS: Final = 30
RECORD: Final = 16 << 10  # bytes of a record of TLS, at most
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY: Final = {"off": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ListenerContext(ssl.SSLContext):
    """What a listener shows and asks for."""

    end_point: bytes | None = None
    """The channel binding of the certificate that is shown, if it has one."""
    validities: tuple[Validity, ...] = ()
    """Of all certificates, those for names included."""
    keys: tuple[Path, ...] = ()
    """Their files."""
    authorities: tuple[Content, ...] = ()
    """Whose certificates it takes, and lists of those that are revoked."""
    names: frozenset[str] = frozenset()
    """The hosts that the certificates are for, in small letters."""

    @property
    def contents(self) -> tuple[Content, ...]:
        """All files that tell what it shows and asks for."""
        return (*(each.content for each in self.validities), *self.authorities)

    def show_for(self, names: Mapping[str, ListenerContext]) -> None:
        """Clients that ask for one of these names (RFC 6066, 3: SNI) are shown another certificate. `*.example.org`
        stands for all names with one label more."""

        def choose(session: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            wanted = (name or "").lower()
            found = names.get(wanted) or names.get("*." + wanted.partition(".")[2])
            if found is not None:
                session.context = found

        self.sni_callback = choose


class Tls:
    """One side of one connection, the listener's unless it `dials`, without its socket: bytes in, bytes out.

    asyncio's TLS is not used: it counts a connection only after the handshake, so that no limit holds before it, and
    does not tell a client why its certificate was refused.

    Attributes:
        failure: Why TLS has failed; empty if it has not.
        over: Nothing more can be received: TLS has failed, or the other side has ended it.
        shaken: The handshake is over.
    """

    kind: Final = "TLS"
    __slots__ = ("_early", "_in", "_out", "_session", "failure", "over", "shaken")

    def __init__(self, context: ssl.SSLContext, *, dials: bool = False) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._in, self._out, server_side=not dials)
        self.shaken = False
        self._early: list[bytes] = []  # what is to be sent once the handshake is over
        self.failure = ""
        self.over = False
        if dials:
            with contextlib.suppress(ssl.SSLWantReadError):  # it begins
                self._session.do_handshake()

    def receive(self, data: bytes) -> bytes:
        """What the other side says, as far as it has come; `data_to_send` may have an answer of TLS."""
        if self.over:
            return b""
        self._in.write(data)
        parts: list[bytes] = []
        try:
            if not self.shaken:
                self._session.do_handshake()
                self.shaken = True
                early, self._early = self._early, []
                for waiting in early:
                    self._session.write(waiting)
            # A read takes one record and leaves the others in _in. To read until there is none would cost an exception
            # for each read of the socket, as much as the rest of it.
            while self._in.pending:
                part = self._session.read(RECORD)
                if not part:
                    self.over = True  # it has said that it ends
                    break
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.over = True
        except ssl.SSLError as error:
            self.over = True
            self.failure = reason(error)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def end_point(self) -> bytes | None:
        """The data of channel binding tls-server-end-point; None: there are none."""
        context = self._session.context  # the one whose certificate was shown
        return context.end_point if isinstance(context, ListenerContext) else None

    def send(self, data: bytes) -> None:
        """What is sent before the handshake waits for its end."""
        if not data or self.failure:
            return
        if self.shaken:
            self._session.write(data)
        else:
            self._early.append(data)

    def close(self) -> None:
        """Tells the other side that nothing more will come."""
        if self.shaken and not self.over:
            with contextlib.suppress(ssl.SSLError):  # it wants to read the answer, which nobody waits for
                self._session.unwrap()

    def certificate(self) -> Mapping[str, Any]:
        """What the other side has shown and was found to be valid, as `ssl` gives it; empty before the handshake."""
        return (self._session.getpeercert() or {}) if self.shaken and not self.failure else {}

    def data_to_send(self) -> bytes:
        return self._out.read()


def listener_context(topology: Topology, name: str, log: Log) -> ListenerContext | None:
    """What router `name` needs for its listener with TLS, its files read now; None: it has no such listener.

    Raises:
        UsageError: A file cannot be used.
    """
    place = topology.routers[name]
    return profile_context(topology, place.tls, name, log) if place.secure else None


def profile_context(topology: Topology, profile: str, name: str, log: Log) -> ListenerContext | None:
    """What a listener of router or store `name` shows and asks for by this profile, its files read now; None: the
    profile has no name, so that there is no TLS.

    Raises:
        UsageError: A file cannot be used.
    """
    if not profile:
        return None
    context = server_context(f"{topology.path}: tls.{profile}", topology.tls_profile(profile, name))
    warn_of_end(context, log)
    return context


def warn_of_end(context: ListenerContext, log: Log) -> None:
    """Logs that a certificate that is shown ends soon, or is not valid now."""
    now = time.time()
    for each in context.validities:
        days = each.days_left(now)
        if days < 0 or now < each.begins:
            text = "{file} is not valid now, so that others refuse it: put a new one in its place and reload"
            log.warning("certificate_not_valid", text, file=str(each.file))
        elif days < WARN_DAYS:
            text = "{file} expires in {days} days: put a new one in its place and reload"
            log.warning("certificate_expires", text, file=str(each.file), days=int(days))


def server_context(place: str, profile: TlsProfile) -> ListenerContext:
    """What a listener shows and asks for.

    Raises:
        UsageError: A file cannot be used; names it and `place`.
    """
    context = _context(ListenerContext(ssl.PROTOCOL_TLS_SERVER), place, profile, _VERIFY[profile.clients])
    others = {
        name: server_context(
            f"{place}.names.{name}", replace(profile, certificate=pair.certificate, key=pair.key, names={})
        )
        for name, pair in profile.names.items()
    }
    if others:
        context.show_for(others)
        context.validities += tuple(each for shown in others.values() for each in shown.validities)
        context.keys += tuple(each for shown in others.values() for each in shown.keys)
        context.names = context.names.union(others, *(shown.names for shown in others.values()))
    return context


def trunk_context(place: str, profile: TlsProfile, *, dials: bool) -> ListenerContext:
    """What one side of a trunk shows and asks for: both must show a certificate of the authority, and no host.

    Raises:
        UsageError: A file cannot be used; names it and `place`.
    """
    assert profile.ca is not None
    context = ListenerContext(ssl.PROTOCOL_TLS_CLIENT if dials else ssl.PROTOCOL_TLS_SERVER)
    context.check_hostname = False
    context.options |= ssl.OP_NO_TICKET  # certificates are looked at anew with each connection
    if not dials:
        context.num_tickets = 0
    return _context(context, place, profile, ssl.CERT_REQUIRED)


def _context(context: ListenerContext, place: str, profile: TlsProfile, verify: ssl.VerifyMode) -> ListenerContext:
    context.minimum_version = _VERSIONS[profile.minimum]
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_chain(context, place, profile.certificate, profile.key)
    check_private([profile.key])
    shown = first_certificate(profile.certificate)
    context.end_point, context.names = end_point(shown), dns_names(shown)
    context.validities = (validity(profile.certificate),)
    context.keys = (profile.key,)
    if profile.ciphers:
        try:
            context.set_ciphers(profile.ciphers)
        except ssl.SSLError as error:
            raise UsageError(
                f"{place}.ciphers: OpenSSL knows none of {profile.ciphers}; see openssl ciphers"
            ) from error
    if profile.ca is not None:
        load_authorities(context, f"{place}.ca", profile.ca)
        context.authorities += (Content.of(profile.ca, "authorities"),)
    if profile.revoked is not None:
        load_authorities(context, f"{place}.revoked", profile.revoked)
        context.authorities += (Content.of(profile.revoked, "revoked certificates"),)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    context.verify_mode = verify
    return context
