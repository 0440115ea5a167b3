"""Two routers in session and the clients of the first: what these make is known at the second as well."""

from __future__ import annotations

from itertools import count
from typing import Any

from router.config import Life, RouterConfig
from router.router import Router
from tests.router.links import Clients


class Neighbours(Clients):
    """Router a, which the clients are at, and b, which has none."""

    def __init__(self, **config: Any) -> None:
        numbers = count(1)
        self.now = 1_000.0
        self.a, self.b = [
            Router(
                RouterConfig(name, ("a", "b"), **config),
                Life(7, self.now, True),
                wall_us=self.wall_us,
                token=lambda: f"{next(numbers):032}",
            )
            for name in "ab"
        ]
        super().__init__(self.a, self.now)
        self.a.peer_up("b", self.now)
        self.b.peer_up("a", self.now)
        self.exchange()

    def wall_us(self) -> int:
        return int(self.now * 1_000_000)

    def exchange(self) -> None:
        super().exchange()
        while self._carry():
            super().exchange()

    def _carry(self) -> bool:
        moved = False
        for source, target in ((self.a, self.b), (self.b, self.a)):
            source.flush(self.now)
            for _, message in source.take_messages():
                target.peer_message(source.config.name, message, self.now)
                moved = True
        return moved

    def sleep(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            deadlines = [each.next_deadline() for each in (self.a, self.b)]
            due = [max(each, self.now + 0.01) for each in deadlines if each is not None]
            self.now = min(end, *due) if due else end
            for each in (self.a, self.b):
                each.tick(self.now)
            self.exchange()
