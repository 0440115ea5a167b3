"""Namespaces of routers: trunks are real interfaces, and cutting one cuts that one only."""

from __future__ import annotations

import subprocess
import sys

import pytest

from chaos.netns import command_inside, reason_against

PROGRAM = """
import subprocess, sys
from chaos.netns import Namespaces

SERVE = "import socket; s = socket.create_server(('0.0.0.0', 5000)); print(flush=True)\\nwhile True: s.accept()"
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 5000), timeout=1)"
namespaces = Namespaces(["a", "b", "c"], [("a", "b"), ("a", "c"), ("b", "c")])
servers = []
for name in ("b", "c"):
    command = [*namespaces.prefix(name), sys.executable, "-c", SERVE]
    servers.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    servers[-1].stdout.readline()

def reaches(prefix, name):
    command = [*prefix, sys.executable, "-c", CONNECT, namespaces.host(name)]
    return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0

def seen():
    ways = [reaches(namespaces.prefix("a"), "b"), reaches(namespaces.prefix("a"), "c"), reaches((), "b")]
    return "".join("01"[way] for way in ways)

said = [seen()]
namespaces.cut("a", "b")
said.append(seen())
namespaces.heal("a", "b")
said.append(seen())
namespaces.cut("b")
namespaces.cut("a", "b")
namespaces.heal("b")
said.append(seen())
namespaces.heal("a", "b")
said.append(seen())
print(*said)
for server in servers:
    server.kill()
namespaces.close()
"""


@pytest.mark.skipif(reason_against() is not None, reason=str(reason_against()))
def test_a_cut_trunk_leads_nowhere_while_other_ways_are_open() -> None:
    command, environment = command_inside([sys.executable, "-c", PROGRAM])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    whole, cut, healed, still_cut, all_healed = done.stdout.split()  # a to b, a to c, a client to b
    assert (whole, cut, healed, still_cut, all_healed) == ("111", "011", "111", "011", "111")


def test_what_is_missing_for_namespaces_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert reason_against() == "ip, unshare, nsenter, sleep not found (Debian: iproute2, util-linux)"
