"""`onceway chaos run` from the outside: what it prints, where it puts things, how it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos import cli
from chaos.history import Event, read
from chaos.judge import judge
from chaos.recovery import Recovery, recoveries, summary


def chaos(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "chaos", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.timeout(150)
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
    monkeypatch.setattr("chaos.netns.reason_against", lambda: "there is no ip command; install iproute2")
    monkeypatch.setattr("chaos.processes.rhea_modules", lambda: None)
    monkeypatch.setattr(cli, "run_and_judge", lambda name, out, seed: 0)
    done = CliRunner().invoke(cli.command, ["all", *options])
    assert done.exit_code == code
    told = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert told.pop("cut_interfaces") == "skipped: there is no ip command; install iproute2"
    for with_rhea in ("broken_connections", "garbage"):
        assert told.pop(with_rhea).startswith("skipped: the schedule has a rhea client: it needs node")
    assert {*told.values()} == {"ok"}
    assert "two_hundred_kills" not in done.stdout  # it is long


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
