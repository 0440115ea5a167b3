"""`mqtt` of a topology file: shared subscriptions, and how their problems are named."""

from __future__ import annotations

import pytest

from onceway import topology
from onceway.topology import ConfigError

HEAD = "network: t\nrouters:\n  a: {amqp: 5672, mqtt: 1883, interrouter: 7671, admin: 8671}\n"
ADDRESSES = "addresses:\n  - {match: jobs, type: queue}\n  - {match: '*', no_subscribers: accept}\n"


def test_shared_subscriptions_are_read() -> None:
    text = HEAD + ADDRESSES + "mqtt: {topics: {plant: telemetry}, shared: {workers/plant/+: jobs}}\n"
    assert topology.loads(text).router_config("a").mqtt_shared == (("workers/plant/+", "jobs"),)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("shared: {workers/plant/#: telemetry}", "telemetry is a topic; give the address telemetry type: queue"),
        ("shared: {workers/other: jobs}", "no topic name that it matches has an address; name a topic in topics"),
        ("shared: {workers: jobs}", '"workers": a topic filter is empty'),
        ("shared: {a/plant: jobs, b/plant: jobs}", "jobs is another group's; give each shared subscription a queue"),
        ("retained: {address: jobs, stores: [s]}", "jobs is in addresses, too"),
        ("retained: {address: kept, stores: []}", "no store"),
        ("retained: {address: kept}", "stores"),
    ],
)
def test_a_problem_is_named(key: str, expected: str) -> None:
    text = HEAD + ADDRESSES + f"mqtt: {{topics: {{plant: telemetry}}, {key}}}\n"
    with pytest.raises(ConfigError) as caught:
        topology.loads(text, "t.yaml")
    (problem,) = caught.value.problems
    assert expected in str(problem)


def test_retained_messages_have_declared_stores() -> None:
    text = HEAD + ADDRESSES + "mqtt: {topics: {plant: telemetry}, retained: {address: kept, stores: [s, t], user: u}}\n"
    config = topology.loads(text).router_config("a")
    assert config.mqtt_retained == "kept"
    assert config.address("kept").subscriptions == (
        ("u|onceway-retained:s", "retained"), ("u|onceway-retained:t", "retained"),
    )  # fmt: skip
