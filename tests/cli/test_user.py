"""`onceway user`."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from onceway.access.users import load_users
from tests.cli.conftest import called, onceway


def test_users_come_change_and_go(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    secret = tmp_path / "secret"
    secret.write_text("wonderland\nand nothing else\n")

    def user(*arguments: object, stdin: bytes = b"") -> str:
        done = called("user", *arguments, "--file", path, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert user("add", "alice", "--group", "ops", "--password-file", secret) == "added alice\n"
    assert user("add", "bob", "--password-file", "-", stdin=b"builder\n") == "added bob\n"
    assert user("list") == "alice\tops\nbob\n"
    assert load_users(path).matches("alice", "wonderland")
    assert load_users(path).matches("bob", "builder")
    assert user("password", "bob", "--password-file", "-", stdin=b"another\n") == "changed the password of bob\n"
    assert load_users(path).matches("bob", "another")
    assert user("groups", "bob", "ops", "sales") == "bob is in ops, sales\n"
    assert user("groups", "alice") == "alice is in no group\n"
    assert user("list") == "alice\nbob\tops,sales\n"
    assert user("remove", "alice") == "removed alice\n"
    assert user("list") == "bob\tops,sales\n"


def test_mistakes_are_named_and_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users.json"

    def refused(*arguments: object, stdin: bytes = b"") -> str:
        done = called("user", *arguments, "--file", path, stdin=stdin)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr.strip()

    assert refused("list") == f"users: {path} is not there; onceway user add NAME --file {path} makes it"
    assert refused("add", "alice", "--password-file", "-") == "standard input: there is no secret in the first line"
    assert refused("add", "alice") == "there is no terminal to ask at: give --password-file, - for standard input"
    assert not path.exists()
    assert called("user", "add", "alice", "--password-file", "-", "--file", path, stdin=b"x\n").returncode == 0
    before = path.read_bytes()
    assert refused("add", "alice", stdin=b"y\n").endswith("onceway user password gives another password")
    assert refused("remove", "alcie") == f"{path}: no user 'alcie'; did you mean \"alice\"?"
    bad = refused("password", "alice", "--password-file", "-", stdin="\u0000x\n".encode())
    assert bad.startswith("this password cannot be used: ")
    assert path.read_bytes() == before


def test_a_password_is_asked_for_twice_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    here, there = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "onceway", "user", "add", "alice", "--file", str(path)],
        stdin=there,
        stdout=subprocess.PIPE,
        stderr=there,
        start_new_session=True,
    )
    os.close(there)
    shown = b""
    for prompt in (b"Password of alice: ", b"Again: "):
        while prompt not in shown:
            shown += os.read(here, 1024)
        os.write(here, b"wonderland\n")
    out, _ = process.communicate(timeout=60)
    os.close(here)
    assert (process.returncode, out) == (0, b"added alice\n")
    assert b"wonderland" not in shown
    assert load_users(path).matches("alice", "wonderland")


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    names = [f"user{number}" for number in range(6)]

    def add(name: str) -> int:
        return onceway("user", "add", name, "--password-file", "-", "--file", path, stdin=b"x\n").returncode

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(add, names)) == [0] * 6
    assert sorted(load_users(path).by_name) == names
