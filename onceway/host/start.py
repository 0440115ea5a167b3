"""Decides how routers start: fresh, or recovering, and then for how long at most.

A router that starts fresh waits for no subscription from before (protocol 4.4). That is right only for a network that
is new as a whole: beside routers that are up, or after a life that is not long over, it would let messages be accepted
without subscriptions that are still waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from onceway.base import waits
from onceway.errors import UsageError
from onceway.serve.ports import admin_url, reachable
from onceway.state.last_life import Heart, last_life
from onceway.topology import HostPort, Topology, format_duration

if TYPE_CHECKING:
    from onceway.operate.probe import Probe

Wanted = Literal["fresh", "recover"]

ASK_AGAIN_S: Final = 0.05
TOGETHER_S: Final = 60.0  # routers that are started fresh within that time are started together


@dataclass(frozen=True, slots=True)
class Start:
    """How a router starts."""

    fresh: bool = False
    age_s: float | None = None  # for how long the network has been dead; None: it is not known, or not dead
    broken_file: str = ""  # what is wrong with the topology file, in whose place the one last checked is used


def decide(
    topology: Topology, names: Collection[str], directory: Path, wanted: Wanted | None, *, part: bool
) -> tuple[Start, str]:
    """How the routers `names` start on this host, and a line that says so.

    Fresh only if it is `wanted`, or at the first start on this host; a `part` of the network only if it is `wanted`.
    """
    network = f"network {topology.network}"
    whole = format_duration(topology.settings.recovery_s)
    if wanted == "fresh":
        return Start(fresh=True), f"{network} starts fresh: it waits for no subscription from before"
    if wanted == "recover":
        return Start(), f"{network} recovers, as asked for: if no other router is up, for {whole}"
    life = last_life(directory, topology.routers)
    if life.first and not part:
        try:
            for name in names:
                heart = Heart(directory, topology.network, name, list(topology.routers))
                heart.begin()
                heart.close()
        except OSError as error:
            return Start(), f"{network} recovers, for {whole}: {error.filename or directory}: {error.strerror}"
        return Start(fresh=True), f"{network} starts fresh: it has not run here before, as far as {directory} knows"
    if life.first:
        return Start(), (
            f"{network} recovers: {', '.join(names)} ask the routers that are up; if none is, they wait for {whole}. "
            "If the network is new, start one router with --fresh"
        )
    if life.age_s is None:
        return Start(), f"{network} recovers; if no other router is up, for {whole}: {life.problem}"
    ended = "stopped" if life.stopped else "last seen alive"
    ago = format_duration(round(life.age_s))
    left = topology.settings.recovery_s - life.age_s
    if left <= 0:
        return Start(age_s=life.age_s), f"{network} was {ended} {ago} ago: no subscription from before is waited for"
    return Start(age_s=life.age_s), (
        f"{network} was {ended} {ago} ago: it recovers, for at most {format_duration(round(left, 1))}, in which "
        "subscribers from before come back (--fresh does not wait for them)"
    )


async def refuse_fresh_beside(topology: Topology, names: Collection[str]) -> None:
    """UsageError if a router that is not in `names` is up; not if it was itself started fresh just now."""
    from onceway.operate.probe import Probe  # aiohttp: no other start needs it

    others = [name for name in topology.routers if name not in names]
    async with Probe(waits.FRESH.s) as probe:
        reasons = await asyncio.gather(*(_reason(topology, name, probe) for name in others))
    up = [f"router {name} {reason}" for name, reason in zip(others, reasons, strict=True) if reason]
    if up:
        raise UsageError(
            f"network {topology.network}: {'; '.join(up)}. A fresh start of {', '.join(names)} would lose messages of "
            "the subscriptions that the network waits for: start without --fresh, or stop all other routers first"
        )


async def _reason(topology: Topology, name: str, probe: Probe) -> str:
    """Why router `name` counts as up; empty if it does not."""
    place = topology.routers[name]
    ports = [reachable(at) for at in place.listeners.values()]
    loop = asyncio.get_running_loop()
    end = loop.time() + waits.FRESH.s
    # A router that starts opens its ports one after the other; the one that answers is the last.
    while (status := await probe.summary(admin_url(topology, name))) is None:
        if not any(await asyncio.gather(*(_listens(at) for at in ports))):
            return ""
        if loop.time() > end:
            return "listens, and does not answer"
        await asyncio.sleep(ASK_AGAIN_S)
    if status.get("network") != topology.network:
        return ""
    if status.get("started_fresh") and status.get("uptime_s", 0) < TOGETHER_S:
        return ""
    return "is up"


async def _listens(address: HostPort) -> bool:
    try:
        async with asyncio.timeout(waits.LISTENS.s):
            _, writer = await asyncio.open_connection(*address)
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return True
