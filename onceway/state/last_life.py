"""What a host remembers of its routers: when each was last seen alive, so that a start knows how old the last life is.

Each router process writes its own file, `<router>.alive` in the state directory, each second while it is up
(`Heart`). The supervisor does not write for it: a supervisor that stands still, or is killed alone, would make a living
network look dead. `last_life` reads the files of all routers and says how long ago the last of them was alive.

The age must never be too great: a start that waits too short a time may let messages be accepted without a subscription
that is still waited for. So everything that is not certain makes it smaller, or unknown.
- In the same boot of the machine, the boot clock tells it; it goes on while the machine sleeps.
- After another boot, or on another machine, it is the smaller one of what the wall clock tells and of the time since
  the boot: whatever the wall clock did, our last life ended before this boot.
- It is unknown if a file is damaged, or if a router of the network has no file here: it ran elsewhere, and may have
  lived longer.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from onceway.base import locks, waits
from onceway.base.logs import Log
from onceway.base.private import make_directory, open_file
from onceway.errors import UsageError
from router.json_text import write_json

FORMAT: Final = 1
BEAT_S: Final = 1.0
SLACK_S: Final = 3.0  # a router may outlive its last beat: by the time between two, and by a write that takes long
SUFFIX: Final = ".alive"
_SECTOR: Final = 512
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Clocks:
    """The machine's clocks now. `boot` is empty where the system does not tell one boot from another."""

    boot: str
    since_boot_s: float
    wall_s: float


@cache
def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def clocks() -> Clocks:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Clocks(_boot(), time.clock_gettime(clock), time.time())


@dataclass(frozen=True, slots=True)
class LastLife:
    """What is remembered of the network's last life on this host."""

    first: bool = False  # nothing: the network has never run here
    age_s: float | None = None  # since the last router was seen alive; None: it is not known
    stopped: bool = False  # every router was stopped; otherwise one died
    problem: str = ""  # why the age is not known


def last_life(directory: Path, routers: Iterable[str], now: Callable[[], Clocks] = clocks) -> LastLife:
    """Of the network whose topology file names `routers`."""
    try:
        files = sorted(entry for entry in directory.iterdir() if entry.suffix == SUFFIX)
    except FileNotFoundError:
        return LastLife(first=True)
    except OSError as error:
        return LastLife(problem=f"{directory}: {error.strerror}")
    if not files:
        return LastLife(first=True)
    beats = {}
    for file in files:
        try:
            beats[file.stem] = _read(file)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            return LastLife(problem=f"{file}: {why}")
    known = {*routers, *(name for beat in beats.values() for name in beat["routers"])}
    elsewhere = sorted(known - set(beats))
    if elsewhere:
        return LastLife(problem=f"{', '.join(elsewhere)} did not run on this host, and may have lived longer")
    here = now()
    age = min(_age(beat, here) for beat in beats.values())
    if age < 0:
        return LastLife(problem=f"{directory}: a router was last seen alive in the future; the clock was set back")
    return LastLife(age_s=max(0.0, age - SLACK_S), stopped=all(beat["ended"] == "stopped" for beat in beats.values()))


def died(directory: Path, routers: Iterable[str]) -> bool:
    """Says whether one of these routers ran on this host and was not stopped: it has died, or lives."""
    for file in [directory / f"{name}{SUFFIX}" for name in routers]:
        try:
            if _read(file)["ended"] != "stopped":
                return True
        except FileNotFoundError:
            continue
        except (OSError, ValueError):  # it was not in order
            return True
    return False


def _age(beat: dict[str, Any], now: Clocks) -> float:
    if beat["boot"] == now.boot != "":
        return now.since_boot_s - float(beat["since_boot_s"])
    return min(now.wall_s - float(beat["wall_s"]), now.since_boot_s)


def turns_ended(directory: Path, router: str) -> int | None:
    """How many turns of its event loop this router has ended, as far as it has written; None: that is not known."""
    try:
        turns = _read(directory / f"{router}{SUFFIX}").get("turns")
    except (OSError, ValueError):
        return None
    return turns if isinstance(turns, int) else None


class Heart:
    """Writes `<router>.alive` while the router is up: `begin()`, then `beat()` each BEAT_S, and `stopped()`.

    The file holds two lines of equal length. The next beat overwrites the older one and needs no space, so that a full
    disk does not stop it; a write that a crash has torn leaves the other line. The methods may wait for the disk: call
    them in a thread. They raise OSError. After one the file says that it is damaged, if that can be written at all:
    otherwise the router would seem to have died when the disk failed.
    """

    def __init__(self, directory: Path, network: str, router: str, routers: Sequence[str]) -> None:
        self.path = directory / f"{router}{SUFFIX}"
        self._what: dict[str, Any] = {"format": FORMAT, "network": network, "router": router, "routers": list(routers)}
        self.turns = 0  # of the event loop that have ended, for who asks whether this router works
        self._beats = 0
        self._size = 0  # of a line
        self._file: int | None = None
        self._lock = waits.DISK(threading.Lock())

    def know(self, routers: Iterable[str]) -> None:
        """These are the network's routers now."""
        names = list(routers)
        with self._lock:
            if names != self._what["routers"]:
                self._what["routers"] = names
                self._close()  # the next beat makes the file anew, with lines of another length

    def begin(self) -> None:
        """Makes the file anew: before anything may depend on it."""
        with self._lock:
            self._begin()

    def beat(self) -> None:
        with self._lock:
            self._beat("running")

    def stopped(self) -> None:
        with self._lock:
            self._beat("stopped")
            self._close()

    def close(self) -> None:
        with self._lock:
            self._close()

    def _begin(self) -> None:
        self._size = 0
        make_directory(self.path.parent)
        fresh = self.path.with_suffix(".new")
        descriptor = open_file(fresh, os.O_RDWR | os.O_TRUNC)
        try:
            line = self._line("running")
            _write(descriptor, line + line, 0)
            os.fsync(descriptor)
            os.rename(fresh, self.path)
            _sync_directory(self.path.parent)
        except OSError:
            os.close(descriptor)
            self._spoil()
            raise
        self._close()
        self._file = descriptor

    def _beat(self, ended: str) -> None:
        if self._file is None:
            self._begin()
        assert self._file is not None
        self._beats += 1
        line = self._line(ended)
        try:
            _write(self._file, line, self._beats % 2 * len(line))
            os.fdatasync(self._file)
        except OSError:
            self._close()
            self._spoil()
            raise

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _line(self, ended: str) -> bytes:
        now = clocks()
        document = {
            **self._what,
            "beat": self._beats,
            "turns": self.turns,
            "ended": ended,
            "boot": now.boot,
            "since_boot_s": now.since_boot_s,
            "wall_s": now.wall_s,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now.wall_s)),
        }
        body = write_json(document).encode()
        if not self._size:  # with room for numbers that grow
            self._size = (len(body) // _SECTOR + 1) * _SECTOR + _SECTOR
        body = body.ljust(self._size - 10)
        return body + b" %08x\n" % zlib.crc32(body)

    def _spoil(self) -> None:
        """Leaves an empty file, which also a full disk takes: without any, the next start would be a first one."""
        try:
            os.close(open_file(self.path, os.O_WRONLY | os.O_TRUNC))
        except OSError:
            pass  # a disk that cannot be written at all; the next start will fail to write, too, and wait


def lock(directory: Path, network: str, routers: Iterable[str]) -> list[int]:
    """Descriptors that keep other processes from running these routers with the same state directory. UsageError if
    one does already, OSError if the directory cannot be written."""
    make_directory(directory)
    held = []
    for name in routers:
        descriptor = open_file(directory / f"{name}.lock", os.O_RDWR)
        if owner := locks.keep(descriptor):
            raise UsageError(
                f"network {network}: process {owner} on this host runs router {name} already; "
                f"stop it, or give this one another --state-dir (here: {directory.parent})"
            )
        held.append(descriptor)
    return held


def warn_not_written(log: Log, error: OSError, path: Path) -> None:
    text = "cannot write {path}: {reason}; the next start will wait for subscriptions the whole time"
    log.warning("no_memory", text, path=str(error.filename or path), reason=error.strerror)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    if os.pwrite(descriptor, data, offset) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(file: Path) -> dict[str, Any]:
    """The last beat in it. ValueError if none is whole."""
    found = [beat for line in file.read_bytes().split(b"\n") if (beat := _beat(line)) is not None]
    if not found:
        raise ValueError("the file is damaged, or from another version")
    return max(found, key=lambda beat: int(beat["beat"]))


def _beat(line: bytes) -> dict[str, Any] | None:
    body, _, checksum = line.rpartition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(body):
            return None
        beat = json.loads(body)
    except ValueError:
        return None
    return beat if isinstance(beat, dict) and beat.get("format") == FORMAT else None
