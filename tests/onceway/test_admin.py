"""The admin listener and the status document, with a made-up router behind them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Generator
from itertools import count
from typing import Any

import pytest

from onceway.operate.overview import Overview, Pace, Source
from onceway.operate.pages import AdminServer
from onceway.operate.probe import Probe
from onceway.operate.status import Sums, state_of, summarize
from onceway.serve.ports import reachable
from onceway.topology import format_host_port
from router.core.counters import CountersByAddress, Histogram, Measured

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
    "publishers": 1,
    "subscribers": 2,
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


COUNTERS = CountersByAddress()
ORDERS = COUNTERS.of('or"ders')
ORDERS.received, ORDERS.received_bytes, ORDERS.subscriptions.released = 7, 700, 2
ORDERS.acceptance.observe(0.02, 3)


class Made:
    """A router whose status is a made-up document."""

    def __init__(self, raw: Callable[[], dict[str, Any]]) -> None:
        self._raw = raw

    def summary(self) -> dict[str, Any]:
        return {key: value for key, value in self._raw().items() if key != "addresses"}

    def configuration(self) -> dict[str, str]:
        return {"settings.heartbeat": "500ms"}

    def address_names(self) -> list[str]:
        return list(RAW["addresses"])

    def report(self, address: str) -> Generator[None, None, dict[str, Any] | None]:
        yield
        found: dict[str, Any] | None = RAW["addresses"].get(address)
        return found

    def trace(self, address: str, container: str, name: str, tag: bytes) -> dict[str, Any]:
        return {"name": "b", "known": [], "asked": [address, container, name, tag.hex()]}

    def measured(self) -> Measured:
        return Measured(COUNTERS.by_label, Histogram(), Histogram(), {})


class Wide:
    """A router with many addresses. Notes how many were asked of in one turn of the event loop."""

    def __init__(self, count: int, asked_for_s: float = 0.0) -> None:
        self.names = [f"topic-{i:05d}" for i in range(count)]
        self.asked = 0
        self.in_this_turn = 0
        self.most_in_a_turn = 0
        self._turns = False
        self._asked_for_s = asked_for_s

    def summary(self) -> dict[str, Any]:
        return {"name": "a", "booted": True, "established": True}

    def configuration(self) -> dict[str, str]:
        return {"settings.heartbeat": "500ms"}

    def address_names(self) -> list[str]:
        return self.names[::-1]

    def report(self, address: str) -> Generator[None, None, dict[str, Any] | None]:
        if not self._turns:
            self._turns = True
            asyncio.get_running_loop().call_soon(self._turn)
        self.asked += 1
        self.in_this_turn += 1
        self.most_in_a_turn = max(self.most_in_a_turn, self.in_this_turn)
        end = time.thread_time() + self._asked_for_s
        while time.thread_time() < end:
            pass
        yield
        return {"ingress": {"undone": 1}} if address in self.names else None

    def trace(self, address: str, container: str, name: str, tag: bytes) -> dict[str, Any]:
        return {"name": "b", "known": [], "asked": [address, container, name, tag.hex()]}

    def measured(self) -> Measured:
        return Measured(COUNTERS.by_label, Histogram(), Histogram(), {})

    def _turn(self) -> None:
        self._turns = False
        self.in_this_turn = 0


@contextlib.asynccontextmanager
async def served(source: Source | None = None) -> AsyncIterator[tuple[Probe, str]]:
    """A probe, and the URL of the admin listener of this router, or of one that says RAW."""
    admin = AdminServer(source or Made(lambda: RAW), lambda: ())
    url = f"http://{format_host_port(await admin.start(('127.0.0.1', 0)))}"
    try:
        async with Probe(answer_within_s=BOUND_S) as probe:
            yield probe, url
    finally:
        await admin.stop()


async def test_status_is_the_routers_document_with_sums_and_state() -> None:
    async with served() as (probe, url):
        status = await probe.status(url)
        assert status["state"] == "ready"
        assert status["records"] == {
            "undone": 7,
            "unsettled": 9,
            "queued": 3,
            "held": 9,
            "in_doubt": 1,
            "placeholders": 1,
            "owed": 6,
            "free": 0,
        }
        assert (status["publishers"], status["subscribers"]) == (1, 2)
        assert status["oldest_in_doubt_s"] == 3.25
        assert status["neighbours"] == RAW["neighbours"]
        assert status["addresses"] == RAW["addresses"]
        assert list(status)[:6] == ["name", "network", "pid", "incarnation", "uptime_s", "state"]


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
async def test_readyz_says_what_a_router_waits_for(
    change: dict[str, Any], state: str, code: int, answer: bytes
) -> None:
    raw = {**RAW, **change}
    assert state_of(raw)[0] == state

    async with served(Made(lambda: raw)) as (probe, url):
        assert await probe.get(url + "/readyz") == (code, answer)
        assert await probe.get(url + "/healthz") == (200, b"alive\n")


def test_a_router_that_knows_nothing_yet_has_a_document_too() -> None:
    document = summarize({"name": "a"}, Sums(), None)
    assert document["state"] == "starting"
    assert set(document["records"].values()) == {0}
    assert document["oldest_in_doubt_s"] is None


async def test_metrics_are_the_status_in_prometheus_words() -> None:
    async with served() as (probe, url):
        answer = await probe.get(url + "/metrics")
        assert answer is not None
        code, body = answer
        assert code == 200
        lines = body.decode().splitlines()
        for line in (
            'onceway_router_info{name="b",network="triangle",incarnation="00ff00ff00ff00ff"} 1',
            'onceway_state{state="ready"} 1.0',
            'onceway_state{state="recovering"} 0.0',
            "onceway_uptime_seconds 12.5",
            "onceway_connections 3.0",
            'onceway_neighbour_up{neighbour="a"} 1',
            'onceway_neighbour_up{neighbour="c"} 0',
            'onceway_path_cost{router="c",via="a"} 2',
            'onceway_records{address="or\\"ders",state="undone"} 7',
            'onceway_links{address="or\\"ders",role="subscriber"} 2',
            'onceway_subscriptions{address="or\\"ders",home="away"} 1',
            "onceway_oldest_in_doubt_seconds 3.25",
            'onceway_received_messages_total{address="or\\"ders",settled="false"} 7',
            'onceway_received_bytes_total{address="or\\"ders"} 700',
            'onceway_subscriber_outcomes_total{address="or\\"ders",outcome="released"} 2',
            'onceway_acceptance_seconds_bucket{address="or\\"ders",le="0.01"} 0',
            'onceway_acceptance_seconds_bucket{address="or\\"ders",le="0.025"} 3',
            'onceway_acceptance_seconds_count{address="or\\"ders"} 3',
        ):
            assert line in lines
        assert any(re.match(r"process_cpu_seconds_total \d", line) for line in lines)


async def test_each_scrape_asks_the_router_anew() -> None:
    uptimes = iter([1.0, 2.0])

    async with served(Made(lambda: {**RAW, "uptime_s": next(uptimes)})) as (probe, url):
        first, second = await probe.get(url + "/metrics"), await probe.get(url + "/metrics")
        assert b"onceway_uptime_seconds 1.0" in first[1]
        assert b"onceway_uptime_seconds 2.0" in second[1]


async def test_openmetrics_is_spoken_to_those_who_ask_for_it() -> None:
    async with served() as (probe, url):
        assert probe._session is not None
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        async with probe._session.get(url + "/metrics", headers=accept) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            body = await answer.read()
        assert body.endswith(b"# EOF\n")
        assert body.count(b"# EOF") == 1


async def test_addresses_come_in_pages_in_order_or_one_alone() -> None:
    async with served(Wide(750)) as (probe, url):

        async def addresses(query: str) -> tuple[list[str], str | None]:
            answer = await probe.get(url + "/status" + query)
            document = json.loads(answer[1])
            return list(document["addresses"]), document["next"]

        names = [f"topic-{i:05d}" for i in range(750)]
        assert await addresses("") == (names[:100], "topic-00099")
        assert await addresses("?limit=650&after=topic-00099") == (names[100:], None)
        assert await addresses("?limit=0") == ([], None)
        assert await addresses("?address=topic-00007") == (["topic-00007"], None)
        assert await addresses("?address=none") == ([], None)
        status = await probe.status(url)
        assert list(status["addresses"]) == names
        assert status["records"]["undone"] == 750


@pytest.mark.parametrize("query", ["?limit=-1", "?limit=many", "?limit=1001", "?adress=a"])
async def test_a_bad_query_is_refused(query: str) -> None:
    async with served() as (probe, url):
        answer = await probe.get(url + "/status" + query)
        assert answer[0] == 400


async def test_status_and_metrics_are_made_in_pieces_between_which_the_loop_turns() -> None:
    router = Wide(100, asked_for_s=0.0005)

    async with served(router) as (probe, url):
        for page in ("/status?limit=1000", "/metrics"):
            await probe.get(url + page)
        assert router.asked >= 200
        assert router.most_in_a_turn == 1  # a piece is 0.1 ms


async def test_polls_do_not_sum_up_all_addresses_each_time() -> None:
    router = Wide(100, asked_for_s=0.0009)

    async with served(router) as (probe, url):
        for _ in range(5):
            assert await probe.summary(url) is not None
            assert (await probe.get(url + "/readyz")) == (200, b"ready\n")
            await probe.get(url + "/metrics")
        assert router.asked == 100


@pytest.mark.parametrize(("took_s", "copies"), [(0.00009, 2), (0.001, 1)])
async def test_names_that_take_long_to_copy_are_kept(took_s: float, copies: int) -> None:
    router, now, found = Wide(3), count(step=took_s), []
    overview = Overview(router, lambda: 0.0, lambda: next(now))
    for name in ("z-1", "z-2"):
        found.append(len((await overview.page())[0]))
        router.names.append(name)
    assert found == [3, 2 + copies]


async def test_a_reader_gets_a_tenth_of_the_time() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.00001
        return now

    pace = Pace(clock, clock)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onceway.operate.overview.asyncio.sleep", sleep)
        _, took = await pace.run(None for _ in range(1000))
    assert took < now / 8  # the clock itself takes time here
    assert max(slept) < 0.003


async def test_a_trace_names_a_delivery_by_publisher_and_tag() -> None:
    async with served() as (probe, url):
        answer = await probe.get(url + "/trace?address=orders&container=p&name=x&tag=00ff")
        assert json.loads(answer[1])["asked"] == ["orders", "p", "x", "00ff"]
        for query in ("", "?address=orders&container=p&name=x", "?address=o&container=p&name=x&tag=0"):
            answer = await probe.get(url + "/trace" + query)
            assert answer[0] == 400


async def test_unknown_pages_and_other_methods_change_nothing() -> None:
    async with served() as (probe, url):
        answer = await probe.get(url + "/stop")
        assert answer[0] == 404
        assert await probe.get(url + "/") == (
            200,
            b"/status\n/overview\n/configuration\n/trace\n/healthz\n/readyz\n/metrics\n",
        )


async def test_status_ends_with_a_newline_and_is_json() -> None:
    async with served() as (probe, url):
        answer = await probe.get(url + "/status")
        assert answer[1].endswith(b"}\n")
        assert json.loads(answer[1])["name"] == "b"


async def test_who_does_not_answer_is_none() -> None:
    async with Probe(answer_within_s=0.5) as probe:
        assert await probe.status("http://127.0.0.1:1") is None
        assert await probe.get("http://127.0.0.1:1/readyz") is None


@pytest.mark.parametrize(
    ("listens", "asked"),
    [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.1", "10.0.0.1"), ("router.example", "router.example")],
)
def test_a_wildcard_listener_is_asked_on_this_machine(listens: str, asked: str) -> None:
    assert reachable((listens, 8671)) == (asked, 8671)


def test_a_recovering_router_names_addresses_seconds_and_the_setting() -> None:
    def entry(match: str, left_s: float, timeout_s: float, *, established: bool = False) -> dict[str, object]:
        return {"match": match, "left_s": left_s, "subscription_timeout_s": timeout_s, "established": established}

    raw = {"booted": True, "established": False, "recovering_s": 61.3, "awaited": ["b"]}
    few = [entry("orders", 11.3, 10.0), entry("lake*", 61.3, 60.0), entry("closed", 600.0, 600.0, established=True)]
    why = "recovering, waiting for b, 61.3 s left"
    first = f"{why}: lake* 61.3 s (subscription_timeout 1m), orders 11.3 s (subscription_timeout 10s)"
    assert state_of({**raw, "recovery": few}) == ("recovering", first)
    many = [*few, *(entry(f"t{number}", 1.0, 0.5) for number in range(9))]
    assert state_of({**raw, "recovery": many})[1] == f"{first}, t0 1.0 s (subscription_timeout 500ms), 8 more"
    assert state_of(raw) == ("recovering", why)
