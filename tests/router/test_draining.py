"""A router sends its clients away: what is under way gets its outcome first, and each is given another router."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from amqp10.events import ConnectionClosed, ConnectionOpened
from amqp10.frames import FRAME_HEAD_SIZE, MIN_MAX_FRAME_SIZE
from amqp10.runs import Dispositions
from router.core.ports import ACCEPTED
from router.links.draining import BACK_S, CALLS_S, SUBSCRIBER_S, WITH_MEMORY_S, Cut, Drain
from router.links.offers import Place
from tests.router.links import Client, Clients, attached, deliver, send, symbols

ELSEWHERE = [Place("b", {"amqp": ("host-b", 5672)}), Place("c", {"amqp": ("host-c", 5673)})]
PLAIN_S = 10.0
NOWHERE = "nowhere"


def drain(clients: Clients, elsewhere: list[Place] = ELSEWHERE, within_s: float = PLAIN_S) -> None:
    clients.router.start_drain(elsewhere, clients.now, within_s)
    clients.exchange()


def passes(clients: Clients, seconds: float) -> None:
    end = clients.now + seconds
    while clients.now < end:
        clients.now += 0.01
        clients.router.tick(clients.now)
        clients.exchange()


def sent_to(client: Client) -> str | None:
    """The host that the close has named; NOWHERE if the transport was closed without one; None while it is open."""
    if not client.connection.closed:
        return NOWHERE if client.served.closed else None
    (closed,) = client.seen(ConnectionClosed)
    error = closed.error
    assert error.condition == "amqp:connection:forced"
    info = error.info or {}
    assert info.get("hostname") == info.get("network-host")
    return str(info.get("network-host"))


def test_clients_are_told_where_to_go_and_are_spread(clients: Clients, core: Any) -> None:
    many = [clients.connect(f"c{n}") for n in range(6)]
    drain(clients)
    passes(clients, 0.1)
    left = sum(sent_to(client) is not None for client in many)
    assert 0 < left < 6, "all at once"
    passes(clients, 1.0)
    hosts = [sent_to(client) for client in many]
    assert hosts.count("host-b") == hosts.count("host-c") == 3
    assert clients.router.drain.done
    assert clients.router.drain.next_deadline() is None
    assert clients.router.drain.status(clients.now) == {"connections": 0, "left_s": pytest.approx(8.9, abs=0.1)}


def test_the_open_names_the_other_listeners_as_far_as_it_has_room(clients: Clients) -> None:
    clients.router.offers.set_failover(
        [*ELSEWHERE[:1], Place("c", {"amqp": ("host-c", 5673), "amqps": ("host-c", 5671)})]
    )
    (opened,) = clients.connect().seen(ConnectionOpened)
    assert opened.open.properties["failover-server-list"] == [
        {"network-host": "host-b", "port": 5672},
        {"network-host": "host-c", "port": 5673},
        {"network-host": "host-c", "port": 5671, "scheme": "amqps"},
    ]
    clients.router.offers.set_failover(
        [Place(f"r{i}", {"amqp": (f"a-rather-long-host-{i}.example.org", 5672)}) for i in range(99)]
    )
    (opened,) = clients.connect().seen(ConnectionOpened)
    assert 2 <= len(opened.open.properties["failover-server-list"]) < 9
    assert len(opened.open.encode()) + FRAME_HEAD_SIZE <= MIN_MAX_FRAME_SIZE


def test_where_no_other_router_is_known_nothing_is_named(clients: Clients, core: Any) -> None:
    client = clients.connect()
    drain(clients, [])
    passes(clients, 0.1)
    assert sent_to(client) == "None"


def test_nobody_is_sent_to_a_router_that_is_drained_too(clients: Clients, core: Any) -> None:
    """Protocol 8.8.2."""
    many = [clients.connect(f"c{n}") for n in range(3)]
    core.roll_call.draining["b"] = None
    drain(clients)
    passes(clients, 1.0)
    assert [sent_to(client) for client in many] == ["host-c"] * 3


def test_nobody_is_sent_to_a_router_that_is_out_of_reach_by_then(clients: Clients, core: Any) -> None:
    many = [clients.connect(f"c{n}") for n in range(3)]
    drain(clients)
    del core.members.up["c"]
    passes(clients, 1.0)
    assert [sent_to(client) for client in many] == ["host-b"] * 3


def test_nobody_leaves_before_the_publishers_of_other_routers_have_proved_themselves(
    clients: Clients, core: Any
) -> None:
    """Protocol 8.8.3."""
    client = clients.connect()
    core.roll_call.proofs_missing = True
    drain(clients)
    passes(clients, 1.0)
    assert sent_to(client) is None
    core.roll_call.proofs_missing = False
    passes(clients, 0.1)
    assert sent_to(client) == "host-b"


def test_proofs_are_not_awaited_for_ever_or_where_there_is_no_other_router(clients: Clients, core: Any) -> None:
    client = clients.connect()
    core.roll_call.proofs_missing = True
    drain(clients, within_s=6.0)
    passes(clients, 1.9)
    assert sent_to(client) is None
    passes(clients, 0.2)
    assert sent_to(client) == "host-b"
    clients.router.undo_drain(clients.now)
    another = clients.connect()
    drain(clients, [])
    passes(clients, 0.1)
    assert sent_to(another) == "None"


def draining(clients: Clients, core: Any, entry: SimpleNamespace) -> Drain:
    """A drain that has begun, of a router with one subscription, whose entry is this one."""
    _, _, port = attached(clients, core)
    entries = {(port.attach.container, port.attach.name): entry}
    core.addresses[port.attach.address] = SimpleNamespace(subscriptions=SimpleNamespace(entries=entries))
    drain(clients)
    ended = clients.router.drain
    assert ended is not None
    return ended


def test_a_router_stays_until_its_subscriptions_are_back_elsewhere(clients: Clients, core: Any) -> None:
    """Protocol 8.8.4."""
    entry = SimpleNamespace(home="a")
    ended = draining(clients, core, entry)
    passes(clients, 0.5)
    assert ended.done
    entry.home = None
    passes(clients, 0.5)
    assert not ended.handed_over
    entry.home = "b"
    passes(clients, CALLS_S - 0.1)
    assert not ended.handed_over, "the last router may not know yet"
    passes(clients, 0.2)
    assert ended.handed_over
    assert ended.next_deadline() is None


def test_it_does_not_wait_for_ever_for_a_subscription_that_does_not_come_back(clients: Clients, core: Any) -> None:
    ended = draining(clients, core, SimpleNamespace(home=None))
    passes(clients, BACK_S - 0.1)
    assert not ended.handed_over
    passes(clients, CALLS_S + 0.2)
    assert ended.handed_over


def test_it_does_not_wait_where_all_others_are_drained_or_gone(clients: Clients, core: Any) -> None:
    ended = draining(clients, core, SimpleNamespace(home=None))
    passes(clients, 0.3)
    assert ended.done
    assert not ended.handed_over
    core.roll_call.draining["b"] = None
    core.members.up.clear()
    passes(clients, 0.1)
    assert ended.handed_over


def test_a_publisher_loses_its_credit_and_leaves_when_it_has_its_outcomes(clients: Clients, core: Any) -> None:
    client = clients.connect()
    publisher = client.sender()
    send(client, publisher)
    port = core.publishers[0]
    core.under_way[port] = 1
    drain(clients)
    assert publisher.credit == 0
    port.set_window(500, 1 << 20, "")
    passes(clients, 5.0)
    assert publisher.credit == 0
    assert sent_to(client) is None, "it would not know whether its message arrived"
    port.outcome(0, 0, ACCEPTED, 0, True)
    core.under_way.clear()
    passes(clients, 0.1)
    assert sent_to(client) == NOWHERE
    assert core.named("detach_publisher")


def test_a_client_without_epochs_gets_its_outcomes_and_no_close_at_which_it_would_stop_reading(
    clients: Clients, core: Any
) -> None:
    """proton reconnects after such a close only when it next has something to write."""
    client = clients.connect()
    publisher = client.sender()
    send(client, publisher)
    drain(clients)
    core.publishers[0].outcome(0, 0, ACCEPTED, 0, True)
    passes(clients, 0.2)
    assert sent_to(client) == NOWHERE
    assert client.seen(Dispositions)
    assert core.named("detach_publisher")


def test_one_that_brings_an_epoch_is_told_where_to_go(clients: Clients, core: Any) -> None:
    client = clients.connect()
    client.sender(properties=symbols(onceway_epoch=1))
    drain(clients)
    passes(clients, 0.2)
    assert sent_to(client) == "host-b"


def test_a_subscriber_gets_nothing_more_and_leaves_when_it_has_decided(clients: Clients, core: Any) -> None:
    client, _, port = attached(clients, core)
    deliver(port, 1)
    core.under_way[port] = 1
    drain(clients)
    passes(clients, 0.1)
    assert port.capacity() == 0
    assert sent_to(client) is None
    core.under_way.clear()
    passes(clients, 0.1)
    assert sent_to(client) == NOWHERE
    assert core.named("detach_subscriber") == [(port, False, True)]


@pytest.mark.parametrize(("properties", "told"), [({}, False), ({"onceway_epoch": 1}, True)])
def test_the_operator_closes_without_an_error_what_may_not_bear_one(
    clients: Clients, core: Any, properties: dict[str, int], told: bool
) -> None:
    client = clients.connect("c")
    client.sender(properties=symbols(**properties))
    clients.exchange()
    (connection,) = clients.router.connections
    connection.send_away("closed by the operator")
    clients.exchange()
    assert (len(client.seen(ConnectionClosed)), client.served.closed) == (told, True)


@pytest.mark.parametrize(("properties", "patience_s"), [({}, SUBSCRIBER_S), ({"onceway_epoch": 1}, WITH_MEMORY_S)])
def test_publishers_do_not_wait_long_for_a_subscriber_that_does_not_decide(
    clients: Clients, core: Any, properties: dict[str, Any], patience_s: float
) -> None:
    client, _, port = attached(clients, core, properties=symbols(**properties))
    core.under_way[port] = 3
    drain(clients)
    passes(clients, patience_s - 0.1)
    assert sent_to(client) is None
    passes(clients, 0.2)
    assert sent_to(client) == ("host-b" if properties else NOWHERE)
    assert clients.router.drain.cut == [Cut("orders", "subscription", "client", "in", 3)]


def test_the_time_of_the_drain_bounds_every_wait(clients: Clients, core: Any) -> None:
    client = clients.connect()
    client.sender()
    core.under_way[core.publishers[0]] = 1
    drain(clients, within_s=2.0)
    passes(clients, 1.9)
    assert sent_to(client) is None
    passes(clients, 0.2)
    assert sent_to(client) == NOWHERE
    assert clients.router.drain.cut == [Cut("orders", "publisher", "client", "out", 1)]


def test_links_are_refused_and_their_connection_leaves_at_once(clients: Clients, core: Any) -> None:
    first, client = clients.connect("first"), clients.connect()
    core.under_way[first] = 1
    drain(clients)
    assert sent_to(client) is None
    refused = client.receiver()
    error = client.detached(refused).error
    assert error.condition == "amqp:link:detach-forced"
    passes(clients, 0.04)
    assert sent_to(client) is not None


def test_who_comes_to_a_drained_router_gets_no_open(clients: Clients, core: Any) -> None:
    drain(clients)
    client = clients.connect()
    assert client.served.closed
    assert not client.seen(ConnectionOpened)
    clients.router.undo_drain(clients.now)
    assert clients.connect().seen(ConnectionOpened)


def test_a_client_that_does_not_answer_the_close_is_dropped(clients: Clients, core: Any) -> None:
    client = clients.connect()
    clients.clients.remove(client)
    drain(clients)
    passes(clients, 0.3)
    assert client.served.closed
    assert clients.router.drain.done


def test_a_drain_that_is_undone_gives_credit_again(clients: Clients, core: Any) -> None:
    client = clients.connect()
    publisher = client.sender()
    client.receiver(credit=10)
    credit = publisher.credit
    assert credit > 0
    core.under_way[core.publishers[0]] = 1
    drain(clients)
    assert publisher.credit == 0
    assert core.subscribers[0].capacity() == 0
    clients.router.undo_drain(clients.now)
    clients.exchange()
    assert publisher.credit == credit
    assert core.subscribers[0].capacity() == 10
    passes(clients, 20.0)
    assert sent_to(client) is None
