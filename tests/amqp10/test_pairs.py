"""A publisher in mode second alternates transfers and settlements: taken together, the same as taken one by one."""

from __future__ import annotations

import random

import pytest

from amqp10 import Connection, Dispositions, Event, LinkDetached, ReceiverLink, Transfers, pairs
from amqp10.frames import encode_frame
from amqp10.performatives import Accepted, Attach, Begin, Disposition, Open, Released, Source, Target, Transfer
from tests.amqp10.pair import only, settings
from tests.builds import puts_stand_ins

CREDIT = 20_000


def frame(performative: object, payload: bytes = b"") -> bytes:
    return encode_frame(0, 0, performative.encode() + payload)  # type: ignore[attr-defined]


def transfer(number: int, size: int = 60, tag_size: int = 4) -> bytes:
    tag = number.to_bytes(tag_size, "big")
    return frame(Transfer(handle=0, delivery_id=number & 0xFFFFFFFF, delivery_tag=tag, message_format=0), b"x" * size)


def settle(first: int, last: int | None = None, state: Accepted | Released | None = None) -> bytes:
    return frame(Disposition(role=False, first=first, last=last, settled=True, state=state or Accepted()))


def server(credit: int = CREDIT) -> tuple[Connection, ReceiverLink]:
    connection = Connection(settings("server", incoming_window=1 << 30), server=True, now=0.0)
    attach = Attach(
        name="p", handle=0, role=False, source=Source(), target=Target(address="t"), initial_delivery_count=0
    )
    begin = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
    greeting = b"AMQP\x00\x01\x00\x00" + frame(Open(container_id="c")) + frame(begin) + frame(attach)
    link = connection.receive_data(greeting, 0.0)[-1].link  # type: ignore[union-attr]
    assert isinstance(link, ReceiverLink)
    link.attach(source=Source(), target=Target(address="t"))
    link.grant(credit)
    connection.data_to_send()
    return connection, link


def heard(chunks: list[bytes]) -> tuple[list[tuple[int, bytes, bytes]], set[int], int]:
    """(id, tag, payload) of each delivery in order, the ids settled, the number of events."""
    connection, _ = server()
    events: list[Event] = []
    for chunk in chunks:
        events += connection.receive_data(chunk, 0.0)
    deliveries: list[tuple[int, bytes, bytes]] = []
    settled: set[int] = set()
    for event in events:
        if isinstance(event, Transfers):
            deliveries += zip(range(event.first_id, event.first_id + 10**6), event.tags, event.payloads, strict=False)
        else:
            assert isinstance(event, Dispositions), event
            settled |= set(range(event.first_id, event.last_id + 1))
    return deliveries, settled, len(events)


def alternating(count: int, lag: int, *, transfer_first: bool) -> list[bytes]:
    first = [transfer(number) for number in range(lag)]
    for number in range(lag, count):
        pair = [transfer(number), settle(number - lag)]
        first += pair if transfer_first else reversed(pair)
    return first


@pytest.mark.parametrize("transfer_first", [True, False])
def test_an_alternating_stream_makes_few_events(transfer_first: bool) -> None:
    frames = alternating(2_000, 300, transfer_first=transfer_first)
    deliveries, settled, events = heard([b"".join(frames)])
    assert [number for number, _, _ in deliveries] == list(range(2_000))
    assert settled == set(range(1_700))
    assert events < 60  # ids below 256 are written shorter and go one by one


@pytest.mark.parametrize("begins", range(10))
def test_a_window_that_is_settled_in_turn_from_anywhere_is_one_run(begins: int) -> None:
    """proton goes through its table of deliveries, in which the oldest is not the first."""
    before = [transfer(number) for number in range(300, 310)]
    settled = [300 + (begins + i) % 10 for i in range(10)]
    frames = [each for i in range(10) for each in (settle(settled[i]), transfer(310 + i))]
    connection, _ = server()
    connection.receive_data(b"".join([transfer(299), settle(299), *before]), 0.0)
    first, second = connection.receive_data(b"".join(frames), 0.0)
    assert isinstance(first, Transfers)
    assert (first.first_id, len(first.tags)) == (310, 10)
    assert isinstance(second, Dispositions)
    assert (second.first_id, second.last_id) == (300, 309)


@pytest.mark.parametrize("sent", [0, 1])
def test_of_what_is_settled_out_of_order_what_has_not_been_sent_yet_stays(sent: int) -> None:
    said = [304, 303, 309 + 4 * sent, 302, 301, 300]
    frames = [each for i, number in enumerate(said) for each in (settle(number), transfer(310 + i))]
    octets = b"".join([transfer(299), settle(299), *map(transfer, range(300, 310)), *frames])
    assert heard([octets])[:2] == heard([octets[i : i + 1] for i in range(len(octets))])[:2]
    assert heard([octets])[1] == {number for number in [299, *said] if number < 310}


def test_settling_in_turn_goes_on_where_the_ids_begin_again() -> None:
    ids = [(number - 8) & 0xFFFFFFFF for number in range(32)]
    frames = [transfer(number) for number in ids[:16]]
    settled = [*ids[4:16], *ids[:4]]
    frames += [each for i, number in enumerate(settled) for each in (settle(number), transfer(ids[16 + i]))]
    together, one_by_one = heard([b"".join(frames)]), heard(frames)
    assert together[0] == one_by_one[0]
    assert (
        {number & 0xFFFFFFFF for number in together[1]}
        == {number & 0xFFFFFFFF for number in one_by_one[1]}
        == set(ids[:16])
    )


@pytest.mark.parametrize("seed", range(40))
def test_any_mixture_means_the_same_taken_together_or_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    frames: list[bytes] = []
    sent = done = 0
    while len(frames) < 400:
        for _ in range(rng.choice((1, 1, 1, 2, 30))):
            frames.append(transfer(sent, rng.choice((60, 60, 60, 61)), rng.choice((4, 4, 4, 5))))
            sent += 1
        if rng.random() < 0.2:
            last = rng.randint(done, sent - 1) if done < sent else done
            frames.append(settle(done, last if last > done else None))
            done = last + 1
        steady = rng.choice((0, 5, 40))
        for _ in range(min(steady, sent - done)):
            pair = [transfer(sent), settle(done)]
            frames += pair if rng.random() < 0.97 else reversed(pair)
            sent, done = sent + 1, done + 1
        window = list(range(done, min(sent, done + rng.choice((0, 5, 20)))))
        begins = rng.randrange(20)
        for number in window[begins:] + window[:begins]:
            frames += [settle(number), transfer(sent)]
            sent += 1
        done += len(window)
    together = heard([b"".join(frames)])
    assert together[:2] == heard(frames)[:2]
    assert [number for number, _, _ in together[0]] == list(range(sent))
    assert together[1] == set(range(done))


@puts_stand_ins
def test_work_done_in_vain_does_not_grow_with_what_lies_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that alternates in an irregular way must not be looked at again and again to its end."""
    looked_at: list[int] = []
    take = pairs._take_columns

    def counted(buf: bytes, offset: int, count: int, *rest: object) -> bool:
        looked_at.append(count)
        return take(buf, offset, count, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pairs, "_take_columns", counted)
    frames = []
    for number in range(2_000):  # outcomes alternate: never a run
        frames += [transfer(number), settle(max(0, number - 1), state=(Accepted(), Released())[number % 2])]
    heard([b"".join(frames)])
    assert sum(looked_at) <= 20 * len(frames)


def test_settling_what_has_not_been_sent_yet_says_nothing_also_in_a_run() -> None:
    frames = [frame for number in range(300, 320) for frame in (transfer(number), settle(number + 1))]
    octets = b"".join([transfer(299), settle(299), *frames])
    assert heard([octets])[:2] == heard([octets[i : i + 1] for i in range(len(octets))])[:2]
    assert heard([octets])[1] == {299}


def test_pairs_stop_at_the_credit() -> None:
    connection, link = server(credit=100)
    events = connection.receive_data(b"".join(alternating(200, 10, transfer_first=True)), 0.0)
    assert sum(len(event.tags) for event in events if isinstance(event, Transfers)) == 100
    assert only(events, LinkDetached).error.condition == "amqp:link:transfer-limit-exceeded"  # type: ignore[union-attr]
    assert link.detached
