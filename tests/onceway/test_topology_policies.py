"""The section `policies`, and whose declared subscriptions are."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp10.link import Link
from amqp10.performatives import RCV_FIRST
from amqp10.termini import Source, Target
from onceway import topology
from onceway.topology.difference import difference
from onceway.topology.policies import POLICY
from router.config import UserLimits
from router.policies import Policy, owner_of
from tests.router.test_policies import connect, error, network

BASE = """\
network: shop
routers: {a: {amqp: 5672, interrouter: 7671, admin: 8671}}
"""
USERS = "sasl: {users: users.json}\n"


def load(tmp_path: Path, text: str) -> topology.Topology:
    path = tmp_path / "shop.yaml"
    path.write_text(BASE + text)
    return topology.load(str(path))


def problems(tmp_path: Path, text: str) -> str:
    with pytest.raises(topology.ConfigError) as caught:
        load(tmp_path, text)
    return str(caught.value)


def test_entries_are_read(tmp_path: Path) -> None:
    text = """policies:
  - {users: [alice, "*"], groups: [ops], send: ["box/${user}/*"], receive: [prices]}
  - {groups: [ops], dynamic: true}
"""
    loaded = load(tmp_path, USERS + text)
    assert loaded.router_config("a").policies == (
        Policy(("alice", "*"), ("ops",), ("box/${user}/*",), ("prices",)),
        Policy((), ("ops",), dynamic=True),
    )
    assert not loaded.warnings
    assert load(tmp_path, "").settings.policies is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("policies: []", "nobody may use any address"),
        ("policies: {users: [a]}", "a list such as"),
        ("policies: [{send: [x]}]", "it is for nobody"),
        ("policies: [{users: [a]}]", "it allows nothing"),
        ("policies: [{users: [a], sent: [x]}]", 'unknown key "sent"'),
        ("policies: [{users: a, send: [x]}]", "a list of names"),
        ("policies: [{users: [''], send: [x]}]", "an empty name"),
        ('policies: [{users: ["a\\tb"], send: [x]}]', "is no name of a user: it is empty, or has characters that SASL"),
        (
            "users: {'*': {limits: {links: 1}}}",
            'users.*: "*" is nobody: it means everyone in policies alone; name each',
        ),
        ("admin: {tls: t, users: ['*']}\ntls: {t: {certificate: c}}", 'admin.users[0]: "*" is nobody'),
        ("policies: [{users: [a], send: ['']}]", "an empty address"),
        ("policies: [{users: [a], send: ['x*y']}]", "not at its end"),
        ("policies: [{users: [a], send: ['box${user}*']}]", 'what is of the user "alice"'),
        ("policies: [{users: [a], send: ['${group}']}]", "only ${user} is known"),
        ("policies: [{users: [a], send: ['${user}/${user}']}]", "more than once"),
        ("policies: [{users: [a], dynamic: perhaps}]", "true or false"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in problems(tmp_path, USERS + text)


def test_a_user_is_the_same_however_the_name_is_written(tmp_path: Path) -> None:
    text = """
policies: [{users: [JOSE], send: [x]}]
users: {JOSE: {limits: {links: 7}}}
admin: {tls: t, users: [JOSE], act: {users: [JOSE]}}
tls: {t: {certificate: c}}
addresses:
  - {match: a, subscriptions: [{container: c, name: n, user: JOSE}]}
  - {match: p, type: pipe, stores: {s: 1, t: 2}, user: JOSE}
"""
    loaded = load(tmp_path, USERS + text.replace("JOSE", "jose\u0301"))
    settings, name = loaded.settings, "jos\u00e9"
    assert settings.policies == (Policy((name,), send=("x",)),)
    assert settings.users == ((name, UserLimits(links=7)),)
    assert loaded.admin.users == loaded.admin.act_users == (name,)
    assert {owner_of(container) for each in settings.addresses for container, _ in each.subscriptions} == {name}
    twice = "users: {jose\u0301: {limits: {links: 7}}, jos\u00e9: {limits: {links: 8}}}"
    assert "is given already, written otherwise; leave one of them out" in problems(tmp_path, USERS + twice)


def test_users_that_nobody_can_be_are_warned_of(tmp_path: Path) -> None:
    loaded = load(tmp_path, 'policies: [{users: [alice, anonymous, "*"], send: [x]}]')
    assert ["no client can be user alice" in str(warning) for warning in loaded.warnings] == [True]


def test_a_declared_subscription_is_its_users(tmp_path: Path) -> None:
    text = "addresses: [{match: orders, subscriptions: [{container: c, name: n, user: alice}]}]\n"
    (address,) = load(tmp_path, USERS + text).addresses
    assert address.subscriptions == (("alice|c", "n"),)


def test_a_pipe_is_its_users_with_its_log(tmp_path: Path) -> None:
    text = "addresses: [{match: jobs, type: pipe, user: stores, stores: {s: 5981, t: 5982}}]\n"
    pipe, log = load(tmp_path, USERS + text).addresses
    assert pipe.subscriptions == (("stores|onceway-pipe:jobs", "jobs"),)
    assert log.subscriptions == (("stores|onceway-pipe:jobs:s", "log"), ("stores|onceway-pipe:jobs:t", "log"))


@pytest.mark.parametrize(
    "address",
    ["{match: orders, subscriptions: [billing]}", "{match: jobs, type: pipe, stores: {s: 5981}}"],
)
def test_a_declared_subscription_that_no_client_can_have_is_a_problem(tmp_path: Path, address: str) -> None:
    assert "is no user's" in problems(tmp_path, f"{USERS}addresses: [{address}]\n")
    load(tmp_path, f"sasl: {{users: users.json, mechanisms: [PLAIN, ANONYMOUS]}}\naddresses: [{address}]\n")


def test_a_topic_has_no_user(tmp_path: Path) -> None:
    assert "user of a topic" in problems(tmp_path, "addresses: [{match: orders, user: alice}]\n")


def test_a_changed_entry_is_named(tmp_path: Path) -> None:
    before = load(tmp_path, "")
    after = load(tmp_path, "policies: [{users: [anonymous], send: [x]}]")
    other = load(tmp_path, "policies: [{users: [anonymous], receive: [x]}]")
    assert [str(change) for change in difference(before, after)] == [
        "added policies",
        "added policy {users: [anonymous], send: [x]}",
    ]
    assert [str(change) for change in difference(after, other)] == [
        "removed policy {users: [anonymous], send: [x]}",
        "added policy {users: [anonymous], receive: [x]}",
    ]


# --- what each key lets through at a router, and what not: (entry, (user, groups, direction, address) let in, refused)
LANGUAGE = {
    "users": ("users: [alice], send: [x]", ("alice", (), "send", "x"), ("bob", ("alice",), "send", "x")),
    "groups": ("groups: [ops], send: [x]", ("bob", ("ops",), "send", "x"), ("ops", ("dev",), "send", "x")),
    "send": ("users: [alice], send: [x]", ("alice", (), "send", "x"), ("alice", (), "receive", "x")),
    "receive": ("users: [alice], receive: [x]", ("alice", (), "receive", "x"), ("alice", (), "send", "x")),
    "dynamic": ("users: [a], dynamic: true", ("a", (), "receive", None), ("b", (), "receive", None)),
    "dynamic: false": (
        "users: ['*'], send: ['*'], receive: ['*'], dynamic: false",
        ("a", (), "receive", "x"),
        ("a", (), "receive", None),
    ),
    "anonymous": ("users: [a], send: [x], anonymous: false", ("a", (), "send", "x"), ("a", (), "send", None)),
    "anonymous: true": (
        "users: [a], send: [x], anonymous: true",
        ("a", (), "send", None),
        ("a", (), "receive", None),
    ),
    "users: ['*']": ("users: ['*'], send: [x]", ("bob", (), "send", "x"), ("bob", (), "send", "y")),
    "send: ['x*']": ("users: [a], send: ['x*']", ("a", (), "send", "xy"), ("a", (), "send", "yx")),
    "send: ['*']": ("users: [a], send: ['*']", ("a", (), "send", "y"), ("a", (), "receive", "y")),
    "${user}": (
        "users: ['*'], receive: ['b/${user}/*']",
        ("a", (), "receive", "b/a/1"),
        ("a", (), "receive", "b/ab/1"),
    ),
}


@pytest.mark.parametrize("key", LANGUAGE)
def test_each_word_of_an_entry_lets_in_and_refuses(key: str, tmp_path: Path) -> None:
    entry, let_in, refused = LANGUAGE[key]
    config = load(tmp_path, f"{USERS}policies: [{{{entry}}}]\n").router_config("a")
    assert config.policies is not None
    for (user, groups, direction, address), allowed in ((let_in, True), (refused, False)):
        clients = network(*config.policies)
        client = connect(clients, user)
        client.served.connection.handshake.regroup(groups)
        if direction == "send":
            link: Link = client.sender(target=Target(address), rcv_settle_mode=RCV_FIRST)
        else:
            link = client.receiver(source=Source(address, dynamic=address is None))
        assert link.attached is allowed
        if not allowed:
            assert error(client, link)[0] == "amqp:unauthorized-access"


def test_each_key_of_an_entry_is_among_them() -> None:
    assert POLICY.by_key.keys() <= set(LANGUAGE)
