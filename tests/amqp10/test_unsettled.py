"""Ranges of unsettled deliveries against a plain dict that does the same one delivery at a time."""

from __future__ import annotations

import random

import pytest

from amqp10.serial import difference, unwrap
from amqp10.unsettled import UnsettledRanges


@pytest.mark.parametrize("seed", range(30))
def test_ranges_say_what_a_dict_says(seed: int) -> None:
    rng = random.Random(seed)
    ranges: UnsettledRanges[str] = UnsettledRanges()
    model: dict[int, str] = {}
    top = rng.choice((0, 1000))
    labels = ["a0", "b0", "c0"]
    for _ in range(2000):
        kind = rng.random()
        if kind < 0.4:
            top += rng.choice((0, 0, 1, 5))
            count = rng.choice((1, 1, 2, 30))
            link = rng.choice(labels)
            ranges.add(top, top + count, link)
            model.update((number, link) for number in range(top, top + count))
            top += count
        elif kind < 0.97:
            low = min(model, default=top)
            first = rng.randrange(low - 2, top + 3)
            end = first + rng.choice((1, 1, 3, 40, 300))
            assert [ranges.holds(number) for number in range(first, end)] == [
                number in model for number in range(first, end)
            ]
            found = ranges.remove(first, end)
            assert [(number, link) for link, low, high in found for number in range(low, high)] == [
                (number, model.pop(number)) for number in range(first, end) if number in model
            ]
        else:
            link = rng.choice(labels)
            ranges.drop(link)
            model = {number: its for number, its in model.items() if its != link}
            labels[labels.index(link)] = f"{link[0]}{int(link[1:]) + 1}"  # a link that has ended gets none
        ranges.check_invariants(top)
    ranges.remove(0, top + 1)
    assert len(ranges) == 0


def test_settling_in_order_costs_one_range() -> None:
    ranges: UnsettledRanges[str] = UnsettledRanges()
    for number in range(10_000):
        ranges.add(number, number + 1, "a")
        if number >= 100:
            assert ranges.remove(number - 100, number - 99) == [("a", number - 100, number - 99)]
    assert len(ranges) == 1


def test_one_delivery_that_is_never_settled_keeps_nothing_else() -> None:
    ranges: UnsettledRanges[str] = UnsettledRanges()
    ranges.add(0, 1, "stuck")
    for number in range(1, 20_000):
        ranges.add(number, number + 1, "ab"[number % 2])
        ranges.remove(number, number + 1)
    assert len(ranges) == 1
    assert len(ranges.firsts) < 1000


@pytest.mark.parametrize("drops", [False, True])
def test_emptied_ranges_are_gone_over_once(drops: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    plain = UnsettledRanges._is_empty

    def counted(self: UnsettledRanges[str], index: int) -> bool:
        nonlocal looks
        looks += 1
        return plain(self, index)

    monkeypatch.setattr(UnsettledRanges, "_is_empty", counted)
    ranges: UnsettledRanges[str] = UnsettledRanges()
    for number in range(1_000):
        ranges.add(number, number + 1, "ab"[number % 2] if number < 502 else f"{number}")
    for number in range(502, 1_000):
        if drops:
            ranges.drop(f"{number}")
        else:
            ranges.remove(number, number + 1)
    for first in [*range(502, 1_000)] * 4:
        assert ranges.remove(first, 1_000) == []
    assert (len(ranges), len(ranges.firsts)) == (502, 1_000)
    assert looks < 10_000


@pytest.mark.parametrize(
    ("wire", "near", "plain"),
    [
        (5, 3, 5),
        (0, 2**32 - 1, 2**32),
        (2**32 - 1, 2**32, 2**32 - 1),
        (7, 5 * 2**32 + 9, 5 * 2**32 + 7),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31, 0, -(2**31)),
    ],
)
def test_a_serial_number_is_taken_as_near_as_it_can_be(wire: int, near: int, plain: int) -> None:
    assert unwrap(wire, near) == plain
    assert difference(wire, near & 0xFFFFFFFF) == plain - near


def test_no_more_ranges_are_settled_at_once_than_are_asked_for() -> None:
    ranges: UnsettledRanges[str] = UnsettledRanges()
    for n in range(10):
        ranges.add(n, n + 1, "ab"[n & 1])
    assert ranges.remove(0, 10, 4) == [("ab"[n & 1], n, n + 1) for n in range(4)]
    assert ranges.remove(0, 10, 4) == [("ab"[n & 1], n, n + 1) for n in range(4, 8)]
    assert len(ranges.remove(0, 10, 4)) == 2
    ranges.check_invariants(10)
