"""What tests of several edges have alike: two routers that are processes, and the time that a story may take."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from onceway.base.loop import run
from tests.live import LiveNetwork

BOUND_S = 60.0


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    with LiveNetwork(tmp_path_factory.mktemp("network"), ("a", "b"), [("a", "b")]) as network:
        yield network.start()


def play(story: Coroutine[Any, Any, None]) -> None:
    run(asyncio.wait_for(story, 3 * BOUND_S))  # on the loop that edges have
