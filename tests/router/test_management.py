"""Requests to the management node of another router (protocol 3.4.5)."""

from __future__ import annotations

import pytest

from amqp10.sections import Message
from router.border import Border
from router.config import Life, RouterConfig
from router.core import messages as m
from router.core.traffic import Settle
from router.links.management import Request, answer_to, encoded
from router.peers.wire import decode, encode
from router.policies import Identity
from router.router import Router
from tests.router.borders import Told

ASKED = Message(application_properties={"operation": "GET-TYPES"})
BOB = Identity("bob", ("ops", "watch"))


class Node:
    def __init__(self) -> None:
        self.requests: list[Request] = []

    def may_read(self, who: Identity) -> bool:
        return who == BOB

    def ask(self, request: Request) -> None:
        self.requests.append(request)


class Pair:
    """Routers a and b in session; b has a node."""

    def __init__(self) -> None:
        self.a, self.b = [
            Router(RouterConfig(name, ("a", "b")), Life(7, 1.0, True), wall_us=lambda: 1_000_000) for name in "ab"
        ]
        self.node = self.b.nodes.own = Node()
        self.answers: list[Message] = []
        self.meet()

    def meet(self) -> None:
        self.a.peer_up("b", 1.0)
        self.b.peer_up("a", 1.0)
        self.exchange()

    def exchange(self) -> None:
        for source, target in 2 * ((self.a, self.b), (self.b, self.a)):
            for _, data in source.take_messages():
                target.peer_message(source.config.name, data, 1.0)

    def ask(self, name: str = "b", who: Identity = BOB) -> None:
        self.a.nodes.ask(name, Request(who, ASKED, self.answer))
        self.exchange()

    def answer(self, told: bytes) -> None:
        self.answers.append(Message.decode(told))

    def answered(self) -> list[int]:
        return [(answer.application_properties or {})["statusCode"] for answer in self.answers]


def test_the_node_asked_knows_who_asks_and_its_answer_comes_back_once() -> None:
    pair = Pair()
    pair.ask()
    (request,) = pair.node.requests
    assert (request.who, request.message.application_properties) == (BOB, ASKED.application_properties)
    for _ in range(2):
        request.answer(answer_to(request.message, 200, "OK", ["onceway.link"]).encode())
        pair.exchange()
    assert (pair.answered(), pair.answers[0].value) == ([200], ["onceway.link"])


def test_who_may_not_and_who_cannot_be_reached_is_said() -> None:
    """Protocol 3.4.5."""
    pair = Pair()
    pair.ask(who=Identity("mallory", ()))
    pair.ask("c")
    pair.b.nodes.own = None
    pair.ask()
    assert (pair.answered(), pair.node.requests) == ([403, 503, 503], [])


def test_an_answer_that_was_overtaken_by_the_end_of_the_session_is_ignored() -> None:
    """Protocol 3.4.5."""
    pair = Pair()
    pair.ask()
    for router, other in ((pair.a, "b"), (pair.b, "a")):
        router.peer_down(other, 1.0)
    assert pair.answered() == [503]
    pair.node.requests[0].answer(answer_to(ASKED, 200, "OK").encode())  # nobody is there
    pair.meet()
    pair.node.requests[0].answer(answer_to(ASKED, 200, "OK").encode())
    pair.exchange()
    assert pair.answered() == [503]


@pytest.mark.parametrize("message", [m.Ask(1, "bob", [], b"\0"), m.Answer(3, b"\0")])
def test_what_is_no_message_breaks_the_protocol(message: m.Message) -> None:
    pair = Pair()
    pair.a.nodes.ask("b", Request(BOB, ASKED, pair.answer))
    with pytest.raises(m.PeerProtocolError, match="this is no message"):
        pair.a.peer_message("b", encode(message), 1.0)


def test_a_settlement_alone_waits_for_the_next_message_for_the_tick_or_for_the_end_of_the_session() -> None:
    a = Pair().a
    settle = Settle("t", [(0, 1)])
    for message, sent in ((settle, False), (m.Finish("t", 1, False), True)):
        a.core.post.multicast(("b",), message)
        assert a.turn.must_send == sent
    assert [decode(data) for _, data in a.take_messages()] == [settle, m.Finish("t", 1, False)]
    a.core.post.multicast(("b",), settle)
    due = a.turn.output_due
    assert not a.turn.must_send
    assert due is not None
    assert (a.next_deadline() or due) <= due
    a.tick(due)
    assert a.turn.must_send
    a.take_messages()
    a.core.post.multicast(("b",), settle)
    a.peer_down("b", due)
    assert a.turn.must_send


def test_answer_that_has_no_form_says_that_it_has_failed() -> None:
    pair = Pair()
    told = Told()
    pair.b.border = Border(pair.b.core, told)
    pair.ask()
    (request,) = pair.node.requests
    request.answer(encoded(pair.b.border, ASKED, answer_to(ASKED, 200, "OK", object())))
    pair.exchange()
    assert pair.answered() == [500]
    assert [each["event"] for each in told.errors] == ["message_failed"]
