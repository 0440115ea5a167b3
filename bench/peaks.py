"""Is memory given back?  The resident memory of a router before, at and after a peak, beside the payload of the peak.

    python -m bench peaks [--clients 40] [--each 8MiB] [--message 64KiB]

`frames`: clients send a frame of which the last byte is missing, and are disconnected. `messages`: publishers at one
router send what their windows admit to a subscriber at the other, which accepts nothing until the peak has been
measured. Exit status 1 if a router has grown by more than twice the payload, or if a minute after the peak it has more
than a quarter of the payload more than before it.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import onceway
from amqp10.frames import AMQP_HEADER
from amqp10.performatives import Begin, Open
from bench.processes import cpu_seconds
from chaos.fuzz.targets import frame
from onceway.base.values import read_size
from tests.live import LiveNetwork, LiveRouter, wait_until

MIB = 1 << 20
MOST = 2.0  # times the payload
LEFT = 0.25  # of the payload
BACK_S = (10.0, 60.0)  # when it is measured, after the peak


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--each", type=read_size, default="8MiB", help="payload of each client")
    parser.add_argument("--message", type=read_size, default="64KiB", help="size of a message")
    parser.add_argument("--only", choices=["frames", "messages"])
    args = parser.parse_args(argv)
    failed = False
    for case in (frames, messages):
        if args.only in (None, case.__name__):
            failed |= not case(args)
    return int(failed)


def frames(args: argparse.Namespace) -> bool:
    with (
        tempfile.TemporaryDirectory(prefix="onceway-bench-") as directory,
        LiveNetwork(Path(directory), ["a"]) as network,
    ):
        network.start()
        router = network.routers["a"]
        peak = Peak("frames", [router], args.clients * args.each)
        sockets = []
        for number in range(args.clients):
            client = socket.create_connection(("127.0.0.1", router.amqp_port))
            client.sendall(AMQP_HEADER + frame(Open(f"c{number}")) + frame(Begin(None, 0, 2**31 - 1, 2**31 - 1)))
            client.sendall(args.each.to_bytes(4, "big") + b"\2\0\0\0" + bytes(args.each - 9))
            sockets.append(client)
        wait_until(lambda: router.status()["incomplete_bytes"] > 0.98 * args.clients * args.each, "all frames")
        peak.reached()
        for client in sockets:
            client.close()
        return peak.over()


def messages(args: argparse.Namespace) -> bool:
    settings = {"window_bytes": f"{args.each}B", "memory_limit": f"{16 * args.clients * args.each}B"}
    with (
        tempfile.TemporaryDirectory(prefix="onceway-bench-") as directory,
        LiveNetwork(Path(directory), ["a", "b"], [("a", "b")], settings=settings) as network,
    ):
        network.start()
        peak = Peak("messages", list(network), args.clients * (args.each // args.message - 2) * args.message)
        asyncio.run(_messages(args, network, peak))
        return peak.over()


async def _messages(args: argparse.Namespace, network: LiveNetwork, peak: Peak) -> None:
    a, b = network.routers["a"], network.routers["b"]
    count = args.each // args.message
    async with onceway.connect(a.url) as near, onceway.connect(b.url) as far:
        subscriber = await far.subscriber("t", credit=args.clients * count, credit_bytes=2 * args.clients * args.each)
        publishers = [await near.publisher("t", name=f"p{number}") for number in range(args.clients)]

        async def publish(publisher: onceway.Publisher) -> None:
            for _ in range(count - 2):
                await publisher.put(bytes(args.message))

        await asyncio.gather(*map(publish, publishers))
        taken = [await subscriber.receive() for _ in range((count - 2) * args.clients)]
        peak.reached()
        for delivery in taken:
            delivery.accept()
        taken.clear()
        for publisher in publishers:
            await publisher.drain()


class Peak:
    """Resident memory of routers, before, at and after a peak."""

    def __init__(self, case: str, routers: Sequence[LiveRouter], payload: int) -> None:
        self._case = case
        self._routers = routers
        self._payload = payload
        self._before = [resident(router) for router in routers]
        self._at = self._before
        self._cpu = [cpu_seconds([router.pid]) for router in routers]

    def reached(self) -> None:
        self._at = [highest(router) for router in self._routers]

    def over(self) -> bool:
        began = time.monotonic()
        after = []
        for later_s in BACK_S:
            time.sleep(max(0.0, began + later_s - time.monotonic()))
            after.append([resident(router) for router in self._routers])
        good = True
        for i, router in enumerate(self._routers):
            more, left = self._at[i] - self._before[i], after[-1][i] - self._before[i]
            fits = more <= MOST * self._payload and left <= LEFT * self._payload
            good &= fits
            later = ", ".join(f"{each[i] / MIB:.0f} after {s:g} s" for s, each in zip(BACK_S, after, strict=True))
            before, most, payload = self._before[i] / MIB, self._at[i] / MIB, self._payload / MIB
            print(
                f"{self._case} at {router.name}: payload {payload:.0f} MiB; resident {before:.0f}, at most {most:.0f}"
                f" ({more / self._payload:.2f} times the payload more), {later};"
                f" CPU {cpu_seconds([router.pid]) - self._cpu[i]:.2f} s{'' if fits else '  TOO MUCH'}",
                flush=True,
            )
        return good


def resident(router: LiveRouter) -> int:
    return _status(router, "VmRSS:")


def highest(router: LiveRouter) -> int:
    return _status(router, "VmHWM:")


def _status(router: LiveRouter, key: str) -> int:
    """Bytes."""
    return int(Path(f"/proc/{router.pid}/status").read_text().split(key)[1].split()[0]) * 1024
