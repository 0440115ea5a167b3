"""The write-ahead log of the Spark source: what a subscriber took responsibility for, until Spark is done with it.

A directory (`walLocation`) holds `wal.json` (who it belongs to) and one directory for each slot; a slot is one topic's
subscriber link and has one writer, the ingest.  Rows are numbered 0, 1, 2 ... in each slot for ever; Spark's offsets
are such numbers.  Read `frames` for the octets, `fencing` for who may write and what readers may believe, `writing`
and `reading` for the two sides, `trimming` for the end of a row's life.  Nothing here knows Spark or the network.
"""

from onceway.spark.wal.errors import (
    WalDamaged,
    WalError,
    WalFenced,
    WalForeign,
    WalFull,
    WalLocked,
    WalMissing,
)
from onceway.spark.wal.manifest import Wal
from onceway.spark.wal.reading import SlotReader
from onceway.spark.wal.settings import Retention, WalSettings
from onceway.spark.wal.writing import SlotWriter

__all__ = [
    "Retention",
    "SlotReader",
    "SlotWriter",
    "Wal",
    "WalDamaged",
    "WalError",
    "WalFenced",
    "WalForeign",
    "WalFull",
    "WalLocked",
    "WalMissing",
    "WalSettings",
]
