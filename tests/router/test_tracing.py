"""Where one delivery is, as each router knows it."""

from __future__ import annotations

from typing import Any

from router.core.ports import UNIQUE_TAGS, Outcome
from router.core.reports import in_doubt, of_doubt
from router.core.tracing import trace
from tests.router.harness import TOPIC, Mesh, undecided


def traced(mesh: Mesh, router: str, tag: bytes, container: str = "p") -> dict[str, Any]:
    found = trace(mesh.cores[router], TOPIC, container, "out", tag)["known"]
    assert len(found) <= 1
    return found[0] if found else {}


def test_a_delivery_is_followed_from_transfer_to_settlement() -> None:
    mesh = Mesh("ab")
    here = mesh.subscriber("a", "s0", accepts=False)
    there = mesh.subscriber("b", "s1", credit=1, accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", tags=[b"t0", b"t1"])
    ingress = traced(mesh, "a", b"t1")["ingress"]
    assert (ingress["state"], ingress["position"]) == ("undone", 1)
    assert sorted((one["container"], one["home"], one["why"]) for one in ingress["waits_for"]) == [
        ("s0", "a", "shared"),
        ("s1", "b", "shared"),
    ]
    assert [one["state"] for one in traced(mesh, "a", b"t1")["egress"]] == ["sent"]
    assert [one["state"] for one in traced(mesh, "b", b"t1")["egress"]] == ["queued"]
    assert traced(mesh, "b", b"t1")["home"] == "a"
    assert traced(mesh, "b", b"t1")["ingress"] is None
    there.give_credit(10)
    here.accept(here.got[0].id, here.got[1].id)
    there.dispose(Outcome.RELEASED, there.got[1].id)
    assert traced(mesh, "b", b"t1")["egress"] == [
        {"container": "s1", "name": "in", "state": "sent", "in_doubt": False, "redeliveries": 1}
    ]
    assert [one["container"] for one in traced(mesh, "a", b"t1")["ingress"]["waits_for"]] == ["s1"]
    there.accept(there.got[0].id)
    there.dispose(Outcome.REJECTED, there.got[-1].id)
    ingress = traced(mesh, "a", b"t1")["ingress"]
    assert (ingress["state"], ingress["rejected"]) == ("done", 1)
    assert [one["state"] for one in traced(mesh, "a", b"t0")["egress"]] == ["accepted"]
    publisher.settle(0, 1)
    assert traced(mesh, "a", b"t1")["ingress"]["state"] == "unknown"
    assert traced(mesh, "b", b"t1")["egress"] == []


def test_a_delivery_that_an_absent_subscription_is_owed() -> None:
    mesh = Mesh("a")
    mesh.subscriber("a", "s").leave()
    mesh.publisher("a").send("m0", tags=[b"t0"])
    (one,) = traced(mesh, "a", b"t0")["ingress"]["waits_for"]
    assert (one["container"], one["home"], one["why"]) == ("s", None, "owed")


def test_a_delivery_in_doubt_is_found_and_one_that_may_come_again_is_expected() -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", "s", accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", tags=[b"t0"])
    publisher.leave()
    assert traced(mesh, "b", b"t0")["home"] is None
    assert traced(mesh, "b", b"t0")["egress"][0]["in_doubt"]
    address = mesh.cores["b"].addresses[TOPIC]
    (found,) = filter(None, in_doubt(address))
    one = of_doubt(address, *found)
    assert (one["container"], one["name"], one["state"], one["redeliveries"]) == ("s", "in", "sent", 0)
    subscriber.accept(subscriber.got[0].id)
    assert traced(mesh, "b", b"t0")["egress"][0]["state"] == "accepted"
    mesh.publisher("b", unsettled=undecided("t0"))
    assert traced(mesh, "b", b"t0")["ingress"]["state"] == "expected"


def test_long_tags_and_unique_tags_are_found() -> None:
    mesh = Mesh("ab")
    mesh.subscriber("b", "s", accepts=False)
    mesh.publisher("a", unsettled=UNIQUE_TAGS).send("m0", tags=[b"x" * 32])
    assert traced(mesh, "a", b"x" * 32)["unique_tags"]
    assert traced(mesh, "a", b"x" * 32)["ingress"]["state"] == "undone"
    assert [one["state"] for one in traced(mesh, "b", b"x" * 32)["egress"]] == ["sent"]


def test_nothing_is_known_of_a_stranger() -> None:
    mesh = Mesh("a")
    assert trace(mesh.cores["a"], "elsewhere", "p", "link", b"t") == {"known": []}
    mesh.subscriber("a", "s")
    assert trace(mesh.cores["a"], TOPIC, "p", "link", b"t") == {"known": []}
