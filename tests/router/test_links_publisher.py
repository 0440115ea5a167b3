"""Publishers' links: attach, transfers, outcomes and going away, over the real engine with a core that only notes."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.annotations import message_annotation
from amqp10.outcomes import ACCEPTED, Rejected
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_SETTLED
from amqp10.runs import Dispositions
from amqp10.sections import Message
from amqp10.termini import Coordinator, Source, Target
from amqp10.types import Symbol, ULong
from router import names
from router.core.ports import UNIQUE_TAGS, Outcome
from tests.router.links import BODY, MIB, Clients, send, symbols

# --- attach


def test_a_publishers_attach_is_answered_with_modes_guarantee_term_and_an_empty_map(clients: Clients) -> None:
    """Protocol 5.1.2."""
    client = clients.connect()
    answer = client.answered(client.sender())
    assert answer.target.address == "orders"
    assert answer.unsettled == {}
    assert answer.rcv_settle_mode == RCV_SECOND
    assert answer.properties["onceway:guarantee"] == "exactly-once"
    assert answer.properties["onceway:term"] == [7, "a"]
    assert "onceway:incarnation" not in answer.properties
    assert not answer.max_message_size, "any size passes"


def test_the_answer_says_the_incarnation_where_it_is_fixed(clients: Clients, core: Any) -> None:
    """Protocol 5.1.2."""
    core.answer_attaches = False
    client = clients.connect()
    link = client.sender()
    core.publishers[0].answer(12, (12, ""), credit=True)
    clients.exchange()
    assert client.answered(link).properties["onceway:incarnation"] == ULong(12)


def test_mode_first_is_at_least_once(clients: Clients, core: Any) -> None:
    """Protocol 6.5.4, 6.5.5."""
    client = clients.connect()
    answer = client.answered(client.sender(rcv_settle_mode=RCV_FIRST))
    assert answer.properties["onceway:guarantee"] == "at-least-once"
    ((attach,),) = core.named("attach_publisher")
    assert attach.mode_first


def test_what_the_attach_brings_reaches_the_core(clients: Clients, core: Any) -> None:
    client = clients.connect("shop")
    client.sender("one", unsettled={b"1": None, b"2": ACCEPTED}, properties=symbols(onceway_epoch=ULong(9)))
    client.sender("two", properties=symbols(onceway_unique_tags=True))
    (one,), (two,) = core.named("attach_publisher")
    assert (one.container, one.name, one.address, one.epoch) == ("shop", "one", "orders", 9)
    assert one.unsettled == {b"1": None, b"2": Outcome.ACCEPTED}
    assert two.unsettled is UNIQUE_TAGS


@pytest.mark.parametrize(
    ("attach", "condition"),
    [
        ({"target": Coordinator()}, "amqp:not-implemented"),
        ({"target": Target(dynamic=True)}, "amqp:not-implemented"),
        ({"target": None}, "amqp:invalid-field"),
        ({"properties": symbols(onceway_epoch="x")}, "amqp:invalid-field"),
    ],
)
def test_a_refused_attach_has_a_null_target_and_a_closing_detach(
    clients: Clients, core: Any, attach: dict[str, Any], condition: str
) -> None:
    """Protocol 5.3.1."""
    client = clients.connect()
    link = client.sender(**attach)
    assert client.answered(link).target is None
    detach = client.detached(link)
    assert detach.closed
    assert detach.error.condition == condition
    assert core.named("attach_publisher") == []
    assert core.named("detach_publisher") == []


def test_the_cores_refusal_carries_its_info(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect()
    link = client.sender()
    core.publishers[0].refuse("amqp:link:stolen", "known", {"onceway:epoch": 44})
    clients.exchange()
    assert client.answered(link).target is None
    error = client.detached(link).error
    assert (error.condition, error.info) == ("amqp:link:stolen", {Symbol("onceway:epoch"): ULong(44)})
    assert core.named("detach_publisher") == []


def test_a_part_of_a_map_is_answered_and_detached_without_closing(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect()
    properties = symbols(onceway_epoch=ULong(9))
    link = client.sender(unsettled={b"1": None}, incomplete_unsettled=True, properties=properties)
    assert core.named("attach_publisher")[0][0].incomplete
    core.publishers[0].answer_map_part()
    clients.exchange()
    assert client.answered(link).target is not None
    detach = client.detached(link)
    assert (detach.closed, detach.error) == (False, None)


def test_an_attach_that_waits_is_answered_later_and_takes_no_transfer_before(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect()
    link = client.sender()
    assert link.credit == 0
    core.publishers[0].set_window(10, MIB, "")
    clients.exchange()
    assert link.credit == 0
    core.publishers[0].answer(None, (1, "a"), credit=True)
    clients.exchange()
    assert link.credit == 10


def test_a_client_that_goes_while_its_attach_waits_is_told_to_the_core(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect()
    link = client.sender()
    link.detach(closed=True)
    clients.exchange()
    (port,) = core.publishers
    assert core.named("detach_publisher") == [(port, True, clients.now)]
    assert port.detached


def test_an_answer_that_does_not_fit_the_clients_frames_costs_that_client_only(clients: Clients, core: Any) -> None:
    small = clients.connect("small", max_frame_size=512)
    other = clients.connect("other")
    small.sender(source=Source("s" * 600))
    assert small.connection.closed or small.connection.closing
    assert len(core.named("detach_publisher")) == 1
    assert other.sender().credit == 64


# --- transfers


def test_a_run_of_transfers_reaches_the_core_as_one(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    send(client, link, 5)
    ((port, first_id, tags, payloads, settled, message_format, _),) = core.named("transfers")
    assert port is core.publishers[0]
    assert (first_id, tags, settled, message_format) == (0, [b"1", b"2", b"3", b"4", b"5"], False, 0)
    assert len(payloads) == 5


def test_the_publishers_name_is_annotated_once_at_the_ingress(clients: Clients, core: Any) -> None:
    """Protocol 6.1.5."""
    client = clients.connect("shop/7 ä")
    send(client, client.sender("till"))
    payload = core.named("transfers")[0][3][0]
    assert message_annotation(payload, "x-opt-onceway-publisher") == "shop%2F7%20%C3%A4/till"
    assert payload.endswith(BODY)


def test_a_message_of_another_format_is_not_touched(clients: Clients, core: Any) -> None:
    """Protocol 6.1.5."""
    client = clients.connect()
    link = client.sender()
    link.send([b"1"], [b"whatever"], message_format=7)
    clients.exchange()
    call = core.named("transfers")[0]
    assert (call[3], call[5]) == ([b"whatever"], 7)


def test_a_message_of_another_format_cannot_claim_another_publisher(clients: Clients, core: Any) -> None:
    """Protocol 6.1.5."""
    client = clients.connect("mallory")
    link = client.sender("p")
    claims = Message("x", message_annotations={Symbol(names.PUBLISHER_ANNOTATION): "alice/p"}).encode()
    link.send([b"1"], [claims], message_format=7)
    clients.exchange()
    ((payload,), message_format) = core.named("transfers")[0][3:6:2]
    assert (message_annotation(payload, names.PUBLISHER_ANNOTATION), message_format) == ("mallory/p", 7)


def test_a_payload_that_is_no_message_detaches_after_what_came_before_it(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    link.send([b"1", b"2", b"3"], [BODY, b"\xff\xff", BODY])
    clients.exchange()
    assert core.named("transfers")[0][2] == [b"1"]
    error = client.detached(link).error
    assert error.condition == "amqp:decode-error"
    assert "32" in (error.description or "")
    assert len(core.named("detach_publisher")) == 1


def test_pre_settled_transfers_are_marked(clients: Clients, core: Any) -> None:
    """Protocol 6.9.1."""
    client = clients.connect()
    link = client.sender(snd_settle_mode=SND_SETTLED)
    send(client, link, settled=True)
    assert core.named("transfers")[0][4] is True
    assert client.answered(link).properties["onceway:guarantee"] == "at-most-once"


def test_resume_with_settled_names_a_tag_that_will_not_come_again(clients: Clients, core: Any) -> None:
    """Protocol 6.6.4."""
    client = clients.connect()
    link = client.sender(unsettled={b"1": ACCEPTED})
    link.resume(b"1", settled=True)
    clients.exchange()
    assert core.named("publisher_settled_tag") == [(core.publishers[0], b"1", clients.now)]
    assert core.named("transfers") == []


def test_resume_with_a_payload_is_a_repeat(clients: Clients, core: Any) -> None:
    """Protocol 6.1.6."""
    client = clients.connect()
    link = client.sender(unsettled={b"1": None})
    link.resume(b"1", payload=BODY)
    clients.exchange()
    assert core.named("transfers")[0][2] == [b"1"]


def test_resume_with_neither_detaches(clients: Clients, core: Any) -> None:
    """Protocol 6.1.6."""
    client = clients.connect()
    link = client.sender(unsettled={b"1": None})
    link.resume(b"1")
    clients.exchange()
    error = client.detached(link).error
    assert error.condition == "amqp:invalid-field"
    assert len(core.named("detach_publisher")) == 1


# --- outcomes and settlement


def test_outcomes_go_out_as_ranges(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    send(client, link, 10)
    core.publishers[0].outcome(0, 3, Outcome.ACCEPTED, 0, False)
    core.publishers[0].outcome(4, 9, Outcome.ACCEPTED, 0, False)
    clients.exchange()
    assert client.seen(Dispositions) == [Dispositions(link, 0, 9, ACCEPTED, False)]


def test_rejected_says_how_many_rejected(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    send(client, link)
    core.publishers[0].outcome(0, 0, Outcome.REJECTED, 3, True)
    clients.exchange()
    (event,) = client.seen(Dispositions)
    assert event.settled
    assert isinstance(event.state, Rejected)
    assert event.state.error.info == {"onceway:rejected": 3}


# --- going away


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_reaches_the_core_once(clients: Clients, core: Any, closed: bool) -> None:
    client = clients.connect()
    link = client.sender()
    link.detach(closed=closed)
    clients.exchange()
    client.lose()
    assert core.named("detach_publisher") == [(core.publishers[0], closed, clients.now)]


def test_a_lost_connection_is_no_close(clients: Clients, core: Any) -> None:
    client = clients.connect()
    client.sender("one")
    client.sender("two")
    client.lose()
    assert [closed for _, closed, _ in core.named("detach_publisher")] == [False, False]
    assert clients.router.connections == {}


def test_a_link_that_the_core_has_dropped_hears_nothing_more(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    core.publishers[0].detach("amqp:link:stolen", "elsewhere", {}, False)
    link.send([b"1"], [BODY])  # crosses the detach
    link.detach(closed=True)
    clients.exchange()
    assert core.named("transfers") == []
    assert core.named("detach_publisher") == []
    core.publishers[0].link.dispose(0, 0, ACCEPTED, True)
    clients.exchange()


def test_outcomes_for_a_link_that_has_just_gone_are_harmless(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    send(client, link)
    port = core.publishers[0]
    link.detach(closed=False)
    clients.to_router(client)
    port.outcome(0, 0, Outcome.ACCEPTED, 0, False)
    port.set_window(3, MIB, "")
    port.ask()
    clients.exchange()
