"""`tls` of a topology file: certificates and keys of listeners, as profiles with names.

Nothing is opened here, since a file is also read where its keys are not. `onceway.access.contexts` opens them. Paths
stay as written, so that files that say the same compare equal wherever they are; `TlsProfile.at` makes them whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from onceway.base.values import format_host_port, is_loopback
from onceway.topology.document import Item
from onceway.topology.forms import Choice, File, Profile, Scope, Text
from onceway.topology.table import ByName, Given, Row, Section, Table, When

CLIENTS: Final = ("off", "optional", "required")
MINIMUM: Final = ("1.2", "1.3")
ROUTER: Final = "${router}"
_NEW: Final = When.NEW_CONNECTIONS
_VARIABLE: Final = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_HOST_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class TlsProfile:
    """Where certificates and keys are, as PEM, and what is asked of the other side."""

    certificate: Path  # with those that lead to the CA's behind it
    key: Path  # of the certificate
    ca: Path | None = None  # who may have signed the other side's certificate
    revoked: Path | None = None  # lists of certificates that do not hold any more, one for each CA
    clients: str = "off"  # whether clients show a certificate
    minimum: str = "1.2"  # version of TLS
    ciphers: str = ""  # of TLS 1.2, as OpenSSL names them; empty: OpenSSL's choice
    names: Mapping[str, Pair] = field(default_factory=dict)  # what clients that ask for this host are shown instead

    def at(self, directory: Path, router: str) -> TlsProfile:
        """The same for one router: with paths below the topology file's directory, and its name where they have
        `${router}`."""

        def found(path: Path) -> Path:
            return directory / str(path).replace(ROUTER, router)

        return replace(
            self,
            certificate=found(self.certificate),
            key=found(self.key),
            ca=found(self.ca) if self.ca is not None else None,
            revoked=found(self.revoked) if self.revoked is not None else None,
            names={name: Pair(found(pair.certificate), found(pair.key)) for name, pair in self.names.items()},
        )


def _read_file(text: str) -> Path:
    if not text:
        raise ValueError("no file", "write the path of a PEM file")
    if "$" in text.replace(ROUTER, ""):
        raise ValueError(f'"{text}" has a $ that means nothing', f"{ROUTER} stands for the router's name")
    return Path(text)


def _read_key(text: str) -> str:
    if not text or ("$" in text and not _VARIABLE.fullmatch(text)):
        raise ValueError(f'"{text}" is no place of a key', "write the path of a file, or $ and the name of a variable")
    return text


_FILE: Final = File(_read_file, "a file", ".")
_KEY_FILE: Final = File(_read_file, "a file", ".", secret=True)

PAIR: Final = Section(
    "names",
    "a mapping such as {certificate: shop.pem}",
    (
        Row("certificate", _FILE, _NEW, "as the profile's", required=True),
        Row("key", _KEY_FILE, _NEW, "its key, not encrypted", default="in `certificate`"),
    ),
)


def _make_pair(given: Given, scope: Scope) -> Pair | None:
    certificate = given.values.get("certificate")
    return None if certificate is None else Pair(certificate, given.values.get("key", certificate))


def _read_host_name(text: str) -> str:
    """In small letters, as clients' questions are compared."""
    if not _HOST_NAME.fullmatch(text):
        raise ValueError(f'"{text}" is no name that a client may ask for', "write a host, or *. and a domain")
    return text.lower()


def _read_profile(text: str) -> str:
    if text in ("", "off"):
        raise ValueError(f'"{text}" as the name of a profile', "choose another name")
    return text


PROFILE: Final = Section(
    "tls",
    "a mapping such as {certificate: router.pem, key: router.key}",
    (
        Row("certificate", _FILE, _NEW,
            "what the router shows, with the certificates that lead to the authority's behind it", required=True),
        Row("key", _KEY_FILE, _NEW, "its key, not encrypted", default="in `certificate`"),
        Row(
            "names",
            ByName(
                Table(PAIR, _make_pair),
                "a mapping such as {shop.example.org: {certificate: shop.pem, key: shop.key}}",
                Text(_read_host_name, "a host, or *. and a domain"),
            ),
            _NEW,
            "what a listener shows to clients that ask for another host: `{shop.example.org: {certificate: shop.pem, "
            "key: shop.key}}`, `*.example.org` for names with one label more. All else is as the profile says",
        ),
        Row("ca", _FILE, _NEW, "the certificates of authorities that sign the other side's certificates"),
        Row("clients", Choice(CLIENTS), _NEW,
            "of a listener for clients (both sides of a trunk always show one): `required`: clients must show a "
            "certificate; `optional`: one that is shown must be valid; `off`: none is asked for"),
        Row("revoked", _FILE, _NEW, "revocation lists, one of each authority in `ca`"),
        Row("minimum", Choice(MINIMUM), _NEW, "the least version of TLS: 1.2 or 1.3"),
        Row("ciphers", Text(str, "names of ciphers"), _NEW, "ciphers of TLS 1.2, as OpenSSL names them",
            default="OpenSSL's"),
    ),
    TlsProfile,
)  # fmt: skip


def _make_profile(given: Given, scope: Scope) -> TlsProfile | None:
    entries, values = given.entries, given.values
    clients = values.get("clients")
    if clients in ("optional", "required") and "ca" not in entries:
        entries["clients"].problem(
            f"clients are {clients} and nobody says who signs their certificates", "add ca: a file of certificates"
        )
    if "revoked" in entries and "ca" not in entries:
        entries["revoked"].problem("nobody's certificates are checked without ca", "add ca: a file of certificates")
    if "certificate" not in values:
        return None
    names = dict(sorted(values.get("names", {}).items()))
    return TlsProfile(**{"key": values["certificate"], **values, "names": names})


PROFILES: Final = ByName(
    Table(PROFILE, _make_profile),
    "a mapping such as clients: {certificate: router.pem, key: router.key}",
    Text(_read_profile, "a name"),
)
TRUNKS: Final = Section(
    "trunks",
    "a mapping such as {tls: routers}",
    (
        Row("tls", Profile(off=True), When.RESTART,
            "the [profile](#tls) of the connections between routers, which needs `ca`; `off`: they have no TLS",
            "trunk_tls", required=True, effective="trunk_profile"),
        Row("key", File(_read_key, "a file, or $ and the name of a variable", ".", secret=True,
                        elsewhere=lambda text: text.startswith("$")), When.RESTART,
            "the [network's key](security.md#a-key-of-the-network), a file, or `$` and the name of an environment "
            "variable", "trunk_key"),
    ),
)  # fmt: skip


def _make_trunks(given: Given, scope: Scope) -> dict[str, str]:
    """Fields of a topology."""
    name = given.values.get("trunk_tls")
    if name and scope.profiles[name].ca is None:
        given.entries["tls"].problem(
            f"tls.{name} does not say who signs routers' certificates", f"add ca to tls.{name}"
        )
    return given.values


TRUNK_FORM: Final = Table(TRUNKS, _make_trunks)


def check_trunks_stay(item: Item, listeners: Mapping[str, tuple[str, int]]) -> None:
    """Whoever reaches a listener for neighbours, and none of them shows a certificate, can claim to be one.

    Args:
        item: The links.
        listeners: Where the routers that have links take neighbours, without TLS.
    """
    found = [f"{name} ({format_host_port(at)})" for name, at in listeners.items() if not is_loopback(at[0])]
    if found:
        item.problems.add(
            item.line,
            "trunks",
            "is not given, and neighbours are taken from other machines without TLS, so that anyone there can claim to "
            f"be a router: {', '.join(found)}",
            "add trunks: {tls: PROFILE} (docs/security.md), or trunks: {tls: off} where the network is yours alone",
        )
