"""Random schedules, always the same ones: see `chaos/simulation/random/explore.py`. Thousands more of them are run by hand."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.simulation.random.explore import explore
from chaos.simulation.random.plan import FAMILIES, family_of

SEEDS = 240
AT_ONCE = 20


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_no_random_schedule_breaks_a_guarantee(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        _, failure = explore(seed)
        assert failure is None, f"{family_of(seed)} {seed}: {failure!r}"


def digest(seeds: range) -> str:
    lines = [line for seed in seeds for line in explore(seed)[0].world.transcript]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def test_a_seed_says_everything_whatever_the_order_of_hashes() -> None:
    seeds = range(len(FAMILIES))
    code = f"from tests.simulation.test_random_schedules import digest; print(digest({seeds!r}))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert found == {digest(seeds) + "\n"}


def test_a_declared_subscription_has_what_a_process_accepted_while_it_closed() -> None:
    """Its journal says so, and the process that goes on with it."""
    _, failure = explore(880001696)
    assert failure is None


def test_a_subscriber_with_small_frames_and_a_slow_disk_has_time_to_end() -> None:
    """It takes its map apart at each attach, and a part of its deliveries each time: 40 s longer than others."""
    _, failure = explore(100225)
    assert failure is None
