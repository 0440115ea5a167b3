"""What readers do about a writer that stopped while it said its last samples to some of them.

A reader hears each writer in the order of writing. With its samples a writer says up to which number every reader has
them, and a reader keeps the ones above, for the others, whatever its own history is. Once a writer is silent it is
suspected. Then readers say how far they are; whoever has more relays that, and whoever has less asks in the same way.
What is new to a reader that suspects the writer, it relays too: whoever relayed it may have died meanwhile.
A wrong suspicion costs messages and nothing else: what has been heard is recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from edges.caches.cache import Cache, Sample

SILENCE_S: Final = 5.0  # after which a writer is suspected; and what is lacking is asked for again
FORGET_S: Final = 600.0  # after which nothing is known of a silent writer


class Relay(NamedTuple):
    """What a suspected writer wrote, from somebody who heard it.

    Attributes:
        sample: What it wrote.
        everywhere: Every reader has the writer's samples up to this number.
    """

    sample: Sample
    everywhere: int


class Heard(NamedTuple):
    """The sender has the samples of this suspected writer up to `number`."""

    writer: str
    number: int


@dataclass(slots=True)
class _Writer:
    heard_at: float
    heard: int | None = None  # up to this number; None: nothing yet, and it may have written before we were there
    everywhere: int = 0
    suspected: bool = False
    asked_at: float = 0.0
    known: int = 0  # somebody has its samples up to this number
    ended: bool = False


class Readers:
    """One reader's part: its cache, and the repair.

    Args:
        depth: Of the cache. None: keep-all.

    Attributes:
        cache: What the application reads and takes.
        said: What to say to all other readers, in this order. Whoever says it clears it.
    """

    def __init__(self, depth: int | None = 1) -> None:
        self.cache = Cache(depth)
        self.said: list[Relay | Heard] = []
        self._writers: dict[str, _Writer] = {}
        self._kept: dict[str, dict[int, Sample]] = {}  # writer: what others may lack, whatever was taken here
        self._early: dict[str, dict[int, Sample]] = {}  # writer: what was relayed before the ones in between

    def sample(self, sample: Sample, everywhere: int, now: float) -> None:
        """A writer's own message has come. Everything that it wrote since we are there has come before."""
        writer = self._hear(sample.writer, now)
        if writer.heard is None or sample.number > writer.heard + 1:
            writer.heard = sample.number - 1
            self._early.pop(sample.writer, None)
        self._take_in(writer, sample)
        self._forget(sample.writer, writer, everywhere)

    def alive(self, name: str, everywhere: int, now: float) -> None:
        """A writer has nothing to write."""
        self._forget(name, self._hear(name, now), everywhere)

    def ended(self, name: str, now: float) -> None:
        """A writer has ended, and every reader has what it wrote."""
        writer = self._hear(name, now)
        writer.ended = True
        self._kept.pop(name, None)

    def receive(self, message: Relay | Heard, now: float) -> None:
        """Another reader says this."""
        if isinstance(message, Relay):
            writer = self._writers.setdefault(message.sample.writer, _Writer(now))
            if writer.heard is None:
                writer.heard = message.everywhere
            writer.known = max(writer.known, message.sample.number)
            for sample in self._take_in(writer, message.sample):
                if writer.suspected:
                    self.said.append(Relay(sample, writer.everywhere))
            self._forget(message.sample.writer, writer, message.everywhere)
            return
        name, number = message
        writer = self._writers.setdefault(name, _Writer(now))
        kept = self._kept.get(name, {})
        self.said += [Relay(kept[each], writer.everywhere) for each in sorted(kept) if each > number]
        writer.known = max(writer.known, number)

    def tick(self, now: float) -> None:
        """Writers that are silent for too long are suspected, and much later forgotten."""
        for name, writer in list(self._writers.items()):
            silent_s = now - writer.heard_at
            if silent_s >= FORGET_S:
                for known in (self._writers, self._kept, self._early):
                    known.pop(name, None)
            elif not SILENCE_S <= silent_s < FORGET_S / 2 or writer.ended:
                continue
            elif not writer.suspected or (writer.known > (writer.heard or 0) and now - writer.asked_at >= SILENCE_S):
                writer.suspected = True
                writer.asked_at = now
                self.said.append(Heard(name, writer.heard or 0))

    def _hear(self, name: str, now: float) -> _Writer:
        writer = self._writers.setdefault(name, _Writer(now))
        writer.heard_at, writer.suspected = now, False
        return writer

    def _take_in(self, writer: _Writer, sample: Sample) -> list[Sample]:
        """What is new by it, in the order of writing."""
        name, number = sample.writer, sample.number
        assert writer.heard is not None
        if number <= writer.heard:
            return []
        early = self._early.setdefault(name, {})
        early[number] = sample
        new: list[Sample] = []
        while (following := early.pop(writer.heard + 1, None)) is not None:
            writer.heard += 1
            new.append(following)
        for each in new:
            if each.number > writer.everywhere:
                self._kept.setdefault(name, {})[each.number] = each
            self.cache.add(each)
        return new

    def _forget(self, name: str, writer: _Writer, everywhere: int) -> None:
        """Every reader has these: they need not be kept for others."""
        if everywhere > writer.everywhere:
            writer.everywhere = everywhere
            kept = self._kept.get(name, {})
            for number in [number for number in kept if number <= everywhere]:
                del kept[number]
