"""What one message passes in each router, from socket to socket: calls of Python functions, reads and writes.

    python -m bench calls [--topics N] [--windows 1,10,100] [--routers 1,2] [--top N]

The routers run in this process, with their server and carriers, on sockets and a clock of this program, so that the
counts are the same in every run.  Each topic has a publisher and a subscriber (mode second), which answer in one write
what they have read, in the order in which proton does.  What was written is read in the next turn of the routers'
loops; a turn takes a millisecond.  Not counted are calls into C, and those of compiled modules: it counts sources.

--top shows the functions that are called most.
"""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

from amqp10 import ACCEPTED, Connection, ConnectionSettings, Dispositions, Source, Target, Transfers
from amqp10.performatives import RCV_SECOND
from onceway import topology
from onceway.serve.clients import ClientCarrier, Shares
from onceway.serve.neighbours import NeighbourCarrier
from onceway.serve.server import RouterServer
from onceway.serve.transport import VIEW, Carrier

TURN_S = 0.001
BODY = b"\x00\x53\x75\xa0\x64" + b"x" * 100
WARM_UP, TURNS = 50, 200
ENDLESS = 0x7FFFFFFF


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Loop:
    """The clock and the loop of all routers: in place of those of `time`, and of asyncio's loop."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._soon: list[Callable[[], None]] = []
        self._later: list[tuple[float, int, Timer]] = []
        self._number = 0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        self._number += 1
        heapq.heappush(self._later, (self.now + delay, self._number, timer))
        return timer

    def turn(self) -> None:
        """Timers that are due, then callbacks."""
        while self._later and self._later[0][0] <= self.now:
            timer = heapq.heappop(self._later)[2]
            if timer.callback is not None:
                timer.callback()
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()


class Socket:
    """A transport without a kernel, and the carrier on it."""

    def __init__(self, carrier: Carrier) -> None:
        self.carrier = carrier
        self.reads = self.writes = 0
        self._written: list[bytes] = []
        self._reads = True
        self._unread = b""
        carrier.connection_made(cast(Any, self))

    def get_extra_info(self, name: str) -> object:
        return ("127.0.0.1", 1) if name == "peername" else None

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True

    def set_write_buffer_limits(self, high: int, low: int) -> None: ...

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes) -> None:
        self.writes += 1
        self._written.append(data)

    def writelines(self, data: Sequence[bytes]) -> None:
        self.write(b"".join(data))

    def written(self) -> bytes:
        data, self._written = b"".join(self._written), []
        return data

    def read(self, data: bytes) -> None:
        data, self._unread = self._unread + data, b""
        while data:
            if not self._reads:
                self._unread = data
                return
            room = len(self.carrier.get_buffer(-1))
            piece, data = data[:room], data[room:]
            VIEW[: len(piece)] = piece
            self.reads += 1
            self.carrier.buffer_updated(len(piece))


class Client:
    """A publisher or a subscriber of one topic."""

    def __init__(self, topic: str, *, sends: bool, window: int) -> None:
        self.connection = Connection(ConnectionSettings(container_id=topic, idle_timeout_s=None), server=False, now=0.0)
        self.connection.open()
        session = self.connection.begin()
        self.link = session.sender("out") if sends else session.receiver("in")
        self.link.attach(source=Source(topic), target=Target(topic), rcv_settle_mode=RCV_SECOND)
        self.window = window
        self.sent = self.decided = 0
        if not sends:
            session.links[0].grant(ENDLESS)  # type: ignore[attr-defined]

    def answer(self, data: bytes) -> bytes:
        link: Any = self.link
        decided: list[int] = []
        for event in self.connection.receive_data(data, 0.0):
            if isinstance(event, Transfers):
                link.dispose(event.first_id, event.first_id + len(event.tags) - 1, ACCEPTED, False)
            elif isinstance(event, Dispositions) and link.is_sender:
                decided += range(event.first_id, event.last_id + 1)
        said = []
        begins = self.decided // 3 % (len(decided) or 1)
        self.decided += len(decided)
        for number in decided[begins:] + decided[:begins]:  # proton's frames alternate, and begin anywhere
            link.settle(number, number)
            said.append(self.connection.data_to_send())
            self._send(1)
            said.append(self.connection.data_to_send())
        if link.is_sender:
            self._send(self.window - (self.sent - self.decided))
        return b"".join([*said, self.connection.data_to_send()])

    def _send(self, count: int) -> None:
        link: Any = self.link
        count = min(count, link.capacity())
        if count > 0:
            link.send([b"%08x" % number for number in range(self.sent, self.sent + count)], [BODY] * count)
            self.sent += count


class World:
    """Routers in line; publishers at the first, subscribers at the last."""

    def __init__(self, routers: int, topics: int, window: int) -> None:
        names = [chr(ord("a") + number) for number in range(routers)]
        places = [
            f"  {name}: {{amqp: {20001 + n}, interrouter: {21001 + n}, admin: {22001 + n}}}"
            for n, name in enumerate(names)
        ]
        links = ["links:", *(f"  - {one} - {two}" for one, two in pairwise(names))] if routers > 1 else []
        text = "\n".join(["network: bench", "defaults: {host: 127.0.0.1}", "routers:", *places, *links])
        followed = topology.loads(text)
        self.loop = Loop()
        vars(time).update(monotonic=self.loop.monotonic, time_ns=self.loop.time_ns)
        self.servers = [RouterServer(followed, name, fresh=True) for name in names]
        self.calls: Counter[CodeType] = Counter()
        self.clients: list[tuple[Client, Socket]] = []
        for server in self.servers:
            server._loop = cast(Any, self.loop)
            server.sweep.look()
        self.trunks = [
            (Socket(NeighbourCarrier(near, far.name, None)), Socket(NeighbourCarrier(far, None, None)))
            for near, far in pairwise(self.servers)
        ]
        shares = Shares(self.loop.call_soon, self.loop.call_later)
        while not all(server.router.core.recovery.established for server in self.servers):
            self.turn()
        for server, sends in ((self.servers[-1], False), (self.servers[0], True)):
            for topic in range(topics):
                client = Client(f"t{topic}", sends=sends, window=window)
                self.clients.append((client, Socket(ClientCarrier(server, shares))))
            for _ in range(WARM_UP):
                self.turn()

    @property
    def decided(self) -> int:
        return sum(client.decided for client, _ in self.clients)

    @property
    def io(self) -> tuple[int, int]:
        """(reads, writes) of all routers."""
        ends = [socket for _, socket in self.clients] + [end for trunk in self.trunks for end in trunk]
        return sum(end.reads for end in ends), sum(end.writes for end in ends)

    def turn(self, *, counted: bool = False) -> None:
        """Clients answer; then each router reads what there is, and its loop goes on."""
        said = [(socket, client.answer(socket.written())) for client, socket in self.clients]
        for one, two in self.trunks:
            to_one, to_two = two.written(), one.written()
            said += [(one, to_one), (two, to_two)]
        self.loop.now += TURN_S
        if counted:
            sys.setprofile(self._note)
        for socket, data in said:
            socket.read(data)
        self.loop.turn()
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename != __file__:
            self.calls[frame.f_code] += 1


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=40)
    parser.add_argument("--windows", default="1,10,100")
    parser.add_argument("--routers", default="1,2")
    parser.add_argument("--top", type=int, default=0)
    args = parser.parse_args(argv)
    print(
        "| routers | topics | window | messages | calls | reads | writes |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for routers in map(int, args.routers.split(",")):
        for window in map(int, args.windows.split(",")):
            world = World(routers, args.topics, window)
            before, (reads, writes) = world.decided, world.io
            for _ in range(TURNS):
                world.turn(counted=True)
            done = world.decided - before
            more_reads, more_writes = world.io
            figures = [sum(world.calls.values()), more_reads - reads, more_writes - writes]
            shown = " | ".join(f"{figure / done:.2f}" for figure in figures)
            print(f"| {routers} | {args.topics} | {window} | {done} | {shown} |", flush=True)
            for code, count in world.calls.most_common(args.top):
                place = Path(code.co_filename)
                print(f"{count / done:8.2f} {place.parent.name}/{place.name} {code.co_qualname}")
    return 0
