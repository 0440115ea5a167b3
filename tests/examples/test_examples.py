"""Every program of examples/ does what its docstring says, against a router."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

import onceway.sync
from tests import needs
from tests.live import LiveNetwork
from tests.running import BOUND_S, ROOT, Program

EXAMPLES = ROOT / "examples"
MOST_LINES = 60

ALONE = {
    "batch": ["10000 messages, sum 49995000"],
    "backpressure": ["the publisher was told to wait", "at most 10 messages were here: True"],
    "from_synchronous_code": [f"request {number}" for number in range(4)],
    "reject_and_release": [
        "good: accepted",
        "busy: released, for later",
        "busy: accepted",
        "nonsense: rejected",
        "nonsense was rejected: rejected by 1 subscription: shop:unreadable: this is no order",
    ],
    "cloud_events": [f"order.placed {number} of /shop: {{'number': {number}}}" for number in range(2)],
    "tracing": [
        "trace 1: checkout (internal, links: 0)",
        "trace 2: receive parcels (client, links: 1)",
        "weighing one parcel",
        "trace 1: weigh (internal, links: 0)",
        "trace 1: process parcels (consumer, links: 1)",
        "trace 1: send parcels (producer, links: 0)",
        "trace 1: settle parcels (client, links: 1)",
    ],
    "request_and_reply": ["once -> ONCE", "and -> AND", "only -> ONLY", "once -> ONCE"],
    "several_topics": [
        f"{topic}: {topic} 0, {topic} 1, {topic} 2" for topic in ("fruit", "vegetables", "herbs")
    ],
}  # fmt: skip
TOGETHER = ("publish", "subscribe", "exactly_once", "transaction", "outbox")
OTHERS = ("proton_client", "rhea_client")


def example(name: str, *arguments: object) -> Program:
    return Program([sys.executable, str(EXAMPLES / f"{name}.py"), *map(str, arguments)])


def test_every_example_is_tested_listed_and_short() -> None:
    programs = sorted([*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.js")])
    assert {program.stem for program in programs} == {*ALONE, *TOGETHER, *OTHERS}
    listed = (EXAMPLES / "README.md").read_text()
    for program in programs:
        assert f"| [{program.name}]({program.name}) |" in listed
        assert f"examples/{program.name} [URL" in program.read_text(), "its first comment says how to run it"
        assert len(program.read_text().splitlines()) < MOST_LINES


@pytest.mark.parametrize("name", ALONE)
def test_example_prints_what_it_should(network: LiveNetwork, name: str) -> None:
    with example(name, network.urls()) as program:
        assert program.rest() == ALONE[name]


def test_what_publish_sends_subscribe_receives(network: LiveNetwork) -> None:
    with example("subscribe", network.urls()) as subscribe:
        assert subscribe.line() == "subscribed"
        with example("publish", network.urls()) as publish:
            assert publish.rest() == [f"order {number} was accepted" for number in range(10)]
        assert subscribe.rest() == [f"received order {number}" for number in range(10)]


def test_a_publisher_that_is_killed_goes_on_where_it_was(network: LiveNetwork, tmp_path: Path) -> None:
    received: list[str] = []
    many = threading.Event()  # so many are in the journal, as it has a message before it is sent

    def receive(subscriber: onceway.sync.Subscriber) -> None:
        for delivery in subscriber:
            received.append(delivery.body)
            delivery.accept()
            if len(received) == 200:
                many.set()

    with onceway.sync.connect(network.urls(), ordered=True) as connection:
        subscriber = connection.subscriber("numbers")
        receiving = threading.Thread(target=receive, args=(subscriber,))
        receiving.start()
        try:
            with example("exactly_once", network.urls(), tmp_path / "journal") as program:
                assert program.line() == "begins at 0, sends 0 again"
                assert many.wait(BOUND_S)
                program.process.kill()
            with example("exactly_once", network.urls(), tmp_path / "journal") as program:
                begins = program.line()
                assert begins.startswith("begins at ")
                assert int(begins.split()[2].rstrip(",")) >= 200
                assert program.rest()[-1] == "all 1000 are accepted"
        finally:
            subscriber.close()
            receiving.join(BOUND_S)
    assert received == [f"number {number}" for number in range(1000)]


@pytest.mark.skipif(not needs.has_proton(), reason=needs.PROTON)
def test_proton_publishes_and_receives(network: LiveNetwork) -> None:
    with example("proton_client", network.urls()) as program:
        lines = program.rest()
    assert sorted(lines) == sorted(["5 accepted", *(f"received message {number}" for number in range(5))])


def test_rhea_publishes_and_receives(network: LiveNetwork, rhea: Path) -> None:
    environment = {**os.environ, "NODE_PATH": str(rhea / "node_modules")}
    with Program(["node", str(EXAMPLES / "rhea_client.js"), network.urls()], environment) as program:
        lines = program.rest()
    assert sorted(lines) == sorted(["5 accepted", *(f"received message {number}" for number in range(5))])
