"""Members on routers that are processes, one of which is killed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path

import pytest

import onceway
from amqp10.sections import AmqpValue, Message
from edges.queue.codec import Kept, plain
from edges.queue.group import Event, Failed, Joined, Left, NewEpoch, NewLeader
from edges.queue.member import BESIDE, Member
from edges.queue.messages import Element, ElementId, Record
from onceway.errors import DeliveryRejected, UsageError
from tests.edges.conftest import BOUND_S
from tests.live import LiveNetwork
from tests.running import module


@pytest.mark.parametrize("protocol", ["paxos", "lamport"])
def test_members_dequeue_each_element_once_when_a_router_is_killed(
    network: LiveNetwork, tmp_path: Path, protocol: str
) -> None:
    directory = tmp_path if protocol == "paxos" else None
    asyncio.run(asyncio.wait_for(dequeue_all(network, protocol, 4, directory), 3 * BOUND_S))
    network.start("b")


async def dequeue_all(network: LiveNetwork, queue: str, size: int, directory: Path | None) -> None:
    """Members at all routers in turn; router b is killed while they dequeue."""
    names = [f"m{number:02}" for number in range(size)]
    routers = list(network.names)
    elements = [b"%s %d" % (name.encode(), number) for name in names for number in range(5)]
    got: list[bytes] = []
    async with AsyncExitStack() as stack:
        members = []
        for at, name in enumerate(names):
            first = at % len(routers)
            urls = network.urls(*routers[first:], *routers[:first])
            members.append(await stack.enter_async_context(Member(urls, queue, name, names, directory=directory)))
        await asyncio.gather(*(member.wait_for_view_size(size, BOUND_S) for member in members))

        async def work(member: Member) -> None:
            for number in range(5):
                await member.enqueue(b"%s %d" % (member.name.encode(), number))
                got.append(await member.sdequeue())
                if number == 1 and member is members[0]:
                    network.kill("b")

        await asyncio.gather(*map(work, members))
        assert sorted(got) == sorted(elements)
        assert await members[0].dequeue() is None


async def test_what_comes_while_the_disk_is_busy_is_kept_in_one_transaction(
    network: LiveNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    keep = Kept.keep

    def slow(disk: Kept, records: Iterable[Record]) -> None:
        time.sleep(0.05)
        kept.append(len(list(records)))
        keep(disk, records)

    monkeypatch.setattr(Kept, "keep", slow)
    async with (
        Member(network.urls(), "slow", "a", "ab", directory=tmp_path) as a,
        Member(network.urls(), "slow", "b", "ab", directory=tmp_path) as b,
    ):
        await b.wait_for_view_size(2, BOUND_S)
        await asyncio.gather(*(a.enqueue(b"%d" % number) for number in range(50)))
        assert sorted([await b.sdequeue() for _ in range(2)]) == [b"0", b"1"]
    assert sum(kept) > 100
    assert len(kept) < 50


async def test_members_come_fail_leave_and_take_the_lead(network: LiveNetwork, tmp_path: Path) -> None:
    """a leads and leaves; c is a process that is killed: then b alone dequeues nothing until c is back."""
    happened: list[Event] = []
    names = ["a", "b", "c"]

    async def hears(*events: Event) -> None:
        async with asyncio.timeout(BOUND_S):
            while not set(events) <= set(happened):  # noqa: ASYNC110 events come by a callback
                await asyncio.sleep(0.01)

    def member(name: str) -> Member:
        listen = happened.append if name == "b" else None
        return Member(network.urls(), "jobs", name, names, directory=tmp_path, on_event=listen)

    serve = ("onceway", "queue", "serve", "jobs", "--members", "a,b,c", "--name", "c")
    serve = (*serve, "--data", str(tmp_path), "--url", network.urls())
    async with member("b") as b:
        assert b.is_empty
        assert await b.dequeue() is None
        async with member("a") as a:
            await hears(Joined("b"), Joined("a"), NewLeader("a"))
            with module(*serve) as c:
                await asyncio.gather(*(each.wait_for_view_size(3, BOUND_S) for each in (a, b)))
                assert (a.view, a.leader, b.leader) == (("a", "b", "c"), "a", "a")
                await a.enqueue(b"one")
                await a.enqueue(b"two")
                assert (b.length, b.is_empty) == (2, False)
                first = await b.sdequeue()
                c.process.send_signal(signal.SIGKILL)
                c.process.wait()
            epoch = b.epoch
        await hears(Left("a"), NewLeader("b"))
        assert b.epoch > epoch
        waiting = asyncio.create_task(b.sdequeue())
        done, _ = await asyncio.wait([waiting], timeout=0.5)
        assert not done  # one of three is no majority
        with module(*serve):
            assert {first, await waiting} == {b"one", b"two"}
            assert await b.dequeue() is None
            await hears(Failed("c"), Joined("c"), NewEpoch(b.epoch, ("b", "c")))


async def test_an_element_has_room_in_all_that_is_said_of_it(tmp_path: Path) -> None:
    """The largest that may be enqueued is requested, offered, proposed and decided; a larger one ends nobody."""
    with LiveNetwork(tmp_path, ["a"], settings={"max_message_size": "64KiB"}) as network:
        network.start()
        most = (64 << 10) - BESIDE
        async with (
            Member(network.urls(), "jobs", "a", "ab", directory=tmp_path) as a,
            Member(network.urls(), "jobs", "b", "ab", directory=tmp_path) as b,
        ):
            await b.wait_for_view_size(2, BOUND_S)
            with pytest.raises(UsageError, match=f"{most + 1} bytes: what the routers take has room for {most}"):
                await a.enqueue(bytes(most + 1))
            async with onceway.connect(network.urls()) as stranger:
                publisher = await stranger.publisher("jobs/elements")
                for octets, refused in ((most + 1, True), (most, False)):
                    said = ["s", plain(Element(ElementId("s", 1, octets), bytes(octets)))]
                    with pytest.raises(DeliveryRejected) if refused else nullcontext():
                        await publisher.send(Message(AmqpValue(said)))
            await a.enqueue(bytes(most))
            assert [len(await b.sdequeue()) for _ in range(2)] == [most, most]
            assert a.is_empty
