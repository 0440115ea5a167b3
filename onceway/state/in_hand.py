"""What a router has in hand: a small file that it maps, `<router>.hand` in the state directory.

The router writes into it before it handles a client's input, without a system call, and says when that is done. So what
was in hand when it died is there at the next start, whoever starts it. The first octet is one of `IDLE`, `IN_HAND` and
`ENDED`: an error that nobody expects has ended the router while it handled this. A JSON document follows, with its
length in front.

A fatal signal (a segmentation fault, or the SIGABRT of a watchdog to a router that hangs) ends the router just as well.
Python's handler then writes where that was into `<router>.fault`. Who kills by SIGKILL (an operator, the kernel without
memory) leaves no such word, and what was in hand then need not be why.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from onceway.base.private import open_file
from router.border import ENDED, IDLE, MEMORY

SUFFIX: Final = ".hand"
FAULT: Final = ".fault"
FAULT_OCTETS: Final = 8_192  # that are read of it
FRAMES: Final = 10  # that are told, the innermost first
_FRAME: Final = re.compile(r'^  File "(.*)", line ([0-9]+) in (.*)$', re.MULTILINE)


class Left(NamedTuple):
    """What was in hand when the router's last life ended.

    Attributes:
        client, user, container: Who had sent it, as the log says it. user: None: it had not come in.
        digest: Of the octets; empty: they are not known.
        ended: It has ended the router. Otherwise the router was killed, or the machine failed, in the middle of it.
    """

    client: str
    user: str | None
    container: str
    digest: bytes
    ended: bool

    def said(self) -> dict[str, Any]:
        """For people."""
        return {**self._asdict(), "digest": self.digest.hex()}


def path_of(directory: Path, router: str) -> Path:
    return directory / f"{router}{SUFFIX}"


class Fault(NamedTuple):
    """The fatal signal that has ended the last life.

    Attributes:
        what: Its name, as Python has it, such as `Segmentation fault`.
        at: Where the router was, the innermost call first: `file:line function`.
    """

    what: str
    at: list[str]


def fault(path: Path) -> Fault | None:
    """What the last life has left of a fatal signal; None: there was none. OSError if the file cannot be read."""
    try:
        with path.with_suffix(FAULT).open("rb") as file:
            text = file.read(FAULT_OCTETS).decode(errors="replace")
    except FileNotFoundError:
        return None
    found = re.match("Fatal Python error: (.*)", text)
    if found is None:
        return None
    return Fault(found[1], [f"{file}:{line} {function}" for file, line, function in _FRAME.findall(text)[:FRAMES]])


def note_faults(path: Path) -> None:
    """From now on a fatal signal of this process is noted. OSError if the file cannot be made."""
    descriptor = open_file(path.with_suffix(FAULT), os.O_WRONLY | os.O_TRUNC)
    faulthandler.enable(os.fdopen(descriptor, "wb", buffering=0), all_threads=False)  # which keeps it open


def left(path: Path, *, faulty: bool = False) -> Left | None:
    """What the last life has left; None: nothing. faulty: a fatal signal has ended it. OSError if the file cannot be
    read."""
    try:
        octets = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(octets) < MEMORY or octets[0] == IDLE:
        return None
    try:
        found = json.loads(octets[3 : 3 + int.from_bytes(octets[1:3], "big")])
        user = found["user"]
        return Left(
            str(found["client"]), None if user is None else str(user), str(found["container"]),
            bytes.fromhex(found.get("digest", "")), faulty or octets[0] == ENDED,
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, RecursionError):  # a write that a crash has torn
        return None


def mapped(path: Path) -> mmap.mmap:
    """The file, made anew and empty, as memory. OSError if it cannot be made."""
    fresh = path.with_suffix(".hand-new")
    descriptor = open_file(fresh, os.O_RDWR | os.O_TRUNC)
    try:
        os.posix_fallocate(descriptor, 0, MEMORY)  # a full disk fails here, and not in the middle of a write
        memory = mmap.mmap(descriptor, MEMORY)
        os.rename(fresh, path)
        return memory
    finally:
        os.close(descriptor)
