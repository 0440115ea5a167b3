"""`onceway check`, and what is common to all commands: exit codes, and where words go."""

from __future__ import annotations

from pathlib import Path

from onceway.topology import shipped
from tests.builds import COMPILED
from tests.cli.conftest import onceway


def test_a_sound_file_is_told_in_a_line() -> None:
    done = onceway("check", shipped("triangle"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{shipped('triangle')}: network triangle: 3 routers, 3 links\n"


def test_every_problem_of_a_file_goes_to_stderr_and_the_exit_code_is_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("network: n\nrouters:\n  a: {amqp: 1, interrouter: 1, admin: 3}\nlinks: [a - z]\n")
    done = onceway("check", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"{path}:3: routers.a.interrouter: 127.0.0.1:1 is taken by routers.a.amqp (line 3); "
        "give each listener a port of its own\n"
        f'{path}:4: links[0]: no router "z"; routers are a\n'
    )


def test_what_may_surprise_is_a_warning_and_the_file_is_good(tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text(
        "network: n\nrouters: {a: {amqp: 5672, interrouter: 7671, admin: 8671}}\nsettings: {idle_timeout: 10m}\n"
    )
    done = onceway("check", path)
    assert done.returncode == 0
    assert done.stdout == f"{path}: network n: 1 router, 0 links\n"
    assert done.stderr.startswith(f"warning: {path}:3: settings: publisher_timeout 2m is not more than publishers")


def test_a_missing_file_is_bad_input() -> None:
    done = onceway("check", "nowhere.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("nowhere.yaml: cannot be read (No such file or directory); ")


def test_an_unknown_command_names_the_one_that_was_meant() -> None:
    done = onceway("subscibe", "orders")
    assert done.returncode == 2
    assert 'no command "subscibe"; did you mean "subscribe"?' in done.stderr


def test_help_lists_every_command() -> None:
    done = onceway("--help")
    assert done.returncode == 0
    for command in ("up", "router", "check", "render", "status", "drain", "admin", "publish", "subscribe", "demo"):
        assert f"\n  {command} " in done.stdout
        assert onceway(command, "--help").returncode == 0


def test_the_version_is_the_distributions() -> None:
    from importlib.metadata import version

    build = "compiled" if COMPILED else "pure Python"
    assert onceway("--version").stdout == f"onceway {version('onceway')} ({build})\n"
