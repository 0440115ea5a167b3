"""How an application whose library presents no unsettled map reads that its subscription has a gap."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proton import Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver

from tests.interop.raw import unique
from tests.interop.test_rhea import node
from tests.live import LiveNetwork, wait_until
from tests.live_fixture import LiveNetworks

TIMEOUT_S = 600


class _Remembered(LinkOption):  # type: ignore[misc]
    def apply(self, link: Any) -> None:
        link.source.timeout = TIMEOUT_S


class _Resumed(MessagingHandler):  # type: ignore[misc]
    """Notes `onceway:resumed` of each answer to its attach, for as long as proton reconnects."""

    def __init__(self, urls: list[str], address: str) -> None:
        super().__init__()
        self.urls, self.address = urls, address
        self.answers: list[bool] = []

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(urls=self.urls, heartbeat=1)
        event.container.create_receiver(connection, self.address, options=_Remembered())

    def on_link_opened(self, event: Any) -> None:
        self.answers.append(event.link.remote_properties[symbol("onceway:resumed")])


def _meets_both_answers(network: LiveNetwork, address: str, answers: Callable[[int], list[bool]]) -> None:
    """New at `a`; then `a` dies and `b` knows the subscription; then nobody does, because all who knew it have died."""
    assert answers(1) == [False]
    wait_until(lambda: network["b"].directory_entries().get(address), "the other router knows the subscription")
    network.kill("a")
    assert answers(2) == [False, True]
    network.kill("b")
    network.start("a")
    assert answers(3) == [False, True, False]


def test_proton_reads_whether_its_subscription_was_resumed(live_network: LiveNetworks) -> None:
    network, address = live_network("a", "b", links=[("a", "b")]), unique("resumed")
    handler = _Resumed([network[name].address for name in "ab"], address)
    container = Container(handler)
    container.container_id = address
    thread = threading.Thread(target=container.run, daemon=True)
    thread.start()

    def answers(count: int) -> list[bool]:
        wait_until(lambda: len(handler.answers) >= count, f"{count} answers")
        return handler.answers

    _meets_both_answers(network, address, answers)


def test_a_blocking_receiver_of_proton_reads_it_too(one_router: LiveNetwork) -> None:
    """A program that was started again: its container-id and link name are given, else both were new. Its outcome
    shows that it has read the first answer (protocol 7.6.9)."""
    name = unique("resumed-blocking")

    def attach() -> tuple[BlockingConnection, BlockingReceiver, bool]:
        connection = BlockingConnection(one_router["a"].address, container_id=name)
        receiver = connection.create_receiver(name, name=name, options=_Remembered())
        return connection, receiver, receiver.remote_properties[symbol("onceway:resumed")]

    first, receiver, answer = attach()
    assert not answer
    publisher = BlockingConnection(one_router["a"].address)
    sending = threading.Thread(target=publisher.create_sender(name).send, args=[Message(body="read")])
    sending.start()
    assert receiver.receive().body == "read"
    receiver.accept()
    first.close()
    sending.join()
    second, _, answer = attach()
    assert answer
    for each in (second, publisher):
        each.close()


def test_rhea_reads_whether_its_subscription_was_resumed(live_network: LiveNetworks, rhea: Path) -> None:
    network, address = live_network("a", "b", links=[("a", "b")]), unique("resumed-by-rhea")
    a, b = (network[name].address for name in "ab")
    with node(rhea, "links.js", a, "resumed", address, TIMEOUT_S, b) as client:
        seen: list[bool] = []

        def answers(count: int) -> list[bool]:
            seen.extend(line == "true" for line in client.lines(count - len(seen)))
            return seen

        _meets_both_answers(network, address, answers)
