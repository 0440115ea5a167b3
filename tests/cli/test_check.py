"""`onceway check`, and what is common to all commands: exit codes, and where words go."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from onceway.access.users import Users, store_users
from onceway.cli.check import command as check_command
from onceway.topology import shipped
from tests.builds import COMPILED
from tests.cli.conftest import called, onceway
from tests.pki import Pki


def test_a_sound_file_is_told_in_a_line() -> None:
    done = onceway("check", shipped("triangle"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{shipped('triangle')}: network triangle: 3 routers, 3 links\n"


def test_every_problem_of_a_file_goes_to_stderr_and_the_exit_code_is_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("network: n\nrouters:\n  a: {amqp: 1, interrouter: 1, admin: 3}\nlinks: [a - z]\n")
    done = called("check", path)
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
    done = called("check", path)
    assert done.returncode == 0
    assert done.stdout == f"{path}: network n: 1 router, 0 links\n"
    assert done.stderr.startswith(f"warning: {path}:3: settings: publisher_timeout 2m is not more than publishers")


def test_every_file_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pki, path = Pki(tmp_path / "pki"), tmp_path / "net.yaml"
    for name in ("a", "b", "torn", "other"):
        pki.certificate(name, "localhost")
    keys = {name: (tmp_path / "pki" / f"{name}.pem").read_text().partition("-----BEGIN CERT")[0] for name in ("a", "b")}
    assert all("PRIVATE KEY" in key for key in keys.values())
    (tmp_path / "b.key").write_text(keys["b"])
    (tmp_path / "torn.key").write_text(keys["a"].replace("\n-----END", "\n")[:90] + "\n-----END PRIVATE KEY-----\n")
    (tmp_path / "users.json").write_text('{"users": {"a": {}}')
    (tmp_path / "network.key").write_text("short")
    for secret in ("b.key", "torn.key", "users.json", "network.key"):
        (tmp_path / secret).chmod(0o600)
    text = """
network: n
tls:
  one: {certificate: pki/a.pem, key: KEY}
  trunks: {certificate: "pki/${router}.pem", ca: pki/ca.pem}
  stores: {certificate: "pki/store-${router}.pem"}
sasl: {users: users.json, tokens: {keys: jwks.json, issuer: i, audience: o}}
trunks: {tls: trunks, key: network.key}
addresses: [{match: jobs, type: pipe, user: s, stores: {s: "127.0.0.1:9000"}, store_tls: stores}]
routers:
  a: {amqp: 1, amqps: 2, tls: one, interrouter: 3, admin: 4}
  c: {amqp: 5, interrouter: 6, admin: 7}
links: [a - c]
"""

    def check(key: str, *options: str) -> list[str]:
        path.write_text(text.replace("KEY", key))
        done = CliRunner().invoke(check_command, [str(path), *options])
        assert done.exit_code == (0 if options == ("--no-files",) else 2)
        return done.output.replace(f"{tmp_path}/", "").splitlines()

    found = check("b.key")
    assert found == [
        "net.yaml: sasl.users: users.json is no file of users: line 1: Expecting ',' delimiter",
        "net.yaml: tls.one.key: b.key is not the key of pki/a.pem; give the two that belong",
        "net.yaml: trunks.key: a key of 5 characters can be guessed; openssl rand -hex 32 makes one",
        "net.yaml: tls.trunks.certificate: pki/c.pem cannot be read: No such file or directory",
        "net.yaml: tls.stores.certificate: pki/store-s.pem cannot be read: No such file or directory",
        "files that are on other hosts: --only NAMES opens those of these routers, --no-files none",
    ]
    assert [line for line in check("torn.key", "--only", "a") if "torn" in line or "c.pem" in line] == [
        "net.yaml: tls.one: pki/a.pem and torn.key cannot be used: one of them is torn, or not in PEM form"
    ]
    assert check("torn.key", "--no-files") == ["net.yaml: network n: 2 routers, 1 link"]
    store_users(tmp_path / "users.json", Users())
    assert "net.yaml: sasl.tokens: jwks.json cannot be read: No such file or directory" in check("b.key")
    monkeypatch.setitem(sys.modules, "jwt", None)
    assert "net.yaml: sasl.tokens: tokens need PyJWT: pip install 'onceway[oauth]'" in check("b.key")


def test_a_sound_file_whose_files_are_sound_has_its_warnings(tmp_path: Path) -> None:
    pki, path = Pki(tmp_path / "pki"), tmp_path / "net.yaml"
    pki.certificate("a", "localhost", days=3.5)
    store_users(tmp_path / "users.json", Users())
    path.write_text(
        "network: n\ntls: {t: {certificate: pki/a.pem}}\nsasl: {users: users.json}\n"
        "addresses: [{match: orders, subscriptions: [{user: bob, container: c, name: n}]}]\n"
        "routers: {a: {amqp: 1, amqps: 2, tls: t, interrouter: 3, admin: 4}}\n"
    )
    done = called("check", path)
    assert (done.returncode, done.stdout) == (0, f"{path}: network n: 1 router, 0 links\n")
    pem = tmp_path / "pki" / "a.pem"
    assert done.stderr.splitlines() == [
        f"warning: {pem} expires in 3 days: put a new one in its place and reload",
        f"warning: {path}: address orders: publishers wait for the declared subscription bob|c/n, and there is no user "
        "bob: remove it from the file, or let the user have it again",
    ]


@pytest.mark.parametrize("file", ["pki/a.pem", "users.json", "network.key"])
def test_a_secret_that_everyone_can_read_is_refused(file: str, tmp_path: Path) -> None:
    Pki(tmp_path / "pki").certificate("a", "localhost")
    store_users(tmp_path / "users.json", Users())
    (tmp_path / "network.key").write_text("0123456789abcdef" * 2)
    (tmp_path / "network.key").chmod(0o640)  # a group's right is the operator's word
    (tmp_path / "net.yaml").write_text(
        "network: n\ntls: {t: {certificate: pki/a.pem}}\nsasl: {users: users.json}\n"
        "trunks: {tls: off, key: network.key}\n"
        "routers: {a: {amqp: 1, amqps: 2, tls: t, interrouter: 3, admin: 4}}\n"
    )
    assert called("check", tmp_path / "net.yaml").returncode == 0
    (tmp_path / file).chmod(0o644)
    done = called("check", tmp_path / "net.yaml")
    assert done.returncode == 2
    assert f"{tmp_path / file} has secrets, and everyone on this host can read or change it: chmod o-rwx" in done.stderr


def test_a_missing_file_is_bad_input() -> None:
    done = called("check", "nowhere.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith("nowhere.yaml: cannot be read (No such file or directory); ")


def test_an_unknown_command_names_the_one_that_was_meant() -> None:
    done = called("subscibe", "orders")
    assert done.returncode == 2
    assert 'no command "subscibe"; did you mean "subscribe"?' in done.stderr


def test_help_lists_every_command() -> None:
    done = called("--help")
    assert done.returncode == 0
    for command in ("up", "router", "check", "render", "status", "drain", "admin", "publish", "subscribe", "demo"):
        assert f"\n  {command} " in done.stdout
        assert called(command, "--help").returncode == 0


def test_the_version_is_the_distributions() -> None:
    from importlib.metadata import version

    build = "compiled" if COMPILED else "pure Python"
    assert called("--version").stdout == f"onceway {version('onceway')} ({build})\n"
