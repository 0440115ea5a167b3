"""A PostgreSQL server of the tests' own: Debian's programs, as an ordinary user, on a socket in a directory."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from glob import glob
from pathlib import Path

import pytest

from tests.live import dying_with_us, wait_until


def program(name: str) -> str | None:
    """Debian keeps them out of the path."""
    return shutil.which(name) or max(glob(f"/usr/lib/postgresql/*/bin/{name}"), default=None)


def mounting(place: Path, size: str, owner: int = 0) -> list[str]:
    """What to put before a command, so that it has a file system of its own at `place`, which vanishes with it."""
    mount = f'mount -t tmpfs -o size={size},uid={owner} none "$0" && exec "$@"'
    before = ["unshare", "-m", "sh", "-c", mount, str(place)]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*before, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no file system may be mounted here")
    return before


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command_of(pid: int) -> bytes:
    """Empty for a process that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


class Server:
    """Started at once; `kill` and `start` make it die and come back.

    Args:
        small: The size of a file system at the directory `small`, for a tablespace.
        of: A server whose standby this one is.
    """

    def __init__(self, *, small: str = "", of: Server | None = None) -> None:
        initdb, postgres, basebackup = program("initdb"), program("postgres"), program("pg_basebackup")
        if initdb is None or postgres is None or basebackup is None:
            pytest.skip("PostgreSQL is missing: apt-get install postgresql")
        pytest.importorskip("psycopg", reason="psycopg is missing: pip install 'onceway[postgresql]'")
        self._postgres = postgres
        self._as: list[str] = []
        self._mounting: list[str] = []
        owner = os.getuid()
        if owner == 0:
            if shutil.which("setpriv") is None:
                pytest.skip("root cannot run PostgreSQL, and setpriv is missing")
            other = pwd.getpwnam("nobody")
            owner = other.pw_uid
            self._as = ["setpriv", f"--reuid={owner}", f"--regid={other.pw_gid}", "--clear-groups"]
        self.place = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path is short
        os.chown(self.place, owner, -1)
        self.data = self.place / "data"
        self.small = self.place / "small"
        if small:
            self.small.mkdir()
            self._mounting = mounting(self.small, small, owner)
        if of is not None:
            self._run(basebackup, "-D", str(self.data), "-R", "-c", "fast", "-d", of.url())
        else:
            self._run(initdb, "-D", str(self.data), "-U", "edge", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self.start()

    def _run(self, *command: str) -> None:
        environment = {**os.environ, "HOME": "/"}
        run = subprocess.run(
            [*self._as, *command], capture_output=True, text=True, cwd="/", env=environment, check=False
        )
        if run.returncode:
            raise AssertionError(run.stdout + run.stderr)

    def url(self, database: str = "postgres", standby: Server | None = None) -> str:
        hosts = f"{self.place},{standby.place}" if standby else str(self.place)
        return f"postgresql://edge@/{database}?host={hosts}"

    def start(self) -> None:
        options = [
            "listen_addresses=",
            "shared_buffers=16MB",
            "max_wal_size=64MB",
            "autovacuum_naptime=1s",
            "log_connections=on",
        ]
        settings = [part for option in options for part in ("-c", option)]
        # setpriv last: changing the user clears the signal at the parent's death
        command = dying_with_us([self._postgres, "-D", str(self.data), "-k", str(self.place), *settings])
        self.process = subprocess.Popen(
            [*self._mounting, *self._as, *command],
            cwd="/", stdout=subprocess.DEVNULL, stderr=(self.place / "log").open("ab"),
        )  # fmt: skip
        wait_until(self._answers, f"PostgreSQL answers: {self.place}/log")

    def _answers(self) -> bool:
        import psycopg

        assert self.process.poll() is None, (self.place / "log").read_text()
        try:
            psycopg.connect(self.url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def small_database(self, name: str) -> tuple[str, Callable[[], None]]:
        """(its URL, what makes more room for it) of a new database in the small file system."""
        ballast = Path(f"/proc/{self.process.pid}/root{self.small}/ballast")  # in the server's own file system
        ballast.write_bytes(bytes(4_000_000))
        self.execute(f"CREATE TABLESPACE small LOCATION '{self.small}'")
        self.execute(f"CREATE DATABASE {name} TABLESPACE small")
        self.execute("CHECKPOINT")  # what was copied has its room on the disk then
        return self.url(name), ballast.unlink

    def connections(self) -> int:
        """How many there have been."""
        return (self.place / "log").read_bytes().count(b"connection authorized")

    def stop(self) -> None:
        """As an operator does it: clients are disconnected, and everything is written."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As a crash: the server ends without a checkpoint, and recovers when it starts again."""
        self._end(signal.SIGQUIT)

    def _end(self, how: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(60)

    def kill_at_once(self) -> None:
        """SIGKILL to every process of the server."""
        self.process.send_signal(signal.SIGSTOP)  # it starts no others
        processes = children_of(self.process.pid)
        for pid in (*processes, self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(60)
        wait_until(lambda: not any(map(_command_of, processes)), "no process is left")

    def kill_a_backend(self) -> None:
        """SIGKILL to one process: the server ends all others and recovers by itself."""
        if backends := self._backends():
            os.kill(backends[-1], signal.SIGKILL)

    def stand_still(self) -> list[int]:
        """SIGSTOP to the processes of all connections, until their SIGCONT. New connections have others."""
        backends = self._backends()
        for pid in backends:
            os.kill(pid, signal.SIGSTOP)
        return backends

    def _backends(self) -> list[int]:
        return [pid for pid in children_of(self.process.pid) if b"edge" in _command_of(pid)]

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.place)
