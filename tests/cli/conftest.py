"""One router as a real process for the commands that need one; `onceway(...)` runs a command to its end, `called(...)` within this one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import pytest

from onceway.cli import main
from tests.live import ROOT, LiveNetwork
from tests.live_fixture import live_network, pytest_runtest_makereport

__all__ = ["live_network", "pytest_runtest_makereport"]

COMMAND = [sys.executable, "-m", "onceway"]
BOUND_S = 240.0  # for a demo, on a machine that does much else; less than a test may take


def onceway(
    *arguments: object, stdin: bytes | None = None, bound_s: float = BOUND_S, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`env` is beside this process's own."""
    argv = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(
        argv,
        input=stdin,
        capture_output=True,
        timeout=bound_s,
        check=False,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def called(
    *arguments: object, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The same without a process of its own, for commands that start nothing: most of a process's time is its start."""
    before = {*threading.enumerate()}
    out, err = io.StringIO(), io.StringIO()
    argv = ["onceway", *map(str, arguments)]
    with ExitStack() as stack:
        for context in (
            chdir(ROOT), redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", argv),
            patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))), patch("resource.setrlimit"),
            patch.dict(os.environ, env or {}),
        ):  # fmt: skip
            stack.enter_context(context)
        ended = stack.enter_context(pytest.raises(SystemExit))
        main()
    code = ended.value.code
    assert {*threading.enumerate()} <= before, "a client of the command's would go on in the test's process"
    return subprocess.CompletedProcess(argv, code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    with LiveNetwork(tmp_path_factory.mktemp("cli"), ["a"]) as network:
        yield network.start()


@pytest.fixture
def pair_file(tmp_path: Path) -> Path:
    """A topology of two routers on free ports; nothing is started."""
    return LiveNetwork(tmp_path, ["a", "b"], [("a", "b")]).topology_path
