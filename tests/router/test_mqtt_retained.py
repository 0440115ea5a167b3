"""Retained messages: what a router knows of them, and when clients get them. A port stands for the store."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.sections import Data, Message
from amqp10.sections import Properties as MessageProperties
from amqp10.types import ULong
from mqtt import (
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Suback,
    Subscribe,
    Subscription,
    Will,
)
from router.config import AddressConfig
from router.core.ports import UNIQUE_TAGS, Outcome, PublisherAttach, SubscriberAttach
from router.mqtt.conversion import STAMP
from router.mqtt.retained import LINK, RetainedFeed, end, read
from tests.router.mqtt_clients import Client, World, answer

STORE = ("onceway-retained:s", LINK)
RETAINED = AddressConfig("retained", subscriptions=(STORE,))


class Store:
    """Takes all, accepts all, and answers each question."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.kept: dict[str, tuple[Any, bytes]] = {}
        self.asked: list[str] = []
        self.count = 0
        self.sent = 0
        self.answers = True
        core = world.router.core
        self.attach = SubscriberAttach(*STORE, "retained", epoch=1, timeout_s=1e9, expiry_policy="never")
        core.attach_subscriber(self, self.attach, world.now)
        world.settle()
        self.work()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0

    def __hash__(self) -> int:
        return id(self)

    def capacity(self) -> int:
        return 1_000

    def send(self, tags: list[bytes], payloads: list[bytes], *_: Any) -> int:
        first = self.count
        self.count += len(tags)
        for payload in payloads:
            found = read(payload)
            if found is not None and found.asked:
                self.asked.append(found.asked)
            elif found is not None and not found.ended:
                known = self.kept.get(found.topic)
                if known is None or found.stamp > known[0]:
                    self.kept[found.topic] = found.stamp, payload
        return first

    def work(self) -> None:
        """Accepts what came, and answers."""
        core, now = self.world.router.core, self.world.now
        accepted = 0
        while accepted < self.count:
            core.subscriber_disposition(self, accepted, self.count - 1, Outcome.ACCEPTED, True, now)
            accepted = self.count
            self.world.settle()
            asked, self.asked = self.asked, []
            for who in asked if self.answers else ():
                self.publish([payload for _, payload in self.kept.values()] + [end(who, "s")])

    def publish(self, payloads: list[bytes]) -> None:
        core, now = self.world.router.core, self.world.now
        port: Any = Store.__new__(Store)
        port.attach = PublisherAttach(STORE[0], f"p{self.sent}", "retained", unsettled=UNIQUE_TAGS)
        core.attach_publisher(port, port.attach, now)
        self.sent += 1
        core.transfers(port, 0, [bytes([0] * 15 + [i]) for i in range(len(payloads))], payloads, False, 0, now)
        self.world.settle()


@pytest.fixture
def world() -> World:
    return World(addresses=[RETAINED], mqtt_retained="retained")


@pytest.fixture
def store(world: World) -> Store:
    return Store(world)


def publish(store: Store, client: Client, topic: str, payload: bytes, qos: int = 1, **properties: Any) -> list[Packet]:
    found = client.send(
        Publish(topic, payload, qos, True, packet_id=7 if qos else 0, properties=Properties(**properties))
    )
    store.work()
    return [*found, *client.take()]


def subscribe(client: Client, text: str, qos: int = 2, handling: int = 0, *, kept: bool = False) -> list[Publish]:
    options = Subscription(text, qos, retain_as_published=kept, retain_handling=handling)
    suback, *client.inbox = client.send(Subscribe(1, [options]))
    assert isinstance(suback, Suback)
    assert suback.reasons[0] < Reason.UNSPECIFIED_ERROR
    return answer(client)


def shown(messages: list[Publish]) -> list[tuple[str, bytes, int, bool]]:
    return [(each.topic, bytes(each.payload), each.qos, each.retain) for each in messages]


def test_the_last_message_of_a_topic_comes_after_suback(world: World, store: Store) -> None:
    publisher = world.connect("p")
    for number in range(3):
        assert publish(store, publisher, "a/b", b"%d" % number) == [Puback(7)]
    publish(store, publisher, "a/c", b"x", 0)
    assert shown(subscribe(world.connect("s"), "a/+")) == [("a/b", b"2", 1, True), ("a/c", b"x", 0, True)]
    assert shown(subscribe(world.connect("t", 4), "a/b", 0)) == [("a/b", b"2", 0, True)]
    assert shown(subscribe(world.connect("u"), "b/+")) == []


def test_it_is_acknowledged_when_the_store_has_it(world: World, store: Store) -> None:
    publisher = world.connect("p")
    assert publisher.send(Publish("a", b"x", 2, True, packet_id=7)) == []
    store.work()
    assert publisher.take() == [Pubrec(7)]


def test_what_is_retained_does_not_come_once_more_because_another_has_not_acknowledged_it(
    world: World, store: Store
) -> None:
    slow, new = world.connect("slow"), world.connect("new")
    subscribe(slow, "a")
    publish(store, world.connect("p"), "a", b"x", 2)
    (unanswered,) = slow.take()
    assert isinstance(unanswered, Publish)
    assert shown(subscribe(new, "a")) == [("a", b"x", 2, True)]
    assert answer(new) == []
    # What an earlier subscription to the same filter is owed comes beside what is retained.
    assert shown(subscribe(slow, "a")) == [("a", b"x", 2, True)]
    # What is published later, too: a newer message than that which was retained.
    publish(store, world.connect("q"), "a", b"y", 2)
    assert shown(answer(new)) == [("a", b"y", 2, False)]


def test_an_empty_message_deletes_it_and_comes_itself(world: World, store: Store) -> None:
    publisher, subscriber = world.connect("p"), world.connect("s")
    publish(store, publisher, "a", b"x")
    subscribe(subscriber, "a", 1)
    publisher.send(Publish("a", b"", 1, True, packet_id=7))
    assert shown(answer(subscriber)) == [("a", b"", 1, False)]
    store.work()
    assert publisher.take() == [Puback(7)]
    assert subscribe(world.connect("t"), "a") == []


@pytest.mark.parametrize(("handling", "new", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling(world: World, store: Store, handling: int, new: int, again: int) -> None:
    publish(store, world.connect("p"), "a", b"x")
    subscriber = world.connect("s")
    assert len(subscribe(subscriber, "a", handling=handling)) == new
    assert len(subscribe(subscriber, "a", handling=handling)) == again


def test_retain_as_published(world: World, store: Store) -> None:
    plain, kept, publisher = world.connect("s"), world.connect("t"), world.connect("p")
    subscribe(plain, "a", 1)
    subscribe(kept, "a", 1, kept=True)
    publish(store, publisher, "a", b"x")
    assert [each.retain for each in answer(plain)] == [False]
    assert [each.retain for each in answer(kept)] == [True]
    publisher.send(Publish("a", b"y", 1, packet_id=8))
    assert [each.retain for each in answer(kept)] == [False]


def test_no_local_leaves_out_what_the_client_has_retained_itself(world: World, store: Store) -> None:
    for name in "ab":
        publish(store, world.connect(name), name, b"x")
    client = world.connect("a")
    _, *client.inbox = client.send(Subscribe(1, [Subscription("+", 1, no_local=True)]))
    assert [each.topic for each in answer(client)] == ["b"]
    assert len(subscribe(client, "a")) == 1


def test_it_expires(world: World, store: Store) -> None:
    publish(store, world.connect("p"), "a", b"x", message_expiry_s=10)
    world.pass_time(4)
    (message,) = subscribe(world.connect("s"), "a")
    assert message.properties.message_expiry_s == 6
    world.pass_time(7)
    assert subscribe(world.connect("t"), "a") == []


def test_what_a_store_has_is_known_after_its_answer(world: World) -> None:
    publisher, subscriber = world.connect("p"), world.connect("s")
    assert subscribe(subscriber, "a", 1) == []
    publisher.send(Publish("a", b"x", 1, True, packet_id=7))
    answer(subscriber)
    assert publisher.take() == []  # the store is declared, and away
    store = Store(world)
    assert publisher.take() == [Puback(7)]
    former = store.kept
    router = world.router.mqtt.retained
    feed = router._feed
    assert isinstance(feed, RetainedFeed)
    feed.detach("test", "its subscription is over", {}, True)
    store.answers = False
    world.settle()
    assert subscribe(world.connect("t"), "a", 1) == []
    assert router.wants_to_begin is False
    assert not router.complete
    store.answers = True
    store.kept = former
    store.publish([payload for _, payload in former.values()] + [end(router._feed.who, "s")])  # type: ignore[union-attr]
    assert router.complete


def test_a_will_may_be_retained(world: World, store: Store) -> None:
    world.connect("p", will=Will("a", b"gone", 1, retain=True)).lose()
    store.work()
    assert shown(subscribe(world.connect("s"), "a")) == [("a", b"gone", 1, True)]


def test_connack_says_whether_there_are_retained_messages(world: World) -> None:
    (there,) = world.client().send(Connect("c"))
    (not_there,) = World().client().send(Connect("c"))
    assert there.properties.retain_available is None  # type: ignore[union-attr]
    assert not_there.properties.retain_available == 0  # type: ignore[union-attr]


def test_released_qos_2_of_a_retained_message_is_completed(world: World, store: Store) -> None:
    publisher = world.connect("p")
    assert publish(store, publisher, "a", b"x", 2) == [Pubrec(7)]
    publisher.send(Pubrel(7))
    subscriber = world.connect("s", properties=Properties(session_expiry_s=50))
    suback, message = subscriber.send(Subscribe(1, [Subscription("a", 2)]))
    assert isinstance(message, Publish)
    assert [type(each) for each in subscriber.send(Pubrec(message.packet_id))] == [Pubrel]
    assert isinstance(suback, Suback)
    subscriber.send(Disconnect())


def test_all_stores_are_waited_for() -> None:
    """One of them may be new, and have nothing yet."""
    other = ("onceway-retained:t", LINK)
    world = World(addresses=[AddressConfig("retained", subscriptions=(STORE, other))], mqtt_retained="retained")
    store = Store(world)
    retained = world.router.mqtt.retained
    assert not retained.complete
    assert isinstance(retained._feed, RetainedFeed)
    store.publish([end(retained._feed.who, "t")])
    assert retained.complete


@pytest.mark.parametrize("stamp", [["x", "y"], [1.5, "a"], [True, "a"], [ULong(1), 2], [ULong(1)]])
def test_a_stamp_that_no_router_has_written_is_none(stamp: list[Any]) -> None:
    properties = MessageProperties(subject="t")
    assert read(Message(Data(b""), message_annotations={STAMP: stamp}, properties=properties).encode()) is None
