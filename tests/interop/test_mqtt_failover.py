"""QoS 2 through the death of the client's own router: paho-mqtt goes on with its session at another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import LiveNetwork, wait_until
from tests.roamer import Roamer

BOUND_S = 60.0
TOPIC = "press/speed"


@pytest.fixture
def network(tmp_path: Path) -> Iterator[tuple[LiveNetwork, dict[str, int]]]:
    settings = {"dead_after": "2s"}
    pairs = [("a", "b"), ("b", "c"), ("a", "c")]
    network = LiveNetwork(tmp_path, "abc", pairs, [{"match": "*", "no_subscribers": "accept"}], settings)
    ports = network.serve_mqtt(topics={"#": "telemetry"})
    with network:
        yield network.start(), ports


def test_kill_of_the_routers_of_publisher_and_subscriber(network: tuple[LiveNetwork, dict[str, int]]) -> None:
    live, ports = network
    count = 3_000
    subscriber = Roamer("s", [ports["b"], ports["c"]], TOPIC)
    assert subscriber.subscribed.wait(BOUND_S)
    publisher = Roamer("p", [ports["a"], ports["c"]])
    wait_until(lambda: publisher.present, "CONNACK", BOUND_S)
    for number in range(count // 2):
        publisher.client.publish(TOPIC, str(number), 2)
    wait_until(lambda: subscriber.got, "the first messages", BOUND_S)
    live.kill("b")
    wait_until(lambda: len(subscriber.present) > 1, "the subscriber at c", BOUND_S)
    live.spawn("b")
    live.wait_ready("b")
    wait_until(lambda: len(subscriber.got) == count // 2, "the first half", BOUND_S)
    for number in range(count // 2, count):
        publisher.client.publish(TOPIC, str(number), 2)
    wait_until(lambda: len(subscriber.got) > count // 2, "the first messages of the second half", BOUND_S)
    live.kill("a")
    wait_until(lambda: len(set(subscriber.got)) == count, "all messages", BOUND_S)
    wait_until(lambda: not publisher.client.want_write() and len(publisher.present) > 1, "the publisher at c", BOUND_S)
    subscriber.close()
    publisher.close()
    assert subscriber.present == [False, True]
    assert publisher.present == [False, True]
    assert len(subscriber.got) == count, "repeated"
