"""What a user may set about a log's writing and keeping."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WalSettings:
    """`groupRows`, `groupMs`, `segmentBytes`, `lockTimeout`."""

    group_rows: int = 5000  # one group: one frame, one fdatasync
    group_bytes: int = 16 << 20  # of payload; a single larger message is a group of its own
    group_ms: float = 50.0  # how long a group waits for more rows at most; a fiftieth where none come (`Gathering`)
    segment_bytes: int = 64 << 20
    lock_timeout_s: float = 10.0  # how long to wait for another process to let go (a killed driver's: up to 4 s)


@dataclass(frozen=True, slots=True)
class Retention:
    """`walRetention`: what is kept although Spark has committed it, for checkpoints rolled back.

    A segment is kept while either asks for it.
    """

    seconds: float = 0.0  # since the segment's last row was written
    octets: int = 0  # of committed segments, the newest ones
