"""Files for the owner alone: whatever the umask is, nobody else reads what is made here, and what others may read of
secrets and stores is refused.

All that the product makes and that may hold a secret or a message is made by these functions. What an earlier version
has made otherwise is mended where this process owns it, so that an upgrade needs no hand; the secrets that somebody
gives us are his to mend. SQLite gives the files beside a database the database's mode. A group's right is the
operator's word, and stands: Kubernetes mounts secrets so (`fsGroup`, modes 0440 and 0640).
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from onceway.base.logs import logger
from onceway.errors import UsageError

FILE: Final = 0o600
DIRECTORY: Final = 0o700
_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH


def make_directory(path: Path) -> None:
    """Makes a directory, and those above it, where they are not there. OSError if that cannot be done."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was there first
            each.mkdir(mode=DIRECTORY)
            each.chmod(DIRECTORY)  # an umask such as 0177 takes from its owner what he needs
    path.mkdir(mode=DIRECTORY, exist_ok=True)  # FileExistsError: it is none


def open_file(path: str | os.PathLike[str], flags: int) -> int:
    """A descriptor of a file that is made where it is not there. flags: as of `os.open`, beside O_CREAT and
    O_CLOEXEC. OSError if that cannot be done."""
    flags |= os.O_CREAT | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | os.O_EXCL, FILE)
    except FileExistsError:
        if flags & os.O_EXCL:
            raise
        return os.open(path, flags, FILE)
    os.fchmod(descriptor, FILE)  # an umask may have taken from its owner what he needs
    return descriptor


def make_file(path: str | os.PathLike[str]) -> None:
    """Makes an empty file where there is none, for whoever opens it by name. One that is there is not opened: closing
    it would drop the locks that this process has on it (POSIX), as SQLite's. It is closed to others as by `close_off`,
    if that can be done. OSError if it cannot be made."""
    try:
        os.close(open_file(os.path.realpath(path), os.O_RDONLY | os.O_EXCL))  # O_EXCL follows no link
    except FileExistsError:
        with contextlib.suppress(OSError):
            close_off(Path(path))


def close_off(path: Path) -> None:
    """Takes from everybody on this host but owner and group what they may do with a file of ours that they can get at,
    as version 0.9.0 has made it, and says so in the log. OSError if that cannot be done."""
    if others_reach(path):
        path.chmod(stat.S_IMODE(path.stat().st_mode) & ~stat.S_IRWXO)
        text = "{file}: everyone on this host could read or change it; now its owner and group can"
        logger("files").warning("file_closed_off", text, file=str(path))


def check_private(paths: Iterable[Path]) -> None:
    """Looks at those of these files that are there. Their own mode counts, as with ssh's keys: a directory that nobody
    else can enter today says nothing of tomorrow's copy.

    Raises:
        UsageError: Everybody on this host may read or write one of them, or its directory may not be entered. Names it,
            and the remedy.
    """
    for path in paths:
        try:
            mode = path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}; let the account that reads it enter its directory") from error
        if stat.S_ISREG(mode) and mode & _OTHERS:
            raise UsageError(
                f"{path} has secrets, and everyone on this host can read or change it: chmod o-rwx {path}, or the "
                "setting of what mounts it: Kubernetes defaultMode 0440 with fsGroup, Swarm mode=0400 with uid, Vault "
                "agent-inject-perms, CSI filePermission (docs/security.md, Files)"
            )


def let_read(error: OSError) -> str:
    """What mends a file that this process may not read, to be put behind what is wrong; empty where that is not it.
    Its groups are named too: systemd makes the account of a unit, and no file can be given to that."""
    if not isinstance(error, PermissionError):
        return ""
    groups = dict.fromkeys(_named(grp.getgrgid, each) for each in (os.getegid(), *sorted(os.getgroups())))
    return f"; let user {_named(pwd.getpwuid, os.geteuid())} read it, or a group of that user: {', '.join(groups)}"


def others_reach(path: Path) -> bool:
    """Says whether everybody on this host may read or write a file, and can get there."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return bool(mode & _OTHERS) and _enterable(path)


def _enterable(path: Path) -> bool:
    """Says whether everybody on this host may enter the directories above."""
    return all(each.stat().st_mode & stat.S_IXOTH for each in Path(os.path.realpath(path)).parents)


def _named(find: Callable[[int], tuple[Any, ...]], number: int) -> str:
    try:
        return str(find(number)[0])
    except KeyError:
        return str(number)
