"""Sending links without an address: each message names its own (OASIS, Using the AMQP Anonymous Terminus)."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.events import ConnectionOpened
from amqp10.outcomes import ACCEPTED, RELEASED, Rejected
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_SETTLED
from amqp10.runs import Dispositions, Transfers
from amqp10.sections import Message, Properties
from amqp10.sender import SenderLink
from amqp10.termini import Source, Target
from router.config import AddressConfig, RouterConfig
from router.links.anonymous import MOST_ADDRESSES
from router.policies import Policy
from tests.router.links import Client, Clients, make, payloads


@pytest.fixture
def clients() -> Clients:
    return network()


def network(*addresses: AddressConfig, **config: Any) -> Clients:
    return make(RouterConfig("a", routers=("a",), addresses=addresses, **config))


def anonymous(client: Client, **attach: Any) -> SenderLink:
    return client.sender(target=Target(), rcv_settle_mode=RCV_FIRST, **attach)


def message(to: str | None, body: object = "x") -> bytes:
    return Message(body, properties=Properties(to=to)).encode()


def send(client: Client, link: SenderLink, *messages: bytes, settled: bool = False) -> None:
    start = link.delivery_count
    link.send([b"%d" % (start + n) for n in range(len(messages))], list(messages), settled=settled)
    client.clients.exchange()


def outcomes(client: Client) -> list[str]:
    """One for each delivery: accepted, released, or the condition of a rejection."""
    told: dict[int, str] = {}
    for event in client.seen(Dispositions):
        assert event.settled
        for delivery_id in range(event.first_id, event.last_id + 1):
            assert delivery_id not in told
            state = event.state
            condition = str(state.error.condition) if isinstance(state, Rejected) and state.error else ""
            told[delivery_id] = condition or {ACCEPTED: "accepted", RELEASED: "released"}[state]
    return [told[each] for each in sorted(told)]


def received(client: Client) -> list[Any]:
    return [Message.decode(each).value for each in payloads(client.seen(Transfers))]


def test_the_open_offers_it_and_the_answer_says_what_it_gives(clients: Clients) -> None:
    client = clients.connect("c")
    (opened,) = client.seen(ConnectionOpened)
    assert opened.open.offered_capabilities == ("ANONYMOUS-RELAY",), "no DELAYED_DELIVERY: JMS refuses it then"
    answer = client.answered(anonymous(client))
    assert (answer.target.address, answer.rcv_settle_mode) == (None, RCV_FIRST)
    assert answer.properties["onceway:guarantee"] == "at-least-once"


def test_exactly_once_is_refused_and_not_lowered(clients: Clients) -> None:
    client = clients.connect("c")
    link = client.sender(target=Target(), rcv_settle_mode=RCV_SECOND)
    assert client.detached(link).error.condition == "amqp:not-allowed"
    answer = client.answered(
        client.sender("settled", target=Target(), snd_settle_mode=SND_SETTLED, rcv_settle_mode=RCV_SECOND)
    )
    assert answer.properties["onceway:guarantee"] == "at-most-once"


def test_each_message_goes_where_it_says_in_its_order_and_gets_the_outcome_of_there(clients: Clients) -> None:
    subscribers = {to: clients.connect(to) for to in ("one", "two")}
    links = {to: each.receiver(source=Source(to), credit=100) for to, each in subscribers.items()}
    client = clients.connect("c")
    link = anonymous(client)
    send(client, link, *(message(("one", "two")[n % 2], n) for n in range(10)))
    assert received(subscribers["one"]) == [0, 2, 4, 6, 8]
    assert received(subscribers["two"]) == [1, 3, 5, 7, 9]
    links["one"].dispose(0, 4, ACCEPTED, True)
    clients.exchange()
    assert outcomes(client) == ["accepted"] * 5
    links["two"].dispose(0, 4, Rejected(), True)
    clients.exchange()
    assert outcomes(client) == ["accepted", "onceway:rejected"] * 5
    assert clients.router.core.memory.payload_bytes == 0


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (message(None), "amqp:invalid-field"),
        (message("$cbs"), "amqp:not-found"),
        (message("_dynamic/a/gone"), "amqp:not-found"),
        (message("nobody"), "released"),
        (message("secret"), "amqp:unauthorized-access"),
        (message("lossy"), "amqp:not-allowed"),
        (message("x" * 1025), "amqp:invalid-field"),
        (b"\x00", "amqp:decode-error"),
    ],
)
def test_what_cannot_be_published_is_refused_alone(payload: bytes, told: str) -> None:
    clients = network(
        AddressConfig("lossy", guarantee="at-most-once"),
        policies=(Policy(users=("*",), send=("nobody", "lossy", "one", "_dynamic/*"), receive=("*",), dynamic=True),),
    )
    here = clients.connect("s")
    subscription = here.receiver(source=Source("one"), credit=100)
    client = clients.connect("c")
    link = anonymous(client)
    send(client, link, message("one", 1), payload, message("one", 2))
    assert received(here) == [1, 2]
    subscription.dispose(0, 1, ACCEPTED, True)
    clients.exchange()
    assert outcomes(client) == ["accepted", told, "accepted"]
    credit = link.credit
    send(client, link, payload, settled=True)  # nobody is told, and the link goes on
    assert not link.detached
    assert link.credit >= credit - 1


def test_messages_that_are_sent_settled_arrive(clients: Clients) -> None:
    here = clients.connect("s")
    here.receiver(source=Source("one"), credit=100)
    client = clients.connect("c")
    send(client, anonymous(client), message("one", 1), message("one", 2), settled=True)
    assert received(here) == [1, 2]
    assert outcomes(client) == []


@pytest.mark.parametrize("waits", [False, True], ids=["one router", "another has to answer"])
def test_what_is_sent_settled_just_before_a_close_arrives(clients: Clients, waits: bool) -> None:
    """All is read at once, so that the core is not ready for the address when the link goes (protocol 6.9.3)."""
    here = clients.connect("s")
    here.receiver(source=Source("one"), credit=100)
    client = clients.connect("c")
    link = anonymous(client)
    if waits:
        clients.router.peer_up("b", clients.now)
    link.send([b"1", b"2"], [message("one", 1), message("one", 2)], settled=True)
    link.detach(None, closed=True)
    client.connection.close()
    clients.exchange()
    if waits:
        assert received(here) == []
        clients.router.peer_down("b", clients.now)
        clients.exchange()
    assert received(here) == [1, 2]
    assert not clients.router.core.publishers


def test_a_slow_subscriber_of_one_address_holds_up_its_own_messages_only(clients: Clients) -> None:
    slow, quick = clients.connect("slow"), clients.connect("quick")
    slow.receiver(source=Source("slow"), credit=1)
    answered = quick.receiver(source=Source("quick"), credit=100)
    client = clients.connect("c")
    link = anonymous(client)
    send(client, link, *(message("slow") for _ in range(20)), message("quick", "here"))
    assert received(quick) == ["here"]
    answered.dispose(0, 0, ACCEPTED, True)
    clients.exchange()
    assert outcomes(client) == ["accepted"]
    assert clients.router.connections  # and it has credit for as many more as the window says
    assert link.credit > 0


def test_publishers_of_addresses_that_are_not_used_are_closed(clients: Clients) -> None:
    client = clients.connect("c")
    link = anonymous(client)
    for number in range(MOST_ADDRESSES + 20):
        send(client, link, message(f"to/{number}"))
    assert outcomes(client) == ["released"] * (MOST_ADDRESSES + 20)
    assert len(clients.router.core.publishers) == MOST_ADDRESSES


def test_publishers_of_dynamic_nodes_are_closed_with_these() -> None:
    clients = make(RouterConfig("a", routers=("a",)), token=iter("12").__next__)
    asks, client = clients.connect("asks"), clients.connect("c")
    nodes = [asks.receiver(each, source=Source(dynamic=True), credit=10) for each in "12"]
    link = anonymous(client)
    send(client, link, message("_dynamic/a/1"), message("_dynamic/a/2"))
    nodes[0].dispose(0, 0, ACCEPTED, True)
    nodes[0].detach(None, closed=True)
    clients.exchange()
    core = clients.router.core
    assert [each.name for each in core.addresses.values() if each.attached.all()] == ["_dynamic/a/2"]
    nodes[1].detach(None, closed=True)  # while it has a reply without an outcome
    clients.exchange()
    assert (outcomes(client), [*core.publishers]) == (["accepted", "amqp:not-found"], [])


def test_publishers_of_the_next_attach_are_others(clients: Clients) -> None:
    """What a link sends again is new: nothing that another router has read of the link before can take it back."""
    here = clients.connect("s")
    here.receiver(source=Source("one"), credit=100)
    for container in ("c", "c"):
        client = clients.connect(container)
        send(client, anonymous(client), message("one", "again"))
        client.connection.close()
        clients.exchange()
    assert received(here) == ["again", "again"]


def test_two_unsettled_deliveries_with_one_tag_end_the_link(clients: Clients) -> None:
    here = clients.connect("s")
    here.receiver(source=Source("one"), credit=100)
    client = clients.connect("c")
    link = anonymous(client)
    link.send([b"tag", b"tag"], [message("one", 1), message("one", 2)])
    clients.exchange()
    error = client.detached(link).error
    assert error.condition == "amqp:invalid-field"
    assert "delivery-tag 746167" in str(error.description)


def test_a_message_before_the_router_is_booted_waits() -> None:
    clients = make(RouterConfig("a", routers=("a", "b"), window_messages=10), fresh=False)
    client = clients.connect("c")
    link = anonymous(client)
    send(client, link, message("one", 1))
    assert outcomes(client) == []
    assert not link.detached
    send(client, link, *(message("one") for _ in range(9)), settled=True)
    assert link.credit == 0  # what waits is bounded, however it was sent
    client.connection.close()
    clients.exchange()
