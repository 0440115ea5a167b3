"""All that can happen to three members in small worlds: no element is dequeued twice, no place is decided twice."""

from __future__ import annotations

import pytest

from edges.queue.lamport import Lamport
from edges.queue.messages import Record
from edges.queue.paxos import Paxos
from tests.edges.queue import defects
from tests.edges.queue.explorer import SmallWorld, explore, nobody_waits
from tests.edges.queue.world import Queue, Violation


class Make:
    """Members of this protocol; a class, so that a world can be saved."""

    def __init__(self, protocol: type[Queue]) -> None:
        self.protocol = protocol

    def __call__(self, name: str, names: list[str], life: int, kept: list[Record]) -> Queue:
        if issubclass(self.protocol, Lamport):
            return self.protocol(name, names, life)
        return self.protocol(name, names, life, kept)


def lamport(protocol: type[Lamport], *, writers: str, readers: str) -> SmallWorld:
    """These members wait for an element each, then these enqueue one each."""
    world = SmallWorld(Make(protocol))
    for name in readers:
        world.dequeue(name, wait=True)
    for name in writers:
        world.enqueue(name)
    return world


def paxos(protocol: type[Paxos], restarts: str = "") -> SmallWorld:
    """c waits for an element; a and b hold one each. a leads at first; b is to lead too, whenever that is. These stop
    once, and start again with what they have kept."""
    world = SmallWorld(Make(protocol))
    world.hold("a", 1)
    world.hold("b", 2)
    world.dequeue("c", wait=True)
    while deliverable := world.deliverable():
        world.deliver(deliverable[0])
    world.to_lead = ["a", "b"]
    world.take(("lead", "a"))
    world.to_restart = list(restarts)
    return world


def test_lamport_serves_two_members_from_two_writers_in_all_orders() -> None:
    assert explore(lamport(Lamport, writers="ac", readers="ab"), nobody_waits) > 3_000


@pytest.mark.parametrize("writer", ["a", "c"])
def test_lamport_gives_one_element_to_one_of_two_members_in_all_orders(writer: str) -> None:
    def one_waits(world: SmallWorld) -> None:
        assert [len(process.open) for process in world.processes.values()].count(1) == 1

    assert explore(lamport(Lamport, writers=writer, readers="ab"), one_waits) > 500


def test_no_place_is_decided_twice_when_two_members_lead_in_all_orders() -> None:
    assert explore(paxos(Paxos)) > 3_000


@pytest.mark.long
@pytest.mark.parametrize("restarts", ["b", "c"])
def test_no_place_is_decided_twice_when_a_member_stops_and_starts_again_in_all_orders(restarts: str) -> None:
    assert explore(paxos(Paxos, restarts)) > 8_000


@pytest.mark.long
@pytest.mark.parametrize("defect", [defects.AcceptedNotKept, defects.BallotUsedAgain])
def test_a_world_with_a_restart_catches_what_is_not_kept(defect: type[Paxos]) -> None:
    with pytest.raises(Violation, match="place 0"):
        explore(paxos(defect, "c"))


@pytest.mark.parametrize("defect", defects.LAMPORT)
def test_a_world_catches_each_defect_of_lamports_protocol(defect: type[Lamport]) -> None:
    with pytest.raises(Violation, match="was dequeued by"):
        explore(lamport(defect, writers="c", readers="ab"))


@pytest.mark.parametrize("defect", [defects.PromiseNotKept, defects.AcceptedNotReported, defects.MinorityDecides])
def test_a_world_catches_defects_of_the_protocol_like_paxos(defect: type[Paxos]) -> None:
    with pytest.raises(Violation, match="place 0"):
        explore(paxos(defect))
