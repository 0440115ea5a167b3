"""`onceway chaos run` from the outside: what it prints, where it puts things, how it ends."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from chaos.judge.history import Event, Writer, read
from chaos.judge.judge import judge
from chaos.judge.recovery import Recovery, longest_waits, recoveries, summary
from chaos.live import cli, processes
from chaos.live.cli import command
from chaos.live.run import Run
from tests.live import wait_until

BOUND_S = 240.0  # less than a test may take
ENDLESS = """\
shows: Somebody publishes until Ctrl-C.
topology: single
workload:
  publishers: [{name: p, at: a, duration: 1h}]
  subscribers: [{name: s, at: a}]
"""
SECURED = """\
shows: A router is killed and comes back under clients of each kind.
topology: triangle
workload:
  publishers:
    - {name: p1, at: a, rate: 200, duration: 3s}
    - {name: p2, client: proton, at: b, rate: 50, duration: 3s}
    - {name: p3, client: rhea, at: c, rate: 50, duration: 3s}
  subscribers:
    - {name: s1, at: b}
    - {name: s2, client: proton, at: c}
    - {name: s3, client: rhea, at: a}
faults:
  - {at: 1s, fault: kill, on: router c, back: 200ms}
"""


def chaos(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chaos", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=False)


def test_a_short_run_is_judged_ok_and_can_be_run_again_from_its_last_line(tmp_path: Path) -> None:
    done = chaos("run", "short", "--out", tmp_path / "out", "--seed", 5)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stderr.startswith("schedule short, seed 5, commit ")
    for event in ("kill router c", "router c ready", "latency trunk a - b", "down link p1", "drained after"):
        assert event in done.stderr
    first, *_, last = done.stdout.splitlines()
    assert first.startswith("ok: ")
    assert last == "rerun: onceway chaos run short --seed 5"
    assert judge(tmp_path / "out").verdict == "ok"
    faults = [event.fields for event in read(tmp_path / "out") if event.op == "fault"]
    assert [fault["kind"] for fault in faults] == ["latency", "kill", "down"]
    again = chaos("run", "short", "--out", tmp_path / "out")
    assert again.returncode == 2
    assert "holds the history of another run" in again.stderr


@pytest.mark.parametrize("security", [pytest.param("tls", marks=pytest.mark.long), "mutual"])
def test_a_short_run_with_tls_users_and_policies_is_judged_ok(tmp_path: Path, security: str) -> None:
    """Each kind of client: ours, proton's and rhea's; `make chaos` plays the whole library so."""
    schedule = tmp_path / "secured.yaml"
    schedule.write_text(SECURED)
    done = chaos("run", schedule, "--security", security, "--seed", 5, "--out", tmp_path / "out")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines()[-1].endswith(f"--security {security}")
    sections = yaml.safe_load((tmp_path / "out" / "topology.yaml").read_text())
    assert ("sasl" in sections, "policies" in sections) == (security == "mutual",) * 2
    assert sections["trunks"] == {"tls": "routers"}


def test_a_schedule_that_cannot_be_read_ends_with_its_problems_and_exit_code_2(tmp_path: Path) -> None:
    schedule = tmp_path / "bad.yaml"
    schedule.write_text("shows: x\ntopology: rink\nworkload: {publishers: [], subscribers: []}\n")
    done = chaos("run", schedule)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{schedule}:2: topology: ")
    assert done.stdout == ""


def test_the_library_is_listed_with_what_it_shows() -> None:
    done = chaos("list")
    assert done.returncode == 0
    assert "accept_settle_window" in done.stdout


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 3)])
def test_what_the_machine_cannot_run_is_said_to_be_skipped(
    monkeypatch: pytest.MonkeyPatch, options: list[str], code: int
) -> None:
    monkeypatch.setattr("chaos.live.netns.reason_against", lambda: "there is no ip command; install iproute2")
    monkeypatch.setattr("chaos.live.processes.rhea_modules", lambda: None)
    monkeypatch.setattr(cli, "run_and_judge", lambda *arguments, **options: 0)
    done = CliRunner().invoke(cli.command, ["all", *options])
    assert done.exit_code == code
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert told.pop("cut_interfaces") == "skipped: there is no ip command; install iproute2"
    for with_rhea in ("broken_connections", "garbage"):
        assert told.pop(with_rhea).startswith("skipped: the schedule has a rhea client: it needs node")
    assert {*told.values()} == {"ok"}
    assert "two_hundred_kills" not in done.stdout  # it is long


def test_ctrl_c_ends_a_run_which_is_judged_as_it_is(tmp_path: Path) -> None:
    schedule, out = tmp_path / "endless.yaml", tmp_path / "out"
    schedule.write_text(ENDLESS)
    command = [sys.executable, "-m", "chaos", "run", str(schedule), "--out", str(out)]
    # a group of its own, as a terminal gives it
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as run:
        sends = out / "client-p.jsonl"
        wait_until(lambda: sends.exists() and b'"send"' in sends.read_bytes(), "it publishes", BOUND_S / 2)
        os.killpg(run.pid, signal.SIGINT)
        said, _ = run.communicate(timeout=BOUND_S / 2)
    assert run.returncode == 3
    first, *reasons, last = said.splitlines()
    assert first.startswith("unknown: ")
    assert "  cut: the run was cut before it had drained" in reasons
    assert last.startswith(f"rerun: onceway chaos run {schedule} --seed ")


def test_ctrl_c_ends_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def interrupted(name: str, *arguments: object, **options: object) -> int:
        ran.append(name)
        if len(ran) == 2:
            raise cli.Interrupted(1)  # it had been violated before
        return 0

    monkeypatch.setattr(cli, "run_and_judge", interrupted)
    done = CliRunner().invoke(cli.command, ["all"])
    assert done.exit_code == 1
    assert [line.split() for line in done.stdout.splitlines() if "skipped" not in line] == [
        [ran[0], "ok"],
        [ran[1], "violated"],
    ]


def test_ctrl_c_outside_of_a_run_finds_nothing_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_and_judge", interrupted)
    assert CliRunner().invoke(cli.command, ["run", "short"]).exit_code == 3


def test_a_full_disk_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(run: Run) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run.jsonl")

    monkeypatch.setattr(Run, "run", full)
    done = CliRunner().invoke(cli.command, ["run", "short", "--out", str(tmp_path / "out")])
    assert done.exit_code == 3
    assert "the run came to no verdict: [Errno 28] No space left on device: 'run.jsonl'" in done.stderr


def test_a_client_that_is_not_there_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.live.processes.rhea_modules", lambda: None)
    done = CliRunner().invoke(cli.command, ["run", "garbage", "--out", str(tmp_path / "out")])
    assert str(done.exception).startswith("the schedule has a rhea client: it needs node, ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("lacks", "name", "said"),
    [("paho", "edge_mqtt", "pip install 'onceway[check]'"), ("msgpack", "edge_metadata", "'onceway[metadata]'")],
)
def test_a_client_of_an_edge_says_what_to_install(
    lacks: str, name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = processes.find_spec
    monkeypatch.setattr(processes, "find_spec", lambda library: None if library == lacks else there(library))
    done = CliRunner().invoke(cli.command, ["run", name])
    assert said in str(done.exception)


def test_a_directory_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = chaos("run", "short", "--out", tmp_path / "file" / "out")
    assert done.returncode == 2
    assert done.stderr.endswith("Not a directory; give another --out\n")


def test_a_toxiproxy_url_that_is_none_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOXIPROXY_URL", "http://127.0.0.1:toxi")
    done = chaos("run", "short", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "TOXIPROXY_URL http://127.0.0.1:toxi: Port could not be cast" in done.stderr


def test_without_the_client_of_toxiproxy_a_run_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toxiproxy", None)
    for module in ("chaos.live.connections", "chaos.live.faults", "chaos.live.run"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(cli, "find_spec", lambda name: None)
    done = CliRunner().invoke(cli.command, ["run", "short"])
    assert str(done.exception) == "toxiproxy-python is not installed: pip install 'onceway[check]'"


def test_every_bad_schedule_is_told_and_the_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("")
    done = chaos("check", tmp_path / "bad.yaml", "short", tmp_path / "none.yaml")
    assert done.returncode == 2
    assert done.stdout.startswith("short: 3 clients, ")
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == [
        f"{tmp_path}/bad.yaml:1",
        f"{tmp_path}/none.yaml",
    ]


def history(*lines: dict[str, object]) -> list[Event]:
    return [Event(float(t), "x.jsonl", t, str(line.pop("op")), line) for t, line in enumerate(map(dict, lines), 1)]


RUN = {"op": "run", "publishers": [{"name": "p"}], "subscribers": [{"name": "s", "client": "proton"}]}


def test_recovery_is_from_the_kill_to_the_first_delivery_at_the_new_router() -> None:
    events = history(
        RUN,
        {"op": "attached", "s": "s", "router": "a"},
        {"op": "attached", "p": "p", "router": "b"},
        {"op": "fault", "kind": "kill", "target": "router a"},  # at 4
        {"op": "receive", "s": "s", "p": "p", "n": 0},  # was on its way
        {"op": "attached", "s": "s", "router": "b"},  # at 6
        {"op": "receive", "s": "s", "p": "p", "n": 1},  # at 7
        {"op": "receive", "s": "s", "p": "p", "n": 2},
    )
    assert recoveries(events) == [Recovery("s", "s", "proton", "a", 4.0, 2.0, 3.0)]


def test_recovery_of_a_client_whose_next_router_dies_too_counts_from_the_first_kill() -> None:
    events = history(
        RUN,
        {"op": "attached", "p": "p", "router": "a"},
        {"op": "fault", "kind": "kill", "target": "router a"},  # at 3
        {"op": "attached", "p": "p", "router": "b"},
        {"op": "fault", "kind": "kill", "target": "router b"},
        {"op": "outcome", "p": "p", "n": 0, "outcome": "accepted"},
        {"op": "attached", "p": "p", "router": "c"},
        {"op": "outcome", "p": "p", "n": 1, "outcome": "accepted"},  # at 8
    )
    (one,) = recoveries(events)
    assert (one.at, one.delivered_s) == (3.0, 5.0)
    assert summary([one])[0].endswith("onceway publishers: median 5.000 s, 90 % within 5.000 s, most 5.000 s (1 times)")


def test_a_publisher_waits_from_its_first_send_to_the_outcome() -> None:
    events = history(
        {"op": "send", "p": "p", "n": 0},  # at 1
        {"op": "send", "p": "p", "n": 1},
        {"op": "outcome", "p": "p", "n": 1, "outcome": "accepted"},
        {"op": "send", "p": "p", "n": 0},  # again, by the next process
        {"op": "outcome", "p": "p", "n": 0, "outcome": "accepted"},  # at 5
        {"op": "send", "p": "q", "n": 0},
    )
    assert longest_waits(events) == {"p": 4.0}


def test_a_run_without_a_kill_has_no_recovery(tmp_path: Path) -> None:
    with Writer(tmp_path / "run.jsonl") as writer:
        writer.write("run", publishers=[], subscribers=[])
    result = CliRunner().invoke(command, ["recovery", str(tmp_path)])
    assert (result.exit_code, result.output) == (0, "no client's router was killed\n")
