"""`admin` of a topology file: whether the admin listeners have TLS, and who may read there.

Only reading can be allowed here: actions are for the user that a router runs as (`onceway.control`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onceway.topology.document import Entry
from onceway.topology.policies import read_names
from onceway.topology.sasl import Sasl
from onceway.topology.tls import TlsProfile, read_profile_name

ADMIN_KEYS: Final = ("tls", "users", "groups")


@dataclass(frozen=True, slots=True)
class AdminRules:
    """Without users and groups everyone who reaches the listener may read."""

    tls: str = ""  # the profile; empty: no TLS
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    @property
    def closed(self) -> bool:
        return bool(self.users or self.groups)

    def allows(self, user: str, groups: tuple[str, ...]) -> bool:
        return user in self.users or not set(self.groups).isdisjoint(groups)


def read_admin(entry: Entry | None, profiles: Mapping[str, TlsProfile], sasl: Sasl | None) -> AdminRules:
    fields = entry.fields(ADMIN_KEYS, "a mapping such as {tls: clients, groups: [ops]}") if entry is not None else None
    if fields is None or entry is None:
        return AdminRules()
    rules = AdminRules(
        read_profile_name(fields.get("tls"), profiles), read_names(fields, "users"), read_names(fields, "groups")
    )
    if rules.closed and "tls" not in fields:
        entry.problem("passwords and tokens could be read on the way", "add tls: the name of a profile under tls")
    if rules.closed and (sasl is None or not (sasl.users or sasl.tokens or sasl.certificates)):
        entry.problem("nobody can say who they are", "add a section sasl with users, tokens or certificates")
    return rules
