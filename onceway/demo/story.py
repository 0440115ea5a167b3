"""The demo from beginning to end: network up, clients on, kill, failover, ledger."""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from onceway import topology
from onceway.base import logs, waits
from onceway.base.program import is_compiled, program
from onceway.demo.applications import Reach, publish, subscribe
from onceway.demo.lake import Lake, LakeFailed
from onceway.demo.lake_audit import Audit
from onceway.demo.ledger import LAKE, Ledger, PublisherNotes, SubscriberNotes, judge
from onceway.demo.secure import Secure
from onceway.errors import UsageError
from onceway.host.supervisor import State, Supervisor
from onceway.serve.ports import free_ports, try_listen
from onceway.spark.session import missing
from onceway.topology import Topology, format_host_port

PUBLISHERS = {"web": "a", "phone": "a"}  # name, and the router it starts at
SUBSCRIBERS = {"billing": "b", "shipping": "c", "audit": "c"}
LAKE_AT = "c"
START_ATTEMPTS = 3
STALL_S = 60.0  # without progress for that long, judge what there is
LOOK_EVERY_S = 0.05


class DemoFailed(Exception):
    """The network did not start; there is nothing to judge."""


@dataclass(slots=True)
class Plan:
    count: int = 20_000  # of both publishers together
    rate: float = 5_000.0  # a second, of both together
    kill: Sequence[str] = ("c",)  # one after the other, spread over the run
    directory: Path | None = None  # journals, topology, routers' logs and the lake are kept there
    spark: bool = True
    secure: bool = False  # TLS both ways, users, policies; without Spark's part


async def run(plan: Plan, console: Console) -> Ledger:
    with tempfile.TemporaryDirectory(prefix="onceway-demo-") as scratch:
        directory = plan.directory or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        if old := sorted(directory.glob("*.journal")):
            raise UsageError(f"{old[0]}: a journal of an earlier demo; give --keep an empty folder")
        story = Story(plan, console, directory)
        try:
            return await story.tell()
        finally:
            story.close()


@dataclass(slots=True)
class Story:
    plan: Plan
    console: Console
    directory: Path
    publishers: dict[str, PublisherNotes] = field(default_factory=dict)
    subscribers: dict[str, SubscriberNotes] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    lake: Lake | None = None
    secure: Secure | None = None
    audit: Audit | None = None
    lost_at: dict[str, float] = field(default_factory=dict)  # client -> when it lost its router
    log: logs.Log = field(default_factory=lambda: logs.logger("demo"))
    log_file: logs.Handler | None = None

    def close(self) -> None:
        if self.log_file is not None:
            self.log_file.close()

    # --- the supervisor's reporter: the log goes to a file

    def said(self, name: str, text: str) -> None:
        logs.relay(name, text)

    def ready(self, text: str) -> None:
        self.say(text)

    def looked(self) -> None:
        pass

    # --- what people read

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self.began:5.1f} s[/dim]  {text}", highlight=False)

    def event(self, client: str, event: Any) -> None:
        """From the library, when a client loses its router and finds another."""
        kind = type(event).__name__
        if kind == "RouterLost":
            self.lost_at.setdefault(client, time.monotonic())
            text = "{name}: lost {url}: {reason}"
            self.log.info("demo_router_lost", text, name=client, url=str(event.url), reason=event.reason)
        elif kind == "LinkAttached" and client in self.lost_at:
            after_ms = (time.monotonic() - self.lost_at.pop(client)) * 1000
            self.say(f"  {client:9} goes on at [bold]{event.router}[/bold] after {after_ms:.0f} ms, link resumed")
        elif kind in ("SubscriptionGap", "PublicationsUndecided"):
            self.say(f"  [bold red]{client}: {event.reason}[/bold red]")

    # --- the story

    async def tell(self) -> Ledger:
        shipped = topology.load(topology.shipped("triangle"))
        path = self.directory / "routers.log"
        path.unlink(missing_ok=True)  # of an earlier demo
        self.log_file = logs.configure(logs.Options(file=path))
        unknown = [name for name in self.plan.kill if name not in shipped.routers]
        if unknown:
            raise UsageError(f"no router {', '.join(unknown)} to kill; there are {', '.join(shipped.routers)}")
        self.say(program() if is_compiled() else f"{program()}: quick to install; `make wheel` compiles it")
        if self.plan.secure:
            self.secure = Secure(self.directory / "pki", "mutual", list(shipped.routers), [*PUBLISHERS, *SUBSCRIBERS])
            await waits.OPENSSL(asyncio.to_thread(self.secure.make))
            self.say("TLS both ways everywhere, clients log in, policies")
        for attempt in range(START_ATTEMPTS):
            usual = attempt == 0 and self.secure is None and _is_free(shipped)
            loaded = shipped if usual else _on_free_ports(shipped, self.directory, self.secure)
            state = self.directory / f"state{attempt}"  # so that each attempt is a first start
            supervisor = Supervisor(loaded, list(loaded.routers), self, look_every_s=LOOK_EVERY_S, state=state)
            running = asyncio.create_task(supervisor.run())
            try:
                if await self._is_up(supervisor):
                    await self._start_lake(loaded)
                    try:
                        await self._with_clients(loaded, supervisor)
                        await self._finish_lake()
                    finally:
                        if self.lake is not None:
                            await self.lake.close()
                    return judge(self.publishers.values(), self.subscribers.values(), self.audit)
            finally:
                supervisor.stop()
                await running
        raise DemoFailed(f"the network did not start:\n{self._log_tail()}")

    async def _is_up(self, supervisor: Supervisor) -> bool:
        """False if a router did not start: another program may have taken a port that was free a moment ago."""
        try:
            async with asyncio.timeout(waits.DEMO_START.s):
                return await supervisor.until_converged()
        except TimeoutError:
            raise DemoFailed(f"the network was not ready in {waits.DEMO_START.s:.0f} s:\n{self._log_tail()}") from None

    async def _start_lake(self, loaded: Topology) -> None:
        if not self.plan.spark or self.secure is not None:
            return
        if (reason := await waits.JAVA(asyncio.to_thread(missing))) is not None:
            self.say(f"[yellow]without Spark's part: {escape(reason)}[/yellow]")
            return
        self.say("Spark starts, which takes some seconds")
        lake = self.lake = Lake(self.directory / "spark")
        await lake.start(",".join(_urls(loaded, LAKE_AT)))
        try:
            async with asyncio.timeout(waits.DEMO_SPARK.s):
                await lake.until_attached()
        except (TimeoutError, LakeFailed) as error:
            await lake.close()
            raise DemoFailed(f"{str(error) or 'Spark did not start'} (see {lake.log})") from None
        self.say(f"Spark        subscribed at {LAKE_AT}: network -> lake -> totals")

    async def _finish_lake(self) -> None:
        """Until all is in the lake, or nothing has come for long; then what the lake itself says."""
        if self.lake is None:
            return
        last, moved = -1, time.monotonic()
        while self.lake.rows < self.accepted and not self.lake.ended and time.monotonic() - moved < STALL_S:
            if self.lake.rows != last:
                last, moved = self.lake.rows, time.monotonic()
            await asyncio.sleep(LOOK_EVERY_S)
        self.say(f"{self.lake.rows:,} messages are in the lake; Spark adds up and audits")
        try:
            self.audit = await self.lake.finish()
        except (TimeoutError, LakeFailed) as error:
            raise DemoFailed(f"{str(error) or 'Spark did not end'} (see {self.lake.log})") from None

    async def _with_clients(self, loaded: Topology, supervisor: Supervisor) -> None:
        attached: list[asyncio.Event] = []
        subscribing: list[asyncio.Task[None]] = []
        for name, home in SUBSCRIBERS.items():
            notes = self.subscribers[name] = SubscriberNotes(name)
            attached.append(asyncio.Event())
            reach = self._reach(loaded, name, home)
            work = subscribe(name, reach, self._journal(name), notes, self.event, attached[-1])
            subscribing.append(asyncio.create_task(work))
        everyone = asyncio.gather(*(event.wait() for event in attached))
        first: set[asyncio.Future[Any]] = {everyone, *subscribing}
        await waits.ATTACH(asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED))
        for task in subscribing:
            if task.done():
                task.result()
        self.say(f"subscribers  {_at(SUBSCRIBERS)}")
        share = self.plan.count // len(PUBLISHERS)
        publishing: list[asyncio.Task[None]] = []
        for i, (name, home) in enumerate(PUBLISHERS.items()):
            count = self.plan.count - share * (len(PUBLISHERS) - 1) if i == 0 else share
            notes_of = self.publishers[name] = PublisherNotes(name)
            rate = self.plan.rate / len(PUBLISHERS)
            reach = self._reach(loaded, name, home)
            work = publish(name, reach, self._journal(name), count, rate, notes_of, self.event)
            publishing.append(asyncio.create_task(work))
        self.say(f"publishers   {_at(PUBLISHERS)}: {self.plan.count:,} messages to the topic [bold]orders[/bold]")
        killing = asyncio.create_task(self._kill(supervisor))
        try:
            await self._watch(publishing, subscribing, killing)
        finally:
            for task in (*publishing, *subscribing, killing):
                task.cancel()
            results = await asyncio.gather(*publishing, *subscribing, killing, return_exceptions=True)
            for result in results:
                if isinstance(result, Exception):
                    self.say(f"[bold red]{type(result).__name__}: {result}[/bold red]")

    async def _watch(
        self, publishing: list[asyncio.Task[None]], subscribing: list[asyncio.Task[None]], killing: asyncio.Task[None]
    ) -> None:
        """Until everything has arrived everywhere, or nothing has moved for long."""
        columns = (TextColumn("         {task.description:12}"), BarColumn(40), MofNCompleteColumn())
        with Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as bars:
            accepted = bars.add_task("accepted", total=self.plan.count)
            arrived = {name: bars.add_task(name, total=self.plan.count) for name in SUBSCRIBERS}
            in_lake = bars.add_task(LAKE, total=self.plan.count, visible=self.lake is not None)
            last, moved = -1, time.monotonic()
            while True:
                done = self.accepted
                bars.update(accepted, completed=done)
                for name, bar in arrived.items():
                    bars.update(bar, completed=len(self.subscribers[name].handed))
                bars.update(in_lake, completed=self.lake.rows if self.lake is not None else 0)
                total = done + sum(len(notes.handed) for notes in self.subscribers.values())
                if total != last:
                    last, moved = total, time.monotonic()
                elif time.monotonic() - moved > STALL_S:
                    self.say(f"[bold red]nothing has moved for {STALL_S:.0f} s[/bold red]\n{self._log_tail()}")
                    return
                if any(task.done() for task in subscribing):
                    return  # a subscriber never ends by itself
                if all(task.done() for task in publishing) and killing.done():
                    return  # what was accepted has been handed out: the ledger shows whether that is true
                await asyncio.sleep(LOOK_EVERY_S)

    @property
    def accepted(self) -> int:
        return sum(notes.accepted for notes in self.publishers.values())

    @property
    def published(self) -> int:
        return sum(notes.published for notes in self.publishers.values())

    async def _kill(self, supervisor: Supervisor) -> None:
        """Each router at its part of the way, and not before the one before is back."""
        for i, name in enumerate(self.plan.kill, 1):
            part = self.plan.count * i // (len(self.plan.kill) + 2)
            await _until(lambda part=part: self.published >= part)  # type: ignore[misc]
            at, pid = self.published, supervisor.signal(name, signal.SIGKILL)
            killed = time.monotonic()
            self.say(f"[bold red]kill -9[/bold red] router [bold]{name}[/bold] (pid {pid}) after {at:,} messages")
            child = supervisor.children[name]
            await _until(lambda c=child, p=pid: c.pid not in (None, p) and c.state is State.READY)  # type: ignore[misc]
            back_ms = (time.monotonic() - killed) * 1000
            self.say(f"  router {name} is back after {back_ms:.0f} ms, as pid {child.pid}")

    def _reach(self, loaded: Topology, name: str, home: str) -> Reach:
        secure = self.secure
        if secure is None:
            return Reach(_urls(loaded, home))
        urls = [url.replace("amqp://", "amqps://") for url in _urls(loaded, home, "amqps")]
        return Reach(urls, secure.tls(name), secure.credentials(name))

    def _journal(self, name: str) -> Path:
        return self.directory / f"{name}.journal"

    def _log_tail(self) -> str:
        return "\n".join((self.directory / "routers.log").read_text().splitlines()[-20:])


async def _until(condition: Callable[[], bool]) -> None:
    """The clients' notes and the supervisor's children are plain values that are looked at."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(LOOK_EVERY_S / 10)


def ledger_table(ledger: Ledger) -> Table:
    table = Table(title=f"published {ledger.published:,}, accepted {ledger.accepted:,}", title_justify="left")
    table.add_column("subscriber")
    for heading in ("delivered", "lost", "duplicate", "out of order"):
        table.add_column(heading, justify="right")
    for line in ledger.lines:
        style = "green" if line.clean else "bold red"
        table.add_row(
            line.name, f"{line.delivered:,}", str(line.lost), str(line.duplicate), str(line.out_of_order), style=style
        )
    return table


def sums_table(ledger: Ledger) -> Table:
    """The same orders, as three places add them up."""
    table = Table(title="orders by Spark, in windows of their own time", title_justify="left")
    table.add_column("")
    for heading in ("orders", "of them late", "amount"):
        table.add_column(heading, justify="right")
    agree = len(set(ledger.sums.values())) == 1
    for name, sums in ledger.sums.items():
        cells = (f"{sums.orders:,}", f"{sums.late:,}", f"{sums.cents / 100:,.2f}")
        table.add_row(name, *cells, style="green" if agree else "bold red")
    return table


def _at(homes: dict[str, str]) -> str:
    return ", ".join(f"{name} at {home}" for name, home in homes.items())


def _urls(loaded: Topology, home: str, listener: str = "amqp") -> list[str]:
    """All routers, the client's own first."""
    names = list(loaded.routers)
    start = names.index(home)
    return [f"amqp://{format_host_port(loaded.routers[name][listener])}" for name in names[start:] + names[:start]]


def _is_free(loaded: Topology) -> bool:
    return all(
        try_listen(place) is None for name in loaded.routers for place in loaded.routers[name].listeners.values()
    )


def _on_free_ports(loaded: Topology, directory: Path, secure: Secure | None) -> Topology:
    """The same network on other ports."""
    document = yaml.safe_load(loaded.path.read_text())
    needed = sum(len(place.listeners) + 1 for place in loaded.routers.values())
    ports = iter(free_ports(needed, random.Random()))
    for name, place in loaded.routers.items():
        document["routers"][name] = {key: next(ports) for key in place.listeners}
    if secure is not None:
        document = secure.secured(document, list(ports))
    path = directory / loaded.path.name
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return topology.load(path)
