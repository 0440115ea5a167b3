"""The end of a row's life: whole segments that Spark has committed are removed.

`trim.json` says from which row on the log can be read, and is durable before the first file goes.  A crash in between
leaves files that nobody counts; the next trimming, or the next life, removes them.  Two things hold a segment back
besides Spark: a tag in it that the network has not settled (its delivery may come again and must be recognised), and
the retention, for a checkpoint that is rolled back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from onceway.spark.wal.disk import Disk
from onceway.spark.wal.documents import read_document, write_document
from onceway.spark.wal.frames import Segment, segments
from onceway.spark.wal.settings import Retention


def read_start(directory: str) -> int:
    """The first row that can be read."""
    content = read_document(os.path.join(directory, "trim.json"))
    return 0 if content is None else int(content["start"])


def new_start(
    directory: str, whole: Sequence[Segment], behind: int, start: int, up_to: int, retention: Retention
) -> int:
    """The first row to be kept.  whole: the segments that no row is added to any more; behind: the row behind them."""
    ends = [segment.first for segment in whole[1:]] + [behind]
    kept_octets = 0
    keep_from = time.time() - retention.seconds
    at = len(whole)
    while at:  # from the newest committed one back to the first that retention lets go
        at -= 1
        if ends[at] > up_to:
            continue
        try:
            status = os.stat(os.path.join(directory, whole[at].name))
        except FileNotFoundError:
            return max(start, ends[at])
        kept_octets += status.st_size
        if kept_octets > retention.octets and (not retention.seconds or status.st_mtime < keep_from):
            return max(start, ends[at])
    return start


def write_start(disk: Disk, directory: str, start: int) -> None:
    """Durable when it returns.  Raises OSError."""
    write_document(disk, os.path.join(directory, "trim.json"), {"start": start})


def remove_leftovers(disk: Disk, directory: str, start: int) -> int:
    """Removes the segments before `start`, counted or not; returns how many.

    `start` is always where a counted segment ends, so none of those reaches beyond it.
    """
    gone = [segment for segment in segments(directory) if segment.first < start]
    for segment in gone:
        disk.remove(os.path.join(directory, segment.name))
    return len(gone)
