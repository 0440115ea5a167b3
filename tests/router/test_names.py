"""Which address a client of AMQP means by what it says (protocol 1.13)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amqp10.events import LinkDetached
from amqp10.runs import Transfers
from amqp10.termini import Source, Target
from mqtt import Publish
from router.config import AddressConfig, RouterConfig, stripped
from router.policies import Policy
from tests.router.borders import Site, Tracer
from tests.router.links import Clients, make, payloads
from tests.router.mqtt_clients import subscribe
from tests.router.test_anonymous import anonymous, message, outcomes, received, send

ALSO = (
    "/orders",
    "orders/",
    "orders.",
    "amqp:/orders",
    "amqps://h:5671/orders",
    "//h/orders",
    "///orders",
    "x:/orders",
)


def network(*addresses: AddressConfig, **config: object) -> Clients:
    return make(RouterConfig("a", routers=("a",), addresses=addresses, **config))  # type: ignore[arg-type]


@pytest.mark.parametrize("said", ALSO)
def test_what_is_in_front_and_behind_is_no_part_of_a_name(said: str) -> None:
    assert stripped(said) == "orders"


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("/", "/"), (".", "."), ("//", "/"), ("//orders", "//orders"), ("amqp://host", "amqp://host"),
        ("orders//", "orders/"), ("/a/b", "a/b"), ("a/b:/c", "a/b:/c"), ("a::/b", "a::/b"), ("1x:/b", "1x:/b"),
        ("/" * 5_000, "/" * 5_000), ("a.b", "a.b"),
    ],
)  # fmt: skip
def test_of_other_names_nothing_or_less_is_taken(said: str, left: str) -> None:
    assert stripped(said) == left


@pytest.mark.parametrize("said", ALSO)
def test_clients_meet_whatever_they_say_and_are_answered_with_that(said: str) -> None:
    clients = network()
    s, p = clients.connect("s"), clients.connect("p")
    receiver, sender = s.receiver(source=Source("orders"), credit=9), p.sender(target=Target(said))
    assert p.answered(sender).target.address == said, "proton's blocking clients compare it"
    sender.send([b"1"], [message(None, "one")])
    clients.exchange()
    send(p, anonymous(p, name="any"), message(said, "two"))
    assert received(s) == ["one", "two"]
    again = s.receiver("again", source=Source(said), credit=9)
    assert s.answered(again).source.address == said
    assert len(clients.router.core.addresses) == 1
    assert not s.seen(LinkDetached, receiver)


def test_a_publisher_is_the_same_one_however_it_says_its_address() -> None:
    clients = network()
    first = clients.connect("p").sender(target=Target("/orders"))
    clients.connect("p").sender(target=Target("orders."))
    assert first.detached, "stolen by the second one"


def test_what_is_meant_is_what_policies_allow_and_what_is_reserved() -> None:
    clients = network(policies=(Policy(("anonymous",), send=("orders",), receive=("/secret",)),))
    client = clients.connect("c")
    assert client.sender("in order", target=Target("/orders")).attached
    refused = [
        client.sender("reserved", target=Target("/$cbs")),
        client.sender("mqtt's", target=Target("amqp:/_mqtt/x")),
        client.receiver("dynamic", source=Source("/_dynamic/a/1")),
        client.receiver("secret", source=Source("/secret")),
    ]
    conditions = [client.detached(link).error.condition for link in refused]
    assert conditions == ["amqp:not-found"] * 2 + ["amqp:not-allowed", "amqp:unauthorized-access"]
    send(client, anonymous(client, name="any"), message("/orders."), message("/$cbs"), message("/other"))
    assert outcomes(client)[1:] == ["amqp:not-found", "amqp:unauthorized-access"]


def test_a_name_that_the_file_has_whole_is_an_address_of_its_own() -> None:
    clients = network(AddressConfig("/orders"), AddressConfig("/eu/*"))
    s, p = clients.connect("s"), clients.connect("p")
    for number, name in enumerate(("orders", "/orders", "eu/x", "/eu/x")):
        s.receiver(f"in {number}", source=Source(name), credit=9)
    assert [*clients.router.core.addresses] == ["orders", "/orders", "eu/x", "/eu/x"]
    send(p, anonymous(p), message("/orders", 1), message("amqp:/orders", 2), message("/eu/x", 3))
    runs = s.seen(Transfers)
    assert [(run.link.name, len(payloads([run]))) for run in runs] == [("in 1", 1), ("in 0", 1), ("in 3", 1)]


def test_an_address_of_mqtt_is_what_its_file_calls_it() -> None:
    config = RouterConfig("a", mqtt_topics=(("", "/all"),), mqtt_retained="kept.", mqtt_shared=(("g/#", "x:/q"),))
    assert [config.left_of(said) for said in ("/all", "kept.", "x:/q", "all.", "/kept")] == [
        "/all", "kept.", "x:/q", "all", "kept",
    ]  # fmt: skip


def test_a_file_may_have_names_taken_as_they_are_said() -> None:
    clients = network(strip_addresses=False)
    clients.connect("s").receiver(source=Source("/orders"))
    assert [*clients.router.core.addresses] == ["/orders"]
    clients.router.reconfigure(replace(clients.router.config, strip_addresses=True), clients.now)
    clients.connect("s").receiver(source=Source("/orders"))
    assert [*clients.router.core.addresses] == ["/orders"], "it is known there"
    clients.connect("t").receiver(source=Source("/orders"))
    assert [*clients.router.core.addresses] == ["/orders", "orders"]


def test_topic_names_of_mqtt_are_taken_as_they_are() -> None:
    site = Site(Tracer())
    site.tracer = None
    listens, speaks = site.connect_mqtt("m"), site.connect_mqtt("n")
    subscribe(listens, "/a")
    for topic in ("a", "/a"):
        speaks.send(Publish(topic, topic.encode()))
    assert [each.topic for each in listens.take() if isinstance(each, Publish)] == ["/a"]
