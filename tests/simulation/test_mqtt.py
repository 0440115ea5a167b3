"""MQTT clients with QoS 2 on the protocol cores: random schedules hold, and each rule is missed when it is taken away."""

from __future__ import annotations

import pytest

from chaos.simulation.defects.taking import defective
from chaos.simulation.mqtt.defects import DEFECTS
from chaos.simulation.mqtt.explore import explore
from chaos.simulation.world.checker import Violation


def violation(seed: int) -> Violation | None:
    return explore(seed)[1]


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_a_router_that_dies_loses_and_repeats_nothing(first: int) -> None:
    for seed in range(first, first + 20):
        assert violation(seed) is None, f"rerun: python -m chaos.simulation.mqtt --seed {seed}"


@pytest.mark.parametrize("name", DEFECTS)
def test_without_its_rule_a_seed_fails(name: str) -> None:
    patches, seed, expected = DEFECTS[name]
    with defective(patches):
        found = violation(seed)
    assert str(found).startswith(expected), found
    assert violation(seed) is None
