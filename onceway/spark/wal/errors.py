"""What can be wrong with a write-ahead log.  Every message names the file, where in it that matters, and a remedy."""

from __future__ import annotations

from onceway.errors import JournalError


class WalError(JournalError):
    """The log cannot go on.  Nothing that was accepted is lost, nothing that is not durable was accepted."""


class WalLocked(WalError):
    """Another live process writes this log: two queries on one log."""


class WalForeign(WalError):
    """There is no log, or one of another subscription, another format, or another program's file in its place."""


class WalDamaged(WalError):
    """Octets of the log that were durable are not what was written."""


class WalMissing(WalError):
    """Rows that were asked for are not there any more: trimmed, or the log was replaced (`failOnDataLoss`)."""


class WalFull(WalError):
    """No room left where the log lies."""


class WalFenced(WalError):
    """A later process has taken this log over; what this one still writes is ignored."""
