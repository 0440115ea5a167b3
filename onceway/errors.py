"""What an application that uses onceway may have to catch.  Every error says whose turn it is and what to do.

Wire-level errors of the engine (`amqp10.errors`) never leave the client; they arrive here as `ConnectionFailed`
or `LinkRefused` with the AMQP condition that the peer gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class OncewayError(Exception):
    """Base of all of them."""


class UsageError(OncewayError, ValueError):
    """The caller's mistake: a URL that cannot be read, a name used twice, a link that is closed."""


class PublisherFull(OncewayError):
    """`put_nowait` where `put` would have waited: no credit, or no connection."""


class ConnectionFailed(OncewayError):
    """No router of the URL list could be reached in time; `reasons` holds the last one of each URL."""

    def __init__(self, message: str, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class AuthenticationFailed(ConnectionFailed):
    """A router does not take this user name and password.  Not tried again: the answer would be the same."""


class ConnectionClosed(OncewayError):
    """The connection was closed by the application (or by an error that ended it) while this was under way."""


class LinkError(OncewayError):
    """A router said no to a link, with an AMQP condition."""

    def __init__(self, message: str, condition: str = "", info: Mapping[Any, Any] | None = None) -> None:
        super().__init__(message)
        self.condition = condition
        self.info = dict(info or {})


class LinkRefused(LinkError):
    """The attach was refused, or the link detached, for a reason that trying again does not change."""


class LinkStolen(LinkError):
    """Another process attached under the same container-id, link name and address and has taken the link over.

    The library does not take it back: two processes would rob each other for ever.  Stop one of them, or give
    it another container or link name.
    """


class AttachTimeout(OncewayError, TimeoutError):
    """No answer to an attach in the time that the caller gave."""


class DeliveryNotAccepted(OncewayError):
    """A publication got another outcome than accepted.  `state` is the AMQP outcome."""

    def __init__(self, message: str, state: object = None) -> None:
        super().__init__(message)
        self.state = state


class DeliveryRejected(DeliveryNotAccepted):
    """At least one subscriber rejected it for good (contract 14); `rejected` says how many, where it is known."""

    def __init__(self, message: str, state: object = None, rejected: int | None = None) -> None:
        super().__init__(message, state)
        self.rejected = rejected


class DeliveryUndecided(OncewayError):
    """Contact was lost for longer than the network waits for a publisher: it may or may not have arrived.

    It will not be sent again: a repeat could be a duplicate (PROTOCOL 15).
    """


class UndecidedPublications(OncewayError):
    """Publications of an earlier process that cannot be resumed any more; raised where no `on_undecided` is given.

    `publications` holds (sequence, payload) of each.  They have been taken out of the journal.
    """

    def __init__(self, message: str, publications: Sequence[tuple[int, bytes]]) -> None:
        super().__init__(message)
        self.publications = list(publications)


class SubscriptionBroken(OncewayError):
    """The subscription missed messages (contract G5); raised once by the subscriber where no `on_gap` is given.

    By the time it is raised the library has joined again (or is about to): going on is safe, but there is a gap.
    """


class InternalError(OncewayError):
    """A defect in this library.  The connection has stopped at once: stopping beats delivering twice.

    With a journal, a new process goes on where this one stopped.  Please report it, with the traceback above.
    """


class JournalError(OncewayError):
    """The journal cannot go on.  Nothing that it had confirmed is lost, nothing unconfirmed was sent."""


class JournalLocked(JournalError):
    """Another process has the journal open."""


class JournalCorrupt(JournalError):
    """The file is damaged, is no journal of onceway, or belongs to another container."""


class JournalFull(JournalError):
    """No room left where the journal lies."""
