"""A peer's broken rule, with the smallest thing that has to end for it.

Raised where the rule is checked; caught once, in Connection.receive_data, which detaches the link, ends the session, or
(for any other RemoteProtocolError) closes the connection. Nobody else is disturbed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp10.errors import RemoteProtocolError

if TYPE_CHECKING:
    from amqp10.link import Link
    from amqp10.session import Session


class LinkViolation(RemoteProtocolError):
    """Ends the link: detach with this condition, closed."""

    def __init__(self, link: Link, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.link = link


class SessionViolation(RemoteProtocolError):
    """Ends the session with this condition."""

    def __init__(self, session: Session, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.session = session
