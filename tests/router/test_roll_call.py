"""Other routers vouch for a publisher that answers no echo, and a router that is drained asks for proofs in advance
(protocol 5.9, 8.8)."""

from __future__ import annotations

from router.core.ports import MapState
from tests.router.ends import PublisherEnd, SubscriberEnd
from tests.router.harness import Mesh


def silent(mesh: Mesh, router: str = "a", *, proves: bool = True) -> PublisherEnd:
    """A publisher that answers no question until it is told to."""
    publisher = mesh.publisher(router, proves=proves)
    publisher.answers = False
    return publisher


def answer(mesh: Mesh, publisher: PublisherEnd) -> None:
    publisher.answer_question()
    mesh.run()


def test_a_subscription_that_moves_waits_for_no_publisher_where_all_routers_vouch_for_it() -> None:
    mesh = Mesh("abc")
    publisher = silent(mesh)
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    publisher.send("m0")
    states = subscriber.map(MapState.ACCEPTED)
    subscriber.leave()
    publisher.send("m1")
    again = mesh.subscriber("c", epoch=2, born=1, unsettled=states)
    assert [got.body for got in again.got if got.kind == "new"] == ["m1"]
    assert publisher.told == [0, 1]
    assert publisher.questions == 0


def test_they_do_not_while_one_has_not_answered() -> None:
    mesh = Mesh("abc")
    publisher = silent(mesh)
    mesh.subscriber("b", epoch=1, born=1).leave()
    publisher.send("m0")
    mesh.held.add(("b", "a"))
    again = mesh.subscriber("c", epoch=2, born=1, unsettled={})
    assert again.bodies() == []
    late = mesh.subscriber("c", "late", epoch=2, born=1, unsettled={})
    mesh.held.clear()
    mesh.run()
    assert again.bodies() == late.bodies() == ["m0"], "the later one is served by a second call"
    assert publisher.questions == 0


def test_they_do_not_when_one_has_gone_and_the_publisher_is_asked() -> None:
    mesh = Mesh("abc")
    publisher = silent(mesh)
    mesh.subscriber("c", epoch=1, born=1).leave()
    publisher.send("m0")
    mesh.held.add(("b", "a"))
    again = mesh.subscriber("c", epoch=2, born=1, unsettled={})
    assert publisher.questions == 0
    mesh.crash("b")
    mesh.run()
    assert again.bodies() == []
    assert publisher.questions == 1
    answer(mesh, publisher)
    assert again.bodies() == ["m0"]


def restarted(names: str) -> tuple[Mesh, PublisherEnd, SubscriberEnd]:
    """A silent publisher and a subscriber at a, after another router was started again."""
    mesh = Mesh(names)
    publisher = silent(mesh)
    first = mesh.subscriber("a", epoch=1, born=1)
    mesh.crash("b")
    mesh.start("b")
    for other in names.replace("b", ""):
        mesh.join(other, "b")
    mesh.run()
    return mesh, publisher, first


def test_when_a_router_is_back_publishers_are_asked_in_advance() -> None:
    mesh, publisher, first = restarted("ab")
    assert publisher.questions == 1, "what it has proved was before"
    answer(mesh, publisher)
    first.leave()
    publisher.send("m0")
    again = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert again.bodies() == ["m0"]
    assert publisher.questions == 1


def test_a_question_that_is_open_is_enough_for_a_subscription_that_comes_meanwhile() -> None:
    """Without the other routers it would need a question of its own, after this one."""
    mesh, publisher, first = restarted("ab")
    first.leave()
    publisher.send("m0")
    again = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    assert again.bodies() == []
    answer(mesh, publisher)
    assert again.bodies() == ["m0"]
    assert publisher.questions == 1


def test_a_question_asked_in_advance_delays_nobody_when_a_router_has_gone() -> None:
    mesh, publisher, first = restarted("abc")
    mesh.crash("b")
    first.leave()
    publisher.send("m0")
    again = mesh.subscriber("c", epoch=2, born=1, unsettled={})
    assert publisher.questions == 2
    another = mesh.subscriber("c", "another", epoch=2, born=1, unsettled={})
    assert publisher.questions == 2, "something waits for this one"
    answer(mesh, publisher)
    assert again.bodies() == ["m0"]
    assert another.bodies() == []
    assert publisher.questions == 3
    answer(mesh, publisher)
    assert another.bodies() == ["m0"]


def test_a_router_that_stood_still_is_vouched_for_by_nobody() -> None:
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


def test_a_publisher_claims_without_a_second_sign_of_life_where_all_routers_vouch_for_it() -> None:
    mesh = Mesh("ab")
    publisher = silent(mesh, proves=False)
    subscriber = mesh.subscriber("b", epoch=2, born=1, unsettled={})
    publisher.core.proved(publisher, mesh.now)
    publisher.send("m0")
    assert subscriber.bodies() == ["m0"]
    assert publisher.questions == 0


def test_it_is_asked_for_one_if_a_router_goes_before_it_has_answered() -> None:
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


def test_a_single_router_vouches_for_itself() -> None:
    mesh = Mesh()
    publisher = silent(mesh)
    mesh.subscriber("a", epoch=1, born=1).leave()
    publisher.send("m0")
    assert mesh.subscriber("a", epoch=2, born=1, unsettled={}).bodies() == ["m0"]


# --- draining (protocol 8.8)


def test_a_router_that_is_drained_learns_when_the_publishers_of_others_have_proved_themselves() -> None:
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
