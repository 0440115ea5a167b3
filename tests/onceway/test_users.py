"""The file of users."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from amqp10.scram import HASHES, derive
from onceway.access.users import ITERATIONS, User, Users, load_users, store_users, user_name, with_password
from onceway.base.private import let_read
from onceway.errors import UsageError


def alice() -> Users:
    return Users({"alice": User(with_password("wonderland"), ("ops", "sales"))})


def test_what_is_stored_is_read_again_and_has_no_password(tmp_path: Path) -> None:
    users, path = alice(), tmp_path / "users.json"
    store_users(path, users)
    assert load_users(path) == users
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "wonderland" not in path.read_text()
    assert list(tmp_path.iterdir()) == [path]


def test_only_the_right_password_matches() -> None:
    users = alice()
    assert users.matches("alice", "wonderland")
    assert not users.matches("alice", "Wonderland")
    assert not users.matches("bob", "wonderland")
    assert users.groups("alice") == ("ops", "sales")
    assert users.groups("bob") == ()


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_name_that_nobody_has_looks_like_one_that_somebody_has(mechanism: str) -> None:
    users = alice()
    known, unknown = users.verifier("alice", mechanism), users.verifier("bob", mechanism)
    assert (unknown.mechanism, unknown.iterations) == (known.mechanism, known.iterations)
    assert len(unknown.salt) == len(known.salt)
    assert unknown == users.verifier("bob", mechanism)
    assert unknown.salt != users.verifier("carol", mechanism).salt
    assert unknown.salt != Users().verifier("bob", mechanism).salt


def test_names_are_compared_as_sasl_prepares_them() -> None:
    assert user_name("al\u00adice") == "alice"  # a soft hyphen is not seen
    with pytest.raises(UsageError, match="characters that SASL does not allow"):
        user_name("a\nb")
    with pytest.raises(UsageError, match="more than 255 bytes; choose a shorter one"):
        user_name("a" * 256)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "line 1: Expecting property name"),
        ("[]", 'it has no "users"'),
        ('{"users": {}}', "secret: not 32 bytes in base64"),
        ('{"users": {}, "secret": 3}', "secret: not 32 bytes in base64"),
        ('{"users": {"a": 3}, "secret": "SECRET"}', "users.a: not a mapping with groups and verifiers"),
        ('{"users": {"a": {"groups": "ops"}}, "secret": "SECRET"}', "users.a.groups: not a list of texts"),
        ('{"users": {"a": {"verifiers": ["x"]}}, "secret": "SECRET"}', "users.a.verifiers[0]: no verifier of SCRAM"),
        ('{"users": {"a\\u00adb": {}}, "secret": "SECRET"}', "written as 'ab'"),
        (
            '{"users": {"a": {}, "b": {}, "a": {}}, "secret": "SECRET"}',
            "users.a: is there twice; leave one of them out",
        ),
        ('{"users": {"a": {"groups": [], "groups": []}}, "secret": "SECRET"}', "users.a.groups: is there twice"),
        ('{"users": {}, "secret": "SECRET", "users": {}}', "users: is there twice"),
        (
            '{"users": {"a": {"group": ["ops"]}}, "secret": "SECRET"}',
            "users.a.group: is unknown; known are groups, ver",
        ),
        ('{"users": {}, "secret": "SECRET", "user": {}}', "user: is unknown; known are secret, users"),
        ('{"users": {"*": {}}, "secret": "SECRET"}', "user '*': policies call all users so; choose another name"),
        ('{"users": {"a": {"verifiers": ["COSTLY"]}}, "secret": "SECRET"}', "4096 to 1000000 iterations"),
        ('{"users": ' + "9" * 5_000 + "}", "Exceeds the limit"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_a_broken_file_is_named_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "users.json"
    costly = str(replace(derive("SCRAM-SHA-256", "pencil", b"salt" * 4, 4_096), iterations=10_000_000))
    path.write_text(text.replace("SECRET", "A" * 43 + "=").replace("COSTLY", costly))
    with pytest.raises(UsageError) as caught:
        load_users(path, "net.yaml: sasl.users")
    assert str(caught.value).startswith(f"net.yaml: sasl.users: {path}")
    assert said in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to another user")
def test_a_file_that_root_replaces_stays_its_owner_s(tmp_path: Path) -> None:
    """Routers that are not root's go on reading it."""
    path, link = tmp_path / "users.json", tmp_path / "link.json"
    store_users(path, Users())
    os.chown(path, 65534, 65533)
    path.chmod(0o640)
    link.symlink_to(path)
    store_users(link, alice())
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65534, 65533, 0o640)
    assert link.is_symlink()
    assert load_users(link) == load_users(path)


def test_who_cannot_read_a_file_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UsageError) as caught:
        load_users(tmp_path / "users.json", "net.yaml: sasl.users")
    said = f"net.yaml: sasl.users: {tmp_path}/users.json cannot be read: Permission denied"
    assert str(caught.value) == said + let_read(PermissionError())


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        store_users(path, alice())
    assert list(tmp_path.iterdir()) == [path]
    assert json.dumps(list(path.iterdir())) == "[]"


def test_a_name_that_nobody_has_has_the_iterations_of_those_that_somebody_has() -> None:
    """A client is told them before it has shown anything."""
    theirs = {name: derive(name, "pencil", b"salt" * 4, 4_096) for name in HASHES}
    users = Users({"nopassword": User({}), "alice": User(theirs)})
    assert {users.verifier(name, "SCRAM-SHA-256").iterations for name in ("alice", "nobody", "nopassword")} == {4_096}
    assert Users().verifier("nobody", "SCRAM-SHA-256").iterations == ITERATIONS
