"""`policies` of a topology file: which users may send to which addresses, and receive from which.

docs/topology.md explains the section; `router.policies` says what an entry allows.
"""

from __future__ import annotations

import re
from typing import Final

from onceway.topology.document import Item
from onceway.topology.forms import USER_NAME, USER_OR_ALL, Scope, Switch, Text, filled
from onceway.topology.table import Given, ListOf, Read, Row, Section, Table, When
from router.policies import EVERYONE, NOBODY, USER, Policy


def _read_pattern(text: str) -> str:
    if not text:
        raise ValueError("an empty address", 'write an address, or "*" for all')
    if "*" in text[:-1]:
        raise ValueError(f'"{text}" has a * that is not at its end', "write an exact name, or a prefix ending in *")
    if text.endswith(f"{USER}*"):
        raise ValueError(
            f'"{text}": with it the user "al" may use what is of the user "alice"',
            f"put a character between them that no user's name has, such as {USER}/*",
        )
    unknown = [name for name in re.findall(r"\$\{[^}]*\}?", text) if name != USER]
    if unknown:
        raise ValueError(f'"{text}" has {unknown[0]}', f"only {USER} is known here")
    if text.count(USER) > 1:
        raise ValueError(f'"{text}" has {USER} more than once', "write it once")
    return text


USERS: Final[ListOf[str, str]] = ListOf(USER_NAME, "a list of names")
_USERS: Final[ListOf[str, str]] = ListOf(USER_OR_ALL, "a list of names")
GROUPS: Final[ListOf[str, str]] = ListOf(
    Text(filled("an empty name", "write the name of a group"), "a name", "."), "a list of names"
)
_PATTERNS: Final[ListOf[str, str]] = ListOf(Text(_read_pattern, "a name", "."), "a list of names")

POLICY: Final = Section(
    "policies",
    "a mapping such as {users: [alice], send: [orders]}",
    (
        Row("users", _USERS, When.AT_ONCE,
            'whom the entry is for; `users` or `groups` at least. The user `"*"` is everyone, `anonymous` who says '
            "no name"),
        Row("groups", GROUPS, When.AT_ONCE, "groups of users whom the entry is for"),
        Row("send", _PATTERNS, When.AT_ONCE,
            "addresses, or prefixes ending in `*`, that they may send to. A link without an address is for those who "
            "may send somewhere, and each of its messages is looked at"),
        Row("receive", _PATTERNS, When.AT_ONCE, "the same for receiving"),
        Row("dynamic", Switch(), When.AT_ONCE,
            "`true`: they may make [dynamic nodes](wire.md), and send to those of others, whose addresses cannot be "
            "guessed"),
        Row("anonymous", Switch(), When.AT_ONCE,
            "`false`: not on [links without an address](clients.md#links-without-an-address), of which each message "
            "names one. Unless given, what may be sent may be sent on them, too"),
    ),
    Policy,
)  # fmt: skip


def _make_policy(given: Given, scope: Scope) -> Policy:
    if "users" not in given.entries and "groups" not in given.entries:
        given.item.problem("it is for nobody", f'add users or groups; users: ["{EVERYONE}"] are all')
    if not {"send", "receive", "dynamic"} & given.entries.keys():
        given.item.problem("it allows nothing", "add send, receive or dynamic")
    return Policy(**given.values)


def _check_policies(item: Item, found: list[Read[Policy]], scope: Scope) -> tuple[Policy, ...]:
    if not item.node.value:
        item.problem("no entry, so nobody may use any address", "add one, or leave the line out")
    policies = tuple(each.value for each in found)
    strangers = sorted({name for policy in policies for name in policy.users} - {EVERYONE, NOBODY.user})
    if strangers and not scope.named:
        item.warn(f"no client can be user {strangers[0]}: there is no section sasl", "add it: docs/security.md")
    return policies


POLICIES: Final[ListOf[Policy, Policy]] = ListOf(
    Table(POLICY, _make_policy), "a list such as [{users: [alice], send: [orders]}]", _check_policies
)
