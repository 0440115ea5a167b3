"""`onceway subscribe ADDRESS`: prints the body of each message on a line, or only counts messages."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import click

from onceway.base import waits
from onceway.cli.options import LinkPlan, Meter, link_options, run_to_exit, say, write_out


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(LinkPlan):
    count: int | None
    quiet: bool
    credit: int
    timeout_s: float | None
    accept_first: bool


@dataclass(slots=True)
class Tally:
    received: int = 0
    began: float = 0.0  # when the first one came
    gaps: int = 0


@click.command("subscribe")
@click.argument("address")
@link_options
@click.option("--count", type=click.IntRange(min=1), help="Stop after this many messages.")
@click.option("--quiet", is_flag=True, help="Count, and print only the tally.")
@click.option(
    "--credit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="The most messages to have received and not accepted.",
)
@click.option(
    "--accept",
    type=click.Choice(["after-printing", "before-printing"]),
    default="after-printing",
    show_default=True,
    help="If the command is killed or fails between the two: print again what was not accepted, or lose what was not "
    "printed.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    help="Exit with code 1 if no message arrives for this many seconds.",
)
def command(*, accept: str, **options: Any) -> None:
    """Receive from ADDRESS, print each message on a line and accept it; Ctrl-C ends it.

    Printing and accepting are two steps, and messages go through them in batches of up to --credit. So the output has
    each message at least once by default, and at most once with --accept before-printing, whatever the guarantee. A
    program that needs it exactly once stores the message and its delivery-tag in one transaction (see docs/clients.md).

    What cannot be decoded is printed as the octets that came, and a line on stderr says why.

    The tally goes to stdout with --quiet, otherwise to stderr: stdout then holds the messages and nothing else.
    """
    plan = Plan(**options, accept_first=accept == "before-printing")
    run_to_exit(_subscribe(plan))


async def _subscribe(plan: Plan) -> int:
    from onceway.base.loop import on_stop_signals

    tally = Tally()

    def gap(event: Any) -> None:
        tally.gaps += 1

    async with plan.connect("subscribe") as connection:
        subscriber = await connection.subscriber(
            plan.address, name=plan.name, guarantee=plan.guarantee, credit=plan.credit, on_gap=gap
        )
        stop = asyncio.Event()
        on_stop_signals(stop.set)
        timed_out = False
        with Meter("received", plan.count) as meter:
            taking = asyncio.create_task(_take(plan, subscriber, tally, meter))
            stopped = asyncio.create_task(waits.STOP(stop).wait())
            while not taking.done() and not stop.is_set() and not timed_out:
                seen = tally.received
                await waits.MESSAGE(asyncio.wait)(
                    {taking, stopped}, timeout=plan.timeout_s, return_when=asyncio.FIRST_COMPLETED
                )
                timed_out = not taking.done() and not stop.is_set() and tally.received == seen
            stopped.cancel()
            taking.cancel()
            seconds = time.monotonic() - tally.began if tally.began else 0.0
        results = await asyncio.gather(taking, return_exceptions=True)
        if isinstance(results[0], Exception):
            raise results[0]
        await connection.close(timeout_s=5.0)
    if timed_out:
        say(f"[{plan.name or 'subscribe'}] no message arrived for {plan.timeout_s:g} s")
    rate = tally.received / max(seconds, 0.001)
    line = f"received {tally.received:,}, gaps {tally.gaps} in {seconds:.2f} s ({rate:,.0f}/s)"
    if plan.quiet:
        write_out(f"{line}\n")
    else:
        say(line)
    complete = plan.count is None or tally.received >= plan.count
    return 0 if complete and not tally.gaps and not timed_out else 1


async def _take(plan: Plan, subscriber: Any, tally: Tally, meter: Meter) -> None:
    from onceway.errors import OncewayError

    left = plan.count
    while left is None or left > 0:
        most = plan.credit if left is None else min(plan.credit, left)
        async for batch in waits.MESSAGE(subscriber.batches(max_messages=most)):
            tally.began = tally.began or time.monotonic()
            out = "" if plan.quiet else shown(plan.name or "subscribe", batch.bodies)
            if plan.accept_first:
                await batch.accept()
            try:
                write_out(out)
                if not plan.accept_first:
                    await batch.accept()
            except OncewayError:
                if out:
                    fate = "accepted, and may not be printed" if plan.accept_first else "not accepted: they come again"
                    say(f"[{plan.name or 'subscribe'}] the last {len(batch)} messages are {fate}")
                raise
            tally.received += len(batch)
            meter.at(tally.received)
            if left is not None:
                left -= len(batch)
                break
        else:
            return


def shown(name: str, bodies: list[Any]) -> str:
    """A line for each; says on stderr if some are raw, and why the first one is."""
    from onceway.client.bodies import why_raw

    raw = [why for why in map(why_raw, bodies) if why is not None]
    if raw:
        count = "a message that cannot be decoded is" if len(raw) == 1 else f"{len(raw)} that cannot be decoded are"
        say(f"[{name}] {count} printed as it came: {raw[0]}")
    return "".join(f"{show(body)}\n" for body in bodies)


def show(body: Any) -> str:
    """One line for any body."""
    if isinstance(body, bytes):
        text = body.decode(errors="backslashreplace")
    else:
        text = body if isinstance(body, str) else repr(body)
    if "\n" in text or "\r" in text:
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return text
