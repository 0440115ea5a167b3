"""`onceway publish ADDRESS`: lines from standard input, or a count of made-up messages."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from onceway.base import waits
from onceway.cli.options import LinkPlan, Meter, link_options, run_to_exit, say, size, write_out
from onceway.client.bodies import Body

if TYPE_CHECKING:
    from onceway.client.publisher import Publisher

CHUNK = 1000  # messages handed over at a time
TICK_S = 0.01  # with --rate
TELL_AFTER_S = 5.0  # without an outcome
LOOK_EVERY_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(LinkPlan):
    count: int | None
    size: int
    rate: float | None
    timeout_s: float | None


@click.command("publish")
@click.argument("address")
@link_options
@click.option("--count", type=click.IntRange(min=0), help="Publish this many made-up messages, not lines.")
@click.option(
    "--size", metavar="SIZE", default="100", callback=size, show_default=True, help="Bytes in each made-up message."
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Messages a second, at most.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    help="Exit with code 1 if there is no credit or no outcome for this many seconds. Default: wait for ever.",
)
def command(**options: Any) -> None:
    """Publish each line of standard input, or --count messages, to ADDRESS. Wait until every subscriber has accepted.

    After 5 s without credit a line on stderr says why: nobody subscribes, or a subscription is slow or away. After 5 s
    without an outcome a line says how many messages a subscription has not accepted. With
    --journal, messages that have no outcome in the end are sent again by the next run under this name.

    A tally of the outcomes goes to stdout. The exit code is 1 unless every message was accepted.
    """
    plan = Plan(**options)
    run_to_exit(_publish(plan))


async def _publish(plan: Plan) -> int:
    from onceway.base.loop import on_stop_signals

    async with plan.connect("publish") as connection:
        publisher = await connection.publisher(
            plan.address, name=plan.name, guarantee=plan.guarantee, on_undecided=lambda _: None
        )
        stop = asyncio.Event()
        on_stop_signals(stop.set)
        before = len(publisher.recovered)
        first = publisher.sequence
        if before:
            say(f"[{plan.name or 'publish'}] {before} messages of an earlier run are sent again first")
        with Meter("published", plan.count) as meter:
            working = asyncio.create_task(_put_all(plan, publisher, meter, stop))
            stopped = asyncio.create_task(waits.STOP(stop).wait())
            telling = asyncio.create_task(_tell_whom_it_waits_for(plan, publisher))
            timed_out = not await _work(plan, publisher, {working, stopped})
            without_credit = publisher.waits
            stopped.cancel()
            telling.cancel()
            if working.done():
                working.result()
            else:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            seconds = meter.seconds()
        # What has no outcome yet stays in the journal for the next run.
        if timed_out:
            why = "" if publisher.waiting is None else f": {publisher.waiting.why}"
            lacks = "outcome" if publisher.unsettled else "credit"
            say(f"[{plan.name or 'publish'}] no {lacks} for {plan.timeout_s:g} s{why}")
        elif publisher.unsettled:
            try:
                async with asyncio.timeout(waits.LEAVE.s):
                    await publisher.drain()
            except TimeoutError:
                say(f"[{plan.name or 'publish'}] {publisher.unsettled} messages have no outcome yet")
        if without_credit:
            say(f"[{plan.name or 'publish'}] what was read last is not published: there was no credit")
        total = publisher.sequence - first + before
        accepted, rejected = publisher.accepted, publisher.rejected
        await connection.close(timeout_s=1.0)
    undecided = total - accepted - rejected
    if plan.guarantee == "at-most-once":
        write_out(f"published {total:,} in {seconds:.2f} s ({total / max(seconds, 0.001):,.0f}/s)\n")
        return 0
    tally = f"published {total:,}, accepted {accepted:,}, rejected {rejected:,}, undecided {undecided:,}"
    write_out(f"{tally} in {seconds:.2f} s ({accepted / max(seconds, 0.001):,.0f}/s)\n")
    if timed_out or without_credit:
        return 1
    return 0 if accepted == total and (plan.count is None or total - before >= plan.count) else 1


async def _tell_whom_it_waits_for(plan: Plan, publisher: Publisher) -> None:
    """After some seconds without an outcome a line says so; the router says why only where there is no credit."""
    loop = asyncio.get_running_loop()
    moved, seen = loop.time(), -1
    while True:
        decided = publisher.accepted + publisher.rejected
        if decided != seen or not publisher.unsettled:
            moved, seen = loop.time(), decided
        elif loop.time() >= moved + TELL_AFTER_S and publisher.waiting is None:
            left = f"{publisher.unsettled} message{'' if publisher.unsettled == 1 else 's'}"
            say(
                f"[{plan.name or 'publish'}] {plan.address}: waits: not every subscription has accepted {left} yet; "
                "`onceway status` names those that are away"
            )
            return
        await asyncio.sleep(LOOK_EVERY_S)


async def _work(plan: Plan, publisher: Publisher, tasks: set[asyncio.Task[Any]]) -> bool:
    """Waits until one of the tasks is done; False if for --timeout nothing has moved that should have."""
    if plan.timeout_s is None:
        await waits.OUTCOME(asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED))
        return True
    loop = asyncio.get_running_loop()
    moved, seen = loop.time(), -1
    while loop.time() < moved + plan.timeout_s:
        look_s = min(0.1, plan.timeout_s / 4)
        await waits.PAUSE(asyncio.wait)(tasks, timeout=look_s, return_when=asyncio.FIRST_COMPLETED)
        if any(task.done() for task in tasks):
            return True
        decided = publisher.accepted + publisher.rejected
        if decided != seen or not (publisher.unsettled or publisher.waits):
            moved, seen = loop.time(), decided
    return False


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
    draining = asyncio.create_task(publisher.drain())
    try:
        while not draining.done():
            meter.at(publisher.accepted)
            await waits.PAUSE(asyncio.wait)({draining}, timeout=0.1)
    finally:
        draining.cancel()
    draining.result()


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
    chunks: asyncio.Queue[bytes] = waits.STDIN(asyncio.Queue())
    descriptor = sys.stdin.fileno()
    wanted = waits.OWN_WORK(threading.Semaphore(4))  # bounds how far reading runs ahead

    def read() -> None:
        while True:
            wanted.acquire()
            data = waits.STDIN(os.read)(descriptor, 1 << 16)
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, data)
            except RuntimeError:  # the loop has ended without us
                return
            if not data:
                return

    # a daemon thread, so that Ctrl-C does not wait for the next line
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
