"""Client programs as child processes whose lines a test reads."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.live import dying_with_us

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "interop" / "programs"
BOUND_S = 60.0  # for what takes a moment, on a machine that does much else


class Program:
    """A running client.  `line` waits for its next line; leaving the `with` kills it if it has not ended.

    What it has said on stderr is in `errors`; after `rest` and the end of the `with` that is all of it.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            dying_with_us(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._errors.append(line)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, failure: type[BaseException] | None = None, *exc: object) -> None:
        ended = self.process.poll()
        if ended is None:
            self.process.kill()
        self._ended()
        if failure is not None:
            how = "still ran" if ended is None else f"had ended with {ended}"
            print(f"{self.process.args!r} {how}\n{self._tail}")

    def _ended(self) -> int:
        """Its exit code, when all that it said has been read: that it has ended does not say so."""
        code = self.process.wait(BOUND_S)
        for thread in self._threads:
            thread.join(BOUND_S)
        return code

    def line(self, timeout_s: float = BOUND_S) -> str:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise AssertionError(f"{self.process.args!r}: no line within {timeout_s:g} s\n{self._tail}") from None
        assert line is not None, f"{self.process.args!r} ended with {self._ended()}\n{self._tail}"
        return line

    def lines(self, count: int, timeout_s: float = BOUND_S) -> list[str]:
        return [self.line(timeout_s) for _ in range(count)]

    def rest(self, timeout_s: float = BOUND_S) -> list[str]:
        """The lines up to its end, which has to be a good one."""
        lines: list[str] = []
        try:
            while (line := self._lines.get(timeout=timeout_s)) is not None:
                lines.append(line)
        except queue.Empty:
            raise AssertionError(f"{self.process.args!r} did not end within {timeout_s:g} s\n{self._tail}") from None
        code = self._ended()
        assert code == 0, f"{self.process.args!r} ended with {code}\n{self._tail}"
        return lines

    @property
    def errors(self) -> str:
        return "".join(self._errors)

    @property
    def _tail(self) -> str:
        return "".join(self._errors[-30:])


def module(name: str, *arguments: object) -> Program:
    return Program([sys.executable, "-m", name, *map(str, arguments)])


def python(program: str, *arguments: object) -> Program:
    """One of tests/interop/programs."""
    return Program([sys.executable, str(PROGRAMS / f"{program}.py"), *map(str, arguments)])
