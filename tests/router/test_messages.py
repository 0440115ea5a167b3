"""Messages between routers: what is encoded comes back, and what is malformed is the peer's error."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.config import Life, RouterConfig
from router.core import messages as m
from router.core.intervals import OPEN
from router.core.traffic import Accept, Data, Settle
from router.peers import wire
from router.peers.wire import LARGE, decode, encode, encode_parts
from router.router import Router

TERM = st.tuples(st.integers(0, 2**64 - 1), st.text(max_size=4))
NAME = st.tuples(st.text(max_size=4), st.text(max_size=4))
TAG = st.binary(max_size=32)
TAGS = st.lists(TAG, max_size=5) | st.integers(1, 32).flatmap(
    lambda n: st.lists(st.binary(min_size=n, max_size=n), max_size=5)
)
RANGE = st.tuples(st.integers(0, 99), st.integers(100, OPEN - 1))
REJECTION = st.tuples(st.integers(0, 99), st.integers(100, OPEN - 1), st.integers(0, 2**32 - 1))
PID = st.binary(min_size=8, max_size=8)
ADDRESS = st.text(max_size=8)
U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
SECONDS = st.floats(0, 1e9)
KEPT = st.lists(
    st.tuples(TAG.filter(bool), st.integers(1, 3), st.integers(0, 0xFFFF)), max_size=4, unique_by=lambda item: item[2]
)
EXPECTED = st.just(m.UNKNOWN) | TAGS


@st.composite
def data(draw: st.DrawFn) -> Data:
    tags = draw(st.lists(TAG.filter(bool), min_size=1, max_size=5))
    payloads = [draw(st.binary(max_size=40)) for _ in tags]
    position = draw(st.integers(0, 1 << 60))
    settled = draw(st.booleans())
    is_open = not settled and len(tags) == 1 and draw(st.booleans())
    return Data(draw(ADDRESS), draw(PID), draw(TERM), position, draw(U32), settled, tags, payloads, is_open)


@st.composite
def entries(draw: st.DrawFn) -> m.Entries:
    tags = draw(st.lists(TAG.filter(bool), min_size=1, max_size=5))
    position = draw(st.integers(0, 1 << 60))
    owed = [(position, position + len(tags))] if draw(st.booleans()) else []
    payloads = [draw(st.none() | st.binary(max_size=40)) for _ in tags]
    return m.Entries(position, draw(U32), tags, payloads, owed)


@st.composite
def browsed(draw: st.DrawFn) -> m.Browsed:
    tags = draw(st.lists(TAG.filter(bool), max_size=5))
    payloads = [draw(st.binary(max_size=40)) for _ in tags]
    return m.Browsed(draw(ADDRESS), draw(U64), draw(U64), draw(st.booleans()), draw(U32), tags, payloads)


DECLARED = st.builds(m.DeclaredAddress, ADDRESS, st.booleans(), st.lists(NAME, max_size=2).map(tuple))
DECLARATION = st.builds(m.Declaration, ADDRESS, U64, st.lists(DECLARED, max_size=2).map(tuple))

MESSAGE = st.one_of(
    st.builds(
        m.Hello,
        U64,
        st.booleans(),
        st.lists(ADDRESS, max_size=2).map(tuple),
        U64,
        U64,
        st.lists(DECLARATION, max_size=3),
        st.lists(st.text(max_size=4), max_size=3).map(tuple),
        st.lists(st.tuples(st.text(max_size=4), U64), max_size=3).map(tuple),
        st.lists(st.builds(m.PublisherNews, ADDRESS, PID, U64, TERM, SECONDS, SECONDS), max_size=3),
        st.lists(
            st.builds(
                m.SubscriptionNews, ADDRESS, NAME, st.none() | TERM, TERM, SECONDS, SECONDS, st.binary(max_size=9)
            ),
            max_size=3,
        ),
    ),
    st.builds(m.Pub, ADDRESS, PID, U64, TERM, SECONDS, st.none() | EXPECTED),
    st.builds(m.PubAck, ADDRESS, PID, TERM, st.none() | st.tuples(TERM, U64, st.booleans())),
    st.builds(m.PubDown, ADDRESS, PID, TERM),
    st.builds(m.PubClose, ADDRESS, PID, U64, TERM, st.booleans()),
    st.builds(m.Flush, ADDRESS, PID, U64, TERM),
    st.builds(
        m.Join,
        ADDRESS,
        NAME,
        st.none() | TERM,
        TERM,
        st.sampled_from(m.JoinKind),
        st.booleans(),
        SECONDS,
        st.booleans(),
        SECONDS,
        st.binary(max_size=9),
    ),
    st.builds(
        m.Joined, ADDRESS, NAME, TERM, st.sampled_from(m.JoinResult), st.booleans(), st.none() | TERM, st.none() | TERM
    ),
    st.builds(m.Orphan, ADDRESS, NAME, TERM, SECONDS),
    st.builds(m.Leave, ADDRESS, NAME, TERM, st.booleans()),
    st.builds(m.Sync, ADDRESS, PID, U64, TERM, NAME, TERM, st.lists(entries(), max_size=3), EXPECTED),
    data(),
    st.builds(Accept, ADDRESS, st.lists(REJECTION, max_size=4)),
    st.builds(m.AcceptSync, ADDRESS, NAME, TERM, st.lists(REJECTION, max_size=4)),
    st.builds(Settle, ADDRESS, st.lists(RANGE, max_size=4)),
    st.builds(m.SettleTags, ADDRESS, PID, TERM, st.lists(TAG.filter(bool), max_size=4)),
    st.builds(m.Draining, st.booleans()),
    st.builds(m.Call, U64, st.booleans()),
    st.builds(m.Called, U64, st.booleans()),
    st.builds(m.Note, ADDRESS, NAME, TERM, st.binary(max_size=9)),
    st.builds(m.Finish, ADDRESS, U64, st.booleans()),
    st.builds(m.Finished, ADDRESS, U64, st.booleans()),
    st.builds(m.Recall, ADDRESS, NAME, TERM),
    st.builds(m.Recalled, ADDRESS, NAME, TERM, st.none() | TERM, U64, KEPT),
    st.builds(m.Keep, ADDRESS, NAME, TERM, U64, st.booleans(), KEPT, st.lists(TAG.filter(bool), max_size=4)),
    st.builds(m.Kept, ADDRESS, NAME, TERM, U64),
    st.builds(m.Credit, ADDRESS, NAME, TERM, U64, U64),
    st.builds(m.Stopped, ADDRESS, NAME, TERM, U64),
    st.builds(m.Return, ADDRESS, NAME, TERM, U64, st.lists(REJECTION, max_size=4)),
    st.builds(m.Browse, ADDRESS, U64, U64, U64),
    browsed(),
    st.builds(m.Reason, ADDRESS, st.lists(RANGE, max_size=4), st.binary(max_size=9)),
    st.builds(m.Part, ADDRESS, U64, st.booleans(), st.binary(max_size=40)),
    st.builds(m.Taken, ADDRESS, U64, U64),
    st.builds(m.Again, ADDRESS, PID, TERM),
    st.builds(m.Turn, ADDRESS, st.booleans(), st.booleans()),
    st.builds(m.Ask, U64, st.text(max_size=9), st.lists(st.text(max_size=9), max_size=3), st.binary(max_size=40)),
    st.builds(m.Answer, U64, st.binary(max_size=40)),
)


OUTSIDE = m.Entries(5, 0, [b"t"], [None], [(5, 7)])


def without_empty_tags(message: m.Message) -> bool:
    """Outgoing tags are never empty; a list of many empty ones is refused, because it would cost no bytes."""
    tags = getattr(message, "expected", None)
    return not isinstance(tags, list) or all(tags)


@given(MESSAGE.filter(without_empty_tags))
@settings(max_examples=400)
def test_a_message_comes_back_as_it_was(message: m.Message) -> None:
    assert decode(encode(message)) == message


@pytest.mark.parametrize("sizes", [(LARGE,), (LARGE, LARGE), (3, LARGE, 0, LARGE + 7), (0, LARGE)])
def test_large_payloads_are_parts_of_their_own(sizes: tuple[int, ...]) -> None:
    payloads = [bytes([i]) * size for i, size in enumerate(sizes)]
    tags = [b"%d" % i for i in range(len(sizes))]
    message = Data("a", b"12345678", (1, "a"), 7, 0, False, tags, payloads)
    assign = m.Assign("a", b"12345678", (1, "a"), ("c", "n"), (2, "a"), 1, False, 0, 7, 0, tags, payloads)
    for each in (message, assign):
        parts = encode_parts(each)
        assert isinstance(parts, list)
        assert b"".join(parts) == encode(each)
        assert [part for part in parts if any(part is payload for payload in payloads)] == [p for p in payloads if p]
        assert decode(list(parts)) == each


@given(MESSAGE.filter(without_empty_tags), st.lists(st.integers(0, 100), max_size=4))
@settings(max_examples=200)
def test_a_message_may_be_cut_into_parts_anywhere(message: m.Message, places: list[int]) -> None:
    encoded = encode(message)
    ends = [0, *sorted(min(place, len(encoded)) for place in places), len(encoded)]
    parts = [memoryview(encoded)[a:b] for a, b in pairwise(ends)]
    assert decode(list(parts)) == message
    with pytest.raises(m.PeerProtocolError):
        decode([*parts, b"\0"])
    with pytest.raises(m.PeerProtocolError):
        decode([encoded[:1], encoded[1:-1]])


@given(MESSAGE.filter(without_empty_tags), st.integers(0, 2**32))
def test_a_message_cut_short_is_the_peers_error(message: m.Message, seed: int) -> None:
    """Protocol 3.4.4."""
    encoded = encode(message)
    with pytest.raises(m.PeerProtocolError):
        decode(encoded[: random.Random(seed).randrange(len(encoded))])
    with pytest.raises(m.PeerProtocolError):
        decode(encoded + b"\0")


@given(MESSAGE.filter(without_empty_tags), st.integers(0, 2**32))
@settings(max_examples=400)
def test_a_damaged_message_is_decoded_or_refused_but_nothing_else(message: m.Message, seed: int) -> None:
    rng = random.Random(seed)
    damaged = bytearray(encode(message))
    for _ in range(rng.randint(1, 4)):
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
    try:
        decode(bytes(damaged))
    except m.PeerProtocolError:
        pass


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff\0\0",
        b"\x0c\0\1a\xff\xff\xff\xff",  # four thousand million ranges in no bytes
        encode(Settle("a", [(5, 5)])),
        encode(Settle("a", [(7, 5)])),
        encode(Settle("a", [(7, OPEN)])),
        encode(m.SettleTags("a", b"12345678", (1, "a"), [b"x" * 33])),
        encode(Data("a", b"12345678", (1, "a"), 0, 0, False, [], [])),
        encode(m.Sync("a", b"12345678", 1, (1, "a"), ("c", "n"), (1, "a"), [OUTSIDE], [])),
        encode(m.Recalled("a", ("c", "n"), (1, "a"), (1, "a"), 1, [(b"t", 4, 1)])),
        encode(m.Recalled("a", ("c", "n"), (1, "a"), (1, "a"), 1, [(b"t", 0, 1)])),
        encode(m.Keep("a", ("c", "n"), (1, "a"), 1, True, [(b"t", 1, 7), (b"u", 2, 7)], [])),
    ],
)
def test_garbage_is_the_peers_error(garbage: bytes) -> None:
    """Protocol 3.4.4."""
    with pytest.raises(m.PeerProtocolError):
        decode(garbage)


def test_a_kind_that_the_version_of_the_session_does_not_have_is_an_error_of_the_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protocol 3.2.6."""
    answer = encode(m.Answer(1, b"x"))
    assert decode(answer, 4) == decode(answer, 5) == m.Answer(1, b"x")
    monkeypatch.setitem(wire._LAST_KIND, 4, answer[0] - 1)
    assert decode(answer, 5) == m.Answer(1, b"x")
    with pytest.raises(m.PeerProtocolError):
        decode(answer, 4)


def test_a_router_asserts_that_the_other_knows_what_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    router = Router(RouterConfig("a", ("a", "b", "c")), Life(1, 0.0, True), wall_us=lambda: 0)
    router.peer_up("b", 0.0, version=4)
    router.peer_up("c", 0.0, version=5)
    assert [router.core.speaks(peer) for peer in "abc"] == [5, 4, 5]
    monkeypatch.setitem(wire.LATER, m.Answer, 5)
    router.core.post.send("c", m.Answer(1, b"x"))
    with pytest.raises(AssertionError, match="b"):
        router.core.post.send("b", m.Answer(1, b"x"))
    router.peer_down("b", 1.0)
    assert "b" not in router.core.members.speaks
