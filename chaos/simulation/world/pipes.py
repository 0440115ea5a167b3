"""A client's connection in a simulated world: frames in both directions, and two ends, lost one after the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chaos.simulation.world.clients import Client
    from chaos.simulation.world.routers import Routers


def frames_of(data: bytes) -> list[bytes]:
    """Bytes of a connection as frames; a protocol header stays with the frame that follows it."""
    if data and int.from_bytes(data[:4], "big") == len(data):  # the usual case
        return [data]
    frames, offset, start = [], 0, 0
    while offset < len(data):
        if data[offset : offset + 4] == b"AMQP":
            offset += 8
            continue
        offset += int.from_bytes(data[offset : offset + 4], "big")
        frames.append(data[start:offset])
        start = offset
    if start < offset:
        frames.append(data[start:offset])
    return frames


KINDS = {
    0x10: "open", 0x11: "begin", 0x12: "attach", 0x13: "flow", 0x14: "transfer", 0x15: "disposition", 0x16: "detach",
    0x17: "end", 0x18: "close",
}  # fmt: skip


def kind_of(frame: bytes) -> str:
    """The performative of the first frame in these bytes; "heartbeat" for an empty one."""
    offset = 8 if frame[:4] == b"AMQP" else 0
    return KINDS[frame[offset + 10]] if len(frame) > offset + 8 else "heartbeat"


LOW = 4  # a router may write again when at most a quarter of `Pipe.high` is unread


@dataclass(eq=False)
class Pipe:
    """One client connection. Unread bytes are kept as frames; the first of these may have been read in part."""

    cid: tuple[str, int]
    client: Client
    router: str
    incarnation: int
    server: Any  # the router's end
    world: Routers
    high: int | None = None  # unread bytes above which the router is told to pause
    c2r: deque[bytes] = field(default_factory=deque)
    r2c: deque[bytes] = field(default_factory=deque)
    c2r_read: int = 0
    r2c_read: int = 0
    unread: int = 0  # bytes in r2c
    since: float = 0.0  # since when there has been something in c2r
    told: float = 0.0  # since when there has been something in r2c
    stalled: bool = False  # the client reads nothing
    c_open: bool = True
    r_open: bool = True

    def send_all(self, data: bytes) -> None:
        """Sends one piece, which is read in one go."""
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
        self.client.was_read(self, kind_of(head))
        return head[read:] if read else head

    def take_all_c2r(self) -> bytes:
        for frame in self.c2r:
            self.client.was_read(self, kind_of(frame))
        data, self.c2r_read = b"".join(self.c2r)[self.c2r_read :], 0
        self.c2r.clear()
        return data

    def written(self, data: bytes) -> None:
        """The router has written. As in `onceway.serve.server`, it must pause when the transport's buffer fills."""
        if not self.r2c:
            self.told = self.world.now
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
