"""A client's connection in a simulated world: frames in both directions, and two ends, lost one after the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from chaos.simulation.frames import frames_of

if TYPE_CHECKING:
    from chaos.simulation.clients import Client
    from chaos.simulation.routers import Routers

LOW = 4  # a router may write again when the client has read all but so small a part of what was too much


@dataclass(eq=False)
class Pipe:
    """One client connection. What waits to be read is kept by frames; of the first one some octets may have been read
    already."""

    cid: tuple[str, int]
    client: Client
    router: str
    incarnation: int
    server: Any  # the router's end
    world: Routers
    high: int | None = None  # octets that the client has not read, above which the router is told to wait
    c2r: deque[bytes] = field(default_factory=deque)
    r2c: deque[bytes] = field(default_factory=deque)
    c2r_read: int = 0
    r2c_read: int = 0
    unread: int = 0  # octets in r2c
    since: float = 0.0  # since when there has been something in c2r
    stalled: bool = False  # the client reads nothing
    c_open: bool = True
    r_open: bool = True

    def send_all(self, data: bytes) -> None:
        """One piece, read in one go."""
        if data and self.r_open and self.c_open:
            self._waits()
            self.c2r.append(data)

    def send(self, data: bytes) -> None:
        if data and self.r_open and self.c_open:
            self._waits()
            self.c2r.extend(frames_of(data))

    def _waits(self) -> None:
        if not self.c2r:
            self.since = self.world.now

    def take_c2r(self) -> bytes:
        head, read, self.c2r_read = self.c2r.popleft(), self.c2r_read, 0
        return head[read:] if read else head

    def take_all_c2r(self) -> bytes:
        data, self.c2r_read = b"".join(self.c2r)[self.c2r_read :], 0
        self.c2r.clear()
        return data

    def written(self, data: bytes) -> None:
        """By the router; as `onceway.server` does when a transport's buffer fills."""
        self.r2c.extend(frames_of(data))
        self.unread += len(data)
        if self.high is not None and self.unread > self.high and not self.server.output_paused:
            self.server.pause_output()
        if self.server.output_paused:
            self.server.output_waits(self.unread)

    def take_r2c(self) -> bytes:
        head, read, self.r2c_read = self.r2c.popleft(), self.r2c_read, 0
        self.read_by_client(len(head) - read)
        return head[read:] if read else head

    def read_by_client(self, size: int) -> None:
        self.unread -= size
        if self.server.output_paused and self.r_open and self.unread * LOW <= (self.high or 0):
            self.server.resume_output()
            self.world.wake(self.router)

    def client_gone(self) -> None:
        self.c_open = False
        self.world.ends_closed = True
        self.r2c.clear()
        self.r2c_read = self.unread = 0

    def router_gone(self) -> None:
        self.r_open = False
        self.world.ends_closed = True
        self.c2r.clear()
        self.c2r_read = 0
