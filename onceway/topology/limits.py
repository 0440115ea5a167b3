"""`limits` and `users` of a topology file: what clients may take of a router, for each listener and for each user.

`router.links.limits` enforces them, docs/topology.md explains them. Read `onceway.topology.sections` for the rest of
the file.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from onceway.topology.forms import USER_NAME, Count, Duration, Scope, Size
from onceway.topology.table import ByName, Given, Row, Section, Table, When, fields_of
from router.config import Limits, UserLimits
from router.policies import ANONYMOUS

_EXAMPLE: Final = "a mapping such as {limits: {connections: 10}}"
_CLOSE: Final = "close, `amqp:resource-limit-exceeded`"
_REFUSED: Final = "the link is refused, `amqp:resource-limit-exceeded`"
_THE_SETTING: Final = "the setting"

LIMITS: Final = Section(
    "limits",
    "a mapping of limits such as {connections: 1000}",
    (
        Row("connections", Count(1, 1 << 20), When.AT_ONCE,
            "connections that have sent open; a user's limit holds in addition to the listener's. "
            f"Beyond it: {_CLOSE}"),
        Row("half_open", Count(1, 1 << 20), When.AT_ONCE,
            "connections that have not sent open yet; not for users. Beyond it: the oldest one of the address that has "
            "most of them is disconnected"),
        Row("handshake_timeout", Duration(0.1, 600), When.NEW_CONNECTIONS,
            "time for header, SASL and open together; not for users. Beyond it: " + _CLOSE, "handshake_timeout_s"),
        Row("sessions", Count(1, 1 << 16), When.NEW_CONNECTIONS,
            "sessions of one connection; told as channel-max. Beyond it: close, `amqp:connection:framing-error`"),
        Row("links", Count(1, 1 << 20), When.AT_ONCE,
            f"links of one connection; told as handle-max of each session. Beyond it: {_REFUSED}; above handle-max "
            "close, `amqp:connection:framing-error`"),
        Row("unsettled_map", Count(1, 1 << 24), When.AT_ONCE,
            f"entries of the unsettled map in one attach. Beyond it: {_REFUSED}"),
        Row("unread_output", Size(1 << 20, 1 << 40), When.AT_ONCE,
            "output that waits for one client to read it. Beyond it: the router reads nothing from this client until "
            "it has read; its `idle_timeout` keeps running"),
        Row("max_frame_size", Size(512, (1 << 32) - 1), When.NEW_CONNECTIONS,
            "one frame; told in open. Before open 64KiB. Beyond it: close, `amqp:connection:framing-error`",
            default=_THE_SETTING),
        Row("max_message_size", Size(1, 1 << 40), When.NEW_CONNECTIONS,
            "one message; with it none passes through while it arrives (`stream_above`); told in attach. Beyond it: "
            "detach, `amqp:link:message-size-exceeded`", default=_THE_SETTING),
        Row("unsettled_window", Count(1, 1 << 24), When.AT_ONCE,
            "messages of one publisher that are accepted and not settled. Beyond it: no credit", default=_THE_SETTING),
        Row("idle_timeout", Duration(0.1, 86_400), When.NEW_CONNECTIONS,
            "time without any frame from the client. Beyond it: " + _CLOSE, "idle_timeout_s", default=_THE_SETTING),
    ),
    Limits,
)  # fmt: skip
_OF_A_USER: Final = {each.name for each in fields(UserLimits)}
"""The others no user has, because the user is not known yet when they apply."""


def _make_limits(given: Given, scope: Scope) -> Limits:
    """A listener's limits: those of the file, replaced by what the mapping gives."""
    _check(given, scope)
    return replace(scope.limits, **given.values)


def _make_user_limits(given: Given, scope: Scope) -> UserLimits:
    for key, entry in given.entries.items():
        if LIMITS.by_key[key].name not in _OF_A_USER:
            entry.problem(f"{key} is over before a user is known", "write it under limits, or under limits of a router")
    _check(given, scope)
    return UserLimits(**fields_of(UserLimits, given.values))


def _check(given: Given, scope: Scope) -> None:
    if given.values.get("max_message_size", 0) > scope.settings.memory_limit:
        given.entries["max_message_size"].problem(
            "max_message_size exceeds memory_limit: such a message could never pass", "raise memory_limit"
        )


def _make_user(given: Given, scope: Scope) -> UserLimits | None:
    name = given.item.place.removeprefix("users.")
    if name != ANONYMOUS and not scope.named:
        given.item.warn(
            f"no client can be user {name}: there is no section sasl, so every client is {ANONYMOUS}",
            f"add it (docs/security.md), write {ANONYMOUS}, or leave it out",
        )
    limits: UserLimits | None = given.values.get("limits")
    return limits


OF_A_ROUTER: Final = Table(LIMITS, _make_limits)
USER: Final = Section(
    "users",
    _EXAMPLE,
    (
        Row("limits", Table(LIMITS, _make_user_limits), When.AT_ONCE, "[limits](#limits-and-users) of this user",
            apart=True),
    ),
)  # fmt: skip
USERS: Final[ByName[UserLimits]] = ByName(
    Table(USER, _make_user), "a mapping such as guest: {limits: {connections: 10}}", USER_NAME
)
