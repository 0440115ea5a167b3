"""What users may do; names of different users are different (protocol 1.12)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from amqp10.performatives import RCV_FIRST
from amqp10.runs import Transfers
from amqp10.sasl import ANONYMOUS_IDENTITY, Plain, server_mechanisms
from amqp10.sections import Message
from amqp10.termini import Source, Target
from router.config import AddressConfig, Life, RouterConfig
from router.names import STOLEN
from router.policies import NOBODY, Identity, Policy, has_owner, matches, owned
from router.router import Router
from tests.builds import puts_stand_ins
from tests.router.links import Client, Clients, payloads

REFUSED = "amqp:unauthorized-access"
ALICE = Identity("alice", ("ops",))


def network(*policies: Policy, restricted: bool = True, **more: Any) -> Clients:
    config = RouterConfig("a", routers=("a",), policies=policies if restricted else None, **more)
    sasl = server_mechanisms(verify=lambda name, password: name == password)
    router = Router(config, Life(1, 1_000.0, True), wall_us=lambda: 1_000_000, sasl=sasl, token=lambda: "1")
    return Clients(router, 1_000.0)


def connect(clients: Clients, user: str, container: str = "c") -> Client:
    return clients.connect(container, sasl=Plain(user, user))


def error(client: Client, link: object) -> tuple[str, str]:
    found = client.detached(link).error  # type: ignore[arg-type]
    return str(found.condition), str(found.description)


# --- what an entry allows


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders*", "orders2", True),
        ("orders/*", "orders", False),
        ("*", "anything", True),
        ("box/${user}", "box/alice", True),
        ("box/${user}", "box/bob", False),
        ("box/${user}/*", "box/alice/in", True),
        ("box/${user}/*", "box/alicex/in", False),
        ("${user}.in", "alice.in", True),
    ],
)
def test_a_pattern_is_an_address_or_a_prefix_with_the_users_name(pattern: str, address: str, expected: bool) -> None:
    assert matches(pattern, "alice", address) is expected


def test_a_users_name_cannot_reach_into_what_is_of_another_user() -> None:
    assert matches("box/${user}/*", "a", "box/a/b/1")
    assert not matches("box/${user}/*", "a/b", "box/a/b/1"), "else two users have one address"
    assert not matches("box/${user}", "*", "box/alice"), "a name is no pattern"


@pytest.mark.parametrize(
    ("policy", "who", "expected"),
    [
        (Policy(users=("alice",), send=("x",)), ALICE, True),
        (Policy(users=("bob",), send=("x",)), ALICE, False),
        (Policy(groups=("ops",), send=("x",)), ALICE, True),
        (Policy(groups=("dev",), send=("x",)), ALICE, False),
        (Policy(groups=("alice",), send=("x",)), ALICE, False),
        (Policy(users=("*",), send=("x",)), ALICE, True),
        (Policy(users=("*",), send=("x",)), NOBODY, True),
        (Policy(users=("anonymous",), send=("x",)), NOBODY, True),
        (Policy(users=("anonymous",), send=("x",)), ALICE, False),
        (Policy(users=("alice",), receive=("x",)), ALICE, False),
        (Policy(users=("alice",), send=("y",)), ALICE, False),
    ],
)
def test_an_entry_is_for_its_users_and_groups(policy: Policy, who: Identity, expected: bool) -> None:
    assert RouterConfig("a", policies=(policy,)).allows(who, "send", "x") is expected


def test_dynamic_nodes_have_a_right_of_their_own() -> None:
    everything = Policy(users=("*",), send=("*",), receive=("*",))
    assert not RouterConfig("a", policies=(everything,)).allows(ALICE, "send", "_dynamic/a/1")
    assert RouterConfig("a", policies=(Policy(("alice",), dynamic=True),)).allows(ALICE, "send", "_dynamic/a/1")


def test_without_policies_everyone_may_do_everything_and_with_none_that_fits_nothing() -> None:
    assert RouterConfig("a").allows(NOBODY, "send", "x")
    assert not RouterConfig("a", policies=()).allows(ALICE, "send", "x")


# --- at a router


def test_what_no_entry_allows_is_refused_counted_and_says_nothing_of_the_address() -> None:
    pipe = AddressConfig("jobs", type="pipe", read_at=(("amqp", "host", 1),), other_subscriptions="refuse")
    clients = network(Policy(("alice",), send=("orders",), receive=("prices",)), addresses=(pipe,))
    alice = connect(clients, "alice")
    assert alice.sender(target=Target("orders")).attached
    assert alice.receiver("r", source=Source("prices")).attached
    for refused, where in (
        (alice.sender("2", target=Target("prices")), "send to 'prices'"),
        (alice.receiver("2", source=Source("orders")), "receive from 'orders'"),
        (alice.receiver("3", source=Source("jobs")), "receive from 'jobs'"),
        (alice.receiver("4", source=Source(dynamic=True)), "use dynamic nodes"),
        (alice.sender("5", target=Target("_dynamic/a/1")), "use dynamic nodes"),
    ):
        assert error(alice, refused) == (REFUSED, f"user 'alice' may not {where}: no policy allows it")
    assert clients.router.status()["limits"]["refused"] == {"policies": 5}
    assert not connect(clients, "bob").sender(target=Target("orders")).attached


@pytest.mark.parametrize(
    ("policy", "allowed"),
    [
        (Policy(("alice",), receive=("*",)), False),
        (Policy(("bob",), send=("*",)), False),
        (Policy(("alice",), send=("orders",)), True),
        (Policy(("alice",), dynamic=True), True),
        (Policy(("alice",), send=("orders",), anonymous=False), False),
    ],
)
def test_a_link_without_an_address_is_for_those_who_may_send_somewhere(policy: Policy, allowed: bool) -> None:
    alice = connect(network(policy), "alice")
    link = alice.sender(target=Target(), rcv_settle_mode=RCV_FIRST)
    assert link.attached is allowed
    if not allowed:
        assert error(alice, link) == (
            REFUSED,
            "user 'alice' may not send to any address on a link without one: no policy allows it",
        )


@puts_stand_ins
def test_whom_an_entry_concerns_is_found_once_not_for_each_message(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Identity] = []
    concerns = Policy.concerns
    monkeypatch.setattr(Policy, "concerns", lambda policy, who: asked.append(who) or concerns(policy, who))
    config = RouterConfig("a", policies=(Policy(("alice",), send=("x",)), Policy(("alice",), send=("y",))))
    assert all(config.allows(ALICE, "send", "y", anonymous=True) for _ in range(9))
    assert asked == [ALICE, ALICE]
    assert not replace(config, policies=()).allows(ALICE, "send", "y", anonymous=True), "a reload forgets it"


def test_a_message_on_a_link_without_an_address_goes_where_an_entry_allows_that() -> None:
    alice = Identity("alice")
    config = RouterConfig(
        "a", policies=(Policy(("alice",), send=("x",), anonymous=False), Policy(("alice",), send=("y",)))
    )
    assert config.allows_anonymous(alice)
    assert [config.allows(alice, "send", "x", anonymous=one) for one in (False, True)] == [True, False]
    assert [config.allows(alice, "send", "y", anonymous=one) for one in (False, True)] == [True, True]


def test_whoever_may_use_dynamic_nodes_gets_one() -> None:
    clients = network(Policy(("alice",), dynamic=True))
    assert connect(clients, "alice").receiver("r", source=Source(dynamic=True)).attached


def test_a_queue_is_sent_to_and_taken_from_by_those_who_may() -> None:
    clients = network(
        Policy(users=("pub",), send=("jobs",)),
        Policy(users=("work",), receive=("jobs",)),
        addresses=(AddressConfig("jobs", type="queue"),),
    )
    publishes, works = connect(clients, "pub"), connect(clients, "work")
    taken = works.receiver(source=Source("jobs"), credit=1)
    sender = publishes.sender(target=Target("jobs"))
    sender.send([b"1"], [Message("m").encode()])
    clients.exchange()
    assert taken.attached
    assert [Message.decode(each).value for each in payloads(works.seen(Transfers))] == ["m"]
    takes = publishes.receiver(source=Source("jobs"), credit=1)
    sends = works.sender(target=Target("jobs"))
    assert [error(publishes, takes)[0], error(works, sends)[0]] == [REFUSED, REFUSED]


def test_links_that_a_changed_file_no_longer_allows_are_detached() -> None:
    clients = network(Policy(("alice",), send=("*",), receive=("*",)))
    alice = connect(clients, "alice")
    sends, kept = alice.sender(target=Target("orders")), alice.receiver("r", source=Source("orders"))
    config = replace(clients.router.config, policies=(Policy(("alice",), receive=("*",)),))
    clients.router.reconfigure(config, clients.router.now)
    clients.exchange()
    assert error(alice, sends)[0] == REFUSED
    assert kept.attached
    assert not kept.detached


# --- names


def test_another_users_subscription_of_the_same_name_is_another_subscription() -> None:
    clients = network(restricted=False)
    alice, mallory = connect(clients, "alice"), connect(clients, "mallory")
    one = alice.receiver("s", source=Source("orders"), credit=10)
    two = mallory.receiver("s", source=Source("orders"), credit=10)
    connect(clients, "bob").sender(target=Target("orders")).send([b"1"], [Message("an order").encode()])
    clients.exchange()
    for client, link in ((alice, one), (mallory, two)):
        assert not link.detached
        assert [Message.decode(each).value for each in payloads(client.seen(Transfers))] == ["an order"]
    again = connect(clients, "alice")
    again.receiver("s", source=Source("orders"), credit=10)
    assert error(alice, one)[0] == STOLEN, "its own user may"
    assert not two.detached


def test_another_users_publisher_of_the_same_name_is_another_publisher() -> None:
    clients = network(restricted=False)
    alice, mallory = connect(clients, "alice"), connect(clients, "mallory")
    connect(clients, "bob").receiver("s", source=Source("orders"), credit=10)
    one = alice.sender("p", target=Target("orders"))
    two = mallory.sender("p", target=Target("orders"))
    one.send([b"1"], [Message("1").encode()])
    two.send([b"1"], [Message("2").encode()])
    clients.exchange()
    assert not one.detached
    assert not two.detached
    containers = {publisher.brought.container for publisher in clients.router.core.publishers.values()}
    assert containers == {"alice|c", "mallory|c"}


@pytest.mark.parametrize("first", ["a", "a|b", "a%7Cb", "anonymous", "|"])
@pytest.mark.parametrize("second", ["a", "b", "a|b", "|", "%"])
def test_names_of_different_users_are_never_the_same(first: str, second: str) -> None:
    users, containers = {"a", "a|b", "a%7Cb", "anonymous", "|", first}, {"a", "b", "a|b", "b|b", "|", "%", second}
    made = {owned(user, container) for user in users for container in containers}
    assert len(made) == len(users) * len(containers)
    assert has_owner(owned(first, second)) is (first != NOBODY.user)


def test_without_users_a_container_keeps_its_name() -> None:
    assert NOBODY.user == ANONYMOUS_IDENTITY
    assert owned(NOBODY.user, "spark") == "spark"
