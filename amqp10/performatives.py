"""The nine performatives of AMQP (2.7) and the five frames of SASL (5.3.3), as classes with the specification's fields.

Knows their fields, types and defaults; nothing of what they cause. Reading is through one table (composite.py) except
for dispositions, flows and transfers, which come by the thousand and are read by hand; whatever is unusual about one of
these goes through the table, so every error is worded there. Next: frames.py, connection.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Final

from amqp10.codec import check_end, compound_head, decode_value, encode_binary, encode_map, encode_uint, skip_value
from amqp10.composite import (
    BINARY,
    BOOLEAN,
    DELIVERY_TAG,
    FIELDS,
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
from amqp10.errors import DECODE_ERROR, DecodeError, EncodeError
from amqp10.outcomes import (
    ACCEPTED,
    COMMON_STATES,
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

_unpack_u32 = Struct(">I").unpack_from
_unpack_ii = Struct(">II").unpack_from

# 2.8.1 role
ROLE_SENDER: Final = False
ROLE_RECEIVER: Final = True

# 2.8.2 sender-settle-mode, 2.8.3 receiver-settle-mode
SND_UNSETTLED: Final = 0
SND_SETTLED: Final = 1
SND_MIXED: Final = 2
RCV_FIRST: Final = 0
RCV_SECOND: Final = 1

# 5.3.3.6 sasl-code
SASL_OK: Final = 0
SASL_AUTH: Final = 1
SASL_SYS: Final = 2
SASL_SYS_PERM: Final = 3
SASL_SYS_TEMP: Final = 4

UINT_MAX: Final = 0xFFFFFFFF
_SND_MODE: Final = within(0, 2, UBYTE)
_RCV_MODE: Final = within(0, 1, UBYTE)


def _read_unsettled(buf: bytes, offset: int, end: int, where: str) -> tuple[dict[bytes, DeliveryState | None], int]:
    """2.7.3: delivery-tags and states, straight into a dict; there may be a hundred thousand."""
    at = offset
    code = buf[offset]
    if code not in (0xC1, 0xD1):
        raise wrong_type(buf, offset, end, where, "map")
    offset, stop, count = compound_head(buf, offset + 1, end, code == 0xD1, at)
    if count & 1 or count > stop - offset:
        raise DecodeError(DECODE_ERROR, f"{where} cannot have {count} entries in {stop - offset} octets", at)
    read_tag = DELIVERY_TAG.read
    unsettled: dict[bytes, DeliveryState | None] = {}
    for _ in range(count >> 1):
        if offset >= stop:
            raise DecodeError(DECODE_ERROR, f"{where} is cut off", offset)
        key_at = offset
        tag, offset = read_tag(buf, offset, stop, where)
        if tag in unsettled:
            raise DecodeError(DECODE_ERROR, f"{where} has the delivery-tag {tag!r} twice", key_at)
        if offset >= stop:
            raise DecodeError(DECODE_ERROR, f"{where} is cut off", offset)
        if buf[offset] == 0x40:
            unsettled[tag] = None
            offset += 1
        else:
            unsettled[tag], offset = read_state(buf, offset, stop, where)
    check_end(offset, stop)
    return unsettled, stop


def _write_unsettled(unsettled: Mapping[bytes, DeliveryState | None]) -> bytes:
    entries = []
    for tag, state in unsettled.items():
        entries.append(encode_binary(tag))
        entries.append(b"\x40" if state is None else write_state(state))
    return encode_map(entries)


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
    """2.7.1; idle_time_out in milliseconds."""

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
    """2.7.2. next_outgoing_id and the windows are mandatory on the wire."""

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
    """2.7.3. max_message_size None or 0: no limit."""

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
    """2.7.4. next_outgoing_id and the windows are mandatory on the wire."""

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

    def encode(self) -> bytes:
        if self.properties is not None:
            return Composite.encode(self)
        try:
            entries = [
                b"\x40" if value is None else encode_uint(value)
                for value in (
                    self.next_incoming_id,
                    self.incoming_window,
                    self.next_outgoing_id,
                    self.outgoing_window,
                    self.handle,
                    self.delivery_count,
                    self.link_credit,
                    self.available,
                )
            ]
        except (EncodeError, TypeError):
            return Composite.encode(self)  # says which field it is
        if b"\x40" in entries[1:4]:
            return Composite.encode(self)
        if self.drain or self.echo:
            entries.append(b"\x41" if self.drain else b"\x40")
            if self.echo:
                entries.append(b"\x41")
        else:
            while entries[-1] == b"\x40":
                del entries[-1]
        data = b"".join(entries)
        return b"\x00\x53\x13\xc0" + bytes((len(data) + 1, len(entries))) + data


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
    """2.7.5. The payload is what follows it in the frame."""

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

    def encode(self) -> bytes:
        tag = self.delivery_tag
        if (
            self.state is not None
            or self.rcv_settle_mode is not None
            or self.resume
            or self.aborted
            or self.batchable
            or type(tag) is not bytes
            or len(tag) > 32
        ):
            return Composite.encode(self)
        try:
            data = (
                encode_uint(self.handle)
                + (b"\x40" if self.delivery_id is None else encode_uint(self.delivery_id))
                + b"\xa0"
                + len(tag).to_bytes(1, "big")
                + tag
                + (b"\x40" if self.message_format is None else encode_uint(self.message_format))
            )
        except (EncodeError, TypeError):
            return Composite.encode(self)
        count = 4
        if self.settled is not None or self.more:
            data += b"\x40" if self.settled is None else b"\x41" if self.settled else b"\x42"
            count = 5
            if self.more:
                data += b"\x41"
                count = 6
        elif self.message_format is None:
            data = data[:-1]
            count = 3
        return b"\x00\x53\x14\xc0" + bytes((len(data) + 1, count)) + data


@composite(0x15, "amqp:disposition:list", required(BOOLEAN), required(UINT), UINT, BOOLEAN, STATE, BOOLEAN)
@dataclass(slots=True)
class Disposition(Composite):
    """2.7.6. last None: the same as first."""

    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: DeliveryState | None = None
    batchable: bool = False

    def encode(self) -> bytes:
        state = self.state
        if self.batchable or (state is not None and state is not ACCEPTED):
            return Composite.encode(self)
        try:
            data = (b"\x41" if self.role else b"\x42") + encode_uint(self.first)
            if self.last is not None:
                data += encode_uint(self.last)
        except (EncodeError, TypeError):
            return Composite.encode(self)
        count = 3
        if self.last is None:
            if self.settled or state is not None:
                data += b"\x40"
            else:
                count = 2
        if state is not None:
            data += b"\x41\x00\x53\x24\x45" if self.settled else b"\x40\x00\x53\x24\x45"
            count = 5
        elif self.settled:
            data += b"\x41"
            count = 4
        return b"\x00\x53\x15\xc0" + bytes((len(data) + 1, count)) + data


@composite(0x16, "amqp:detach:list", required(UINT), BOOLEAN, ERROR)
@dataclass(slots=True)
class Detach(Composite):
    """2.7.7"""

    handle: int
    closed: bool = False
    error: Error | None = None


@composite(0x17, "amqp:end:list", ERROR)
@dataclass(slots=True)
class End(Composite):
    """2.7.8"""

    error: Error | None = None


@composite(0x18, "amqp:close:list", ERROR)
@dataclass(slots=True)
class Close(Composite):
    """2.7.9"""

    error: Error | None = None


@composite(0x40, "amqp:sasl-mechanisms:list", required(SYMBOL_ARRAY))
@dataclass(slots=True)
class SaslMechanisms(Composite):
    """5.3.3.1"""

    sasl_server_mechanisms: Sequence[str] = ()


@composite(0x41, "amqp:sasl-init:list", required(SYMBOL), BINARY, STRING)
@dataclass(slots=True)
class SaslInit(Composite):
    """5.3.3.2"""

    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@composite(0x42, "amqp:sasl-challenge:list", required(BINARY))
@dataclass(slots=True)
class SaslChallenge(Composite):
    """5.3.3.3"""

    challenge: bytes


@composite(0x43, "amqp:sasl-response:list", required(BINARY))
@dataclass(slots=True)
class SaslResponse(Composite):
    """5.3.3.4"""

    response: bytes


@composite(0x44, "amqp:sasl-outcome:list", required(within(SASL_OK, SASL_SYS_TEMP, UBYTE)), BINARY)
@dataclass(slots=True)
class SaslOutcome(Composite):
    """5.3.3.5"""

    code: int
    additional_data: bytes | None = None


Performative = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close
SaslPerformative = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcome


def decode_performative(buf: bytes, offset: int, end: int) -> tuple[Performative | SaslPerformative, int]:
    """(the performative that begins at offset, the offset of the payload behind it). AMQP's and SASL's alike: whether
    it may come in this kind of frame is for the caller to say."""
    code, position = read_descriptor(buf, offset, end)
    fast = _FAST.get(code)
    if fast is not None:
        read = fast(buf, position, end)
        if read is not None:
            return read
    cls = _PERFORMATIVES.get(code)
    if cls is None:
        skip_value(buf, offset, end)
        raise DecodeError(DECODE_ERROR, f"{_descriptor_text(buf, offset, end)} is no performative", offset)
    return read_fields(cls, buf, position, end)


def _descriptor_text(buf: bytes, offset: int, end: int) -> str:
    descriptor = decode_value(buf, offset + 1, end)[0]
    return f"0x{descriptor:02x}" if isinstance(descriptor, ULong) else repr(descriptor)


# The three that come by the thousand. Each returns None for what is rare and for what is wrong: then the table reads it
# again. All reads are inside the buffer (or IndexError, struct.error); `offset == stop` says that they were inside the
# list as well.

_TRUTH: Final = {0x40: False, 0x41: True, 0x42: False}
_OPTIONAL_TRUTH: Final[dict[int, bool | None]] = {0x40: None, 0x41: True, 0x42: False}


def _fast_disposition(buf: bytes, offset: int, end: int) -> tuple[Disposition, int] | None:
    try:
        if buf[offset] == 0xC0:
            stop = offset + 2 + buf[offset + 1]
            count = buf[offset + 2]
            offset += 3
        elif buf[offset] == 0xD0:
            size, count = _unpack_ii(buf, offset + 1)
            stop = offset + 5 + size
            offset += 9
        else:
            return None
        if stop > end or not 2 <= count <= 6:
            return None
        role = buf[offset]
        if role != 0x41 and role != 0x42:
            return None
        code = buf[offset + 1]
        if code == 0x52:
            first = buf[offset + 2]
            offset += 3
        elif code == 0x70:
            first = _unpack_u32(buf, offset + 2)[0]
            offset += 6
        elif code == 0x43:
            first = 0
            offset += 2
        else:
            return None
        last: int | None = None
        settled = False
        state: DeliveryState | None = None
        batchable = False
        if count > 2:
            code = buf[offset]
            if code == 0x52:
                last = buf[offset + 1]
                offset += 2
            elif code == 0x70:
                last = _unpack_u32(buf, offset + 1)[0]
                offset += 5
            elif code == 0x40:
                offset += 1
            elif code == 0x43:
                last = 0
                offset += 1
            else:
                return None
            if count > 3:
                settled = _TRUTH[buf[offset]]
                offset += 1
                if count > 4:
                    state_end = stop
                    if count == 6:
                        state_end = stop - 1
                        batchable = _TRUTH[buf[state_end]]
                    state = _COMMON_STATES[buf[offset:state_end]]
                    offset = stop
        if offset != stop:
            return None
    except (LookupError, error):
        return None
    return Disposition(role == 0x41, first, last, settled, state, batchable), stop


def _fast_flow(buf: bytes, offset: int, end: int) -> tuple[Flow, int] | None:
    try:
        if buf[offset] == 0xC0:
            stop = offset + 2 + buf[offset + 1]
            count = buf[offset + 2]
            offset += 3
        elif buf[offset] == 0xD0:
            size, count = _unpack_ii(buf, offset + 1)
            stop = offset + 5 + size
            offset += 9
        else:
            return None
        if stop > end or not 4 <= count <= 11:
            return None
        values: list[Any] = []
        for _ in range(8 if count > 8 else count):
            code = buf[offset]
            if code == 0x70:
                values.append(_unpack_u32(buf, offset + 1)[0])
                offset += 5
            elif code == 0x52:
                values.append(buf[offset + 1])
                offset += 2
            elif code == 0x43:
                values.append(0)
                offset += 1
            elif code == 0x40:
                values.append(None)
                offset += 1
            else:
                return None
        if None in values[1:4]:
            return None
        if count > 8:
            values.append(_TRUTH[buf[offset]])
            offset += 1
            if count > 9:
                values.append(_TRUTH[buf[offset]])
                offset += 1
                if count > 10:
                    if buf[offset] != 0x40:
                        return None
                    offset += 1
        if offset != stop:
            return None
    except (LookupError, error):
        return None
    return Flow(*values), stop


def _fast_transfer(buf: bytes, offset: int, end: int) -> tuple[Transfer, int] | None:
    try:
        if buf[offset] == 0xC0:
            stop = offset + 2 + buf[offset + 1]
            count = buf[offset + 2]
            offset += 3
        elif buf[offset] == 0xD0:
            size, count = _unpack_ii(buf, offset + 1)
            stop = offset + 5 + size
            offset += 9
        else:
            return None
        if stop > end or not 4 <= count <= 11:
            return None
        values: list[Any] = []
        for position in range(4):
            code = buf[offset]
            if position == 2:
                if code == 0xA0:
                    tag_end = offset + 2 + buf[offset + 1]
                    values.append(buf[offset + 2 : tag_end])
                    if tag_end - offset > 34:
                        return None
                    offset = tag_end
                elif code == 0x40:
                    values.append(None)
                    offset += 1
                else:
                    return None
            elif code == 0x43:
                values.append(0)
                offset += 1
            elif code == 0x52:
                values.append(buf[offset + 1])
                offset += 2
            elif code == 0x70:
                values.append(_unpack_u32(buf, offset + 1)[0])
                offset += 5
            elif code == 0x40:
                values.append(None)
                offset += 1
            else:
                return None
        if values[0] is None:
            return None
        if count > 4:
            values.append(_OPTIONAL_TRUTH[buf[offset]])
            offset += 1
            for position in range(5, count):
                code = buf[offset]
                if position == 6 or position == 7:
                    if code != 0x40:
                        return None
                    values.append(None)
                else:
                    values.append(_TRUTH[code])
                offset += 1
        if offset != stop:
            return None
    except (LookupError, error):
        return None
    return Transfer(*values), stop


_FAST: Final[dict[int | None, Callable[[bytes, int, int], tuple[Performative, int] | None]]] = {
    0x13: _fast_flow,
    0x14: _fast_transfer,
    0x15: _fast_disposition,
}
_COMMON_STATES: Final[dict[bytes, DeliveryState | None]] = {**COMMON_STATES, b"\x40": None}
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
