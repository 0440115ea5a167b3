"""What Azure's clients expect of a peer (router/links/azure.py)."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10 import Transfers
from amqp10.link import Link
from amqp10.outcomes import ACCEPTED, Error, Modified, Rejected
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_SETTLED
from amqp10.runs import Dispositions
from amqp10.sections import Message, Properties
from amqp10.termini import Source, Target
from amqp10.types import Described, Symbol
from router.config import AddressConfig, RouterConfig
from router.links.management_link import MOST_REQUESTS
from router.policies import Policy
from tests.router.links import BODY, Client, Clients, make, payloads

SERVICE_BUS, EVENT_HUBS = "azsdk-python-servicebus", "azsdk-python-eventhubs"
HOST = "amqps://router.example.org:5672"
REQUEST = Message("token", properties=Properties(message_id="number 1"))
UNAUTHORIZED = "amqp:unauthorized-access"


def network(*policies: Policy) -> Clients:
    tokens = iter(range(100))
    addresses = (AddressConfig("queue", type="queue"), AddressConfig("*", no_subscribers="accept"))
    config = RouterConfig("a", routers=("a",), addresses=addresses, policies=policies or None)
    return make(config, token=lambda: str(next(tokens)))


def named(clients: Clients, product: str = SERVICE_BUS, container: str = "azure") -> Client:
    return clients.connect(container, properties={"product": product})


def outcomes(client: Client) -> list[Any]:
    return [each.state for each in client.seen(Dispositions) for _ in range(each.first_id, each.last_id + 1)]


def pair(client: Client, node: str, credit: int = 10) -> tuple[Any, Any]:
    """As their clients of nodes attach it."""
    receiver = client.receiver(f"from {node}", credit, source=Source(node), target=Target(node))
    return client.sender(f"to {node}", source=Source(node), target=Target(node), rcv_settle_mode=RCV_FIRST), receiver


def asked(client: Client, node: str, request: Message = REQUEST) -> Message:
    sender, _ = pair(client, node)
    sender.send([b"1"], [request.encode()])
    client.clients.exchange()
    assert outcomes(client)[-1] is ACCEPTED
    answer = Message.decode(payloads(client.seen(Transfers))[-1])
    assert answer.properties is not None
    assert answer.properties.correlation_id == "number 1"
    return answer


def status(answer: Message) -> int:
    return int((answer.application_properties or {})["status-code"])


def refusal(client: Client, link: Link) -> str:
    error = client.detached(link).error
    assert error is not None
    return error.condition


def test_a_url_is_the_address_at_its_end_and_mode_second_becomes_first() -> None:
    clients = network()
    receiver = clients.connect("other").receiver(source=Source("topic"), credit=10)
    client = named(clients)
    sender: Any = client.sender(target=Target(f"{HOST}/topic"), rcv_settle_mode=RCV_SECOND)
    assert sender.remote_attach.rcv_settle_mode == RCV_FIRST
    assert sender.remote_attach.properties["onceway:guarantee"] == "at-least-once"
    sender.send([b"1"], [BODY])
    clients.exchange()
    assert outcomes(client) == []
    receiver.dispose(0, 0, ACCEPTED, False)
    clients.exchange()
    assert [(each.state, each.settled) for each in client.seen(Dispositions)] == [(ACCEPTED, True)]


def test_others_keep_their_addresses_and_modes() -> None:
    clients = network()
    sender: Any = named(clients, "another").sender(target=Target(f"{HOST}/topic"), rcv_settle_mode=RCV_SECOND)
    assert sender.remote_attach.rcv_settle_mode == RCV_SECOND
    assert "topic" in clients.router.core.addresses  # protocol 1.13


@pytest.mark.parametrize("address", ["topic", "queue"])
def test_what_is_said_of_a_delivery_is_settled_at_once_and_confirmed(address: str) -> None:
    clients = network()
    client = named(clients)
    receiver = client.receiver(source=Source(f"{HOST}/{address}"), credit=10)
    publisher = clients.connect("other")
    sender = publisher.sender(target=Target(address), rcv_settle_mode=RCV_FIRST)
    sender.send([b"1", b"2", b"3"], [BODY] * 3)
    clients.exchange()
    receiver.dispose(0, 0, ACCEPTED, False)
    receiver.dispose(1, 1, Rejected(Error(Symbol("a:b"), "dead")), False)
    receiver.dispose(2, 2, Modified(delivery_failed=True), False)
    clients.exchange()
    said = [(each.state, each.settled) for each in client.seen(Dispositions)]
    assert said == [(ACCEPTED, True), (Rejected(), True), (Modified(delivery_failed=True), True)]
    assert outcomes(publisher)[0] is ACCEPTED
    assert outcomes(publisher)[1].error.description.endswith("dead")
    clients.router.check_invariants()


def test_event_hubs_receives_settled_and_without_its_filters() -> None:
    clients = network()
    client = named(clients, EVENT_HUBS)
    selector = Symbol("apache.org:selector-filter:string")
    filters: Any = {selector: Described(selector, "amqp.annotation.x-opt-offset > '-1'")}
    source = Source(f"{HOST}/hub/ConsumerGroups/$default/Partitions/0", filter=filters)
    receiver: Any = client.receiver(source=source, credit=10)
    assert (receiver.remote_attach.snd_settle_mode, receiver.remote_attach.source.filter) == (SND_SETTLED, None)
    named(clients, EVENT_HUBS, "sender").sender(target=Target(f"{HOST}/hub/Partitions/0")).send([b"1"], [BODY])
    clients.exchange()
    (event,) = client.seen(Transfers)
    assert (Message.decode(event.payloads[0]).value, event.settled) == (b"x", True)


def test_event_hubs_is_told_of_one_partition_although_its_client_does_not_name_itself() -> None:
    client = network().connect("unnamed")
    assert status(asked(client, "$cbs")) == 202
    about = {"operation": "READ", "type": "com.microsoft:eventhub", "name": "hub"}
    answer: Any = asked(
        client, "$management", Message(None, properties=REQUEST.properties, application_properties=about)
    )
    assert (status(answer), answer.value["name"], answer.value["partition_ids"].values) == (200, "hub", ("0",))


def test_management_answers_it_nothing_else() -> None:
    assert status(asked(named(network(), EVENT_HUBS), "$management")) == 501


def test_a_token_gives_nobody_a_right() -> None:
    clients = network(Policy(users=("*",), send=("mine",)), Policy(users=("admin",), send=("*",), receive=("*",)))
    client = named(clients)
    assert status(asked(client, "$cbs", Message("SharedAccessSignature ...", properties=REQUEST.properties))) == 202
    assert client.sender("mine", target=Target(f"{HOST}/mine")).attached
    for name, target in (
        ("url", Target(f"{HOST}/topic")),
        ("plain", Target("topic")),
        ("dynamic", Target(dynamic=True)),
    ):
        assert refusal(client, client.sender(name, target=target)) == UNAUTHORIZED
    for name, source in (("queue", Source(f"{HOST}/queue")), ("dynamic", Source(dynamic=True))):
        assert refusal(client, client.receiver(name, source=source)) == UNAUTHORIZED


@pytest.mark.parametrize("product", [SERVICE_BUS, "another"])
@pytest.mark.parametrize("node", ["$cbs", "$management"])
def test_there_is_nothing_for_whom_no_policy_concerns(product: str, node: str) -> None:
    client = named(network(Policy(users=("admin",), send=("*",))), product)
    sender, receiver = pair(client, node)
    assert {refusal(client, sender), refusal(client, receiver)} <= {UNAUTHORIZED, "amqp:not-found"}


def test_policies_that_change_end_what_receives_from_there() -> None:
    clients = network(Policy(users=("*",), send=("mine",)))
    client = named(clients)
    sender, receiver = pair(client, "$cbs")
    clients.router.reconfigure(
        RouterConfig("a", routers=("a",), policies=(Policy(users=("admin",), send=("*",)),)), 1.0
    )
    clients.exchange()
    assert refusal(client, receiver) == UNAUTHORIZED
    sender.send([b"1"], [REQUEST.encode()])
    clients.exchange()
    assert isinstance(outcomes(client)[-1], Rejected)


@pytest.mark.parametrize("size", [1, 30_000])
def test_answers_that_nobody_takes_are_few(size: int) -> None:
    client = named(network())
    sender, receiver = pair(client, "$cbs", credit=0)
    sent = 0
    while sender.capacity():
        sender.send([b"%d" % sent], [Message(bytes(size), properties=REQUEST.properties).encode()])
        sent += 1
        assert sent <= MOST_REQUESTS
        client.clients.exchange()
    receiver.grant(1)
    client.clients.exchange()
    receiver.dispose(0, 0, ACCEPTED, True)
    client.clients.exchange()
    assert sender.capacity()
