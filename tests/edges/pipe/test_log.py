"""What one store knows of a pipe, without sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amqp10.annotations import message_annotation
from amqp10.errors import DecodeError
from amqp10.sections import Message
from edges.pipe import log as log_module
from edges.pipe.listener import Listener
from edges.pipe.log import REPLICATED_BEHIND, PipeLog
from edges.pipe.messages import (
    POSITION_ANNOTATION,
    Entry,
    checksum,
    control,
    decode_entry,
    encode_entry,
    epoch_of,
    with_position,
)
from edges.pipe.serve import PipeError, PipePlan, StoredPipe
from edges.store import Batch, Committed, StoreFull
from onceway.client.bodies import encode_body
from tests.edges.pipe.opened import LOG, ignored, opened
from tests.serving import until


def entry(body: bytes, position: int = 0) -> Entry:
    payload = encode_body(body)
    return Entry(with_position(payload, position), b"tag " + body, checksum(payload))


@pytest.mark.parametrize(
    "message",
    [
        Message(b"x"),
        Message("text", message_annotations={"x-opt-a": 1}),
        Message(b"x", message_annotations={"x-opt-a": "b" * 300}),
        Message(b"x", message_annotations={POSITION_ANNOTATION: "forged"}),
        Message(b"x", delivery_annotations={"x": 1}, application_properties={"y": 2}),
    ],
)
def test_a_message_gets_its_position_and_stays_as_it_was(message: Message) -> None:
    kept = with_position(message.encode(), 1 << 40)
    assert message_annotation(kept, POSITION_ANNOTATION) == 1 << 40
    read = Message.decode(kept)
    assert kept.count(POSITION_ANNOTATION.encode()) == 1  # a map with a key twice could not be read back
    others = {key: value for key, value in (message.message_annotations or {}).items() if key != POSITION_ANNOTATION}
    assert read.value == message.value
    assert read.application_properties == message.application_properties
    assert {key: value for key, value in (read.message_annotations or {}).items() if key in others} == others
    assert len(read.message_annotations or {}) == len(others) + 1


@pytest.mark.parametrize("key", [b"\xa3\x16", b"\xb3\0\0\0\x16", b"\xa1\x16", b"\xb1\0\0\0\x16"])
def test_a_message_that_was_read_from_a_pipe_has_one_position(key: bytes) -> None:
    """Its key as a symbol or a string, in either width."""
    entries = key + POSITION_ANNOTATION.encode() + b"\x53\x07"
    forwarded = b"\x00\x53\x72\xc1" + bytes((len(entries) + 1, 2)) + entries + encode_body(b"x")
    kept = with_position(forwarded, 9)
    assert Message.decode(kept).message_annotations == {POSITION_ANNOTATION: 9}


@pytest.mark.parametrize(
    "record", [b"", b"\x01", b"\x01[", b"\x01" + b"[" * 9999, b'\x01{"epochs": [[1]], "next": 1}', b'\x01{"epochs": []}',
               b'\x01{"promoted": "s"}', b'\x01{"dropped": "1"}', b"\x02abc", b"\x03"],
)  # fmt: skip
def test_what_no_store_writes_is_no_entry(record: bytes) -> None:
    """Others may send to a log's address, too: stores reject it and go on."""
    with pytest.raises(DecodeError):
        decode_entry(encode_entry(1, 0, Entry(record)))


def test_what_is_no_message_gets_no_position() -> None:
    with pytest.raises(DecodeError):
        with_position(b"\x01 no message", 0)


def test_an_entry_of_the_log_is_read_as_it_was_written() -> None:
    one = entry(b"x")
    assert decode_entry(encode_entry(3, 7, one)) == (3, 7, one)


async def test_a_log_that_is_opened_again_knows_its_records_and_deliveries(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append([entry(b"a", 0), entry(b"b", 1)])
    async with opened(tmp_path) as log:
        assert (log.next, log.visible) == (2, 2)
        assert not log.knows(b"tag b", 12345)  # a client that uses its tag again
        for _ in range(2):  # as often as it comes
            assert log.knows(b"tag b", entry(b"b").check)
        log.accepted([b"tag b"])
        assert not log.knows(b"tag b", entry(b"b").check)
        assert log.knows(b"tag a", entry(b"a").check)


async def test_a_primary_that_starts_again_knows_about_how_far_all_stores_are(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        for _ in range(20):
            await log.append([entry(b"a")] * 300)
            log.state.replicated = log.next  # as when all stores have accepted it
    async with opened(tmp_path) as log:
        assert 6000 - REPLICATED_BEHIND - 300 <= log.state.replicated <= 6000


async def test_only_the_last_deliveries_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edges.pipe.log.REMEMBERED", 2)
    async with opened(tmp_path) as log:
        await log.append([entry(b"a", 0), entry(b"b", 1)])
        await log.append([entry(b"a", 2)])  # with the tag of the first
        assert log.knows(b"tag a", entry(b"a").check)
        await log.append([entry(b"c", 3)])
        assert not log.knows(b"tag b", entry(b"b").check)
        assert log.entries(2, [b"2", b"3"]) == [
            Entry(b"2", b"tag a", entry(b"a").check),
            Entry(b"3", b"tag c", entry(b"c").check),
        ]


class Deliveries(dict[int, tuple[bytes, int]]):
    """Counts what is looked up to forget, and refuses what would pass over all that were removed before."""

    looked_up = 0

    def pop(self, *arguments: Any) -> Any:
        self.looked_up += 1
        return super().pop(*arguments)

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("a dict's first key costs as much as was removed before it")

    keys = values = items = __iter__  # type: ignore[assignment]


async def test_to_forget_a_delivery_costs_one_look_however_many_were_forgotten_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edges.pipe.log.REMEMBERED", 100)
    async with opened(tmp_path) as log:
        kept = log.deliveries = Deliveries()
        for number in range(200):
            await log.append([entry(b"%d %d" % (number, of)) for of in range(10)] + [Entry(control(dropped=0))])
        assert len(kept) == len(log.unaccepted) == 100
        assert kept.looked_up < 2200  # a look for each record, also for those that have no delivery


async def test_content_from_before_a_reset_stays_while_somebody_reads_it(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.cursors[log] = 0
        await log.append([entry(b"a", 0), entry(b"b", 1)])
        await log.append([Entry(control(reset="x", removed=2)), entry(b"c", 3)])
        log.show(log.next)
        await log.trim()
        assert (log.state.start, await log.first()) == (3, 0)
        assert (await log.chunk(0)).end == 4
        del log.cursors[log]
        await log.trim()
        assert await log.first() == 2  # the reset itself


async def test_a_store_that_begins_anew_goes_on_at_the_pipes_positions(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        await log.append([entry(b"old", 0)])
        await log.begin_anew(100, [], 0)
        await log.append([entry(b"a", 100)])
        log.show(log.next)
        assert (await log.chunk(100)).payloads == [entry(b"a", 100).record]
        assert not log.knows(b"tag old", entry(b"old").check)
    async with opened(tmp_path) as log:
        assert (log.next, log.state.start, await log.first()) == (101, 100, 100)


async def test_a_full_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_module, "FULL_RETRY_S", 0)
    caplog.set_level("INFO", "onceway")
    async with opened(tmp_path) as log:
        commit, stream = log.store.commit, log.stream
        refusals = 0

        def full(batch: Batch) -> Awaitable[Committed]:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise StoreFull("full")
            return commit(batch)

        log.store.commit = full  # type: ignore[method-assign, assignment]
        for work in (log.append([entry(b"a", 0)]), log.begin_anew(100, [], 0)):
            refusals = 3
            await work
            assert not refusals
        assert await log.store.bounds(stream) == (1, 1)
        assert (log.next, log.state.life) == (100, 1)

    assert caplog.messages == ["jobs: full: pushes wait", "jobs: there is room again"] * 2  # once, not at each attempt


def stored(log: PipeLog, *others: tuple[str, str]) -> StoredPipe:
    """The pipe jobs of the store s."""
    return StoredPipe("s", PipePlan("jobs", (("s", ""), *others)), log, "", Listener("s", {}, ignored, LOG), LOG)


async def test_a_store_that_gives_up_waiting_for_another_is_fenced_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        pipe = stored(log)
        given_up, ended = asyncio.Event(), asyncio.Event()

        async def ask_another() -> None:
            try:
                await asyncio.Future()
            finally:
                given_up.set()
                await ended.wait()

        asking = asyncio.create_task(pipe._unless_fenced(ask_another()))
        await until(lambda: pipe._waiting, "it waits for another store")
        await pipe.fence(epoch_of(2, "t"))
        await given_up.wait()
        await pipe.fence(epoch_of(3, "t"))
        assert log.state.fence == epoch_of(3, "t")
        ended.set()
        with pytest.raises(PipeError, match="promoted meanwhile"):
            await asking


class Received:
    """What a store receives of the topic jobs.log."""

    def __init__(self, *entries: tuple[int, int, Entry]) -> None:
        self.payloads = [encode_entry(*each) for each in entries]
        self.rejected: list[int] = []

    def __getitem__(self, index: int) -> Any:
        return SimpleNamespace(reject=lambda *why: self.rejected.append(index))

    async def accept(self) -> None:
        pass


async def test_nobody_sees_what_an_old_primary_has_not_got_to_all_stores(tmp_path: Path) -> None:
    other = ("t", "amqp://127.0.0.1:2")
    async with opened(tmp_path) as log:
        pipe = stored(log, other)
        await log.append([entry(b"a", 0), entry(b"b", 1)], replicated=1)
        log.show(1)
        await pipe.fence(epoch_of(2, "t"))
        batch = Received((epoch_of(1, "s"), 1, entry(b"b", 1)))
        await pipe.read_log(batch)
        assert (batch.rejected, log.visible) == ([0], 1)
    async with opened(tmp_path) as log:
        pipe = stored(log, other)
        assert (log.next, log.visible) == (2, 1)
        await pipe.promote(epoch_of(3, "s"), [])
        assert log.state.replicated == 1  # so that b is published again, before the promotion
