"""Large deliveries, which pass through while they arrive (protocol 6.12): the cores, and the links over the real engine."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.errors import DECODE_ERROR, DETACH_FORCED, MESSAGE_SIZE_EXCEEDED
from amqp10.events import LinkDetached, ResumedTransfer, TransferPart
from amqp10.outcomes import ACCEPTED, Rejected
from amqp10.performatives import RCV_FIRST, SND_SETTLED
from amqp10.runs import Dispositions, Transfers
from amqp10.sections import Data, Message, Properties
from amqp10.sender import SenderLink
from amqp10.termini import Target
from amqp10.types import ULong
from router.config import Limits, RouterConfig
from tests.router.harness import Mesh
from tests.router.links import Client, Clients, make, payloads, symbols

SHARE = 10


def mesh(names: str = "a", **config: Any) -> Mesh:
    return Mesh(names, stream_share=SHARE, **config)


# --- the cores


def test_what_nobody_gets_is_held_back_until_it_is_asked_for() -> None:
    network = mesh()
    subscriber = network.subscriber("a", takes_parts=True)
    publisher = network.publisher("a", epoch=1, incarnation=1)
    subscriber.leave()
    publisher.part("1234567890", first=True)
    assert publisher.is_held_back()
    network.subscriber("a", takes_parts=True, unsettled={})
    assert publisher.ended == (DETACH_FORCED, {}, False)


def test_it_waits_until_the_link_is_ready() -> None:
    """Protocol 5.4.7, 5.4.8, 6.12.2."""
    network = mesh("ab")
    subscriber = network.subscriber("a", takes_parts=True)
    network.held.add(("b", "a"))
    publisher = network.publisher("a", proves=False)
    publisher.part("ab", first=True)
    publisher.part("cd", last=True)
    assert publisher.is_held_back()
    assert not subscriber.got
    network.held.clear()
    network.run()
    assert subscriber.bodies() == ["abcd"]
    assert not publisher.is_held_back()


def test_what_is_held_is_bounded() -> None:
    network = mesh("ab", max_message_size=5)
    network.subscriber("a", takes_parts=True)
    network.held.add(("b", "a"))
    publisher = network.publisher("a", proves=False)
    publisher.part("abcd", first=True)
    publisher.part("ef")
    assert publisher.condition == MESSAGE_SIZE_EXCEEDED


# --- the links


def streaming(**config: Any) -> Clients:
    return make(RouterConfig("a", routers=("a",), stream_above=1_000, **config))


def begin(client: Client, link: SenderLink, payload: bytes, tag: bytes = b"t") -> None:
    link.begin(tag, payload)
    client.clients.exchange()


def add(client: Client, link: SenderLink, payload: bytes, *, more: bool = True) -> None:
    link.add(payload, more=more)
    client.clients.exchange()


def test_clients_send_and_receive_parts() -> None:
    clients = streaming(max_message_size=10_000)
    subscriber, publisher = clients.connect("s"), clients.connect("p")
    receiver = subscriber.receiver(credit=5)
    receiver.part_size = 100
    link = publisher.sender()
    assert not publisher.answered(link).max_message_size, "any size passes"
    body = Message(Data(bytes(range(256)) * 100)).encode()
    begin(publisher, link, body[:2_000])
    assert subscriber.seen(TransferPart)
    for at in range(2_000, len(body), 2_000):
        add(publisher, link, body[at : at + 2_000], more=at + 2_000 < len(body))
    got = b"".join(each.payload for each in subscriber.seen(TransferPart))
    message = Message.decode(got)
    assert message.value == bytes(range(256)) * 100
    assert message.message_annotations == {"x-opt-onceway-publisher": "p/out"}
    receiver.dispose(0, 0, ACCEPTED, False)
    clients.exchange()
    (told,) = publisher.seen(Dispositions)
    assert told.state == ACCEPTED


def test_of_a_client_with_a_limit_of_its_own_nothing_is_larger() -> None:
    """Protocol 6.12.1."""
    clients = streaming(limits=Limits(max_message_size=5_000))
    subscriber, publisher = clients.connect("s"), clients.connect("p")
    subscriber.receiver(credit=5)
    link = publisher.sender()
    assert publisher.answered(link).max_message_size == 5_000
    begin(publisher, link, bytes(2_000))
    assert not subscriber.seen(TransferPart)
    add(publisher, link, bytes(4_000))
    error = publisher.detached(link).error
    assert error.condition == "amqp:link:message-size-exceeded"


def test_what_a_receiver_takes_bounds_also_what_is_larger_than_any_message_that_is_joined() -> None:
    """Protocol 6.12.5."""
    clients = streaming(max_message_size=2_000)
    subscriber, publisher = clients.connect("s"), clients.connect("p")
    subscriber.receiver(credit=5, max_message_size=3_000)
    link = publisher.sender()
    body = Message(Data(bytes(4_000))).encode()
    begin(publisher, link, body[:1_500])
    add(publisher, link, body[1_500:3_000])
    add(publisher, link, body[3_000:], more=False)
    (told,) = publisher.seen(Dispositions)
    assert isinstance(told.state, Rejected)
    assert not subscriber.seen(Transfers)


def test_its_first_transfer_is_not_empty() -> None:
    """rhea throws on one that is."""
    clients = streaming()
    subscriber, publisher = clients.connect("s"), clients.connect("p")
    receiver = subscriber.receiver(credit=5)
    begin(publisher, publisher.sender(), Message(bytes(5_000)).encode()[:2_000])
    assert receiver.session.incoming.next_transfer_id == 1


def test_a_small_message_in_parts_is_joined() -> None:
    clients = streaming()
    subscriber, publisher = clients.connect("s"), clients.connect("p")
    subscriber.receiver(credit=5)
    link = publisher.sender()
    body = Message(b"x" * 500).encode()
    begin(publisher, link, body[:100])
    assert not subscriber.seen(Transfers)
    add(publisher, link, body[100:], more=False)
    assert [Message.decode(p).value for e in subscriber.seen(Transfers) for p in e.payloads] == [b"x" * 500]


@pytest.mark.parametrize(
    "joins",
    [
        {"snd_settle_mode": SND_SETTLED},
        {"rcv_settle_mode": RCV_FIRST},
        {"rcv_settle_mode": RCV_FIRST, "target": Target()},
    ],
    ids=["settled", "at least once", "anonymous"],
)
def test_a_link_that_joins_may_send_all_that_it_has_credit_for_at_once(joins: dict[str, Any]) -> None:
    """Else a client that sends settled messages and closes its connection loses those that wait for the window."""
    clients = streaming()
    subscriber, publisher = clients.connect("s"), clients.connect("p")
    receiver = subscriber.receiver(credit=1_000)
    link = publisher.sender(**joins)
    credit = link.credit
    assert link.capacity() == credit > 16
    to = Message(b"x", properties=Properties(to="orders")).encode()
    link.send([b"%d" % number for number in range(credit)], [to] * credit, settled=True)
    clients.exchange()
    assert sum(len(event.tags) for event in subscriber.seen(Transfers, receiver)) == credit


def test_who_subscribes_at_least_once_gets_it_whole_also_when_it_joins_in_the_middle() -> None:
    clients = streaming()
    early, late, publisher = clients.connect("s"), clients.connect("t"), clients.connect("p")
    early.receiver(credit=5, rcv_settle_mode=RCV_FIRST)
    body = Message(bytes(5_000)).encode()
    epochs = [symbols(onceway_epoch=ULong(epoch), onceway_incarnation=ULong(1)) for epoch in (1, 2)]
    link = publisher.sender(properties=epochs[0])
    begin(publisher, link, body[:2_000])
    late.receiver(credit=5, rcv_settle_mode=RCV_FIRST)
    assert publisher.detached(link).error.condition == DETACH_FORCED
    assert [event.aborted for event in early.seen(ResumedTransfer)] == [True]
    again = publisher.sender(properties=epochs[1], unsettled={b"t": None})
    begin(publisher, again, body[:2_000])
    add(publisher, again, body[2_000:], more=False)
    for subscriber in (early, late):
        (got,) = payloads(subscriber.seen(Transfers))
        assert Message.decode(got).value == bytes(5_000)


def test_at_an_address_of_mqtt_it_is_joined_and_bounded() -> None:
    """Protocol 6.12.1."""
    clients = streaming(mqtt_topics=(("things", "orders"),), max_message_size=3_000)
    subscriber, publisher = clients.connect("s"), clients.connect("p")
    subscriber.receiver(credit=5)
    link = publisher.sender()
    assert link.remote_max_message_size == 3_000
    begin(publisher, link, Message(bytes(2_500)).encode()[:2_000])
    assert not subscriber.seen(Transfers)
    add(publisher, link, Message(bytes(2_500)).encode()[2_000:], more=False)
    assert len(payloads(subscriber.seen(Transfers))) == 1
    begin(publisher, link, bytes(3_001), b"u")
    assert publisher.detached(link).error.condition == MESSAGE_SIZE_EXCEEDED


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ([b"\x00\x53\x74" + b"\xd1" + (5_000).to_bytes(4, "big") + bytes(1_500)], "before the body"),
        ([Message(bytes(2_000)).encode(), Message(b"", message_annotations={"x": 1}).encode()], "come once each"),
        ([Message(bytes(2_000)).encode(), b"\x00\x53\x75\xa0\x09cut off"], "cut off"),
    ],
    ids=["properties that do not end", "annotations behind the body", "cut off"],
)
def test_what_is_no_message_is_refused(parts: list[bytes], what: str) -> None:
    clients = streaming()
    clients.connect("s").receiver(credit=5)
    publisher = clients.connect("p")
    link = publisher.sender()
    begin(publisher, link, parts[0])
    for part in parts[1:]:
        add(publisher, link, part, more=False)
    (event,) = publisher.seen(LinkDetached)
    assert event.error.condition == DECODE_ERROR
    assert what in event.error.description


def test_the_session_is_held_back_and_let_go() -> None:
    """Protocol 6.12.3."""
    clients = streaming(stream_share=4_000)
    subscriber, publisher = clients.connect("s", max_frame_size=512), clients.connect("p")
    receiver = subscriber.receiver(credit=5)
    receiver.session.pause_incoming()
    link = publisher.sender()
    link.begin(b"t", Message(bytes(1 << 23)).encode()[:1_000])
    sent = 1_000
    while link.part_capacity() >= 1_000 and sent < 1 << 22:
        add(publisher, link, bytes(1_000))
        sent += 1_000
    assert sent < 8_000_000, "nobody holds it back"
    assert sent < 1 << 21, "what the subscriber's window takes, and a share"
    receiver.session.resume_incoming()
    clients.exchange()
    assert link.part_capacity() >= 1_000
