"""Sends a router's clients away before it stops, connection by connection.

The other routers are told first, and asked for proofs of their publishers, so that none has to be awaited while
subscriptions move (protocol 8.8). Then connections leave, each in two steps. Its publishers' credit is withdrawn and
its subscribers get nothing more, until every delivery that is under way on it has its outcome, or its time is up. Then
it is closed with `amqp:connection:forced`, and the error's info names another router; each client is given the next
one. Nothing is lost whenever a connection is closed: clients resume elsewhere with their maps. Waiting spares clients
without memory repeats and doubt. A router that stops stays until the subscriptions are back elsewhere: it may be called
(protocol 5.9).

`Router.flush` calls `step`. New connections are dropped before their open: proton begins its list of routers anew
whenever a router's open has come, and would not get beyond a drained one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from amqp10.errors import CONNECTION_FORCED
from amqp10.performatives import Error
from amqp10.types import Symbol, UShort
from router.core.messages import SubscriptionName
from router.links.base import BaseRouter
from router.links.offers import Place
from router.links.publisher_link import PublisherLink
from router.links.subscriber_link import SubscriberLink

if TYPE_CHECKING:
    from router.links.client_connection import ClientConnection

STEP_S: Final = 0.02  # between looks at the connections that are leaving
SPREAD_S: Final = 0.5  # over which the first step of all connections is spread, at least; and at most
PER_SECOND: Final = 200  # so many of them
WITH_MEMORY_S: Final = 0.25  # for the outcomes of clients that resume with their maps
SUBSCRIBER_S: Final = (
    1.0  # for those of other subscribers, whom publishers wait for; other publishers have all the time
)
PROOFS: Final = 2  # times proof_after, and a third of all the time: the longest wait for proofs
BACK_S: Final = 2.0  # the longest wait for a subscription to come back elsewhere
CALLS_S: Final = 0.5  # and then for the last router to hear of it and call us
GOODBYE_S: Final = 0.1  # for the client's close


class Cut(NamedTuple):
    """A link whose connection was closed although deliveries on it had no outcome."""

    address: str
    role: str
    container: str
    name: str
    deliveries: int


class Drain:
    """One drain of a router. The last client is told to leave at `until` at the latest."""

    def __init__(self, router: BaseRouter, elsewhere: Sequence[Place], now: float, within_s: float) -> None:
        self.router = router
        self.elsewhere = list(elsewhere)
        self.within_s = within_s
        self.until = now + within_s
        self.cut: list[Cut] = []
        count = len(router.connections)
        self._spread_s = min(max(SPREAD_S, count / PER_SECOND), within_s / 2)
        self._proofs_until = now + min(PROOFS * router.config.proof_after_s, within_s / 3)
        self._waits_for_proofs = True
        # connection -> when it begins to leave
        self._staying = dict.fromkeys(router.connections, self.until)
        # connection -> when it is closed: at the earliest; at the latest
        self._leaving: dict[ClientConnection, tuple[float, float]] = {}
        self._closing: dict[ClientConnection, float] = {}  # -> when it is dropped if the client has not answered
        # subscriptions that were sent elsewhere and are not back -> how long they are waited for
        self._moving: dict[tuple[str, SubscriptionName], float] = {}
        self._calls_until = now
        self._next_step = now
        self._given = 0

    @property
    def done(self) -> bool:
        """No client is left."""
        return not self.router.connections

    @property
    def handed_over(self) -> bool:
        """Nobody needs this router any more: its subscriptions are back elsewhere, or have been waited for."""
        return self.done and not self._moving and self.router.now >= self._calls_until

    def next_deadline(self) -> float | None:
        if self._staying or self._leaving or self._closing or self._moving:
            return self._next_step
        return self._calls_until if self._calls_until > self.router.now else None

    def step(self, now: float) -> None:
        """Call it after the core's flush, which writes outcomes."""
        if now < self._next_step:
            return
        self._next_step = now + STEP_S
        if self._waits_for_proofs:
            missing = bool(self._places()) and self.router.core.roll_call.proofs_missing
            if missing and now < self._proofs_until:
                return
            self._waits_for_proofs = False
            count = len(self._staying)
            self._staying = {each: now + self._spread_s * i / count for i, each in enumerate(self._staying)}
        for connection, at in list(self._staying.items()):
            if now < min(at, self.until):
                break
            self.leave(connection, now)
        for connection, (earliest, latest) in list(self._leaving.items()):
            if now < earliest:
                continue
            under_way = [port for port in connection.ports if port.under_way]
            if not under_way or now >= min(latest, self.until):
                self.cut += map(_cut, under_way)
                self.dismiss(connection)

        for connection, at in list(self._closing.items()):
            if now >= at or connection.closed:
                del self._closing[connection]
                connection.receive_eof(now)
        if self._moving:
            can_be_back = bool(self._places())
            self._moving = {
                each: until
                for each, until in self._moving.items()
                if can_be_back and now < until and self._is_away(*each)
            }
            self._calls_until = now + CALLS_S if can_be_back else now

    def leave(self, connection: ClientConnection, now: float) -> None:
        """It is this connection's turn, or it has asked for a new link."""
        if self._staying.pop(connection, None) is None or connection.connection.closing:
            return
        if connection.user is None:  # it has not opened
            connection.receive_eof(now)
            return
        latest = now + max((self._patience_s(port) for port in connection.ports), default=0.0)
        self._leaving[connection] = now + STEP_S, latest
        for port in connection.ports:
            port.pause()

    def dismiss(self, connection: ClientConnection) -> None:
        """Closes the connection and names another router.

        A client whose links all come without epochs would not read that name, and may be proton. This stops reading at
        a close frame with this condition, does not answer it, and so reconnects only when it next has something to
        write, which may be its heartbeat. Its transport is closed without a word, which it notices at once.
        """
        self._staying.pop(connection, None)
        self._leaving.pop(connection, None)
        info: dict[str, Any] | None = None
        text = f"router {self.router.config.name} is being drained"
        places = [place for place in self._places() if connection.scheme in place.listeners]
        if places:
            place = places[self._given % len(places)]
            self._given += 1
            host, port = place.listeners[connection.scheme]
            for link in connection.ports:
                if isinstance(link, SubscriberLink):
                    name = link.attach.container, link.attach.name
                    self._moving[link.attach.address, name] = self.router.now + BACK_S
            text += f", connect to router {place.router}"
            info = {
                Symbol("hostname"): host,
                Symbol("network-host"): host,
                Symbol("port"): UShort(port),
            }
        if connection.without_epochs:
            connection.log.sent_away(connection.said(), text)
            self._closing[connection] = self.router.now + STEP_S  # what it is told before that is written by then
            return
        connection.close_at_once(Error(Symbol(CONNECTION_FORCED), text, info))
        self._closing[connection] = self.router.now + GOODBYE_S

    def undo(self) -> None:
        """The connections that are still there stay."""
        for connection in self._leaving:
            for port in connection.ports:
                port.resume_flow()

    def status(self, now: float) -> dict[str, Any]:
        return {"connections": len(self.router.connections), "left_s": round(max(self.until - now, 0.0), 3)}

    def _places(self) -> list[Place]:
        """Where clients may be sent: to routers in session that are not being drained, too (protocol 8.8)."""
        core = self.router.core
        return [
            each
            for each in self.elsewhere
            if each.router in core.members.up and each.router not in core.roll_call.draining
        ]

    def _is_away(self, address: str, name: SubscriptionName) -> bool:
        """The subscription is an orphan, or its link is still here."""
        core = self.router.core
        known = core.addresses.get(address)
        entry = known.subscriptions.entries.get(name) if known is not None else None
        return entry is not None and entry.home in (None, core.name)

    def _patience_s(self, port: PublisherLink | SubscriberLink) -> float:
        if port.attach.epoch is not None:
            return WITH_MEMORY_S
        return SUBSCRIBER_S if isinstance(port, SubscriberLink) else self.within_s


def _cut(port: PublisherLink | SubscriberLink) -> Cut:
    role = "publisher" if isinstance(port, PublisherLink) else "subscription"
    return Cut(port.attach.address, role, port.attach.container, port.attach.name, port.under_way)
