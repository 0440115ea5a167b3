"""The exceptions of this package, and the error conditions of the specification (AMQP 2.8.15 to 2.8.18).

The class says whose fault an error is. Connection.receive_data turns a RemoteProtocolError into a detach, end or close,
once. Next: types.py, codec.py.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

# AMQP 2.8.15 amqp-error
INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED_ACCESS: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_DELETED: Final = "amqp:resource-deleted"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FRAME_SIZE_TOO_SMALL: Final = "amqp:frame-size-too-small"

# AMQP 2.8.16 connection-error
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
CONNECTION_REDIRECT: Final = "amqp:connection:redirect"

# AMQP 2.8.17 session-error
WINDOW_VIOLATION: Final = "amqp:session:window-violation"
ERRANT_LINK: Final = "amqp:session:errant-link"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"

# AMQP 2.8.18 link-error
DETACH_FORCED: Final = "amqp:link:detach-forced"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
LINK_REDIRECT: Final = "amqp:link:redirect"
STOLEN: Final = "amqp:link:stolen"


class AmqpError(Exception):
    """Base of everything this package raises on purpose."""


class RemoteProtocolError(AmqpError):
    """The peer broke a rule; `condition` and `description` are fit for an AMQP error."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description

    def __str__(self) -> str:
        return f"{self.condition}: {self.description}"


class DecodeError(RemoteProtocolError):
    """Bytes that are not what they should be.

    offset: of the byte in the decoded buffer where the offending value begins (in text, of the offending byte).
    """

    def __init__(self, condition: str, description: str, offset: int) -> None:
        super().__init__(condition, description)
        self.args = (condition, description, offset)
        self.offset = offset

    def __str__(self) -> str:
        return f"{self.condition}: {self.description} (at byte {self.offset})"


class Endpoint(Protocol):
    """A link or a session."""

    def _violated(self, violation: RemoteProtocolError, events: list[Any]) -> None: ...


class EndpointViolation(RemoteProtocolError):
    """The peer broke a rule of one link or session: Connection.receive_data detaches that link, closed, or ends that
    session, with this condition."""

    def __init__(self, endpoint: Endpoint, condition: str, description: str) -> None:
        super().__init__(condition, description)
        self.endpoint = endpoint


class LocalProtocolError(AmqpError):
    """Our caller asked for something that the protocol, or the state it is in, doesn't allow."""


class EncodeError(LocalProtocolError, ValueError):
    """A Python value that has no AMQP form, or not the one that is needed here."""


class FrameTooLarge(LocalProtocolError):
    """A frame exceeds the peer's max-frame-size; nothing of it has been sent."""
