"""Publishers of AMQP at a topic that feeds a shared subscription: cores without links (protocol 16.12)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from amqp10.sections import AmqpValue, Data, Message, Properties
from router.config import SHARED, AddressConfig
from router.core import feeding
from router.core import messages as m
from router.core.core import Core
from router.core.naming import derive_publisher_id
from router.core.ports import Outcome
from router.core.tracing import trace
from router.core.waiting import TOLD_AFTER_S
from router.mqtt.messages import Messages
from router.mqtt.sharing import Sharing
from router.mqtt.topic_map import TopicMap
from router.names import PUBLISHER_EXPIRED
from tests.builds import puts_stand_ins
from tests.router.borders import border
from tests.router.ends import PublisherEnd, SubscriberEnd
from tests.router.harness import SHORT, TOPIC, Mesh

QUEUE = f"{SHARED}workers/jobs/#"
SHARES = AddressConfig(f"{SHARED}*", type="queue", no_subscribers="accept", subscription_timeout_s=8.0)


class Shared(Mesh):
    """Routers whose file has MQTT's topics."""

    def __init__(self, names: str = "ab", **config: Any) -> None:
        super().__init__(names, address=SHORT, addresses=(SHARES,), mqtt_topics=(("#", TOPIC),), **config)

    def start(self, name: str, *, fresh: bool = False) -> Core:
        core, topics = super().start(name, fresh=fresh), TopicMap({"#": TOPIC})
        core.owner.shares = Sharing(core, topics, Messages(topics, border(), 1 << 20), border(), 1 << 20)
        return core

    def member(self, router: str, name: str = "m", **attach: Any) -> SubscriberEnd:
        return self.subscriber(router, name, address=QUEUE, **attach)


def send(publisher: PublisherEnd, *subjects: str, settled: bool = False) -> None:
    first = publisher.next_id
    publisher.next_id += len(subjects)
    payloads = [Message(Data(b""), properties=Properties(subject=each)).encode() for each in subjects]
    tags = [b"%d" % each for each in range(first, publisher.next_id)]
    publisher.core.transfers(publisher, first, tags, payloads, settled, 0, publisher.mesh.now)
    publisher.mesh.run()


def subjects(subscriber: SubscriberEnd) -> list[str | None]:
    messages = [Message.decode(got.payload or b"") for got in subscriber.got]
    return [each.properties.subject if each.properties else None for each in messages]


@pytest.mark.parametrize("there", ["a", "b"])
def test_member_gets_what_its_filter_matches_and_the_publisher_waits_for_both(there: str) -> None:
    """Protocol 16.12.2, 16.12.3."""
    mesh = Shared()
    other, member = mesh.subscriber("a"), mesh.member(there, accepts=False)
    publisher = mesh.publisher("a")
    send(publisher, "jobs/1", "else", "jobs/2")
    assert subjects(other) == ["jobs/1", "else", "jobs/2"]
    assert subjects(member) == ["jobs/1", "jobs/2"]
    assert publisher.accepted() == [1]
    assert mesh.cores["a"].memory.payload_bytes == sum(
        len(each.payload or b"") for each in other.got
    )  # each counts once
    member.accept(member.got[0].id)
    assert publisher.accepted() == [1, 0]
    member.dispose(Outcome.REJECTED, member.got[1].id)
    assert publisher.outcomes[2] == (Outcome.REJECTED, 1, False)
    publisher.settle_all_told()
    mesh.assert_settled()


def test_who_is_waited_for_is_said() -> None:
    mesh = Shared(window_messages=1)
    mesh.subscriber("a")
    member, publisher = mesh.member("b", accepts=False), mesh.publisher("a")
    send(publisher, "jobs/1")
    found = trace(mesh.cores["a"], TOPIC, "p", "out", b"0")
    (at_a,) = found["known"]
    assert at_a["ingress"]["waits_for"] == [{"container": QUEUE, "name": "", "home": None, "why": "fed"}]
    mesh.pass_time(TOLD_AFTER_S + 1)
    (told,) = publisher.waits
    assert (told.reason, told.subscriptions) == ("window", (("m", "in", "b"),))
    member.accept(member.got[0].id)
    assert publisher.accepted() == [0]


def test_without_members_the_topic_alone_counts() -> None:
    mesh = Shared()
    mesh.subscriber("a")
    member, publisher = mesh.member("b", accepts=False), mesh.publisher("a")
    send(publisher, "jobs/1")
    member.leave(closed=True)
    assert publisher.accepted() == [0]
    send(publisher, "jobs/2")
    assert publisher.accepted() == [0, 1]
    publisher.settle_all_told()
    mesh.assert_settled()


def test_what_comes_settled_goes_to_one_member_also_when_its_publisher_has_gone() -> None:
    """Protocol 16.12.2, 16.12.3."""
    mesh = Shared()
    member = mesh.member("b", credit=0)
    publisher = mesh.publisher("a")
    send(publisher, "jobs/1", "jobs/2", settled=True)
    publisher.leave(closed=True)
    member.give_credit(10)
    assert subjects(member) == ["jobs/1", "jobs/2"]
    mesh.assert_settled()
    member.leave(closed=True)
    send(publisher := mesh.publisher("a"), "jobs/3", settled=True)
    publisher.leave(closed=True)
    mesh.pass_time(200.0)
    mesh.assert_empty()


def test_queue_that_the_file_names_no_more_holds_nothing_back() -> None:
    mesh = Shared("a")
    mesh.subscriber("a")
    member, publisher = mesh.member("a", accepts=False), mesh.publisher("a")
    send(publisher, "jobs/1")
    core, topics = mesh.cores["a"], TopicMap({"else": TOPIC})
    core.owner.shares = Sharing(core, topics, Messages(topics, border(), 1 << 20), border(), 1 << 20)
    core.addresses[TOPIC].records.feeds.reconfigured()
    mesh.run()
    assert publisher.accepted() == [0]
    member.accept(member.got[0].id)
    publisher.settle_all_told()
    mesh.assert_settled()


def test_message_without_a_form_in_mqtt_goes_by_its_subject() -> None:
    mesh = Shared()
    mesh.subscriber("a")
    member, publisher = mesh.member("a"), mesh.publisher("a")
    for subject in ("else", "jobs/1"):
        body = Message(AmqpValue({"k": 1}), properties=Properties(subject=subject)).encode()
        publisher.core.transfers(publisher, publisher.next_id, [subject.encode()], [body], False, 0, mesh.now)
        publisher.next_id += 1
    mesh.run()
    assert subjects(member) == ["jobs/1"]


def test_publisher_that_is_not_let_in_at_the_queue_is_detached() -> None:
    """Protocol 16.12.6."""
    mesh = Shared()
    mesh.subscriber("a")
    mesh.member("b", accepts=False)
    publisher = mesh.publisher("a")
    send(publisher, "jobs/1")
    core = mesh.cores["a"]
    (feed,) = core.addresses[QUEUE].ingress.publishers.values()
    core.peer_message("b", m.PubClose(QUEUE, feed.publisher_id, 0, feed.term, forgotten=True), mesh.now)
    mesh.run()
    assert publisher.condition == PUBLISHER_EXPIRED


@puts_stand_ins
def test_hello_that_brings_nothing_new_looks_for_no_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh, queues = Shared(), [f"{SHARED}workers/jobs/{n}" for n in range(20)]
    for queue in queues:
        mesh.subscriber("b", "m", address=queue)
    for n in range(20):  # feeds of their own at b, of which a learns
        send(mesh.publisher("b", f"there{n}"), *(f"jobs/{each}" for each in range(20)))
    for n in range(10):
        mesh.publisher("a", f"here{n}")
    mesh.cores["b"].startup.send_hello("a")
    mesh.run()
    looked: list[str] = []

    def counted(container: str, name: str, address: str, unique_tags: bool) -> bytes:
        looked.append(address)
        return derive_publisher_id(container, name, address, unique_tags)

    monkeypatch.setattr(feeding, "derive_publisher_id", counted)
    mesh.cores["b"].startup.send_hello("a")
    mesh.run()
    assert looked == [], "publishers here times queues"
    send(mesh.publisher("b", "another"), "jobs/7")
    mesh.cores["b"].startup.send_hello("a")
    mesh.run()
    once = dict.fromkeys(queues, 1)  # where the publisher has become ready
    assert Counter(looked) == {**once, queues[7]: 1 + 10}, "and of those at a in the queue that is new"
