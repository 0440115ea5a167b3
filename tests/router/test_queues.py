"""A queue's cores, without links: who gets a delivery, and what becomes of what is given back (protocol 16)."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

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
from router.core import messages as m
from router.core.ports import Outcome
from router.core.queue.free import PRIORITY, Kind, data_of
from router.core.reports import of_all
from router.links.kinds import kinds_of, number_of
from tests.router.ends import SubscriberEnd
from tests.router.harness import TOPIC, Mesh, undecided
from tests.router.links import BODY, Client, make, payloads

QUEUE = AddressConfig(type="queue", max_redeliveries=2)


def bodies(*consumers: SubscriberEnd) -> list[list[str]]:
    return [[got.body for got in consumer.got] for consumer in consumers]


def test_the_nearest_with_credit_gets_it_and_equally_near_ones_share() -> None:
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


def test_what_a_consumer_may_have_had_does_not_overtake_what_it_has_given_back() -> None:
    """Protocol 16.4.5. The RETURN of m0 has arrived, what was assigned is lost with the session (seed 23845914)."""
    mesh = Mesh("ab", address=QUEUE)
    consumer = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    mesh.held.add(("a", "b"))
    publisher.send("m0", "m1")
    core = mesh.cores["a"]
    (entry,) = core.addresses[TOPIC].subscriptions.entries.values()
    start = entry.syncing.first()
    core.peer_message("b", m.Return(TOPIC, entry.name, entry.term, 1, [(start, start + 1, m.Why.UNSENT)]), mesh.now)
    mesh.part("a", "b")
    mesh.held.clear()
    mesh.join("a", "b")
    mesh.run()
    assert bodies(consumer) == [["m0", "m1"]]


def test_a_consumer_gets_nothing_new_before_it_has_said_what_it_holds() -> None:
    """Protocol 16.4.1. What it has not read of the last session would be overtaken (seed 7007719)."""
    mesh = Mesh("ab", address=QUEUE)
    consumer = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    mesh.held.add(("a", "b"))
    publisher.send("m0")
    mesh.part("a", "b")
    mesh.join("a", "b")
    publisher.send("m1")
    mesh.held.clear()
    mesh.run()
    assert bodies(consumer) == [["m0", "m1"]]


def test_an_answer_to_a_pub_without_an_expected_set_says_nothing_of_what_consumers_hold() -> None:
    """Protocol 16.4.2. With that of a new session another consumer would get what the first one holds."""
    mesh = Mesh("ab", address=QUEUE)
    holder = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a", epoch=1)
    publisher.send("m0")
    other = mesh.subscriber("a", "other", accepts=False)
    mesh.part("a", "b")
    mesh.held.add(("a", "b"))
    mesh.join("a", "b")
    core = mesh.cores["a"]
    (ingress,) = core.addresses[TOPIC].ingress.publishers.values()
    core.peer_message("b", m.PubAck(TOPIC, ingress.publisher_id, ingress.term, None), mesh.now)
    mesh.run()
    mesh.held.clear()
    mesh.run()
    assert bodies(holder, other) == [["m0"], []]


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


@pytest.mark.parametrize(
    ("outcome", "counts"), [(Outcome.RELEASED, [0, 0, 0, 0]), (Outcome.FAILED, [0, 1, 2])], ids=["released", "failed"]
)
def test_failures_are_counted_and_releases_are_not(outcome: Outcome, counts: list[int]) -> None:
    mesh = Mesh("ab", address=QUEUE)
    consumer = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    for _ in counts[1:]:
        consumer.dispose(outcome, consumer.got[-1].id)
    assert [got.count for got in consumer.got] == counts
    consumer.dispose(Outcome.FAILED, consumer.got[-1].id)
    if outcome is Outcome.FAILED:
        assert publisher.outcomes[0] == (Outcome.REJECTED, 1, False)
    else:
        assert consumer.got[-1].count == 1
        consumer.accept(consumer.got[-1].id)
    publisher.settle(0)
    mesh.assert_settled()


def test_what_a_consumer_had_accepted_that_left_is_settled_though_others_were_settled_between() -> None:
    mesh = Mesh("ab", address=QUEUE)
    near = mesh.subscriber("a", "s1", credit=0)
    consumer = mesh.subscriber("b", "s0", accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1, unsettled={})
    publisher.send("m0")
    publisher.leave()
    consumer.accept(consumer.got[0].id)
    consumer.leave(closed=True)
    mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0")).leave()
    other = mesh.publisher("a", "q")
    other.send("x")
    near.give_credit(5)
    other.settle(0)
    publisher = mesh.publisher("a", epoch=3, incarnation=1, unsettled=undecided("m0"))
    publisher.send("m0")
    assert publisher.accepted() == [0]
    publisher.settle(0)
    assert bodies(near) == [["x"]]
    mesh.assert_settled()


def test_a_map_without_an_epoch_gives_nothing_away_before_its_client_has_read_the_answer() -> None:
    mesh = Mesh("ab", address=QUEUE)
    consumer = mesh.subscriber("a", "s0", accepts=False, unsettled={})
    consumer.core.subscriber_heard(consumer, mesh.now)
    publisher = mesh.publisher("a")
    publisher.send("m0")
    late = mesh.subscriber("b", "s0", unsettled={})
    other = mesh.subscriber("a", "s1")
    assert bodies(consumer, late, other) == [["m0"], [], []]
    late.core.subscriber_heard(late, mesh.now)
    mesh.run()
    assert bodies(late, other) == [[], ["m0"]]
    publisher.settle(0)
    mesh.assert_settled()


def test_a_consumer_with_a_map_and_no_epoch_is_asked_for_a_flow() -> None:
    clients = make(RouterConfig("a", routers=("a",), defaults=QUEUE))
    client = clients.connect("c")
    client.receiver("in", source=Source("q"), unsettled={}, credit=5)  # in a flow that it sends with its attach
    assert [event.flow.echo for event in client.seen(LinkFlow)] == [True]
    sender = client.sender("out", target=Target("q"))
    sender.send([b"1"], [BODY])
    clients.exchange()
    (payload,) = payloads(client.seen(Transfers))
    assert payload.endswith(BODY)


@pytest.mark.parametrize("failures", [0, 1])
def test_what_one_cannot_take_does_not_come_to_it_again_on_that_link_after_a_failover(failures: int) -> None:
    mesh = Mesh("abc", address=QUEUE)
    consumer = mesh.subscriber("b", "s0", accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1, unsettled={})
    publisher.send("m0", "m1")
    for _ in range(failures):  # a delivery that has come again is kept by tag
        consumer.dispose(Outcome.FAILED, consumer.got[-1].id)
    consumer.dispose(Outcome.ELSEWHERE, consumer.got[-1].id)
    mesh.crash("a")
    publisher = mesh.publisher("c", epoch=2, incarnation=1, unsettled=undecided("m0", "m1"))
    publisher.send("m0", "m1")
    assert len(consumer.got) == 2 + failures
    consumer.accept(consumer.got[0].id)
    publisher.settle(0)
    consumer.leave()
    again = mesh.subscriber("b", "s0")
    assert bodies(again) == [["m1"]]
    publisher.settle(1)
    mesh.assert_settled()


def test_what_one_cannot_take_goes_elsewhere_and_waits_where_there_is_nobody_else() -> None:
    mesh = Mesh("ab", address=QUEUE)
    first = mesh.subscriber("a", "s0", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    first.dispose(Outcome.ELSEWHERE, first.got[0].id)
    assert bodies(first) == [["m0", "m1"]]
    second = mesh.subscriber("b", "s1", accepts=False)
    assert bodies(second) == [["m0"]]
    second.dispose(Outcome.FAILED_ELSEWHERE, second.got[0].id)
    third = mesh.subscriber("b", "s2")
    assert [(got.body, got.count) for got in third.got] == [("m0", 1)]
    first.accept(first.got[1].id)
    publisher.settle(0, 1)
    mesh.assert_settled()


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
        core.kinds_of = _kinds
    return mesh


def test_what_has_no_group_passes_what_waits_for_another_consumer() -> None:
    mesh = _mesh_of_kinds("ab")
    first = mesh.subscriber("a", "s0", credit=1, accepts=False)
    publisher = mesh.publisher("b")
    publisher.send("g1 4 a")
    second = mesh.subscriber("b", "s1", accepts=False)
    publisher.send("g1 4 b", "- 4 c", "g2 4 d", "g1 4 e", "- 4 f")
    assert bodies(first, second) == [["g1 4 a"], ["- 4 c", "g2 4 d", "- 4 f"]]
    first.give_credit(9)
    assert bodies(first)[0][1:] == ["g1 4 b", "g1 4 e"]
    first.dispose(Outcome.ELSEWHERE, first.got[1].id)
    assert bodies(second)[0][3:] == ["g1 4 b"], "what the holder cannot take goes to another"
    publisher.send("g1 4 g")
    assert bodies(first)[0][3:] == ["g1 4 g"], "and the group stays"
    for consumer in (first, second):
        consumer.accept(consumer.got[0].id, consumer.got[-1].id)
    publisher.settle(0, 6)
    mesh.assert_settled()


def test_one_consumer_gets_groups_and_what_has_none_in_the_order_of_the_publisher() -> None:
    mesh = _mesh_of_kinds("ab")
    consumer = mesh.subscriber("a", "s0", credit=0)
    publisher = mesh.publisher("b")
    sent = ["g1 4 a", "- 4 b", "- 4 c", "g2 4 d", "g1 4 e", "g1 4 f", "- 4 g"]
    publisher.send(*sent)
    for credit in (1, 3, 9):
        consumer.give_credit(credit)
    assert bodies(consumer) == [sent]
    publisher.settle(0, 6)
    mesh.assert_settled()


def test_what_waits_behind_a_message_that_its_consumer_cannot_take_is_not_overtaken() -> None:
    """Seed 5234 of the family queue."""
    mesh = _mesh_of_kinds("a")
    consumer = mesh.subscriber("a", "s0", credit=1, accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("g1 4 a", "g2 4 b", "g1 4 c", "g2 4 d")
    consumer.dispose(Outcome.ELSEWHERE, consumer.got[0].id)
    for _ in range(3):
        consumer.give_credit(1)
    assert bodies(consumer) == [["g1 4 a", "g2 4 b", "g1 4 c", "g2 4 d"]]
    consumer.leave()
    mesh.subscriber("a", "s1")
    publisher.settle(0, 3)
    mesh.assert_settled()


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


def test_a_consumer_keeps_its_groups_when_it_comes_back_at_a_router_that_has_just_started() -> None:
    mesh = _mesh_of_kinds("abc")
    consumer = mesh.subscriber("a", "s0", epoch=1, born=1)
    publisher = mesh.publisher("b")
    publisher.send("g1 4 a")
    mesh.crash("c")
    mesh.start("c").kinds_of = _kinds
    consumer.leave()
    for other in "ab":
        mesh.join(other, "c")
    consumer = mesh.subscriber("c", "s0", epoch=2, born=1)
    mesh.subscriber("b", "s1")
    publisher.send("g1 4 b")
    assert bodies(consumer) == [["g1 4 b"]]
    assert {core.addresses[TOPIC].subscriptions.entries["s0", "in"].data for core in mesh.cores.values()} == {
        data_of([1])
    }
    publisher.settle(0, 1)
    mesh.assert_settled()


def test_kinds_are_read_from_messages_and_what_cannot_be_read_is_plain() -> None:
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
