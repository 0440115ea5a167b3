"""Subscriptions' links: transfers, outcomes, drain and back-pressure, with a core that only notes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from amqp10.outcomes import ACCEPTED, RELEASED, Modified, Received, Rejected
from amqp10.performatives import SND_SETTLED
from amqp10.runs import Dispositions, LinkFlow, Transfers
from amqp10.sections import Header, Message
from amqp10.termini import Source
from amqp10.types import Described, ULong
from router.core.ports import Outcome
from router.links.base import OUTPUT_LIMIT
from router.links.subscriber_link import MAX_BURST
from tests.router.links import BODY, Clients, attached, deliver, payloads

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
    """Protocol 6.4.1."""
    client, link, port = attached(clients, core)
    port.redeliver(b"t", Message(b"x", header=Header(durable=True, delivery_count=3)).encode(), 0, 2)
    port.redeliver(b"v", BODY, 0, 0)
    port.redeliver(b"u", b"raw", 9, 2)
    clients.exchange()
    first, unchanged, second = payloads(client.seen(Transfers, link))
    assert Message.decode(first).header == Header(durable=True, delivery_count=5)
    assert unchanged == BODY
    assert second == b"raw"


def test_a_tag_comes_again_after_the_settlement_of_its_old_delivery(clients: Clients, core: Any) -> None:
    """Protocol 6.4.1."""
    client, _link, port = attached(clients, core)
    first = deliver(port, 2)
    clients.exchange()
    client.events.clear()
    port.settle(first, first + 1)
    port.redeliver(b"t0", BODY, 0, 1)
    port.redeliver(b"t1", BODY, 0, 1)
    clients.exchange()
    assert [type(event) for event in client.events][:2] == [Dispositions, Transfers]


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
    assert not clients.router.flush(clients.now), "that was all"
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


def backlog(clients: Clients, core: Any) -> tuple[Any, Counter[str]]:
    """A subscriber to which 3,000 messages are delivered as it has room: its port, and how many it was sent."""
    _, _, port = attached(clients, core, credit=4_000)
    sent: Counter[str] = Counter()

    def pump(port: Any, now: float) -> None:
        while count := min(port.capacity(), 3_000 - sent["all"]):
            deliver(port, count, position=sent["all"])
            sent["all"] += count

    core.subscriber_credit = pump
    pump(port, clients.now)
    return port, sent


def test_a_great_backlog_goes_out_in_portions(clients: Clients, core: Any) -> None:
    _, sent = backlog(clients, core)
    assert sent["all"] == MAX_BURST
    clients.exchange()
    assert sent["all"] == 3_000
    assert not clients.router.wants_flush, "an idle subscriber with much credit keeps nobody busy"


def test_a_transport_that_drains_before_the_next_write_leaves_nobody_waiting(clients: Clients, core: Any) -> None:
    port, sent = backlog(clients, core)
    port.connection.pause_output()
    port.connection.resume_output()
    clients.router.flush(clients.now)
    clients.exchange()
    assert sent["all"] == 3_000


# --- outcomes


def test_dispositions_reach_the_core_as_ranges(clients: Clients, core: Any) -> None:
    _client, link, port = attached(clients, core)
    deliver(port, 10)
    clients.exchange()
    for delivery in range(10):
        link.dispose(delivery, delivery, ACCEPTED, False)
    clients.exchange()
    assert core.named("subscriber_disposition") == [(port, 0, 9, Outcome.ACCEPTED, False, clients.now, b"")]


@pytest.mark.parametrize(
    ("state", "settled", "outcome"),
    [
        (ACCEPTED, True, Outcome.ACCEPTED),
        (Rejected(), True, Outcome.REJECTED),
        (RELEASED, True, Outcome.RELEASED),
        (Modified(delivery_failed=True), True, Outcome.FAILED),
        (Modified(), True, Outcome.RELEASED),
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
    assert core.named("subscriber_disposition") == [(port, 0, 0, outcome, settled, clients.now, b"")]


def test_received_changes_nothing(clients: Clients, core: Any) -> None:
    """Protocol 6.4.5."""
    _client, link, port = attached(clients, core)
    deliver(port, 1)
    clients.exchange()
    link.dispose(0, 0, Received(0, 0), False)
    clients.exchange()
    assert core.named("subscriber_disposition") == []


def test_an_unknown_outcome_is_no_release_and_ends_the_link(clients: Clients, core: Any) -> None:
    client, link, port = attached(clients, core)
    deliver(port, 1)
    clients.exchange()
    link.dispose(0, 0, Described(ULong(0x34), [b"txn", None]), True)
    clients.exchange()
    assert core.named("subscriber_disposition") == []
    assert [call[:2] for call in core.named("detach_subscriber")] == [(port, False)]
    error = client.detached(link).error
    assert (error.condition, "disposition.state" in error.description) == ("amqp:not-implemented", True)


def test_the_sources_default_outcome_stands_for_a_missing_state(clients: Clients, core: Any) -> None:
    """Protocol 6.4.4."""
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
