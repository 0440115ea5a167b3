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
from router.core.large import STREAM_IDLE_S
from router.core.ports import MapState, Outcome
from tests.router.harness import Mesh, undecided
from tests.router.links import Client, Clients, make, payloads, symbols

SHARE = 10


def mesh(names: str = "a", **config: Any) -> Mesh:
    return Mesh(names, stream_share=SHARE, **config)


# --- the cores


@pytest.mark.parametrize("router", ["a", "b"])
def test_it_is_passed_on_while_it_arrives(router: str) -> None:
    network = mesh("ab")
    subscriber = network.subscriber(router, takes_parts=True)
    publisher = network.publisher("a")
    one = publisher.part("ab", first=True)
    assert subscriber.bodies() == ["ab"]
    publisher.part("cd")
    assert subscriber.bodies() == ["abcd"]
    assert not publisher.outcomes, "its last part has not come"
    publisher.part("ef", last=True)
    assert subscriber.bodies() == ["abcdef"]
    assert publisher.accepted() == [one]
    assert not publisher.is_held_back()
    assert all(core.payload_bytes == 0 for core in network.cores.values()), "something of it is kept"
    publisher.settle_all_told()
    network.assert_settled()


def test_its_end_may_come_alone() -> None:
    network = mesh()
    subscriber, publisher = network.subscriber("a", takes_parts=True), network.publisher("a")
    publisher.part("ab", first=True)
    publisher.part("", last=True)
    assert subscriber.bodies() == ["ab"]
    assert publisher.accepted() == [0]


@pytest.mark.parametrize("router", ["a", "b"])
def test_its_publisher_is_held_back_by_the_slowest(router: str) -> None:
    network = mesh("ab")
    fast = network.subscriber("a", "fast", takes_parts=True)
    slow = network.subscriber(router, "slow", takes_parts=True)
    slow.room = 4
    publisher = network.publisher("a")
    publisher.part("12345", first=True)
    assert not publisher.is_held_back()
    publisher.part("6789012345")
    assert fast.bodies() == ["123456789012345"]
    assert slow.bodies() == ["1234"]
    assert publisher.is_held_back()
    slow.make_room(5)
    assert slow.bodies() == ["123456789"]
    assert not publisher.is_held_back()


def test_nothing_else_goes_out_meanwhile_and_then_it_does() -> None:
    network = mesh()
    subscriber = network.subscriber("a", takes_parts=True)
    large, small = network.publisher("a", "large"), network.publisher("a", "small")
    large.part("ab", first=True)
    small.send("x")
    assert subscriber.bodies() == ["ab"]
    large.part("cd", last=True)
    assert subscriber.bodies() == ["abcd", "x"]


def test_an_early_outcome_counts_at_the_end() -> None:
    network = mesh()
    subscriber = network.subscriber("a", takes_parts=True, accepts=False)
    publisher = network.publisher("a")
    publisher.part("ab", first=True)
    subscriber.accept(subscriber.got[0].id)
    publisher.part("", aborted=True)
    assert not publisher.outcomes
    assert len(subscriber.aborted) == 1
    assert not subscriber.got
    network.assert_settled()


def test_who_has_accepted_it_takes_no_parts_and_it_is_not_done_before_its_end() -> None:
    network = mesh()
    subscriber = network.subscriber("a", takes_parts=True)
    publisher = network.publisher("a", epoch=1, incarnation=1)
    publisher.part("ab", first=True)
    publisher.part("cd", last=True)
    publisher.leave()
    publisher = network.publisher("a", epoch=2, incarnation=1, unsettled=undecided("t"))
    publisher.part("ab", first=True)
    assert not publisher.outcomes
    publisher.part("cd", last=True)
    assert publisher.accepted() == [0]
    assert subscriber.bodies() == ["abcd"]
    publisher.settle_all_told()
    network.assert_settled()


def test_a_placeholder_gets_it_in_parts() -> None:
    network = mesh()
    subscriber = network.subscriber("a", takes_parts=True, accepts=False)
    publisher = network.publisher("a", epoch=1, incarnation=1)
    publisher.part("ab", first=True)
    publisher.part("cd", last=True)
    (got,) = subscriber.got
    publisher.leave()
    subscriber.leave()
    again = network.subscriber("a", takes_parts=True, unsettled={got.tag: MapState.RECEIVED})
    publisher = network.publisher("a", epoch=2, incarnation=1, unsettled=undecided("t"))
    publisher.part("ab", first=True)
    publisher.part("cd", last=True)
    assert again.bodies("resume") == ["abcd"]
    assert publisher.accepted() == [0]


def test_a_link_without_parts_does_not_take_it() -> None:
    network = mesh()
    subscriber, publisher = network.subscriber("a"), network.publisher("a")
    publisher.part("ab", first=True)
    publisher.part("cd", last=True)
    assert publisher.outcomes[0][:2] == (Outcome.REJECTED, 1)
    publisher.send("x")
    assert subscriber.bodies() == ["x"]
    publisher.settle_all_told()
    network.assert_settled()


def test_what_exceeds_the_subscriptions_size_is_aborted_and_rejected() -> None:
    network = mesh()
    subscriber = network.subscriber("a", takes_parts=True, most_bytes=3)
    publisher = network.publisher("a")
    publisher.part("ab", first=True)
    publisher.part("cd")
    assert len(subscriber.aborted) == 1
    publisher.part("", last=True)
    assert publisher.outcomes[0][:2] == (Outcome.REJECTED, 1)
    publisher.send("x")
    assert subscriber.bodies() == ["x"]


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


def test_a_link_waits_for_so_long_in_mid_message() -> None:
    network = mesh("ab")
    subscriber = network.subscriber("b", takes_parts=True)
    publisher = network.publisher("a")
    publisher.part("ab", first=True)
    network.pass_time(STREAM_IDLE_S - 1)
    publisher.part("1234567890")
    network.pass_time(STREAM_IDLE_S - 1)
    assert publisher.condition is None
    network.pass_time(2)
    assert publisher.ended == (DETACH_FORCED, {}, True), "a client without map and epoch does not notice another one"
    assert len(subscriber.aborted) == 1


def test_who_is_held_back_is_not_silent() -> None:
    network = mesh()
    subscriber = network.subscriber("a", takes_parts=True)
    subscriber.room = 0
    publisher = network.publisher("a")
    publisher.part("1234567890", first=True)
    network.pass_time(2 * STREAM_IDLE_S)
    subscriber.make_room(1 << 30)
    network.pass_time(STREAM_IDLE_S - 1)
    assert publisher.condition is None
    network.pass_time(2)
    assert publisher.condition == DETACH_FORCED


def test_one_is_on_its_way_at_a_time() -> None:
    """Else each of two subscriptions may wait for the end of what the other one has not begun."""
    network = mesh("abc")
    near = [network.subscriber(name, f"s-{name}", takes_parts=True) for name in "ab"]
    first, second, third = (network.publisher(name, f"p-{name}") for name in "abc")
    network.held |= {("a", "b"), ("b", "a")}
    first.part("12345", first=True)
    second.part("67890", first=True)
    network.held.clear()
    network.run()
    third.part("third", first=True)
    assert [each.bodies() for each in near] == [["12345"], ["12345"]]
    assert second.is_held_back()
    first.part("!", last=True)
    second.part("!", last=True)
    third.part("!", last=True)
    assert [each.bodies() for each in near] == [["12345!", "67890!", "third!"]] * 2


@pytest.mark.parametrize("gone", ["publisher", "router"])
def test_a_turn_ends_with_who_has_it(gone: str) -> None:
    network = mesh("abc")
    subscriber = network.subscriber("b", takes_parts=True)
    first, second = network.publisher("c", "p"), network.publisher("b", "q")
    first.part("12345", first=True)
    second.part("67890", first=True)
    if gone == "publisher":
        first.leave()
    else:
        network.crash("c")
        network.run()
    second.part("!", last=True)
    assert subscriber.bodies() == ["67890!"]


def test_another_router_gives_the_turns_when_that_one_is_gone() -> None:
    network = mesh("abc")
    subscriber = network.subscriber("b", takes_parts=True)
    first, second = network.publisher("c", "p"), network.publisher("b", "q")
    first.part("12345", first=True)
    second.part("67890", first=True)
    network.crash("a")
    network.run()
    first.part("!", last=True)
    second.part("!", last=True)
    assert sorted(subscriber.bodies()) == ["12345!", "67890!"]


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


def test_an_aborted_one_is_aborted() -> None:
    clients = streaming()
    subscriber, publisher = clients.connect("s"), clients.connect("p")
    subscriber.receiver(credit=5)
    link = publisher.sender()
    begin(publisher, link, Message(bytes(5_000)).encode()[:2_000])
    link.abort()
    clients.exchange()
    (event,) = subscriber.seen(ResumedTransfer)
    assert event.aborted
    assert clients.router.core.payload_bytes == 0


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


@pytest.mark.parametrize("outcome", [Outcome.RELEASED, Outcome.FAILED])
@pytest.mark.parametrize("takes_parts", [True, False])
def test_who_has_it_whole_gets_it_whole_again(outcome: Outcome, takes_parts: bool) -> None:
    """Its publisher sends again in parts what it has sent whole: the beginning of these is freed by then."""
    network = Mesh("a", stream_share=10)
    subscriber = network.subscriber("a", takes_parts=takes_parts, accepts=False)
    publisher = network.publisher("a", epoch=1, incarnation=1)
    publisher.send("abcdefghij", tags=[b"t"])
    (got,) = subscriber.got
    publisher.leave()
    publisher = network.publisher("a", epoch=2, incarnation=1, unsettled=undecided("t"))
    publisher.part("ab", first=True)
    subscriber.room = 3  # less than the next part has
    subscriber.dispose(outcome, got.id)
    publisher.part("cdefgh")
    publisher.part("ij", last=True)
    assert subscriber.bodies("again") == ["abcdefghij"]
    subscriber.accept(subscriber.got[-1].id)
    publisher.settle_all_told()
    network.assert_settled()
