"""`onceway status`: one router by its URL, and what keeps deliveries from ending."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any

import onceway as library
from onceway import topology
from onceway.cli.status import Asked
from tests.cli.conftest import BOUND_S, COMMAND, called, onceway
from tests.live import LiveNetwork
from tests.running import Program


def test_one_router_by_url_as_json(router: LiveNetwork) -> None:
    url = f"http://127.0.0.1:{router['a'].admin_port}"
    for target in (url, url + "/", url + "/status", url.removeprefix("http://")):
        done = called("status", target, "--json", "--timeout", "60")
        assert done.returncode == 0
        assert json.loads(done.stdout)["a"]["state"] == "ready"


def test_a_router_that_is_not_there_is_a_failure() -> None:
    done = called("status", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "does not answer" in done.stdout


def test_alerts_are_judged_on_the_terminal(router: LiveNetwork) -> None:
    done = called("status", f"http://127.0.0.1:{router['a'].admin_port}", "--well", "--timeout", "60")
    assert "unknown, as receivers for Spark are asked by Prometheus alone: OncewayIngestNobody\n" in done.stdout
    assert "OncewayRouterDown" not in done.stdout
    assert re.fullmatch(r"\d+ firing, \d+ pending, \d+ unknown, \d+ well", done.stdout.splitlines()[-1])
    done = called("status", "http://127.0.0.1:1", "--well")
    assert done.returncode == 1
    assert done.stdout.startswith(
        "pending: OncewayRouterDown: Router 127.0.0.1:1 does not answer\n"
        "    127.0.0.1:1: 0, for 0s; threshold: == 0 for 1m\n"
        "    look at its process and its log; other routers go on without it: docs/operating/monitor.md#"
    )
    silent = "unknown, as router 127.0.0.1:1 does not answer: nobody listens: OncewayRouterNotReady, OncewayLinkDown, "
    assert silent in done.stdout


def test_a_router_that_hangs_is_waited_for_one_second() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert asyncio.run(Asked(url, 1.0, with_addresses=False).ask()) == (
            {url: None},
            {url: "hangs: no answer within 1 s"},
            [],
        )
        done = called("status", url)
        assert done.returncode == 1
        assert "hangs: no answer within 1 s" in done.stdout


def test_a_router_of_this_host_whose_admin_listener_is_taken_away_is_asked_through_its_control_socket(
    tmp_path: Path,
) -> None:
    path = LiveNetwork(tmp_path, ["a"]).topology_path
    with Program([*COMMAND, "up", str(path), "--state-dir", str(tmp_path)]) as up:
        assert up.line() == "network live ready: 1 router, 0 links"
        text = path.read_text()
        admin = topology.load(path).routers["a"]["admin"][1]
        path.write_text(text.replace(str(admin), "1"))  # as if it could not be reached
        for target in ([path], []):
            done = called("status", *target, "--state-dir", tmp_path, "--timeout", "60")
            assert done.returncode == 0, done.stdout + done.stderr
            assert " ready " in done.stdout
            said = "[a] the admin listener does not answer: nobody listens; asked through the control socket"
            assert (said in done.stdout) is bool(target)
        done = called("trace", path, "orders", "p/p", "0", "--state-dir", tmp_path)
        assert done.stdout.startswith("no router knows a publisher p/p of orders")
        assert called("status", path, "--state-dir", tmp_path / "other").returncode == 1


async def test_a_delivery_whose_publisher_vanished_is_in_doubt_and_its_age_is_told(router: LiveNetwork) -> None:
    async with library.connect(router.urls(), container="holder") as connection:
        subscriber = await connection.subscriber("doubt")
        with Program([*COMMAND, "publish", "doubt", "--url", router.urls(), "--count", "3", "--name", "p"]) as giving:
            held = [await subscriber.receive() for _ in range(3)]
            assert status(router)["records"]["in_doubt"] == 0
            giving.process.kill()
            giving.process.wait(BOUND_S)
        async with asyncio.timeout(BOUND_S):
            while status(router)["records"]["in_doubt"] < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert status(router)["oldest_in_doubt_s"] >= 0
        shown = await asyncio.to_thread(onceway, "status", router.topology_path, "--timeout", "60")
        assert "[a] the oldest delivery in doubt has been so for " in shown.stdout
        for delivery in held:
            await delivery.accept()
        await subscriber.close()


def status(router: LiveNetwork) -> dict[str, Any]:
    return router["a"].status()
