"""Source, target and coordinator (AMQP 3.5, 4.5.1): the two ends of a link.

Knows their fields. What an address or a filter means is for the router to say. Next: performatives.py (Attach).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from amqp10.composite import BOOLEAN, FIELDS, STRING, SYMBOL, SYMBOLS, UINT, Composite, composite, one_of
from amqp10.outcomes import STATE, DeliveryState
from amqp10.types import Symbol

# AMQP 3.5.5 terminus-durability
DURABLE_NONE: Final = 0
DURABLE_CONFIGURATION: Final = 1
DURABLE_UNSETTLED_STATE: Final = 2

# AMQP 3.5.6 terminus-expiry-policy
EXPIRE_LINK_DETACH: Final = Symbol("link-detach")
EXPIRE_SESSION_END: Final = Symbol("session-end")
EXPIRE_CONNECTION_CLOSE: Final = Symbol("connection-close")
EXPIRE_NEVER: Final = Symbol("never")

# AMQP 3.5.7 std-dist-mode
MOVE: Final = Symbol("move")
COPY: Final = Symbol("copy")


@composite(
    0x28,
    "amqp:source:list",
    STRING,
    UINT,
    SYMBOL,
    UINT,
    BOOLEAN,
    FIELDS,
    SYMBOL,
    FIELDS,
    STATE,
    SYMBOLS,
    SYMBOLS,
)
@dataclass(slots=True)
class Source(Composite):
    """AMQP 3.5.3. timeout is in seconds."""

    address: str | None = None
    durable: int = DURABLE_NONE
    expiry_policy: str = EXPIRE_SESSION_END
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Mapping[str, Any] | None = None
    distribution_mode: str | None = None
    filter: Mapping[str, Any] | None = None
    default_outcome: DeliveryState | None = None
    outcomes: Sequence[str] = ()
    capabilities: Sequence[str] = ()


@composite(0x29, "amqp:target:list", STRING, UINT, SYMBOL, UINT, BOOLEAN, FIELDS, SYMBOLS)
@dataclass(slots=True)
class Target(Composite):
    """AMQP 3.5.4. timeout is in seconds."""

    address: str | None = None
    durable: int = DURABLE_NONE
    expiry_policy: str = EXPIRE_SESSION_END
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Mapping[str, Any] | None = None
    capabilities: Sequence[str] = ()


@composite(0x30, "amqp:coordinator:list", SYMBOLS)
@dataclass(slots=True)
class Coordinator(Composite):
    """The target of a link that controls transactions (AMQP 4.5.1)."""

    capabilities: Sequence[str] = ()


SOURCE: Final = one_of(Source, name="source")
TARGET: Final = one_of(Target, Coordinator, name="target or coordinator")
