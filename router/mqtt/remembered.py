"""Answers that are kept so that they need not be found again. What they take is counted in octets, and bounded."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
ENTRY: Final = 200  # octets beside those of the key and the answer, about


class Remembered(Generic[K, V]):
    """Answers of one kind; the oldest go first.

    Attributes:
        answers: By key. Others read it, and enter by `keep`.
        octets: What they take, as those who keep them have said.
        room: The most octets. The latest answer is kept in any case.
    """

    __slots__ = ("_sizes", "answers", "octets", "room")

    def __init__(self, room: int) -> None:
        self.answers: dict[K, V] = {}
        self.octets = 0
        self.room = room
        self._sizes: dict[K, int] = {}

    def keep(self, key: K, answer: V, octets: int) -> None:
        """octets: of the key, and of what is kept for this answer only."""
        self.octets += octets + ENTRY - self._sizes.pop(key, 0)
        self.answers.pop(key, None)
        self.answers[key], self._sizes[key] = answer, octets + ENTRY
        while self.octets > self.room and len(self.answers) > 1:
            oldest = next(iter(self.answers))
            del self.answers[oldest]
            self.octets -= self._sizes.pop(oldest)

    def clear(self) -> None:
        self.answers.clear()
        self._sizes.clear()
        self.octets = 0
