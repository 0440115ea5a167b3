"""The topology file last checked: who comes back with it, and who does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onceway.state.checked_file import after_a_death, keep, kept_path, load_kept
from onceway.state.last_life import Heart
from onceway.topology import Topology, load

TEXT = """\
network: shop
defaults: {host: 127.0.0.1}
routers:
  a: {amqp: 5672, interrouter: 7671, admin: 8671}
  b: {amqp: 5673, interrouter: 7672, admin: 8672}
links: [a - b]"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def state(tmp_path: Path, file: Path) -> Path:
    """A state directory in which both routers live, and the file is kept."""
    directory = tmp_path / "state" / "shop"
    for name in "ab":
        alive(directory, name).begin()
    keep(load(file), kept_path(directory))
    return directory


def alive(directory: Path, name: str) -> Heart:
    return Heart(directory, "shop", name, ["a", "b"])


def test_who_has_died_comes_back_with_the_file_last_checked(file: Path, state: Path) -> None:
    before = load(file)
    file.write_text("network: shop\nrouters: {")
    found = after_a_death(file, state.parent)
    assert isinstance(found, Topology)
    assert (found.text.rstrip(), found.path, found.file_digest) == (TEXT, file, before.file_digest)
    alive(state, "a").stopped()
    assert after_a_death(file, state.parent, ["a"]) is None
    assert after_a_death(file, state.parent, ["b"]) is not None
    assert after_a_death(file, state.parent, ["c"]) is None
    alive(state, "b").stopped()
    assert after_a_death(file, state.parent) is None


def test_what_is_kept_goes_by_the_name_of_the_original(file: Path, state: Path) -> None:
    assert (load_kept(kept_path(state)).path, load_kept(kept_path(state)).directory) == (file, file.parent)
    assert load_kept(file).path == file


def test_a_damaged_beat_counts_as_a_death(file: Path, state: Path) -> None:
    for name in "ab":
        alive(state, name).stopped()
    (state / "a.alive").write_bytes(b"")
    assert after_a_death(file, state.parent, ["a"]) is not None
    assert after_a_death(file, state.parent, ["b"]) is None


def test_only_what_was_kept_of_this_very_file_is_used(file: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert after_a_death(file.with_name("other.yaml"), state.parent) is None
    monkeypatch.chdir(file.parent)
    assert after_a_death(Path(file.name), state.parent) is not None
    assert after_a_death(file, state.parent / "nowhere") is None
    kept_path(state).write_text("nonsense")
    assert after_a_death(file, state.parent) is None


def test_of_several_that_are_kept_the_latest_is_used(file: Path, state: Path) -> None:
    file.write_text(TEXT + "\nsettings: {heartbeat: 400ms}")
    keep(load(file), kept_path(state, "b"))
    os.utime(kept_path(state), (1.0, 1.0))
    found = after_a_death(file, state.parent)
    assert found.settings.heartbeat_s == 0.4
    keep(found, kept_path(state))
    assert kept_path(state).read_text().count("kept by onceway") == 1
