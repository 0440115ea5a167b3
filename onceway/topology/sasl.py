"""`sasl` of a topology file: how clients say who they are.

Nothing is opened here, since a file is also read where its users are not. `onceway.access.authentication` opens them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from amqp10.scram import HASHES
from onceway.base.values import read_switch
from onceway.topology.document import Entry, Item

SASL_KEYS: Final = ("mechanisms", "users", "plain_without_tls", "certificates", "tokens")
RULE_KEYS: Final = ("from", "match", "user")
TOKEN_KEYS: Final = ("keys", "issuer", "audience", "user", "groups")
SOURCES: Final = ("common_name", "dns", "email", "uri")
"""What of a certificate a rule reads: the subject's common name, or names of subjectAltName."""
ANONYMOUS: Final = "ANONYMOUS"
PLAIN: Final = "PLAIN"
EXTERNAL: Final = "EXTERNAL"
BEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (EXTERNAL, BEARER, *HASHES, PLAIN, ANONYMOUS)
"""In the order in which they are offered. Where TLS allows it the ones of SCRAM come with -PLUS, too."""
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

    def __str__(self) -> str:
        return f"{self.source} {self.match} is {self.user}"


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
        return "://" in self.keys

    def __str__(self) -> str:
        return f"{self.issuer} for {self.audience}, keys {self.keys}, user {self.user}, groups {self.groups or 'none'}"


@dataclass(frozen=True, slots=True)
class Sasl:
    """How clients say who they are. None in its place: nobody has to."""

    mechanisms: tuple[str, ...]
    users: Path | None = None  # a file of `onceway.access.users`, as written: relative to the topology file
    plain_without_tls: bool = False
    certificates: tuple[CertificateRule, ...] = ()
    tokens: TokenRules | None = None


def read_sasl(entry: Entry | None) -> Sasl | None:
    """None: the file has no such section."""
    if entry is None:
        return None
    fields = entry.fields(SASL_KEYS, "a mapping such as {users: users.json}")
    if fields is None:
        return None
    users = fields["users"].scalar(_read_file, "a file that onceway user keeps") if "users" in fields else None
    plain = fields["plain_without_tls"].scalar(read_switch, "true or false") if "plain_without_tls" in fields else None
    rules = _read_rules(fields["certificates"]) if "certificates" in fields else ()
    tokens = _read_tokens(fields["tokens"]) if "tokens" in fields else None
    possible = {
        **dict.fromkeys(_PASSWORDS, "users"),
        EXTERNAL: "certificates",
        BEARER: "tokens",
    }
    if "mechanisms" in fields:
        mechanisms = _read_mechanisms(fields["mechanisms"], fields, possible)
    else:
        mechanisms = tuple(name for name in MECHANISMS if possible.get(name) in fields)
        if not mechanisms:
            entry.problem(
                "nobody can say who they are",
                "add users: a file that onceway user keeps, certificates, tokens, or mechanisms: [ANONYMOUS]",
            )
    if plain is not None and PLAIN not in mechanisms:
        fields["plain_without_tls"].problem("PLAIN is not among the mechanisms", "add it, or leave this line out")
    return Sasl(mechanisms, users, bool(plain), rules, tokens)


def _read_mechanisms(item: Item, fields: Mapping[str, Entry], possible: Mapping[str, str]) -> tuple[str, ...]:
    """Those that the list names. possible: the key that each of them needs."""
    named: set[str] = set()
    for each in item.items(f"a list of {', '.join(MECHANISMS)}") or ():
        name = each.choice(MECHANISMS)
        if name is None:
            continue
        if name in named:
            each.problem(f"{name} is given twice", "leave one of them out")
        named.add(name)
        key = possible.get(name)
        if key is not None and key not in fields:
            each.problem(f"{name} without {key}", f"add {key}: {_NEEDED[key]}")
    if not item.problems.found and not named:
        item.problem("no mechanism", "name one at least, or leave the line out")
    return tuple(name for name in MECHANISMS if name in named)


def _read_tokens(item: Entry) -> TokenRules | None:
    expected = "a mapping such as {keys: jwks.json, issuer: https://id.example.org, audience: onceway}"
    fields = item.fields(TOKEN_KEYS, expected, required=("keys", "issuer", "audience"))
    if fields is None:
        return None
    values = {key: fields[key].scalar(_read_keys if key == "keys" else _read_word, "a text") for key in fields}
    given = {key: value for key, value in values.items() if value is not None}
    return TokenRules(**given) if {"keys", "issuer", "audience"} <= given.keys() else None


def _read_keys(text: str) -> str:
    if "://" not in text:
        return str(_read_file(text))
    url = urlsplit(text)
    if url.scheme != "https" and not (url.scheme == "http" and url.hostname in ("127.0.0.1", "localhost", "::1")):
        raise ValueError(f'"{text}" can be changed on the way', "write https://")
    return text


def _read_word(text: str) -> str:
    if not text:
        raise ValueError("an empty text", "write what the token says there")
    return text


def _read_rules(item: Item) -> tuple[CertificateRule, ...]:
    expected = r"a list such as [{from: common_name}, {from: email, match: (.*)@example\.org}]"
    rules = [_read_rule(each) for each in item.items(expected) or ()]
    if not rules and not item.problems.found:
        item.problem("no rule says whose a certificate is", "write [{from: common_name}]")
    return tuple(rule for rule in rules if rule is not None)


def _read_rule(item: Item) -> CertificateRule | None:
    fields = item.fields(RULE_KEYS, "a mapping such as {from: common_name}", required=("from",))
    if fields is None or "from" not in fields:
        return None
    source = fields["from"].choice(SOURCES)
    match = fields["match"].scalar(_read_pattern, "a regular expression") if "match" in fields else re.compile("(.+)")
    user = r"\1" if match is None or match.groups else r"\g<0>"
    if "user" in fields and match is not None:
        found: re.Pattern[str] = match

        def read_user(text: str) -> str:
            return _check_template(text, found)

        user = fields["user"].scalar(read_user, "a name, with \\1 for what matched in brackets") or user
    if source is None or match is None:
        return None
    return CertificateRule(source, match.pattern, user)


def _read_pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"{text} is no regular expression: {error}", "mend it, or leave the line out") from error


def _check_template(text: str, match: re.Pattern[str]) -> str:
    for number in re.findall(r"\\(\d+)", text):
        if int(number) > match.groups:
            remedy = "put brackets around what belongs there"
            raise ValueError(f"\\{number}, and match has {match.groups} pairs of brackets", remedy)
    if re.search(r"\\[^\d]|\\$", text) or not text:
        raise ValueError(f'"{text}" is no name', "write a name, with \\1 for what matched in brackets")
    return text


def _read_file(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError("no file", "write the path of one")
    return Path(text)
