"""Unsettled maps of many entries: they are read in parts, before the core is called, and nothing overtakes them."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.outcomes import ACCEPTED, Rejected
from amqp10.performatives import LONG_MAP
from amqp10.termini import Source, Target
from amqp10.types import ULong
from router.core.ports import MapState, Outcome
from router.links.client_connection import MAP_PART
from tests.router.links import Client, Clients, symbols

COUNT = 5 * MAP_PART
assert COUNT > LONG_MAP
TAGS = [b"somebody" + (1).to_bytes(8, "big") + b"%d" % n for n in range(COUNT)]
STATES = (None, ACCEPTED, Rejected())


def in_parts(clients: Clients) -> Client:
    client = clients.connect()
    client.served.connection.reader.budget = 1024
    return client


def attach(client: Client, name: str, publishes: bool, **fields: Any) -> None:
    """The client says so; the router has not read it."""
    link = client.session.sender(name) if publishes else client.session.receiver(name)
    source = Source() if publishes else Source("orders")
    link.attach(source=source, target=Target("orders") if publishes else Target(), **fields)


def read_on(clients: Clients, client: Client) -> int:
    """Returns in how many more parts."""
    parts = 0
    while client.served.more:
        client.served.receive_data(b"", clients.now)
        parts += 1
    return parts


@pytest.mark.parametrize("publishes", [False, True])
def test_the_core_is_called_when_all_of_a_map_is_read_and_what_comes_behind_it_waits(
    clients: Clients, core: Any, publishes: bool
) -> None:
    client = in_parts(clients)
    unsettled = {tag: STATES[n % 3] for n, tag in enumerate(TAGS)}
    attach(client, "long", publishes, unsettled=unsettled, properties=symbols(onceway_incarnation=ULong(3)))
    attach(client, "short", publishes)
    clients.to_router(client)
    calls = "attach_publisher" if publishes else "attach_subscriber"
    assert not core.named(calls)
    assert read_on(clients, client) >= 5
    long, short = (call[0] for call in core.named(calls))
    assert (long.name, short.name) == ("long", "short")
    if publishes:
        assert long.unsettled == dict(zip(TAGS, [None, Outcome.ACCEPTED, Outcome.REJECTED] * COUNT, strict=False))
    else:
        states = [MapState.UNDECIDED, MapState.ACCEPTED, MapState.REJECTED] * COUNT
        assert long.unsettled == dict(zip(TAGS, states, strict=False))
        assert [*long.entered] == [TAGS[0][:16]]
        assert [*long.entered[TAGS[0][:16]]] == TAGS


def test_a_long_map_that_is_malformed_ends_its_connection(clients: Clients, core: Any) -> None:
    client = in_parts(clients)
    attach(client, "long", False, unsettled=dict.fromkeys(TAGS))
    said = bytearray(client.connection.data_to_send())
    at = said.rindex(TAGS[-1])
    said[at : at + len(TAGS[-1])] = TAGS[-2]
    client.served.receive_data(bytes(said), clients.now)
    read_on(clients, client)
    assert not core.named("attach_subscriber")
    clients.exchange()
    assert client.connection.closed
    assert client.served.connection.closing


def test_a_client_that_goes_while_its_map_is_read_does_not_reach_the_core(clients: Clients, core: Any) -> None:
    client = in_parts(clients)
    attach(client, "long", False, unsettled=dict.fromkeys(TAGS))
    clients.to_router(client)
    assert client.served.more
    client.served.receive_eof(clients.now)
    assert read_on(clients, client) <= 1
    assert not core.named("attach_subscriber")


def test_an_attach_that_is_refused_has_its_map_not_read(clients: Clients, core: Any) -> None:
    client = in_parts(clients)
    attach(client, "x" * 2_000, False, unsettled=dict.fromkeys(TAGS))
    clients.to_router(client)
    assert not client.served.more
    assert not core.named("attach_subscriber")
