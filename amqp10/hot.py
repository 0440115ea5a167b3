"""Flow, transfer and disposition (2.7.4 to 2.7.6), which come by the thousand and are read and written by hand.

Whatever is unusual about one of them, and whatever is wrong, goes through the table (composite.py), so that both ways
accept the same and every error is worded in one place. Next: performatives.py for the others and the entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Final

from amqp10.codec import encode_uint
from amqp10.composite import BOOLEAN, DELIVERY_TAG, FIELDS, UBYTE, UINT, Composite, composite, required, within
from amqp10.errors import EncodeError
from amqp10.outcomes import ACCEPTED, COMMON_STATES, STATE, DeliveryState

_unpack_u32 = Struct(">I").unpack_from
_unpack_ii = Struct(">II").unpack_from

RCV_MODE: Final = within(0, 1, UBYTE)


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
    RCV_MODE,
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


# Reading by hand. Each returns None for what is rare and for what is wrong: then the table reads it
# again. All reads are inside the buffer (or IndexError, struct.error); `offset == stop` says that they were inside the
# list as well.

_TRUTH: Final = {0x40: False, 0x41: True, 0x42: False}
_OPTIONAL_TRUTH: Final[dict[int, bool | None]] = {0x40: None, 0x41: True, 0x42: False}


def fast_disposition(buf: bytes, offset: int, end: int) -> tuple[Disposition, int] | None:
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


def fast_flow(buf: bytes, offset: int, end: int) -> tuple[Flow, int] | None:
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


def fast_transfer(buf: bytes, offset: int, end: int) -> tuple[Transfer, int] | None:
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


_COMMON_STATES: Final[dict[bytes, DeliveryState | None]] = {**COMMON_STATES, b"\x40": None}
