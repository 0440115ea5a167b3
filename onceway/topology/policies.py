"""`policies` of a topology file: which users may send to which addresses, and receive from which.

docs/topology.md explains the section; `router.policies` says what an entry allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from onceway.base.values import read_switch
from onceway.topology.document import Entry, Item
from router.policies import EVERYONE, NOBODY, USER, Policy

POLICY_KEYS: Final = ("users", "groups", "send", "receive", "dynamic", "anonymous")
_EXAMPLE: Final = "a list such as [{users: [alice], send: [orders]}]"


def read_policies(entry: Entry | None, *, named: bool) -> tuple[Policy, ...] | None:
    """None: the file has no such section. named: clients can be users with a name."""
    if entry is None:
        return None
    items = entry.items(_EXAMPLE)
    if items == []:
        entry.problem("no entry, so nobody may use any address", "add one, or leave the line out")
    policies = [policy for item in items or () if (policy := _read_policy(item)) is not None]
    strangers = sorted({name for policy in policies for name in policy.users} - {EVERYONE, NOBODY.user})
    if strangers and not named:
        entry.warn(f"no client can be user {strangers[0]}: there is no section sasl", "add it: docs/security.md")
    return tuple(policies)


def _read_policy(item: Item) -> Policy | None:
    fields = item.fields(POLICY_KEYS, "a mapping such as {users: [alice], send: [orders]}")
    if fields is None:
        return None
    if "users" not in fields and "groups" not in fields:
        item.problem("it is for nobody", f'add users or groups; users: ["{EVERYONE}"] are all')
    if not {"send", "receive", "dynamic"} & set(fields):
        item.problem("it allows nothing", "add send, receive or dynamic")
    dynamic, anonymous = (
        fields[key].scalar(read_switch, "true or false") if key in fields else None for key in ("dynamic", "anonymous")
    )
    return Policy(
        users=read_names(fields, "users"),
        groups=read_names(fields, "groups"),
        send=_texts(fields, "send", _read_pattern),
        receive=_texts(fields, "receive", _read_pattern),
        dynamic=bool(dynamic),
        anonymous=anonymous is not False,
    )


def read_names(fields: Mapping[str, Entry], key: str) -> tuple[str, ...]:
    """Names of users or groups."""
    return _texts(fields, key, _read_name)


def _texts(fields: Mapping[str, Entry], key: str, read: Callable[[str], str]) -> tuple[str, ...]:
    if key not in fields:
        return ()
    items = fields[key].items("a list of names") or ()
    texts = (each.scalar(read, "a name") for each in items)
    return tuple(text for text in texts if text is not None)


def _read_name(text: str) -> str:
    if not text:
        raise ValueError("an empty name", "write the name of a user or group")
    return text


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
