"""A file of users: names, groups, and verifiers of passwords, from which no password can be read back.

`onceway user` keeps it, and routers read it (`sasl.users` of a topology file). It is JSON:

    {"secret": BASE64, "users": {NAME: {"groups": [NAME, ...], "verifiers": [TEXT, ...]}}}

Verifiers are in PostgreSQL's form, one for each mechanism of SCRAM. The secret makes up verifiers for names that nobody
has, so that names cannot be found out.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from amqp10.errors import EncodeError
from amqp10.sasl import ANONYMOUS_IDENTITY
from amqp10.scram import HASHES, Verifier, derive, parse_verifier, prepare
from onceway.base.private import let_read, open_file
from onceway.errors import UsageError
from router.json_text import write_json
from router.policies import EVERYONE

ITERATIONS: Final = 15_000  # RFC 7677 asks for as many: 5 ms for who knows the password
SALT_BYTES: Final = 16
SECRET_BYTES: Final = 32
NOBODYS: Final = {
    ANONYMOUS_IDENTITY: "routers call clients so that do not say who they are",
    EVERYONE: "policies call all users so",
}
"""Names that no user may have, and why."""
_PLAIN_HASH: Final = "SCRAM-SHA-256"  # whose verifier a password in plain text is compared with


@dataclass(frozen=True, slots=True)
class User:
    """One user; a name without a verifier cannot log in with a password."""

    verifiers: Mapping[str, Verifier] = field(repr=False)  # by mechanism, without -PLUS
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Users:
    """All of a file."""

    by_name: Mapping[str, User] = field(default_factory=dict)
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES), repr=False)

    def verifier(self, name: str, mechanism: str) -> Verifier:
        """What the mechanism needs of this user; for a name that nobody has, always the same, which no password
        matches."""
        user = self.by_name.get(name)
        if user is not None and mechanism in user.verifiers:
            return user.verifiers[mechanism]
        return self._made_up(name, mechanism)

    def matches(self, name: str, password: str) -> bool:
        """Whether this is the user's password. It takes as long for a name that nobody has."""
        return self.verifier(name, _PLAIN_HASH).matches(password)

    def groups(self, name: str) -> tuple[str, ...]:
        user = self.by_name.get(name)
        return user.groups if user is not None else ()

    def _made_up(self, name: str, mechanism: str) -> Verifier:
        def part(what: str) -> bytes:
            return hmac.digest(self.secret, f"{mechanism}:{what}:{name}".encode(), HASHES[mechanism])

        known = (each.iterations for user in self.by_name.values() for each in user.verifiers.values())
        iterations = next(known, ITERATIONS)  # as many as the others have, who may come from elsewhere
        return Verifier(mechanism, iterations, part("salt")[:SALT_BYTES], part("stored"), part("server"))


def with_password(password: str) -> dict[str, Verifier]:
    """Verifiers of a new password, each with a salt of its own. UsageError if it cannot be one."""
    try:
        return {name: derive(name, password, secrets.token_bytes(SALT_BYTES), ITERATIONS) for name in HASHES}
    except EncodeError as error:
        raise UsageError(f"this password cannot be used: {error}") from error


def user_name(text: str) -> str:
    """The name as routers compare it. UsageError if it cannot be one."""
    try:
        name = prepare(text)
    except EncodeError as error:
        raise UsageError(f"user {text!r:.60}: {error}") from error
    if name in NOBODYS:
        raise UsageError(f"user {name!r}: {NOBODYS[name]}; choose another name")
    return name


def load_users(path: Path, place: str = "users") -> Users:
    """Reads a file. `place` is where it is named, for errors.

    Raises:
        UsageError: It cannot be read, or is none; names the file and the place in it.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_Entries)
    except FileNotFoundError as error:
        raise UsageError(f"{place}: {path} is not there; onceway user add NAME --file {path} makes it") from error
    except OSError as error:
        raise UsageError(f"{place}: {path} cannot be read: {error.strerror}{let_read(error)}") from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{place}: {path} is no file of users: it is not JSON") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{place}: {path} is no file of users: line {error.lineno}: {error.msg}") from error
    except ValueError as error:
        raise UsageError(f"{place}: {path} is no file of users: {error}") from error
    try:
        return _read(document)
    except ValueError as error:
        raise UsageError(f"{place}: {path}: {error}") from error


def store_users(path: Path, users: Users) -> None:
    """Replaces the file as a whole. It keeps its owner, group and mode, so that routers that could read it still can; a
    new one is for its owner alone. OSError if it cannot be written, or its owner cannot be kept."""
    path = Path(os.path.realpath(path))  # a symbolic link stays one
    document = {
        "secret": b64encode(users.secret).decode(),
        "users": {
            name: {"groups": list(user.groups), "verifiers": [str(verifier) for verifier in user.verifiers.values()]}
            for name, user in sorted(users.by_name.items())
        },
    }
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        descriptor = open_file(new, os.O_WRONLY | os.O_EXCL)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(write_json(document, indent=1, ascii_only=False))
            file.write("\n")
            file.flush()
            with suppress(FileNotFoundError):
                before = path.stat()
                os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            os.fsync(file.fileno())
        os.replace(new, path)
    except BaseException:
        with suppress(FileNotFoundError):
            new.unlink()
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


class _Entries(dict[str, Any]):
    """A mapping of the file. Of a key that is there twice JSON's reader would take the last without a word."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice: str | None = None  # a key
        if len(self) < len(pairs):
            ((self.twice, _),) = Counter(key for key, _ in pairs).most_common(1)

    def check(self, place: str, known: Sequence[str] | None = None) -> None:
        """ValueError where a key is there twice, or is none of these."""
        place = place and f"{place}."
        if self.twice is not None:
            raise ValueError(f"{place}{self.twice}: is there twice; leave one of them out")
        unknown = [key for key in self if known is not None and key not in known]
        if unknown:
            raise ValueError(f"{place}{unknown[0]}: is unknown; known are {', '.join(known or ())}")


def _read(document: Any) -> Users:
    if not isinstance(document, _Entries) or not isinstance(document.get("users"), _Entries):
        raise ValueError('no file of users: it has no "users"')
    document.check("", ("secret", "users"))
    document["users"].check("users")
    try:
        secret = b64decode(document.get("secret", ""), validate=True)
    except (TypeError, Base64Error, ValueError):
        secret = b""
    if len(secret) < SECRET_BYTES:
        raise ValueError(f"secret: not {SECRET_BYTES} bytes in base64")
    return Users({name: _read_user(name, item) for name, item in document["users"].items()}, secret)


def _read_user(name: str, item: Any) -> User:
    place = f"users.{name}"
    if user_name(name) != name:
        raise ValueError(f"{place}: written as {user_name(name)!r}")
    if not isinstance(item, _Entries):
        raise ValueError(f"{place}: not a mapping with groups and verifiers")
    item.check(place, ("groups", "verifiers"))
    verifiers: dict[str, Verifier] = {}
    for index, text in enumerate(_texts(item.get("verifiers", []), f"{place}.verifiers")):
        try:
            verifier = parse_verifier(text)
        except ValueError as error:
            raise ValueError(f"{place}.verifiers[{index}]: {error}") from error
        verifiers[verifier.mechanism] = verifier
    return User(verifiers, tuple(_texts(item.get("groups", []), f"{place}.groups")))


def _texts(given: Any, place: str) -> Sequence[str]:
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise ValueError(f"{place}: not a list of texts")
    return given
