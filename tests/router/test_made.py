"""What clients make goes with them, at their router and at its neighbour: every kind of it (`tests/router/made.py`)."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from router.links.anonymous import AddressPort
from router.links.publisher_link import PublisherLink
from router.links.subscriber_link import SubscriberLink
from tests.router.links import Client
from tests.router.made import FORGOTTEN_S, KINDS, Kind, network
from tests.router.neighbours import Neighbours
from tests.router.sizes import Size

CYCLES, MANY = 100, 10_000
AT_ONCE = 100  # cycles, after which it is waited until what was made is forgotten
SPARE = 16
"""Objects that a router may have more of: numbers become larger than those that Python has once for all."""
each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.name for kind in KINDS])


def cycles(network: Neighbours, client: Client, kind: Kind, numbers: range) -> None:
    for number in numbers:
        gone = kind.make(network, client, number)
        gone()
        network.exchange()
        client.events.clear()
        if (number + 1) % AT_ONCE == 0:
            network.sleep(FORGOTTEN_S)
    network.sleep(FORGOTTEN_S)


def sizes(network: Neighbours) -> list[Size]:
    return [Size(each, without=(network,)) for each in (network.a, network.b)]


def stays_as_large(kind: Kind, number: int) -> None:
    made = network()
    client = made.connect("client")
    cycles(made, client, kind, range(number))  # tables keep the size that they had once
    before = sizes(made)
    cycles(made, client, kind, range(number, 2 * number))
    for earlier, later in zip(before, sizes(made), strict=True):
        assert later.number <= earlier.number + SPARE, later.grown_since(earlier)
        assert later.octets <= earlier.octets * 1.05
    for router in (made.a, made.b):
        router.check_invariants()


@each_kind
def test_what_a_client_makes_goes_with_it(kind: Kind) -> None:
    stays_as_large(kind, CYCLES)


@pytest.mark.long
@each_kind
def test_what_a_client_makes_goes_with_it_each_of_ten_thousand_times(kind: Kind) -> None:
    stays_as_large(kind, MANY)


@pytest.fixture
def garbage() -> Iterator[list[Any]]:
    """What only a collection finds, once a test has called `gc.collect`."""
    gc.collect()
    gc.garbage.clear()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@each_kind
def test_a_router_knows_that_something_has_gone_that_only_a_collection_finds(kind: Kind, garbage: list[Any]) -> None:
    """Frozen garbage is looked for when much has gone (`onceway.base.heap.Freezing`)."""
    made = network()
    client = made.connect("client")
    before = [each.population()[1] for each in (made.a, made.b)]
    cycles(made, client, kind, range(5))
    gc.collect()
    found: Counter[str] = Counter()
    for each in garbage:
        core = getattr(each, "core", None)
        if core is not None and type(each).__module__.startswith("router."):
            found[core.name] += 1
    for router, gone in zip((made.a, made.b), before, strict=True):
        here = router.population()[1] - gone
        assert here * 20 >= found[router.config.name], f"{here} things have gone from router {router.config.name}"


def test_each_class_of_links_has_a_row() -> None:
    seen: Counter[str] = Counter()
    for kind in KINDS:
        made = network()
        kind.make(made, made.connect("client"), 0)
        seen += sizes(made)[0].objects
    classes = [AddressPort, PublisherLink, SubscriberLink]
    for each in classes:
        classes += each.__subclasses__()
    made_by_clients = [each.__name__ for each in classes if not each.__subclasses__()]
    assert not [name for name in made_by_clients if not seen[name]]


def test_the_walk_finds_what_stays() -> None:
    made = network()
    before = sizes(made)
    made.b.core.memory.map_parts.collect("client", 1, {b"tag": None}, True, made.now, "user")
    made.sleep(1.0)
    at_a, at_b = [later.number - earlier.number for earlier, later in zip(before, sizes(made), strict=True)]
    assert at_a <= 2 < at_b
