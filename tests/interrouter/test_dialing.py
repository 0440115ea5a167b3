"""When a router dials: how long it waits for an answer, how often it asks, and what a sign of the network changes."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from interrouter.dialing import (
    ATTEMPT_LEAST_S,
    ATTEMPT_MOST_S,
    DIAL_EAGERLY_S,
    DIAL_FIRST_S,
    DIAL_MOST_S,
    Dialing,
    Step,
)


def dialing(dead_after_s: float = 3.0, spread: float = 1.0) -> Dialing:
    return Dialing(0.0, dead_after_s=dead_after_s, spread=lambda: spread)


def without_answer(one: Dialing, until: float) -> list[float]:
    """When attempts begin."""
    began = []
    while one.at < until:
        now = one.at
        if one.look(now) is Step.DIAL:
            began.append(now)
    return began


def refused(one: Dialing, until: float) -> list[float]:
    """The same, where each is refused at once."""
    began = []
    while one.at < until:
        began.append(one.at)
        assert one.look(one.at) is Step.DIAL
        one.failed(began[-1])
    return began


def test_it_dials_at_once_and_waits_for_the_answer_a_third_of_dead_after() -> None:
    one = dialing(dead_after_s=3.0)
    assert one.look(0.0) is Step.DIAL
    assert one.at == one.attempt_s == 1.0
    assert one.look(0.9) is None
    assert one.look(1.0) is Step.GIVE_UP


def test_without_an_answer_it_asks_as_often_after_an_hour_as_at_first() -> None:
    began = without_answer(dialing(), 3600.0)
    assert {later - earlier for earlier, later in pairwise(began)} == {1.0}


@pytest.mark.parametrize(("dead_after_s", "attempt_s"), [(0.05, ATTEMPT_LEAST_S), (3.0, 1.0), (600.0, ATTEMPT_MOST_S)])
def test_an_attempt_takes_no_longer_than_an_answer_can(dead_after_s: float, attempt_s: float) -> None:
    assert dialing(dead_after_s).attempt_s == attempt_s


def test_where_it_is_refused_it_dials_eagerly_for_a_while_and_then_once_a_second() -> None:
    began = refused(dialing(), 60.0)
    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert pauses[0] == DIAL_FIRST_S
    assert sum(pause < 2 * DIAL_FIRST_S for pause in pauses) == pytest.approx(DIAL_EAGERLY_S / DIAL_FIRST_S, abs=2)
    assert pauses[-5:] == pytest.approx([DIAL_MOST_S] * 5)
    assert max(pauses) == pytest.approx(DIAL_MOST_S)


def test_pauses_are_spread() -> None:
    assert refused(dialing(spread=0.5), 1.0)[1] == DIAL_FIRST_S / 2


def test_nothing_is_due_while_it_is_connected() -> None:
    one = dialing()
    one.look(0.0)
    one.answered(0.1)
    one.sign(5.0)
    assert one.at == inf
    assert one.look(1e9) is None


def test_a_trunk_that_is_lost_is_dialled_eagerly_again() -> None:
    one = dialing()
    refused(one, 60.0)
    one.look(one.at)
    one.answered(61.0)
    one.lost(100.0)
    assert one.at == 100.0 + DIAL_FIRST_S
    assert len(refused(one, 102.0)) > 30


def test_a_connection_that_is_refused_by_the_router_counts_as_an_attempt() -> None:
    one = dialing()
    now = 0.0
    for _ in range(200):
        now = one.at
        assert one.look(now) is Step.DIAL
        one.answered(now)
        one.lost(now + 0.01)
    assert one.at - now == DIAL_MOST_S


def test_a_neighbour_that_answers_and_refuses_is_not_dialled_eagerly() -> None:
    one = dialing()
    began = []
    while one.at < DIAL_EAGERLY_S:
        began.append(one.at)
        one.look(one.at)
        one.answered(began[-1])
        one.lost(began[-1] + 0.01)
    assert [later - earlier for earlier, later in pairwise(began)] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0])


def test_a_sign_ends_a_pause() -> None:
    one = dialing()
    began = refused(one, 60.0)
    one.sign(began[-1] + 0.5)
    assert one.at == began[-1] + 0.5


def test_a_sign_ends_an_attempt_that_has_waited_and_begins_the_next_at_once() -> None:
    one = dialing()
    one.look(0.0)
    one.sign(0.1)
    assert one.at == 1.0, "its packet may be under way"
    one.sign(0.5)
    assert one.look(0.5) is Step.GIVE_UP
    assert one.look(0.5) is Step.DIAL


def test_signs_without_end_leave_a_neighbour_far_away_time_to_answer() -> None:
    one = dialing()
    now, began, longest = 0.0, 0.0, 0.0
    while now < 10.0:
        while one.at <= now:
            if one.look(now) is Step.GIVE_UP:
                longest = max(longest, now - began)
            else:
                began = now
        now += 0.01
        one.sign(now)
    assert longest == pytest.approx(1.0, abs=0.02)


def test_signs_without_end_make_no_storm_of_attempts() -> None:
    one = dialing()
    now, attempts = 0.0, 0
    while now < 10.0:
        if one.at <= now:
            attempts += one.look(now) is Step.DIAL
            one.failed(now)
        now += 0.001
        one.sign(now)
    assert attempts <= 10.0 / DIAL_FIRST_S + 1


def test_a_sign_while_an_attempt_fails_is_not_forgotten() -> None:
    one = dialing()
    one.look(0.0)
    one.sign(0.5)
    one.failed(0.5)
    assert one.look(0.5) is Step.DIAL
