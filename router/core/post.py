"""Messages of one router's core: to other routers in session, and to itself (protocol 3)."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from router.core import messages as m
from router.core.kinds import Kinds
from router.core.membership import Membership


class Send(Protocol):
    """Sends a message to several routers in session, in reliable ordered streams (protocol 3.1)."""

    def __call__(self, peers: tuple[str, ...], message: m.Message) -> None: ...


class Post:
    __slots__ = ("_kinds", "_name", "_send", "_up", "to_self")

    def __init__(self, name: str, members: Membership, kinds: Kinds, send: Send) -> None:
        self._name = name
        self._up = members.up
        self._kinds = kinds
        self._send = send
        self.to_self: deque[m.AddressMessage] = deque()

    def broadcast(self, message: m.AddressMessage) -> None:
        """Sends to all that are in session, and to this router itself (protocol 3.3)."""
        peers = self._kinds.peers(message.address)
        if peers:
            self._send(peers, message)
        self.to_self.append(message)

    def send(self, peer: str, message: m.Message) -> None:
        """Sends to a router in session."""
        self._send((peer,), message)

    def send_to(self, router: str, message: m.AddressMessage) -> None:
        if router == self._name:
            self.to_self.append(message)
        elif router in self._up and not (self._kinds.differ and router in self._kinds.apart(message.address)):
            self._send((router,), message)

    def multicast(self, routers: tuple[str, ...], message: m.AddressMessage) -> None:
        if self._name in routers:
            self.to_self.append(message)
            if len(routers) == 1:
                return
        peers = tuple(filter(self._up.__contains__, routers))
        if self._kinds.differ:
            apart = self._kinds.apart(message.address)
            peers = tuple([router for router in peers if router not in apart])
        if peers:
            self._send(peers, message)
