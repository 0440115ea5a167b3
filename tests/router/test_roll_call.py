"""Other routers vouch for a publisher that answers no echo, and a router that is drained asks for proofs in advance
(protocol 5.9, 8.8)."""

from __future__ import annotations

from tests.router.ends import PublisherEnd
from tests.router.harness import Mesh


def silent(mesh: Mesh, router: str = "a", *, proves: bool = True) -> PublisherEnd:
    """A publisher that answers no question until it is told to."""
    publisher = mesh.publisher(router, proves=proves)
    publisher.answers = False
    return publisher


def answer(mesh: Mesh, publisher: PublisherEnd) -> None:
    publisher.answer_question()
    mesh.run()


def test_a_router_that_stood_still_is_vouched_for_by_nobody() -> None:
    """Protocol 5.9.1."""
    mesh = Mesh("ab")
    publisher = silent(mesh)
    mesh.subscriber("a", epoch=1, born=1).leave()
    publisher.send("m0")
    mesh.now += 10.0
    mesh.cores["a"].process_resumed(mesh.now)
    mesh.run()
    again = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert again.bodies() == []
    answer(mesh, publisher)
    assert again.bodies() == ["m0"]


def test_it_is_asked_for_one_if_a_router_goes_before_it_has_answered() -> None:
    """Protocol 5.9.4."""
    mesh = Mesh("abc")
    publisher = silent(mesh, proves=False)
    subscriber = mesh.subscriber("a", epoch=2, born=1, unsettled={})
    mesh.held.add(("b", "a"))
    publisher.core.proved(publisher, mesh.now)
    publisher.send("m0")
    assert publisher.questions == 0
    mesh.crash("b")
    mesh.run()
    assert subscriber.bodies() == []
    assert publisher.questions == 1
    answer(mesh, publisher)
    assert subscriber.bodies() == ["m0"]


# --- draining (protocol 8.8)


def test_a_router_that_is_drained_learns_when_the_publishers_of_others_have_proved_themselves() -> None:
    """Protocol 8.8.3."""
    mesh = Mesh("abc")
    publisher = silent(mesh)
    mesh.subscriber("b", epoch=1, born=1)
    mesh.crash("c")
    mesh.start("c")
    mesh.join("a", "c")
    mesh.join("b", "c")
    mesh.run()
    b = mesh.cores["b"]
    b.draining(True, mesh.now)
    assert b.roll_call.proofs_missing
    mesh.run()
    assert b.roll_call.proofs_missing
    answer(mesh, publisher)
    assert not b.roll_call.proofs_missing


def test_it_does_not_wait_for_publishers_that_leave_or_routers_that_die() -> None:
    mesh = Mesh("abc")
    publisher, another = silent(mesh), silent(mesh, "c")
    mesh.subscriber("b", epoch=1, born=1)
    for x, y in (("a", "b"), ("b", "c")):
        mesh.part(x, y)
        mesh.join(x, y)
    mesh.run()
    b = mesh.cores["b"]
    b.draining(True, mesh.now)
    mesh.run()
    assert b.roll_call.proofs_missing
    publisher.leave()
    mesh.run()
    assert b.roll_call.proofs_missing
    mesh.crash("c")
    mesh.run()
    assert not b.roll_call.proofs_missing
    assert another.questions == 1


def test_routers_tell_each_other_that_they_are_drained() -> None:
    """Protocol 8.8.1."""
    mesh = Mesh("ab")
    mesh.cores["a"].draining(True, mesh.now)
    mesh.run()
    assert list(mesh.cores["b"].roll_call.draining) == ["a"]
    mesh.part("a", "b")
    assert not mesh.cores["b"].roll_call.draining
    mesh.join("a", "b")
    mesh.run()
    assert list(mesh.cores["b"].roll_call.draining) == ["a"]
    mesh.cores["a"].draining(False, mesh.now)
    mesh.run()
    assert not mesh.cores["b"].roll_call.draining
