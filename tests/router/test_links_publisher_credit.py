"""Publishers' links: what they are allowed to bring, and who brings too much."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.performatives import RCV_FIRST
from amqp10.runs import LinkFlow
from amqp10.sections import Message
from router.config import RouterConfig
from router.core.ports import Waiting
from tests.builds import puts_stand_ins
from tests.router.links import BODY, MIB, Clients, NotingCore, make, send


def test_credit_is_granted_at_once_and_echo_asked_for(clients: Clients) -> None:
    """Protocol 5.1.4."""
    client = clients.connect()
    link = client.sender()
    assert link.credit == 64
    (flow,) = client.seen(LinkFlow, link)
    assert flow.flow.echo


def test_a_client_with_a_map_and_no_incarnation_gets_an_echo_and_no_credit(clients: Clients, core: Any) -> None:
    core.credit = False
    client = clients.connect()
    link = client.sender(unsettled={})
    (flow,) = client.seen(LinkFlow, link)
    assert flow.flow.echo
    assert link.credit == 0
    assert len(core.named("proved")) == 1
    core.publishers[0].ready()
    clients.exchange()
    assert link.credit == 64


def test_credit_follows_the_sizes_that_come(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    link.send([b"1"], [Message(bytes(MIB)).encode()])
    clients.exchange()
    core.publishers[0].set_window(999, 7 * MIB, "")
    clients.exchange()
    assert link.credit == 6  # the annotated MiB is a little more than a MiB


def test_transfers_that_cross_a_withdrawal_of_credit_are_taken(clients: Clients, core: Any) -> None:
    """Protocol 6.8.5."""
    client = clients.connect()
    link = client.sender()
    link.send([b"1", b"2"], [BODY, BODY])
    data = client.connection.data_to_send()
    core.publishers[0].set_window(0, 0, "no subscription")
    clients.router.flush(clients.now)
    withdrawal = client.served.data_to_send()
    client.served.receive_data(data, clients.now)
    client.events += client.connection.receive_data(withdrawal, clients.now)
    clients.exchange()
    assert link.attached
    assert link.credit == 0
    assert core.named("transfers")[0][2] == [b"1", b"2"]


def test_more_transfers_than_were_ever_allowed_detach_the_link(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender(rcv_settle_mode=RCV_FIRST)  # the session's window has room for all
    link.credit = 100
    send(client, link, 65)
    detach = client.detached(link)
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
    ((port, closed, _),) = core.named("detach_publisher")
    assert not closed
    assert port.detached


def test_sessions_windows_close_at_the_memory_limit_and_open_below_it(clients: Clients, core: Any) -> None:
    """Protocol 6.8.4."""
    client = clients.connect()
    client.sender()
    core.memory.payload_bytes = clients.router.config.memory_limit + 1
    clients.router.flush(clients.now)
    (session,) = client.served.connection.channels.sessions
    assert session.incoming.paused
    core.memory.payload_bytes = 0
    clients.exchange()
    assert not session.incoming.paused


def test_publishers_that_bring_more_at_twice_the_memory_limit_are_detached(clients: Clients, core: Any) -> None:
    """Protocol 6.8.4."""
    client = clients.connect()
    link = client.sender()
    core.memory.payload_bytes = 2 * clients.router.config.memory_limit
    send(client, link)
    error = client.detached(link).error
    assert error.condition == "amqp:resource-limit-exceeded"
    most = clients.router.config.memory_limit
    assert error.description == f"limit memory_limit: this router holds twice its {most} bytes of payload"
    assert clients.router.admission.refused == {"memory_limit": 1}
    assert core.named("transfers") == []
    assert len(core.named("detach_publisher")) == 1


@puts_stand_ins
def test_incomplete_messages_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.router.Core", NotingCore)
    clients = make(RouterConfig("a", memory_limit=100_000, max_message_size=90_000, max_frame_size=4_096))
    one, other = clients.connect("one"), clients.connect("other")
    first, second = one.sender(), other.sender()
    for client, link in ((one, first), (other, second)):
        link.send([b"1"], [Message(bytes(60_000)).encode()])
        data = client.connection.data_to_send()
        client.served.receive_data(data[:-1_000], clients.now)
    assert clients.router.buffers.incomplete_bytes < 100_000
    assert first.attached
    clients.router.flush(clients.now)
    other.events += other.connection.receive_data(other.served.data_to_send(), clients.now)
    error = other.detached(second).error
    assert error.condition == "amqp:resource-limit-exceeded"
    one.lose()
    other.lose()
    assert clients.router.buffers.incomplete_bytes == 0


def test_why_it_waits_is_told_in_a_flow_that_changes_no_credit(clients: Clients, core: Any) -> None:
    """Protocol 6.8.7."""
    client = clients.connect()
    link = client.sender()
    port = core.publishers[0]
    port.set_window(0, 0, "window")
    clients.exchange()
    client.seen(LinkFlow, link)
    port.waiting(Waiting("window", 9, (("s", "in", "b"),), 41.2, "subscription_timeout"))
    clients.exchange()
    (flow,) = [event.flow for event in client.seen(LinkFlow, link)][-1:]
    assert flow.link_credit == 0
    assert not flow.echo
    assert flow.properties == {
        "onceway:waiting": {
            "reason": "window",
            "address": "orders",
            "count": 9,
            "subscriptions": [["s", "in", "b"]],
            "seconds": 42,
            "setting": "subscription_timeout",
        }
    }
    port.waiting(None)
    clients.exchange()
    assert client.seen(LinkFlow, link)[-1].flow.properties == {"onceway:waiting": None}
    port.set_window(10, MIB, "")
    clients.exchange()
    assert client.seen(LinkFlow, link)[-1].flow.properties is None
    assert link.credit == 10


def test_a_router_that_stops_says_so(clients: Clients) -> None:
    client = clients.connect()
    link = client.sender()
    clients.router.start_drain([], clients.now, 10.0)
    clients.exchange()
    flow = client.seen(LinkFlow, link)[-1].flow
    assert flow.properties["onceway:waiting"]["reason"] == "draining"
    assert flow.link_credit == 0
