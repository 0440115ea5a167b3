"""One copy per branch of the path tree, each destination with its own place in its own stream (protocol 3.1)."""

from __future__ import annotations

import pytest

from interrouter.packets import STREAM, split
from tests.interrouter.harness import Net
from tests.interrouter.test_paths import SHAPES
from tests.interrouter.transports import PlainTrunk

BODY = b"x" * 5000 + b"the body"


def copies(net: Net, one: str, other: str) -> int:
    """How often the body went from one to the other."""
    trunk = net.trunk(one, other)
    assert isinstance(trunk, PlainTrunk)
    return sum(payload.count(BODY) for payload in trunk.sent_payloads)


def all_copies(net: Net) -> dict[str, int]:
    found = {a + b: copies(net, a, b) for ends in net.links for a, b in (ends, ends[::-1])}
    return {link: count for link, count in found.items() if count}


def converged(shape: str) -> Net:
    net = Net(*SHAPES[shape], amqp=False)
    net.run_until(net.converged)
    return net


@pytest.mark.parametrize(
    ("shape", "source", "others", "links"),
    [
        ("line", "a", "bcde", "ab bc cd de"),
        ("star", "b", "acde", "ba ac ad ae"),  # the centre makes the copies
        ("ring", "a", "bcdef", "ab bc cd af fe"),  # each gets one from its nearer side
        ("mesh", "c", "abde", "ca cb cd ce"),
    ],
)
def test_one_copy_goes_over_each_trunk(shape: str, source: str, others: str, links: str) -> None:
    """Protocol 3.1.4."""
    net = converged(shape)
    net.send(source, others, BODY)
    net.run(0.1)
    assert all_copies(net) == dict.fromkeys(links.split(), 1)
    assert all(net[name].received[source] == [BODY] for name in others)


def test_only_those_it_is_for_get_it() -> None:
    net = converged("star")
    net.send("b", "de", BODY)
    net.run(0.1)
    assert all_copies(net) == {"ba": 1, "ad": 1, "ae": 1}
    assert "b" not in net["a"].received
    assert "b" not in net["c"].received


def test_streams_at_different_places_share_a_copy_and_keep_their_order() -> None:
    net = converged("line")
    for number in range(7):
        net.send("a", "c" if number % 2 else "e", b"%d" % number)
    net.send("a", "ce", BODY)
    net.send("a", "e", b"last")
    net.run(0.1)
    assert copies(net, "a", "b") == copies(net, "b", "c") == copies(net, "c", "d") == 1
    assert net["c"].received["a"] == [b"1", b"3", b"5", BODY]
    assert net["e"].received["a"] == [b"0", b"2", b"4", b"6", BODY, b"last"]


def test_large_messages_share_their_copies_too() -> None:
    net = Net(*SHAPES["line"], amqp=False)
    net.run_until(net.converged)
    large = bytes(3_000_000)
    trunk = net.trunk("a", "b")
    assert isinstance(trunk, PlainTrunk)
    del trunk.sent_payloads[:]
    net.send("a", "bcde", large)
    net.run(2.0)
    assert all(net[name].received["a"] == [large] for name in "bcde")
    assert sum(map(len, trunk.sent_payloads)) < 1.1 * len(large)


def test_messages_of_one_flush_share_packets() -> None:
    net = converged("line")
    trunk = net.trunk("a", "b")
    assert isinstance(trunk, PlainTrunk)
    del trunk.sent_payloads[:]
    for number in range(100):
        net["a"].network.send(("b", "c"), b"%d" % number)
    net.attend("a")
    net.run(0.01)
    packets = [p[start] for p in trunk.sent_payloads for start, _ in split(p)]
    assert packets.count(STREAM) == 1
    assert net["c"].received["a"] == net["b"].received["a"] == [b"%d" % number for number in range(100)]


def test_a_lost_copy_is_repeated_to_the_one_that_misses_it() -> None:
    net = converged("star")
    net.link("a", "d").stalled = True
    net.send("b", "cde", BODY)
    net.run(0.01)
    net.cut("a", "d", for_good=False)
    net.link("a", "d").stalled = False
    net["b"].network.sessions.by_peer["d"].silent_since = net.now  # it is not given up meanwhile
    net.run(1.0)
    assert net["c"].received["b"] == net["e"].received["b"] == [BODY]
    # a star has no second path, so that session ended with its trunk, and the copy with it
    assert net["d"].received.get("b", []) == []
    net.send("b", "cde", BODY)
    net.run(0.1)
    assert net["d"].received["b"] == [BODY]
