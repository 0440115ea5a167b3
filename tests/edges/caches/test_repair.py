"""Readers of a writer that stops while it says its last samples, with random losses, orders and deaths of readers."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from edges.caches.cache import Cache, Sample
from edges.caches.repair import SILENCE_S, Heard, Readers, Relay

Depths = list[int | None]


class NothingRelayed(Readers):
    """A deliberate defect: nobody relays what a suspected writer wrote."""

    def receive(self, message: Relay | Heard, now: float) -> None:
        if isinstance(message, Relay):
            super().receive(message, now)


class NotAskedAgain(Readers):
    """A deliberate defect: who learns that another has more does not ask again."""

    def receive(self, message: Relay | Heard, now: float) -> None:
        super().receive(message, now)
        for writer in self._writers.values():
            writer.known = 0


class NotRelayedAgain(Readers):
    """A deliberate defect: what was relayed is not relayed again by who suspects the writer."""

    def receive(self, message: Relay | Heard, now: float) -> None:
        said = len(self.said)
        super().receive(message, now)
        if isinstance(message, Relay):
            del self.said[said:]


class RepeatTakenIn(Readers):
    """A deliberate defect: what was heard already is cached again."""

    def _take_in(self, writer: Any, sample: Sample) -> list[Sample]:
        writer.heard = min(writer.heard, sample.number - 1)
        return super()._take_in(writer, sample)


class OnlyCachedRelayed(Readers):
    """A deliberate defect: what the application has taken is not relayed."""

    def receive(self, message: Relay | Heard, now: float) -> None:
        if isinstance(message, Heard):
            self._kept[message.writer] = {sample.number: sample for sample in self.cache.read()}
        super().receive(message, now)


class KeptTooShort(Readers):
    """A deliberate defect: a reader forgets what it has, not what all have."""

    def _forget(self, name: str, writer: Any, everywhere: int) -> None:
        super()._forget(name, writer, writer.heard or 0)


def play(seed: int, depths: Depths, make: Callable[[int | None], Readers] = Readers) -> None:
    """All readers that live must end with the same samples, or last samples of each key, none twice, none reordered."""
    chance = random.Random(seed)
    everyone = range(len(depths))
    readers = [make(depth) for depth in depths]
    taken: list[list[Sample]] = [[] for _ in readers]
    written = chance.randint(1, 8)
    samples = [Sample("w", number, chance.choice("jk"), number) for number in range(1, written + 1)]
    everywhere = chance.randint(0, written)  # all have these, and the writer says so with those that follow
    for reader in readers:
        for sample in samples[:everywhere]:
            reader.sample(sample, 0, 0.0)
    channels: dict[tuple[int, int], deque[Any]] = {
        (-1, at): deque(samples[everywhere : chance.randint(everywhere, written)]) for at in everyone
    }
    alive = set(everyone)
    dying = set(chance.sample(everyone, chance.randint(0, len(depths) - 2)))
    now, quiet, steps = 0.0, 0, 0
    while quiet < 3:
        assert (steps := steps + 1) < 50_000, "readers do not come to an end"
        ready = [key for key, channel in channels.items() if channel and key[1] in alive]
        if ready and chance.random() < 0.98:
            sender, at = chance.choice(ready)
            message = channels[sender, at].popleft()
            if isinstance(message, Sample):
                readers[at].sample(message, everywhere, now)
            else:
                readers[at].receive(message, now)
            turn = [at]
        else:
            now += SILENCE_S if not ready else chance.choice([0.5, SILENCE_S])
            quiet = 0 if ready else quiet + 1
            turn = sorted(alive)
            for at in turn:
                readers[at].tick(now)
        for at in turn:
            said = readers[at].said[:]
            readers[at].said.clear()
            quiet = 0 if said else quiet
            for other in alive - {at}:
                channels.setdefault((at, other), deque()).extend(said)
            if chance.random() < 0.5:
                taken[at] += readers[at].cache.take()
            if said and at in dying and chance.random() < 0.3:  # in the middle of saying it
                alive.discard(at)
                dying.discard(at)
                for other in alive:
                    channel = channels.setdefault((at, other), deque())
                    for _ in range(chance.randint(0, len(channel))):
                        channel.pop()
    for at in sorted(alive):
        taken[at] += readers[at].cache.take()
        numbers = [sample.number for sample in taken[at]]
        assert len(set(numbers)) == len(numbers), f"reader {at} was given {numbers}"
        for key in "jk":
            of_key = [sample.number for sample in taken[at] if sample.key == key]
            assert of_key == sorted(of_key), f"reader {at} was given {of_key}"
    last = [
        {key: max((s.number for s in taken[at] if s.key == key), default=0) for key in "jk"} for at in sorted(alive)
    ]
    assert all(one == last[0] for one in last), last
    whole = [sorted(sample.number for sample in taken[at]) for at in sorted(alive) if depths[at] is None]
    for one in whole:
        assert one == list(range(1, len(one) + 1)) == whole[0], whole


GROUPS: list[Depths] = [[1] * 4, [None] * 4, [1, 3, None, None]]


@pytest.mark.parametrize("depths", GROUPS, ids=["keep-last 1", "keep-all", "mixed"])
def test_all_readers_end_with_the_same(depths: Depths) -> None:
    for seed in range(300):
        play(seed, depths)


@pytest.mark.parametrize(
    "defect",
    [NothingRelayed, NotAskedAgain, NotRelayedAgain, RepeatTakenIn, OnlyCachedRelayed, KeptTooShort],
)
def test_a_seed_catches_each_defect(defect: type[Readers]) -> None:
    with pytest.raises(AssertionError):
        for seed in range(1000):
            play(seed, [1, 3, None, None], defect)


def test_keep_last_keeps_the_newest_of_each_key_and_read_leaves_them() -> None:
    cache = Cache(2)
    for number in range(1, 4):
        cache.add(Sample("w", number, "k", None))
    cache.add(Sample("w", 4, "other", None))
    assert [sample.number for sample in cache.read("k")] == [2, 3]
    assert [sample.number for sample in cache.read()] == [2, 3, 4]
    assert len(cache) == 3
    assert [sample.number for sample in cache.take("k")] == [2, 3]
    assert [sample.number for sample in cache.take()] == [4]
    assert cache.read() == [] == cache.take("k")
    assert len(cache) == 0


def test_new_values_are_read_once() -> None:
    cache = Cache(None)
    cache.add(Sample("w", 1, "k", None))
    assert [sample.number for sample in cache.read(new=True)] == [1]
    cache.add(Sample("w", 2, "k", None))
    cache.add(Sample("w", 3, "k", None))
    assert [sample.number for sample in cache.read("k", new=True)] == [2, 3]
    assert cache.read(new=True) == []
    assert len(cache) == 3


def test_a_reader_that_comes_late_waits_for_nothing_that_was_written_before() -> None:
    reader = Readers(None)
    reader.sample(Sample("w", 57, "k", None), 50, 0.0)
    assert [sample.number for sample in reader.cache.take()] == [57]
    other = Readers(None)
    other.receive(Relay(Sample("w", 57, "k", None), 56), 0.0)
    assert [sample.number for sample in other.cache.take()] == [57]


def test_what_all_readers_have_is_not_kept_for_them() -> None:
    reader = Readers(1)
    reader.sample(Sample("w", 1, "k", None), 0, 0.0)
    reader.receive(Heard("w", 0), 0.0)
    assert [message.sample.number for message in reader.said if isinstance(message, Relay)] == [1]
    reader.said.clear()
    reader.alive("w", 1, 0.0)
    reader.receive(Heard("w", 0), 0.0)
    assert reader.said == []


def test_a_writer_that_has_ended_is_not_suspected() -> None:
    reader = Readers(1)
    reader.sample(Sample("w", 1, "k", None), 0, 0.0)
    reader.ended("w", 0.0)
    reader.tick(SILENCE_S)
    assert reader.said == []
