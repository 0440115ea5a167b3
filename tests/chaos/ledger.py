"""What clients write down, line by line, and the judge that reads it: independent of every word the product says.

A publisher's file has `sent N` before a message is handed to its client and `accepted N` when the network said so.
A subscriber's file has `handed PUBLISHER N` when a delivery comes to the application as a new one and `accepted
PUBLISHER N` when the accept is the client's for good (durable, where there is a journal).  Either may have
`note TEXT` lines for people.  Lines are written at once, so that they outlive a kill -9 of the client.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class Ledger:
    """Appends lines to one file; each call is one write."""

    def __init__(self, path: str | Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *lines: str) -> None:
        os.write(self._fd, "".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        os.close(self._fd)


def body(publisher: str, number: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(100, b".")


def read_body(octets: bytes) -> tuple[str, int]:
    publisher, number, _ = octets.split(b" ", 2)
    return publisher.decode(), int(number)


def lines(path: Path) -> list[list[str]]:
    """Complete lines, split into words."""
    if not path.exists():
        return []
    text = path.read_text()
    return [line.split(" ") for line in text[: text.rfind("\n") + 1].splitlines()]


@dataclass(slots=True)
class Received:
    """What one subscriber got of one publisher."""

    subscriber: str
    publisher: str
    handed: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    duplicate: list[int] = field(default_factory=list)
    out_of_order: list[tuple[int, int]] = field(default_factory=list)

    @property
    def faultless(self) -> bool:
        return not (self.lost or self.duplicate or self.out_of_order)


@dataclass(slots=True)
class Verdict:
    published: dict[str, int]
    accepted: dict[str, int]
    received: list[Received]
    notes: list[str]

    @property
    def faultless(self) -> bool:
        return self.published == self.accepted and all(one.faultless for one in self.received)

    def __str__(self) -> str:
        rows = [f"{name}: published {count}, accepted {self.accepted[name]}" for name, count in self.published.items()]
        for one in self.received:
            rows.append(
                f"{one.subscriber} from {one.publisher}: handed {len(one.handed)}, lost {some(one.lost)}, "
                f"duplicate {some(one.duplicate)}, out of order {some(one.out_of_order)}"
            )
        return "\n".join([*rows, *self.notes])


def some(values: Sequence[object]) -> str:
    return str(len(values)) + (f" ({', '.join(map(str, values[:5]))})" if values else "")


def judge(publishers: Iterable[Path], subscribers: Iterable[Path], *, killed: Iterable[str] = ()) -> Verdict:
    """Every message published must have been accepted, and handed to every subscriber once, in order.

    `killed` names clients that were killed themselves: such a subscriber may be handed again what it had not
    accepted for good; of such a publisher's messages some outcomes went down with it.
    """
    gone = set(killed)
    published: dict[str, int] = {}
    accepted: dict[str, int] = {}
    notes = []
    sent: dict[str, set[int]] = {}
    for path in publishers:
        words = lines(path)
        sent[path.stem] = {int(word[1]) for word in words if word[0] == "sent"}
        confirmed = {int(word[1]) for word in words if word[0] == "accepted"}
        published[path.stem] = len(sent[path.stem])
        accepted[path.stem] = len(sent[path.stem] if path.stem in gone else confirmed & sent[path.stem])
        notes += [f"{path.stem}: {' '.join(word[1:])}" for word in words if word[0] == "note"]
    received = []
    for path in subscribers:
        words = lines(path)
        notes += [f"{path.stem}: {' '.join(word[1:])}" for word in words if word[0] == "note"]
        for publisher, numbers in sent.items():
            received.append(_follow(path.stem, publisher, words, numbers, path.stem in gone))
    return Verdict(published, accepted, received, notes)


def _follow(subscriber: str, publisher: str, words: list[list[str]], sent: set[int], killed: bool) -> Received:
    result = Received(subscriber, publisher)
    handed: set[int] = set()
    final: set[int] = set()
    last = -1
    for word in words:
        if len(word) != 3 or word[1] != publisher:
            continue
        number = int(word[2])
        if word[0] == "accepted":
            final.add(number)
            continue
        if number in handed:
            if number in final or not killed:
                result.duplicate.append(number)
        else:
            if number < last:
                result.out_of_order.append((last, number))
            handed.add(number)
            result.handed.append(number)
        last = max(last, number)
    result.lost = sorted(sent - handed)
    return result
