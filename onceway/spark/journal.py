"""The client's journal over write-ahead logs: deliveries are durable with their data, so an accept writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onceway.client.journal import PublisherJournal, SubscriberJournal
from onceway.spark.wal import SlotWriter, Wal, WalError, WalSettings


class WalJournal:
    """`onceway.client.journal.Journal` for the subscriber links of one ingest process, one for each topic."""

    def __init__(
        self,
        wal: Wal,
        topics: Sequence[str] | None = None,
        settings: WalSettings | None = None,
        on_durable: Callable[[SlotWriter], None] | None = None,
    ) -> None:
        """topics: those this process receives (default: all of the log); their slots are locked by `open`.

        on_durable: called from a writer's thread when its `durable` or `failure` has changed.
        """
        raise NotImplementedError

    durable: int

    @property
    def failure(self) -> WalError | None:
        raise NotImplementedError

    def open(self, container: str | None, wake: Callable[[], None]) -> str:
        """Locks the slots (waits up to lockTimeout, blocking) and recovers them.  Raises WalError."""
        raise NotImplementedError

    def writer(self, topic: str) -> SlotWriter:
        """The topic's writer, once the journal is open; it takes rows when the link has been attached."""
        raise NotImplementedError

    def publisher(self, address: str, name: str) -> PublisherJournal:
        raise NotImplementedError

    def subscriber(self, address: str, name: str) -> SubscriberJournal:
        raise NotImplementedError

    def sync(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError
