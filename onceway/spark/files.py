"""Durable files: the disk's primitives, small JSON documents replaced as a whole, and a lock that names its holder.

The log and the outbox write through `Disk`, so that tests can fail or cut off a write at every step.  Reading uses the
operating system directly: a read that fails harms nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import socket
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from onceway.base import waits
from onceway.errors import OncewayError
from router.json_text import write_json

BytesLike: TypeAlias = bytes | bytearray | memoryview
PathLike: TypeAlias = str | os.PathLike[str]

_BUFFERS: Final = 64  # in one system call; Linux takes 1024
_RETRY_S: Final = 0.05
_LONGEST_LINE: Final = 1000
_CHECKSUM: Final = "crc32"
_UNFINISHED: Final = ".new"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")


def local_path(text: str) -> str | None:
    """The absolute path of a path or a file: URL; None for other URLs (s3a://bucket, dbfs:/mnt)."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return os.path.abspath(text)
    return os.path.abspath(unquote(urlsplit(text).path)) if scheme[1].lower() == "file" else None


def is_bucket(location: str) -> bool:
    """Whether it is a place in an object store."""
    return location.startswith("s3://")


class Disk:
    """The primitives.  All raise OSError."""

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def open(self, path: str, *, empty: bool = False) -> int:
        """Opens for writing at any position; creates a missing file, empties an existing one if asked."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if empty else 0), 0o644)

    def write(self, file: int, parts: Sequence[BytesLike], offset: int) -> None:
        """Writes all parts, one after the other."""
        views = [memoryview(part).cast("B") for part in parts]
        while views:
            written = os.pwritev(file, views[:_BUFFERS], offset)
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
        """Makes durable what was created, renamed or removed in it."""
        sync_path(path)

    def replace(self, path: PathLike, data: bytes) -> None:
        """Writes the whole file durably: a reader finds the old bytes or the new ones, as do two writers."""
        path = os.fspath(path)
        fresh = f"{path}.{_unique()}"
        try:
            self._write_whole(fresh, data)
            self.rename(fresh, path)
        except OSError:
            with contextlib.suppress(OSError):
                self.remove(fresh)
            raise
        self.sync_directory(os.path.dirname(path))

    def swap(self, path: PathLike, old: bytes | None, data: bytes) -> bool:
        """`replace`, or creation, where the file still has the bytes `old` (None: is not there); False where not.

        Of several that try one succeeds, without locks, and however long each stands still in between: a writer first
        puts its bytes beside the file, then removes what others have put there, then looks, then renames.  Of two, the
        later one to remove finds the file renamed by the other, or has taken from the other what it would rename.
        """
        path = os.fspath(path)
        fresh = f"{path}.{_unique()}"
        self._write_whole(fresh, data)
        self._remove_others(path, fresh)
        if self._read(path) != old:
            with contextlib.suppress(FileNotFoundError):
                self.remove(fresh)
            return False
        try:
            self.rename(fresh, path)
        except FileNotFoundError:
            return False
        self.sync_directory(os.path.dirname(path))
        return True

    def _remove_others(self, path: str, fresh: str) -> None:
        directory, name = os.path.split(path)
        remove_unfinished(directory, f"{name}.", self, but=os.path.basename(fresh))

    def _read(self, path: str) -> bytes | None:
        try:
            with open(path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def create(self, path: PathLike, data: bytes) -> None:
        """Writes a whole new file durably; an existing one stays as it is."""
        fresh = f"{path}.{_unique()}"
        self._write_whole(fresh, data)
        try:
            # link, not rename: it does not replace, even where two processes both believe that they hold the lock
            with contextlib.suppress(FileExistsError):
                os.link(fresh, path)
        finally:
            self.remove(fresh)
        self.sync_directory(os.path.dirname(path))

    def _write_whole(self, path: str, data: bytes) -> None:
        file = self.open(path)
        try:
            self.write(file, [data], 0)
            self.sync(file)
        finally:
            self.close(file)


def sync_path(path: PathLike) -> None:
    """fsync of a file or directory by name.  Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _unique() -> str:
    return f"{secrets.token_hex(4)}{_UNFINISHED}"


def remove_unfinished(
    directory: PathLike, documents: str | tuple[str, ...] = "", disk: Disk | None = None, but: str = ""
) -> None:
    """Removes what dead writers had not renamed, of all documents whose names begin so.  Raises OSError."""
    for name in os.listdir(directory):
        if name.startswith(documents) and name.endswith(_UNFINISHED) and name != but:
            with contextlib.suppress(FileNotFoundError):
                (disk or Disk()).remove(os.path.join(directory, name))


# -- small documents


@dataclass(frozen=True, slots=True)
class Documents:
    """How one kind of JSON document is kept: what a damaged one raises, and whether each carries a checksum."""

    error: type[OncewayError]
    remedy: str  # for a damaged one
    checksum: bool = False

    def write(self, path: PathLike, content: Mapping[str, Any], disk: Disk | None = None) -> None:
        """Replaces the document durably.  Raises OSError."""
        (disk or Disk()).replace(path, self.dump(content))

    def create(self, path: PathLike, content: Mapping[str, Any]) -> None:
        """Creates the document durably, unless there is one: the first writer wins.  Raises OSError."""
        Disk().create(path, self.dump(content))

    def dump(self, content: Mapping[str, Any]) -> bytes:
        if self.checksum:
            content = {**content, _CHECKSUM: _crc(content)}
        return write_json(content, indent=1).encode() + b"\n"

    def read(self, path: PathLike) -> dict[str, Any] | None:
        """The content; None where there is no file.  Raises `error`, OSError."""
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return None
        return self.parse(path, data)

    def parse(self, path: PathLike, data: bytes) -> dict[str, Any]:
        """The content of a document's bytes; path: for the error.  Raises `error`."""
        try:
            content = json.loads(data)
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise self.damaged(path)
        if self.checksum and content.pop(_CHECKSUM, None) != _crc(content):
            raise self.damaged(path)
        return content

    def damaged(self, path: PathLike, how: object = "not a JSON document that onceway wrote") -> OncewayError:
        """An error to raise for a document whose content is not what was written."""
        return self.error(f"{path}: damaged, or edited by hand ({how}); {self.remedy}")


def _crc(content: Mapping[str, Any]) -> int:
    return zlib.crc32(write_json(content, sort_keys=True).encode())


# -- locks


class LockHeld(Exception):
    """Another process holds the lock; `holder` names it."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}


def process_name(who: Mapping[str, Any]) -> str:
    """What `this_process` has said, for people.  Raises KeyError."""
    return f"process {who['pid']} on {who['host']} (since {who['since']})"


class Lock:
    """flock on a file whose first line names the holder.  `release` frees it, as does the end of the process."""

    def __init__(self, path: PathLike, timeout_s: float) -> None:
        """Waits for up to timeout_s.  Raises LockHeld, OSError."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(time.monotonic() + timeout_s)
        except BaseException:
            self.release()
            raise

    def _take(self, deadline: float) -> None:
        while True:
            try:
                waits.LOG_LOCK(fcntl.flock)(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # flock has no timeout, and a signal would interrupt the whole process: poll
                if time.monotonic() >= deadline:
                    raise LockHeld(_holder(self._file)) from None
                time.sleep(_RETRY_S)
        with contextlib.suppress(OSError):  # on a full disk it is held without a name; the next write reports the disk
            write_line(self._file, write_json(this_process()))

    def release(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def locked_by(path: PathLike) -> str:
    """Who has the lock, for people; empty: nobody.  Raises OSError."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for a moment: `_take` tries again
        return ""
    except BlockingIOError:
        return _holder(lock)
    finally:
        os.close(lock)


def _holder(lock: int) -> str:
    try:
        return process_name(json.loads(read_line(lock)))
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def write_line(lock: int, line: str) -> None:
    """Writes the first line, which another process may read at any moment.  Raises OSError."""
    # not emptied first: a concurrent reader finds the earlier holder's line or this one
    data = line.encode() + b"\n"
    os.pwrite(lock, data, 0)
    os.ftruncate(lock, len(data))


def read_line(lock: int) -> str:
    """The first line, empty in a new file.  Any bytes after it are the rest of an earlier, longer line."""
    return os.pread(lock, _LONGEST_LINE, 0).partition(b"\n")[0].decode(errors="replace")
