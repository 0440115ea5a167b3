"""A session: channels, transfer windows, delivery-ids, links. SKELETON: signatures are final."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amqp10.connection import Connection
    from amqp10.link import Link
    from amqp10.performatives import Begin, Error
    from amqp10.receiver import ReceiverLink
    from amqp10.sender import SenderLink


class Session:
    connection: Connection
    context: Any                   # free for the owner
    channel: int                   # our outgoing channel
    remote_begin: Begin | None
    links: Sequence[Link]          # attached or attaching; after SessionEnded or ConnectionClosed those there were then
    ended: bool                    # nothing more can be sent on it

    def sender(self, name: str) -> SenderLink:
        """A new sending link of ours, to be attached with `.attach(...)`."""
        raise NotImplementedError

    def receiver(self, name: str) -> ReceiverLink:
        """A new receiving link of ours, to be attached with `.attach(...)`."""
        raise NotImplementedError

    def pause_incoming(self) -> None:
        """Renew the incoming window no more: the peer stops when it has used up what it was given. PROTOCOL 6.8."""
        raise NotImplementedError

    def resume_incoming(self) -> None:
        raise NotImplementedError

    def end(self, error: Error | None = None) -> None:
        """Send end. SessionEnded comes with the peer's answer."""
        raise NotImplementedError
