"""Requests with a dynamic source for the replies: at one router, and from one end of three to the other."""

from __future__ import annotations

from pathlib import Path

import pytest
from proton import Delivery, Message
from proton.utils import BlockingConnection, LinkDetached, SendException, SyncRequestResponse

from tests.interop.conftest import Way
from tests.interop.raw import unique
from tests.interop.test_rhea import node
from tests.running import python


def test_proton_asks_and_is_answered(way: Way) -> None:
    address = unique("service")
    with python("reply", way.subscribe, address, 5) as service:
        assert service.line() == "attached"
        connection = BlockingConnection(way.publish, timeout=30)
        client = SyncRequestResponse(connection, address)
        assert client.reply_to.startswith("_dynamic/")
        replies = [client.call(Message(body=f"request {number}")).body for number in range(1, 6)]
        assert replies == [f"REQUEST {number}" for number in range(1, 6)]
        assert service.rest() == ["5 answered"]
        connection.close()


def test_rhea_asks_and_proton_answers(way: Way, rhea: Path) -> None:
    address = unique("service")
    with python("reply", way.subscribe, address, 5) as service:
        assert service.line() == "attached"
        with node(rhea, "links.js", way.publish, "request", address, 5) as client:
            assert client.rest() == [f"REQUEST {number}" for number in range(1, 6)]
        assert service.rest() == ["5 answered"]


def test_a_reply_to_a_client_that_has_gone_is_refused(way: Way) -> None:
    asks, serves = BlockingConnection(way.publish, timeout=30), BlockingConnection(way.subscribe, timeout=30)
    receiver = asks.create_receiver(None, dynamic=True)
    address = receiver.link.remote_source.address
    early = serves.create_sender(address, name="early")
    receiver.close()
    with pytest.raises(SendException) as error:
        early.send(Message(body="reply"))
    assert error.value.state == Delivery.REJECTED
    with pytest.raises(LinkDetached, match="amqp:not-found"):
        serves.create_sender(address, name="late")
    asks.close()
    serves.close()
