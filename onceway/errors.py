"""What an application that uses Onceway may have to catch.  Each message says what happened and what to do.

Wire-level errors of the engine never leave the client: they become `ConnectionFailed`, or `LinkRefused` with the AMQP
condition that the router gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onceway.client.publications import Publication


class OncewayError(Exception):
    """Base of all errors of this library."""


class UsageError(OncewayError, ValueError):
    """The caller's mistake: a URL that cannot be read, a name used twice, a body without AMQP type."""


class PublisherFull(OncewayError):
    """`put_nowait` where `put` would have waited: there is no credit, or no connection."""


class ConnectionFailed(OncewayError):
    """No router could be reached in time.

    Attributes:
        reasons: The last failure of each URL, in words.
    """

    def __init__(self, message: str, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class AuthenticationFailed(ConnectionFailed):
    """A router does not let this client in, such as for a wrong password.  The library does not try again."""


class ConnectionClosed(OncewayError):
    """The connection, publisher or subscriber was closed before or during the call."""


class LinkError(OncewayError):
    """A router refused or detached a publisher or subscriber.

    Attributes:
        condition: The AMQP error condition, such as `amqp:not-found`.
        info: The error's info map.
    """

    def __init__(self, message: str, condition: str = "", info: Mapping[Any, Any] | None = None) -> None:
        super().__init__(message)
        self.condition = condition
        self.info = dict(info or {})


class LinkRefused(LinkError):
    """The attach was refused, or the link detached, for a reason that another try would not change."""


class LinkStolen(LinkError):
    """Another process attached under the same container-id, link name and address, and has taken the link over.

    The library does not take it back: two processes would take it from each other for ever.  Stop one of them, or give
    it another container or link name.
    """


class AttachTimeout(OncewayError, TimeoutError):
    """No router answered the attach within the caller's timeout."""


class SendTimeout(OncewayError, TimeoutError):
    """`send` had no outcome within the caller's timeout.

    Attributes:
        publication: The message, which stays published: await this for its outcome, and do not send it again, which
            would duplicate it.  None if there was no credit: then the message was not published.
    """

    def __init__(self, message: str, publication: Publication | None) -> None:
        super().__init__(message)
        self.publication = publication


class DeliveryNotAccepted(OncewayError):
    """A publication got another outcome than accepted.

    Attributes:
        state: The AMQP outcome.
    """

    def __init__(self, message: str, state: object = None) -> None:
        super().__init__(message)
        self.state = state


class DeliveryRejected(DeliveryNotAccepted):
    """At least one subscriber has rejected the message for good.

    Attributes:
        rejected: How many subscriptions have, if the router says so.
    """

    def __init__(self, message: str, state: object = None, rejected: int | None = None) -> None:
        super().__init__(message, state)
        self.rejected = rejected


class DeliveryUndecided(OncewayError):
    """The message may or may not have arrived, and nobody can tell any more.

    There was no contact with the network for longer than it remembers a publisher, or the connection was closed first.
    The library does not send the message again: that could duplicate it.
    """


class UndecidedPublications(OncewayError):
    """Publications that may or may not have arrived, and that nobody can decide any more.

    Raised once by a publisher that has no `on_undecided`, and on leaving `async with` where publications without
    outcome are in no journal.  The library does not send them again.

    Attributes:
        publications: (sequence, payload) of each.
    """

    def __init__(self, message: str, publications: Sequence[tuple[int, bytes]]) -> None:
        super().__init__(message)
        self.publications = list(publications)


class SubscriptionBroken(OncewayError):
    """The subscription may have missed messages; raised once by a subscriber that has no `on_gap`.

    The library has created the subscription again, or is about to: receive again for what is published from now on.
    """


class InternalError(OncewayError):
    """A defect in this library.  The connection has stopped: stopping is better than delivering twice.

    With a journal, a new process goes on where this one stopped.  Please report it, with the traceback.
    """


class JournalError(OncewayError):
    """The journal cannot go on.  Nothing that it had confirmed is lost, and nothing unconfirmed was sent."""


class JournalLocked(JournalError):
    """Another process has the journal open."""


class JournalCorrupt(JournalError):
    """The file is damaged, is not a journal of Onceway, or belongs to another container."""


class JournalFull(JournalError):
    """There is no room left where the journal is."""
