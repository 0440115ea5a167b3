"""`admin` of a topology file: whether the admin listeners have TLS, who may read there, and who may act.

Acting is for clients of AMQP only, with `$management` (`onceway.operate.node`). Admin listeners read only, and the
control sockets are for the user that a router runs as (`onceway.operate.control`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onceway.topology.forms import Profile, Scope
from onceway.topology.policies import GROUPS, USERS
from onceway.topology.table import Given, Row, Section, Table, When


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
    def act(self) -> dict[str, tuple[str, ...]]:
        """Who may act, as the file says it."""
        return {"users": self.act_users, "groups": self.act_groups}

    def allows(self, user: str, groups: tuple[str, ...]) -> bool:
        return user in self.users or not set(self.groups).isdisjoint(groups)

    def lets_act(self, user: str, groups: tuple[str, ...]) -> bool:
        """Whether they may close, drop and forget what is of clients. Without `act` nobody may."""
        return user in self.act_users or not set(self.act_groups).isdisjoint(groups)


ACT: Final = Section(
    "act",
    "a mapping such as {groups: [ops]}",
    (
        Row("users", USERS, When.AT_ONCE, "users that may act"),
        Row("groups", GROUPS, When.AT_ONCE, "groups that may act"),
    ),
)
ADMIN: Final = Section(
    "admin",
    "a mapping such as {tls: clients, groups: [ops]}",
    (
        Row("tls", Profile(), When.RESTART, "the [profile](#tls) of the admin listeners"),
        Row("users", USERS, When.AT_ONCE,
            "users that may [read](security.md#who-reads-status-and-metrics) there, by password, token or "
            "certificate. Without `users` and `groups` everyone who reaches the listeners may"),
        Row("groups", GROUPS, When.AT_ONCE, "groups that may read there"),
        Row("act", Table(ACT, lambda given, scope: given.values), When.AT_ONCE,
            "`users` and `groups` that may [delete](management.md#who-may) over AMQP"),
    ),
    AdminRules,
)  # fmt: skip


def _make(given: Given, scope: Scope) -> AdminRules:
    act = {f"act_{key}": names for key, names in given.values.pop("act", {}).items()}
    rules = AdminRules(**given.values, **act)
    if rules.closed and "tls" not in given.entries:
        given.item.problem("passwords and tokens could be read on the way", "add tls: the name of a profile under tls")
    sasl = scope.sasl
    if (rules.closed or act) and (sasl is None or not (sasl.users or sasl.tokens or sasl.certificates)):
        given.item.problem("nobody can say who they are", "add a section sasl with users, tokens or certificates")
    return rules


FORM: Final = Table(ADMIN, _make)
