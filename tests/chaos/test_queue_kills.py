"""Routers of a queue killed with SIGKILL under load: each message is accepted by one consumer, and by one only.

Three routers, each joined to the others, with a consumer at each, which has a journal: one without a map is at least once
at a queue (protocol 16.6.3). Of two publishers one is proton's. The consumers' own histories say who was handed and who has
accepted what.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests import needs
from tests.chaos.clients import TIMEOUT_S, Clients
from tests.live_fixture import LiveNetworks

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not needs.has_proton(), reason=needs.PROTON),
]

COUNT = 2_000  # of each of two publishers
RATE = 700.0


def test_routers_of_a_queue_are_killed(live_network: LiveNetworks, tmp_path: Path) -> None:
    """One after the other, each is back before the next dies: every client loses its router."""
    queue = {"match": "*", "type": "queue", "subscription_timeout": f"{TIMEOUT_S:g}s"}
    network = live_network("a", "b", "c", links=[("a", "b"), ("b", "c"), ("a", "c")], addresses=[queue])
    with Clients(network, tmp_path, client="onceway", count=COUNT, rate=RATE) as clients:
        consumers = [clients.subscriber(f"s{number}", name) for number, name in enumerate("abc", 1)]
        publishers = [clients.publisher("p1", "a")]
        clients.client = "proton"
        clients.wait_ready(*consumers)
        publishers.append(clients.publisher("p2", "b"))
        clients.wait_ready(*publishers)
        for number, name in enumerate(("a", "b", "c"), 1):
            clients.wait_all_received(number * COUNT // 3)
            clients.kill_routers(name)
            network.start(name, fresh=False)
        clients.stop()
    sent, told = [_of(tmp_path, op, "p1", "p2") for op in ("send", "outcome")]
    received, accepted = [_of(tmp_path, op, "s1", "s2", "s3") for op in ("receive", "accept")]
    assert len(sent) == 2 * COUNT
    assert received == Counter(sent.keys()), "each to one consumer"
    assert accepted == received
    assert told == received, "each has one outcome"
    assert all(_of(tmp_path, "receive", name) for name in ("s1", "s2")), "the nearest to each publisher (16.3.2)"


def _of(directory: Path, op: str, *names: str) -> Counter[tuple[str, int]]:
    lines = [line for name in names for line in (directory / f"{name}.jsonl").read_text().splitlines()]
    events = [event for event in map(json.loads, lines) if event["op"] == op]
    assert op != "outcome" or all(event["outcome"] == "accepted" for event in events)
    return Counter((event["p"], event["n"]) for event in events)
