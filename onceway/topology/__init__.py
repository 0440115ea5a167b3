"""Topology files: one YAML file describes the network, every router reads the same file and is told its own name.

`load` gives a `Topology` or raises `ConfigError` with every problem of the file at once, each with line, place and
remedy.  What a file may contain is written in `sections`, with places and remedies made in `document` and the forms of
durations, sizes and ports in `onceway.base.values`; for people it is in docs/topology.md.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from onceway.base.values import format_duration, format_host_port
from onceway.topology.document import ConfigError, Problem, Problems, compose
from onceway.topology.links import Link
from onceway.topology.listeners import HostPort, RouterAddress
from onceway.topology.model import Topology
from onceway.topology.said import digest
from onceway.topology.sections import read_topology

__all__ = [
    "ConfigError",
    "HostPort",
    "Link",
    "Problem",
    "RouterAddress",
    "Topology",
    "format_duration",
    "format_host_port",
    "load",
    "loads",
    "shipped",
]


def load(path: str | os.PathLike[str]) -> Topology:
    """Reads a file.  ConfigError names every problem; a file that cannot be read is a ConfigError too."""
    shown = os.fspath(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        from onceway.base.private import let_read  # it imports asyncio, which few that read a file need

        remedy = let_read(error).removeprefix("; ") or "give the path of a topology file"
        if not isinstance(error, PermissionError) and (names := shipped_names()):
            remedy += f", or one that comes along: {', '.join(names)}"
        raise ConfigError([Problem(shown, 0, "", f"cannot be read ({error.strerror or error})", remedy)]) from error
    return loads(data, shown)


def loads(data: bytes | str, file: str = "<text>", directory: str | os.PathLike[str] | None = None) -> Topology:
    """Reads a file's content; `file` is what the problems call it. The paths in it are relative to `directory`; None:
    to that of `file`."""
    problems = Problems(file)
    root = compose(data, problems)
    topology = read_topology(root, problems) if root is not None else None
    problems.raise_if_any()
    assert topology is not None
    place = Path(os.path.abspath(Path(file).parent if directory is None else directory))
    text = data if isinstance(data, str) else data.decode()
    return replace(topology, text=text, directory=place, file_digest=digest(topology))


def shipped(name: str) -> Path:
    """The path of a topology that comes with Onceway: single, pair, line, triangle, ring, mesh5."""
    for folder in _shipped_folders():
        path = folder / f"{name}.yaml"
        if path.is_file():
            return path
    known = ", ".join(shipped_names())
    raise ConfigError([Problem(name, 0, "", "no topology of that name comes with Onceway", f"there are {known}")])


def shipped_names() -> list[str]:
    return sorted({path.stem for folder in _shipped_folders() for path in folder.glob("*.yaml")})


def _shipped_folders() -> tuple[Path, ...]:
    package = Path(__file__).resolve().parent.parent
    return package / "topologies", package.parent / "topologies"  # installed from a wheel; a working copy
