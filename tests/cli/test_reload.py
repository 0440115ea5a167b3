"""`onceway reload` and SIGHUP on running routers."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from cryptography import x509

from onceway.cli import cli
from tests.cli.conftest import COMMAND, called
from tests.live import LiveNetwork, free_port, wait_until
from tests.pki import Pki
from tests.running import Program


def ports() -> dict[str, int]:
    return {key: free_port() for key in ("amqp", "interrouter", "admin")}


class File:
    """A topology file that is edited, and the state directory of its network."""

    def __init__(self, directory: Path, names: str) -> None:
        self.path = directory / "net.yaml"
        self.state = directory / "state"
        self.says: dict[str, Any] = {
            "network": "test",
            "settings": {"memory_limit": "64MiB", "max_message_size": "1MiB"},
            "routers": {name: ports() for name in names},
            "links": [f"{one} - {other}" for one, other in itertools.pairwise(names)],
        }
        self.write()

    def write(self) -> None:
        self.path.write_text(yaml.safe_dump(self.says))

    def onceway(self, *arguments: object) -> tuple[int, str, str]:
        done = called(*arguments, env={"ONCEWAY_STATE_DIR": str(self.state)})
        return done.returncode, done.stdout, done.stderr

    def up(self, *options: str) -> Program:
        command = [*COMMAND, "up", str(self.path), "--log-format", "json", *options]
        return Program(command, {**os.environ, "ONCEWAY_STATE_DIR": str(self.state)})


def events(up: Program, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in list(up._errors) if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def test_reload_shows_the_plan_and_applies_it_to_every_router(tmp_path: Path) -> None:
    file, pki = File(tmp_path, "abc"), Pki(tmp_path / "pki")
    certificate = pki.certificate("router", "localhost")
    file.says["tls"] = {"clients": {"certificate": str(certificate)}}
    file.says["routers"]["b"] |= {"amqps": free_port(), "tls": "clients"}
    file.write()
    with file.up() as up:
        assert up.line() == "network test ready: 3 routers, 2 links"
        pids = {line["router"]: line["pid"] for line in events(up, "router_started")}
        pki.certificate("router", "localhost", days=100)
        ends = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
        file.says["settings"]["memory_limit"] = "128MiB"
        old_port, file.says["routers"]["a"]["admin"] = file.says["routers"]["a"]["admin"], free_port()
        file.says["routers"]["d"] = ports()
        del file.says["routers"]["c"]
        file.says["links"] = ["a - b", "b - d"]
        file.write()
        plan = file.onceway("reload", "--dry-run", file.path)
        assert plan[0] == 0
        assert "changed settings.memory_limit 64MiB -> 128MiB\nremoved router c\nadded router d\n" in plan[1]
        code, shown, _ = file.onceway("reload", file.path)
        assert code == 0
        assert shown.startswith(plan[1])
        assert f"\nread again {certificate}, valid until {ends:%Y-%m-%d}\n" in shown
        assert "router a: follows the file; needs a restart: changed admin" in shown
        assert shown.endswith("router b: follows the file\nrouter c: stopped\nrouter d: started\n")
        assert up.line() == "network test ready: 3 routers, 2 links"
        new_port = file.says["routers"]["a"]["admin"]
        file.says["routers"]["a"]["admin"] = old_port
        file.write()
        code, shown, _ = file.onceway("reload", "--dry-run", file.path)
        assert (code, shown) == (0, "nothing changes\n"), "it listens there still"
        file.says["routers"]["a"]["admin"] = new_port
        file.write()
        now = {line["router"]: line["pid"] for line in events(up, "router_started")}
        assert now == {**pids, "d": now["d"]}

        # a router that dies while the file is broken starts with the one last checked
        file.path.write_text("network: [")
        code, _, said = file.onceway("reload", file.path)
        assert code == 2
        assert "net.yaml:1:" in said
        os.kill(up.process.pid, signal.SIGHUP)
        wait_until(lambda: events(up, "reload_refused"), "SIGHUP with a broken file to be refused")
        os.kill(pids["a"], signal.SIGKILL)
        assert up.line() == "network test ready: 3 routers, 2 links"
        assert len([line for line in events(up, "router_started") if line["router"] == "a"]) == 2

        # and now it listens where the file says
        file.says["addresses"] = [{"match": "orders"}]
        file.write()
        os.kill(up.process.pid, signal.SIGHUP)
        wait_until(lambda: len(events(up, "reloaded")) >= 7, "all to follow the file")
        assert file.onceway("status", file.path)[0] == 0
        up.process.terminate()
        up.rest()
    assert file.onceway("reload", file.path)[0] == 1  # nobody runs


def test_what_needs_a_restart_is_named_by_each_plan_until_all_have_had_it(tmp_path: Path) -> None:
    file = File(tmp_path, "ab")
    (tmp_path / "network.key").touch(0o600)
    (tmp_path / "network.key").write_text("a network's key, which is of some length\n")
    waits = "changed trunks.key (none) -> network.key: needs a restart\n"

    def plan() -> str:
        """A router that has just been started again does not listen yet."""
        done = wait_until(
            lambda: (done := file.onceway("reload", "--dry-run", file.path))[0] == 0 and done, "both to be asked"
        )
        return str(done[1])

    def restart(router: str) -> None:
        (*_, last) = [line["pid"] for line in events(up, "router_started") if line["router"] == router]
        os.kill(last, signal.SIGKILL)
        wait_until(
            lambda: [line["pid"] for line in events(up, "router_started") if line["router"] == router][-1] != last,
            f"{router} to be started again",
        )

    with file.up() as up:
        up.line()
        file.says["trunks"] = {"tls": "off", "key": "network.key"}
        file.write()
        assert waits in file.onceway("reload", file.path)[1]
        assert waits in plan()
        restart("a")
        assert waits in plan()
        restart("b")
        assert waits not in plan()


def test_who_may_not_look_for_routers_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = File(tmp_path, "a")

    def refused(path: Path, pattern: str) -> list[Path]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "glob", refused)
    result = CliRunner().invoke(cli, ["reload", str(file.path), "--state-dir", str(tmp_path)])
    assert (
        str(result.exception) == f"{tmp_path}/test: Permission denied; run this as the user of the routers, or as root"
    )


def test_what_running_routers_cannot_change_to_is_refused_by_all(tmp_path: Path) -> None:
    file = File(tmp_path, "ab")
    with file.up() as up:
        up.line()
        file.says["settings"] |= {"heartbeat": "5s", "dead_after": "20s"}
        file.write()
        code, shown, said = file.onceway("reload", file.path)
        assert (code, shown) == (2, "")
        assert "change heartbeat by at most a factor of 3 at a time" in said
        assert "nothing has changed" in said
        assert not events(up, "reloaded")


def test_a_router_by_itself_follows_reload_and_sighup_and_names_who_does_not(tmp_path: Path) -> None:
    with LiveNetwork(tmp_path, ["a", "b"], [("a", "b")]) as network:
        network.start()
        path = network.topology_path
        says = yaml.safe_load(path.read_text())
        says["addresses"] = [{"match": "more"}]
        path.write_text(yaml.safe_dump(says))
        (router := network["a"].process) and router.send_signal(signal.SIGHUP)
        wait_until(lambda: "follows" in network["a"].log_tail(), "a to follow the file")
        before, after = (network[name].status()["file"] for name in "ba")
        assert before != after
        done = called("reload", path, env={"ONCEWAY_STATE_DIR": str(tmp_path / "state")})
        assert done.returncode == 0
        assert done.stdout == "added address more\nrouter a: follows the file\nrouter b: follows the file\n"
        assert network["b"].status()["file"] == after
