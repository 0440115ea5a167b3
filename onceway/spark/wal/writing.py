"""The writing side of a slot: rows in, groups made durable by a thread."""

from __future__ import annotations

from collections.abc import Sequence

from onceway.spark.wal.errors import WalError
from onceway.spark.wal.settings import Retention


class SlotWriter:
    """One slot under its lock.  Made by `WalJournal`; append only after the link is attached."""

    slot: int
    topic: str
    durable: int  # the number behind the last durable row
    failure: WalError | None  # why nothing more becomes durable

    @property
    def end(self) -> int:
        """The number behind the last row appended."""
        raise NotImplementedError

    @property
    def pending_bytes(self) -> int:
        """Payload octets appended and not durable yet."""
        raise NotImplementedError

    @property
    def start(self) -> int:
        """The first row that is still there."""
        raise NotImplementedError

    def append(
        self,
        payloads: Sequence[bytes],
        tags: Sequence[bytes],
        received_us: int | None = None,
        *,
        settled: bool = False,
    ) -> int:
        """Rows to be made durable, in order; returns `end` after them: accept them when `durable` has reached it.

        Never waits.  received_us: wall clock, now unless given.  settled: deliveries that want no verdict.
        Raises the `failure`, if there is one.
        """
        raise NotImplementedError

    def flush(self) -> None:
        """Ends the group at hand: it does not wait for groupMs."""
        raise NotImplementedError

    def trim(self, up_to: int, retention: Retention | None = None) -> None:
        """Rows before up_to are committed: whole segments of them may go, in the background."""
        raise NotImplementedError
