"""Groups in virtual time with random deliveries, cuts, stops and restarts; deliberate defects that seeds catch."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from edges.queue.lamport import Lamport
from edges.queue.messages import Record
from edges.queue.paxos import Paxos
from tests.edges.queue import defects
from tests.edges.queue.world import Violation, World, play


def lamport(seed: int, protocol: type[Lamport] = Lamport) -> None:
    world = World(seed, lambda name, names, life, kept: protocol(name, names, life), 3 + seed % 3)
    play(world, 150 + seed % 7 * 100, stops=False, restarts=False)


def paxos(seed: int, protocol: type[Paxos] = Paxos, *, restarts: bool = True) -> None:
    def make(name: str, names: list[str], life: int, kept: list[Record]) -> Paxos:
        queue = protocol(name, names, life, kept)
        queue.room = 1 if seed % 2 else None  # each element has a message of its own
        return queue

    world = World(seed, make, 3 + seed % 3)
    play(world, 150 + seed % 7 * 100, stops=True, restarts=restarts)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_lamports_members_dequeue_each_element_once(first: int) -> None:
    for seed in range(first, first + 20):
        lamport(seed)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_members_that_stop_and_start_again_dequeue_each_element_once(first: int) -> None:
    for seed in range(first, first + 20):
        paxos(seed)


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_a_majority_goes_on_without_members_that_stopped_for_good(first: int) -> None:
    for seed in range(first, first + 20):
        paxos(seed, restarts=False)


@pytest.mark.parametrize("defect", defects.LAMPORT)
def test_a_seed_catches_each_defect_of_lamports_protocol(defect: type[Lamport]) -> None:
    assert caught(lamport, defect, range(60))


@pytest.mark.parametrize(
    ("defect", "seeds"),
    [
        (defects.PromiseNotKept, range(60)),
        (defects.BallotUsedAgain, range(60)),
        (defects.AcceptedNotKept, range(60)),
        (defects.AcceptedNotReported, range(60)),
        (defects.PartTakenForAll, range(60)),
        (defects.MinorityDecides, range(60)),
        (defects.NothingSaidAgain, range(60)),
    ],
)
def test_a_seed_catches_defects_of_the_protocol_like_paxos(defect: type[Paxos], seeds: range) -> None:
    assert caught(paxos, defect, seeds)


def caught(run: object, defect: type, seeds: Iterable[int]) -> bool:
    """Whether one of these seeds shows the defect. If code has changed and none does, look for one among more."""
    for seed in seeds:
        try:
            run(seed, defect)  # type: ignore[operator]
        except Violation:
            return True
    return False
