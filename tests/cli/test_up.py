"""`onceway up` and `onceway router`: real routers, supervised and alone."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from onceway import topology
from tests.cli.conftest import BOUND_S, COMMAND, called, onceway
from tests.live import LiveNetwork, wait_until
from tests.running import Program


def status(path: Path, name: str) -> dict[str, Any] | None:
    """A router's document, or None while nobody answers."""
    host, port = topology.load(path).routers[name]["admin"]
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
        done = called("status", pair_file, "--timeout", "60")
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


def test_a_network_goes_on_when_nobody_reads_its_lines_any_more(pair_file: Path) -> None:
    """As `onceway up FILE | head`, on stdout and on stderr."""
    up = subprocess.Popen([*COMMAND, "up", str(pair_file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        up.stderr.close()
        assert up.stdout.readline() == "network live ready: 2 routers, 1 link\n"
        up.stdout.close()
        first = status(pair_file, "b")
        os.kill(first["pid"], signal.SIGKILL)
        wait_until(lambda: (status(pair_file, "b") or first)["pid"] != first["pid"], "b to be started again")
        assert called("status", pair_file, "--timeout", "60").returncode in (0, 1)
        up.terminate()
        assert up.wait(BOUND_S) == 0
    finally:
        up.kill()
        up.wait()


def test_routers_die_with_a_killed_up(pair_file: Path) -> None:
    with Program([*COMMAND, "up", str(pair_file)]) as up:
        up.line()
        pids = [status(pair_file, name)["pid"] for name in "ab"]  # type: ignore[index]
        up.process.kill()
        up.process.wait(10)
        wait_until(lambda: all(gone(pid) for pid in pids), "routers gone with their supervisor")


def test_routers_whose_common_parent_is_killed_are_all_started_again(pair_file: Path) -> None:
    with Program([*COMMAND, "up", str(pair_file)]) as up:
        up.line()
        first = {name: (status(pair_file, name) or {})["pid"] for name in "ab"}
        shown = Path(f"/proc/{first['b']}/cmdline").read_bytes().split(b"\0")
        assert shown[shown.index(b"router") + 2] == b"b"
        (parent,) = {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] for pid in first.values()}
        os.kill(int(parent), signal.SIGTERM)  # which is the supervisor's to do
        os.kill(int(parent), signal.SIGKILL)
        wait_until(lambda: all(gone(pid) for pid in first.values()), "routers gone with their parent")
        wait_until(lambda: all(status(pair_file, name) for name in "ab"), "both started again")
        assert all(f"[{name}] was killed by SIGKILL; starting again in 100ms" in up.errors for name in "ab")


def test_no_restart_leaves_a_dead_router_dead(pair_file: Path) -> None:
    with Program([*COMMAND, "up", str(pair_file), "--no-restart"]) as up:
        up.line()
        victim = status(pair_file, "a")
        os.kill(victim["pid"], signal.SIGKILL)
        wait_until(lambda: "it stays down (--no-restart)" in up.errors, "the supervisor's word")
        assert status(pair_file, "a") is None
        done = called("status", pair_file, "--timeout", "60")
        assert done.returncode == 1
        assert "does not answer" in done.stdout
        assert "[b] the link to a is down" in done.stdout
        survivor = status(pair_file, "b")
        os.kill(survivor["pid"], signal.SIGKILL)
        assert up.process.wait(BOUND_S) == 1
        assert "network live: no router is left" in up.errors


def test_a_router_that_stands_still_is_killed_and_started_again(pair_file: Path) -> None:
    with Program([*COMMAND, "up", str(pair_file), "--watchdog", "2"]) as up:
        up.line()
        stuck = status(pair_file, "b")
        os.kill(stuck["pid"], signal.SIGSTOP)
        wait_until(lambda: "event=router_hangs" in up.errors, "the watchdog's line")
        assert re.search(r"error   \[b\] has ended no turn for \S+: killed, to be started again", up.errors)
        wait_until(lambda: "[b] was killed by SIGKILL; starting again in 100ms" in up.errors, "its death")
        wait_until(lambda: (status(pair_file, "b") or stuck)["pid"] != stuck["pid"], "b to be started again")
        assert "[a] has ended no turn" not in up.errors


def test_a_supervisor_that_stood_still_itself_kills_nobody(pair_file: Path) -> None:
    with Program([*COMMAND, "up", str(pair_file), "--watchdog", "2"]) as up:
        up.line()
        supervisor = up.process.pid

        def uptime_s() -> float:
            return (status(pair_file, "a") or {})["uptime_s"]  # type: ignore[no-any-return]

        before = uptime_s()
        os.kill(supervisor, signal.SIGSTOP)
        try:
            wait_until(lambda: uptime_s() > before + 3.0, "longer than the watchdog's time")
        finally:
            os.kill(supervisor, signal.SIGCONT)
        after = uptime_s()
        wait_until(lambda: uptime_s() > after + 2.5, "and once again")
        assert "event=router_hangs" not in up.errors


def test_a_router_whose_beats_end_by_a_fault_of_ours_stops(tmp_path: Path) -> None:
    """Its file would say that it died with the last of them."""
    path = LiveNetwork(tmp_path, ["a"]).topology_path
    program = "from onceway.state.last_life import Heart; Heart.beat = None; from onceway.cli import main; main()"
    command = [COMMAND[0], "-c", program, "router", str(path), "a", "--state-dir", str(tmp_path / "state")]
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=BOUND_S, text=True, check=False)
    assert done.returncode == 1
    assert "event=router_failed" in done.stderr
    assert "TypeError" in done.stderr


def test_a_router_that_reaches_no_neighbour_is_not_ready(tmp_path: Path) -> None:
    for alone in (False, True):
        settings = {"ready_when_isolated": alone, "discovery": "100ms"}
        network = LiveNetwork(tmp_path / str(alone), ["a", "b"], [("a", "b")], settings=settings)
        path = str(network.topology_path)
        environment = {**os.environ, "ONCEWAY_STATE_DIR": str(network.directory / "state")}
        with Program([*COMMAND, "up", path, "--only", "a", "--fresh"], environment) as up:
            if alone:
                assert up.line() == "network live ready: 1 router, 0 links"
                assert network["a"].get("/readyz") == (200, b"ready\n")
                continue
            reason = "isolated: none of its neighbours can be reached (b)"
            wait_until(lambda: f"[a] {reason}" in up.errors, "the supervisor's line")  # noqa: B023
            assert network["a"].get("/readyz") == (503, f"{reason}\n".encode())
            done = called("status", f"127.0.0.1:{network['a'].admin_port}", "--timeout", "60")
            assert done.returncode == 1
            assert reason in done.stdout
            with Program([*COMMAND, "up", path, "--only", "b"], environment) as there:
                assert up.line() == "network live ready: 1 router, 0 links"
                assert there.line() == "network live ready: 1 router, 0 links"


def test_only_the_chosen_routers_are_run_here(pair_file: Path) -> None:
    with Program([*COMMAND, "up", str(pair_file), "--only", "a", "--fresh"]) as here:
        wait_until(lambda: status(pair_file, "a"), "a")
        with Program([*COMMAND, "up", str(pair_file), "--only", "b"]) as there:
            assert here.line() == "network live ready: 1 router, 0 links"
            assert there.line() == "network live ready: 1 router, 0 links"
            assert "b ask the routers that are up; if none is, they wait for 70s." not in there.errors  # a has beaten

            def joined() -> bool:
                document = status(pair_file, "a")
                return document is not None and document["neighbours"]["b"]["up"]

            wait_until(joined, "a and b joined")
            again = onceway("up", pair_file, "--only", "b")
            assert again.returncode == 2
            pid = there.process.pid
            assert f"network live: process {pid} on this host runs router b already; stop it, or give" in again.stderr


def test_a_start_after_a_death_waits_for_the_rest_of_the_time_only(tmp_path: Path) -> None:
    settings = {"discovery": "100ms", "subscription_timeout": "1s"}
    path = LiveNetwork(tmp_path, ["a"], settings=settings).topology_path
    with Program([*COMMAND, "up", str(path)]) as first:
        assert first.line() == "network live ready: 1 router, 0 links"
        assert "network live starts fresh: it has not run here before" in first.errors
        assert "recovering" not in first.errors
        first.process.kill()
    with Program([*COMMAND, "up", str(path)]) as second:
        assert second.line() == "network live ready: 1 router, 0 links"
        assert "network live was last seen alive " in second.errors
        assert "[a] recovering, " in second.errors
        second.process.terminate()
        assert second.rest() == []
    with Program([*COMMAND, "up", str(path)]) as third:
        assert third.line() == "network live ready: 1 router, 0 links"
        assert "network live was stopped " in third.errors
        third.process.terminate()
        third.rest()
    with Program([*COMMAND, "up", str(path), "--fresh"]) as fresh:
        assert fresh.line() == "network live ready: 1 router, 0 links"
        assert "recovering" not in fresh.errors


def test_a_damaged_memory_and_a_state_directory_that_cannot_be_made_recover(tmp_path: Path) -> None:
    settings = {"discovery": "100ms", "subscription_timeout": "1s"}
    path = LiveNetwork(tmp_path, ["a"], settings=settings).topology_path
    state = tmp_path / "given"
    (state / "live").mkdir(parents=True)
    (state / "live" / "a.alive").write_text("nonsense")
    with Program([*COMMAND, "up", str(path), "--state-dir", str(state)]) as up:
        assert up.line() == "network live ready: 1 router, 0 links"
        assert (
            f"network live recovers; if no other router is up, for 1.5s: {state}/live/a.alive: the file is" in up.errors
        )
        assert "[a] recovering, " in up.errors
    (tmp_path / "file").touch()
    with Program([*COMMAND, "up", str(path)], {**os.environ, "ONCEWAY_STATE_DIR": str(tmp_path / "file")}) as up:
        assert up.line() == "network live ready: 1 router, 0 links"
        assert f"network live recovers; if no other router is up, for 1.5s: {tmp_path}/file/live: Not a" in up.errors
        assert f"cannot write {tmp_path}/file/live: Not a directory; the next start will wait" in up.errors
        up.process.terminate()
        up.rest()


def test_a_fresh_start_beside_routers_that_are_up_is_refused(pair_file: Path) -> None:
    with Program([*COMMAND, "router", str(pair_file), "a"]) as a:
        wait_until(lambda: status(pair_file, "a"), "a")
        commands = (["up", pair_file, "--only", "b", "--fresh"], ["router", pair_file, "b", "--fresh"])
        for command in commands:
            done = onceway(*command)
            assert (done.returncode, done.stdout) == (2, "")
            assert "network live: router a is up. A fresh start of b would lose messages of" in done.stderr
        os.kill(a.process.pid, signal.SIGSTOP)
        done = onceway(*commands[0])
        assert done.returncode == 2
        assert "network live: router a listens, and does not answer. A fresh start of b" in done.stderr


def test_nothing_is_accepted_behind_the_back_of_a_subscriber_at_routers_that_stand_still(tmp_path: Path) -> None:
    network = LiveNetwork(tmp_path, ["a", "b", "c"], [("a", "b"), ("b", "c"), ("a", "c")])
    path = network.topology_path
    with ExitStack() as stack:
        stays = stack.enter_context(Program([*COMMAND, "up", str(path), "--only", "a,b", "--fresh", "--watchdog", "0"]))
        stays.line()
        dies = stack.enter_context(Program([*COMMAND, "up", str(path), "--only", "c"]))
        dies.line()
        subscribe = ["subscribe", "orders", "--url", network["a"].url, "--name", "s"]
        with Program([*COMMAND, *subscribe]) as subscriber:
            wait_until(lambda: "orders: attached at a, exactly-once" in subscriber.errors, "the subscriber attached")
            pids = [status(path, name)["pid"] for name in "ab"]  # type: ignore[index]
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            try:
                dies.process.kill()
                dies.process.wait(BOUND_S)
                with Program([*COMMAND, "up", str(path), "--only", "c"]) as again:
                    publish = [*COMMAND, "publish", "orders", "--url", network["c"].url, "--count", "3"]
                    wait_until(lambda: "[c] recovering, " in again.errors, "c recovers")
                    with Program(publish) as publisher:
                        wait_until(lambda: "orders: attached at c" in publisher.errors, "the publisher attached")
                        for pid in pids:
                            os.kill(pid, signal.SIGCONT)
                        (told,) = publisher.rest()
                        assert told.startswith("published 3, accepted 3, ")
                    subscriber.lines(3)  # it stays, so that nothing here depends on when c hears that it has left
                    assert "missed" not in subscriber.errors
                    assert again.line() == "network live ready: 1 router, 0 links"
            finally:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("command", [["up"], ["router"]])
def test_a_broken_file_is_refused_after_a_stop_and_not_used_after_a_death(tmp_path: Path, command: list[str]) -> None:
    path = LiveNetwork(tmp_path, ["a"]).topology_path
    text = path.read_text()
    names = ["a"] if command == ["router"] else []
    start = [*COMMAND, *command, str(path), *names]
    with Program([*start, "--fresh"]) as first:
        wait_until(lambda: status(path, "a"), "a")
        state = Path(os.environ["ONCEWAY_STATE_DIR"])
        for what in ("live/topology*.yaml", "live/a.alive"):
            wait_until(lambda: list(state.glob(what)), what)  # noqa: B023
        path.write_text("routers: {")
        first.process.kill()
    kept = tmp_path / "kept.yaml"
    kept.write_text(text)
    with Program(start) as second:
        wait_until(lambda: "event=file_broken" in second.errors, "the line that says so")
        assert f"{path} has errors: the file last checked is used in its place" in second.errors
        wait_until(lambda: (status(kept, "a") or {}).get("broken_file"), "a again")
        shown = called("status", kept, "--timeout", "60").stdout
        assert f"the topology file has errors, and the one last checked is used: {path}:1: " in shown
        second.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "event=reload_refused" in second.errors, "the refusal")
        path.write_text(text)
        second.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "event=reloaded" in second.errors, "the mended file")
        assert "has errors" not in called("status", path, "--timeout", "60").stdout
        second.process.terminate()
        second.rest()
    path.write_text("routers: {")
    done = onceway(*command, path, *names)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{path}:1: ")


def test_bad_names_and_taken_ports_are_bad_input(pair_file: Path) -> None:
    done = called("up", pair_file, "--only", "a,c")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f'{pair_file}: routers: no router "c"; routers are a, b\n'

    place = topology.load(pair_file).routers["b"]["amqp"]
    with socket.create_server(place):
        for command in (["up", pair_file], ["router", pair_file, "b"]):
            done = onceway(*command)
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == (
                f"{pair_file}: routers.b.amqp: port 127.0.0.1:{place[1]} is in use; "
                "stop the process that listens there, or choose another port\n"
            )


def test_a_router_alone_recovers_and_says_for_how_long(tmp_path: Path) -> None:
    # recovery = 4 s + 2 * 1 s (protocol 4.4)
    settings = {"discovery": "100ms", "subscription_timeout": "4s"}
    path = LiveNetwork(tmp_path, ["a"], settings=settings).topology_path
    with Program([*COMMAND, "router", str(path), "a"]) as router:
        wait_until(lambda: "[a] ready" in router.errors, "a ready")
        document = status(path, "a")
        assert document["state"] == "ready"
        router.process.terminate()
        assert router.rest() == []
        (left,) = re.findall(
            r"\[a\] recovering, (\S+) s left: \* \1 s \(subscription_timeout 4s\)  event=recovery_begins ",
            router.errors,
        )
        assert 0 < float(left) <= 6.0
        states = re.findall(r"event=(\w+)", router.errors)
        events = [event for event in states if event not in ("router_starting", "established")]
        stop = ["router_stopping", "drain_begins", "drain_ends", "router_ended"]
        assert events == ["start_decided", "listening", "recovery_begins", "router_ready", *stop]


def test_a_router_that_recovers_stops_when_told_to(tmp_path: Path) -> None:
    path = LiveNetwork(tmp_path, ["a"], settings={"discovery": "100ms"}).topology_path
    with Program([*COMMAND, "router", str(path), "a"]) as router:
        wait_until(lambda: "[a] recovering, " in router.errors, "a recovers")
        document = status(path, "a")
        assert document["state"] == "recovering"
        assert 0 < document["recovering_s"] <= 70.0
        router.process.terminate()
        assert router.rest() == []
        assert re.findall(r"event=(\w+)", router.errors)[-2:] == ["drain_ends", "router_ended"]
        assert "[a] ready" not in router.errors


def test_a_router_that_the_file_does_not_have_is_bad_input(pair_file: Path) -> None:
    done = called("router", pair_file, "z")
    assert done.returncode == 2
    assert done.stderr == f'{pair_file}: routers: no router "z"; routers are a, b\n'
