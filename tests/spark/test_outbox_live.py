"""An outbox and real routers, killed together with the process that publishes."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import onceway
from tests.live import LiveNetwork
from tests.live_fixture import LiveNetworks, live_network, pytest_runtest_makereport
from tests.spark.outbox_world import ended, rows, staged, start

__all__ = ["live_network", "pytest_runtest_makereport"]

TRIANGLE = [("a", "b"), ("b", "c"), ("a", "c")]
ROWS = 3000
WITHIN_S = 120.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "victims",
    [("a",), ("a", "process"), pytest.param(("a", "b", "c", "process"), marks=pytest.mark.long)],
    ids="+".join,
)
def test_killed_with_its_routers_it_publishes_the_rest_elsewhere(
    live_network: LiveNetworks, tmp_path: Path, victims: tuple[str, ...]
) -> None:
    # All routers and clients have to be back within that; and where all had died, nothing goes on before it is over
    network = live_network("a", "b", "c", links=TRIANGLE, settings={"subscription_timeout": "40s"})
    location = tmp_path / "outbox"
    files = staged(location, "batch-0", [[("orders", body) for body in rows(0, "orders", 0, ROWS)]])
    received: list[bytes] = []

    async def scene() -> None:
        # the process publishes to a as long as it is there; the audience is at b
        async with onceway.connect(network.urls("b", "c", "a"), container="audience", ordered=True) as connection:
            subscriber = await connection.subscriber("orders", credit=200)
            process = start(location, network.urls("a"), "batch-0", files, timeout_s=WITHIN_S)
            if "process" not in victims:
                process.kill()
                ended(process)
                process = start(location, network.urls(), "batch-0", files, timeout_s=WITHIN_S)
            async for batch in subscriber.batches(max_messages=50):
                before = len(received)
                received.extend(batch.bodies)
                if before < ROWS // 3 <= len(received):
                    _kill(network, victims, process)
                    if "process" in victims:
                        assert await asyncio.to_thread(ended, process) == -signal.SIGKILL
                    if len(victims) > 2:
                        await asyncio.to_thread(network.start, "a", "b", "c", fresh=False)
                    if "process" in victims:
                        process = start(location, network.urls(), "batch-0", [], timeout_s=WITHIN_S)
                await batch.accept()
                if len(received) >= ROWS:
                    break
            assert await asyncio.to_thread(ended, process) == 0

    async def bounded() -> None:
        async with asyncio.timeout(2 * WITHIN_S):
            await scene()

    asyncio.run(bounded())
    assert received == rows(0, "orders", 0, ROWS)
    assert (location / "batch-0.done").exists()


def _kill(network: LiveNetwork, victims: tuple[str, ...], process: Any) -> None:
    if "process" in victims:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
    network.kill(*(name for name in victims if name != "process"))
