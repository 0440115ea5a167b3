"""Whom a fault hits, and until when, with processes that only note what is done to them."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from chaos.live.connections import Connections
from chaos.live.faults import Faults
from chaos.live.schedule import Fault, Schedule, Target
from chaos.live.schedule_files import loads

HEAD = """\
shows: something
topology: {routers: [a, b], links: [a - b]}
workload:
  publishers:
    - {name: p1, at: a}
    - {name: p2, at: a, client: proton}
    - {name: p3, at: a}
  subscribers: [{name: s1, at: b}]
faults:
"""


class Process(SimpleNamespace):
    """A client."""

    def __init__(self, what: Any) -> None:
        super().__init__(what=what, running=True, done=False, abandoned=False, kills=0)

    def kill(self) -> None:
        self.kills += 1


def struck(schedule: Schedule, over: tuple[str, ...] = (), seed: int = 1) -> list[str]:
    """What is hit, in turn, where these clients are done."""
    clients: Any = {one.name: Process(one) for one in schedule.clients}
    for name in over:
        clients[name].done = True
    hit: list[str] = []

    def note(kind: str, target: str, now: float, until: float | None) -> None:
        hit.append(target)

    network: Any = SimpleNamespace(all_ready=True)
    faults = Faults(schedule, network, clients, None, None, random.Random(seed), note)
    faults.begin(0.0)
    now = 0.0
    while faults.next_at is not None:
        now = max(now, faults.next_at)
        faults.act(now)
    assert [f"client {name}" for name, one in clients.items() for _ in range(one.kills)] == sorted(hit)
    return hit


def read(fault: str) -> Schedule:
    return loads(f"{HEAD}  - {fault}\n", Path("s.yaml"))


def test_next_takes_turns_among_those_that_can_be_hit() -> None:
    schedule = read("{at: 1s, fault: kill, on: next client, every: 1s, times: 4}")
    assert struck(schedule) == ["client p1", "client p3", "client s1", "client p1"]
    assert struck(schedule, over=("p1", "p3")) == ["client s1"] * 4
    assert struck(schedule, over=("p1", "p3", "s1")) == []


def test_any_is_one_of_those_that_can_be_hit() -> None:
    schedule = read("{at: 1s, fault: kill, on: any client, every: 1s, times: 40}")
    assert {*struck(schedule)} == {"client p1", "client p3", "client s1"}
    assert len(struck(schedule)) == 40


def test_connections_that_two_faults_hold_down_come_back_with_the_later_end() -> None:
    fault = Fault("down", (Target("trunk", "named", ("a", "b")),), 0.0, 1.0)
    with socket.create_server(("127.0.0.1", 0)) as there:
        connections = Connections(seed=1)
        try:
            host, port = connections.proxy("p", f"127.0.0.1:{there.getsockname()[1]}").rsplit(":", 1)

            def listens() -> bool:
                with socket.socket() as client:
                    client.settimeout(60)
                    return client.connect_ex((host, int(port))) == 0

            seen = [listens()]
            for do, mark in (
                (connections.strike, "one"),
                (connections.strike, "two"),
                (connections.lift, "one"),
                (connections.lift, "two"),
            ):
                do(fault, mark, ["p"])
                seen.append(listens())
        finally:
            connections.close()
    assert seen == [True, False, False, False, True]


class Network:
    """Routers that only note what is done to them; one that was told to end is still there until it is `gone`."""

    def __init__(self) -> None:
        self.router = SimpleNamespace(name="a", ending=False, process=self)
        self.running = [self.router]
        self.all_ready = True
        self.done: list[str] = []

    def __getitem__(self, name: str) -> Any:
        return self.router

    def terminate(self, name: str) -> None:
        self.router.ending = True
        self.done.append("terminate")

    def kill(self, name: str) -> None:
        self.done.append("kill")
        self.gone()

    def gone(self) -> None:
        self.router.ending, self.router.process = False, None

    def start(self, name: str, *, fresh: bool) -> None:
        self.done.append("start")
        self.router.process = self


def restarted(*, ends_by_itself: bool) -> list[str]:
    network: Any = Network()
    schedule = read("{at: 1s, fault: restart, on: router a, kill: 200ms}")
    faults = Faults(schedule, network, {}, None, None, random.Random(1), lambda *_: None)
    faults.begin(0.0)
    for now in (1.0, 1.1, 1.2, 1.3):
        if now == 1.1 and ends_by_itself:
            network.gone()
        faults.act(now)
    done: list[str] = network.done
    return done


def test_a_router_that_takes_too_long_to_end_is_killed_where_the_schedule_says_so() -> None:
    assert restarted(ends_by_itself=False) == ["terminate", "kill", "start"]


def test_one_that_has_ended_by_then_is_not() -> None:
    assert restarted(ends_by_itself=True) == ["terminate", "start"]
