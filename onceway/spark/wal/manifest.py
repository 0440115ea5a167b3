"""`wal.json`: whose log this is, and which slot each topic has, for ever."""

from __future__ import annotations

from collections.abc import Sequence

from onceway.spark.wal.reading import SlotReader


class Wal:
    """A log's manifest.  Needs no lock; cheap to make; picklable."""

    location: str
    uuid: str
    subscription: str  # link name
    container: str  # container-id of its links
    slots: dict[int, str]  # slot -> topic

    @classmethod
    def open_or_create(
        cls, location: str, subscription: str, topics: Sequence[str], container: str | None = None
    ) -> Wal:
        """The log at `location`, with a slot for each of the topics; made where there is none.

        container: `onceway-spark-<uuid>` unless given, or what an existing log has.  Raises WalForeign (another
        subscription's, another program's, another format's), WalError (not a directory, no permission, no room).
        """
        raise NotImplementedError

    @classmethod
    def open(cls, location: str) -> Wal:
        """The log that is there.  Raises WalForeign where there is none."""
        raise NotImplementedError

    def slot(self, number: int) -> SlotReader:
        raise NotImplementedError

    def slot_of(self, topic: str) -> int:
        raise NotImplementedError
