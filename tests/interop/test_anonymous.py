"""Sending links without an address, from proton and rhea."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, SendException

from tests.interop.conftest import Way
from tests.interop.raw import Subscriber, unique
from tests.interop.test_rhea import node


def test_proton_sends_to_several_addresses_and_is_told_of_each(way: Way) -> None:
    one, two = unique("one"), unique("two")
    with Subscriber(way.subscribe, one) as first, Subscriber(way.subscribe, two) as second:
        connection = BlockingConnection(way.publish, timeout=30)
        sender = connection.create_sender(None)
        for number in range(4):
            sender.send(Message(number, address=(one, two)[number % 2]))
        for address, state in (("$cbs", Delivery.REJECTED), (unique("nobody"), Delivery.RELEASED)):
            with pytest.raises(SendException) as error:
                sender.send(Message("x", address=address))
            assert error.value.state == state
        sender.send(Message("last", address=one))
        connection.close()
        assert [_body(each.payload) for each in first.wait(3)] == [0, 2, "last"]
        assert [_body(each.payload) for each in second.wait(2)] == [1, 3]


def test_rhea_sends_to_several_addresses_and_is_told_of_each(way: Way, rhea: Path) -> None:
    one, two = unique("one"), unique("two")
    with (
        Subscriber(way.subscribe, one) as first,
        Subscriber(way.subscribe, two) as second,
        node(rhea, "links.js", way.publish, "anonymous", one, two) as publisher,
    ):
        offered, *told = publisher.rest()
        assert offered == "offered ANONYMOUS-RELAY"
        assert sorted(told) == sorted(3 * ["$cbs rejected amqp:not-found", f"{one} accepted", f"{two} accepted"])
        assert [_body(each.payload) for each in first.wait(3)] == [1, 2, 3]
        assert [_body(each.payload) for each in second.wait(3)] == [1, 2, 3]


def _body(payload: bytes) -> object:
    message = Message()
    message.decode(payload)
    return message.body
