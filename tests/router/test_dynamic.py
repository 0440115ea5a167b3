"""Dynamic sources and targets: nodes that routers make for one link, with addresses of their own (AMQP 3.5.3, 3.5.4)."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from amqp10.outcomes import ACCEPTED, Rejected
from amqp10.runs import Dispositions, Transfers
from amqp10.sections import Message
from amqp10.termini import Source, Target
from amqp10.types import Described, Symbol, ULong
from router.config import AddressConfig, RouterConfig
from router.core.ports import Outcome, PublisherAttach, SubscriberAttach
from router.peers.wire import decode
from tests.router.ends import PublisherEnd, SubscriberEnd
from tests.router.harness import Mesh
from tests.router.links import Client, Clients, make, payloads

DYNAMIC = Source(dynamic=True)
NODE = "_dynamic/a/1"


@pytest.fixture
def clients() -> Clients:
    numbers = count(1)
    everything = AddressConfig("*", guarantee="at-most-once", no_subscribers="hold")  # says nothing of dynamic nodes
    return make(RouterConfig("a", routers=("a",), addresses=(everything,)), token=lambda: str(next(numbers)))


def condition(client: Client, link: object) -> str:
    error = client.detached(link).error  # type: ignore[arg-type]
    return str(error.condition)


def test_each_dynamic_source_is_told_an_address_of_its_own_and_what_is_in_place(clients: Clients) -> None:
    client = clients.connect("c")
    asked = Source(dynamic=True, timeout=600, expiry_policy=Symbol("never"))
    first = client.answered(client.receiver("1", source=asked))
    second = client.answered(client.receiver("2", source=DYNAMIC))
    assert (first.source.address, second.source.address) == ("_dynamic/a/1", "_dynamic/a/2")
    assert first.source.dynamic
    assert (first.source.timeout, first.source.expiry_policy) == (0, "link-detach")
    assert first.source.dynamic_node_properties == {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}


def test_what_jms_asks_of_nodes_is_offered_where_it_is_so() -> None:
    client = make(RouterConfig("a", routers=("a",)), token=lambda: "1").connect("c")
    asked = tuple(map(Symbol, ("topic", "queue", "temporary-topic", "temporary-queue", "shared")))
    node = client.answered(client.receiver("1", source=Source(dynamic=True, capabilities=asked))).source
    assert node.capabilities == ("topic", "temporary-topic", "temporary-queue")
    assert client.answered(client.receiver("2", source=Source("t", capabilities=asked))).source.capabilities == (
        "topic",
    )
    reply = client.answered(client.sender("3", target=Target(node.address, capabilities=asked)))
    assert reply.target.capabilities == ("topic", "temporary-topic", "temporary-queue")


def test_a_publisher_is_told_at_once_that_nobody_is_subscribed() -> None:
    client = make(RouterConfig("a", routers=("a",))).connect("c")
    alone = client.answered(client.sender("1", target=Target("t")))
    assert alone.properties["onceway:waiting"]["reason"] == "no-subscribers"
    client.receiver("2", source=Source("t"))
    assert "onceway:waiting" not in client.answered(client.sender("3", target=Target("t"))).properties


def test_what_is_sent_to_a_dynamic_node_arrives(clients: Clients) -> None:
    asks, serves = clients.connect("asks"), clients.connect("serves")
    replies = asks.receiver(source=DYNAMIC, credit=10)
    reply = serves.sender(target=Target(NODE))
    body = Message("reply").encode()
    reply.send([b"1"], [body])
    clients.exchange()
    assert [Message.decode(each).value for each in payloads(asks.seen(Transfers))] == ["reply"]
    replies.dispose(0, 0, ACCEPTED, False)
    clients.exchange()
    assert [event.state for event in serves.seen(Dispositions)] == [ACCEPTED]


def test_a_node_that_has_gone_rejects_and_refuses(clients: Clients) -> None:
    asks, serves = clients.connect("asks"), clients.connect("serves")
    replies = asks.receiver(source=DYNAMIC, credit=10)
    reply = serves.sender(target=Target(NODE))
    replies.detach(None, closed=True)
    clients.exchange()
    reply.send([b"1"], [Message("reply").encode()])
    clients.exchange()
    (event,) = serves.seen(Dispositions)
    assert isinstance(event.state, Rejected)
    assert event.state.error.condition == "amqp:not-found"
    assert condition(serves, serves.sender("late", target=Target(NODE))) == "amqp:not-found"


def test_a_publisher_of_a_node_that_never_was_is_refused(clients: Clients) -> None:
    client = clients.connect("c")
    assert condition(client, client.sender(target=Target("_dynamic/a/guessed"))) == "amqp:not-found"


def test_another_link_does_not_receive_from_a_dynamic_node(clients: Clients) -> None:
    asks, other = clients.connect("asks"), clients.connect("other")
    asks.receiver(source=DYNAMIC, credit=10)
    assert condition(other, other.receiver(source=Source(NODE))) == "amqp:not-allowed"


def test_a_dynamic_source_that_names_an_address_is_refused(clients: Clients) -> None:
    client = clients.connect("c")
    assert condition(client, client.receiver(source=Source("orders", dynamic=True))) == "amqp:invalid-field"


def test_what_is_sent_to_a_dynamic_target_waits_for_whoever_receives_from_its_node(clients: Clients) -> None:
    makes, other = clients.connect("makes"), clients.connect("other")
    sender = makes.sender(target=Target(dynamic=True))
    target = makes.answered(sender).target
    assert (target.address, target.dynamic) == (f"{NODE}/target", True)
    assert target.dynamic_node_properties == {Symbol("lifetime-policy"): Described(ULong(0x2C), [])}
    assert sender.credit == 0
    receiver = other.receiver(source=Source(target.address, timeout=600, expiry_policy=Symbol("never")), credit=10)
    source = other.answered(receiver).source
    assert (source.timeout, source.expiry_policy) == (0, "link-detach")
    clients.exchange()
    sender.send([b"1"], [Message("m").encode()])
    clients.exchange()
    assert [Message.decode(each).value for each in payloads(other.seen(Transfers))] == ["m"]
    receiver.dispose(0, 0, ACCEPTED, False)
    clients.exchange()
    assert [event.state for event in makes.seen(Dispositions)] == [ACCEPTED]


def test_a_dynamic_target_is_refused_where_nobody_made_or_receives_from_it(clients: Clients) -> None:
    client = clients.connect("c")
    assert condition(client, client.sender("1", target=Target("_dynamic/a/guessed/target"))) == "amqp:not-found"
    assert condition(client, client.sender("2", target=Target("orders", dynamic=True))) == "amqp:invalid-field"


def asks(mesh: Mesh, node: str = NODE) -> SubscriberEnd:
    """Who makes the node, at router a."""
    end = SubscriberEnd(mesh, "a", "asks", 10)
    end.core.attach_subscriber(
        end, SubscriberAttach("asks", "in", node, timeout_s=0.0, expiry_policy="link-detach"), mesh.now
    )
    mesh.run()
    return end


def serves(mesh: Mesh, node: str = NODE, router: str = "b", container: str = "serves", **attach: Any) -> PublisherEnd:
    end = PublisherEnd(mesh, router, container)
    end.core.attach_publisher(end, PublisherAttach(container, "out", node, **attach), mesh.now)
    mesh.run()
    return end


def test_a_node_is_there_for_publishers_at_every_router() -> None:
    mesh = Mesh("ab")
    replies = asks(mesh)
    assert serves(mesh).is_ready
    replies.core.detach_subscriber(replies, False, mesh.now)
    mesh.run()
    assert serves(mesh, container="late").condition == "amqp:not-found"


def test_rounds_of_request_and_reply_leave_no_name() -> None:
    """Whether the service goes first or the one who asked, and whether its link is closed or lost (protocol 8.4.13)."""
    mesh = Mesh("ab")
    for number in range(100):
        closed = number % 4 < 2
        replies, reply = asks(mesh, f"_dynamic/a/{number}"), serves(mesh, f"_dynamic/a/{number}")
        reply.send("reply")
        assert (reply.accepted(), replies.got[0].body) == ([0], "reply")
        if number % 3 == 1:
            reply.leave(closed)
        elif number % 3 == 2:  # both at once
            reply.core.detach_publisher(reply, closed, mesh.now)
        replies.core.detach_subscriber(replies, closed, mesh.now)
        mesh.run()
        if number % 3 == 0:
            reply.leave(closed)
        mesh.now += 1.0
        for core in mesh.cores.values():
            core.tick(mesh.now)
    mesh.pass_time(11.0)  # a link that is lost is waited for for 5 s, by whoever holds nothing of it
    mesh.assert_empty()
    assert [len(core.counters.by_label) for core in mesh.cores.values()] == [1, 1]


@pytest.mark.parametrize("apart_s", [9.8, 30.0], ids=["before it is forgotten", "after"])
def test_who_replies_is_learnt_again_with_its_node(apart_s: float) -> None:
    """HELLO tells of the publisher before JOIN tells of the node (protocol 8.4.13)."""
    mesh = Mesh("ab")
    replies, reply = asks(mesh), serves(mesh)
    replies.accepts = False
    reply.send("reply")
    reply.leave()
    mesh.part("a", "b")
    mesh.pass_time(apart_s)
    assert bool(mesh.cores["b"].addresses) is (apart_s < 10.0)
    mesh.join("a", "b")
    mesh.cores["b"].peer_message("a", decode(mesh.wires["a", "b"].popleft()), mesh.now)
    mesh.now += 1.0
    mesh.cores["b"].tick(mesh.now)
    mesh.run()
    again = serves(mesh, unsettled={b"reply": None})
    again.send("reply")
    replies.core.subscriber_disposition(replies, 500, 500, Outcome.ACCEPTED, False, mesh.now)
    mesh.run()
    assert (again.accepted(), [got.body for got in replies.got]) == ([0], ["reply"])
