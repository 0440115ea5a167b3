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
from onceway.topology.document import Entry, Item, suggest

TLS_KEYS: Final = ("certificate", "key", "names", "ca", "clients", "revoked", "minimum", "ciphers")
PAIR_KEYS: Final = ("certificate", "key")
TRUNK_KEYS: Final = ("tls", "key")
CLIENTS: Final = ("off", "optional", "required")
MINIMUM: Final = ("1.2", "1.3")
ROUTER: Final = "${router}"
_FILES: Final = ("certificate", "key", "ca", "revoked")
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


def read_tls(entry: Entry | None) -> dict[str, TlsProfile]:
    """The profiles by name."""
    profiles: dict[str, TlsProfile] = {}
    expected = "a mapping such as clients: {certificate: router.pem, key: router.key}"
    for name, item in (entry.entries(expected) or {}).items() if entry is not None else ():
        profile = _read_profile(item)
        if profile is not None:
            profiles[name] = profile
    return profiles


def read_profile_name(entry: Entry | None, profiles: Mapping[str, TlsProfile]) -> str:
    """The profile that a listener names; empty if there is none."""

    def read(text: str) -> str:
        if text not in profiles:
            raise ValueError(f'no TLS profile "{text}"', suggest(text, list(profiles)) or "give it under tls")
        return text

    return "" if entry is None else entry.scalar(read, "the name of a profile under tls") or ""


def read_trunks(entry: Entry | None, profiles: Mapping[str, TlsProfile]) -> tuple[str | None, str]:
    """The profile of the connections between routers (empty: they have no TLS; None: the file does not say), and where
    the network's key is (empty: there is none)."""
    if entry is None:
        return None, ""
    fields = entry.fields(TRUNK_KEYS, "a mapping such as {tls: routers}", required=("tls",)) or {}
    key = fields["key"].scalar(_read_key, "a file, or $ and the name of a variable") if "key" in fields else None
    if "tls" not in fields:
        return None, ""
    item = fields["tls"]
    if item.is_scalar and item.text == "off":
        return "", key or ""
    name = read_profile_name(item, profiles)
    if name and profiles[name].ca is None:
        item.problem(f"tls.{name} does not say who signs routers' certificates", f"add ca to tls.{name}")
    return name or None, key or ""


def _read_profile(item: Entry) -> TlsProfile | None:
    fields = item.fields(
        TLS_KEYS, "a mapping such as {certificate: router.pem, key: router.key}", required=("certificate",)
    )
    if fields is None:
        return None
    files = {key: fields[key].scalar(_read_file, "a file") for key in _FILES if key in fields}
    paths = {key: file for key, file in files.items() if file is not None}
    clients = fields["clients"].choice(CLIENTS) if "clients" in fields else None
    minimum = fields["minimum"].choice(MINIMUM) if "minimum" in fields else None
    ciphers = fields["ciphers"].scalar(str, "names of ciphers") if "ciphers" in fields else None
    if clients in ("optional", "required") and "ca" not in fields:
        fields["clients"].problem(
            f"clients are {clients} and nobody says who signs their certificates", "add ca: a file of certificates"
        )
    if "revoked" in fields and "ca" not in fields:
        fields["revoked"].problem("nobody's certificates are checked without ca", "add ca: a file of certificates")
    names = _read_names(fields["names"]) if "names" in fields else {}
    if "certificate" not in paths:
        return None
    return TlsProfile(
        certificate=paths["certificate"],
        key=paths.get("key", paths["certificate"]),
        ca=paths.get("ca"),
        revoked=paths.get("revoked"),
        clients=clients or "off",
        minimum=minimum or "1.2",
        ciphers=ciphers or "",
        names=names,
    )


def _read_names(item: Entry) -> dict[str, Pair]:
    """The certificates for clients that ask for a host by this name."""
    found: dict[str, Pair] = {}
    expected = "a mapping such as {shop.example.org: {certificate: shop.pem, key: shop.key}}"
    for name, each in sorted((item.entries(expected) or {}).items()):
        if not _HOST_NAME.fullmatch(name):
            each.problem(f'"{name}" is no name that a client may ask for', "write a host, or *. and a domain")
        fields = each.fields(PAIR_KEYS, "a mapping such as {certificate: shop.pem}", required=("certificate",)) or {}
        paths = {key: fields[key].scalar(_read_file, "a file") for key in fields}
        certificate = paths.get("certificate")
        if certificate is not None:
            found[name.lower()] = Pair(certificate, paths.get("key") or certificate)
    return found


def _read_file(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("no file", "write the path of a PEM file")
    if "$" in text.replace(ROUTER, ""):
        raise ValueError(f'"{text}" has a $ that means nothing', f"{ROUTER} stands for the router's name")
    return Path(text)


def _read_key(text: str) -> str:
    if not text or "\0" in text or ("$" in text and not _VARIABLE.fullmatch(text)):
        raise ValueError(f'"{text}" is no place of a key', "write the path of a file, or $ and the name of a variable")
    return text


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
