"""A PostgreSQL server of the tests' own: Debian's programs, as an ordinary user, on a socket in a directory."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from glob import glob
from pathlib import Path

import pytest

from tests.live import dying_with_us, wait_until


def program(name: str) -> str | None:
    """Debian keeps them out of the path."""
    return shutil.which(name) or max(glob(f"/usr/lib/postgresql/*/bin/{name}"), default=None)


class Server:
    """Started at once; `kill` and `start` make it die and come back."""

    def __init__(self) -> None:
        initdb, postgres = program("initdb"), program("postgres")
        if initdb is None or postgres is None:
            pytest.skip("PostgreSQL is missing: apt-get install postgresql")
        pytest.importorskip("psycopg", reason="psycopg is missing: pip install 'onceway[postgresql]'")
        self._postgres = postgres
        self._as: list[str] = []
        self.place = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path is short
        if os.getuid() == 0:
            if shutil.which("setpriv") is None:
                pytest.skip("root cannot run PostgreSQL, and setpriv is missing")
            other = pwd.getpwnam("nobody")
            os.chown(self.place, other.pw_uid, other.pw_gid)
            self._as = ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups"]
        self.data = self.place / "data"
        made = subprocess.run(
            [*self._as, initdb, "-D", str(self.data), "-U", "edge", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
            capture_output=True, text=True, check=False, cwd="/", env={**os.environ, "HOME": "/"},
        )  # fmt: skip
        if made.returncode:
            raise AssertionError(made.stdout + made.stderr)
        self.start()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://edge@/{database}?host={self.place}"

    def start(self) -> None:
        options = [
            "-c",
            "listen_addresses=",
            "-k",
            str(self.place),
            "-c",
            "shared_buffers=16MB",
            "-c",
            "max_wal_size=64MB",
        ]
        # setpriv last: changing the user clears the signal at the parent's death
        self.process = subprocess.Popen(
            [*self._as, *dying_with_us([self._postgres, "-D", str(self.data), *options])],
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

    def kill(self) -> None:
        """As a crash: the server ends without a checkpoint, and recovers when it starts again."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(60)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.place)
