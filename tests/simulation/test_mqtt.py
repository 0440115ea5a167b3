"""MQTT clients with QoS 2 at routers: schedules hold, and each rule is missed when it is taken away."""

from __future__ import annotations

import pytest

from chaos.simulation.defects.taking import defective
from chaos.simulation.mqtt.defects import DEFECTS
from chaos.simulation.mqtt.explore import explore
from chaos.simulation.mqtt.schedules import SCHEDULES, follow


def test_a_router_that_dies_loses_and_repeats_nothing() -> None:
    for seed in (*range(20), 61, 408, 1422, 2143, 4033):  # the last five found something
        assert explore(seed)[1] is None, f"rerun: python -m chaos.simulation.mqtt --seed {seed}"


@pytest.mark.parametrize("name", SCHEDULES)
def test_named_schedule_holds(name: str) -> None:
    assert follow(name) is None


@pytest.mark.parametrize("name", DEFECTS)
def test_without_its_rule_a_schedule_fails(name: str) -> None:
    patches, schedule, expected = DEFECTS[name]
    with defective(patches):
        assert str(follow(schedule)).startswith(expected)
