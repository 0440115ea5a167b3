"""A rejection has its reason, also where a router makes it; the log counts those (protocol 6.4.9)."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from amqp10.runs import Dispositions
from amqp10.sections import AmqpValue, Message
from amqp10.termini import Source, Target
from mqtt import Properties, Puback, Publish, Reason
from router.config import AddressConfig
from router.core.ports import Outcome, Refusal, failed_too_often
from router.core.rejections import EVERY_S, Rejections
from router.reasons import reason_of_refusal, sentence
from tests.router.borders import Site, Tracer
from tests.router.harness import Mesh
from tests.router.links import Client, Clients
from tests.router.mqtt_clients import subscribe

SIZE = "amqp:link:message-size-exceeded"


class Lines:
    """A log."""

    def __init__(self) -> None:
        self.lines: list[dict[str, object]] = []

    def warning(self, event: str, text: str, /, **fields: object) -> None:
        assert event == "messages_rejected"
        text.format_map(fields)
        self.lines.append(fields)

    debug = info = error = warning


def site() -> Site:
    made = Site(Tracer())
    made.tracer = None
    return made


def told(clients: Clients, client: Client, address: str, *bodies: object) -> list[dict[str, Any]]:
    """Publishes there; returns the reasons that the publisher is told."""
    link = client.sender(target=Target(address))
    payloads = [Message(body).encode() for body in bodies]
    link.send([b"%d" % n for n in range(len(bodies))], payloads)
    clients.exchange()
    return [each.state.error.info["onceway:reason"] for each in client.seen(Dispositions, link)]


def test_a_publisher_is_told_that_its_message_is_larger_than_a_subscription_takes() -> None:
    clients = site()
    clients.connect("s").receiver(source=Source("large"), credit=9, max_message_size=100)
    found = told(clients, clients.connect("p"), "large", b"x" * 200)
    assert found == [{"condition": SIZE, "description": "larger than the 100 octets that the subscription takes"}]


def test_a_publisher_is_told_that_mqtt_has_no_form_for_its_message() -> None:
    clients = site()
    subscribe(clients.connect_mqtt("m"), "all")
    found = told(clients, clients.connect("p"), "all", AmqpValue({"a": 1}))
    assert found == [{"condition": "amqp:not-implemented", "description": "MQTT has no form for this message"}]


def test_the_reason_of_a_client_of_mqtt_is_told_in_either_protocol() -> None:
    clients = site()
    member, publisher = clients.connect_mqtt("m"), clients.connect_mqtt("p")
    subscribe(member, "all", qos=1)
    publisher.send(Publish("all", b"x", 1, packet_id=1))
    (message,) = member.take()
    assert isinstance(message, Publish)
    member.send(Puback(message.packet_id, Reason.QUOTA_EXCEEDED))
    text = "rejected by 1 subscription: mqtt:quota-exceeded: the client has answered with reason 0x97"
    assert publisher.take() == [Puback(1, Reason.UNSPECIFIED_ERROR, Properties(reason_string=text))]
    sender = clients.connect("s")
    assert told(clients, sender, "all", b"y") == []
    (message,) = member.take()
    assert isinstance(message, Publish)
    member.send(Puback(message.packet_id, Reason.QUOTA_EXCEEDED))
    (answer,) = sender.seen(Dispositions)
    assert answer.state.error.info["onceway:reason"]["condition"] == "mqtt:quota-exceeded"


def test_a_reason_string_has_no_control_characters() -> None:
    reason = reason_of_refusal(Refusal("a:b", "no\x00\n!"))
    assert sentence(2, reason) == "rejected by 2 subscriptions: a:b: no!"


@pytest.mark.parametrize("kind", ["topic", "queue"])
@pytest.mark.parametrize("most", [0, 2])
def test_a_publisher_is_told_that_a_subscription_has_failed_too_often(
    kind: Literal["topic", "queue"], most: int
) -> None:
    mesh = Mesh("ab", address=AddressConfig(type=kind, max_redeliveries=most))
    subscriber = mesh.subscriber("b", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1")
    for _ in range(most + 1):
        subscriber.dispose(Outcome.FAILED, max(each.id for each in subscriber.got if each.body == "m0"))
    refusal = failed_too_often(most)
    assert publisher.reasons == {0: f"{refusal.condition}: {refusal.description}".encode()}
    for _ in range(most + 1):  # what it says itself is told instead
        last = max(each.id for each in subscriber.got if each.body == "m1")
        subscriber.dispose(Outcome.FAILED, last, why=b"its own words")
    assert publisher.reasons[1] == b"its own words"


def test_rejections_are_logged_with_their_count_and_not_one_by_one() -> None:
    log: Any = Lines()
    rejections = Rejections(log)
    one, two = Refusal(SIZE, "large"), Refusal("amqp:not-implemented", "no form")
    rejections.note("a", ("c", "s"), one, 2)
    rejections.note("a", ("c", "t"), one, 3)
    rejections.note("a", ("c", "s"), two, 1)
    assert rejections.tell(5.0) == float("inf")
    said = {"address": "a", "container": "c"}
    first = {**said, "count": 5, "link": "t", "condition": SIZE, "description": "large"}
    second = {**said, "count": 1, "link": "s", "condition": two.condition, "description": "no form"}
    assert log.lines == [first, second]
    rejections.note("a", ("c", "t"), one, 1_000)
    assert rejections.tell(6.0) == 5.0 + EVERY_S
    assert len(log.lines) == 2
    assert rejections.tell(5.0 + EVERY_S) == float("inf")
    assert log.lines[2:] == [{**first, "count": 1_000}]
    assert not rejections


def test_the_rest_of_a_count_is_logged_when_its_time_has_come() -> None:
    clients = site()
    lines: Any = Lines()
    clients.router.core.owner.rejections = Rejections(lines)
    clients.connect("s").receiver(source=Source("large"), credit=9, max_message_size=100)
    publisher = clients.connect("p")
    for name in ("one", "two", "three"):
        link = publisher.sender(name, target=Target("large"))
        link.send([b"t"], [Message(b"x" * 200).encode()])
        clients.exchange()
    assert [line["count"] for line in lines.lines] == [1]
    clients.now = clients.router.next_deadline() or 0.0
    clients.router.tick(clients.now)
    clients.exchange()
    clients.now += EVERY_S
    clients.router.tick(clients.now)
    clients.exchange()
    assert [line["count"] for line in lines.lines] == [1, 2]
