"""Tables of routers fit 80 columns and grow with the terminal; `status --watch` ends cleanly."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import subprocess
import time
from typing import Any

import pytest
from rich.console import Console

from onceway.cli.status import shown
from onceway.cli.tables import COUNTS, columns_explained, number, span
from onceway.operate.status import RECORDS
from tests.cli.conftest import BOUND_S, COMMAND
from tests.live import ROOT, LiveNetwork

BUSY: dict[str, Any] = {
    "name": "a",
    "pid": 4_194_303,
    "state": "recovering",
    "reason": "recovering, waiting for b, 61.3 s left",
    "uptime_s": 40 * 86_400,
    "neighbours": {name: {"up": name == "b"} for name in "bcdefghijkl"},
    "publishers": 12_345,
    "subscribers": 123_456,
    "records": {"undone": 12_345_678, "held": 123_456_789, "in_doubt": 100_000},
}


def printed(width: int, name: str = "a") -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width)
    console.print(shown({name: BUSY, "b": None}, {"b": "does not answer: nobody listens"}, width), soft_wrap=True)
    return out.getvalue().splitlines()


def test_a_table_fits_80_columns_whatever_is_counted() -> None:
    lines = printed(80, "a-router-with-a-very-long-name-in-a-far-away-datacentre")
    table = [line for line in lines if not line.startswith("[")]
    assert max(len(line.rstrip()) for line in table) <= 80
    assert table[0].split() == ["router", "state", "up", "nbrs", "pubs", "subs", "undone", "held", "doubt"]
    assert table[1].split()[1:] == ["recovering", "40d", "1/11", "12345", "123k", "12M", "123M", "100k"]
    assert "[b] does not answer: nobody listens" in lines
    assert any("recovering, waiting for b, 61.3 s left" in line for line in lines)


def test_what_keeps_deliveries_from_completing_has_a_line_each() -> None:
    one = {"address": "orders", "container": "billing", "name": "in", "away_s": 12.3, "owed": 7}
    away = [{**one, "timeout_s": 60.0}, {**one, "name": "out", "timeout_s": None, "declared": True}]
    differs = [{"router": "b", "what": "settings", "ours": "1f", "theirs": "2f"}]
    out = io.StringIO()
    versions = {
        "versions": {"oldest": 4, "newest": 5},
        "sessions": {"b": {"version": 4}, "c": {"version": 5}, "d": {"version": None}},
    }
    status = {**BUSY, **versions, "reason": "", "away": {"count": 21, "first": away}, "file_differences": differs}
    Console(file=out, width=140).print(shown({"a": status}, {}, 140), soft_wrap=True)
    lines = out.getvalue().splitlines()
    for line in (
        "[a] it speaks version 4 with b, which does not speak 5 yet: see upgrading",
        "[a] 21 subscriptions are away; the first 2 are:",
        "[a] orders: subscription billing/in is away for 12 s and waited for 60 s",
        "[a] orders: subscription billing/out is away for 12 s and waited for without limit: it is declared",
        "[a] the topology file of b has other settings: digest 2f, ours 1f",
    ):
        assert line in lines


def test_a_wide_terminal_shows_whole_words_and_more() -> None:
    header = printed(140)[0]
    for word in ("pid", "neighbours", "publishers", "subscribers", "in doubt"):
        assert word in header


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (99_999, "99999"), (100_000, "100k"), (9_999_999, "9999k"), (10_000_000, "10M"), (10**12, "1000G")],
)
def test_numbers_take_five_characters(value: int, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (119, "119s"), (120, "2m"), (7_200, "2h"), (172_800, "2d")])
def test_times_take_four_characters(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_watch_on_a_pipe_prints_each_time_and_ends_with_ctrl_c(router: LiveNetwork) -> None:
    command = [*COMMAND, "status", router.topology_path, "--watch", "--interval", "0.1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as watching:
        for _ in range(2):
            assert json.loads(watching.stdout.readline())["a"]["state"] == "ready"
        watching.send_signal(signal.SIGINT)
        _, complaint = watching.communicate(timeout=BOUND_S)
    assert watching.returncode == 0
    assert complaint == b""


def test_watch_whose_reader_has_gone_ends(router: LiveNetwork) -> None:
    command = [*COMMAND, "status", router.topology_path, "--watch", "--interval", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as watching:
        watching.stdout.readline()
        watching.stdout.close()
        assert watching.wait(BOUND_S) in (0, 1)
        assert b"Traceback" not in watching.stderr.read()


def test_watch_on_a_terminal_redraws_and_leaves_the_last_table(router: LiveNetwork) -> None:
    ours, theirs = pty.openpty()
    command = [*COMMAND, "status", router.topology_path, "--watch", "--interval", "0.1"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment) as watching:
        os.close(theirs)
        seen, end = b"", time.monotonic() + BOUND_S
        while seen.count(b"nbrs") < 3:
            assert time.monotonic() < end, seen
            if select.select([ours], [], [], 1.0)[0]:
                seen += os.read(ours, 65_536)
        watching.send_signal(signal.SIGINT)
        while select.select([ours], [], [], 1.0)[0]:  # until the other end is closed
            try:
                seen += os.read(ours, 65_536)
            except OSError:
                break
        assert watching.wait(BOUND_S) == 0
    os.close(ours)
    assert b"Traceback" not in seen
    assert seen.rstrip().endswith(b"\x1b[?25h")  # the cursor is back


def test_the_help_of_status_has_the_words_of_the_table_of_metrics() -> None:
    lines = list(columns_explained())
    assert all(len(line) <= 76 for line in lines)
    text = " ".join(" ".join(lines).split())
    for column in COUNTS:
        assert f"{column.word} " in text
        assert column.meaning() in text
    assert f"deliveries that {RECORDS['undone']}" in text
