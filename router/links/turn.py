"""What clients' connections and their links have left for the end of the turn: output to write, credit to grant.

They enter themselves (`router.links.base`); the router's `flush` and `take_dirty` empty it.
"""

from __future__ import annotations

from typing import Any, Final

# How long settlements wait at most for other output to be written with: with 40 messages a second on a link all of them
# go with the next one. Each write is a system call, and wakes the process of a client.
OUTPUT_DELAY_S: Final = 0.05


class Turn:
    __slots__ = (
        "credits", "deferred_output", "dirty", "draining", "failed", "must_send", "output_due", "watching", "writable",
    )  # fmt: skip

    def __init__(self) -> None:
        self.dirty: dict[Any, None] = {}  # connections with output to write
        self.deferred_output: dict[Any, float] = {}  # those whose output can wait, and since when, in this order
        self.output_due: float | None = None  # when the oldest of it is written
        self.must_send = False
        """Whether a message for another router is waited for. A SETTLE is not: it goes with the next of others, or a
        little later."""
        self.writable: dict[Any, None] = {}  # connections whose transports have room again
        self.failed: dict[Any, None] = {}  # those that end, whatever their clients answer
        self.watching: dict[Any, None] = {}  # those with an open proof
        self.credits: dict[Any, None] = {}  # links that may grant credit
        self.draining: dict[Any, None] = {}  # links whose clients have asked to drain

    def take_dirty(self) -> dict[Any, None]:
        dirty, self.dirty = self.dirty, {}
        return dirty

    def send_later(self, now: float) -> None:
        """A message for another router waits, and is not urgent."""
        if self.output_due is None:
            self.output_due = now + OUTPUT_DELAY_S

    def write_deferred(self, now: float) -> None:
        """Of the output that can wait, write what has waited for half of its time: fewer ticks, and the rest may still
        go with the next message."""
        self.must_send = True
        self.output_due = None
        for connection, since in list(self.deferred_output.items()):
            if since > now - OUTPUT_DELAY_S / 2:
                self.output_due = since + OUTPUT_DELAY_S
                return
            del self.deferred_output[connection]
            self.dirty[connection] = None

    def delayed(self, since: float, now: float) -> None:
        """What is read next may have waited since then."""
        for connection in self.watching:
            connection.delayed(since, now)

    def write(self, now: float) -> None:
        """Transports have room again."""
        writable, self.writable = self.writable, {}
        for connection in writable:
            connection.output_drained(now)

    def end_failed(self, now: float) -> None:
        failed, self.failed = self.failed, {}
        for connection in failed:
            connection.lost(now)

    def grant(self) -> None:
        ports, self.credits = self.credits, {}
        for port in ports:
            port.grant()

    def drain(self) -> None:
        self.draining = {port: None for port in self.draining if not port.drained()}
