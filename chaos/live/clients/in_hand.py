"""What a client was doing when it was killed, so that its next process can complete the history.

A kill -9 may come after the journal has an accept, or an outcome, and before the line in the history. The accept
counts, and only the journal knows of it. So a subscriber notes a batch with its tags before the accept, always in the
same place, and its next process asks the journal which of these tags it has. A publisher's next process looks for
messages that were sent, have no line with an outcome, and are no longer in the journal: the journal forgets what was
decided, and here nobody rejects.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from onceway.client.journal import SubscriberJournal
from onceway.client.sqlite_journal import SqliteJournal

Delivery = tuple[str, int]  # publisher, number


class InHand:
    """One line in a file, replaced by a single write."""

    def __init__(self, path: str | Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        line, newline, _ = os.pread(self._fd, 1 << 24, 0).partition(b"\n")
        entries = json.loads(line) if newline else []
        self.before: dict[bytes, Delivery] = {bytes.fromhex(tag): (p, n) for tag, p, n in entries}

    def note(self, tags: Sequence[bytes], deliveries: Sequence[Delivery]) -> None:
        entries = [(tag.hex(), p, n) for tag, (p, n) in zip(tags, deliveries, strict=True)]
        os.pwrite(self._fd, json.dumps(entries, separators=(",", ":")).encode() + b"\n", 0)


def without_outcome(history: str | Path) -> set[int]:
    """Numbers that the publisher whose history this is had sent and not been told about."""
    sent: set[int] = set()
    for line in Path(history).read_bytes().splitlines():
        event = json.loads(line)
        if event["op"] == "send":
            sent.add(event["n"])
        elif event["op"] == "outcome":
            sent.discard(event["n"])
    return sent


class ReadingJournal(SqliteJournal):
    """The embedded journal, which tells what it had accepted when it was opened."""

    accepted_before: frozenset[bytes] = frozenset()

    def subscriber(self, address: str, name: str) -> SubscriberJournal:  # type: ignore[override]
        part = super().subscriber(address, name)
        self.accepted_before = frozenset(tag for tag, outcome in part.record.unsettled.items() if outcome is not None)
        return part
