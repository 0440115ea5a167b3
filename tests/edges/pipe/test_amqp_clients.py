"""Any AMQP client writes a pipe by sending, and reads it through a link with distribution-mode copy: here proton."""

from __future__ import annotations

import asyncio

import pytest

from edges.pipe import pull, push
from tests import needs
from tests.edges.pipe.network import PipeNetwork

pytestmark = pytest.mark.skipif(not needs.has_proton(), reason=needs.PROTON)


def test_proton_reads_copies_and_what_it_does_with_them_changes_nothing(network: PipeNetwork, pipe: str) -> None:
    from proton import symbol, ulong
    from proton.reactor import Copy, LinkOption
    from proton.utils import BlockingConnection

    class From(LinkOption):
        def apply(self, link: object) -> None:
            link.properties = {symbol("onceway:from"): ulong(1)}  # type: ignore[attr-defined]

    asyncio.run(push(network.urls(), pipe, ["one", "two", "three"]))
    connection = BlockingConnection(network.store_url(), timeout=30)
    try:
        for _ in range(2):
            reader = connection.create_receiver(pipe, credit=10, options=[Copy()])
            found = [reader.receive() for _ in range(3)]
            assert [message.body for message in found] == ["one", "two", "three"]
            assert [message.annotations["x-opt-onceway-position"] for message in found] == [0, 1, 2]
            for _ in found:
                reader.accept()
            reader.close()
        reader = connection.create_receiver(pipe, credit=10, options=[Copy(), From()])
        assert reader.receive().body == "two"
    finally:
        connection.close()


def test_proton_writes_and_is_sent_to_the_store_to_read(network: PipeNetwork, pipe: str) -> None:
    from proton import Message
    from proton.reactor import Copy
    from proton.utils import BlockingConnection, LinkDetached

    connection = BlockingConnection(network.urls(), timeout=30)
    try:
        sender = connection.create_sender(pipe)
        for number in range(3):
            sender.send(Message(body=f"proton {number}"))
        with pytest.raises(LinkDetached, match="it is read at its stores"):
            connection.create_receiver(pipe, options=[Copy()])
    finally:
        connection.close()

    async def bodies() -> list[object]:
        return [each.body async for each in pull(pipe, routers=network.urls())]

    assert asyncio.run(bodies()) == [f"proton {number}" for number in range(3)]
