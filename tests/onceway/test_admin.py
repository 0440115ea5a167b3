"""The admin listener and the status document, with a made-up router behind them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from onceway.admin import AdminServer
from onceway.probe import Probe, reachable
from onceway.status import complete
from onceway.topology import format_host_port

BOUND_S = 60.0
RAW: dict[str, Any] = {
    "name": "b",
    "network": "triangle",
    "pid": 4711,
    "incarnation": "00ff00ff00ff00ff",
    "uptime_s": 12.5,
    "booted": True,
    "established": True,
    "recovering_s": None,
    "connections": 3,
    "payload_bytes": 2048,
    "sessions_closed_for_memory": 0,
    "neighbours": {"a": {"up": True, "cost": 1}, "c": {"up": False, "cost": 2}},
    "paths": {"a": {"next": "a", "cost": 1}, "c": {"next": "a", "cost": 2}},
    "addresses": {
        'or"ders': {
            "ingress": {"undone": 7, "unsettled": 9, "publishers": [{"container": "p", "name": "x"}]},
            "egress": {
                "subscribers": [
                    {"queued": 2, "unsettled": 5, "in_doubt": 1, "placeholders": 1},
                    {"queued": 1, "unsettled": 4, "in_doubt": 0, "placeholders": 0},
                ]
            },
            "subscriptions": [
                {"home": "b", "owed": 0},
                {"home": "b", "owed": 0},
                {"home": None, "owed": 6},
            ],
            "oldest_in_doubt_s": 3.25,
        },
        "quiet": {"ingress": {}, "egress": {}, "subscriptions": [], "oldest_in_doubt_s": None},
    },
}


def served(raw: Callable[[], dict[str, Any]], ask: Callable[[Probe, str], Awaitable[None]]) -> None:
    async def go() -> None:
        admin = AdminServer(raw)
        url = f"http://{format_host_port(await admin.start(('127.0.0.1', 0)))}"
        try:
            async with Probe(answer_within_s=BOUND_S) as probe:
                await ask(probe, url)
        finally:
            await admin.stop()

    asyncio.run(go())


def test_status_is_the_routers_document_with_sums_and_state() -> None:
    async def ask(probe: Probe, url: str) -> None:
        status = await probe.status(url)
        assert status is not None
        assert status["state"] == "ready"
        assert status["records"] == {
            "undone": 7,
            "unsettled": 9,
            "queued": 3,
            "held": 9,
            "in_doubt": 1,
            "placeholders": 1,
            "owed": 6,
        }
        assert (status["publishers"], status["subscribers"]) == (1, 2)
        assert status["oldest_in_doubt_s"] == 3.25
        assert status["neighbours"] == RAW["neighbours"]
        assert status["addresses"] == RAW["addresses"]
        assert list(status)[:6] == ["name", "network", "pid", "incarnation", "uptime_s", "state"]

    served(lambda: RAW, ask)


@pytest.mark.parametrize(
    ("change", "state", "code", "answer"),
    [
        ({}, "ready", 200, b"ready\n"),
        ({"booted": False, "established": False}, "starting", 503, b"waiting for the other routers\n"),
        ({"booted": False}, "starting", 503, b"waiting for the other routers\n"),
        ({"established": False}, "recovering", 503, b"recovering\n"),
        ({"established": False, "recovering_s": 41.26}, "recovering", 503, b"recovering, 41.3 s left\n"),
        (
            {"established": False, "recovering_s": 41.26, "awaited": ["a", "c"]},
            "recovering",
            503,
            b"recovering, waiting for a, c, 41.3 s left\n",
        ),
        ({"stopping": True}, "stopping", 503, b"stopping\n"),
    ],
)
def test_readyz_says_what_a_router_waits_for(change: dict[str, Any], state: str, code: int, answer: bytes) -> None:
    raw = {**RAW, **change}
    assert complete(raw)["state"] == state

    async def ask(probe: Probe, url: str) -> None:
        assert await probe.get(url + "/readyz") == (code, answer)
        assert await probe.get(url + "/healthz") == (200, b"alive\n")

    served(lambda: raw, ask)


def test_a_router_that_knows_nothing_yet_has_a_document_too() -> None:
    document = complete({"name": "a"})
    assert document["state"] == "starting"
    assert set(document["records"].values()) == {0}
    assert document["oldest_in_doubt_s"] is None


def test_metrics_are_the_status_in_prometheus_words() -> None:
    async def ask(probe: Probe, url: str) -> None:
        answer = await probe.get(url + "/metrics")
        assert answer is not None
        code, body = answer
        assert code == 200
        lines = body.decode().splitlines()
        for line in (
            'onceway_router_info{incarnation="00ff00ff00ff00ff",name="b",network="triangle"} 1.0',
            'onceway_state{state="ready"} 1.0',
            'onceway_state{state="recovering"} 0.0',
            "onceway_uptime_seconds 12.5",
            "onceway_connections 3.0",
            'onceway_neighbour_up{neighbour="a"} 1.0',
            'onceway_neighbour_up{neighbour="c"} 0.0',
            'onceway_path_cost{router="c",via="a"} 2.0',
            'onceway_records{address="or\\"ders",state="undone"} 7.0',
            'onceway_links{address="or\\"ders",role="subscriber"} 2.0',
            'onceway_subscriptions{address="or\\"ders",home="away"} 1.0',
            "onceway_oldest_in_doubt_seconds 3.25",
        ):
            assert line in lines
        assert any(re.match(r"process_cpu_seconds_total \d", line) for line in lines)

    served(lambda: RAW, ask)


def test_each_scrape_asks_the_router_anew() -> None:
    uptimes = iter([1.0, 2.0])

    async def ask(probe: Probe, url: str) -> None:
        first, second = await probe.get(url + "/metrics"), await probe.get(url + "/metrics")
        assert first is not None
        assert second is not None
        assert b"onceway_uptime_seconds 1.0" in first[1]
        assert b"onceway_uptime_seconds 2.0" in second[1]

    served(lambda: {**RAW, "uptime_s": next(uptimes)}, ask)


def test_openmetrics_is_spoken_to_those_who_ask_for_it() -> None:
    from onceway.metrics import Metrics

    body, content_type = Metrics(lambda: complete(RAW)).render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_unknown_pages_and_other_methods_change_nothing() -> None:
    async def ask(probe: Probe, url: str) -> None:
        answer = await probe.get(url + "/stop")
        assert answer is not None
        assert answer[0] == 404
        assert await probe.get(url + "/") == (200, b"/status\n/healthz\n/readyz\n/metrics\n")

    served(lambda: RAW, ask)


def test_status_ends_with_a_newline_and_is_json() -> None:
    async def ask(probe: Probe, url: str) -> None:
        answer = await probe.get(url + "/status")
        assert answer is not None
        assert answer[1].endswith(b"}\n")
        assert json.loads(answer[1])["name"] == "b"

    served(lambda: RAW, ask)


def test_who_does_not_answer_is_none() -> None:
    async def go() -> None:
        async with Probe(answer_within_s=0.5) as probe:
            assert await probe.status("http://127.0.0.1:1") is None
            assert await probe.get("http://127.0.0.1:1/readyz") is None

    asyncio.run(go())


@pytest.mark.parametrize(
    ("listens", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.1", "10.0.0.1"), ("router.example", "router.example")],
)
def test_a_wildcard_listener_is_asked_on_this_machine(listens: str, asked: str) -> None:
    assert reachable((listens, 8671)) == (asked, 8671)
