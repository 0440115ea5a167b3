"""What clients of MQTT cause is work in proportion to what they send: counted in calls and steps, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType

import pytest

from mqtt import (
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    encode,
)
from mqtt.properties import MOST_ALIKE
from mqtt.topics import MOST_LEVELS
from router.config import Limits
from router.core.ports import MOST_DATA
from router.mqtt.retained import MOST_DELETED, STEPS, Table
from router.mqtt.session import PART
from router.mqtt.turn import AT_ONCE
from tests.router.mqtt_clients import LASTING, Client, World, answer, subscribe
from tests.router.test_mqtt_retained import RETAINED, Store

LINEAR = 2.4  # that twice as much may take, at most


def calls(work: Callable[[], object]) -> int:
    """Calls of Python functions, those of comprehensions and generators among them."""
    count = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def feed(client: Client, *packets: Packet) -> Callable[[], None]:
    """What the router does about these packets, and nothing that tests add."""
    data, router, now = (
        b"".join(encode(each, client.version) for each in packets),
        client.world.router,
        client.world.now,
    )

    def work() -> None:
        client.connection.receive_data(data, now)
        while client.connection.more or router.wants_flush:
            client.connection.receive_data(b"", now)
            router.flush(now)

    return work


def fill(world: World, sessions: int, filters: int, text: str = "site/{}/device/{}") -> list[Client]:
    """Sessions with so many filters each; nothing of what `burst` publishes matches."""
    clients = []
    for i in range(sessions):
        client = world.connect(f"s{i}", properties=LASTING)
        listed = [Subscription(text.format(i, k), 1) for k in range(filters)]
        (suback,) = client.send(Subscribe(1, listed))
        assert isinstance(suback, Suback)
        assert all(reason < Reason.UNSPECIFIED_ERROR for reason in suback.reasons)
        clients.append(client)
    return clients


def burst(world: World, count: int = 100) -> Callable[[], None]:
    packets = [Publish(f"site/x/device/{i}", b"on", 1, packet_id=i + 1) for i in range(count)]
    return feed(world.connect("p"), *packets)


@pytest.mark.parametrize("text", ["site/{}/device/{}", "+/{}/device/{}", "$share/g{}/+/y/+/{}"])
def test_a_burst_costs_the_same_beside_a_thousand_times_as_many_filters(text: str) -> None:
    found = []
    for filters in (1, 1_000):
        world = World(limits=Limits(links=10_000))
        fill(world, 8, filters if not text.startswith("$share") else min(filters, 20), text)
        found.append(calls(burst(world)))
    assert found[1] <= 1.2 * found[0]


@pytest.mark.parametrize("lasting", [False, True])
def test_a_subscribe_of_many_filters_is_work_in_proportion(lasting: bool) -> None:
    found = []
    for count in (400, 800, 1_600):
        world = World()
        client = world.connect("s", **({"properties": LASTING} if lasting else {}))
        packet = Subscribe(1, [Subscription(f"device/{i}", 1) for i in range(count)])
        found.append(calls(feed(client, packet)))
        world.settle()
        client.take()
        (again,) = client.send(Unsubscribe(2, [f"device/{i}" for i in range(count)]))
        assert all(reason is Reason.SUCCESS for reason in again.reasons)  # type: ignore[union-attr]
    assert found[1] <= LINEAR * found[0]
    assert found[2] <= LINEAR * found[1]


@pytest.mark.parametrize("lost", [False, True])
def test_a_subscribe_of_many_filters_is_handled_in_parts(lost: bool) -> None:
    world = World()
    client = world.connect("s", properties=LASTING)
    texts = [f"d/{i}" for i in range(1_500)]
    packets = [Subscribe(1, [Subscription(each, 1) for each in texts]), Unsubscribe(2, texts), Pingreq()]
    client.connection.receive_data(b"".join(encode(each, 5) for each in packets), world.now)
    (session,) = world.router.mqtt.sessions.values()
    known = [len(session.filters.by_text)]
    while client.connection.more or client.connection.is_busy:
        if lost and known[-1] < max(known):
            client.connection.receive_eof(world.now)
            break
        if not client.connection.is_busy:
            client.connection.receive_data(b"", world.now)
            known.append(len(session.filters.by_text))
        world.router.flush(world.now)
        known.append(len(session.filters.by_text))
    assert max(abs(later - earlier) for earlier, later in pairwise(known)) <= PART
    world.settle()
    assert not session.is_busy
    assert not session.filters.by_text
    if not lost:
        assert [type(each) for each in client.take()] == [Suback, Pingresp, Unsuback]
    again = world.connect("s", properties=LASTING, clean_start=False)
    assert again.take() == []
    assert subscribe(again, *texts[:300], qos=1) == [Reason.GRANTED_QOS_1] * 300


def test_sessions_that_subscribe_to_much_have_their_turns() -> None:
    """Each turn looks at a part of AT_ONCE sessions, whoever else waits."""
    world = World()
    clients = [world.connect(f"s{n}", properties=LASTING) for n in range(5 * AT_ONCE)]
    packet = encode(Subscribe(1, [Subscription(f"d/{n}", 1) for n in range(3 * PART)]), 5)
    for client in clients:
        client.connection.receive_data(packet, world.now)
        while client.connection.more:
            client.connection.receive_data(b"", world.now)
    sessions = [*world.router.mqtt.sessions.values()]
    known = [len(session.filters.by_text) for session in sessions]
    while any(session.is_busy for session in sessions):
        world.router.flush(world.now)
        now = [len(session.filters.by_text) for session in sessions]
        assert sum(now) - sum(known) <= AT_ONCE * PART
        assert max(now) - min(now) <= 2 * PART
        known = now
    assert known == [3 * PART] * len(clients)


def test_a_subscription_may_be_lost_while_an_unsubscribe_is_handled_in_parts() -> None:
    world = World(topics={"a": "aa", "b": "bb"})
    client = world.connect("s", properties=LASTING)
    texts = ["b/x", *[f"a/{i}" for i in range(PART)]]
    client.send(Subscribe(1, [Subscription(text, 1) for text in texts]))
    session = client.connection.session
    client.connection.receive_data(encode(Unsubscribe(2, texts), 5), world.now)
    assert session.is_busy
    lost = session.subscribers["bb"]
    lost.answered = False  # as while other routers are waited for
    lost.detach("amqp:not-allowed", "", {}, True)
    world.settle()
    (answer,) = client.take()
    assert isinstance(answer, Unsuback)
    assert set(answer.reasons) == {Reason.SUCCESS}


def test_a_filter_whose_subscription_is_lost_between_two_parts_is_not_granted() -> None:
    world = World(topics={"a": "aa", "b": "bb"})
    client = world.connect("s", properties=LASTING)
    client.send(Subscribe(1, [Subscription("b/x", 1)]))
    client.take()
    session = client.connection.session
    more = [Subscription(text, 1) for text in ("b/y", *[f"a/{i}" for i in range(PART)])]
    client.connection.receive_data(encode(Subscribe(2, more), 5), world.now)
    assert session.is_busy
    lost = session.subscribers["bb"]
    lost.answered = False  # as while other routers are waited for
    lost.detach("amqp:not-allowed", "", {}, True)
    world.settle()
    (answer,) = client.take()
    assert isinstance(answer, Suback)
    assert answer.reasons == [Reason.UNSPECIFIED_ERROR, *[Reason.GRANTED_QOS_1] * PART]


def test_many_small_subscribes_in_one_read_are_work_in_proportion() -> None:
    found = []
    for count in (200, 400, 800):
        client = World().connect("s", properties=LASTING)
        packets = [Subscribe(i + 1, [Subscription(f"device/{i}", 1)]) for i in range(count)]
        found.append(calls(feed(client, *packets)))
    assert found[2] <= LINEAR * found[1] <= LINEAR * LINEAR * found[0]


def test_filters_beyond_what_routers_keep_are_refused_and_the_others_stay() -> None:
    world = World()
    client = world.connect("s", properties=LASTING)
    reasons = subscribe(client, *(f"device/{i:05}/state" for i in range(3_000)))
    granted = [reason for reason in reasons if reason < Reason.UNSPECIFIED_ERROR]
    assert set(reasons) == {Reason.GRANTED_QOS_2, Reason.QUOTA_EXCEEDED}
    (session,) = world.router.mqtt.sessions.values()
    assert MOST_DATA - 100 < len(session.data_of("all")) <= MOST_DATA
    assert len(session.filters.by_text) == len(granted)
    assert subscribe(client, "device/00000/state", qos=1) == [Reason.GRANTED_QOS_1]  # in place of what was there
    assert subscribe(client, "device/00000/state/and/more") == [Reason.QUOTA_EXCEEDED]
    assert subscribe(client, "device/00001/state") == [Reason.GRANTED_QOS_2]


def test_a_filter_has_a_bounded_number_of_levels() -> None:
    client = World().connect("s")
    most = "/".join("a" * MOST_LEVELS)
    assert subscribe(client, most, most + "/a", qos=0) == [Reason.GRANTED_QOS_0, Reason.TOPIC_FILTER_INVALID]


def test_a_topic_of_many_levels_is_work_in_proportion() -> None:
    found = []
    for levels in (8_000, 16_000, 32_000):
        world = World({"a/b": "some", "#": "all"})
        fill(world, 1, 10)
        publisher = world.connect("p")
        packet = Publish("a" + "/" * levels, b"x", 1, packet_id=1)
        found.append(calls(feed(publisher, packet)))
    assert max(found) <= 1.1 * min(found)


@pytest.mark.parametrize("more", [0, 1])
def test_a_packet_has_a_bounded_number_of_user_properties(more: int) -> None:
    client = World().connect("p")
    many = Properties(user_properties=(("a", "b"),) * (MOST_ALIKE + more))
    client.send(Publish("t", b"x", 1, packet_id=1, properties=many))
    assert client.connection.closed == bool(more)


@pytest.fixture
def world() -> World:
    return World(addresses=[RETAINED], mqtt_retained="retained")


def retain(world: World, store: Store, count: int, payload: bytes = b"x") -> None:
    publisher = world.connect("r")
    for first in range(0, count, 500):
        publisher.send(
            *(
                Publish(f"device/{i}/state", payload, 1, True, packet_id=i - first + 1)
                for i in range(first, min(first + 500, count))
            )
        )
        store.work()
        publisher.take()


def test_an_exact_subscribe_looks_at_one_of_many_retained_topics(world: World) -> None:
    retain(world, Store(world), 2_000)
    tree = world.router.mqtt.retained.table.topics
    before = tree.steps
    assert [each.topic for each in retained_to(world, "device/1234/state")] == ["device/1234/state"]
    assert tree.steps - before <= 4


def retained_to(world: World, text: str) -> list[Publish]:
    client = world.connect("s")
    (suback, *client.inbox) = client.send(Subscribe(1, [Subscription(text, 1)]))
    assert isinstance(suback, Suback)
    return answer(client)


def test_what_a_wildcard_finds_is_sent_in_parts(world: World) -> None:
    retain(world, Store(world), 1_500)
    client = world.connect("s")
    parts = []
    settle, world.settle = world.settle, lambda: None  # type: ignore[method-assign]
    client.send(Subscribe(1, [Subscription("#", 0)]))
    while world.router.flush(world.now):
        data = client.connection.data_to_send()
        parts.append([each for each in client.reader.receive_data(data) if isinstance(each, Publish)])
    settle()
    messages = [each for part in parts for each in part] + [p for p in client.take() if isinstance(p, Publish)]
    assert sorted({each.topic for each in messages}) == sorted(f"device/{i}/state" for i in range(1_500))
    assert len(messages) == 1_500
    assert max(map(len, parts)) <= STEPS


def test_no_more_of_what_is_retained_waits_than_the_client_takes(world: World) -> None:
    retain(world, Store(world), 600)
    client = world.connect("s", properties=LASTING._replace(receive_maximum=5))
    client.send(Subscribe(1, [Subscription("#", 1)]))
    (session,) = (each for each in world.router.mqtt.sessions.values() if each.client_id == "s")
    assert len(session.identifiers.in_flight) == 5
    assert not session.identifiers.waiting
    client.lose()
    again = world.connect("s", clean_start=False, properties=LASTING._replace(receive_maximum=5))
    assert len({each.topic for each in answer(again)}) == 600


def test_topics_that_were_cleared_leave_a_bounded_number_of_stamps() -> None:
    table = Table()
    for i in range(2 * MOST_DELETED):
        table.take(f"job/{i}", (2 * i, "a"), b"x")
        table.take(f"job/{i}", (2 * i + 1, "a"), None)
    assert table.octets == 0
    assert table.deleted == MOST_DELETED
    assert not table.topics._root.below


def test_a_message_that_comes_after_its_end_stays_away() -> None:
    table = Table()
    table.take("a", (2, "a"), None)
    table.take("a", (1, "b"), b"x")
    assert table.topics.get("a") is None
    table.take("a", (3, "b"), b"y")
    assert table.topics.get("a") is not None
    assert table.deleted == 0


def test_retained_messages_are_refused_when_they_fill_their_part_of_memory() -> None:
    world = World(addresses=[RETAINED], mqtt_retained="retained", memory_limit=80_000)
    store = Store(world)
    retain(world, store, 40)
    publisher = world.connect("p")
    (refused,) = publisher.send(Publish("device/x", b"x", 1, True, packet_id=1))
    assert refused.reason is Reason.QUOTA_EXCEEDED  # type: ignore[union-attr]
    found = publisher.send(Publish("device/0/state", b"y", 1, True, packet_id=3))
    store.work()
    (taken,) = [*found, *publisher.take()]
    assert taken.reason < Reason.UNSPECIFIED_ERROR, "its topic has one"  # type: ignore[union-attr]
    for i in range(40):
        publisher.send(Publish(f"device/{i}/state", b"", 1, True, packet_id=1))
        store.work()
    publisher.take()
    publisher.send(Publish("device/x", b"x", 1, True, packet_id=2))
    store.work()
    assert publisher.take()[-1].reason < Reason.UNSPECIFIED_ERROR  # type: ignore[union-attr]


def test_messages_and_topics_that_are_remembered_are_counted_in_octets() -> None:
    """Of a client that has published to many long topics, and of one that has published large messages."""
    world = World(memory_limit=1 << 20)
    service, room = world.router.mqtt, (1 << 20) // 64
    publisher = world.connect("p")
    for i in range(100):
        publisher.send(Publish(f"{i}".ljust(5_000, "x"), b"x" * 5_000, 1, packet_id=1))
    longest = 20_000
    assert service.topics._found.octets <= room + longest
    assert service.filters.remembered.octets <= room + longest
    assert service.messages.octets <= 5 * room + longest
    (session,) = service.sessions.values()
    assert len(session.rights.refusals) == 1  # an address, and no topics
