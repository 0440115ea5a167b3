"""The supervisor, with small processes in place of routers."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from onceway import topology
from onceway.base.logs import Log, Message
from onceway.host.forks import Forks
from onceway.host.parent import own_command
from onceway.host.start import Start
from onceway.host.supervisor import State, Supervisor
from onceway.operate.probe import Probe, Status
from onceway.serve.ports import check_free, try_listen
from onceway.topology import ConfigError, Topology
from tests.live import free_port

FAKE = Path(__file__).with_name("fake_router.py")
BOUND_S = 60.0


class Lines(logging.Handler):
    """A reporter that remembers."""

    def __init__(self) -> None:
        super().__init__()
        logger = logging.Logger("test")
        logger.addHandler(self)
        self.log = Log(logger, {})
        self.lines: list[str] = []
        self.words: list[str] = []
        self.announced: list[str] = []
        self.watchers: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert isinstance(record.msg, Message)
        self.lines.append(str(record.msg))
        self.looked()

    def said(self, name: str, text: str) -> None:
        self.words.append(f"{name}: {text}")

    def ready(self, text: str) -> None:
        self.announced.append(text)

    def looked(self) -> None:
        for condition, future in self.watchers:
            if not future.done() and condition():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watchers.append((condition, future))
        await asyncio.wait_for(future, BOUND_S)


def make_topology(names: Sequence[str], links: Sequence[str], tmp_path: Path) -> Topology:
    lines = ["network: fakes", "routers:"]
    lines += [f"  {n}: {{amqp: {free_port()}, interrouter: {free_port()}, admin: {free_port()}}}" for n in names]
    if links:
        lines += [f"links: [{', '.join(links)}]"]
    path = tmp_path / "fakes.yaml"
    path.write_text("\n".join(lines) + "\n")
    return topology.load(path)


class Fakes:
    """Makes the commands; remembers which were fresh."""

    def __init__(self, loaded: Topology, **behaviours: str) -> None:
        self.loaded = loaded
        self.behaviours = behaviours
        self.asked: list[tuple[str, bool]] = []
        self.state = "ready"

    def __call__(self, name: str, start: Start) -> list[str]:
        self.asked.append((name, start.fresh))
        others = [other for other in self.loaded.routers if other != name]
        status = {
            "state": self.state,
            "recovering_s": 12.0,
            "reason": "recovering, 12 s left",
            "paths": {other: {"next": other, "cost": 1} for other in others},
            "neighbours": {other: {"up": True} for other in self.loaded.neighbours(name)},
        }
        port = str(self.loaded.routers[name]["admin"][1])
        return [sys.executable, str(FAKE), port, name, self.behaviours.get(name, "good"), json.dumps(status)]


@pytest.fixture
def pair(tmp_path: Path) -> Topology:
    return make_topology(["a", "b"], ["a - b"], tmp_path)


def supervisor(loaded: Topology, fakes: Fakes, lines: Lines, **options: object) -> Supervisor:
    return Supervisor(loaded, list(loaded.routers), lines, command=fakes, look_every_s=0.02, **options)  # type: ignore[arg-type]


async def converged(run: Supervisor) -> asyncio.Task[int]:
    """It runs, and all of its routers are ready."""
    running = asyncio.create_task(run.run())
    assert await asyncio.wait_for(run.until_converged(), BOUND_S)
    return running


async def test_a_converged_network_is_announced_and_stops_when_told(pair: Topology) -> None:
    lines, fakes = Lines(), Fakes(pair)
    run = supervisor(pair, fakes, lines)
    running = await converged(run)
    assert lines.announced == ["network fakes ready: 2 routers, 1 link"]
    pids = [child.pid for child in run.children.values()]
    assert all(pids)
    run.stop()
    assert await asyncio.wait_for(running, BOUND_S) == 0
    assert all(not alive(pid) for pid in pids)
    assert fakes.asked == [("a", True), ("b", True)]
    assert "a: [a] listening" in lines.words
    assert lines.lines[-3] == "network fakes stopping: a, b"
    assert sorted(lines.lines[-2:]) == ["[a] stopped", "[b] stopped"]


async def test_a_killed_router_is_started_again_and_recovers(pair: Topology) -> None:
    lines, fakes = Lines(), Fakes(pair)
    run = supervisor(pair, fakes, lines)
    running = await converged(run)
    first = run.signal("b", signal.SIGKILL)
    await lines.until(lambda: run.children["b"].starts == 2 and run.converged)
    assert run.children["b"].pid != first
    assert fakes.asked == [("a", True), ("b", True), ("b", False)]  # a restart is never fresh
    assert "[b] was killed by SIGKILL; starting again in 100ms" in lines.lines
    assert len(lines.announced) == 2
    run.stop()
    assert await asyncio.wait_for(running, BOUND_S) == 0


async def test_a_network_that_is_late_to_answer_has_not_come_to_be_ready_again(
    pair: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(Probe):
        hears, asked = True, 0

        async def summary(self, url: str) -> Status | None:
            Deaf.asked += 1
            return await super().summary(url) if Deaf.hears else None

    monkeypatch.setattr("onceway.host.supervisor.Probe", Deaf)
    lines = Lines()
    run = supervisor(pair, Fakes(pair), lines)
    running = await converged(run)
    for hears in (False, True):
        Deaf.hears = hears
        enough = Deaf.asked + 6
        await lines.until(lambda enough=enough: Deaf.asked >= enough)  # type: ignore[misc]
        assert run.converged
    assert lines.announced == ["network fakes ready: 2 routers, 1 link"]
    run.stop()
    await asyncio.wait_for(running, BOUND_S)


async def test_recover_starts_nobody_fresh(pair: Topology) -> None:
    lines, fakes = Lines(), Fakes(pair)
    run = supervisor(pair, fakes, lines, wanted="recover")
    running = await converged(run)
    run.stop()
    await asyncio.wait_for(running, BOUND_S)
    assert fakes.asked == [("a", False), ("b", False)]


async def test_bad_input_found_at_the_first_start_stops_the_network_with_2(pair: Topology) -> None:
    lines, fakes = Lines(), Fakes(pair, b="bad")
    run = supervisor(pair, fakes, lines)
    assert await asyncio.wait_for(run.run(), BOUND_S) == 2
    assert any(line.startswith("[b] did not start: topology.yaml: routers.b.amqp: port") for line in lines.lines)
    assert run.children["a"].pid is None
    assert not await run.until_converged()


async def test_bad_input_that_stays_ends_a_network_of_which_no_router_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where nobody can read the file of users any more; systemd sees that, and why."""
    monkeypatch.setattr("onceway.host.supervisor.MOST_PAUSE_S", 0.4)
    loaded = make_topology(["a"], [], tmp_path)
    lines, fakes = Lines(), Fakes(loaded)
    run = supervisor(loaded, fakes, lines)
    told: list[str] = []
    monkeypatch.setattr(run.notifier, "status", told.append)
    running = await converged(run)
    fakes.behaviours["a"] = "bad"
    run.signal("a", signal.SIGKILL)
    assert await asyncio.wait_for(running, BOUND_S) == 2
    words = "topology.yaml: routers.a.amqp: port 127.0.0.1:5672 is in use; stop it"
    assert f"[a] ended with exit code 2: {words}; starting again in 200ms" in lines.lines
    assert f"[a] did not start: {words}" in lines.lines
    assert told[-1] == f"a: dead: {words}"


async def test_a_router_that_finds_bad_input_is_tried_again_while_others_run(
    pair: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.host.supervisor.MOST_PAUSE_S", 0.1)
    lines, fakes = Lines(), Fakes(pair)
    run = supervisor(pair, fakes, lines)
    running = await converged(run)
    fakes.behaviours["b"] = "bad"
    run.signal("b", signal.SIGKILL)
    await lines.until(lambda: sum("[b] ended with exit code 2" in line for line in lines.lines) == 3)
    fakes.behaviours["b"] = "good"
    await lines.until(lambda: run.children["b"].state is State.READY)
    assert run.children["b"].refusal == ""
    run.stop()
    assert await asyncio.wait_for(running, BOUND_S) == 0


async def test_a_router_that_keeps_dying_is_waited_for_longer_and_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onceway.host.supervisor.STEADY_S", math.inf)  # however long this machine takes to start one
    loaded = make_topology(["a"], [], tmp_path)
    lines, fakes = Lines(), Fakes(loaded, a="dies")
    run = supervisor(loaded, fakes, lines)
    running = asyncio.create_task(run.run())
    await lines.until(lambda: any("in 400ms" in line for line in lines.lines))
    pauses = [line.rpartition(" ")[2] for line in lines.lines if "starting again" in line]
    assert pauses == ["100ms", "200ms", "400ms"]
    assert "[a] ended with exit code 3; starting again in 100ms" in lines.lines
    run.stop()
    assert await asyncio.wait_for(running, BOUND_S) == 0


REFUSES_ONE = """
import errno, os, sys
from onceway.host.forks import serve
fork, refusals = os.fork, [OSError(errno.EAGAIN, "refused")]
def refuse():
    if refusals:
        raise refusals.pop()
    return fork()
os.fork = refuse
arguments = serve(int(sys.argv[1]))
if arguments is not None:
    os.execv(sys.executable, [sys.executable, *arguments[:-2]])
"""


async def test_a_router_that_the_system_gives_no_process_is_tried_again_and_the_others_run(pair: Topology) -> None:
    lines, fakes = Lines(), Fakes(pair)
    run = supervisor(pair, fakes, lines)
    run._command = lambda name, start: [*own_command(), *fakes(name, start)[1:]]
    run._forks = Forks([sys.executable, "-c", REFUSES_ONE])
    running = await converged(run)
    (line,) = [line for line in lines.lines if "again" in line and "pid" not in line]
    assert line[3:] == " could not be started: Resource temporarily unavailable; starting again in 100ms"
    assert sorted(child.starts for child in run.children.values()) == [1, 2]
    run.stop()
    assert await asyncio.wait_for(running, BOUND_S) == 0


async def test_a_router_that_ignores_sigterm_is_killed_and_that_is_a_failure(tmp_path: Path) -> None:
    loaded = make_topology(["a"], [], tmp_path)
    lines, fakes = Lines(), Fakes(loaded, a="stubborn")
    run = supervisor(loaded, fakes, lines, stop_within_s=0.2)
    running = await converged(run)
    run.stop()
    assert await asyncio.wait_for(running, BOUND_S) == 1
    assert "[a] did not stop within 200ms: killed" in lines.lines


async def test_told_twice_to_stop_it_does_not_wait(tmp_path: Path) -> None:
    loaded = make_topology(["a"], [], tmp_path)
    lines, fakes = Lines(), Fakes(loaded, a="stubborn")
    run = supervisor(loaded, fakes, lines, stop_within_s=600.0)
    running = await converged(run)
    run.stop()
    await lines.until(lambda: run.children["a"].state is State.STOPPING)
    run.stop()
    await asyncio.wait_for(running, BOUND_S)
    assert run.children["a"].pid is None


async def test_a_recovering_router_is_not_ready_and_says_for_how_long(tmp_path: Path) -> None:
    loaded = make_topology(["a"], [], tmp_path)
    lines, fakes = Lines(), Fakes(loaded)
    fakes.state = "recovering"
    run = supervisor(loaded, fakes, lines)
    running = asyncio.create_task(run.run())
    await lines.until(lambda: "[a] recovering, 12 s left" in lines.lines)
    assert not run.converged
    run.stop()
    await asyncio.wait_for(running, BOUND_S)
    assert lines.announced == []


def test_all_taken_ports_are_named_at_once(pair: Topology) -> None:
    import socket

    taken = [pair.routers["a"]["amqp"], pair.routers["b"]["admin"]]
    listeners = [socket.create_server(address) for address in taken]
    try:
        with pytest.raises(ConfigError) as caught:
            check_free(pair, pair.routers)
    finally:
        for listener in listeners:
            listener.close()
    assert [str(problem) for problem in caught.value.problems] == [
        f"{pair.path}: routers.a.amqp: port 127.0.0.1:{taken[0][1]} is in use; "
        "stop the process that listens there, or choose another port",
        f"{pair.path}: routers.b.admin: port 127.0.0.1:{taken[1][1]} is in use; "
        "stop the process that listens there, or choose another port",
    ]
    check_free(pair, pair.routers)


def test_an_address_of_another_machine_cannot_be_listened_on() -> None:
    assert try_listen(("192.0.2.1", 5672)) is not None


def alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_directory_of_the_caller_takes_no_module_s_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mqtt").mkdir()
    (tmp_path / "mqtt" / "__init__.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    done = subprocess.run([*own_command(), "router", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert own_command()[1] == "-P"
    monkeypatch.syspath_prepend(str(tmp_path))  # as with `python -m onceway` there
    assert own_command()[1] == "-m"
