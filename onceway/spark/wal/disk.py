"""What the writing side asks of a disk, so that tests can take it away at every step; and what its errors mean.

Readers use the operating system directly: a read that fails harms nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TypeAlias

from onceway.spark.wal.errors import WalError, WalFull

Octets: TypeAlias = bytes | bytearray | memoryview

_AT_ONCE = 64  # buffers in one system call; Linux takes 1024


class Disk:
    """The primitives.  All raise OSError."""

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def open(self, path: str, *, empty: bool = False) -> int:
        """For writing at any place; made where it is not there, emptied if asked."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if empty else 0), 0o644)

    def write(self, file: int, parts: Sequence[Octets], offset: int) -> None:
        """All of the parts, one behind the other."""
        views = [memoryview(part).cast("B") for part in parts]
        while views:
            written = os.pwritev(file, views[:_AT_ONCE], offset)
            offset += written
            while views and written >= len(views[0]):
                written -= len(views[0])
                del views[0]
            if views:
                views[0] = views[0][written:]

    def sync(self, file: int) -> None:
        os.fdatasync(file)

    def close(self, file: int) -> None:
        os.close(file)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        """What was created, renamed or removed in it is durable."""
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(file)
        finally:
            os.close(file)

    def replace(self, path: str, data: bytes) -> None:
        """The whole file, durably: whoever opens it finds the old octets or the new ones."""
        fresh = f"{path}.new"
        file = self.open(fresh, empty=True)  # an earlier life may have died here
        try:
            self.write(file, [data], 0)
            self.sync(file)
        finally:
            self.close(file)
        self.rename(fresh, path)
        self.sync_directory(os.path.dirname(path))


def explain(error: OSError, path: str, doing: str) -> WalError:
    """The error as one that a person can do something about."""
    place = error.filename or path
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WalFull(
            f"{place}: no room left {doing} ({reason}); make room and start again: what is not in the log was not "
            "accepted and comes again"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return WalError(f"{place}: {reason} {doing}; let this user write to walLocation, or give another one")
    if error.errno == errno.EIO:
        return WalError(
            f"{place}: the disk failed {doing} ({reason}); check it, then start again: what is not in the log was "
            "not accepted and comes again"
        )
    return WalError(f"{place}: {reason} {doing}; what is not in the log was not accepted: start again once it works")
