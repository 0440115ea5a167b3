"""What a client of AMQP can make, one row for each kind: how it is made, and how it goes.

`tests/router/test_made.py` walks this table. It fails where a class of links has no row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from amqp10.outcomes import ACCEPTED
from amqp10.performatives import RCV_FIRST
from amqp10.runs import Transfers
from amqp10.sections import Message, Properties
from amqp10.termini import Coordinator, Source, Target
from amqp10.types import Symbol
from router.config import AddressConfig
from router.core.counters import EXPIRED, LOST_KEPT, OWN_COUNTERS
from router.core.former import Former
from router.links.management import Request, answer_to
from router.policies import Identity
from router.router import Router
from tests.router.links import BODY, Client, symbols
from tests.router.neighbours import Neighbours

FORGOTTEN_S: Final = 80.0
"""After which no router waits for a client that has gone, with the timeouts of `ADDRESSES`."""
ADDRESSES: Final = (
    AddressConfig("queue*", type="queue", subscription_timeout_s=4.0, publisher_timeout_s=8.0),
    AddressConfig("*", subscription_timeout_s=4.0, publisher_timeout_s=8.0),
)

Gone = Callable[[], object]


class Kind(NamedTuple):
    """make: by client, with a number that no other one has; returns what makes it go. Nobody else's things may change
    meanwhile."""

    name: str
    make: Callable[[Neighbours, Client, int], Gone]


class Node:
    """A management node that answers at once."""

    def may_read(self, who: Identity) -> bool:
        return True

    def ask(self, request: Request) -> None:
        request.answer(answer_to(request.message, 200, "OK").encode())


def network() -> Neighbours:
    made = Neighbours(addresses=ADDRESSES, memory_limit=16 << 20)
    for router in (made.a, made.b):
        router.nodes.own = Node()
        remember_others(router, made.now)
    return made


def remember_others(router: Router, now: float) -> None:
    """Of what a router remembers of others that have gone there is as much as there may be."""
    counters, former = router.core.counters, router.core.memory.former
    for number in range(OWN_COUNTERS):
        counters.of(f"earlier{number}")
    for number in range(LOST_KEPT):
        counters.note_lost(counters.of("t"), "c", f"earlier{number}", EXPIRED, now)
    known = -1
    while known < len(former):
        known = len(former)
        term, at = (1 << 40 | known, "a"), now + known  # no two of them share what they have
        former.remember(f"earlier{known}", (f"c{known}", f"s{known}"), Former(term, term, at, at, 1))


def _connection(network: Neighbours, client: Client, number: int) -> Gone:
    other = network.connect(f"c{number}")

    def close() -> None:
        other.connection.close()
        network.exchange()
        network.clients.remove(other)

    return close


def _lost_connection(network: Neighbours, client: Client, number: int) -> Gone:
    other = network.connect(f"c{number}")
    other.sender(target=Target(f"t{number}"))
    other.receiver(source=Source(f"t{number}"))
    return other.lose


def _half_open_connection(network: Neighbours, client: Client, number: int) -> Gone:
    served = network.router.connect(network.now)
    served.receive_data(b"AMQP\x03\x01\x00\x00", network.now)

    def lose() -> None:
        served.receive_eof(network.now)
        network.exchange()

    return lose


def _session(network: Neighbours, client: Client, number: int) -> Gone:
    session = client.connection.begin()
    network.exchange()
    return session.end


def _link(link: Any) -> Gone:
    return lambda: link.detach(None, closed=True)


def _away(link: Any) -> Gone:
    return lambda: link.detach(None, closed=False)


def _publisher(network: Neighbours, client: Client, number: int) -> Gone:
    link = client.sender(f"p{number}", target=Target(f"t{number}"))
    assert link.attached
    return _link(link)


def _publisher_with_an_identity(network: Neighbours, client: Client, number: int) -> Gone:
    """It goes without a close, and nobody is told when it is back."""
    said = symbols(onceway_epoch=1, onceway_incarnation=1)
    link = client.sender(f"p{number}", target=Target("t"), unsettled={}, properties=said)
    assert link.attached
    return _away(link)


def _publisher_with_unique_tags(network: Neighbours, client: Client, number: int) -> Gone:
    link = client.sender(f"p{number}", target=Target("t"), properties=symbols(onceway_unique_tags=True))
    assert link.attached
    return _away(link)


def _publisher_that_waits_for_outcomes(network: Neighbours, client: Client, number: int) -> Gone:
    receiver = client.receiver(f"s{number}", credit=10, source=Source(f"t{number}"))
    link = client.sender(f"p{number}", target=Target(f"t{number}"))
    link.send([b"1", b"2"], [BODY, BODY])
    network.exchange()
    assert client.seen(Transfers, receiver)

    def detach() -> None:
        link.detach(None, closed=False)
        receiver.detach(None, closed=True)

    return detach


def _part_of_a_publishers_map(network: Neighbours, client: Client, number: int) -> Gone:
    said = symbols(onceway_epoch=1, onceway_incarnation=1)
    attach = {"unsettled": {b"1": None}, "incomplete_unsettled": True, "properties": said}
    client.sender(f"p{number}", target=Target("t"), **attach)
    return lambda: None


def _subscriber(network: Neighbours, client: Client, number: int) -> Gone:
    link = client.receiver(f"s{number}", credit=10, source=Source(f"t{number}"))
    assert link.attached
    return _link(link)


def _durable_subscription_that_is_deleted(network: Neighbours, client: Client, number: int) -> Gone:
    asked: Any = {"source": Source("t", expiry_policy=Symbol("never"), durable=2)}
    client.receiver(f"s{number}", **asked).detach(None, closed=False)
    network.exchange()
    return _link(client.receiver(f"s{number}", **asked))


def _durable_subscription_that_expires(network: Neighbours, client: Client, number: int) -> Gone:
    source = Source("t", expiry_policy=Symbol("link-detach"), timeout=4)
    link = client.receiver(f"s{number}", source=source)
    assert link.attached
    return _away(link)


def _dynamic_source(network: Neighbours, client: Client, number: int) -> Gone:
    link = client.receiver(f"s{number}", source=Source(dynamic=True))
    assert link.attached
    return _link(link)


def _dynamic_source_whose_connection_is_lost(network: Neighbours, client: Client, number: int) -> Gone:
    """And a publisher of replies, which stays."""
    other = network.connect("asks")
    address = other.answered(other.receiver(credit=1, source=Source(dynamic=True))).source.address
    reply = client.sender(f"reply{number}", target=Target(address))
    reply.send([b"1"], [BODY])
    network.exchange()

    def lose() -> None:
        other.lose()
        reply.detach(None, closed=True)

    return lose


def _dynamic_target(network: Neighbours, client: Client, number: int) -> Gone:
    link = client.sender(f"p{number}", target=Target(dynamic=True))
    assert link.attached
    return _link(link)


def _addresses_of_an_anonymous_link(network: Neighbours, client: Client, number: int) -> Gone:
    receiver = client.receiver(f"s{number}", credit=10, source=Source(f"t{number}"))
    link = client.sender(f"p{number}", target=Target(), rcv_settle_mode=RCV_FIRST)
    message = Message("x", properties=Properties(to=f"t{number}")).encode()
    nowhere = Message("x", properties=Properties(to=f"nobody{number}")).encode()
    link.send([b"1", b"2"], [message, nowhere])
    network.exchange()
    (event,) = client.seen(Transfers, receiver)
    receiver.dispose(event.first_id, event.first_id, ACCEPTED, True)
    network.exchange()

    def detach() -> None:
        link.detach(None, closed=True)
        receiver.detach(None, closed=True)

    return detach


def _queue_consumer(network: Neighbours, client: Client, number: int) -> Gone:
    link = client.receiver(f"s{number}", credit=10, source=Source(f"queue{number}"))
    assert link.attached
    return _link(link)


def _browser(network: Neighbours, client: Client, number: int) -> Gone:
    link = client.receiver(f"s{number}", credit=10, source=Source(f"queue{number}", distribution_mode=Symbol("copy")))
    assert link.attached
    return _link(link)


def _request_to_the_management_node(router: str) -> Callable[[Neighbours, Client, int], Gone]:
    def make(network: Neighbours, client: Client, number: int) -> Gone:
        replies = client.receiver(f"s{number}", credit=10, source=Source(dynamic=True))
        asked = Properties(reply_to=client.answered(replies).source.address)
        link = client.sender(f"p{number}", target=Target(f"_topo/0/{router}/$management"), rcv_settle_mode=RCV_FIRST)
        link.send([b"1"], [Message("x", properties=asked).encode()])
        network.exchange()
        (event,) = client.seen(Transfers, replies)
        replies.dispose(event.first_id, event.first_id, ACCEPTED, True)
        network.exchange()

        def detach() -> None:
            link.detach(None, closed=True)
            replies.detach(None, closed=True)

        return detach

    return make


def _request_by_an_anonymous_link(network: Neighbours, client: Client, number: int) -> Gone:
    replies = client.receiver(f"s{number}", credit=10, source=Source("$management"), target=Target(f"r{number}"))
    link = client.sender(f"p{number}", target=Target(), rcv_settle_mode=RCV_FIRST)
    asked = Properties(to="$management", reply_to=f"r{number}")
    link.send([b"1"], [Message("x", properties=asked).encode()])
    network.exchange()
    assert client.seen(Transfers, replies)

    def detach() -> None:
        link.detach(None, closed=True)
        replies.detach(None, closed=True)

    return detach


def _token(network: Neighbours, client: Client, number: int) -> Gone:
    """And its answer, by a client of Azure's."""
    asked = Target("$cbs")
    answers = client.receiver(f"s{number}", credit=10, source=Source("$cbs"), target=asked)
    link = client.sender(f"p{number}", target=asked, rcv_settle_mode=RCV_FIRST)
    link.send([b"1"], [Message("token").encode()])
    network.exchange()
    assert client.seen(Transfers, answers)

    def detach() -> None:
        link.detach(None, closed=True)
        answers.detach(None, closed=True)

    return detach


def _azures_subscriber(network: Neighbours, client: Client, number: int) -> Gone:
    """And a publisher, of whose messages it has accepted one."""
    other = network.connect(f"c{number}", properties={"product": "azsdk-python-servicebus"})
    receiver = other.receiver(credit=10, source=Source(f"amqps://host/t{number}"))
    link = client.sender(f"p{number}", target=Target(f"t{number}"), rcv_settle_mode=RCV_FIRST)
    link.send([b"1", b"2"], [BODY, BODY])
    network.exchange()
    (event,) = other.seen(Transfers, receiver)
    receiver.dispose(event.first_id, event.first_id, ACCEPTED, False)
    network.exchange()

    def lose() -> None:
        link.detach(None, closed=True)
        other.lose()

    return lose


def _refused(target: Target | Coordinator) -> Callable[[Neighbours, Client, int], Gone]:
    def make(network: Neighbours, client: Client, number: int) -> Gone:
        client.detached(client.sender(f"p{number}", target=target))
        return lambda: None

    return make


def _unfinished_message(network: Neighbours, client: Client, number: int) -> Gone:
    client.receiver(f"s{number}", credit=10, source=Source(f"t{number}"))
    other = network.connect(f"c{number}", max_frame_size=512)
    link = other.sender(target=Target(f"t{number}"))
    link.send([b"1"], [Message(bytes(4_000)).encode()])
    data = other.connection.data_to_send()
    other.served.receive_data(data[: len(data) // 2], network.now)

    def lose() -> None:
        other.lose()
        for each in list(client.session.links):
            each.detach(None, closed=True)

    return lose


KINDS: Final = (
    Kind("connection", _connection),
    Kind("connection that is lost", _lost_connection),
    Kind("connection before its open", _half_open_connection),
    Kind("session", _session),
    Kind("publisher", _publisher),
    Kind("publisher with an identity", _publisher_with_an_identity),
    Kind("publisher with unique tags", _publisher_with_unique_tags),
    Kind("publisher that waits for outcomes", _publisher_that_waits_for_outcomes),
    Kind("part of a publisher's map", _part_of_a_publishers_map),
    Kind("subscriber", _subscriber),
    Kind("durable subscription that is deleted", _durable_subscription_that_is_deleted),
    Kind("durable subscription that expires", _durable_subscription_that_expires),
    Kind("dynamic source", _dynamic_source),
    Kind("dynamic source whose connection is lost", _dynamic_source_whose_connection_is_lost),
    Kind("dynamic target", _dynamic_target),
    Kind("addresses of an anonymous link", _addresses_of_an_anonymous_link),
    Kind("queue consumer", _queue_consumer),
    Kind("browser of a queue", _browser),
    Kind("request to the management node", _request_to_the_management_node("a")),
    Kind("request to another router's management node", _request_to_the_management_node("b")),
    Kind("request by an anonymous link", _request_by_an_anonymous_link),
    Kind("token at $cbs", _token),
    Kind("subscriber of Azure's", _azures_subscriber),
    Kind("transaction", _refused(Coordinator())),
    Kind("node that never was", _refused(Target("_dynamic/a/guessed"))),
    Kind("unfinished message", _unfinished_message),
)
