"""`onceway up` and `onceway router`: real routers, supervised and alone."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

from onceway import topology
from tests.cli.conftest import BOUND_S, COMMAND, onceway
from tests.live import LiveNetwork, wait_until
from tests.running import Program


def status(path: Path, name: str) -> dict[str, Any] | None:
    """A router's document, or None while nobody answers."""
    host, port = topology.load(path).routers[name].admin
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/status", timeout=BOUND_S) as answer:
            document: dict[str, Any] = json.load(answer)
            return document
    except OSError:
        return None


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # before it was opened, or read
        return True
    return state == "Z"


def test_up_announces_restarts_and_stops_a_network(pair_file: Path) -> None:
    with Program([*COMMAND, "up", str(pair_file)]) as up:
        ready = "network live ready: 2 routers, 1 link"
        assert up.line() == ready
        first = status(pair_file, "b")
        assert first is not None
        done = onceway("status", pair_file)
        assert done.returncode == 0
        assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [["a", "ready"], ["b", "ready"]]

        os.kill(first["pid"], signal.SIGKILL)
        assert up.line() == ready
        while (second := status(pair_file, "b")) is None or second["pid"] == first["pid"]:
            assert up.line() == ready  # the one before was of two that had lost each other for a moment
        assert second["incarnation"] != first["incarnation"]

        pids = [status(pair_file, name)["pid"] for name in "ab"]  # type: ignore[index]
        up.process.terminate()
        assert set(up.rest()) <= {ready}
        assert all(gone(pid) for pid in pids)
        assert "[b] was killed by SIGKILL; starting again in 100ms" in up.errors
        assert "network live stopping: a, b" in up.errors


def test_routers_die_with_a_killed_up(pair_file: Path) -> None:
    with Program([*COMMAND, "up", str(pair_file)]) as up:
        up.line()
        pids = [status(pair_file, name)["pid"] for name in "ab"]  # type: ignore[index]
        up.process.kill()
        up.process.wait(10)
        wait_until(lambda: all(gone(pid) for pid in pids), "routers gone with their supervisor")


def test_no_restart_leaves_a_dead_router_dead(pair_file: Path) -> None:
    with Program([*COMMAND, "up", str(pair_file), "--no-restart"]) as up:
        up.line()
        victim = status(pair_file, "a")
        assert victim is not None
        os.kill(victim["pid"], signal.SIGKILL)
        wait_until(lambda: "it stays down (--no-restart)" in up.errors, "the supervisor's word")
        assert status(pair_file, "a") is None
        done = onceway("status", pair_file)
        assert done.returncode == 1
        assert "does not answer" in done.stdout
        assert "[b] the link to a is down" in done.stdout
        survivor = status(pair_file, "b")
        assert survivor is not None
        os.kill(survivor["pid"], signal.SIGKILL)
        assert up.process.wait(BOUND_S) == 1


def test_only_the_chosen_routers_are_run_here(pair_file: Path) -> None:
    with (
        Program([*COMMAND, "up", str(pair_file), "--only", "a"]) as here,
        Program([*COMMAND, "up", str(pair_file), "--only", "b"]) as there,
    ):
        assert here.line() == "network live ready: 1 router, 0 links"
        assert there.line() == "network live ready: 1 router, 0 links"

        def joined() -> bool:
            document = status(pair_file, "a")
            return document is not None and document["neighbours"]["b"]["up"]

        wait_until(joined, "a and b joined")


def test_bad_names_and_taken_ports_are_bad_input(pair_file: Path) -> None:
    done = onceway("up", pair_file, "--only", "a,c")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f'{pair_file}: routers: no router "c"; routers are a, b\n'

    place = topology.load(pair_file).routers["b"].amqp
    with socket.create_server(place):
        for command in (["up", pair_file], ["router", pair_file, "b"]):
            done = onceway(*command)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == (
                f"{pair_file}: routers.b.amqp: port 127.0.0.1:{place[1]} is in use; "
                "stop the process that listens there, or choose another port\n"
            )


def test_a_router_alone_recovers_and_says_for_how_long(tmp_path: Path) -> None:
    # recovery = 4 s + 2 * 1 s (PROTOCOL 4.4)
    settings = {"discovery": "100ms", "subscription_timeout": "4s"}
    path = LiveNetwork(tmp_path, ["a"], settings=settings).topology_path
    with Program([*COMMAND, "router", str(path), "a"]) as router:
        wait_until(lambda: "[a] ready" in router.errors, "a ready")
        document = status(path, "a")
        assert document is not None
        assert document["state"] == "ready"
        router.process.terminate()
        assert router.rest() == []
        (left,) = re.findall(r"\[a\] recovering, (\S+) s left\n", router.errors)
        assert 0 < float(left) <= 6.0
        assert "[a] ready\n[a] stopping\n[a] stopped\n" in router.errors


def test_a_router_that_recovers_stops_when_told_to(tmp_path: Path) -> None:
    path = LiveNetwork(tmp_path, ["a"], settings={"discovery": "100ms"}).topology_path
    with Program([*COMMAND, "router", str(path), "a"]) as router:
        wait_until(lambda: "[a] recovering, " in router.errors, "a recovers")
        document = status(path, "a")
        assert document is not None
        assert document["state"] == "recovering"
        assert 0 < document["recovering_s"] <= 70.0
        router.process.terminate()
        assert router.rest() == []
        assert "[a] stopping\n[a] stopped\n" in router.errors
        assert "[a] ready" not in router.errors


def test_a_fresh_router_is_ready_at_once(tmp_path: Path) -> None:
    path = LiveNetwork(tmp_path, ["a"]).topology_path
    with Program([*COMMAND, "router", str(path), "a", "--fresh"]) as router:
        wait_until(lambda: "[a] ready" in router.errors, "a ready")
        assert "recovering" not in router.errors
        router.process.send_signal(signal.SIGINT)
        assert router.rest() == []


def test_a_router_that_the_file_does_not_have_is_bad_input(pair_file: Path) -> None:
    done = onceway("router", pair_file, "z")
    assert done.returncode == 2
    assert done.stderr == f'{pair_file}: routers: no router "z"; routers are a, b\n'
