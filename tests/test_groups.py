"""Tests that start processes really share one worker: a pytest that xdist does not know may ignore the groups silently."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("groups")
def test_groups_are_heeded(request: pytest.FixtureRequest) -> None:
    grouped = bool(request.config.getoption("loadgroup", default=False))
    assert request.node.nodeid.endswith("@groups") is grouped


def test_groups_that_conftest_gives_are_heeded(request: pytest.FixtureRequest) -> None:
    """xdist goes by the name after the @: a group that is given after it has looked is none."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("not under --dist loadgroup")
    given = {item.nodeid: item.get_closest_marker("xdist_group") for item in request.session.items}
    assert [name for name, group in given.items() if group and not name.endswith(f"@{group.args[0]}")] == []
