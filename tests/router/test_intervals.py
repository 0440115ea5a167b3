"""Interval sets against the plain sets that they stand for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.core.intervals import OPEN, IntervalSet, count

RANGE = st.tuples(st.integers(0, 40), st.integers(0, 40))
STEP = st.tuples(st.sampled_from(["add", "remove", "overlap", "missing", "following"]), RANGE)


def members(ranges: IntervalSet | list[tuple[int, int]]) -> set[int]:
    return {i for a, b in ranges for i in range(a, b)}


@given(st.lists(STEP, max_size=40))
def test_every_operation_does_what_it_does_on_a_set(steps: list[tuple[str, tuple[int, int]]]) -> None:
    ranges, model = IntervalSet(), set[int]()
    for operation, (a, b) in steps:
        span = set(range(a, b))
        if operation == "add":
            ranges.add(a, b)
            model |= span
        elif operation == "remove":
            assert members(ranges.remove(a, b)) == model & span
            model -= span
        elif operation == "overlap":
            assert members(ranges.overlap(a, b)) == model & span
        elif operation == "missing":
            assert members(ranges.missing([(a, b)] if a < b else [])) == span - model
        else:
            following = ranges.following(a)
            assert (following[0] if following else None) == min((i for i in model if i >= a), default=None)
        assert members(ranges) == model
        assert ranges.size == len(model) == count(ranges)
        assert all(i in ranges for i in model)
        assert 41 not in ranges
        assert all(b < c for b, c in zip(ranges.stops, ranges.starts[1:], strict=False)), "ranges that touch are one"
        assert ranges.first() == min(model, default=OPEN)


@given(st.lists(st.tuples(st.sampled_from(["add", "remove"]), RANGE), max_size=20), st.integers(0, 50))
def test_an_open_tail_is_an_ordinary_range_until_it_is_closed(
    steps: list[tuple[str, tuple[int, int]]], end: int
) -> None:
    ranges, model = IntervalSet([(10, OPEN)]), set(range(10, 60))
    for operation, (a, b) in steps:
        if operation == "add":
            ranges.add(a, b)
            model |= set(range(a, b))
        else:
            ranges.remove(a, b)
            model -= set(range(a, b))
    assert ranges.stops[-1] == OPEN
    tail = ranges.starts[-1]
    ranges.close(max(end, 0))
    assert members(ranges) == {i for i in model if i < max(end, 0) or i < tail} - set(range(max(end, tail), 60))


def test_taking_all_leaves_nothing() -> None:
    ranges = IntervalSet([(1, 3), (5, 9)])
    assert ranges.take() == [(1, 3), (5, 9)]
    assert not ranges
    assert ranges == IntervalSet()
