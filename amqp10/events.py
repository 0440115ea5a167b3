"""What happened on a connection, in the order in which the peer caused it.

`Connection.receive_data` returns these. Ordinary deliveries and dispositions come as runs and ranges, one event for
many. Ids are unwrapped: plain growing integers. An event's link or session may have ended already when the event is
handled, by a later frame; calling its methods then does nothing or raises LocalProtocolError, as their docstrings say.
Next: connection.py, session.py, link.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amqp10.runs import Dispositions, LinkFlow, ResumedTransfer, TransferPart, Transfers

if TYPE_CHECKING:
    from amqp10.endpoints import ConnectionEnd
    from amqp10.link import Link
    from amqp10.performatives import Error, Open
    from amqp10.session import Session


@dataclass(slots=True)
class ConnectionOpened:
    """The peer's open has arrived. A server has answered it already; to refuse the peer, `connection.close(error)`."""

    connection: ConnectionEnd
    open: Open


@dataclass(slots=True)
class ConnectionClosed:
    """The connection has ended, once per connection and last of its events. All its sessions and links end with it
    (`connection.channels.sessions`, `session.links`); no events come for these.

    error: the peer's, or the one we closed it with; None after a plain close of either side, and when the bytes just
    stopped. local: we closed it. lost: the bytes stopped without a close.
    """

    connection: ConnectionEnd
    error: Error | None
    local: bool
    lost: bool = False


@dataclass(slots=True)
class SessionBegun:
    """The peer began a session, which has been answered; or the peer's answer to our own begin."""

    session: Session
    local: bool


@dataclass(slots=True)
class SessionEnded:
    """The session has ended, once per session; its links (`session.links`) end with it, without events.

    local: we ended it. After our own `session.end()` this comes with the peer's answer, after the peer's violation of
    a rule at once.
    """

    session: Session
    error: Error | None
    local: bool


@dataclass(slots=True)
class LinkAttaching:
    """The peer attaches a link that we have not attached: answer with `link.attach(...)` or `link.refuse(...)`, now or
    later. `link.remote_attach` is what it sent."""

    link: Link


@dataclass(slots=True)
class LinkAttached:
    """The peer's answer to our own attach (`link.remote_attach`). A refusal looks like this too: its terminus is null
    and LinkDetached follows (AMQP 2.6.3)."""

    link: Link


@dataclass(slots=True)
class SessionFlow:
    """The peer opened a window that had kept a sender of this session from sending: ask `capacity()` again, of all."""

    session: Session


@dataclass(slots=True)
class LinkDetached:
    """The link has ended, once per link; a peer's detach has been answered.

    local: we detached it. After our own `detach()` or `refuse()` this comes with the peer's answer, after the peer's
    violation of a rule at once. error: the peer's, else ours. A link that is attached again is a new Link."""

    link: Link
    closed: bool
    error: Error | None
    local: bool


Event = (
    ConnectionOpened
    | ConnectionClosed
    | SessionBegun
    | SessionEnded
    | LinkAttaching
    | LinkAttached
    | LinkFlow
    | SessionFlow
    | Transfers
    | ResumedTransfer
    | TransferPart
    | Dispositions
    | LinkDetached
)
