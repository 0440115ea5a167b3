"""Subscriptions' links: attach and maps, going away and expiry, with a core that only notes."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.events import ResumedTransfer
from amqp10.outcomes import ACCEPTED, Received
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_UNSETTLED
from amqp10.termini import Source, Target
from amqp10.types import Symbol, ULong
from router.core.ports import MapState, SubscriberAnswer
from tests.router.links import BODY, Clients, attached, symbols

# --- attach


def test_an_answer_says_what_was_granted(clients: Clients, core: Any) -> None:
    """Protocol 7.6.7."""
    core.answer_attaches = False
    client = clients.connect()
    link = client.receiver(source=Source("orders", timeout=600, expiry_policy=Symbol("never")))
    marks = [(3, "b"), (9, "")]
    core.subscribers[0].answer(SubscriberAnswer((9, "a"), None, True, marks, 60.0, "never"))
    clients.exchange()
    answer = client.answered(link)
    assert (answer.source.timeout, answer.source.expiry_policy) == (60, "link-detach")
    assert (answer.snd_settle_mode, answer.rcv_settle_mode) == (SND_UNSETTLED, RCV_SECOND)
    assert answer.unsettled is None
    assert answer.properties == symbols(
        onceway_guarantee=Symbol("exactly-once"),
        onceway_term=[ULong(9), "a"],
        onceway_resumed=True,
        onceway_marks=[[ULong(3), "b"], [ULong(9), ""]],
    )


def test_what_the_attach_brings_reaches_the_core(clients: Clients, core: Any) -> None:
    client = clients.connect("shop")
    client.receiver(
        "in",
        source=Source("orders", timeout=7),
        unsettled={b"1": None, b"2": ACCEPTED, b"3": Received(0, 0)},
        properties=symbols(onceway_epoch=ULong(5), onceway_born=ULong(4)),
        rcv_settle_mode=RCV_FIRST,
    )
    ((attach,),) = core.named("attach_subscriber")
    assert (attach.container, attach.name, attach.address) == ("shop", "in", "orders")
    assert (attach.epoch, attach.born, attach.timeout_s) == (5, 4, 7.0)
    assert attach.unsettled == {b"1": MapState.UNDECIDED, b"2": MapState.ACCEPTED, b"3": MapState.RECEIVED}
    assert attach.mode_first


def test_a_refused_attach_has_a_null_source(clients: Clients, core: Any) -> None:
    """Protocol 5.3.1."""
    client = clients.connect()
    link = client.receiver(source=Source(dynamic=True))
    assert client.answered(link).source is None
    error = client.detached(link).error
    assert error.condition == "amqp:not-implemented"
    assert core.named("attach_subscriber") == []


def test_nothing_can_be_sent_before_the_answer(clients: Clients, core: Any) -> None:
    """Protocol 10.2.1."""
    core.answer_attaches = False
    _, _, port = attached(clients, core)
    assert port.capacity() == 0
    assert core.named("subscriber_credit") == []
    port.answer(SubscriberAnswer((1, "a"), None, False))
    assert port.capacity() == 100


def test_a_delivery_that_is_not_of_the_log_gives_no_hint_for_its_id(clients: Clients, core: Any) -> None:
    """Its position is -1; ids that begin at the end of the id space are beyond rhea, which does not wrap them."""
    _, _, port = attached(clients, core)
    assert port.send([b"t"], [BODY], 0, True, -1, {}) == 0


def test_the_listing_is_the_answers_map_and_is_resumed(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    unsettled = {b"1": None, b"2": ACCEPTED, b"3": Received(0, 0), b"4": None}
    client, link, port = attached(clients, core, unsettled=unsettled)
    listing = {b"1": MapState.UNDECIDED, b"2": MapState.ACCEPTED, b"3": MapState.RECEIVED}
    assert port.answer(SubscriberAnswer((1, "a"), listing, True)) == 3
    port.resume(b"1", MapState.UNDECIDED, None, 0, False)
    port.resume(b"2", MapState.ACCEPTED, None, 0, True)
    port.resume(b"3", MapState.RECEIVED, BODY, 0, False)
    clients.exchange()
    answer = client.answered(link)
    assert answer.unsettled == {b"1": None, b"2": ACCEPTED, b"3": Received(0, 0)}
    assert not answer.incomplete_unsettled
    resumed = client.seen(ResumedTransfer)
    assert [(e.tag, e.payload, e.state, e.settled, e.resume) for e in resumed] == [
        (b"1", None, None, False, True),
        (b"2", None, ACCEPTED, True, True),
        (b"3", BODY, None, False, True),
    ]


def test_a_listing_beyond_the_clients_frame_is_told_in_part(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect(max_frame_size=2048)
    link = client.receiver(unsettled={b"1": None})
    listing = {b"tag-%04d" % n: MapState.UNDECIDED for n in range(1_000)}
    told = core.subscribers[0].answer(SubscriberAnswer((1, "a"), listing, True))
    clients.exchange()
    answer = client.answered(link)
    assert 0 < told < 1_000
    assert answer.incomplete_unsettled
    assert list(answer.unsettled) == list(listing)[:told]


def test_a_listing_of_which_nothing_fits_costs_that_client_only(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect(max_frame_size=512)
    client.receiver(source=Source("orders"), target=Target("t" * 380), unsettled={b"1": None})
    core.subscribers[0].answer(SubscriberAnswer((1, "a"), {bytes(32): MapState.UNDECIDED}, True))
    clients.exchange()
    assert client.connection.closed
    assert len(core.named("detach_subscriber")) == 1


def test_an_empty_listing_is_an_empty_map_and_no_listing_is_null(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect()
    one, two = client.receiver("one", unsettled={}), client.receiver("two")
    core.subscribers[0].answer(SubscriberAnswer((1, "a"), {}, True))
    core.subscribers[1].answer(SubscriberAnswer((1, "a"), None, True))
    clients.exchange()
    assert client.answered(one).unsettled == {}
    assert client.answered(two).unsettled is None


def test_an_answer_after_the_client_has_gone_is_harmless(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client, link, port = attached(clients, core)
    link.detach()
    clients.to_router(client)
    assert core.named("detach_subscriber") == [(port, True, False)]
    assert port.answer(SubscriberAnswer((1, "a"), {b"1": MapState.ACCEPTED}, False)) == 1
    assert port.capacity() == 0
    clients.exchange()


# --- going away, and expiry policies (protocol 8.3)


def starts(core: Any) -> list[tuple[Any, ...]]:
    """(closed, expiring) of detaches, and the terms of timeouts that start later."""
    return [
        call[2:] if call[0] == "detach_subscriber" else call[2]
        for call in core.calls
        if call[0] in ("detach_subscriber", "subscription_expiring")
    ]


def source(policy: str) -> Source:
    return Source("orders", timeout=30, expiry_policy=Symbol(policy))


def test_a_closing_detach_says_closed_and_starts_no_timeout(clients: Clients, core: Any) -> None:
    client, link, port = attached(clients, core, source=source("session-end"))
    link.detach(closed=True)
    clients.exchange()
    client.lose()
    assert core.named("detach_subscriber") == [(port, True, False)]
    assert core.named("subscription_expiring") == []


@pytest.mark.parametrize(
    ("policy", "at_detach", "at_end", "at_close"),
    [
        ("link-detach", (False, True), 0, 0),
        ("session-end", (False, False), 1, 1),
        ("connection-close", (False, False), 0, 1),
        ("never", (False, False), 0, 0),
    ],
)
def test_the_timeout_starts_as_the_policy_says(
    clients: Clients, core: Any, policy: str, at_detach: tuple[bool, bool], at_end: int, at_close: int
) -> None:
    """Protocol 8.3.2."""
    client, link, _ = attached(clients, core, source=source(policy))
    link.detach(closed=False)
    clients.exchange()
    assert starts(core) == [at_detach]
    client.session.end()
    clients.exchange()
    assert starts(core) == [at_detach] + [(7, "a")] * at_end
    client.connection.close()
    clients.exchange()
    assert starts(core) == [at_detach] + [(7, "a")] * at_close
    assert clients.router.connections == {}


def test_a_lost_connection_starts_the_timeout_of_every_policy_but_never(clients: Clients, core: Any) -> None:
    client = clients.connect()
    for policy in ("link-detach", "session-end", "connection-close", "never"):
        client.receiver(policy, source=source(policy))
    client.lose()
    assert starts(core) == [(False, True), (False, True), (False, True), (False, False)]


def test_a_session_that_ends_takes_its_links_along(clients: Clients, core: Any) -> None:
    client, _, _ = attached(clients, core)
    client.receiver("other", source=source("connection-close"))
    client.session.end()
    clients.exchange()
    assert starts(core) == [(False, True), (False, False)]
    client.lose()
    assert starts(core)[2:] == [(7, "a")]


def test_a_lost_attach_that_was_never_answered_starts_no_timeout(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client, link, _ = attached(clients, core)
    link.detach(closed=False)
    clients.exchange()
    client.lose()
    assert starts(core) == [(False, False)]


def test_broken_closes_the_link(clients: Clients, core: Any) -> None:
    client, link, port = attached(clients, core)
    port.detach("onceway:subscription-broken", "missed", {}, True)
    link.dispose(0, 0, ACCEPTED, False)
    clients.exchange()
    detach = client.detached(link)
    assert detach.closed
    assert detach.error.condition == "onceway:subscription-broken"
    assert starts(core) == []


def test_targets_of_subscribers_are_answered_as_they_came(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.receiver(target=Target("mine"))
    assert client.answered(link).target.address == "mine"
