"""`onceway status FILE|URL`: the state of each router, and what keeps deliveries from completing."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onceway import topology
from onceway.base import waits
from onceway.cli.options import without_password
from onceway.cli.sockets import Reading, network_option, places_of, reading_options
from onceway.cli.tables import columns_explained
from onceway.operate.alerts import Asked as Who
from onceway.operate.probe import Status, everybody
from onceway.operate.well import Judge
from onceway.serve.ports import store_urls
from router.json_text import write_json

if TYPE_CHECKING:
    from rich.console import RenderableType

WATCH_EVERY_S = 2.0
COLUMNS = "\n".join(
    ("\b", "Columns, with the short form for terminals of less than 110 columns:", *columns_explained())
)


@click.command("status", epilog=COLUMNS)
@click.argument("target", metavar="[FILE|URL]", required=False, callback=without_password)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=waits.PROBE_ALL.s,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for a router; all are asked at once.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the routers' whole /status documents.")
@click.option("--watch", is_flag=True, help="Ask again and again, until Ctrl-C. With --json: a line each time.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=WATCH_EVERY_S,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: how long to wait in between.",
)
@click.option("--well", is_flag=True, help="Judge the alerts here and now, with what to do about each.")
@reading_options
@network_option
def command(
    target: str | None,
    timeout: float,
    as_json: bool,
    watch: bool,
    interval: float,
    well: bool,
    reading: Reading,
    network: str | None,
) -> None:
    """Ask every router of a topology FILE, or the one whose admin listener is at URL (http://host:port, or host:port).
    Without either, ask the routers that run on this host, through their control sockets.

    A line for each router, and below what keeps deliveries from completing: publishers without credit, subscriptions
    that are away and waited for, links that are down, stores of the FILE's pipes that do not answer.

    The exit code is 1 if a router does not answer or is not ready; with --watch, at the end. With --well it is 1 if the
    condition of an alert holds; what the rules look back at is known only with --watch.
    """
    from onceway.base.loop import run

    asked = Asked(target, timeout, as_json, reading, network)
    if well:
        with contextlib.suppress(KeyboardInterrupt):
            sys.exit(run(_say_alerts(asked, interval if watch else None)))
    watching = _Watch(asked, interval)
    try:
        if watch:
            run(watching.run())
        else:
            statuses, silent, stores = run(asked.ask())
            watching.statuses = statuses
            if as_json:
                click.echo(write_json(statuses, indent=2))
            else:
                _console().print(shown(statuses, silent, _console().width, stores=stores), soft_wrap=True)
    except KeyboardInterrupt:
        pass
    ready = [status is not None and status.get("state") == "ready" for status in watching.statuses.values()]
    sys.exit(0 if ready and all(ready) else 1)


def admin_address(target: str) -> str | None:
    """The URL of an admin listener if `target` is one: http://host:port, or host:port. None: it is a file."""
    if re.fullmatch(r"[^/]+:[0-9]{1,5}", target) and not Path(target).exists():
        return f"http://{target}"
    return target.removesuffix("/status") if target.startswith(("http://", "https://")) else None


@dataclass(frozen=True, slots=True)
class Asked:
    """Who is asked, and for what."""

    target: str | None  # a file, or the URL of an admin listener; None: the routers on this host
    timeout_s: float
    with_addresses: bool
    reading: Reading = field(default_factory=Reading)
    network: str | None = None

    async def ask(self) -> tuple[Mapping[str, Status | None], Mapping[str, str], list[str]]:
        """The routers' documents, by name why an admin listener gave none, and a line for each store of the file that
        does not answer."""
        url = self._url()
        if url is not None:
            statuses, why = await self._ask({url: url}, {})
            (status,) = statuses.values()
            name = str(self.target) if status is None else str(status["name"])
            return {name: status}, {str(self.target): why[url]}, []
        read = topology.load(self.target) if self.target is not None else None
        asking = self._ask(*places_of(read, self.network, self.reading.state_dir))
        if read is None:
            return *await asking, []
        (statuses, why), stores = await asyncio.gather(asking, _silent_stores(read, self.timeout_s))
        return statuses, why, stores

    def places(self) -> tuple[list[tuple[Who, str, str]], Mapping[str, Path]]:
        """Who says metrics: what it is, its name and its URL; and the control sockets, by URL."""
        if (url := self._url()) is not None:
            return [("router", url.partition("://")[2], url)], {}
        read = topology.load(self.target) if self.target is not None else None
        urls, sockets = places_of(read, self.network, self.reading.state_dir)
        return everybody(urls, {} if read is None else store_urls(read)), sockets

    def _url(self) -> str | None:
        return None if self.target is None else admin_address(self.target)

    async def _ask(
        self, urls: Mapping[str, str], sockets: Mapping[str, Path]
    ) -> tuple[dict[str, Status | None], dict[str, str]]:
        async with waits.PROBE_ALL(self.reading.probe(self.timeout_s, sockets)) as probe:
            ask = probe.status if self.with_addresses else probe.summary
            found = await asyncio.gather(*map(ask, urls.values()))
            return dict(zip(urls, found, strict=True)), {name: probe.why.get(url, "") for name, url in urls.items()}


class _Watch:
    """Asks again and again. On a terminal the answers replace each other; elsewhere they follow each other."""

    def __init__(self, asked: Asked, interval_s: float) -> None:
        self.statuses: Mapping[str, Status | None] = {}
        self._asked = asked
        self._interval_s = interval_s
        self._silent: Mapping[str, str] = {}
        self._stores: list[str] = []

    async def run(self) -> None:
        from rich.live import Live

        console = _console()
        if not console.is_terminal or self._asked.with_addresses:
            while True:
                await self._ask()
                if self._asked.with_addresses:
                    click.echo(write_json(self.statuses))
                else:
                    console.print(self._shown(console.width), soft_wrap=True)
                await asyncio.sleep(self._interval_s)
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                await self._ask()
                live.update(self._shown(console.width), refresh=True)
                await asyncio.sleep(self._interval_s)

    async def _ask(self) -> None:
        self.statuses, self._silent, self._stores = await self._asked.ask()

    def _shown(self, width: int) -> RenderableType:
        title = f"{time.strftime('%H:%M:%S')}, every {self._interval_s:g} s, until Ctrl-C"
        return shown(self.statuses, self._silent, width, title, self._stores)


def _console() -> Any:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=120)


async def _say_alerts(asked: Asked, every_s: float | None) -> int:
    """Each alert that is not well, and how many are. every_s: until the next look; None: one is all."""
    judge, (who, sockets) = Judge(), asked.places()
    async with waits.PROBE_ALL(asked.reading.probe(asked.timeout_s, sockets)) as probe:
        while True:
            told = await waits.PROBE_ALL(asyncio.gather(*(probe.told(*each) for each in who)))
            documents = [verdict.document() for verdict in judge.judged(told)]
            click.echo(write_json(documents) if asked.with_addresses else "\n".join(_alerts(documents)))
            if every_s is None:
                return int(any(each["findings"] for each in documents))
            await waits.PAUSE(asyncio.sleep)(every_s)


def _alerts(documents: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    unknown: dict[str, list[str]] = {}
    for alert in documents:
        for each in alert["findings"]:
            yield f"{each['state']}: {alert['name']}: {each['summary']}"
            at = ", ".join(each["places"])
            yield f"    {at}: {each['value']}, for {each['held']}; threshold: {alert['threshold']}"
        if alert["findings"]:
            yield f"    {alert['remedy']}: {alert['docs']}"
        elif alert["why"]:
            unknown.setdefault("; ".join(alert["why"]), []).append(alert["name"])
    for why, names in unknown.items():
        yield f"unknown, as {why}: {', '.join(names)}"
    counts = Counter(alert["state"] for alert in documents)
    yield ", ".join(f"{counts[state]} {state}" for state in ("firing", "pending", "unknown", "well"))


async def _silent_stores(network: topology.Topology, timeout_s: float) -> list[str]:
    """A line for each store of the file's pipes at whose place nobody listens."""

    async def line(name: str, host: str, port: int, pipes: list[str]) -> str | None:
        try:
            async with waits.LISTENS(asyncio.timeout(timeout_s)):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError):
            return f"[store {name}] does not answer at {host}:{port}: pushes to {', '.join(pipes)} wait"
        writer.close()
        return None

    pipes_of: dict[tuple[str, str, int], list[str]] = {}
    for match, pipe in network.pipes.items():
        for name, place in pipe.stores.items():
            pipes_of.setdefault((name, *place), []).append(match)
    lines = await asyncio.gather(*(line(*place, pipes) for place, pipes in pipes_of.items()))
    return [each for each in lines if each is not None]


def shown(
    statuses: Mapping[str, Status | None],
    silent: Mapping[str, str],
    width: int,
    title: str | None = None,
    stores: Sequence[str] = (),
) -> RenderableType:
    """The table, and below it a line for each thing that keeps deliveries from completing."""
    from rich.console import Group
    from rich.text import Text

    from onceway.cli.tables import COUNTS, Column, count_cells, router_table

    rows = []
    said_by: dict[str, list[str]] = {}
    for name, status in statuses.items():
        if status is None:
            rows.append((name, Text("no answer", style="bold red"), list[str]()))
            said_by.setdefault(silent.get(name) or "does not answer", []).append(name)
            continue
        state = str(status.get("state", ""))
        style = "green" if state == "ready" else "yellow"
        rows.append((name, Text(state, style=style), [str(status.get("pid", "")), *count_cells(status)]))
        if silent.get(name):
            said_by.setdefault(f"the admin listener {silent[name]}; asked through the control socket", []).append(name)
        for line in _concerns(status):
            said_by.setdefault(line, []).append(name)
    table = router_table([Column("pid", "pid", only_wide=True), *COUNTS], rows, width, title)
    lines = [Text(f"[{' '.join(names)}] {line}") for line, names in said_by.items()]
    lines += map(Text, stores)
    return Group(table, *lines)


def _why(publisher: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """What the router has told the publisher, or the reason's name in the first seconds."""
    from onceway.client.reports import waiting_from

    waiting = publisher.get("waiting")
    if waiting is None:
        return str(publisher["no_credit"])
    return waiting_from(publisher["address"], publisher["name"], status.get("name", ""), waiting).why


def _concerns(status: Mapping[str, Any]) -> list[str]:
    """What keeps deliveries from completing: publishers without credit, absent subscriptions, links that are down."""
    lines = []
    if status.get("reason"):
        lines.append(str(status["reason"]))
    for neighbour, link in status.get("neighbours", {}).items():
        if not link.get("up"):
            lines.append(f"the link to {neighbour} is down")
    newest = status.get("versions", {}).get("newest", 0)  # routers before v0.10 do not say
    for peer, session in status.get("sessions", {}).items():
        version = session.get("version")
        if version is not None and version < newest:
            lines.append(f"it speaks version {version} with {peer}, which does not speak {newest} yet: see upgrading")
    if found := status.get("in_hand"):  # routers before v0.10 do not say
        what = "was ended by" if found["ended"] else "has ended while it handled"
        user = "" if found["user"] is None else f", user {found['user']}"
        lines.append(
            f"its last life {what} what {found['container'] or 'a client'} at {found['client']}{user} had sent"
        )
    if status.get("broken_file"):
        lines.append(f"the topology file has errors, and the one last checked is used: {status['broken_file']}")
    for one in status.get("file_differences", ()):
        lines.append(
            f"the topology file of {one['router']} has other {one['what']}: digest {one['theirs']}, ours {one['ours']}"
        )
    for publisher in _first(lines, status, "without_credit", "publishers get no credit"):
        name = f"{publisher['container']}/{publisher['name']}"
        lines.append(f"{publisher['address']}: publisher {name} gets no credit: {_why(publisher, status)}")
    for one in _first(lines, status, "away", "subscriptions are away"):
        timeout = one["timeout_s"]
        waited = "without limit: it is declared" if timeout is None else f"{timeout:.0f} s"
        name = f"{one['container']}/{one['name']}"
        lines.append(f"{one['address']}: subscription {name} is away for {one['away_s']:.0f} s and waited for {waited}")
    age = status.get("oldest_in_doubt_s")
    if age is not None:
        lines.append(f"the oldest delivery in doubt has been so for {age:.1f} s")
    return lines


def _first(lines: list[str], status: Mapping[str, Any], key: str, what: str) -> list[Mapping[str, Any]]:
    """Those that the router names; a line says how many there are, where it does not name all."""
    found: Mapping[str, Any] = status.get(key, {})
    first: list[Mapping[str, Any]] = found.get("first", [])
    if found.get("count", 0) > len(first):
        lines.append(f"{found['count']} {what}; the first {len(first)} are:")
    return first
