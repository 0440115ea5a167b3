"""Errors and the states of a delivery (AMQP 2.8.14, 3.4).

Knows the five states of the specification. A state of another kind, such as a transaction's, is carried as Described.
Next: recovery.py for what states mean when a link is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from amqp10.composite import (
    ANNOTATIONS,
    BOOLEAN,
    FIELDS,
    STRING,
    SYMBOL,
    UINT,
    ULONG,
    Composite,
    FieldType,
    composite,
    one_of,
    read_descriptor,
    read_fields,
    required,
    wrong_type,
)
from amqp10.decoder import MAX_FIELD_VALUES, decode_value
from amqp10.encoder import encode_value
from amqp10.errors import EncodeError
from amqp10.types import Described


@composite(0x1D, "amqp:error:list", required(SYMBOL), STRING, FIELDS)
@dataclass(frozen=True, slots=True)
class Error(Composite):
    """AMQP 2.8.14. Conditions are named in errors.py."""

    condition: str
    description: str | None = None
    info: Mapping[str, Any] | None = None


ERROR: Final = one_of(Error, name="error")


@composite(0x23, "amqp:received:list", required(UINT), required(ULONG))
@dataclass(frozen=True, slots=True)
class Received(Composite):
    """How much of a delivery has arrived: a state, not an outcome (AMQP 3.4.1)."""

    section_number: int
    section_offset: int


@composite(0x24, "amqp:accepted:list")
@dataclass(frozen=True, slots=True)
class Accepted(Composite):
    """AMQP 3.4.2."""


@composite(0x25, "amqp:rejected:list", ERROR)
@dataclass(frozen=True, slots=True)
class Rejected(Composite):
    """AMQP 3.4.3."""

    error: Error | None = None


@composite(0x26, "amqp:released:list")
@dataclass(frozen=True, slots=True)
class Released(Composite):
    """AMQP 3.4.4."""


@composite(0x27, "amqp:modified:list", BOOLEAN, BOOLEAN, ANNOTATIONS)
@dataclass(frozen=True, slots=True)
class Modified(Composite):
    """AMQP 3.4.5."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: Mapping[Any, Any] | None = None


def shortened(error: Error) -> Error:
    """The error in less than 400 bytes, for a peer with a small max-frame-size."""
    return Error(error.condition[:100], error.description and error.description[:60])


Outcome: TypeAlias = Accepted | Rejected | Released | Modified
DeliveryState: TypeAlias = Accepted | Rejected | Released | Modified | Received | Described

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()

_EMPTY_LISTS: Final = (b"\x45", b"\xc0\x01\x00", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00")
COMMON_STATES: Final[dict[bytes, DeliveryState]] = {
    cls.descriptor + empty: state
    for cls, state in ((Accepted, ACCEPTED), (Released, RELEASED))
    for empty in _EMPTY_LISTS
}
"""The states that make up nearly all traffic, by their encodings."""
_STATES: Final[dict[int | None, type[Composite]]] = {
    cls.descriptor_code: cls for cls in (Received, Accepted, Rejected, Released, Modified)
}


def read_state(buf: bytes, offset: int, end: int, where: str = "delivery-state") -> tuple[DeliveryState, int]:
    """(the state that begins at offset, the offset behind it); DecodeError if it is none."""
    common = COMMON_STATES.get(buf[offset : offset + 4])
    if common is not None and offset + 4 <= end:
        return common, offset + 4
    if offset < end and buf[offset] != 0x00:
        raise wrong_type(buf, offset, end, where, "delivery-state")
    code, position = read_descriptor(buf, offset, end)
    cls = _STATES.get(code)
    if cls is None:
        return decode_value(buf, offset, end, [MAX_FIELD_VALUES])
    state, position = read_fields(cls, buf, position, end)
    if cls is Accepted:
        state = ACCEPTED
    elif cls is Released:
        state = RELEASED
    return state, position


def write_state(state: DeliveryState) -> bytes:
    if state.__class__ is Accepted:
        return b"\x00\x53\x24\x45"
    if not isinstance(state, Described) and getattr(state, "descriptor_code", None) not in _STATES:
        raise EncodeError(f"{state!r} is no delivery-state")
    return encode_value(state)


def shortened_state(state: DeliveryState | None) -> DeliveryState | None:
    """The state in less than 400 bytes, for a peer with a small max-frame-size."""
    if isinstance(state, Rejected):
        return Rejected(state.error and shortened(state.error))
    if isinstance(state, Modified):
        return Modified(state.delivery_failed, state.undeliverable_here)
    return None if isinstance(state, Described) else state


STATE: Final = FieldType(read_state, write_state)
