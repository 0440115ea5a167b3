"""A queue's cores, without links: who gets a delivery, and what becomes of what is given back (protocol 16)."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from typing import cast

import pytest

from amqp10.errors import FRAME_SIZE_TOO_SMALL
from amqp10.events import ConnectionClosed
from amqp10.link import Link
from amqp10.outcomes import ACCEPTED
from amqp10.performatives import SND_SETTLED
from amqp10.runs import LinkFlow, Transfers
from amqp10.sections import Header, Message, Properties
from amqp10.termini import Source, Target
from amqp10.types import Described, Symbol
from onceway.operate.status import records
from router.config import AddressConfig, RouterConfig
from router.core.feeding import LINGER_S
from router.core.ports import Outcome
from router.core.queue.free import PRIORITY, Kind
from router.core.reports import of_all
from router.links.kinds import kinds_of, number_of
from router.reporting import Log
from tests.router.ends import SubscriberEnd
from tests.router.harness import SHORT, TOPIC, Mesh
from tests.router.links import BODY, Client, make, payloads

QUEUE = AddressConfig(type="queue", max_redeliveries=2)
SHORT_QUEUE = replace(SHORT, type="queue")


def bodies(*consumers: SubscriberEnd) -> list[list[str]]:
    return [[got.body for got in consumer.got] for consumer in consumers]


def test_the_nearest_with_credit_gets_it_and_equally_near_ones_share() -> None:
    """Protocol 16.3.2."""
    mesh = Mesh("ab", address=QUEUE)
    here = [mesh.subscriber("a", name, credit=2, accepts=False) for name in ("s0", "s1")]
    there = mesh.subscriber("b", "s2", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send(*[f"m{i}" for i in range(6)])
    assert sorted(got.body for consumer in here for got in consumer.got) == ["m0", "m1", "m2", "m3"]
    assert bodies(there) == [["m4", "m5"]]
    for consumer in (*here, there):
        consumer.accept(consumer.got[0].id, consumer.got[-1].id)
    assert sorted(publisher.accepted()) == [0, 1, 2, 3, 4, 5]
    publisher.settle(0, 5)
    mesh.assert_settled()


def test_idle_consumers_take_turns() -> None:
    """Protocol 16.3.2. Each accepts at once, so that all have nothing whenever a message comes."""
    mesh = Mesh("ab", address=QUEUE)
    consumers = [mesh.subscriber("b", name) for name in ("s0", "s1", "s2")]
    publisher = mesh.publisher("a")
    for i in range(6):
        publisher.send(f"m{i}")
    assert sorted(bodies(*consumers)) == [["m0", "m3"], ["m1", "m4"], ["m2", "m5"]]


def test_who_has_much_in_hand_gets_consecutive_messages_at_once() -> None:
    """Protocol 16.3.2: half as many as it has make little difference; where nobody has any, all get the same."""
    mesh = Mesh("a", address=QUEUE)
    consumers = [mesh.subscriber("a", name, accepts=False) for name in ("s0", "s1")]
    publisher = mesh.publisher("a")
    publisher.send(*[f"m{i}" for i in range(16)])
    assert [len(consumer.got) for consumer in consumers] == [8, 8]
    publisher.send(*[f"n{i}" for i in range(4)])
    publisher.send(*[f"o{i}" for i in range(4)])
    more = sorted([got.body for got in consumer.got[8:]] for consumer in consumers)
    assert more == [["n0", "n1", "n2", "n3"], ["o0", "o1", "o2", "o3"]]


def test_who_accepts_fast_gets_consecutive_messages_at_once() -> None:
    """Protocol 16.3.2: what it accepts within 10 ms makes little difference. After a while without any, all share."""
    mesh = Mesh("a", address=QUEUE)
    consumers = [mesh.subscriber("a", name) for name in ("s0", "s1")]
    publisher = mesh.publisher("a")
    publisher.send(*[f"m{i}" for i in range(8)])
    assert [len(consumer.got) for consumer in consumers] == [4, 4]
    mesh.run()
    publisher.send(*[f"n{i}" for i in range(4)])
    mesh.run()
    publisher.send(*[f"o{i}" for i in range(4)])
    more = sorted([got.body for got in consumer.got[4:]] for consumer in consumers)
    assert more == [["n0", "n1", "n2", "n3"], ["o0", "o1", "o2", "o3"]]
    mesh.pass_time(1.0)
    publisher.send(*[f"p{i}" for i in range(4)])
    assert [len(consumer.got) for consumer in consumers] == [10, 10]


def test_who_accepts_fast_and_has_some_in_hand_keeps_its_turn() -> None:
    """Protocol 16.3.2: what comes in its part of the 10 ms, as far as it is less than it accepts within 10 ms."""
    mesh = Mesh("a", address=QUEUE)
    consumers = [mesh.subscriber("a", name, accepts=False) for name in ("s0", "s1")]
    publisher = mesh.publisher("a")
    publisher.send(*[f"m{i}" for i in range(10)])
    for consumer in consumers:
        consumer.accept(consumer.got[0].id, consumer.got[3].id)
    for i in range(4):
        publisher.send(f"n{i}")
    more = sorted([got.body for got in consumer.got[5:]] for consumer in consumers)
    assert more == [["n0", "n1", "n2"], ["n3"]]


def test_without_credit_it_waits_and_then_goes_to_whoever_has_some() -> None:
    mesh = Mesh("ab", address=QUEUE)
    consumers = [mesh.subscriber(name, name, credit=0) for name in "ab"]
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    assert bodies(*consumers) == [[], []]
    status = of_all(mesh.cores["a"])["addresses"][TOPIC]
    assert (status["type"], status["ingress"]["free"]) == ("queue", 2)
    assert (records(status)["free"], records(status)["undone"]) == (2, 2)
    consumers[1].give_credit(1)
    consumers[0].give_credit(1)
    assert bodies(*consumers) == [["m1"], ["m0"]]
    publisher.settle(0, 1)
    mesh.assert_settled()


def test_a_consumer_with_a_map_and_no_epoch_is_asked_for_a_flow() -> None:
    """Protocol 16.8.1."""
    clients = make(RouterConfig("a", routers=("a",), defaults=QUEUE))
    client = clients.connect("c")
    client.receiver("in", source=Source("q"), unsettled={}, credit=5)  # in a flow that it sends with its attach
    assert [event.flow.echo for event in client.seen(LinkFlow)] == [True]
    sender = client.sender("out", target=Target("q"))
    sender.send([b"1"], [BODY])
    clients.exchange()
    (payload,) = payloads(client.seen(Transfers))
    assert payload.endswith(BODY)


def _kinds(payloads: list[bytes], priority: bool) -> dict[int, Kind]:
    """Bodies such as `g7 9 m0`: group and priority."""
    found = {}
    for i, payload in enumerate(payloads):
        group, level, _ = payload.decode().split()
        kind = Kind(int(level) if priority else PRIORITY, int(group[1:]) if group != "-" else None)
        if kind != Kind():
            found[i] = kind
    return found


def _mesh_of_kinds(names: str, address: AddressConfig = QUEUE) -> Mesh:
    mesh = Mesh(names, address=address)
    for core in mesh.cores.values():
        core.owner.kinds_of = _kinds
    return mesh


def test_only_where_the_file_says_so_a_higher_priority_goes_first() -> None:
    sent = ["- 4 a", "- 0 b", "- 9 c", "g1 4 d", "- 9 e"]
    for address, order in ((QUEUE, "abcde"), (replace(QUEUE, priority=True), "ceadb")):
        mesh = _mesh_of_kinds("a", address)
        consumer = mesh.subscriber("a", "s0", credit=0)
        publisher = mesh.publisher("a")
        publisher.send(*sent)
        for _ in sent:
            consumer.give_credit(1)
        assert "".join(body[-1] for body in bodies(consumer)[0]) == order
        publisher.settle(0, 4)
        mesh.assert_settled()


def test_kinds_are_read_from_messages_and_what_cannot_be_read_is_plain() -> None:
    """Protocol 16.9.1."""
    one, other = (Properties(message_id=1, group_id=group) for group in ("one", "other"))
    payloads = [
        Message("x").encode(),
        Message("x", properties=one).encode(),
        Message("x", header=Header(priority=7), properties=Properties(subject="s")).encode(),
        Message("x", header=Header(priority=7), message_annotations={"x-opt-a": 1}, properties=other).encode(),
        b"\x00\x53\x73\xc0\xff",
        Message("x", properties=Properties(group_id="")).encode(),
        b"\x00\x53\x72\xc1\x01\x00",
        *(b"\x00\x53\x72\xc1\x01\x00" + Message("x", properties=Properties(group_id=g)).encode() for g in "ab"),
    ]
    groups = {1: number_of("one"), 3: number_of("other"), 5: number_of(""), 7: number_of("a"), 8: number_of("b")}
    assert kinds_of(payloads, False) == {i: Kind(PRIORITY, group) for i, group in groups.items()}
    assert kinds_of(payloads, True) == {
        1: Kind(4, groups[1]),
        2: Kind(7, None),
        3: Kind(7, groups[3]),
        **{i: Kind(4, groups[i]) for i in (5, 7, 8)},
    }
    assert number_of("one") == int.from_bytes(blake2b(b"one", digest_size=2).digest(), "big") % 1024


def _values(client: Client, link: Link) -> list[object]:
    return [Message.decode(payload).value for payload in payloads(client.seen(Transfers, link))]


def test_a_browser_sees_what_waits_once_and_takes_nothing() -> None:
    """Protocol 16.11.1."""
    clients = make(RouterConfig("a", routers=("a",), defaults=QUEUE))
    client = clients.connect("c")
    consumer = client.receiver("in", source=Source("q"), credit=1)
    sender = client.sender("out", target=Target("q"))
    bodies = [Message(i, application_properties={"a": i % 2}).encode() for i in range(60)]
    sender.send([b"%d" % i for i in range(30)], bodies[:30])
    sender.send([b"%d" % i for i in range(30, 59)], bodies[30:59], message_format=1)
    clients.exchange()
    browsing = Source("q", distribution_mode=Symbol("copy"))
    browser = client.receiver("look", source=browsing, credit=10)
    answer = client.answered(browser)
    assert (answer.source.distribution_mode, answer.snd_settle_mode) == ("copy", SND_SETTLED)
    assert _values(client, browser) == [*range(1, 11)]
    browser.grant(1_000, drain=True)
    clients.exchange()
    assert _values(client, browser) == [*range(1, 59)]
    assert not browser.credit, "drained"
    sender.send([b"59"], bodies[59:])
    clients.exchange()
    assert len(_values(client, browser)) == 58, "what comes later is shown when its client asks again"
    browser.grant(1)
    clients.exchange()
    assert _values(client, browser)[58:] == [59]
    odd = {Symbol("f"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")}
    choosing = client.receiver("odd", source=Source("q", distribution_mode=Symbol("copy"), filter=odd), credit=200)
    assert _values(client, choosing)[:15] == [*range(1, 30, 2)]
    browser.detach(None, closed=True)
    consumer.dispose(0, 0, ACCEPTED, False)
    consumer.grant(200)
    clients.exchange()
    assert _values(client, consumer) == [*range(60)]


def test_a_browser_whose_answer_is_too_large_for_its_client_ends_its_connection_and_nothing_else() -> None:
    clients = make(RouterConfig("a", routers=("a",), defaults=QUEUE))
    client, other = clients.connect("c", max_frame_size=512), clients.connect("other")
    address = "q" * 400
    client.receiver("n" * 150, source=Source(address, distribution_mode=Symbol("copy")))
    (closed,) = client.seen(ConnectionClosed)
    assert closed.error.condition == FRAME_SIZE_TOO_SMALL
    assert other.answered(other.receiver("in", source=Source(address))).source.address == address


# ------------------------------------------------------------------------------- settled transfers


def test_what_comes_settled_goes_to_one_consumer_and_nobody_is_told() -> None:
    mesh = Mesh("ab", address=QUEUE)
    consumers = [mesh.subscriber(router, router, credit=2) for router in "ab"]
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2", settled=True)
    assert bodies(*consumers) == [["m0", "m1"], ["m2"]]
    assert not publisher.outcomes
    (a,) = mesh.cores["a"].counters.by_label.values()
    assert (a.received, a.received_settled, a.received_bytes) == (0, 3, 6)
    mesh.assert_settled()


def test_what_comes_settled_waits_for_credit_also_when_its_publisher_has_gone() -> None:
    mesh = Mesh("ab", address=SHORT_QUEUE)
    consumer = mesh.subscriber("b", credit=0)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", settled=True)
    publisher.leave(closed=True)
    again = mesh.publisher("a")
    again.send("m2", settled=True)
    consumer.give_credit(2)
    assert consumer.bodies() == ["m0", "m1"]
    again.leave(closed=False)
    consumer.give_credit(9)
    assert consumer.bodies() == ["m0", "m1", "m2"]
    consumer.leave(closed=True)
    mesh.pass_time(200.0)
    mesh.assert_empty()


def test_what_comes_settled_and_waits_for_too_long_is_dropped_and_counted() -> None:
    mesh = Mesh("ab", address=QUEUE)
    consumer = mesh.subscriber("b", credit=0)
    publisher = mesh.publisher("a")
    publisher.send("m0", settled=True)
    publisher.leave(closed=True)
    mesh.pass_time(LINGER_S + 1)
    consumer.give_credit(2)
    assert not consumer.got
    (a,) = mesh.cores["a"].counters.by_label.values()
    assert a.subscriptions.presettled_dropped == 1


def test_what_comes_settled_above_the_bound_is_dropped_counted_and_told_once() -> None:
    """Protocol 16.1.6."""
    mesh = Mesh("a", address=QUEUE, presettled_queue=3)
    told: list[str] = []

    class Noted:
        def warning(self, event: str, *_: object, **__: object) -> None:
            told.append(event)

    mesh.cores["a"].owner.log = cast(Log, Noted())
    consumer = mesh.subscriber("a", credit=0)
    publisher = mesh.publisher("a")
    for i in range(3):
        publisher.send(f"m{i}", f"n{i}", settled=True)
    consumer.give_credit(9)
    assert consumer.bodies() == ["m0", "n0", "m1"]
    (a,) = mesh.cores["a"].counters.by_label.values()
    assert a.subscriptions.presettled_dropped == 3
    assert told == ["settled_dropped"]
    mesh.run()
    publisher.send("m3", settled=True)
    assert consumer.bodies()[3:] == ["m3"]
    mesh.run()
    mesh.assert_settled()


@pytest.mark.parametrize("how", ["leaves", "is lost", "fails", "releases", "dies with its router"])
def test_what_comes_settled_goes_to_another_only_where_the_first_says_that_it_has_not_tried(how: str) -> None:
    """Protocol 16.1.5."""
    mesh = Mesh("abc", address=QUEUE)
    first = mesh.subscriber("b", "s0", accepts=False, timeout_s=0.0)
    publisher = mesh.publisher("a")
    publisher.send("m0", settled=True)
    second = mesh.subscriber("c", "s1")
    if how in ("leaves", "is lost"):
        first.leave(closed=how == "leaves")
    elif how == "dies with its router":
        mesh.crash("b")
    else:
        first.accepts = True
        first.dispose(Outcome.FAILED if how == "fails" else Outcome.RELEASED, first.got[0].id)
    mesh.pass_time(100.0)
    again = [*first.bodies()[1:], *second.bodies()]
    assert again == ["m0"] * (how == "releases")
    publisher.send("m1", settled=True)
    publisher.send("m2")
    assert {"m1", "m2"} & {*second.bodies()}
    assert publisher.accepted() == [2]
    publisher.settle_all_told()
    mesh.assert_settled()


def test_what_comes_settled_waits_for_a_consumer_that_comes_when_its_publisher_has_gone() -> None:
    """Protocol 16.1.3: nothing of it can be elsewhere, so nobody has to be asked when a consumer comes."""
    mesh = Mesh("ab", address=SHORT_QUEUE)
    first = mesh.subscriber("b", credit=0)
    publisher = mesh.publisher("a")
    publisher.send("m0", settled=True)
    first.leave(closed=True)
    publisher.leave(closed=False)
    assert mesh.subscriber("b", "s1").bodies() == ["m0"]
    mesh.assert_settled()


@pytest.mark.parametrize("wide", ["a", "b"])
def test_what_is_too_large_for_one_consumer_goes_to_another(wide: str) -> None:
    """Protocol 16.5.6. The narrow one gets what fits, in order, on the credit that it has."""
    mesh = Mesh("ab", address=QUEUE)
    narrow = mesh.subscriber("a", "s0", most_bytes=2)
    other = mesh.subscriber(wide, "s1", credit=2)
    publisher = mesh.publisher("a")
    for body in ("m0", "large", "m1", "larger", "m2", "largest"):
        publisher.send(body)
    assert bodies(narrow)[0][-1] == "m2", "what is larger holds up nobody"
    assert all(len(body) == 2 for body in bodies(narrow)[0])
    other.give_credit(9)
    mesh.run()
    assert sorted(publisher.outcomes) == [0, 1, 2, 3, 4, 5]
    assert {outcome for outcome, _, _ in publisher.outcomes.values()} == {Outcome.ACCEPTED}
    publisher.settle(0, 5)
    mesh.assert_settled()


@pytest.mark.parametrize("home", ["a", "b"])
def test_what_no_consumer_of_the_queue_can_take_is_rejected_with_its_size(home: str) -> None:
    mesh = Mesh("ab", address=QUEUE)
    first, second = mesh.subscriber("a", "s0", most_bytes=2), mesh.subscriber(home, "s1", most_bytes=4)
    publisher = mesh.publisher("a")
    publisher.send("m0", "large", "m2")
    assert sorted([*bodies(first)[0], *bodies(second)[0]]) == ["m0", "m2"]
    assert publisher.outcomes[1] == (Outcome.REJECTED, 1, False)
    assert publisher.reasons[1] == b"amqp:link:message-size-exceeded: no consumer of the queue takes its 5 octets"
    publisher.settle(0, 2)
    mesh.assert_settled()
