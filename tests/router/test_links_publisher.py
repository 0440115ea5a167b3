"""Publishers' links: attach, credit, proof, questions, outcomes, over the real engine with a core that only notes."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.events import Dispositions, LinkFlow
from amqp10.outcomes import ACCEPTED, Rejected
from amqp10.performatives import RCV_FIRST, RCV_SECOND, SND_SETTLED
from amqp10.sections import Message, message_annotation
from amqp10.sender import SenderLink
from amqp10.termini import Coordinator, Source, Target
from amqp10.types import Symbol, ULong
from router.config import RouterConfig
from router.ports import UNIQUE_TAGS, Outcome
from tests.router.links import MIB, Client, Clients, NotingCore, make, symbols

BODY = Message(b"x").encode()


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    monkeypatch.setattr("router.router.Core", NotingCore)
    return make(RouterConfig("a"))


@pytest.fixture
def core(clients: Clients) -> Any:
    return clients.router.core


def send(client: Client, link: SenderLink, count: int = 1, first: int = 1, settled: bool = False) -> int:
    tags = [b"%d" % n for n in range(first, first + count)]
    first_id = link.send(tags, [BODY] * count, settled=settled)
    client.clients.exchange()
    return first_id


# --- attach


def test_a_publishers_attach_is_answered_with_modes_guarantee_term_and_an_empty_map(clients: Clients) -> None:
    client = clients.connect()
    answer = client.answered(client.sender())
    assert answer.target.address == "orders"
    assert answer.unsettled == {}
    assert answer.rcv_settle_mode == RCV_SECOND
    assert answer.properties["onceway:guarantee"] == "exactly-once"
    assert answer.properties["onceway:term"] == [7, "a"]
    assert "onceway:incarnation" not in answer.properties
    assert answer.max_message_size == RouterConfig("a").max_message_size


def test_the_answer_says_the_incarnation_where_it_is_fixed(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect()
    link = client.sender()
    core.publishers[0].answer(12, (12, ""), credit=True)
    clients.exchange()
    assert client.answered(link).properties["onceway:incarnation"] == ULong(12)


def test_mode_first_is_at_least_once(clients: Clients, core: Any) -> None:
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
        ({"target": Target()}, "amqp:not-implemented"),
        ({"target": Target(dynamic=True)}, "amqp:not-implemented"),
        ({"target": None}, "amqp:invalid-field"),
        ({"properties": symbols(onceway_epoch="x")}, "amqp:invalid-field"),
    ],
)
def test_a_refused_attach_has_a_null_target_and_a_closing_detach(
    clients: Clients, core: Any, attach: dict[str, Any], condition: str
) -> None:
    client = clients.connect()
    link = client.sender(**attach)
    assert client.answered(link).target is None
    detach = client.detached(link)
    assert detach.closed
    assert detach.error is not None
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
    assert error is not None
    assert (error.condition, error.info) == ("amqp:link:stolen", {Symbol("onceway:epoch"): ULong(44)})
    assert core.named("detach_publisher") == []


def test_a_part_of_a_map_is_answered_and_detached_without_closing(clients: Clients, core: Any) -> None:
    core.answer_attaches = False
    client = clients.connect()
    properties = symbols(onceway_epoch=ULong(9))
    link = client.sender(unsettled={b"1": None}, incomplete_unsettled=True, properties=properties)
    assert core.named("attach_publisher")[0][0].incomplete
    core.publishers[0].part()
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
    assert port.gone


def test_an_answer_that_does_not_fit_the_clients_frames_costs_that_client_only(clients: Clients, core: Any) -> None:
    small = clients.connect("small", max_frame_size=512)
    other = clients.connect("other")
    small.sender(source=Source("s" * 600))
    assert small.connection.closed or small.connection.closing
    assert len(core.named("detach_publisher")) == 1
    assert other.sender().credit == 64


# --- credit


def test_credit_is_granted_at_once_and_echo_asked_for(clients: Clients) -> None:
    client = clients.connect()
    link = client.sender()
    assert link.credit == 64
    (flow,) = client.seen(LinkFlow, link)
    assert flow.flow.echo


def test_a_client_with_a_map_and_no_incarnation_gets_an_echo_and_no_credit(clients: Clients, core: Any) -> None:
    core.credit = False
    client = clients.connect()
    link = client.sender(unsettled={})
    (flow,) = client.seen(LinkFlow, link)
    assert flow.flow.echo
    assert link.credit == 0
    assert len(core.named("proved")) == 1
    core.publishers[0].ready()
    clients.exchange()
    assert link.credit == 64


def test_credit_follows_the_sizes_that_come(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    link.send([b"1"], [Message(bytes(MIB)).encode()])
    clients.exchange()
    core.publishers[0].set_window(999, 7 * MIB, "")
    clients.exchange()
    assert link.credit == 6  # the annotated MiB is a little more than a MiB


def test_transfers_that_cross_a_withdrawal_of_credit_are_taken(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    link.send([b"1", b"2"], [BODY, BODY])
    data = client.connection.data_to_send()
    core.publishers[0].set_window(0, 0, "no subscription")
    clients.router.flush(clients.now)
    withdrawal = client.served.data_to_send()
    client.served.receive_data(data, clients.now)
    client.events += client.connection.receive_data(withdrawal, clients.now)
    clients.exchange()
    assert link.attached
    assert link.credit == 0
    assert core.named("transfers")[0][2] == [b"1", b"2"]


def test_more_transfers_than_were_ever_allowed_detach_the_link(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    link.credit = 100
    send(client, link, 65)
    detach = client.detached(link)
    assert detach.error is not None
    assert detach.error.condition == "amqp:link:transfer-limit-exceeded"
    ((port, closed, _),) = core.named("detach_publisher")
    assert not closed
    assert port.gone


def test_sessions_windows_close_at_the_memory_limit_and_open_below_it(clients: Clients, core: Any) -> None:
    client = clients.connect()
    client.sender()
    core.meter = clients.router.config.memory_limit + 1
    clients.router.flush(clients.now)
    (session,) = client.served.connection.sessions
    assert session.incoming.paused
    core.meter = 0
    clients.exchange()
    assert not session.incoming.paused


def test_publishers_that_bring_more_at_twice_the_memory_limit_are_detached(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    core.meter = 2 * clients.router.config.memory_limit
    send(client, link)
    error = client.detached(link).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    most = clients.router.config.memory_limit
    assert error.description == f"limit memory_limit: this router holds twice its {most} octets of payload"
    assert clients.router.admission.refused == {"memory_limit": 1}
    assert core.named("transfers") == []
    assert len(core.named("detach_publisher")) == 1


def test_incomplete_messages_are_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.router.Core", NotingCore)
    clients = make(RouterConfig("a", memory_limit=100_000, max_message_size=90_000, max_frame_size=4_096))
    one, other = clients.connect("one"), clients.connect("other")
    first, second = one.sender(), other.sender()
    for client, link in ((one, first), (other, second)):
        link.send([b"1"], [Message(bytes(60_000)).encode()])
        data = client.connection.data_to_send()
        client.served.receive_data(data[:-1_000], clients.now)
    assert clients.router.held < 100_000
    assert first.attached
    clients.router.flush(clients.now)
    other.events += other.connection.receive_data(other.served.data_to_send(), clients.now)
    error = other.detached(second).error
    assert error is not None
    assert error.condition == "amqp:resource-limit-exceeded"
    one.lose()
    other.lose()
    assert clients.router.held == 0


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
    client = clients.connect("shop")
    send(client, client.sender("till"))
    payload = core.named("transfers")[0][3][0]
    assert message_annotation(payload, "x-opt-onceway-publisher") == ["shop", "till"]
    assert payload.endswith(BODY)


def test_a_message_of_another_format_is_not_touched(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    link.send([b"1"], [b"whatever"], message_format=7)
    clients.exchange()
    call = core.named("transfers")[0]
    assert (call[3], call[5]) == ([b"whatever"], 7)


def test_a_payload_that_is_no_message_detaches_after_what_came_before_it(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    link.send([b"1", b"2", b"3"], [BODY, b"\xff\xff", BODY])
    clients.exchange()
    assert core.named("transfers")[0][2] == [b"1"]
    error = client.detached(link).error
    assert error is not None
    assert error.condition == "amqp:decode-error"
    assert "32" in (error.description or "")
    assert len(core.named("detach_publisher")) == 1


def test_pre_settled_transfers_are_marked(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender(snd_settle_mode=SND_SETTLED)
    send(client, link, settled=True)
    assert core.named("transfers")[0][4] is True
    assert client.answered(link).properties["onceway:guarantee"] == "at-most-once"


def test_resume_with_settled_names_a_tag_that_will_not_come_again(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender(unsettled={b"1": ACCEPTED})
    link.resume(b"1", settled=True)
    clients.exchange()
    assert core.named("publisher_settled_tag") == [(core.publishers[0], b"1", clients.now)]
    assert core.named("transfers") == []


def test_resume_with_a_payload_is_a_repeat(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender(unsettled={b"1": None})
    link.resume(b"1", payload=BODY)
    clients.exchange()
    assert core.named("transfers")[0][2] == [b"1"]


def test_resume_with_neither_detaches(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender(unsettled={b"1": None})
    link.resume(b"1")
    clients.exchange()
    error = client.detached(link).error
    assert error is not None
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
    assert event.state.error is not None
    assert event.state.error.info == {"onceway:rejected": 3}


def test_the_publishers_settlement_reaches_the_core_and_is_echoed(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    send(client, link, 3)
    core.publishers[0].outcome(0, 2, Outcome.ACCEPTED, 0, False)
    clients.exchange()
    link.settle(0, 2)
    clients.exchange()
    assert core.named("publisher_settled") == [(core.publishers[0], 0, 2, clients.now)]


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


def test_stolen_may_leave_the_link_open(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    core.publishers[0].detach("amqp:link:stolen", "elsewhere", {"onceway:epoch": 9}, False)
    clients.exchange()
    detach = client.detached(link)
    assert not detach.closed
    assert detach.error is not None
    assert detach.error.condition == "amqp:link:stolen"


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


# --- the first sign of life (5.2)


def plain_attach(clients: Clients, core: Any) -> tuple[Client, SenderLink]:
    """A client that answers no echo and says nothing of its own."""
    client = clients.connect()
    link = client.session.sender("out")
    link.attach(source=Source(), target=Target("orders"), rcv_settle_mode=RCV_SECOND)
    clients.to_router(client)
    clients.router.flush(clients.now)
    client.served.data_to_send()  # thrown away: the client never hears it
    assert core.named("proved") == []
    return client, link


def heartbeat(client: Client) -> None:
    client.served.receive_data(b"\x00\x00\x00\x08\x02\x00\x00\x00", client.clients.now)


def test_an_attach_alone_proves_nothing(clients: Clients, core: Any) -> None:
    plain_attach(clients, core)
    clients.sleep(10.0)
    assert core.named("proved") == []


def test_the_echos_answer_is_the_sign_of_life(clients: Clients, core: Any) -> None:
    client = clients.connect()
    client.sender()
    assert core.named("proved") == [(core.publishers[0], clients.now)]


def test_a_transfer_is_the_sign_of_life_and_comes_after_it(clients: Clients, core: Any) -> None:
    client, link = plain_attach(clients, core)
    link._received_attach(client.served.connection.sessions[0].links[0].local_attach)  # type: ignore[arg-type]
    link.credit = 1
    link.session.outgoing.window = 10
    link.send([b"1"], [BODY])
    clients.to_router(client)
    names = [call[0] for call in core.calls]
    assert names.index("proved") < names.index("transfers")


def test_a_frame_read_later_than_proof_after_is_the_sign_of_life(clients: Clients, core: Any) -> None:
    client, _ = plain_attach(clients, core)
    clients.sleep(1.9)
    heartbeat(client)
    assert core.named("proved") == []
    clients.sleep(0.2)
    heartbeat(client)
    assert len(core.named("proved")) == 1
    heartbeat(client)
    assert len(core.named("proved")) == 1


def test_a_stall_of_our_own_makes_old_frames_worthless(clients: Clients, core: Any) -> None:
    client, _ = plain_attach(clients, core)
    clients.stall(5.0)
    heartbeat(client)
    assert core.named("proved") == []
    clients.sleep(2.1)
    heartbeat(client)
    assert len(core.named("proved")) == 1


def test_frames_that_waited_for_their_turn_are_worthless(clients: Clients, core: Any) -> None:
    client, _ = plain_attach(clients, core)
    clients.sleep(2.1)
    client.served.delayed(clients.now - 0.6, clients.now)
    heartbeat(client)
    assert core.named("proved") == []
    clients.sleep(2.1)
    client.served.delayed(clients.now - 0.4, clients.now)  # short waits do not keep a busy router from ever being sure
    heartbeat(client)
    assert len(core.named("proved")) == 1


def test_a_detach_proves_nothing(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.session.sender("out")
    link.attach(source=Source(), target=Target("orders"), rcv_settle_mode=RCV_SECOND)
    link.detach(closed=True)
    clients.to_router(client)
    assert core.named("proved") == []
    assert len(core.named("detach_publisher")) == 1
    clients.sleep(3.0)
    heartbeat(client)
    assert core.named("proved") == []


# --- questions (5.7)


def asked(clients: Clients, core: Any) -> tuple[Client, SenderLink, Any]:
    """A publisher with all of its window used up, and a question that has been written and not read."""
    core.window = (2, MIB)
    client = clients.connect()
    link = client.sender()
    port = core.publishers[0]
    send(client, link, 2)
    port.set_window(0, 0, "window full")
    clients.exchange()
    port.ask()
    clients.router.flush(clients.now)
    return client, link, port


def test_a_question_is_one_more_credit_with_echo_and_the_echo_answers_it(clients: Clients, core: Any) -> None:
    client, link, port = asked(clients, core)
    assert core.named("answered") == []
    clients.exchange()
    assert core.named("answered") == [(port, clients.now)]
    assert client.seen(LinkFlow, link)[-2].flow.link_credit == 1


def test_the_questions_credit_is_taken_back_after_the_answer(clients: Clients, core: Any) -> None:
    _, link, _ = asked(clients, core)
    clients.exchange()
    assert link.credit == 0


def test_what_was_sent_before_the_question_does_not_answer_it(clients: Clients, core: Any) -> None:
    core.window = (5, MIB)
    client = clients.connect()
    link = client.sender()
    port = core.publishers[0]
    link.send([b"1", b"2"], [BODY, BODY])
    link.flow()
    port.ask()
    clients.to_router(client)
    assert core.named("answered") == []


@pytest.mark.parametrize("tags", [[b"1"], [b"1", b"2", b"3"]], ids=["as far as its limit", "beyond it"])
def test_a_question_that_transfers_on_credit_taken_back_cross_is_asked_again(
    clients: Clients, core: Any, tags: list[bytes]
) -> None:
    client = clients.connect()
    link = client.sender()
    port = core.publishers[0]
    link.send(tags, [BODY] * len(tags))
    data = client.connection.data_to_send()
    port.set_window(0, 0, "window full")
    clients.router.flush(clients.now)
    port.ask()  # at limit 1: its reader has sent as much and can show no limit
    clients.router.flush(clients.now)
    question = client.served.data_to_send()
    client.served.receive_data(data, clients.now)
    port.set_window(0, 0, "window full")
    client.events += client.connection.receive_data(question, clients.now)
    clients.to_router(client)
    assert core.named("answered") == []
    clients.exchange()
    assert core.named("answered") == [(port, clients.now)]
    assert link.credit == 0, "taken back after the answer"


def test_a_transfer_beyond_the_old_limit_answers(clients: Clients, core: Any) -> None:
    client, link, _ = asked(clients, core)
    client.served.data_to_send()
    link.credit = 1
    link.send([b"3"], [BODY])
    clients.to_router(client)
    assert len(core.named("answered")) == 1
    assert len(core.named("transfers")) == 2


def test_the_settlement_of_a_later_outcome_answers_and_of_an_earlier_one_does_not(clients: Clients, core: Any) -> None:
    client = clients.connect()
    link = client.sender()
    port = core.publishers[0]
    send(client, link, 2)
    port.outcome(0, 0, Outcome.ACCEPTED, 0, False)
    clients.exchange()
    port.ask()
    port.outcome(1, 1, Outcome.ACCEPTED, 0, False)
    link.settle(0, 0)
    clients.to_router(client)
    assert core.named("answered") == []
    link.settle(1, 1)
    clients.to_router(client)
    assert len(core.named("answered")) == 1


def test_a_frame_long_after_the_question_answers(clients: Clients, core: Any) -> None:
    client, _, _ = asked(clients, core)
    client.served.data_to_send()
    clients.sleep(1.0)
    heartbeat(client)
    assert core.named("answered") == []
    clients.sleep(1.5)
    heartbeat(client)
    assert len(core.named("answered")) == 1


def test_a_question_can_be_asked_again_from_within_the_answer(clients: Clients, core: Any) -> None:
    client = clients.connect()
    client.sender()
    port = core.publishers[0]
    answers: list[float] = []

    def answered(port: Any, now: float) -> None:
        answers.append(now)
        if len(answers) < 3:
            port.ask()

    core.answered = answered
    port.ask()
    clients.exchange()
    assert len(answers) == 3
