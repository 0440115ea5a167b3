"""`onceway drain ROUTER`: send the clients of a router to the others, so that it can be stopped."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import click

from onceway.base import waits
from onceway.cli.options import say
from onceway.cli.sockets import routers_here, run_action, socket_options
from router.json_text import write_json

LOOK_EVERY_S = 0.1
GOODBYE_S = 5.0  # for the last clients to answer


@click.command("drain")
@click.argument("router")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds after which connections are closed although deliveries on them have no outcome.",
)
@click.option("--undo", is_flag=True, help="Let the router take clients again.")
@socket_options
def command(
    router: str, timeout: float, undo: bool, as_json: bool, network: str | None, state_dir: Path | None
) -> None:
    """Send the clients of ROUTER, which runs on this host, to the other routers, and wait until none is left.

    The router refuses new links, withdraws credit, waits for the outcomes of
    what is under way, and closes one connection after the other. Each client is
    told another router to go to. Nothing is lost or repeated. The router then
    stays up as a link between its neighbours, and is not ready (/readyz answers
    503) until it is restarted or the drain is undone.

    The exit code is 1 if clients are left when the time is over.

    \b
    Examples:
      onceway drain b
      onceway drain b --timeout 300
      onceway drain b --undo
    """
    (socket,) = routers_here(network, state_dir, router).values()
    run_action(_undo(router, socket, as_json) if undo else _drain(router, socket, timeout, as_json))


async def _drain(router: str, socket: Path, timeout_s: float, as_json: bool) -> int:
    from onceway.operate.control import call

    began = time.monotonic()
    await waits.CONTROL(call(socket, "POST", "/drain", {"timeout_s": timeout_s}))
    told = ""
    while True:
        status = await waits.CONTROL(call(socket, "GET", "/status"))
        seconds, left = time.monotonic() - began, status["connections"]
        drained = status["state"] == "drained"
        if drained or status.get("drain") is None or seconds > timeout_s + GOODBYE_S:
            break
        if status["reason"] != told and not as_json:
            told = status["reason"]
            say(f"[{router}] {told}")
        await asyncio.sleep(LOOK_EVERY_S)
    if as_json:
        click.echo(
            write_json({"router": router, "state": status["state"], "connections": left, "seconds": round(seconds, 3)})
        )
    elif drained:
        click.echo(f"router {router} drained in {seconds:.1f} s")
    elif status.get("drain") is None:
        say(f"[{router}] the drain was undone meanwhile")
    else:
        say(f"[{router}] not drained: {left} connections are left after {seconds:.1f} s")
    return 0 if drained else 1


async def _undo(router: str, socket: Path, as_json: bool) -> int:
    from onceway.operate.control import call

    await waits.CONTROL(call(socket, "POST", "/undrain", {}))
    click.echo(write_json({"router": router, "state": "ready"}) if as_json else f"router {router} takes clients again")
    return 0
