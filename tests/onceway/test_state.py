"""The state directory, and what it remembers of a network's last life."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onceway import state
from onceway.base.private import make_directory
from onceway.errors import UsageError
from onceway.state.last_life import SLACK_S, Clocks, Heart, LastLife, clocks, last_life, lock, turns_ended


@pytest.mark.parametrize(
    ("environment", "uid", "expected"),
    [
        ({"ONCEWAY_STATE_DIR": "/elsewhere", "STATE_DIRECTORY": "/of/service"}, 0, "/elsewhere/net"),
        ({"STATE_DIRECTORY": "/of/service:/other"}, 1000, "/of/service/net"),
        ({}, 0, "/var/lib/onceway/net"),
        ({"XDG_STATE_HOME": "/xdg"}, 1000, "/xdg/onceway/net"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/who"}, 1000, "/home/who/.local/state/onceway/net"),
        ({"HOME": "/home/who"}, 1000, "/home/who/.local/state/onceway/net"),
    ],
)
def test_the_state_directory_is_below_the_first_place_that_is_given(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], uid: int, expected: str
) -> None:
    for name in ("ONCEWAY_STATE_DIR", "STATE_DIRECTORY", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert state.state_dir("net") == Path(expected)
    assert state.state_dir("net", Path("/given")) == Path("/given/net")


def test_the_state_directory_is_for_its_user_alone(tmp_path: Path) -> None:
    directory = state.state_dir("net", tmp_path / "above")
    make_directory(directory)
    make_directory(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


# --- memory


def heart(directory: Path, router: str = "a", routers: Sequence[str] = ("a",)) -> Heart:
    made = Heart(directory, "net", router, routers)
    made.begin()
    return made


def later(
    seconds: float, *, boot: str | None = None, since_boot_s: float | None = None, wall_s: float | None = None
) -> Clocks:
    now = clocks()
    return Clocks(
        now.boot if boot is None else boot,
        now.since_boot_s + seconds if since_boot_s is None else since_boot_s,
        now.wall_s + seconds if wall_s is None else wall_s,
    )


def age(directory: Path, now: Clocks, routers: Sequence[str] = ("a",)) -> float | None:
    return last_life(directory, routers, lambda: now).age_s


def about(seconds: float) -> Any:
    return pytest.approx(seconds - SLACK_S, abs=2.0)


def test_nothing_is_remembered_of_a_network_that_never_ran_here(tmp_path: Path) -> None:
    assert last_life(tmp_path / "missing", ["a"]) == LastLife(first=True)
    assert last_life(tmp_path, ["a"]) == LastLife(first=True)


def test_the_age_is_the_time_since_the_last_beat_of_the_router_that_lived_longest(tmp_path: Path) -> None:
    heart(tmp_path, "a", "ab").stopped()
    heart(tmp_path, "b", "ab").beat()
    life = last_life(tmp_path, "ab", lambda: later(100.0))
    assert life.age_s == about(100.0)
    assert not life.stopped
    heart(tmp_path, "b", "ab").stopped()
    assert last_life(tmp_path, "ab").stopped
    assert age(tmp_path, later(1.0), "ab") == 0.0, "less than the slack"


def test_a_router_that_was_alive_in_this_very_moment_was_not_alive_in_the_future(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = Clocks("boot", 1000.0006, 1_700_000_000.0006)
    monkeypatch.setattr("onceway.state.last_life.clocks", lambda: moment)
    heart(tmp_path).beat()
    assert age(tmp_path, moment) == 0.0


def test_in_the_same_boot_the_wall_clock_does_not_matter(tmp_path: Path) -> None:
    heart(tmp_path).beat()
    assert age(tmp_path, later(100.0, wall_s=0.0)) == about(100.0)
    assert age(tmp_path, later(100.0, wall_s=4e9)) == about(100.0)


def test_after_another_boot_the_age_is_at_most_the_time_since_that_boot(tmp_path: Path) -> None:
    heart(tmp_path).beat()
    assert age(tmp_path, later(100.0, boot="other", since_boot_s=9e6)) == about(100.0)
    assert age(tmp_path, later(1e6, boot="other", since_boot_s=20.0)) == about(20.0)


def test_a_wall_clock_that_went_back_makes_the_age_unknown(tmp_path: Path) -> None:
    heart(tmp_path).beat()
    life = last_life(tmp_path, ["a"], lambda: later(-100.0, boot="other", since_boot_s=20.0))
    assert (life.first, life.age_s) == (False, None)
    assert "the clock was set back" in life.problem


def test_a_router_that_ran_elsewhere_makes_the_age_unknown(tmp_path: Path) -> None:
    heart(tmp_path, "a", "ab").beat()
    for routers in ("ab", "a"):  # b is in the file no more, but was in the last one
        life = last_life(tmp_path, routers)
        assert life == LastLife(problem="b did not run on this host, and may have lived longer")


@pytest.mark.parametrize("size", [0, 1, 300, 511])
def test_a_file_that_was_cut_off_makes_the_age_unknown(tmp_path: Path, size: int) -> None:
    one = heart(tmp_path)
    os.truncate(one.path, size)
    life = last_life(tmp_path, ["a"])
    assert (life.first, life.age_s) == (False, None)
    assert life.problem == f"{one.path}: the file is damaged, or from another version"


@pytest.mark.parametrize("beats", [0, 1, 2])
def test_a_torn_write_leaves_the_beat_before_it(tmp_path: Path, beats: int) -> None:
    one = heart(tmp_path)
    for _ in range(beats):
        one.beat()
    data = one.path.read_bytes()
    half = len(data) // 2
    newest = 0 if beats % 2 == 0 else half
    for at in range(newest, newest + half, 41):
        one.path.write_bytes(data[:at] + b"\0\0\0" + data[at + 3 :])
        assert age(tmp_path, later(100.0)) == about(100.0)
    one.path.write_bytes(bytes(byte ^ 1 for byte in data))
    assert last_life(tmp_path, ["a"]).problem


def test_a_state_directory_that_cannot_be_read_makes_the_age_unknown(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.touch()
    assert last_life(place, ["a"]) == LastLife(problem=f"{place}: Not a directory")
    (tmp_path / "a.alive").mkdir()
    assert last_life(tmp_path, ["a"]) == LastLife(problem=f"{tmp_path / 'a.alive'}: Is a directory")


def test_a_beat_that_cannot_be_written_spoils_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the router would seem to have died when the disk failed."""
    one = heart(tmp_path)

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            one.beat()
        assert age(tmp_path, later(100.0)) is None
        with pytest.raises(OSError, match="No space left"):
            one.beat()
    one.beat()
    assert age(tmp_path, later(100.0)) == about(100.0)


def test_a_router_that_could_never_write_leaves_an_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has run: the next start is not the first one."""

    def full(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            heart(tmp_path)
    life = last_life(tmp_path, ["a"])
    assert (life.first, life.age_s) == (False, None)


def test_a_full_disk_takes_beats_as_long_as_the_file_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = heart(tmp_path)
    size = one.path.stat().st_size
    for _ in range(12):
        one.beat()
    assert one.path.stat().st_size == size
    one.know(["a", *(f"router-{number}" for number in range(100))])
    one.beat()
    assert one.path.stat().st_size > size
    assert "router-99" in last_life(tmp_path, ["a"]).problem


def test_a_router_is_run_once_with_a_state_directory(tmp_path: Path) -> None:
    held = lock(tmp_path, "net", ["a", "b"])
    with pytest.raises(
        UsageError, match=rf"process {os.getpid()} on this host runs router b already; stop it, or give"
    ):
        lock(tmp_path, "net", ["c", "b"])
    for descriptor in held:
        os.close(descriptor)
    for descriptor in lock(tmp_path, "net", ["b"]):
        os.close(descriptor)


def test_how_many_turns_have_ended_is_read_from_outside(tmp_path: Path) -> None:
    assert turns_ended(tmp_path, "a") is None
    made = heart(tmp_path)
    assert turns_ended(tmp_path, "a") == 0
    for turns in (7, 9_999_999_999):
        made.turns = turns
        made.beat()
        assert turns_ended(tmp_path, "a") == turns
    made.close()
    (tmp_path / "a.alive").write_bytes(b"")
    assert turns_ended(tmp_path, "a") is None
