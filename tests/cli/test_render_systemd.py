"""`onceway render systemd`: units that systemd accepts, and that say what the topology says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from onceway.host.supervisor import STOP_WITHIN_S
from onceway.render import STOP_GRACE_S
from onceway.serve.server import DRAIN_S
from onceway.topology import shipped
from tests.cli.conftest import onceway

TRIANGLE = shipped("triangle")


def settings(unit: str) -> dict[str, str]:
    """The unit's lines by key; a key that is there twice fails."""
    found: dict[str, str] = {}
    for line in unit.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            assert key not in found, key
            found[key] = value
    return found


def rendered(*arguments: object) -> dict[str, str]:
    done = onceway("render", "systemd", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return settings(done.stdout)


@pytest.mark.parametrize(
    "arguments",
    [[], ["--only", "a,c"], ["--router", "b"], ["--user", "daemon"], ["--topology", "/etc/on ce%/$way.yaml"]],
    ids=lambda words: " ".join(words) or "all",
)
def test_systemd_accepts_the_unit(tmp_path: Path, arguments: list[str]) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    # systemd looks whether the command is there
    done = onceway("render", "systemd", TRIANGLE, *arguments, "--command", "/bin/true", "--output", tmp_path)
    assert done.returncode == 0, done.stderr
    verified = subprocess.run(
        [analyze, "verify", "--man=no", done.stdout.strip()], capture_output=True, text=True, timeout=60, check=False
    )
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")


def test_a_unit_of_a_host_runs_its_routers_under_one_supervisor() -> None:
    unit = rendered(TRIANGLE, "--only", "c,a")
    assert unit["ExecStart"] == "/opt/onceway/bin/onceway up /etc/onceway/triangle.yaml --only a,c"
    assert unit["Description"] == "Onceway network triangle: routers a, c"
    assert (unit["Type"], unit["KillMode"], unit["Restart"]) == ("notify", "mixed", "on-failure")
    assert unit["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert (unit["StateDirectory"], unit["DynamicUser"]) == ("onceway", "yes")


def test_a_unit_of_one_router_runs_it_alone() -> None:
    unit = rendered(TRIANGLE, "--router", "b", "--user", "mq", "--topology", "/srv/net.yaml", "--command", "/opt/o w")
    assert unit["ExecStart"] == '"/opt/o w" router /srv/net.yaml b'
    assert unit["User"] == "mq"
    assert "DynamicUser" not in unit


def test_systemd_waits_longer_than_a_drain_takes() -> None:
    assert int(rendered(TRIANGLE)["TimeoutStopSec"].removesuffix("s")) == STOP_GRACE_S > STOP_WITHIN_S > DRAIN_S


def test_limits_and_ports_of_the_file_are_in_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text(
        "network: n\nlimits: {connections: 50000, half_open: 10}\nlinks: [a - b]\nrouters:\n"
        "  a: {amqp: 443, interrouter: 7671, admin: 8671, limits: {connections: 100}}\n"
        "  b: {amqp: 5673, interrouter: 7672, admin: 8672}\n"
    )
    one, other = rendered(path, "--only", "a"), rendered(path, "--only", "b")
    assert (one["LimitNOFILE"], one["AmbientCapabilities"]) == ("512", "CAP_NET_BIND_SERVICE")
    assert (other["LimitNOFILE"], other["AmbientCapabilities"]) == ("65536", "")


def test_output_is_a_file_by_the_units_name(tmp_path: Path) -> None:
    done = onceway("render", "systemd", TRIANGLE, "--router", "a", "--output", tmp_path / "new")
    assert done.stdout == f"{tmp_path / 'new' / 'onceway-triangle-a.service'}\n"
    assert "[Service]" in Path(done.stdout.strip()).read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--only", "a,z"], f'{TRIANGLE}: routers: no router "z"; routers are a, b, c'),
        (["--only", "a", "--router", "b"], "--only and --router exclude each other"),
        (["--topology", "net.yaml"], "net.yaml is no absolute path; systemd takes absolute paths only"),
        (["--topology", "/home/me/net.yaml"], "is hidden from the unit, which sees neither homes nor /tmp; put it"),
        (["--command", "/root/.local/bin/onceway"], "is hidden from the unit"),
        (["--topology", "/etc/a\nExecStart=/bin/sh"], "has a character that no unit can hold; rename it"),
        (["--user", "a b"], '"a b" is no user name; write for example onceway'),
        (["--output", "/proc/nowhere"], "cannot write /proc/nowhere/onceway-triangle.service: "),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_bad_input_is_named_with_its_remedy(arguments: list[str], said: str) -> None:
    done = onceway("render", "systemd", TRIANGLE, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_file_gives_no_unit(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("network: n\nrouters: {}\n")
    done = onceway("render", "systemd", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "routers: there are no routers" in done.stderr
