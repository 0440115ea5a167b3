"""Messages that make no sense, and what is left when everybody has gone."""

from __future__ import annotations

import pytest

from router.core import messages as m
from router.core.reports import of_all
from router.core.traffic import Accept, Data, Settle
from router.peers.wire import decode
from tests.router.harness import SHORT, TOPIC, Mesh


@pytest.mark.parametrize(
    "message",
    [
        Data(TOPIC, b"unknown!", (1, "b"), 0, 0, False, [b"t"], [b"p"]),
        Accept(TOPIC, [(0, 10_000, 0)]),
        m.AcceptSync(TOPIC, ("no", "one"), (1, "b"), [(0, 10, 3)]),
        Settle(TOPIC, [(0, 10_000), (5, 7)]),
        m.SettleTags(TOPIC, b"unknown!", (1, "b"), [b"t"]),
        m.Flush(TOPIC, b"unknown!", 1, (1, "b")),
        m.PubDown(TOPIC, b"unknown!", (1, "b")),
        m.PubClose(TOPIC, b"unknown!", 1, (1, "b")),
        m.Leave(TOPIC, ("no", "one"), (1, "b")),
        m.Orphan(TOPIC, ("no", "one"), (1, "b"), 5.0),
        m.Joined(TOPIC, ("no", "one"), (1, "b"), m.JoinResult.BROKEN, False, None, None),
        m.Sync(TOPIC, b"unknown!", 1, (1, "b"), ("no", "one"), (1, "b"), [], []),
        m.PubAck(TOPIC, b"unknown!", (1, "b"), None),
    ],
)
def test_a_message_about_nothing_that_is_known_changes_nothing(message: m.Message) -> None:
    """Protocol 6.3.4."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("a")
    publisher = mesh.publisher("a")
    publisher.send("m0")
    mesh.cores["a"].peer_message("b", message, mesh.now)
    mesh.run()
    publisher.send("m1")
    assert subscriber.bodies() == ["m0", "m1"]
    assert publisher.told == [0, 1]


def test_a_position_that_comes_twice_is_the_peers_error() -> None:
    """Protocol 3.4.3."""
    mesh = Mesh("ab")
    mesh.subscriber("b")
    publisher = mesh.publisher("a")
    mesh.held.add(("a", "b"))
    publisher.send("m0", "m1")
    data = mesh.wires["a", "b"][0]
    mesh.held.clear()
    mesh.run()
    with pytest.raises(m.PeerProtocolError):
        mesh.cores["b"].peer_message("a", decode(data), mesh.now)


def test_an_address_that_is_used_again_does_not_use_its_positions_again() -> None:
    """Protocol 9.1."""
    mesh = Mesh("ab", address=SHORT)
    for _ in range(2):
        subscriber = mesh.subscriber("b")
        publisher = mesh.publisher("a")
        publisher.send("m0")
        publisher.settle(0)
        publisher.leave(closed=True)
        subscriber.leave(closed=True)
        mesh.pass_time(30.0)
        mesh.assert_empty()
    mesh.publisher("a")
    assert mesh.cores["a"].addresses[TOPIC].records.log.end == 2


def test_status_tells_what_is_kept_and_why_there_is_no_credit() -> None:
    mesh = Mesh("ab")
    mesh.publisher("a", "p1")
    status = of_all(mesh.cores["a"])
    assert status["established"] is True
    addresses = status["addresses"]
    assert isinstance(addresses, dict)
    assert addresses[TOPIC]["ingress"]["publishers"][0]["no_credit"] == "no subscribers"
