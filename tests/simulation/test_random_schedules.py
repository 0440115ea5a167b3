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
from chaos.simulation.world.checker import Checker, Violation

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


@pytest.mark.parametrize(
    ("family", "seed"),
    [
        pytest.param("ours", 100225, id="a subscriber takes its map apart at each attach: it has time to end"),
        pytest.param(
            "ours-apart", 880001696, id="a process accepts while it closes: its declared subscription has accepted"
        ),
        pytest.param(
            "silent", 880023945, id="a deadline that a suspended router has missed moves further into the past"
        ),
        pytest.param("queue", 880048244, id="what its publisher has abandoned is read when its group is another's"),
        pytest.param(
            "files", 889004353, id="a router accepts, a subscription is declared, and the publisher reads the outcome"
        ),
        pytest.param("queue", 880043943, id="a queue's consumer is assigned what it named on a link that is gone"),
    ],
)
def test_what_a_fresh_seed_found(family: str, seed: int) -> None:
    _, failure = explore(seed, family)
    assert failure is None


def test_subscription_that_is_declared_later_may_miss_what_was_sent_before() -> None:
    checker = Checker(strict=False)
    checker.confirmed("s0")
    checker.sent(("p0", 0))
    checker.declare("s0", later=True)
    checker.sent(("p0", 1))
    checker.told_accepted(("p0", 0), ("B", 1))
    assert [mid for _, mid, _, _ in checker.missed] == [("p0", 0)], "it has to be told"
    with pytest.raises(Violation, match="s0 has not accepted it"):
        checker.told_accepted(("p0", 1), ("B", 1))


@pytest.mark.parametrize("forgets", [True, False])
def test_subscription_that_is_declared_again_need_not_be_told_where_its_process_forgets(forgets: bool) -> None:
    checker = Checker(strict=False, may_have_holes=False)
    checker.confirmed("s0")
    for number in range(2):
        checker.sent(("p0", number))
    checker.declare("s0", later=True)
    checker.told_accepted(("p0", 0), ("B", 1))
    if forgets:
        checker.forgot("s0")
    checker.told_accepted(("p0", 1), ("B", 1))
    if forgets:
        checker.quiescent({("B", 1)})
    else:
        with pytest.raises(Violation, match="missed"):
            checker.quiescent({("B", 1)})
