"""The links over the real engine with the real core: what a client of one router sees on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.events import ResumedTransfer
from amqp10.outcomes import ACCEPTED, Error, Modified, Rejected
from amqp10.performatives import RCV_FIRST, SND_SETTLED
from amqp10.runs import Dispositions, LinkFlow, Transfers
from amqp10.sections import Message, Properties
from amqp10.termini import Source, Target
from amqp10.types import Symbol, ULong
from router.config import AddressConfig, RouterConfig
from tests.router.links import Client, Clients, make, payloads, symbols

WAITING = Source("orders", timeout=30)


def body(number: int) -> bytes:
    return Message(b"%d" % number).encode()


def bodies(client: Client) -> list[int]:
    """What came to this client, resumed transfers with a payload included."""
    seen = [e for e in client.events if isinstance(e, Transfers | ResumedTransfer)]
    found = [p for e in seen for p in (e.payloads if isinstance(e, Transfers) else [e.payload]) if p]
    return [int(Message.decode(payload).value) for payload in found]


@pytest.fixture
def clients() -> Clients:
    return network()


def network(**address: Any) -> Clients:
    return make(RouterConfig("a", routers=("a",), addresses=(AddressConfig("orders", **address),)))


def publish(client: Client, link: Any, first: int, count: int) -> None:
    numbers = range(first, first + count)
    link.send([b"%d" % n for n in numbers], [body(n) for n in numbers])
    client.clients.exchange()


def accept(client: Client, link: Any, first: int, last: int, state: Any = ACCEPTED, settled: bool = False) -> None:
    link.dispose(first, last, state, settled)
    client.clients.exchange()


def nothing_left(clients: Clients) -> None:
    assert clients.router.core.memory.payload_bytes == 0
    for address in clients.router.status()["addresses"].values():
        assert address["ingress"]["undone"] == address["ingress"]["unsettled"] == 0
        for link in address["egress"]["subscribers"]:
            assert link["unsettled"] == link["in_doubt"] == link["placeholders"] == link["queued"] == 0


# --- deliveries and outcomes


def test_a_window_is_looked_at_again_when_an_eighth_is_used_or_a_larger_payload_comes() -> None:
    """Protocol 6.8.5."""
    addresses = (AddressConfig("orders"),)
    clients = make(RouterConfig("a", routers=("a",), addresses=addresses, window_messages=80, window_bytes=80 << 10))
    p, s = clients.connect("p"), clients.connect("s")
    incoming, out = s.receiver(credit=1_000), p.sender()
    publish(p, out, 0, 1)
    for n in range(1, 100):
        publish(p, out, n, 1)
        assert 50 <= out.credit <= 79
        accept(s, incoming, n - 1, n - 1)
        out.settle(n - 1, n - 1)
    assert len(p.seen(LinkFlow, out)) < 10
    large = Message(bytes(20 << 10)).encode()
    for n, credit in ((100, 2), (101, 1), (102, 1)):
        out.send([b"%d" % n], [large])
        clients.exchange()
        assert out.credit == credit
    accept(s, incoming, 99, 102)
    out.settle(99, 102)
    clients.exchange()
    assert out.credit == 3, "it gets its credit back"


def test_output_that_can_wait_is_written_after_half_of_its_time_at_the_earliest(clients: Clients) -> None:
    """When the oldest is written, a newer one may still go with the next message."""
    first, second = clients.connect("p"), clients.connect("s")
    clients.sleep(1)
    router, began = clients.router, clients.now
    router.take_dirty()
    first.served.output_can_wait()
    router.enter(began + 0.03)
    second.served.output_can_wait()
    router.tick(began + 0.05)
    assert router.take_dirty() == [first.served]
    assert router.next_deadline() == pytest.approx(began + 0.08)
    router.tick(began + 0.08)
    assert router.take_dirty() == [second.served]
    assert router.next_deadline() is None or router.next_deadline() > began + 1


# --- attaching again


def epoch(value: int, **more: Any) -> dict[Symbol, Any]:
    return symbols(onceway_epoch=ULong(value), **more)


@pytest.mark.parametrize("where", ["on its connection", "on a later one", "on a later one, with epochs"])
def test_a_second_attach_steals_at_once_and_only_plain_clients_see_it_closed(clients: Clients, where: str) -> None:
    """Protocol 5.1.7, 5.3.5."""
    remembers = "epochs" in where
    properties = [epoch(n, onceway_incarnation=ULong(1)) if remembers else None for n in (1, 2)]
    first = clients.connect("p")
    link = first.sender(properties=properties[0])
    second = first if where == "on its connection" else clients.connect("p")
    session = second.connection.begin()
    session.sender("out").attach(target=Target("orders"), source=Source(), properties=properties[1])
    clients.to_router(second)  # the answer is not read yet, so nothing shows that the client is there
    assert not clients.router.core.addresses["orders"].ingress.publishers
    clients.exchange()
    detach = first.detached(link)
    assert detach.error.condition == "amqp:link:stolen"
    assert detach.closed is not remembers


def test_a_map_in_parts_is_one_map(clients: Clients) -> None:
    """Protocol 7.7.1."""
    p, s = clients.connect("p"), clients.connect("s")
    s.receiver(credit=10, source=WAITING, properties=epoch(1, onceway_born=ULong(1)))
    publish(p, p.sender(), 1, 4)
    tags = s.seen(Transfers)[0].tags
    s.lose()
    again = clients.connect("s")
    properties = epoch(2, onceway_born=ULong(1))
    for part in (tags[:1], tags[1:2]):
        link = again.receiver(
            source=WAITING, properties=properties, unsettled=dict.fromkeys(part), incomplete_unsettled=True
        )
        detach = again.detached(link)
        assert (detach.closed, detach.error) == (False, None)
        assert again.answered(link).source is not None
    last = again.receiver(credit=10, source=WAITING, properties=properties, unsettled=dict.fromkeys(tags[2:3]))
    assert list(again.answered(last).unsettled) == tags[:3]
    assert bodies(again) == [4]


def test_a_map_in_parts_without_epoch_is_not_implemented(clients: Clients) -> None:
    """Protocol 7.7.1."""
    client = clients.connect("c")
    for link in (
        client.receiver(source=WAITING, unsettled={b"1": None}, incomplete_unsettled=True),
        client.sender(unsettled={b"1": None}, incomplete_unsettled=True),
    ):
        detach = client.detached(link)
        assert (detach.closed, detach.error.condition) == (True, "amqp:not-implemented")


def test_a_publisher_is_told_what_it_gets_of_what_its_target_asks_for(clients: Clients) -> None:
    client = clients.connect("c")
    asked = Target("orders", durable=2, expiry_policy=Symbol("never"), timeout=1_000_000)
    target = client.answered(client.sender(target=asked)).target
    assert (target.durable, target.expiry_policy, target.timeout) == (0, "link-detach", 120)


# --- odds and ends


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "aborted"])
def test_credit_that_transfers_without_a_message_used_comes_back(clients: Clients, settled: bool) -> None:
    """More tags to be settled, or deliveries given up, than the first credit is for (protocol 6.6)."""
    publisher = clients.connect("p")
    tags = [b"%d" % number for number in range(100)]
    epoch = {"onceway:epoch": ULong(2), "onceway:incarnation": ULong(1)}
    link = publisher.sender(unsettled=dict.fromkeys(tags, ACCEPTED), properties=symbols(**epoch))
    clients.connect("s").receiver("in", 10, source=WAITING)
    for tag in tags:
        link.resume(tag, settled=settled, aborted=not settled)
        clients.exchange()
    assert link.capacity() > 0


@pytest.mark.parametrize(
    ("size", "attach"), [(10, {}), (100_000, {}), (10, {"target": Target(None), "rcv_settle_mode": RCV_FIRST})]
)
def test_messages_that_are_aborted_leave_nothing_and_their_credit_comes_back(
    clients: Clients, size: int, attach: dict[str, Any]
) -> None:
    """Aborted is as if it had never been sent (AMQP 2.6.14); a router that only forgets it runs the link dry."""
    publisher = clients.connect("p")
    link = publisher.sender(**attach)
    subscriber = clients.connect("s")
    receiver = subscriber.receiver("in", 10, source=WAITING)
    for number in range(100):
        link.begin(b"%d" % number, Message(bytes(size)).encode()[:-1])
        clients.exchange()
        link.abort()
        clients.exchange()
    assert clients.router.buffers.incomplete_bytes == 0
    nothing_left(clients)
    link.send([b"100"], [Message(b"100", properties=Properties(to="orders")).encode()])
    clients.exchange()
    assert bodies(subscriber) == [100]
    assert receiver.delivery_count == 1, "the subscriber has not seen the others"


LARGE = Message(b"x" * 20_000).encode()
"""Of five frames, where a session may be sent four."""


def test_settled_messages_larger_than_a_frame_wait_for_the_sessions_window_and_none_is_dropped() -> None:
    clients = make(RouterConfig("a", routers=("a",), window_bytes=100_000))
    p, s = clients.connect("p"), clients.connect("s", max_frame_size=4_096, incoming_window=4)
    s.receiver(credit=50, snd_settle_mode=SND_SETTLED)
    out = p.sender(snd_settle_mode=SND_SETTLED, rcv_settle_mode=RCV_FIRST)
    sent = 0
    while sent < 20:  # the subscriber reads nothing meanwhile
        count = min(out.capacity(), 20 - sent)
        out.send([b"%d" % i for i in range(sent, sent + count)], [LARGE] * count, settled=True)
        sent += count
        clients.to_router(p)
        clients.router.flush(clients.now)
        p.events += p.connection.receive_data(p.served.data_to_send(), clients.now)
    clients.exchange()
    assert len(payloads(s.seen(Transfers))) == 20


@pytest.mark.parametrize("kind", ["topic", "queue"])
def test_a_publisher_is_told_why_its_message_was_not_taken(kind: Any) -> None:
    clients = network(type=kind, max_redeliveries=0)
    p, s = clients.connect("p"), clients.connect("s")
    incoming = s.receiver(credit=10)
    out = p.sender()
    publish(p, out, 1, 4)
    error = Error(Symbol("shop:no-such-item"), "item 7", {Symbol("item"): 7})
    accept(s, incoming, 0, 0, Rejected(error))
    accept(s, incoming, 1, 1, Modified(delivery_failed=True, message_annotations={Symbol("x-opt-try"): 1}))
    accept(s, incoming, 2, 2, Rejected())
    accept(s, incoming, 3, 3, Rejected(Error(Symbol("shop:long"), "y" * 5_000)))
    told = {each.first_id: each.state.error for each in p.seen(Dispositions)}
    item = {"condition": "shop:no-such-item", "description": "item 7", "info": {"item": 7}}
    if kind == "queue":  # its only consumer's own words (protocol 16.5.1)
        assert told[0] == Error(Symbol("shop:no-such-item"), "item 7", {"item": 7, "onceway:rejected": 1})
        assert told[3] == Error(Symbol("shop:long"), "y" * 200, {"onceway:rejected": 1})
    else:
        assert told[0].info == {"onceway:rejected": 1, "onceway:reason": item}
        assert told[0].description == "rejected by 1 subscription: shop:no-such-item: item 7"
        assert told[3].info["onceway:reason"] == {"condition": "shop:long", "description": "y" * 200}
    assert told[1].info == {"onceway:rejected": 1, "onceway:reason": {"annotations": {"x-opt-try": 1}}}
    assert told[2].info == {"onceway:rejected": 1}
    out.settle(0, 3)
    clients.exchange()
    assert not clients.router.core.addresses["orders"].records.refused.reasons
    nothing_left(clients)
