"""The named schedules of protocol 11, against the real cores: with every rule the schedule passes."""

from __future__ import annotations

import pytest

from chaos.simulation.scenarios import SCENARIOS
from chaos.simulation.world.world import World


@pytest.mark.parametrize("name", SCENARIOS)
def test_schedule_holds(name: str) -> None:
    SCENARIOS[name](World)
