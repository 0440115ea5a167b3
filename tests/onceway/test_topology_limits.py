"""`limits` and `users` of a topology file: what is read, and how every problem is named."""

from __future__ import annotations

import pytest

from onceway import topology
from onceway.topology import ConfigError
from router.config import Limits, UserLimits

HEAD = "network: test\nrouters:\n  a: {amqp: 5672, interrouter: 7671, admin: 8671}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        topology.loads(text, "t.yaml")
    return [str(problem) for problem in caught.value.problems]


def test_limits_have_defaults() -> None:
    config = topology.loads(HEAD).router_config("a")
    assert config.limits == Limits()
    assert config.users == ()


def test_limits_are_those_of_every_router_and_differ_where_one_has_its_own() -> None:
    loaded = topology.loads(
        "network: test\n"
        "limits: {connections: 20, handshake_timeout: 3s, max_message_size: 1MiB}\n"
        "users:\n  guest: {limits: {connections: 2, idle_timeout: 30s, links: 5}}\n"
        "routers:\n"
        "  a: {amqp: 5672, interrouter: 7671, admin: 8671, limits: {connections: 5}}\n"
        "  b: {amqp: 5673, interrouter: 7672, admin: 8672}\n"
        "links: [a - b]\n"
    )
    a, b = (loaded.router_config(name) for name in "ab")
    assert b.limits == Limits(connections=20, handshake_timeout_s=3.0, max_message_size=1 << 20)
    assert a.limits == Limits(connections=5, handshake_timeout_s=3.0, max_message_size=1 << 20)
    assert a.users == b.users == (("guest", UserLimits(connections=2, idle_timeout_s=30.0, links=5)),)


def test_every_problem_has_its_place_and_remedy() -> None:
    text = (
        "network: test\n"
        "limits:\n"
        "  conections: 5\n"
        "  sessions: 0\n"
        "  handshake_timeout: 5\n"
        "  max_message_size: 1GiB\n"
        "users:\n"
        "  guest: {limits: {half_open: 5, links: many}}\n"
        "  other: {limit: {links: 5}}\n"
        "  third: 5\n"
        "routers:\n"
        "  a: {amqp: 5672, interrouter: 7671, admin: 8671, limits: {unread_output: 1KiB}}\n"
    )
    assert problems(text) == [
        't.yaml:3: limits: unknown key "conections"; did you mean "connections"?',
        "t.yaml:4: limits.sessions: 0 is less than 1; write a value from 1 to 65536",
        't.yaml:5: limits.handshake_timeout: "5" has no unit; did you mean 5s?',
        "t.yaml:6: limits.max_message_size: max_message_size exceeds memory_limit: such a message could never pass; "
        "raise memory_limit",
        't.yaml:8: users.guest.limits.links: "many" is no whole number; write for example 1000',
        "t.yaml:8: users.guest.limits.half_open: half_open is over before a user is known; "
        "write it under limits, or under limits of a router",
        't.yaml:9: users.other: unknown key "limit"; did you mean "limits"?',
        't.yaml:10: users.third: "5" where a mapping such as {limits: {connections: 10}} belongs; '
        "write a mapping such as {limits: {connections: 10}}",
        "t.yaml:12: routers.a.limits.unread_output: 1KiB is less than 1048576B; "
        "write a value from 1048576B to 1099511627776B",
    ]


def test_a_user_that_nobody_can_be_is_warned_of() -> None:
    users = "users:\n  guest: {limits: {connections: 2}}\n  anonymous: {limits: {connections: 3}}\n"
    (warning,) = topology.loads(HEAD + users, "t.yaml").warnings
    assert "users.guest: no client can be user guest: there is no section sasl" in str(warning)
    assert warning.remedy == "add it (docs/security.md), write anonymous, or leave it out"


@pytest.mark.parametrize("origin", ["https://localhost:21200", "http://[::1]:80", "moz-extension://s-1", "null", "*"])
def test_an_origin_has_a_scheme_a_host_and_perhaps_a_port(origin: str) -> None:
    assert topology.loads(f"{HEAD}websocket: {{origins: ['{origin}']}}\n", "t.yaml").origins == (origin,)
    assert topology.loads(f"{HEAD}websocket: {{origins: '{origin}'}}\n", "t.yaml").origins == (origin,)
