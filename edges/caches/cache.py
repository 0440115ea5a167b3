"""A reader's local cache: the samples of each key that its history keeps."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple


class Sample(NamedTuple):
    """One write.

    Attributes:
        writer: Who wrote it, and in which of its lives.
        number: Counts what this writer wrote, from 1.
        key: Which instance it is a value of.
        value: What was written: anything that AMQP has a type for.
    """

    writer: str
    number: int
    key: str
    value: Any


class Cache:
    """Samples by key, oldest first.

    Args:
        depth: How many of each key are kept, the newest (keep-last). None: all (keep-all).
    """

    def __init__(self, depth: int | None = 1) -> None:
        assert depth is None or depth >= 1
        self._depth = depth
        self._samples: dict[str, deque[Sample]] = {}
        self._size = 0
        self._unread: dict[str, int] = {}  # key: how many of the newest were never read

    def __len__(self) -> int:
        return self._size

    @property
    def unread(self) -> bool:
        """Whether there is a sample that was never read."""
        return bool(self._unread)

    def add(self, sample: Sample) -> None:
        """A sample has come: with keep-last it may push out the oldest of its key."""
        kept = self._samples.setdefault(sample.key, deque(maxlen=self._depth))
        self._size += len(kept) != self._depth
        kept.append(sample)
        self._unread[sample.key] = min(self._unread.get(sample.key, 0) + 1, len(kept))

    def read(self, key: str | None = None, *, new: bool = False) -> list[Sample]:
        """The samples of this key, or of all keys; they stay. `new`: only those that were not read before."""
        found: list[Sample] = []
        for each in list(self._samples) if key is None else [key]:
            kept = self._samples.get(each, deque())
            unread = self._unread.pop(each, 0)
            found += list(kept)[len(kept) - unread :] if new else kept
        return found

    def take(self, key: str | None = None) -> list[Sample]:
        """The samples of this key, or of all keys; they are removed."""
        taken = self.read(key)
        for each in list(self._samples) if key is None else [key]:
            self._size -= len(self._samples.pop(each, ()))
        return taken
