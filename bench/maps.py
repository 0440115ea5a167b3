"""What do large unsettled maps cost others?  Little: a message waits for a part of one attach, not for all of them.

    python -m bench maps [--clients 80] [--entries 60000] [--role subscriber] [--quick]

An honest pair sends one message after the other through a router. Meanwhile so many clients attach at once, each with a
map of so many entries. Columns: how long a message of the pair took at most and in the middle, before and while they
attach, how long all attaches took, and the router's CPU for each of them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onceway
from amqp10.frames import AMQP_FRAME, AMQP_HEADER, encode_frame
from amqp10.outcomes import ACCEPTED
from amqp10.performatives import Attach, Begin, Open
from amqp10.termini import Source, Target
from bench.peers import Onceway
from bench.processes import cpu_seconds

BOUND_S = 120.0


def attaching(number: int, entries: int, role: str) -> bytes:
    """What a client writes that attaches with such a map."""
    tags = {number.to_bytes(2, "big") + tag.to_bytes(6, "big"): ACCEPTED for tag in range(entries)}
    properties = {"onceway:epoch": 2, "onceway:born": 1}
    attach = Attach(
        "maps", 0, role == "subscriber", rcv_settle_mode=1, source=Source("crowd", timeout=60), target=Target("crowd"),
        unsettled=tags, properties=properties, initial_delivery_count=None if role == "subscriber" else 0,
    )  # fmt: skip
    frames = (Open(f"crowd-{number}", max_frame_size=8 << 20), Begin(None, 0, 1000, 1000), attach)
    return AMQP_HEADER + b"".join(encode_frame(AMQP_FRAME, 0, each.encode()) for each in frames)


async def crowd(port: int, clients: int, entries: int, role: str) -> None:
    """All write at once; ends when the router has answered each attach, or has detached it."""
    written = [attaching(number, entries, role) for number in range(clients)]

    async def one(data: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        seen = b""
        while b"\x00\x53\x12" not in seen:  # the descriptor of attach
            more = await reader.read(1 << 20)
            assert more, "the router has closed the connection"
            seen = seen[-2:] + more
        writer.close()

    print("begins", flush=True)
    began = time.perf_counter()
    await asyncio.wait_for(asyncio.gather(*map(one, written)), BOUND_S)
    print(time.perf_counter() - began, flush=True)


async def pair(url: str, times: list[float]) -> None:
    async with onceway.connect(url) as connection:
        subscriber = await connection.subscriber("honest")
        publisher = await connection.publisher("honest")

        async def receive() -> None:
            async for delivery in subscriber:
                await delivery.accept()

        receiving = asyncio.create_task(receive())
        try:
            while True:
                began = time.perf_counter()
                await publisher.send(b"")
                times.append(time.perf_counter() - began)
        finally:
            receiving.cancel()


async def measure(router: Any, pids: list[int], options: argparse.Namespace) -> None:
    quiet: list[float] = []
    honest = asyncio.create_task(pair(router.url, quiet))
    await asyncio.sleep(2.0)
    honest.cancel()
    command = [sys.executable, "-m", "bench.maps", "--crowd", str(router.amqp_port)]
    command += ["--clients", str(options.clients), "--entries", str(options.entries), "--role", options.role]
    busy: list[float] = []
    honest = asyncio.create_task(pair(router.url, busy))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    cpu = cpu_seconds(pids)
    await process.stdout.readline()  # it has made its maps
    del busy[:]
    took = float(await process.stdout.readline())
    cpu = cpu_seconds(pids) - cpu
    honest.cancel()
    await process.wait()
    for name, times in ("before", quiet), ("meanwhile", busy):
        print(f"{name:12}{statistics.median(times) * 1e3:>10.1f} ms in the middle{max(times) * 1e3:>10.1f} ms at most")
    print(f"{options.clients} attaches in {took:.1f} s, {cpu / options.clients * 1e3:.0f} ms of CPU each")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=80)
    parser.add_argument("--entries", type=int, default=60_000)
    parser.add_argument("--role", choices=("subscriber", "publisher"), default="subscriber")
    parser.add_argument("--quick", action="store_true", help="a fifth of the clients")
    parser.add_argument("--crowd", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.quick:
        options.clients //= 5
    if options.crowd is not None:
        asyncio.run(crowd(options.crowd, options.clients, options.entries, options.role))
        return 0
    with tempfile.TemporaryDirectory(prefix="onceway-bench-") as temporary, Onceway(Path(temporary)) as peer:
        asyncio.run(measure(next(iter(peer.network)), [pid for pids in peer.pids().values() for pid in pids], options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
