"""The reading side of a slot, in any process: only what is durable and not fenced off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa


class SlotReader:
    """Rows of one slot by number.  Picklable: (location, slot, topic, uuid) are its state, the index is rebuilt."""

    def __init__(self, location: str, number: int, topic: str, uuid: str) -> None:
        self.location = location
        self.number = number
        self.topic = topic
        self.uuid = uuid

    def start(self) -> int:
        """The first row that can still be read."""
        raise NotImplementedError

    def end(self) -> int:
        """The number behind the last durable row.  Never goes back within one reader; a new reader may be told less
        than an earlier one for as long as no ingest has recovered the log after a power cut: never answer Spark
        with less than the start it gave."""
        raise NotImplementedError

    def bounds(self, start: int, max_rows: int | None = None, max_bytes: int | None = None) -> int:
        """The end of a batch from start: at most max_rows, about max_bytes of payload (one row at least), and end()."""
        raise NotImplementedError

    def bytes_between(self, start: int, end: int) -> int:
        """Payload octets of these rows; inside a frame in proportion."""
        raise NotImplementedError

    def split(self, start: int, end: int, parts: int) -> list[tuple[int, int]]:
        """Up to `parts` neighbouring ranges of about equal size, none empty, cut between frames where that is near."""
        raise NotImplementedError

    def read(
        self, start: int, end: int, columns: Sequence[str] | None = None, *, batch_rows: int = 20_000
    ) -> Iterator[pa.RecordBatch]:
        """Exactly rows start .. end - 1 as RecordBatches of `onceway.spark.columns.schema(columns)`.

        Raises WalMissing where they are trimmed or not there, WalDamaged.  Needs no end(): what was once told to be
        durable can be read at any time, also before an ingest has started.
        """
        raise NotImplementedError
