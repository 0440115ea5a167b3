"""A newcomer: follows a page command by command, as it is printed, on a machine of his own with a clean home folder.

A machine is a set of namespaces (network, processes, mounts, name), so that ports and places are those that the page
prints; when it is left, all that was started there ends. What a block is for stands in its title, which the site shows:

- a `console` block belongs to the terminal of its title ("Terminal 2"; without one, to the first), or to machines
  ("on a", "on each of a, b, c"). A line that begins with `$ ` is a command, its output must be what follows. `...` is
  any lines, `…` any text; numbers of seconds, rates and widths of columns may differ. A number of five digits is a
  process id, and stands for the real one in later commands. `^C` is Ctrl-C. A block without a command is what the
  terminal shows further on.
- any other block with a title is a file of this name.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.docs import stand_ins
from tests.live import ROOT, dying_with_us

BOUND_S = 240.0  # for a step, on a machine that does much else
REST_S = 0.3  # without work, after which a program that serves waits for requests
_BLOCK = re.compile(
    r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL
)
_VARIES = re.compile(r"(?P<pid>\b\d{5}\b)|\d[\d,.]*(?= ?m?s\b|/s\b)|(?P<space>\s+)|…")
_END = "\x1e"  # after a command, before its exit code
_GOOD = ("0", str(128 + signal.SIGINT), str(128 + signal.SIGKILL))  # exit codes: the page has killed it
_SHELL = f"""
cd "$HOME"
trap : INT  # a Ctrl-C is for the command
while IFS= read -r -d '' line; do eval "$line" </dev/null; printf '{_END}%d\\n' $?; done
"""
_OWN = ("/etc", "/opt", "/var")  # what is written there is the machine's alone
_MACHINE = """
set -e
hostname "$1"; home=$2 address=$3; shift 3
ip link set lo up
ip address add "$address/32" dev lo
for place; do
    mkdir -p "$home/over$place" "$home/work$place"
    mount -t overlay overlay -o "lowerdir=$place,upperdir=$home/over$place,workdir=$home/work$place" "$place"
    chmod go+x "$place"
done
echo "127.0.0.1 $(hostname)" >> /etc/hosts
mkdir -p /opt/onceway/bin
printf '#!/bin/sh\\nexec "$PYTHON" -m onceway "$@"\\n' | sed "s|\\$PYTHON|$PYTHON|" > /opt/onceway/bin/onceway
chmod 755 /opt/onceway/bin/onceway
exec "$PYTHON" -m tests.docs.stand_ins sshd "$address"
"""


def closed() -> list[str]:
    """Directories above this tree and its Python that only their owner may enter, such as root's home."""
    above = {place for own in (ROOT, sys.prefix, sys.base_prefix) for place in Path(own).resolve().parents}
    return sorted(str(place) for place in above if not place.stat().st_mode & 0o001)


@dataclass(frozen=True, slots=True)
class File:
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    terminals: tuple[str, ...]
    command: str | None  # None: what a running one says further on
    output: tuple[str, ...]


def steps(page: str) -> Iterator[File | Step]:
    """What a page has its reader do, in its order."""
    for block in _BLOCK.finditer(page):
        title, text = block["title"], block["text"]
        if block["language"] != "console":
            if title is not None:
                yield File(title, text)
            continue
        machines = re.fullmatch(r"on (?:each of )?(\w+(?:, \w+)*)", title or "")
        terminals = tuple(machines[1].split(", ")) if machines else (title or "Terminal 1",)
        first, *others = re.split(r"^(?=\$ |\^C$)", text, flags=re.MULTILINE)
        if first:
            yield Step(terminals, None, tuple(first.splitlines()))
        for each in others:
            lines = each.splitlines()
            command = [lines.pop(0).removeprefix("$ ")]
            while lines and lines[0].startswith("> "):
                command.append(lines.pop(0).removeprefix("> "))
            yield Step(terminals, "\n".join(command), tuple(lines))


def reason_against() -> str | None:
    """Why there can be no machines here; None where there can."""
    if os.geteuid() != 0:
        return "machines of a newcomer are namespaces, which need root"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], check=False, capture_output=True)
    return None if tried.returncode == 0 else f"no namespaces for us: {tried.stderr.decode().strip()}"


def _wait_until_it_rests(pid: int) -> None:
    """As who reads what it says before pressing Ctrl-C. Of an interrupt in the middle of a request wsgiref makes an
    error of that request, and the program goes on."""
    until, before = time.monotonic() + BOUND_S, ""
    while (used := _used(pid)) != before and time.monotonic() < until:
        before = used
        time.sleep(REST_S)


def _used(pid: int) -> str:
    """The time of CPU that it has taken, in ticks."""
    return " ".join(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])


@dataclass
class Terminal:
    """A shell. What its commands say comes in one stream, as on a screen."""

    command: list[str]
    environment: dict[str, str]
    home: Path
    _said: list[str] = field(default_factory=list)
    _rest: bytes = b""
    _busy: bool = False

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            dying_with_us([*self.command, "bash", "--norc", "-c", _SHELL]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=self.environment, cwd=self.home, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        return self

    def __exit__(self, *exc: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(BOUND_S)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def type(self, line: str) -> None:
        """Types a command, when the one before has ended well; or Ctrl-C."""
        if line == "^C":
            (shell,) = children(self.process.pid)
            for pid in children(shell):
                _wait_until_it_rests(pid)
                os.kill(pid, signal.SIGINT)
            return
        self.ended()
        assert self.process.stdin is not None
        self._said.append(f"$ {line}")
        self.process.stdin.write(line.encode() + b"\0")
        self.process.stdin.flush()
        self._busy = True

    def ended(self) -> None:
        """Waits until the command has ended, which must be a good end."""
        until = time.monotonic() + BOUND_S
        while self._busy:
            line = self.line("its end", until)
            if line.startswith(_END):
                self._busy = False
                assert line[1:] in _GOOD, f"ended with {line[1:]}:\n{self.screen}"

    def line(self, what: str, until: float) -> str:
        """The next line, or the end of a command."""
        assert self.process.stdout is not None
        while True:
            found = re.match(rb"\x1e[^\n]*\n|[^\x1e\n]*\n|[^\x1e\n]+(?=\x1e)", self._rest)
            if found:
                self._rest = self._rest[found.end() :]
                self._said.append(found[0].decode().rstrip("\n"))
                return self._said[-1]
            assert time.monotonic() < until, f"waited for {what}:\n{self.screen}"
            assert self.process.poll() is None, f"the shell has ended:\n{self.screen}"
            select.select([self.process.stdout], [], [], 1.0)
            self._rest += self.process.stdout.read() or b""

    @property
    def screen(self) -> str:
        return "\n".join(self._said[-60:])

    def shows(self, output: tuple[str, ...], pids: dict[str, str]) -> None:
        """Waits for these lines of a page. Notes in `pids` which process a printed id stands for."""
        until, skipping = time.monotonic() + BOUND_S, False
        for printed in output:
            if printed == "...":
                skipping = True
                continue
            pattern = re.compile(_pattern(printed))
            while True:
                line = self.line(repr(printed), until)
                found = None if line.startswith(_END) else pattern.fullmatch(line)
                if found:
                    break
                assert skipping, f"the page has {printed!r} where this has {line!r}:\n{self.screen}"
                assert not line.startswith(_END), f"the page has {printed!r}, which did not come:\n{self.screen}"
            pids.update(
                zip((each["pid"] for each in _VARIES.finditer(printed) if each["pid"]), found.groups(), strict=True)
            )
            skipping = False


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _pattern(printed: str) -> str:
    """The lines that are this one but for numbers that vary; a group for each process id."""
    made, at = "", 0
    for each in _VARIES.finditer(printed):
        made += re.escape(printed[at : each.start()])
        made += r"\s+" if each["space"] else ".*" if each[0] == "…" else r"(\d+)" if each["pid"] else r"\d[\d,.]*"
        at = each.end()
    return made + re.escape(printed[at:])


class Newcomer:
    """`with Newcomer(directory) as newcomer: newcomer.follow(page)`."""

    def __init__(self, directory: Path, machines: tuple[str, ...] = ("machine",)) -> None:
        """`machines`: their names; the addresses are 10.0.0.1 and so on."""
        self.directory = directory
        self.names = machines
        self.programs = stand_ins.make(directory / "programs")
        self.terminals: dict[str, Terminal] = {}
        self.pids: dict[str, str] = {}
        self._holders: dict[str, subprocess.Popen[str]] = {}
        self._stack = ExitStack()

    def home(self, machine: str) -> Path:
        return self.directory / machine / "home"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            first: subprocess.Popen[str] | None = None
            for number, name in enumerate(self.names, 1):
                self.home(name).mkdir(parents=True)
                words = ["sh", "-c", _MACHINE, "sh", name, str(self.home(name).parent), f"10.0.0.{number}"]
                into = ["unshare", "--net"] if first is None else ["nsenter", f"--net=/proc/{first.pid}/ns/net"]
                made = ["unshare", "--uts", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc"]
                command = dying_with_us([*into, *made, "--kill-child=SIGKILL", *words, *_OWN, *closed()])
                environment = {**self.environment(name), "PYTHON": sys.executable}
                holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
                stack.callback(holder.wait, BOUND_S)
                stack.callback(holder.kill)
                assert holder.stdout is not None
                stack.enter_context(holder.stdout)
                assert holder.stdout.readline() == "there\n"
                self._holders[name] = holder
                first = first or holder
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def inside(self, machine: str) -> list[str]:
        """What runs a command on a machine."""
        (child,) = children(self._holders[machine].pid)
        return ["nsenter", f"--target={child}", "--net", "--uts", "--mount", "--pid"]

    def environment(self, machine: str) -> dict[str, str]:
        path = [
            self.programs,
            Path(sys.executable).parent,
            "/usr/local/sbin",
            "/usr/local/bin",
            "/usr/sbin",
            "/usr/bin",
        ]
        return {
            "HOME": str(self.home(machine)),
            "LANG": "C.UTF-8",
            "PATH": ":".join(map(str, path)),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def terminal(self, name: str) -> Terminal:
        if name not in self.terminals:
            machine = name if name in self.names else self.names[0]
            made = Terminal(self.inside(machine), self.environment(machine), self.home(machine))
            self.terminals[name] = self._stack.enter_context(made)
        return self.terminals[name]

    def follow(self, page: str) -> None:
        for step in steps(page):
            if isinstance(step, File):
                path = self.home(self.names[0]) / step.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text)
                continue
            for name in step.terminals:
                terminal = self.terminal(name)
                if step.command is not None:
                    terminal.type(re.sub(r"\d+", lambda number: self.pids.get(number[0], number[0]), step.command))
            for name in step.terminals:
                self.terminal(name).shows(step.output, self.pids)
