"""All other routers vouch for a publisher that answers no echo (protocol 5.9), which saves `proof_after`.

A publisher that has proved itself since all routers are together can have claimed elsewhere only at one of these, which
would have told us. So where a question would be asked (protocol 5.7), the routers are called instead: whoever answers
is still in session with us, and what it had said before has been read. Here is also what a router that is being drained
asks of the others: to have proofs of their publishers before its subscriptions move.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from router.core import messages as m
from router.core.membership import Membership
from router.core.ports import PublisherPort
from router.core.publisher import Publisher
from router.core.publisher_handshake import READY


class RollCall:
    """At most one is open. It serves what waited when it began."""

    def __init__(
        self,
        members: Membership,
        publishers: dict[PublisherPort, Publisher],
        send: Callable[[str, m.Message], None],
    ) -> None:
        self.members = members
        self.publishers = publishers  # attached here
        self.send = send
        # the HELLO of every router of the topology file has come, and no session has ended since
        self.together = members.all_said_hello()
        self.draining: dict[str, None] = {}  # peers that have said that they are being drained
        self._begun = 0  # their number
        self._open = False
        self._again = False  # something has come that the open one does not serve
        self._missing: dict[str, None] = {}  # routers that have not answered
        self._drains = 0
        self._proofs_missing: dict[str, None] = {}  # routers that we have asked for proofs
        self._asked: dict[tuple[str, int], None] = {}  # peers that wait for proofs of our publishers
        self._is_drained = False
        self.handlers: dict[type[m.RouterMessage], Callable[[str, Any], None]] = {
            m.Draining: self.on_draining,
            m.Call: self.on_call,
            m.Called: self.on_called,
        }

    @property
    def next(self) -> int:
        """Returns the number of the first call that serves what comes now."""
        return self._begun + 1

    def want(self, number: int) -> None:
        """Something waits for a call of this number or a later one."""
        if not self._open:
            self._begin()
        elif number > self._begun:
            self._again = True

    def _begin(self) -> None:
        self._begun += 1
        self._open, self._again = True, False
        self._missing = dict.fromkeys(self.members.peers)
        for peer in self._missing:
            self.send(peer, m.Call(self._begun, False))
        self._check_complete()

    def _check_complete(self) -> None:
        if self._open and not self._missing:
            self._open = False
            for publisher in list(self.publishers.values()):
                publisher.ingress.called(publisher, self._begun)
            if self._again and not self._open:
                self._begin()

    # ---------------------------------------------------------------------------------------------- who is in session

    def look(self, *, broken: bool = False) -> None:
        """A HELLO has come, the file has changed, or (broken) a session has ended or this process was suspended. In the
        latter cases, or where another router is missing now, nobody can vouch for what was proved before
        (protocol 5.9)."""
        before, self.together = self.together, self.members.all_said_hello()
        lost = broken or (before and not self.together)
        if not lost and before == self.together:
            return
        if lost:
            self._open = self._again = False
            self._missing.clear()
            for publisher in self.publishers.values():
                publisher.handshake.apart()
        for publisher in list(self.publishers.values()):
            publisher.ingress.vouching_changed(publisher)
        self.check_asked()

    def session_ended(self, peer: str) -> None:
        self.draining.pop(peer, None)
        self._proofs_missing.pop(peer, None)
        for asked in [asked for asked in self._asked if asked[0] == peer]:
            del self._asked[asked]
        self.look(broken=True)

    # ------------------------------------------------------------------------------------------------------- messages

    def on_call(self, sender: str, message: m.Call) -> None:
        """Answers at once, or when our publishers have proved themselves (protocol 5.9, 8.8)."""
        if message.proofs:
            self._asked[sender, message.number] = None
            self.check_asked()
        else:
            self.send(sender, m.Called(message.number, False))

    def on_called(self, sender: str, message: m.Called) -> None:
        if message.proofs:
            if message.number == self._drains:
                self._proofs_missing.pop(sender, None)
        elif message.number == self._begun and self._missing.pop(sender, self) is None:
            self._check_complete()

    def on_draining(self, sender: str, message: m.Draining) -> None:
        if message.draining:
            self.draining[sender] = None
        else:
            self.draining.pop(sender, None)

    # -------------------------------------------------------------------------------------------------------- draining

    def drain(self, draining: bool) -> None:
        """This router is being drained, or is no longer (protocol 8.8)."""
        self._is_drained = draining
        self._proofs_missing = dict.fromkeys(self.members.peers if draining else ())
        for peer in self.members.peers:
            self.send(peer, m.Draining(draining))
        if draining:
            self._drains += 1
            for peer in self._proofs_missing:
                self.send(peer, m.Call(self._drains, True))

    def tell(self, peer: str) -> None:
        """A session has begun."""
        if self._is_drained:
            self.send(peer, m.Draining(True))

    @property
    def proofs_missing(self) -> bool:
        """Says whether subscriptions that move now may have to wait for a publisher that answers no echo."""
        return bool(self._proofs_missing) or self._some_unproved()

    def _some_unproved(self) -> bool:
        return any(self.is_to_prove(publisher) for publisher in self.publishers.values())

    def is_to_prove(self, publisher: Publisher) -> bool:
        """Says whether a question is asked in advance: nobody could vouch for this publisher yet (protocol 5.9)."""
        return (
            self.together
            and publisher.handshake.state is READY
            and not publisher.handshake.is_here
            and not publisher.handshake.brought_epoch
            and bool(publisher.ingress.subscriptions)
        )

    def check_asked(self) -> None:
        """Answers those that wait for proofs, if there is nothing left to wait for."""
        if self._asked and not self._some_unproved():
            asked, self._asked = self._asked, {}
            for peer, number in asked:
                self.send(peer, m.Called(number, True))
