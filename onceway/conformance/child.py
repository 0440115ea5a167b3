"""The client under test: a child process that reads orders from its standard input and says what happens on its
standard output, a line each. Its stderr is kept in a file, for whoever reads a failure."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from onceway.base import waits

URL, STATE = "ONCEWAY_URL", "ONCEWAY_STATE"


class Child:
    """One life of the client.

    Attributes:
        lines: What it has said, without the line that says what it is.
        claims: The words of that line.
    """

    def __init__(self, command: Sequence[str], url: str, state: Path, errors: Path) -> None:
        """OSError if it cannot be started."""
        environment = {**os.environ, URL: url, STATE: str(state)}
        self._errors: IO[bytes] = errors.open("ab")
        self.process = waits.SPAWN(
            subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.lines: list[str] = []
        self.claims: list[str] = []
        self.ended = False
        self._rest = b""

    def readable(self) -> None:
        data = os.read(self.output.fileno(), 1 << 16)
        self.ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            words = line.decode(errors="replace").split()
            if words[:1] == ["client"] and not self.claims:
                self.claims = words[1:]
            elif words:
                self.lines.append(" ".join(words))

    def tell(self, *words: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(" ".join(words).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: the check misses what should come, and says so

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        waits.KILLED(self.process.wait())
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.output.close()
        self._errors.close()
