"""Questions of one address to other routers: has everything been done that we said before? (protocol 6.11, 7.10)

Streams are in order, so an answer says it. A router that has gone has nothing to say any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from router.core import messages as m
from router.core.base import BaseAddress
from router.core.kept_maps import Kept


class Finishing:
    """Those of one address. Several may be open; each is answered for itself."""

    def __init__(self, address: BaseAddress, kept: Kept) -> None:
        self.address = address
        self.kept = kept
        self._number = 0
        self._open: dict[int, Callable[[str], None]] = {}
        self._missing: dict[int, dict[str, None]] = {}

    def handlers(self) -> m.Handlers:
        return {m.Finish: self.on_finish, m.Finished: self.on_finished}

    def __bool__(self) -> bool:
        return bool(self._open)

    def ask(self, routers: Iterable[str], settled: bool, answered: Callable[[str], None]) -> None:
        """Asks these routers, each in session or this one. Each calls `answered` once: when it has answered, or its
        session has ended."""
        missing = dict.fromkeys(routers)
        if not missing:
            return
        self._number += 1
        self._open[self._number], self._missing[self._number] = answered, missing
        self.address.core.post.multicast(tuple(missing), m.Finish(self.address.name, self._number, settled))

    def on_finish(self, sender: str, message: m.Finish) -> None:
        answer = m.Finished(self.address.name, message.number, message.settled)
        if message.settled:
            self.kept.when_finished(partial(self.address.core.post.send_to, sender, answer))
        else:
            self.address.core.post.send_to(sender, answer)

    def on_finished(self, sender: str, message: m.Finished) -> None:
        self._answered(message.number, sender)

    def _answered(self, number: int, router: str) -> None:
        missing = self._missing.get(number)
        if missing is None or missing.pop(router, self) is not None:
            return
        answered = self._open[number]
        if not missing:
            del self._open[number], self._missing[number]
            self.address.core.agenda.touch(self.address)  # the address may be empty now
        answered(router)

    def router_down(self, router: str) -> None:
        for number in list(self._missing):
            self._answered(number, router)
