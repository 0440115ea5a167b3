"""Shared subscriptions of MQTT: members of a group compete for what the queue of the group gets."""

from __future__ import annotations

import pytest

from mqtt import (
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Reason,
    Unsuback,
    Unsubscribe,
    Will,
)
from router.config import AddressConfig, Limits
from tests.router.mqtt_clients import LASTING, Client, World, answer, subscribe, texts

GROUP = "$share/workers/jobs/#"


@pytest.fixture
def world() -> World:
    return make()


def make(**config: int) -> World:
    return World(addresses=[AddressConfig("jobs", type="queue")], shared={"workers/jobs/#": "jobs"}, **config)


def member(world: World, name: str, version: int = 5, *, lasting: bool = True, qos: int = 2, most: int = 100) -> Client:
    properties = Properties()
    if version == 5:
        properties = Properties(session_expiry_s=50 if lasting else 0, receive_maximum=most)
    client = world.connect(name, version, clean_start=not lasting, properties=properties)
    join(client, qos)
    return client


def join(client: Client, qos: int = 2, text: str = GROUP) -> Reason:
    (reason,) = subscribe(client, text, qos=qos)
    return reason


def publish(client: Client, number: int, qos: int = 2, topic: str = "jobs/a") -> list[Packet]:
    return client.send(Publish(topic, b"%d" % number, qos, packet_id=number if qos else 0))


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_comes_to_one_member_and_to_every_other_subscriber(world: World, qos: int, lasting: bool) -> None:
    members = [member(world, name, version, lasting=lasting) for name, version in (("one", 5), ("two", 4))]
    other, publisher = world.connect("other"), world.connect("p")
    join(other, 2, "jobs/+")
    for number in range(1, 21):
        publish(publisher, number, qos)
    answer(publisher)
    found = [texts(answer(each)) for each in members]
    expected = [b"%d" % number for number in range(1, 21)]
    assert qos == 0 or all(found), "one member got everything"
    assert sorted(found[0] + found[1], key=int) == expected
    assert texts(answer(other)) == expected
    answer(publisher)
    for each in members:
        answer(each)
    publish(publisher, 1, qos)  # its identifier is free
    assert sum(len(texts(answer(each))) for each in members) == 1


def test_publisher_is_answered_when_the_topic_and_a_member_have_accepted(world: World) -> None:
    one, other, publisher = member(world, "one"), world.connect("other"), world.connect("p", properties=LASTING)
    join(other, 1, "jobs/#")
    assert publish(publisher, 7) == []
    (for_one,), (for_other,) = one.take(), other.take()
    assert isinstance(for_one, Publish)
    assert isinstance(for_other, Publish)
    other.send(Puback(for_other.packet_id))
    assert publisher.take() == []
    one.send(Pubrec(for_one.packet_id))
    assert publisher.take() == [Pubrec(7)]
    assert publisher.send(Pubrel(7)) == []  # the member holds it
    one.send(Pubcomp(for_one.packet_id))
    assert publisher.take() == [Pubcomp(7)]


def test_rejection_of_either_is_told(world: World) -> None:
    one, publisher = member(world, "one"), world.connect("p", properties=LASTING)
    publish(publisher, 7)
    (message,) = one.take()
    assert isinstance(message, Publish)
    one.send(Pubrec(message.packet_id, Reason.UNSPECIFIED_ERROR))
    (told,) = publisher.take()
    assert isinstance(told, Pubrec)
    assert told.reason == Reason.UNSPECIFIED_ERROR
    publish(publisher, 7)  # the identifier is free
    assert texts(one.take()) == [b"7"]


def test_group_that_the_file_does_not_name_is_there_while_it_has_members(world: World) -> None:
    others, few, publisher = world.connect("one"), world.connect("two"), world.connect("p")
    assert join(others, text="$share/others/jobs/#") == Reason.GRANTED_QOS_2
    assert join(few, text="$share/others/jobs/a") == Reason.GRANTED_QOS_2  # another group
    publish(publisher, 1, 1)
    publish(publisher, 2, 1, "jobs/b")
    assert texts(answer(others)) == [b"1", b"2"]
    assert texts(answer(few)) == [b"1"]
    for client in (others, few):
        client.lose()
    answer(member(world, "three"))
    publisher.take()
    assert [type(each) for each in publish(publisher, 3, 1)] == []  # the group of the file has it


def test_session_has_as_many_shared_subscriptions_as_links() -> None:
    client = World(limits=Limits(links=2)).connect("one")
    quota = Reason.QUOTA_EXCEEDED
    assert subscribe(client, "$share/a/x", "$share/b/x", "$share/c/x", qos=0) == [0, 0, quota]
    assert subscribe(client, "$share/b/x", "$share/c/x", qos=1) == [1, quota]


def test_messages_wait_for_a_member(world: World) -> None:
    publisher = world.connect("p")
    publish(publisher, 1)
    publish(publisher, 2, qos=0)
    assert texts(answer(member(world, "one"))) == [b"1", b"2"]


def test_qos_0_is_dropped_where_as_many_wait_as_may() -> None:
    world = make(presettled_queue=100)
    publisher = world.connect("p")
    for number in range(103):
        publisher.send(Publish("jobs/a", b"%d" % number))
    one = member(world, "one")
    found = answer(one)
    assert len(found) == 100
    assert {each.qos for each in found} == {0}


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_client_has_not_been_sent_goes_to_another_member_when_it_goes(world: World, qos: int) -> None:
    one, publisher = member(world, "one", most=2), world.connect("p")
    for number in range(1, 7):
        publish(publisher, number, qos)
    held = texts(one.take())
    assert held == [b"1", b"2"]
    one.lose()
    assert texts(answer(member(world, "two"))) == [b"3", b"4", b"5", b"6"]
    again = world.connect("one", clean_start=False, properties=LASTING)
    assert texts(answer(again)) == held


def test_session_that_is_over_gives_back_qos_1_and_rejects_qos_2(world: World) -> None:
    one, publisher = member(world, "one"), world.connect("p")
    publish(publisher, 1, 1)
    publish(publisher, 2, 2)
    assert texts(one.take()) == [b"1", b"2"]
    one.lose()
    two = member(world, "two")
    assert texts(answer(two)) == []
    world.pass_time(51)
    assert texts(answer(two)) == [b"1"]
    told = publisher.take()
    assert [(type(each), each.reason) for each in told if isinstance(each, Puback | Pubrec)] == [
        (Pubrec, Reason.UNSPECIFIED_ERROR), (Puback, Reason.SUCCESS),
    ]  # fmt: skip


def test_client_that_unsubscribes_keeps_what_it_has_been_sent(world: World) -> None:
    one, publisher = member(world, "one", most=1), world.connect("p")
    publish(publisher, 1)
    publish(publisher, 2)
    (message,) = one.take()
    assert isinstance(message, Publish)
    found = one.send(Unsubscribe(2, [GROUP]))
    assert [type(each) for each in found] == [Unsuback]
    two = member(world, "two")
    assert texts(answer(two)) == [b"2"]
    assert [type(each) for each in one.send(Pubrec(message.packet_id))] == [Pubrel]
    one.send(Pubcomp(message.packet_id))
    publish(publisher, 3)
    assert texts(one.take()) == []
    assert texts(answer(two)) == [b"3"]
    assert sorted(world.router.core.addresses["jobs"].subscriptions.entries) == [("two", "mqtt")]


def test_client_that_comes_back_to_the_group_before_it_is_done(world: World) -> None:
    one, publisher = member(world, "one", most=2), world.connect("p")
    publish(publisher, 1)
    (message,) = one.take()
    one.send(Unsubscribe(2, [GROUP]))
    assert join(one) == Reason.GRANTED_QOS_2
    assert isinstance(message, Publish)
    one.send(Pubrec(message.packet_id))
    one.send(Pubcomp(message.packet_id))
    publish(publisher, 2)
    assert texts(one.take()) == [b"2"]


def test_will_goes_to_the_group(world: World) -> None:
    one = member(world, "one")
    world.connect("p", will=Will("jobs/will", b"gone", 1)).lose()
    assert texts(answer(one)) == [b"gone"]
