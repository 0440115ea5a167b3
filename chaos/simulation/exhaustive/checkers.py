"""Checkers by number: what the omniscient observer knows, as one part of the state of a whole world.

Two checkers are the same if they will say the same of everything that may come. What they keep of ended lives is
history, and left out.
"""

from __future__ import annotations

import pickle
from typing import Any

from chaos.judge.ranges import Deliveries
from chaos.simulation.world.checker import Checker, Life, Violation
from chaos.simulation.world.queue_checker import QueueChecker


class Found(Exception):
    """What happened next is wrong."""

    def __init__(self, failure: BaseException) -> None:
        super().__init__(str(failure))
        self.failure = failure


class Checkers:
    def __init__(self, first: Checker) -> None:
        self.numbers: dict[Any, int] = {}
        self.packed: list[bytes] = []
        self.known: dict[tuple[int, Any], int | Found] = {}
        first.hears_of_deaths = False  # that would be more states
        self.first = self.number(first)

    def load(self, number: int) -> Checker:
        checker: Checker = pickle.loads(self.packed[number])  # what we have packed
        return checker

    def number(self, checker: Checker) -> int:
        checker.lives, checker.told = [], []
        for mid, lives in checker.required.items():
            checker.required[mid] = [life for life in lives if life.ended is None]
        name = (
            tuple(sorted((who, self._life(life)) for who, life in checker.current.items())),
            tuple(sorted((mid, tuple(map(self._life, lives))) for mid, lives in checker.required.items())),
            tuple((self._life(life), mid, at) for life, mid, at, _ in checker.missed),
            tuple(sorted((who, found) for who, pairs in checker.deliveries.items() if (found := self._pairs(pairs)))),
            tuple(sorted(checker.excused)),
        )  # fmt: skip
        if isinstance(checker, QueueChecker):
            name = (*name, *self._of_queue(checker))
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.packed)
            self.packed.append(pickle.dumps(checker))
        return number

    def _of_queue(self, checker: QueueChecker) -> tuple[Any, ...]:
        held = [
            tuple(sorted((mid, tuple(sorted(who))) for mid, who in each.items() if who))
            for each in (checker.holders, checker.acceptors, checker.rejections, checker.declines)
        ]
        given_back, ever = tuple(sorted(checker.given_back.items())), tuple(sorted(checker.ever))
        highest = tuple(sorted(checker.highest.items()))
        at = tuple(sorted((g, who, life and life.ended) for g, (who, life) in checker.group_at.items()))
        return (*held, given_back, ever, highest, at, len(checker.twice))

    def _life(self, life: Life) -> tuple[Any, ...]:
        return (life.subscriber, life.ended, tuple(sorted(life.accepted)))

    def _pairs(self, pairs: dict[str, Deliveries]) -> tuple[Any, ...]:
        return tuple(sorted(
            (p, tuple(d.received), tuple(d.accepted), tuple(d.in_hand), d.highest)
            for p, d in pairs.items() if d.received or d.accepted
        ))  # fmt: skip

    def tell(self, number: int, told: tuple[tuple[Any, ...], ...]) -> int:
        """Raises Found."""
        key = (number, told)
        result = self.known.get(key)
        if result is None:
            checker = self.load(number)
            try:
                for what, *arguments in told:
                    if what == "excuse":
                        checker.excused |= set(arguments)
                    else:
                        getattr(checker, what)(*arguments)
                result = self.number(checker)
            except Violation as violation:
                result = Found(violation)
            self.known[key] = result
        if isinstance(result, Found):
            raise result
        return result
