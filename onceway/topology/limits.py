"""`limits` and `users` of a topology file: what clients may take of a router, for each listener and for each user.

The keys and their bounds are here. `router.links.limits` enforces them, docs/topology.md explains them. Read
`onceway.topology.sections` for the rest of the file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from onceway.topology.document import Bounds, Entry, Form, read_quantity
from router.config import Limits, RouterConfig, UserLimits
from router.policies import ANONYMOUS

# key in the file -> (field of Limits, form, least, most)
LIMITS: Final[dict[str, tuple[str, Form, Bounds]]] = {
    "connections": ("connections", "count", (1, 1 << 20)),
    "half_open": ("half_open", "count", (1, 1 << 20)),
    "handshake_timeout": ("handshake_timeout_s", "duration", (0.1, 600)),
    "sessions": ("sessions", "count", (1, 1 << 16)),
    "links": ("links", "count", (1, 1 << 20)),
    "unsettled_map": ("unsettled_map", "count", (1, 1 << 24)),
    "unread_output": ("unread_output", "size", (1 << 20, 1 << 40)),
    "max_frame_size": ("max_frame_size", "size", (512, (1 << 32) - 1)),
    "max_message_size": ("max_message_size", "size", (1, 1 << 40)),
    "unsettled_window": ("unsettled_window", "count", (1, 1 << 24)),
    "idle_timeout": ("idle_timeout_s", "duration", (0.1, 86_400)),
}
OF_A_LISTENER: Final = ("half_open", "handshake_timeout")
"""Keys that no user has, because the user is not known yet when they apply."""


def read_limits(entry: Entry | None, settings: RouterConfig, base: Limits) -> Limits:
    """A listener's limits: `base`, replaced by what the entry gives."""
    if entry is None:
        return base
    values = _values(entry, tuple(LIMITS))
    _check(entry, values.get("max_message_size"), settings)
    return replace(base, **values)


def read_users(
    entry: Entry | None, settings: RouterConfig, *, named: bool = False
) -> tuple[tuple[str, UserLimits], ...]:
    """Each user's name and its limits. named: clients can be users with a name."""
    expected = "a mapping such as guest: {limits: {connections: 10}}"
    if entry is None:
        return ()
    users: list[tuple[str, UserLimits]] = []
    for name, item in (entry.entries(expected) or {}).items():
        if not name:
            item.problem("a user without a name", "write the name by which it authenticates")
        elif name != ANONYMOUS and not named:
            item.warn(
                f"no client can be user {name}: there is no section sasl, so every client is {ANONYMOUS}",
                f"add it (docs/security.md), write {ANONYMOUS}, or leave it out",
            )
        fields = item.fields(("limits",), "a mapping such as {limits: {connections: 10}}")
        if not fields or "limits" not in fields:
            continue
        for key in OF_A_LISTENER:
            _reject(fields["limits"], key)
        values = _values(fields["limits"], tuple(LIMITS))
        for key in OF_A_LISTENER:
            values.pop(LIMITS[key][0], None)
        limits = UserLimits(**values)
        _check(fields["limits"], limits.max_message_size, settings)
        users.append((name, limits))
    return tuple(users)


def _reject(entry: Entry, key: str) -> None:
    for name, item in (entry.entries("a mapping of limits") or {}).items():
        if name == key:
            item.problem(f"{key} is over before a user is known", "write it under limits, or under limits of a router")


def _values(entry: Entry, keys: tuple[str, ...]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    known = entry.fields(keys, "a mapping of limits such as {connections: 1000}") or {}
    for key, item in known.items():
        name, form, bounds = LIMITS[key]
        value = read_quantity(item, form, bounds)
        if value is not None:
            values[name] = value
    return values


def _check(entry: Entry, max_message_size: int | None, settings: RouterConfig) -> None:
    if max_message_size is not None and max_message_size > settings.memory_limit:
        fields = entry.entries("a mapping of limits") or {}
        item = fields.get("max_message_size") or entry
        item.problem("max_message_size exceeds memory_limit: such a message could never pass", "raise memory_limit")
