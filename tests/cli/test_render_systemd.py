"""`onceway render systemd`: units that systemd accepts, and that say what the topology says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from onceway.base.descriptors import CROWDED
from onceway.base.waits import STOP_ROUTER
from onceway.render import STOP_GRACE_S, open_files
from onceway.serve.server import DRAIN_S
from onceway.topology import load, shipped
from tests.cli.conftest import called

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
    done = called("render", "systemd", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return settings(done.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--log-file", "/var/log/onceway/x.log", "--log-format", "json"],
        ["--only", "a,c"],
        ["--router", "b"],
        ["--user", "daemon"],
        ["--topology", "/etc/on ce%/$way.yaml"],
    ],
    ids=lambda words: " ".join(words) or "all",
)
def test_systemd_accepts_the_unit(tmp_path: Path, arguments: list[str]) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed (Debian: systemd)")
    # systemd looks whether the command is there
    done = called("render", "systemd", TRIANGLE, *arguments, "--command", "/bin/true", "--output", tmp_path)
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
    assert unit["ExecReload"] == "/bin/sh -c 'kill -HUP $$MAINPID'"
    assert (unit["StateDirectory"], unit["DynamicUser"]) == ("onceway", "yes")
    assert unit["RestartPreventExitStatus"] == "2 216"  # 216: systemd found no group onceway-keys


def test_a_unit_of_one_router_runs_it_alone() -> None:
    unit = rendered(TRIANGLE, "--router", "b", "--user", "mq", "--topology", "/srv/net.yaml", "--command", "/opt/o w")
    assert unit["ExecStart"] == '"/opt/o w" router /srv/net.yaml b'
    assert unit["User"] == "mq"
    assert "DynamicUser" not in unit


def test_systemd_waits_longer_than_a_drain_takes() -> None:
    assert int(rendered(TRIANGLE)["TimeoutStopSec"].removesuffix("s")) == STOP_GRACE_S > STOP_ROUTER.s > DRAIN_S


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


@pytest.mark.parametrize("connections", [10_000, 15_000, 30_000])
def test_no_client_is_refused_for_files_below_the_limits(connections: int, tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text(
        f"network: n\nlimits: {{connections: {connections}}}\n"
        "routers:\n  a: {amqp: 5672, interrouter: 7671, admin: 8671}\n"
    )
    assert open_files(load(path), ["a"]) * CROWDED >= connections


SECURED = """\
network: n
tls: {p: {certificate: "pki/${router}.pem", ca: /srv/ca.pem}}
sasl: {users: users.json}
trunks: {tls: "off", key: $NETWORK_KEY}
addresses: [{match: jobs, type: pipe, user: store, stores: {s: 5981}, store_data: {s: /srv/s}}]
mqtt: {topics: {"#": t}, retained: {address: kept, stores: [r], user: keeper}}
routers:
  a: {amqp: 5672, amqps: 443, tls: p, interrouter: 7671, admin: 8671}
  b: {amqp: 5673, interrouter: 7672, admin: 8672}
links: [a - b]
"""


def test_the_units_account_can_read_what_the_file_names(tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text(SECURED)
    done = called("render", "systemd", path, "--only", "a")
    unit = settings(done.stdout)
    read = "/etc/onceway/pki/a.pem /srv/ca.pem /etc/onceway/users.json"
    assert f"#   chgrp onceway-keys {read}\n#   chmod 0640 {read}\n" in done.stdout
    assert (unit["SupplementaryGroups"], unit["AmbientCapabilities"]) == ("onceway-keys", "CAP_NET_BIND_SERVICE")
    assert unit["EnvironmentFile"] == "-/etc/onceway/n.env"
    assert "LoadCredential" not in unit  # a copy, which a reload does not see
    owned = called("render", "systemd", path, "--only", "a", "--user", "mq").stdout
    assert f"#   chown mq {read}\n" in owned
    assert "SupplementaryGroups" not in owned


def test_a_unit_of_a_store_has_its_login_its_data_and_no_routers(tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text(SECURED)
    done = called("render", "systemd", path, "--store", "s", "--log-level", "warning")
    unit = settings(done.stdout.replace("Environment=ONCEWAY_", "ONCEWAY_"))
    start = "/opt/onceway/bin/onceway pipe serve /etc/onceway/n.yaml --store s --data /srv/s --log-level warning"
    assert (unit["ExecStart"], unit["Type"], unit["ReadWritePaths"]) == (start, "exec", "-/srv/s")
    made = "#   groupadd --system --force onceway-keys\n#   chgrp onceway-keys /etc/onceway/users.json /etc/onceway/store.password\n"
    made += "#   chmod 0640 /etc/onceway/users.json /etc/onceway/store.password\n#   install -d -g onceway-keys -m 0770 /srv/s\n"
    assert made in done.stdout
    assert (
        "#   install -d -o mq -m 0700 /srv/s\n"
        in called("render", "systemd", path, "--store", "s", "--user", "mq").stdout
    )
    assert unit["ONCEWAY_URL"] == "amqp://127.0.0.1:5672,amqp://127.0.0.1:5673"
    assert (unit["ONCEWAY_USER"], unit["ONCEWAY_PASSWORD_FILE"]) == ("store", "/etc/onceway/store.password")
    kept = called("render", "systemd", path, "--store", "retained-r").stdout
    assert "onceway retained serve /etc/onceway/n.yaml --store r --data /var/lib/onceway/n-retained-r\n" in kept
    refused = called("render", "systemd", path)
    assert refused.returncode == 2
    assert "they log in differently, and one unit runs all of them; render a unit for the routers" in refused.stderr
    none = called("render", "systemd", path, "--store", "x")
    assert (none.returncode, 'addresses: no store "x"; stores are s, retained-r' in none.stderr) == (2, True)


def test_a_file_that_the_unit_cannot_see_is_named(tmp_path: Path) -> None:
    path = tmp_path / "n.yaml"
    path.write_text(SECURED.replace("/srv/ca.pem", "/root/ca.pem"))
    done = called("render", "systemd", path, "--only", "a")
    assert (done.returncode, done.stdout) == (2, "")
    assert "/root/ca.pem is hidden from the unit, which sees neither homes nor /tmp; put it below" in done.stderr


def test_the_options_of_logs_are_in_the_unit() -> None:
    unit = rendered(TRIANGLE, "--log-format", "json", "--log-file", "/var/log/onceway/n.log")
    assert unit["ExecStart"].endswith(" --log-format json --log-file /var/log/onceway/n.log")
    assert (unit["LogsDirectory"], unit["LogsDirectoryMode"]) == ("onceway", "0750")
    assert rendered(TRIANGLE, "--log-file", "/srv/logs/n.log")["ReadWritePaths"] == "-/srv/logs"


def test_output_is_a_file_by_the_units_name(tmp_path: Path) -> None:
    done = called("render", "systemd", TRIANGLE, "--router", "a", "--output", tmp_path / "new")
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
    done = called("render", "systemd", TRIANGLE, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_wrong_file_gives_no_unit(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("network: n\nrouters: {}\n")
    done = called("render", "systemd", path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "routers: there are no routers" in done.stderr
