"""Numbered, acknowledged cumulatively, go-back-N (protocol 3.1)."""

from __future__ import annotations

import random

import pytest

from interrouter.stream import FRAGMENT, ITEM_OVERHEAD, IncomingStream, OutgoingStream, StreamError, fragments


def received(incoming: IncomingStream, body: bytes | memoryview, more: bool) -> bytes | None:
    """The message that an item completes, joined."""
    message = incoming.receive(b"<" + body + b">", 1, 1 + len(body), more)
    return b"".join(message) if isinstance(message, list) else message


def put(out: OutgoingStream, *messages: bytes) -> None:
    for message in messages:
        out.put(fragments(message), len(message))


def sent(out: OutgoingStream) -> list[bytes]:
    """All that may go out now."""
    found = []
    while (item := out.peek()) is not None:
        out.take()
        found.append(item[0])
    return found


def test_the_window_bounds_what_is_under_way() -> None:
    out = OutgoingStream(1000)
    put(out, *[bytes(300)] * 10)
    assert len(sent(out)) == 3
    assert out.backlog_bytes == 7 * 300
    assert out.acknowledged(1)
    assert len(sent(out)) == 1
    assert out.acknowledged(4)
    assert len(sent(out)) == 3


def test_a_message_beyond_the_window_goes_alone() -> None:
    out = OutgoingStream(10)
    put(out, bytes(100), b"x")
    assert sent(out) == [bytes(100)]
    out.acknowledged(1)
    assert sent(out) == [b"x"]


def test_empty_messages_count_too() -> None:
    out = OutgoingStream(10 * ITEM_OVERHEAD)
    put(out, *[b""] * 100)
    assert len(sent(out)) == 10


def test_a_gap_goes_back_to_what_is_missing_once_per_round() -> None:
    out = OutgoingStream(10_000)
    put(out, b"0", b"1", b"2", b"3")
    assert sent(out) == [b"0", b"1", b"2", b"3"]
    out.acknowledged(2)
    assert out.gap(0)
    assert not out.gap(0)
    assert out.position == 2
    put(out, b"4")
    assert sent(out) == [b"2", b"3", b"4"]
    assert not out.gap(0)  # said about the round before
    assert out.gap(1)
    assert sent(out) == [b"2", b"3", b"4"]
    assert out.acknowledged(5)
    assert out.idle


def test_an_acknowledgement_of_what_is_about_to_be_repeated_saves_it() -> None:
    out = OutgoingStream(10_000)
    put(out, b"0", b"1", b"2")
    sent(out)
    out.gap(0)
    assert out.acknowledged(2)
    assert sent(out) == [b"2"]


def test_an_acknowledgement_of_what_was_never_sent_is_the_peer_s_error() -> None:
    out = OutgoingStream(10_000)
    put(out, b"0", b"1")
    out.take()
    with pytest.raises(StreamError):
        out.acknowledged(2)


def test_losses_narrow_the_window_and_progress_widens_it() -> None:
    out = OutgoingStream(1_000_000)
    put(out, *[bytes(100_000)] * 40)
    sent(out)
    out.gap(0)
    assert out.window == 500_000
    while not out.idle:
        sent(out)
        out.acknowledged(out.position)
    assert out.window == 1_000_000


def test_the_receiver_reports_a_gap_once_per_round_and_whenever_asked() -> None:
    incoming = IncomingStream()
    assert not incoming.missing(0, 0, False)
    assert incoming.missing(2, 0, False)
    assert incoming.gap == 0
    incoming.gap = None  # it was said
    assert incoming.missing(3, 0, False)
    assert incoming.gap is None
    assert incoming.missing(3, 0, True)
    assert incoming.gap == 0
    incoming.gap = None
    assert incoming.missing(3, 1, False)
    assert incoming.gap == 1


@pytest.mark.parametrize("size", [0, 1, FRAGMENT - 1, FRAGMENT, FRAGMENT + 1, 2 * FRAGMENT, 5 * FRAGMENT + 7])
def test_fragments_are_joined_again(size: int) -> None:
    message = random.Random(size).randbytes(size)
    incoming = IncomingStream()
    parts = fragments(message)
    assert [more for _, more in parts] == [True] * (len(parts) - 1) + [False]
    assert all(0 < len(body) <= FRAGMENT for body, _ in parts) or size == 0
    results = [received(incoming, body, more) for body, more in parts]
    assert results[:-1] == [None] * (len(parts) - 1)
    assert results[-1] == message


def test_a_message_in_parts_is_joined_with_none_of_them_copied_before() -> None:
    message = [b"head", bytes(range(256)) * (FRAGMENT // 128), b"tail"]
    incoming = IncomingStream()
    parts = fragments(message)
    assert [more for _, more in parts] == [True] * (len(parts) - 1) + [False]
    assert {id(memoryview(body).obj) for body, _ in parts} == {id(part) for part in message}
    assert [received(incoming, body, more) for body, more in parts][-1] == b"".join(message)


def test_a_large_fragment_that_waits_for_others_is_not_copied() -> None:
    incoming = IncomingStream()
    payload = bytes(FRAGMENT + 8)
    assert incoming.receive(payload, 8, len(payload), True) is None
    message = incoming.receive(b"the rest", 0, 3, False)
    assert isinstance(message, list)
    assert [len(part) for part in message] == [FRAGMENT, 3]
    first = message[0]
    assert isinstance(first, memoryview)
    assert first.obj is payload


def test_the_fragments_of_a_message_share_its_bytes() -> None:
    message = bytes(2 * FRAGMENT + 1)
    assert all(memoryview(body).obj is message for body, _ in fragments(message))


def test_any_losses_and_delays_end_in_everything_once_and_in_order() -> None:
    """Protocol 3.1.2."""
    for seed in range(200):
        rng = random.Random(seed)
        out, incoming = OutgoingStream(rng.choice([10, 500, 100_000])), IncomingStream()
        wanted = [rng.randbytes(rng.choice([0, 3, 300])) for _ in range(40)]
        put(out, *wanted)
        read: list[bytes] = []
        while len(read) < len(wanted):
            first, round_ = out.position, out.round
            items = []
            while out.peek() is not None and len(items) < 3:
                items.append(out.peek())
                out.take()
            if rng.random() < 0.3:
                items = []
            probe = not items
            first = out.position if probe else first
            if not incoming.missing(first, round_, probe):
                for item in items[incoming.expected - first :]:
                    assert item is not None
                    message = received(incoming, *item)
                    assert message is not None
                    read.append(message)
            gap, incoming.gap = incoming.gap, None
            if rng.random() < 0.7:
                out.acknowledged(incoming.expected)
                if gap is not None and out.acked == incoming.expected:
                    out.gap(gap)
        assert read == wanted
