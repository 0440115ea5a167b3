"""Tests that start processes really share one worker: a pytest that xdist does not know may ignore the groups silently."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_groups_are_heeded(request: pytest.FixtureRequest) -> None:
    grouped = bool(request.config.getoption("loadgroup", default=False))
    assert request.node.nodeid.endswith("@groups") is grouped
