"""`admin` of a topology file: whether the admin listeners have TLS, who may read there, and who may act.

Acting is for clients of AMQP only, with `$management` (`onceway.operate.node`). Admin listeners read only, and the
control sockets are for the user that a router runs as (`onceway.operate.control`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from onceway.topology.document import Entry
from onceway.topology.policies import read_names
from onceway.topology.sasl import Sasl
from onceway.topology.tls import TlsProfile, read_profile_name

ADMIN_KEYS: Final = ("tls", "users", "groups", "act")
ACT_KEYS: Final = ("users", "groups")


@dataclass(frozen=True, slots=True)
class AdminRules:
    """Without users and groups everyone who reaches the listener may read."""

    tls: str = ""  # the profile; empty: no TLS
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    act_users: tuple[str, ...] = ()
    act_groups: tuple[str, ...] = ()

    @property
    def closed(self) -> bool:
        return bool(self.users or self.groups)

    @property
    def act(self) -> tuple[str, ...]:
        """Who may act, in words."""
        return (*self.act_users, *(f"group {name}" for name in self.act_groups))

    def allows(self, user: str, groups: tuple[str, ...]) -> bool:
        return user in self.users or not set(self.groups).isdisjoint(groups)

    def lets_act(self, user: str, groups: tuple[str, ...]) -> bool:
        """Whether they may close, drop and forget what is of clients. Without `act` nobody may."""
        return user in self.act_users or not set(self.act_groups).isdisjoint(groups)


def read_admin(entry: Entry | None, profiles: Mapping[str, TlsProfile], sasl: Sasl | None) -> AdminRules:
    fields = entry.fields(ADMIN_KEYS, "a mapping such as {tls: clients, groups: [ops]}") if entry is not None else None
    if fields is None or entry is None:
        return AdminRules()
    act = fields["act"].fields(ACT_KEYS, "a mapping such as {groups: [ops]}") or {} if "act" in fields else {}
    rules = AdminRules(
        read_profile_name(fields.get("tls"), profiles),
        read_names(fields, "users"),
        read_names(fields, "groups"),
        read_names(act, "users"),
        read_names(act, "groups"),
    )
    if rules.closed and "tls" not in fields:
        entry.problem("passwords and tokens could be read on the way", "add tls: the name of a profile under tls")
    if (rules.closed or act) and (sasl is None or not (sasl.users or sasl.tokens or sasl.certificates)):
        entry.problem("nobody can say who they are", "add a section sasl with users, tokens or certificates")
    return rules
