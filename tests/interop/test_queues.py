"""Consumers of a queue at three routers in line: proton's and rhea's, with every outcome (protocol 16)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Delivery
from proton.reactor import Copy, Selector
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

import onceway
import onceway.sync
from tests.interop.raw import unique
from tests.interop.test_rhea import node
from tests.live import PATIENT, LiveNetwork

pytestmark = pytest.mark.timeout(120)
BOUND_S = 30


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNetwork]:
    queues = [{"match": "jobs*", "type": "queue"}]
    links, directory = [("a", "b"), ("b", "c")], tmp_path_factory.mktemp("queues")
    with LiveNetwork(directory, ("a", "b", "c"), links, addresses=queues, settings=PATIENT) as network:
        yield network.start()


@pytest.fixture
def publishes(network: LiveNetwork) -> Iterator[onceway.sync.Connection]:
    """Our client at a, in a thread of its own: proton's clients here do nothing while another is waited for."""
    with onceway.sync.connect(network["a"].url, container=unique("publisher")) as connection:
        yield connection


@pytest.fixture
def connections(network: LiveNetwork) -> Iterator[dict[str, BlockingConnection]]:
    """One to each router."""
    found = {router.name: BlockingConnection(router.address, timeout=BOUND_S) for router in network}
    yield found
    for connection in found.values():
        connection.close()


def round_trip(connection: BlockingConnection) -> None:
    """What was asked of proton is written, and its router has read it."""
    connection.create_sender(unique("topic")).close()


def take(connection: BlockingConnection, receiver: BlockingReceiver, count: int) -> list[Any]:
    """Accepts so many, all of which come on the credit that the receiver has."""
    connection.wait(lambda: len(receiver.fetcher.incoming) == count, timeout=BOUND_S)
    bodies = []
    for _ in range(count):
        bodies.append(receiver.receive(timeout=BOUND_S).body)
        receiver.accept()
    round_trip(connection)
    return bodies


def settle(connection: BlockingConnection, receiver: BlockingReceiver, state: int, **modified: Any) -> None:
    for name, value in modified.items():
        setattr(receiver.fetcher.unsettled[0].local, name, value)
    receiver.settle(state)
    round_trip(connection)


def test_the_nearest_gets_it_while_it_is_there(
    network: LiveNetwork, connections: dict[str, BlockingConnection], publishes: onceway.sync.Connection, rhea: Path
) -> None:
    """The publisher is at a, proton's consumer at b is nearer than rhea's at c."""
    queue = unique("jobs")
    near = connections["b"].create_receiver(queue, credit=10)
    round_trip(connections["b"])
    with node(rhea, "subscribe.js", network["c"].address, queue, "second", 20) as far:
        assert far.line() == "attached"
        publisher = publishes.publisher(queue)
        sent = [publisher.put(f"near {i}") for i in range(10)]
        assert take(connections["b"], near, 10) == [f"near {i}" for i in range(10)]
        near.close()
        sent += [publisher.put(f"far {i}") for i in range(20)]
        lines = far.rest()
        for one in sent:
            one.wait(BOUND_S)
    assert [f'"far {i}"' in line for i, line in enumerate(lines)] == [True] * 20


def test_rhea_publishes_and_consumers_at_two_routers_share(
    network: LiveNetwork, connections: dict[str, BlockingConnection], rhea: Path
) -> None:
    queue = unique("jobs")
    near, far = [connections[name].create_receiver(queue, credit=credit) for name, credit in (("b", 5), ("c", 50))]
    for name in "bc":
        round_trip(connections[name])
    with node(rhea, "publish.js", network["a"].address, queue, "second", 20) as publisher:
        bodies = [*take(connections["b"], near, 5), *take(connections["c"], far, 15)]
        assert publisher.rest()[-1] == "20 accepted"
    assert sorted(body["sequence"] for body in bodies) == list(range(1, 21))


def test_outcomes_of_a_consumer(connections: dict[str, BlockingConnection], publishes: onceway.sync.Connection) -> None:
    """What the near one cannot take goes to the far one and stays there; its failures count; its rejection is final."""
    queue = unique("jobs")
    near, far = [connections[name].create_receiver(queue, credit=10, name="r") for name in "bc"]
    sent = publishes.publisher(queue).put("job")
    for _ in range(3):
        assert near.receive(timeout=BOUND_S).delivery_count == 0
        settle(connections["b"], near, Delivery.RELEASED)
    near.receive(timeout=BOUND_S)
    settle(connections["b"], near, Delivery.MODIFIED, undeliverable=True)
    assert far.receive(timeout=BOUND_S).delivery_count == 0
    settle(connections["c"], far, Delivery.MODIFIED, failed=True)
    assert far.receive(timeout=BOUND_S).delivery_count == 1
    settle(connections["c"], far, Delivery.REJECTED)
    with pytest.raises(onceway.DeliveryRejected):
        sent.wait(BOUND_S)
    assert not near.fetcher.has_message


@pytest.mark.parametrize("by", ["link", "connection"])
def test_what_a_consumer_leaves_undecided_goes_to_another(
    network: LiveNetwork, connections: dict[str, BlockingConnection], publishes: onceway.sync.Connection, by: str
) -> None:
    queue = unique("jobs")
    leaving = BlockingConnection(network["b"].address, timeout=BOUND_S)
    near = leaving.create_receiver(queue, credit=2)
    publisher = publishes.publisher(queue)
    sent = [publisher.put(body) for body in ("one", "two")]
    assert [near.receive(timeout=BOUND_S).body for _ in range(2)] == ["one", "two"]
    near.accept()
    far = connections["c"].create_receiver(queue, credit=5)
    (near if by == "link" else leaving).close()
    assert far.receive(timeout=BOUND_S).body == "two"
    far.accept()
    round_trip(connections["c"])
    for one in sent:
        one.wait(BOUND_S)
    assert not far.fetcher.has_message


def test_what_a_queue_does_not_do_is_refused(connections: dict[str, BlockingConnection]) -> None:
    with pytest.raises(LinkDetached, match="takes no filters"):
        connections["a"].create_receiver(unique("jobs"), options=Selector("a = 1"))
    source = connections["a"].create_receiver(unique("jobs")).link.remote_source
    assert source.distribution_mode == source.DIST_MODE_MOVE


def browse(connection: BlockingConnection, queue: str) -> BlockingReceiver:
    """A browser that is shown what waits, and has nothing more to see."""
    browser = connection.create_receiver(queue, name="browser", options=Copy())
    assert browser.link.remote_source.distribution_mode == browser.link.remote_source.DIST_MODE_COPY
    assert sorted(browser.receive(timeout=BOUND_S).body for _ in range(3)) == ["one", "three", "two"]
    browser.link.drain(5)
    connection.wait(lambda: not browser.link.credit, timeout=BOUND_S)
    assert not browser.fetcher.has_message
    return browser


def test_a_browser_sees_what_waits_at_all_routers_and_takes_nothing(
    network: LiveNetwork, connections: dict[str, BlockingConnection], publishes: onceway.sync.Connection
) -> None:
    queue = unique("jobs")
    consumer = connections["c"].create_receiver(queue, credit=0)
    near = publishes.publisher(queue)
    sent = [near.put(body) for body in ("one", "two")]
    with onceway.sync.connect(network["b"].url, container=unique("publisher")) as elsewhere:
        sent.append(elsewhere.publisher(queue).put("three"))
        for _ in range(2):
            browse(connections["c"], queue).close()
        consumer.link.flow(5)
        assert sorted(take(connections["c"], consumer, 3)) == ["one", "three", "two"]
        for one in sent:
            one.wait(BOUND_S)
