"""Maps too large for one frame, in either direction: protocol 7.7."""

from __future__ import annotations

import pytest

from router.core.ports import MapState
from router.names import STOLEN
from tests.router.harness import SHORT, Mesh, undecided


def test_parts_of_a_map_are_one_map_when_the_last_has_come() -> None:
    """Protocol 7.7.2."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    states = list(subscriber.map(MapState.ACCEPTED).items())
    subscriber.leave()
    part = mesh.subscriber("b", epoch=2, born=1, unsettled=dict(states[:2]), incomplete=True)
    assert part.parts == 1
    assert not part.answered
    whole = mesh.subscriber("b", epoch=2, born=1, unsettled=dict(states[2:]))
    assert whole.said.listing == dict(states)
    publisher_part = mesh.publisher("b", "p1", epoch=2, incarnation=2, unsettled=undecided("m0"), incomplete=True)
    assert publisher_part.parts == 1
    assert not publisher_part.answered


@pytest.mark.parametrize("incomplete", [True, False])
def test_an_earlier_attach_that_is_read_between_the_parts_does_not_take_their_place(incomplete: bool) -> None:
    """It has lain in the buffer of a connection that the client has left; without the first part the last one would be
    the whole map, and what is not in it settled."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
    publisher.send("m0", "m1")
    publisher.leave()
    first, last = undecided("m0"), undecided("m1")
    mesh.publisher("a", epoch=3, incarnation=1, unsettled=first, incomplete=True)
    late = mesh.publisher("a", epoch=2, incarnation=1, unsettled=first, incomplete=incomplete)
    assert late.condition == STOLEN
    assert mesh.publisher("a", epoch=3, incarnation=1, unsettled=last).answered
    assert not subscriber.settled
    subscriber.leave()
    states = list(subscriber.map(MapState.UNDECIDED).items())
    mesh.subscriber("b", epoch=3, born=1, unsettled=dict(states[:1]), incomplete=True)
    late_subscriber = mesh.subscriber("b", epoch=2, born=1, unsettled=dict(states[:1]), incomplete=incomplete)
    assert late_subscriber.condition == STOLEN
    whole = mesh.subscriber("b", epoch=3, born=1, unsettled=dict(states[1:]))
    assert whole.said.listing == dict(states)


def test_parts_that_are_not_completed_are_forgotten() -> None:
    """Protocol 7.7.2."""
    mesh = Mesh()
    mesh.subscriber("a", epoch=2, born=1, unsettled={}, incomplete=True)
    assert mesh.cores["a"].memory.map_parts
    mesh.pass_time(70.0)
    assert not mesh.cores["a"].memory.map_parts


def test_when_our_map_does_not_fit_only_what_was_told_is_resumed_and_nothing_new_is_sent() -> None:
    """Protocol 7.7.3, 7.7.4."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    states = subscriber.map(MapState.UNDECIDED)
    subscriber.leave()
    publisher.send("m3")
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2)
    assert [got.kind for got in again.got] == ["resume", "resume"]
    again.leave()
    rest = {tag: state for tag, state in states.items() if tag not in {got.tag for got in again.got}}
    last = mesh.subscriber("b", epoch=3, born=1, unsettled=rest)
    assert [got.kind for got in last.got] == ["resume", *["new"] * (len(last.got) - 1)]
    assert "m3" in last.bodies()


def test_when_what_does_not_fit_of_our_maps_was_accepted_two_subscribers_do_not_wait_for_each_other() -> None:
    """What each has accepted ends when the other gets it; it was sent nothing new before all of its map had fitted."""
    mesh = Mesh("a")
    subscribers = [mesh.subscriber("a", name, epoch=1, born=1, accepts=False) for name in ("s0", "s1")]
    publishers = [mesh.publisher("a", name, epoch=1, incarnation=1) for name in ("p0", "p1")]
    publishers[0].send("m0", "m1")
    publishers[1].send("n0")
    m0, m1, n0 = (got.tag for got in subscribers[0].got)
    for subscriber in subscribers:
        subscriber.leave()
    maps = [dict.fromkeys(tags, MapState.ACCEPTED) for tags in ((n0, m0), (m0, m1))]
    again = [
        mesh.subscriber("a", name, epoch=2, born=1, unsettled=states, fits=1)
        for name, states in zip(("s0", "s1"), maps, strict=True)
    ]
    assert [subscriber.bodies() for subscriber in again] == [["m1"], ["n0"]]
    assert [len(publisher.accepted()) for publisher in publishers] == [2, 1]


def test_when_our_map_does_not_fit_what_is_settled_of_the_rest_is_told_all_the_same() -> None:
    """It has no delivery-id there; by the next attach nobody would know it, and it would wait for its publisher again
    (protocol 7.7.5)."""
    mesh = Mesh("ab", address=SHORT)
    subscriber = mesh.subscriber("b", epoch=1, born=1)
    publisher = mesh.publisher("a")
    publisher.send("m0", "m1", "m2")
    states = subscriber.map(MapState.ACCEPTED)
    publisher.leave()
    subscriber.leave()
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2)
    assert [got.tag for got in again.got if got.kind == "resume"] == list(states)[:2]
    mesh.pass_time(SHORT.publisher_expires_s + SHORT.margin_s + 1)
    assert len(again.settled) == 2
    assert [(got.tag, got.settled) for got in again.got[2:]] == [(list(states)[2], True)]


def test_when_our_map_does_not_fit_what_is_undecided_is_told_first() -> None:
    """Protocol 7.6.2."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    mesh.publisher("a", epoch=1, incarnation=1).send("m0", "m1", "m2")
    decided, *undecided_ones = subscriber.map(MapState.UNDECIDED)
    subscriber.leave()
    states = {decided: MapState.ACCEPTED, **dict.fromkeys(undecided_ones, MapState.UNDECIDED)}
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2, accepts=False)
    assert [got.tag for got in again.got] == undecided_ones


@pytest.mark.parametrize("brought", ["by SYNC", "by SYNC after the answer", "by DATA"])
def test_when_our_map_does_not_fit_what_lacks_payload_is_resumed_all_the_same(brought: str) -> None:
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
    publisher.send("m0", "m1", "m2")
    states = subscriber.map(MapState.RECEIVED)
    subscriber.leave()
    if brought == "by DATA":
        publisher.leave()
    publisher.answers = brought == "by SYNC"
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2, accepts=False)
    assert again.answered
    assert again.bodies("resume") == (["m0", "m1"] if brought == "by SYNC" else [])
    if brought == "by DATA":
        mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0", "m1", "m2")).send("m0", "m1", "m2")
    else:
        publisher.answer_question()
        mesh.run()
    assert again.bodies("resume") == ["m0", "m1"]
    assert len(again.got) == 2


def test_when_our_map_does_not_fit_what_lacks_payload_again_waits_for_the_next_ingress() -> None:
    """Protocol 7.6.5."""
    mesh = Mesh("ab")
    subscriber = mesh.subscriber("b", epoch=1, born=1, accepts=False)
    publisher = mesh.publisher("a", epoch=1, incarnation=1)
    publisher.send("m0", "m1", "m2")
    states = subscriber.map(MapState.RECEIVED)
    subscriber.leave()
    again = mesh.subscriber("b", epoch=2, born=1, unsettled=states, fits=2, accepts=False, credit=1)
    assert again.bodies("resume") == ["m0"]
    publisher.leave()
    again.give_credit(1)
    assert again.bodies("resume") == ["m0"]
    mesh.publisher("a", epoch=2, incarnation=1, unsettled=undecided("m0", "m1", "m2")).send("m0", "m1", "m2")
    assert again.bodies("resume") == ["m0", "m1"]
