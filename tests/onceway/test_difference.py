"""What changes from one topology file to the next."""

from __future__ import annotations

import pytest

from onceway.base.values import format_size, read_size
from onceway.topology import ConfigError, Topology, loads
from onceway.topology.difference import difference

OLD = """
network: n
settings: {memory_limit: 512MiB}
addresses:
  - match: orders
    subscriptions: [billing]
  - match: old
routers:
  a: {amqp: 5672, interrouter: 7671, admin: 8671}
  b: {amqp: 5673, interrouter: 7672, admin: 8672}
links: [a - b]
"""


def changed(*replacements: tuple[str, str]) -> list[str]:
    new = OLD
    for before, after in replacements:
        assert before in new
        new = new.replace(before, after)
    return [str(change) for change in difference(loads(OLD), loads(new))]


def test_nothing_changes() -> None:
    assert changed() == []


@pytest.mark.parametrize(
    ("replaced", "lines"),
    [
        (("512MiB", "1GiB"), ["changed settings.memory_limit 512MiB -> 1GiB"]),
        (("match: old", "match: new"), ["removed address old", "added address new"]),
        (("match: old", "{match: old, type: queue}"), [
            "changed address old.type topic -> queue",
            "address old: queue from when all routers follow this file",
        ]),
        (("- match: old", "- {match: new, subscriptions: [{container: spark, name: lake}]}\n  - match: old"), [
            "added address new",
            "added address new.subscriptions spark lake",
        ]),
        (("[billing]", "[audit]"), [
            "removed address orders.subscriptions billing",
            "added address orders.subscriptions audit",
        ]),
        (("- match: old", "- match: old\n    subscription_timeout: 2m"), [
            "changed address old.subscription_timeout 1m -> 2m: for new links",
            "changed address old.publisher_timeout 2m -> 3m: for new links",
        ]),
        (("amqp: 5673", "amqp: 5682"), ["router b: changed amqp 127.0.0.1:5673 -> 127.0.0.1:5682: needs a restart"]),
        (("admin: 8672}", "admin: 8672, limits: {links: 5}}"), ["router b: changed limits.links 1024 -> 5"]),
        (("[a - b]", "[{between: [a, b], cost: 2}]"), ["changed link a - b: cost 1 -> 2"]),
        (("[a - b]", "[{between: [a, b], via: 9000}]"), ["changed link a - b: via (none) -> 127.0.0.1:9000"]),
        (("network: n\n", "network: n\nlimits: {connections: 5}\nusers: {anonymous: {limits: {links: 7}}}\n"), [
            "changed limits.connections 10000 -> 5",
            "changed users.anonymous.limits.links (none) -> 7",
        ]),
        (("links: [a - b]", "  c: {amqp: 5674, interrouter: 7673, admin: 8673}\nlinks: [a - b, b - c]"), [
            "added router c",
            "added link b - c",
        ]),
        (("routers:", "hostnames: [One.example, two.example]\nrouters:"), [
            "changed hostnames (none) -> one.example, two.example: for new connections",
        ]),
    ],
)  # fmt: skip
def test_a_change_is_one_line(replaced: tuple[str, str], lines: list[str]) -> None:
    assert changed(replaced) == lines


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ("heartbeat: 2s, dead_after: 20s", "by at most a factor of 3"),
        ("heartbeat: 1500ms, dead_after: 2s", None),  # the file itself is wrong
        ("dead_after: 1500ms", ""),
        ("dead_after: 1s", ""),
        ("heartbeat: 200ms, dead_after: 500ms", "would take those with heartbeat 500ms for dead"),
    ],
)
def test_timers_change_only_where_no_router_takes_another_for_dead(settings: str, why: str | None) -> None:
    if why is None:
        with pytest.raises(ValueError, match="two heartbeats"):
            changed(("memory_limit: 512MiB", settings))
        return
    new = OLD.replace("memory_limit: 512MiB", settings)
    refused = [change.refused for change in difference(loads(OLD), loads(new)) if change.refused]
    assert bool(refused) == bool(why)
    assert all(why in each for each in refused)


def test_another_network_is_refused() -> None:
    new = OLD.replace("network: n", "network: m")
    assert difference(loads(OLD), loads(new))[0].refused


@pytest.mark.parametrize("size", [0, 1, 512, 1024, 1 << 20, 3 << 29, 5 << 30, 1500])
def test_sizes_are_read_back_as_they_were_written(size: int) -> None:
    assert read_size(format_size(size)) == size


def test_trunks_change_with_a_restart_of_each_router() -> None:
    plain = OLD.replace("routers:", "tls: {x: {certificate: c, ca: d}}\nrouters:", 1)
    secure = plain.replace("routers:", "trunks: {tls: x}\nrouters:", 1)
    (change,) = difference(loads(plain), loads(secure))
    assert (str(change), change.restart) == ("changed trunks.tls off -> x: needs a restart", True)
    assert not difference(loads(plain), loads(plain.replace("routers:", "trunks: {tls: off}\nrouters:", 1)))


def test_what_needs_a_restart_is_named_until_each_router_has_had_it() -> None:
    plain = loads(OLD.replace("routers:", "tls: {x: {certificate: c, ca: d}}\nrouters:", 1))
    added = "tls: {x: {certificate: c, ca: d}}\ntrunks: {tls: x}\nadmin: {tls: x}\nrouters:"
    new = loads(OLD.replace("routers:", added, 1).replace("amqp: 5673", "amqp: 5682"))
    lines = [
        "changed trunks.tls off -> x: needs a restart",
        "changed admin.tls (none) -> x: needs a restart",
        "router b: changed amqp 127.0.0.1:5673 -> 127.0.0.1:5682: needs a restart",
    ]

    def named(**started: Topology) -> list[str]:
        return [str(each) for each in difference(new, new, started)]

    assert named(a=plain, b=plain) == lines
    assert named(a=new, b=plain) == lines
    assert named(a=plain, b=new) == lines[:2]
    assert named(a=new, b=new) == named() == []
    assert not [each for each in difference(new, plain, {"a": plain, "b": plain}) if each.restart], "it never took hold"


def test_a_hostname_is_no_url() -> None:
    with pytest.raises(ConfigError, match=r"hostnames\[0\].*no host"):
        loads(OLD.replace("routers:", "hostnames: [amqp://x]\nrouters:", 1))


def test_what_changes_in_sasl_is_said() -> None:
    plain = OLD.replace("subscriptions: [billing]", "subscriptions: [{container: billing, name: billing, user: u}]")
    old = plain.replace("routers:", "sasl: {users: u, certificates: [{from: email}]}\nrouters:", 1)
    assert [str(each) for each in difference(loads(plain), loads(old))] == ["added sasl"]
    assert [str(each) for each in difference(loads(old), loads(plain))] == ["removed sasl"]
    new = old.replace("{users: u, certificates: [{from: email}]}", "{users: v, plain_without_tls: true}")
    assert [str(each) for each in difference(loads(old), loads(new))] == [
        "changed sasl.mechanisms EXTERNAL, SCRAM-SHA-512, SCRAM-SHA-256, PLAIN -> SCRAM-SHA-512, SCRAM-SHA-256, PLAIN: "
        "for new connections",
        "changed sasl.users u -> v: for new connections",
        "changed sasl.plain_without_tls false -> true: for new connections",
        r"changed sasl.certificates from email, match (.+), user \1 -> (none): for new connections",
    ]


def test_what_changes_in_tls_is_said() -> None:
    tls = "tls: {x: {certificate: c, minimum: 1.3}}\n"
    old = OLD.replace("routers:", f"{tls}routers:", 1)
    assert [str(each) for each in difference(loads(OLD), loads(old))] == ["added tls.x"]
    assert [str(each) for each in difference(loads(old), loads(OLD))] == ["removed tls.x"]
    new = old.replace("certificate: c", "certificate: d").replace(", minimum: 1.3", "")
    assert [str(each) for each in difference(loads(old), loads(new))] == [
        "changed tls.x.certificate c -> d: for new connections",
        "changed tls.x.key c -> d: for new connections",
        "changed tls.x.minimum 1.3 -> 1.2: for new connections",
    ]
