"""Subscriptions' links: attach and maps, transfers, outcomes, drain, expiry, back-pressure, with a core that only notes."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.events import Dispositions, LinkFlow, ResumedTransfer, Transfers
from amqp10.outcomes import ACCEPTED, RELEASED, Modified, Received, Rejected
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_SETTLED, SND_UNSETTLED
from amqp10.sections import Header, Message
from amqp10.termini import Source, Target
from amqp10.types import Symbol, ULong
from router.client_connection import OUTPUT_LIMIT
from router.config import RouterConfig
from router.ports import MapState, Outcome, SubscriberAnswer
from router.subscriber_link import MOST_AT_ONCE
from tests.router.links import Client, Clients, NotingCore, make, payloads, symbols

BODY = Message(b"x").encode()


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    monkeypatch.setattr("router.router.Core", NotingCore)
    return make(RouterConfig("a"))


@pytest.fixture
def core(clients: Clients) -> Any:
    return clients.router.core


def attached(clients: Clients, core: Any, credit: int = 100, **attach: Any) -> tuple[Client, Any, Any]:
    client = clients.connect()
    link = client.receiver(credit=credit, **attach)
    return client, link, core.subscribers[-1]


def deliver(port: Any, count: int, position: int = 0, settled: bool = False) -> int:
    tags = [b"t%d" % n for n in range(position, position + count)]
    first_id: int = port.send(tags, [BODY] * count, 0, settled, position, {})
    return first_id


# --- attach


def test_an_answer_says_what_was_granted(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect()
    link = client.receiver(source=Source("orders", timeout=600, expiry_policy=Symbol("never")))
    marks = [(3, "b"), (9, "")]
    core.subscribers[0].answer(SubscriberAnswer((9, "a"), None, True, marks, 60.0, "never"))
    clients.exchange()
    answer = client.answered(link)
    assert (answer.source.timeout, answer.source.expiry_policy) == (60, "never")
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
    client = clients.connect()
    link = client.receiver(source=Source(dynamic=True))
    assert client.answered(link).source is None
    error = client.detached(link).error
    assert error is not None
    assert error.condition == "amqp:not-implemented"
    assert core.named("attach_subscriber") == []


def test_nothing_can_be_sent_before_the_answer(clients: Clients, core: Any) -> None:
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


# --- deliveries


def test_deliveries_go_out_as_runs_with_ids_along_the_log(clients: Clients, core: Any) -> None:
    client, link, port = attached(clients, core)
    assert deliver(port, 5, position=700) == 700
    clients.exchange()
    (run,) = client.seen(Transfers, link)
    assert run.tags == [b"t700", b"t701", b"t702", b"t703", b"t704"]
    assert not run.settled


def test_capacity_is_what_credit_and_window_allow(clients: Clients, core: Any) -> None:
    _, _link, port = attached(clients, core, credit=7)
    assert port.capacity() == 7
    deliver(port, 3)
    assert port.capacity() == 4


def test_a_settled_link_gets_settled_deliveries(clients: Clients, core: Any) -> None:
    client, link, port = attached(clients, core, snd_settle_mode=SND_SETTLED)
    assert core.named("attach_subscriber")[0][0].settled_mode
    deliver(port, 2, settled=True)
    clients.exchange()
    assert client.seen(Transfers, link)[0].settled


def test_a_redelivery_says_so_in_its_header(clients: Clients, core: Any) -> None:
    client, link, port = attached(clients, core)
    port.redeliver(b"t", Message(b"x", header=Header(durable=True)).encode(), 0, 2)
    port.redeliver(b"u", b"raw", 9, 2)
    clients.exchange()
    first, second = payloads(client.seen(Transfers, link))
    assert Message.decode(first).header == Header(durable=True, delivery_count=2)
    assert second == b"raw"


def test_a_tag_comes_again_after_the_settlement_of_its_old_delivery(clients: Clients, core: Any) -> None:
    client, _link, port = attached(clients, core)
    first = deliver(port, 2)
    clients.exchange()
    client.events.clear()
    port.settle(first, first + 1)
    port.redeliver(b"t0", BODY, 0, 1)
    port.redeliver(b"t1", BODY, 0, 1)
    clients.exchange()
    assert [type(event) for event in client.events][:2] == [Dispositions, Transfers]


def test_more_credit_and_an_open_window_reach_the_core(clients: Clients, core: Any) -> None:
    _client, link, port = attached(clients, core, credit=1)
    core.calls.clear()
    link.grant(5)
    clients.exchange()
    assert core.named("subscriber_credit") == [(port, clients.now)]


def test_a_window_that_opens_again_reaches_the_core(clients: Clients, core: Any) -> None:
    client = clients.connect(incoming_window=8)
    link = client.receiver(credit=100)
    port = core.subscribers[0]
    assert port.capacity() == 8
    client.session.pause_incoming()
    deliver(port, 8)
    assert port.capacity() == 0
    clients.exchange()
    core.calls.clear()
    client.session.resume_incoming()
    clients.exchange()
    assert core.named("subscriber_credit") == [(port, clients.now)]
    assert port.capacity() == 8
    assert link.attached


def test_a_full_transport_means_no_capacity_until_it_drains(clients: Clients, core: Any) -> None:
    client, _link, port = attached(clients, core)
    client.served.pause_output()
    assert port.capacity() == 0
    core.calls.clear()
    clients.exchange()
    assert core.named("subscriber_credit") == []
    client.served.resume_output()
    assert clients.router.wants_flush
    clients.exchange()
    assert core.named("subscriber_credit") == [(port, clients.now)]
    assert port.capacity() == 100


def test_output_that_nobody_fetches_is_bounded(clients: Clients, core: Any) -> None:
    _, _, port = attached(clients, core)
    sent = 0
    while port.capacity():
        port.send([b"%d" % sent], [Message(bytes(1 << 20)).encode()], 0, False, sent, {})
        sent += 1
    assert sent == OUTPUT_LIMIT // (1 << 20)
    clients.exchange()
    assert port.capacity() == 3, "a portion of them, now that their size is known"


def test_a_great_backlog_goes_out_in_portions(clients: Clients, core: Any) -> None:
    _, _, port = attached(clients, core, credit=4_000)
    sent = 0

    def pump(port: Any, now: float) -> None:
        nonlocal sent
        while count := min(port.capacity(), 3_000 - sent):
            deliver(port, count, position=sent)
            sent += count

    core.subscriber_credit = pump
    pump(port, clients.now)
    assert sent == MOST_AT_ONCE
    clients.exchange()
    assert sent == 3_000
    assert not clients.router.wants_flush, "an idle subscriber with much credit keeps nobody busy"


def test_a_transport_that_drains_before_the_next_write_leaves_nobody_waiting(clients: Clients, core: Any) -> None:
    _, _, port = attached(clients, core, credit=4_000)
    sent = 0

    def pump(port: Any, now: float) -> None:
        nonlocal sent
        while count := min(port.capacity(), 3_000 - sent):
            deliver(port, count, position=sent)
            sent += count

    core.subscriber_credit = pump
    pump(port, clients.now)
    port.connection.pause_output()
    port.connection.resume_output()
    clients.router.flush(clients.now)
    clients.exchange()
    assert sent == 3_000


# --- outcomes


def test_dispositions_reach_the_core_as_ranges(clients: Clients, core: Any) -> None:
    _client, link, port = attached(clients, core)
    deliver(port, 10)
    clients.exchange()
    for delivery in range(10):
        link.dispose(delivery, delivery, ACCEPTED, False)
    clients.exchange()
    assert core.named("subscriber_disposition") == [(port, 0, 9, Outcome.ACCEPTED, False, clients.now)]


@pytest.mark.parametrize(
    ("state", "settled", "outcome"),
    [
        (ACCEPTED, True, Outcome.ACCEPTED),
        (Rejected(), True, Outcome.REJECTED),
        (RELEASED, True, Outcome.RELEASED),
        (Modified(delivery_failed=True), True, Outcome.RELEASED),
        (Modified(undeliverable_here=True), False, Outcome.REJECTED),
        (None, True, Outcome.RELEASED),
        (Received(0, 0), True, Outcome.RELEASED),
    ],
)
def test_states_become_outcomes(clients: Clients, core: Any, state: Any, settled: bool, outcome: Outcome) -> None:
    _client, link, port = attached(clients, core)
    deliver(port, 1)
    clients.exchange()
    link.dispose(0, 0, state, settled)
    clients.exchange()
    assert core.named("subscriber_disposition") == [(port, 0, 0, outcome, settled, clients.now)]


def test_received_changes_nothing(clients: Clients, core: Any) -> None:
    _client, link, port = attached(clients, core)
    deliver(port, 1)
    clients.exchange()
    link.dispose(0, 0, Received(0, 0), False)
    clients.exchange()
    assert core.named("subscriber_disposition") == []


def test_the_sources_default_outcome_stands_for_a_missing_state(clients: Clients, core: Any) -> None:
    _client, link, port = attached(clients, core, source=Source("orders", default_outcome=ACCEPTED))
    deliver(port, 1)
    clients.exchange()
    link.dispose(0, 0, None, True)
    clients.exchange()
    assert core.named("subscriber_disposition")[0][3] is Outcome.ACCEPTED


def test_the_settlement_goes_out_as_a_range(clients: Clients, core: Any) -> None:
    client, link, port = attached(clients, core)
    deliver(port, 4)
    clients.exchange()
    link.dispose(0, 3, ACCEPTED, False)
    clients.exchange()
    port.settle(0, 1)
    port.settle(2, 3)
    clients.exchange()
    assert client.seen(Dispositions, link) == [Dispositions(link, 0, 3, None, True)]


# --- drain


def test_drain_uses_up_credit_after_everything_was_sent(clients: Clients, core: Any) -> None:
    client, link, port = attached(clients, core, credit=0)
    core.subscriber_credit = lambda port, now: core.on_flush.append(lambda: deliver(port, 3))
    link.grant(10, drain=True)
    clients.exchange()
    assert len(payloads(client.seen(Transfers, link))) == 3
    flow = client.seen(LinkFlow, link)[-1].flow
    assert (flow.delivery_count, flow.link_credit, flow.drain) == (10, 0, True)
    assert port.capacity() == 0


def test_drain_waits_for_a_transport_that_takes_nothing(clients: Clients, core: Any) -> None:
    client, link, port = attached(clients, core, credit=0)
    client.served.pause_output()
    link.grant(10, drain=True)
    clients.exchange()
    assert port.link.credit == 10
    client.served.resume_output()
    clients.exchange()
    assert port.link.credit == 0


def test_no_delivery_follows_a_drain_without_new_credit(clients: Clients, core: Any) -> None:
    _client, link, port = attached(clients, core, credit=0)
    link.grant(10, drain=True)
    clients.exchange()
    assert port.capacity() == 0
    link.grant(2)
    clients.exchange()
    assert port.capacity() == 2


# --- going away, and expiry policies (contract 10)


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
    assert detach.error is not None
    assert detach.error.condition == "onceway:subscription-broken"
    assert starts(core) == []


# --- the router is stopped


def test_a_router_that_stops_takes_no_attach_and_gives_no_credit(clients: Clients, core: Any) -> None:
    client = clients.connect()
    publisher = client.sender()
    clients.router.stop(clients.now)
    clients.exchange()
    assert publisher.credit == 0
    refused = client.receiver()
    error = client.detached(refused).error
    assert error is not None
    assert error.condition == "amqp:link:detach-forced"
    core.publishers[0].set_window(500, 1 << 20, "")
    clients.exchange()
    assert publisher.credit == 0


def test_a_router_that_stops_closes_its_connections(clients: Clients, core: Any) -> None:
    client, _link, port = attached(clients, core)
    clients.router.stop(clients.now)
    clients.router.close_connections(clients.now)
    port.settle(0, 0)
    clients.exchange()
    assert client.connection.closed
    assert core.named("detach_subscriber") == [(port, False, True)]
    assert clients.router.connections == {}


def test_targets_of_subscribers_are_answered_as_they_came(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.receiver(target=Target("mine"))
    assert client.answered(link).target.address == "mine"
