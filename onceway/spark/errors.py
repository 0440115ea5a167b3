"""What goes wrong between Spark and the network.  Every message names the place and a remedy.

PySpark shows an error at the end of the worker's traceback, whose first line says nothing.  Where Spark calls us, our
own errors leave the traceback out (`first_line`): then their text ends the first line that a user sees.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

from onceway.errors import JournalError, OncewayError

HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"  # PySpark's


@contextlib.contextmanager
def first_line() -> Iterator[None]:
    """Around, or as a decorator of, what Spark calls: lets PySpark report an error of ours without its traceback.

    PySpark reads the variable when it reports; the process ends with that.
    """
    try:
        yield
    except OncewayError:
        os.environ[HIDE_TRACEBACK] = "1"
        raise


# -- the source


class SparkSourceError(OncewayError):
    """Base of the source's errors."""


class OptionError(SparkSourceError, ValueError):
    """Invalid options: all problems at once, one a line."""


class OffsetError(SparkSourceError, ValueError):
    """Not an offset of this source, or one of a version that this onceway cannot read."""


class DataLoss(SparkSourceError):
    """Rows are missing, or may be, and `failOnDataLoss` is true."""


class IngestFailed(SparkSourceError):
    """The process that receives from the network cannot continue.  What it has accepted is in the log."""


class SubscriptionExists(SparkSourceError):
    """The network has a subscription of this name, and the log knows nothing of it."""


class CheckpointIsNew(SparkSourceError):
    """A query without a checkpoint reads a log that one with a checkpoint has read, and `onNewCheckpoint` is fail."""


# -- the write-ahead log


class WalError(JournalError):
    """The log cannot be used.  Nothing that was accepted is lost, nothing that is not durable was accepted."""


class WalLocked(WalError):
    """Another live process writes this log: two queries share one log."""


class WalForeign(WalError):
    """There is no log, or one of another subscription or format, or another program's file in its place."""


class WalDamaged(WalError):
    """Bytes of the log that were durable are not what was written."""


class WalMissing(WalError):
    """Requested rows are no longer in the log: trimmed, or the log was replaced (`failOnDataLoss`)."""


class WalFull(WalError):
    """No room left on the log's file system."""


class WalFenced(WalError):
    """A later process has taken this log over; what this one still writes is ignored."""


def fenced_off(place: str) -> WalFenced:
    return WalFenced(
        f"{place}: a later process has taken this log over; what this one received since comes to that one.  Stop one "
        "of the two queries; if locks do not reach other hosts there, nothing else keeps them apart"
    )


TWO_READERS: Final = (
    "one frame that two queries are started with reads it twice, and so do two loads in one query.  Give each a "
    "walLocation and subscription of its own; or receive once, by `onceway ingest run`, and let each load read what is "
    "there (ingest=apart, each with a name of its own as reader)"
)
DAMAGE_REMEDY: Final = (
    "restore the file from a copy, or start with a new walLocation and a new checkpoint and expect the rows from there "
    "on that were not processed to be lost"
)


def explain(error: OSError, path: str, doing: str) -> WalError:
    """The operating system's error as one with a remedy.  doing: for example "writing the log"."""
    place = error.filename or path
    reason = os.strerror(error.errno) if error.errno else str(error)
    again = "what is not in the log was not accepted and comes again"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return WalFull(f"{place}: no room left {doing} ({reason}); make room and start again: {again}")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return WalError(f"{place}: {reason} {doing}; let this user write to walLocation, or give another one")
    if error.errno == errno.EIO:
        return WalError(f"{place}: the disk failed {doing} ({reason}); check it, then start again: {again}")
    return WalError(f"{place}: {reason} {doing}; start again once it works: {again}")


# -- the sink


class SinkError(OncewayError):
    """Base of the sink's errors."""


class SinkOptionError(SinkError, ValueError):
    """Invalid options or columns: all problems at once, one a line."""


class OutboxError(SinkError):
    """The outbox cannot be used: damaged, another query's, without room, or not shared."""


class OutboxLocked(OutboxError):
    """Another process publishes from this outbox."""


class OutboxBehind(OutboxError):
    """The outbox is new, or an old copy: it has not published batches that the query has completed."""


class PublishFailed(SinkError):
    """The network did not take the batch.  It is in the outbox: a restart publishes the rest of it."""


class RowsInDoubt(SinkError):
    """Rows may or may not have arrived, because the network no longer knows their publisher."""


class RowsRefused(SinkError):
    """Rows have an outcome other than accepted."""


@contextlib.contextmanager
def outbox_errors(location: object) -> Iterator[None]:
    """Turns the operating system's errors into OutboxErrors with a remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            what = "no room left in the outbox; make room and restart the query: nothing is published twice"
        else:
            what = (
                f"the outbox cannot be used ({error}); outboxLocation must be a directory that driver and executors "
                "share and may write, on a POSIX file system with flock and hard links"
            )
        raise OutboxError(f"{location}: {what}") from error
