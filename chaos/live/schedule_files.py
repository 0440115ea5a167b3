"""Reads schedules from YAML.

`load_schedule` gives a `Schedule`, or raises onceway's ConfigError with every problem of the file at once, each with
line, place and remedy.  Knows what a schedule may say, not what it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import yaml

from chaos.live.schedule import (
    CLIENTS,
    KINDS,
    SETTLE,
    WITH_JOURNAL,
    Fault,
    Kind,
    Pick,
    Publisher,
    Schedule,
    Subscriber,
    Target,
    What,
)
from onceway.base.values import format_duration, read_count, read_duration, read_name, read_size
from onceway.topology import ConfigError, Link, Problem, load, shipped
from onceway.topology.document import Entry, Item, Problems, compose, suggest
from onceway.topology.forms import Scope
from onceway.topology.links import LINKS, join
from onceway.topology.sections import TOP

SCHEDULES: Final = Path(__file__).resolve().parent / "schedules"
DRAIN_S: Final = 150.0
"""Longer than `publisher_timeout` and its margin: what a subscriber has accepted, and is being settled when it and its
router are killed, stays for so long where its publishers have left (protocol 8.4.6)."""
_WHATS: Final = ("router", "trunk", "link", "client")
_LONG_S: Final = 86_400.0
_LEAST_S: Final = 0.001
_LEAST: Final = {"rate": 1000, "average_size": 1, "connections": 1}
_ALWAYS: Final = ("fault", "on", "at", "every", "times", "wait")
_OF_CONNECTIONS: Final = ("for", "stream", "toxicity")


def find(given: str | os.PathLike[str]) -> Path:
    """A path, or the name of one in the library."""
    path = Path(given)
    named = SCHEDULES / f"{path}.yaml"
    # A folder of that name, where runs are kept, is no schedule.
    return named if path.suffix not in (".yaml", ".yml") and not path.is_file() and named.exists() else path


def library() -> list[Path]:
    return sorted(SCHEDULES.glob("*.yaml"))


def load_schedule(path: Path) -> Schedule:
    try:
        data = path.read_bytes()
    except OSError as error:
        names = ", ".join(one.stem for one in library())
        remedy = f"give the path of a schedule, or one of the library: {names}"
        raise ConfigError([Problem(str(path), 0, "", f"cannot be read ({error.strerror})", remedy)]) from error
    return loads(data, path)


def loads(data: bytes | str, path: Path) -> Schedule:
    problems = Problems(str(path))
    root = compose(data, problems)
    schedule = _Reader(path, problems).read(root) if root is not None else None
    problems.raise_if_any()
    assert schedule is not None
    return schedule


class _Reader:
    """Goes on after a problem; what it returns counts only where there was none."""

    def __init__(self, path: Path, problems: Problems) -> None:
        self.path = path
        self.problems = problems
        self.routers: tuple[str, ...] = ()
        self.links: tuple[Link, ...] = ()
        self.settings: Any = None
        self.addresses: Any = None
        self.names: dict[str, Entry | Item] = {}  # of clients, where they are given
        self.clients: dict[str, str] = {}

    def read(self, root: Item) -> Schedule | None:
        needed = ("shows", "topology", "workload")
        top = root.fields((*needed, "faults", "long"), "a mapping with topology, workload and faults", required=needed)
        if top is None:
            return None
        shows = top["shows"].scalar(str, "one sentence") if "shows" in top else None
        if "topology" in top:
            self.read_topology(top["topology"])
        publishers: list[Publisher] = []
        subscribers: list[Subscriber] = []
        address, drain_s = "orders", DRAIN_S
        if "workload" in top:
            work = top["workload"].fields(
                ("address", "drain", "publishers", "subscribers"),
                "a mapping with publishers and subscribers",
                required=("publishers", "subscribers"),
            )
            for key, item in (work or {}).items():
                if key == "address":
                    address = item.scalar(_address, "an address") or address
                elif key == "drain":
                    drain_s = _quantity(item, "duration", drain_s, 0.1, _LONG_S)
                elif key == "publishers":
                    publishers = self.read_list(item, "a list of publishers", self.read_publisher, least=1)
                else:
                    subscribers = self.read_list(item, "a list of subscribers", self.read_subscriber, least=1)
        faults: list[Fault] = []
        if "faults" in top:
            faults = self.read_list(top["faults"], "a list of faults", self.read_fault)
            self.check_interfaces(top["faults"], faults)
        long = "long" in top and top["long"].choice(("yes", "no")) == "yes"
        if self.problems.found:
            return None
        return Schedule(
            self.path,
            shows or "",
            self.routers,
            self.links,
            self.settings,
            self.addresses,
            address,
            drain_s,
            tuple(publishers),
            tuple(subscribers),
            tuple(sorted(faults, key=lambda fault: fault.at_s)),
            long,
        )

    def read_list(self, item: Item, expected: str, read: Callable[[Item], Any], least: int = 0) -> list[Any]:
        items = item.items(expected)
        if items is not None and len(items) < least:
            item.problem("there is nobody", f"write {expected}: nothing is shown without them")
        return [value for one in items or [] if (value := read(one)) is not None]

    def read_topology(self, entry: Entry) -> None:
        """The name of one that comes with Onceway, or routers and links; ports are the run's business."""
        expected = "a shipped topology's name, or {routers: [a, b], links: [a - b]}"
        if entry.is_scalar:
            entry.scalar(self.take_shipped, expected)
            return
        top = entry.fields(("like", "routers", "links", "settings", "addresses"), expected)
        if top is None:
            return
        if "like" in top:
            top["like"].scalar(self.take_shipped, "a shipped topology's name")
            for key in ("routers", "links"):
                if key in top:
                    top[key].problem(f"like gives the {key} already", "leave one of them out")
        elif "routers" not in top:
            entry.problem("there are no routers", "add routers: [a, b], or like: ring")
        else:
            names: dict[str, Item] = {}
            items = top["routers"].items("a list of names")
            if items == []:
                top["routers"].problem("there are no routers", "write a list of names")
            for item in items or []:
                name = item.scalar(read_name, "a name")
                if name in names:
                    item.problem(f"{name} is there already", "leave one of them out")
                elif name is not None:
                    names[name] = item
            self.routers = tuple(names)
            found = LINKS.read(top["links"], Scope()) if "links" in top else None
            links, via = join(top.get("links", top["routers"]), found or (), self.routers)
            self.links = tuple(links)
            if via:
                top["links"].problem(
                    "via means nothing here", "leave it out: faults find their way to a link by themselves"
                )
        scope = Scope()
        if (
            "settings" in top
            and (found_settings := TOP.by_key["settings"].form.read(top["settings"], scope)) is not None
        ):
            scope.for_addresses = found_settings.of_addresses
        if "addresses" in top:
            TOP.by_key["addresses"].form.read(top["addresses"], scope)
        self.settings, self.addresses = (_plain(top[key]) if key in top else None for key in ("settings", "addresses"))

    def take_shipped(self, name: str) -> str:
        try:
            topology = load(shipped(name))
        except ConfigError as error:
            raise ValueError(error.problems[0].what, error.problems[0].remedy) from None
        self.routers, self.links = tuple(topology.routers), topology.links
        return name

    def read_client(self, item: Item, keys: tuple[str, ...]) -> tuple[dict[str, Entry], dict[str, str]] | None:
        entries = item.fields(
            ("name", "client", "at", "settle", *keys), "a mapping such as {name: p1, at: a}", required=("name", "at")
        )
        if entries is None:
            return None
        values = {"client": "onceway", "settle": "second", "name": "", "at": ""}
        if "name" in entries and (name := entries["name"].scalar(read_name, "a name")):
            if name in self.names:
                first = self.names[name]
                entries["name"].problem(f"{name} is there already, in line {first.line}", "give each client its name")
            self.names.setdefault(name, entries["name"])
            values["name"] = name
        if "client" in entries:
            values["client"] = entries["client"].choice(CLIENTS) or "onceway"
        if "settle" in entries:
            values["settle"] = entries["settle"].choice(tuple(SETTLE)) or "second"
        if "at" in entries and (at := self.router(entries["at"])):
            values["at"] = at
        self.clients[values["name"]] = values["client"]
        return entries, values

    def router(self, item: Item) -> str | None:
        def read(name: str) -> str:
            if name not in self.routers:
                raise ValueError(f'no router "{name}"', suggest(name, self.routers, "routers are"))
            return name

        return item.scalar(read, "the name of a router") if self.routers else None

    def read_publisher(self, item: Item) -> Publisher | None:
        read = self.read_client(item, ("rate", "size", "count", "duration", "within"))
        if read is None:
            return None
        entries, values = read
        rate = _number(entries.get("rate"), 100.0, 0.1, 100_000.0)
        size = _quantity(entries.get("size"), "size", 100, 40, 64 << 20)
        count = int(_quantity(entries["count"], "count", 1, 1, 1 << 40)) if "count" in entries else None
        duration_s = _quantity(entries["duration"], "duration", 1, 0.1, _LONG_S) if "duration" in entries else None
        if "count" in entries and "duration" in entries:
            item.problem("how much it publishes is said twice", "give one, or none: until the faults are over")
        within_s = _quantity(entries["within"], "duration", 1, 0.01, _LONG_S) if "within" in entries else None
        return Publisher(**values, rate=rate, size=int(size), count=count, duration_s=duration_s, within_s=within_s)

    def read_subscriber(self, item: Item) -> Subscriber | None:
        read = self.read_client(item, ("pause", "credit"))
        if read is None:
            return None
        entries, values = read
        pause_s = _quantity(entries.get("pause"), "duration", 0.0, 0, 60)
        credit = _quantity(entries.get("credit"), "count", 500, 1, 1 << 20)
        return Subscriber(**values, pause_s=pause_s, credit=int(credit))

    def read_fault(self, item: Item) -> Fault | None:
        entries = item.entries("a mapping such as {at: 2s, fault: kill, on: router a}")
        if entries is None:
            return None
        missing = [key for key in ("fault", "on", "at") if key not in entries]
        for key in missing:
            item.problem(f"{key} is missing", f"add {key}: ...")
        name = entries["fault"].choice(tuple(KINDS)) if "fault" in entries else None
        if name is None:
            return None
        kind = KINDS[name]
        known = (*_ALWAYS, *kind.keys, *(_OF_CONNECTIONS if kind.on_connections else ()))
        if name == "down":  # nobody listens: all connections, both ways
            known = (*_ALWAYS, "for")
        item.fields(known, "a fault", required=kind.required)
        values = {
            key: _quantity(entries[key], form, 0, _LEAST.get(key, 0), _LONG_S if form == "duration" else 1e12)
            for key, form in kind.keys.items()
            if key in entries and key != "for"
        }
        on = self.read_targets(entries["on"], name, kind) if "on" in entries else ()
        every_s, for_s = (
            _quantity(entries[key], "duration", 1, _LEAST_S, _LONG_S) if key in entries else None
            for key in ("every", "for")
        )
        times = int(_quantity(entries.get("times"), "count", 1, 1, 100_000))
        if ("times" in entries) != ("every" in entries):
            item.problem("every and times go together", "give both, or none")
        wait = "wait" in entries and entries["wait"].choice(("ready", "no")) == "ready"
        stream = (
            entries["stream"].choice(("upstream", "downstream", "both")) if "stream" in entries else None
        ) or "both"
        if for_s and every_s and times > 1 and for_s >= every_s and (kind.on_connections or name == "stop"):
            entries["for"].problem(
                f"for {format_duration(for_s)} is not over when it comes again after {format_duration(every_s)}",
                "make every longer than for",
            )
        return Fault(
            name,
            on,
            _quantity(entries.get("at"), "duration", 0, 0, _LONG_S),
            for_s,
            every_s,
            times,
            wait,
            stream,
            _number(entries.get("toxicity"), 1.0, 0.0, 1.0),
            values,
        )

    def check_interfaces(self, entry: Entry, faults: list[Fault]) -> None:
        """Trunks go over interfaces, or through proxies; not both in one run."""
        if any(fault.kind == "cut" for fault in faults):
            for fault in faults:
                if KINDS[fault.kind].on_connections and any(target.what != "link" for target in fault.on):
                    what = f"{fault.kind} on {fault.on[0]} in a schedule that cuts interfaces"
                    entry.problem(what, "such faults go on links of clients there, or leave cut out")

    def read_targets(self, entry: Entry, name: str, kind: Kind) -> tuple[Target, ...]:
        items = [entry] if entry.is_scalar else entry.items("a target such as router a, or a list of them") or []
        if not items and not entry.is_null:
            entry.problem("no target", "write for example router a")
        targets = [target for item in items if (target := item.scalar(self.read_target, "a target such as router a"))]
        for item, target in zip(items, targets, strict=False):
            if target.what not in kind.on:
                remedy = f"{name} is on a {' or '.join(kind.on)}"
                item.problem(f"{name} on a {target.what} means nothing", remedy)
            elif target.what == "client" and target.pick == "named" and name != "stop":
                client = self.clients.get(target.names[0], "onceway")
                if client not in WITH_JOURNAL:
                    item.problem(
                        f"{target.names[0]} is a {client} client, which has no journal: its death is not survivable",
                        "choose a client of onceway or rhea-exactly-once, or stop it",
                    )
        return tuple(targets)

    def read_target(self, text: str) -> Target:
        first, _, rest = text.strip().partition(" ")
        rest = rest.strip()
        if first in ("any", "every", "next"):
            if rest not in _WHATS:
                raise ValueError(f'"{text}" is no target', f"write {first} router, trunk, link or client")
            return Target(cast(What, rest), cast(Pick, first))
        if first not in _WHATS or not rest:
            raise ValueError(f'"{text}" is no target', "write for example router a, trunk a - b, link p1, client p1")
        names = tuple(name.strip() for name in rest.split(" - "))
        what = cast(What, first)
        if (len(names) > 1 and what in ("router", "client")) or (what == "trunk" and len(names) != 2) or len(names) > 2:
            raise ValueError(f'"{text}" is no {what}', "write router a, trunk a - b, link p1 - a, client p1")
        routers = names if what in ("router", "trunk") else names[1:]
        for name in routers:
            if name not in self.routers:
                raise ValueError(f'no router "{name}"', suggest(name, self.routers, "routers are"))
        if what in ("link", "client") and names[0] not in self.names:
            raise ValueError(f'no client "{names[0]}"', suggest(names[0], tuple(self.names), "clients are"))
        if what == "trunk" and not any({a, b} == set(names) for a, b, _ in self.links):
            have = ", ".join(f"{a} - {b}" for a, b, _ in self.links)
            raise ValueError(f"no link between {names[0]} and {names[1]}", f"links are {have}")
        return Target(what, "named", names)


def _address(text: str) -> str:
    if not text:
        raise ValueError("an empty address", "write a name, or leave it out for orders")
    return text


def _quantity(item: Item | None, form: str, default: float, least: float, most: float) -> float:
    if item is None:
        return default
    readers: dict[str, Callable[[str], float]] = {"duration": read_duration, "size": read_size, "count": read_count}
    expected = {"duration": "a duration such as 2s", "size": "a size such as 100B", "count": "a whole number"}[form]
    value = item.scalar(readers[form], expected)
    if value is not None and not least <= value <= most:
        unit = "B" if form == "size" else ""
        shown = [format_duration(limit) if form == "duration" else f"{limit:.0f}{unit}" for limit in (least, most)]
        item.problem(f"{item.text} is out of range", f"write a value from {shown[0]} to {shown[1]}")
    return default if value is None else value


def _number(item: Item | None, default: float, least: float, most: float) -> float:
    if item is None:
        return default

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f'"{text}" is no number', f"write a number from {least:g} to {most:g}") from None
        if not least <= value <= most:
            raise ValueError(f"{text} is out of range", f"write a number from {least:g} to {most:g}")
        return value

    value = item.scalar(read, "a number")
    return default if value is None else value


def _plain(item: Item) -> Any:
    """As it stands, every scalar as text: how topology files are read too."""

    def plain(node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return {key.value: plain(value) for key, value in node.value}
        if isinstance(node, yaml.SequenceNode):
            return [plain(value) for value in node.value]
        return node.value

    return plain(item.node)
