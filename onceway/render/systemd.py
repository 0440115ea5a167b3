"""A unit of systemd: `onceway up` for the routers of one host, or `onceway router` for one router.

The unit lets the process tell systemd when it is ready and that it lives (Type=notify, WatchdogSec). It takes from the
process all that a router does not need; what a router needs is its ports, its state directory, the topology file and
the files that it names. These the unit's account reads where they are, by its group: a copy that systemd makes at the
start (LoadCredential) would not be seen by a reload. A store of the file has a unit of its own, or runs beside all the
routers of the file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from onceway.base.logs import Options
from onceway.render import STOP_GRACE_S, WATCHDOG_S, open_files
from onceway.render.plan import (
    STATE,
    File,
    Login,
    Store,
    files_of_router,
    files_of_store,
    login,
    problem,
    stores,
    variable,
)
from onceway.topology import ConfigError, Topology, format_host_port
from onceway.topology.document import suggest

DYNAMIC_USER: Final = "onceway"  # one name, so that several units own one state directory

KEYS: Final = "onceway-keys"
"""The group that reads certificates, keys and users, and writes into directories of stores, where systemd makes the
account."""

_HIDDEN: Final = re.compile(r"/(home|root|run/user|tmp|var/tmp)(/|$)")  # by ProtectHome and PrivateTmp
_NOTIFY: Final = f"""\
Type=notify
NotifyAccess=main
# The service has started when its routers listen; the network may still wait for subscriptions then.
TimeoutStartSec=90s
WatchdogSec={WATCHDOG_S}s
"""
_RELOAD: Final = "ExecReload=/bin/sh -c 'kill -HUP $$MAINPID'\n"  # the shell's own: a small system has no /bin/kill
_UNIT: Final = """\
# {install}
{before}[Unit]
Description=Onceway network {network}: {who}
Wants=network-online.target
After=network-online.target
# A router is restarted however often it dies: the others wait for it.
StartLimitIntervalSec=0

[Service]
{life}ExecStart={start}
{reload}# The main process alone is told to stop: it drains, and a second SIGTERM would end routers at once.
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec={stop}s
Restart=on-failure
RestartSec=1s
# 2: a wrong topology file or an address that is not this host's; 216: there is no group {keys}. A restart does not
# cure that.
RestartPreventExitStatus=2 216
LimitNOFILE={files}

{user}
StateDirectory=onceway
StateDirectoryMode=0700
{more}UMask=0077
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


@dataclass(frozen=True, slots=True)
class Target:
    """The host of a unit."""

    command: str  # the program
    file: str  # the topology file
    user: str | None  # None: systemd makes an account
    log: Options

    def path(self, file: File) -> str:
        """Where a file that the topology file names is."""
        return str(PurePosixPath(self.file).parent / file.source)

    def logging(self) -> list[str]:
        """Options of a command whose log is as asked for; nothing for what is so anyway."""
        given, usual = self.log.arguments(), Options().arguments()
        words = [
            word for i in range(0, len(given), 2) if given[i : i + 2] != usual[i : i + 2] for word in given[i : i + 2]
        ]
        return [*words, "--log-file", str(self.log.file)] if self.log.file is not None else words


def host_unit(topology: Topology, names: Sequence[str], target: Target) -> Unit:
    """For `onceway up`: these routers of the topology, all of them, and then its stores, or those of one host."""
    everything = len(names) == len(topology.routers)
    only = [] if everything else ["--only", ",".join(names)]
    who = f"router{'s' if len(names) > 1 else ''} {', '.join(names)}"
    start = [target.command, "up", target.file, *only, *target.logging()]
    found = stores(topology) if everything else []
    variables = [_environment(topology, store, target) for store in found]
    if any(each != variables[0] for each in variables):
        what = "they log in differently, and one unit runs all of them"
        remedy = "render a unit for the routers of each host (--only, --router), and one for each store (--store)"
        raise ConfigError([problem(topology, ", ".join(store.place for store in found), what, remedy)])
    files = [file for name in names for file in files_of_router(topology, name)]
    files += [file for store in found for file in files_of_store(topology, store, _login(topology, store, target))]
    # `up` tells stores where its routers are.
    login = {key: value for each in variables[:1] for key, value in each.items() if key != "ONCEWAY_URL"}
    return _unit(
        topology, names, start, f"onceway-{topology.network}", who, target, files, login, _kept(topology, found)
    )


def router_unit(topology: Topology, name: str, target: Target) -> Unit:
    """For `onceway router`."""
    start = [target.command, "router", target.file, name, *target.logging()]
    files = files_of_router(topology, name)
    return _unit(topology, [name], start, f"onceway-{topology.network}-{name}", f"router {name}", target, files)


def store_unit(topology: Topology, name: str, target: Target) -> Unit:
    """For a store of pipes, or of retained messages (`retained-NAME`). ConfigError if there is none."""
    found = {store.service.removeprefix("store-"): store for store in stores(topology)}
    store = found.get(name)
    if store is None:
        remedy = suggest(name, list(found), "stores are") or "give a file with stores"
        raise ConfigError([problem(topology, "addresses", f'no store "{name}"', remedy)])
    kept = _kept(topology, [store])
    data = kept[0] if kept else f"{STATE}/{topology.network}-{store.service}"
    start = [target.command, *store.command(target.file, data)]
    log = _login(topology, store, target)
    start += [*log.options, *target.logging()]
    files = files_of_store(topology, store, log)
    variables = _environment(topology, store, target)
    title = f"onceway-{topology.network}-{store.service}"
    return _unit(topology, [], start, title, f"store {name}", target, files, variables, kept)


def _login(topology: Topology, store: Store, target: Target) -> Login:
    return login(topology, store, target.path)


def _environment(topology: Topology, store: Store, target: Target) -> dict[str, str]:
    log = _login(topology, store, target)
    places = [format_host_port(address[log.scheme]) for address in topology.routers.values()]
    return {"ONCEWAY_URL": ",".join(f"{log.scheme}://{place}" for place in places), **log.environment}


def _kept(topology: Topology, found: Sequence[Store]) -> list[str]:
    """Where the file says that these stores keep their data."""
    names = {store.name for store in found if store.kind == "pipe"}
    return list(
        dict.fromkeys(kept for pipe in topology.pipes.values() for name, kept in pipe.data.items() if name in names)
    )


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
    topology: Topology,
    names: Sequence[str],
    start: Sequence[str],
    name: str,
    who: str,
    target: Target,
    files: Sequence[File],
    variables: Mapping[str, str] | None = None,
    kept: Sequence[str] = (),
) -> Unit:
    """names: of the routers; empty: it is a store's."""
    ports = [port for router in names for _, port in topology.routers[router].listeners.values()]
    paths = list(dict.fromkeys(map(target.path, files)))
    written = [path for path in kept if "://" not in path]
    _check_files(topology, [*paths, *written])
    more = [f"Environment={_quoted(f'{key}={value}')}" for key, value in (variables or {}).items()]
    if names and variable(topology):
        more.append(f"EnvironmentFile=-{PurePosixPath(target.file).parent / topology.network}.env")
    more += [_writable(path) for path in written]
    more += _logs(target.log)
    text = _UNIT.format(
        keys=KEYS,
        install=f"Put this file into /etc/systemd/system and run: systemctl enable --now {name}",
        before=_before(topology, paths, written, target, bool(names)),
        network=topology.network,
        who=who,
        life=_NOTIFY if names else "Type=exec\n",
        reload=_RELOAD if names or "pipe" in start else "",
        start=" ".join(map(_quoted, start)),
        stop=STOP_GRACE_S,
        files=open_files(topology, names or topology.routers),
        user=_account(target, [*paths, *written]),
        more="".join(f"{line}\n" for line in more),
        capabilities="CAP_NET_BIND_SERVICE" if any(port < 1024 for port in ports) else "",
    )
    return Unit(f"{name}.service", text)


def _account(target: Target, paths: Sequence[str]) -> str:
    if target.user is not None:
        return f"User={target.user}"
    groups = f"\nSupplementaryGroups={KEYS}" if paths else ""
    return f"DynamicUser=yes\nUser={DYNAMIC_USER}{groups}"


def _before(topology: Topology, paths: Sequence[str], written: Sequence[str], target: Target, routers: bool) -> str:
    """The commands that let the account read what the topology file names, now and after a reload, and write where
    stores keep their data."""
    lines, theirs = [], target.user is not None
    if (paths or written) and not theirs:
        lines.append(f"groupadd --system --force {KEYS}")
    if paths:
        owner, mode = (f"chown {target.user}", "0400") if theirs else (f"chgrp {KEYS}", "0640")
        lines += [f"{owner} {shlex.join(paths)}", f"chmod {mode} {shlex.join(paths)}"]
    if written:
        owner = f"-o {target.user} -m 0700" if theirs else f"-g {KEYS} -m 0770"
        lines.append(f"install -d {owner} {shlex.join(written)}")
    if routers and (named := variable(topology)):
        path = PurePosixPath(target.file).parent / f"{topology.network}.env"
        lines.append(f"install -m 0600 /dev/null {path}  # then write {named}=... into it")
    return "".join(f"#   {line}\n" for line in ("Before that:", *lines)) if lines else ""


def _check_files(topology: Topology, paths: Sequence[str]) -> None:
    problems = []
    for path in paths:
        try:
            check_path(path)
        except ValueError as error:
            problems.append(problem(topology, "", *error.args))
    if problems:
        raise ConfigError(problems)


def _logs(log: Options) -> list[str]:
    """What lets the unit write its log file."""
    if log.file is None:
        return []
    directory = str(log.file.parent)
    if (found := re.fullmatch(r"/var/log/([A-Za-z0-9_.-]+)", directory)) is not None:
        return [f"LogsDirectory={found[1]}", "LogsDirectoryMode=0750"]
    return [_writable(directory)]


def _writable(directory: str) -> str:
    """One that is not there is left to the program, which says so: systemd would start the unit again without end."""
    return f"ReadWritePaths={_quoted(f'-{directory}')}"


def _quoted(word: str) -> str:
    """One word of a command line as systemd reads it: `%` and `$` begin specifiers and variables."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if re.fullmatch(r"[A-Za-z0-9_./,%@:+=-]+", escaped) else f'"{escaped}"'
