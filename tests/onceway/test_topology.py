"""Topology files: what is read, and how every problem is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onceway import topology
from onceway.base.values import format_duration, read_duration, read_size
from onceway.topology import ConfigError

HEAD = """\
network: test
routers:
  a: {amqp: 5672, interrouter: 7671, admin: 8671}
  b: {amqp: 5673, interrouter: 7672, admin: 8672}
links:
  - a - b
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        topology.loads(text, "t.yaml")
    lines = [str(problem) for problem in caught.value.problems]
    assert str(caught.value) == "\n".join(lines)
    return lines


@pytest.mark.parametrize(
    ("name", "routers", "links"),
    [("single", 1, 0), ("pair", 2, 1), ("line", 3, 2), ("triangle", 3, 3), ("ring", 5, 5), ("mesh5", 5, 10)],
)
def test_each_topology_that_comes_along_loads(name: str, routers: int, links: int) -> None:
    loaded = topology.load(topology.shipped(name))
    assert loaded.network == name
    assert (len(loaded.routers), len(loaded.links)) == (routers, links)
    for router in loaded.routers:
        config = loaded.router_config(router)
        assert config.name == router
        assert config.routers == tuple(loaded.routers)


def test_every_topology_in_the_folder_is_one_that_is_tested() -> None:
    assert topology.shipped_names() == ["line", "mesh5", "pair", "ring", "single", "triangle"]


def test_the_architectures_example_reads_as_it_says() -> None:
    loaded = topology.load(topology.shipped("triangle"))
    assert loaded.links == (("a", "b", 1), ("b", "c", 1), ("a", "c", 2))
    assert loaded.neighbours("c") == {"b": 1, "a": 2}
    assert loaded.routers["b"]["interrouter"] == ("127.0.0.1", 7672)
    assert loaded.urls(["a", "b"]) == "amqp://127.0.0.1:5672,amqp://127.0.0.1:5673"
    orders = loaded.router_config("a").address("orders")
    assert (orders.subscription_timeout_s, orders.publisher_expires_s) == (60.0, 120.0)
    assert loaded.router_config("a").address("anything else").guarantee == "exactly-once"


def test_settings_reach_the_routers_config() -> None:
    config = topology.loads(
        HEAD + "settings: {heartbeat: 100ms, dead_after: 1s, discovery: 250ms, idle_timeout: 4s, proof_after: 500ms,\n"
        "  window_messages: 100, window_bytes: 64KiB, unsettled_window: 100_000, max_message_size: 16MiB,\n"
        "  max_frame_size: 1MiB, memory_limit: 1GiB, presettled_queue: 10, done_bytes: 0B,\n"
        "  subscription_timeout: 2s, publisher_timeout: 4s}\n"
    ).router_config("a")
    assert (config.heartbeat_s, config.dead_after_s, config.discovery_s) == (0.1, 1.0, 0.25)
    assert (config.idle_timeout_s, config.proof_after_s) == (4.0, 0.5)
    assert (config.window_messages, config.window_bytes, config.unsettled_window) == (100, 65536, 100_000)
    assert (config.max_message_size, config.max_frame_size) == (16 << 20, 1 << 20)
    assert (config.memory_limit, config.presettled_queue, config.done_bytes) == (1 << 30, 10, 0)
    assert config.address("x").subscription_timeout_s == 2.0
    assert config.address("x").publisher_expires_s == 4.0
    assert config.recovery_s == 3.0


@pytest.mark.parametrize(
    ("settings", "streams"),
    [
        ("", 1 << 20),
        ("max_message_size: 2GiB, memory_limit: 4GiB", 0),
        ("max_message_size: 4MiB, stream_above: 2MiB", 2 << 20),
    ],
)
def test_a_named_largest_message_is_the_largest_of_all(settings: str, streams: int) -> None:
    config = topology.loads(HEAD + f"settings: {{{settings}}}\n").router_config("a")
    assert config.stream_above == streams


def test_an_address_may_have_timeouts_of_its_own() -> None:
    config = topology.loads(
        HEAD + "settings: {subscription_timeout: 2s}\n"
        "addresses:\n"
        "  - {match: slow.*, subscription_timeout: 5m, max_redeliveries: 0, no_subscribers: release}\n"
        "  - {match: fast, guarantee: at-most-once}\n"
    ).router_config("a")
    assert config.address("slow.one").subscription_timeout_s == 300.0
    assert config.address("slow.one").publisher_expires_s == 360.0
    assert config.address("slow.one").max_redeliveries == 0
    assert config.address("slow.one").no_subscribers == "release"
    assert config.address("fast").subscription_timeout_s == 2.0
    assert config.address("fast").guarantee == "at-most-once"


def test_declared_subscriptions_are_container_and_link_name() -> None:
    loaded = topology.loads(
        HEAD
        + "addresses:\n- {match: orders, subscriptions: [billing, {container: spark, name: lake}]}\n"
        + "- {match: closed, subscriptions: [1], other_subscriptions: refuse}\n"
    )
    orders, closed = (loaded.router_config("a").address(name) for name in ("orders", "closed"))
    assert orders.subscriptions == (("billing", "billing"), ("spark", "lake"))
    assert orders.other_subscriptions == "allow"
    assert (closed.subscriptions, closed.other_subscriptions) == ((("1", "1"),), "refuse")
    assert loaded.router_config("a").address("else").subscriptions == ()


def test_hosts_come_from_the_port_the_router_or_the_defaults() -> None:
    loaded = topology.loads(
        "network: n\ndefaults: {host: 10.0.0.1}\n"
        "routers:\n"
        "  a: {amqp: 0.0.0.0:5670, interrouter: '[::1]:7671', admin: 8671}\n"
        "  b: {host: b.example, amqp: 5672, interrouter: 7671, admin: localhost:8671}\n"
        "links: [a - b]\ntrunks: {tls: off}\n"
    )
    assert loaded.routers["a"]["amqp"] == ("0.0.0.0", 5670)
    assert loaded.routers["a"]["interrouter"] == ("::1", 7671)
    assert loaded.routers["a"]["admin"] == ("10.0.0.1", 8671)
    assert loaded.routers["b"]["amqp"] == ("b.example", 5672)
    assert loaded.routers["b"]["admin"] == ("localhost", 8671)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "settings: {subscription_timeout: 2s, publisher_timeout: 20s}\n",
            "t.yaml:7: settings: publisher_timeout 20s is",
        ),
        ("settings: {subscription_timeout: 2s, publisher_timeout: 21s}\n", ""),
        ("settings: {idle_timeout: 116s}\n", "t.yaml:7: settings: publisher_timeout 2m is not more than publishers"),
        ("addresses: [{match: x, subscription_timeout: 2s, publisher_timeout: 9s}]\n", "t.yaml:7: addresses[0]: publ"),
        ("addresses: [{match: x, subscription_timeout: 2s}]\nsettings: {idle_timeout: 50s}\n", ""),
        (
            "limits: {idle_timeout: 5m}\n",
            "t.yaml:1: publisher_timeout 2m is not more than publishers without epochs may",
        ),
        (
            "users: {anonymous: {limits: {idle_timeout: 5m}}}\n",
            "t.yaml:1: publisher_timeout 2m is not more than publishers",
        ),
    ],
)
def test_a_publisher_timeout_in_which_plain_publishers_cannot_show_that_they_live_is_warned_of(
    text: str, expected: str
) -> None:
    warnings = topology.loads(HEAD + text, "t.yaml").warnings
    assert len(warnings) == bool(expected)
    for warning in warnings:
        assert str(warning).startswith(expected)
        assert warning.remedy.startswith("make publisher_timeout several times ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("addresses: [{match: /a}, {match: a}]\n", "addresses: /a is an address of its own, as it stands here: else"),
        ("addresses: [{match: /a/*}, {match: a*}]\n", "addresses: /a/… is an address of its own"),
        ("addresses: [{match: a/*}, {match: '*'}]\n", ""),
        ("addresses: [{match: '*', no_subscribers: accept}]\nmqtt: {topics: {'#': /a}}\n", "mqtt: /a is an address of"),
        ("addresses: [{match: /a}]\nsettings: {strip_addresses: false}\n", ""),
        ("policies: [{users: ['*'], send: [/a], receive: [a]}]\n", "policies: /a allows no client of AMQP anything: "),
        ("policies: [{users: ['*'], send: [/a]}]\naddresses: [{match: /a}]\n", "addresses: /a is an address"),
    ],
)
def test_a_file_in_which_names_stand_whole_is_warned_of(text: str, expected: str) -> None:
    """Protocol 1.13: what clients of AMQP say means what is left of it."""
    found = [str(each) for each in topology.loads(HEAD + text, "t.yaml").warnings]
    assert len(found) == bool(expected)
    assert all(f": {expected}" in each for each in found), found


def test_a_link_may_be_dialled_elsewhere_than_at_the_neighbour() -> None:
    read = topology.loads(
        "network: n\n"
        "routers: {a: {amqp: 1, interrouter: 2, admin: 3}, b: {amqp: 4, interrouter: 5, admin: 6},"
        " c: {amqp: 7, interrouter: 8, admin: 9}}\n"
        "links: [{between: [b, a], via: 'proxy:77'}, b - c]\n"
    )
    assert read.dialled("a", "b") == ("proxy", 77)
    assert read.dialled("b", "c") == ("127.0.0.1", 8)


def test_names_that_yaml_takes_for_other_types_stay_names() -> None:
    loaded = topology.loads(
        "network: on\nrouters:\n"
        "  no: {amqp: 5672, interrouter: 7671, admin: 8671}\n"
        "  1: {amqp: 5673, interrouter: 7672, admin: 8672}\n"
        "links: [no - 1]\n"
    )
    assert list(loaded.routers) == ["no", "1"]
    assert loaded.links == (("no", "1", 1),)


def test_all_problems_of_a_file_come_at_once_in_its_order() -> None:
    assert problems(
        "netwrk: x\n"
        "\n"
        "addresses:\n"
        "  - {match: orders, guarantee: exactly-onec, subscription_timeout: 60}\n"
        "routers:\n"
        "  alpha: {amqp: 5672, interrouter: 5672, admin: 70000}\n"
        "  beta: {amqp: 5673, interrouter: 7672}\n"
        "links:\n"
        "  - alpha - betta\n"
        "  - {between: [alpha], cost: 2}\n"
    ) == [
        't.yaml:1: unknown key "netwrk"; did you mean "network"?',
        "t.yaml:1: network is missing; add network: ...",
        't.yaml:4: addresses[0].guarantee: no such choice: "exactly-onec"; did you mean "exactly-once"?',
        't.yaml:4: addresses[0].subscription_timeout: "60" has no unit; did you mean 60s?',
        't.yaml:6: routers.alpha.admin: "70000" is no port; ports are 1 to 65535',
        "t.yaml:6: routers.alpha.interrouter: 127.0.0.1:5672 is taken by routers.alpha.amqp (line 6); "
        "give each listener a port of its own",
        "t.yaml:7: routers.beta: admin is missing; add admin: ...",
        't.yaml:9: links[0]: no router "betta"; did you mean "beta"?',
        "t.yaml:10: links[1].between: 1 routers; a link is between two: between: [a, b]",
    ]


RULE = "sasl: {certificates: [{from: dns, match: '%s'}]}\n"
TOKENS = "sasl: {tokens: {keys: '%s', issuer: i, audience: a}}\n"


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        ("network: again\n", "t.yaml:7: network: given twice, first in line 1; leave one of them out"),
        ("colour: red\n", 't.yaml:7: unknown key "colour"; known are network'),
        ("<<: {}\n", 't.yaml:7: unknown key "<<"; write the keys out, merging is not read here'),
        ("users: {<<: {}}\n", 't.yaml:7: users: unknown key "<<"; write the keys out, merging is not read here'),
        ("? [a]\n: 1\n", "t.yaml:7: a list as a key; keys are plain words"),
        ("hostnames: [!ENV HOST]\n", "t.yaml:7: hostnames[0]: the tag !ENV means nothing here; write the value itself"),
        ("hostnames: [!!binary abcd]\n", "t.yaml:7: hostnames[0]: the tag !!binary means nothing here"),
        ('addresses: [{match: "a\\0"}]\n', "t.yaml:7: addresses[0].match: a character that is none; write the"),
        ('addresses: [{match: "\\ud83d"}]\n', "t.yaml:7: addresses[0].match: a character that is none; write the"),
        ("tls: {off: {certificate: a}}\n", 't.yaml:7: tls.off: "off" as the name of a profile; choose another name'),
        ("tls: {'': {certificate: a}}\n", 't.yaml:7: tls.: "" as the name of a profile; choose another name'),
        (RULE % "x{99999999999}", "t.yaml:7: sasl.certificates[0].match: x{99999999999} is no regular expression"),
        (RULE % ("(" * 5000 + ")" * 5000), "t.yaml:7: sasl.certificates[0].match: (((("),
        (TOKENS % "https://[::1", 't.yaml:7: sasl.tokens.keys: "https://[::1" is no URL: Invalid IPv6 URL; write for'),
        (TOKENS % "https://", 't.yaml:7: sasl.tokens.keys: "https://" is no URL: it has no host'),
        (TOKENS % "https://id:70000", 't.yaml:7: sasl.tokens.keys: "https://id:70000" is no URL: Port out of range'),
        (
            "addresses: [{match: p.*}, {match: p, type: pipe, stores: {s: 1, t: 2}}]\n",
            't.yaml:7: addresses[1]: never used: addresses[0] ("p.*") takes all that "p.log" matches; the first match',
        ),
        ("settings: {heartbeat: fast}\n", 't.yaml:7: settings.heartbeat: "fast" is no duration; write for example'),
        ("settings: {heartbeat: 5parsec}\n", 't.yaml:7: settings.heartbeat: "5parsec" has no known unit; units are'),
        ("settings: {heartbeat: 2s}\n", "t.yaml:7: settings.heartbeat: dead_after 3s leaves no room for two"),
        ("settings: {heartbeat: 1ms}\n", "t.yaml:7: settings.heartbeat: 1ms is less than 10ms; write a value from"),
        (
            "settings: {window_bytes: 8MB}\n",
            't.yaml:7: settings.window_bytes: "8MB" has no known unit; did you mean 8MiB?',
        ),
        ("settings: {window_bytes: 8}\n", 't.yaml:7: settings.window_bytes: "8" has no unit; write B, KiB'),
        ("settings: {max_frame_size: 100B}\n", "t.yaml:7: settings.max_frame_size: 100B is less than 512B"),
        ("settings: {window_messages: -70}\n", "t.yaml:7: settings.window_messages: -70 is less than 1; write a value"),
        ("settings: {window_messages: ten}\n", 't.yaml:7: settings.window_messages: "ten" is no whole number'),
        ("settings: {window_messages: 1__0}\n", 't.yaml:7: settings.window_messages: "1__0" is no whole number'),
        (
            "settings: {window_messages: []}\n",
            "t.yaml:7: settings.window_messages: a list where a whole number belongs",
        ),
        ("settings: {window_messages: }\n", "t.yaml:7: settings.window_messages: nothing where a whole number belongs"),
        ("settings: 5\n", 't.yaml:7: settings: "5" where a mapping of settings belongs'),
        (
            "settings: {publisher_timeout: 60s}\n",
            "t.yaml:7: settings.publisher_timeout: publisher_timeout 1m must exceed subscription_timeout + 2 margin = 70s;"
            " make publisher_timeout more than 70s, or leave it out for 2m",
        ),
        (
            "addresses: [{match: x, subscription_timeout: 2s, publisher_timeout: 3s}]\n",
            "t.yaml:7: addresses[0].publisher_timeout: publisher_timeout 3s must exceed subscription_timeout + 2 margin = 3s",
        ),
        ("addresses: [{type: topic}]\n", "t.yaml:7: addresses[0]: match is missing; add match: ..."),
        (
            "addresses: [{match: x, type: queue, subscriptions: [y]}]\n",
            "t.yaml:7: addresses[0].subscriptions: subscriptions of a queue; leave the line out",
        ),
        (
            "addresses: [{match: x, priority: true}]\n",
            "t.yaml:7: addresses[0].priority: only a queue has priorities; write type: queue, or leave the line out",
        ),
        (
            "addresses: [{match: x, type: queue, guarantee: at-most-once}]\n",
            "t.yaml:7: addresses[0].guarantee: a queue that is at-most-once; write at-least-once or exactly-once",
        ),
        (
            "addresses: [{match: x, type: queue, no_subscribers: accept}]\n",
            "t.yaml:7: addresses[0].no_subscribers: a queue that accepts for nobody; write hold or release",
        ),
        (
            "addresses: [{match: x, type: pipe}]\n",
            "t.yaml:7: addresses[0]: a pipe without stores; add stores: a mapping",
        ),
        (
            "addresses: [{match: x, stores: {a: 1}}]\n",
            "t.yaml:7: addresses[0].stores: stores of a topic; write type: pipe",
        ),
        (
            "addresses: [{match: 'x*', type: pipe, stores: {a: 1}}]\n",
            't.yaml:7: addresses[0].match: a pipe "x*", which matches many addresses; give each pipe',
        ),
        (
            "addresses: [{match: x, type: pipe, stores: {a: 1, b: 1}}]\n",
            "t.yaml:7: addresses[0].stores.b: 127.0.0.1:1 is taken by a; give each store a port of its own",
        ),
        (
            "addresses: [{match: x, type: pipe, stores: {a: 1}, subscriptions: [y]}]\n",
            "t.yaml:7: addresses[0].subscriptions: subscriptions of a pipe; leave the line out",
        ),
        (
            "addresses: [{match: x, type: pipe, stores: {a: 1}, store_data: {b: /b}}]\n",
            't.yaml:7: addresses[0].store_data.b: no store "b"; stores are a',
        ),
        (
            "addresses: [{match: x, type: pipe, stores: {a: 1}, store_data: {a: b/c}}]\n",
            't.yaml:7: addresses[0].store_data.a: "b/c" as the place of data; write an absolute path, or postgresql://...',
        ),
        (
            "addresses: [{match: x, type: pipe, stores: {a: 1}, store_data: {a: 'postgresql://u:secret@h/x'}}]\n",
            "t.yaml:7: addresses[0].store_data.a: a password in the URL of a database; PostgreSQL's clients read",
        ),
        (
            "addresses: [{match: x, type: pipe, stores: {a: 1}, store_metrics: {b: 2}}]\n",
            't.yaml:7: addresses[0].store_metrics.b: no store "b"; stores are a',
        ),
        (
            "addresses: [{match: x, type: pipe, stores: {a: 1}, retention: {age: 72}}]\n",
            't.yaml:7: addresses[0].retention.age: "72" has no unit; did you mean 72s?',
        ),
        (
            "addresses: [{match: x, type: pipe, stores: {a: 1}, retention: {size: 1MiB}}]\n",
            "t.yaml:7: addresses[0].retention.size: 1MiB is less than 16777216B; ",
        ),
        (
            "addresses: [{match: x, type: pipe, stores: {a: 1}, retention: {}}]\n",
            "t.yaml:7: addresses[0].retention: a retention of nothing; write",
        ),
        (
            "addresses: [{match: x, retention: {age: 72h}}]\n",
            "t.yaml:7: addresses[0].retention: retention of a topic; write type: pipe",
        ),
        ("addresses: [{match: _mqtt/share*}]\n", 't.yaml:7: addresses[0].match: "_mqtt/share*" holds for nothing: '),
        ("addresses: [{match: 'a*b'}]\n", 't.yaml:7: addresses[0].match: "a*b" has a * that is not at its end'),
        (
            "addresses: [{match: 'a*'}, {match: ab}]\n",
            't.yaml:7: addresses[1]: never used: addresses[0] ("a*") takes all',
        ),
        ("addresses: {match: x}\n", "t.yaml:7: addresses: a mapping where a list of addresses"),
        ("on_partition: continue\n", 't.yaml:7: unknown key "on_partition"; known are network'),
        (
            "addresses: [{match: 'a*', subscriptions: [x]}]\n",
            't.yaml:7: addresses[0].subscriptions: subscriptions of "a*", which matches many addresses; give each',
        ),
        (
            "addresses: [{match: a, other_subscriptions: refuse}]\n",
            "t.yaml:7: addresses[0].other_subscriptions: refuse without subscriptions: nobody could subscribe; add",
        ),
        (
            "addresses: [{match: a, other_subscriptions: maybe}]\n",
            't.yaml:7: addresses[0].other_subscriptions: no such choice: "maybe"; choices are allow, refuse',
        ),
        (
            "addresses: [{match: a, subscriptions: billing}]\n",
            't.yaml:7: addresses[0].subscriptions: "billing" where a list of subscriptions such as [billing,',
        ),
        (
            "addresses:\n- match: a\n  subscriptions:\n  - x\n  - {container: x, name: x}\n",
            't.yaml:11: addresses[0].subscriptions[1]: container "x", link "x" is given already, in line 10; leave one',
        ),
        (
            "addresses: [{match: a, subscriptions: ['']}]\n",
            "t.yaml:7: addresses[0].subscriptions[0]: an empty name; write the container-id and the link name",
        ),
        (
            "addresses: [{match: a, subscriptions: [{container: c, name: ''}]}]\n",
            "t.yaml:7: addresses[0].subscriptions[0].name: an empty name; write the container-id and the link name",
        ),
        (
            "addresses: [{match: a, subscriptions: [{container: c}]}]\n",
            "t.yaml:7: addresses[0].subscriptions[0]: name is missing; add name: ...",
        ),
        (
            "addresses: [{match: a, subscriptions: [{link: c, container: c, name: c}]}]\n",
            't.yaml:7: addresses[0].subscriptions[0]: unknown key "link"; known are container, name',
        ),
        (
            "addresses: [{match: a, subscriptions: [~]}]\n",
            "t.yaml:7: addresses[0].subscriptions[0]: nothing where a name, or {container: spark, name: lake} belongs",
        ),
        (
            "addresses: [{match: a, subscriptions: [[x, y]]}]\n",
            "t.yaml:7: addresses[0].subscriptions[0]: a list where a name, or a mapping such as {container: spark,",
        ),
        (
            f"addresses: [{{match: a, subscriptions: [{'é' * 513}]}}]\n",
            "t.yaml:7: addresses[0].subscriptions[0]: a name of 1026 bytes; container-ids and link names have at most",
        ),
        ("defaults: {hots: x}\n", 't.yaml:7: defaults: unknown key "hots"; did you mean "host"?'),
    ],
)
def test_a_problem_is_named_with_line_place_and_remedy(added: str, expected: str) -> None:
    lines = problems(HEAD + added)
    assert len(lines) == 1
    assert lines[0].startswith(expected)


def test_what_json_writes_as_two_halves_is_one_character() -> None:
    routers = {"a": {"amqp": 1, "interrouter": 2, "admin": 3}}
    text = json.dumps({"network": "n", "routers": routers, "addresses": [{"match": "\U0001f980"}]})
    assert "\\ud83e" in text
    assert topology.loads(text).router_config("a").addresses[0].match == "\U0001f980"


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ("[]", "t.yaml:5: links: the network falls apart into a | b | c; add a link, for example: a - b"),
        ("[a - c]", "t.yaml:5: links: the network falls apart into a, c | b; add a link, for example: a - b"),
        ("[a - b, b - c, b - a]", "t.yaml:5: links[2]: b - a is given already, in line 5; leave one of them out"),
        ("[a - b, b - c, c - c]", "t.yaml:5: links[2]: a link from c to itself; a link is between two routers"),
        ("[a-b, b - c]", 't.yaml:5: links[0]: "a-b" is no link; write two routers as: a - b'),
        (
            "[a - b, {between: [b, c], cost: 0}]",
            "t.yaml:5: links[1].cost: 0 is less than 1; write a value from 1 to 1048576",
        ),
        ("[a - b, {between: [b, e]}]", 't.yaml:5: links[1].between[1]: no router "e"; routers are a, b, c'),
        ("[a - b, {between: [b, c], via: x}]", 't.yaml:5: links[1].via: "x" is no port; ports are 1 to 65535'),
        ("[a - b, {cost: 2}]", "t.yaml:5: links[1]: between is missing; add between: ..."),
    ],
)
def test_links_must_join_the_routers_into_one_network(links: str, expected: str) -> None:
    text = (
        "network: n\n"
        "routers: {a: {amqp: 1, interrouter: 2, admin: 3},\n"
        "  b: {amqp: 4, interrouter: 5, admin: 6},\n"
        "  c: {amqp: 7, interrouter: 8, admin: 9}}\n"
        f"links: {links}\n"
    )
    assert problems(text) == [expected]


def test_several_routers_without_any_links_fall_apart() -> None:
    text = "network: n\nrouters:\n  a: {amqp: 1, interrouter: 2, admin: 3}\n  b: {amqp: 4, interrouter: 5, admin: 6}\n"
    assert problems(text) == [
        "t.yaml:3: links: the network falls apart into a | b; add a link, for example: a - b",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("5672", "localhost:5672"),
        ("0.0.0.0:5672", "10.1.1.1:5672"),
        ("'[::]:5672'", "5672"),
        ("Host:5672", "host:5672"),
    ],
)
def test_listeners_on_one_port_clash_unless_their_hosts_differ(one: str, other: str) -> None:
    text = f"network: n\nrouters: {{a: {{amqp: {one}, interrouter: 2, admin: {other}}}}}\n"
    assert "is taken by routers.a.amqp (line 2)" in problems(text)[0]


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        (
            "{amqp: '127.0.0.1:5672', interrouter: '10.0.0.1:7671'}",
            "{amqp: '127.0.0.1:5672', interrouter: '10.0.0.2:7671'}",
            "",
        ),
        (
            "{amqp: '0.0.0.0:5672', interrouter: '10.0.0.1:7671'}",
            "{amqp: '[::]:5672', interrouter: 'b.example:7671'}",
            "",
        ),
        (
            "{amqp: '0.0.0.0:5672', interrouter: '10.0.0.1:7671'}",
            "{amqp: '10.0.0.2:5672', interrouter: '10.0.0.2:7671'}",
            "",
        ),
        (
            "{amqp: '10.0.0.1:5672', interrouter: '10.0.0.1:7671'}",
            "{amqp: '10.0.0.1:5672', interrouter: '10.0.0.2:7671'}",
            "amqp",
        ),
        (
            "{amqp: '127.0.0.1:5672', interrouter: '10.0.0.1:7671'}",
            "{amqp: '127.0.0.1:5672', interrouter: '10.0.0.1:7672'}",
            "amqp",
        ),
        ("{amqp: '127.0.0.1:5672', interrouter: 7671}", "{amqp: 'localhost:5672', interrouter: 7672}", "amqp"),
    ],
)
def test_a_place_that_every_machine_has_is_taken_on_its_own_machine_only(one: str, other: str, clash: str) -> None:
    """By loopback or on every interface; a machine is the host by which the other routers reach one."""
    routers = f"  a: {one[:-1]}, admin: 8671}}\n  b: {other[:-1]}, admin: 8672}}\n"
    text = f"network: n\nrouters:\n{routers}links: [a - b]\ntrunks: {{tls: off}}\n"
    if not clash:
        assert len(topology.loads(text).routers) == 2
        return
    (said,) = problems(text)
    assert f"is taken by routers.a.{clash}" in said


def test_a_place_that_is_none_is_said_once() -> None:
    for wrong in ("{x: 1}", "[1]", "a:b:c"):
        (said,) = problems(f"network: n\nrouters: {{a: {{amqp: 1, interrouter: {wrong}, admin: 3}}}}\n")
        assert said.startswith("t.yaml:2: routers.a.interrouter: ")


def test_the_same_port_on_two_hosts_is_no_clash() -> None:
    loaded = topology.loads("network: n\nrouters: {a: {amqp: 'x:5672', interrouter: 'y:5672', admin: 1}}\n")
    assert loaded.routers["a"]["interrouter"] == ("y", 5672)


LONG = "a" * 64  # a label has 63 octets at most


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        ("0", '"0" is no port; ports are 1 to 65535'),
        ("http", '"http" is no port'),
        ("'::1:80'", '"::1:80" is ambiguous; write [::1]:80'),
        ("':80'", '":80" has no host; write 80, or host:80'),
        ("'a b:80'", '"a b" is no host'),
        ("'a..b:80'", '"a..b" is no host'),
        ("'.a:80'", '".a" is no host'),
        (f"'{LONG}.org:80'", f'"{LONG}.org" is no host'),
        ("", "nothing where a port, or host:port belongs"),
    ],
)
def test_a_listener_that_cannot_be_read_is_named(port: str, expected: str) -> None:
    lines = problems(f"network: n\nrouters:\n  a:\n    amqp: {port}\n    interrouter: 2\n    admin: 3\n")
    assert lines[0].startswith(f"t.yaml:4: routers.a.amqp: {expected}")


def test_a_neighbour_cannot_connect_to_a_wildcard() -> None:
    lines = problems("network: n\nrouters: {a: {amqp: 1, interrouter: '0.0.0.0:2', admin: 3}}\n")
    assert lines[0].startswith(
        "t.yaml:2: routers.a.interrouter: 0.0.0.0:2 is no address that a neighbour can connect to"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "t.yaml:1: the file is empty"),
        ("- a\n", "t.yaml:1: a list where a mapping with network, routers and links belongs"),
        ("network: [\n", "t.yaml:2: not YAML: "),
        ("a: b: c\n", "t.yaml:1: not YAML: mapping values are not allowed here"),
        ("network: a\n---\nnetwork: b\n", "t.yaml:2: not YAML: expected a single document"),
        ("network: *x\n", "t.yaml:1: not YAML: found undefined alias"),
        ("network: n\nrouters: {}\n", "t.yaml:2: routers: there are no routers"),
        ("network: 'a b'\nrouters: {}\n", 't.yaml:1: network: "a b" is no name'),
        (
            "network: n\nrouters: {supervisor: {}}\n",
            't.yaml:2: routers.supervisor: "supervisor" is the name of a supervisor; choose another name',
        ),
    ],
)
def test_what_is_no_topology_at_all_is_said_so(text: str, expected: str) -> None:
    assert problems(text)[0].startswith(expected)


def test_bytes_that_are_not_utf8_are_a_problem_of_the_file() -> None:
    with pytest.raises(ConfigError, match=r"bad.yaml:2: not YAML: the byte 0xff is .*; save the file as UTF-8 text"):
        topology.loads(b"network: n\nlinks: \xff\xfe\n", "bad.yaml")
    with pytest.raises(ConfigError, match=r"bad.yaml:1: not YAML: .*; save the file as UTF-8 text"):
        topology.loads("network: n\n".encode("utf-16"), "bad.yaml")


def test_a_file_that_cannot_be_read_is_named_with_what_could_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.yaml: cannot be read \(No such file or directory\); .* triangle"):
        topology.load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"cannot be read \(Is a directory\)"):
        topology.load(tmp_path)


def test_who_may_not_read_a_topology_file_is_told_who_could(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path) -> bytes:  # root may read all
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(ConfigError, match=r"n.yaml: cannot be read \(Permission denied\); let user [^;]* read it"):
        topology.load(tmp_path / "n.yaml")


def test_a_shipped_topology_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match="there are line, mesh5, pair, ring, single, triangle"):
        topology.shipped("star")


def test_a_routers_config_is_only_given_to_a_router_of_the_file() -> None:
    with pytest.raises(KeyError):
        topology.loads(HEAD).router_config("z")


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("60s", 60.0), ("5m", 300.0), ("1h", 3600.0), ("1.5s", 1.5), ("0s", 0.0)]
)
def test_durations_are_read_and_written_alike(text: str, seconds: float) -> None:
    assert read_duration(text) == seconds
    assert read_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "size"), [("512B", 512), ("64KiB", 65_536), ("1.5MiB", 1_572_864), ("1 GiB", 1 << 30)]
)
def test_sizes_are_read_in_bytes(text: str, size: int) -> None:
    assert read_size(text) == size


def test_the_digest_that_routers_compare_is_that_of_the_release_before() -> None:
    """Else a rolling upgrade would say that files differ. 0.9.0 makes these numbers of these files."""
    assert topology.load(topology.shipped("triangle")).digest == 1481964442657066642
    assert topology.load(topology.shipped("mesh5")).digest == 535129993131929444
