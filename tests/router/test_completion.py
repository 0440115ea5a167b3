"""Publishers that use a tag again are told when nobody holds it any more (protocol 6.11)."""

from __future__ import annotations

from router.core.ports import UNIQUE_TAGS
from tests.router.ends import PublisherEnd
from tests.router.harness import Mesh

TAG = b"\0\1"


def mqtt_publisher(mesh: Mesh, router: str) -> PublisherEnd:
    return mesh.publisher(router, unsettled=UNIQUE_TAGS, wants_completion=True)


def test_a_settlement_is_complete_when_every_router_that_got_a_copy_has_taken_it() -> None:
    """Protocol 6.11.2."""
    mesh = Mesh("abc")
    for router in "bc":
        mesh.subscriber(router, "s" + router)
    publisher = mqtt_publisher(mesh, "a")
    publisher.send("m0", "m1", tags=[b"0", b"1"])
    mesh.held.add(("a", "c"))
    publisher.settle_all_told()
    assert publisher.complete == []
    mesh.held.clear()
    mesh.run()
    assert publisher.complete == [0, 1]
    mesh.assert_settled()


def test_a_settlement_does_not_wait_for_a_router_whose_session_has_ended_nor_for_who_has_left() -> None:
    """Protocol 6.11.3."""
    mesh = Mesh("abc")
    subscriber, other = mesh.subscriber("c"), mesh.subscriber("b", "other")
    publisher = mqtt_publisher(mesh, "a")
    publisher.send("m0", tags=[TAG])
    mesh.held |= {("a", "c"), ("a", "b")}
    publisher.settle_all_told()
    other.leave(closed=True)
    mesh.held.clear()
    mesh.crash("c")
    mesh.run()
    assert publisher.complete == [], "its subscription is waited for"
    mesh.subscriber("b", subscriber.container)
    assert publisher.complete == [0]


def test_a_tag_of_a_record_is_completed_by_tag_and_by_delivery_id() -> None:
    mesh = Mesh("ab")
    mesh.subscriber("b")
    publisher = mqtt_publisher(mesh, "a")
    publisher.send("m0", tags=[TAG])
    publisher.core.publisher_settled_tag(publisher, TAG, mesh.now)
    mesh.run()
    assert (publisher.complete, publisher.complete_tags) == ([0], [TAG])


def test_a_settlement_is_not_completed_after_the_link_is_lost() -> None:
    """Protocol 6.11.5."""
    mesh = Mesh("ab")
    mesh.subscriber("b")
    publisher = mqtt_publisher(mesh, "a")
    publisher.send("m0", tags=[TAG])
    mesh.held.add(("b", "a"))
    publisher.settle(0)
    publisher.leave()
    mesh.held.clear()
    mesh.run()
    assert publisher.complete == []
