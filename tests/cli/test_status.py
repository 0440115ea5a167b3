"""`onceway status`: one router by its URL, and what keeps deliveries from ending."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import onceway as library
from tests.cli.conftest import BOUND_S, COMMAND, onceway
from tests.live import LiveNetwork
from tests.running import Program


def test_one_router_by_url_as_json(router: LiveNetwork) -> None:
    url = f"http://127.0.0.1:{router['a'].admin_port}"
    for target in (url, url + "/", url + "/status"):
        done = onceway("status", target, "--json")
        assert done.returncode == 0
        assert json.loads(done.stdout)["a"]["state"] == "ready"


def test_a_router_that_is_not_there_is_a_failure() -> None:
    done = onceway("status", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "does not answer" in done.stdout


def test_a_delivery_whose_publisher_vanished_is_in_doubt_and_its_age_is_told(router: LiveNetwork) -> None:
    async def go() -> None:
        async with library.connect(router.urls(), container="holder") as connection:
            subscriber = await connection.subscriber("doubt")
            with Program(
                [*COMMAND, "publish", "doubt", "--url", router.urls(), "--count", "3", "--name", "p"]
            ) as giving:
                held = [await subscriber.receive() for _ in range(3)]
                assert status(router)["records"]["in_doubt"] == 0
                giving.process.kill()
                giving.process.wait(BOUND_S)
            async with asyncio.timeout(BOUND_S):
                while status(router)["records"]["in_doubt"] < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            assert status(router)["oldest_in_doubt_s"] >= 0
            shown = await asyncio.to_thread(onceway, "status", router.topology_path)
            assert "[a] the oldest delivery in doubt has been so for " in shown.stdout
            for delivery in held:
                await delivery.accept()
            await subscriber.close()

    asyncio.run(go())


def status(router: LiveNetwork) -> dict[str, Any]:
    return router["a"].status()
