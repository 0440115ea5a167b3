"""The performatives of AMQP 2.7 and the SASL frames of AMQP 5.3.3, as classes with the specification's fields.

Knows their fields, types and defaults, not their effects. All are read and written through one table
(composite.py). Runs of transfers and dispositions do not come here: transfers.py, dispositions.py. Errors, states and
termini have files of their own and are imported from here as well. Next: frames.py, connection.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from amqp10.composite import (
    BINARY,
    BOOLEAN,
    DELIVERY_TAG,
    FIELDS,
    MAX_TAG,
    STRING,
    SYMBOL,
    SYMBOL_ARRAY,
    SYMBOLS,
    UBYTE,
    UINT,
    ULONG,
    USHORT,
    Composite,
    FieldType,
    composite,
    read_descriptor,
    read_fields,
    required,
    within,
    wrong_type,
)
from amqp10.decoder import MAX_FIELD_VALUES, check_end, compound_head, decode_value, skip_value
from amqp10.encoder import BINARY8, encode_binary, encode_map
from amqp10.errors import DECODE_ERROR, DecodeError
from amqp10.outcomes import (
    ACCEPTED,
    ERROR,
    RELEASED,
    STATE,
    Accepted,
    DeliveryState,
    Error,
    Modified,
    Outcome,
    Received,
    Rejected,
    Released,
    read_state,
    write_state,
)
from amqp10.termini import SOURCE, TARGET, Coordinator, Source, Target
from amqp10.types import ULong

# AMQP 2.8.1 role
ROLE_SENDER: Final = False
ROLE_RECEIVER: Final = True

# AMQP 2.8.2 sender-settle-mode, 2.8.3 receiver-settle-mode
SND_UNSETTLED: Final = 0
SND_SETTLED: Final = 1
SND_MIXED: Final = 2
RCV_FIRST: Final = 0
RCV_SECOND: Final = 1

# AMQP 5.3.3.6 sasl-code
SASL_OK: Final = 0
SASL_AUTH: Final = 1
SASL_SYS: Final = 2
SASL_SYS_PERM: Final = 3
SASL_SYS_TEMP: Final = 4

UINT_MAX: Final = 0xFFFFFFFF
_SND_MODE: Final = within(0, 2, UBYTE)
_RCV_MODE: Final = within(0, 1, UBYTE)


LONG_MAP: Final = 4096
"""Bytes of an unsettled map: a longer one is read when its owner says so."""


class UnreadMap(Mapping[bytes, Any]):
    """An unsettled map as it came. `read` reads it in parts; whoever looks at an entry before has it read to its end.

    Attributes:
        entries: What has been read.
        convert: Of a state, what `entries` is to have; None: the state itself. For the owner, before it reads.
    """

    __slots__ = ("_at", "_buf", "_left", "_size", "_stop", "_where", "convert", "entries")

    def __init__(self, buf: bytes, offset: int, stop: int, size: int, where: str) -> None:
        """size: how many entries there are."""
        self._buf = buf
        self._at = offset
        self._stop = stop
        self._size = self._left = size
        self._where = where
        self.convert: Callable[[DeliveryState | None], Any] | None = None
        self.entries: dict[bytes, Any] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, tag: bytes) -> Any:
        return self.read(self._left)[tag]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.read(self._left))

    @property
    def unread(self) -> int:
        """How many entries are left to be read."""
        return self._left

    def read(self, most: int) -> dict[bytes, Any]:
        """Read so many more entries; returns all that have been read.

        Raises:
            DecodeError: It is malformed.
        """
        buf, offset, stop, where, convert = self._buf, self._at, self._stop, self._where, self.convert
        unsettled, read_tag = self.entries, DELIVERY_TAG.read
        count = min(most, self._left)
        for _ in range(count):
            if offset >= stop:
                raise DecodeError(DECODE_ERROR, f"{where} is cut off", offset)
            key_at = offset
            size = buf[offset + 1] if buf[offset] == 0xA0 and offset + 2 <= stop else 255
            if size <= MAX_TAG and offset + 2 + size <= stop:
                tag = buf[offset + 2 : offset + 2 + size]
                offset += 2 + size
            else:
                tag, offset = read_tag(buf, offset, stop, where)
            if tag in unsettled:
                raise DecodeError(DECODE_ERROR, f"{where} has the delivery-tag {tag!r} twice", key_at)
            if offset >= stop:
                raise DecodeError(DECODE_ERROR, f"{where} is cut off", offset)
            state: DeliveryState | None = None
            if buf[offset] == 0x40:
                offset += 1
            elif buf[offset : offset + 4] == _ACCEPTED and offset + 4 <= stop:
                state = ACCEPTED
                offset += 4
            else:
                state, offset = read_state(buf, offset, stop, where)
            unsettled[tag] = state if convert is None else convert(state)
        self._at = offset
        self._left -= count
        if not self._left:
            check_end(offset, stop)
        return unsettled


def _read_unsettled(buf: bytes, offset: int, end: int, where: str) -> tuple[Mapping[bytes, Any], int]:
    """An unsettled map (AMQP 2.7.3): it may have a hundred thousand entries."""
    at = offset
    code = buf[offset]
    if code not in (0xC1, 0xD1):
        raise wrong_type(buf, offset, end, where, "map")
    offset, stop, count = compound_head(buf, offset + 1, end, code == 0xD1, at)
    if count & 1 or count > stop - offset:
        raise DecodeError(DECODE_ERROR, f"{where} cannot have {count} entries in {stop - offset} bytes", at)
    unread = UnreadMap(buf, offset, stop, count >> 1, where)
    return unread if stop - at > LONG_MAP else unread.read(count), stop


def _write_unsettled(unsettled: Mapping[bytes, DeliveryState | None]) -> bytes:
    states = unsettled.values()
    different = {id(state): state for state in states}  # they are few
    encoded = {key: b"\x40" if state is None else write_state(state) for key, state in different.items()}
    entries = [b""] * (2 * len(states))
    entries[::2] = [BINARY8[len(tag)] + tag if len(tag) < 256 else encode_binary(tag) for tag in unsettled]
    entries[1::2] = [encoded[id(state)] for state in states]
    return encode_map(entries)


_ACCEPTED: Final = write_state(ACCEPTED)
_UNSETTLED: Final = FieldType(_read_unsettled, _write_unsettled)


@composite(
    0x10,
    "amqp:open:list",
    required(STRING),
    STRING,
    UINT,
    USHORT,
    UINT,
    SYMBOLS,
    SYMBOLS,
    SYMBOLS,
    SYMBOLS,
    FIELDS,
)
@dataclass(slots=True)
class Open(Composite):
    """AMQP 2.7.1. idle_time_out is in milliseconds."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = UINT_MAX
    channel_max: int = 65535
    idle_time_out: int | None = None
    outgoing_locales: Sequence[str] = ()
    incoming_locales: Sequence[str] = ()
    offered_capabilities: Sequence[str] = ()
    desired_capabilities: Sequence[str] = ()
    properties: Mapping[str, Any] | None = None


@composite(
    0x11,
    "amqp:begin:list",
    USHORT,
    required(UINT),
    required(UINT),
    required(UINT),
    UINT,
    SYMBOLS,
    SYMBOLS,
    FIELDS,
)
@dataclass(slots=True)
class Begin(Composite):
    """AMQP 2.7.2. next_outgoing_id and the windows are mandatory on the wire."""

    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int = UINT_MAX
    offered_capabilities: Sequence[str] = ()
    desired_capabilities: Sequence[str] = ()
    properties: Mapping[str, Any] | None = None


@composite(
    0x12,
    "amqp:attach:list",
    required(STRING),
    required(UINT),
    required(BOOLEAN),
    _SND_MODE,
    _RCV_MODE,
    SOURCE,
    TARGET,
    _UNSETTLED,
    BOOLEAN,
    UINT,
    ULONG,
    SYMBOLS,
    SYMBOLS,
    FIELDS,
)
@dataclass(slots=True)
class Attach(Composite):
    """AMQP 2.7.3. max_message_size: None or 0 is no limit."""

    name: str
    handle: int
    role: bool
    snd_settle_mode: int = SND_MIXED
    rcv_settle_mode: int = RCV_FIRST
    source: Source | None = None
    target: Target | Coordinator | None = None
    unsettled: Mapping[bytes, DeliveryState | None] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Sequence[str] = ()
    desired_capabilities: Sequence[str] = ()
    properties: Mapping[str, Any] | None = None


@composite(
    0x13,
    "amqp:flow:list",
    UINT,
    required(UINT),
    required(UINT),
    required(UINT),
    UINT,
    UINT,
    UINT,
    UINT,
    BOOLEAN,
    BOOLEAN,
    FIELDS,
)
@dataclass(slots=True)
class Flow(Composite):
    """AMQP 2.7.4. next_outgoing_id and the windows are mandatory on the wire."""

    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Mapping[str, Any] | None = None


@composite(
    0x14,
    "amqp:transfer:list",
    required(UINT),
    UINT,
    DELIVERY_TAG,
    UINT,
    BOOLEAN,
    BOOLEAN,
    _RCV_MODE,
    STATE,
    BOOLEAN,
    BOOLEAN,
    BOOLEAN,
)
@dataclass(slots=True)
class Transfer(Composite):
    """AMQP 2.7.5. The payload follows it in the frame."""

    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: DeliveryState | None = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@composite(0x15, "amqp:disposition:list", required(BOOLEAN), required(UINT), UINT, BOOLEAN, STATE, BOOLEAN)
@dataclass(slots=True)
class Disposition(Composite):
    """AMQP 2.7.6. last None: the same as first."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: DeliveryState | None = None
    batchable: bool = False


@composite(0x16, "amqp:detach:list", required(UINT), BOOLEAN, ERROR)
@dataclass(slots=True)
class Detach(Composite):
    """AMQP 2.7.7."""

    handle: int
    closed: bool = False
    error: Error | None = None


@composite(0x17, "amqp:end:list", ERROR)
@dataclass(slots=True)
class End(Composite):
    """AMQP 2.7.8."""

    error: Error | None = None


@composite(0x18, "amqp:close:list", ERROR)
@dataclass(slots=True)
class Close(Composite):
    """AMQP 2.7.9."""

    error: Error | None = None


@composite(0x40, "amqp:sasl-mechanisms:list", required(SYMBOL_ARRAY))
@dataclass(slots=True)
class SaslMechanisms(Composite):
    """AMQP 5.3.3.1."""

    sasl_server_mechanisms: Sequence[str] = ()


@composite(0x41, "amqp:sasl-init:list", required(SYMBOL), BINARY, STRING)
@dataclass(slots=True)
class SaslInit(Composite):
    """AMQP 5.3.3.2."""

    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@composite(0x42, "amqp:sasl-challenge:list", required(BINARY))
@dataclass(slots=True)
class SaslChallenge(Composite):
    """AMQP 5.3.3.3."""

    challenge: bytes


@composite(0x43, "amqp:sasl-response:list", required(BINARY))
@dataclass(slots=True)
class SaslResponse(Composite):
    """AMQP 5.3.3.4."""

    response: bytes


@composite(0x44, "amqp:sasl-outcome:list", required(within(SASL_OK, SASL_SYS_TEMP, UBYTE)), BINARY)
@dataclass(slots=True)
class SaslOutcome(Composite):
    """AMQP 5.3.3.5."""

    code: int
    additional_data: bytes | None = None


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
SaslPerformative = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome


def decode_performative(buf: bytes, offset: int, end: int) -> tuple[Performative | SaslPerformative, int]:
    """(the performative that begins at offset, the offset of the payload behind it). AMQP's and SASL's alike: whether
    it may come in this kind of frame is for the caller to say."""
    code: int | None
    if end - offset >= 3 and buf[offset] == 0x00 and buf[offset + 1] == 0x53:
        code, position = buf[offset + 2], offset + 3
    else:
        code, position = read_descriptor(buf, offset, end)
    cls = _PERFORMATIVES.get(code)
    if cls is None:
        skip_value(buf, offset, end)
        raise DecodeError(DECODE_ERROR, f"{_descriptor_text(buf, offset, end)} is no performative", offset)
    return read_fields(cls, buf, position, end)


def _descriptor_text(buf: bytes, offset: int, end: int) -> str:
    descriptor = decode_value(buf, offset + 1, end, [MAX_FIELD_VALUES])[0]
    return f"0x{descriptor:02x}" if isinstance(descriptor, ULong) else f"{descriptor!r:.60}"


_PERFORMATIVES: Final[dict[int | None, type[Composite]]] = {
    cls.descriptor_code: cls
    for cls in (
        *(Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close),
        *(SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome),
    )
}

__all__ = [
    "ACCEPTED",
    "RCV_FIRST",
    "RCV_SECOND",
    "RELEASED",
    "ROLE_RECEIVER",
    "ROLE_SENDER",
    "SASL_AUTH",
    "SASL_OK",
    "SASL_SYS",
    "SASL_SYS_PERM",
    "SASL_SYS_TEMP",
    "SND_MIXED",
    "SND_SETTLED",
    "SND_UNSETTLED",
    "UINT_MAX",
    "Accepted",
    "Attach",
    "Begin",
    "Close",
    "Coordinator",
    "DeliveryState",
    "Detach",
    "Disposition",
    "End",
    "Error",
    "Flow",
    "Modified",
    "Open",
    "Outcome",
    "Performative",
    "Received",
    "Rejected",
    "Released",
    "SaslChallenge",
    "SaslInit",
    "SaslMechanisms",
    "SaslOutcome",
    "SaslPerformative",
    "SaslResponse",
    "Source",
    "Target",
    "Transfer",
    "decode_performative",
]
