"""Whose turn it is to send a large delivery to an address (protocol 6.12.10).

A subscription's link is in the middle of one large delivery at a time. If two were on their way from different routers,
two subscriptions could each wait for the end of what the other one has not begun. So one router gives the turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core import messages as m
from router.core.base import BaseAddress

if TYPE_CHECKING:
    from router.core.publisher import Publisher


class Turns:
    """Of one address: the turns that publishers here want, and those that this router gives."""

    def __init__(self, address: BaseAddress) -> None:
        self.address = address
        self.core = address.core
        self.waiting: list[Publisher] = []
        self.holder: Publisher | None = None
        self.asked: str | None = None  # the router from which this one wants or has a turn
        self.queue: dict[str, None] = {}  # of routers: the first one has the turn

    def __bool__(self) -> bool:
        return bool(self.queue)

    def handlers(self) -> m.Handlers:
        return {m.Turn: self.on_turn}

    def want(self, publisher: Publisher) -> None:
        self.waiting.append(publisher)
        self._ask()

    def look(self) -> None:
        """The holder may have come to the end of its delivery."""
        if self.holder is not None and self.holder.sent.unfinished is None:
            self._give_back()

    def drop(self, publisher: Publisher) -> None:
        """The publisher has gone."""
        if publisher in self.waiting:
            self.waiting.remove(publisher)
        if self.holder is publisher:
            self._give_back()

    def _ask(self) -> None:
        if self.waiting and self.asked is None:
            self.asked = min(self.core.kinds.everybody(self.address.name))
            self.core.post.send_to(self.asked, m.Turn(self.address.name, True, False))

    def _give_back(self) -> None:
        self.holder = None
        if self.asked is not None:
            self.core.post.send_to(self.asked, m.Turn(self.address.name, False, False))
            self.asked = None
        self._ask()

    def _given(self) -> None:
        if not self.waiting:
            self._give_back()
            return
        self.holder = publisher = self.waiting.pop(0)
        publisher.ingress.take_turn(publisher)
        self.look()

    def on_turn(self, sender: str, message: m.Turn) -> None:
        if message.given:
            self._given()
        elif message.wanted:
            self.queue[sender] = None
            if len(self.queue) == 1:
                self.core.post.send_to(sender, m.Turn(self.address.name, True, True))
        else:
            self._leave(sender)

    def _leave(self, router: str) -> None:
        had_it = next(iter(self.queue), None) == router
        self.queue.pop(router, None)
        if had_it and self.queue:
            self.core.post.send_to(next(iter(self.queue)), m.Turn(self.address.name, True, True))

    def router_down(self, router: str) -> None:
        """Its turn is over; and this router asks another one, if that one gave the turns."""
        self._leave(router)
        if self.asked == router:
            self.asked = None
            if self.holder is None:
                self._ask()
