"""Two processes of one publisher, each with a journal of its own: which of them may speak for what a subscriber holds.

protocol 5.5, 7.2, 7.5, 8.4, 8.5.  The later life works at b, which is cut off and dies; a knows only the earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from router.core.ports import MapState
from tests.router.ends import PublisherEnd, SubscriberEnd
from tests.router.harness import SHORT, Mesh


def later_life_at_b(mesh: Mesh) -> Mapping[bytes, MapState]:
    """The map of s, which has accepted m0 of incarnation 5 at b.  Then b dies."""
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    mesh.part("a", "b")
    later = mesh.publisher("b", epoch=5, incarnation=5)
    later.send("m0")
    assert later.accepted() == [0]
    held = subscriber.map(MapState.ACCEPTED)
    mesh.crash("b")
    return held


def resume_both(mesh: Mesh, held: Mapping[bytes, MapState]) -> tuple[PublisherEnd, SubscriberEnd]:
    earlier = mesh.publisher("a", epoch=3, incarnation=3, unsettled={})
    return earlier, mesh.subscriber("a", epoch=2, born=1, unsettled=dict(held))


def test_what_a_later_life_has_sent_is_settled_when_it_stays_away_for_too_long() -> None:
    """Protocol 8.4.7."""
    mesh = Mesh("ab", address=SHORT)
    held = later_life_at_b(mesh)
    earlier, subscriber = resume_both(mesh, held)
    earlier.send("old")
    earlier.settle(0)
    mesh.pass_time(60.0)
    assert subscriber.map(MapState.ACCEPTED) == held, "it may be at b"
    mesh.start("b")
    mesh.join("a", "b")
    mesh.run()
    earlier.answer_question()
    mesh.run()
    mesh.pass_time(20.0)
    assert subscriber.map(MapState.ACCEPTED) == held
    mesh.pass_time(3.0)  # publisher_timeout and margin
    assert earlier.condition is None
    mesh.assert_settled()
    assert mesh.cores["a"].agenda.deadline == inf


def test_an_earlier_life_that_closes_buries_nothing_of_a_later_one() -> None:
    """Protocol 8.4.3, 8.4.4."""
    mesh = Mesh("ab")
    mesh.part("a", "b")
    subscriber = mesh.subscriber("b", accepts=False)
    later = mesh.publisher("b", epoch=5, incarnation=5)
    later.send("m0")
    earlier = mesh.publisher("a", epoch=9, incarnation=3)
    mesh.held.update({("a", "b"), ("b", "a")})
    mesh.join("a", "b")
    earlier.leave(closed=True)  # before a has read who works at b
    assert mesh.pending("a", "b")[-1] == "PubClose"
    mesh.held.remove(("a", "b"))
    mesh.run()
    mesh.crash("a")
    subscriber.accept(subscriber.got[0].id)
    assert later.accepted() == [0]
    later.settle(0)
    mesh.assert_settled()


def test_limit_what_an_earlier_life_has_undecided_comes_again_where_nobody_remembers_the_later_one() -> None:
    """The later life's PUB settles it, and every router that heard of it dies (protocol 14)."""
    mesh = Mesh("ab")
    first = mesh.subscriber("b", epoch=1, born=1)
    mesh.part("a", "b")
    mesh.publisher("b", epoch=3, incarnation=3).send("m0")
    mesh.publisher("b", epoch=5, incarnation=5)
    assert first.bodies() == ["m0"]
    assert not first.unsettled()
    mesh.crash("b")
    moved = mesh.subscriber("a", epoch=2, born=1, unsettled={})
    mesh.publisher("a", epoch=7, incarnation=3, unsettled={b"m0": None}).send("m0")
    assert moved.bodies() == ["m0"]
