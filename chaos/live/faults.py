"""Faults over time: what is due, whom it hits, and when it is over again.

Knows processes and connections by their names; what state they are in it asks them.  `any` and `next` are decided when
a fault strikes, among those that can be hit then, from the run's seed.
"""

from __future__ import annotations

import heapq
import itertools
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from chaos.live.connections import RESET_FOR_S, Connections
from chaos.live.netns import Namespaces
from chaos.live.processes import Client, Network
from chaos.live.schedule import KINDS, WITH_JOURNAL, Fault, Schedule, Target

LOOK_AGAIN_S = 0.05
WAIT_AT_MOST_S = 60.0
GARBAGE_CONNECTIONS = 10

Struck = Callable[[str, str, float, float | None], None]
"""kind, target, when, until when."""


@dataclass(order=True, slots=True)
class _Due:
    at: float
    order: int
    act: Callable[[float], None] = field(compare=False)


def to_the_end(schedule: Schedule) -> tuple[Fault, ...]:
    """The faults, each with its end: where none is given, that of the last one."""
    end = max([schedule.length_s, *(fault.last_s for fault in schedule.faults)])
    faults = []
    for fault in schedule.faults:
        if KINDS[fault.kind].on_connections and fault.for_s is None:
            fault = replace(fault, for_s=RESET_FOR_S if fault.kind == "reset" else max(0.1, end - fault.at_s))
        faults.append(fault)
    return tuple(faults)


def proxied(schedule: Schedule) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(trunks, links of clients to routers) that some fault may hit: these go through proxies, no others."""
    trunks: dict[tuple[str, str], None] = {}
    links: dict[tuple[str, str], None] = {}
    for fault in schedule.faults:
        if KINDS[fault.kind].on_connections:
            for target in fault.on:
                trunks |= dict.fromkeys(_trunks(schedule, target))
                links |= dict.fromkeys(_links(schedule, target))
    return list(trunks), list(links)


def _trunks(schedule: Schedule, target: Target) -> list[tuple[str, str]]:
    if target.what not in ("trunk", "router"):
        return []
    return [(a, b) for a, b, _ in schedule.links if target.pick != "named" or set(target.names) <= {a, b}]


def _links(schedule: Schedule, target: Target) -> list[tuple[str, str]]:
    if target.what != "link":
        return []
    pairs = [(client.name, router) for client in schedule.clients for router in schedule.routers]
    return [pair for pair in pairs if target.pick != "named" or pair[: len(target.names)] == target.names]


def trunk_name(a: str, b: str) -> str:
    return f"trunk {a} - {b}"


def link_name(client: str, router: str) -> str:
    return f"link {client} - {router}"


class Faults:
    """`begin`, then `act` whenever something may be due, until `over`."""

    def __init__(
        self,
        schedule: Schedule,
        network: Network,
        clients: Mapping[str, Client],
        connections: Connections | None,
        namespaces: Namespaces | None,
        rng: random.Random,
        struck: Struck,
    ) -> None:
        self._schedule = schedule
        self._network = network
        self._clients = clients
        self._connections = connections
        self._namespaces = namespaces
        self._rng = rng
        self._struck = struck
        self._due: list[_Due] = []
        self._order = itertools.count()
        self._turns: dict[str, int] = {}  # of `next`
        self._change = ""  # of the topology file, the latest
        self._coming_back: dict[str, float] = {}  # routers that were told to end -> how long they stay away

    def begin(self, now: float) -> None:
        for fault in to_the_end(self._schedule):
            self._at(now + fault.at_s, lambda at, fault=fault: self._strike(fault, 1, at, at + WAIT_AT_MOST_S))  # type: ignore[misc]

    @property
    def over(self) -> bool:
        return not self._due and not self._coming_back

    @property
    def next_at(self) -> float | None:
        return self._due[0].at if self._due else None

    def act(self, now: float) -> None:
        for name, away_s in list(self._coming_back.items()):
            if self._network[name].process is None:
                del self._coming_back[name]
                self._at(now + away_s, lambda at, name=name: self._bring_back(name))  # type: ignore[misc]
        while self._due and self._due[0].at <= now:
            due = heapq.heappop(self._due)
            due.act(now)

    def _at(self, at: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._due, _Due(at, next(self._order), act))

    def _strike(self, fault: Fault, time: int, now: float, wait_until: float) -> None:
        if fault.wait and (self._coming_back or not self._network.all_ready) and now < wait_until:
            self._at(now + LOOK_AGAIN_S, lambda at: self._strike(fault, time, at, wait_until))
            return
        if fault.kind == "reload":
            self._change = self._network.reloading.change()
        for target in fault.on:
            self._hit(fault, target, now)
        if time < fault.times and fault.every_s is not None:
            again = now + fault.every_s
            self._at(again, lambda at: self._strike(fault, time + 1, at, again + WAIT_AT_MOST_S))

    def _hit(self, fault: Fault, target: Target, now: float) -> None:
        if KINDS[fault.kind].on_connections:
            for shown, names in self._chosen_connections(target):
                self._hit_connections(fault, shown, names, now)
        elif fault.kind == "cut":
            for shown, _ in self._chosen_connections(target):
                self._cut(fault, shown, now)
        elif target.what == "router":
            for name in self._chosen(target, [router.name for router in self._network.running]):
                self._hit_router(fault, name, now)
        else:
            for name in self._chosen(target, [name for name in self._clients if self._can_be_hit(fault, name)]):
                self._hit_client(fault, name, now)

    def _chosen(self, target: Target, there: list[str]) -> list[str]:
        """Of what is there to be hit."""
        if target.pick == "named":
            return [name for name in target.names if name in there]
        if target.pick == "every" or not there:
            return there
        if target.pick == "any":
            return [self._rng.choice(there)]
        everybody = list(self._schedule.routers if target.what == "router" else self._clients)
        turn = self._turns.get(target.what, 0)
        while everybody[turn % len(everybody)] not in there:
            turn += 1
        self._turns[target.what] = turn + 1
        return [everybody[turn % len(everybody)]]

    def _chosen_connections(self, target: Target) -> list[tuple[str, list[str]]]:
        """(what it is called, the proxies that it is)."""
        if target.what == "link":
            pairs = _links(self._schedule, target)
            found = [(f"link {' - '.join(target.names)}", [link_name(*pair) for pair in pairs])]
            if target.pick != "named":
                found = [(link_name(*pair), [link_name(*pair)]) for pair in pairs]
        elif target.what == "router" and target.pick != "named":
            names = self._chosen(target, list(self._schedule.routers))
            return [one for name in names for one in self._chosen_connections(Target("router", "named", (name,)))]
        else:
            trunks = [trunk_name(*pair) for pair in _trunks(self._schedule, target)]
            found = [(f"router {target.names[0]}", trunks)] if target.what == "router" else [(t, [t]) for t in trunks]
        if target.pick in ("named", "every") or not found:
            return found
        if target.pick == "any":
            return [self._rng.choice(found)]
        turn = self._turns.get(target.what, 0)
        self._turns[target.what] = turn + 1
        return [found[turn % len(found)]]

    def _hit_connections(self, fault: Fault, shown: str, names: list[str], now: float) -> None:
        connections = self._connections
        assert connections is not None
        assert fault.for_s is not None
        mark = f"{fault.kind}-{next(self._order)}"
        connections.strike(fault, mark, names)
        self._struck(fault.kind, shown, now, now + fault.for_s)
        self._at(now + fault.for_s, lambda at: connections.lift(fault, mark, names))

    def _cut(self, fault: Fault, shown: str, now: float) -> None:
        namespaces, names = self._namespaces, shown.partition(" ")[2].split(" - ")
        assert namespaces is not None
        assert fault.for_s is not None
        self._struck("cut", shown, now, now + fault.for_s)
        namespaces.cut(*names)
        self._at(now + fault.for_s, lambda at: namespaces.heal(*names))

    def _hit_router(self, fault: Fault, name: str, now: float) -> None:
        network, shown = self._network, f"router {name}"
        back_s = fault.values.get("back")
        if fault.kind == "kill":
            self._struck("kill", shown, now, None if back_s is None else now + back_s)
            network.kill(name)
            if back_s is not None:
                self._at(now + back_s, lambda at: self._bring_back(name))
        elif fault.kind == "restart":
            self._struck("restart", shown, now, now + (back_s or 0.0))
            network.terminate(name)
            self._coming_back[name] = back_s or 0.0
            if (kill_s := fault.values.get("kill")) is not None:
                self._at(now + kill_s, lambda at: self._kill_ending(name))
        elif fault.kind == "stop":
            assert fault.for_s is not None
            self._struck("stop", shown, now, now + fault.for_s)
            network[name].stop()
            self._at(now + fault.for_s, lambda at: network[name].cont())
        elif fault.kind == "reload":
            self._struck("reload", f"{shown}: {self._change}", now, now)
            network.reloading.tell(name)
        else:
            count = int(fault.values.get("connections", GARBAGE_CONNECTIONS))
            self._struck("garbage", shown, now, now)
            router = network[name]
            for port in (router.amqp, router.interrouter):
                send_garbage((router.host, port), count, self._rng)

    def _bring_back(self, name: str) -> None:
        if self._network[name].process is None:
            self._network.start(name, fresh=False)

    def _kill_ending(self, name: str) -> None:
        if self._network[name].ending:
            self._network.kill(name)

    def _can_be_hit(self, fault: Fault, name: str) -> bool:
        """Only clients with a journal survive their death."""
        client = self._clients[name]
        return client.running and not client.done and (client.what.client in WITH_JOURNAL or fault.kind == "stop")

    def _hit_client(self, fault: Fault, name: str, now: float) -> None:
        client, shown = self._clients[name], f"client {name}"
        back_s = fault.values.get("back")
        if fault.kind == "stop":
            assert fault.for_s is not None
            self._struck("stop", shown, now, now + fault.for_s)
            client.stop()
            self._at(now + fault.for_s, lambda at: client.cont())
            return
        self._struck("kill", shown, now, None if back_s is None else now + back_s)
        client.kill()
        if fault.kind == "restart" or back_s is not None:
            self._at(now + (back_s or 0.0), lambda at: client.start())
        else:
            client.abandoned = True


def send_garbage(address: tuple[str, int], connections: int, rng: random.Random) -> None:
    """Connections that begin well, badly or not at all, and end in the middle of something."""
    beginnings = (b"", b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", b"GET / HTTP/1.1\r\n")
    for _ in range(connections):
        try:
            with socket.create_connection(address, timeout=1.0) as sock:
                sock.sendall(rng.choice(beginnings) + _frame(rng))
        except OSError:  # refused while the router is away, or reset before all is written: both as they may be
            pass


def _frame(rng: random.Random) -> bytes:
    data = rng.randbytes(rng.randrange(1, 600))
    if rng.random() < 0.5:
        return data
    claimed = rng.choice((len(data) + 8, 8, 7, 0, 0xFFFFFFFF, len(data) + 1000))
    return claimed.to_bytes(4, "big") + bytes((2, 0, 0, 0)) + data


def describe(faults: Iterable[Fault]) -> str:
    return ", ".join(f"{fault.kind} {' and '.join(map(str, fault.on))}" for fault in faults) or "no faults"
