"""The links of one container-id, as any router knows them: their data, and how these change (protocol 7.10)."""

from __future__ import annotations

from router.core.containers import change_data, knows_publisher, subscriptions_of
from router.core.ports import UNIQUE_TAGS
from tests.router.harness import Mesh


def known(mesh: Mesh, router: str, container: str = "s") -> list[tuple[str, bytes, str | None]]:
    return [(each.name, each.data, each.home) for each in subscriptions_of(mesh.cores[router], container, "in")]


def test_every_router_knows_the_data_of_a_subscription() -> None:
    """Protocol 7.10.1."""
    mesh = Mesh("abc")
    subscriber = mesh.subscriber("a", data=b"one")
    mesh.subscriber("a", "other")
    assert [known(mesh, router) for router in "abc"] == [[("in", b"one", "a")]] * 3
    subscriber.leave()
    assert known(mesh, "b") == [("in", b"one", None)]


def test_a_change_of_data_is_complete_when_every_router_in_session_has_it() -> None:
    """Protocol 7.10.2."""
    mesh = Mesh("abc")
    subscriber = mesh.subscriber("a", data=b"one")
    done: list[int] = []
    mesh.held.add(("a", "c"))
    change_data(subscriber.core, subscriber, b"two", lambda: done.append(1), mesh.now)
    mesh.run()
    assert (done, known(mesh, "b"), known(mesh, "c")) == ([], [("in", b"two", "a")], [("in", b"one", "a")])
    mesh.held.clear()
    mesh.run()
    assert (done, known(mesh, "c")) == ([1], [("in", b"two", "a")])


def test_a_change_of_data_does_not_wait_for_a_router_that_has_gone() -> None:
    """Protocol 7.10.2."""
    mesh = Mesh("abc")
    subscriber = mesh.subscriber("a")
    done: list[int] = []
    mesh.held.add(("a", "c"))
    change_data(subscriber.core, subscriber, b"two", lambda: done.append(1), mesh.now)
    mesh.run()
    mesh.crash("c")
    mesh.run()
    assert done == [1]


def test_a_router_that_starts_learns_data_by_hello_and_a_later_one_by_join() -> None:
    mesh = Mesh("abc")
    subscriber = mesh.subscriber("a", data=b"one")
    mesh.crash("c")
    change_data(subscriber.core, subscriber, b"two", lambda: None, mesh.now)
    mesh.run()
    mesh.part("a", "b")
    mesh.start("c")
    mesh.join("b", "c")  # b knows it as an orphan by now
    mesh.run()
    assert known(mesh, "c") == [("in", b"two", None)]
    change_data(subscriber.core, subscriber, b"three", lambda: None, mesh.now)
    mesh.join("a", "b")
    mesh.join("a", "c")
    mesh.run()
    assert known(mesh, "b") == known(mesh, "c") == [("in", b"three", "a")]


def test_data_of_an_earlier_attachment_change_nothing() -> None:
    """Protocol 7.10.2."""
    mesh = Mesh("abc")
    subscriber = mesh.subscriber("a", data=b"one")
    done: list[int] = []
    mesh.held.add(("a", "c"))
    change_data(subscriber.core, subscriber, b"late", lambda: done.append(1), mesh.now)
    mesh.run()
    mesh.subscriber("b", data=b"two")
    mesh.held.clear()
    mesh.run()
    assert [known(mesh, router) for router in "abc"] == [[("in", b"two", "b")]] * 3
    assert done == [], "it is attached elsewhere"


def test_a_publisher_is_known_everywhere_until_it_closes() -> None:
    mesh = Mesh("ab")
    publisher = mesh.publisher("a", unsettled=UNIQUE_TAGS)
    publisher.leave()
    assert knows_publisher(mesh.cores["b"], "p", "out", "topic", True)
    assert not knows_publisher(mesh.cores["b"], "p", "out", "topic", False)
    again = mesh.publisher("b", unsettled=UNIQUE_TAGS)
    again.leave(closed=True)
    assert not knows_publisher(mesh.cores["a"], "p", "out", "topic", True)
