"""Deliberate defects: who is waited for, and whose word counts as knowledge.  See `mutations.py`; their schedules are
those of `membership_scenarios.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from router.core import Core

Body = Callable[..., Any]
Patch = tuple[type, str, Body]


def whoever_goes_is_not_waited_for(self: Core, peer: str, now: float) -> None:
    for said in self._said.values():
        said.up = tuple(each for each in said.up if each[0] != peer)
    PEER_DOWN(self, peer, now)


PEER_DOWN = Core.peer_down


def heard_by_name(self: Core, router: str, incarnation: int) -> bool:
    return router == self.name or router in self._said


# Named by their schedule, which fails so without the rule:
MEMBERSHIP: dict[str, tuple[list[Patch], str]] = {
    # 4.4: C knows nothing of S, whom B has been told of after its HELLO, and lets P's message be accepted
    "who_was_to_be_waited_for_is_gone": ([(Core, "peer_down", whoever_goes_is_not_waited_for)], "G1"),
    # 4.4: nor does A, in the life in which it says HELLO to C
    "who_was_to_be_waited_for_has_started_again": ([(Core, "_is_heard", heard_by_name)], "G1"),
}
