"""What a router says of the links of one container-id, wherever they are attached (protocol 7.10).

A session of MQTT is a container. Its subscriptions carry data that says what the session is, and every router has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from router.core import messages as m
from router.core.naming import derive_publisher_id
from router.core.ports import MOST_DATA, KnownSubscription, SubscriberPort

if TYPE_CHECKING:
    from router.core.core import Core


def subscriptions_of(core: Core, container: str, name: str) -> list[KnownSubscription]:
    """Returns the container's subscriptions with this link name that this router knows, in order of address."""
    found = [
        KnownSubscription(address.name, name, address.data_of_its_owner(entry.data), entry.born, entry.home)
        for address in core.addresses.values()
        if (entry := address.subscriptions.entries.get((container, name))) is not None
    ]
    return sorted(found, key=lambda each: each.address)


def knows_publisher(core: Core, container: str, name: str, address: str, unique_tags: bool) -> bool:
    """Says whether this router knows the publisher, so that it may go on with what it has sent (protocol 2.1)."""
    there = core.addresses.get(address)
    if there is None:
        return False
    known = there.publishers.entries.get(derive_publisher_id(container, name, address, unique_tags))
    return known is not None and known.real and not known.expired(core.now)


def change_data(core: Core, port: SubscriberPort, data: bytes, done: Callable[[], None], now: float) -> None:
    """Changes the data of an attached subscription. `done` is called, inside a handler, when every router in session
    has it; never if the subscription is detached before that."""
    assert len(data) <= MOST_DATA
    core.now = core.entered = now
    subscriber = core.subscribers.get(port)
    if subscriber is None:
        return
    address = core.addresses[subscriber.deliveries.address.name]
    subscriber.data = data = address.data_on_the_wire(data)
    core.post.broadcast(m.Note(address.name, subscriber.name, subscriber.term, data))
    missing = core.kinds.everybody(address.name)

    def answered(router: str) -> None:
        missing.pop(router)
        if not missing and core.subscribers.get(port) is subscriber:
            done()

    address.ingress.streams.completion.finishing.ask(list(missing), False, answered)
    core.drain()
