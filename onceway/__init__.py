"""Onceway: an AMQP 1.0 router network whose topics deliver exactly once.

Applications import only this package: `import onceway`, then `onceway.connect(...)`; `onceway.sync` is the same without
asyncio.  Names are loaded when they are first used, so that `import onceway` stays quick.  The library logs under the
logger `onceway`.  Read next: `onceway.client.connection`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amqp10.errors import DecodeError
    from amqp10.outcomes import Accepted, Error, Modified, Rejected, Released
    from amqp10.sections import AmqpSequence, AmqpValue, Data, Header, Message, Properties
    from amqp10.types import Raw, Symbol
    from onceway import sync
    from onceway.access.contexts import tls_context
    from onceway.client.bodies import Body
    from onceway.client.connection import Connection, connect
    from onceway.client.credentials import Credentials
    from onceway.client.database_journal import DatabaseJournal, Transaction
    from onceway.client.delivery import Batch, Delivery
    from onceway.client.journal import (
        Journal,
        MemoryJournal,
        PublisherJournal,
        PublisherRecord,
        SubscriberJournal,
        SubscriberRecord,
    )
    from onceway.client.outbox import Outbox, put_in_outbox
    from onceway.client.publications import Publication, Publications
    from onceway.client.publisher import Publisher
    from onceway.client.reports import (
        LinkAttached,
        PublicationsUndecided,
        PublisherWaiting,
        Report,
        RouterConnected,
        RouterLost,
        SubscriptionGap,
    )
    from onceway.client.sqlite_journal import SqliteJournal
    from onceway.client.subscriber import Subscriber
    from onceway.errors import (
        AttachTimeout,
        AuthenticationFailed,
        ConnectionClosed,
        ConnectionFailed,
        DeliveryNotAccepted,
        DeliveryRejected,
        DeliveryUndecided,
        InternalError,
        JournalCorrupt,
        JournalError,
        JournalFull,
        JournalLocked,
        LinkError,
        LinkRefused,
        LinkStolen,
        OncewayError,
        PublisherFull,
        SendTimeout,
        SubscriptionBroken,
        UndecidedPublications,
        UsageError,
    )
    from router.names import Guarantee

_NAMES = {
    "amqp10.errors": "DecodeError",
    "amqp10.outcomes": "Accepted Error Modified Rejected Released",
    "amqp10.sections": "AmqpSequence AmqpValue Data Header Message Properties",
    "amqp10.types": "Raw Symbol",
    "onceway.client.bodies": "Body",
    "onceway.client.connection": "Connection connect",
    "onceway.client.credentials": "Credentials",
    "onceway.client.database_journal": "DatabaseJournal Transaction",
    "onceway.client.delivery": "Batch Delivery",
    "onceway.client.journal": (
        "Journal MemoryJournal PublisherJournal PublisherRecord SubscriberJournal SubscriberRecord"
    ),
    "onceway.client.outbox": "Outbox put_in_outbox",
    "onceway.client.publications": "Publication Publications",
    "onceway.client.publisher": "Publisher",
    "onceway.client.reports": (
        "LinkAttached PublicationsUndecided PublisherWaiting Report RouterConnected RouterLost SubscriptionGap"
    ),
    "onceway.client.sqlite_journal": "SqliteJournal",
    "onceway.client.subscriber": "Subscriber",
    "onceway.errors": (
        "AttachTimeout AuthenticationFailed ConnectionClosed ConnectionFailed DeliveryNotAccepted DeliveryRejected "
        "DeliveryUndecided InternalError JournalCorrupt JournalError JournalFull JournalLocked LinkError LinkRefused "
        "LinkStolen OncewayError PublisherFull SendTimeout SubscriptionBroken UndecidedPublications UsageError"
    ),
    "onceway.access.contexts": "tls_context",
    "router.names": "Guarantee",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Accepted",
    "AmqpSequence",
    "AmqpValue",
    "AttachTimeout",
    "AuthenticationFailed",
    "Batch",
    "Body",
    "Connection",
    "ConnectionClosed",
    "ConnectionFailed",
    "Credentials",
    "Data",
    "DatabaseJournal",
    "DecodeError",
    "Delivery",
    "DeliveryNotAccepted",
    "DeliveryRejected",
    "DeliveryUndecided",
    "Error",
    "Guarantee",
    "Header",
    "InternalError",
    "Journal",
    "JournalCorrupt",
    "JournalError",
    "JournalFull",
    "JournalLocked",
    "LinkAttached",
    "LinkError",
    "LinkRefused",
    "LinkStolen",
    "MemoryJournal",
    "Message",
    "Modified",
    "OncewayError",
    "Outbox",
    "Properties",
    "Publication",
    "Publications",
    "PublicationsUndecided",
    "Publisher",
    "PublisherFull",
    "PublisherJournal",
    "PublisherRecord",
    "PublisherWaiting",
    "Raw",
    "Rejected",
    "Released",
    "Report",
    "RouterConnected",
    "RouterLost",
    "SendTimeout",
    "SqliteJournal",
    "Subscriber",
    "SubscriberJournal",
    "SubscriberRecord",
    "SubscriptionBroken",
    "SubscriptionGap",
    "Symbol",
    "Transaction",
    "UndecidedPublications",
    "UsageError",
    "connect",
    "put_in_outbox",
    "sync",
    "tls_context",
]


def __getattr__(name: str) -> Any:
    if name == "sync":
        return import_module("onceway.sync")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'onceway' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
