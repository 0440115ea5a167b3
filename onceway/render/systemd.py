"""A unit of systemd: `onceway up` for the routers of one host, or `onceway router` for one router.

The unit lets the process tell systemd when it is ready and that it lives (Type=notify, WatchdogSec). It takes from the
process all that a router does not need; what a router needs is its ports, its state directory and the topology file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from onceway.render import STOP_GRACE_S, WATCHDOG_S, open_files
from onceway.topology import Topology

DYNAMIC_USER: Final = "onceway"  # one name, so that several units own one state directory

_HIDDEN: Final = re.compile(r"/(home|root|run/user|tmp|var/tmp)(/|$)")  # by ProtectHome and PrivateTmp
_UNIT: Final = """\
# {install}
[Unit]
Description=Onceway network {network}: {who}
Wants=network-online.target
After=network-online.target
# A router is restarted however often it dies: the others wait for it.
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={start}
ExecReload=/bin/kill -HUP $MAINPID
# The service has started when its routers listen; the network may still wait for subscriptions then.
TimeoutStartSec=90s
WatchdogSec={watchdog}s
# The main process alone is told to stop: it drains, and a second SIGTERM would end routers at once.
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec={stop}s
Restart=on-failure
RestartSec=1s
# 2: a wrong topology file or an address that is not this host's. A restart does not cure that.
RestartPreventExitStatus=2
LimitNOFILE={files}

{user}
StateDirectory=onceway
StateDirectoryMode=0700
UMask=0077
LimitCORE=0

AmbientCapabilities={capabilities}
CapabilityBoundingSet={capabilities}
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
LockPersonality=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True, slots=True)
class Unit:
    name: str  # with .service
    text: str


def host_unit(topology: Topology, names: Sequence[str], *, command: str, file: str, user: str | None) -> Unit:
    """For `onceway up`: these routers of the topology, all of them or those of one host."""
    only = [] if len(names) == len(topology.routers) else ["--only", ",".join(names)]
    who = f"router{'s' if len(names) > 1 else ''} {', '.join(names)}"
    return _unit(topology, names, [command, "up", file, *only], f"onceway-{topology.network}", who, user)


def router_unit(topology: Topology, name: str, *, command: str, file: str, user: str | None) -> Unit:
    """For `onceway router`."""
    start = [command, "router", file, name]
    return _unit(topology, [name], start, f"onceway-{topology.network}-{name}", f"router {name}", user)


def check_path(path: str) -> str:
    """A path that the unit can read. ValueError(what, remedy)."""
    if not path.startswith("/"):
        raise ValueError(f"{path} is no absolute path", "systemd takes absolute paths only")
    if not path.isprintable():
        raise ValueError(f"{path!r} has a character that no unit can hold", "rename it")
    if _HIDDEN.match(path):
        raise ValueError(
            f"{path} is hidden from the unit, which sees neither homes nor /tmp",
            "put it below /etc/onceway, /opt or /usr/local",
        )
    return path


def _unit(
    topology: Topology, names: Sequence[str], start: Sequence[str], name: str, who: str, user: str | None
) -> Unit:
    addresses = [topology.routers[router] for router in names]
    ports = [place[1] for one in addresses for place in one.listeners.values()]
    text = _UNIT.format(
        install=f"Put this file into /etc/systemd/system and run: systemctl enable --now {name}",
        network=topology.network,
        who=who,
        start=" ".join(map(_quoted, start)),
        watchdog=WATCHDOG_S,
        stop=STOP_GRACE_S,
        files=open_files(topology, names),
        user=f"User={user}" if user else f"DynamicUser=yes\nUser={DYNAMIC_USER}",
        capabilities="CAP_NET_BIND_SERVICE" if any(port < 1024 for port in ports) else "",
    )
    return Unit(f"{name}.service", text)


def _quoted(word: str) -> str:
    """One word of a command line as systemd reads it: `%` and `$` begin specifiers and variables."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[A-Za-z0-9_./,%@:+=-]+", escaped) else f'"{escaped}"'
