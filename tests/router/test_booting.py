"""Routers that have just started: when they answer attaches, and when they are established (protocol 4)."""

from __future__ import annotations

from router.core.reports import of_all
from tests.router.ends import answered
from tests.router.harness import Mesh


def test_discovery_ends_after_its_time() -> None:
    """Protocol 4.1.2, 4.1.3."""
    mesh = Mesh("ab", joined=False)
    subscriber = mesh.subscriber("a")
    mesh.pass_time(0.9)
    assert answered(subscriber) == [False]
    assert of_all(mesh.cores["a"])["recovering_s"] is None, "it is not known before"
    mesh.pass_time(0.2)
    assert answered(subscriber) == [True]
    assert mesh.cores["a"].recovery.established, "started with --fresh"


def test_a_deferred_attach_that_goes_away_is_forgotten() -> None:
    mesh = Mesh("ab", joined=False)
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("a")
    subscriber.leave()
    publisher.leave()
    mesh.pass_time(2.0)
    assert not subscriber.answered
    assert not publisher.answered
