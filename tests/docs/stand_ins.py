"""What stands for a machine's programs while a newcomer follows a page: `python -m tests.docs.stand_ins NAME WORD...`.

`pip` and `npm` find what `make test` has installed. `systemctl` and `docker` run what a unit or a Compose file says, as
its account. `ssh` and `scp` reach the `sshd` of another machine, without asking who comes.
"""

from __future__ import annotations

import grp
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import yaml

from tests.live import ROOT

NAMES = ("pip", "npm", "ssh", "scp", "systemctl", "docker")
BOUND_S = 90.0
STATE = Path("/var/lib/onceway")
INSTALLED = Path("/opt/onceway/bin/onceway")
DYNAMIC_USER, IMAGE_USER = 61184, 10001


def make(directory: Path) -> Path:
    """A directory with all of them, for a PATH."""
    directory.mkdir()
    for name in NAMES:
        program = directory / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.docs.stand_ins {name} "$@"\n')
        program.chmod(0o755)
    return directory


def pip(command: str, *packages: str) -> None:
    assert command == "install"
    for package in packages:
        assert re.fullmatch(r"onceway\[\w+\]", package), package


def npm(command: str, package: str) -> None:
    assert command == "install"
    shutil.copytree(ROOT / "tests" / "interop" / "node_modules", "node_modules", symlinks=True)
    assert Path("node_modules", package).exists()


# --- other machines ---------------------------------------------------------------------------------------------------


def sshd(host: str) -> None:
    """Serves until it is killed. A command and its input come in; what it says and its exit code go out."""
    with socket.create_server((host, 22)) as server:
        print("there", flush=True)
        while True:
            with server.accept()[0] as one, one.makefile("rb") as asked:
                command = json.loads(asked.readline())
                done = subprocess.run(command, shell=True, input=asked.read(), capture_output=True, check=False)
                one.sendall(json.dumps([done.returncode, (done.stdout + done.stderr).decode()]).encode())


def ssh(target: str, command: str, given: bytes = b"") -> None:
    with socket.create_connection((target.removeprefix("root@"), 22), BOUND_S) as to, to.makefile("rb") as answer:
        to.sendall(json.dumps(command).encode() + b"\n" + given)
        to.shutdown(socket.SHUT_WR)
        code, said = json.loads(answer.read())
    print(said, end="")
    sys.exit(code)


def scp(*words: str) -> None:
    source, (target, place) = Path(words[-2]), words[-1].split(":")
    if words[0] == "-r":
        packed = subprocess.run(["tar", "-c", "-C", source, "."], stdout=subprocess.PIPE, check=True).stdout
        ssh(target, shlex.join(["mkdir", place]) + " && " + shlex.join(["tar", "-x", "-C", place]), packed)
    else:
        ssh(target, f"cat > {shlex.quote(place)}", source.read_bytes())


# --- services ---------------------------------------------------------------------------------------------------------


def systemctl(command: str, *words: str) -> None:
    if command == "daemon-reload":
        return
    assert (command, words[0]) == ("enable", "--now")
    unit: dict[str, str] = dict(
        re.findall(r"^(\w+)=(.*)$", Path(f"/etc/systemd/system/{words[1]}.service").read_text(), re.MULTILINE)
    )
    groups = [grp.getgrnam(unit["SupplementaryGroups"]).gr_gid]
    assert (unit["Type"], unit["DynamicUser"], unit["StateDirectory"]) == ("notify", "yes", STATE.name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        place = Path("/var/tmp/notify")
        notified.bind(str(place))
        place.chmod(0o777)
        notified.settimeout(BOUND_S)
        start(shlex.split(unit["ExecStart"]), DYNAMIC_USER, groups, {"NOTIFY_SOCKET": str(place)})
        while b"READY=1" not in notified.recv(4096):
            pass


def docker(*words: str) -> None:
    assert (*words[:2], *words[3:]) == ("compose", "--file", "up", "--detach")
    (service,) = yaml.safe_load(Path(words[2]).read_text())["services"].values()
    assert service["network_mode"] == "host"
    for volume in service["volumes"]:
        source, inside, *_ = volume.split(":")
        assert source == inside or inside == str(STATE), "no mount is needed for it here"
    command = [word.replace("$ROUTER", os.environ["ROUTER"]) for word in service["command"]]
    start([str(INSTALLED), *command], IMAGE_USER, [], {})


def start(command: list[str], user: int, groups: list[int], environment: dict[str, str]) -> None:
    """Starts a service as this user, without root's rights."""
    STATE.mkdir(exist_ok=True)
    os.chown(STATE, user, user)
    setpriv = ["setpriv", f"--reuid={user}", f"--regid={user}", "--no-new-privs", "--inh-caps=-all"]
    setpriv += [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    own = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "ONCEWAY_STATE_DIR": str(STATE),
    }
    with Path("/var/tmp/service.log").open("wb") as log:
        subprocess.Popen(
            [*setpriv, *command],
            env={**own, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
