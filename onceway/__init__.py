"""Onceway: an AMQP 1.0 router network whose topics deliver exactly once.

Applications import only this package.  Names are loaded when they are first used, so that `import onceway`
(and every command line that starts with it) stays quick.  Read next: `onceway.client.connection`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceway.client.connection import Connection, connect
    from onceway.client.delivery import Batch, Delivery
    from onceway.client.journal import Journal, MemoryJournal
    from onceway.client.publication import Publication, Publications
    from onceway.client.publisher import Publisher
    from onceway.client.reports import (
        PublicationsUndecided,
        Report,
        RouterConnected,
        RouterLost,
        SubscriptionGap,
    )
    from onceway.client.sqlite_journal import SqliteJournal
    from onceway.client.subscriber import Subscriber

_HOMES = {
    "Connection": "onceway.client.connection",
    "connect": "onceway.client.connection",
    "Journal": "onceway.client.journal",
    "MemoryJournal": "onceway.client.journal",
    "SqliteJournal": "onceway.client.sqlite_journal",
    "Publication": "onceway.client.publication",
    "Publications": "onceway.client.publication",
    "Publisher": "onceway.client.publisher",
    "Batch": "onceway.client.delivery",
    "Delivery": "onceway.client.delivery",
    "Subscriber": "onceway.client.subscriber",
    "PublicationsUndecided": "onceway.client.reports",
    "Report": "onceway.client.reports",
    "RouterConnected": "onceway.client.reports",
    "RouterLost": "onceway.client.reports",
    "SubscriptionGap": "onceway.client.reports",
}

__all__ = [
    "Batch",
    "Connection",
    "Delivery",
    "Journal",
    "MemoryJournal",
    "Publication",
    "Publications",
    "PublicationsUndecided",
    "Publisher",
    "Report",
    "RouterConnected",
    "RouterLost",
    "SqliteJournal",
    "Subscriber",
    "SubscriptionGap",
    "connect",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'onceway' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
