"""What clients of MQTT make goes with them, at both routers: every kind of it (`tests/router/mqtt_made.py`)."""

from __future__ import annotations

import pytest

from tests.router.mqtt_made import FORGOTTEN_S, KINDS, Kind, Network
from tests.router.sizes import Size

CYCLES, MANY = 100, 10_000
SPARE = 32
"""Objects that a router may have more of: numbers become larger, and what is remembered has other sizes."""
each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])


def cycles(network: Network, kind: Kind, numbers: range) -> list[Size]:
    for number in numbers:
        gone = kind.make(network, number)
        gone()
        network.exchange()
        assert not network.mqtt
        network.sleep(0.5)
    network.sleep(FORGOTTEN_S)
    return [Size(each, without=(network, network.store)) for each in (network.a, network.b)]


def stays_as_large(kind: Kind, number: int) -> None:
    network = Network()
    payload = [each.core.memory.payload_bytes for each in (network.a, network.b)]
    before = cycles(network, kind, range(number))  # tables keep the size that they had once
    after = cycles(network, kind, range(number, 2 * number))
    for earlier, later in zip(before, after, strict=True):
        assert later.number <= earlier.number + SPARE + kind.spare, later.grown_since(earlier)
        assert later.octets <= earlier.octets * 1.05 + 64 * kind.spare
    assert payload == [each.core.memory.payload_bytes for each in (network.a, network.b)]
    for each in (network.a, network.b):
        assert not each.mqtt.connections
        each.check_invariants()
        assert each.mqtt.status()["session_bytes"] == each.buffers.incomplete_bytes == 0


@each_kind
def test_what_a_client_makes_goes_with_it(kind: Kind) -> None:
    stays_as_large(kind, CYCLES)


@pytest.mark.long
@each_kind
def test_what_a_client_makes_goes_with_it_each_of_ten_thousand_times(kind: Kind) -> None:
    stays_as_large(kind, MANY)
