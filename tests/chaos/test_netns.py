"""Namespaces of routers: trunks are real interfaces, and cutting one cuts that one only."""

from __future__ import annotations

import subprocess
import sys

import pytest

from chaos.live.netns import command_inside, reason_against

PROGRAM = """
import subprocess, sys
from chaos.live.netns import Namespaces

SERVE = "import socket; s = socket.create_server(('0.0.0.0', 5000)); print(flush=True)\\nwhile True: s.accept()"
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 5000), timeout=float(sys.argv[2]))"
namespaces = Namespaces(["a", "b", "c"], [("a", "b"), ("a", "c"), ("b", "c")])
servers = []
for name in ("b", "c"):
    command = [*namespaces.prefix(name), sys.executable, "-c", SERVE]
    servers.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    servers[-1].stdout.readline()

def reaches(prefix, name, within_s):
    command = [*prefix, sys.executable, "-c", CONNECT, namespaces.host(name), within_s]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0

def seen(cut):
    # What is open again may take a busy kernel a moment; what is cut has to be given up.
    first = reaches(namespaces.prefix("a"), "b", "1" if cut else "30")
    ways = [first, reaches(namespaces.prefix("a"), "c", "30"), reaches((), "b", "30")]
    return "".join("01"[way] for way in ways)

said = [seen(cut=False)]
namespaces.cut("a", "b")
said.append(seen(cut=True))
namespaces.heal("a", "b")
said.append(seen(cut=False))
namespaces.cut("b")
namespaces.cut("a", "b")
namespaces.heal("b")
said.append(seen(cut=True))
namespaces.heal("a", "b")
said.append(seen(cut=False))
print(*said)
for server in servers:
    server.kill()
namespaces.close()
"""


@pytest.mark.skipif(reason_against() is not None, reason=str(reason_against()))
def test_a_cut_trunk_leads_nowhere_while_other_ways_are_open() -> None:
    command, environment = command_inside([sys.executable, "-c", PROGRAM])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    whole, cut, healed, still_cut, all_healed = done.stdout.split()  # a to b, a to c, a client to b
    assert (whole, cut, healed, still_cut, all_healed) == ("111", "011", "111", "011", "111")


def test_what_is_missing_for_namespaces_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert reason_against() == "ip, unshare, nsenter, sleep not found (Debian: iproute2, util-linux)"
