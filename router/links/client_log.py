"""What the log says of one client: its connection and its links come, go, and are refused.

Every line has the client's address, user and container, by which operators choose clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp10.errors import CONNECTION_FORCED, DETACH_FORCED, LINK_REDIRECT
from router.names import STOLEN

if TYPE_CHECKING:
    from amqp10.events import ConnectionClosed, LinkDetached
    from amqp10.link import Link
    from amqp10.performatives import Error
    from router.reporting import Log

# These end links and connections where nobody has done anything wrong.
EXPECTED: Final = frozenset((CONNECTION_FORCED, DETACH_FORCED, LINK_REDIRECT, STOLEN))


class ClientLog:
    """The log of one client's connection. who: what `BaseConnection.said` returns."""

    __slots__ = ("_is_sent_away", "_log", "address")

    def __init__(self, log: Log, address: str) -> None:
        """address: host:port of the client."""
        self._log = log
        self.address = address
        self._is_sent_away = False

    # --- the connection

    def connected(self, who: dict[str, Any]) -> None:
        self._log.info("client_connected", "client {container} connected from {client}", **who)

    def closed(self, who: dict[str, Any], event: ConnectionClosed, *, admitted: bool) -> None:
        """The connection has ended; before `user` is forgotten."""
        if self._is_sent_away:
            return
        who = {**who, **_error(event.error)}
        if event.local and event.error is not None:
            if not admitted:
                self._log.warning("client_refused", "client at {client} refused: {description}", **who)
            elif event.error.condition in EXPECTED:
                text = "client {container} disconnected: {description}"
                self._log.info("client_disconnected", text, **who)
            else:
                text = "client {container} at {client} disconnected: {description}"
                self._log.warning("client_disconnected", text, **who)
        elif not admitted:  # a probe of the port
            self._log.debug("client_left", "a connection from {client} ended before it was open", **who)
        elif event.lost:
            self._log.info("client_lost", "connection of client {container} at {client} lost", **who)
        else:
            self._log.info("client_closed", "client {container} closed its connection", **who)

    def sent_away(self, who: dict[str, Any], description: str) -> None:
        """Its transport is about to be closed without a close frame."""
        self._is_sent_away = True
        text = "client {container} disconnected: {description}"
        self._log.info("client_disconnected", text, description=description, condition=None, **who)

    def reads_too_slowly(self, who: dict[str, Any], unread_bytes: int) -> None:
        text = "client {container} at {client} disconnected: {unread_bytes} bytes of output unread; {user} has most"
        self._log.warning("client_too_slow", text, unread_bytes=unread_bytes, **who)

    # --- links

    def attached(self, who: dict[str, Any], link: Link) -> None:
        what = _link(who, link)
        self._log.debug("link_attached", "{role} {link} of {container} attached to {address}", **what)

    def refused(self, who: dict[str, Any], link: Link, condition: str, description: str) -> None:
        what = _link(who, link)
        info_or_warning = self._log.info if condition in EXPECTED else self._log.warning
        info_or_warning(
            "link_refused",
            "{role} {link} of {container} refused at {address}: {description}",
            condition=condition,
            description=description,
            **what,
        )

    def ended(self, who: dict[str, Any], link: Link, condition: str, description: str) -> None:
        """The router has detached it."""
        what = _link(who, link)
        info_or_warning = self._log.info if condition in EXPECTED else self._log.warning
        info_or_warning(
            "link_ended",
            "{role} {link} of {container} detached from {address}: {description}",
            condition=condition,
            description=description,
            **what,
        )

    def detached(self, who: dict[str, Any], event: LinkDetached) -> None:
        """The client has detached it, or the engine for a fault of the client."""
        if event.local and event.error is not None:
            self.ended(who, event.link, event.error.condition, event.error.description or "")
            return
        what = {**_link(who, event.link), **_error(event.error), "closed": event.closed}
        self._log.debug("link_detached", "{container} detached {role} {link} from {address}", **what)


def _link(who: dict[str, Any], link: Link) -> dict[str, Any]:
    remote, port = link.remote_attach, link.context
    address = "" if port is None else port.attach.address
    if port is None and remote is not None:  # refused before it was read
        terminus = remote.source if remote.role else remote.target
        address = getattr(terminus, "address", None) or ""
    role = "subscriber" if remote is not None and remote.role else "publisher"
    return {**who, "link": link.name, "role": role, "address": address}


def _error(error: Error | None) -> dict[str, Any]:
    if error is None:
        return {"condition": None, "description": ""}
    return {"condition": str(error.condition), "description": error.description or str(error.condition)}
