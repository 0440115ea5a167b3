"""A reader with a budget takes what has come in parts, and nothing else differs."""

from __future__ import annotations

import pytest

from amqp10.connection import Connection
from amqp10.errors import DecodeError
from amqp10.events import LinkAttaching
from amqp10.frames import AMQP_FRAME, AMQP_HEADER, EMPTY_FRAME, encode_frame
from amqp10.outcomes import ACCEPTED, RELEASED
from amqp10.performatives import LONG_MAP, Attach, Begin, Close, Detach, Disposition, Flow, Open, Source, UnreadMap
from amqp10.runs import Dispositions
from amqp10.sender import SenderLink
from amqp10.unsettled import MOST_RANGES
from tests.amqp10.pair import kinds, settings

COUNT = 100


def said() -> bytes:
    parts = [Open("c"), Begin(None, 0, 1 << 16, 1 << 16)]
    parts += [Attach(f"link {n}", n, True, source=Source("a" * 500)) for n in range(COUNT)]
    parts += [Disposition(True, 3 * n, settled=True) for n in range(COUNT)]
    parts += [Flow(0, 1 << 16, 0, 1 << 16) for _ in range(COUNT)]
    data = AMQP_HEADER + b"".join(encode_frame(AMQP_FRAME, 0, part.encode()) for part in parts)
    return data + EMPTY_FRAME * COUNT + encode_frame(AMQP_FRAME, 0, Close().encode())


def listening(budget: int) -> Connection:
    connection = Connection(settings("r", handle_max=COUNT), server=True, now=0.0)
    connection.reader.budget = budget
    return connection


@pytest.mark.parametrize("budget", [1, 16, 1024])
@pytest.mark.parametrize("size", [1, 333, 1 << 20])
def test_what_has_come_is_taken_in_parts_of_the_budget_and_means_the_same(budget: int, size: int) -> None:
    whole, parted = listening(0), listening(budget)
    expected = whole.receive_data(said(), 0.0)
    assert len([event for event in expected if isinstance(event, LinkAttaching)]) == COUNT
    found, data = [], said()
    for start in range(0, len(data), size):
        before = parted.reader.frames
        found += parted.receive_data(data[start : start + size], 0.0)
        assert parted.reader.frames - before <= 2 * budget
        while parted.reader.more:
            before = parted.reader.frames
            found += parted.receive_data(b"", 0.0)
            assert 0 < parted.reader.frames - before <= 2 * budget
    assert kinds(found) == kinds(expected)
    assert parted.reader.frames == whole.reader.frames
    assert parted.data_to_send() == whole.data_to_send()
    assert parted.closed
    assert not parted.reader.more


def test_a_large_frame_behind_a_budget_that_was_used_up_is_read_as_a_whole() -> None:
    large = encode_frame(AMQP_FRAME, 0, Attach("x", 0, True, source=Source("a" * 60_000)).encode())
    connection = listening(8)
    begun = encode_frame(AMQP_FRAME, 0, Open("c").encode()) + encode_frame(
        AMQP_FRAME, 0, Begin(None, 0, 1 << 16, 1 << 16).encode()
    )
    assert not connection.receive_data(AMQP_HEADER + begun + large + large[:100], 0.0)[1:]
    events = []
    while connection.reader.more:
        events += connection.receive_data(b"", 0.0)
    assert len([event for event in events if isinstance(event, LinkAttaching)]) == 1
    assert connection.reader.buffered == 100


def test_a_frame_that_is_too_large_is_told_of_where_a_budget_was_used_up_before_it() -> None:
    connection = listening(1)
    connection.receive_data(AMQP_HEADER + encode_frame(AMQP_FRAME, 0, Open("c").encode()), 0.0)
    assert not connection.receive_data(EMPTY_FRAME + b"\x7f\xff\xff\xff\x02\x00\x00\x00", 0.0)[1:]
    assert connection.closing
    assert not connection.reader.more


def receiving(budget: int, deliveries: int) -> Connection:
    """It has two links, and has sent so many deliveries on them by turns: each is a range of its own."""
    connection = listening(budget)
    parts = [Open("c"), Begin(None, 0, 1 << 16, 1 << 16)]
    parts += [Attach(f"link {n}", n, True, source=Source("a")) for n in (0, 1)]
    said = AMQP_HEADER + b"".join(encode_frame(AMQP_FRAME, 0, part.encode()) for part in parts)
    links = []
    events = connection.receive_data(said, 0.0)
    while connection.reader.more:
        events += connection.receive_data(b"", 0.0)
    for event in events:
        if isinstance(event, LinkAttaching):
            event.link.attach(source=Source("a"), target=None)
            links.append(event.link)
    for handle in (0, 1):
        flow = Flow(0, 1 << 16, 0, 1 << 16, handle=handle, delivery_count=0, link_credit=deliveries)
        connection.receive_data(encode_frame(AMQP_FRAME, 0, flow.encode()), 0.0)
    for n in range(deliveries):
        link = links[n & 1]
        assert isinstance(link, SenderLink)
        link.send([b"%d" % n], [b"x"])
    connection.data_to_send()
    return connection


@pytest.mark.parametrize("settled", [False, True])
def test_a_disposition_over_many_ranges_is_handled_in_parts_and_means_the_same(settled: bool) -> None:
    count = 5 * MOST_RANGES
    frames = [
        Disposition(True, 0, count, settled, ACCEPTED),
        Disposition(True, 0, count, True, RELEASED),
        Detach(0, True),
    ]
    said = b"".join(encode_frame(AMQP_FRAME, 0, frame.encode()) for frame in frames)
    whole, parted = receiving(0, count), receiving(MOST_RANGES, count)
    expected = whole.receive_data(said, 0.0)
    found, parts = parted.receive_data(said, 0.0), 1
    assert 0 < len(found) <= 2 * MOST_RANGES
    while parted.reader.more:
        part = parted.receive_data(b"", 0.0)
        assert len(part) <= 2 * MOST_RANGES
        found, parts = found + part, parts + 1
    assert kinds(found) == kinds(expected)
    assert parts > (3 if settled else 6)
    told = [(e.first_id, e.last_id, e.state, e.settled) for e in found if isinstance(e, Dispositions)]
    assert told == [(e.first_id, e.last_id, e.state, e.settled) for e in expected if isinstance(e, Dispositions)]
    assert len(told) == (count if settled else 2 * count)
    for session in parted.channels.sessions:
        session.check_invariants()


def test_what_is_sent_while_a_disposition_is_handled_has_no_outcome_by_it() -> None:
    connection = receiving(1, 2 * MOST_RANGES)
    said = Disposition(True, 0, 4 * MOST_RANGES, True, ACCEPTED)
    found = connection.receive_data(encode_frame(AMQP_FRAME, 0, said.encode()), 0.0)
    assert connection.reader.more
    flow = Flow(0, 1 << 16, 0, 1 << 16, handle=0, delivery_count=MOST_RANGES, link_credit=10)
    (link, _) = connection.channels.sessions[0].links
    assert isinstance(link, SenderLink)
    link._received_flow(flow)
    link.send([b"new"], [b"x"])
    while connection.reader.more:
        found += connection.receive_data(b"", 0.0)
    assert max(event.last_id for event in found if isinstance(event, Dispositions)) == 2 * MOST_RANGES - 1
    assert len(connection.channels.sessions[0].outgoing.unsettled) == 1


def attach_with(states: dict[bytes, object]) -> bytes:
    attach = Attach("x", 0, True, source=Source("a"), unsettled=states)  # type: ignore[arg-type]
    return encode_frame(AMQP_FRAME, 0, attach.encode())


def opened(budget: int) -> Connection:
    connection = listening(budget)
    begun = b"".join(encode_frame(AMQP_FRAME, 0, p.encode()) for p in (Open("c"), Begin(None, 0, 1 << 16, 1 << 16)))
    connection.receive_data(AMQP_HEADER + begun, 0.0)
    while connection.reader.more:
        connection.receive_data(b"", 0.0)
    return connection


def test_a_long_unsettled_map_is_for_the_owner_to_read_and_nothing_is_read_behind_it() -> None:
    states = {b"%d" % n: (None, ACCEPTED, RELEASED)[n % 3] for n in range(LONG_MAP)}
    other = encode_frame(AMQP_FRAME, 0, Attach("y", 1, True, source=Source("a"), unsettled=states).encode())
    connection = opened(1024)
    (event,) = connection.receive_data(attach_with(states) + other + EMPTY_FRAME, 0.0)
    assert isinstance(event, LinkAttaching)
    assert connection.reader.more
    unread = event.link.remote_attach.unsettled  # type: ignore[union-attr]
    assert isinstance(unread, UnreadMap)
    assert (len(unread), unread.unread) == (len(states), len(states))
    assert len(unread.read(10)) == 10
    assert unread.unread == len(states) - 10
    assert unread == states
    (again,) = connection.receive_data(b"", 0.0)
    assert isinstance(again, LinkAttaching)
    whole = opened(0)
    first, _ = whole.receive_data(attach_with(states) + other, 0.0)
    assert isinstance(first, LinkAttaching)
    assert first.link.remote_attach.unsettled == states  # type: ignore[union-attr]
    assert isinstance(first.link.remote_attach.unsettled, dict)  # type: ignore[union-attr]


@pytest.mark.parametrize("budget", [0, 1024])
def test_a_long_map_with_a_tag_twice_is_malformed_where_it_is_read(budget: int) -> None:
    said = bytearray(attach_with({b"%05d" % n: None for n in range(LONG_MAP)}))
    said[-6:-1] = b"00000"
    connection = opened(budget)
    events = connection.receive_data(bytes(said), 0.0)
    if not budget:
        assert connection.closing
        return
    (event,) = events
    assert isinstance(event, LinkAttaching)
    unread = event.link.remote_attach.unsettled  # type: ignore[union-attr]
    assert isinstance(unread, UnreadMap)
    with pytest.raises(DecodeError, match="twice"):
        unread.read(LONG_MAP)
