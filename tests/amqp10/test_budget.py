"""A reader with a budget takes what has come in parts, and nothing else differs."""

from __future__ import annotations

import pytest

from amqp10.connection import Connection
from amqp10.events import LinkAttaching
from amqp10.frames import AMQP_FRAME, AMQP_HEADER, EMPTY_FRAME, encode_frame
from amqp10.performatives import Attach, Begin, Close, Disposition, Flow, Open, Source
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
