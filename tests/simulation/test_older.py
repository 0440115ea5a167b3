"""Families that were written for a fault find it in the release that has it (`chaos.simulation.older`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.releases import release

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("family", "seed", "words"),
    [
        pytest.param("returns", 70, "told of a gap, and nothing was accepted without it", id="a router returns"),
        pytest.param("books", 19, "silently", id="a plain subscriber is resumed over a gap"),
        pytest.param("dials", 24, "is accepted but s0 has not accepted it", id="a cut lasts until a dial is answered"),
        pytest.param("streamed", 1329, "again as new after accepting it", id="a resumed large delivery is aborted"),
    ],
)
def test_family_finds_its_fault_in_the_release_that_has_it(family: str, seed: int, words: str, tmp_path: Path) -> None:
    tree = release("v0.9.0", tmp_path / "tree")
    command = [sys.executable, "-m", "chaos.simulation.older", str(tree), "--family", family, "--seeds", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert words in done.stdout, done.stdout + done.stderr
    assert done.returncode == 1
