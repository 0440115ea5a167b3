"""What receiving clients ask of a link: drain, a selector, and where else they may connect."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from proton import Message
from proton.reactor import Selector
from proton.utils import BlockingConnection

from tests.interop.conftest import Way
from tests.interop.raw import publish, unique
from tests.interop.test_rhea import node
from tests.live import LiveNetwork

BOUND_S = 30
COLOURS = ("red", "blue", "red")
SELECTOR = "colour = 'red' AND number > 1"


def messages() -> list[bytes]:
    return [
        Message(body=number, properties={"colour": colour, "number": number}).encode()
        for number, colour in enumerate(COLOURS, 1)
    ]


def test_proton_drains(way: Way) -> None:
    """The router sends what there is, and uses up the rest of the credit."""
    address = unique("drained")
    connection = BlockingConnection(way.subscribe, timeout=BOUND_S)
    receiver = connection.create_receiver(address, credit=0)
    with ThreadPoolExecutor() as executor:
        published = executor.submit(publish, way.publish, address, messages())
        bodies = []
        while len(bodies) < len(COLOURS):
            receiver.link.drain(10)
            connection.wait(lambda: receiver.link.credit == 0, timeout=BOUND_S)
            while receiver.fetcher.has_message:
                bodies.append(receiver.receive().body)
                receiver.accept()
        connection.close()
        assert bodies == [1, 2, 3]
        assert published.result() == ["accepted"] * len(COLOURS)


def test_proton_selects(way: Way) -> None:
    address = unique("selected")
    connection = BlockingConnection(way.subscribe, timeout=BOUND_S)
    receiver = connection.create_receiver(address, credit=10, options=Selector(SELECTOR))
    with ThreadPoolExecutor() as executor:
        published = executor.submit(publish, way.publish, address, messages())
        assert receiver.receive().body == 3
        receiver.accept()
        connection.close()
        assert published.result() == ["accepted"] * len(COLOURS)


def test_proton_reads_where_else_it_may_connect(three_routers: LiveNetwork) -> None:
    connection = BlockingConnection(three_routers["a"].address, timeout=BOUND_S)
    listed = connection.conn.remote_properties["failover-server-list"]
    connection.close()
    found = [f"{each['network-host']}:{int(each['port'])}" for each in listed]
    assert found == [three_routers[name].address for name in "bc"]
    for place in found:
        BlockingConnection(place, timeout=BOUND_S).close()


def test_rhea_drains_selects_and_reads_where_else_it_may_connect(three_routers: LiveNetwork, rhea: Path) -> None:
    address = unique("drained-by-rhea")
    with node(rhea, "links.js", three_routers["c"].address, "drain", address, len(COLOURS), SELECTOR) as client:
        assert client.line() == " ".join(sorted(three_routers[name].address for name in "ab"))
        publish(three_routers["a"].address, address, messages())
        assert client.rest() == ["all: 1", "all: 2", "all: 3", "selected: 3", "drained"]
