"""What goes wrong on the way from Spark into the network, each with its place and its remedy.

Spark shows such an error at the end of a Python traceback, so the message has to stand by itself.
"""

from __future__ import annotations

from onceway.errors import OncewayError


class SinkError(OncewayError):
    """Base of the sink's errors."""


class SinkOptionError(SinkError, ValueError):
    """Options or columns that cannot be: all problems at once, one a line."""


class OutboxError(SinkError):
    """The outbox cannot be used: damaged, of another query, without room, not shared."""


class OutboxLocked(OutboxError):
    """Another process publishes from this outbox."""


class OutboxBehind(OutboxError):
    """The outbox is new, or an old copy: the query has batches behind it that this one has not published."""


class PublishFailed(SinkError):
    """The network did not take the batch.  It is in the outbox: a restart publishes what is left of it."""


class RowsInDoubt(SinkError):
    """Rows that may or may not have arrived, because the network knows their publisher no more (PROTOCOL 15)."""


class RowsRefused(SinkError):
    """Rows that have an outcome other than accepted."""
