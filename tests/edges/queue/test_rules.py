"""Single rules of docs/shared-queue.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edges.queue.elements import Elements
from edges.queue.group import Failed, Group, Joined, Left, NewEpoch, NewLeader
from edges.queue.lamport import Lamport
from edges.queue.messages import (
    Alive,
    Decision,
    Dequeued,
    Element,
    ElementId,
    Leave,
    Message,
    Outdated,
    Request,
    Send,
    Serial,
    Value,
)
from edges.queue.paxos import Paxos
from tests.edges.queue import defects
from tests.edges.queue.world import World

FIRST = Element(ElementId("a", 1, 1), b"first")
SECOND = Element(ElementId("a", 1, 2), b"second")


def popped_before_it_came(elements: Elements) -> bool:
    elements.pop(SECOND.id)
    elements.pop(FIRST.id)
    return not elements.add(FIRST) and not elements.add(SECOND)


def test_an_element_that_was_dequeued_before_it_came_is_not_held() -> None:
    assert popped_before_it_came(Elements())
    assert not popped_before_it_came(defects.ForgetfulElements())


def test_what_was_dequeued_is_remembered_as_one_number_and_the_exceptions_above_it() -> None:
    elements = Elements()
    for number in (3, 1, 2, 5):
        elements.pop(ElementId("a", 1, number))
    assert (elements._popped_below, elements._popped) == ({("a", 1): 4}, {ElementId("a", 1, 5)})


@pytest.mark.parametrize("make", [lambda: Lamport("a", "abc", 1), lambda: Paxos("a", "abc", 1)])
def test_dequeue_of_an_empty_cache_answers_nothing_at_once(make: Callable[[], Lamport | Paxos]) -> None:
    queue = make()
    ticket = queue.dequeue(wait=False)
    assert queue.outputs() == [Dequeued(ticket, None)]


def decided_twice_for_one_element(queue: Paxos) -> None:
    for slot, member in enumerate("bc"):
        queue.receive("b", Decision(slot, Value(member, Serial(1, 1), FIRST)), now=0.0)


def test_the_second_decision_for_an_element_answers_nobody() -> None:
    answers = {}
    for protocol in (Paxos, defects.ElementDecidedTwice):
        queue = protocol("c", "abc", 1)
        ticket = queue.dequeue(wait=True)
        decided_twice_for_one_element(queue)
        answers[protocol] = Dequeued(ticket, FIRST) in queue.outputs()
    assert answers == {Paxos: False, defects.ElementDecidedTwice: True}


def test_the_second_decision_for_a_request_pops_nothing() -> None:
    held = {}
    for protocol in (Paxos, defects.RequestAnsweredTwice):
        queue = protocol("c", "abc", 1)
        for element in (FIRST, SECOND):
            queue.receive("a", element, now=0.0)
        for slot, element in enumerate((FIRST, SECOND)):
            queue.receive("b", Decision(slot, Value("b", Serial(1, 1), element)), now=0.0)
        held[protocol] = len(queue.elements)
    assert held == {Paxos: 1, defects.RequestAnsweredTwice: 0}


def test_a_leader_that_lacks_the_element_gives_out_the_one_that_the_requester_offers() -> None:
    leader = Paxos("a", "a", 1)
    leader.lead(0.0)
    leader.receive("b", Request(Serial(1, 1), True, FIRST, 0), now=0.0)
    assert Send(Decision(0, Value("b", Serial(1, 1), FIRST))) in leader.outputs()


def test_lamports_members_wait_for_one_that_is_dead_until_it_is_declared_dead() -> None:
    """The limit of the protocol, which the one like Paxos does not have."""
    world = World(0, lambda name, names, life, kept: Lamport(name, names, life), 3)
    world.enqueue("a")
    assert world.settle(lambda: all(len(process.queue.elements) for process in world.processes.values()))
    world.stop("c")
    world.dequeue("a", wait=False)
    assert not world.settle(world.nobody_waits)
    for name in "ab":
        queue = world.processes[name].queue
        queue.declare_dead("c")
        world.carry_out(name)
    assert world.settle(world.nobody_waits)
    assert len(world.dequeued) == 1


def test_lamports_members_do_not_wait_for_one_that_left() -> None:
    queue = Lamport("a", "ab", 1)
    queue.receive("b", FIRST, now=0.0)
    ticket = queue.dequeue(wait=False)
    assert Dequeued(ticket, FIRST) not in queue.outputs()
    queue.receive("b", Leave(1), now=0.0)
    assert Dequeued(ticket, FIRST) in queue.outputs()


def test_a_minority_dequeues_nothing_until_it_is_a_majority_again() -> None:
    world = World(0, Paxos, 3)
    world.enqueue("a")
    world.stop("b")
    world.stop("c")
    world.dequeue("a", wait=True)
    assert not world.settle(world.nobody_waits)
    world.start("b")
    assert world.settle(world.nobody_waits)


def test_the_log_is_forgotten_once_all_have_applied_it() -> None:
    world = World(0, Paxos, 3)
    for _ in range(20):
        world.enqueue("a")
        world.dequeue("b", wait=True)
        assert world.settle(world.nobody_waits)
    assert all(len(vars(process.queue)["_decided"]) < 5 for process in world.processes.values())


def said(group: Group, sender: str, message: Message, now: float = 0.0) -> list[object]:
    group.events()
    group.receive(sender, message, now)
    return list(group.events())


def test_a_member_that_joins_is_answered_and_in_the_view() -> None:
    group = Group("b", 1, 0.0)
    group.messages()
    assert said(group, "a", Alive(1, joining=True)) == [Joined("a"), NewEpoch(2, ("a", "b")), NewLeader("a")]
    assert group.messages() == [Alive(1)]
    assert (group.view, group.leader) == (("a", "b"), "a")


def test_a_silent_member_has_failed_and_the_next_leads() -> None:
    group = Group("b", 1, 0.0, heartbeat_s=1.0, suspect_s=5.0)
    said(group, "a", Alive(1))
    group.tick(5.0)
    assert group.events() == []
    group.tick(5.1)
    assert group.events() == [Failed("a"), NewEpoch(3, ("b",)), NewLeader("b")]
    assert said(group, "a", Alive(1), 6.0) == [Joined("a"), NewEpoch(4, ("a", "b")), NewLeader("a")]


def test_a_member_that_left_comes_back_in_its_next_life_only() -> None:
    group = Group("b", 1, 0.0)
    said(group, "a", Alive(1))
    assert said(group, "a", Leave(1)) == [Left("a"), NewEpoch(3, ("b",)), NewLeader("b")]
    assert said(group, "a", Alive(1)) == []
    assert said(group, "a", Alive(2)) == [Joined("a"), NewEpoch(4, ("a", "b")), NewLeader("a")]


def test_a_member_that_starts_again_has_failed_and_joined() -> None:
    group = Group("a", 1, 0.0)
    said(group, "b", Alive(1))
    happened = said(group, "b", Alive(2, joining=True))
    assert [type(event) for event in happened] == [Failed, NewEpoch, Joined, NewEpoch]


def test_a_member_that_joins_in_an_older_life_is_told_so() -> None:
    group, old = Group("b", 1, 0.0), Group("a", 1, 0.0)
    said(group, "a", Alive(2))
    group.messages()
    assert said(group, "a", Alive(1)) == []
    assert group.messages() == []  # it may have come late
    said(group, "a", Alive(1, joining=True))
    (answer,) = group.messages()
    assert answer == Outdated("a", 1, 2)
    said(old, "b", answer)
    assert old.outdated == 2
    assert not said(Group("a", 3, 0.0), "b", answer)


def test_a_member_that_left_leads_nobody() -> None:
    group = Group("a", 1, 0.0)
    group.leave()
    assert (group.view, group.leader) == ((), None)
    assert Leave(1) in group.messages()
