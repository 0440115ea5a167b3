"""What another user does with names that are not its own: it cannot resume, steal, drain or close what has them, read
what is unsettled there, or find out that anything has them (protocol 1.12)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from amqp10.annotations import message_annotation
from amqp10.errors import NOT_FOUND
from amqp10.link import Link
from amqp10.outcomes import ACCEPTED, Rejected
from amqp10.performatives import RCV_FIRST, Attach
from amqp10.runs import Dispositions, LinkFlow, Transfers
from amqp10.sections import Message, Properties
from amqp10.termini import Source, Target
from amqp10.types import Symbol, ULong
from router.config import AddressConfig, RouterConfig
from router.core.ports import Waiting
from router.links.management import Request
from router.names import PUBLISHER_ANNOTATION
from router.policies import Identity, Policy
from tests.router.links import BODY, MIB, Client, Clients, make, payloads, send, symbols
from tests.router.test_policies import REFUSED, connect, error, network

DURABLE: dict[str, Any] = {"source": Source("orders", timeout=60)}
FORGED = ("c", "alice|c", "|alice|c", "alice%7Cc")  # container-ids with which mallory tries to be alice


def got(client: Client) -> list[Any]:
    return [Message.decode(each).value for each in payloads(client.seen(Transfers))]


def publish(clients: Clients, *bodies: str) -> None:
    bob = connect(clients, "bob", "publisher")
    link = bob.sender()
    link.send([b"%d" % number for number in range(len(bodies))], [Message(body).encode() for body in bodies])
    clients.exchange()


@pytest.mark.parametrize("container", FORGED)
@pytest.mark.parametrize("user", ["mallory", None])
def test_a_subscription_that_is_away_is_resumed_by_its_user_only(container: str, user: str | None) -> None:
    """Protocol 1.12."""
    clients = network(restricted=False)
    alice = connect(clients, "alice")
    hers = alice.receiver("s", credit=1, **DURABLE)
    publish(clients, "one", "two")
    tag = alice.seen(Transfers)[0].tags[0]
    alice.lose()
    mallory = connect(clients, user, container) if user else clients.connect(container)
    theirs = mallory.receiver("s", credit=10, unsettled={tag: None}, **DURABLE)
    new = mallory.receiver("new", credit=10, unsettled={tag: None}, **DURABLE)
    assert mallory.answered(theirs).unsettled == mallory.answered(new).unsettled
    for link in (theirs, new):
        for run in mallory.seen(Transfers):
            if run.link is link:
                link.dispose(run.first_id, run.first_id + len(run.tags) - 1, ACCEPTED, True)
    theirs.detach(closed=True)
    clients.exchange()
    alice = connect(clients, "alice")
    hers = alice.receiver("s", credit=10, unsettled={tag: None}, **DURABLE)
    assert list(alice.answered(hers).unsettled) == [tag], "it is there, and it is hers"
    assert got(alice)[-1] == "two"


@pytest.mark.parametrize("container", FORGED)
def test_a_subscription_is_drained_and_closed_by_its_user_only(container: str) -> None:
    clients = network(restricted=False)
    alice, mallory = connect(clients, "alice"), connect(clients, "mallory", container)
    hers = alice.receiver("s", credit=10, **DURABLE)
    theirs = mallory.receiver("s", credit=5, **DURABLE)
    theirs.grant(5, drain=True)
    clients.exchange()
    assert (theirs.credit, hers.credit) == (0, 10)
    theirs.detach(closed=True)
    clients.exchange()
    publish(clients, "one")
    assert not hers.detached
    assert got(alice) == ["one"]


@pytest.mark.parametrize("container", FORGED)
def test_a_publisher_is_resumed_by_its_user_only(container: str) -> None:
    clients = network(restricted=False)
    bob = connect(clients, "bob")
    bob.receiver("s", credit=10, source=Source("orders"))
    alice = connect(clients, "alice")
    link = alice.sender("p")
    send(alice, link)
    resume = {"properties": alice.answered(link).properties, "unsettled": {b"1": None}}
    alice.lose()
    mallory = connect(clients, "mallory", container)
    links = [mallory.sender(name, **resume) for name in ("p", "nobodys")]
    answers = [answer_to(mallory, each) for each in links]
    assert answers[0] == answers[1]
    for each in links:
        each.resume(b"1", payload=BODY)
        clients.exchange()
    assert len(payloads(bob.seen(Transfers))) == 3, "they are deliveries of publishers of their own"
    alice = connect(clients, "alice")
    alice.sender("p", **resume).resume(b"1", payload=BODY)
    clients.exchange()
    assert len(payloads(bob.seen(Transfers))) == 3, "hers is known"


@pytest.mark.parametrize("container", FORGED)
def test_another_publisher_cannot_settle_or_repeat_what_is_a_publishers(container: str) -> None:
    """Tags are of a publisher: mallory's with the tag of alice's is another delivery, and what he settles is his."""
    clients = network(restricted=False)
    bob = connect(clients, "bob")
    subscription = bob.receiver("s", credit=10, source=Source("orders"))
    alice, mallory = connect(clients, "alice"), connect(clients, "mallory", container)
    hers, theirs = alice.sender("p"), mallory.sender("p")
    send(alice, hers)
    send(mallory, theirs)
    assert len(payloads(bob.seen(Transfers))) == 2, "neither was taken for a repetition of the other"
    subscription.dispose(1, 1, ACCEPTED, False)
    clients.exchange()
    assert [len(each.seen(Dispositions)) for each in (alice, mallory)] == [0, 1]
    theirs.settle(0, 0)
    clients.exchange()
    subscription.dispose(0, 0, ACCEPTED, False)
    clients.exchange()
    assert len(alice.seen(Dispositions)) == 1


@pytest.mark.parametrize("user", ["mallory", None])
def test_a_publisher_that_waits_is_told_the_names_of_its_own_user_only(user: str | None) -> None:
    clients = network(restricted=False)
    publisher = connect(clients, user) if user else clients.connect("c")
    link = publisher.sender()
    (port,) = publisher.served.ports
    own = f"{user}|c" if user else "c"
    port.waiting(Waiting("window", 4, tuple((each, "s", "a") for each in ("alice|c", own, "mallory2|c", "|alice|c"))))
    port.connection.output_ready()
    clients.exchange()
    flow = publisher.seen(LinkFlow, link)[-1].flow
    told = flow.properties[Symbol("onceway:waiting")]
    expected = [own] if user else [own, "|alice|c"]
    assert (told["count"], [each[0] for each in told["subscriptions"]]) == (4, expected)


def answer_to(client: Client, link: Any) -> Attach:
    """The router's attach, but for the name that it repeats and the handle, which the session counts."""
    answer: Attach = client.answered(link)
    return replace(answer, name="", handle=0)


def test_names_that_somebody_has_are_answered_like_those_that_nobody_has() -> None:
    clients = network(restricted=False)
    alice = connect(clients, "alice")
    for number in range(20):
        alice.receiver(f"s{number}", **DURABLE)
    send(alice, alice.sender("p0"), 20)
    epoch = {"properties": symbols(onceway_epoch=ULong(1)), "unsettled": {b"1": None}}
    mallory = connect(clients, "mallory")
    for names, asked in (
        (("s0", "no0"), DURABLE),
        (("s1", "no1"), {"unsettled": {b"1": None}, **DURABLE}),
        (("s2", "no2"), {"source": Source("orders", timeout=60, durable=1)}),
    ):
        one, other = (answer_to(mallory, mallory.receiver(name, **asked)) for name in names)
        assert one == other
    assert answer_to(mallory, mallory.sender("p0", **epoch)) == answer_to(mallory, mallory.sender("p9", **epoch))


def work(of: Callable[..., object]) -> int:
    """How many calls of Python this takes: as a time would say it, and every time the same."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        of()
    finally:
        sys.setprofile(None)
    return calls


def test_an_address_that_one_may_not_use_looks_the_same_whatever_is_there() -> None:
    """A topic in use, a pipe, a queue, and one that nobody has used: one error, and as much work."""
    pipe = AddressConfig("busypipe", type="pipe", read_at=(("amqp", "host", 1),), other_subscriptions="refuse")
    queue = AddressConfig("busyqueue", type="queue")
    clients = network(Policy(("alice", "bob"), send=("*",), receive=("*",)), addresses=(pipe, queue))
    alice = connect(clients, "alice")
    for address in ("busytopic", "busyqueue"):
        for number in range(20):
            alice.receiver(f"{address}{number}", source=Source(address, timeout=60))
        send(alice, alice.sender(address, target=Target(address)), 20)
    mallory = connect(clients, "mallory")
    attaches: dict[str, Callable[[str], Link]] = {
        "send": lambda address: mallory.sender(f"to {address}", target=Target(address)),
        "receive": lambda address: mallory.receiver(f"from {address}", source=Source(address)),
    }
    for attach in attaches.values():
        attach("warm")
        answers, takes = set(), []
        for address in ("nobodys", "busytopic", "busypipe", "busyqueue"):
            made: list[Link] = []
            takes.append(work(lambda made=made, attach=attach, address=address: made.append(attach(address))))
            condition, text = error(mallory, made[0])
            answers.add((condition, text.replace(address, "it")))
        ((condition, _),) = answers
        assert condition == REFUSED
        assert max(takes) - min(takes) <= 2, takes


@pytest.mark.parametrize("direction", ["send", "receive"])
def test_queues_are_used_by_whom_an_entry_lets(direction: str) -> None:
    entry = Policy(("alice",), **{direction: ("jobs",)})  # type: ignore[arg-type]
    clients = network(entry, addresses=(AddressConfig("jobs", type="queue"),))
    alice, mallory = connect(clients, "alice"), connect(clients, "mallory")
    both: dict[str, Callable[[Client], Link]] = {
        "send": lambda client: client.sender("l", target=Target("jobs")),
        "receive": lambda client: client.receiver("m", source=Source("jobs")),
    }
    assert both.pop(direction)(alice).attached
    ((other, attach),) = both.items()
    assert error(alice, attach(alice)) == (
        REFUSED,
        f"user 'alice' may not {other} {'to' if other == 'send' else 'from'} 'jobs': no policy allows it",
    )
    assert not mallory.sender("l", target=Target("jobs")).attached
    assert not mallory.receiver("m", source=Source("jobs")).attached


@pytest.mark.parametrize("container", FORGED)
def test_what_a_consumer_of_a_queue_holds_is_its_users_only(container: str) -> None:
    clients = network(restricted=False, addresses=(AddressConfig("jobs", type="queue"),))
    bob, alice = connect(clients, "bob"), connect(clients, "alice")
    jobs: dict[str, Any] = {"source": Source("jobs", timeout=60)}
    hers = alice.receiver("s", credit=1, **jobs)
    bob.sender(target=Target("jobs")).send([b"1"], [Message("one").encode()])
    clients.exchange()
    tag = alice.seen(Transfers)[0].tags[0]
    mallory = connect(clients, "mallory", container)
    theirs, new = (mallory.receiver(name, credit=5, unsettled={tag: None}, **jobs) for name in ("s", "new"))
    assert answer_to(mallory, theirs) == answer_to(mallory, new)
    assert (got(mallory), hers.detached) == ([], False)
    theirs.detach(closed=True)
    clients.exchange()
    assert not hers.detached


# --- addresses that are nobody's


@pytest.mark.parametrize("address", ["$management", "_mqtt/sessions", "_mqtt/x"])
def test_reserved_addresses_are_no_topics_whatever_policies_allow(address: str) -> None:
    """Where sessions of MQTT are is known by a subscription: no client of AMQP takes one, or sends there."""
    clients = network(Policy(("*",), send=("*",), receive=("*",)))
    mallory = connect(clients, "mallory")
    anonymous = mallory.sender("anonymous", target=Target(), rcv_settle_mode=RCV_FIRST)
    anonymous.send([b"1"], [Message("x", properties=Properties(to=address)).encode()])
    clients.exchange()
    (refused,) = mallory.seen(Dispositions, anonymous)
    assert (type(refused.state), str(refused.state.error.condition)) == (Rejected, NOT_FOUND)
    for link in (
        mallory.sender("to", target=Target(address)),
        mallory.receiver("session", source=Source(address, timeout=60)),
    ):
        assert error(mallory, link)[0] == NOT_FOUND


# --- messages and requests that claim what is not theirs


def test_nobody_publishes_as_another_publisher() -> None:
    clients = network(restricted=False)
    bob, mallory = connect(clients, "bob"), connect(clients, "mallory")
    bob.receiver("s", credit=10, source=Source("orders"))
    claims = Message("x", message_annotations={Symbol(PUBLISHER_ANNOTATION): "alice|c/p"}).encode()
    twice = claims[: claims.index(b"\x00\x53\x77")] + claims
    anonymous = mallory.sender("anonymous", target=Target(), rcv_settle_mode=RCV_FIRST)
    to = Properties(to="orders")
    named = Message("x", properties=to, message_annotations={Symbol(PUBLISHER_ANNOTATION): "alice|c/p"}).encode()
    anonymous.send([b"1", b"2"], [named, to.encode() + claims])
    mallory.sender("p").send([b"1", b"2"], [claims, claims], message_format=9)
    link = mallory.sender("q")
    link.send([b"1", b"2"], [claims, twice])
    clients.exchange()
    publishers = [message_annotation(each, PUBLISHER_ANNOTATION) for each in payloads(bob.seen(Transfers))]
    assert len(publishers) == 4
    assert all(each.startswith("mallory%7Cc/") for each in publishers)
    assert "header and annotations come once each" in error(mallory, link)[1]


class Asked:
    """In place of the management node: keeps requests."""

    def __init__(self, *readers: str) -> None:
        self.readers = readers
        self.requests: list[Request] = []

    def may_read(self, who: Identity) -> bool:
        return who.user in self.readers

    def ask(self, request: Request) -> None:
        self.requests.append(request)


def test_an_answer_goes_only_where_the_one_who_asks_may_send() -> None:
    clients = network(Policy(("alice", "mallory"), send=("mine",), receive=("mine",)))
    asked = clients.router.nodes.own = Asked("alice", "mallory")
    alice, mallory = connect(clients, "alice"), connect(clients, "mallory")
    box = {"source": Source("$management"), "target": Target("answers"), "rcv_settle_mode": RCV_FIRST}
    hers = alice.receiver("box", credit=5, **box)
    asks = mallory.sender("asks", target=Target("$management"), rcv_settle_mode=RCV_FIRST)
    places = ("mine", "answers", "orders", "_dynamic/a/1", "$management", "_mqtt/sessions", None)
    for number, place in enumerate(places):
        asks.send([b"%d" % number], [Message("x", properties=Properties(reply_to=place)).encode()])
        clients.exchange()
    states = [each.state for each in mallory.seen(Dispositions, asks)]
    conditions = [str(each.error.condition) if isinstance(each, Rejected) else "accepted" for each in states]
    assert conditions == ["accepted", REFUSED, REFUSED, REFUSED, NOT_FOUND, NOT_FOUND, "amqp:invalid-field"]
    assert [each.who.user for each in asked.requests] == ["mallory"]
    assert not payloads(alice.seen(Transfers, hers))


def test_an_answer_goes_to_a_queue_and_not_where_it_could_not_be_kept() -> None:
    addresses = (AddressConfig("lossy", guarantee="at-most-once"), AddressConfig("jobs", type="queue"))
    clients = make(RouterConfig("a", routers=("a",), addresses=addresses))
    asked = clients.router.nodes.own = Asked("anonymous")
    client = clients.connect("c")
    consumer = client.receiver("in", source=Source("jobs"), credit=5)
    asks = client.sender("asks", target=Target("$management"), rcv_settle_mode=RCV_FIRST)
    for number, place in enumerate(("lossy", "jobs")):
        asks.send([b"%d" % number], [Message("x", properties=Properties(reply_to=place)).encode()])
        clients.exchange()
    refused, taken = [each.state for each in client.seen(Dispositions, asks)]
    assert isinstance(refused, Rejected)
    assert (refused.error.condition, refused.error.description) == (
        "amqp:not-allowed",
        "properties.reply-to: 'lossy' is at-most-once: send it settled",
    )
    assert taken == ACCEPTED
    (request,) = asked.requests
    request.answer(Message("answer").encode())
    clients.exchange()
    assert [Message.decode(each).value for each in payloads(client.seen(Transfers, consumer))] == ["answer"]


def test_a_link_without_an_address_asks_management_nodes_between_its_messages() -> None:
    """Delivery-ids of answers are not those of its messages, also where both go to one address."""
    clients = make(RouterConfig("a", routers=("a",)))
    asked = clients.router.nodes.own = Asked("anonymous")
    client = clients.connect("c")
    replies = client.receiver("in", source=Source("replies"), credit=50)
    link = client.sender("relay", target=Target(), rcv_settle_mode=RCV_FIRST)

    def say(to: str, **properties: Any) -> None:
        link.send([b"%d" % link.delivery_count], [Message("x", properties=Properties(to=to, **properties)).encode()])
        clients.exchange()

    for to in ("replies", "amqp:/_local/$management", "amqp:/_topo/0/a/$management", "replies"):
        say(to, reply_to="replies")
    for request in asked.requests:
        request.answer(Message("answer").encode())
    clients.exchange()
    told = [Message.decode(each).value for each in payloads(client.seen(Transfers, replies))]
    assert told == ["x", "x", "answer", "answer"]
    replies.dispose(0, 3, ACCEPTED, True)
    say("$management")
    for _ in range(17):
        say("$management", reply_to="replies")
    states = {each.first_id: each.state for each in client.seen(Dispositions, link)}
    refused = {
        key: str(each.error.condition) for key, each in states.items() if isinstance(each, Rejected) and each.error
    }
    assert refused == {4: "amqp:invalid-field", 21: "amqp:resource-limit-exceeded"}
    assert len(states) == 22
    say("_topo/0/b/$management", reply_to="replies")
    nowhere = client.seen(Dispositions, link)[-1].state.error
    unknown = "'_topo/0/b/$management': this network has no router 'b'"
    assert (nowhere.condition, nowhere.description) == ("amqp:not-found", unknown)
    assert error(client, client.sender("asks b", target=Target("_topo/0/b/$management"))) == ("amqp:not-found", unknown)
    link.detach(None, closed=True)
    clients.exchange()
    asked.requests[2].answer(Message("too late").encode())
    clients.exchange()
    assert not clients.router.core.publishers


def test_whoever_may_not_read_cannot_ask_or_listen_at_the_management_node() -> None:
    clients = network(Policy(("*",), send=("*",), receive=("*",), dynamic=True))
    clients.router.nodes.own = Asked("alice")
    mallory = connect(clients, "mallory")
    links = [
        mallory.sender("asks", target=Target("$management"), rcv_settle_mode=RCV_FIRST),
        mallory.receiver("box", source=Source("$management"), target=Target("answers")),
        mallory.sender("asks here", target=Target("_topo/0/a/$management"), rcv_settle_mode=RCV_FIRST),
    ]
    assert {error(mallory, each) for each in links} == {
        (REFUSED, "user 'mallory' may not read here: neither users nor groups of admin name them")
    }
    assert clients.router.status()["limits"]["refused"] == {"policies": 3}


def test_of_unread_output_the_user_who_has_most_loses_first() -> None:
    clients = network(restricted=False, memory_limit=8 * MIB)
    alice, first, second = (
        connect(clients, user, user + str(number)) for number, user in enumerate(("alice", "mallory", "mallory"))
    )
    for each, size in ((alice, 4 * MIB), (first, 3 * MIB), (second, 2 * MIB)):
        each.served.pause_output()
        each.served.output_waits(size)
    assert [each.served.closed for each in (alice, first, second)] == [False, True, False]


def test_answers_of_the_management_node_come_for_as_long_as_their_reader_may_read() -> None:
    """They come to a dynamic node of its own, for which it needs no right to dynamic nodes."""
    clients = network(Policy(("alice",), send=("orders",)))
    asked = clients.router.nodes.own = Asked("alice")
    alice = connect(clients, "alice")
    answers = alice.receiver("box", source=Source("$management"), target=Target("answers"))
    sends = alice.sender(source=Source("$management"), target=Target("orders"))
    config = replace(clients.router.config, policies=(Policy(("alice",), send=("prices",)),))
    clients.router.reconfigure(config, clients.router.now)
    clients.exchange()
    assert not answers.detached
    assert error(alice, sends)[0] == REFUSED, "what a sending link calls its source gives it no right"
    asked.readers = ()
    clients.router.reconfigure(config, clients.router.now)
    clients.exchange()
    assert error(alice, answers)[0] == REFUSED
