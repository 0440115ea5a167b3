"""Starts a router of Onceway as skupper-router's system tests start theirs: `skrouterd -c FILE ...`.

What FILE says of listeners, addresses and connectors between routers becomes a topology file. A router that connects to
another one is added to that one's file, as `onceway reload` does it. What has no counterpart is named in the output.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import yaml

ONCEWAY = str(Path(sys.executable).with_name("onceway"))
KNOWN = {"router", "listener", "connector", "address", "log"}
KINDS = {"multicast": "topic", "closest": "queue", "balanced": "queue"}
Sections = list[tuple[str, dict[str, str]]]


def read(text: str) -> Sections:
    found = []
    for name, body in re.findall(r"^(\w+) \{\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        pairs = [line.strip().split(": ", 1) for line in body.splitlines() if re.match(r"    \S+: ", line)]
        found.append((name, {pair[0]: pair[1] for pair in pairs}))
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def addresses(sections: Sections) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name, keys in sections:
        kind = KINDS.get(keys.get("distribution", "balanced"))
        if name == "address" and kind is not None:
            match = keys.get("prefix", keys.get("pattern", "")).split("/#")[0] + "*"
            found.append({"match": match, "type": kind})
    # Their default is `balanced`. Most of their tests send settled messages to it, which a queue does not take.
    found.append({"match": "*", "type": "topic"})
    return found


def limits(listener: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "maxFrameSize" in listener:
        found["max_frame_size"] = f"{listener['maxFrameSize']}B"
    if "maxSessions" in listener:
        found["sessions"] = int(listener["maxSessions"])
    if int(listener.get("idleTimeoutSeconds", "0")):
        found["idle_timeout"] = f"{listener['idleTimeoutSeconds']}s"
    return found


def topology(sections: Sections, name: str, registry: Path) -> tuple[Path, bool]:
    """Writes the file; says whether the network was there before."""
    listeners = [keys for kind, keys in sections if kind == "listener"]
    trunks = [keys for keys in listeners if keys.get("role") == "inter-router"]
    first = next(keys for keys in listeners if keys.get("role") != "inter-router")
    joined = [registry / keys["port"] for kind, keys in sections if kind == "connector"]
    joined = [each for each in joined if each.exists()]
    router = {"amqp": f"127.0.0.1:{first['port']}", "admin": free_port(), "limits": limits(first)}
    router["interrouter"] = int(trunks[0]["port"]) if trunks else free_port()
    if joined:
        path = Path(joined[0].read_text().split("\n")[0])
        content = yaml.safe_load(path.read_text())
    else:
        path = Path(f"{name}.yaml").absolute()
        content = {"network": f"skupper-{os.getpid()}", "addresses": addresses(sections), "routers": {}}
    content["routers"][name] = router
    links = content.get("links", []) + [f"{name} - {each.read_text().split(chr(10))[1]}" for each in joined]
    if links:
        content["links"] = links
    path.write_text(yaml.safe_dump(content))
    for keys in trunks:
        (registry / keys["port"]).write_text(f"{path}\n{name}")
    return path, bool(joined)


def forward(port: int, to: int) -> None:
    """A further listener: a router of Onceway has one of each kind."""

    def pump(source: socket.socket, target: socket.socket) -> None:
        try:
            while octets := source.recv(65_536):
                target.sendall(octets)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            target.close()

    server = socket.create_server(("127.0.0.1", port))
    while True:
        client, _ = server.accept()
        router = socket.create_connection(("127.0.0.1", to))
        for pair in ((client, router), (router, client)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def main(arguments: list[str]) -> int:
    sections = read(Path(arguments[arguments.index("-c") + 1]).read_text())
    registry = Path(os.environ["SKUPPER_REGISTRY"])
    name = re.sub(r"[^\w-]", "-", next(keys["id"] for kind, keys in sections if kind == "router"))
    unknown = sorted({kind for kind, _ in sections} - KNOWN)
    if unknown:
        print(f"without a counterpart: {', '.join(unknown)}", flush=True)
    path, there = topology(sections, name, registry)
    state = ["--state-dir", str(path.parent / "state")]
    if there:
        subprocess.run([ONCEWAY, "reload", str(path), *state], check=False)
    named = next(
        (keys["outputFile"] for kind, keys in sections if kind == "log" and "outputFile" in keys), "router.log"
    )
    log = Path(named)
    fresh = [] if there else ["--fresh"]
    router = subprocess.Popen([ONCEWAY, "router", str(path), name, *fresh, *state, "--log-file", str(log)])
    signal.signal(signal.SIGTERM, lambda *_: router.terminate())
    while router.poll() is None and not (log.exists() and "event=router_ready" in log.read_text()):
        time.sleep(0.05)
    with log.open("a") as file:  # what their tests wait for
        print(f"SERVER (info) Operational, 1 Threads Running (process ID {router.pid})", file=file)
    first, *others = [int(k["port"]) for n, k in sections if n == "listener" and k.get("role") != "inter-router"]
    for port in others:
        threading.Thread(target=forward, args=(port, first), daemon=True).start()
    return router.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
