"""The processes that `python -m chaos.simulate --jobs 2` starts end with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from chaos.simulate import code

LONG = {
    "schedules": ["--seeds", "0-999999"],
    "worlds": ["--exhaustive", "--world", "crash-2,crash-2-drop"],
    "defects": ["--mutations"],
}
WITHIN_S = 120.0  # on a machine that does much else; alone it takes a tenth of a second


def workers_of(pid: int) -> int:
    """How many of that process's children have been started for work."""
    found = 0
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile: `git describe`
            found += "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()
    return found


@pytest.mark.skipif(not Path(f"/proc/self/task/{os.getpid()}/children").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(
    ("what", "how"),
    [
        *(("schedules", how) for how in (signal.SIGTERM, signal.SIGKILL)),
        ("worlds", signal.SIGTERM),
        ("defects", signal.SIGTERM),
    ],
)
def test_no_worker_outlives_its_parent(what: str, how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-m", "chaos.simulate", *LONG[what], "--jobs", "2"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    until = time.monotonic() + WITHIN_S
    while workers_of(parent.pid) < 2:
        assert parent.poll() is None
        assert time.monotonic() < until
    parent.send_signal(how)
    # The end of its output comes when nobody is left who could write there: no worker, and no helper of theirs.
    parent.communicate(timeout=WITHIN_S)
    assert parent.returncode == -how


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("what", LONG)
def test_ctrl_c_ends_it_at_once_with_what_it_has_found_so_far(what: str, jobs: str) -> None:
    """As a terminal says it: to all processes, and workers may not even have begun."""
    process = subprocess.Popen(
        [sys.executable, "-m", "chaos.simulate", *LONG[what], "--jobs", jobs],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    said, errors = process.communicate(timeout=WITHIN_S)
    *_, summary, rerun = said.splitlines()
    assert ", interrupted" in summary
    assert rerun.startswith(f"rerun: python -m chaos.simulate {' '.join(LONG[what])}")
    assert errors == ""
    assert process.returncode == 130


def test_violation_that_was_found_before_ctrl_c_is_what_it_ends_with() -> None:
    assert [code(wrong, interrupted) for wrong, interrupted in ((False, False), (False, True))] == [0, 130]
    assert [code(True, interrupted) for interrupted in (False, True)] == [1, 1]
