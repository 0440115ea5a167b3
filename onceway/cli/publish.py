"""`onceway publish ADDRESS`: lines from standard input, or a count of made-up messages."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass

import click

from onceway.cli.options import LinkPlan, Meter, link_options, run_to_exit, say, size
from onceway.client.bodies import Body

CHUNK = 1000  # messages handed over at a time
TICK_S = 0.01  # with --rate
LEAVE_WITHIN_S = 10.0  # after Ctrl-C


@dataclass(frozen=True, slots=True)
class Plan(LinkPlan):
    count: int | None
    size: int
    rate: float | None


@click.command("publish")
@click.argument("address")
@link_options
@click.option("--count", type=click.IntRange(min=0), help="Publish this many made-up messages, not lines.")
@click.option(
    "--size", metavar="SIZE", default="100", callback=size, show_default=True, help="Bytes in each made-up message."
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second, at most.")
def command(
    address: str,
    urls: str,
    ordered: bool,
    name: str | None,
    journal: str | None,
    connect_timeout: float,
    guarantee: str,
    count: int | None,
    size: int,
    rate: float | None,
) -> None:
    """Publish to ADDRESS and wait until every subscriber has accepted: each line of standard input, or --count.

    The tally on stdout says what became of them.  Exit code 1 unless all were accepted.
    """
    plan = Plan(address, urls, ordered, name, journal, connect_timeout, guarantee, count, size, rate)
    run_to_exit(_publish(plan))


async def _publish(plan: Plan) -> int:
    from onceway.loop import on_stop_signals

    async with plan.connect("publish") as connection:
        publisher = await connection.publisher(
            plan.address, name=plan.name, guarantee=plan.guarantee, on_undecided=lambda _: None
        )
        stop = asyncio.Event()
        on_stop_signals(stop.set)
        before = len(publisher.recovered)
        first = publisher.sequence
        if before:
            say(f"[{plan.name or 'publish'}] {before} of an earlier run are sent again first")
        with Meter("published", plan.count) as meter:
            working = asyncio.create_task(_put_all(plan, publisher, meter, stop))
            stopped = asyncio.create_task(stop.wait())
            await asyncio.wait({working, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set() and not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            else:
                stopped.cancel()
                working.result()
            seconds = meter.seconds()
        # Over for good only when all is decided: otherwise the journal keeps it for the next run.
        if publisher.unsettled:
            try:
                async with asyncio.timeout(LEAVE_WITHIN_S):
                    await publisher.drain()
            except TimeoutError:
                say(f"[{plan.name or 'publish'}] {publisher.unsettled} are still undecided")
        total = publisher.sequence - first + before
        accepted, rejected = publisher.accepted, publisher.rejected
        await connection.close(timeout_s=1.0)
    undecided = total - accepted - rejected
    if plan.guarantee == "at-most-once":
        print(f"published {total:,} in {seconds:.2f} s ({total / max(seconds, 0.001):,.0f}/s)")  # noqa: T201
        return 0
    tally = f"published {total:,}, accepted {accepted:,}, rejected {rejected:,}, undecided {undecided:,}"
    print(f"{tally} in {seconds:.2f} s ({accepted / max(seconds, 0.001):,.0f}/s)")  # noqa: T201
    return 0 if accepted == total and (plan.count is None or total - before >= plan.count) else 1


async def _put_all(plan: Plan, publisher: object, meter: Meter, stop: asyncio.Event) -> None:
    from onceway.client.publisher import Publisher

    assert isinstance(publisher, Publisher)
    began = asyncio.get_running_loop().time()
    put = 0
    async for bodies in _lines() if plan.count is None else _made_up(plan.count, plan.size):
        at = 0
        while at < len(bodies):
            some = bodies[at : at + CHUNK]
            if plan.rate is not None:
                due = int((asyncio.get_running_loop().time() - began) * plan.rate) + 1 - put
                if due <= 0:
                    await asyncio.sleep(min(TICK_S, 1 / plan.rate))
                    continue
                some = some[:due]
            await publisher.put_many(some)
            at += len(some)
            put += len(some)
            meter.at(publisher.accepted)
    async with asyncio.TaskGroup() as group:
        draining = group.create_task(publisher.drain())
        while not draining.done():
            meter.at(publisher.accepted)
            await asyncio.wait({draining}, timeout=0.1)


async def _made_up(count: int, size: int) -> AsyncIterator[list[Body]]:
    """Messages of `size` bytes that begin with their number."""
    for first in range(0, count, CHUNK):
        yield [
            b"%d" % number if size == 0 else (b"%d " % number).ljust(size, b".")
            for number in range(first, min(first + CHUNK, count))
        ]


async def _lines() -> AsyncIterator[list[Body]]:
    """Lines of standard input as they come, without their ends: text, or bytes where a line is not UTF-8."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes] = asyncio.Queue()
    descriptor = sys.stdin.fileno()
    wanted = threading.Semaphore(4)  # how far reading may run ahead

    def read() -> None:
        while True:
            wanted.acquire()
            data = os.read(descriptor, 1 << 16)
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, data)
            except RuntimeError:  # the loop has ended without us
                return
            if not data:
                return

    # a daemon: Ctrl-C must not wait for the next line
    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest = b""
    while data := await chunks.get():
        wanted.release()
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield [_text(line) for line in lines]
    if rest:
        yield [_text(rest)]


def _text(line: bytes) -> Body:
    line = line.removesuffix(b"\r")
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line
