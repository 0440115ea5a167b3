"""Publishers' links: the first sign of life and questions (protocol 5.2, 5.7)."""

from __future__ import annotations

from typing import Any

import pytest

from amqp10.performatives import RCV_SECOND
from amqp10.runs import LinkFlow
from amqp10.sender import SenderLink
from amqp10.termini import Source, Target
from amqp10.types import Symbol, ULong
from router.core.ports import Outcome
from tests.router.links import BODY, MIB, Client, Clients, send, symbols

# --- the first sign of life (protocol 5.2)


def plain_attach(clients: Clients, core: Any, properties: dict[Symbol, Any] | None = None) -> tuple[Client, SenderLink]:
    """A client that answers no echo and says nothing of its own."""
    client = clients.connect()
    link = client.session.sender("out")
    link.attach(source=Source(), target=Target("orders"), rcv_settle_mode=RCV_SECOND, properties=properties)
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
    """Protocol 5.2.1."""
    client = clients.connect()
    client.sender()
    assert core.named("proved") == [(core.publishers[0], clients.now)]


def test_a_transfer_is_the_sign_of_life_and_comes_after_it(clients: Clients, core: Any) -> None:
    """Protocol 5.2.1."""
    client, link = plain_attach(clients, core)
    link._received_attach(client.served.connection.channels.sessions[0].links[0].local_attach)  # type: ignore[arg-type]
    link.credit = 1
    link.session.outgoing.window = 10
    link.send([b"1"], [BODY])
    clients.to_router(client)
    names = [call[0] for call in core.calls]
    assert names.index("proved") < names.index("transfers")


def test_a_frame_read_later_than_proof_after_is_the_sign_of_life(clients: Clients, core: Any) -> None:
    """Protocol 5.2.1."""
    client, _ = plain_attach(clients, core)
    clients.sleep(1.9)
    heartbeat(client)
    assert core.named("proved") == []
    clients.sleep(0.2)
    heartbeat(client)
    assert len(core.named("proved")) == 1
    heartbeat(client)
    assert len(core.named("proved")) == 1


def test_a_frame_proves_nothing_of_who_brings_epochs_and_so_answers_echoes(clients: Clients, core: Any) -> None:
    """It may have lain unread for longer than `proof_after`; an answer cannot be older than the echo (protocol
    5.2.2)."""
    client, _ = plain_attach(clients, core, symbols(onceway_epoch=ULong(9)))
    clients.sleep(10.0)
    heartbeat(client)
    assert core.named("proved") == []


def test_a_stall_of_our_own_makes_old_frames_worthless(clients: Clients, core: Any) -> None:
    """Protocol 5.2.5."""
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


# --- questions (protocol 5.7)


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
    """Protocol 5.7.1."""
    client, link, port = asked(clients, core)
    assert core.named("question_answered") == []
    clients.exchange()
    assert core.named("question_answered") == [(port, clients.now)]
    assert client.seen(LinkFlow, link)[-2].flow.link_credit == 1


def test_the_questions_credit_is_taken_back_after_the_answer(clients: Clients, core: Any) -> None:
    _, link, _ = asked(clients, core)
    clients.exchange()
    assert link.credit == 0


@pytest.mark.parametrize("tags", [[b"1"], [b"1", b"2", b"3"]], ids=["as far as its limit", "beyond it"])
def test_a_question_that_transfers_on_credit_taken_back_cross_is_asked_again(
    clients: Clients, core: Any, tags: list[bytes]
) -> None:
    """Protocol 5.7.5."""
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
    assert core.named("question_answered") == []
    clients.exchange()
    assert core.named("question_answered") == [(port, clients.now)]
    assert link.credit == 0, "taken back after the answer"


def test_a_transfer_beyond_the_old_limit_answers(clients: Clients, core: Any) -> None:
    client, link, _ = asked(clients, core)
    client.served.data_to_send()
    link.credit = 1
    link.send([b"3"], [BODY])
    clients.to_router(client)
    assert len(core.named("question_answered")) == 1
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
    assert core.named("question_answered") == []
    link.settle(1, 1)
    clients.to_router(client)
    assert len(core.named("question_answered")) == 1


def test_a_frame_long_after_the_question_answers(clients: Clients, core: Any) -> None:
    client, _, _ = asked(clients, core)
    client.served.data_to_send()
    clients.sleep(1.0)
    heartbeat(client)
    assert core.named("question_answered") == []
    clients.sleep(1.5)
    heartbeat(client)
    assert len(core.named("question_answered")) == 1


def test_a_question_can_be_asked_again_from_within_the_answer(clients: Clients, core: Any) -> None:
    client = clients.connect()
    client.sender()
    port = core.publishers[0]
    answers: list[float] = []

    def question_answered(port: Any, now: float) -> None:
        answers.append(now)
        if len(answers) < 3:
            port.ask()

    core.question_answered = question_answered
    port.ask()
    clients.exchange()
    assert len(answers) == 3
