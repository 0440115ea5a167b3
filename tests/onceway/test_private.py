"""What the product makes is for its owner alone, whatever the umask is, and what others may read of it is refused."""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from edges.queue.codec import Kept
from edges.store import StoreError
from edges.store.sqlite_file import lock, open_file
from onceway.base import private
from onceway.base.private import check_private, let_read, make_directory, make_file, others_reach
from onceway.cli import cli
from onceway.client.sqlite_journal import SqliteJournal
from onceway.errors import UsageError
from onceway.state import last_life
from tests.running import ROOT

ELSEWHERE = {
    "onceway/base/logs.py": "the log has no secrets, and a group may read it",
    "onceway/cli/render.py": "what is rendered has no secrets",
    "onceway/demo/lake.py": "a demonstration's messages",
    "onceway/demo/pipeline.py": "a demonstration's messages",
    "onceway/demo/secure.py": "writes into files that are private already",
    "onceway/demo/story.py": "a demonstration's topology file",
    "onceway/spark": "Spark's processes may be other users: the directory's owner says who reads it",
    "onceway/base/private.py": "here",
    "onceway/conformance/child.py": "what a client under test says, in a directory of mkdtemp",
    "onceway/conformance/checks.py": "a client under test keeps its state there, in a directory of mkdtemp",
    "edges/store/sqlite_file.py": "opens what is made here",
    "onceway/client/sqlite_journal.py": "opens what is made here",
    "edges/queue/codec.py": "opens what is made here",
}
"""Where files are made by other means, and why."""


@pytest.fixture(params=[0, 0o177, 0o777], ids=oct)
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def makes_files(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    text = ast.unparse(call)
    if name in ("mkdir", "makedirs", "write_text", "write_bytes", "touch"):
        return True
    if "sqlite3.connect" in ast.unparse(call.func):  # also where a row of `waits` hands it on
        return True
    mode = [each.value for each in (*call.args, *(k.value for k in call.keywords)) if isinstance(each, ast.Constant)]
    return name == "open" and ("O_CREAT" in text or any(m in ("w", "a", "x", "wb", "ab", "xb", "w+b") for m in mode))


def test_everything_that_makes_files_makes_them_private_or_says_why_not() -> None:
    found = set()
    for path in [path for room in ("onceway", "edges") for path in (ROOT / room).rglob("*.py")]:
        if any(isinstance(node, ast.Call) and makes_files(node) for node in ast.walk(ast.parse(path.read_text()))):
            name = str(path.relative_to(ROOT))
            found.add("onceway/spark" if name.startswith("onceway/spark/") else name)
    assert found == set(ELSEWHERE)


def a_store(directory: Path) -> None:
    descriptor = lock(directory / "store")
    database = open_file(directory / "store", None)
    database.execute("INSERT INTO keys VALUES ('k', x'00', 0)")
    assert {path.name for path in directory.iterdir()} >= {"store", "store-wal", "store.lock"}
    database.close()
    os.close(descriptor)


def a_journal(directory: Path) -> None:
    journal = SqliteJournal(directory / "journal")
    journal.open("c", lambda: None)
    journal.close()


def a_member(directory: Path) -> None:
    Kept(directory / "member")


def users(directory: Path) -> None:
    arguments = ["user", "add", "alice", "--file", str(directory / "users.json"), "--password-file", "-"]
    assert CliRunner().invoke(cli, arguments, input="secret\n").exit_code == 0


def a_state(directory: Path) -> None:
    for descriptor in last_life.lock(directory, "n", ["a"]):
        os.close(descriptor)


@pytest.mark.usefixtures("any_umask")
@pytest.mark.parametrize("made", [a_store, a_journal, a_member, users, a_state])
def test_what_is_made_under_any_umask_is_for_its_owner_alone(made: Callable[[Path], None], tmp_path: Path) -> None:
    make_directory(tmp_path / "new" / "data")
    made(tmp_path / "new" / "data")
    paths = list((tmp_path / "new").rglob("*"))
    assert any(path.is_file() for path in paths)
    expected = {str(path): 0o700 if path.is_dir() else 0o600 for path in paths}
    assert {str(path): mode_of(path) for path in paths} == expected


@pytest.mark.parametrize(("mode", "refused"), [(0o600, 0), (0o440, 0), (0o640, 0), (0o660, 0), (0o644, 1), (0o602, 1)])
def test_what_others_may_read_or_write_is_refused_and_a_groups_right_is_not(
    mode: int, refused: int, tmp_path: Path
) -> None:
    path, link = tmp_path / "key", tmp_path / "link"  # as Kubernetes mounts it
    make_file(path)
    path.chmod(mode)
    link.symlink_to(path)
    if not refused:
        check_private([link, tmp_path / "missing"])
        return
    with pytest.raises(UsageError, match=rf"{link} has secrets, and everyone.*chmod o-rwx"):
        check_private([link])


def test_a_secret_in_a_directory_that_may_not_be_entered_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(self: Path, **_: object) -> None:  # root enters all
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "stat", stat)
    with pytest.raises(UsageError, match=r"/keys/users.json: Permission denied; let the account"):
        check_private([Path("/keys/users.json")])


def test_who_may_not_read_a_file_is_named_with_groups_that_it_can_be_given_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 63941)  # as systemd makes accounts: it has no name here
    monkeypatch.setattr(os, "getegid", lambda: 63941)
    monkeypatch.setattr(os, "getgroups", lambda: [63941, 1])
    assert let_read(PermissionError()) == "; let user 63941 read it, or a group of that user: 63941, daemon"
    assert not let_read(FileNotFoundError())


def test_the_refusal_of_a_secret_names_the_settings_of_what_mounts_it_as_the_page_has_them(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    path = tmp_path / "key.pem"
    path.touch()
    path.chmod(0o444)  # as Swarm mounts it
    with pytest.raises(UsageError) as refused:
        check_private([path])
    for setting in ("defaultMode", "fsGroup", "mode=0400", "agent-inject-perms", "filePermission"):
        assert setting in str(refused.value)
        assert setting in page


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_store_that_others_may_read_is_closed_off_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As v0.9.0 has made it, also by a process that has died: no hand is needed."""
    store, log = tmp_path / "store", tmp_path / "store-wal"
    open_file(store, None).close()
    for each in (store, log):
        each.touch()
        each.chmod(0o646)
    tmp_path.chmod(0o700)
    open_file(store, None).close()
    assert mode_of(store) == 0o646, "nobody gets there"
    monkeypatch.setattr(private, "_enterable", lambda path: True)  # the directories above are their user's own
    log.touch()
    log.chmod(0o646)
    open_file(store, None).close()
    assert mode_of(store) == 0o640
    told = [each.getMessage() for each in caplog.records]
    assert [each.partition(":")[0] for each in told] == [str(store), str(log)]
    open_file(store, None).close()
    assert len(caplog.records) == len(told)


def test_a_store_whose_modes_are_not_ours_to_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chmod(self: Path, mode: int) -> None:  # root may change all
        raise PermissionError(1, "Operation not permitted", str(self))

    store = tmp_path / "store"
    open_file(store, None).close()
    store.chmod(0o644)
    monkeypatch.setattr(private, "_enterable", lambda path: True)
    monkeypatch.setattr(Path, "chmod", chmod)
    with pytest.raises(StoreError, match=rf"{store}: everyone.*not permitted.*chmod o-rwx {store}\* as their owner"):
        open_file(store, None)


def test_journals_and_members_of_before_are_closed_off_and_go_on_where_they_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "_enterable", lambda path: True)
    path = tmp_path / "journal"
    path.touch()
    path.chmod(0o644)
    make_file(path)
    assert mode_of(path) == 0o640
    path.chmod(0o644)
    monkeypatch.setattr(Path, "chmod", lambda self, mode: os.chmod("/nowhere", mode))
    make_file(path)


def test_a_directory_that_others_can_enter_shows_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        path = Path(directory) / "file"
        path.touch()
        path.chmod(0o644)
        for mode, reached in ((0o700, False), (0o711, True)):
            Path(directory).chmod(mode)
            assert others_reach(path) is reached
