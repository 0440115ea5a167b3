"""`onceway user`: the users that routers know, in a file of verifiers (`sasl.users` of a topology file).

Passwords are read from a prompt or a file, never from the command line, which others can see.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from onceway.access.secrets import read_secret
from onceway.base import locks, waits
from onceway.errors import UsageError

if TYPE_CHECKING:
    from onceway.access.users import Users

DEFAULT_FILE: Final = "users.json"

file_option: Final = click.option(
    "--file",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=lambda: os.environ.get("ONCEWAY_USERS", DEFAULT_FILE),
    show_default=f"$ONCEWAY_USERS or {DEFAULT_FILE}",
    help="The file of users.",
)
password_option: Final = click.option(
    "--password-file",
    type=click.Path(dir_okay=False, allow_dash=True),
    help="Read the password from this file's first line; - is standard input. Default: ask for it.",
)


@click.group(name="user")
def command() -> None:
    """Keep the file of users that routers let in.

    A running router follows the file on `onceway reload`.
    """


@command.command()
@click.argument("name")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group that the user is in. Repeat it.")
@password_option
@file_option
def add(name: str, groups: tuple[str, ...], password_file: str | None, path: Path) -> None:
    """Add a user; the first one makes the file."""
    from onceway.access.users import User, Users, user_name, with_password

    name = user_name(name)
    with _changing(path, new=True) as (users, store):
        if name in users.by_name:
            raise UsageError(f"{path}: there is a user {name!r}; onceway user password gives another password")
        user = User(with_password(read_secret(f"Password of {name}: ", password_file, new=True)), groups)
        store(Users({**users.by_name, name: user}, users.secret))
    click.echo(f"added {name}")


@command.command()
@click.argument("name")
@password_option
@file_option
def password(name: str, password_file: str | None, path: Path) -> None:
    """Give a user another password."""
    from onceway.access.users import Users, with_password

    with _changing(path) as (users, store):
        name = _known(users, name, path)
        verifiers = with_password(read_secret(f"New password of {name}: ", password_file, new=True))
        store(Users({**users.by_name, name: replace(users.by_name[name], verifiers=verifiers)}, users.secret))
    click.echo(f"changed the password of {name}")


@command.command()
@click.argument("name")
@click.argument("groups", nargs=-1)
@file_option
def groups(name: str, groups: tuple[str, ...], path: Path) -> None:
    """Put a user in these groups, and in no others."""
    from onceway.access.users import Users

    with _changing(path) as (users, store):
        name = _known(users, name, path)
        store(Users({**users.by_name, name: replace(users.by_name[name], groups=groups)}, users.secret))
    click.echo(f"{name} is in {', '.join(groups) or 'no group'}")


@command.command()
@click.argument("name")
@file_option
def remove(name: str, path: Path) -> None:
    """Remove a user. A reload closes the user's connections."""
    from onceway.access.users import Users

    with _changing(path) as (users, store):
        name = _known(users, name, path)
        store(Users({each: user for each, user in users.by_name.items() if each != name}, users.secret))
    click.echo(f"removed {name}")


@command.command(name="list")
@file_option
def list_(path: Path) -> None:
    """List the users and their groups."""
    from onceway.access.users import load_users

    for name, user in sorted(load_users(path).by_name.items()):
        click.echo(f"{name}\t{','.join(user.groups)}".rstrip())


class _Store:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, users: Users) -> None:
        from onceway.access.users import store_users

        try:
            store_users(self._path, users)
        except OSError as error:
            remedy = "; run this as its owner, or as root" if isinstance(error, PermissionError) else ""
            raise UsageError(f"{self._path} cannot be written: {error.strerror}; it is as it was{remedy}") from error


@contextmanager
def _changing(path: Path, *, new: bool = False) -> Iterator[tuple[Users, _Store]]:
    """The users, and what stores them; one command at a time. new: the file may be missing."""
    from onceway.access.users import Users, load_users

    try:  # the directory is the lock: a file of its own would belong to whoever came first
        descriptor = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"{path}: {path.resolve().parent}: {error.strerror}") from error
    try:
        try:
            locks.take(descriptor, waits.USERS_LOCK, path)
        except TimeoutError as error:
            raise UsageError(str(error)) from None
        yield (Users() if new and not path.exists() else load_users(path)), _Store(path)
    finally:
        os.close(descriptor)


def _known(users: Users, name: str, path: Path) -> str:
    from onceway.access.users import user_name
    from onceway.topology.document import suggest

    name = user_name(name)
    if name not in users.by_name:
        remedy = suggest(name, sorted(users.by_name), "there are")
        raise UsageError(f"{path}: no user {name!r}{f'; {remedy}' if remedy else ''}")
    return name
