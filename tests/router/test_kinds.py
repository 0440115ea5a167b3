"""A topic that becomes a queue at one router after the other (protocol 16.13)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from router.config import AddressConfig, is_queue, kinds_of
from router.core.core import Core
from tests.router.harness import SHORT, TOPIC, Mesh

QUEUE = replace(SHORT, match=TOPIC, type="queue")


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
    """Protocol 16.13.1."""
    mesh = mesh_of_topics("a", joined=False)
    mesh.start("b")
    mesh.join("a", "b")
    assert mesh.pending("a", "b") == ["Hello"]


def test_an_address_in_use_cannot_become_a_queue() -> None:
    """Protocol 16.13.6."""
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
    """Protocol 16.13.6."""
    declared = replace(SHORT, match=TOPIC, subscriptions=(("s", "in"),))
    mesh = mesh_of_topics(addresses=(declared,))
    assert mesh.cores["a"].addresses[TOPIC].subscriptions.entries
    assert not refusals(mesh.cores["a"])
    for core in mesh.cores.values():
        core.reconfigure(replace(core.config, addresses=(QUEUE,)), mesh.now)
    mesh.run()
    assert not mesh.cores["a"].addresses
