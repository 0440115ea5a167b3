"""Large deliveries that a client resumes, and their publisher is lost in the middle (protocol 6.12.12).

In these payloads what is before the bar is not the publisher's own: the router of each publisher writes something else.
"""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.annotations import message_annotation
from amqp10.errors import DETACH_FORCED
from amqp10.events import LinkDetached, ResumedTransfer
from amqp10.performatives import Source
from amqp10.runs import Transfers
from amqp10.sections import Data, Header, Message
from amqp10.types import ULong
from router.config import RouterConfig
from router.core.large import STREAM_IDLE_S
from router.core.ports import MapState, Outcome
from router.names import PUBLISHER_ANNOTATION
from tests.router.ends import PublisherEnd, SubscriberEnd
from tests.router.harness import Mesh, undecided
from tests.router.links import make, symbols


def mesh(names: str = "a", **config: Any) -> Mesh:
    return Mesh(names, stream_share=10, **config)


def publisher_of(network: Mesh, router: str, epoch: int) -> PublisherEnd:
    """It has sent t, and has no outcome."""
    return network.publisher(router, epoch=epoch, incarnation=1, unsettled=undecided("t") if epoch > 1 else None)


def resumed(network: Mesh, router: str = "a", **attach: Any) -> tuple[SubscriberEnd, PublisherEnd]:
    """A subscriber that presents a map is resumed with t, and has the first octets of it."""
    before = network.subscriber(router, takes_parts=True, accepts=False)
    publisher = publisher_of(network, "a", 1)
    publisher.part("1|abc", first=True)
    publisher.part("def", last=True)
    (got,) = before.got
    before.leave()
    subscriber = network.subscriber(
        router, takes_parts=True, accepts=False, unsettled={got.tag: MapState.UNDECIDED}, **attach
    )
    assert publisher.condition == DETACH_FORCED, "its payload is owed"
    publisher = publisher_of(network, "a", 2)
    publisher.part("2|abc", first=True)
    assert subscriber.bodies("resume") == ["2|abc"]
    return subscriber, publisher


@pytest.mark.parametrize("router", ["a", "b"])
@pytest.mark.parametrize("parts", [("3|abcdef",), ("3|", "a", "bcd", "ef"), ("3333|ab", "cdef", "")])
def test_it_goes_on_at_the_same_octet(router: str, parts: tuple[str, ...]) -> None:
    network = mesh("ab")
    subscriber, publisher = resumed(network, router)
    (before,) = subscriber.bodies("resume")
    publisher.leave()
    publisher = publisher_of(network, "b", 3)
    for part in parts:
        publisher.part(part, first=part is parts[0], last=part is parts[-1] and part is not parts[0])
    if len(parts) == 1:
        publisher.part("", last=True)
    assert subscriber.bodies("resume") == [before + "def"]
    assert not subscriber.aborted
    subscriber.accept(subscriber.got[-1].id)
    assert len(publisher.accepted()) == 1
    assert not publisher.is_held_back()
    publisher.settle_all_told()
    network.assert_settled()


def test_it_goes_on_with_what_comes_whole() -> None:
    network = mesh("ab")
    subscriber, publisher = resumed(network)
    publisher.leave()
    publisher = publisher_of(network, "b", 3)
    publisher.send("3|abcdef", tags=[b"t"])
    assert subscriber.bodies("resume")[0][2:] == "abcdef"
    subscriber.accept(subscriber.got[-1].id)
    publisher.settle_all_told()
    network.assert_settled()


def test_subscribers_at_one_router_stand_at_octets_of_their_own() -> None:
    """What the slower one has been sent is not freed, so it has no part in the digest yet."""
    network = mesh()
    before = [network.subscriber("a", name, takes_parts=True, accepts=False) for name in ("fast", "slow")]
    publisher = publisher_of(network, "a", 1)
    publisher.part("1|abc", first=True)
    publisher.part("def", last=True)
    tags = {before[0].got[0].tag: MapState.UNDECIDED}
    for each in before:
        each.leave()
    fast, slow = (
        network.subscriber("a", name, takes_parts=True, accepts=False, unsettled=tags) for name in ("fast", "slow")
    )
    slow.room = 4
    publisher = publisher_of(network, "a", 2)
    publisher.part("2|abc", first=True)
    publisher.part("def")
    publisher.leave()
    publisher = publisher_of(network, "a", 3)
    publisher.part("3|abcd", first=True)
    publisher.part("efgh", last=True)
    slow.make_room(100)
    assert fast.bodies("resume") == slow.bodies("resume") == ["2|abcdefgh"]


@pytest.mark.parametrize("parts", [("3|abX",), ("3|ab", "X"), ("3|ab", "")], ids=["other", "other later", "shorter"])
@pytest.mark.parametrize("large", [True, False])
def test_another_message_with_the_tag_detaches_who_resumes(parts: tuple[str, ...], large: bool) -> None:
    """Protocol 6.12.16."""
    network = mesh()
    subscriber, publisher = resumed(network)
    publisher.leave()
    publisher = publisher_of(network, "a", 3)
    if large:
        publisher.part(parts[0], first=True)
        publisher.part("".join(parts[1:]), last=True)
    else:
        publisher.send("".join(parts), tags=[b"t"])
    assert not subscriber.aborted
    assert subscriber.ended == (DETACH_FORCED, {}, False)


def test_what_exceeds_its_size_while_it_is_compared_is_rejected() -> None:
    network = mesh()
    subscriber, publisher = resumed(network, most_bytes=6)
    publisher.leave()
    publisher = publisher_of(network, "a", 3)
    publisher.part("3|abcdef", first=True)
    publisher.part("", last=True)
    assert len(subscriber.aborted) == 1
    assert publisher.outcomes[0][0] is Outcome.REJECTED
    assert b"larger than the 6 octets" in publisher.reasons[0]


# --- over the real engine


def test_a_client_that_resumes_gets_it_whole_after_a_pause_and_is_detached_where_nobody_goes_on() -> None:
    clients = make(RouterConfig("a", routers=("a",), stream_above=1_000))
    publisher = clients.connect("p")
    message = Message(Data(bytes(range(256)) * 20), header=Header(durable=True))
    body = message.encode()
    epoch = iter(range(1, 9))

    def send(size: int) -> Any:
        first = next(epoch)
        properties = symbols(onceway_epoch=ULong(first), onceway_incarnation=ULong(1))
        link = publisher.sender(properties=properties, unsettled={b"t": None} if first > 1 else None)
        link.begin(b"t", body[:size])
        clients.exchange()
        return link

    def end(link: Any, size: int) -> None:
        link.add(body[size:], more=False)
        clients.exchange()

    subscriber = clients.connect("s")
    receiver = subscriber.receiver(credit=5, source=LASTS)
    end(send(2_000), 2_000)
    (transfers,) = subscriber.seen(Transfers)
    (tag,) = transfers.tags
    subscriber.lose()
    subscriber = clients.connect("s")
    receiver = subscriber.receiver(credit=5, source=LASTS, unsettled={tag: None})
    link = send(2_000)
    size = receiver.incomplete_size
    assert size > 2_000
    link.detach(closed=False)
    clients.exchange()
    assert receiver.incomplete_size == size
    link = send(3_000)
    link.detach(closed=False)
    clients.exchange()
    clients.sleep(STREAM_IDLE_S - 1)
    end(send(1_500), 1_500)
    (event,) = subscriber.seen(ResumedTransfer)
    assert not event.aborted
    got = Message.decode(event.payload)
    assert (got.value, got.header) == (message.value, message.header)
    assert message_annotation(event.payload, PUBLISHER_ANNOTATION) == "p/out"
    subscriber.lose()

    subscriber = clients.connect("s")
    receiver = subscriber.receiver(credit=5, source=LASTS, unsettled={tag: None})
    send(2_000).detach(closed=False)
    clients.exchange()
    clients.sleep(STREAM_IDLE_S + 1)
    clients.exchange()
    assert not subscriber.seen(ResumedTransfer)
    (detached,) = subscriber.seen(LinkDetached)
    assert (detached.error.condition, detached.closed) == (DETACH_FORCED, False)
    assert "does not go on" in detached.error.description


LASTS = Source("orders", expiry_policy="never")
