"""The share of those who have not said who they are: their handshakes of TLS, requests, logins and opens take turns.

A handshake of TLS is a millisecond of one core, and a thousand strangers may bring theirs at once. So what a stranger
brings waits, and its socket is not read meanwhile. Each turn of the loop serves as many as take `STRANGERS_S`, one at
least, addresses round robin: who opens a thousand connections holds up another address by one step. There are as many
that wait as `half_open` allows, and each has brought one read of `STRANGER_READ` bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from onceway.access.fair import ByAddress

if TYPE_CHECKING:
    from onceway.serve.transport import Carrier

STRANGERS_S: Final = 0.005
STRANGER_READ: Final = 4096  # bytes


def _call_soon(callback: Callable[[], None]) -> Any:
    return asyncio.get_running_loop().call_soon(callback)


class Strangers:
    """Those of one server that wait."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], Any] = _call_soon, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._waiting: ByAddress[Carrier] = ByAddress()
        self._asked = False  # `_next_turn` is scheduled

    def wait(self, carrier: Carrier) -> None:
        """It has input, and is called when its turn comes."""
        self._waiting.put(carrier.origin, carrier)
        self._ask()

    def forget(self, carrier: Carrier) -> None:
        """It is gone; it need not have waited."""
        self._waiting.remove(carrier.origin, carrier)

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._asked = False
        end = self._clock() + STRANGERS_S
        while self._waiting:
            self._waiting.take().served()
            if self._clock() >= end:
                break
        if self._waiting:
            self._ask()
