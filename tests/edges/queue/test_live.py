"""Members on routers that are processes, one of which is killed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from edges.queue.member import Member
from tests.live import LiveNetwork

BOUND_S = 60.0


@pytest.mark.parametrize("protocol", ["paxos", "lamport"])
def test_four_members_dequeue_each_element_once_when_a_router_is_killed(tmp_path: Path, protocol: str) -> None:
    network = LiveNetwork(tmp_path / "network", ("a", "b"), [("a", "b")])
    try:
        network.start()
        asyncio.run(asyncio.wait_for(dequeue_all(network, tmp_path if protocol == "paxos" else None), 3 * BOUND_S))
    finally:
        network.close()


async def dequeue_all(network: LiveNetwork, directory: Path | None) -> None:
    names = [f"m{number}" for number in range(4)]
    elements = [b"%s %d" % (name.encode(), number) for name in names for number in range(5)]
    got: list[bytes] = []
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(Member(network.urls(), "jobs", name, names, directory=directory))
            for name in names
        ]
        await asyncio.gather(*(member.wait_for_view_size(4, BOUND_S) for member in members))

        async def work(member: Member) -> None:
            for number in range(5):
                await member.enqueue(b"%s %d" % (member.name.encode(), number))
                got.append(await member.sdequeue())
                if number == 1 and member is members[0]:
                    network.kill("b")

        await asyncio.gather(*map(work, members))
        assert sorted(got) == sorted(elements)
        assert await members[0].dequeue() is None
