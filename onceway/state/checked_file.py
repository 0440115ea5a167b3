"""The topology file last checked, kept in the state directory.

A process that has died while FILE was being edited comes back with what it last ran with. One that was stopped does
not: whoever starts it is there to read what is wrong (docs/decisions/broken-file.md). What is kept is the file's text,
and behind it a comment that names FILE, so that it is found again when FILE cannot even say which network it is of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from onceway.base.private import open_file
from onceway.state.last_life import died
from onceway.topology import ConfigError, Topology, load, loads
from router.json_text import write_json
from router.reporting import Log

PREFIX: Final = "topology"
_MARK: Final = "# kept by onceway, as checked last: "


def keep(topology: Topology, path: Path) -> None:
    """Keeps the text of a checked file at `path`. It may wait for the disk. OSError if it cannot be written."""
    new = path.with_suffix(".new")
    original = topology.directory / topology.path.name  # a reload from elsewhere names it relative to another place
    descriptor = open_file(new, os.O_WRONLY | os.O_TRUNC)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(f"{topology.text.rstrip()}\n{_MARK}{write_json(str(original))}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def kept_path(directory: Path, name: str = "") -> Path:
    """Where it is kept in the state directory of its network; `name` tells several processes of one network apart."""
    return directory / (f"{PREFIX}-{name}.yaml" if name else f"{PREFIX}.yaml")


def load_kept(path: str | os.PathLike[str]) -> Topology:
    """A file that may have been kept: it counts as the original, whose name its problems have, and to whose directory
    its paths are relative. ConfigError as `load` raises it."""
    topology = load(path)
    _, mark, named = topology.text.rpartition(_MARK)
    if not mark:
        return topology
    original = Path(json.loads(named))
    return replace(topology, path=original, directory=original.parent)


def after_a_death(file: Path, base: Path, routers: Iterable[str] | None = None) -> Topology | None:
    """What processes last ran with that were started from `file`, if one of these routers (None: of any) has not been
    stopped since. `base` is where the state directories of all networks are."""
    found: list[tuple[float, Topology]] = []
    chosen = None if routers is None else list(routers)
    for kept in base.glob(f"*/{PREFIX}*.yaml"):
        try:
            text, _, named = kept.read_text(encoding="utf-8").rpartition(_MARK)
            if json.loads(named) != os.path.abspath(file):
                continue
            topology = loads(text, os.fspath(file))
            changed_at = kept.stat().st_mtime
        except (OSError, ValueError):  # of another version; ConfigError is a ValueError, too
            continue
        if died(kept.parent, topology.routers if chosen is None else chosen):
            found.append((changed_at, topology))
    return max(found, key=lambda each: each[0], default=(0.0, None))[1]


def problems(error: ConfigError) -> str:
    """What is wrong, in one line."""
    return "; ".join(str(problem) for problem in error.problems)


def warn_not_kept(log: Log, path: Path, error: OSError, file: Path) -> None:
    text = "{path} cannot be written ({reason}): routers are started from {file}"
    log.warning("file_not_kept", text, path=str(path), reason=error.strerror or str(error), file=str(file))


def not_reloaded(log: Log, file: Path, error: Exception) -> None:
    for line in str(error).splitlines():
        log.error("reload_refused", "{file} is not followed, nothing changes: {reason}", file=str(file), reason=line)
