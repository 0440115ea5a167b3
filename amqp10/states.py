"""The states of a connection, from its first byte to its last."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class ConnectionState(Enum):
    HANDSHAKE = auto()  # protocol headers, SASL
    OPENING = auto()  # the peer's open is to come
    OPENED = auto()
    CLOSING = auto()  # our close is sent: input is discarded up to the peer's close
    CLOSED = auto()


HANDSHAKE: Final = ConnectionState.HANDSHAKE
OPENING: Final = ConnectionState.OPENING
OPENED: Final = ConnectionState.OPENED
CLOSING: Final = ConnectionState.CLOSING
CLOSED: Final = ConnectionState.CLOSED
