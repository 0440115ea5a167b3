"""A topic that becomes a queue at one router after the other (protocol 16.13)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from router.config import AddressConfig, is_queue, kinds_of
from router.core.core import Core
from router.peers.wire import decode
from tests.router.harness import SHORT, TOPIC, Mesh

QUEUE = replace(SHORT, match=TOPIC, type="queue")


def follow(mesh: Mesh, *names: str, queue: bool = True, run: bool = True) -> None:
    for name in names:
        core = mesh.cores[name]
        core.reconfigure(replace(core.config, addresses=(QUEUE,) if queue else ()), mesh.now)
    if run:
        mesh.run()


def refusals(core: Core) -> list[str]:
    return core.kinds.obstacles(replace(core.config, addresses=(QUEUE,)))


def mesh_of_topics(names: str = "ab", **config: Any) -> Mesh:
    return Mesh(names, address=SHORT, **config)


def test_the_first_entry_that_matches_says_what_an_address_is() -> None:
    entries = (AddressConfig("a.b"), AddressConfig("a.*", type="queue"), AddressConfig("*", type="pipe"))
    table = kinds_of(entries)
    assert table == (("a.b", False), ("a.*", True))
    found = [is_queue(table, each) for each in ("a.b", "a.c", "b", "_dynamic/a.c")]
    assert found == [False, True, False, False]


def test_routers_without_queues_say_nothing_of_them() -> None:
    mesh = mesh_of_topics("a", joined=False)
    mesh.start("b")
    mesh.join("a", "b")
    assert mesh.pending("a", "b") == ["Hello"]


def test_a_queue_is_served_when_all_follow() -> None:
    mesh = mesh_of_topics("abc")
    follow(mesh, "a", "b")
    refused = [mesh.publisher("c"), mesh.subscriber("a")]
    assert [each.condition for each in refused] == ["amqp:link:detach-forced"] * 2
    assert "'topic' is a queue at router a, and a topic at c" in refused[1].why
    follow(mesh, "c")
    publisher, consumer = mesh.publisher("c"), mesh.subscriber("a")
    publisher.send("m0")
    mesh.run()
    assert [got.body for got in consumer.got] == ["m0"]
    assert publisher.told == [0]
    assert all(core.addresses[TOPIC].queue is not None for core in mesh.cores.values())
    assert not any(core.kinds._changes or core.kinds._others for core in mesh.cores.values())


def test_all_at_once_is_as_good() -> None:
    mesh = mesh_of_topics("abc")
    follow(mesh, "a", "b", "c", run=False)
    assert mesh.subscriber("a", run=False).refused
    mesh.run()
    publisher, consumer = mesh.publisher("c"), mesh.subscriber("a")
    publisher.send("m0")
    mesh.run()
    assert [got.body for got in consumer.got] == ["m0"]


def test_other_addresses_notice_nothing() -> None:
    mesh = mesh_of_topics()
    subscriber = mesh.subscriber("a", address="other")
    follow(mesh, "a")
    assert mesh.cores["b"].addresses["other"].subscriptions.entries[("s", "in")].home == "a"
    assert mesh.subscriber("b", "s2", address="other").answered
    assert subscriber.ended is None


def test_an_address_in_use_cannot_become_a_queue() -> None:
    mesh = mesh_of_topics()
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("b")
    for core in mesh.cores.values():
        assert refusals(core) == [
            "address 'topic' is a queue in this file, and in use as a topic: 1 publisher (at b) and 1 subscription (at "
            "a): close them for good or wait until they are forgotten, or stop the network and start it with this file"
        ]
    subscriber.leave(closed=True)
    publisher.leave(closed=False)
    mesh.run()
    assert "1 publisher (away): close" in refusals(mesh.cores["a"])[0]
    mesh.pass_time(60.0)
    assert not refusals(mesh.cores["a"])


def test_a_declared_subscription_that_never_attached_does_not_use_it() -> None:
    declared = replace(SHORT, match=TOPIC, subscriptions=(("s", "in"),))
    mesh = mesh_of_topics(addresses=(declared,))
    assert mesh.cores["a"].addresses[TOPIC].subscriptions.entries
    assert not refusals(mesh.cores["a"])
    follow(mesh, "a", "b")
    assert not mesh.cores["a"].addresses


def test_a_router_of_the_version_before_keeps_queues_as_they_are() -> None:
    mesh = mesh_of_topics("a", joined=False)
    core = mesh.start("a")
    core.peer_up("old", mesh.now, version=4)
    assert refusals(core) == [
        "changed queues: router old is of a version that cannot change what is a queue while it runs: update it first, "
        "or stop the network and start it with this file"
    ]


def test_a_client_that_is_known_may_attach_again_where_a_router_is_apart() -> None:
    """c, with a former file, comes back: who is there goes on."""
    mesh = mesh_of_topics("abc")
    mesh.part("a", "c")
    mesh.part("b", "c")
    follow(mesh, "a", "b")
    mesh.pass_time(SHORT.recovery_s + 1.0)
    consumer = mesh.subscriber("a", expiry_policy="link-detach")
    mesh.join("a", "c")
    mesh.join("b", "c")
    mesh.run()
    consumer.leave(closed=False)
    mesh.run()
    assert mesh.subscriber("b", unsettled={}).answered
    assert mesh.subscriber("b", "new").condition == "amqp:link:detach-forced"


def test_a_router_that_is_out_of_reach_is_waited_for_until_what_it_knows_has_expired() -> None:
    mesh = mesh_of_topics("abc")
    mesh.crash("c")
    follow(mesh, "a", "b")
    refused = mesh.subscriber("a")
    assert refused.why.endswith("attach again when it has heard from c")
    mesh.pass_time(SHORT.recovery_s + 0.1)
    assert mesh.subscriber("a").answered


def test_what_was_written_before_a_change_was_read_does_not_count_after_it() -> None:
    """b becomes a queue and a topic again, while what a has written of its topic is under way."""
    mesh = mesh_of_topics()
    mesh.held.add(("a", "b"))
    subscriber = mesh.subscriber("a")
    follow(mesh, "b")
    follow(mesh, "b", queue=False)
    assert "Join" in mesh.pending("a", "b")
    mesh.cores["b"].kinds.check_invariants()
    mesh.held.clear()
    while mesh.pending("a", "b")[:1] == ["Join"]:
        mesh.cores["b"].peer_message("a", decode(mesh.wires["a", "b"].popleft()), mesh.now)
    assert TOPIC not in mesh.cores["b"].addresses
    mesh.run()
    assert subscriber.answered
    assert mesh.cores["b"].addresses[TOPIC].subscriptions.entries[("s", "in")].home == "a"
