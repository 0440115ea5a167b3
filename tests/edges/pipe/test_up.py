"""`onceway up` runs the stores of the file's pipes beside its routers."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from chaos.live.ports import free_port
from tests.cli.conftest import COMMAND, called
from tests.edges.pipe.network import PipeNetwork
from tests.live import wait_until
from tests.running import Program


def pid_of_store(up: Program, start: int) -> int:
    """Of the store's process, that was started so many times before."""

    def started() -> list[str]:
        return re.findall(r"started, pid (\d+)  .*event=store_started store=[^:\n]+$", up.errors, re.MULTILINE)

    wait_until(lambda: len(started()) > start, f"start {start} of the store\n{up.errors}")
    return int(started()[start])


def test_up_runs_the_stores_restarts_and_stops_them(tmp_path: Path) -> None:
    network = PipeNetwork(tmp_path, ("a",), {"jobs": ("s",)})
    state = tmp_path / "state"
    path = network.topology_path
    retained = '{topics: {"#": telemetry}, retained: {address: kept, stores: [r]}}'
    path.write_text(f"{path.read_text()}mqtt: {retained}\n")
    with Program([*COMMAND, "up", str(path), "--state-dir", str(state)]) as up:
        wait_until(lambda: "event=pipe_primary" in up.errors, f"the store subscribes\n{up.errors}")
        wait_until(lambda: "event=retained_serves" in up.errors, f"that of retained messages, too\n{up.errors}")
        assert called("pipe", "push", "jobs", "one", "--url", network.urls()).returncode == 0
        os.kill(pid_of_store(up, 0), signal.SIGKILL)
        second = pid_of_store(up, 1)
        assert called("pipe", "push", "jobs", "two", "--url", network.urls()).returncode == 0
        assert called("pipe", "pull", "jobs", "--url", network.urls()).stdout == "one\ntwo\n"
        assert "store s" not in called("status", path, "--timeout", "60").stdout
        up.process.terminate()
        up.rest()
        assert "stopped  " in up.errors
        assert not Path(f"/proc/{second}").exists()
    assert (state / "live" / "pipes" / "s" / "store").exists()
    assert (state / "live" / "retained" / "r.db").exists()
    assert f"[store s] does not answer at 127.0.0.1:{network.ports['s']}: pushes to jobs wait" in (
        called("status", path, "--timeout", "60").stdout
    )


def test_a_reload_starts_a_store_that_is_new_and_stops_one_that_has_left(tmp_path: Path) -> None:
    network = PipeNetwork(tmp_path, ("a",), {"jobs": ("s",)})
    path, state = network.topology_path, tmp_path / "state"
    data = tmp_path / "elsewhere"
    with Program([*COMMAND, "up", str(path), "--state-dir", str(state)]) as up:
        pid_of_store(up, 0)
        more = f"- {{match: more, type: pipe, stores: {{t: {free_port()}}}, store_data: {{t: {data}}}}}\n"
        with_t = path.read_text().replace("addresses:\n", f"addresses:\n{more}")
        without_t = path.read_text()
        wait_until(lambda: "event=network_ready" in up.errors, f"the network is ready\n{up.errors}")
        path.write_text(with_t)
        done = called("reload", path, "--state-dir", state)
        assert done.returncode == 0, done.stderr
        pid_of_store(up, 1)
        assert called("pipe", "push", "more", "one", "--url", network.urls()).returncode == 0
        assert (data / "store").exists()
        path.write_text(without_t)
        assert called("reload", path, "--state-dir", state).returncode == 0
        wait_until(lambda: "event=store_stopped" in up.errors, f"t stops\n{up.errors}")
        assert called("pipe", "push", "jobs", "one", "--url", network.urls()).returncode == 0


def test_stores_that_the_file_does_not_have_are_refused(tmp_path: Path) -> None:
    network = PipeNetwork(tmp_path, ("a",), {"jobs": ("s",)})
    done = called("up", network.topology_path, "--stores", "z")
    assert done.returncode == 2
    assert '--stores: no store "z"; stores are s' in done.stderr
