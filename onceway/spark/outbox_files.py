"""An outbox's small files: its lock, and documents that appear whole or not at all; what goes wrong with them as
something that a person can mend.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from onceway.spark.lock_line import read_line, write_line
from onceway.spark.sink_errors import OutboxError, OutboxLocked
from onceway.spark.staging import sync

_LOOK_AGAIN_S: Final = 0.1


@contextlib.contextmanager
def locked(location: Path, timeout_s: float) -> Iterator[None]:
    """For this process alone.  Raises OutboxLocked after timeout_s, OutboxError where it cannot be locked."""
    with explained(location):
        lock = os.open(location / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _take(lock, location, timeout_s)
        yield
    finally:
        os.close(lock)


def _take(lock: int, location: Path, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            # flock knows no timeout, and a signal would be the whole process's: look again now and then
            if time.monotonic() >= deadline:
                holder = read_line(lock) or "another process"
                raise OutboxLocked(
                    f"{location}: {holder} publishes from this outbox; give each query an outboxLocation of "
                    f"its own, or stop the other one (waited {timeout_s:g} s, lockTimeout)"
                ) from None
            time.sleep(_LOOK_AGAIN_S)
        except OSError as error:
            raise OutboxError(
                f"{location}: cannot be locked ({error}); outboxLocation needs a file system with flock"
            ) from error
    with contextlib.suppress(OSError):  # a full disk: it is held without a name
        write_line(lock, f"process {os.getpid()} on {socket.gethostname()}")


def load(path: Path) -> dict[str, Any] | None:
    """None where there is no such file.  Raises OutboxError."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise OutboxError(f"{path}: damaged; restore the whole directory, or give an empty outboxLocation")
    return document


def create(path: Path, document: Mapping[str, Any]) -> None:
    """At once or not at all, and never twice: who comes second finds the first one's.  Raises OSError."""
    fresh = _fresh(path, document)
    try:
        # link, not rename: it does not replace, even where two processes both believe that they hold the lock
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
    sync(path.parent)


def replace(path: Path, document: Mapping[str, Any]) -> None:
    """Durable when it returns.  Raises OSError."""
    _fresh(path, document).replace(path)
    sync(path.parent)


def _fresh(path: Path, document: Mapping[str, Any]) -> Path:
    """A file beside `path`, durable, to be renamed or linked."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with os.fdopen(file, "wb") as stream:
        stream.write(json.dumps(document, indent=1).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    return fresh


@contextlib.contextmanager
def explained(location: Path) -> Iterator[None]:
    """The operating system's errors as ones that a person can do something about."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what = "no room left in the outbox; make room and restart the query: nothing is published twice"
        else:
            what = (
                f"the outbox cannot be used ({error}); outboxLocation must be a directory that driver and executors "
                "share and may write, on a POSIX file system with hard links"
            )
        raise OutboxError(f"{location}: {what}") from error
