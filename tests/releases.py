"""Former releases of Onceway: which commit each is, and its tree, taken from the history of this repository.

    tree = release("v0.9.0", directory)       # then PYTHONPATH=tree python -m onceway ...

A test that needs one is skipped where there is no history; `NoHistory` names the remedy.
"""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

RELEASES: Final = {"v0.9.0": "1843a16f78a5c56d5f60deb94c6ce930f8493a2c"}
ROOT: Final = Path(__file__).parent.parent


class NoHistory(Exception):
    """A release cannot be taken from this directory; the text says why, and what to do."""


def extract(name: str, directory: Path, repository: Path = ROOT) -> Path:
    """Puts the tree of a release into the directory, which it makes, and returns it. Raises NoHistory."""
    commit = RELEASES[name]
    remedy = "run this in a clone with its history (git clone without --depth, or git fetch --unshallow)"
    command = ["git", "-C", str(repository), "archive", "--format=tar", commit]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except FileNotFoundError:
        raise NoHistory(f"{name} is not there: git is not installed; {remedy}") from None
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        raise NoHistory(f"{name} ({commit:.12}) is not there: {why}; {remedy}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(directory, filter="data")
    return directory


def release(name: str, directory: Path) -> Path:
    """The same, for a test: it is skipped where there is no history."""
    try:
        return extract(name, directory)
    except NoHistory as missing:
        pytest.skip(str(missing))
