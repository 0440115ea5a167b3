"""`expire: true` of an address: what is over when it would be sent is not sent, and counts as accepted."""

from __future__ import annotations

import pytest

from amqp10.codec import encode_value
from amqp10.outcomes import ACCEPTED, Modified
from amqp10.performatives import RCV_FIRST
from amqp10.runs import Dispositions, Transfers
from amqp10.sections import Header, Message, Properties
from amqp10.termini import Source, Target
from amqp10.types import Described, Timestamp, ULong
from router.config import AddressConfig, Life, RouterConfig
from router.core.ports import MapState, Outcome
from router.router import Router
from tests.router.harness import Mesh
from tests.router.links import Clients, payloads

TOPIC = AddressConfig(expire=True)
QUEUE = AddressConfig(type="queue", expire=True)
NOW_MS = 1_000_000


def clients_of(address: AddressConfig, wall_ms: list[int]) -> Clients:
    """Of one router, whose addresses are all of that kind, and whose wall clock a test moves on."""
    config = RouterConfig("a", routers=("a",), defaults=address)
    return Clients(Router(config, Life(1, 1.0, True), wall_us=lambda: wall_ms[0] * 1000), 1.0)


@pytest.mark.parametrize(
    ("address", "settled"), [(TOPIC, False), (TOPIC, True), (QUEUE, False), (AddressConfig(), False)]
)
def test_a_message_whose_time_is_over_before_there_is_credit_is_accepted_in_place_of_being_sent(
    address: AddressConfig, settled: bool
) -> None:
    """Protocol 6.4.8."""
    wall_ms = [NOW_MS]
    clients = clients_of(address, wall_ms)
    client = clients.connect("c")
    receiver = client.receiver("in", source=Source("t"))
    sender = client.sender("out", target=Target("t"))
    times = [(50, None), (None, None), (200, None), (None, NOW_MS + 50), (None, NOW_MS + 200), (200, NOW_MS + 50)]
    bodies = [
        Message(
            str(i), header=Header(ttl=ttl), properties=Properties(absolute_expiry_time=until and Timestamp(until))
        ).encode()
        for i, (ttl, until) in enumerate(times)
    ]
    sender.send([b"%d" % i for i in range(6)], bodies, settled=settled)
    clients.exchange()
    wall_ms[0] += 100
    receiver.grant(10)
    clients.exchange()
    kept = ["1", "2", "4"] if address.expire else [str(i) for i in range(6)]
    got = [Message.decode(each) for each in payloads(client.seen(Transfers))]
    assert [each.value for each in got] == kept
    left_ms = 100 if address.expire else 200
    assert [each.header.ttl if each.header else None for each in got if each.value == "2"] == [left_ms]
    if settled:
        return
    assert clients.router.core.counters.of("t").expired == 6 - len(kept)
    told = [each for each in client.seen(Dispositions) if each.state == ACCEPTED]
    assert sum(each.last_id - each.first_id + 1 for each in told) == 6 - len(kept)
    receiver.dispose(0, 5, ACCEPTED, False)
    clients.exchange()
    told = [each for each in client.seen(Dispositions) if each.state == ACCEPTED]
    assert sum(each.last_id - each.first_id + 1 for each in told) == 6


def test_a_message_that_comes_again_is_told_what_is_left_of_its_ttl_then() -> None:
    wall_ms = [NOW_MS]
    clients = clients_of(TOPIC, wall_ms)
    client = clients.connect("c")
    receiver = client.receiver("in", source=Source("t"))
    receiver.grant(10)
    client.sender("out", target=Target("t")).send([b"0"], [Message("m", header=Header(ttl=200)).encode()])
    clients.exchange()
    wall_ms[0] += 50
    receiver.dispose(0, 0, Modified(delivery_failed=True), True)
    clients.exchange()
    headers = [Message.decode(each).header for each in payloads(client.seen(Transfers))]
    assert [(each.ttl, each.delivery_count) for each in headers if each] == [(200, 0), (150, 1)]


@pytest.mark.parametrize(("address", "told"), [(QUEUE, False), (TOPIC, True)])
def test_no_consumer_of_a_queue_is_told_that_no_other_one_has_had_the_message(
    address: AddressConfig, told: bool
) -> None:
    clients = clients_of(address, [0])
    client = clients.connect("c")
    client.receiver("in", source=Source("q")).grant(2)
    header = encode_value(Described(ULong(0x70), [None, None, None, True]))
    bodies = [header + Message("m").encode(), encode_value(Described(ULong(0x70), [7])) + Message("odd").encode()]
    client.sender("out", target=Target("q")).send([b"0", b"1"], bodies)
    clients.exchange()
    first, odd = payloads(client.seen(Transfers))
    found = Message.decode(first).header
    assert (found.first_acquirer if found else False) is told
    assert odd.startswith(bodies[1][:8])


def test_ttl_of_a_message_of_an_anonymous_link_counts_too() -> None:
    wall_ms = [NOW_MS]
    clients = clients_of(TOPIC, wall_ms)
    client = clients.connect("c")
    receiver = client.receiver("in", source=Source("t"))
    sender = client.sender("out", target=Target(), rcv_settle_mode=RCV_FIRST)
    bodies = [Message(ttl, header=Header(ttl=ttl), properties=Properties(to="t")).encode() for ttl in (50, 200)]
    sender.send([b"0", b"1"], bodies)
    clients.exchange()
    wall_ms[0] += 100
    receiver.grant(10)
    clients.exchange()
    assert [Message.decode(each).value for each in payloads(client.seen(Transfers))] == [200]


def test_message_whose_header_cannot_be_read_has_no_ttl() -> None:
    clients = clients_of(TOPIC, [0])
    client = clients.connect("c")
    receiver = client.receiver("in", source=Source("t"))
    sender = client.sender("out", target=Target("t"))
    header = encode_value(Described(ULong(0x70), [None, None, "soon"]))
    sender.send([b"0", b"1"], [header + Message("a").encode(), Message("b").encode()])
    receiver.grant(10)
    clients.exchange()
    assert [payload[-1:] for payload in payloads(client.seen(Transfers))] == [b"a", b"b"]


def test_what_is_over_when_it_would_come_again_or_comes_after_an_absence_is_not_sent() -> None:
    """Protocol 6.4.8."""
    mesh = Mesh("ab", address=TOPIC)
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    subscriber.dead = {b"m0"}
    subscriber.dispose(Outcome.RELEASED, subscriber.got[0].id, subscriber.got[1].id)
    assert subscriber.bodies("again") == ["m1"]
    assert publisher.accepted() == [0]
    held = {got.tag: MapState.UNDECIDED for got in subscriber.got[1:2]}
    subscriber.leave()
    publisher.send("m2", "m3")
    back = mesh.subscriber("a", epoch=2, born=1, unsettled=held, credit=0)
    back.dead = {b"m0", b"m1", b"m2"}  # it holds m1 already
    back.give_credit(5)
    assert [(got.kind, got.body) for got in back.got] == [("resume", ""), ("new", "m3")]
    back.accept(back.got[0].id)
    assert sorted(publisher.accepted()) == [0, 1, 2, 3]
    publisher.settle(0, 3)
    mesh.assert_settled()


def test_when_a_queue_is_looked_at_next_does_not_depend_on_when_that_is_asked() -> None:
    """Seed 50728 of the family near: the wall clock went on since the last input."""
    wall_ms = [NOW_MS]
    clients = clients_of(QUEUE, wall_ms)
    clients.connect("s").receiver("in", source=Source("t"))
    clients.connect("p").sender("out", target=Target("t")).send([b"0"], [Message("0", header=Header(ttl=500)).encode()])
    clients.exchange()
    wall_ms[0] += 400
    assert clients.router.core.addresses["t"].timed.deadlines() == [1.5]
    clients.router.core.check_invariants()
