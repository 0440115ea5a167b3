"""Routers that have just started: when they answer attaches, and when they are established (protocol 4)."""

from __future__ import annotations

import pytest

from router.core.reports import of_all
from router.names import PUBLISHER_UNKNOWN
from tests.router.ends import answered
from tests.router.harness import SHORT, Mesh, undecided


def test_attaches_wait_until_the_router_has_heard_of_all_others() -> None:
    mesh = Mesh("ab", joined=False)
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("a")
    assert answered(subscriber) == [False]
    assert answered(publisher) == [False]
    mesh.join("a", "b")
    mesh.run()
    assert answered(subscriber) == [True]
    assert publisher.answered


def test_discovery_ends_after_its_time() -> None:
    mesh = Mesh("ab", joined=False)
    subscriber = mesh.subscriber("a")
    mesh.pass_time(0.9)
    assert answered(subscriber) == [False]
    assert of_all(mesh.cores["a"])["recovering_s"] is None, "it is not known before"
    mesh.pass_time(0.2)
    assert answered(subscriber) == [True]
    assert mesh.cores["a"].established, "started with --fresh"


def test_a_deferred_attach_that_goes_away_is_forgotten() -> None:
    mesh = Mesh("ab", joined=False)
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("a")
    subscriber.leave()
    publisher.leave()
    mesh.pass_time(2.0)
    assert not subscriber.answered
    assert not publisher.answered


def test_when_all_routers_died_nothing_is_accepted_before_every_subscription_could_be_back() -> None:
    mesh = Mesh("ab", fresh=False, address=SHORT)
    publisher = mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0"))
    mesh.subscriber("b", "s0")
    publisher.send("m0")
    assert publisher.told == []
    assert of_all(mesh.cores["a"])["recovering_s"] == pytest.approx(12.0)
    back = mesh.subscriber("b", "s1", epoch=2, born=1, unsettled={})
    assert back.answered
    assert back.bodies() == ["m0"]
    mesh.pass_time(11.9)
    assert publisher.told == []
    mesh.pass_time(0.2)
    assert publisher.told == [0]


def test_a_map_of_an_unknown_publisher_waits_until_the_router_is_established() -> None:
    mesh = Mesh("ab", fresh=False, address=SHORT)
    publisher = mesh.publisher("a", unsettled=undecided("m0"))
    assert not publisher.answered
    mesh.pass_time(12.5)
    assert publisher.condition == PUBLISHER_UNKNOWN


def test_a_restarted_router_learns_orphans_and_is_established_at_once() -> None:
    mesh = Mesh("abc")
    mesh.subscriber("c", epoch=1, born=1)
    mesh.crash("c")
    mesh.crash("a")
    mesh.start("a")
    mesh.join("a", "b")
    mesh.run()
    assert mesh.cores["a"].established, "b is, and names nobody else"
    publisher = mesh.publisher("a")
    publisher.send("m0")
    assert publisher.told == []
    back = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert back.bodies() == ["m0"]
    assert publisher.told == [0]


def test_a_fresh_router_beside_established_ones_learns_from_them() -> None:
    mesh = Mesh("abc")
    away = mesh.subscriber("a", epoch=1, born=1)
    away.leave()
    mesh.crash("c")
    mesh.start("c", fresh=True)
    mesh.join("b", "c")
    mesh.run()
    mesh.pass_time(1.1)
    assert not mesh.cores["c"].established, "a has not said HELLO"
    mesh.join("a", "c")
    mesh.run()
    assert mesh.cores["c"].established
    mesh.publisher("c").send("m0")
    assert mesh.subscriber("b", epoch=2, born=1, unsettled={}).bodies() == ["m0"]
