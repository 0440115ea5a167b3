"""`sasl` of a topology file: how clients say who they are.

Nothing is opened here, since a file is also read where its users are not. `onceway.access.authentication` opens them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from amqp10.scram import HASHES
from onceway.base.values import NO_PATTERN
from onceway.topology.document import Item
from onceway.topology.forms import Choice, File, Scope, Switch, Text, filled
from onceway.topology.table import Given, ListOf, Read, Row, Section, Table, When

SOURCES: Final = ("common_name", "dns", "email", "uri")
"""What of a certificate a rule reads: the subject's common name, or names of subjectAltName."""
ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
BEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (EXTERNAL, BEARER, *HASHES, PLAIN, ANONYMOUS)
"""In the order in which they are offered. Where TLS allows it the ones of SCRAM come with -PLUS, too."""
_NEW: Final = When.NEW_CONNECTIONS
_PASSWORDS: Final = (*HASHES, PLAIN)
_NEEDED: Final = {
    "users": "a file that onceway user keeps",
    "certificates": "whose a certificate is",
    "tokens": "which tokens count",
}


@dataclass(frozen=True, slots=True)
class CertificateRule:
    """Whose a certificate is: the first rule with a name that matches says it."""

    source: str  # one of SOURCES
    match: str  # a regular expression, of the whole name
    user: str  # with \1 for what the first group has matched


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Which JSON web tokens count, and whose they are."""

    keys: str  # a JWKS file, as written, or a URL
    issuer: str
    audience: str
    user: str = "sub"  # the claim that names the user
    groups: str = ""  # the claim with the user's groups; empty: there are none

    @property
    def remote(self) -> bool:
        return _is_url(self.keys)


@dataclass(frozen=True, slots=True)
class Sasl:
    """How clients say who they are. None in its place: nobody has to."""

    mechanisms: tuple[str, ...]
    users: Path | None = None  # a file of `onceway.access.users`, as written: relative to the topology file
    plain_without_tls: bool = False
    certificates: tuple[CertificateRule, ...] = ()
    tokens: TokenRules | None = None


def _read_file(text: str) -> Path:
    if not text:
        raise ValueError("no file", "write the path of one")
    return Path(text)


def _is_url(text: str) -> bool:
    return "://" in text


def _read_keys(text: str) -> str:
    if not _is_url(text):
        return str(_read_file(text))
    try:
        url = urlsplit(text)
        if not url.hostname or url.port == 0:
            raise ValueError("it has no host, or port 0")
    except ValueError as error:
        raise ValueError(f'"{text}" is no URL: {error}', "write for example https://id.example.org/jwks") from error
    if url.scheme != "https" and not (url.scheme == "http" and url.hostname in ("127.0.0.1", "localhost", "::1")):
        raise ValueError(f'"{text}" can be changed on the way', "write https://")
    return text


def _read_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except NO_PATTERN as error:
        raise ValueError(f"{text} is no regular expression: {error}", "mend it, or leave the line out") from error


_WORD: Final = Text(filled("an empty text", "write what the token says there"), "a text", ".")

TOKENS: Final = Section(
    "tokens",
    "a mapping such as {keys: jwks.json, issuer: https://id.example.org, audience: onceway}",
    (
        Row("keys", File(_read_keys, "a text", ".", elsewhere=_is_url), _NEW, "a JWKS file, or an `https://` URL",
            required=True),
        Row("issuer", _WORD, _NEW, "who has issued it", required=True),
        Row("audience", _WORD, _NEW, "whom it is for", required=True),
        Row("user", _WORD, _NEW, "the claim that names the user"),
        Row("groups", _WORD, _NEW, "the claim with the groups"),
    ),
    TokenRules,
)  # fmt: skip
RULE: Final = Section(
    "certificates",
    "a mapping such as {from: common_name}",
    (
        Row("from", Choice(SOURCES), _NEW,
            "`common_name` (of the subject), or `dns`, `email` or `uri` (of subjectAltName)", "source", required=True),
        Row("match", Text(_read_pattern, "a regular expression"), _NEW, "a regular expression for the whole name",
            default="`(.+)`"),
        Row("user", Text(str, "a name, with \\1 for what matched in brackets"), _NEW,
            "the user, with `\\1` for what the first pair of brackets has matched", default="`\\1`"),
    ),
)  # fmt: skip


def _make_tokens(given: Given, scope: Scope) -> TokenRules | None:
    return TokenRules(**given.values) if {"keys", "issuer", "audience"} <= given.values.keys() else None


def _make_rule(given: Given, scope: Scope) -> CertificateRule | None:
    source = given.values.get("source")
    match = given.values.get("match") if "match" in given.entries else re.compile("(.+)")
    if match is None or source is None:
        return None
    user = r"\1" if match.groups else r"\g<0>"
    if "user" in given.values:
        try:
            user = _check_template(given.values["user"], match)
        except ValueError as error:
            given.entries["user"].problem(*error.args)
    return CertificateRule(source, match.pattern, user)


def _check_template(text: str, match: re.Pattern[str]) -> str:
    for number in re.findall(r"\\(\d+)", text):
        if int(number) > match.groups:
            remedy = "put brackets around what belongs there"
            raise ValueError(f"\\{number}, and match has {match.groups} pairs of brackets", remedy)
    if re.search(r"\\[^\d]|\\$", text) or not text:
        raise ValueError(f'"{text}" is no name', "write a name, with \\1 for what matched in brackets")
    return text


def _check_rules(item: Item, found: list[Read[CertificateRule]], scope: Scope) -> tuple[CertificateRule, ...]:
    if not item.node.value:
        item.problem("no rule says whose a certificate is", "write [{from: common_name}]")
    return tuple(each.value for each in found)


def _check_mechanisms(item: Item, found: list[Read[str]], scope: Scope) -> tuple[str, ...]:
    named: set[str] = set()
    for each in found:
        if each.value in named:
            each.item.problem(f"{each.value} is given twice", "leave one of them out")
        named.add(each.value)
    if not item.node.value:
        item.problem("no mechanism", "name one at least, or leave the line out")
    return tuple(name for name in MECHANISMS if name in named)


SASL: Final = Section(
    "sasl",
    "a mapping such as {users: users.json}",
    (
        Row("mechanisms", ListOf(Choice(MECHANISMS), f"a list of {', '.join(MECHANISMS)}", _check_mechanisms), _NEW,
            "`EXTERNAL` (a certificate), `OAUTHBEARER` (a token), `SCRAM-SHA-512`, `SCRAM-SHA-256`, `PLAIN` (all "
            "three: `users`), `ANONYMOUS` (anyone, without saying who)",
            default="those that the other keys make possible"),
        Row("users", File(_read_file, "a file that onceway user keeps", secret=True), _NEW,
            "a file that `onceway user` keeps, relative to the topology file"),
        Row("plain_without_tls", Switch(), _NEW,
            "true: PLAIN is offered where there is no TLS, so that passwords can be read on the way"),
        Row(
            "certificates",
            ListOf(
                Table(RULE, _make_rule),
                r"a list such as [{from: common_name}, {from: email, match: (.*)@example\.org}]",
                _check_rules,
            ),
            _NEW,
            "[rules](#certificates) that say whose a client's certificate is; the first one that matches counts",
        ),
        Row("tokens", Table(TOKENS, _make_tokens), _NEW, "which [tokens](security.md#tokens) count, [below](#tokens)"),
    ),
    Sasl,
)  # fmt: skip


def _make(given: Given, scope: Scope) -> Sasl:
    entries, values = given.entries, dict(given.values)
    possible = {**dict.fromkeys(_PASSWORDS, "users"), EXTERNAL: "certificates", BEARER: "tokens"}
    if "mechanisms" in entries:
        for each in entries["mechanisms"].items("") or () if values.get("mechanisms") else ():
            key = possible.get(each.text) if each.is_scalar else None
            if key is not None and key not in entries:
                each.problem(f"{each.text} without {key}", f"add {key}: {_NEEDED[key]}")
    else:
        values["mechanisms"] = tuple(name for name in MECHANISMS if possible.get(name) in entries)
        if not values["mechanisms"]:
            given.item.problem(
                "nobody can say who they are",
                "add users: a file that onceway user keeps, certificates, tokens, or mechanisms: [ANONYMOUS]",
            )
    mechanisms = values.setdefault("mechanisms", ())
    if "plain_without_tls" in values and PLAIN not in mechanisms:
        entries["plain_without_tls"].problem("PLAIN is not among the mechanisms", "add it, or leave this line out")
    return Sasl(**values)


FORM: Final = Table(SASL, _make)
